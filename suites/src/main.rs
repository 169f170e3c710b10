//! All suites: `suites [FILTER]...` runs the program that `CORACLE_BIN` names, as users without
//! privileges, and knows nothing else of it.
//!
//! `suites contract posix` runs two suites, `suites contract::N1::range::tty` some cases of one;
//! the options are those of [`Wishes`]. [`shares`] says of which cases only a share runs. Suites
//! run one after the other; `cargo xtask ci` starts several of these programs beside each other.

mod batch;
mod cli;
mod cluster;
mod contract;
mod crash;
mod differential;
mod hostile;
mod hosts;
mod integration;
mod interop;
mod network;
mod posix;
mod program;
mod programs;
mod secrets;
mod sequences;
mod servers;
mod shares;
mod udocker;

use std::process::ExitCode;

use testkit::harness::Wishes;

/// The name of a suite, and what runs it.
type Entry = (&'static str, fn(&Wishes) -> ExitCode);

const SUITES: &[Entry] = &[
    ("cli", cli::run),
    ("contract", contract::run),
    ("differential", differential::run),
    ("sequences", sequences::run),
    ("posix", posix::run),
    ("programs", programs::run),
    ("udocker", udocker::run),
    ("interop", interop::run),
    ("hostile", hostile::run),
    ("integration", integration::run),
    ("crash", crash::run),
    ("network", network::run),
    ("servers", servers::run),
    ("cluster", cluster::run),
    ("batch", batch::run),
    ("hosts", hosts::run),
];

fn main() -> ExitCode {
    // A case of `crash` starts this program again, as the server of the recorded disk.
    if let Some(ended) = testkit::disk::serve() {
        return ended;
    }
    if let Some(ended) = differential::keep_layer() {
        return ended;
    }
    let wishes = match Wishes::read(std::env::args().skip(1), shares::rarity) {
        Ok(wishes) => wishes,
        Err(error) => return refuse(&error),
    };
    let is_known = |name: &str| SUITES.iter().any(|(suite, _)| *suite == name);
    if let Some(unknown) = wishes.suites().find(|name| !is_known(name)) {
        let names: Vec<&str> = SUITES.iter().map(|(name, _)| *name).collect();
        return refuse(&format!("no suite is called {unknown}: there are {}", names.join(", ")));
    }
    let mut end = ExitCode::SUCCESS;
    for (_, run) in SUITES.iter().filter(|(name, _)| wishes.want_suite(name)) {
        let one = run(&wishes);
        if one != ExitCode::SUCCESS {
            end = one;
        }
    }
    end
}

fn refuse(error: &str) -> ExitCode {
    eprintln!("suites: {error}");
    ExitCode::from(2)
}
