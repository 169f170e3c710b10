//! What all engines need to start a program.
//!
//! - [`spawn`]: a forked process that becomes the program or tells which process does;
//!   [`report`]: the pipe over which it says so. [`attend`]: the process that stays beside it.
//! - [`streams`], [`terminal`]: its standard streams, session and terminal. [`descriptor`]:
//!   descriptors sent over sockets.
//! - [`caller`]: what this process has of its caller. [`program`]: its strings, limits and the
//!   search in `PATH`. [`file_limit`]: limits that are lifted while Coracle itself works.
//! - [`init`]: the process above it. [`cgroup`]: its control group. [`etc_files`]: the files that
//!   it finds under `/etc`.
//! - [`members`]: the processes of its container. [`run_files`]: names of files in `run/`.

pub(crate) mod attend;
pub(crate) mod caller;
pub mod cgroup;
pub(crate) mod descriptor;
pub(crate) mod etc_files;
pub(crate) mod file_limit;
pub(crate) mod fork;
pub mod init;
pub mod members;
pub(crate) mod program;
pub(crate) mod report;
pub(crate) mod run_files;
pub(crate) mod spawn;
pub(crate) mod streams;
pub(crate) mod terminal;

pub use caller::settle;
pub use file_limit::{lift as lift_limits, short_stack};
