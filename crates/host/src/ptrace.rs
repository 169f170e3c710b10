//! Tracing and reading other processes, which the P engines, debuggers and MPI's single-copy
//! transfers need.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sys::probe::Link;
use sys::probe::trace::Failure as TraceFailure;

use crate::Trial;
use crate::attempt::{Failure, attempt};
use crate::programs::read_trimmed;

/// Features of tracing that work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ptrace {
    /// `kernel.yama.ptrace_scope`, if Yama is active: 0 all processes of the same user, 1
    /// descendants, 2 root only, 3 none.
    pub yama: Option<u8>,
    /// A child asked to be traced (`PTRACE_TRACEME`), stopped, and its registers were read.
    pub child: Trial,
    /// `PTRACE_O_TRACESECCOMP` could be set (3.5): engine P1 without stopping at every call.
    pub seccomp_stops: Trial,
    /// `process_vm_readv` from a child.
    pub read_child: Trial,
    /// `process_vm_readv` between two processes of the caller that are not related: CMA of MPI
    /// ranks.
    pub read_sibling: Trial,
}

impl Ptrace {
    pub(crate) fn probe(timeout: Duration) -> Ptrace {
        let yama = yama();
        let refused = advice(yama);
        Ptrace {
            yama,
            child: child(timeout),
            seccomp_stops: seccomp_stops(timeout),
            read_child: trial(timeout, "process_vm_readv from a grandchild", |link| {
                link.read_memory(false)
            })
            .advise(refused),
            read_sibling: trial(
                timeout,
                "process_vm_readv between two children of one parent",
                |link| link.read_memory(true),
            )
            .advise("MPI ranks copy through shared memory instead of CMA; administrator: sysctl -w kernel.yama.ptrace_scope=0"),
        }
    }
}

fn yama() -> Option<u8> {
    read_trimmed("/proc/sys/kernel/yama/ptrace_scope").and_then(|scope| scope.parse().ok())
}

/// Advice if tracing is refused.
fn advice(yama: Option<u8>) -> &'static str {
    match yama {
        Some(2..) => "administrator: sysctl -w kernel.yama.ptrace_scope=1",
        _ => {
            "start the surrounding container with --cap-add SYS_PTRACE, or with a seccomp profile \
             that allows ptrace (docker 19.03 on kernel 4.8 and newer does)"
        }
    }
}

/// Tries to trace a child.
pub(crate) fn child(timeout: Duration) -> Trial {
    explained(trial(timeout, "PTRACE_TRACEME and PTRACE_GETREGSET of a grandchild", |link| {
        link.trace_child(false)
    }))
}

/// Tries to stop a traced child by a filter.
pub(crate) fn seccomp_stops(timeout: Duration) -> Trial {
    explained(trial(timeout, "PTRACE_O_TRACESECCOMP on a grandchild", |link| {
        link.trace_child(true)
    }))
}

/// Adds the switch that is the known cause.
fn explained(mut trial: Trial) -> Trial {
    let scope = yama();
    if let (Trial::Fails { why, .. }, Some(scope @ 2..)) = (&mut trial, scope) {
        let who = if scope == 2 { "only root may trace" } else { "no process may trace" };
        *why = format!("kernel.yama.ptrace_scope is {scope}, so {who}: {why}");
    }
    trial.advise(advice(scope))
}

fn trial(
    timeout: Duration,
    how: &str,
    try_it: impl FnOnce(&Link) -> Result<(), TraceFailure>,
) -> Trial {
    let result = attempt(timeout, |link| {
        try_it(link).map_err(|failure| Failure::io(failure.step, &failure.source))
    });
    match result {
        Ok(()) => Trial::works(how),
        Err(failure) => Trial::fails(how, failure.why()).with_errno(failure.number()),
    }
}
