//! Converts a YAML document to a JSON value.

use saphyr::{LoadableYamlNode as _, Scalar, Yaml};
use serde_json::{Map, Value};

/// Maximum nesting depth of values.
const DEPTH_MAX: usize = 32;

/// Parses the only document of a file. The error names the problem and, if known, its position.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    let documents = Yaml::load_from_str(text).map_err(|error| error.to_string())?;
    match &documents[..] {
        [] => Ok(Value::Null),
        [document] => value(document, DEPTH_MAX),
        _ => Err("it has several documents".into()),
    }
}

fn value(yaml: &Yaml<'_>, depth: usize) -> Result<Value, String> {
    let depth = depth.checked_sub(1).ok_or("its values are nested too deeply")?;
    Ok(match yaml {
        Yaml::Value(Scalar::Null) => Value::Null,
        Yaml::Value(Scalar::Boolean(is)) => Value::Bool(*is),
        Yaml::Value(Scalar::Integer(number)) => Value::from(*number),
        Yaml::Value(Scalar::FloatingPoint(number)) => Value::from(number.into_inner()),
        Yaml::Value(Scalar::String(text)) | Yaml::Representation(text, ..) => {
            Value::String(text.to_string())
        }
        Yaml::Sequence(items) => {
            Value::Array(items.iter().map(|item| value(item, depth)).collect::<Result<_, _>>()?)
        }
        Yaml::Mapping(pairs) => {
            let pair = |(key, item): (&Yaml<'_>, &Yaml<'_>)| {
                let key = key.as_str().ok_or("a key is not a string")?;
                Ok::<_, String>((key.to_owned(), value(item, depth)?))
            };
            Value::Object(pairs.iter().map(pair).collect::<Result<Map<_, _>, _>>()?)
        }
        Yaml::Tagged(_, inner) => value(inner, depth)?,
        Yaml::Alias(_) | Yaml::BadValue => return Err("it has a value that cannot be read".into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_are_json_values() {
        let text = "---\ncdiVersion: 0.5.0\nnodes:\n- path: /dev/x # c\n  major: 195\nenv: [\"A=b: c\", no]\nlong: >\n  a\n  b\nnone:\nempty: {}\n";
        let expected = json!({
            "cdiVersion": "0.5.0",
            "nodes": [{"path": "/dev/x", "major": 195}],
            "env": ["A=b: c", "no"],
            "long": "a b\n",
            "none": null,
            "empty": {},
        });
        assert_eq!(parse(text), Ok(expected));
        assert_eq!(parse(""), Ok(Value::Null));
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (text, part) in [
            ("a: b\n---\nc: d", "several"),
            ("a: [b", "line"),
            ("1: a", "key"),
            (&format!("{}x{}", "[".repeat(40), "]".repeat(40)), "deep"),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(part), "{text:?}: {why}");
        }
    }
}
