//! Tokens to a tree of nodes.

use super::Error;
use super::lex::{self, Piece, Token};

#[derive(Debug)]
pub(super) enum Node {
    Text(String),
    /// Prints its value, unless it only sets a variable.
    Print(Pipe),
    If(Vec<(Pipe, Vec<Node>)>, Vec<Node>),
    With(Pipe, Vec<Node>, Vec<Node>),
    Range(Pipe, Vec<Node>, Vec<Node>),
    Break,
    Continue,
}

/// `$a, $b := command | command`.
#[derive(Debug)]
pub(super) struct Pipe {
    /// Variables set; `true` where they are declared (`:=`) and not assigned (`=`).
    pub variables: Vec<String>,
    pub declares: bool,
    pub commands: Vec<Command>,
}

/// A value with arguments: `index .X 1`.
#[derive(Debug)]
pub(super) struct Command {
    pub words: Vec<Operand>,
}

#[derive(Debug)]
pub(super) enum Operand {
    Field(Vec<String>),
    Variable(String, Vec<String>),
    Function(String),
    Literal(serde_json::Value),
    Nested(Pipe, Vec<String>),
}

fn syntax(text: impl Into<String>) -> Error {
    Error::Syntax(text.into())
}

/// How a list of nodes ended.
enum End {
    Eof,
    Closed,
    Else(Vec<Token>),
}

/// Parses a whole template.
pub(super) fn parse(text: &str) -> Result<Vec<Node>, Error> {
    let mut pieces = lex::split(text)?.into_iter();
    let (nodes, end) = list(&mut pieces, 0)?;
    match end {
        End::Eof => Ok(nodes),
        End::Closed => Err(syntax("unexpected {{end}}")),
        End::Else(_) => Err(syntax("unexpected {{else}}")),
    }
}

/// The limit of nesting, so that no template can exhaust the stack.
const MAX_DEPTH: usize = 64;

fn list(pieces: &mut std::vec::IntoIter<Piece>, depth: usize) -> Result<(Vec<Node>, End), Error> {
    if depth > MAX_DEPTH {
        return Err(syntax("nested too deeply"));
    }
    let mut nodes = Vec::new();
    while let Some(piece) = pieces.next() {
        let tokens = match piece {
            Piece::Text(text) => {
                nodes.push(Node::Text(text));
                continue;
            }
            Piece::Action(tokens) => tokens,
        };
        let word = match tokens.first() {
            Some(Token::Word(word)) => word.as_str(),
            _ => "",
        };
        match word {
            "end" => return Ok((nodes, End::Closed)),
            "else" => return Ok((nodes, End::Else(tokens[1..].to_vec()))),
            "if" => nodes.push(conditional(pieces, &tokens[1..], depth)?),
            "with" | "range" => {
                let head = pipe(&tokens[1..])?;
                let (body, end) = list(pieces, depth + 1)?;
                let otherwise = match end {
                    End::Closed => Vec::new(),
                    End::Else(rest) if rest.is_empty() => closed(pieces, depth)?,
                    End::Else(_) => {
                        return Err(syntax(format!("{{{{else}}}} of {word} takes no condition")));
                    }
                    End::Eof => return Err(syntax("unexpected EOF")),
                };
                nodes.push(if word == "with" {
                    Node::With(head, body, otherwise)
                } else {
                    Node::Range(head, body, otherwise)
                });
            }
            "break" => nodes.push(Node::Break),
            "continue" => nodes.push(Node::Continue),
            "define" | "template" | "block" => {
                return Err(syntax(format!("{word} is not supported")));
            }
            _ => nodes.push(Node::Print(pipe(&tokens)?)),
        }
    }
    Ok((nodes, End::Eof))
}

fn closed(pieces: &mut std::vec::IntoIter<Piece>, depth: usize) -> Result<Vec<Node>, Error> {
    match list(pieces, depth + 1)? {
        (nodes, End::Closed) => Ok(nodes),
        (_, End::Eof) => Err(syntax("unexpected EOF")),
        (_, End::Else(_)) => Err(syntax("expected end; found {{else}}")),
    }
}

fn conditional(
    pieces: &mut std::vec::IntoIter<Piece>,
    head: &[Token],
    depth: usize,
) -> Result<Node, Error> {
    let mut branches = Vec::new();
    let mut head = pipe(head)?;
    loop {
        let (body, end) = list(pieces, depth + 1)?;
        branches.push((head, body));
        match end {
            End::Closed => return Ok(Node::If(branches, Vec::new())),
            End::Eof => return Err(syntax("unexpected EOF")),
            End::Else(rest) if rest.is_empty() => {
                return Ok(Node::If(branches, closed(pieces, depth)?));
            }
            End::Else(rest) => match rest.split_first() {
                Some((Token::Word(word), rest)) if word == "if" => head = pipe(rest)?,
                _ => return Err(syntax("{{else}} must stand alone or before if")),
            },
        }
    }
}

fn pipe(tokens: &[Token]) -> Result<Pipe, Error> {
    let mut at = 0;
    let parsed = pipe_at(tokens, &mut at, 0)?;
    if at < tokens.len() {
        return Err(syntax("unexpected right parenthesis"));
    }
    Ok(parsed)
}

fn pipe_at(tokens: &[Token], at: &mut usize, depth: usize) -> Result<Pipe, Error> {
    if depth > MAX_DEPTH {
        return Err(syntax("nested too deeply"));
    }
    let (variables, declares) = declaration(tokens, at);
    let mut commands = Vec::new();
    let mut words = Vec::new();
    while let Some(token) = tokens.get(*at) {
        match token {
            Token::Close(_) => break,
            Token::Pipe => commands.push(Command { words: std::mem::take(&mut words) }),
            Token::Field(names) => words.push(Operand::Field(names.clone())),
            Token::Variable(name, names) => {
                words.push(Operand::Variable(name.clone(), names.clone()));
            }
            Token::Word(word) => words.push(match word.as_str() {
                "true" => Operand::Literal(true.into()),
                "false" => Operand::Literal(false.into()),
                "nil" => Operand::Literal(serde_json::Value::Null),
                _ => Operand::Function(word.clone()),
            }),
            Token::Text(text) => words.push(Operand::Literal(text.clone().into())),
            Token::Number(number) => words.push(Operand::Literal(number_value(*number))),
            Token::Open => {
                *at += 1;
                let inner = pipe_at(tokens, at, depth + 1)?;
                match tokens.get(*at) {
                    Some(Token::Close(names)) => words.push(Operand::Nested(inner, names.clone())),
                    _ => return Err(syntax("unclosed left parenthesis")),
                }
            }
            Token::Comma | Token::Declare | Token::Assign => {
                return Err(syntax("unexpected ',' or '='"));
            }
        }
        *at += 1;
    }
    commands.push(Command { words });
    if commands.iter().any(|command| command.words.is_empty()) {
        return Err(syntax("missing value for command"));
    }
    Ok(Pipe { variables, declares, commands })
}

fn number_value(number: f64) -> serde_json::Value {
    if number.fract() == 0.0 { (number as i64).into() } else { number.into() }
}

/// `$x :=`, `$x =`, `$i, $x :=`: moves past it where there is one.
fn declaration(tokens: &[Token], at: &mut usize) -> (Vec<String>, bool) {
    let name = |offset: usize| match tokens.get(*at + offset) {
        Some(Token::Variable(name, names)) if names.is_empty() => Some(name.clone()),
        _ => None,
    };
    let sign = |offset: usize| match tokens.get(*at + offset) {
        Some(Token::Declare) => Some(true),
        Some(Token::Assign) => Some(false),
        _ => None,
    };
    if let (Some(first), Some(declares)) = (name(0), sign(1)) {
        *at += 2;
        return (vec![first], declares);
    }
    if let (Some(first), Some(Token::Comma), Some(second), Some(declares)) =
        (name(0), tokens.get(*at + 1), name(2), sign(3))
    {
        *at += 4;
        return (vec![first, second], declares);
    }
    (Vec::new(), false)
}
