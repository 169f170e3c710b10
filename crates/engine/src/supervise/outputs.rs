//! Carries a program's output from two pipes to the caller's descriptors, and into the log.
//!
//! The program has pipes for its descriptors 1 and 2 as in Docker. What comes out of them goes to
//! the caller's own 1 and 2 first and is logged when it is there, so a slow reader slows the
//! program down. The caller's descriptors may be shared with other programs and are never made
//! non-blocking: what may block is asked first and given a little at a time, so that signals are
//! seen meanwhile. When a reader is gone, our end of the pipe is closed, and the program learns it
//! with its next write as from the reader itself.

use std::io::IoSlice;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::FileType;
use rustix::io::{Errno, ReadWriteFlags};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::termios::isatty;

use super::log::{Spool, Stream};
use super::{Error, Stdio};

/// Read at once while a program writes little.
const SMALL: usize = 16 * 1024;
/// Read at once from a program that writes much.
const LARGE: usize = 256 * 1024;
/// The size of its pipe then.
const WIDE: usize = 1 << 20;
/// What a pipe or a terminal that takes anything takes without blocking (`PIPE_BUF`).
const PIECE: usize = 4096;

/// Both outputs of a program.
pub(super) struct Outputs {
    lanes: [Lane; 2],
    log: Spool,
}

/// One of them.
struct Lane {
    stream: Stream,
    /// Our end of the pipe, until it is at its end or its reader has gone.
    source: Option<OwnedFd>,
    /// What was read.
    buffer: Vec<u8>,
    /// How much of it was written.
    written: usize,
    /// How much is read at once.
    size: usize,
    wide: bool,
    sink: Sink,
}

/// What the caller's descriptor is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sink {
    /// A file or a device: takes everything.
    File,
    /// A pipe, which takes as much as it can if it is asked so (Linux 6.5).
    Pipe,
    /// A terminal, a socket, or a pipe on an older kernel: takes pieces.
    Other,
}

impl Outputs {
    pub(super) fn new(log: Spool) -> Self {
        Self { lanes: [Lane::new(Stream::Stdout), Lane::new(Stream::Stderr)], log }
    }

    /// New pipes; the program's ends.
    pub(super) fn open(&mut self) -> Result<Stdio, Error> {
        let [out, err] = &mut self.lanes;
        Ok(Stdio::Outputs { stdout: out.open()?, stderr: err.open()? })
    }

    /// What to wait for, of each lane that is open.
    pub(super) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.lanes.iter().flat_map(Lane::poll_fds).flatten()
    }

    /// How long to wait at most.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.log.wait()
    }

    /// Nothing happened for as long.
    pub(super) fn pause(&mut self) {
        self.log.settle();
    }

    /// Gives memory back.
    pub(super) fn rest(&mut self) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.buffer.is_empty()) {
            lane.buffer = Vec::new();
            lane.size = SMALL;
        }
    }

    /// Carries what can be carried now; whether anything was. An error is that of a reader.
    pub(super) fn carry(&mut self, failed: &mut dyn FnMut(Stream, Errno)) -> bool {
        if self.log.wait() == Some(Duration::ZERO) {
            self.log.settle();
        }
        let mut moved = false;
        for lane in &mut self.lanes {
            moved |= lane.carry(&mut self.log, failed);
        }
        moved
    }

    /// Whether nothing more is to come.
    pub(super) fn are_over(&self) -> bool {
        self.lanes.iter().all(|lane| lane.source.is_none() && lane.buffer.is_empty())
    }

    /// Ends pipes that are empty: no process that counts writes to them any more.
    pub(super) fn end(&mut self) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.buffer.is_empty()) {
            lane.source = None;
        }
    }

    /// Gives up what was not carried; closes the log. Why there is none, if that is so.
    pub(super) fn finish(&mut self) -> Option<String> {
        for lane in &mut self.lanes {
            lane.source = None;
            lane.pass_on(&mut self.log);
        }
        self.log.finish()
    }
}

impl Lane {
    fn new(stream: Stream) -> Self {
        let mut lane = Self {
            stream,
            source: None,
            buffer: Vec::new(),
            written: 0,
            size: SMALL,
            wide: false,
            sink: Sink::Other,
        };
        lane.sink = Sink::of(lane.target());
        lane
    }

    fn open(&mut self) -> Result<OwnedFd, Error> {
        let fail = |error| Error::make("pipe", error);
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(fail)?;
        rustix::io::ioctl_fionbio(&ours, true).map_err(fail)?;
        self.source = Some(ours);
        self.wide = false;
        Ok(theirs)
    }

    fn target(&self) -> BorrowedFd<'static> {
        match self.stream {
            Stream::Stdout => rustix::stdio::stdout(),
            Stream::Stderr => rustix::stdio::stderr(),
        }
    }

    /// The pipe, or where its content goes. Asked for nothing, a descriptor tells that its reader
    /// has gone.
    fn poll_fds(&self) -> [Option<PollFd<'_>>; 2] {
        let target = |flags| Some(PollFd::from_borrowed_fd(self.target(), flags));
        match &self.source {
            _ if !self.buffer.is_empty() => [None, target(PollFlags::OUT)],
            Some(source) => {
                let reader = target(PollFlags::empty()).filter(|_| self.sink != Sink::File);
                [Some(PollFd::new(source, PollFlags::IN)), reader]
            }
            None => [None, None],
        }
    }

    fn carry(&mut self, log: &mut Spool, failed: &mut dyn FnMut(Stream, Errno)) -> bool {
        let mut moved = false;
        if self.buffer.is_empty() {
            if self.source.is_none() {
                return false;
            }
            if self.has_lost_reader() {
                self.source = None;
                return true;
            }
            moved = self.read();
        }
        while !self.buffer.is_empty() && (self.sink == Sink::File || self.takes()) {
            match self.write() {
                Ok(count) => {
                    moved = true;
                    self.written += count;
                    if self.written == self.buffer.len() {
                        self.pass_on(log);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => {
                    if error != Errno::PIPE {
                        failed(self.stream, error);
                    }
                    self.source = None;
                    self.pass_on(log);
                    return true;
                }
            }
        }
        moved
    }

    /// Whether what the caller reads has been closed at the other end.
    fn has_lost_reader(&self) -> bool {
        let gone = PollFlags::ERR | PollFlags::HUP;
        self.sink != Sink::File && self.ready(PollFlags::empty()).intersects(gone)
    }

    fn takes(&self) -> bool {
        // An error is a write's to report.
        !self.ready(PollFlags::OUT).is_empty()
    }

    fn ready(&self, wanted: PollFlags) -> PollFlags {
        let mut fds = [PollFd::from_borrowed_fd(self.target(), wanted)];
        match rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())) {
            Ok(1..) => fds[0].revents(),
            _ => PollFlags::empty(),
        }
    }

    fn read(&mut self) -> bool {
        let Some(source) = &self.source else { return false };
        self.buffer.reserve(self.size);
        match rustix::io::read(source, spare_capacity(&mut self.buffer)) {
            Err(Errno::AGAIN | Errno::INTR) => return false,
            Ok(0) | Err(_) => self.source = None,
            Ok(count) if count < self.size => {}
            Ok(_) => {
                if !self.wide {
                    // Best effort: a user's pipes have a common limit.
                    let _ = fcntl_setpipe_size(source, WIDE);
                    self.wide = true;
                }
                self.size = LARGE;
            }
        }
        true
    }

    fn write(&mut self) -> Result<usize, Errno> {
        let rest = &self.buffer[self.written..];
        if self.sink == Sink::Pipe {
            let now = ReadWriteFlags::NOWAIT;
            match rustix::io::pwritev2(self.target(), &[IoSlice::new(rest)], u64::MAX, now) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::SPIPE | Errno::INVAL) => {
                    self.sink = Sink::Other;
                }
                result => return result,
            }
        }
        let most = if self.sink == Sink::File { rest.len() } else { PIECE };
        rustix::io::write(self.target(), &rest[..rest.len().min(most)])
    }

    /// What was read has been written, or never will be: it goes to the log.
    fn pass_on(&mut self, log: &mut Spool) {
        self.written = 0;
        if !self.buffer.is_empty() {
            self.buffer = log.add(self.stream, std::mem::take(&mut self.buffer));
            self.buffer.clear();
        }
    }
}

impl Sink {
    fn of(target: BorrowedFd<'_>) -> Self {
        let mode = rustix::fs::fstat(target).map(|stat| FileType::from_raw_mode(stat.st_mode));
        match mode {
            Ok(FileType::RegularFile | FileType::BlockDevice) => Self::File,
            Ok(FileType::CharacterDevice) if !isatty(target) => Self::File,
            Ok(FileType::Fifo) => Self::Pipe,
            _ => Self::Other,
        }
    }
}
