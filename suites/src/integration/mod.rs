//! Tests of optional access to the host: GPUs, the screen, agents, buses, users, time and language.
//!
//! The suite drives the real binary as one unprivileged user, with one engine of each kind: with
//! mounts, in-process, tracing, and without any of these features. The image is a small Debian tree
//! with X11 programs, D-Bus and ssh. GPU drivers are simulated: trees with the layout of packages,
//! with real libraries that only answer.

#![expect(clippy::unnecessary_wraps, reason = "every case has the type of its table")]

mod driver;
mod gpus;
mod screen;
mod users;
mod world;

use std::process::ExitCode;

use testkit::harness::{Suite, Wishes};

use world::{Case, Stage};

const GROUPS: &[(&str, &[(&str, Case)])] =
    &[("gpus", gpus::CASES), ("users", users::CASES), ("screen", screen::CASES)];

pub(crate) fn run(wishes: &Wishes) -> ExitCode {
    let stage = Stage::set();
    let mut suite = Suite::new("integration");
    suite.threads(2);
    match &stage {
        Err(reason) => suite.skipped("integration", reason),
        Ok(stage) => {
            for (name, reason) in &stage.missing {
                suite.skipped(name, reason);
            }
            for world in &stage.worlds {
                for (group, cases) in GROUPS {
                    for (case, body) in *cases {
                        let name = format!("{}::{group}::{case}", world.engine);
                        suite.case(name, move || body(world));
                    }
                }
            }
        }
    }
    suite.run(wishes)
}
