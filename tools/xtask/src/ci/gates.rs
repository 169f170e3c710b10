//! Which skips and which unstable cases are permitted.
//!
//! `skips.txt` has a line `WHEN: CASE: REASON` for each: parts of the case's name and of the reason
//! that it tells, in which `*` matches anything, and when it is permitted: `always`, or a condition
//! of the machine (`no-root`, `no-userns`, `no-packages`, `no-users`, `seccomp`), or `share` where
//! not all cases run. Another skip makes the check fail, so that no suite is skipped unseen.
//!
//! `unstable.txt` has a line `CASE: CAUSE` for each case that sometimes passes only at its second
//! try, with what is known of the cause; at most [`MOST`]. Another case that needs two makes the
//! check fail.

use std::fs;
use std::path::Path;

use testkit::harness::contains;

use super::results::Counts;
use crate::shell::{Outcome, root};

/// Set to `report`, the check prints what is not on the lists and does not fail by it.
const MODE: &str = "CORACLE_CI_GATES";

const SKIPS: &str = "tools/xtask/skips.txt";
const UNSTABLE: &str = "tools/xtask/unstable.txt";

/// So many unstable cases may be known.
const MOST: usize = 5;

/// A permitted skip.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Skip {
    when: String,
    case: String,
    reason: String,
}

/// Both lists.
#[derive(Debug)]
pub(super) struct Gates {
    skips: Vec<Skip>,
    /// Cases and causes.
    unstable: Vec<(String, String)>,
}

impl Gates {
    /// Whether what the lists do not have makes the check fail.
    pub(super) fn fail() -> bool {
        std::env::var_os(MODE).is_none_or(|mode| mode != "report")
    }

    /// Reads both files.
    pub(super) fn read() -> Outcome<Self> {
        let text = |file: &str| {
            fs::read_to_string(root().join(Path::new(file)))
                .map_err(|error| format!("{file}: {error}"))
        };
        Self::parse(&text(SKIPS)?, &text(UNSTABLE)?)
    }

    fn parse(skips: &str, unstable: &str) -> Outcome<Self> {
        let lines = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.trim().is_empty());
            lines.filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        let parts = |line: &str, count: usize, file: &str| -> Outcome<Vec<String>> {
            let parts: Vec<String> =
                line.splitn(count, ": ").map(|part| part.trim().to_owned()).collect();
            if parts.len() == count && parts.iter().all(|part| !part.is_empty()) {
                return Ok(parts);
            }
            Err(format!("{file}: {line}: not {count} parts with ': ' between them"))
        };
        let mut gates = Self { skips: Vec::new(), unstable: Vec::new() };
        for line in lines(skips) {
            let [when, case, reason] = <[String; 3]>::try_from(parts(&line, 3, SKIPS)?)
                .map_err(|_| format!("{SKIPS}: {line}"))?;
            gates.skips.push(Skip { when, case, reason });
        }
        for line in lines(unstable) {
            let [name, cause] = <[String; 2]>::try_from(parts(&line, 2, UNSTABLE)?)
                .map_err(|_| format!("{UNSTABLE}: {line}"))?;
            gates.unstable.push((name, cause));
        }
        if gates.unstable.len() > MOST {
            return Err(format!("{UNSTABLE}: {} cases; at most {MOST}", gates.unstable.len()));
        }
        Ok(gates)
    }

    /// What is not permitted, where these conditions hold.
    pub(super) fn judge(&self, counts: &Counts, conditions: &[&str]) -> Vec<String> {
        let mut errors = Vec::new();
        for (reason, cases) in &counts.reasons {
            for case in cases {
                if !self.permits(case, reason, conditions) {
                    errors.push(format!("skipped, and not in {SKIPS}: {case}: {reason}"));
                }
            }
        }
        for unstable in &counts.unstable {
            let case = unstable.split(": ").next().unwrap_or_default();
            if !self.unstable.iter().any(|(known, _)| contains(case, known)) {
                errors.push(format!("needed two tries, and is not in {UNSTABLE}: {unstable}"));
            }
        }
        errors
    }

    fn permits(&self, case: &str, reason: &str, conditions: &[&str]) -> bool {
        self.skips.iter().any(|skip| {
            (skip.when == "always" || conditions.contains(&&*skip.when))
                && contains(case, &skip.case)
                && contains(reason, &skip.reason)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTS: (&str, &str) = (
        "# Comment\n\nalways: contract::*::large: not here\nno-root: *: needs root\n",
        "cluster::*::killed: a race\n",
    );

    fn counts(skips: &[(&str, &str)], unstable: &[&str]) -> Counts {
        let mut counts = Counts::default();
        for (case, reason) in skips {
            counts.reasons.entry((*reason).to_owned()).or_default().push((*case).to_owned());
        }
        counts.unstable = unstable.iter().map(|case| (*case).to_owned()).collect();
        counts
    }

    #[test]
    fn other_skips_and_unstable_cases_are_errors() {
        let gates = Gates::parse(LISTS.0, LISTS.1).expect("lists");
        let known = counts(
            &[("contract::N1::plain::large", "not here, really"), ("posix::x", "needs root")],
            &["cluster::allowed::killed: passed when run again"],
        );
        assert_eq!(gates.judge(&known, &["no-root"]), Vec::<String>::new());
        assert_eq!(gates.judge(&known, &[]).len(), 1);
        let planted = counts(&[("hosts", "the hosts do not start")], &["posix::x: passed"]);
        assert_eq!(gates.judge(&planted, &["no-root"]).len(), 2);
    }

    #[test]
    fn lists_have_a_form_and_an_end() {
        assert!(Gates::parse("always: x\n", "").is_err());
        assert!(Gates::parse("", "x\n").is_err());
        let many = "a: b\n".repeat(MOST + 1);
        assert!(Gates::parse("", &many).is_err_and(|error| error.contains("at most")));
    }

    #[test]
    fn the_lists_of_the_project_are_well_formed() {
        Gates::read().expect("both lists");
    }
}
