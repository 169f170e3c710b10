//! What the compiler and clippy warn of.
//!
//! The profile `ci` compiles the workspace by `clippy-driver`, which is the compiler with clippy's
//! lints ([`testkit::built::LINTED`]). So the lints cost no second compilation: cargo keeps the
//! warnings of what is compiled already, and this task reads them.
//!
//! A crate is also compiled twice if builds of different packages want different features of it:
//! the features that all packages and their tests want together are the ones to have everywhere
//! (`Cargo.toml` of `testkit`).

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
use testkit::built;

use crate::shell::{Outcome, by_way_of, cargo, check, describe, messages, read, target};

/// The stage lies outside the workspace.
pub(crate) const STAGE: &str = "crates/stage/Cargo.toml";

/// Fails if there is a warning.
pub(crate) fn run() -> Outcome {
    let mut workspace = cargo(&["build", "--workspace", "--all-targets", "--locked", "--quiet"]);
    workspace.args(built::LINTED);
    let warnings = warnings(&mut workspace)?;
    // The stage has no `main` of the usual kind, and so is checked as it is built: optimised,
    // without unwinding.
    let mut stage =
        cargo(&["clippy", "--release", "--locked", "--quiet", "--manifest-path", STAGE]);
    stage.arg("--target-dir").arg(target().join("stage")).args(["--", "-D", "warnings"]);
    let stage = check(&mut by_way_of(&["nice", "-n", "10"], &stage));
    let twice = compiled_twice()?;
    for line in &twice {
        println!("compiled once more for the tests: {line}");
    }
    stage?;
    match (warnings, twice.len()) {
        (0, 0) => Ok(()),
        (warnings, twice) => Err(format!("{warnings} warnings, {twice} crates compiled twice")),
    }
}

/// The crates that the first build of a check has with other features than the unit tests.
fn compiled_twice() -> Outcome<BTreeSet<String>> {
    let tests = features(&["--workspace", "--edges", "normal,build,dev"])?;
    let mut twice = BTreeSet::new();
    for first in [&["--package", "xtask"][..], &["--package", "suites"], &["--workspace"]] {
        let first = features(&[first, &["--edges", "normal,build"]].concat())?;
        twice.extend(first.difference(&tests).cloned());
    }
    Ok(twice)
}

/// All crates that these packages are made of, each with its features.
fn features(packages: &[&str]) -> Outcome<BTreeSet<String>> {
    let mut tree = cargo(&["tree", "--locked", "--prefix", "none", "--format", "{p} {f}"]);
    let tree = read(tree.args(packages))?;
    // A crate that was shown before is marked.
    Ok(tree.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect())
}

/// Runs a build and shows its warnings; how many there are.
fn warnings(build: &mut Command) -> Outcome<usize> {
    println!("$ {}", describe(build));
    let (messages, ended) = messages(build)?;
    let rendered = rendered(&messages);
    for text in &rendered {
        println!("{text}");
    }
    ended?;
    Ok(rendered.len())
}

/// The texts of the warnings in cargo's messages, each once: a source is
/// compiled for its crate and for the crate's tests.
fn rendered(messages: &[Value]) -> Vec<String> {
    let mut texts = Vec::new();
    for message in messages {
        // The sum of the warnings of a crate has no place.
        let has_place = message["message"]["spans"].as_array().is_some_and(|all| !all.is_empty());
        let text = message["message"]["rendered"].as_str().filter(|_| has_place);
        if let Some(text) = text
            && message["reason"] == "compiler-message"
            && !texts.iter().any(|other| other == text)
        {
            texts.push(text.to_owned());
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::parsed;

    #[test]
    fn a_warning_counts_once_and_a_sum_does_not() {
        let warning = r#"{"reason":"compiler-message","message":{"level":"warning",
            "spans":[{"file_name":"a.rs"}],"rendered":"warning: unused"}}"#
            .replace('\n', "");
        let sum = r#"{"reason":"compiler-message","message":{"level":"warning","spans":[],
            "rendered":"warning: 1 warning emitted"}}"#
            .replace('\n', "");
        let other = r#"{"reason":"compiler-artifact","fresh":true}"#;
        let messages = [&warning, other, &warning, &sum, "text"].join("\n");
        assert_eq!(rendered(&parsed(&messages)), ["warning: unused"]);
        assert!(rendered(&parsed(other)).is_empty());
    }
}
