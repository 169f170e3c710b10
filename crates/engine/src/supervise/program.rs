//! The program's side: its descriptors, its input queue, its processes.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, wait};
use rustix::termios::{LocalModes, SpecialCodeIndex, tcgetattr};
use sys::event::send_signal;
use sys::namespace::{Held, Kinds};
use sys::terminal::{Pty, Size};

use crate::engines::native::cgroup;
use crate::supervise::log::Stream;
use crate::supervise::processes;
use crate::supervise::{Error, Outcome, Signal, Spawned, Stdio};

/// How long to insist that killed processes are gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// Our ends of the program's descriptors.
#[derive(Default)]
pub(super) struct Ends {
    /// Output to read; with a terminal this is the master, and there is no `errors`.
    pub(super) output: Option<OwnedFd>,
    /// Error output to read.
    pub(super) errors: Option<OwnedFd>,
    /// Where input goes; `None` with a terminal (the master takes it) or when closed.
    pub(super) input: Option<OwnedFd>,
    /// Held so that the master does not report a hang-up while the program lives but has closed
    /// its terminal for a moment.
    slave: Option<OwnedFd>,
    pub(super) tty: bool,
}

impl Ends {
    /// Makes the pair of ends: ours, and what the program gets.
    pub(super) fn make(tty: bool, stdin_open: bool, size: Size) -> Result<(Self, Stdio), Error> {
        if tty {
            let fail = |error: Errno| Error::make("pseudo-terminal", error);
            let pty = Pty::open(Some(size)).map_err(fail)?;
            rustix::io::ioctl_fionbio(&pty.master, true).map_err(fail)?;
            let slave = rustix::io::fcntl_dupfd_cloexec(&pty.slave, 3).map_err(fail)?;
            let ends =
                Self { output: Some(pty.master), slave: Some(slave), tty: true, ..Self::default() };
            return Ok((ends, Stdio::Terminal { slave: pty.slave, size }));
        }
        let (output, stdout) = pipe()?;
        let (errors, stderr) = pipe()?;
        rustix::io::ioctl_fionbio(&output, true).map_err(|e| Error::make("pipe", e))?;
        rustix::io::ioctl_fionbio(&errors, true).map_err(|e| Error::make("pipe", e))?;
        let (stdin, input) = if stdin_open {
            let (stdin, input) = pipe()?;
            rustix::io::ioctl_fionbio(&input, true).map_err(|e| Error::make("pipe", e))?;
            (stdin, Some(input))
        } else {
            (null()?, None)
        };
        let ends = Self { output: Some(output), errors: Some(errors), input, ..Self::default() };
        Ok((ends, Stdio::Pipes { stdin, stdout, stderr }))
    }

    /// Takes the master of a terminal that the engine opened instead of ours.
    pub(super) fn replace_master(&mut self, master: OwnedFd) {
        let _ = rustix::io::ioctl_fionbio(&master, true);
        self.output = Some(master);
        self.slave = None;
    }

    /// The descriptor that takes input.
    pub(super) fn sink(&self) -> Option<&OwnedFd> {
        if self.tty { self.output.as_ref() } else { self.input.as_ref() }
    }

    pub(super) fn source(&self, stream: Stream) -> Option<&OwnedFd> {
        match stream {
            Stream::Stdout => self.output.as_ref(),
            Stream::Stderr => self.errors.as_ref(),
        }
    }

    pub(super) fn close(&mut self, stream: Stream) {
        match stream {
            Stream::Stdout => self.output = None,
            Stream::Stderr => self.errors = None,
        }
    }

    /// When the program is gone the master shall say so.
    pub(super) fn release_slave(&mut self) {
        self.slave = None;
    }

    /// End of input: closes the pipe; on a terminal in line mode, types its end-of-file key.
    pub(super) fn end_input(&mut self) -> Option<u8> {
        if !self.tty {
            self.input = None;
            return None;
        }
        let settings = tcgetattr(self.output.as_ref()?).ok()?;
        let canonical = settings.local_modes.contains(LocalModes::ICANON);
        canonical.then(|| settings.special_codes[SpecialCodeIndex::VEOF])
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    pipe_with(PipeFlags::CLOEXEC).map_err(|error| Error::make("pipe", error))
}

fn null() -> Result<OwnedFd, Error> {
    let file = fs::File::open("/dev/null");
    file.map(OwnedFd::from).map_err(|error| Error::file("open", "/dev/null", error))
}

/// Input on its way to the program, with whose it is.
#[derive(Default)]
pub(super) struct Input {
    chunks: VecDeque<(u64, Vec<u8>)>,
    /// Close after the last chunk.
    pub(super) close: bool,
}

impl Input {
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(super) fn push(&mut self, client: u64, bytes: Vec<u8>) {
        self.chunks.push_back((client, bytes));
    }

    /// Writes what `sink` takes; without a sink, or with one that nobody reads, everything is
    /// taken and dropped. Calls `taken` with client and number of bytes.
    pub(super) fn write(&mut self, sink: Option<&OwnedFd>, mut taken: impl FnMut(u64, usize)) {
        while let Some((client, bytes)) = self.chunks.front_mut() {
            let count = match sink.map(|fd| rustix::io::write(fd, bytes)) {
                Some(Ok(count)) => count,
                Some(Err(Errno::INTR)) => continue,
                Some(Err(Errno::AGAIN)) => return,
                Some(Err(_)) | None => bytes.len(),
            };
            taken(*client, count);
            if count == bytes.len() {
                self.chunks.pop_front();
            } else {
                bytes.drain(..count);
            }
        }
    }
}

/// The running program.
pub(super) struct Program {
    pub(super) pid: Pid,
    pub(super) started: Instant,
    helpers: Vec<Pid>,
    cgroup: Option<PathBuf>,
    namespace: Option<String>,
    /// Keeps the namespace's number from being given to another container's before the sweep.
    pin: Cell<Option<Held>>,
    /// Children that this process had before: not the container's.
    spared: Vec<u32>,
    /// Process 1 of a pid namespace: the kernel ends the others with it.
    pub(super) own_pids: bool,
    /// How often INT or TERM came, for a process 1 that ignores them.
    pub(super) ignored: u32,
}

impl Program {
    /// `guest`: it entered namespaces of a running container (`exec`, further runs), whose other
    /// processes are not its own.
    pub(super) fn new(spawned: Spawned, spared: Vec<u32>, guest: bool) -> Self {
        let number = processes::number(spawned.pid);
        let pids = |of: u32| sys::life::link(of, "ns/pid").ok();
        let own_pids = pids(number).is_some_and(|link| Some(link) != pids(std::process::id()));
        Self {
            pid: spawned.pid,
            started: Instant::now(),
            helpers: spawned.helpers,
            cgroup: spawned.cgroup.filter(|_| !guest),
            pin: Cell::new(Held::of(number, Kinds::MOUNT).ok().filter(|_| !guest)),
            namespace: processes::world(number).filter(|_| !guest),
            spared,
            own_pids,
            ignored: 0,
        }
    }

    pub(super) fn number(&self) -> u32 {
        processes::number(self.pid)
    }

    pub(super) fn signal(&self, signal: Signal) {
        // The child is not reaped before `ended`, so the number is still its own.
        let _ = send_signal(self.pid, signal.number());
    }

    /// Sends a signal to every process of the container.
    pub(super) fn signal_all(&self, signal: Signal) {
        let members = processes::members(self.number(), self.namespace.as_deref());
        for pid in members.into_iter().filter_map(processes::pid) {
            if !self.helpers.contains(&pid) {
                let _ = send_signal(pid, signal.number());
            }
        }
    }

    /// Takes the exit status of every child that ended; the program's own is returned.
    pub(super) fn reap(&self) -> Option<Outcome> {
        let mut ended = None;
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.pid => ended = Outcome::of(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) | Err(_) => return ended,
            }
        }
    }

    /// After the end of the first process: kills what it left behind, then its helpers. The
    /// number of processes that did not die.
    pub(super) fn sweep(&self) -> usize {
        if let Some(cgroup) = &self.cgroup {
            cgroup::kill(cgroup);
        }
        let deadline = Instant::now() + PATIENCE;
        let mut pause = Duration::from_micros(200);
        let left = loop {
            self.reap();
            let left = self.left();
            if left.is_empty() || Instant::now() > deadline {
                break left.len();
            }
            for pid in left.into_iter().filter_map(processes::pid) {
                let _ = send_signal(pid, Signal::KILL.number());
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        };
        // From here on the number may be used again, and the mounts may go.
        self.pin.take();
        for &helper in &self.helpers {
            let _ = send_signal(helper, Signal::TERM.number());
        }
        if let Some(cgroup) = &self.cgroup {
            cgroup::remove(cgroup);
        }
        left
    }

    fn left(&self) -> Vec<u32> {
        let helper =
            |pid: &u32| processes::pid(*pid).is_some_and(|pid| self.helpers.contains(&pid));
        let children = processes::own_children();
        let mut left: Vec<u32> = Vec::new();
        let ours = |pid: &u32| !helper(pid) && !self.spared.contains(pid);
        for child in children.into_iter().filter(ours) {
            left.extend(processes::descendants(child));
            left.push(child);
        }
        if !self.own_pids {
            let inside = processes::members(self.number(), self.namespace.as_deref());
            left.extend(inside.into_iter().filter(|pid| !helper(pid)));
        }
        left.sort_unstable();
        left.dedup();
        left
    }
}
