//! A supervised program: the supervisor's ends of its descriptors, its input queue, its processes.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, wait};
use rustix::termios::{LocalModes, SpecialCodeIndex, tcgetattr};
use sys::namespace::{Held, Kinds};
use sys::terminal::{Pty, Size};

use crate::launch::{cgroup, members};
use crate::processes;
use crate::records::{self, Records, Turn};
use crate::sharing::{Beginning, Since};
use crate::spec::ProcessId;
use crate::supervise::log::Stream;
use crate::supervise::{Error, Outcome, Signal, Spawned, Stdio};

/// What Coracle's process that answers a guest's calls is called.
const TRACER: &str = "coracle-trace";
/// How long to insist that killed processes are gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long killed processes are waited for. Time alone does not tell: on a busy machine, or one
/// that was stopped for a while, neither they nor this process may have run meanwhile.
pub(super) struct Patience {
    until: Instant,
    looks: u32,
}

impl Patience {
    /// How often they are looked after at least.
    const LOOKS: u32 = 100;

    pub(super) fn new(time: Duration) -> Self {
        Self { until: Instant::now() + time, looks: 0 }
    }

    /// To be asked after each look.
    pub(super) fn is_over(&mut self) -> bool {
        self.looks += 1;
        self.looks > Self::LOOKS && Instant::now() > self.until
    }
}

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

    /// Takes the master of a terminal that the engine opened instead of the supervisor's.
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
    /// The container's directory; `None` of an `exec` session, which has none to itself.
    place: Option<PathBuf>,
    /// How the run began, if it was alone then.
    beginning: Option<Beginning>,
    cgroup: Option<PathBuf>,
    /// Nothing of one that ended before it was looked at.
    seen: Seen,
    /// Children that this process had before: not the container's.
    spared: Vec<u32>,
    /// How often INT or TERM came, for a process 1 that ignores them.
    pub(super) ignored: u32,
}

/// What `/proc` shows of a program.
#[derive(Default)]
struct Seen {
    /// Its identity: a later process with that number is another one.
    id: ProcessId,
    world: Option<String>,
    /// Keeps the namespace's number from being given to another container's before the sweep.
    pin: Cell<Option<Held>>,
    /// Process 1 of a pid namespace: the kernel ends the others with it.
    own_pids: bool,
}

impl Seen {
    fn of(number: u32) -> Self {
        let pids = |of: u32| sys::life::link(of, "ns/pid").ok();
        let unknown = || ProcessId { pid: number, ..ProcessId::default() };
        Self {
            id: processes::identity(number).unwrap_or_else(unknown),
            world: members::world(number),
            pin: Cell::new(Held::of(number, Kinds::MOUNT).ok()),
            own_pids: pids(number).is_some_and(|link| Some(link) != pids(std::process::id())),
        }
    }
}

impl Program {
    /// `place` is the directory of the container that it runs in; `None` for `exec`. The program
    /// is to be looked at before it is sent signals ([`Self::look`]).
    pub(super) fn new(spawned: Spawned, spared: Vec<u32>, place: Option<&Path>) -> Self {
        Self {
            pid: spawned.pid,
            started: Instant::now(),
            place: place.map(Path::to_path_buf),
            beginning: place.and_then(Beginning::of),
            cgroup: spawned.cgroup.filter(|_| place.is_some()),
            seen: Seen::default(),
            spared,
            ignored: 0,
        }
    }

    /// Reads what is needed to find its processes and to send them signals.
    pub(super) fn look(&mut self) {
        self.seen = Seen::of(self.number());
    }

    /// Whether it is process 1 of a pid namespace.
    pub(super) fn has_own_pids(&self) -> bool {
        self.seen.own_pids
    }

    pub(super) fn number(&self) -> u32 {
        processes::number(self.pid)
    }

    pub(super) fn signal(&self, signal: Signal) {
        let _ = processes::send(&self.seen.id, signal.number());
    }

    /// Every process of this run.
    fn all(&self) -> Vec<ProcessId> {
        let alone = self.is_alone();
        let world = self.seen.world.as_deref().filter(|_| alone);
        let mut members = members::of(&self.seen.id, world);
        members.extend(self.inherited(alone));
        members
    }

    /// Sends a signal to every process of this run.
    pub(super) fn signal_all(&self, signal: Signal) {
        for process in self.all() {
            let _ = processes::send(&process, signal.number());
        }
    }

    /// Stops every process of this run, and waits until they have stopped
    /// ([`processes::until_stopped`]).
    pub(super) fn stop_all(&self) {
        let all = self.all();
        for process in &all {
            let _ = processes::send(process, Signal::STOP.number());
        }
        processes::until_stopped(all.iter().map(|process| process.pid));
    }

    /// Whether nothing is left of a run that no other program joined: all its processes descend
    /// from this one. Those of Coracle that serve it end by themselves with their last guest, and
    /// take the mounts with them, which is not waited for.
    fn is_over(&self, since: Since) -> bool {
        let serves = |child: u32| {
            let name = || processes::stat(child).map(|stat| stat.name);
            processes::is_ours(child) && name().is_some_and(|name| name == TRACER)
        };
        let mut children = processes::own_children().into_iter();
        self.cgroup.is_none()
            && since == Since::Alone
            && children.all(|child| self.spared.contains(&child) || serves(child))
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

    /// Whether no other run has been in the container since this one began.
    fn is_alone(&self) -> bool {
        let place = self.place.as_deref();
        place.is_some_and(|place| self.beginning.as_ref().is_some_and(|word| word.is_last(place)))
    }

    /// The container's turn, if this run is alone in it: then nobody can come before that is given
    /// back.
    fn keep_alone(&self) -> Option<(Turn, Since)> {
        let (place, word) = (self.place.as_deref()?, self.beginning.as_ref()?);
        let records = Records::existing(place)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let turn = records.turn_at_once();
            let since = word.since(place);
            if since == Since::Shared || Instant::now() > deadline {
                return None;
            }
            match turn {
                Some(turn) => return Some((turn, since)),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// After the end of the first process: kills what the run left behind. With `everything`, and
    /// where the run was alone, that is all that lives in the container, programs of `exec` too;
    /// else what descends from its program. Returns those that did not die.
    pub(super) fn sweep(&self, everything: bool) -> Vec<ProcessId> {
        let alone = if everything { None } else { self.keep_alone() };
        self.reap();
        if alone.as_ref().is_some_and(|(_, since)| self.is_over(*since)) {
            self.seen.pin.take();
            return Vec::new();
        }
        let turn = alone.map(|(turn, _)| turn);
        let whole = self.place.is_some() && (everything || turn.is_some());
        if let Some(cgroup) = self.cgroup.as_ref().filter(|_| whole) {
            cgroup::kill(cgroup);
        }
        let mut patience = Patience::new(PATIENCE);
        let mut pause = Duration::from_micros(50);
        let left = loop {
            self.reap();
            let left = self.left(whole);
            if left.is_empty() || patience.is_over() {
                break left;
            }
            for process in &left {
                let _ = processes::send(process, Signal::KILL.number());
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        };
        // From here on the number may be used again, and the mounts may go.
        self.seen.pin.take();
        if let Some(cgroup) = self.cgroup.as_ref().filter(|_| whole) {
            cgroup::remove(cgroup);
        }
        drop(turn);
        left
    }

    fn left(&self, whole: bool) -> Vec<ProcessId> {
        let mut left = self.inherited(whole);
        if let Some(place) = self.place.as_deref().filter(|_| whole) {
            // One that is just ending has no memory any more, by which the others are found.
            left.extend(records::living(place));
            if !self.seen.own_pids {
                left.extend(members::of(&self.seen.id, self.seen.world.as_deref()));
                // A program of `exec` may have another tracer. A mount namespace has all of them.
                if !self.seen.world.as_deref().is_some_and(members::is_namespace) {
                    left.extend(members::all(place));
                }
            }
        }
        processes::sort(&mut left);
        left
    }

    /// What descends from the program and is not its child any more, or was not: orphans come to
    /// this process, and so does what an engine has made to serve the program. That ends by itself
    /// with those whom it serves; where they are not all of this run, it is spared.
    fn inherited(&self, whole: bool) -> Vec<ProcessId> {
        let children = processes::own_children().into_iter();
        let mut found: Vec<ProcessId> = children
            .filter(|child| !self.spared.contains(child))
            .filter_map(|child| processes::which(child, |child| whole || !self.is_served_by(child)))
            .collect();
        found.extend(processes::listed_below(&found));
        found
    }

    /// Whether a child of this process is a tracer, or keeps a network.
    fn is_served_by(&self, child: u32) -> bool {
        let namespace = processes::mount_namespace(child);
        let is_network = || {
            processes::stat(child).is_some_and(|stat| stat.name.starts_with("pasta"))
                && namespace != self.seen.world
        };
        let here = processes::mount_namespace(std::process::id());
        namespace == here && processes::is_ours(child) || is_network()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_does_not_end_with_time_alone() {
        let mut patience = Patience { until: Instant::now(), looks: 0 };
        let looks = std::iter::repeat_with(|| patience.is_over()).take_while(|over| !over).count();
        assert_eq!(looks, Patience::LOOKS as usize);
        assert!(!Patience { looks: Patience::LOOKS, ..Patience::new(PATIENCE) }.is_over());
    }
}
