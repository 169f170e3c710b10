//! Seccomp: whether filters can be installed, and with what.

use serde::{Deserialize, Serialize};

use crate::Trial;

/// The filter that the caller itself is under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SeccompMode {
    /// Not known (no `Seccomp:` line in `/proc/self/status`).
    #[default]
    Unknown,
    /// None.
    Off,
    /// Strict mode.
    Strict,
    /// A filter, as in an outer container.
    Filter,
}

/// What of seccomp works.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Seccomp {
    /// Filters could be installed, and did what they say.
    pub filter: Trial,
    /// A filter with `SECCOMP_FILTER_FLAG_NEW_LISTENER` gave a listener (5.0).
    pub notify: Trial,
    /// A listener answered a call with `SECCOMP_USER_NOTIF_FLAG_CONTINUE` (5.5).
    pub notify_continue: Trial,
    /// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` (5.19).
    pub wait_killable: Trial,
    /// A filter that returns `SECCOMP_RET_TRAP` raised SIGSYS: what the in-process engine lives on.
    pub trap: Trial,
    /// `/proc/sys/kernel/seccomp/actions_avail`.
    pub actions: Vec<String>,
    /// What the caller is under.
    pub mode: SeccompMode,
    /// How many filters the caller is under, where the kernel tells (5.9).
    pub filters: Option<u32>,
}

impl Seccomp {
    pub(crate) fn probe(_timeout: std::time::Duration) -> Seccomp {
        Seccomp::default()
    }
}
