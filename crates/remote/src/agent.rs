//! The agent: the end of a driver's stream on a node. `coracle cluster agent` is [`serve`].
//!
//! There are two processes. The first is the *guard*; it only waits. Its child, the agent proper,
//! speaks with the driver and starts programs (`session`). It tells the guard which programs live
//! and what is to be done at the end. When the agent has served or was killed, the guard ends its
//! programs and cleans up (`ending`); as `PR_SET_CHILD_SUBREAPER` it is the parent of what a killed
//! agent leaves. The agent stays until that is done: if the guard is killed, before or meanwhile,
//! the agent does the same itself.
//!
//! **What is ended**: every program of [`crate::wire::messages::Start`], its group and its session,
//! when the program or the agent ends. A process that begins another session (the supervisor of a
//! container that was started with `-d`) is left: the command of `AtEnd` takes it down.
//!
//! The agent has one thread. Programs must be started by the thread that outlives them (see
//! [`sys::child`]), and nothing wakes an idle agent but the driver's pings. Files are written and
//! read in that thread, so a file system that hangs makes the agent silent.

mod ending;
mod facts;
mod files;
mod guard;
mod holder;
mod process;
mod session;

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Mode, OFlags};

pub use ending::Exit;
pub use facts::memory;

/// What the agent gets from its caller.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The release, for [`crate::wire::messages::Facts`].
    pub release: String,
    /// The environment. Programs inherit that of the process, which is the same.
    pub environment: Vec<(String, String)>,
    /// Where agents of one user meet on this node; `None`: the first possible of the usual places,
    /// see [`Error::NoRuntime`].
    pub runtime: Option<PathBuf>,
}

impl Options {
    fn variable(&self, name: &str) -> Option<&str> {
        let found = self.environment.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }
}

/// Why an agent cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A step of the agent's start.
    #[error("cannot {step}")]
    Start {
        /// A verb and its object.
        step: &'static str,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The stream.
    #[error("the driver's stream cannot be read")]
    Stream(#[source] crate::wire::Error),
    /// No place for what agents of a user share.
    #[error("no directory that only this user can enter is possible: {}", tried.join("; "))]
    NoRuntime {
        /// Each place, with the reason.
        tried: Vec<String>,
    },
}

impl Error {
    /// Advice for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Start { .. } => None,
            Self::Stream(error) => error.hint(),
            Self::NoRuntime { .. } => {
                Some("set XDG_RUNTIME_DIR on the node to a directory of your own".into())
            }
        }
    }

    /// Puts the step before an error of the kernel.
    fn start<E: Into<std::io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Start { step, source: source.into() }
    }
}

/// Serves the driver at the other end of standard input and output until it leaves or is lost, then
/// ends what it started and cleans up.
///
/// Forks: the process must have one thread. Both processes return, the inner one with
/// [`Exit::Inner`].
///
/// # Errors
/// See [`Error`]. The driver is told, too, if its stream can be written.
pub fn serve(options: &Options) -> Result<Exit, Error> {
    let (input, output) = streams().map_err(Error::start("take the standard streams"))?;
    sys::event::close_foreign();
    guard::guarded(|ends| session::serve(options, input, output, ends))
}

/// Standard input and output, whose places `/dev/null` takes: nothing that is printed by accident
/// can get between frames.
fn streams() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    // A batch system may give a terminal, which would change the ends of lines.
    if rustix::termios::isatty(&output)
        && let Ok(mut modes) = rustix::termios::tcgetattr(&output)
    {
        modes.make_raw();
        let _ = rustix::termios::tcsetattr(&output, rustix::termios::OptionalActions::Now, &modes);
    }
    for stream in [&input, &output] {
        rustix::io::ioctl_fionbio(stream, true)?;
    }
    Ok((input, output))
}

/// The directory where agents of this user meet, made if it is missing.
fn runtime(options: &Options) -> Result<PathBuf, Error> {
    let uid = rustix::process::geteuid().as_raw();
    if let Some(given) = &options.runtime {
        let made = private_directory(given);
        return made.map(|()| given.clone()).map_err(|why| Error::NoRuntime {
            tried: vec![format!("{}: {why}", given.display())],
        });
    }
    // Not every way to a node sets the variable: the usual place is tried without it, so that all
    // agents of the user meet in one directory.
    let usual = format!("/run/user/{uid}");
    let home = options.variable("HOME").map(|home| format!("{home}/.cache"));
    let variables = ["SLURM_TMPDIR", "TMPDIR"].map(|name| options.variable(name));
    let fixed = [options.variable("XDG_RUNTIME_DIR"), Some(&usual)].into_iter().flatten();
    let places = fixed.chain(variables.into_iter().flatten()).chain(["/tmp", "/dev/shm"]);
    let mut tried = Vec::new();
    for place in places.chain(home.as_deref()) {
        let path = Path::new(place).join(format!("coracle-{uid}"));
        match private_directory(&path) {
            Ok(()) => return Ok(path),
            Err(why) => tried.push(format!("{}: {why}", path.display())),
        }
    }
    Err(Error::NoRuntime { tried })
}

/// Makes a directory that only this user can enter, or checks that one is such.
///
/// # Errors
/// Why it cannot be used.
pub(crate) fn private_directory(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error.to_string()),
    }
    let found = std::fs::symlink_metadata(path).map_err(|error| error.to_string())?;
    if !found.is_dir() {
        return Err("it is not a directory".into());
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(format!("it belongs to the user {}", found.uid()));
    }
    if found.mode() & 0o077 != 0 {
        return Err(format!("others may enter it (mode {:o})", found.mode() & 0o7777));
    }
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
        .map_err(|error| error.to_string())
}

/// A command of these words, [`crate::wire::messages::OWN`] replaced; `None` without a word.
fn command(words: &[String]) -> Option<Command> {
    let (program, arguments) = words.split_first()?;
    // The child resolves this name before it becomes another program, so the file may have been
    // replaced since.
    let own = program == crate::wire::messages::OWN;
    let mut command = Command::new(if own { "/proc/self/exe" } else { program });
    if own {
        command.arg0("coracle");
    }
    command.args(arguments);
    Some(command)
}
