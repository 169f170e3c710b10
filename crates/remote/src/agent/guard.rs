//! The process that waits for the agent's end and then ends what is left.
//!
//! Either of the two may be killed at any moment, so neither leaves the work to the other and goes:
//! an agent that has served tells the guard so, and stays until the guard has done all. A guard
//! that was killed is not always seen as dead at once, and it may be killed later.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, WaitOptions, waitpid};
use sys::event::{MaskGuard, SignalFd, SignalSet};
use sys::fork::ForkResult;

use super::Error;
use super::ending::{ASKED, Exit, Note, Rest};

/// SIGCHLD.
const CHILD: i32 = 17;

/// The agent's end of the connection.
#[derive(Debug)]
pub(super) struct ToGuard(OwnedFd);

impl ToGuard {
    /// Of this socket.
    #[cfg(test)]
    pub(super) const fn of(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Tells something. A guard that is gone is noticed by the signal that its end causes.
    pub(super) fn tell(&self, note: &Note) {
        let bytes = note.pack();
        // A full socket waits for the guard, which does nothing but read.
        while rustix::net::send(&self.0, &bytes, SendFlags::NOSIGNAL) == Err(Errno::INTR) {}
    }
}

impl AsFd for ToGuard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What the agent gets of the guard.
pub(super) struct Ends {
    /// The guard's process.
    pub(super) guard: Pid,
    /// Where notes go.
    pub(super) to_guard: ToGuard,
    /// The signals of this process.
    pub(super) signals: SignalFd,
}

impl Ends {
    /// Has the guard do what is to be done at the end, and waits for it. False if the guard is gone
    /// before that.
    pub(super) fn finish(&self) -> bool {
        self.to_guard.tell(&Note::Over);
        loop {
            let mut ready = [
                PollFd::new(&self.to_guard, PollFlags::IN),
                PollFd::new(&self.signals, PollFlags::IN),
            ];
            let _ = poll(&mut ready, None);
            while let Ok(Some(received)) = self.signals.next() {
                // The guard's end sends one, too.
                if ASKED.contains(&received.number)
                    && rustix::process::getppid() == Some(self.guard)
                {
                    let _ = rustix::process::kill_process(self.guard, Signal::TERM);
                }
            }
            match rustix::net::recv(&self.to_guard, &mut [0; 1][..], RecvFlags::DONTWAIT) {
                Ok((count, _)) => return count > 0,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

/// Blocks the signals that both processes take by descriptor. Programs get an empty mask from
/// [`sys::child`].
fn signals() -> Result<(MaskGuard, SignalFd), Error> {
    let set = SignalSet::of(&[&ASKED[..], &[CHILD]].concat());
    let mask = MaskGuard::block(set).map_err(Error::start("block signals"))?;
    let signals = SignalFd::new(set).map_err(Error::start("take signals"))?;
    Ok((mask, signals))
}

/// Runs the agent in a child and waits for its end; returns in both processes.
pub(super) fn guarded(agent: impl FnOnce(Ends) -> Result<(), Error>) -> Result<Exit, Error> {
    let (near, far) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(Error::start("connect the guard"))?;
    let (_mask, signals) = signals()?;
    rustix::process::set_child_subreaper(Some(Pid::INIT))
        .map_err(Error::start("become the parent of orphans"))?;
    let guard = rustix::process::getpid();
    match sys::fork::fork().map_err(Error::start("start the guard"))? {
        ForkResult::Child => {
            drop(near);
            rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
                .map_err(Error::start("ask for the guard's end"))?;
            if rustix::process::getppid() != Some(guard) {
                return Ok(Exit::Inner);
            }
            agent(Ends { guard, to_guard: ToGuard(far), signals })?;
            Ok(Exit::Inner)
        }
        ForkResult::Parent(child) => {
            drop((far, agent));
            let rest = wait(child, &near, &signals);
            let exit = rest.finish(&signals);
            // The agent goes now, and before this process: who waits for this one has waited for
            // both.
            let _ = rustix::net::send(&near, &[0], SendFlags::NOSIGNAL);
            let _ = rustix::io::retry_on_intr(|| waitpid(Some(child), WaitOptions::empty()));
            Ok(exit)
        }
    }
}

/// Reads notes until the agent has served or has ended.
fn wait(agent: Pid, notes: &OwnedFd, signals: &SignalFd) -> Rest {
    let mut rest = Rest::default();
    let mut buffer = vec![0; 64 << 10];
    let mut reaped = false;
    loop {
        let mut ready = [PollFd::new(notes, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        if poll(&mut ready, None).is_err() {
            continue;
        }
        while let Ok(Some(received)) = signals.next() {
            if ASKED.contains(&received.number) {
                rest.note(Note::Asked);
                let _ = rustix::process::kill_process(agent, Signal::TERM);
            }
        }
        // Orphans of programs, and at last the agent.
        while let Ok(Some((pid, _))) = rustix::process::wait(WaitOptions::NOHANG) {
            reaped |= pid == agent;
        }
        loop {
            match rustix::net::recv(notes, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    if !reaped {
                        let _ = waitpid(Some(agent), WaitOptions::empty());
                    }
                    return rest;
                }
                Ok((count, _)) => match Note::unpack(&buffer[..count]) {
                    Some(Note::Over) => return rest,
                    Some(note) => rest.note(note),
                    None => {}
                },
                Err(Errno::INTR) => {}
                // The agent holds the other end while it lives.
                Err(_) => break,
            }
        }
    }
}
