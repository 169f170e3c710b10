//! Programs of this workspace that tests start.
//!
//! Cargo builds them only for their own crates' tests, so the first test that uses one runs `cargo
//! build` (a fraction of a second when it is up to date), with that test's target directory.
//! `cargo xtask ci` has built them already and names their directory, because cargo would wait for
//! another cargo that works beside the suites.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// The environment variable with the directory of programs that are built.
pub const DIRECTORY: &str = "CORACLE_TEST_PROGRAMS";

/// The words for cargo that compile as the check does: by the profile `ci`, and by the compiler
/// with clippy's lints. The aliases of `.cargo/config.toml` have them too: without, cargo would
/// compile the workspace once more.
pub const LINTED: [&str; 4] =
    ["--profile", "ci", "--config", "build.rustc-workspace-wrapper='clippy-driver'"];

/// The path of a program of this crate, which is built if necessary.
pub(crate) fn program(name: &str) -> io::Result<PathBuf> {
    match std::env::var_os(DIRECTORY) {
        Some(directory) => {
            let path = PathBuf::from(directory).join(name);
            if path.is_file() {
                return Ok(path);
            }
            Err(io::Error::other(format!("{DIRECTORY}: no {}", path.display())))
        }
        None => of_workspace(name, &[]),
    }
}

/// Builds a program of the workspace, with these further words for cargo; gives its path.
///
/// # Errors
/// If it does not compile.
pub fn of_workspace(name: &str, more: &[&str]) -> io::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--workspace", "--bin", name])
        .args(["--message-format", "json"])
        .args(more)
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
