//! Safe wrappers of Linux system calls, for the crates that use `std`.

pub mod arguments;
pub mod carried;
pub mod child;
pub mod diag;
#[cfg(target_arch = "x86_64")]
pub mod entry;
pub mod event;
pub mod fork;
pub mod fs;
pub mod lease;
pub mod life;
pub mod link;
pub mod machine;
pub mod mapped;
pub mod mount;
pub mod namespace;
pub mod netlink;
pub mod ofd;
pub mod packet;
pub mod peer;
pub mod prefault;
pub mod probe;
pub mod process;
pub mod ptrace;
pub mod random;
mod raw;
pub mod seccomp;
pub mod shared;
pub mod socket;
pub mod tap;
pub mod terminal;
#[cfg(panic = "abort")]
mod unwind;
pub mod userns;
