//! The program in node containers that runs a command in the container of another node.
//!
//! One loop moves the streams. Descriptors that the caller has given may be shared with others, so
//! they are left as they are: at most [`ATOMIC`] bytes are written, and only when the kernel says
//! that they can be.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use remote::wire::frames::{self, Decoder, Frame};
use remote::wire::messages::{Ended, number};
use remote::wire::{self, Kind, PIECE, WINDOW};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sys::event::{MaskGuard, SignalFd, SignalSet};

use super::serve::push;
use super::{Request, VARIABLE};
use crate::error::{Error, Result};

/// A pipe that can be written takes so much without waiting (`PIPE_BUF`).
const ATOMIC: usize = 4096;
/// SIGHUP, SIGINT, SIGQUIT, SIGTERM: they are sent to the command, but for those that are ignored.
const PASSED_ON: [i32; 4] = [1, 2, 3, 15];
/// The command gets so long to end after such a signal.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs a command by the door at `path`, on this process's streams. Returns its exit status. A
/// signal that ends the command, or after which it does not end at once, ends this process, too.
///
/// # Errors
/// If there is no door, the node is not there, or one of them is lost.
pub fn rsh(request: &Request, path: Option<&Path>) -> Result<u8> {
    let Some(path) = path else {
        return Err(Error::new(format!(
            "{VARIABLE} is not set: only what [run] of a cluster starts can reach other nodes"
        )));
    };
    let failed = |error: io::Error| Error::new(format!("cannot reach the driver: {error}"));
    let is_wanted = |number: &i32| !sys::event::is_ignored(*number).unwrap_or(false);
    let numbers: Vec<i32> = PASSED_ON.into_iter().filter(is_wanted).collect();
    let set = SignalSet::of(&numbers);
    let _blocked = MaskGuard::block(set).map_err(failed)?;
    let signals = SignalFd::new(set).map_err(failed)?;
    let socket = UnixStream::connect(path).map_err(|error| {
        Error::new(format!("cannot reach the driver by {}: {error}", path.display()))
    })?;
    socket.set_nonblocking(true).map_err(failed)?;
    let mut out = VecDeque::new();
    frames::append(&mut out, Kind::Start, 0, &request.pack()).map_err(damaged)?;
    let mut client = Client {
        socket,
        out,
        decoder: Decoder::default(),
        input: request.input,
        window: WINDOW,
        outputs: [VecDeque::new(), VecDeque::new()],
        taken: 0,
        end: None,
        ended_by: None,
    };
    let ended = client.run(&signals);
    if let (Ok(status), Some((number, _))) = (&ended, client.ended_by)
        && i32::from(*status) == 128 + number
    {
        // A shell does not go on then.
        let _ = sys::event::raise_default(number);
    }
    ended
}

fn damaged(error: impl std::fmt::Display) -> Error {
    Error::new(format!("the driver's stream is damaged: {error}"))
}

struct Client {
    socket: UnixStream,
    /// For the driver.
    out: VecDeque<u8>,
    decoder: Decoder,
    /// Standard input has not ended.
    input: bool,
    /// Bytes of input that the command still takes.
    window: usize,
    /// For standard output and standard error.
    outputs: [VecDeque<u8>; 2],
    /// Bytes of output that were written and not yet told.
    taken: usize,
    end: Option<Result<u8>>,
    /// The signal that is to end the command, and until when it may.
    ended_by: Option<(i32, Instant)>,
}

/// What is polled.
#[derive(Clone, Copy)]
enum Place {
    Signals,
    Input,
    Socket,
    Output(usize),
}

fn output(index: usize) -> BorrowedFd<'static> {
    if index == 0 { rustix::stdio::stdout() } else { rustix::stdio::stderr() }
}

impl Client {
    fn run(&mut self, signals: &SignalFd) -> Result<u8> {
        let mut buffer = vec![0; PIECE];
        loop {
            if self.outputs.iter().all(VecDeque::is_empty)
                && let Some(end) = self.end.take()
            {
                return end;
            }
            for place in self.wait(signals) {
                match place {
                    Place::Signals => self.signalled(signals)?,
                    Place::Input => self.read_input(&mut buffer),
                    Place::Socket => self.exchange(&mut buffer)?,
                    Place::Output(index) => self.write_output(index)?,
                }
            }
            if let Some((number, until)) = self.ended_by
                && Instant::now() >= until
            {
                return Ok(128 + number as u8);
            }
        }
    }

    fn wait(&self, signals: &SignalFd) -> Vec<Place> {
        let mut places = vec![Place::Signals];
        let mut wanted = vec![PollFd::new(signals, PollFlags::IN)];
        let mut add = |place, fd, flags| {
            places.push(place);
            wanted.push(PollFd::from_borrowed_fd(fd, flags));
        };
        if self.input && self.window > 0 && self.out.len() < WINDOW && self.end.is_none() {
            add(Place::Input, rustix::stdio::stdin(), PollFlags::IN);
        }
        if self.end.is_none() {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, !self.out.is_empty());
            add(Place::Socket, self.socket.as_fd(), flags);
        }
        for index in [0, 1] {
            if !self.outputs[index].is_empty() {
                add(Place::Output(index), output(index), PollFlags::OUT);
            }
        }
        let left = self.ended_by.map(|(_, until)| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left + Duration::from_millis(1)).ok());
        let _ = poll(&mut wanted, left.as_ref());
        let ready = wanted.iter().map(|fd| !fd.revents().is_empty());
        places.into_iter().zip(ready).filter_map(|(place, ready)| ready.then_some(place)).collect()
    }

    /// Sends a signal to the command. The second one ends this program.
    fn signalled(&mut self, signals: &SignalFd) -> Result<()> {
        while let Ok(Some(signal)) = signals.next() {
            let now = Instant::now();
            let until = if self.ended_by.is_some() { now } else { now + PATIENCE };
            self.ended_by = Some((signal.number, until));
            self.tell(Kind::Signal, &signal.number.to_le_bytes())?;
        }
        Ok(())
    }

    fn tell(&mut self, kind: Kind, payload: &[u8]) -> Result<()> {
        frames::append(&mut self.out, kind, 0, payload).map_err(damaged)
    }

    fn read_input(&mut self, buffer: &mut [u8]) {
        let most = buffer.len().min(self.window);
        match rustix::io::read(rustix::stdio::stdin(), &mut buffer[..most]) {
            Ok(count) if count > 0 => {
                self.window -= count;
                // A piece has room in a frame.
                let _ = frames::append(&mut self.out, Kind::Input, 0, &buffer[..count]);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            _ => {
                self.input = false;
                let _ = frames::append(&mut self.out, Kind::CloseInput, 0, &[]);
            }
        }
    }

    /// Sends and takes what can be.
    fn exchange(&mut self, buffer: &mut [u8]) -> Result<()> {
        // The end of what the driver has said is still read where it reads no more.
        let _ = push(self.socket.as_fd(), &mut self.out);
        match rustix::io::read(&self.socket, &mut *buffer) {
            Ok(count) if count > 0 => self.take(&buffer[..count]),
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            _ => {
                self.end = Some(Err(Error::new("the driver of the cluster is lost")));
                Ok(())
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        self.decoder.feed(bytes);
        while let Some(Frame { kind, payload, .. }) = self.decoder.take().map_err(damaged)? {
            match kind {
                Kind::Output => self.outputs[0].extend(payload),
                Kind::Errors => self.outputs[1].extend(payload),
                Kind::Credit => {
                    let more = number(kind, &payload).map_err(damaged)? as usize;
                    self.window = self.window.saturating_add(more).min(WINDOW);
                }
                Kind::Ended => {
                    let ended = Ended::unpack(&payload).map_err(damaged)?;
                    self.end = Some(Ok(ended.exit_status()));
                }
                Kind::Refused => {
                    self.end = Some(Err(Error::new(String::from_utf8_lossy(&payload))));
                }
                kind => return Err(damaged(wire::Error::Unexpected(kind))),
            }
        }
        Ok(())
    }

    fn write_output(&mut self, index: usize) -> Result<()> {
        let bytes = &mut self.outputs[index];
        let piece = bytes.as_slices().0;
        let count = match rustix::io::write(output(index), &piece[..piece.len().min(ATOMIC)]) {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            // By the end of the connection the command loses its reader, too.
            Err(error) => return Err(Error::new(format!("cannot write the output: {error}"))),
        };
        bytes.drain(..count);
        self.taken += count;
        if self.taken >= WINDOW / 4 {
            let taken = std::mem::take(&mut self.taken) as u32;
            self.tell(Kind::Credit, &taken.to_le_bytes())?;
        }
        Ok(())
    }
}
