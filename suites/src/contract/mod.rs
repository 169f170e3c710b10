//! The engine contract: the tests that every engine must pass, for every user and every place of
//! the store.
//!
//! The suite drives the real binary. It runs `coracle doctor --format json` to find the engines
//! that are ready for each test user, and runs every case for each pair of the two:
//! `N1::range::tty::size`. Where a kind of host chooses the engine by itself, the engine is not
//! asked for: N1 here, I1 where namespaces are forbidden. Within a pair all cases share one store,
//! so they also test that concurrent commands do not disturb each other. Known differences of an
//! engine are in [`known`] with their reasons.
//!
//! Programs run as the unprivileged users of `testkit::users`; root only prepares and checks.

#![expect(clippy::unnecessary_wraps, reason = "every case has the type of its table")]

mod concurrency;
mod devices;
mod drivers;
mod environment;
mod events;
mod exec;
mod files;
mod hosts;
mod images;
mod inherited;
mod isolation;
mod kernel;
mod known;
mod large;
mod layers;
mod leavings;
mod libraries;
mod lifecycle;
mod modes;
mod mounts;
mod nesting;
mod network;
mod one_id;
mod options;
mod own_parts;
mod packages;
mod patched_code;
mod placement;
mod points;
mod projects;
mod removal;
mod same;
mod status;
mod streams;
mod terminals;
mod users;
mod volumes;
mod world;

use std::process::ExitCode;

use testkit::harness::{Suite, Wishes};

use world::{Case, Stage, World};

const GROUPS: &[(&str, &[(&str, Case)])] = &[
    ("status", status::CASES),
    ("tty", terminals::CASES),
    ("env", environment::CASES),
    ("inherited", inherited::CASES),
    ("users", users::CASES),
    ("mounts", mounts::CASES),
    ("volumes", volumes::CASES),
    ("drivers", drivers::CASES),
    ("devices", devices::CASES),
    ("streams", streams::CASES),
    ("events", events::CASES),
    ("exec", exec::CASES),
    ("life", lifecycle::CASES),
    ("left", leavings::CASES),
    ("removal", removal::CASES),
    ("own", own_parts::CASES),
    ("options", options::CASES),
    ("files", files::CASES),
    ("layers", layers::CASES),
    ("same", same::CASES),
    ("images", images::CASES),
    ("network", network::CASES),
    ("isolate", isolation::CASES),
    ("points", points::CASES),
    ("projects", projects::CASES),
    ("many", concurrency::CASES),
    ("place", placement::CASES),
    ("debian", packages::CASES),
    ("nss", libraries::CASES),
    ("nest", nesting::CASES),
    ("patched_code", patched_code::CASES),
    ("modes", modes::CASES),
    ("hosts", hosts::CASES),
    ("kernel", kernel::CASES),
    ("large", large::CASES),
    ("owners", one_id::OWNERS),
    ("one_id", one_id::CASES),
];

/// Cases that ask for the mode also where it would be chosen: their subject is the asking, a host
/// that changes below them, or a mount that only a host with namespaces has.
const ASKING: [(&str, &str); 8] = [
    ("place", "namespaces_forbidden"),
    ("modes", "there_and_back"),
    ("hosts", "containers_of_another_host_are_not_changed"),
    ("mounts", "what_the_host_mounts_later"),
    ("drivers", "mounted_while_it_is_used"),
    ("drivers", "a_driver_that_fails_loses_nothing"),
    ("layers", "through_other_modes"),
    // Its error is the one for a mode that was asked for.
    ("nest", "too_deep"),
];

/// Groups for the engine without filters: those that test its own code. Everything else it shares
/// with the engines whose rules it uses.
const WITHOUT_FILTERS: [&str; 17] = [
    "status",
    "env",
    "users",
    "streams",
    "exec",
    "files",
    "layers",
    "same",
    "many",
    "patched_code",
    "hosts",
    "removal",
    "kernel",
    "own",
    "projects",
    "options",
    "large",
];

/// Groups for a runtime of the host: those that test what it does instead of N1. The rest is the
/// code of N1 and P1.
const BY_RUNTIME: [&str; 14] = [
    "status", "tty", "users", "mounts", "volumes", "devices", "streams", "exec", "layers",
    "isolate", "removal", "own", "projects", "options",
];

/// True if a group is skipped for a mode of the host's runtime.
fn is_repetition(world: &World, group: &str) -> bool {
    if testkit::share::is_whole() {
        return false;
    }
    let asked: &[&str] = match (world.engine.as_str(), world.user.kind()) {
        ("R1", "plain") => &BY_RUNTIME,
        ("R1", _) => &["users", "large"],
        (_, "plain") => &["status", "users", "exec"],
        _ => &[],
    };
    !asked.contains(&group)
}

pub(crate) fn run(wishes: &Wishes) -> ExitCode {
    let stage = Stage::set();
    let known = known::known();
    let mut suite = Suite::new("contract");
    suite.known(&known);
    match &stage {
        Err(reason) => suite.skipped("contract", reason),
        Ok(stage) => {
            for (name, reason) in &stage.missing {
                suite.skipped(name, reason);
            }
            for world in &stage.worlds {
                for (group, cases) in GROUPS {
                    let is_theirs = match world.engine.as_str() {
                        _ if *group == "large" && !large::is_asked(world) => false,
                        _ if *group == "one_id" => one_id::is_theirs(world),
                        "F2" => WITHOUT_FILTERS.contains(group),
                        // The same as in I1 and P1.
                        "I2" | "P2" if *group == "hosts" => false,
                        "R1" | "R2" => !is_repetition(world, group) && *group != "patched_code",
                        _ => *group != "patched_code",
                    };
                    if !is_theirs {
                        continue;
                    }
                    for (case, body) in *cases {
                        let name =
                            format!("{}::{}::{group}::{case}", world.engine, world.user.kind());
                        if ASKING.contains(&(group, case)) {
                            suite.case(name, move || body(&world.asking()));
                        } else {
                            suite.case(name, move || body(world));
                        }
                    }
                }
            }
        }
    }
    suite.run(wishes)
}
