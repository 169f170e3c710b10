//! Tracing and reading other processes: what the P engines, debuggers and MPI's single-copy transfers need.

use serde::{Deserialize, Serialize};

use crate::Trial;

/// What of tracing works.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ptrace {
    /// `kernel.yama.ptrace_scope`, where there is Yama: 0 anyone's own processes, 1 descendants, 2 root only, 3 nobody.
    pub yama: Option<u8>,
    /// A child asked to be traced (`PTRACE_TRACEME`), stopped, and its registers were read.
    pub child: Trial,
    /// `PTRACE_O_TRACESECCOMP` could be set (3.5): engine P1 without stopping at every call.
    pub seccomp_stops: Trial,
    /// `process_vm_readv` from a child.
    pub read_child: Trial,
    /// `process_vm_readv` between two processes of the caller that are not related: CMA of MPI ranks.
    pub read_sibling: Trial,
}

impl Ptrace {
    pub(crate) fn probe(_timeout: std::time::Duration) -> Ptrace {
        Ptrace::default()
    }
}
