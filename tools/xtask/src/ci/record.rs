//! The file of runs: what whole checks took, and which cases were unstable in them.

use std::fs::{self, File};
use std::io::Write as _;
use std::process::Command;

use testkit::share::Share;

use super::changes::Change;
use super::{Verdict, directory};
use crate::shell::{Outcome, read, root};

/// Runs that are kept.
pub(super) const FILE: &str = "tools/xtask/runs.tsv";

/// A run of the whole check.
pub(super) struct Run<'r> {
    pub(super) commit: String,
    pub(super) share: Share,
    pub(super) change: Change,
    pub(super) minutes: f64,
    pub(super) verdict: &'r Verdict,
}

/// The commits of a file of runs whose checks were green, from old to new.
pub(super) fn green(text: &str) -> impl DoubleEndedIterator<Item = &str> {
    let runs = text.lines().filter(|line| !line.starts_with('#'));
    runs.filter_map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        (fields.get(5) == Some(&"green")).then(|| fields[0])
    })
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
        let mut file = File::options().append(true).open(root().join(FILE));
        let file = file.as_mut().map_err(|error| format!("{FILE}: {error}"))?;
        file.write_all(line.as_bytes()).map_err(|error| format!("{FILE}: {error}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn green_runs_are_found() {
        let text = "# commit\tdate\n\
            a\t2026-11-29T16:58Z\t21.5\t3/3\tcode\tgreen\t0\t\n\
            b\t2026-11-29T17:58Z\t21.5\t1/3\tcode\tred\t0\t\n\
            c\t2026-11-29T18:58Z\t21.5\t1/3\tcode\tgreen\t1\tx::y\n";
        assert_eq!(green(text).collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!(green("").count(), 0);
    }
}
