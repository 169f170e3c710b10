//! Shared parts of the tests and the benchmarks, which simulate Coracle's environment.
//!
//! - [`layer`], [`image`], [`push`]: images made by code, valid and hostile ones;
//! - [`docker_registry`]: a real registry process; [`registry`]: one in this process that injects
//!   faults;
//! - [`users`], [`person`]: the unprivileged users that run everything; [`command`]: runs a program
//!   with a deadline; [`running`]: interacts with a running program; [`terminal`]: behind a
//!   pseudo-terminal;
//! - [`disk`]: a disk that records each write, and its state after a power failure;
//! - [`family`]: a command with all that it starts;
//! - [`fence`]: forbids system calls as stricter hosts do; [`intruder`]: tries the actions of a
//!   hostile guest;
//! - [`machine`]: another host on the same files;
//! - [`fingerprint`]: what a program could change of a tree, to compare it;
//! - [`built`]: programs of this workspace; [`guest`]: a static program that prints facts from
//!   inside a container;
//! - [`nss`]: checks that no library of the host is loaded;
//! - [`gateway`]: a cluster file with six services;
//! - [`debian`], [`trees`], [`big`]: trees of a real distribution, and a big generated image for
//!   measurements;
//! - [`tools`]: other projects' test programs, built for the suites; [`runtimes`]: the Go, Java and
//!   Node of this machine;
//! - [`harness`], [`skip`]: a test runner for suites with parameters, which counts skips;
//!   [`share`]: which part of the rare cases runs.
//!
//! Nothing here uses the crates under test, except for types that a caller already has.

pub mod big;
pub mod built;
pub mod command;
pub mod debian;
pub mod disk;
pub mod docker_registry;
pub mod family;
pub mod fence;
pub mod fingerprint;
pub mod gateway;
pub mod guest;
pub mod harness;
pub mod hosts;
pub mod image;
pub mod intruder;
pub mod layer;
pub mod machine;
pub mod mounts;
pub mod nss;
pub mod person;
pub mod push;
pub mod registry;
pub mod running;
pub mod runtimes;
pub mod scratch;
pub mod share;
pub mod skip;
pub mod slurm;
pub mod ssh;
pub mod terminal;
pub mod tools;
pub mod trees;
pub mod users;
