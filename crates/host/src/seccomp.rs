//! Tests that seccomp filters can be installed, and with which features.

use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sys::probe::filter::{Action, Answer, WAIT_KILLABLE_RECV, call_caught};
use sys::probe::{Ended, in_child};

use crate::Trial;
use crate::attempt::{Failure, Step, attempt};
use crate::programs::read_trimmed;
use crate::security::status_field;

/// Seccomp mode of the caller itself.
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

/// Features of seccomp that work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Seccomp {
    /// Filters could be installed, and worked.
    pub filter: Trial,
    /// A filter with `SECCOMP_FILTER_FLAG_NEW_LISTENER` gave a listener (5.0).
    pub notify: Trial,
    /// A listener answered a call with `SECCOMP_USER_NOTIF_FLAG_CONTINUE` (5.5).
    pub notify_continue: Trial,
    /// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` (5.19).
    pub wait_killable: Trial,
    /// A filter that returns `SECCOMP_RET_TRAP` raised SIGSYS, on which the in-process engine
    /// depends.
    pub trap: Trial,
    /// `/proc/sys/kernel/seccomp/actions_avail`.
    pub actions: Vec<String>,
    /// Mode of the caller.
    pub mode: SeccompMode,
    /// Number of filters of the caller, if the kernel reports it (5.9).
    pub filters: Option<u32>,
}

/// `SIGSYS`.
const SIGNAL_OF_TRAP: i32 = 31;

/// An errno that no other filter would choose.
const OWN_ERRNO: u16 = 77;

impl SeccompMode {
    pub(crate) fn from_status(field: Option<&str>) -> SeccompMode {
        match field {
            Some("0") => SeccompMode::Off,
            Some("1") => SeccompMode::Strict,
            Some("2") => SeccompMode::Filter,
            _ => SeccompMode::Unknown,
        }
    }
}

/// How many filters are around this process, as `/proc/self/status` says; empty before Linux 5.9.
pub fn filters_of_caller() -> &'static str {
    status_field(crate::programs::own_status(), "Seccomp_filters").unwrap_or_default()
}

impl Seccomp {
    pub(crate) fn probe(timeout: Duration) -> Seccomp {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Seccomp {
            filter: filter(timeout),
            trap: trap(timeout),
            notify: notify(timeout, Answer::Result(4711), "answered with a result"),
            notify_continue: notify(timeout, Answer::Continue, "answered with CONTINUE"),
            wait_killable: wait_killable(timeout),
            actions: read_trimmed("/proc/sys/kernel/seccomp/actions_avail")
                .map(|list| list.split_whitespace().map(str::to_owned).collect())
                .unwrap_or_default(),
            mode: SeccompMode::from_status(status_field(&status, "Seccomp")),
            filters: status_field(&status, "Seccomp_filters").and_then(|count| count.parse().ok()),
        }
    }
}

pub(crate) fn filter(timeout: Duration) -> Trial {
    let how = "seccomp(SECCOMP_SET_MODE_FILTER) in a child, then the call that it catches";
    let result = attempt(timeout, |link| {
        link.filter(Action::Fail(OWN_ERRNO), 0).step("seccomp(SECCOMP_SET_MODE_FILTER)")?;
        match call_caught() {
            Err(errno) if errno == i32::from(OWN_ERRNO) => Ok(()),
            _ => Err(not_as_told("the filter did not catch the call")),
        }
    });
    outcome(how, result).advise(
        "the default engines need filters; P2, which stops at every call, works without. Use a \
         kernel with CONFIG_SECCOMP_FILTER, or a surrounding container that allows seccomp(2)",
    )
}

fn trap(timeout: Duration) -> Trial {
    let how = "a filter with SECCOMP_RET_TRAP in a child, which must die of SIGSYS";
    let report = in_child(timeout, |link| {
        let _ = sys::event::set_ignored(SIGNAL_OF_TRAP, false);
        if link.filter(Action::Trap, 0).is_ok() {
            let _ = call_caught();
        }
        1
    });
    match report.map(|report| report.ended) {
        Ok(Ended::Killed(SIGNAL_OF_TRAP)) => Trial::works(how),
        Ok(ended) => Trial::fails(how, format!("the child ended in another way: {ended:?}")),
        Err(error) => Trial::fails(how, format!("cannot start a child: {error}")),
    }
}

fn notify(timeout: Duration, answer: Answer, what: &str) -> Trial {
    let how = format!("SECCOMP_FILTER_FLAG_NEW_LISTENER in a child; a call of a grandchild {what}");
    let result = attempt(timeout, |link| {
        let listener = link
            .filter(Action::Notify, 0)
            .step("seccomp(SECCOMP_FILTER_FLAG_NEW_LISTENER)")?
            .ok_or_else(|| not_as_told("the kernel returned no listener"))?;
        match (answer, link.answer_once(&listener, answer).step("SECCOMP_IOCTL_NOTIF")?) {
            (Answer::Result(told), Ok(got)) if told == got => Ok(()),
            (Answer::Continue, Ok(got)) if got > 0 => Ok(()),
            _ => Err(not_as_told("the call returned another result")),
        }
    });
    let errno = result.as_ref().err().and_then(|failure| failure.errno);
    outcome(&how, result).advise(listener_advice(errno))
}

/// Only some errors say that the kernel is too old for listeners.
fn listener_advice(errno: Option<Errno>) -> &'static str {
    match errno {
        Some(Errno::INVAL | Errno::NOSYS) => {
            "emulated root in single-id namespaces needs this; use kernel 5.5 or newer"
        }
        _ => {
            "emulated root in single-id namespaces needs this; a filter around this process may \
             have a listener already (EBUSY), or a security policy forbids it"
        }
    }
}

fn wait_killable(timeout: Duration) -> Trial {
    let how = "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV in a child";
    let result = attempt(timeout, |link| {
        link.filter(Action::Notify, WAIT_KILLABLE_RECV)
            .step("seccomp(SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)")
            .map(drop)
    });
    outcome(how, result).advise("without it (kernel 5.19) signals may repeat emulated calls")
}

fn not_as_told(what: &str) -> Failure {
    Failure { step: what.into(), errno: None, signal: None }
}

fn outcome(how: &str, result: Result<(), Failure>) -> Trial {
    match result {
        Ok(()) => Trial::works(how),
        Err(failure) => Trial::fails(how, failure.why()).with_errno(failure.number()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_kernel_is_advised_for_old_ones_alone() {
        assert!(listener_advice(Some(Errno::INVAL)).contains("use kernel 5.5"));
        for errno in [None, Some(Errno::BUSY), Some(Errno::PERM)] {
            assert!(!listener_advice(errno).contains("kernel 5.5"), "{errno:?}");
        }
    }
}
