//! Safe Linux for the std side.

pub mod event;
pub mod fs;
pub mod link;
pub mod mount;
pub mod namespace;
pub mod ofd;
pub mod peer;
pub mod probe;
pub mod process;
mod raw;
pub mod seccomp;
pub mod terminal;
pub mod userns;
