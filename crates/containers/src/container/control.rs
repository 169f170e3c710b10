//! Starts, stops, signals, freezes and awaits containers that exist.

use std::time::Duration;

use engine::supervise::{self, Signal, StopOptions, Waited};
use store::ContainerDir;

use super::launch::{self, Ended, Run};
use super::record;
use super::removal::Removal;
use super::{networks, running, told};
use crate::error::{Error, Result};
use crate::journal::{self, Kind};
use crate::request::options;
use crate::session::Session;

/// Seconds between the stop signal and `SIGKILL`, where nothing else is said.
const GRACE: i64 = 10;

/// Starts a container in the background. As in Docker, starting a running container is no error.
pub fn start(session: &Session, name: &str) -> Result<()> {
    let container = record::find(session, name)?;
    if running::is_running_here(&container)? {
        return running::not_paused(&container, |title| {
            format!("container {title} is paused, try unpause instead of start")
        });
    }
    background(session, container)
}

/// Starts a container and stays in front of it until it ends or the user leaves.
pub fn start_attached(
    session: &Session,
    name: &str,
    interactive: bool,
    detach_keys: Option<&str>,
) -> Result<Ended> {
    let container = record::find(session, name)?;
    if running::is_running_here(&container)? {
        return Err(Error::conflict(format!("container {name} is running"))
            .with_hint(format!("coracle attach {name}")));
    }
    let mut run = recorded(container)?;
    run.record.config.stdin_open &= interactive;
    run.detach_keys = detach_keys.map(str::to_owned);
    launch::launch(session, &run)
}

fn background(session: &Session, container: ContainerDir) -> Result<()> {
    let run = Run { detach: true, ..recorded(container)? };
    launch::launch(session, &run).map(drop)
}

/// A run of a container as its record says, to which others can attach.
fn recorded(container: ContainerDir) -> Result<Run> {
    let record = record::read(&container)?;
    let removal = if record.config.auto_remove { Removal::recorded(&container)? } else { None };
    Ok(Run { removal, attachable: true, ..Run::new(container, record) })
}

/// How a container is stopped, where that differs from its record.
#[derive(Debug, Clone, Default)]
pub struct StopRequest {
    /// Seconds between the signal and `SIGKILL`; a negative number waits without end, as in Docker.
    pub seconds: Option<i64>,
    /// The signal's name or number.
    pub signal: Option<String>,
}

/// Stops a container. A container that does not run is stopped already.
pub fn stop(session: &Session, name: &str, request: &StopRequest) -> Result<()> {
    stop_container(session, &record::find(session, name)?, request)
}

/// Stops a container, and starts it in the background.
pub fn restart(session: &Session, name: &str, request: &StopRequest) -> Result<()> {
    let container = record::find(session, name)?;
    stop_container(session, &container, request)?;
    background(session, container.clone())?;
    told::tell_of(session, "restart", &container);
    Ok(())
}

/// Stops a container that has been found.
pub fn stop_container(
    session: &Session,
    container: &ContainerDir,
    request: &StopRequest,
) -> Result<()> {
    let record = record::read(container)?;
    let config = &record.config;
    let signal = match request.signal.as_deref() {
        Some(name) => options::signal(name)?,
        None if config.stop_signal.is_empty() => Signal::TERM,
        None => options::signal(&config.stop_signal)?,
    };
    let seconds = request.seconds.unwrap_or_else(|| config.stop_timeout.map_or(GRACE, i64::from));
    let timeout = u64::try_from(seconds).ok().map(Duration::from_secs);
    let ran = running::is_running(container)?;
    if ran {
        told::tell_signal(session, told::actor(container, Some(&record)), signal);
    }
    supervise::stop(&container.path(), StopOptions { signal, timeout })?;
    if ran {
        told::tell(session, "stop", container, &record);
    }
    Ok(())
}

/// Sends a signal to a container's main process.
pub fn kill(session: &Session, name: &str, signal: Signal) -> Result<()> {
    let container = record::find(session, name)?;
    if running::is_running(&container)? {
        told::tell_signal(session, told::actor_of(&container), signal);
    }
    supervise::kill(&container.path(), signal)
        .map_err(|error| Error::from(error).within(format!("cannot kill {name}")))
}

/// Freezes a container's processes.
pub fn pause(session: &Session, name: &str) -> Result<()> {
    let container = record::find(session, name)?;
    supervise::pause(&container.path())
        .map_err(|error| Error::from(error).within(format!("cannot pause {name}")))?;
    told::tell_of(session, "pause", &container);
    Ok(())
}

/// Lets a container's frozen processes go on.
pub fn unpause(session: &Session, name: &str) -> Result<()> {
    let container = record::find(session, name)?;
    supervise::unpause(&container.path())
        .map_err(|error| Error::from(error).within(format!("cannot unpause {name}")))?;
    told::tell_of(session, "unpause", &container);
    Ok(())
}

/// Waits until a container's program has ended; its exit code. It can be cancelled.
pub fn wait(session: &Session, name: &str) -> Result<i32> {
    let container = record::find(session, name)?;
    let cancel = session.cancel();
    match supervise::wait(&container.path(), &|| !cancel.is_cancelled())? {
        Some(Waited::Code(code)) => Ok(code),
        None => Err(Error::cancelled(format!("the wait for {name} was cancelled"))),
        Some(Waited::Unknown) => Err(Error::conflict(format!(
            "{name} has ended, and its exit code is unknown"
        ))
        .with_hint(
            "a program without supervisor (--log-driver none, a rank of a job) gives its exit code \
             to the process that started it",
        )),
    }
}

/// The ids of all containers.
pub fn every_id(session: &Session) -> Result<Vec<String>> {
    let all = session.store()?.containers().list()?;
    Ok(all.iter().map(|container| container.id().to_owned()).collect())
}

/// Gives a container another name. A container may have several: the one by which it is meant is
/// replaced, else all.
pub fn rename(session: &Session, name: &str, new: &str) -> Result<()> {
    let mut container = record::find(session, name)?;
    let names = container.names()?;
    if names.iter().any(|known| known == new) {
        return Err(Error::conflict(format!("container {name} has the name '{new}' already")));
    }
    let old = names.into_iter().find(|known| known == name);
    let title = old.clone().unwrap_or_else(|| record::title(&container));
    container.rename(old.as_deref(), new)?;
    networks::renamed(session, &container)?;
    let actor = told::actor_of(&container);
    let actor = actor.with("oldName", format!("/{title}"));
    journal::tell(session, Kind::Container, "rename", actor);
    Ok(())
}

/// Gives a container a further name.
pub fn add_name(session: &Session, name: &str, further: &str) -> Result<()> {
    record::find(session, name)?.add_name(further)?;
    Ok(())
}

/// Takes a name from a container.
pub fn remove_name(session: &Session, name: &str) -> Result<()> {
    let mut container = record::find(session, name)?;
    if !container.remove_name(name)? {
        return Err(Error::not_found(format!("'{name}' is not a name of a container"))
            .with_hint("ids stay; 'coracle ps -a' lists names"));
    }
    networks::renamed(session, &container)
}
