//! Runs a program behind a real pseudo-terminal, as for a user at a keyboard.
//!
//! `setsid --ctty` (util-linux) makes the terminal the program's controlling one; doing that here
//! would need code between fork and exec. A thread collects everything that the terminal shows.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::command::{until, wait};

/// A running program and the screen side of its terminal.
#[derive(Debug)]
pub struct Terminal {
    master: std::fs::File,
    child: Child,
    shown: Arc<Mutex<Vec<u8>>>,
    /// Ends when nobody has the terminal any more, after all that was shown.
    screen: thread::JoinHandle<()>,
}

impl Terminal {
    /// Starts `command` on a new terminal of this size.
    pub fn spawn(command: &Command, rows: u16, columns: u16) -> io::Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let slave = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(rustix::fs::OFlags::NOCTTY.bits().cast_signed())
            .open(OsStr::new(&*name.to_string_lossy()))?;
        let slave = OwnedFd::from(slave);
        // Another user's program must be able to reopen its own terminal by name.
        rustix::fs::fchmod(&slave, rustix::fs::Mode::from_raw_mode(0o666))?;
        size(&master, rows, columns)?;
        // No terminal begins with ignored keys, which a shell cannot trap; a suite that was started
        // in the background has them ignored (POSIX, 2.11).
        let mut on_terminal = Command::new("env");
        on_terminal.args(["--default-signal=HUP,INT,QUIT", "setsid", "--ctty", "--"]);
        on_terminal.arg(command.get_program()).args(command.get_args());
        on_terminal.env_clear();
        on_terminal.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        on_terminal.env("TERM", "xterm");
        if let Some(dir) = command.get_current_dir() {
            on_terminal.current_dir(dir);
        }
        on_terminal.stdin(Stdio::from(slave.try_clone()?));
        on_terminal.stdout(Stdio::from(slave.try_clone()?));
        on_terminal.stderr(Stdio::from(slave));
        let child = on_terminal.spawn()?;
        // The command keeps its copies of the terminal until it is dropped; the screen would never
        // close.
        drop(on_terminal);
        let master = std::fs::File::from(master);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut output, text) = (master.try_clone()?, Arc::clone(&shown));
        let screen = thread::spawn(move || {
            let mut buffer = [0; 4096];
            // EIO means that the last program on the terminal has ended.
            while let Ok(count) = io::Read::read(&mut output, &mut buffer) {
                if count == 0 {
                    break;
                }
                text.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .extend_from_slice(&buffer[..count]);
            }
        });
        Ok(Self { master, child, shown, screen })
    }

    /// Types these bytes.
    pub fn type_in(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.master.write_all(bytes)
    }

    /// Changes the terminal's size; programs on it get `SIGWINCH`.
    pub fn resize(&self, rows: u16, columns: u16) -> io::Result<()> {
        size(&self.master, rows, columns)
    }

    /// Everything shown so far.
    pub fn text(&self) -> String {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Waits until `text` is shown.
    ///
    /// # Panics
    /// If it is not shown within ten seconds.
    #[track_caller]
    pub fn expect(&self, text: &str) {
        self.expect_within(text, Duration::from_secs(10));
    }

    /// The same with another limit.
    ///
    /// # Panics
    /// If it is not shown within that.
    #[track_caller]
    pub fn expect_within(&self, text: &str, limit: Duration) {
        // What ended shows no more.
        let seen = until(limit, || {
            let over = self.screen.is_finished();
            let found = self.text().contains(text);
            (found || over).then_some(found)
        });
        assert!(seen == Some(true), "the terminal never showed {text:?} but:\n{}", self.text());
    }

    /// Waits for the program's end, and for what it has shown last; `None` if it had to be killed
    /// after ten seconds.
    pub fn end(&mut self) -> Option<ExitStatus> {
        let status = wait(&mut self.child, Duration::from_secs(10));
        // Not for ever: others may have the terminal, too.
        until(Duration::from_secs(3), || self.screen.is_finished().then_some(()));
        status
    }

    /// The process id of the program.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(master: impl std::os::fd::AsFd, rows: u16, columns: u16) -> io::Result<()> {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(tcsetwinsize(master, size)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_sees_a_terminal() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "test -t 0 && stty size </dev/tty; read x; echo got=$x; exit 4"]);
        shell.env("PATH", "/usr/bin:/bin");
        let mut terminal = Terminal::spawn(&shell, 33, 101).unwrap();
        terminal.expect("33 101");
        terminal.type_in(b"word\n").unwrap();
        assert_eq!(terminal.end().and_then(|status| status.code()), Some(4));
        assert!(terminal.text().contains("got=word"));
    }
}
