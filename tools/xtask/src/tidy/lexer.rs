//! Splits Rust source into words, signs and comments, for checks that need no syntax tree.
//!
//! Strings, characters, lifetimes and numbers become [`Kind::Other`], so that a name in a string is
//! never taken for code. Every token and comment carries its line. Invalid source gives some tokens
//! and never a panic: the compiler reports it elsewhere.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// An identifier or keyword; `r#type` is the word `type`.
    Word(&'a str),
    /// One character of punctuation: `::` is two of them.
    Sign(char),
    /// A string, character, number or lifetime.
    Other,
}

/// A token and the line, from 1, on which it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind<'a>,
    pub(super) line: usize,
}

impl Token<'_> {
    /// Whether this is the word `text`.
    pub(super) fn is_word(&self, text: &str) -> bool {
        self.kind == Kind::Word(text)
    }

    /// Whether this is the sign `sign`.
    pub(super) fn is_sign(&self, sign: char) -> bool {
        self.kind == Kind::Sign(sign)
    }
}

/// The tokens of a file, and the lines that hold a part of a comment.
#[derive(Debug, Default)]
pub(super) struct Lexed<'a> {
    pub(super) tokens: Vec<Token<'a>>,
    /// In ascending order, each once.
    pub(super) comment_lines: Vec<usize>,
}

/// Splits `text`.
pub(super) fn lex(text: &str) -> Lexed<'_> {
    let mut lexer = Lexer { text, at: 0, line: 1, lexed: Lexed::default() };
    while lexer.step() {}
    lexer.lexed
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    lexed: Lexed<'a>,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Moves on by `bytes`, which end at a character's boundary, and counts lines.
    fn advance(&mut self, bytes: usize) {
        self.line += self.rest()[..bytes].matches('\n').count();
        self.at += bytes;
    }

    fn push(&mut self, kind: Kind<'a>, bytes: usize) {
        self.lexed.tokens.push(Token { kind, line: self.line });
        self.advance(bytes);
    }

    /// Takes one token, comment or run of white space; false at the end.
    fn step(&mut self) -> bool {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return false };
        if first.is_whitespace() {
            self.advance(first.len_utf8());
        } else if rest.starts_with("//") {
            self.comment(rest.find('\n').unwrap_or(rest.len()));
        } else if rest.starts_with("/*") {
            self.comment(block_comment(rest));
        } else if let Some(bytes) = string(rest).or_else(|| character(rest)) {
            self.push(Kind::Other, bytes);
        } else if first == '\'' {
            self.push(Kind::Other, 1 + word(&rest[1..]));
        } else if first.is_ascii_digit() {
            self.push(Kind::Other, word(rest));
        } else if is_word(first) {
            let raw = if rest.starts_with("r#") { 2 } else { 0 };
            self.advance(raw);
            let bytes = word(&rest[raw..]).max(usize::from(raw == 0));
            self.push(Kind::Word(&rest[raw..raw + bytes]), bytes);
        } else {
            self.push(Kind::Sign(first), first.len_utf8());
        }
        true
    }

    fn comment(&mut self, bytes: usize) {
        let first = self.line;
        self.advance(bytes);
        let lines = &mut self.lexed.comment_lines;
        let known = lines.last().copied().unwrap_or_default();
        lines.extend(first.max(known + 1)..=self.line);
    }
}

fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

/// The bytes of the word at the start.
fn word(text: &str) -> usize {
    text.find(|character| !is_word(character)).unwrap_or(text.len())
}

/// The bytes of the comment `/* .. */` at the start; such comments nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while let Some(found) = text[at..].find(['/', '*']) {
        at += found;
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
        } else {
            at += 1;
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// The bytes of the string at the start, with its prefix: `"`, `b"`, `c"`, `r#"`, `br"`, ...
fn string(text: &str) -> Option<usize> {
    let prefix = text.find(|c| !matches!(c, 'b' | 'c' | 'r'))?;
    if prefix > 2 {
        return None;
    }
    let after = &text[prefix..];
    if text[..prefix].ends_with('r') {
        let hashes = after.find(|c| c != '#')?;
        let body = after[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let bytes = body.find(&end).map_or(body.len(), |found| found + end.len());
        return Some(prefix + hashes + 1 + bytes);
    }
    Some(prefix + quoted(after, '"')?)
}

/// The bytes of the character or byte at the start; none for a lifetime.
fn character(text: &str) -> Option<usize> {
    let prefix = usize::from(text.starts_with("b'"));
    let mut characters = text[prefix..].chars();
    if characters.next() != Some('\'') {
        return None;
    }
    let is_escape = characters.next()? == '\\';
    if is_escape || characters.next()? == '\'' {
        return Some(prefix + quoted(&text[prefix..], '\'')?);
    }
    None
}

/// The bytes of what stands between two `quote`, both included; a backslash hides the next one.
fn quoted(text: &str, quote: char) -> Option<usize> {
    let body = text.strip_prefix(quote)?;
    let mut hidden = false;
    for (at, character) in body.char_indices() {
        if !hidden && character == quote && at + quote.len_utf8() <= body.len() {
            // `'''` is the quote itself.
            if quote == '\'' && at == 0 {
                continue;
            }
            return Some(at + 2);
        }
        hidden = !hidden && character == '\\';
    }
    Some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        let tokens = lex(text).tokens.into_iter();
        tokens
            .filter_map(|token| if let Kind::Word(word) = token.kind { Some(word) } else { None })
            .collect()
    }

    #[test]
    fn words_signs_and_lines() {
        let tokens = lex("use a::b;\n\nfn f() {}").tokens;
        let kinds: Vec<_> = tokens.iter().map(|token| token.kind).collect();
        assert_eq!(
            kinds[..4],
            [Kind::Word("use"), Kind::Word("a"), Kind::Sign(':'), Kind::Sign(':')]
        );
        assert_eq!(tokens.last().map(|token| token.line), Some(3));
    }

    #[test]
    fn strings_hide_their_words() {
        assert_eq!(words(r#"a "crate::x \" y" b"#), ["a", "b"]);
        assert_eq!(words("a r#\"crate \" x\"# b"), ["a", "b"]);
        assert_eq!(words("a br##\"x\"# y\"## b c\"z\" d"), ["a", "b", "d"]);
        assert_eq!(words("a b\"x\\\\\" b"), ["a", "b"]);
        assert_eq!(words("a \"x // y\" b"), ["a", "b"]);
    }

    #[test]
    fn characters_are_not_lifetimes() {
        assert_eq!(words("a '\"' b '\"' c"), ["a", "b", "c"]);
        assert_eq!(words(r"a '\'' b b'\'' c '\u{1F600}' d"), ["a", "b", "c", "d"]);
        assert_eq!(words("fn f<'a>(x: &'a str) -> &'static str"), ["fn", "f", "x", "str", "str"]);
        assert_eq!(words("a 'é' b"), ["a", "b"]);
    }

    #[test]
    fn raw_words_and_words_like_prefixes() {
        assert_eq!(words("r#type bar crate_name"), ["type", "bar", "crate_name"]);
        assert_eq!(words("r b br c"), ["r", "b", "br", "c"]);
    }

    #[test]
    fn comments_have_lines_and_no_words() {
        let text = "a // crate::x\nb /* c /* d */\ne */ f\n\"//\" g\n//! h";
        assert_eq!(words(text), ["a", "b", "f", "g"]);
        assert_eq!(lex(text).comment_lines, [1, 2, 3, 5]);
    }

    #[test]
    fn ends_in_invalid_source() {
        for text in ["\"", "'", "r#\"", "/*", "b'", "r#", "'\\", "é", "1.0e", "r##"] {
            lex(text);
        }
    }
}
