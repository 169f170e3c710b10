//! The suite of servers and their clients, as they are installed and run every day, in containers
//! of networks with names and without namespaces: they find each other by name, listen on the ports
//! of their own configurations, and see each other's addresses.
//!
//! The image is a Debian tree that `mmdebstrap` makes once, below `target/testkit`. Everything runs
//! as one unprivileged user. Each case has a network of its own in one store, so several go on side
//! by side and one agent serves all. Each case runs in I1, and a few of them in P1 and F2, which
//! catch the same calls in another way; with `CORACLE_TEST_ALL` all of them run in all three. At
//! the end nothing may be left: no process, no container, no network.

#![expect(clippy::unnecessary_wraps, reason = "every case has the type of its table")]

mod agent;
mod databases;
mod languages;
mod limits;
mod mpi;
mod stage;
mod tools;
mod web;

use std::process::ExitCode;

use testkit::harness::Suite;

use stage::{Case, Stage};

/// In which modes a case runs if not all are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum In {
    /// I1, P1 and F2.
    All,
    /// I1: the others differ from it in nothing that the case uses.
    First,
}

impl In {
    fn wants(self, mode: &str) -> bool {
        self == Self::All || mode == "I1" || std::env::var_os(testkit::person::ALL).is_some()
    }
}

const GROUPS: &[&[(&str, In, Case)]] = &[
    mpi::CASES,
    databases::CASES,
    web::CASES,
    languages::CASES,
    tools::CASES,
    limits::CASES,
    agent::CASES,
];

fn main() -> ExitCode {
    let listing = std::env::args().any(|word| word == "--list");
    let stage = if listing { Err("only listed".to_owned()) } else { Stage::set() };
    let mut suite = Suite::new();
    // Half of the time a case waits for its servers.
    suite.threads(3);
    let stage = match &stage {
        Err(reason) => {
            suite.skipped("servers", reason);
            return suite.run();
        }
        Ok(stage) => stage,
    };
    for (name, reason) in &stage.missing {
        suite.skipped(name, reason);
    }
    for (case, modes, body) in GROUPS.iter().copied().flatten() {
        for world in stage.worlds.iter().filter(|world| modes.wants(world.mode)) {
            suite.case(format!("{}::{case}", world.mode), move || body(world));
        }
    }
    let done = suite.run();
    let mut last = Suite::new();
    last.case("nothing_is_left".to_owned(), || stage.nothing_is_left());
    let left = last.run();
    if done == ExitCode::SUCCESS { left } else { done }
}
