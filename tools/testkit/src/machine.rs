//! Simulates another machine that shares this one's files: a process tree with its own host name,
//! boot id, machine id and process ids.
//!
//! `unshare` makes the namespaces; files are bound over `/proc/sys/kernel/random/boot_id` and over
//! `/etc/machine-id` there. Locks work between both, as on a network file system that supports
//! them. Ending its first process ends everything on it at once, as a power failure does. Needs
//! root.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::command::until;
use crate::scratch::Scratch;
use crate::skip::{Skip, need_program};

/// The same command in the namespaces of these kinds of a process, as `unshare` is that has made
/// them, and in the process ids of its children.
pub(crate) fn inside(first: u32, kinds: &[&str], command: &Command) -> Command {
    let mut there = Command::new("nsenter");
    there.arg(format!("--target={first}"));
    there.args(kinds.iter().map(|kind| format!("--{kind}")));
    let mut words: Vec<&OsStr> =
        [command.get_program()].into_iter().chain(command.get_args()).collect();
    // What the command would enter itself (`users`) is entered here: the file of that namespace is
    // not in the machine's `/proc`. `nsenter` opens all files first, and enters the user namespace
    // last.
    let end = words.iter().position(|word| *word == "--");
    if let Some(end) = end.filter(|_| Path::new(words[0]).ends_with("nsenter")) {
        there.args(words.drain(..=end).skip(1).take(end - 1));
    }
    there
        .arg(format!("--pid=/proc/{first}/ns/pid_for_children"))
        .arg("--")
        .args(words)
        .env_clear()
        .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .current_dir("/");
    there
}

/// Names and ids of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// Host name.
    pub name: &'a str,
    /// Boot id; `None` for this machine's.
    pub boot: Option<&'a str>,
    /// Content of its `/etc/machine-id`; `None` for this machine's.
    pub id: Option<&'a str>,
}

/// A machine that runs until it is dropped.
#[derive(Debug)]
pub struct Machine {
    /// `unshare`; its child is the first process there and dies with it.
    first: Child,
    /// Inode number of the pid namespace.
    namespace: u64,
    _files: Scratch,
}

/// The first process leaves it to the kernel to wait for the children that end as its own:
/// `trap '' CHLD` would not do, for dash catches that signal itself.
const SCRIPT: &str = r#"
set -e
hostname "$1"
test -z "$2" || mount --bind "$2" /proc/sys/kernel/random/boot_id
test -z "$3" || mount --bind "$3" /etc/machine-id
echo ready
exec env --ignore-signal=CHLD sleep infinity
"#;

impl Machine {
    /// Starts a machine.
    ///
    /// # Errors
    /// If that is not possible here.
    pub fn start(identity: Identity<'_>) -> Result<Self, Skip> {
        if !rustix::process::getuid().is_root() {
            return Err(Skip("another machine is made by root only".into()));
        }
        let unshare = need_program("unshare")?;
        need_program("nsenter")?;
        need_program("hostname")?;
        let failed = |error: std::io::Error| Skip(format!("cannot make another machine: {error}"));
        let files = Scratch::new("machine").map_err(failed)?;
        let file = |name: &str, text: Option<&str>| -> Result<OsString, Skip> {
            let Some(text) = text else { return Ok(OsString::new()) };
            let path = files.path().join(name);
            fs::write(&path, format!("{text}\n")).map_err(failed)?;
            Ok(path.into())
        };
        let boot = file("boot_id", identity.boot)?;
        let has_id = Path::new("/etc/machine-id").exists();
        let id = file("machine-id", identity.id.filter(|_| has_id))?;
        let mut first = Command::new(unshare)
            .args(["--uts", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"])
            .args(["sh", "-c", SCRIPT, "machine", identity.name])
            .args([boot, id])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut said = [0; 5];
        let ready = first.stdout.as_mut().is_some_and(|out| out.read_exact(&mut said).is_ok());
        if !ready {
            let mut why = String::new();
            let _ = first.stderr.as_mut().map(|error| error.read_to_string(&mut why));
            let _ = first.wait();
            return Err(Skip(format!("cannot make another machine: {}", why.trim())));
        }
        let namespace = fs::metadata(format!("/proc/{}/ns/pid_for_children", first.id()));
        let namespace = namespace.map_err(failed)?.ino();
        Ok(Self { first, namespace, _files: files })
    }

    /// The same command on that machine.
    #[must_use]
    pub fn command(&self, command: &Command) -> Command {
        inside(self.first.id(), &["mount", "uts"], command)
    }

    /// Changes its host name.
    ///
    /// # Panics
    /// If that is not possible.
    pub fn rename(&self, name: &str) {
        let mut command = Command::new("hostname");
        command.arg(name);
        assert!(self.command(&command).status().is_ok_and(|status| status.success()));
    }

    /// Ends everything on it at once.
    pub fn fail(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.first.kill();
        let _ = self.first.wait();
        until(Duration::from_secs(20), || (!self.is_alive()).then_some(()));
    }

    /// Returns true if any process is left.
    fn is_alive(&self) -> bool {
        let Ok(all) = fs::read_dir("/proc") else { return false };
        all.flatten().any(|process| {
            let pid = fs::metadata(process.path().join("ns/pid"));
            pid.is_ok_and(|namespace| namespace.ino() == self.namespace)
        })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}
