//! The suite of servers and their clients, as they are installed and run every day, in containers
//! of networks with names: they find each other by name, listen on the ports of their own
//! configurations, and see each other's addresses.
//!
//! The image is a Debian tree that `mmdebstrap` makes once. Everything runs as one unprivileged
//! user. Each case has a network of its own in one store, so several go on side by side and one
//! agent serves all. Without namespaces each case runs in I1, and a few of them in
//! P1 and F2, which catch the same calls in another way. By packets each runs in N1 with devices as
//! where `/dev/net/tun` is closed, a few with TAP devices and in R1. With share 1/1 all of
//! them run in all of these. [`far`] is about containers of several hosts. At the end nothing may
//! be left: no process, no container, no network.

#![expect(clippy::unnecessary_wraps, reason = "every case has the type of its table")]

mod agent;
mod databases;
mod far;
mod languages;
mod limits;
mod mpi;
mod stage;
mod tools;
mod web;

use std::process::ExitCode;

use testkit::harness::{Suite, Wishes};

use stage::{Case, Stage, World};

/// In which modes a case runs if not all are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum In {
    /// I1, P1 and F2, and N1.
    All,
    /// I1 and N1: the others differ from I1 in nothing that the case uses.
    First,
    /// I1: by packets there is nothing of that kind.
    Names,
    /// N1: only there are devices.
    Packets,
}

/// What runs with the other kind of devices too, and in an OCI runtime: there the network is N1's.
const SOME: &[(&str, &[&str])] =
    &[("N1-tap", &["postgresql", "sshd", "iperf3"]), ("R1", &["redis", "python", "dig"])];

/// Cases whose programs become other users, or log in as one: in a runtime of the host's that has
/// one id there are none.
const OTHER_USERS: [&str; 9] = [
    "far_open_mpi",
    "open_mpi",
    "mpich",
    "postgresql",
    "nginx",
    "haproxy",
    "same_port",
    "sshd",
    "musl",
];

impl In {
    fn wants(self, case: &str, world: &World) -> bool {
        let is_asked = testkit::share::is_whole();
        match world.label {
            _ if world.has_packets() && self == Self::Names => false,
            _ if !world.has_packets() && self == Self::Packets => false,
            "I1" | "N1-veth" => true,
            label if world.has_packets() => {
                is_asked || SOME.iter().any(|(kind, cases)| *kind == label && cases.contains(&case))
            }
            _ => self == Self::All || is_asked,
        }
    }
}

const GROUPS: &[&[(&str, In, Case)]] = &[
    far::CASES,
    mpi::CASES,
    databases::CASES,
    web::CASES,
    languages::CASES,
    tools::CASES,
    limits::CASES,
    agent::CASES,
];

pub(crate) fn run(wishes: &Wishes) -> ExitCode {
    let stage = Stage::set();
    let mut suite = Suite::new("servers");
    // Half of the time a case waits for its servers.
    suite.threads(3);
    let stage = match &stage {
        Err(reason) => {
            suite.skipped("servers", reason);
            return suite.run(wishes);
        }
        Ok(stage) => stage,
    };
    for (name, reason) in &stage.missing {
        suite.skipped(name, reason);
    }
    for (case, modes, body) in GROUPS.iter().copied().flatten() {
        for world in stage.worlds.iter().filter(|world| modes.wants(case, world)) {
            let name = format!("{}::{case}", world.label);
            if world.mode == "R1" && OTHER_USERS.contains(case) {
                suite.skipped(&name, "one mapped id: programs cannot become other users");
                continue;
            }
            suite.case(name, move || body(world));
        }
    }
    let done = suite.run(wishes);
    let mut last = Suite::new("servers");
    last.case("nothing_is_left".to_owned(), || stage.nothing_is_left());
    let left = last.run(wishes);
    if done == ExitCode::SUCCESS { left } else { done }
}
