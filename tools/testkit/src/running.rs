//! A running program: its output is watched, signals and input are sent to it.

use std::io::{Read, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::command::{until, wait};

/// A running program with its output so far.
#[derive(Debug)]
pub struct Running {
    child: Child,
    output: Arc<Mutex<Vec<u8>>>,
    deaf: Arc<AtomicBool>,
    words: String,
}

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
        watch(child.stdout.take(), &output, &deaf);
        watch(child.stderr.take(), &output, &deaf);
        Self { child, output, deaf, words }
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
    /// `limit`.
    pub fn end(&mut self, limit: Duration) -> i32 {
        let Some(status) = wait(&mut self.child, limit) else { return -1 };
        thread::sleep(Duration::from_millis(30));
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn watch(
    pipe: Option<impl Read + Send + 'static>,
    output: &Arc<Mutex<Vec<u8>>>,
    deaf: &Arc<AtomicBool>,
) {
    let (Some(mut pipe), output, deaf) = (pipe, Arc::clone(output), Arc::clone(deaf)) else {
        return;
    };
    thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(count) = pipe.read(&mut buffer) {
            if count == 0 || deaf.load(Ordering::Relaxed) {
                break;
            }
            output
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend_from_slice(&buffer[..count]);
        }
    });
}
