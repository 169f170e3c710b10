//! Helpers: start the driver, wait for a state without timing it, and type on a terminal.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::terminal::{Pty, Size};

/// Long enough for a loaded machine; only failures wait that long.
const PATIENCE: Duration = Duration::from_mins(1);

/// The example program, built beside this test.
pub(crate) fn driver() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().unwrap().parent().unwrap().join("examples/supervise");
    assert!(path.exists(), "{} is missing: cargo test builds it", path.display());
    path
}

/// A container's directory, and the driver called with it.
pub(crate) struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The driver with flags before and arguments after the directory.
    pub(crate) fn command(&self, verb: &str, flags: &[&str], words: &[&str]) -> Command {
        let mut command = Command::new(driver());
        command.arg(verb).args(flags).arg(self.path()).args(words);
        command
    }

    pub(crate) fn output(&self, verb: &str, flags: &[&str], words: &[&str]) -> Output {
        self.command(verb, flags, words).stdin(Stdio::null()).output().unwrap()
    }

    /// Standard output of a driver that succeeded.
    pub(crate) fn text(&self, verb: &str, flags: &[&str], words: &[&str]) -> String {
        let output = self.output(verb, flags, words);
        assert!(output.status.success(), "{verb}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts detached; returns the process ids of the program and the supervisor.
    pub(crate) fn detach(&self, flags: &[&str], words: &[&str]) -> (u32, u32) {
        let flags: Vec<&str> = [&["-d"], flags].concat();
        let text = self.text("run", &flags, words);
        let (pid, supervisor) = text.trim().split_once(' ').unwrap();
        (pid.parse().unwrap(), supervisor.parse().unwrap())
    }

    pub(crate) fn observe(&self) -> String {
        self.text("observe", &[], &[])
    }
}

/// Waits until a test is true.
pub(crate) fn eventually(what: &str, mut test: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !test() {
        assert!(Instant::now() < until, "still not: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns true if a process runs (a zombie does not).
pub(crate) fn runs(pid: u32) -> bool {
    engine::processes::stat(pid).is_some_and(|stat| !stat.is_over())
}

pub(crate) fn send(pid: u32, signal: &str) {
    let status = Command::new("kill").args(["-s", signal, &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

pub(crate) fn code(mut child: Child) -> Option<i32> {
    let mut code = None;
    eventually("the driver ends", || {
        code = child.try_wait().unwrap();
        code.is_some()
    });
    code.unwrap().code()
}

/// A terminal with a program in its foreground.
pub(crate) struct Terminal {
    pub(crate) pty: Pty,
    pub(crate) child: Child,
    seen: Vec<u8>,
}

impl Terminal {
    /// Starts a command in a session of its own on a new terminal.
    pub(crate) fn start(command: &Command, size: Size) -> Self {
        let pty = Pty::open(Some(size)).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        let child = Command::new("setsid")
            .args(["--ctty", "--wait"])
            .arg(command.get_program())
            .args(command.get_args())
            .env("PS1", "prompt> ")
            .env("TERM", "dumb")
            .env_remove("PROMPT_COMMAND")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        Self { pty, child, seen: Vec::new() }
    }

    pub(crate) fn type_in(&self, keys: &str) {
        self.type_bytes(keys.as_bytes());
    }

    pub(crate) fn type_bytes(&self, keys: &[u8]) {
        File::from(self.pty.master.try_clone().unwrap()).write_all(keys).unwrap();
    }

    /// Reads until `text` has been shown since the last call; earlier text is dropped.
    pub(crate) fn expect(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            let found = self.seen.windows(text.len()).position(|part| part == text.as_bytes());
            if let Some(at) = found {
                self.seen.drain(..at + text.len());
                return;
            }
            let seen = String::from_utf8_lossy(&self.seen);
            assert!(Instant::now() < until, "expected {text:?}, saw {seen:?}");
            self.read();
        }
    }

    /// Reads the available output, waiting a little.
    pub(crate) fn read(&mut self) -> usize {
        let wait = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        let mut fds = [PollFd::new(&self.pty.master, PollFlags::IN)];
        if poll(&mut fds, Some(&wait)).unwrap() == 0 {
            return 0;
        }
        let mut bytes = vec![0; 65536];
        let count = rustix::io::read(&self.pty.master, &mut bytes).unwrap_or(0);
        self.seen.extend_from_slice(&bytes[..count]);
        count
    }

    pub(crate) fn is_raw(&self) -> bool {
        let settings = rustix::termios::tcgetattr(&self.pty.slave).unwrap();
        !settings.local_modes.contains(rustix::termios::LocalModes::ECHO)
    }

    pub(crate) fn code(mut self) -> Option<i32> {
        let mut code = None;
        eventually("the program on the terminal ends", || {
            self.read();
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        code.unwrap().code()
    }
}
