//! Tests of real programs as emulated root, in a Debian tree with compilers, Python, Git, sshd and
//! package managers.
//!
//! The suite drives the real binary as one unprivileged user, with each engine that `coracle
//! doctor` reports as ready for that user: `P1::ssh::login`. The tree is made once by `mmdebstrap`
//! and kept for all clones. A case that compares with real root reads that tree, or runs
//! the same in a plain chroot; then it must run as root, and is skipped otherwise. [`known`] lists
//! known differences with their reasons.

#![expect(clippy::unnecessary_wraps, reason = "every case has the type of its table")]

mod accounts;
mod apptainer;
mod building;
mod copying;
mod debuggers;
mod devices;
mod known;
mod languages;
mod managers;
mod mpi;
mod musl;
mod newest;
mod python;
mod shells;
mod ssh;
mod stage;
mod system;
mod toolchains;

use std::process::ExitCode;

use testkit::harness::{Suite, Wishes};

use stage::{Case, Stage};

/// The engines of a group: all that give a user without subordinate ids every id, or the quickest
/// of each kind (in-process, and tracing) because the group takes minutes; or only the former.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    All,
    First,
    /// Engines that leave tracing to the guest; namespaces with one id are one of them.
    Inside,
    /// One engine, because the cases choose modes themselves.
    Once,
}

/// Groups that also run without filters, tracing and namespaces. `CORACLE_TEST_WITHOUT_FILTERS=all`
/// selects all groups.
const WITHOUT_FILTERS: [&str; 2] = ["languages", "musl"];

/// Groups that also run in namespaces with one id, where the engine inside processes keeps ids and
/// owners alone.
const WITH_ONE_ID: [&str; 5] = ["managers", "accounts", "ssh", "copy", "devices"];

impl On {
    fn wants(self, engine: &str, group: &str) -> bool {
        if engine == "N1" {
            return WITH_ONE_ID.contains(&group);
        }
        if engine == "F2" {
            let all =
                std::env::var_os("CORACLE_TEST_WITHOUT_FILTERS").is_some_and(|word| word == "all");
            return WITHOUT_FILTERS.contains(&group)
                || all && !matches!(self, Self::Inside | Self::Once);
        }
        // Most of it is I1's and F2's.
        if engine.starts_with('N') {
            return self == Self::Inside;
        }
        match self {
            Self::All => true,
            Self::First => engine.ends_with('1'),
            Self::Inside => engine.starts_with('I'),
            Self::Once => engine == "I1",
        }
    }
}

type Group = (&'static str, On, &'static [(&'static str, Case)]);

const GROUPS: &[Group] = &[
    ("python", On::First, python::CASES),
    ("apt", On::First, system::CASES),
    ("build", On::All, building::CASES),
    ("languages", On::First, languages::CASES),
    ("managers", On::First, managers::CASES),
    ("accounts", On::All, accounts::CASES),
    ("ssh", On::All, ssh::CASES),
    ("copy", On::All, copying::CASES),
    ("shells", On::All, shells::CASES),
    ("devices", On::All, devices::CASES),
    ("toolchains", On::First, toolchains::CASES),
    ("newest", On::First, newest::CASES),
    ("apptainer", On::Once, apptainer::CASES),
    ("musl", On::First, musl::CASES),
    ("mpi", On::First, mpi::CASES),
    ("debug", On::Inside, debuggers::CASES),
];

pub(crate) fn run(wishes: &Wishes) -> ExitCode {
    let stage = Stage::set();
    let mut suite = Suite::new("programs");
    suite.known(known::KNOWN);
    // Most cases keep a tracer and its guest busy at once.
    suite.threads(2);
    match &stage {
        Err(reason) => suite.skipped("programs", reason),
        Ok(stage) => {
            for (name, reason) in &stage.missing {
                suite.skipped(name, reason);
            }
            for (group, on, cases) in GROUPS {
                for world in &stage.worlds {
                    for (case, body) in cases.iter().filter(|_| on.wants(&world.engine, group)) {
                        let name = format!("{}::{group}::{case}", world.engine);
                        suite.case(name, move || body(world));
                    }
                }
            }
        }
    }
    suite.run(wishes)
}
