//! Builds the programs of this crate for the tests that use them.
//!
//! Cargo builds them only for this crate's own tests, so the first test that uses one runs `cargo
//! build` (a fraction of a second when it is up to date), with that test's target directory.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// The path of a program of this crate, which is built if necessary.
pub(crate) fn program(name: &str) -> io::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--package", "testkit", "--bin", name])
        .args(["--message-format", "json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
}
