//! A running program: its output is watched, signals and input are sent to it.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::command::{until, wait};

/// A running program with its output so far.
#[derive(Debug)]
pub struct Running {
    child: Child,
    output: Arc<Mutex<Vec<u8>>>,
    /// Standard output and error, as long as they are read.
    pipes: Vec<Weak<OwnedFd>>,
    deaf: Arc<AtomicBool>,
    words: String,
}

/// So long after its end is waited for what it has written, where others write to its output too.
const OTHERS: Duration = Duration::from_secs(3);

impl Running {
    /// Starts the command with piped input; standard output and error are collected together.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        let words = format!("{command:?}");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.process_group(0).spawn().unwrap_or_else(|error| panic!("{words}: {error}"));
        let output = Arc::new(Mutex::new(Vec::new()));
        let deaf = Arc::new(AtomicBool::new(false));
        let streams =
            [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        let pipes = streams.into_iter().flatten();
        let pipes = pipes.map(|pipe| watch(pipe, &output, &deaf)).collect();
        Self { child, output, pipes, deaf, words }
    }

    /// The output so far.
    pub fn text(&self) -> String {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&output).into_owned()
    }

    /// Waits until the output contains `text`.
    ///
    /// # Panics
    /// If it does not within fifteen seconds.
    #[track_caller]
    pub fn expect(&self, text: &str) {
        self.expect_within(text, Duration::from_secs(15));
    }

    /// The same with another limit.
    ///
    /// # Panics
    /// If it does not within that.
    #[track_caller]
    pub fn expect_within(&self, text: &str, limit: Duration) {
        let seen = until(limit, || self.text().contains(text).then_some(()));
        assert!(seen.is_some(), "{} never said {text:?} but: {}", self.words, self.text());
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.id().cast_signed()) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Writes to its standard input.
    pub fn feed(&mut self, bytes: &[u8]) {
        if let Some(pipe) = self.child.stdin.as_mut() {
            let _ = pipe.write_all(bytes).and_then(|()| pipe.flush());
        }
    }

    /// Closes its standard input.
    pub fn end_of_input(&mut self) {
        self.child.stdin = None;
    }

    /// Closes the reading ends of its output, as `head` does at its last line.
    pub fn close_output(&self) {
        self.deaf.store(true, Ordering::Relaxed);
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns true if it still runs.
    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end: the exit code, 128 + n after signal n, -1 if it had to be killed after
    /// `limit`. What it has written is in [`Running::text`] then.
    pub fn end(&mut self, limit: Duration) -> i32 {
        let Some(status) = wait(&mut self.child, limit) else { return -1 };
        let are_empty = || self.pipes.iter().all(|pipe| is_empty(pipe, &self.output));
        until(OTHERS, || are_empty().then_some(()));
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether all that was written to a pipe is in `output`. Its end may be held by processes that
/// live on, so its end of file says nothing about this one.
fn is_empty(pipe: &Weak<OwnedFd>, output: &Mutex<Vec<u8>>) -> bool {
    // One that is not read any more has ended.
    let Some(pipe) = pipe.upgrade() else { return true };
    // No piece is on its way while this is held.
    let _held = output.lock().unwrap_or_else(PoisonError::into_inner);
    rustix::io::ioctl_fionread(&*pipe).is_ok_and(|count| count == 0)
}

/// Collects what comes by a pipe.
fn watch(pipe: OwnedFd, output: &Arc<Mutex<Vec<u8>>>, deaf: &Arc<AtomicBool>) -> Weak<OwnedFd> {
    let (pipe, output, deaf) = (Arc::new(pipe), Arc::clone(output), Arc::clone(deaf));
    let weak = Arc::downgrade(&pipe);
    thread::spawn(move || {
        let mut buffer = [0; 8192];
        loop {
            if poll(&mut [PollFd::new(&*pipe, PollFlags::IN)], None).is_err() {
                continue;
            }
            // Read under the lock: see `is_empty`.
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            match rustix::io::read(&*pipe, &mut buffer[..]) {
                Ok(count @ 1..) if !deaf.load(Ordering::Relaxed) => {
                    output.extend_from_slice(&buffer[..count]);
                }
                Err(Errno::INTR) => {}
                _ => break,
            }
        }
    });
    weak
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also where the machine is busy, and where another process holds the output.
    #[test]
    fn all_output_is_there_at_the_end() {
        for _ in 0..20 {
            let script = "sleep 5 & head -c 300000 /dev/zero; echo last >&2";
            let mut running = Running::start(Command::new("sh").args(["-c", script]));
            assert_eq!(running.end(Duration::from_secs(20)), 0);
            assert_eq!(running.text().len(), 300_005);
        }
    }
}
