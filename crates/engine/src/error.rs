//! What can go wrong between a request and a running program, one variant per step.
//!
//! A child that sets a container up writes its error as JSON into a pipe to the process that made
//! it. So every variant is plain data, and an operating system error is kept as its number
//! ([`Errno`]).
//!
//! [`Error::reason`] says which kind of exit code an error has; the codes are those of
//! [`crate::exit`]. [`Error::hint`] names the usual cause of an errno at the step that failed.

mod causes;

use crate::exit::Reason;
use causes::Step;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// An operating system error number that can travel through a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errno(pub i32);

impl fmt::Display for Errno {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(out)
    }
}

impl std::error::Error for Errno {}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Self {
        Self(errno.raw_os_error())
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error()))
    }
}

/// Result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The flag of a container that is in no network; also of one that was disconnected from the last.
pub(crate) const NO_NETWORK: &str = "--network=none";

/// Why a container does not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Error {
    /// A value of the request makes no sense.
    #[error("{what} '{value}': {why}")]
    Invalid {
        /// The flag or field.
        what: String,
        /// What was given.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// The engine has no way to do what a flag asks.
    #[error("{flag} is not possible with engine {engine}")]
    Unsupported {
        /// The flag as the user knows it.
        flag: String,
        /// Name of the engine.
        engine: String,
        /// Engines that can.
        able: Vec<String>,
    },
    /// `--execmode` names no mode that exists.
    #[error("there is no execution mode '{mode}'")]
    UnknownMode {
        /// As given.
        mode: String,
        /// Modes that are known.
        known: Vec<String>,
    },
    /// The mode exists but not here.
    #[error("execution mode {mode} is not usable: {why}")]
    Unusable {
        /// The mode.
        mode: String,
        /// The reason.
        why: String,
        /// Modes that are usable on this host.
        able: Vec<String>,
    },
    /// No engine works on this host.
    #[error("no engine works on this host: {0}")]
    NoEngine(String),
    /// A feature needs something that the host does not have.
    #[error("{what} needs {needs}")]
    Missing {
        /// The feature.
        what: String,
        /// What is not there.
        needs: String,
        /// How to get it.
        hint: Option<String>,
    },
    /// A user or group that the image does not know.
    #[error("{kind} '{name}' is not in the container's {file}")]
    NoSuchAccount {
        /// "user" or "group".
        kind: String,
        /// As given.
        name: String,
        /// `/etc/passwd` or `/etc/group`.
        file: String,
    },
    /// An id that no mapping covers.
    #[error("{kind} id {id} is outside the ids mapped into the container")]
    UnmappedId {
        /// "user" or "group".
        kind: String,
        /// The id inside.
        id: u32,
    },
    /// An id that no process can have.
    #[error("{kind} id {id} cannot be used: the kernel reserves that number")]
    ImpossibleId {
        /// "user" or "group".
        kind: String,
        /// The number.
        id: u32,
    },
    /// Another container that was to be joined does not run.
    #[error("container '{0}' is not running, so its namespaces cannot be joined")]
    NotRunning(String),
    /// The container lives on another machine that shares the store.
    #[error("the container runs {0}")]
    Elsewhere(crate::spec::Elsewhere),
    /// New namespaces were refused.
    #[error("cannot make new {which} namespaces: {errno}")]
    Unshare {
        /// Their names.
        which: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// An existing namespace could not be entered.
    #[error("cannot enter the {which} namespaces of process {pid}: {errno}")]
    Enter {
        /// Their names.
        which: String,
        /// The process.
        pid: u32,
        /// The kernel's answer.
        errno: Errno,
    },
    /// An id map could not be written.
    #[error("cannot write {file} ({map}): {errno}")]
    IdMap {
        /// `/proc/self/uid_map` or another.
        file: String,
        /// The lines.
        map: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// `newuidmap`, `newgidmap`, `pasta` or `slirp4netns` failed.
    #[error("{program} failed ({status}){output}")]
    Helper {
        /// Path of the program.
        program: PathBuf,
        /// Exit status in words.
        status: String,
        /// What it printed, with a leading ": ", or nothing.
        output: String,
    },
    /// The agent of the host does not serve a container's devices.
    #[error("the network agent does not take the container's devices: {why}")]
    Switch {
        /// Its reason, or the kernel's.
        why: String,
    },
    /// A mount failed.
    #[error("cannot mount {what} on {target}: {errno}", target = target.display())]
    Mount {
        /// Kind and source.
        what: String,
        /// Path in the container.
        target: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// A source of a mount cannot be used.
    #[error("cannot use {path} for {target}: {errno}", path = path.display(), target = target.display())]
    MountSource {
        /// Path on the host.
        path: PathBuf,
        /// Path in the container.
        target: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// A place to mount on could not be made in the container.
    #[error("cannot make the mount point {target}: {errno}", target = target.display())]
    MountPoint {
        /// Path in the container.
        target: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The container's root could not become `/`.
    #[error("cannot change the root to {root} ({call}): {errno}", root = root.display())]
    Root {
        /// The directory.
        root: PathBuf,
        /// The system call.
        call: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The working directory cannot be entered.
    #[error("cannot enter the working directory {path}: {errno}", path = path.display())]
    WorkingDirectory {
        /// Path in the container.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The working directory is a directory of the host.
    #[error("the working directory {path} leads out of the container", path = path.display())]
    Outside {
        /// Path in the container.
        path: PathBuf,
    },
    /// Any other single system call of the set-up.
    #[error("cannot {doing}: {errno}")]
    Call {
        /// Verb and object.
        doing: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// A file of Coracle or of the kernel could not be used.
    #[error("cannot {doing} {path}: {errno}", path = path.display())]
    File {
        /// Verb.
        doing: String,
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The program is there and cannot be run.
    #[error("cannot execute {program}: {errno}")]
    NotExecutable {
        /// As given.
        program: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The program lies where the kernel maps no file as a program's text.
    #[error(
        "cannot execute {program}: {directory} lies on a file system that is mounted noexec",
        directory = directory.display()
    )]
    NoExec {
        /// As given.
        program: String,
        /// The container's tree, or its directory with Coracle's own programs.
        directory: PathBuf,
    },
    /// One container runs in another, and so on, deeper than there are places for.
    #[error("containers are nested deeper than engines inside the process can be: {most}")]
    Nested {
        /// How deep they can be.
        most: u32,
    },
    /// The program is for 32 bits, and the engine runs programs of 64 only.
    #[error("{program} is a 32-bit program, which engine {engine} cannot run")]
    Narrow {
        /// As given.
        program: String,
        /// Its mode.
        engine: String,
    },
    /// The program is not there.
    #[error("{program}: not found in the container{searched}")]
    NotFound {
        /// As given.
        program: String,
        /// " (PATH=...)" or nothing.
        searched: String,
    },
    /// The program cannot be traced.
    #[error("the program may not be traced: {errno}")]
    Traced {
        /// The kernel's answer.
        errno: Errno,
    },
    /// The process that set the container up ended without a report.
    #[error("the process that set the container up ended early ({0})")]
    Vanished(String),
}

impl Error {
    /// A system call of the set-up that failed: `doing` is a verb with its object.
    pub(crate) fn call(doing: impl Into<String>, errno: impl Into<Errno>) -> Self {
        Self::Call { doing: doing.into(), errno: errno.into() }
    }

    /// Names the mount as the reason where a program cannot be executed, if one of these
    /// directories lies on a file system without programs.
    pub(crate) fn or_noexec(self, noexec: Option<&Path>) -> Self {
        match (self, noexec) {
            (Self::NotExecutable { program, errno }, Some(directory))
                if errno.0 == rustix::io::Errno::ACCESS.raw_os_error() =>
            {
                Self::NoExec { program, directory: directory.into() }
            }
            (error, _) => error,
        }
    }

    /// Why the program does not run, as far as an exit code tells.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::NotExecutable { .. } | Self::NoExec { .. } | Self::Narrow { .. } => {
                Reason::NotExecutable
            }
            Self::NotFound { .. } => Reason::NotFound,
            _ => Reason::Failed,
        }
    }

    /// The exit code for this failure.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        self.reason().code()
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unsupported { flag, able, .. } if flag == "--publish" => {
                let mut ways = vec![
                    "use --network=host, where the program listens at the host's own ports".into(),
                ];
                ways.extend(able.iter().map(|mode| format!("or --execmode={mode}")));
                Some(ways.join(", "))
            }
            Self::Unsupported { flag, able, .. } if flag == NO_NETWORK => {
                let mut ways: Vec<String> =
                    able.iter().map(|mode| format!("use --execmode={mode}")).collect();
                ways.push(
                    "put it into one (coracle network connect NETWORK CONTAINER)".to_owned(),
                );
                let ways = ways.join(", or ");
                Some(format!("the container is in no network, which this mode cannot do: {ways}"))
            }
            Self::Invalid { what, .. } if what == "--hostname" => Some(
                "give a name as db-1 or db.example.org, of at most 64 characters".into(),
            ),
            Self::Unsupported { able, .. } | Self::Unusable { able, .. } => Some(if able.is_empty() {
                "no engine of this build can do it on this host; `coracle doctor` says why".into()
            } else {
                format!("use --execmode={}", able.join(" or --execmode="))
            }),
            Self::UnknownMode { known, .. } => Some(format!("known modes: {}", known.join(", "))),
            Self::Traced { .. } => Some(
                "it is traced already (by strace, a debugger, another Coracle), or a policy forbids tracing; \
                 `coracle doctor` says which"
                    .into(),
            ),
            Self::Outside { .. } => Some(
                "the image's WORKDIR or --workdir leads through /proc to a directory of the host: give another one by --workdir"
                    .into(),
            ),
            Self::NoEngine(_) => Some("`coracle doctor` explains what this host allows".into()),
            Self::Missing { hint, .. } => hint.clone(),
            Self::NoSuchAccount { .. } => Some("give numbers (UID:GID) instead of names".into()),
            Self::ImpossibleId { kind, .. } => Some(format!(
                "give a lower number by --user; the image's {} may have it",
                if kind == "user" { "USER or /etc/passwd" } else { "USER, /etc/passwd or /etc/group" }
            )),
            Self::UnmappedId { .. } => Some(
                "the container has only the ids that the host gave the caller; subordinate ids come from \
                 /etc/subuid and /etc/subgid, and a container has all ids in the modes I1 and P1 \
                 (--execmode)"
                    .into(),
            ),
            Self::Helper { output, .. } if output.contains("tun") => {
                Some("the network helpers need /dev/net/tun to be readable and writable".into())
            }
            Self::Switch { .. } => Some(
                "one of another version may run (coracle-names): it ends when all containers in \
                 networks with names have ended"
                    .into(),
            ),
            Self::Elsewhere(elsewhere) => Some(elsewhere.hint()),
            Self::Unshare { errno, .. } => unshare_hint(*errno),
            Self::IdMap { errno, .. } if errno.0 == rustix::io::Errno::PERM.raw_os_error() => {
                unshare_hint(*errno)
            }
            Self::Narrow { .. } => Some("use --execmode=P1, which traces its programs".into()),
            Self::NotExecutable { errno, .. }
                if errno.0 == rustix::io::Errno::TOOBIG.raw_os_error() =>
            {
                Some(
                    "arguments and environment together are larger than the kernel takes: a quarter \
                     of the stack's limit (ulimit -s), and at most 6 MiB"
                        .into(),
                )
            }
            Self::NotExecutable { errno, .. }
                if errno.0 == rustix::io::Errno::NOEXEC.raw_os_error() =>
            {
                Some("the file is neither a program for this machine nor a script with '#!'".into())
            }
            Self::NotExecutable { errno, .. } if errno.0 == rustix::io::Errno::NOENT.raw_os_error() => {
                Some("the file is there, so its loader or interpreter is missing".into())
            }
            Self::NotExecutable { errno, .. }
                if errno.0 == rustix::io::Errno::ACCESS.raw_os_error() =>
            {
                Some("its mode forbids it, or that of a directory above it".into())
            }
            Self::NoExec { .. } => Some(
                "set CORACLE_DIR to a directory elsewhere; or use --execmode=N1, whose overlay is a \
                 mount of its own: `coracle doctor` tells whether it works here"
                    .into(),
            ),
            Self::Vanished(_) => Some(
                "it was killed, perhaps for want of memory (`dmesg` or the control group tells), or \
                 this is a defect of Coracle"
                    .into(),
            ),
            _ => self.step().and_then(|(step, errno)| causes::hint(step, errno)),
        }
    }

    /// The step that failed, and the kernel's answer, for the usual causes.
    fn step(&self) -> Option<(Step, Errno)> {
        let (step, errno) = match self {
            Self::Mount { what, errno, .. } if what.starts_with("overlay") => {
                (Step::Overlay, errno)
            }
            Self::Mount { errno, .. } => (Step::Mount, errno),
            Self::MountSource { errno, .. } => (Step::MountSource, errno),
            Self::MountPoint { errno, .. } => (Step::MountPoint, errno),
            Self::Root { errno, .. } => (Step::Root, errno),
            Self::Enter { errno, .. } => (Step::Enter, errno),
            Self::File { path, errno, .. } if path.starts_with("/sys/fs/cgroup") => {
                (Step::Cgroup, errno)
            }
            Self::File { errno, .. } | Self::WorkingDirectory { errno, .. } => (Step::File, errno),
            Self::Call { doing, errno } if doing.starts_with("fork") => (Step::Fork, errno),
            Self::Call { doing, errno } if doing.contains("filter") => (Step::Filter, errno),
            Self::Call { errno, .. } | Self::IdMap { errno, .. } => (Step::Call, errno),
            _ => return None,
        };
        Some((step, *errno))
    }
}

/// What usually causes an operating system error that belongs to no step of its own.
pub(crate) fn hint_of(error: &std::io::Error) -> Option<String> {
    causes::hint(Step::Call, Errno(error.raw_os_error()?))
}

/// The usual reasons for which user namespaces are refused.
fn unshare_hint(errno: Errno) -> Option<String> {
    use rustix::io::Errno as E;
    let errno = E::from_raw_os_error(errno.0);
    if errno == E::PERM || errno == E::ACCESS {
        Some(
            "user namespaces are forbidden here (AppArmor, a sysctl, or an enclosing container); \
             `coracle doctor` says which"
                .into(),
        )
    } else if errno == E::NOSPC || errno == E::USERS {
        Some("the limit in /proc/sys/user/max_user_namespaces is reached".into())
    } else {
        None
    }
}
