//! How an agent is started on a node: by the driver itself, by `ssh`, or by `srun` inside an
//! allocation.
//!
//! The system's `ssh` is used with the user's configuration: names, `ProxyJump`, keys, agents and
//! Kerberos are its matter. It never asks (`BatchMode`), and host keys are checked as configured.
//! Channels to one host share a connection if there is a directory for its control socket
//! ([`control_directory`]).
//!
//! The remote command is one line for any login shell: `sh -c '...'`, which reads a script from the
//! stream and evaluates it. The script looks for the binary by its digest,
//! asks for it if it is not there, and becomes the agent. The driver sends nothing that it was not
//! asked for, so a program that reads ahead takes nothing from the next one. Nothing secret is in
//! arguments or variables.

mod words;

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;

pub use words::{Cause, explain};

use crate::wire::preamble::SCRIPT;

/// Longest path of a directory for control sockets: the kernel's limit of 108 bytes, less the name
/// (40), what `ssh` appends while it makes the socket (17), and the separators.
const SHORT: usize = 48;

/// An idle shared connection ends after so many seconds.
const PERSIST: u32 = 10;

/// The executable that travels to nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// Where it is here.
    pub path: PathBuf,
    /// SHA-256, in hexadecimal digits.
    pub digest: String,
    /// Bytes.
    pub size: u64,
}

impl Binary {
    /// Reads an executable.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let digest = crate::digest::digest(&mut file)?;
        Ok(Self { path: path.to_owned(), digest, size: file.metadata()?.len() })
    }
}

/// The way to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// The agent is a child of the driver.
    Local,
    /// `ssh`.
    Ssh {
        /// The host as the user's configuration knows it: `HOST` or `USER@HOST`.
        host: String,
        /// More words for `ssh`, before the host: `-p`, `2222`.
        options: Vec<String>,
        /// A directory for control sockets, see [`control_directory`]; `None`: each channel has a
        /// connection of its own.
        control: Option<PathBuf>,
    },
    /// `srun`, inside an allocation: a step of one task.
    Srun {
        /// The node's name in the batch system.
        node: String,
        /// More words for `srun`.
        options: Vec<String>,
    },
}

/// How the agent of one node is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// The way.
    pub way: Way,
    /// What travels.
    pub binary: Arc<Binary>,
    /// Where the binary may already be on the node.
    pub given: Option<PathBuf>,
    /// Directories of the node to put it into, tried in this order; none: `$XDG_RUNTIME_DIR`,
    /// `$SLURM_TMPDIR`, `$TMPDIR`, `/tmp`, `/dev/shm`, `$HOME/.cache`.
    pub places: Vec<PathBuf>,
}

impl Launcher {
    /// One that uses the usual places.
    pub fn new(way: Way, binary: Arc<Binary>) -> Self {
        Self { way, binary, given: None, places: Vec::new() }
    }

    /// The program's name, for messages.
    pub fn program(&self) -> &'static str {
        match self.way {
            Way::Local => "agent",
            Way::Ssh { .. } => "ssh",
            Way::Srun { .. } => "srun",
        }
    }

    /// The command that starts the agent, without its streams. `limit` is the time that `ssh` may
    /// take to connect.
    pub fn command(&self, limit: Duration) -> Command {
        match &self.way {
            Way::Local => {
                let mut command = Command::new(&self.binary.path);
                command.args(["cluster", "agent"]);
                command
            }
            Way::Ssh { host, options, control } => {
                let mut command = Command::new("ssh");
                let seconds = limit.as_secs().clamp(1, 15);
                // The first value of an option counts: these come before the user's, the others
                // behind them.
                command.args(["-T", "-o", "BatchMode=yes", "-o", "ClearAllForwardings=yes"]);
                shared_connection(&mut command, control.as_deref());
                command.args(options);
                command.arg("-o").arg(format!("ConnectTimeout={seconds}"));
                // A shared connection that is dead is noticed, and does not keep new ones waiting.
                command.args(["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=2"]);
                command.arg("--").arg(host).arg(self.remote());
                command
            }
            Way::Srun { node, options } => {
                let mut command = Command::new("srun");
                // Without `--unbuffered` the daemon passes output on by lines.
                command.args(["--overlap", "--nodes=1", "--ntasks=1", "--unbuffered"]);
                command.args(["--input=0", "--mpi=none", "--quiet"]);
                command.arg(format!("--nodelist={node}"));
                command.args(options).args(["sh", "-c", &self.bootstrap()]);
                command
            }
        }
    }

    /// A command that runs these words on the node with the caller's terminal.
    pub fn terminal(&self, words: &[String]) -> Command {
        match &self.way {
            Way::Local => {
                let mut command = Command::new("/usr/bin/env");
                command.args(words);
                command
            }
            Way::Ssh { host, options, control } => {
                let mut command = Command::new("ssh");
                command.args(["-t", "-q", "-o", "BatchMode=yes", "-o", "ClearAllForwardings=yes"]);
                shared_connection(&mut command, control.as_deref());
                command.args(options).arg("--").arg(host);
                command.arg(format!("exec {}", crate::shell::join(words)));
                command
            }
            Way::Srun { node, options } => {
                let mut command = Command::new("srun");
                command.args(["--overlap", "--nodes=1", "--ntasks=1", "--pty", "--mpi=none"]);
                command.arg(format!("--nodelist={node}")).args(options).args(words);
                command
            }
        }
    }

    /// What makes an idle shared connection end when its last channel has ended.
    pub fn farewell(&self) -> Option<Command> {
        let Way::Ssh { host, options, control: Some(directory) } = &self.way else { return None };
        let mut command = Command::new("ssh");
        command.args(["-O", "stop"]);
        shared_connection(&mut command, Some(directory));
        command.args(options).arg("--").arg(host);
        Some(command)
    }

    /// What the launcher gets when the driver dies; nothing where the end of its streams tells the
    /// agent, which has a time of its own to end. Signals say more to `srun`: with SIGTERM it has
    /// Slurm kill the agent, which then cleans up nothing.
    pub(crate) fn at_death(&self) -> Option<Signal> {
        matches!(self.way, Way::Ssh { .. }).then_some(Signal::TERM)
    }

    /// True if a script on the node looks for the binary.
    pub(crate) fn carries(&self) -> bool {
        self.way != Way::Local
    }

    /// Evaluates the script that comes first in the stream. It has no quote, line end, backslash or
    /// exclamation mark, which login shells take in different ways even between quotes.
    fn bootstrap(&self) -> String {
        let length = self.script_text("").len();
        format!("echo \"{SCRIPT}ready\"; eval \"$(head -c {length})\"")
    }

    /// The one word for the login shell.
    fn remote(&self) -> String {
        format!("exec sh -c '{}'", self.bootstrap())
    }

    /// The script for the node.
    ///
    /// # Errors
    /// Without random numbers.
    pub(crate) fn script(&self) -> io::Result<String> {
        Ok(self.script_text(&sys::random::suffix()?))
    }

    /// `token` makes the temporary file's name unlike any other, also on shared file systems. All
    /// tokens make the script equally long.
    fn script_text(&self, token: &str) -> String {
        let Binary { digest, size, .. } = &*self.binary;
        let mut text = format!("digest={digest}\nsize={size}\ntoken={token:0>16}\n");
        text += "agent='cluster agent'\n";
        let given = self.given.as_deref().map(quoted).unwrap_or_default();
        let _ = writeln!(text, "given={given}");
        if self.places.is_empty() {
            text += "set -- \"${XDG_RUNTIME_DIR:-/run/user/$(id -u)}\" \"$SLURM_TMPDIR\" \
                     \"$TMPDIR\" /tmp /dev/shm ${HOME:+\"$HOME/.cache\"}\n";
        } else {
            text += "set --";
            for place in &self.places {
                let _ = write!(text, " {}", quoted(place));
            }
            text.push('\n');
        }
        text += include_str!("launcher/node.sh");
        text
    }
}

/// Options by which several channels share one connection.
fn shared_connection(command: &mut Command, directory: Option<&Path>) {
    let Some(directory) = directory else { return };
    // `%C` is a digest of host, port and users. A percent sign in the directory's name would be
    // replaced as well.
    let path = directory.display().to_string().replace('%', "%%");
    command.args(["-o", "ControlMaster=auto", "-o"]).arg(format!("ControlPersist={PERSIST}"));
    command.arg("-o").arg(format!("ControlPath={path}/%C"));
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// A directory for control sockets that only this user can enter, below the first place where that
/// is possible and short enough.
pub fn control_directory(places: &[PathBuf]) -> Option<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    places.iter().find_map(|place| {
        let directory = place.join(format!("coracle-{uid}"));
        let usable = directory.as_os_str().len() <= SHORT
            && crate::agent::private_directory(&directory).is_ok();
        usable.then_some(directory)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launcher(way: Way) -> Launcher {
        let binary = Binary { path: "/bin/coracle".into(), digest: "ab".repeat(32), size: 11 };
        Launcher::new(way, Arc::new(binary))
    }

    fn words(command: &Command) -> String {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_users_options_come_after_and_the_host_behind_them() {
        let way = Way::Ssh {
            host: "me@node1".into(),
            options: vec!["-p".into(), "2222".into()],
            control: Some("/run/user/7/coracle-7".into()),
        };
        let ssh = launcher(way);
        let text = words(&ssh.command(Duration::from_secs(20)));
        assert!(text.contains("-T -o BatchMode=yes"), "{text}");
        assert!(text.contains(
            "ControlPath=/run/user/7/coracle-7/%C -p 2222 -o ConnectTimeout=15 -o ServerAliveInterval=5 \
             -o ServerAliveCountMax=2 -- me@node1 exec sh -c '"
        ));
        assert!(!text.contains("StrictHostKeyChecking"));
        let remote = ssh.remote();
        assert_eq!(remote.matches('\'').count(), 2);
        assert!(!remote.contains(['\n', '\\', '!']), "{remote}");
        assert!(words(&ssh.farewell().unwrap()).starts_with("ssh -O stop -o ControlMaster"));
        let srun = launcher(Way::Srun { node: "n7".into(), options: vec!["--exact".into()] });
        let text = words(&srun.command(Duration::ZERO));
        assert!(text.contains("--nodelist=n7 --exact sh -c echo"), "{text}");
    }

    #[test]
    fn the_script_is_as_long_as_announced() {
        let mut launcher = launcher(Way::Srun { node: "n".into(), options: Vec::new() });
        launcher.places = vec!["/a b".into(), "/c'd".into()];
        let script = launcher.script().unwrap();
        assert!(launcher.bootstrap().contains(&format!("head -c {})", script.len())));
        assert!(script.contains("set -- '/a b' '/c'\\''d'\n"), "{script}");
        for shell in ["dash", "busybox sh", "bash"] {
            let (program, rest) = shell.split_once(' ').unwrap_or((shell, ""));
            let mut command = Command::new(program);
            command.args(rest.split_whitespace()).args(["-n", "-c", &script]);
            // A shell that is not installed is tested elsewhere.
            if let Ok(done) = command.output() {
                assert!(
                    done.status.success(),
                    "{shell}: {}",
                    String::from_utf8_lossy(&done.stderr)
                );
            }
        }
    }

    #[test]
    fn a_control_directory_is_private_and_short() {
        let dir = tempfile::Builder::new().prefix("c").tempdir_in("/tmp").unwrap();
        let long = dir.path().join("x".repeat(60));
        std::fs::create_dir(&long).unwrap();
        let found = control_directory(&[long.clone(), "/no-such".into(), dir.path().into()]);
        assert!(found.unwrap().starts_with(dir.path()));
        assert_eq!(control_directory(&[long]), None);
    }
}
