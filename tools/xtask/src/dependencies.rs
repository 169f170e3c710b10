//! Licences, sources and advisories of all dependencies, by `cargo deny`, in a version of its own.
//!
//! The list of advisories is fetched from its repository. Where that cannot be had, the complete
//! check fails with that reason: an old list would say that all is well.

use std::process::Command;

use crate::shell::{Outcome, check, root};
use crate::tools;

/// Name and version.
const DENY: (&str, &str) = ("cargo-deny", "0.19.0");

/// Checks the workspace and the stage.
pub(crate) fn run() -> Outcome {
    let deny = tools::build_tool(DENY)?;
    for manifest in ["Cargo.toml", "crates/stage/Cargo.toml"] {
        let words = |what: &[&str]| {
            let mut command = Command::new(&deny);
            command.current_dir(root()).args(["--manifest-path", manifest]);
            command.args(["check", "--config", "deny.toml"]).args(what);
            command
        };
        check(&mut words(&["bans", "licenses", "sources"]))?;
        check(&mut words(&["advisories"]))
            .map_err(|error| format!("advisories: {error} (can their repository be reached?)"))?;
    }
    Ok(())
}
