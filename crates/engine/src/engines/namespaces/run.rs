//! Starts a program in new namespaces, or in those of a running container.
//!
//! Several starts at once: the turn (a lock in `run/`) is held from the look for members to the
//! `execve`. An overlay must not be mounted twice, so the start that comes second finds the first
//! one's process and enters its namespaces.
//!
//! Before the first name of the image is used, the program's process closes every descriptor
//! through which a name could lead out of the container ([`super::first_process`]): the links in
//! `/proc/self/fd` are names too. What has to stay open until the program runs is a pipe or a
//! socket, and the turn's file waits in the queue of one.

use super::assistant::Assistant;
use super::enter;
use super::first_process::{self, First};
use super::leave::{leave_host, unshare};
use super::links;
use crate::engines::Begun;
use crate::error::{Error, Result};
use crate::exit::Ended;
use crate::launch::etc_files::{give_to_root, write_all};
use crate::launch::report::{self, StatusSender};
use crate::launch::spawn::{Ties, spawn as spawn_with};
use crate::launch::streams::{Child, Streams};
use crate::launch::terminal::Pty;
use crate::launch::{cgroup, descriptor, fork, init, members, program};
use crate::plan::{Plan, Source};
use crate::records::{Records, Turn};
use crate::sharing;
use crate::spec::ProcessId;
use rustix::process::Pid;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use sys::fork::ForkResult;
use sys::namespace::Kinds;

/// Where the program goes.
#[derive(Debug, Clone, Copy)]
pub(in crate::engines) enum Target {
    /// New namespaces, or those of a member of the container if there is one.
    Container,
    /// The namespaces of this process.
    Process(u32),
}

/// Another program that makes a container: starts the plan's program in it, and returns the number
/// of its process.
pub(in crate::engines) type Make<'a> = &'a dyn Fn(Ties, &Records) -> Result<u32>;

/// Who learns that the program runs.
enum Told<'a> {
    /// The process whose child the program is to be.
    Caller(&'a mut StatusSender),
    /// This process, if it stays beside the program.
    Itself(Begun<'a>),
}

/// Starts in the calling process.
pub(in crate::engines) fn here(plan: &Plan, target: Target, begun: Begun<'_>) -> Result<Ended> {
    start(plan, target, None, Ties::default(), Told::Itself(begun))
}

/// Starts as a child of the caller. `make`: what makes the container where it does not run yet,
/// instead of this process.
pub(in crate::engines) fn spawn(
    plan: &Plan,
    target: Target,
    make: Option<Make<'_>>,
    streams: Streams<'_>,
) -> Result<Child> {
    // What another program does in its start is not known here.
    let streams = Streams { borrows: streams.borrows && make.is_none(), ..streams };
    spawn_with(Pty::of(plan, streams.session)?, streams, |ties, sender| {
        start(plan, target, make, ties, Told::Caller(sender))
    })
}

/// How the program comes into its namespaces, as its process needs it after a fork.
pub(super) struct Way<'a> {
    pub(super) plan: &'a Plan,
    /// Whether its root has to be made, or is that of the namespaces entered.
    pub(super) fresh: bool,
    pub(super) program: program::Ready,
    pub(super) ties: Ties,
    pub(super) pid_namespace: PidNamespace,
}

/// Where the program gets its pid.
pub(super) enum PidNamespace {
    /// In the pid namespace of this process.
    Same,
    /// In a new one.
    New,
    /// In one that exists.
    Enter(enter::Later),
}

fn start(
    plan: &Plan,
    target: Target,
    make: Option<Make<'_>>,
    ties: Ties,
    told: Told<'_>,
) -> Result<Ended> {
    let program = program::ready(&plan.process)?;
    let records = Records::open(&plan.place)?;
    let turn = records.begin()?;
    let member = join_member(plan, target, &records)?;
    if plan.is_exec() {
        sharing::enter(&records)?;
    } else {
        sharing::begin(&records, matches!(member, Member::None))?;
    }
    let (fresh, pid_namespace, assistant) = match (member, make) {
        (Member::Entered(pid_namespace), _) => (false, pid_namespace, None),
        (Member::None, Some(make)) => return made_elsewhere(make, ties, &records, turn, told),
        (Member::None, None) => {
            let (pid_namespace, assistant) = make_namespaces(plan, &records)?;
            (true, pid_namespace, assistant)
        }
    };
    let way = Way { plan, fresh, program, ties, pid_namespace };
    run_in_namespaces(way, records, turn, assistant, told)
}

/// Has another program make the container.
fn made_elsewhere(
    make: Make<'_>,
    ties: Ties,
    records: &Records,
    turn: Turn,
    told: Told<'_>,
) -> Result<Ended> {
    // Before anything is mounted; the program's own record takes its place.
    let starter = records.hold(std::process::id())?;
    let pid = make(ties, records);
    records.remove(std::process::id());
    drop(starter);
    let pid = pid?;
    if let Told::Caller(sender) = told {
        sender.process(pid);
    }
    drop(turn);
    Ok(Ended::Code(0))
}

/// What came of looking for a process in the container.
enum Member {
    None,
    /// Entered but for the pid namespace.
    Entered(PidNamespace),
}

impl From<Option<enter::Later>> for Member {
    fn from(later: Option<enter::Later>) -> Self {
        Self::Entered(later.map_or(PidNamespace::Same, PidNamespace::Enter))
    }
}

/// Enters the namespaces of a process of the container, if one lives in it.
fn join_member(plan: &Plan, target: Target, records: &Records) -> Result<Member> {
    let pid = match target {
        Target::Process(pid) => return enter::enter(pid).map(Member::from),
        // One that is just ending has none any more. What a run left behind has the overlay as
        // well.
        Target::Container => {
            first(&records.living()).or_else(|| first(&members::by_namespace::all(&plan.place)))
        }
    };
    let Some(pid) = pid else { return Ok(Member::None) };
    if let Some(missing) = plan.added.iter().find(|mount| !enter::has_mount(pid, mount)) {
        return Err(Error::Invalid {
            what: "--volume".into(),
            value: missing.target.display().to_string(),
            why: "the container is running without it, and its mounts cannot be changed".into(),
        });
    }
    match enter::enter(pid) {
        // It ended meanwhile; there may be another.
        Err(Error::Enter { .. }) if !enter::has_namespaces(pid) => {
            join_member(plan, target, records)
        }
        entered => entered.map(Member::from),
    }
}

/// The first of these that has namespaces.
fn first(processes: &[ProcessId]) -> Option<u32> {
    processes.iter().map(|process| process.pid).find(|&pid| enter::has_namespaces(pid))
}

/// Makes the container's namespaces and leaves the host's. The assistant stays in those.
fn make_namespaces(plan: &Plan, records: &Records) -> Result<(PidNamespace, Option<Assistant>)> {
    write_all(plan)?;
    if let Some(group) = &plan.cgroup {
        cgroup::enter(group)?;
    }
    let assistant = Assistant::needed(plan).then(|| Assistant::start(plan)).transpose()?;
    let forks = plan.namespaces.pid != Source::Host || plan.init;
    let pid_namespace = match plan.namespaces.pid {
        Source::Host => PidNamespace::Same,
        Source::New => PidNamespace::New,
        Source::Of(pid) => PidNamespace::Enter(enter::Later::of(pid)?),
    };
    if !forks {
        // The pid will mean another process after this, in another namespace, and `/proc` too.
        records.add(std::process::id())?;
    }
    let left = leave_host(plan, assistant.as_ref()).and_then(|()| set_sysctls(plan));
    if left.is_err() && !forks {
        records.remove(std::process::id());
    }
    left?;
    give_to_root(&plan.files);
    let owner = members::by_namespace::Owner::Caller;
    members::by_namespace::note(&plan.place, std::process::id(), owner);
    Ok((pid_namespace, assistant))
}

/// Sets the kernel's settings of the namespaces that this process has made. The host's `/proc`
/// shows each process those of its own namespaces.
fn set_sysctls(plan: &Plan) -> Result<()> {
    for (name, value) in &plan.sysctls {
        let path = std::path::Path::new("/proc/sys").join(name);
        std::fs::write(&path, value).map_err(|error| Error::File {
            doing: "write".into(),
            path: path.clone(),
            errno: error.into(),
        })?;
    }
    Ok(())
}

/// The rest of a start, after the namespaces: forks if needed, and runs the program's own part.
fn run_in_namespaces(
    way: Way<'_>,
    records: Records,
    turn: Turn,
    assistant: Option<Assistant>,
    told: Told<'_>,
) -> Result<Ended> {
    let turn = descriptor::park(turn)?;
    let forks = way.plan.init && way.fresh || !matches!(way.pid_namespace, PidNamespace::Same);
    let inside = Inside { way, records, turn, assistant };
    if !forks {
        let status = match &told {
            Told::Caller(sender) => Some(sender.as_fd()),
            Told::Itself(_) => None,
        };
        return inside.become_program(status);
    }
    match &inside.way.pid_namespace {
        PidNamespace::Same => {}
        PidNamespace::New => unshare(Kinds::PID)?,
        PidNamespace::Enter(later) => later.enter()?,
    }
    match told {
        Told::Itself(begun) => inside.wait_for_child(begun),
        Told::Caller(sender) => inside.leave_to_sibling(sender),
    }
}

/// A process in the container's namespaces, but for that of pids.
struct Inside<'a> {
    way: Way<'a>,
    records: Records,
    /// Held until the program is executed.
    turn: OwnedFd,
    assistant: Option<Assistant>,
}

impl Inside<'_> {
    /// Connects the network of the program's process. Called in its network namespace.
    fn connect(plan: &Plan, assistant: Option<&Assistant>, pid: u32) -> Result<()> {
        match assistant {
            Some(assistant) if plan.network.needs_host() => {
                assistant.connect(pid, &links::make(plan)?)
            }
            _ => Ok(()),
        }
    }

    /// Becomes the program; returns only where that fails.
    fn become_program(self, status: Option<BorrowedFd<'_>>) -> Result<Ended> {
        let Self { way, records, turn, assistant } = self;
        let pid = std::process::id();
        if !way.fresh {
            records.add(pid)?;
        }
        let held = [status, Some(turn.as_fd())];
        let result = Self::connect(way.plan, assistant.as_ref(), pid).and_then(|()| {
            drop((assistant, records));
            first_process::become_program(&way, held)
        });
        // The process is recorded as living in the container, so its turn ends with it and no
        // sooner.
        std::mem::forget(turn);
        result.map(|never| match never {})
    }

    /// Forks the program's process and waits for its end, passing signals on to it.
    fn wait_for_child(self, begun: Begun<'_>) -> Result<Ended> {
        let Self { mut way, records, turn, assistant } = self;
        // A signal that kills the waiting parent is meant for the program.
        way.ties.tied = true;
        let (gate, opener) = report::raw_pipe()?;
        let (mut sender, mut receiver) = report::pipe()?;
        let child = match fork::child_of_one_thread()? {
            ForkResult::Child => {
                drop((receiver, opener, records));
                if let Some(assistant) = assistant {
                    assistant.forget();
                }
                first_process::run(&way, First { gate, sender: &mut sender, turn })
            }
            ForkResult::Parent(pid) => pid,
        };
        drop((sender, gate));
        let number = number(child);
        // This process stays until the program has ended.
        let added = records
            .hold(number)
            .and_then(|held| Self::connect(way.plan, assistant.as_ref(), number).map(|()| held));
        if added.is_ok() {
            let _ = rustix::io::write(&opener, &[1]);
        }
        drop(opener);
        drop(assistant);
        let outcome = receiver.outcome();
        drop((turn, receiver));
        let ended = if outcome.is_ok() {
            begun();
            init::run_init(child)
        } else {
            let _ = fork::wait(child);
            Ended::Unknown
        };
        records.remove(number);
        drop(added?);
        outcome?;
        Ok(ended)
    }

    /// Makes the program's process as a child of the caller's parent, which will wait for it.
    fn leave_to_sibling(self, sender: &mut StatusSender) -> Result<Ended> {
        let Self { way, records, turn, assistant } = self;
        let (gate, opener) = report::raw_pipe()?;
        let Some(child) = fork::sibling()? else {
            drop((opener, records));
            if let Some(assistant) = assistant {
                assistant.forget();
            }
            first_process::run(&way, First { gate, sender, turn })
        };
        let number = number(child);
        sender.process(number);
        let recorded = records.add(number);
        match recorded.and_then(|()| Self::connect(way.plan, assistant.as_ref(), number)) {
            Ok(()) => {
                let _ = rustix::io::write(&opener, &[1]);
            }
            Err(error) => {
                sender.failed(&error);
            }
        }
        // The sibling holds the turn until it executes the program.
        Ok(Ended::Code(0))
    }
}

fn number(child: Pid) -> u32 {
    child.as_raw_nonzero().get() as u32
}
