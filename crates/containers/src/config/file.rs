//! One TOML file as a flat list of dotted keys with their lines.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::Error;
use super::settings::SETTINGS;
use super::value::Kind;

/// A key of a file and what it is set to.
#[derive(Debug)]
pub(crate) struct Item {
    /// The dotted key, as written.
    pub key: String,
    /// The line of the key, counted from 1.
    pub line: usize,
    /// The value.
    pub value: toml::Value,
}

/// Tables deeper than this have no setting; TOML itself allows any depth.
const DEEPEST: usize = 8;

pub(crate) fn parse(path: &Path, text: &str) -> Result<Vec<Item>, Error> {
    let syntax = |error: toml::de::Error| Error::Syntax {
        path: path.to_owned(),
        line: line_of(text, error.span().map_or(0, |span| span.start)),
        message: error.message().to_owned(),
    };
    let table = DeTable::parse(text).map_err(syntax)?;
    let mut items = Vec::new();
    flatten(text, "", table.get_ref(), 0, &mut items);
    items.sort_by_key(|item| item.line);
    Ok(items)
}

fn flatten(text: &str, prefix: &str, table: &DeTable<'_>, depth: usize, items: &mut Vec<Item>) {
    for (name, value) in table {
        let key = match prefix {
            "" => name.get_ref().to_string(),
            _ => format!("{prefix}.{}", name.get_ref()),
        };
        match value.get_ref() {
            DeValue::Table(inner) if depth < DEEPEST && !is_map(&key) => {
                flatten(text, &key, inner, depth + 1, items);
            }
            value => items.push(Item {
                line: line_of(text, name.span().start),
                value: plain(value),
                key,
            }),
        }
    }
}

/// Settings whose value is itself a table.
fn is_map(key: &str) -> bool {
    let key = key.replace('_', "-");
    SETTINGS.iter().any(|setting| setting.key == key && setting.kind == Kind::Map)
}

/// The value without its places in the text. Numbers out of range become what they were written as.
fn plain(value: &DeValue<'_>) -> toml::Value {
    match value {
        DeValue::String(text) => toml::Value::String(text.to_string()),
        DeValue::Boolean(value) => toml::Value::Boolean(*value),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| toml::Value::String(number.to_string()), toml::Value::Integer),
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .map_or_else(|_| toml::Value::String(number.to_string()), toml::Value::Float),
        DeValue::Datetime(time) => toml::Value::Datetime(*time),
        DeValue::Array(values) => {
            toml::Value::Array(values.iter().map(|value| plain(value.get_ref())).collect())
        }
        DeValue::Table(table) => toml::Value::Table(
            table
                .iter()
                .map(|(name, value)| (name.get_ref().to_string(), plain(value.get_ref())))
                .collect(),
        ),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}
