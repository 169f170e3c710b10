//! A program that the driver has started: its pipes, its queues and its end.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Stdio};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

use super::ending::{Note, STARTING};
use super::guard::ToGuard;
use crate::wire::messages::{Ended, Start};
use crate::wire::{Error, Kind, PIECE, WINDOW};

/// A program and what is left of it.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// Its process, group and session.
    pub(super) pid: Pid,
    stdin: Option<OwnedFd>,
    input: VecDeque<u8>,
    input_ends: bool,
    /// Bytes of input that were taken and not yet told.
    taken: usize,
    /// Standard output and error; `None` when they have ended.
    outputs: [Option<OwnedFd>; 2],
    /// Bytes that the driver still takes.
    window: usize,
    ended: Option<Ended>,
}

impl Process {
    /// Starts a program, whose process tells the guard of itself.
    ///
    /// # Errors
    /// The reason, with the program's name.
    pub(super) fn start(request: Start, guard: &ToGuard) -> Result<Self, String> {
        let mut command = super::command(&request.words).ok_or("no program is given")?;
        let input = if request.input { Stdio::piped() } else { Stdio::null() };
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, value) in request.variables {
            if name.is_empty() || name.contains('=') {
                return Err(format!("{name:?} is not a name of a variable"));
            }
            command.env(name, value);
        }
        if let Some(directory) = &request.directory {
            if !directory.is_dir() {
                return Err(format!("{} is not a directory", directory.display()));
            }
            command.current_dir(directory);
        }
        sys::child::apart(&mut command, Some(Signal::TERM));
        let failed = |error| format!("cannot start {}: {error}", request.words[0]);
        sys::child::announced(&mut command, guard.as_fd(), STARTING).map_err(failed)?;
        let spawned = command.spawn();
        if spawned.is_err() {
            guard.tell(&Note::NotStarted);
        }
        let mut child = spawned.map_err(failed)?;
        let pid = Pid::from_child(&child);
        let stdin = child.stdin.take().map(OwnedFd::from);
        let outputs =
            [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        for pipe in outputs.iter().chain([&stdin]).flatten() {
            let _ = rustix::io::ioctl_fionbio(pipe, true);
        }
        Ok(Self {
            child,
            pid,
            stdin,
            input: VecDeque::new(),
            input_ends: false,
            taken: 0,
            outputs,
            window: WINDOW,
            ended: None,
        })
    }

    /// Takes input of the driver.
    ///
    /// # Errors
    /// [`Error::Credit`] if it is more than was allowed.
    pub(super) fn feed(&mut self, id: u32, bytes: &[u8]) -> Result<(), Error> {
        if self.input.len() + self.taken + bytes.len() > WINDOW {
            return Err(Error::Credit(id));
        }
        if self.stdin.is_some() {
            self.input.extend(bytes);
        } else {
            // Nobody reads it any more.
            self.taken += bytes.len();
        }
        Ok(())
    }

    /// The driver sends no more.
    pub(super) fn close_input(&mut self) {
        self.input_ends = true;
        self.end_input();
    }

    fn end_input(&mut self) {
        if self.input_ends && self.input.is_empty() {
            self.stdin = None;
        }
    }

    /// The driver has taken output.
    pub(super) fn credit(&mut self, count: usize) {
        self.window = (self.window + count).min(WINDOW);
    }

    /// The pipe that takes input, if some is waiting.
    pub(super) fn wants_input(&self) -> Option<BorrowedFd<'_>> {
        self.stdin.as_ref().filter(|_| !self.input.is_empty()).map(AsFd::as_fd)
    }

    /// The pipes that can be read now.
    pub(super) fn wants_output(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.outputs.iter().flatten().filter(|_| self.window > 0).map(AsFd::as_fd)
    }

    /// Writes input that is waiting. Gives the number of bytes to tell the driver, if it is worth
    /// a message.
    pub(super) fn push_input(&mut self) -> Option<usize> {
        while let (Some(stdin), false) = (&self.stdin, self.input.is_empty()) {
            match rustix::io::write(stdin, self.input.as_slices().0) {
                Ok(count) => {
                    self.input.drain(..count);
                    self.taken += count;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    self.taken += self.input.len();
                    self.input = VecDeque::new();
                    self.stdin = None;
                }
            }
        }
        self.end_input();
        (self.taken >= WINDOW / 4).then(|| std::mem::take(&mut self.taken))
    }

    /// Reads at most one piece of each output.
    pub(super) fn pull_output(&mut self, buffer: &mut [u8], mut give: impl FnMut(Kind, &[u8])) {
        for (output, kind) in self.outputs.iter_mut().zip([Kind::Output, Kind::Errors]) {
            let most = self.window.min(PIECE).min(buffer.len());
            let Some(pipe) = output.as_ref().filter(|_| most > 0) else { continue };
            match rustix::io::read(pipe, &mut buffer[..most]) {
                Ok(0) => *output = None,
                Ok(count) => {
                    self.window -= count;
                    give(kind, &buffer[..count]);
                }
                // What it wrote before its end has been read. Who else holds the pipe is not
                // waited for.
                Err(Errno::AGAIN) if self.ended.is_some() => *output = None,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => *output = None,
            }
        }
    }

    /// Looks whether the program has ended, and then ends what it left in its session. Returns true
    /// the first time.
    pub(super) fn look(&mut self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::Pid(self.pid), options), Ok(None)) {
            return false;
        }
        // Until it is reaped, its number is nobody else's.
        let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        for _ in 0..20 {
            let left = sys::child::session(self.pid);
            if left.is_empty() {
                break;
            }
            for pid in left {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        self.ended = Some(match self.child.wait() {
            Ok(status) => match status.signal() {
                Some(number) => Ended::Signal(number),
                None => Ended::Code(status.code().unwrap_or(255)),
            },
            Err(_) => Ended::Code(255),
        });
        self.stdin = None;
        self.taken += self.input.len();
        self.input = VecDeque::new();
        true
    }

    /// Sends a signal to the group.
    ///
    /// # Errors
    /// The reason; none if it has ended.
    pub(super) fn signal(&self, number: i32) -> std::io::Result<()> {
        if self.ended.is_some() {
            return Ok(());
        }
        sys::event::send_signal_to_group(self.pid, number)
    }

    /// How it ended, when all output has been given.
    pub(super) fn over(&self) -> Option<Ended> {
        self.ended.filter(|_| self.outputs.iter().all(Option::is_none))
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

    use super::*;

    /// The agent may be killed at any moment, also before it has learned that a program has begun.
    #[test]
    fn a_process_announces_itself() {
        let (near, far) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        let far = ToGuard::of(far);
        let note = || {
            let mut packet = [0; 16];
            let (count, _) = recv(&near, &mut packet[..], RecvFlags::DONTWAIT).ok()?;
            Note::unpack(&packet[..count])
        };
        let mut process = Process::start(Start::new(["true"]), &far).unwrap();
        let pid = process.pid.as_raw_nonzero().get();
        assert!(matches!(note(), Some(Note::Starting(told)) if told == pid));
        assert!(note().is_none());
        process.child.wait().unwrap();
        Process::start(Start::new(["/no/such/program"]), &far).unwrap_err();
        assert!(matches!(note(), Some(Note::Starting(_))));
        assert!(matches!(note(), Some(Note::NotStarted)));
    }
}
