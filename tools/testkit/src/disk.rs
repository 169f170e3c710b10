//! A disk that records every write, and can be set to the state in which a power failure leaves it.
//!
//! ```text
//! the test ── commands ──► ext4 ──► loop device ──► one file of a FUSE file system ──► log
//! ```
//!
//! A separate process serves the file ([`serve`]; the test binary calls itself by [`FLAG`]) and
//! keeps writes, flushes and the test's marks in the order in which they came. Afterwards
//! [`RecordedDisk::cut`] sets the disk to its state after any beginning of that log: the file
//! system is mounted again, replays its journal, and the test checks its content.
//!
//! Needs root, `/dev/fuse`, a loop device, `mkfs.ext4` and `nsenter`; a missing one is a skip.

mod fuse;
mod image;
mod serve;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};

use crate::command::{Finished, Input, run_with};
use crate::person::{LIMIT, Person};
use crate::skip::{Skip, need_program};

/// The first argument by which a test binary becomes the server.
pub const FLAG: &str = "--serve-recorded-disk";

const DISK: &str = "disk";
const MOUNTED: &str = "mounted";
const SPOOL: &str = "spool";
const BOOT: &str = "boot_id";

/// A recorded disk with an ext4 file system.
#[derive(Debug)]
pub struct RecordedDisk {
    server: Child,
    answers: BufReader<ChildStdout>,
    place: PathBuf,
}

/// One entry of the log, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write.
    Write,
    /// A flush: all earlier writes are on the disk.
    Flush,
    /// A mark of the test.
    Mark(u32),
}

/// State of the writes after the last flush.
#[derive(Clone, Copy, Debug)]
pub enum Tail {
    /// They are on the disk.
    Kept,
    /// They are lost.
    Lost,
    /// Some pages of them are on the disk, chosen by this seed.
    Part(u64),
}

/// Becomes the server if the command line says so.
pub fn serve() -> Option<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.split_first() {
        Some((flag, rest)) if flag == FLAG => Some(serve::run(rest)),
        _ => None,
    }
}

impl RecordedDisk {
    /// Makes a disk of `size` bytes with a file system, mounted with these options (`commit=1`);
    /// its files are kept in `place`, which must be empty.
    pub fn new(place: &Path, size: u64, options: &str) -> Result<Self, Skip> {
        if !rustix::process::getuid().is_root() {
            crate::skip!("only root can mount a recorded disk");
        }
        for program in ["mkfs.ext4", "nsenter", "mount"] {
            need_program(program)?;
        }
        for device in ["/dev/fuse", "/dev/loop-control"] {
            if !Path::new(device).exists() {
                crate::skip!("{device} is not there");
            }
        }
        let failed = |error: std::io::Error| Skip(format!("cannot serve a disk: {error}"));
        std::fs::create_dir_all(place.join(MOUNTED)).map_err(failed)?;
        let own = std::env::current_exe().map_err(failed)?;
        let mut server = Command::new(own)
            .arg(FLAG)
            .arg(place)
            .arg(size.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let answers = server.stdout.take().map(BufReader::new);
        let answers = answers.ok_or_else(|| Skip("the disk's server has no output".to_owned()))?;
        let mut disk = Self { server, answers, place: place.to_owned() };
        disk.answer().map_err(|why| Skip(format!("a disk cannot be served here: {why}")))?;
        disk.ask("make").map_err(|why| Skip(format!("no file system can be made: {why}")))?;
        disk.ask(&format!("mount {options}"))
            .map_err(|why| Skip(format!("a loop device cannot be mounted here: {why}")))?;
        Ok(disk)
    }

    /// Mount point of the file system, valid in its namespace ([`RecordedDisk::enter`]).
    pub fn mounted(&self) -> PathBuf {
        self.place.join(MOUNTED)
    }

    /// A path in the disk's namespace, as seen from outside.
    pub fn outside(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.server.id()));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// A command that runs as root in the disk's namespace: append its arguments.
    pub fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.server.id())).stdin(Stdio::null());
        command
    }

    /// Runs the program under test there as a user.
    pub fn run(&self, person: &Person, words: &[&str]) -> Finished {
        let inner = person.command(words);
        let mut command = self.enter();
        command.arg(inner.get_program()).args(inner.get_args()).current_dir("/").env_clear();
        command.envs(inner.get_envs().filter_map(|(key, value)| Some((key, value?))));
        run_with(&mut command, Input::Null, LIMIT)
    }

    /// Sets a mark in the log.
    ///
    /// # Panics
    /// If the server fails, as the other methods.
    pub fn mark(&mut self, number: u32) {
        self.must(&format!("mark {number}"));
    }

    /// The log.
    ///
    /// # Panics
    /// See [`RecordedDisk::mark`].
    pub fn log(&mut self) -> Vec<Event> {
        let text = self.must("log");
        let event = |word: &str| match word {
            "w" => Event::Write,
            "f" => Event::Flush,
            number => Event::Mark(number.parse().unwrap_or(u32::MAX)),
        };
        text.split_whitespace().map(event).collect()
    }

    /// Ends the recording: unmounts the disk, and makes this look like a restarted machine.
    ///
    /// # Panics
    /// See [`RecordedDisk::mark`].
    pub fn end(&mut self) {
        self.must("umount");
        self.must("boot");
    }

    /// Mounts the disk in the state that a power failure after `count` entries of the log leaves.
    /// Counts must not decrease from call to call; call [`RecordedDisk::leave`] in between.
    ///
    /// # Panics
    /// If its file system cannot be mounted, and see [`RecordedDisk::mark`].
    pub fn cut(&mut self, count: usize, tail: Tail) {
        let tail = match tail {
            Tail::Kept => "kept".to_owned(),
            Tail::Lost => "lost".to_owned(),
            Tail::Part(seed) => seed.to_string(),
        };
        self.must(&format!("cut {count} {tail}"));
        self.must("mount commit=300");
    }

    /// Unmounts it again.
    ///
    /// # Panics
    /// See [`RecordedDisk::mark`].
    pub fn leave(&mut self) {
        self.must("umount");
    }

    fn must(&mut self, command: &str) -> String {
        self.ask(command).unwrap_or_else(|why| panic!("the recorded disk: {command}: {why}"))
    }

    fn ask(&mut self, command: &str) -> Result<String, String> {
        let input = self.server.stdin.as_mut().ok_or("it has no input")?;
        writeln!(input, "{command}").map_err(|error| error.to_string())?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|error| error.to_string())?;
        let line = line.trim_end();
        match line.strip_prefix("ok") {
            Some(rest) => Ok(rest.trim_start().to_owned()),
            None if line.is_empty() => Err("its server has ended".to_owned()),
            None => Err(line.trim_start_matches("no ").to_owned()),
        }
    }
}

impl Drop for RecordedDisk {
    fn drop(&mut self) {
        // The server ends at the end of its input.
        drop(self.server.stdin.take());
        let _ = self.server.wait();
    }
}
