//! Paths in files and variables: `~`, `$NAME` and `${NAME}` in files, relative paths in variables
//! and flags.
//!
//! A site's file serves many users, so `dir = "/scratch/$USER/coracle"` must mean each one's own. A
//! shell has already expanded what comes in by a variable or a flag; there a relative path means
//! the working directory, as for any tool.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use toml::Value;

/// Where names in paths are looked up.
pub(crate) struct Surroundings<'a> {
    pub environment: &'a BTreeMap<OsString, OsString>,
    pub home: Option<&'a Path>,
}

impl Surroundings<'_> {
    /// The value with every text in it expanded; lists are gone through.
    pub(crate) fn expand_value(&self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) => Value::String(self.expand(text)?),
            Value::Array(values) => Value::Array(
                values.iter().map(|value| self.expand_value(value)).collect::<Result<_, _>>()?,
            ),
            other => other.clone(),
        })
    }

    fn expand(&self, text: &str) -> Result<String, String> {
        let mut rest = text;
        let mut expanded = String::new();
        if let Some(after) =
            rest.strip_prefix('~').filter(|after| after.is_empty() || after.starts_with('/'))
        {
            let home = self.home.and_then(Path::to_str).ok_or("~ is not known here")?;
            expanded.push_str(home);
            rest = after;
        }
        while let Some((before, after)) = rest.split_once('$') {
            expanded.push_str(before);
            let (name, after) = match after.strip_prefix('{') {
                Some(braced) => braced.split_once('}').ok_or("wanted a } after ${")?,
                None => after.split_at(
                    after
                        .find(|character: char| {
                            !character.is_ascii_alphanumeric() && character != '_'
                        })
                        .unwrap_or(after.len()),
                ),
            };
            let value = self
                .environment
                .get(OsStr::new(name))
                .and_then(|value| value.to_str())
                .filter(|value| !value.is_empty())
                .ok_or_else(|| format!("the variable {name} is not set"))?;
            expanded.push_str(value);
            rest = after;
        }
        expanded.push_str(rest);
        Ok(expanded)
    }
}

/// A relative path as it is seen from the working directory.
pub(crate) fn from_directory(directory: Option<&Path>, text: &str) -> String {
    match directory.and_then(|directory| directory.join(text).to_str().map(str::to_owned)) {
        Some(joined) if !Path::new(text).is_absolute() && !text.is_empty() => joined,
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expansions() {
        let environment = [("USER".into(), "ada".into()), ("EMPTY".into(), OsString::new())].into();
        let around = Surroundings { environment: &environment, home: Some(Path::new("/home/ada")) };
        let expand = |text: &str| around.expand(text);
        assert_eq!(expand("/scratch/$USER/x").unwrap(), "/scratch/ada/x");
        assert_eq!(expand("/scratch/${USER}s").unwrap(), "/scratch/adas");
        assert_eq!(expand("~/store").unwrap(), "/home/ada/store");
        assert_eq!(
            expand("~bob/store").unwrap(),
            "~bob/store",
            "other users' homes are not looked up"
        );
        assert!(expand("/scratch/$NOBODY").unwrap_err().contains("NOBODY"));
        assert!(expand("/$EMPTY/x").is_err(), "an empty name would point at the root");
        assert!(expand("/${USER").is_err());
    }

    #[test]
    fn relative_paths() {
        let here = Some(Path::new("/work"));
        assert_eq!(from_directory(here, "store"), "/work/store");
        assert_eq!(from_directory(here, "/store"), "/store");
        assert_eq!(from_directory(None, "store"), "store");
    }
}
