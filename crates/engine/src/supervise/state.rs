//! `state.json` and `run/`: what is known about a container's life, and whether it is still true.
//!
//! A supervisor writes `state.json` (a temporary file, then a rename; no fsync, since after a
//! crash of the machine nothing of it is true any more). A run without supervisor, and a
//! further run of a container that runs already, leave a record in `run/` instead (see
//! [`crate::records`]).
//!
//! A supervisor holds `supervisor.lock` while it lives, which other machines can ask for
//! ([`crate::records::lock`]).
//!
//! [`observe`] compares both with `/proc`, and what was written elsewhere with the locks. A
//! container lives as long as a process of it does: where an engine has no namespaces, a daemon
//! outlives the run that started it, and is found by what it executes ([`members`]).

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;

use sys::machine::{Machine, Relation};

use super::Error;
use crate::launch::members;
use crate::processes::alive;
use crate::records::{self, Elsewhere, Reach, Records};
use crate::spec::{ContainerState, ProcessId, Status};

const STATE: &str = "state.json";
/// Locked by the supervisor while it lives.
pub(crate) const LOCK: &str = "supervisor.lock";
/// Present while a user asked the container to stop: keeps `--restart` from undoing it.
const STOPPED: &str = "stop-requested";

/// What a look at the files and at `/proc` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Never started.
    Created,
    /// Its first process lives (or its supervisor has not finished with it).
    Running(Box<Running>),
    /// Ended; its supervisor waits to start it again.
    Restarting {
        /// The supervisor.
        supervisor: ProcessId,
    },
    /// Ended, with the program's exit code or 128 + signal.
    Exited {
        /// The code.
        code: i32,
    },
    /// Ended; no process stayed beside the program, so how it ended is not known.
    Ended,
    /// It does not run, and how it ended is not known, although it had a supervisor.
    Dead {
        /// Why that is so.
        reason: String,
    },
}

/// A container with living processes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Running {
    /// Its first process, where it has a supervisor (or had one that died).
    pub init: Option<ProcessId>,
    /// The supervisor, if it lives.
    pub supervisor: Option<ProcessId>,
    /// Runs without supervisor, and further runs of the same container; where there are none (and
    /// no first process), what runs that have ended left behind.
    pub runs: Vec<ProcessId>,
    /// Stopped by `pause`.
    pub paused: bool,
    /// Where else it lives: on another machine that shares this store, or in another pid
    /// namespace. Nothing can be done to it from here.
    pub elsewhere: Option<Elsewhere>,
}

impl Running {
    /// The process that stands for the container: the first process, else the oldest run.
    pub fn main(&self) -> Option<&ProcessId> {
        self.init.as_ref().or_else(|| self.runs.first())
    }

    /// The same where all of it is here.
    ///
    /// # Errors
    /// [`Error::Elsewhere`].
    pub fn here(self) -> Result<Self, Error> {
        match self.elsewhere {
            Some(elsewhere) => Err(Error::Elsewhere(Box::new(elsewhere))),
            None => Ok(self),
        }
    }
}

/// Reads `state.json`; a container without one is `created`.
pub fn read(dir: &Path) -> Result<ContainerState, Error> {
    Ok(read_json(&dir.join(STATE))?.unwrap_or_default())
}

/// Replaces `state.json` in one step.
pub fn write(dir: &Path, state: &ContainerState) -> Result<(), Error> {
    write_json(dir, STATE, state)
}

/// Reads, changes and replaces `state.json`. Callers are the one supervisor of the container,
/// or hold the container's lock.
pub fn update(dir: &Path, change: impl FnOnce(&mut ContainerState)) -> Result<(), Error> {
    let mut state = read(dir).unwrap_or_default();
    change(&mut state);
    write(dir, &state)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    let bytes = match fs::File::open(path).and_then(|file| Ok(sys::fs::read_rest(file)?)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::file("read", path, error)),
    };
    // State is not synced: after a loss of power the file may be there without its bytes, and what
    // it spoke of has ended.
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|source| Error::Damaged { path: path.into(), source })
}

fn write_json(dir: &Path, name: &str, value: &impl Serialize) -> Result<(), Error> {
    let path = dir.join(name);
    let fail = |step| {
        let path = path.clone();
        move |error: io::Error| Error::file(step, path, error)
    };
    let suffix = sys::random::suffix().map_err(fail("write"))?;
    let temporary = dir.join(format!(".{name}.{suffix}"));
    let mut bytes = serde_json::to_vec(value)
        .map_err(|source| Error::Damaged { path: path.clone(), source })?;
    bytes.push(b'\n');
    let written = fs::File::create(&temporary).and_then(|mut file| file.write_all(&bytes));
    let done = written
        .map_err(fail("write"))
        .and_then(|()| replace(&temporary, &path).map_err(fail("replace")));
    if done.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    done
}

/// Puts a new file in the place of another in one step. The two are exchanged first: where a rename
/// replaces a file, ext4 begins to write the new one to the disk, which takes milliseconds, and
/// state need not survive a crash.
fn replace(new: &Path, path: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, new, CWD, path, RenameFlags::EXCHANGE) {
        Ok(()) => fs::remove_file(new),
        // There is none yet, or the file system cannot exchange files.
        Err(_) => fs::rename(new, path),
    }
}

/// What the container does now.
pub fn observe(dir: &Path) -> Result<Observed, Error> {
    look(dir).map(|(observed, _)| observed)
}

/// The same for a process that holds the supervisor's lock: no other supervisor lives.
pub(crate) fn observe_locked(dir: &Path) -> Result<Observed, Error> {
    let state = read(dir)?;
    Ok(judge(dir, &state, Records::existing(dir).as_ref(), true))
}

/// Number of further readings if the file names a living process that does not exist.
const LOOKS: usize = 8;

/// The same, with what `state.json` said.
pub fn look(dir: &Path) -> Result<(Observed, ContainerState), Error> {
    let mut seen = look_once(dir)?;
    for _ in 1..LOOKS {
        let claims = matches!(seen.1.status, Status::Running | Status::Restarting);
        if !claims || !matches!(seen.0, Observed::Dead { .. }) {
            break;
        }
        // A supervisor may have written down the end, and ended, since the file was read.
        let again = look_once(dir)?;
        if again == seen {
            break;
        }
        seen = again;
    }
    for _ in 0..STARTS {
        if !is_starting(dir, &seen) {
            break;
        }
        std::thread::sleep(START);
        seen = look_once(dir)?;
    }
    Ok(seen)
}

/// How often, and after what time, a container is looked at again while it starts.
const STARTS: usize = 100;
const START: Duration = Duration::from_millis(2);

/// Whether processes of the container were found before their supervisor has written who and where
/// it is. On another host, or in another pid namespace, they would be taken for processes here.
fn is_starting(dir: &Path, (observed, state): &(Observed, ContainerState)) -> bool {
    let Observed::Running(running) = observed else { return false };
    let unknown = running.init.is_none()
        && running.supervisor.is_none()
        && running.elsewhere.is_none()
        && !matches!(state.status, Status::Running | Status::Restarting);
    unknown
        && fs::File::open(dir.join(LOCK)).is_ok_and(|lock| {
            records::asked(&lock, Relation::Kernel, Reach::Kernel) == records::Asked::Held
        })
}

fn look_once(dir: &Path) -> Result<(Observed, ContainerState), Error> {
    let state: Option<ContainerState> = read_json(&dir.join(STATE))?;
    let records = Records::existing(dir);
    // Most containers of a long list were never started.
    match (state, &records) {
        (None, None) => Ok((Observed::Created, ContainerState::default())),
        (state, _) => {
            let state = state.unwrap_or_default();
            Ok((judge(dir, &state, records.as_ref(), false), state))
        }
    }
}

/// Refuses where the container lives elsewhere.
///
/// # Errors
/// [`Error::Elsewhere`]; a damaged state file.
pub fn is_here(dir: &Path) -> Result<(), Error> {
    match observe(dir)? {
        Observed::Running(running) => running.here().map(drop),
        _ => Ok(()),
    }
}

/// A user says that a host is gone: what it recorded about the container does not count any more.
///
/// # Errors
/// [`Error::OtherHost`] where that host has no record here, [`Error::NotGone`] where it holds a
/// lock; files that cannot be read or written.
pub fn forget_host(dir: &Path, host: &str) -> Result<(), Error> {
    let state = read(dir)?;
    let supervised = supervised_elsewhere(dir, &state);
    let mut forgotten = match &supervised {
        Some(there) if there.host == host && there.held => {
            return Err(Error::NotGone { host: host.into(), path: dir.join(LOCK) });
        }
        _ => Records::existing(dir).map(|records| records.forget(host)).unwrap_or_default(),
    };
    if let Some(path) = forgotten.held {
        return Err(Error::NotGone { host: host.into(), path });
    }
    match supervised {
        Some(there) if there.host == host => {
            let error = format!("{host} was declared gone while the container ran there");
            let (init, supervisor) = (None, None);
            write(
                dir,
                &ContainerState {
                    status: Status::Dead,
                    init,
                    supervisor,
                    error: Some(error),
                    finished: super::now(),
                    ..state
                },
            )
        }
        other => {
            forgotten.others.extend(other.map(|there| there.host));
            let hosts = forgotten.others.into_iter().collect();
            let given = host.to_owned();
            if forgotten.count > 0 { Ok(()) } else { Err(Error::OtherHost { given, hosts }) }
        }
    }
}

fn judge(dir: &Path, state: &ContainerState, records: Option<&Records>, locked: bool) -> Observed {
    let seen = records.map(Records::look).unwrap_or_default();
    let mut runs = seen.living;
    runs.retain(|run| Some(run) != state.init.as_ref());
    // Only a state that claims it is worth looking who lives.
    let active = matches!(state.status, Status::Running | Status::Restarting);
    let living = |id: &Option<ProcessId>| id.clone().filter(|id| active && alive(id));
    let (supervisor, init) = (living(&state.supervisor), living(&state.init));
    let supervised = supervised_elsewhere(dir, state);
    // The lock that was asked for is the caller's own.
    let supervised = supervised.filter(|there| !(locked && there.held));
    let elsewhere = supervised.or(seen.elsewhere);
    if elsewhere.is_some() {
        let running = Running { init, supervisor, runs, elsewhere, ..Running::default() };
        return Observed::Running(Box::new(running));
    }
    if supervisor.is_some() && init.is_none() && state.status == Status::Restarting {
        return Observed::Restarting { supervisor: supervisor.unwrap_or_default() };
    }
    if supervisor.is_none() && init.is_none() && runs.is_empty() {
        runs = members::roots(dir);
    }
    if supervisor.is_some() || init.is_some() || !runs.is_empty() {
        let paused = is_paused(dir);
        let running = Running { init, supervisor, runs, paused, elsewhere: None };
        return Observed::Running(Box::new(running));
    }
    match state.status {
        Status::Created => Observed::Created,
        Status::Exited => match state.exit_code {
            Some(code) => Observed::Exited { code },
            None => Observed::Ended,
        },
        Status::Dead => Observed::Dead {
            reason: state.error.clone().unwrap_or_else(|| "it could not be started".into()),
        },
        Status::Running | Status::Restarting => Observed::Dead { reason: vanished(state) },
    }
}

/// Where the supervisor of the state lives, when that is not here, unless its lock says that it
/// is dead.
fn supervised_elsewhere(dir: &Path, state: &ContainerState) -> Option<Elsewhere> {
    if !matches!(state.status, Status::Running | Status::Restarting) {
        return None;
    }
    let process = state.init.as_ref().or(state.supervisor.as_ref())?;
    let (machine, since) = place(state)?;
    let relation = Machine::here().relation_to(&machine, since);
    if matches!(relation, Relation::Same | Relation::Earlier) {
        return None;
    }
    let answer = match fs::File::open(dir.join(LOCK)) {
        Ok(lock) => records::asked(&lock, relation, state.lock),
        Err(_) => records::Asked::Unknown,
    };
    if answer == records::Asked::Free {
        return None;
    }
    let held = answer == records::Asked::Held;
    Some(Elsewhere::new(&machine, process.pid, since, held))
}

/// Where and when the state was written.
fn place(state: &ContainerState) -> Option<(Machine, u64)> {
    let process = state.supervisor.as_ref().or(state.init.as_ref())?;
    // A state of a version that knew no more than host and boot.
    let machine_id = match process.pid_namespace {
        0 => &Machine::here().machine_id,
        _ => &state.machine_id,
    };
    let machine = Machine {
        name: state.host.clone(),
        machine_id: machine_id.clone(),
        boot_id: process.boot_id.clone(),
        pid_namespace: process.pid_namespace,
    };
    let started = state.started.parse::<jiff::Timestamp>();
    Some((machine, started.map_or(0, |time| time.as_second().max(0).unsigned_abs())))
}

/// A state that a supervisor here writes: where it is, and how its life is seen from elsewhere.
pub(crate) fn here(lock: Reach) -> ContainerState {
    let Machine { name, machine_id, .. } = Machine::here().clone();
    ContainerState { host: name, machine_id, lock, ..ContainerState::default() }
}

/// Why a state that says "running" is not true.
fn vanished(state: &ContainerState) -> String {
    let relation =
        place(state).map(|(machine, since)| Machine::here().relation_to(&machine, since));
    match relation {
        Some(Relation::Earlier) => "the machine was started anew since".into(),
        Some(Relation::Other) => format!("{} went down, or its supervisor there did", state.host),
        _ => "its supervisor was killed, so how it ended is not known".into(),
    }
}

/// Present while the container is paused.
const PAUSED: &str = "paused";

pub(crate) fn set_paused(dir: &Path, paused: bool) {
    set_marker(&dir.join(PAUSED), paused);
}

/// Whether a user has stopped the processes of the container until they are to go on. It says
/// nothing of a container that does not run.
pub fn is_paused(dir: &Path) -> bool {
    dir.join(PAUSED).exists()
}

pub(crate) fn set_stop_requested(dir: &Path, requested: bool) {
    set_marker(&dir.join(STOPPED), requested);
}

/// Whether a user asked for the end of the container's last run. One that still runs ends soon,
/// also where the command that asked for it was killed.
pub fn stop_requested(dir: &Path) -> bool {
    dir.join(STOPPED).exists()
}

fn set_marker(path: &Path, present: bool) {
    if present {
        let _ = fs::write(path, b"");
    } else {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::identity;

    fn own() -> ProcessId {
        identity(std::process::id()).unwrap()
    }

    fn gone() -> ProcessId {
        ProcessId { start_time: 1, ..own() }
    }

    #[test]
    fn observation_follows_the_processes_and_not_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert_eq!(observe(dir).unwrap(), Observed::Created);
        let mut state = ContainerState {
            status: Status::Running,
            init: Some(gone()),
            supervisor: Some(own()),
            ..ContainerState::default()
        };
        write(dir, &state).unwrap();
        assert!(matches!(observe(dir).unwrap(), Observed::Running(_)));
        state.supervisor = Some(gone());
        write(dir, &state).unwrap();
        assert!(matches!(observe(dir).unwrap(), Observed::Dead { .. }));
        state.init = Some(own());
        write(dir, &state).unwrap();
        let Observed::Running(running) = observe(dir).unwrap() else { panic!() };
        assert_eq!((running.init, running.supervisor), (Some(own()), None));
        state.status = Status::Exited;
        state.exit_code = Some(130);
        write(dir, &state).unwrap();
        assert_eq!(observe(dir).unwrap(), Observed::Exited { code: 130 });
    }

    /// A state that a supervisor on another machine left.
    fn foreign(host: &str) -> ContainerState {
        let there = ProcessId { boot_id: "other".into(), ..own() };
        ContainerState {
            status: Status::Running,
            init: Some(there.clone()),
            supervisor: Some(there),
            host: host.into(),
            started: "2026-01-02T03:04:05Z".into(),
            ..here(Reach::None)
        }
    }

    fn elsewhere(dir: &Path) -> Option<Elsewhere> {
        match observe(dir).unwrap() {
            Observed::Running(running) => running.elsewhere,
            _ => None,
        }
    }

    #[test]
    fn an_end_that_is_written_down_is_never_an_unknown_one() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        // Between reading the file and asking who lives it takes a while to look through these.
        let run = dir.join("run");
        fs::create_dir(&run).unwrap();
        (0..3000).for_each(|number| fs::write(run.join(format!(".{number}")), "").unwrap());
        for _ in 0..40 {
            let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            let supervisor = identity(child.id());
            let running =
                ContainerState { status: Status::Running, supervisor, ..Default::default() };
            write(dir, &running).unwrap();
            std::thread::scope(|scope| {
                let seen = scope.spawn(|| observe(dir).unwrap());
                let exited = ContainerState {
                    status: Status::Exited,
                    exit_code: Some(7),
                    ..Default::default()
                };
                std::thread::sleep(std::time::Duration::from_micros(300));
                write(dir, &exited).unwrap();
                child.kill().unwrap();
                child.wait().unwrap();
                let seen = seen.join().unwrap();
                assert!(!matches!(seen, Observed::Dead { .. }), "{seen:?}");
            });
        }
    }

    #[test]
    fn another_machine_is_not_another_boot() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let mut state = foreign("node17");
        write(dir, &state).unwrap();
        let there = elsewhere(dir).unwrap();
        assert_eq!((there.host.as_str(), there.held), ("node17", false));
        assert!(is_here(dir).unwrap_err().to_string().contains("node17"));
        // This machine before its last start, unless it is one of many without a name.
        let machine = Machine { boot_id: "other".into(), ..Machine::here().clone() };
        if Machine::here().relation_to(&machine, 1) == Relation::Earlier {
            state = ContainerState { started: String::new(), ..foreign(&machine.name) };
            write(dir, &state).unwrap();
            let Observed::Dead { reason } = observe(dir).unwrap() else { panic!() };
            assert!(reason.contains("anew"));
        }
    }

    #[test]
    fn a_state_of_another_machine_is_as_true_as_its_lock() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let lock = fs::File::create(dir.join(LOCK)).unwrap();
        let state = ContainerState { lock: Reach::Hosts, ..foreign("node17") };
        write(dir, &state).unwrap();
        if records::lock::reach(&lock) != Reach::Hosts {
            println!(
                "SKIP a_state_of_another_machine_is_as_true_as_its_lock: an unknown file system"
            );
            return;
        }
        let _ = records::lock::take(&lock);
        assert!(elsewhere(dir).unwrap().held);
        assert!(matches!(forget_host(dir, "node17"), Err(Error::NotGone { .. })));
        drop(lock);
        let Observed::Dead { reason } = observe(dir).unwrap() else { panic!() };
        assert!(reason.contains("node17"));
    }

    #[test]
    fn a_host_that_is_declared_gone_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        write(dir, &foreign("node17")).unwrap();
        let wrong = forget_host(dir, "node18").unwrap_err().to_string();
        assert_eq!(wrong, "the container is not recorded to run on 'node18', but on node17");
        forget_host(dir, "node17").unwrap();
        let Observed::Dead { reason } = observe(dir).unwrap() else { panic!() };
        assert!(reason.contains("declared gone"));
        assert!(matches!(forget_host(dir, "node17"), Err(Error::OtherHost { .. })));
    }

    #[test]
    fn unsupervised_runs_count_while_they_live() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let records = Records::open(dir).unwrap();
        records.add(std::process::id()).unwrap();
        let Observed::Running(running) = observe(dir).unwrap() else { panic!() };
        assert_eq!(running.main(), Some(&own()));
        assert_eq!((running.runs.len(), running.init, running.supervisor), (1, None, None));
        records.remove(std::process::id());
        assert_eq!(observe(dir).unwrap(), Observed::Created);
    }

    #[test]
    fn a_damaged_state_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(STATE), b"{\"status\":").unwrap();
        assert!(observe(dir.path()).unwrap_err().to_string().contains("state.json"));
    }
}
