//! Removes containers, by request or by the right of a run that ends.
//!
//! A run removes only what it made. A command cannot set a flag for that: it needs a [`Removal`],
//! which is built from the [`Made`] that [`super::make::make`] returns, or from the container's own
//! record. Under udocker's name there is a third source, because `udocker run --rm NAME` removes a
//! container that the user made earlier.
//!
//! | right | holder | what it removes |
//! |---|---|---|
//! | made | the `run` that made the container | it, when its program ends or never began |
//! | recorded | `start` of a container made by `create --rm`; the ranks that share a job's container | it, when the last of them ends |
//! | udocker's | `udocker run --rm NAME` | the container that was named, unless it is protected or udocker's own |
//!
//! No right removes a protected container, or one in which a process runs. Both are checked under
//! the container's lock.

use std::time::Duration;

use engine::supervise::{self, Signal, StopOptions};
use store::ContainerDir;

use super::made::Made;
use super::running::{self, is_running};
use super::{ids, record, told, volumes};
use crate::error::Result;
use crate::journal::{self, Kind};
use crate::protection;
use crate::session::Session;

/// The right to remove a container at the end of this run.
#[derive(Clone)]
pub struct Removal {
    container: ContainerDir,
    right: Right,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Right {
    Made,
    Recorded,
    Udockers,
}

/// What became of a container that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// It is gone; another run of it may have been faster.
    Gone,
    /// Something else runs in it, so it stays.
    InUse,
    /// It was protected meanwhile, so it stays.
    Protected,
}

impl Removal {
    /// Of what this run has made.
    pub fn of_made(made: &Made) -> Self {
        Self { container: made.container().clone(), right: Right::Made }
    }

    /// Of a container whose record says that it goes with its program; `None` where it does not.
    pub fn recorded(container: &ContainerDir) -> Result<Option<Self>> {
        let wanted = protection::lets_go(&record::read(container)?.config);
        Ok(wanted.then(|| Self { container: container.clone(), right: Right::Recorded }))
    }

    /// Of the container that `udocker run --rm` names. `None` under another name than udocker's,
    /// and where it is protected.
    ///
    /// # Errors
    /// Where its tree is in udocker's own directory, of which nothing is removed.
    pub fn of_existing(session: &Session, container: &ContainerDir) -> Result<Option<Self>> {
        if !session.dialect().removes_existing
            || protection::holds(&record::read(container)?.config)
        {
            return Ok(None);
        }
        (session.foreign().check_removable)(container)?;
        Ok(Some(Self { container: container.clone(), right: Right::Udockers }))
    }

    /// Whether this run has made the container.
    pub fn is_of_made(&self) -> bool {
        self.right == Right::Made
    }

    /// Removes the container.
    pub fn carry_out(&self, session: &Session) -> Result<Removed> {
        let container = &self.container;
        // A record that cannot be read protects nothing.
        if record::read(container).is_ok_and(|record| protection::holds(&record.config)) {
            return Ok(Removed::Protected);
        }
        match remove_idle(session, container, Unnamed::Remove) {
            Ok(true) => Ok(Removed::Gone),
            Ok(false) => Ok(Removed::InUse),
            Err(_) if !container.exists().unwrap_or(true) => Ok(Removed::Gone),
            Err(error) => Err(error),
        }
    }
}

/// How long a container's lock is looked at, before it is waited for.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// What becomes of a container's unnamed volumes when it is removed, as in Docker: `rm` keeps them
/// for `volume prune`, `rm -v` removes them, and so does the end of a run with `--rm`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unnamed {
    /// They stay, with what is in them.
    #[default]
    Keep,
    /// Those that no other container mounts.
    Remove,
}

/// Removes a container, files of subordinate users included, unless something runs in it, which is
/// the answer. That is asked under the lock: who starts a container holds it until the program
/// runs.
pub fn remove_idle(session: &Session, container: &ContainerDir, unnamed: Unnamed) -> Result<bool> {
    // The process that started a program may keep the lock as long as that runs.
    let mut tries = TRIES;
    let lock = loop {
        if is_running(container)? {
            return Ok(false);
        }
        match container.try_lock_exclusive()? {
            Some(lock) => break lock,
            None if tries == 0 => break container.lock_exclusive()?,
            None => std::thread::sleep(PAUSE),
        }
        tries -= 1;
    };
    if is_running(container)? {
        return Ok(false);
    }
    remove_locked(session, container.clone(), lock, unnamed)?;
    Ok(true)
}

fn remove_locked(
    session: &Session,
    container: ContainerDir,
    lock: store::ContainerLock,
    unnamed: Unnamed,
) -> Result<()> {
    let record = record::read(&container).ok();
    let actor = told::actor(&container, record.as_ref());
    let volumes =
        record.filter(|_| unnamed == Unnamed::Remove).map_or_else(Vec::new, volumes::unnamed_of);
    engine::engines::interpose::aliases::forget(&container.path());
    container.remove_with(&|path| ids::delete(session, path))?;
    drop(lock);
    journal::tell(session, Kind::Container, "destroy", actor);
    // What stays is found by 'volume prune'.
    let _ = volumes::release(session, &volumes);
    Ok(())
}

/// How a container is removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemoveRequest {
    /// End what runs in it; a container that does not exist is removed already.
    pub force: bool,
    /// What becomes of its unnamed volumes.
    pub unnamed: Unnamed,
}

/// Removes a container by its name or id; whether there was one. What many removals leave for the
/// disk is written by [`sync`].
pub fn remove(session: &Session, name: &str, request: RemoveRequest) -> Result<bool> {
    let container = match record::find_some(session, name)? {
        Some(container) => container,
        // As Docker: it is removed already.
        None if request.force => return Ok(false),
        None => record::find(session, name)?,
    };
    check_removable(session, &container)?;
    remove_container(session, &container, request)?;
    Ok(true)
}

/// Refuses to remove what is protected or another program's.
pub fn check_removable(session: &Session, container: &ContainerDir) -> Result<()> {
    check_protection(container)?;
    (session.foreign().check_removable)(container)
}

/// Removes a container that may be removed.
pub fn remove_container(
    session: &Session,
    container: &ContainerDir,
    request: RemoveRequest,
) -> Result<()> {
    loop {
        session.cancel().check()?;
        if request.force {
            let options = StopOptions { signal: Signal::KILL, timeout: None };
            if running::is_running(container)? {
                told::tell_signal(session, told::actor_of(container), options.signal);
            }
            supervise::stop(&container.path(), options)?;
            // A supervised `--rm` container is gone by now.
            if !container.exists()? {
                return Ok(());
            }
        }
        if remove_idle(session, container, request.unnamed)? {
            return Ok(());
        }
        // It was just being started, and runs now that the lock was had.
        if !request.force {
            running::is_here(container)?;
            return Err(running::running(container));
        }
    }
}

/// Waits until the removals of this session are on the disk: one wait for all of them.
pub fn sync(session: &Session) -> Result<()> {
    Ok(session.store()?.containers().sync_removals()?)
}

/// Refuses to remove a container that is protected. A record that cannot be read protects nothing.
pub fn check_protection(container: &ContainerDir) -> Result<()> {
    if record::read(container).is_ok_and(|record| protection::holds(&record.config)) {
        return Err(protection::refusal("container", &record::title(container)));
    }
    Ok(())
}
