//! Runs the project's tasks: `cargo xtask TASK`. See [`USAGE`] and CONTRIBUTING.md.
//!
//! A fresh machine compiles this first, so it has few dependencies.

mod bench;
mod calls;
mod ci;
mod cluster;
mod crash;
mod demo;
mod dist;
mod fuzz;
mod kernels;
mod lab;
mod machines;
mod map;
mod order;
mod proot;
mod release;
mod shell;
mod slurm;
mod suite;
mod table;
mod tidy;
mod tools;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  demo [--all]       compile, serve an image from a registry on this machine, pull and run it as an
                     unprivileged user, in every mode and beside other tools; --all installs what
                     the tests need and shows more steps to each test user
  ci                 everything that must hold; as root on Debian it first installs what the
                     tests need and makes two test users
  setup              only that: install and make users
  tidy [--bless]     rules that a compiler does not know; --bless updates the lists of circles
                     and long lines
  test [ARGS]        all tests, counted; ARGS go to cargo test
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
  lab [ARGS]         lints and tests of the lab (lab/, Python); ARGS go to pytest
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

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = words.split_first().map_or(("help", &[][..]), |(t, r)| (t.as_str(), r));
    let result = match task {
        "demo" => demo::run(rest),
        "ci" => ci::run(),
        "setup" => tools::set_up(),
        "tidy" => tidy::run(rest),
        "test" => suite::run(rest).and_then(|counts| counts.verdict()),
        "fuzz" => fuzz::run(rest),
        "crash" => crash::run(rest),
        "cluster" => cluster::run(rest),
        "lab" => lab::run(rest),
        "slurm" => return slurm::run(rest),
        slurm::HOLD => slurm::hold(rest),
        "kernels" => kernels::run(rest),
        "release" => release::build_and_check(),
        "order" => order::run(),
        "bench" => bench::run(rest),
        "docs" => calls::write(),
        "man" => dist::man(rest),
        "completions" => dist::completions(rest),
        "dist" => dist::dist(rest),
        // Run as another user by `bench` itself.
        "time-loop" => bench::time_loop(rest),
        "call-loop" => bench::call_loop(rest),
        "fault-loop" => bench::fault_loop(rest),
        "net-serve" => bench::net_serve(rest),
        "net-work" => bench::net_work(rest),
        "net-lookup" => bench::net_lookup(),
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
