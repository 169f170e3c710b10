//! Runs a program to its end with a deadline, and keeps its output.
//!
//! The child gets its own process group, so that a run past its deadline is killed with its
//! children. Output is collected by two threads. If the program ends but another process still
//! holds its standard output (a container started with `-d` must not), the result says so instead
//! of hanging.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Default deadline of a program.
pub const DEADLINE: Duration = Duration::from_mins(1);

/// Exit status and output of a finished program.
#[derive(Clone)]
pub struct Finished {
    /// The status; `None` if the deadline passed and it was killed.
    pub status: Option<ExitStatus>,
    /// All of standard output.
    pub stdout: Vec<u8>,
    /// All of standard error.
    pub stderr: Vec<u8>,
    /// The program ended, but another process kept its output open.
    pub held_open: bool,
    /// The words of the command, for messages.
    pub command: String,
}

impl Finished {
    /// The exit code; 128 + n after signal n; -1 after the deadline.
    pub fn code(&self) -> i32 {
        match self.status {
            Some(status) => {
                status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
            }
            None => -1,
        }
    }

    /// Standard output as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Checks the exit code.
    ///
    /// # Panics
    /// With all facts, if the code is another one.
    #[track_caller]
    pub fn expect(&self, code: i32) -> &Self {
        assert!(self.code() == code, "expected exit code {code}, got {}: {self:?}", self.code());
        self
    }

    /// As [`expect`](Self::expect) with 0.
    #[track_caller]
    pub fn ok(&self) -> &Self {
        self.expect(0)
    }

    /// Standard output without its final newline.
    pub fn line(&self) -> String {
        self.out().trim_end_matches('\n').to_owned()
    }
}

impl fmt::Debug for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match self.status {
            Some(status) => status.to_string(),
            None => "killed at the deadline".to_owned(),
        };
        write!(f, "\n  command: {}\n  ended: {end}", self.command)?;
        if self.held_open {
            write!(f, " (its output is still held open)")?;
        }
        for (name, bytes) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            let text = String::from_utf8_lossy(bytes);
            let text: String = text.chars().take(4000).collect();
            write!(f, "\n  {name} ({} bytes): {}", bytes.len(), text.trim_end())?;
        }
        Ok(())
    }
}

/// Standard input of a program.
#[derive(Clone, Debug, Default)]
pub enum Input {
    /// `/dev/null`
    #[default]
    Null,
    /// A pipe with these bytes.
    Bytes(Vec<u8>),
    /// As the command was configured.
    AsIs,
}

/// Runs to the end within [`DEADLINE`], without input.
pub fn run(command: &mut Command) -> Finished {
    run_with(command, Input::Null, DEADLINE)
}

/// Runs to the end within `limit`.
///
/// # Panics
/// When the program cannot be started.
pub fn run_with(command: &mut Command, input: Input, limit: Duration) -> Finished {
    let words = describe(command);
    let feed = match input {
        Input::Null => {
            command.stdin(Stdio::null());
            None
        }
        Input::Bytes(bytes) => {
            command.stdin(Stdio::piped());
            Some(bytes)
        }
        Input::AsIs => None,
    };
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = started(|| command.spawn()).unwrap_or_else(|error| panic!("{words}: {error}"));
    if let (Some(bytes), Some(mut pipe)) = (feed, child.stdin.take()) {
        // A child that does not read its input is no error; the pipe just breaks.
        thread::spawn(move || pipe.write_all(&bytes));
    }
    let (sender, receiver) = mpsc::channel();
    collect(child.stdout.take(), 0, &sender);
    collect(child.stderr.take(), 1, &sender);
    drop(sender);
    let status = wait(&mut child, limit);
    let mut output = [Vec::new(), Vec::new()];
    let mut open = 2;
    // After the end, data in the pipes arrives at once; processes that still write are not waited
    // for.
    let mut patience = Instant::now() + Duration::from_secs(3);
    while open > 0 {
        match receiver.recv_timeout(patience.saturating_duration_since(Instant::now())) {
            Ok((stream, Some(bytes))) => {
                let bytes: Vec<u8> = bytes;
                output[stream].extend_from_slice(&bytes);
                patience = Instant::now() + Duration::from_secs(3);
            }
            Ok((_, None)) => open -= 1,
            Err(_) => break,
        }
    }
    let [stdout, stderr] = output;
    Finished { status, stdout, stderr, held_open: open > 0, command: words }
}

/// Runs a program to its end, even one that was written just now.
pub fn output(command: &mut Command) -> io::Result<Output> {
    started(|| command.output())
}

/// Copies a program with a process of its own, so that no thread of this one ever has it open for
/// writing (see [`started`]). For programs that other users run.
///
/// # Panics
/// If it cannot be copied.
pub fn copy_program(program: &Path, copy: &Path) {
    let done = Command::new("cp").arg("--").args([program, copy]).status();
    assert!(done.is_ok_and(|status| status.success()), "{} is not copied", program.display());
}

/// Starts a program, and retries on `ETXTBSY`: a program that this process has written cannot be
/// executed while a child that another thread is starting has inherited the descriptor, until that
/// child's own `execve`.
fn started<T>(mut start: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let began = Instant::now();
    loop {
        match start() {
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy
                    && began.elapsed() < DEADLINE =>
            {
                thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

/// Factor of all time limits: `CORACLE_TEST_PATIENCE`, for slow and for emulated machines.
fn patience() -> u32 {
    let word = std::env::var("CORACLE_TEST_PATIENCE").ok();
    word.and_then(|word| word.parse().ok()).unwrap_or(1)
}

/// Waits until `limit`, then kills the child's process group. `None` means killed.
pub fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit * patience();
    let mut pause = Duration::from_micros(500);
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= end {
            if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Repeats `check` until it returns a value or `limit` has passed.
pub fn until<T>(limit: Duration, mut check: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit * patience();
    loop {
        if let Some(found) = check() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Looks up a program in `PATH` and in the usual directories: tests run with a short `PATH`, and
/// administrators' tools are in `sbin`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

type Piece = (usize, Option<Vec<u8>>);

fn collect(pipe: Option<impl Read + Send + 'static>, stream: usize, to: &mpsc::Sender<Piece>) {
    let to = to.clone();
    thread::spawn(move || {
        if let Some(mut pipe) = pipe {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(count) = pipe.read(&mut buffer) {
                if count == 0 || to.send((stream, Some(buffer[..count].to_vec()))).is_err() {
                    break;
                }
            }
        }
        let _ = to.send((stream, None));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_output_and_status() {
        let done = run(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]));
        assert_eq!((done.code(), done.out(), done.err()), (3, "out\n".into(), "err\n".into()));
        assert_eq!(run(Command::new("sh").args(["-c", "kill -9 $$"])).code(), 137);
    }

    #[test]
    fn kills_at_the_deadline_and_sees_held_output() {
        let mut slow = Command::new("sleep");
        let done = run_with(slow.arg("100"), Input::Null, Duration::from_millis(50));
        assert_eq!((done.status, done.code()), (None, -1));
        let done = run(Command::new("sh").args(["-c", "sleep 8 & echo started"]));
        assert!(done.held_open && done.out() == "started\n");
    }
}
