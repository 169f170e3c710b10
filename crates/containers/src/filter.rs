//! Filters of listings and of `prune`, in Docker's form `KEY=VALUE`.
//!
//! Several values of one key are alternatives; of labels all must match.

use std::collections::BTreeMap;

use crate::error::{Error, Result};

/// All filters of a request.
#[derive(Debug, Clone, Default)]
pub struct Filters(Vec<(String, String)>);

impl Filters {
    /// Reads filters.
    ///
    /// # Errors
    /// If a text has no value, or its key is not one of `known`.
    pub fn parse(texts: &[String], known: &[&str]) -> Result<Self> {
        let mut filters = Vec::new();
        for text in texts {
            let Some((key, value)) = text.split_once('=') else {
                return Err(Error::invalid(format!("--filter '{text}' has no value"))
                    .with_hint("write --filter KEY=VALUE"));
            };
            if !known.contains(&key) && key != "label!" {
                return Err(unknown(key, known));
            }
            filters.push((key.to_owned(), value.to_owned()));
        }
        Ok(Self(filters))
    }

    /// All values of a key.
    pub fn of<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// Whether there is no filter.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last value of a key.
    pub fn last<'a>(&'a self, key: &'a str) -> Option<&'a str> {
        self.of(key).last()
    }

    /// Whether there is no filter of this key, or one of them matches.
    pub fn any(&self, key: &str, holds: impl Fn(&str) -> bool) -> bool {
        let mut values = self.of(key).peekable();
        values.peek().is_none() || values.any(holds)
    }

    /// Whether all filters of this key match.
    pub fn all(&self, key: &str, holds: impl Fn(&str) -> bool) -> bool {
        self.of(key).all(holds)
    }

    /// Whether labels satisfy the filters `label` and `label!`.
    pub fn labels(&self, labels: &BTreeMap<String, String>) -> bool {
        self.all("label", |wanted| label(labels, wanted))
            && !self.of("label!").any(|unwanted| label(labels, unwanted))
    }
}

fn unknown(key: &str, known: &[&str]) -> Error {
    Error::invalid(format!("there is no filter '{key}'"))
        .with_hint(format!("there are {}", known.join(", ")))
}

/// The values that Docker reads as true.
pub fn truth(value: &str) -> bool {
    matches!(value, "true" | "1" | "t" | "T" | "TRUE" | "True")
}

/// Whether a label `KEY` or `KEY=VALUE` is there.
pub fn label(labels: &BTreeMap<String, String>, wanted: &str) -> bool {
    match wanted.split_once('=') {
        Some((key, value)) => labels.get(key).is_some_and(|found| found == value),
        None => labels.contains_key(wanted),
    }
}

/// Shell patterns with `*` and `?`; `*` does not cross a slash, as in Go's `path.Match`.
pub fn glob(pattern: &str, text: &str) -> bool {
    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.first(), text.first()) {
            (None, None) => true,
            (Some(b'*'), _) => {
                matches(&pattern[1..], text)
                    || text.first().is_some_and(|c| *c != b'/' && matches(pattern, &text[1..]))
            }
            (Some(b'?'), Some(c)) if *c != b'/' => matches(&pattern[1..], &text[1..]),
            (Some(p), Some(c)) if p == c && *p != b'?' => matches(&pattern[1..], &text[1..]),
            _ => false,
        }
    }
    // The caller wrote the pattern, and names have at most a few hundred bytes.
    matches(pattern.as_bytes(), text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert!(glob("debian", "debian") && glob("deb*", "debian") && glob("*/tools", "sci/tools"));
        assert!(glob("d?bian:*", "debian:stable"));
        assert!(
            !glob("*", "sci/tools") && !glob("debian", "debian:stable") && !glob("deb", "debian")
        );
    }

    #[test]
    fn combinations() {
        let filters = Filters::parse(
            &["name=a".into(), "name=b".into(), "label=x=1".into(), "label!=y".into()],
            &["name", "label"],
        )
        .unwrap();
        assert!(filters.any("name", |value| value == "b"));
        assert!(!filters.any("name", |value| value == "c"));
        assert!(filters.any("id", |_| false));
        assert!(filters.labels(&[("x".to_owned(), "1".to_owned())].into()));
        assert!(
            !filters.labels(
                &[("x".to_owned(), "1".to_owned()), ("y".to_owned(), String::new())].into()
            )
        );
        assert!(Filters::parse(&["colour=red".into()], &["name"]).is_err());
        assert!(Filters::parse(&["name".into()], &["name"]).is_err());
    }
}
