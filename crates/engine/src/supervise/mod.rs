//! Supervises a container's program: streams, signals, log, restarts, clean-up.
//!
//! Three shapes, chosen by what is asked for ([`Options::needs_relay`]):
//!
//! 1. **Inherit** ([`foreground`] without terminal): the calling process forks the program, which
//!    keeps the caller's standard input, process group and terminal. With a log its outputs are
//!    pipes, which the caller carries on ([`outputs`]); else nothing is copied. The caller forwards
//!    signals, reaps, restarts, cleans up.
//! 2. **Relay** ([`foreground`] with `-t`, or to which others may attach): a supervisor in a
//!    session of its own holds the pseudo-terminal or the pipes, writes the log and listens on a
//!    socket; the calling process is its first client, so that detaching needs no change of roles.
//!    A client that vanishes without detaching takes the container with it, as a closed terminal
//!    would.
//! 3. **Detached** ([`detached`]): the same supervisor without first client. It is forked
//!    twice and never executed anew, so the plan needs no text form; what it costs is said at
//!    [`fork_supervisor`].
//!
//! ```text
//!  caller's terminal ── client ──socket── supervisor ──pty or pipes── program
//!                                  │  └── log.json (json lines, rotated)
//!                `attach`, `stop` ─┘
//! ```
//!
//! An engine takes part through [`Spawn`] only: it is asked for a process with given standard
//! descriptors, and asked again on `--restart`. `exec` sessions use the same calls with
//! [`Record::Nothing`].
//!
//! One thread everywhere: `poll` over a signal descriptor, the program's output, and clients.
//! There are no locks, hence no lock order; files are replaced, never changed in place.
//!
//! What this does not do: choose engines, read the environment, print. Messages for the user go
//! through the caller's `notice`.

mod client;
mod control;
mod error;
mod foreground;
mod fork_supervisor;
mod keys;
mod ledger;
pub mod log;
mod outputs;
mod planned;
mod program;
mod protocol;
mod restart;
mod serve;
mod socket;
pub mod state;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Pid;
pub use sys::terminal::Size;

use crate::spec::{ContainerConfig, LogSpec, RestartPolicy};

pub use crate::exit::Outcome;
pub use crate::signal::{Signal, UnknownSignal};
pub use client::{AttachOptions, Console, attach};
pub use control::{Process, StopOptions, Waited, kill, pause, stop, top, unpause, wait};
pub use error::{Error, Failure, named};
pub use foreground::foreground;
pub use fork_supervisor::{Started, detached};
pub use keys::{DetachKeys, UnknownKey};
pub use ledger::record_start;
pub use planned::Planned;

/// An engine, seen from here: something that can start the program, once or again.
pub trait Spawn {
    /// Starts the program and returns when it runs (its `exec` succeeded) or could not be
    /// started.
    ///
    /// The engine makes these the child's descriptors 0, 1, 2, resets its signal mask and
    /// dispositions as far as it changed them, and obeys `request`.
    fn spawn(&mut self, request: Request) -> Result<Spawned, Failure>;
}

impl<F: FnMut(Request) -> Result<Spawned, Failure>> Spawn for F {
    fn spawn(&mut self, request: Request) -> Result<Spawned, Failure> {
        self(request)
    }
}

/// How the program is to be connected.
#[derive(Debug)]
pub struct Request {
    /// Its standard descriptors.
    pub stdio: Stdio,
    /// `PR_SET_PDEATHSIG` to SIGKILL, set after the last change of ids (which clears it), so that
    /// the program does not outlive a supervisor that is killed.
    pub die_with_parent: bool,
    /// This is the only program: the start may use the caller's memory, and leave some of it
    /// allocated.
    pub only: bool,
}

/// The program's standard descriptors.
#[derive(Debug)]
pub enum Stdio {
    /// The caller's own 0, 1, 2, process group and session.
    Inherit,
    /// The same, but for these outputs.
    Outputs {
        /// For descriptor 1.
        stdout: OwnedFd,
        /// For descriptor 2.
        stderr: OwnedFd,
    },
    /// These three, in a new session.
    Pipes {
        /// For descriptor 0.
        stdin: OwnedFd,
        /// For descriptor 1.
        stdout: OwnedFd,
        /// For descriptor 2.
        stderr: OwnedFd,
    },
    /// This terminal for all three, as controlling terminal of a new session
    /// ([`sys::terminal::acquire_controlling`]). The engine gives it to the program's user
    /// (`fchown`) where that is not the caller.
    ///
    /// An engine that opens a pseudo-terminal of the container's own `/dev/pts` returns its
    /// master in [`Spawned::master`] and ignores `slave`.
    Terminal {
        /// The slave side.
        slave: OwnedFd,
        /// The window size to start with.
        size: Size,
    },
}

/// A program that runs.
#[derive(Debug)]
pub struct Spawned {
    /// Its first process (with a private pid namespace: that namespace's process 1), a child
    /// of the process that called [`Spawn::spawn`].
    pub pid: Pid,
    /// A descriptor of that process where the kernel has them (5.3).
    pub pidfd: Option<OwnedFd>,
    /// The master of a terminal that the engine opened itself.
    pub master: Option<OwnedFd>,
    /// The container's own control group (a directory under `/sys/fs/cgroup`), if it has one.
    pub cgroup: Option<PathBuf>,
}

impl Spawned {
    /// Just a process.
    pub fn new(pid: Pid) -> Self {
        Self { pid, pidfd: None, master: None, cgroup: None }
    }
}

/// Where it is written down that this program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Record {
    /// The container's `state.json`, log and attach socket; a `run/<pid>` record instead where
    /// the container runs already.
    #[default]
    Container,
    /// Nowhere: `exec` sessions.
    Nothing,
}

/// How a program is supervised.
#[derive(Clone, Debug)]
pub struct Options {
    /// Shown in the supervisor's argument line: the container's name or id.
    pub title: String,
    /// What is recorded.
    pub record: Record,
    /// Give it a pseudo-terminal.
    pub tty: bool,
    /// Keep its standard input open (`-i`); else it is empty.
    pub stdin_open: bool,
    /// Keep a log with this rotation.
    pub log: Option<LogSpec>,
    /// Others may attach: a supervisor of its own holds the outputs if there is a log.
    pub attachable: bool,
    /// Start it again.
    pub restart: RestartPolicy,
    /// What `stop` sends first.
    pub stop_signal: Signal,
    /// How long `stop` waits before SIGKILL.
    pub stop_timeout: Duration,
    /// Name of the engine, for `state.json`.
    pub engine: String,
    /// Window size to start with where no client has a terminal.
    pub size: Option<Size>,
}

impl Options {
    /// What a container's configuration asks for.
    ///
    /// # Errors
    /// A stop signal that is none.
    pub fn of(config: &ContainerConfig) -> Result<Self, UnknownSignal> {
        let stop_signal = match config.stop_signal.as_str() {
            "" => Signal::TERM,
            name => name.parse()?,
        };
        Ok(Self {
            title: config.id.chars().take(12).collect(),
            record: Record::Container,
            tty: config.tty,
            stdin_open: config.stdin_open,
            log: (!config.log.disabled).then(|| config.log.clone()),
            attachable: true,
            restart: config.restart,
            stop_signal,
            stop_timeout: Duration::from_secs(u64::from(config.stop_timeout.unwrap_or(10))),
            engine: String::new(),
            size: None,
        })
    }

    /// What an `exec` session asks for.
    pub fn exec(title: &str, tty: bool, stdin_open: bool) -> Self {
        Self {
            title: title.to_owned(),
            record: Record::Nothing,
            tty,
            stdin_open,
            log: None,
            attachable: false,
            restart: RestartPolicy::No,
            stop_signal: Signal::TERM,
            stop_timeout: Duration::from_secs(10),
            engine: String::new(),
            size: None,
        }
    }

    /// Whether a supervisor of its own must hold the program's descriptors.
    pub fn needs_relay(&self) -> bool {
        self.tty || self.attachable && self.log.is_some()
    }
}

/// Called once when the program has ended for good (`--rm`); a text it returns is shown to the
/// user as a notice. Runs in the supervisor.
pub type Cleanup<'a> = Box<dyn FnOnce(&Outcome) -> Option<String> + 'a>;

/// What became of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has begun.
    Started,
    /// It has ended, for good or before it is started again.
    Ended(Outcome),
}

/// What a supervisor tells of its program.
#[derive(Clone, Debug)]
pub struct Told {
    /// When it was: see [`now`].
    pub time: String,
    /// What happened.
    pub change: Change,
    /// The container ran already when this program began.
    pub further: bool,
}

/// Is told of changes when the container's state shows them; of a short program's, both at once.
/// Runs in the supervisor.
pub type Observer<'a> = Box<dyn FnMut(&[Told]) + 'a>;

/// Everything a run needs.
pub struct Launch<'a> {
    /// The container's directory. For `exec` too (unused there).
    pub dir: PathBuf,
    /// How it is supervised.
    pub options: Options,
    /// The engine, bound to its plan.
    pub spawn: Box<dyn Spawn + 'a>,
    /// Who is told of changes.
    pub observer: Option<Observer<'a>>,
    /// What to do afterwards.
    pub cleanup: Option<Cleanup<'a>>,
}

/// How a session in the foreground ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The program ended.
    Exited(Outcome),
    /// The user typed the detach keys; the program runs on.
    Detached,
}

/// The time now, RFC 3339 in UTC with nanoseconds, as the state file and the log have it.
pub fn now() -> String {
    jiff::Timestamp::now().to_string()
}
