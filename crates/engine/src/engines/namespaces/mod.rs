//! Containers made of the kernel's namespaces and mounts, without privilege.
//!
//! What happens in one start, and in which process:
//!
//! | step | process |
//! |---|---|
//! | take the container's turn, look for members, write `/etc` files, enter the cgroup | caller |
//! | fork the assistant (only for ranges of ids and connected networks) | caller |
//! | leave the host's namespaces: `unshare`, id maps | caller |
//! | fork (only for a private pid namespace or an init) | caller |
//! | mounts, root, network up, limits, ids, filters, `execve` | the program's process |
//!
//! Without a fork all of that is one process, and it is the one that the user, a shell or `mpiexec`
//! started.
//!
//! - [`run`]: the start. [`leave`]: new namespaces. [`enter`]: those of a running container.
//! - [`first_process`]: the program's process, until [`execute`] turns it into the program.
//! - [`tree`]: the container's root and mounts. [`sealed`]: Coracle's own file in a container.
//! - [`assistant`], [`network`]: a process that stays in the host's namespaces, and what it does.
//! - [`links`], [`keeper`]: devices for networks with names, and who keeps them for the switch.
//! - [`beside`]: processes that stay as long as the container.
//! - [`seccomp_profile`], [`tty_filter`]: filters of system calls.
//! - [`identity`]: ids and owners where one id is mapped.

pub(super) mod assistant;
mod beside;
pub(super) mod enter;
pub(super) mod execute;
mod first_process;
mod identity;
mod keeper;
pub(super) mod leave;
pub(super) mod links;
mod network;
pub(super) mod run;
pub mod sealed;
mod seccomp_profile;
pub(super) mod tree;
mod tty_filter;

pub use tree::mounted;

use super::contract::Caps;

/// What engines with namespaces can do.
pub(super) const CAPS: Caps = Caps {
    fake_root: true,
    binds: true,
    private_binds: true,
    tmpfs: true,
    namespaces: true,
    host_name: true,
    network: true,
    named_networks: true,
    security: true,
    read_only: true,
    enter: true,
    limits: true,
};
