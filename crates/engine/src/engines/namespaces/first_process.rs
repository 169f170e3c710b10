//! The program's process: makes the container's world, and becomes the program or the init above
//! it.

use super::run::{PidNamespace, Way};
use super::{execute, identity, tree};
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
}

/// What the forked process does: waits until it may go on, makes its world, and becomes the program
/// or the init above it.
pub(super) fn run(way: &Way<'_>, first: First<'_>) -> ! {
    let First { gate, sender, turn } = first;
    let mut byte = [0];
    if !matches!(std::fs::File::from(gate).read(&mut byte), Ok(1)) {
        exit_now(i32::from(FAILED));
    }
    if way.ties.tied {
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    }
    if way.plan.init && way.fresh {
        with_init(way, sender, turn);
    }
    let held = [Some(sender.as_fd()), Some(turn.as_fd())];
    let Err(error) = become_program(way, held);
    exit_now(sender.failed(&error));
}

/// Stays as the container's init; the program is a child.
fn with_init(way: &Way<'_>, sender: &mut StatusSender, turn: OwnedFd) -> ! {
    if matches!(way.pid_namespace, PidNamespace::Same) {
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
    close_ways_out(way, [Some(sender.as_fd()), Some(turn.as_fd())]);
    let forked = make_world(way.plan).and_then(|()| {
        let renewed = way.plan.isolate.then(UntilRenewed::new).transpose()?;
        Ok((fork::child_of_one_thread()?, renewed))
    });
    let error = match forked {
        Ok((ForkResult::Parent(main), renewed)) => {
            drop(turn);
            init::stay(main, renewed, || execute::restrain(way.plan));
        }
        Ok((ForkResult::Child, renewed)) => {
            if let Some(renewed) = renewed {
                renewed.wait();
            }
            let Err(error) = finish(way);
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
    held: [Option<BorrowedFd<'_>>; 2],
) -> Result<Infallible> {
    close_ways_out(way, held);
    if way.fresh {
        make_world(way.plan)?;
    }
    finish(way)
}

/// Closes what a name of the image could lead through, but for `held`.
///
/// Where the container is no boundary, what the caller lets his programs inherit passes on to this
/// one, so only what the engine has opened is closed, each by its owner. The caller's own files are
/// no secret from a program that has his rights.
fn close_ways_out(way: &Way<'_>, held: [Option<BorrowedFd<'_>>; 2]) {
    if !way.plan.isolate {
        return;
    }
    // Processes that live in the container already see this one, and may be allowed to trace.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let socket = [way.ties.terminal.socket()];
    let kept: Vec<_> = held.into_iter().chain(socket).flatten().collect();
    sys::process::close_others(&kept);
}

/// Makes the container's tree, sets its host name and its loopback interface up.
fn make_world(plan: &Plan) -> Result<()> {
    let sources = tree::open_sources(plan)?;
    let seen = identity::Seen::open(plan)?;
    tree::enter_root(plan)?;
    tree::mount_all(plan, &sources)?;
    if let Some(seen) = seen {
        seen.mount();
    }
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

fn finish(way: &Way<'_>) -> Result<Infallible> {
    way.ties.terminal.take(way.plan, way.fresh)?;
    execute::execute(way.plan, &way.program, way.ties.tied, way.fresh)
}
