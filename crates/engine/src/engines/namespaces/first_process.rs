//! The program's process: makes the container's world, and becomes the program or the init above
//! it.

use super::run::{PidNamespace, Way};
use super::{emulate, execute, tree};
use crate::error::{Error, Result};
use crate::exit::FAILED;
use crate::launch::fork;
use crate::launch::init::{self, UntilRenewed};
use crate::launch::report::StatusSender;
use crate::plan::{Plan, Source};
use rustix::process::{DumpableBehavior, Signal};
use std::convert::Infallible;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use sys::fork::ForkResult;
use sys::fork::exit_now;

/// What the forked process is given.
pub(super) struct First<'a> {
    /// Readable when it may go on.
    pub(super) gate: OwnedFd,
    pub(super) sender: &'a mut StatusSender,
    /// Held until the program is executed.
    pub(super) turn: OwnedFd,
    pub(super) notifier: Option<emulate::Notifier>,
}

/// What the forked process does: waits until it may go on, makes its world, and becomes the program
/// or the init above it.
pub(super) fn run(way: &Way<'_>, first: First<'_>) -> ! {
    let First { gate, sender, turn, notifier } = first;
    let mut byte = [0];
    if !matches!(std::fs::File::from(gate).read(&mut byte), Ok(1)) {
        exit_now(i32::from(FAILED));
    }
    if way.ties.tied {
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    }
    if way.plan.init && way.fresh {
        with_init(way, sender, turn, notifier);
    }
    let held = [Some(sender.as_fd()), Some(turn.as_fd())];
    let Err(error) = become_program(way, notifier, held);
    exit_now(sender.failed(&error));
}

/// Stays as the container's init; the program is a child.
fn with_init(
    way: &Way<'_>,
    sender: &mut StatusSender,
    turn: OwnedFd,
    notifier: Option<emulate::Notifier>,
) -> ! {
    if matches!(way.pid_namespace, PidNamespace::Same) {
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
    close_ways_out(way, notifier.as_ref(), [Some(sender.as_fd()), Some(turn.as_fd())]);
    let forked = make_world(way.plan).and_then(|()| {
        let renewed = way.plan.isolate.then(UntilRenewed::new).transpose()?;
        Ok((fork::child_of_one_thread()?, renewed))
    });
    let error = match forked {
        Ok((ForkResult::Parent(main), renewed)) => {
            drop((turn, notifier));
            init::stay(main, renewed, || execute::restrain(way.plan));
        }
        Ok((ForkResult::Child, renewed)) => {
            if let Some(renewed) = renewed {
                renewed.wait();
            }
            let Err(error) = finish(way, notifier);
            error
        }
        Err(error) => error,
    };
    exit_now(sender.failed(&error));
}

/// Makes the world where it is new, and becomes the program; returns only where that fails. `held`
/// stays open until then.
pub(super) fn become_program(
    way: &Way<'_>,
    notifier: Option<emulate::Notifier>,
    held: [Option<BorrowedFd<'_>>; 2],
) -> Result<Infallible> {
    close_ways_out(way, notifier.as_ref(), held);
    if way.fresh {
        make_world(way.plan)?;
    }
    finish(way, notifier)
}

/// Closes what a name of the image could lead through, but for `held`.
///
/// Where the container is no boundary, what the caller lets his programs inherit passes on to this
/// one, so only what the engine has opened is closed, each by its owner. The caller's own files are
/// no secret from a program that has his rights.
fn close_ways_out(
    way: &Way<'_>,
    notifier: Option<&emulate::Notifier>,
    held: [Option<BorrowedFd<'_>>; 2],
) {
    if !way.plan.isolate {
        return;
    }
    // Processes that live in the container already see this one, and may be allowed to trace.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let sockets = [notifier.map(AsFd::as_fd), way.ties.terminal.socket()];
    let kept: Vec<_> = held.into_iter().chain(sockets).flatten().collect();
    sys::process::close_others(&kept);
}

/// Makes the container's tree, sets its host name and its loopback interface up.
fn make_world(plan: &Plan) -> Result<()> {
    let sources = tree::open_sources(plan)?;
    tree::enter_root(plan)?;
    tree::mount_all(plan, &sources)?;
    tree::leave_host()?;
    drop(sources);
    if let Some(name) = &plan.hostname {
        rustix::system::sethostname(name.as_bytes())
            .map_err(|errno| Error::call(format!("set the host name to {name}"), errno))?;
    }
    if plan.namespaces.net == Source::New {
        sys::link::loopback_up().map_err(|errno| Error::call("set the interface lo up", errno))?;
    }
    Ok(())
}

fn finish(way: &Way<'_>, notifier: Option<emulate::Notifier>) -> Result<Infallible> {
    way.ties.terminal.take(way.plan, way.fresh)?;
    execute::execute(way.plan, &way.program, way.ties.tied, notifier)
}
