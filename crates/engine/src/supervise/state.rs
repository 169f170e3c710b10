//! `state.json` and `run/`: what is known about a container's life, and whether it is still true.
//!
//! A supervisor writes `state.json` (a temporary file, then a rename; no fsync, since after a
//! crash of the machine nothing of it is true any more). A run without supervisor, and a
//! further run of a container that runs already, leave a record in `run/` instead (see
//! [`crate::records`]).
//!
//! [`observe`] compares both with `/proc`. A container lives as long as a process of it does: where an engine has no namespaces, a daemon
//! outlives the run that started it, and is found by what it executes ([`residents`]).

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Error;
use super::processes::{alive, boot_id};
use crate::engines::inprocess::residents;
use crate::records::Records;
use crate::spec::{ContainerState, ProcessId, Status};

const STATE: &str = "state.json";
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
    /// It does not run, and how it ended is not known.
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
    /// Runs without supervisor, and further runs of the same container; where there are none (and no first process), what runs that have
    /// ended left behind.
    pub runs: Vec<ProcessId>,
    /// Stopped by `pause`.
    pub paused: bool,
    /// The other machine it was started on, which shares this store. Whether it still runs there
    /// cannot be seen from here, and nothing can be done to it.
    pub elsewhere: Option<String>,
}

impl Running {
    /// The process that stands for the container: the first process, else the oldest run.
    pub fn main(&self) -> Option<&ProcessId> {
        self.init.as_ref().or_else(|| self.runs.first())
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
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::file("read", path, error)),
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|source| Error::Damaged { path: path.into(), source })
}

fn write_json(dir: &Path, name: &str, value: &impl Serialize) -> Result<(), Error> {
    let path = dir.join(name);
    // The process id makes the temporary name unique among writers on one machine; a writer
    // elsewhere with the same number loses at worst its own update.
    let temporary = dir.join(format!(".{name}.{}", std::process::id()));
    let fail = |step| {
        let path = path.clone();
        move |error: io::Error| Error::file(step, path, error)
    };
    let mut bytes = serde_json::to_vec(value)
        .map_err(|source| Error::Damaged { path: path.clone(), source })?;
    bytes.push(b'\n');
    let written = fs::File::create(&temporary).and_then(|mut file| file.write_all(&bytes));
    let done = written
        .map_err(fail("write"))
        .and_then(|()| fs::rename(&temporary, &path).map_err(fail("replace")));
    if done.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    done
}

/// What the container does now.
pub fn observe(dir: &Path) -> Result<Observed, Error> {
    look(dir).map(|(observed, _)| observed)
}

/// The same, with what `state.json` said.
pub fn look(dir: &Path) -> Result<(Observed, ContainerState), Error> {
    let state: Option<ContainerState> = read_json(&dir.join(STATE))?;
    let records = Records::existing(dir);
    // Most containers of a long list were never started.
    match (state, &records) {
        (None, None) => Ok((Observed::Created, ContainerState::default())),
        (state, _) => {
            let state = state.unwrap_or_default();
            Ok((judge(dir, &state, records.as_ref()), state))
        }
    }
}

fn judge(dir: &Path, state: &ContainerState, records: Option<&Records>) -> Observed {
    let mut runs = records.map(Records::living).unwrap_or_default();
    runs.retain(|run| Some(run) != state.init.as_ref());
    // Only a state that claims it is worth looking who lives.
    let active = matches!(state.status, Status::Running | Status::Restarting);
    let living = |id: &Option<ProcessId>| id.clone().filter(|id| active && alive(id));
    let (supervisor, init) = (living(&state.supervisor), living(&state.init));
    if active && let Some(host) = elsewhere(state) {
        let ContainerState { init, supervisor, .. } = state.clone();
        let elsewhere = Some(host);
        let running = Running { init, supervisor, runs, elsewhere, ..Running::default() };
        return Observed::Running(Box::new(running));
    }
    if supervisor.is_some() && init.is_none() && state.status == Status::Restarting {
        return Observed::Restarting { supervisor: supervisor.unwrap_or_default() };
    }
    if supervisor.is_none() && init.is_none() && runs.is_empty() {
        runs = residents::roots(dir);
    }
    if supervisor.is_some() || init.is_some() || !runs.is_empty() {
        let paused = is_paused(dir);
        let running = Running { init, supervisor, runs, paused, elsewhere: None };
        return Observed::Running(Box::new(running));
    }
    if let Some(host) = records.and_then(Records::elsewhere) {
        let running = Running { elsewhere: Some(host), ..Running::default() };
        return Observed::Running(Box::new(running));
    }
    match state.status {
        Status::Created => Observed::Created,
        Status::Exited => match state.exit_code {
            Some(code) => Observed::Exited { code },
            None => Observed::Dead { reason: "its exit code was not recorded".into() },
        },
        Status::Dead => Observed::Dead {
            reason: state.error.clone().unwrap_or_else(|| "it could not be started".into()),
        },
        Status::Running | Status::Restarting => Observed::Dead { reason: vanished(state) },
    }
}

/// The machine that wrote the state, if that is another one: same name and another boot is a
/// restart of this machine.
fn elsewhere(state: &ContainerState) -> Option<String> {
    let process = state.supervisor.as_ref().or(state.init.as_ref())?;
    let other = process.boot_id != boot_id() && !state.host.is_empty() && state.host != host();
    other.then(|| state.host.clone())
}

/// The name of this machine.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Why a state that says "running" is not true.
fn vanished(state: &ContainerState) -> String {
    let recorded = state.supervisor.as_ref().or(state.init.as_ref());
    if recorded.is_some_and(|process| process.boot_id != boot_id()) {
        "the machine was started anew since".into()
    } else {
        "its supervisor was killed, so how it ended is not known".into()
    }
}

/// Present while the container is paused.
const PAUSED: &str = "paused";

pub(crate) fn set_paused(dir: &Path, paused: bool) {
    set_marker(&dir.join(PAUSED), paused);
}

pub(crate) fn is_paused(dir: &Path) -> bool {
    dir.join(PAUSED).exists()
}

pub(crate) fn set_stop_requested(dir: &Path, requested: bool) {
    set_marker(&dir.join(STOPPED), requested);
}

pub(crate) fn stop_requested(dir: &Path) -> bool {
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
    use crate::supervise::processes::identity;

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

    #[test]
    fn another_machine_is_not_another_boot() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let there = ProcessId { boot_id: "other".into(), ..own() };
        let mut state = ContainerState {
            status: Status::Running,
            init: Some(there.clone()),
            supervisor: Some(there),
            host: "node17".into(),
            ..ContainerState::default()
        };
        write(dir, &state).unwrap();
        let Observed::Running(running) = observe(dir).unwrap() else { panic!() };
        assert_eq!(running.elsewhere.as_deref(), Some("node17"));
        state.host = host();
        write(dir, &state).unwrap();
        let Observed::Dead { reason } = observe(dir).unwrap() else { panic!() };
        assert!(reason.contains("anew"));
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
