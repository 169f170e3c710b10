//! The process that stays beside a program as its parent, without a supervisor's socket and log.

use super::init;
use super::streams::Child;
use crate::error::{Error, Result};
use crate::exit::Ended;
use crate::records::Records;
use rustix::process::Pid;
use std::path::Path;
use sys::event::MaskGuard;

/// Makes the caller the parent of orphans below it: of a program whose starter ends before it.
pub(crate) fn adopt_orphans() -> Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|errno| Error::call("become the parent of orphans", errno))
}

/// Starts a program as a child and waits for it. Signals are passed on to it, also those that
/// arrive before it runs.
///
/// `place`: the directory of the container, where the program is a run of its own and has a record.
pub(crate) fn attend(place: Option<&Path>, spawn: impl FnOnce() -> Result<Child>) -> Result<Ended> {
    let failed =
        |error: std::io::Error| Error::Call { doing: "block signals".into(), errno: error.into() };
    let mask = MaskGuard::block(init::watched()).map_err(failed)?;
    let child = mask.suspended(spawn).map_err(failed)??;
    let records = place.and_then(Records::existing);
    let held = records.as_ref().and_then(|records| records.hold(child.pid).ok());
    let ended = Pid::from_raw(child.pid as i32).map_or(Ended::Unknown, init::run_init);
    records.inspect(|records| records.remove(child.pid));
    drop(held);
    Ok(ended)
}
