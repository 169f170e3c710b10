//! The first process of a container that another program has made: Coracle, called with [`WORD`].
//!
//! It runs in the container's namespaces and root with the capabilities of root. It has these
//! descriptors from 3 on: its own file, the pipe for its report, its instructions, the gate, the
//! caller's streams, and a socket for the terminal's master side. When the gate opens, the other
//! program has ended, and the process is a child of the one that will wait for it.

use crate::engines::Engine;
use crate::engines::namespaces::assistant::{map_error, maps};
use crate::engines::namespaces::execute;
use crate::engines::namespaces::leave::unshare;
use crate::error::{Error, Result};
use crate::exit::FAILED;
use crate::launch::init::{self, UntilRenewed};
use crate::launch::report::StatusSender;
use crate::launch::terminal::Terminal;
use crate::launch::{file_limit, fork, program};
use crate::plan::{Ids, Plan};
use rustix::fs::Mode as Permissions;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use sys::fork::ForkResult;
use sys::namespace::Kinds;
use sys::process::FIRST;

/// The word by which this program knows that it is called in a container.
pub const WORD: &str = "_in-container";

/// How many descriptors it expects.
pub(super) const EXPECTED: usize = 8;
/// The least number of what is not the program's.
const ASIDE: i32 = 512;

/// What the first process is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Instructions {
    /// The name of the engine that runs the program here; `None` for no other.
    pub(super) engine: Option<String>,
    /// Its starter will be ended: it sends its own number, and stays.
    pub(super) reports: bool,
    /// It dies with its parent.
    pub(super) tied: bool,
    /// It has a terminal; `true`: one of the container's own.
    pub(super) terminal: Option<bool>,
    /// The numbers of descriptors that come after the expected ones.
    pub(super) inherited: Vec<u32>,
    pub(super) umask: u32,
    /// The caller's soft limit of file sizes.
    pub(super) file_limit: Option<u64>,
    pub(super) plan: Plan,
}

fn call(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::call(doing, errno)
}

/// How an engine is found by its name.
type ByName = fn(&str) -> Option<&'static dyn Engine>;

/// Becomes the program; returns the exit code of a failure, which has been reported.
pub(crate) fn be_first(by_name: ByName) -> u8 {
    let Ok(descriptors) = sys::process::taken_over(FIRST, EXPECTED) else { return FAILED };
    let Ok(descriptors) = <[OwnedFd; EXPECTED]>::try_from(descriptors) else { return FAILED };
    let [program, report, instructions, gate, stdin, stdout, stderr, socket] = descriptors;
    drop(program);
    // To a number that the caller's descriptors will not need, if that many may be open.
    let report = rustix::io::fcntl_dupfd_cloexec(&report, ASIDE).unwrap_or(report);
    let mut sender = StatusSender::from(report);
    let go = || -> Result<u8> {
        let moved = call("take the streams");
        rustix::stdio::dup2_stdin(&stdin).map_err(&moved)?;
        rustix::stdio::dup2_stdout(&stdout).map_err(&moved)?;
        rustix::stdio::dup2_stderr(&stderr).map_err(&moved)?;
        drop((stdin, stdout, stderr));
        let mut text = Vec::new();
        let _ = std::fs::File::from(instructions).read_to_end(&mut text);
        let instructions: Instructions = serde_json::from_slice(&text)
            .map_err(|error| Error::Vanished(format!("instructions: {error}")))?;
        if instructions.reports {
            let _ = rustix::process::set_parent_process_death_signal(None);
            sender.process(std::process::id());
        }
        let mut byte = [0];
        if !matches!(std::fs::File::from(gate).read(&mut byte), Ok(1)) {
            return Ok(FAILED);
        }
        let further = FIRST + EXPECTED as u32;
        let inherited = sys::process::taken_over(further, instructions.inherited.len());
        let inherited = inherited.map_err(call("take the descriptors"))?;
        let numbers = instructions.inherited.clone();
        let inherited: Vec<_> = numbers.into_iter().zip(inherited).collect();
        // A runtime may have left a descriptor of the host open (as `runc` before 1.1.12), and a
        // name in the image could lead through it.
        let kept = inherited.iter().map(|(_, descriptor)| descriptor.as_fd());
        let kept: Vec<_> = kept.chain([sender.as_fd(), socket.as_fd()]).collect();
        sys::process::close_others(&kept);
        follow(instructions, socket, inherited, by_name)
    };
    match go() {
        Ok(code) => code,
        Err(error) => sender.failed(&error) as u8,
    }
}

fn follow(
    instructions: Instructions,
    socket: OwnedFd,
    inherited: Vec<(u32, OwnedFd)>,
    by_name: ByName,
) -> Result<u8> {
    let Instructions { engine, mut tied, terminal, umask, file_limit, mut plan, .. } = instructions;
    rustix::process::umask(Permissions::from_bits_retain(umask));
    file_limit.inspect(|limit| file_limit::remember(*limit));
    let kill = || {
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    };
    if tied {
        kill();
    }
    let terminal = match terminal {
        None => Terminal::Inherited,
        Some(false) => Terminal::Given,
        Some(true) => Terminal::Own(socket),
    };
    terminal.take(&plan, true)?;
    drop(terminal);
    let pairs: Vec<_> = inherited.iter().map(|(number, from)| (*number, from.as_fd())).collect();
    sys::process::hand_over(&pairs).map_err(call("pass descriptors on"))?;
    // Their numbers may belong to passed descriptors now, so they are not closed.
    std::mem::forget(inherited);
    let ready = engine.is_none().then(|| program::ready(&plan.process)).transpose()?;
    if std::mem::take(&mut plan.init) {
        with_init(&plan)?;
        tied = true;
        kill();
    }
    if let Some(ready) = ready {
        become_user(&plan)?;
        let Err(error) = execute::execute_alone(&plan, &ready, tied);
        return Err(error);
    }
    if !plan.emulate_root {
        become_user(&plan)?;
        execute::bound(0)?;
        // The loader opens its program through the tracer's descriptors. The kernel hides those of
        // a process that changed its ids or has capabilities.
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, none)
            .and_then(|()| rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable))
            .map_err(call("be as able as the program"))?;
        if tied {
            // A change of ids resets it.
            kill();
        }
    }
    let name = engine.unwrap_or_default();
    let engine =
        by_name(&name).ok_or_else(|| Error::Vanished(format!("instructions: engine {name}")))?;
    engine.become_guest(&plan, &mut || {}).map(|ended| ended.code() as u8)
}

/// Stays as the container's init; returns in the child that becomes the program.
fn with_init(plan: &Plan) -> Result<()> {
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let renewed = plan.isolate.then(UntilRenewed::new).transpose()?;
    match fork::child_of_one_thread()? {
        ForkResult::Child => {
            if let Some(renewed) = renewed {
                renewed.wait();
            }
            Ok(())
        }
        ForkResult::Parent(main) => init::stay(main, renewed, || execute::restrain(plan)),
    }
}

/// Gives the process the program's user: the runtime needed root.
fn become_user(plan: &Plan) -> Result<()> {
    if let Ids::Single { uid, gid } = &plan.ids
        && (uid.inside, gid.inside) != (0, 0)
    {
        unshare(Kinds::USER)?;
        maps(&plan.ids).write_own().map_err(|error| map_error(&plan.ids, error))?;
    }
    Ok(())
}
