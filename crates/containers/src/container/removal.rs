//! The right to remove a container when a run of it ends.
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

use store::ContainerDir;

use super::make::Made;
use super::{launch, record};
use crate::commands::protect;
use crate::context::Context;
use crate::report::Report;
use crate::udocker::legacy;

/// The right to remove a container at the end of this run.
#[derive(Clone)]
pub(crate) struct Removal {
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
pub(crate) enum Removed {
    /// It is gone; another run of it may have been faster.
    Gone,
    /// Something else runs in it, so it stays.
    InUse,
    /// It was protected meanwhile, so it stays.
    Protected,
}

impl Removal {
    /// Of what this run has made.
    pub(crate) fn of_made(made: &Made) -> Self {
        Self { container: made.container().clone(), right: Right::Made }
    }

    /// Of a container whose record says that it goes with its program; `None` where it does not.
    pub(crate) fn recorded(container: &ContainerDir) -> Result<Option<Self>, Report> {
        let wanted = protect::lets_go(&record::read(container)?.config);
        Ok(wanted.then(|| Self { container: container.clone(), right: Right::Recorded }))
    }

    /// Of the container that `udocker run --rm` names. `None` under another name than udocker's,
    /// and where it is protected.
    ///
    /// # Errors
    /// Where its tree is in udocker's own directory, of which nothing is removed.
    pub(crate) fn of_udocker(
        context: &Context,
        container: &ContainerDir,
    ) -> Result<Option<Self>, Report> {
        if !context.is_udocker() || protect::holds(&record::read(container)?.config) {
            return Ok(None);
        }
        legacy::check_removable(container)?;
        Ok(Some(Self { container: container.clone(), right: Right::Udockers }))
    }

    /// Whether this run has made the container.
    pub(crate) fn is_of_made(&self) -> bool {
        self.right == Right::Made
    }

    /// Removes the container.
    pub(crate) fn carry_out(&self, context: &Context) -> Result<Removed, Report> {
        let container = &self.container;
        // A record that cannot be read protects nothing.
        if record::read(container).is_ok_and(|record| protect::holds(&record.config)) {
            return Ok(Removed::Protected);
        }
        match launch::remove_idle(context, container) {
            Ok(true) => Ok(Removed::Gone),
            Ok(false) => Ok(Removed::InUse),
            Err(_) if !container.exists().unwrap_or(true) => Ok(Removed::Gone),
            Err(report) => Err(report),
        }
    }
}
