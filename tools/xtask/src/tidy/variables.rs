//! Checks that `docs/environment.md` names every variable `CORACLE_*` that the program knows, and
//! no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::is_product;
use crate::shell::{Outcome, root};

const FILE: &str = "docs/environment.md";

const PREFIX: &str = "CORACLE_";

/// Compares the document with the sources.
pub(super) fn check(sources: &[PathBuf], findings: &mut Vec<String>) -> Outcome {
    let mut known = BTreeSet::new();
    for file in sources {
        let name = file.strip_prefix(root()).unwrap_or(file).display().to_string();
        if is_product(&name) {
            let text = fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
            known.extend(names(product_part(&text)).map(str::to_owned));
        }
    }
    let document = fs::read_to_string(root().join(FILE)).unwrap_or_default();
    compare(&known, &document, findings);
    Ok(())
}

/// What stands before the unit tests at the end of a file.
fn product_part(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

fn compare(known: &BTreeSet<String>, document: &str, findings: &mut Vec<String>) {
    let written: BTreeSet<String> = names(document).map(str::to_owned).collect();
    for name in known.difference(&written) {
        findings.push(format!("{FILE}: {name} is missing: add its meaning, values and default"));
    }
    for name in written.difference(known) {
        findings.push(format!("{FILE}: {name} is not in the sources"));
    }
}

/// All names of variables in a text, but those that only the compiler sees (`env!`).
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices(PREFIX).filter_map(|(at, _)| {
        let before = &text[..at];
        let is_part = before.ends_with(|c: char| c.is_ascii_alphanumeric());
        let begin = if before.ends_with('_') { at - 1 } else { at };
        let end =
            text[at..].find(|c: char| !(c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit()));
        let name = &text[begin..end.map_or(text.len(), |length| at + length)];
        let is_whole = name.len() > PREFIX.len() && !name.ends_with('_');
        (is_whole && !is_part && !before.ends_with("env!(\"")).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_names() {
        let text =
            "CORACLE_DIR, `CORACLE_A_B=1` _CORACLE_C XCORACLE_D CORACLE_* env!(\"CORACLE_E\")";
        assert_eq!(names(text).collect::<Vec<_>>(), ["CORACLE_DIR", "CORACLE_A_B", "_CORACLE_C"]);
    }

    #[test]
    fn compares_both_ways() {
        let known = ["CORACLE_A".to_owned(), "CORACLE_B".to_owned()].into();
        let mut findings = Vec::new();
        compare(&known, "CORACLE_B CORACLE_C", &mut findings);
        assert_eq!(findings.len(), 2, "{findings:?}");
    }

    #[test]
    fn leaves_out_unit_tests() {
        assert_eq!(product_part("a\n#[cfg(test)]\nmod tests {\nb"), "a");
    }
}
