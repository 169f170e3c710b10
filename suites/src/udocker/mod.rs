//! Tests of Coracle under udocker's name: its command line, udocker's known faults, its own
//! directory, and the programs that call it.
//!
//! The suite calls the real binary by a link named `udocker` or `udocker.py`, as unprivileged
//! users: one on the unchanged host, one where user namespaces are forbidden (if that can be
//! arranged here). The image is a static busybox. The clients `cwltool` and `miniwdl` are the real
//! ones; clients that are not installed here (Nextflow, SCAR, Stimela, `OpenMOLE`) are simulated by
//! their command lines.

#![expect(clippy::unnecessary_wraps, reason = "every case has the type of its table")]

mod clients;
mod commands;
mod faults;
mod formats;
mod keeping;
mod old;
mod options;
mod registries;
mod settings;
mod world;

use std::process::ExitCode;

use testkit::harness::{Suite, Wishes};

use world::{Case, Stage};

const GROUPS: &[(&str, &[(&str, Case)])] = &[
    ("formats", formats::CASES),
    ("commands", commands::CASES),
    ("options", options::CASES),
    ("registries", registries::CASES),
    ("settings", settings::CASES),
    ("faults", faults::CASES),
    ("keeping", keeping::CASES),
    ("old", old::CASES),
    ("clients", clients::CASES),
];

pub(crate) fn run(wishes: &Wishes) -> ExitCode {
    let stage = Stage::set();
    let mut suite = Suite::new("udocker");
    match &stage {
        Err(reason) => suite.skipped("udocker", reason),
        Ok(stage) => {
            if let Some(reason) = &stage.missing {
                suite.skipped("forbidden", reason);
            }
            for world in &stage.worlds {
                for (group, cases) in GROUPS {
                    for (case, body) in *cases {
                        let name = format!("{}::{group}::{case}", world.name);
                        suite.case(name, move || body(world));
                    }
                }
            }
        }
    }
    suite.run(wishes)
}
