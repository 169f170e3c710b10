//! The functions that a template may call, and how values print.

use std::cmp::Ordering;
use std::fmt::Write;

use serde_json::Value;

use super::Error;
use super::eval::HIDDEN;

const NAMES: &[&str] = &[
    "json", "join", "split", "upper", "lower", "title", "pad", "truncate", "println", "print",
    "printf", "len", "index", "slice", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not",
];

pub(super) fn exists(name: &str) -> bool {
    NAMES.contains(&name)
}

/// What a function gives in the line of headings: the text that it would have changed.
pub(super) fn heading(name: &str, mut arguments: Vec<Value>) -> Value {
    if matches!(name, "print" | "println" | "printf") {
        return call(name, &arguments).unwrap_or(Value::Null);
    }
    if arguments.is_empty() { Value::Null } else { arguments.swap_remove(0) }
}

fn fail(text: impl Into<String>) -> Error {
    Error::Eval(text.into())
}

/// Calls function `name`.
pub(super) fn call(name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let need = |count: usize| {
        if arguments.len() == count {
            Ok(())
        } else {
            Err(fail(format!(
                "wrong number of args for {name}: want {count} got {}",
                arguments.len()
            )))
        }
    };
    match name {
        "json" => need(1).map(|()| json(&arguments[0]).into()),
        "upper" => need(1).map(|()| text(&arguments[0]).to_uppercase().into()),
        "lower" => need(1).map(|()| text(&arguments[0]).to_lowercase().into()),
        "title" => need(1).map(|()| title(&text(&arguments[0])).into()),
        "join" => need(2).and_then(|()| join(&arguments[0], &text(&arguments[1]))),
        "split" => need(2).map(|()| {
            let (whole, by) = (text(&arguments[0]), text(&arguments[1]));
            whole.split(&by).map(Value::from).collect::<Vec<_>>().into()
        }),
        "pad" => need(3).map(|()| {
            let (left, right) = (count(&arguments[1]), count(&arguments[2]));
            format!("{}{}{}", " ".repeat(left), text(&arguments[0]), " ".repeat(right)).into()
        }),
        "truncate" => need(2).map(|()| {
            text(&arguments[0]).chars().take(count(&arguments[1])).collect::<String>().into()
        }),
        "print" => Ok(spaced(arguments, false).into()),
        "println" => Ok((spaced(arguments, true) + "\n").into()),
        "printf" => printf(arguments).map(Value::from),
        "len" => need(1).and_then(|()| len(&arguments[0])),
        "index" => index(arguments),
        "slice" => slice(arguments),
        "not" => need(1).map(|()| (!truth(&arguments[0])).into()),
        "and" => Ok(first_or_last(arguments, false)),
        "or" => Ok(first_or_last(arguments, true)),
        "eq" if arguments.len() >= 2 => {
            Ok(arguments[1..].iter().any(|other| same(&arguments[0], other)).into())
        }
        "ne" => need(2).map(|()| (!same(&arguments[0], &arguments[1])).into()),
        "lt" | "le" | "gt" | "ge" => need(2).and_then(|()| {
            let order = order(&arguments[0], &arguments[1])?;
            Ok(match name {
                "lt" => order == Ordering::Less,
                "le" => order != Ordering::Greater,
                "gt" => order == Ordering::Greater,
                _ => order != Ordering::Less,
            }
            .into())
        }),
        _ => Err(fail(format!("function {name:?} not defined; there are {}", NAMES.join(" ")))),
    }
}

/// Go's truth: not null, false, zero or empty.
pub(super) fn truth(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

/// As Go's `fmt` prints it by default.
pub(super) fn print_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<no value>"),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                print_value(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut keys: Vec<_> = map.keys().filter(|key| !key.starts_with(HIDDEN)).collect();
            keys.sort();
            out.push_str("map[");
            for (index, key) in keys.into_iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                let _ = write!(out, "{key}:");
                print_value(out, &map[key]);
            }
            out.push(']');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

fn text(value: &Value) -> String {
    let mut out = String::new();
    print_value(&mut out, value);
    out
}

fn count(value: &Value) -> usize {
    value.as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0).min(4096)
}

fn json(value: &Value) -> String {
    match value {
        Value::Object(map) if map.keys().any(|key| key.starts_with(HIDDEN)) => {
            let shown: serde_json::Map<_, _> = map
                .iter()
                .filter(|(key, _)| !key.starts_with(HIDDEN))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            Value::Object(shown).to_string()
        }
        other => other.to_string(),
    }
}

fn title(text: &str) -> String {
    let mut start = true;
    text.chars()
        .map(|c| {
            let shown = if start { c.to_ascii_uppercase() } else { c };
            start = !c.is_alphanumeric();
            shown
        })
        .collect()
}

fn join(list: &Value, by: &str) -> Result<Value, Error> {
    match list {
        Value::Array(items) => Ok(items.iter().map(text).collect::<Vec<_>>().join(by).into()),
        Value::Null => Ok("".into()),
        Value::String(_) => Ok(list.clone()),
        other => Err(fail(format!("join wants a list, not {other}"))),
    }
}

fn len(value: &Value) -> Result<Value, Error> {
    Ok(match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.len(),
        Value::Object(map) => map.keys().filter(|key| !key.starts_with(HIDDEN)).count(),
        Value::Null => 0,
        other => return Err(fail(format!("len of {other}"))),
    }
    .into())
}

fn index(arguments: &[Value]) -> Result<Value, Error> {
    let Some((value, keys)) = arguments.split_first() else {
        return Err(fail("wrong number of args for index: want at least 1 got 0"));
    };
    let mut at = value;
    for (depth, key) in keys.iter().enumerate() {
        at = match (at, key) {
            (Value::Array(items), Value::Number(number)) => {
                let index = number.as_u64().and_then(|n| usize::try_from(n).ok());
                index
                    .and_then(|index| items.get(index))
                    .ok_or_else(|| fail(format!("index out of range: {number}")))?
            }
            (Value::Object(map), key) => match map.get(&text(key)) {
                Some(next) => next,
                // A map of texts (labels) gives the empty text for what it has not.
                None if depth + 1 == keys.len() => return Ok("".into()),
                None => &Value::Null,
            },
            (Value::Null, _) => return Err(fail("index of untyped nil")),
            (other, _) => return Err(fail(format!("can't index {other}"))),
        };
    }
    Ok(at.clone())
}

fn slice(arguments: &[Value]) -> Result<Value, Error> {
    let Some((value, bounds)) = arguments.split_first() else {
        return Err(fail("wrong number of args for slice: want at least 1 got 0"));
    };
    let length = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.len(),
        other => return Err(fail(format!("can't slice {other}"))),
    };
    let bound = |at: usize, default: usize| bounds.get(at).map_or(default, count);
    let (from, to) = (bound(0, 0), bound(1, length));
    let wrong = || fail(format!("slice {from}:{to} out of range"));
    match value {
        Value::String(text) => text.get(from..to).map(Value::from).ok_or_else(wrong),
        Value::Array(items) => {
            items.get(from..to).map(|part| part.to_vec().into()).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}

fn first_or_last(arguments: &[Value], wanted: bool) -> Value {
    let found = arguments.iter().find(|value| truth(value) == wanted);
    found.or(arguments.last()).cloned().unwrap_or(Value::Null)
}

fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        _ => one == other,
    }
}

fn order(one: &Value, other: &Value) -> Result<Ordering, Error> {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => {
            Ok(a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal))
        }
        (Value::String(a), Value::String(b)) => Ok(a.cmp(b)),
        _ => Err(fail("incompatible types for comparison")),
    }
}

/// Go's `Print` puts a space between two operands when neither is a text; `Println` always.
fn spaced(arguments: &[Value], always: bool) -> String {
    let mut out = String::new();
    for (index, value) in arguments.iter().enumerate() {
        if index > 0 && (always || !(value.is_string() || arguments[index - 1].is_string())) {
            out.push(' ');
        }
        print_value(&mut out, value);
    }
    out
}

fn printf(arguments: &[Value]) -> Result<String, Error> {
    let Some((format, values)) = arguments.split_first() else {
        return Err(fail("wrong number of args for printf: want at least 1 got 0"));
    };
    let format = text(format);
    let mut values = values.iter();
    let mut out = String::new();
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut flags = String::new();
        while let Some(c) = chars.next_if(|c| "-+# 0".contains(*c)) {
            flags.push(c);
        }
        let digits = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| {
            let mut number = String::new();
            while let Some(c) = chars.next_if(char::is_ascii_digit) {
                number.push(c);
            }
            number.parse::<usize>().ok().map(|n| n.min(4096))
        };
        let width = digits(&mut chars).unwrap_or(0);
        let precision = chars.next_if(|c| *c == '.').map(|_| digits(&mut chars).unwrap_or(0));
        let Some(verb) = chars.next() else {
            return Err(fail("printf: missing verb at end of format"));
        };
        if verb == '%' {
            out.push('%');
            continue;
        }
        let Some(value) = values.next() else {
            let _ = write!(out, "%!{verb}(MISSING)");
            continue;
        };
        let shown = verb_text(verb, precision, value);
        pad(&mut out, &shown, width, &flags);
    }
    Ok(out)
}

fn verb_text(verb: char, precision: Option<usize>, value: &Value) -> String {
    let number = value.as_i64();
    match verb {
        'q' => format!("{:?}", text(value)),
        'x' => match number {
            Some(number) => format!("{number:x}"),
            None => {
                text(value).bytes().fold(String::new(), |out, byte| out + &format!("{byte:02x}"))
            }
        },
        'X' => number.map_or_else(|| text(value), |number| format!("{number:X}")),
        'o' => number.map_or_else(|| text(value), |number| format!("{number:o}")),
        'f' => format!("{:.*}", precision.unwrap_or(6), value.as_f64().unwrap_or(0.0)),
        's' | 'v' => match precision {
            Some(limit) => text(value).chars().take(limit).collect(),
            None => text(value),
        },
        'd' | 't' => text(value),
        other => format!("%!{other}({})", text(value)),
    }
}

fn pad(out: &mut String, shown: &str, width: usize, flags: &str) {
    let missing = width.saturating_sub(shown.chars().count());
    if flags.contains('-') {
        out.push_str(shown);
        out.extend(std::iter::repeat_n(' ', missing));
    } else if flags.contains('0') {
        let (sign, digits) = shown.strip_prefix('-').map_or(("", shown), |rest| ("-", rest));
        out.push_str(sign);
        out.extend(std::iter::repeat_n('0', missing));
        out.push_str(digits);
    } else {
        out.extend(std::iter::repeat_n(' ', missing));
        out.push_str(shown);
    }
}
