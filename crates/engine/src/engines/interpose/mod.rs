//! What the engines share that have no namespaces and interpose on system calls instead.
//!
//! The container's tree is a directory of the host's ([`crate::plan::Root::Directory`]), whose
//! regular files may be hard links of the image's. Before the program runs, [`prepare`] makes what
//! the kernel would have mounted (directories for memory, mount points, files in `/etc`), and
//! [`world`] compiles the plan's mounts into the table of bindings by which the view shows one
//! tree. Names in the container's directory are [`hostfs::layout`]'s.
//!
//! - [`host`]: the view's calls on the host's files, made by this process; [`kernel`] makes each
//!   system call for `hostfs`, [`delegate`] forwards to them.
//! - [`image_inodes`], [`inode_log`], [`common`]: the container's lists, logs and shared file.
//!   [`by_path`] reads and writes the log by path.
//! - [`layers`]: the layers of a tree whose image is beneath it; [`changing`] changes it from
//!   outside.
//! - [`start`]: the steps of starting a program.

pub mod aliases;
pub mod by_path;
pub mod changing;
pub mod common;
pub(super) mod delegate;
pub mod emulators;
pub mod host;
pub mod image_inodes;
pub mod inode_log;
pub mod kernel;
pub mod layers;
pub mod networks;
mod points;
pub mod prepare;
pub(super) mod run;
pub mod world;

pub(crate) use run::{tidy, tidy_after_all};

use super::contract::{Caps, Fit};
use crate::facts::Facts;

/// What engines without namespaces can do.
pub const CAPS: Caps = Caps {
    fake_root: true,
    binds: true,
    // The kernel walks the host's own tree, in which later mounts appear.
    private_binds: false,
    tmpfs: true,
    namespaces: false,
    host_name: true,
    network: false,
    named_networks: true,
    security: false,
    read_only: true,
    enter: true,
    limits: true,
};

/// How well an engine that traces its programs fits a host; `filtered` if a filter chooses the
/// calls that stop.
#[must_use]
pub fn fit_of_tracing(facts: &Facts, filtered: bool) -> Fit {
    let filter = [&facts.no_seccomp, &facts.no_seccomp_stops];
    let filter = filter.into_iter().flatten().next().filter(|_| filtered);
    match (&facts.no_ptrace, filter) {
        (Some(why), _) | (None, Some(why)) => Fit::Unusable(why.clone()),
        (None, None) => Fit::Ready,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_filters_every_call_is_stopped_at() {
        let none = Facts { no_seccomp: Some("no filters".into()), ..Facts::default() };
        assert_eq!(fit_of_tracing(&none, true), Fit::Unusable("no filters".into()));
        assert_eq!(fit_of_tracing(&none, false), Fit::Ready);
        let none = Facts { no_ptrace: Some("Yama".into()), ..Facts::default() };
        assert_eq!(fit_of_tracing(&none, true), Fit::Unusable("Yama".into()));
        assert_eq!(fit_of_tracing(&none, false), Fit::Unusable("Yama".into()));
        assert_eq!(fit_of_tracing(&Facts::default(), true), Fit::Ready);
    }
}
