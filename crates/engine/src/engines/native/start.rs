//! From a plan to a program, by way of new namespaces or of those that are there.
//!
//! Order of things in one start, with who does them:
//!
//! | step | process |
//! |---|---|
//! | take the container's turn, look for members, write `/etc` files, enter the cgroup | caller |
//! | fork the assistant (only for ranges of ids and private networks) | caller |
//! | leave: `unshare`, id maps | caller |
//! | fork the notifier (only for emulated root) | caller |
//! | fork (only for a private pid namespace or an init) | caller |
//! | mounts, root, network up, limits, ids, filters, `execve` | the program's process |
//!
//! Without a fork all of that is one process, and it is the one that the user, a shell or `mpiexec` started.
//!
//! Several starts at once: the turn (a lock in `run/`) is held from the look for members to the `execve`. An overlay must not be
//! mounted twice, so whoever comes second finds the first one's process and enters its namespaces.
//!
//! What is open: before the first name of the image's is used, the program's process gives up every
//! descriptor through which a name could lead out of the container ([`bare`]): the links in
//! `/proc/self/fd` are names too. What has to stay open until the program runs is a pipe or a
//! socket, and the turn's file lies in the queue of one. Where the container is a boundary, what
//! the caller had open goes too.

use super::assistant::{Assistant, map_error, maps};
use super::terminal::Terminal;
use super::{cgroup, descriptor, emulate, enter, members, program, tree};
use crate::choose::{Child, Ended, Session, Streams};
use crate::engines::launch::{self, apply, fork, report};
use crate::engines::{oci, write_file};
use crate::error::{Error, Result};
use crate::plan::{Plan, Source};
use crate::records::{Records, Turn};
use crate::sharing;
use crate::spec::ProcessId;
use crate::supervise::init;
use rustix::process::{DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions};
use std::convert::Infallible;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use sys::event::ForkResult;
use sys::namespace::{self, Kinds};

/// Which process a start happens in, and where its child goes.
pub(in crate::engines) enum Place {
    /// The caller itself becomes the program, or stays as the parent of the program.
    Here,
    /// A child that was forked for this; a program that must be forked again becomes its sibling, so that the caller can wait for it.
    Spawned {
        teller: report::Teller,
        /// The program dies with the caller.
        tied: bool,
        terminal: Terminal,
    },
}

/// Where the program goes.
#[derive(Debug, Clone, Copy)]
pub(in crate::engines) enum Into {
    /// New namespaces, or those of a member if there is one.
    Container,
    /// The namespaces of this process.
    Process(u32),
}

/// Runs the whole start in the calling process.
pub(in crate::engines) fn here(plan: &Plan, into: Into) -> Result<Ended> {
    start(plan, into, Place::Here)
}

/// Starts as a child of the caller.
pub(in crate::engines) fn spawn(plan: &Plan, into: Into, streams: Streams<'_>) -> Result<Child> {
    spawn_with(plan, streams, |place| start(plan, into, place))
}

/// Forks a child that has somebody else start the program: a runtime of the host's, or this program in a running container. `begin` gives the
/// number of what was started.
pub(in crate::engines) fn spawn_told(
    plan: &Plan,
    streams: Streams<'_>,
    begin: impl FnOnce(&report::Teller, bool, Terminal) -> Result<u32>,
) -> Result<Child> {
    spawn_with(plan, streams, |place| {
        let Place::Spawned { mut teller, tied, terminal } = place else {
            return Err(Error::Vanished("no process was forked".into()));
        };
        match begin(&teller, tied, terminal) {
            Ok(pid) => {
                teller.process(pid);
                Ok(Ended::Code(0))
            }
            Err(error) => {
                teller.failed(error.clone());
                Err(error)
            }
        }
    })
}

/// Forks a child that begins a start; it becomes the program, or tells which process does.
pub(in crate::engines) fn spawn_with(
    plan: &Plan,
    streams: Streams<'_>,
    begin: impl FnOnce(Place) -> Result<Ended>,
) -> Result<Child> {
    let (mut teller, mut hearer) = report::pipe()?;
    let (terminal, master) = if streams.session == Session::Terminal {
        Terminal::of(plan)?
    } else {
        (Terminal::Inherited, None)
    };
    let child = match fork()? {
        ForkResult::Parent(pid) => pid,
        ForkResult::Child => {
            drop((hearer, master));
            if let Err(error) = apply(streams) {
                teller.failed(error);
                sys::process::exit_now(125);
            }
            let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                match begin(Place::Spawned { teller, tied: streams.tied, terminal }) {
                    Ok(ended) => ended.code(),
                    Err(error) => i32::from(error.exit_code()),
                }
            }));
            sys::process::exit_now(told.unwrap_or(125));
        }
    };
    drop((teller, terminal));
    let outcome = hearer.outcome();
    let wait = || {
        rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(child), WaitOptions::empty()))
    };
    let pid = match outcome {
        Ok(None) => child,
        Ok(Some(pid)) => {
            // The child was only a step on the way to its sibling.
            let _ = wait();
            Pid::from_raw(pid as i32).ok_or_else(|| Error::Vanished("no process".into()))?
        }
        Err(error) => {
            let _ = wait();
            return Err(error);
        }
    };
    // On kernels before 5.3 there are none.
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok();
    let master = master.as_ref().and_then(descriptor::receive);
    Ok(Child { pid: pid.as_raw_nonzero().get() as u32, pidfd, master })
}

/// Forks where `/proc` may not show us any more, so that the number of threads cannot be asked for: it was one when the namespaces were
/// left, which the kernel refuses to a process with several.
fn fork_inside() -> Result<ForkResult> {
    sys::process::fork_single()
        .map_err(|errno| Error::Call { doing: "fork".into(), errno: errno.into() })
}

/// The program's way into its world, carried over the fork.
pub(super) struct Way<'a> {
    pub(super) plan: &'a Plan,
    /// Whether its root has to be made, or is that of the namespaces entered.
    pub(super) fresh: bool,
    pub(super) ready: launch::program::Ready,
    /// For the notifier.
    host: Option<emulate::Host>,
    pid_namespace: PidNamespace,
    /// The program dies with its parent.
    tied: bool,
    terminal: Terminal,
}

/// Where the program gets its pid.
enum PidNamespace {
    /// Where we are.
    Ours,
    /// A new one.
    New,
    /// One that is there.
    Enter(enter::Later),
}

fn start(plan: &Plan, into: Into, place: Place) -> Result<Ended> {
    match place {
        Place::Here => prepare_and_go(plan, into, (false, Terminal::Inherited), None),
        Place::Spawned { teller, tied, terminal } => {
            let mut teller = Some(teller);
            let result = prepare_and_go(plan, into, (tied, terminal), Some(&mut teller));
            if let (Err(error), Some(mut teller)) = (&result, teller) {
                teller.failed(error.clone());
            }
            result
        }
    }
}

fn prepare_and_go(
    plan: &Plan,
    into: Into,
    (tied, terminal): (bool, Terminal),
    mut teller: Option<&mut Option<report::Teller>>,
) -> Result<Ended> {
    let ready = launch::program::ready(&plan.process)?;
    let host = plan.emulate_root.then(|| emulate::Host::open(plan)).transpose()?;
    let records = Records::open(&plan.place)?;
    let turn = records.begin()?;
    let member = join_member(plan, into, &records)?;
    if !plan.is_exec() {
        sharing::begin(&records, matches!(member, Member::Nobody))?;
    }
    if let Member::Entered(pid_namespace) = member {
        let way = Way { plan, fresh: false, ready, host, pid_namespace, tied, terminal };
        return go(way, records, turn, None, &mut teller);
    }
    if let Some(runtime) = &plan.runtime {
        let guest = oci::start::Guest {
            plan,
            inside: plan,
            mode: oci::Mode::Plain,
            reports: false,
            tied,
            terminal,
        };
        // Before anything is mounted; the program's own record takes its place.
        let starter = records.hold(std::process::id())?;
        let pid = oci::start::run(runtime, guest, Some(&records));
        records.remove(std::process::id());
        drop(starter);
        let pid = pid?;
        if let Some(mut told) = teller.take().and_then(Option::take) {
            told.process(pid);
        }
        drop(turn);
        return Ok(Ended::Code(0));
    }
    plan.files.iter().try_for_each(write_file)?;
    if let Some(group) = &plan.cgroup {
        cgroup::enter(group)?;
    }
    let assistant = Assistant::needed(plan).then(|| Assistant::start(plan)).transpose()?;
    let forks = plan.namespaces.pid != Source::Host || plan.init;
    let pid_namespace = match plan.namespaces.pid {
        Source::Host => PidNamespace::Ours,
        Source::New => PidNamespace::New,
        Source::Of(pid) => PidNamespace::Enter(enter::Later::of(pid)?),
    };
    if !forks {
        // The pid will mean another process after this, in another namespace, and `/proc` too.
        records.add(std::process::id())?;
    }
    let left = leave(plan, assistant.as_ref());
    if left.is_err() && !forks {
        records.remove(std::process::id());
    }
    left?;
    members::note(&plan.place, std::process::id(), members::Owner::Caller);
    let way = Way { plan, fresh: true, ready, host, pid_namespace, tied, terminal };
    go(way, records, turn, assistant, &mut teller)
}

/// What came of looking for somebody in the container.
enum Member {
    Nobody,
    /// Entered but for the pid namespace.
    Entered(PidNamespace),
}

impl From<Option<enter::Later>> for Member {
    fn from(later: Option<enter::Later>) -> Self {
        Self::Entered(later.map_or(PidNamespace::Ours, PidNamespace::Enter))
    }
}

/// Enters the namespaces of a process of the container, if one lives in it.
fn join_member(plan: &Plan, into: Into, records: &Records) -> Result<Member> {
    let pid = match into {
        Into::Process(pid) => return enter::enter(pid).map(Member::from),
        // One that is just ending has none any more. What a run left behind has the overlay as
        // well.
        Into::Container => first(&records.living()).or_else(|| first(&members::all(&plan.place))),
    };
    let Some(pid) = pid else { return Ok(Member::Nobody) };
    if let Some(missing) = plan.added.iter().find(|mount| !enter::has_mount(pid, mount)) {
        return Err(Error::Invalid {
            what: "--volume".into(),
            value: missing.target.display().to_string(),
            why: "the container is running without it, and its mounts cannot be changed".into(),
        });
    }
    match enter::enter(pid) {
        // It ended meanwhile; there may be another.
        Err(Error::Enter { .. }) if !enter::has_namespaces(pid) => join_member(plan, into, records),
        entered => entered.map(Member::from),
    }
}

/// The first of these that has namespaces.
fn first(processes: &[ProcessId]) -> Option<u32> {
    processes.iter().map(|process| process.pid).find(|&pid| enter::has_namespaces(pid))
}

/// Leaves the host's namespaces.
fn leave(plan: &Plan, assistant: Option<&Assistant>) -> Result<()> {
    let wanted = &plan.namespaces;
    let mut new = Kinds::MOUNT;
    let mut joined: Vec<(u32, Kinds)> = Vec::new();
    for (source, kind) in [
        (wanted.ipc, Kinds::IPC),
        (wanted.uts, Kinds::UTS),
        (wanted.net, Kinds::NET),
        (wanted.cgroup, Kinds::CGROUP),
    ] {
        match source {
            Source::Host => {}
            Source::New => new = new.with(kind),
            Source::Of(pid) => joined.push((pid, kind)),
        }
    }
    if let Some(pid) = wanted.user_of {
        enter::kinds(pid, Kinds::USER)?;
        for (pid, kind) in joined {
            enter::kinds(pid, kind)?;
        }
        return unshare(new);
    }
    unshare(new.with(Kinds::USER))?;
    match assistant {
        Some(assistant) if matches!(plan.ids, crate::plan::Ids::Range { .. }) => {
            // Whoever we are in it, we have all its capabilities until the program is executed.
            assistant.write_maps(std::process::id())
        }
        _ => maps(&plan.ids).write_own().map_err(|error| map_error(&plan.ids, error)),
    }
}

pub(in crate::engines) fn unshare(kinds: Kinds) -> Result<()> {
    namespace::unshare(kinds)
        .map_err(|errno| Error::Unshare { which: kinds.names(), errno: errno.into() })
}

/// The rest, after the namespaces: fork if needed, and the program's own part.
fn go(
    mut way: Way<'_>,
    records: Records,
    turn: Turn,
    assistant: Option<Assistant>,
    teller: &mut Option<&mut Option<report::Teller>>,
) -> Result<Ended> {
    let notifier = emulate::Notifier::start(way.plan, way.host.take().as_ref())?;
    let turn = descriptor::park(turn)?;
    let network = |pid: u32, assistant: Option<&Assistant>| match assistant {
        Some(assistant) if matches!(way.plan.network, crate::plan::Network::Helper { .. }) => {
            assistant.connect(pid)
        }
        _ => Ok(()),
    };
    let forks = way.plan.init && way.fresh || !matches!(way.pid_namespace, PidNamespace::Ours);
    if !forks {
        let pid = std::process::id();
        if !way.fresh {
            records.add(pid)?;
        }
        let told = teller.as_ref().and_then(|teller| teller.as_ref()).map(AsFd::as_fd);
        let held = [told, Some(turn.as_fd())];
        let result = network(pid, assistant.as_ref()).and_then(|()| {
            drop((assistant, records));
            inside(&way, notifier, held)
        });
        // Only a failure comes back. The process is recorded as living in the container, so its
        // turn ends with it and no sooner.
        std::mem::forget(turn);
        return match result {
            Ok(never) => match never {},
            Err(error) => Err(error),
        };
    }
    match &way.pid_namespace {
        PidNamespace::Ours => {}
        PidNamespace::New => unshare(Kinds::PID)?,
        PidNamespace::Enter(later) => later.enter()?,
    }
    let (gate, opener) = report::raw_pipe()?;
    match teller.take().and_then(Option::take) {
        None => {
            // Whoever kills the waiting parent means the program.
            way.tied = true;
            let (told, mut hearer) = report::pipe()?;
            let child = match fork_inside()? {
                ForkResult::Child => {
                    drop((hearer, opener, records));
                    if let Some(assistant) = assistant {
                        assistant.forget();
                    }
                    first_process(&way, First { gate, told, turn, notifier })
                }
                ForkResult::Parent(pid) => pid,
            };
            drop((told, gate, notifier));
            let number = child.as_raw_nonzero().get() as u32;
            // This process stays until the program has ended.
            let added = records
                .hold(number)
                .and_then(|held| network(number, assistant.as_ref()).map(|()| held));
            if added.is_ok() {
                let _ = rustix::io::write(&opener, &[1]);
            }
            drop(opener);
            drop(assistant);
            let outcome = hearer.outcome();
            drop((turn, hearer));
            let code = wait(child, &outcome);
            records.remove(number);
            drop(added?);
            outcome?;
            Ok(Ended::Code(code))
        }
        Some(mut told) => {
            let sibling = sys::process::fork_sibling()
                .map_err(|errno| Error::Call { doing: "fork".into(), errno: errno.into() });
            let child = match sibling {
                Ok(Some(pid)) => pid,
                Ok(None) => {
                    drop((opener, records));
                    if let Some(assistant) = assistant {
                        assistant.forget();
                    }
                    first_process(&way, First { gate, told, turn, notifier })
                }
                Err(error) => {
                    told.failed(error.clone());
                    return Err(error);
                }
            };
            let number = child.as_raw_nonzero().get() as u32;
            told.process(number);
            match records.add(number).and_then(|()| network(number, assistant.as_ref())) {
                Ok(()) => {
                    let _ = rustix::io::write(&opener, &[1]);
                }
                Err(error) => told.failed(error),
            }
            // The turn is the sibling's now, until it executes the program.
            Ok(Ended::Code(0))
        }
    }
}

/// Waits for the program in a pid namespace of its own, passing signals on to it meanwhile.
fn wait(child: Pid, outcome: &Result<Option<u32>>) -> i32 {
    if outcome.is_ok() {
        return crate::supervise::run_init(child);
    }
    let _ =
        rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(child), WaitOptions::empty()));
    125
}

/// What the forked process is given.
struct First {
    /// Readable when it may go on.
    gate: OwnedFd,
    told: report::Teller,
    /// Held until the program is executed.
    turn: OwnedFd,
    notifier: Option<emulate::Notifier>,
}

/// What the forked process does: waits until it may go on, sets its world up, and becomes the program or the init above it.
fn first_process(way: &Way<'_>, first: First) -> ! {
    let First { gate, mut told, turn, notifier } = first;
    let mut byte = [0];
    if !matches!(std::fs::File::from(gate).read(&mut byte), Ok(1)) {
        sys::process::exit_now(125);
    }
    if way.tied {
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    }
    if way.plan.init && way.fresh {
        with_init(way, told, turn, notifier);
    }
    let Err(error) = inside(way, notifier, [Some(told.as_fd()), Some(turn.as_fd())]);
    told.failed(error.clone());
    sys::process::exit_now(i32::from(error.exit_code()));
}

/// Stays as the container's init; the program is a child.
fn with_init(
    way: &Way<'_>,
    mut told: report::Teller,
    turn: OwnedFd,
    notifier: Option<emulate::Notifier>,
) -> ! {
    if matches!(way.pid_namespace, PidNamespace::Ours) {
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
    bare(way, notifier.as_ref(), [Some(told.as_fd()), Some(turn.as_fd())]);
    let forked = world(way.plan).and_then(|()| {
        let ends = way.plan.isolate.then(report::raw_pipe).transpose()?;
        Ok((fork_inside()?, ends))
    });
    match forked {
        Ok((ForkResult::Child, ends)) => {
            if let Some((until, held)) = ends {
                drop(held);
                init::wait_for(until);
            }
            let Err(error) = finish(way, notifier);
            told.failed(error.clone());
            sys::process::exit_now(i32::from(error.exit_code()));
        }
        Ok((ForkResult::Parent(main), ends)) => {
            drop((told, turn, notifier));
            // Pipes shall end, and a dead supervisor's socket be dead, though this process was forked with copies.
            if let Some((until, held)) = ends {
                drop(until);
                let _held = sys::process::keep_only([held]);
                let restrained = program::restrain(way.plan).is_ok();
                sys::process::exit_now(if restrained { init::anew(main) } else { 125 });
            }
            let _ = sys::process::keep_only([]);
            sys::process::exit_now(crate::supervise::run_init(main));
        }
        Err(error) => {
            told.failed(error.clone());
            sys::process::exit_now(i32::from(error.exit_code()));
        }
    }
}

/// Gives up what a name of the image's could lead through. `held` stays open until the program is
/// executed.
///
/// Without a boundary what the caller lets his programs inherit passes on to this one, so only what
/// the engine has opened is closed, each by its owner. The caller's own files are no secret from a
/// program that has his rights.
fn bare(way: &Way<'_>, notifier: Option<&emulate::Notifier>, held: [Option<BorrowedFd<'_>>; 2]) {
    if !way.plan.isolate {
        return;
    }
    // Processes that live in the container already see this one, and may be allowed to trace.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let sockets = [notifier.map(AsFd::as_fd), way.terminal.socket()];
    let kept: Vec<_> = held.into_iter().chain(sockets).flatten().collect();
    sys::process::close_others(&kept);
}

/// The program's own part.
fn inside(
    way: &Way<'_>,
    notifier: Option<emulate::Notifier>,
    held: [Option<BorrowedFd<'_>>; 2],
) -> Result<Infallible> {
    bare(way, notifier.as_ref(), held);
    if way.fresh {
        world(way.plan)?;
    }
    finish(way, notifier)
}

/// Makes the world: tree, host name, loopback.
fn world(plan: &Plan) -> Result<()> {
    let sources = tree::open_sources(plan)?;
    tree::enter_root(plan)?;
    tree::mount_all(plan, &sources)?;
    tree::leave_host()?;
    drop(sources);
    if let Some(name) = &plan.hostname {
        rustix::system::sethostname(name.as_bytes()).map_err(|errno| Error::Call {
            doing: format!("set the host name to {name}"),
            errno: errno.into(),
        })?;
    }
    if plan.namespaces.net == Source::New {
        sys::link::loopback_up()
            .map_err(|errno| Error::Call { doing: "set lo up".into(), errno: errno.into() })?;
    }
    Ok(())
}

fn finish(way: &Way<'_>, notifier: Option<emulate::Notifier>) -> Result<Infallible> {
    way.terminal.take(way.plan, way.fresh)?;
    program::execute(way.plan, &way.ready, way.tied, notifier)
}
