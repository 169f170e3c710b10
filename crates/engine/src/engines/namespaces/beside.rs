//! Processes that stay beside a container: how they are made, and how they learn of its end.

use crate::error::{Errno, Error, Result};
use crate::launch::members::by_namespace;
use crate::spec::ProcessId;
use rustix::process::{Pid, PidfdFlags, WaitOptions};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;
use sys::fork::ForkResult;

/// Forks a process that is no child of the caller, and runs `work` in it.
pub(super) fn detached(work: impl FnOnce()) -> Result<()> {
    let call = |errno: Errno| Error::Call { doing: "fork a watcher".into(), errno };
    match sys::fork::fork().map_err(|error| call(error.into()))? {
        ForkResult::Child => {
            // Away from the caller's session and from its wait: reparented when this child ends.
            let _ = sys::process::new_session();
            if matches!(sys::fork::fork(), Ok(ForkResult::Child)) {
                work();
            }
            sys::fork::exit_now(0);
        }
        ForkResult::Parent(child) => {
            let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
            Ok(())
        }
    }
}

/// Waits until the container is empty.
pub(super) fn outlive(place: &Path, first: u32) {
    Life::of(place, first).wait(None, None);
}

/// The life of a container, as a process beside it waits for its end: first for that of one
/// process, then for those that entered its namespaces meanwhile, and those that they leave behind.
pub(super) struct Life<'a> {
    place: &'a Path,
    next: Option<u32>,
}

/// What a wait has ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nobody lives in the container any more.
    Empty,
    /// The descriptor is readable, or its other end closed.
    Readable,
    /// The time is over.
    Late,
}

impl<'a> Life<'a> {
    /// That of a container in which a process lives.
    pub(super) fn of(place: &'a Path, first: u32) -> Self {
        Self { place, next: Some(first) }
    }

    /// Waits for its end, or for a descriptor, or for so long.
    pub(super) fn wait(&mut self, other: Option<BorrowedFd<'_>>, limit: Option<Duration>) -> Seen {
        while let Some(pid) = self.next.and_then(|pid| Pid::from_raw(pid as i32)) {
            let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty());
            // Before Linux 5.3 it is looked every second.
            let looks = matches!(pidfd, Err(rustix::io::Errno::NOSYS));
            let pidfd = pidfd.ok();
            if pidfd.is_some() || looks && rustix::process::test_kill_process(pid).is_ok() {
                let at_most =
                    limit.into_iter().chain(looks.then_some(Duration::from_secs(1))).min();
                let ends = first_of([pidfd.as_ref().map(AsFd::as_fd), other], at_most);
                match ends {
                    [_, true] => return Seen::Readable,
                    [false, false] if limit.is_some() => return Seen::Late,
                    [false, false] => continue,
                    [true, false] => {}
                }
            }
            let is_other = |process: &ProcessId| Some(process.pid) != self.next;
            let recorded = crate::records::living(self.place).into_iter().find(is_other);
            // What a program has left behind lives in the container, too.
            let left = || by_namespace::all(self.place).into_iter().find(is_other);
            self.next = recorded.or_else(left).map(|process| process.pid);
        }
        Seen::Empty
    }
}

/// Waits until one of these is readable or closed; which ones are.
fn first_of(files: [Option<BorrowedFd<'_>>; 2], limit: Option<Duration>) -> [bool; 2] {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let mut polled: Vec<_> =
        files.iter().flatten().map(|file| PollFd::new(file, PollFlags::IN)).collect();
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let _ = rustix::event::poll(&mut polled, limit.as_ref());
    let mut ready = polled.iter().map(|file| !file.revents().is_empty());
    files.map(|file| file.is_some() && ready.next().unwrap_or(false))
}
