//! What the tests and the benchmarks share: parts that stand in for the world around Coracle.
//!
//! - [`layer`], [`image`], [`push`]: images made by code, right and hostile ones;
//! - [`docker_registry`]: a real registry process; [`registry`]: one in this process with faults;
//! - [`users`], [`person`]: the unprivileged users that everything runs as; [`command`]: running a program with
//!   a deadline; [`running`]: talking to it meanwhile; [`terminal`]: behind a pseudo-terminal;
//! - [`disk`]: a disk that remembers each write, and what a loss of power leaves of it;
//! - [`fence`]: forbidding what stricter hosts do; [`intruder`]: trying what a hostile guest would;
//! - [`machine`]: another host on the same files;
//! - [`guest`]: the static program that looks around inside a container;
//! - [`nss`]: watching that no library of the host is loaded;
//! - [`debian`], [`trees`], [`big`]: trees of a real distribution, and a big made image for
//!   measurements;
//! - [`tools`]: test programs of others, built for us;
//! - [`harness`], [`skip`]: a test runner for suites with parameters, where skips are counted.
//!
//! Nothing here uses the crates under test, except for types that a caller already has.

pub mod big;
mod built;
pub mod command;
pub mod debian;
pub mod disk;
pub mod docker_registry;
pub mod fence;
pub mod guest;
pub mod harness;
pub mod image;
pub mod intruder;
pub mod layer;
pub mod machine;
pub mod nss;
pub mod person;
pub mod push;
pub mod registry;
pub mod running;
pub mod scratch;
pub mod skip;
pub mod slurm;
pub mod terminal;
pub mod tools;
pub mod trees;
pub mod users;
