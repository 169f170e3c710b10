//! Finds the processes of a container, whatever its records say.
//!
//! Records know of programs that were started, not of what these left behind. What all processes of
//! a container have in common tells them from others: their mount namespace ([`by_namespace`]), or
//! the stage that they execute ([`by_stage`]), or their tracer. Where a container has none of these
//! to itself, only descent is left.

pub mod by_namespace;
pub mod by_stage;
mod presence;

pub(crate) use presence::Presence;

use crate::processes::{
    alive, all as all_here, descendants, identity, identity_of, is_ours, mount_namespace, sort,
    which,
};
use crate::spec::ProcessId;
use std::fs;
use std::path::Path;

/// All processes of the container whose directory is `dir`, by number. At least one of the two ways
/// finds none.
pub(crate) fn all(dir: &Path) -> Vec<ProcessId> {
    let mut all = by_stage::all(dir);
    all.extend(by_namespace::all(dir));
    sort(&mut all);
    all
}

/// Those of them whose parents are not among them, the oldest first.
pub(crate) fn roots(dir: &Path) -> Vec<ProcessId> {
    crate::processes::roots(&all(dir))
}

/// The process that traces another; `None` if no process does.
fn tracer(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
    line.trim().parse().ok().filter(|&tracer| tracer != 0)
}

/// Before the number of a tracer and its start, in what [`world`] returns.
const TRACER: &str = "tracer:";

/// Before the directory of a container whose engine is inside its processes, likewise.
const INSIDE: &str = "inside:";

/// What all processes of a container have in common, read from one of them: the directory of the
/// stage that they execute, where the backend is inside them; the tracer, if there is one; else the
/// mount namespace.
pub(crate) fn world(pid: u32) -> Option<String> {
    if let Some(home) = by_stage::home(pid) {
        return Some(format!("{INSIDE}{}", home.display()));
    }
    match tracer(pid).filter(|&tracer| is_ours(tracer)).and_then(identity) {
        Some(tracer) => Some(format!("{TRACER}{} {}", tracer.pid, tracer.start_time)),
        None => mount_namespace(pid),
    }
}

/// Whether what [`world`] returned is a tracer.
pub(crate) fn is_tracer(world: &str) -> bool {
    world.starts_with(TRACER)
}

/// Whether what [`world`] returned is a mount namespace other than this process's.
pub(crate) fn is_namespace(world: &str) -> bool {
    let special = world.starts_with(TRACER) || world.starts_with(INSIDE);
    !special && mount_namespace(std::process::id()).as_deref() != Some(world)
}

/// The processes of a container whose first process is `init`: those that have this [`world`] in
/// common, where it is one of its own, and its descendants. Never this process, nor one that
/// traces.
///
/// The number of a mount namespace is used again. A caller that asks by it keeps the namespace
/// open, or checks afterwards that the process from which it read the number still lives.
pub(crate) fn of(init: &ProcessId, world: Option<&str>) -> Vec<ProcessId> {
    let own = std::process::id();
    // The children of one that has ended are another's by now.
    let first: Vec<ProcessId> = Some(init.clone()).filter(alive).into_iter().collect();
    let mut found = descendants(&first);
    found.extend(first);
    let all_which = |holds: &dyn Fn(u32) -> bool| -> Vec<ProcessId> {
        all_here().into_iter().filter_map(|pid| which(pid, holds)).collect()
    };
    if let Some(tracing) = world.and_then(|world| world.strip_prefix(TRACER)) {
        if let Some(tracing) = known(tracing) {
            let traced = all_which(&|pid| tracer(pid) == Some(tracing.pid));
            found.extend(traced.into_iter().filter(|_| alive(&tracing)));
            found.retain(|process| process.pid != tracing.pid);
        }
    } else if let Some(home) = world.and_then(|world| world.strip_prefix(INSIDE)) {
        let home = Path::new(home);
        found.extend(all_which(&|pid| by_stage::home(pid).as_deref() == Some(home)));
    } else if let Some(wanted) = world.filter(|&world| is_namespace(world)) {
        found.extend(all_which(&|pid| mount_namespace(pid).as_deref() == Some(wanted)));
    }
    found.retain(|process| process.pid != own);
    sort(&mut found);
    found
}

/// A process as [`world`] writes it.
fn known(text: &str) -> Option<ProcessId> {
    let (pid, start_time) = text.split_once(' ')?;
    Some(identity_of(pid.parse().ok()?, start_time.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::send;

    #[test]
    fn members_include_a_process_itself_and_no_later_one() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let id = identity(child.id()).unwrap();
        assert_eq!(of(&id, None), std::slice::from_ref(&id));
        let other = ProcessId { start_time: id.start_time + 1, ..id.clone() };
        assert!(of(&other, None).is_empty());
        send(&id, 9).unwrap();
        child.wait().unwrap();
    }
}
