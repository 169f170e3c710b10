//! Measures clusters on simulated hosts, which share this machine's processors.
//!
//! [`up`] is the start of a cluster and a command in it, [`mpi`] ranks that are started inside of
//! containers, [`agents`] a driver with many hosts at rest, [`page`] services on one host, and
//! [`model`] what the starts of few hosts say about many.

mod agents;
mod lab;
mod model;
mod mpi;
mod page;
mod up;

use super::{Bench, Line};
use crate::shell::Outcome;
use crate::tools;

type Part = fn(&Bench) -> Outcome<Vec<Line>>;

const PARTS: [(&str, Part); 5] = [
    ("up", up::measure),
    ("mpi", mpi::measure),
    ("agents", agents::measure),
    ("page", page::measure),
    ("model", model::measure),
];

/// The names of what can be measured alone.
pub(super) fn parts() -> impl Iterator<Item = &'static str> {
    PARTS.iter().map(|(name, _)| *name)
}

/// Measures the chosen parts, or all.
pub(super) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    if !tools::is_root() {
        println!("SKIP bench cluster: hosts are made by root only");
        return Ok(Vec::new());
    }
    let chosen = PARTS.iter().filter(|(name, _)| bench.wants(name));
    super::each(chosen.map(|(name, part)| (*name, part(bench))))
}

/// A result without a peer.
fn alone(what: &str, ours: String, value: f64, aim: f64, unit: &'static str) -> Line {
    Line {
        what: what.to_owned(),
        against: String::new(),
        ours,
        theirs: String::new(),
        value,
        aim,
        unit,
    }
}

/// A fact beside the results.
fn fact(what: &str, ours: String) -> Line {
    alone(what, ours, f64::NAN, f64::INFINITY, "")
}

/// Seconds beside a peer's, compared by their ratio.
fn ratio(what: &str, against: &str, seconds: [f64; 2], aim: f64) -> Line {
    let [ours, theirs] = seconds;
    Line {
        what: what.to_owned(),
        against: against.to_owned(),
        ours: super::milliseconds(ours),
        theirs: super::milliseconds(theirs),
        value: ours / theirs,
        aim,
        unit: "",
    }
}
