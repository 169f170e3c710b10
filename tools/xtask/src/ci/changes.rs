//! What changed since the base, as far as it decides what has to be checked.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::RUNS;
use crate::shell::{Outcome, read, root};

/// The environment variable with the commit to compare with. Without it that is where this branch
/// left `origin/main`, and where it is `origin/main`, the last green run on record.
const BASE: &str = "CORACLE_CI_BASE";

/// The kinds of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Documents alone.
    Documents,
    /// The lab and documents.
    Lab,
    /// Code, but not the lab's.
    Code,
    /// Code and the lab.
    All,
    /// Not known: a base was not found, or nothing differs from it.
    Unknown,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Documents => "documents alone",
            Self::Lab => "the lab",
            Self::Code => "code",
            Self::All => "code and the lab",
            Self::Unknown => "not known",
        })
    }
}

/// What changed since the base, with what is not committed.
pub(super) fn since_base() -> Outcome<Change> {
    let git = |words: &[&str]| read(Command::new("git").args(words).current_dir(root()));
    let head = git(&["rev-parse", "HEAD"])?;
    let base = if let Ok(base) = std::env::var(BASE) {
        git(&["rev-parse", "--verify", &format!("{base}^{{commit}}")])
            .map_err(|error| format!("{BASE}={base}: {error}"))?
    } else {
        let left = git(&["merge-base", "HEAD", "origin/main"]).unwrap_or_default();
        let own = Some(left).filter(|base| !base.is_empty() && *base != head);
        let is_before =
            |green: &&str| git(&["merge-base", "--is-ancestor", *green, "HEAD"]).is_ok();
        let text = fs::read_to_string(root().join(RUNS)).unwrap_or_default();
        let last = || green(&text).rev().find(is_before).map(str::to_owned);
        let Some(base) = own.or_else(last) else { return Ok(Change::Unknown) };
        base
    };
    let base = base.trim();
    let changed = git(&["diff", "--name-only", base])?;
    let new = git(&["ls-files", "--others", "--exclude-standard"])?;
    let files: Vec<&str> = changed.lines().chain(new.lines()).collect();
    // What has nothing of its own is checked whole.
    Ok(if files.is_empty() && base == head.trim() { Change::Unknown } else { kind(&files) })
}

/// The commits of a file of runs whose checks were green, from old to new.
fn green(text: &str) -> impl DoubleEndedIterator<Item = &str> {
    let runs = text.lines().filter(|line| !line.starts_with('#'));
    runs.filter_map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        (fields.get(5) == Some(&"green")).then(|| fields[0])
    })
}

fn kind(files: &[&str]) -> Change {
    let is_lab = |file: &str| file.starts_with("lab/");
    let is_document = |file: &str| {
        !is_lab(file)
            && !file.starts_with("suites/")
            && (Path::new(file).extension().is_some_and(|end| end == "md")
                || file.starts_with("docs/")
                || file.starts_with("img/"))
    };
    let code = files.iter().any(|file| !is_lab(file) && !is_document(file));
    let lab = files.iter().any(|file| is_lab(file));
    match (code, lab) {
        (true, true) => Change::All,
        (true, false) => Change::Code,
        (false, true) => Change::Lab,
        (false, false) => Change::Documents,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_told_from_code() {
        assert_eq!(kind(&["README.md", "docs/cluster.md", "img/a.svg"]), Change::Documents);
        assert_eq!(kind(&["README.md", "lab/README.md"]), Change::Lab);
        assert_eq!(kind(&["docs/x.md", "crates/cli/src/main.rs"]), Change::Code);
        assert_eq!(kind(&["suites/src/cli/snapshots/a.md"]), Change::Code);
        assert_eq!(kind(&["lab/a.py", ".ci/run"]), Change::All);
        assert_eq!(kind(&["Cargo.lock"]), Change::Code);
    }

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
