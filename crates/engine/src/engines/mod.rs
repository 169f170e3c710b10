//! One module per engine.

pub mod apptainer;
mod etc;
pub mod inprocess;
pub mod interpose;
mod launch;
pub mod native;
pub mod oci;
pub mod ptrace;

pub(crate) use etc::write_file;
pub use launch::files::lift as lift_file_limit;

use crate::choose::{Ended, Engine, Streams};
use crate::error::Result;
use crate::plan::Plan;

/// Starts a program beside which this process stays, as its watcher: it holds the lock on the
/// program's record, passes signals on, and removes the record at the end. For stores that other
/// machines may have ([`crate::records::is_shared`]); nothing else differs from
/// [`Engine::become_guest`].
///
/// `member`: the process among whose namespaces the program is started (`exec`). `held` is
/// dropped when the program runs.
///
/// # Errors
/// As [`Engine::spawn`].
pub fn stay<T>(engine: &dyn Engine, plan: &Plan, member: Option<u32>, held: T) -> Result<Ended> {
    oci::start::attend(Some(&plan.place), || {
        let streams = Streams { tied: true, ..Streams::default() };
        let child = match member {
            None => engine.spawn(plan, streams)?,
            Some(pid) => engine.enter(pid, plan, streams)?,
        };
        drop(held);
        Ok(child)
    })
}
