//! `cargo xtask cluster faults [MINUTES]`, `kills [POINTS]`, `elastic [MINUTES]` and
//! `nfs [KIND]...`: run the long forms of cases of clusters.
//!
//! `faults` puts a network of three simulated hosts under load for so many minutes (an hour), while
//! its links lose and delay frames and are cut. The suite `network` itself does so for seconds.
//!
//! `kills` kills a driver, an agent or a daemon of the site at so many random moments (500) of
//! commands of clusters. The suite `hosts` itself does so a few times. It prints its seed, which
//! `CORACLE_TEST_SEED` repeats; `CORACLE_TEST_POINT` is the number of one point to play alone.
//!
//! `elastic` has requests, jobs and commands come at random for so many minutes (an hour), to a web
//! service that follows a rule and to a batch system of containers. The suite `cluster` itself does
//! so for seconds. It prints its seed, too.
//!
//! These need root and the test users. `nfs` ([`nfs`]) has two virtual machines use one store.

mod nfs;

use crate::shell::{Outcome, check, step, suites};
use crate::tools;

/// A case: its name, what is counted, how many there are of that, the filter for it, and the
/// variable that takes the number.
type Case = (&'static str, &'static str, &'static str, &'static str, &'static str);

const CASES: [Case; 3] = [
    ("faults", "MINUTES", "60", "network::far::faults", "CORACLE_TEST_MINUTES"),
    ("elastic", "MINUTES", "60", "cluster::elastic", "CORACLE_TEST_MINUTES"),
    ("kills", "POINTS", "500", "hosts::kills::points", "CORACLE_TEST_POINTS"),
];

/// Words: the case, and how many minutes or points.
pub(crate) fn run(words: &[String]) -> Outcome {
    if let Some(("nfs", kinds)) = words.split_first().map(|(case, rest)| (case.as_str(), rest)) {
        return nfs::run(kinds);
    }
    let (name, number) = match words {
        [name] => (name, None),
        [name, number] if number.parse::<u64>().is_ok() => (name, Some(number.as_str())),
        _ => return Err(usage()),
    };
    let Some((_, what, usual, filter, variable)) = CASES.iter().find(|(case, ..)| case == name)
    else {
        return Err(usage());
    };
    let number = number.unwrap_or(usual);
    tools::set_up()?;
    step(&format!("{name}: {number} {}", what.to_lowercase()));
    let mut command = suites(&[filter]);
    check(command.env(variable, number))
}

fn usage() -> String {
    "which case? cargo xtask cluster faults [MINUTES] | elastic [MINUTES] | kills [POINTS] | \
     nfs [3] [4] [nolock]"
        .to_owned()
}
