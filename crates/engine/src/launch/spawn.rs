//! Starts a program in a forked process, and waits until it runs or has failed.
//!
//! The fastest fork copies nothing: the new process borrows the memory of the one that waits.

use super::report::{self, StatusSender};
use super::streams::{Child, Streams, apply};
use super::terminal::{Pty, Terminal};
use super::{descriptor, fork};
use crate::error::{Error, Result};
use crate::exit::{Ended, FAILED};
use rustix::process::{Pid, PidfdFlags};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use sys::fork::ForkResult;
use sys::fork::exit_now;

/// How a program's process stands to the process that started it.
#[derive(Debug, Default)]
pub(crate) struct Ties {
    /// It dies with its parent.
    pub(crate) tied: bool,
    /// Its terminal.
    pub(crate) terminal: Terminal,
}

/// Forks a process that starts a program: `begin` runs in it, and either becomes the program or
/// sends the number of the process that does. A failure that it returns is sent on.
///
/// With [`Streams::borrows`] `begin` must not stay: this process waits until it has ended or
/// executed a program.
///
/// The caller must have one thread.
pub(crate) fn spawn(
    pty: Pty,
    streams: Streams<'_>,
    begin: impl FnOnce(Ties, &mut StatusSender) -> Result<Ended> + Copy,
) -> Result<Child> {
    let (mut sender, mut receiver) = report::pipe()?;
    let Pty { terminal, master } = pty;
    let child = if streams.borrows && matches!(terminal, Terminal::Inherited) {
        let status = sender.as_fd();
        // What the child drops stays open here, so it has one of its own.
        let work = || match status.try_clone_to_owned() {
            Ok(status) => in_child(streams, Terminal::Inherited, &mut status.into(), begin),
            Err(_) => i32::from(FAILED),
        };
        fork::borrowing_child(work)?
    } else {
        match fork::child()? {
            ForkResult::Parent(pid) => pid,
            ForkResult::Child => {
                sys::prefault::forked();
                drop((receiver, master));
                exit_now(in_child(streams, terminal, &mut sender, begin));
            }
        }
    };
    drop((sender, terminal));
    let pid = match receiver.outcome() {
        Ok(None) => child,
        Ok(Some(pid)) => {
            // The child was only a step on the way to its sibling.
            let _ = fork::wait(child);
            Pid::from_raw(pid as i32).ok_or_else(|| Error::Vanished("no process".into()))?
        }
        Err(error) => {
            let _ = fork::wait(child);
            return Err(error);
        }
    };
    // Kernels before 5.3 have none.
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok();
    let master = master.as_ref().and_then(descriptor::receive);
    Ok(Child { pid: pid.as_raw_nonzero().get() as u32, pidfd, master })
}

/// What the new process does; the code that it ends with, if it does not become the program.
fn in_child(
    streams: Streams<'_>,
    terminal: Terminal,
    sender: &mut StatusSender,
    begin: impl FnOnce(Ties, &mut StatusSender) -> Result<Ended>,
) -> i32 {
    let started = catch_unwind(AssertUnwindSafe(|| {
        apply(streams)?;
        begin(Ties { tied: streams.tied, terminal }, sender)
    }));
    match started {
        Ok(Ok(ended)) => ended.code(),
        Ok(Err(error)) => sender.failed(&error),
        Err(_) => i32::from(FAILED),
    }
}

/// As [`spawn`], where another program starts the container's: `begin` gives the number of the
/// process that it started.
pub(crate) fn spawn_elsewhere(
    pty: Pty,
    streams: Streams<'_>,
    begin: impl FnOnce(Ties, &mut StatusSender) -> Result<u32> + Copy,
) -> Result<Child> {
    let streams = Streams { borrows: false, ..streams };
    spawn(pty, streams, |ties, sender| {
        let pid = begin(ties, sender)?;
        sender.process(pid);
        Ok(Ended::Code(0))
    })
}
