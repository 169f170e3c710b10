//! Runs the project's tasks: `cargo xtask TASK`. See [`USAGE`] and CONTRIBUTING.md.
//!
//! A fresh machine compiles this first, so it has few dependencies.

mod calls;
mod ci;
mod cluster;
mod crash;
mod demo;
mod dependencies;
mod dist;
mod fuzz;
mod kernels;
mod lab;
mod lints;
mod machines;
mod map;
mod order;
mod proot;
pub mod release;
mod setup;
pub mod shell;
mod slurm;
pub mod table;
mod tidy;
pub mod tools;
mod units;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  demo [--all]       compile, serve an image from a registry on this machine, pull and run it as an
                     unprivileged user, in every mode and beside other tools; --all installs what
                     the tests need and shows more steps to each test user
  ci [--all] [--part NAME]... [--list] [--record]
                     what must hold; as root on Debian it installs what the tests need and makes
                     two test users. --all is the complete check; --list names the parts
  setup [packages | lab | tools | tree NAME]
                     only that: install, make users, and what else the tests need
  tidy [--bless]     rules that a compiler does not know; --bless updates the lists of circles
                     and long lines
  lints              what the compiler and clippy warn of
  units              all unit tests, several programs at a time
  fuzz [SECONDS | +SEED,SEED] [NAME]...
                     new sequences of system calls for so long in every engine, user and mode
  fuzz index [SECONDS]
                     new damaged indexes of images
  crash losses|rounds [N] [CASE]...
                     loss of power at N moments of a recorded disk, or N rounds of runs in one
                     container
  cluster faults [MINUTES]
                     a network of several hosts with bad links under load, for an hour
  cluster elastic [MINUTES]
                     services and a batch system under random load, for an hour
  cluster kills [POINTS]
                     drivers, agents and daemons killed at 500 random moments of commands
  cluster nfs [3] [4] [nolock]
                     one store on two virtual machines over NFS; half an hour
  lab [units | trial | ARGS]
                     lints and tests of the lab (lab/, Python): all, the quick ones, or one trial;
                     other ARGS go to pytest
  dependencies       licences, sources and advisories of what the lock files name
  slurm [--user NAME] -- COMMAND
                     COMMAND beside a real Slurm with two nodes, which runs for the caller, or as
                     root for NAME, and ends with it
  kernels [--debug] [--kvm] [NAME]... [-- CASE...]
                     the differential suite on other kernels, in virtual machines; hours
  release            build the release binary and check its shape
  order              list the functions that a start executes, for the linker to place side by side
  bench [NAME]...    the measurements, as ratios; writes their sections of docs/benchmarks.md
  bench net PART...  parts of the measurements of networks: names, packets, hosts, hpl
  bench cluster PART...
                     parts of those of clusters: up, mpi, agents, page, grow, farm,
                     model
  docs               docs/syscalls.md, from the table of calls
  man DIR            man pages
  completions DIR    shell completions
  dist DIR           the distribution binary with man pages and completions";

/// Runs the task that the first word names, with the others.
pub fn run(words: &[String]) -> ExitCode {
    let (task, rest) = words.split_first().map_or(("help", &[][..]), |(t, r)| (t.as_str(), r));
    let result = match task {
        "demo" => demo::run(rest),
        "ci" => return ci::run(rest),
        ci::BELOW => ci::below(rest),
        "setup" => return setup::run(rest),
        "tidy" => tidy::run(rest),
        "fuzz" => fuzz::run(rest),
        "crash" => crash::run(rest),
        "cluster" => cluster::run(rest),
        "lab" if !lab::can_run() => return ExitCode::from(ci::COULD_NOT),
        "lab" => lab::run(rest),
        "lints" => lints::run(),
        "units" => units::run(),
        "dependencies" => dependencies::run(),
        "slurm" => return slurm::run(rest),
        slurm::HOLD => slurm::hold(rest),
        "kernels" => kernels::run(rest),
        "release" => release::build_and_check(),
        "order" => order::run(),
        "bench" => shell::package("bench", rest),
        "docs" => calls::write(),
        "man" => dist::man(rest),
        "completions" => dist::completions(rest),
        "dist" => dist::dist(rest),
        "help" | "-h" | "--help" => {
            println!("{USAGE}");
            Ok(())
        }
        other => Err(format!("unknown task {other:?}\n\n{USAGE}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {task}: {error}");
            ExitCode::FAILURE
        }
    }
}
