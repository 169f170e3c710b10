//! Security modules and hardening switches, as the kernel shows them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::programs::read_trimmed;

/// The switches that are read, under `/proc/sys`, with dots as in `sysctl`.
pub const SYSCTLS: &[&str] = &[
    "user.max_user_namespaces",
    "kernel.unprivileged_userns_clone",
    "kernel.apparmor_restrict_unprivileged_userns",
    "kernel.apparmor_restrict_unprivileged_unconfined",
    "kernel.yama.ptrace_scope",
    "kernel.unprivileged_bpf_disabled",
    "kernel.dmesg_restrict",
    "kernel.perf_event_paranoid",
    "kernel.io_uring_disabled",
    "vm.mmap_min_addr",
    "vm.unprivileged_userfaultfd",
    "vm.overcommit_memory",
    "fs.protected_hardlinks",
    "fs.protected_symlinks",
    "fs.inotify.max_user_watches",
    "net.ipv4.ip_unprivileged_port_start",
];

/// Security modules and switches.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Security {
    /// `/sys/kernel/security/lsm`; empty if securityfs is not mounted.
    pub lsms: Vec<String>,
    /// The caller's label (`/proc/self/attr/current`): an AppArmor profile or an SELinux context.
    pub label: Option<String>,
    /// True if SELinux enforces.
    pub selinux_enforcing: Option<bool>,
    /// Values of [`SYSCTLS`], as far as they can be read.
    pub sysctls: BTreeMap<String, String>,
    /// The caller runs with `no_new_privs`: setuid helpers have no effect.
    pub no_new_privs: bool,
    /// The caller's effective capabilities, as a mask (`CapEff`).
    pub capabilities: u64,
}

impl Security {
    pub(crate) fn read_quick() -> Security {
        let status = crate::programs::own_status();
        Security {
            no_new_privs: status_field(status, "NoNewPrivs") == Some("1"),
            capabilities: status_field(status, "CapEff")
                .and_then(|mask| u64::from_str_radix(mask, 16).ok())
                .unwrap_or(0),
            ..Security::default()
        }
    }

    pub(crate) fn read() -> Security {
        let sysctls = SYSCTLS
            .iter()
            .filter_map(|name| {
                let path = format!("/proc/sys/{}", name.replace('.', "/"));
                Some(((*name).to_owned(), read_trimmed(path)?))
            })
            .collect();
        Security {
            lsms: read_trimmed("/sys/kernel/security/lsm")
                .map(|list| list.split(',').map(str::to_owned).collect())
                .unwrap_or_default(),
            label: read_trimmed("/proc/self/attr/current")
                .map(|label| label.trim_end_matches('\0').to_owned())
                .filter(|label| !label.is_empty()),
            selinux_enforcing: read_trimmed("/sys/fs/selinux/enforce").map(|value| value == "1"),
            sysctls,
            ..Security::read_quick()
        }
    }

    /// A switch as a number.
    pub fn sysctl(&self, name: &str) -> Option<i64> {
        self.sysctls.get(name)?.parse().ok()
    }

    /// Returns true if a security module is active.
    pub fn has_lsm(&self, name: &str) -> bool {
        self.lsms.iter().any(|lsm| lsm == name)
    }
}

/// The value of a line `Name:\tvalue` of `/proc/PID/status`.
pub(crate) fn status_field<'text>(status: &'text str, name: &str) -> Option<&'text str> {
    status.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}
