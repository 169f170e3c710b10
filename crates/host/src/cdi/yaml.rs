//! The part of YAML that programs write CDI files in, as JSON values.
//!
//! Block mappings and sequences by indentation, plain and quoted scalars on one line, flow sequences and mappings (`[ro, nosuid]`),
//! comments. Anchors, tags, scalars over several lines and further documents are refused, since a guess would mount the wrong thing.
//! Plain scalars other than `null` stay text: nothing that CDI says and we use is a number.

use serde_json::{Map, Value};

/// How deep values may lie in each other.
const DEPTH_MAX: usize = 32;

/// One line without its indentation and comment.
struct Line<'a> {
    number: usize,
    indent: usize,
    text: &'a str,
}

/// Reads a document. The error says the line and what is wrong there.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let content = without_comment(line).trim_end();
        let indent = content.len() - content.trim_start_matches(' ').len();
        let content = &content[indent..];
        match content {
            "" => {}
            "---" if lines.is_empty() => {}
            "---" => return Err(format!("line {}: a second document", index + 1)),
            "..." => break,
            _ if content.starts_with('%') && lines.is_empty() => {}
            _ if content.starts_with('\t') => {
                return Err(format!("line {}: indented by a tab", index + 1));
            }
            _ => lines.push(Line { number: index + 1, indent, text: content }),
        }
    }
    let mut reader = Reader { lines: &mut lines, at: 0 };
    let value = reader.block(0, 0)?;
    match reader.lines.get(reader.at) {
        None => Ok(value),
        Some(line) => Err(format!("line {}: not expected here", line.number)),
    }
}

/// A line up to its comment: a `#` at its beginning or behind a space, outside of quotes.
fn without_comment(line: &str) -> &str {
    let (mut quote, mut before) = (None, ' ');
    for (index, c) in line.char_indices() {
        match (c, quote) {
            ('#', None) if before == ' ' => return &line[..index],
            ('"' | '\'', None) if !before.is_alphanumeric() => quote = Some(c),
            (c, Some(open)) if c == open && !(open == '"' && before == '\\') => quote = None,
            _ => {}
        }
        before = c;
    }
    line
}

struct Reader<'l, 'a> {
    lines: &'l mut [Line<'a>],
    at: usize,
}

impl<'a> Reader<'_, 'a> {
    /// The value whose lines are indented by at least `least`.
    fn block(&mut self, least: usize, depth: usize) -> Result<Value, String> {
        let Some(line) = self.lines.get(self.at).filter(|line| line.indent >= least) else {
            return Ok(Value::Null);
        };
        if depth > DEPTH_MAX {
            return Err(format!("line {}: too deep", line.number));
        }
        let indent = line.indent;
        if is_item(line.text) {
            self.sequence(indent, depth)
        } else if key(line.text).is_some() {
            self.mapping(indent, depth)
        } else {
            let value = scalar(line.text).map_err(|why| format!("line {}: {why}", line.number))?;
            self.at += 1;
            Ok(value)
        }
    }

    fn sequence(&mut self, indent: usize, depth: usize) -> Result<Value, String> {
        let mut items = Vec::new();
        while let Some(line) = self.lines.get_mut(self.at) {
            if line.indent != indent || !is_item(line.text) {
                break;
            }
            let rest = line.text[1..].trim_start();
            if rest.is_empty() {
                self.at += 1;
                items.push(self.block(indent + 1, depth + 1)?);
            } else {
                // What follows the dash stands where it stands: a mapping may go on beneath it.
                line.indent += line.text.len() - rest.len();
                line.text = rest;
                items.push(self.block(indent + 1, depth + 1)?);
            }
        }
        self.check_end(indent)?;
        Ok(Value::Array(items))
    }

    fn mapping(&mut self, indent: usize, depth: usize) -> Result<Value, String> {
        let mut map = Map::new();
        while let Some(line) = self.lines.get(self.at) {
            if line.indent != indent || is_item(line.text) {
                break;
            }
            let number = line.number;
            let (name, rest): (&'a str, &'a str) =
                key(line.text).ok_or_else(|| format!("line {number}: no 'KEY: VALUE'"))?;
            self.at += 1;
            let Value::String(name) =
                scalar(name).map_err(|why| format!("line {number}: {why}"))?
            else {
                return Err(format!("line {number}: a key that is no text"));
            };
            let value = if rest.is_empty() {
                // A sequence may stand beneath its key without being indented.
                let next = self.lines.get(self.at);
                let flush = next.is_some_and(|next| next.indent == indent && is_item(next.text));
                self.block(if flush { indent } else { indent + 1 }, depth + 1)?
            } else {
                scalar(rest).map_err(|why| format!("line {number}: {why}"))?
            };
            if map.insert(name, value).is_some() {
                return Err(format!("line {number}: the key is there twice"));
            }
        }
        self.check_end(indent)?;
        Ok(Value::Object(map))
    }

    /// What follows a collection belongs to one that is around it.
    fn check_end(&self, indent: usize) -> Result<(), String> {
        match self.lines.get(self.at) {
            Some(line) if line.indent > indent => {
                Err(format!("line {}: indented by too much", line.number))
            }
            _ => Ok(()),
        }
    }
}

fn is_item(text: &str) -> bool {
    text == "-" || text.starts_with("- ")
}

/// Parts `KEY: VALUE`; a colon counts outside of quotes and brackets, at the end or before a space.
fn key(text: &str) -> Option<(&str, &str)> {
    let skip = match text.chars().next()? {
        quote @ ('"' | '\'') => text[1..].find(quote)? + 2,
        '[' | '{' => return None,
        _ => 0,
    };
    let rest = &text[skip..];
    let at =
        if rest.ends_with(':') && !rest.contains(": ") { rest.len() - 1 } else { rest.find(": ")? };
    Some((&text[..skip + at], rest[at + 1..].trim_start()))
}

/// A value on one line.
fn scalar(text: &str) -> Result<Value, String> {
    let (value, rest) = flow(text, false, 0)?;
    if rest.trim().is_empty() { Ok(value) } else { Err("something behind the value".into()) }
}

/// A value and what follows it; plain scalars inside brackets end at `,`, `]` and `}`.
fn flow(text: &str, inside: bool, depth: usize) -> Result<(Value, &str), String> {
    let text = text.trim_start();
    let Some(first) = text.chars().next() else { return Ok((Value::Null, "")) };
    if depth > DEPTH_MAX {
        return Err("too deep".into());
    }
    match first {
        '"' => {
            let mut end = 1;
            let bytes = text.as_bytes();
            while bytes.get(end).is_some_and(|byte| *byte != b'"') {
                end += if bytes[end] == b'\\' { 2 } else { 1 };
            }
            let quoted = text.get(..=end).ok_or("a quote is not closed")?;
            // YAML's escapes that JSON does not have are not used in paths and names.
            let value: String = serde_json::from_str(quoted).map_err(|_| "an unknown escape")?;
            Ok((Value::String(value), &text[end + 1..]))
        }
        '\'' => {
            let mut value = String::new();
            let mut rest = &text[1..];
            loop {
                let end = rest.find('\'').ok_or("a quote is not closed")?;
                value.push_str(&rest[..end]);
                rest = &rest[end + 1..];
                match rest.strip_prefix('\'') {
                    Some(more) => {
                        value.push('\'');
                        rest = more;
                    }
                    None => return Ok((Value::String(value), rest)),
                }
            }
        }
        '[' => {
            let (mut items, mut rest) = (Vec::new(), text[1..].trim_start());
            while !rest.starts_with(']') {
                let (item, after) = flow(rest, true, depth + 1)?;
                items.push(item);
                rest = separated(after, ']')?;
            }
            Ok((Value::Array(items), &rest[1..]))
        }
        '{' => {
            let (mut map, mut rest) = (Map::new(), text[1..].trim_start());
            while !rest.starts_with('}') {
                let (name, after) = key(rest).ok_or("no 'KEY: VALUE' in braces")?;
                let (value, after) = flow(after, true, depth + 1)?;
                map.insert(name.trim_matches(['"', '\'']).to_owned(), value);
                rest = separated(after, '}')?;
            }
            Ok((Value::Object(map), &rest[1..]))
        }
        '&' | '*' | '!' | '|' | '>' | '@' | '`' | '%' => {
            Err(format!("'{first}' is a part of YAML that is not read here"))
        }
        _ => {
            let end =
                if inside { text.find([',', ']', '}']).unwrap_or(text.len()) } else { text.len() };
            let plain = text[..end].trim_end();
            let null = matches!(plain, "" | "~" | "null" | "Null" | "NULL");
            let value = if null { Value::Null } else { Value::String(plain.to_owned()) };
            Ok((value, &text[end..]))
        }
    }
}

/// What follows an item in brackets: behind a comma, or the closing bracket.
fn separated(rest: &str, close: char) -> Result<&str, String> {
    let rest = rest.trim_start();
    match rest.strip_prefix(',') {
        Some(more) => Ok(more.trim_start()),
        None if rest.starts_with(close) => Ok(rest),
        None => Err(format!("'{close}' is missing on this line")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_generators_write() {
        let text = "---\n# made by a program\ncdiVersion: 0.5.0\ncontainerEdits:\n  deviceNodes:\n  - path: /dev/nvidiactl\n  - hostPath: /dev/x\n    path: /dev/y # a comment\n  env:\n  - A=b: c # d\n  hooks:\n    -\n      args: ['it''s', \"a\\tb\", plain]\n      path: /bin/x\n  mounts: []\nannotations: {a: b, c: [d, {e: f}]}\ndevices:\n- containerEdits: {}\n  name: \"0\"\n- name: GPU-1:2#3\n  none:\nkind: vendor.com/gpu\n...\nrest";
        assert_eq!(
            parse(text).unwrap(),
            json!({
                "cdiVersion": "0.5.0",
                "containerEdits": {
                    "deviceNodes": [{"path": "/dev/nvidiactl"}, {"hostPath": "/dev/x", "path": "/dev/y"}],
                    "env": [{"A=b": "c"}],
                    "hooks": [{"args": ["it's", "a\tb", "plain"], "path": "/bin/x"}],
                    "mounts": [],
                },
                "annotations": {"a": "b", "c": ["d", {"e": "f"}]},
                "devices": [{"containerEdits": {}, "name": "0"}, {"name": "GPU-1:2#3", "none": null}],
                "kind": "vendor.com/gpu",
            })
        );
        assert_eq!(parse("- - a\n  - b\n- c").unwrap(), json!([["a", "b"], "c"]));
        assert_eq!(parse("").unwrap(), Value::Null);
    }

    #[test]
    fn what_is_not_read_is_told() {
        for (text, part) in [
            ("a: |\n  x", "line 1"),
            ("a: &x b", "line 1"),
            ("a: b\n c: d", "line 2"),
            ("a: b\na: c", "twice"),
            ("a: [b", "missing"),
            ("a: \"b", "not closed"),
            ("a: b\n---\nc: d", "second"),
            ("a:\n\tb: c", "tab"),
            ("a: b\nc", "line 2"),
            ("a: 'b' c", "behind"),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(part), "{text:?}: {why}");
        }
        assert!(
            parse(&"- ".repeat(1000)).is_err()
                && parse(&format!("a: {}", "[".repeat(1000))).is_err()
        );
    }
}
