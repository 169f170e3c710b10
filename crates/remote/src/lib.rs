//! Remote execution: starts an agent on another host, and runs programs and copies files there over
//! one stream.
//!
//! ```text
//! driver: Channel -- ssh or srun == stream == host: agent -- programs
//!                                                   guard, its parent
//! ```
//!
//! A *driver* opens a [`channel::Channel`] to each host. The channel starts a launcher, `ssh` or
//! `srun`, which starts this program on the host as an *agent*; if the host does not have the
//! program, the channel sends it. The launcher's standard input and output are the stream. No port
//! is opened, and no directory has to be shared.
//!
//! | module | what is there |
//! |---|---|
//! | [`wire`] | frames and messages of the stream, and how much may be under way |
//! | [`agent`] | the host's end: starts programs, writes files, and ends all of it |
//! | [`launcher`] | the commands of `ssh` and `srun`, and how the program gets to the host |
//! | [`channel`] | the driver's end |
//! | [`routes`] | which interface of a host leads to the other hosts, and variables that say so |
//! | [`clock`] | whether the clock of a host is wrong |
//! | [`digest`] | the digest of a file |
//! | [`shell`] | quotes words for a POSIX shell |
//!
//! `wire`, `routes`, `shell` and the comparison in `clock` are pure: no input, no output.
//!
//! There is one error for each end: [`channel::Error`] has the host's name and what happened on the
//! way to it, [`agent::Error`] is what an agent cannot do without, and [`wire::Error`] is a damaged
//! stream, which both of them contain. Each has a `hint()`.
//!
//! [`agent::serve`] forks and must be called with one thread; a channel has a thread of its own and
//! may be used from several. This crate knows no cluster file and no container, prints nothing and
//! reads no environment.

pub mod agent;
pub mod channel;
pub mod clock;
pub mod digest;
pub mod launcher;
pub mod routes;
pub mod shell;
pub mod wire;
