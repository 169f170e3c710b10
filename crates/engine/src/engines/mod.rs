//! One module for each engine, and the modules that engines share.
//!
//! | shared module | engines that use it |
//! |---|---|
//! | [`contract`] | all |
//! | [`namespaces`]: a container made of the kernel's namespaces and mounts | N1, R1 |
//! | [`interpose`]: a container's tree without mounts, calls on its files | P, I, F, R2, R3, S1 |
//! | [`external`]: another program makes the container and starts this one in it | R, S1 |
//!
//! No engine uses another one.

pub mod apptainer;
mod contract;
pub mod external;
pub mod inprocess;
pub mod interpose;
pub mod namespaces;
pub mod native;
pub mod oci;
pub mod ptrace;

pub use contract::{
    Asked, Begun, CallsBy, Caps, Engine, Fit, Helper, IdsFrom, MadeFiles, Properties, RootKind,
};

use crate::error::Result;
use crate::exit::Ended;
use crate::launch::attend::attend;
use crate::launch::streams::Streams;
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
    attend(Some(&plan.place), || {
        let streams = Streams { tied: true, ..Streams::default() };
        let child = match member {
            None => engine.spawn(plan, streams)?,
            Some(pid) => engine.enter(pid, plan, streams)?,
        };
        drop(held);
        Ok(child)
    })
}
