//! `cargo xtask crash losses|rounds [N]`: runs the long forms of two kinds of cases of the suite
//! `crash`.
//!
//! `losses` takes the power away at N moments of a recorded disk, for each commit interval of the
//! file system; `rounds` runs programs in the same container N times. The suite itself does a few
//! of each. Both need root and the test users.

use crate::shell::{Outcome, check, step, suites};
use crate::tools;

/// A kind, the filter for its cases, and the number of a long form.
const KINDS: &[(&str, &str, u64)] = &[("losses", "losses::", 500), ("rounds", "rounds::", 10_000)];

/// Words: the kind, how many, and parts of case names in place of the kind's own.
pub(crate) fn run(words: &[String]) -> Outcome {
    let (kind, rest) = words.split_first().map_or(("", &[][..]), |(k, r)| (k.as_str(), r));
    let Some((_, filter, many)) = KINDS.iter().find(|(name, ..)| *name == kind) else {
        return Err("which cases? cargo xtask crash losses|rounds [N] [CASE]...".to_owned());
    };
    let (count, cases) = match rest.split_first() {
        Some((first, cases)) if first.parse::<u64>().is_ok() => (first.clone(), cases),
        _ => (many.to_string(), rest),
    };
    tools::set_up()?;
    step(&format!("{kind}: {count} of each"));
    let mut command = suites(&[]);
    if cases.is_empty() {
        command.arg(format!("crash::{filter}"));
    }
    let cases = cases.iter().map(|case| format!("crash::{case}"));
    check(command.args(cases).arg("--test-threads=1").env("CORACLE_CRASH_ROUNDS", count))
}
