//! Remote execution: starts an agent on another host and runs programs there through one stream.
//!
//! | module | what is there |
//! |---|---|
//! | [`wire`] | the frames and messages between driver and agent |
//! | [`agent`] | the process on a node: starts programs, writes files, ends everything with its driver |
//! | [`launcher`] | how `ssh` or `srun` starts an agent, and how the binary gets to the node |
//! | [`channel`] | the driver's end of a stream |
//! | [`routes`] | which interface of a host leads to the others |
//! | [`clock`] | hosts whose clock is wrong |
//! | [`digest`] | the digest of a file |
//! | [`shell`] | words for a POSIX shell |

pub mod agent;
pub mod channel;
pub mod clock;
pub mod digest;
pub mod launcher;
pub mod routes;
pub mod shell;
pub mod wire;
