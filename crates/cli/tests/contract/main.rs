//! The engine contract: what every engine must do, whoever the user is and wherever the store lies.
//!
//! The suite drives the real binary. It asks `coracle doctor --format json` which engines are ready
//! for each test user, and runs every case for each pair of the two: `N1::range::tty::size`. Within a
//! pair all cases share one store, so they also test that commands at the same time do not disturb
//! each other. What an engine is known to do differently stands in [`known`] with its reason.
//!
//! Programs run as the unprivileged users of `testkit::users`; root only prepares and looks.

#![expect(clippy::unnecessary_wraps, reason = "every case has the type of its table")]

mod concurrency;
mod devices;
mod environment;
mod exec;
mod files;
mod hosts;
mod images;
mod isolation;
mod known;
mod libraries;
mod lifecycle;
mod modes;
mod mounts;
mod nesting;
mod network;
mod packages;
mod placement;
mod points;
mod removal;
mod status;
mod streams;
mod terminals;
mod texts;
mod users;
mod world;

use std::process::ExitCode;

use testkit::harness::Suite;

use world::{Case, Stage, World};

const GROUPS: &[(&str, &[(&str, Case)])] = &[
    ("status", status::CASES),
    ("tty", terminals::CASES),
    ("env", environment::CASES),
    ("users", users::CASES),
    ("mounts", mounts::CASES),
    ("devices", devices::CASES),
    ("streams", streams::CASES),
    ("exec", exec::CASES),
    ("life", lifecycle::CASES),
    ("removal", removal::CASES),
    ("files", files::CASES),
    ("images", images::CASES),
    ("network", network::CASES),
    ("isolate", isolation::CASES),
    ("points", points::CASES),
    ("many", concurrency::CASES),
    ("place", placement::CASES),
    ("debian", packages::CASES),
    ("nss", libraries::CASES),
    ("nest", nesting::CASES),
    ("texts", texts::CASES),
    ("modes", modes::CASES),
    ("hosts", hosts::CASES),
];

/// What is asked of the engine without filters: what it has of its own. The rest it has from the engines by whose rules it lives.
const WITHOUT_FILTERS: [&str; 10] =
    ["status", "env", "users", "streams", "exec", "files", "many", "texts", "hosts", "removal"];

/// What is asked of a runtime of the host's: what it does in the place of N1, or what goes through its hands. The rest is N1's and P1's own.
const BY_RUNTIME: [&str; 9] =
    ["status", "tty", "users", "mounts", "devices", "streams", "exec", "isolate", "removal"];

/// Whether a group is left out for a mode of the host's runtime.
fn is_repetition(world: &World, group: &str) -> bool {
    if std::env::var_os(testkit::person::ALL).is_some() {
        return false;
    }
    let asked: &[&str] = match (world.engine.as_str(), world.user.kind()) {
        ("R1", "plain") => &BY_RUNTIME,
        ("R1", _) => &["users"],
        (_, "plain") => &["status", "users", "exec"],
        _ => &[],
    };
    !asked.contains(&group)
}

fn main() -> ExitCode {
    let listing = std::env::args().any(|word| word == "--list");
    let stage = if listing { Err("only listed".to_owned()) } else { Stage::set() };
    let known = known::known();
    let mut suite = Suite::new();
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
                        "F2" => WITHOUT_FILTERS.contains(group),
                        // As in I1 and P1.
                        "I2" | "P2" if *group == "hosts" => false,
                        "R1" | "R2" => !is_repetition(world, group) && *group != "texts",
                        _ => *group != "texts",
                    };
                    if !is_theirs {
                        continue;
                    }
                    for (case, body) in *cases {
                        let name =
                            format!("{}::{}::{group}::{case}", world.engine, world.user.kind());
                        suite.case(name, move || body(world));
                    }
                }
            }
        }
    }
    suite.run()
}
