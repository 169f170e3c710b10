//! The steps of starting a program that the engines without namespaces share: which process waits
//! for which, what is made ready, and how a failure is reported.
//!
//! An engine lends a [`Become`]: how the process that was made ready turns into the guest.

use super::aliases;
use super::host::Parts;
use super::image_inodes::ImageInodes;
use super::inode_log::InodeLog;
use super::prepare::{self, Prepared};
use crate::engines::Begun;
use crate::error::{Error, Result};
use crate::exit::Ended;
use crate::launch::init::{self, stay};
use crate::launch::members::{Presence, by_namespace, by_stage};
use crate::launch::report;
use crate::launch::spawn::{self, spawn as spawn_with};
use crate::launch::streams::{Child, Streams};
use crate::launch::terminal::{Pty, Terminal, make_controlling};
use crate::launch::{cgroup, fork, program};
use crate::plan::{Groups, Plan};
use crate::records::{Records, Turn};
use crate::sharing;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::convert::Infallible;
use std::path::Path;
use std::time::{Duration, Instant};
use sys::fork::ForkResult;
use view::Task;
use view::identity::Credentials;
use view::identity::credentials::UNMAPPED;

/// Turns the calling process into the program of a plan.
pub(in crate::engines) type Become<'a> = &'a dyn Fn(&Plan, Ties, Ready) -> Result<Infallible>;

fn call(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::call(doing, errno)
}

/// How a program's process stands to its parent.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::engines) struct Ties {
    /// It dies with its parent.
    pub(in crate::engines) tied: bool,
    /// Its standard input becomes its controlling terminal.
    pub(in crate::engines) terminal: bool,
    /// It was forked for this: an init above it keeps nothing.
    forked: bool,
}

/// Runs the start in the calling process.
pub(in crate::engines) fn here(
    become_guest: Become<'_>,
    plan: &Plan,
    begun: Begun<'_>,
) -> Result<Ended> {
    start(become_guest, plan, Ties::default(), begun)
}

/// Starts as a child of the caller.
pub(in crate::engines) fn spawn(
    become_guest: Become<'_>,
    plan: &Plan,
    streams: Streams<'_>,
) -> Result<Child> {
    spawn_with(Pty::passed(streams.session), streams, |ties, _| {
        let spawn::Ties { tied, terminal } = ties;
        let terminal = matches!(terminal, Terminal::Given);
        start(become_guest, plan, Ties { tied, terminal, forked: true }, &mut || {})
    })
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get() as u32
}

fn start(become_guest: Become<'_>, plan: &Plan, ties: Ties, begun: Begun<'_>) -> Result<Ended> {
    let ready = program::ready(&plan.process)?;
    let records = Records::open(&plan.place)?;
    let turn = records.begin()?;
    let fresh = is_settled_and_empty(&plan.place, &records);
    if plan.is_exec() {
        sharing::enter(&records)?;
    } else {
        sharing::begin(&records, fresh)?;
    }
    let prepared = prepare::prepare(plan, fresh)?;
    if let Some(group) = &plan.cgroup {
        cgroup::enter(group)?;
    }
    let ready = Ready { program: ready, prepared, records, fresh, turn };
    if plan.init {
        return with_init(become_guest, plan, ties, ready, begun);
    }
    match become_guest(plan, ties, ready) {
        Ok(never) => match never {},
        Err(error) => Err(error),
    }
}

/// What was made ready before anything irreversible.
pub(in crate::engines) struct Ready {
    pub(in crate::engines) program: program::Ready,
    pub(in crate::engines) prepared: Prepared,
    pub(in crate::engines) records: Records,
    /// No process lived in the container.
    pub(in crate::engines) fresh: bool,
    /// Held until the program is executed.
    pub(in crate::engines) turn: Turn,
}

/// Stays as the container's init, which is no guest; the program is a child.
fn with_init(
    become_guest: Become<'_>,
    plan: &Plan,
    ties: Ties,
    ready: Ready,
    begun: Begun<'_>,
) -> Result<Ended> {
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let (mut sender, mut receiver) = report::pipe()?;
    let child = match fork::child()? {
        ForkResult::Child => {
            drop(receiver);
            let ties = Ties { tied: true, ..ties };
            let Err(error) = become_guest(plan, ties, ready);
            sys::fork::exit_now(sender.failed(&error));
        }
        ForkResult::Parent(pid) => pid,
    };
    drop((sender, ready));
    if ties.tied {
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    }
    if let Err(error) = receiver.outcome() {
        let _ = fork::wait(child);
        return Err(error);
    }
    if ties.forked {
        drop(receiver);
        stay(child, None, || Ok(()));
    }
    let records = Records::existing(&plan.place);
    let held = records.as_ref().and_then(|records| records.hold(number(child)).ok());
    begun();
    let ended = init::run_init(child);
    records.inspect(|records| records.remove(number(child)));
    drop(held);
    Ok(ended)
}

/// Directory and terminal of the program's process.
pub(in crate::engines) fn take_directory_and_terminal(
    plan: &Plan,
    prepared: &Prepared,
    ties: Ties,
) -> Result<()> {
    rustix::process::chdir(&prepared.cwd).map_err(|errno| Error::WorkingDirectory {
        path: plan.process.cwd.clone(),
        errno: errno.into(),
    })?;
    if ties.terminal {
        sys::process::new_session().map_err(call("make a session"))?;
        make_controlling()?;
    }
    Ok(())
}

/// Returns true if no process lives in the container whose directory is `place`. The caller holds
/// its lock.
pub(in crate::engines) fn is_empty(place: &Path, records: &Records) -> bool {
    records.is_empty() && Presence::is_none(place) && !by_stage::any(place)
}

/// The same once a tracer has gone whose guests have ended: for as long as it is there, nobody can
/// tell from outside that it serves none, and others that ask at the same time look like one too.
fn is_settled_and_empty(place: &Path, records: &Records) -> bool {
    let deadline = Instant::now() + TRACER_ENDS;
    while !is_empty(place, records) {
        if is_inhabited(place, records) || Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}

/// Whether a guest lives there, here or elsewhere.
fn is_inhabited(place: &Path, records: &Records) -> bool {
    !records.is_empty() || by_stage::any(place)
}

/// Tidies up in the container whose directory is `place`, if no process lives there and none is
/// just starting.
pub(crate) fn tidy(place: &Path) {
    if let Some(records) = Records::existing(place) {
        let _ = try_to_tidy(place, &records);
    }
}

/// How long a tracer is waited for whose guests have ended, and how often it is looked after.
const TRACER_ENDS: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(2);

/// The same after every process of the container was ended. A tracer outlives its last guest by a
/// moment, in which it tidies up too: this function returns after that.
pub(crate) fn tidy_after_all(place: &Path) {
    let Some(records) = Records::existing(place) else { return };
    let deadline = Instant::now() + TRACER_ENDS;
    while try_to_tidy(place, &records) == Tidied::NotYet && Instant::now() < deadline {
        std::thread::sleep(LOOK);
    }
}

/// What came of an attempt to tidy up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tidied {
    Done,
    /// Somebody lives there.
    Inhabited,
    /// Somebody has the turn, or a tracer is there without a guest.
    NotYet,
}

fn try_to_tidy(place: &Path, records: &Records) -> Tidied {
    let Some(_turn) = records.turn_at_once() else { return Tidied::NotYet };
    if is_empty(place, records) {
        prepare::clean(place);
        aliases::forget(place);
        let seen = place.join(hostfs::layout::RUN).join(prepare::SEEN);
        if seen.exists() && by_namespace::all(place).is_empty() {
            prepare::clean_run(&seen);
        }
        return Tidied::Done;
    }
    if is_inhabited(place, records) { Tidied::Inhabited } else { Tidied::NotYet }
}

/// The container's lists and logs, for the view's calls on files.
pub(in crate::engines) fn parts(prepared: &Prepared) -> Result<Parts> {
    let files = &prepared.files;
    let images = ImageInodes::read(&files.image_inodes).map_err(|error| Error::File {
        doing: "read".into(),
        path: files.image_inodes.clone(),
        errno: error.into(),
    })?;
    Ok(Parts {
        images,
        inode_log: InodeLog::new(files.notes.clone()),
        run: files.run.clone(),
        layers: prepared.layers.clone(),
    })
}

/// The first thread, as the guest is to see it.
pub(in crate::engines) fn first_task(plan: &Plan, prepared: &Prepared) -> Result<Task> {
    let process = &plan.process;
    let kernels: Vec<u32> = rustix::process::getgroups()
        .map_err(call("read the groups"))?
        .into_iter()
        .map(rustix::process::Gid::as_raw)
        .collect();
    // In a user namespace the kernel has the caller's groups under no number.
    let unmapped = process.keeps_groups && kernels.contains(&UNMAPPED);
    let groups = match &process.groups {
        Groups::Set(groups) => groups.clone(),
        Groups::Keep => kernels,
    };
    let groups = view::identity::Groups::new(groups)
        .map_err(|errno| call("set the groups")(Errno::from_raw_os_error(i32::from(errno.0))))?
        .with_unmapped(unmapped);
    let callers = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(callers);
    let umask = process.umask.map_or(callers, rustix::fs::Mode::from_raw_mode);
    let mut task = Task::new(Credentials::new(process.uid, process.gid, groups), umask.bits());
    task.entered = prepared.entered;
    task.creds.no_new_privileges = process.no_new_privileges;
    Ok(task)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::FlockOperation;

    #[test]
    fn a_start_waits_for_a_tracer_without_guests() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path()).unwrap();
        // As a tracer holds it. It is given back by word: children of other tests have copies.
        let presence = std::fs::File::create(dir.path().join("run/.presence")).unwrap();
        if rustix::fs::flock(&presence, FlockOperation::LockShared).is_err() {
            println!("SKIP a_start_waits_for_a_tracer_without_guests: no locks here");
            return;
        }
        assert!(!is_empty(dir.path(), &records));
        let (started, begins) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                begins.recv().unwrap();
                // The other one is asking by now, or will find it gone.
                std::thread::sleep(10 * LOOK);
                rustix::fs::flock(&presence, FlockOperation::Unlock).unwrap();
            });
            started.send(()).unwrap();
            assert!(is_settled_and_empty(dir.path(), &records));
        });
        // Who lives there is not waited for.
        records.add(std::process::id()).unwrap();
        assert!(!is_settled_and_empty(dir.path(), &records));
    }
}
