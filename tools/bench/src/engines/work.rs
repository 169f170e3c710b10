//! The pieces of work that are measured, with their aims as ratios to native.

use crate::places::TIMER as LOOP;

/// A piece of work.
pub(super) struct Work {
    pub(super) what: &'static str,
    pub(super) words: &'static [&'static str],
    /// Aims of I1 and P1 as ratios to native; infinite where there is none.
    pub(super) inside: f64,
    pub(super) traced: f64,
    pub(super) kind: Kind,
}

impl Work {
    /// The aim of the F modes.
    pub(super) fn without_filter(&self) -> f64 {
        match self.kind {
            Kind::Calls => NONE,
            Kind::Program if self.words[0] == "ls" => 1.5,
            Kind::Program => 1.1,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// One call many times: measured on one processor, and not where every call stops.
    Calls,
    /// What people do.
    Program,
}

const NONE: f64 = f64::INFINITY;

const fn calls(what: &'static str, words: &'static [&'static str], inside: f64) -> Work {
    Work { what, words, inside, traced: NONE, kind: Kind::Calls }
}

const fn program(
    what: &'static str,
    words: &'static [&'static str],
    inside: f64,
    traced: f64,
) -> Work {
    Work { what, words, inside, traced, kind: Kind::Program }
}

pub(super) const WORK: &[Work] = &[
    Work {
        traced: 15.0,
        ..calls("`stat` of 4 components, x 50,000", &[LOOP, "call-loop", "stat", "50000"], 1.5)
    },
    calls("`open` and `close`, x 50,000", &[LOOP, "call-loop", "open", "50000"], 1.3),
    calls("`getcwd`, x 200,000", &[LOOP, "call-loop", "getcwd", "200000"], 1.5),
    calls("`getppid`, x 500,000", &[LOOP, "call-loop", "getppid", "500000"], 1.1),
    calls("`read` of a byte, x 500,000", &[LOOP, "call-loop", "read", "500000"], 1.1),
    program("`find /usr`", &["find", "/usr", "-name", "nothing"], 1.05, 2.5),
    program("`find /usr -size`", &["find", "/usr", "-size", "+100000k"], 1.05, 5.0),
    program("`tar c /usr/share`", &["sh", "-c", "tar c /usr/share | cat > /dev/null"], 1.05, 3.0),
    program("`ls -lR /usr`", &["ls", "-lR", "/usr"], 1.25, NONE),
    program(
        "`git status`, 9,000 files",
        &["git", "-C", "/bench/git", "status", "--porcelain"],
        1.25,
        3.0,
    ),
    program(
        "perl `-e`, x 100,000",
        &["perl", "-e", "-e '/etc/passwd' or die for 1..100000"],
        1.25,
        NONE,
    ),
    program("`make`, 40 C files", &["make", "-s", "-B", "-C", "/bench/src"], 1.06, 1.6),
    program(
        "500 x fork and exec",
        &["sh", "-c", "i=0; while [ $i -lt 500 ]; do /bin/true; i=$((i+1)); done"],
        1.06,
        1.2,
    ),
    program(
        "Python imports",
        &["python3", "-c", "import json, asyncio, email, http.client, unittest, xml.dom"],
        1.05,
        1.15,
    ),
    program("a CPU-bound program", &["perl", "-e", "$x += $_ for 1..1e7"], 1.005, 1.005),
];

/// So many forks are in [`FORKS`].
pub(super) const FORK_COUNT: f64 = 2000.0;

/// Forks of a small shell whose children do nothing.
pub(super) const FORKS: Work = calls(
    "fork alone",
    &["sh", "-c", "i=0; while [ $i -lt 2000 ]; do (:); i=$((i+1)); done"],
    NONE,
);
