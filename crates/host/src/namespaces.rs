//! User namespaces, and whether they are worth having: on some hosts they can be made but grant nothing.

use serde::{Deserialize, Serialize};

use crate::Trial;

/// What stands in the way of user namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Barrier {
    /// The kernel was built without them.
    NotInKernel,
    /// `user.max_user_namespaces` is 0, here or in a namespace above.
    Limit,
    /// `kernel.unprivileged_userns_clone` is 0 (Debian, Arch).
    Sysctl,
    /// AppArmor lets them be made but takes every capability away inside (Ubuntu 23.10 and later).
    AppArmor,
    /// SELinux refuses.
    SeLinux,
    /// A seccomp filter of an outer container refuses `unshare` or `clone`.
    Seccomp,
    /// The caller's root directory is not the root of its mount namespace.
    Chroot,
    /// The caller's own ids are not mapped where it is.
    Unmapped,
    /// Something else.
    Other,
}

/// What could be made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Namespaces {
    /// A user namespace with one mapped id, in which a mount could be made.
    pub user: Trial,
    /// Why not, for programs to decide on.
    pub barrier: Option<Barrier>,
    /// `user.max_user_namespaces` where we are.
    pub max_user: Option<u64>,
    /// A pid namespace in it, with a fresh `/proc`.
    pub pid: Trial,
    /// A fresh `/proc` could be mounted in that pid namespace. Refused inside containers that mask parts of `/proc`.
    pub proc_mount: Trial,
    /// A network namespace in it.
    pub net: Trial,
    /// An ipc namespace in it.
    pub ipc: Trial,
    /// A uts namespace in it.
    pub uts: Trial,
    /// A cgroup namespace in it (4.6).
    pub cgroup: Trial,
    /// A time namespace in it (5.6).
    pub time: Trial,
}

impl Namespaces {
    pub(crate) fn probe(_security: &crate::Security, _timeout: std::time::Duration) -> Namespaces {
        Namespaces::default()
    }
}
