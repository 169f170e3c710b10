//! Tests of the command line: help, errors, listings, and a tour with the embedded image.

#![expect(clippy::unnecessary_wraps, reason = "every case has the type of its table")]

mod again;
mod doctor;
mod help;
mod machine;
mod networks;
mod registry;
mod several;
mod tour;
mod usage;

use std::path::Path;
use std::process::{Command, ExitCode, Output};

use testkit::harness::{Suite, Wishes};
use testkit::skip::Outcome;

use crate::program;

type Case = fn() -> Outcome;

const GROUPS: &[(&str, &[(&str, Case)])] = &[
    ("again", again::CASES),
    ("doctor", doctor::CASES),
    ("help", help::CASES),
    ("machine", machine::CASES),
    ("networks", networks::CASES),
    ("registry::listing", registry::listing::CASES),
    ("registry::login", registry::login::CASES),
    ("registry::proxy", registry::proxy::CASES),
    ("registry::pull", registry::pull::CASES),
    ("registry::settings", registry::settings::CASES),
    ("several", several::CASES),
    ("tour", tour::CASES),
    ("usage", usage::CASES),
];

pub(crate) fn run(wishes: &Wishes) -> ExitCode {
    let mut suite = Suite::new("cli");
    for (group, cases) in GROUPS {
        for (case, body) in *cases {
            suite.case(format!("{group}::{case}"), body);
        }
    }
    suite.run(wishes)
}

/// The program with no environment but a home directory.
fn command(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(program::coracle());
    command
        .args(words)
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir(home);
    command
}

/// Runs it to its end.
fn coracle(home: &Path, words: &[&str]) -> Output {
    command(home, words).output().expect("the program starts")
}

/// Standard output, standard error and status in one text.
fn transcript(output: &Output) -> String {
    format!(
        "{}{}status {}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        output.status.code().map_or_else(|| "none".to_owned(), |code| code.to_string()),
    )
}

/// Standard output of a command that must succeed.
fn printed(home: &Path, words: &[&str]) -> String {
    let output = coracle(home, words);
    assert!(output.status.success(), "{words:?}: {}", transcript(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
