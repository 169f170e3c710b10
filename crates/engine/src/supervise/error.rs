//! What can go wrong while a container is supervised.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::hint_of;
use crate::exit::FAILED;
use crate::processes;
use crate::spec::{Elsewhere, ProcessId};

/// Why a program could not be started: what an engine answers to [`super::Spawn::spawn`], and
/// what crosses the pipe from a detached supervisor to the command that started it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Docker's code: 125 the engine failed, 126 not executable, 127 not found.
    pub exit_code: u8,
    /// The fact, with path and errno.
    pub message: String,
    /// What may be done about it.
    pub hint: Option<String>,
}

impl Failure {
    /// Of a step of supervision.
    pub(super) fn of(error: &Error) -> Self {
        Self { exit_code: error.exit_code(), message: full(error), hint: error.hint() }
    }

    /// Of an engine.
    pub(super) fn of_engine(error: &crate::error::Error) -> Self {
        Self { exit_code: error.exit_code(), message: full(error), hint: error.hint() }
    }
}

/// Which processes do not end, and in what state they are.
fn unkillable(left: &[ProcessId]) -> String {
    let noun = if left.len() == 1 { "process" } else { "processes" };
    format!("{} {noun} of the container did not end on SIGKILL: {}", left.len(), named(left))
}

/// Processes in a message: numbers, names and states.
pub fn named(all: &[ProcessId]) -> String {
    let one = |process: &ProcessId| match processes::stat(process.pid) {
        Some(stat) => format!("{} ({}, state {})", process.pid, stat.name, stat.state),
        None => process.pid.to_string(),
    };
    let list: Vec<String> = all.iter().take(NAMED).map(one).collect();
    let more = if all.len() > NAMED { ", ..." } else { "" };
    format!("{}{more}", list.join(", "))
}

/// How many processes a message names.
const NAMED: usize = 5;

/// The message with its causes, since only text crosses the pipe.
fn full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// A step of supervision that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program did not start.
    #[error(transparent)]
    Start(#[from] Failure),
    /// The supervisor ended without saying how it went.
    #[error("the supervisor ended before the program was started")]
    SupervisorVanished,
    /// The connection to the supervisor broke while the program ran.
    #[error("the supervisor of the container ended unexpectedly")]
    SupervisorDied,
    /// `fork(2)`.
    #[error("cannot fork the supervisor")]
    Fork(#[source] io::Error),
    /// A pipe, socket pair or pseudo-terminal.
    #[error("cannot make a {what}")]
    Make {
        /// What was to be made.
        what: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// Signal mask or descriptor.
    #[error("cannot take over the signals")]
    Signals(#[source] io::Error),
    /// `poll(2)` or a read that it announced.
    #[error("cannot {step}")]
    Wait {
        /// What was being done.
        step: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A file of the container.
    #[error("cannot {step} {}", path.display())]
    File {
        /// What was being done.
        step: &'static str,
        /// To which file.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A state file that is no JSON.
    #[error("{} is damaged", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What the parser says.
        #[source]
        source: serde_json::Error,
    },
    /// `attach` or `stop` of what is not running.
    #[error("the container is not running")]
    NotRunning,
    /// `pause` of what is paused.
    #[error("the container is paused already")]
    Paused,
    /// `unpause` of what is not paused.
    #[error("the container is not paused")]
    NotPaused,
    /// The container runs, and no supervisor listens.
    #[error("nothing listens for this container: it runs without a supervisor")]
    NoSupervisor,
    /// Connecting to the supervisor.
    #[error("cannot connect to the supervisor at {}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The peer is another user's process.
    #[error("the process at the other end of {} belongs to user {uid}", path.display())]
    ForeignPeer {
        /// The socket.
        path: PathBuf,
        /// Whose process it is.
        uid: u32,
    },
    /// The peer does not speak our protocol.
    #[error("the supervisor answered what this version does not understand: {0}")]
    Protocol(String),
    /// Sending a signal.
    #[error("cannot send {signal} to process {pid}")]
    Kill {
        /// Which signal.
        signal: super::Signal,
        /// To which process.
        pid: i32,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// Processes that survived SIGKILL for the time given.
    #[error("{}", unkillable(.0))]
    Unkillable(Vec<ProcessId>),
    /// The container lives on another machine that shares this store.
    #[error("the container runs {0}")]
    Elsewhere(Box<Elsewhere>),
    /// A host that was declared gone holds a lock.
    #[error("{host} is not gone: it holds the lock of {}", path.display())]
    NotGone {
        /// The host.
        host: String,
        /// The file.
        path: PathBuf,
    },
    /// A host was declared gone on which the container does not live.
    #[error("the container is not recorded to run on '{given}'{}", recorded(.hosts))]
    OtherHost {
        /// As given.
        given: String,
        /// Where it is recorded to run.
        hosts: Vec<String>,
    },
    /// The container is in use already.
    #[error("the container is running already")]
    Busy,
}

/// The recorded hosts, in words.
fn recorded(hosts: &[String]) -> String {
    if hosts.is_empty() {
        return ": no other host is recorded".into();
    }
    format!(", but on {}", hosts.join(" and "))
}

impl Error {
    /// What the user may do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Start(failure) => return failure.hint.clone(),
            Self::SupervisorVanished | Self::SupervisorDied => {
                "it may have been killed, by hand or for memory; `ps -a` shows what is left".into()
            }
            Self::Fork(_) => "look at `ulimit -u` and the memory limit of the job".into(),
            Self::NoSupervisor => {
                "start it with -d, or with a log, to make attach and wait's exit code work".into()
            }
            Self::Unkillable(_) => {
                "they wait in the kernel, often for a network file system; try again later".into()
            }
            Self::Elsewhere(elsewhere) => elsewhere.hint(),
            Self::NotGone { host, path } => format!(
                "stop the container on {host}; a file server gives the locks of a dead machine back \
                 after a while (NFS 4: about 90 s), and removing {} by hand does it at once",
                path.display()
            ),
            Self::Damaged { .. } => "remove the container, or delete the file".into(),
            Self::Make { source, .. }
            | Self::Wait { source, .. }
            | Self::File { source, .. }
            | Self::Connect { source, .. }
            | Self::Signals(source) => return hint_of(source),
            _ => return None,
        })
    }

    /// The exit code of a command that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Start(failure) => failure.exit_code,
            _ => FAILED,
        }
    }

    pub(super) fn make(what: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Make { what, source: source.into() }
    }

    pub(super) fn wait(step: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Wait { step, source: source.into() }
    }

    pub(super) fn file(
        step: &'static str,
        path: impl Into<PathBuf>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::File { step, path: path.into(), source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_do_not_end_are_named() {
        let own = processes::identity(std::process::id()).unwrap_or_default();
        let text = Error::Unkillable(vec![own.clone()]).to_string();
        let begin = format!("1 process of the container did not end on SIGKILL: {} (", own.pid);
        assert!(text.starts_with(&begin) && text.contains(", state "), "{text}");
        let text = Error::Unkillable(vec![own; 7]).to_string();
        assert!(text.starts_with("7 processes of") && text.ends_with("), ..."), "{text}");
    }
}
