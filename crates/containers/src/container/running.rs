//! Looks at whether a container runs, and by which process.

use engine::supervise;
use engine::supervise::state::{self, Observed};
use store::ContainerDir;
use sys::namespace::Kinds;

use super::record;
use crate::error::{Error, Result};
use crate::session::Session;

/// The process that stands for a container, if it runs.
///
/// # Errors
/// Where it runs on another machine that shares the store.
pub fn member(container: &ContainerDir) -> Result<Option<u32>> {
    Ok(match state::observe(&container.path())? {
        Observed::Running(running) => running.here()?.main().map(|process| process.pid),
        _ => None,
    })
}

/// The process that stands for a running container, by the container's name or id.
pub fn main_process(session: &Session, name: &str) -> Option<u32> {
    let container = record::find(session, name).ok()?;
    match state::observe(&container.path()).ok()? {
        Observed::Running(running) => running.main().map(|process| process.pid),
        _ => None,
    }
}

/// Whether something runs in a container, here or elsewhere, or will again.
pub fn is_running(container: &ContainerDir) -> Result<bool> {
    let observed = state::observe(&container.path())?;
    Ok(matches!(observed, Observed::Running(_) | Observed::Restarting { .. }))
}

/// Whether something runs in a container here, or will again. Both answers are of one look: a
/// container may be started elsewhere between two.
///
/// # Errors
/// As [`is_here`].
pub fn is_running_here(container: &ContainerDir) -> Result<bool> {
    Ok(match state::observe(&container.path())? {
        Observed::Running(running) => running.here().map(|_| true)?,
        Observed::Restarting { .. } => true,
        _ => false,
    })
}

/// Refuses where a container runs on another machine that shares the store, or in another pid
/// namespace: nothing may change it from here.
pub fn is_here(container: &ContainerDir) -> Result<()> {
    Ok(state::is_here(&container.path())?)
}

/// Refuses where a container runs.
pub fn not_running(container: &ContainerDir) -> Result<()> {
    if is_running_here(container)? { Err(running(container)) } else { Ok(()) }
}

/// The processes of a container here, for a message; nothing if they have ended by now.
pub fn named(container: &ContainerDir) -> String {
    match state::observe(&container.path()) {
        Ok(Observed::Running(running)) => {
            let all: Vec<_> = running.init.into_iter().chain(running.runs).collect();
            if all.is_empty() { String::new() } else { format!(": {}", supervise::named(&all)) }
        }
        _ => String::new(),
    }
}

/// Whether a container's process has a network namespace of its own. A private network may also be
/// one of translated addresses, which the kernel knows nothing of.
pub fn has_own_network(pid: u32) -> bool {
    sys::namespace::different(pid).is_ok_and(|own| own.has(Kinds::NET))
}

/// Refuses where a container that runs is paused: what would start or talk to it waits for ever.
/// `refusal` says what is refused, as Docker does.
pub fn not_paused(container: &ContainerDir, refusal: impl FnOnce(&str) -> String) -> Result<()> {
    if !state::is_paused(&container.path()) {
        return Ok(());
    }
    let title = record::title(container);
    Err(Error::conflict(refusal(&title)).with_hint(format!("coracle unpause {title}")))
}

/// The error where a container runs that must not.
pub fn running(container: &ContainerDir) -> Error {
    let title = record::title(container);
    Error::conflict(format!("container {title} is running"))
        .with_hint(format!("stop it first (coracle stop {title}), or use --force"))
}
