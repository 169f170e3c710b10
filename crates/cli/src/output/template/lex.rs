//! Splits a template into text and actions, and an action into tokens.

use super::Error;

/// Text between actions, or what stands between `{{` and `}}`.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    Text(String),
    Action(Vec<Token>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// `.a.b`; empty for the lone dot. `true` where it follows a closing parenthesis or variable
    /// directly.
    Field(Vec<String>),
    /// `$x` with its fields; the name is empty for `$`.
    Variable(String, Vec<String>),
    Word(String),
    Text(String),
    Number(f64),
    Open,
    /// `)` with the fields that follow it.
    Close(Vec<String>),
    Pipe,
    Comma,
    Declare,
    Assign,
}

fn syntax(text: impl Into<String>) -> Error {
    Error::Syntax(text.into())
}

/// Splits the whole template.
pub(super) fn split(text: &str) -> Result<Vec<Piece>, Error> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let mut trim_left = false;
    loop {
        let Some(start) = rest.find("{{") else {
            push_text(&mut pieces, if trim_left { rest.trim_start() } else { rest });
            return Ok(pieces);
        };
        let (before, mut action) = (&rest[..start], &rest[start + 2..]);
        let before = if trim_left { before.trim_start() } else { before };
        let trim_right = action.starts_with("- ") || action.starts_with("-\t");
        push_text(&mut pieces, if trim_right { before.trim_end() } else { before });
        if trim_right {
            action = &action[1..];
        }
        if action.trim_start().starts_with("/*") {
            let end = action.find("*/").ok_or_else(|| syntax("unclosed comment"))?;
            let after = action[end + 2..].trim_start();
            trim_left = after.starts_with("-}}");
            let after = after.strip_prefix('-').unwrap_or(after);
            rest = after
                .strip_prefix("}}")
                .ok_or_else(|| syntax("comment ends before closing delimiter"))?;
            continue;
        }
        let (tokens, used, trimmed) = tokens(action)?;
        trim_left = trimmed;
        pieces.push(Piece::Action(tokens));
        rest = &action[used..];
    }
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
}

/// The tokens up to `}}`; how many bytes were used; whether the text that follows is to be trimmed.
fn tokens(action: &str) -> Result<(Vec<Token>, usize, bool), Error> {
    let bytes = action.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if action[at..].starts_with("}}") {
            return Ok((out, at + 2, false));
        }
        if action[at..].starts_with("-}}") {
            return Ok((out, at + 3, true));
        }
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => at += 1,
            b'(' => {
                out.push(Token::Open);
                at += 1;
            }
            b')' => {
                let (fields, next) = fields(action, at + 1);
                out.push(Token::Close(fields));
                at = next;
            }
            b'|' => {
                out.push(Token::Pipe);
                at += 1;
            }
            b',' => {
                out.push(Token::Comma);
                at += 1;
            }
            b'=' => {
                out.push(Token::Assign);
                at += 1;
            }
            b':' if bytes.get(at + 1) == Some(&b'=') => {
                out.push(Token::Declare);
                at += 2;
            }
            b'"' => {
                let (text, next) = quoted(action, at + 1)?;
                out.push(Token::Text(text));
                at = next;
            }
            b'`' => {
                let end = action[at + 1..]
                    .find('`')
                    .ok_or_else(|| syntax("unterminated raw quoted string"))?;
                out.push(Token::Text(action[at + 1..=at + end].to_owned()));
                at += end + 2;
            }
            b'.' => {
                let (names, next) = fields(action, at);
                out.push(Token::Field(names));
                at = if next == at { at + 1 } else { next };
            }
            b'$' => {
                let end = word_end(action, at + 1);
                let (names, next) = fields(action, end);
                out.push(Token::Variable(action[at + 1..end].to_owned(), names));
                at = next;
            }
            b'0'..=b'9' | b'-' | b'+' => {
                let end = at
                    + 1
                    + action[at + 1..].find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(0);
                let number = action[at..end]
                    .parse()
                    .map_err(|_| syntax(format!("bad number {:?}", &action[at..end])))?;
                out.push(Token::Number(number));
                at = end;
            }
            _ => {
                let end = word_end(action, at);
                if end == at {
                    let wrong = action[at..].chars().next().unwrap_or(' ');
                    return Err(syntax(format!("unexpected {wrong:?} in action")));
                }
                out.push(Token::Word(action[at..end].to_owned()));
                at = end;
            }
        }
    }
    Err(syntax("unclosed action"))
}

/// Where the word that starts at `at` ends.
fn word_end(text: &str, at: usize) -> usize {
    text[at..].find(|c: char| !c.is_alphanumeric() && c != '_').map_or(text.len(), |end| at + end)
}

/// The `.a.b` that starts at `at`.
fn fields(text: &str, mut at: usize) -> (Vec<String>, usize) {
    let mut names = Vec::new();
    while text[at..].starts_with('.') {
        let end = word_end(text, at + 1);
        if end == at + 1 {
            break;
        }
        names.push(text[at + 1..end].to_owned());
        at = end;
    }
    (names, at)
}

/// A string in double quotes that starts at `at` (after the quote).
fn quoted(text: &str, at: usize) -> Result<(String, usize), Error> {
    let mut out = String::new();
    let mut chars = text[at..].char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '"' => return Ok((out, at + index + 1)),
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('r') => out.push('\r'),
                Some(c @ ('"' | '\\' | '\'')) => out.push(c),
                _ => return Err(syntax("unknown escape in quoted string")),
            },
            '\n' => break,
            c => out.push(c),
        }
    }
    Err(syntax("unterminated quoted string"))
}
