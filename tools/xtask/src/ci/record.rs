//! The file of runs: what whole checks took, and which cases were unstable in them.

use std::fs::{self, File};
use std::io::Write as _;
use std::process::Command;

use testkit::share::Share;

use super::changes::Change;
use super::{RUNS, Verdict, directory};
use crate::shell::{Outcome, read, root};

/// A run of the whole check.
pub(super) struct Run<'r> {
    pub(super) commit: String,
    pub(super) share: Share,
    pub(super) change: Change,
    pub(super) minutes: f64,
    pub(super) verdict: &'r Verdict,
}

/// Prints the run's line, writes it beside the logs, and with `add` adds it to the file of runs.
pub(super) fn keep(run: &Run<'_>, add: bool) -> Outcome {
    let date = read(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%MZ"]))?;
    let Run { commit, share, change, minutes, verdict } = run;
    let end = if verdict.errors.is_empty() { "green" } else { "red" };
    let names: Vec<&str> =
        verdict.counts.unstable.iter().filter_map(|case| case.split(": ").next()).collect();
    let line = format!(
        "{commit}\t{}\t{minutes:.1}\t{share}\t{change}\t{end}\t{}\t{}\n",
        date.trim(),
        names.len(),
        names.join(" ")
    );
    print!("run: {line}");
    let here = directory().join("run.tsv");
    fs::write(&here, &line).map_err(|error| format!("{}: {error}", here.display()))?;
    if add {
        let mut file = File::options().append(true).open(root().join(RUNS));
        let file = file.as_mut().map_err(|error| format!("{RUNS}: {error}"))?;
        file.write_all(line.as_bytes()).map_err(|error| format!("{RUNS}: {error}"))?;
    }
    Ok(())
}
