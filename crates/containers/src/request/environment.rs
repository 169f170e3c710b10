//! Reads variables of a container from `-e` and `--env-file`, and applies them to the image's.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::error::{Error, Result};

/// What one line or flag says about a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It gets this value.
    Set(String, String),
    /// `-e NAME` where the host has no such variable: the image's is taken away.
    Unset(String),
}

/// `-e NAME=VALUE` or `-e NAME`.
pub fn flag(text: &str, host: &BTreeMap<OsString, OsString>) -> Result<Change> {
    let wrong = |why: &str| {
        Error::invalid(format!("--env '{text}' {why}"))
            .with_hint("write --env NAME=VALUE, or --env NAME to copy it from the host")
    };
    match text.split_once('=') {
        Some(("", _)) => Err(wrong("names no variable")),
        Some((name, value)) => Ok(Change::Set(name.to_owned(), value.to_owned())),
        None if text.is_empty() => Err(wrong("names no variable")),
        None => match host.get(OsStr::new(text)) {
            Some(value) => match value.to_str() {
                Some(value) => Ok(Change::Set(text.to_owned(), value.to_owned())),
                None => Err(wrong("is not UTF-8 on the host")),
            },
            None => Ok(Change::Unset(text.to_owned())),
        },
    }
}

/// `--env-default NAME=VALUE`.
pub fn default(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => {
            Err(Error::invalid(format!("--env-default '{text}' is not a variable with its value"))
                .with_hint("write --env-default NAME=VALUE"))
        }
    }
}

/// Reads a file of variables as Docker does: one per line, `#` begins a comment line, values are
/// taken as they are (no quotes, no expansion), a name alone is copied from the host if it is set
/// there.
pub fn file(path: &Path, host: &BTreeMap<OsString, OsString>) -> Result<Vec<Change>> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::failed(format!("cannot read --env-file {}", path.display())).cause(error)
    })?;
    parse(&text, host).map_err(|(line, why)| {
        Error::invalid(format!("{}:{line}: {why}", path.display()))
            .with_hint("each line is NAME=VALUE, NAME, or a comment that begins with '#'")
    })
}

fn parse(text: &str, host: &BTreeMap<OsString, OsString>) -> Result<Vec<Change>, (usize, String)> {
    let mut changes = Vec::new();
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (line.trim_end(), None),
        };
        if name.is_empty() {
            return Err((index + 1, "a variable without a name".into()));
        }
        if name.contains([' ', '\t']) {
            return Err((index + 1, format!("the name '{name}' contains a space")));
        }
        match value {
            Some(value) => changes.push(Change::Set(name.to_owned(), value.to_owned())),
            None => {
                if let Some(value) = host.get(OsStr::new(name)).and_then(|value| value.to_str()) {
                    changes.push(Change::Set(name.to_owned(), value.to_owned()));
                }
            }
        }
    }
    Ok(changes)
}

/// Makes the changes; a variable keeps its place.
pub fn apply(variables: &mut Vec<String>, changes: impl IntoIterator<Item = Change>) {
    let mut changes = changes.into_iter().peekable();
    if changes.peek().is_none() {
        return;
    }
    // By name, so that many variables take no longer than a few, each.
    let mut places: HashMap<String, usize> = HashMap::with_capacity(variables.len());
    let mut all: Vec<Option<String>> = Vec::with_capacity(variables.len());
    for variable in variables.drain(..) {
        let name = variable.split('=').next().unwrap_or_default();
        // The first of a name is the one that counts.
        places.entry(name.to_owned()).or_insert(all.len());
        all.push(Some(variable));
    }
    for change in changes {
        match change {
            Change::Set(name, value) => {
                let variable = Some(format!("{name}={value}"));
                if let Some(&at) = places.get(&name) {
                    all[at] = variable;
                } else {
                    places.insert(name, all.len());
                    all.push(variable);
                }
            }
            Change::Unset(name) => {
                if let Some(at) = places.remove(&name) {
                    all[at] = None;
                }
            }
        }
    }
    variables.extend(all.into_iter().flatten());
}

/// Adds variables that are not there. A list of interfaces of Open MPI (`..._if_include`) is also
/// left out where there is one of those that are not to be used (`..._if_exclude`): it takes one
/// of the two.
pub fn complete(variables: &mut Vec<String>, defaults: &[(String, String)]) {
    for (name, value) in defaults {
        let is = |text: &String, wanted: &str| text.split('=').next() == Some(wanted);
        let opposite =
            name.strip_suffix("_if_include").map(|family| format!("{family}_if_exclude"));
        let is_set = variables.iter().any(|text| {
            is(text, name) || opposite.as_ref().is_some_and(|opposite| is(text, opposite))
        });
        if !is_set {
            variables.push(format!("{name}={value}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> BTreeMap<OsString, OsString> {
        [("HOSTVAR".into(), "from host".into())].into()
    }

    #[test]
    fn files_are_read_as_docker_reads_them() {
        let text = "\u{feff}# comment\n\n  A=1\nB=\"quoted\" $X # no comment\nHOSTVAR\nNOSUCH\nC=\n  # indented\nD==\n";
        let set = |name: &str, value: &str| Change::Set(name.into(), value.into());
        assert_eq!(
            parse(text, &host()).unwrap(),
            [
                set("A", "1"),
                set("B", "\"quoted\" $X # no comment"),
                set("HOSTVAR", "from host"),
                set("C", ""),
                set("D", "=")
            ]
        );
        assert_eq!(parse("A=1\nB C=2\n", &host()).unwrap_err().0, 2);
        assert_eq!(parse("=x\n", &host()).unwrap_err().0, 1);
    }

    #[test]
    fn later_ones_win_in_place() {
        let mut variables = vec!["PATH=/bin".to_owned(), "A=image".to_owned()];
        let changes = ["A=mine", "B=", "HOSTVAR", "PATH"].map(|text| flag(text, &host()).unwrap());
        apply(&mut variables, changes);
        assert_eq!(variables, ["A=mine", "B=", "HOSTVAR=from host"]);
        let defaults = ["A=d", "C=", "M_if_include=e", "A_if_include=e", "C=2"];
        let defaults = defaults.map(|text| default(text).unwrap());
        variables.push("M_if_exclude=lo".to_owned());
        complete(&mut variables, &defaults);
        let expected =
            ["A=mine", "B=", "HOSTVAR=from host", "M_if_exclude=lo", "C=", "A_if_include=e"];
        assert_eq!(variables, expected);
        assert!(default("A").is_err() && default("=x").is_err());
        assert!(flag("=x", &host()).is_err());
        assert!(flag("", &host()).is_err());
    }

    #[test]
    fn what_is_taken_away_can_be_set_again() {
        let mut variables = vec!["A=1".to_owned(), "B=2".to_owned()];
        let set = |name: &str| Change::Set(name.to_owned(), "new".to_owned());
        apply(&mut variables, [Change::Unset("A".to_owned()), set("A"), set("B")]);
        assert_eq!(variables, ["B=new", "A=new"]);
    }

    /// Looking at all others for each would take minutes.
    #[test]
    fn many_take_no_longer_each() {
        let many = || (0..200_000).map(|at| Change::Set(format!("V{at}"), at.to_string()));
        let (mut variables, begun) = (Vec::new(), std::time::Instant::now());
        apply(&mut variables, many());
        apply(&mut variables, many());
        assert_eq!(variables.len(), 200_000);
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}
