//! Work on files of subordinate users: done as root of a user namespace in which they are mapped.

use std::path::Path;

use engine::facts::Facts;
use engine::spec::{ContainerConfig, UserNamespace};
use rootfs::union::IdMap;
use sys::userns::Maps;

use super::record::Record;
use crate::context::Context;
use crate::report::Report;

/// The ids that containers of this user have, where they have a range; root needs no namespace for that.
pub(crate) fn maps(facts: &Facts) -> Option<Maps> {
    if facts.uid == 0 || !facts.has_range() {
        return None;
    }
    let lines = |caller: u32, subordinate: &[(u32, u32)]| {
        let mut lines = vec![(0, caller, 1)];
        let mut inside = 1;
        for &(first, count) in subordinate {
            lines.push((inside, first, count));
            inside += count;
        }
        lines
    };
    Some(Maps {
        uids: lines(facts.uid, &facts.subuids),
        gids: lines(facts.gid, &facts.subgids),
        helpers: facts.newuidmap.clone().zip(facts.newgidmap.clone()),
    })
}

/// Deletes a directory tree, files of subordinate users included.
pub(crate) fn delete(
    context: &Context,
    path: &Path,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let first = store::remove_owned(path);
    if first.is_ok() {
        return first;
    }
    let facts = Facts::of(context.host(), &context.probing(), &ContainerConfig::default());
    let Some(maps) = maps(&facts) else { return first };
    let answer = sys::userns::run(&maps, false, || match store::remove_owned(path) {
        Ok(()) => Vec::new(),
        Err(error) => error.to_string().into_bytes(),
    })?;
    if answer.is_empty() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&answer).into_owned().into())
    }
}

/// Does work on a container's files with the right to read and write them all, and the map by which their owners on disk
/// are to be understood. Where subordinate ids are mapped this happens in a process of its own, in a user namespace:
/// what it writes to descriptors that are open arrives, what it changes in memory does not.
pub(crate) fn within(
    context: &Context,
    config: &ContainerConfig,
    work: impl FnOnce(&IdMap) -> Result<(), Report>,
) -> Result<(), Report> {
    let facts = Facts::of(context.host(), &context.probing(), config);
    let ranged = matches!(config.namespaces.user, UserNamespace::Auto | UserNamespace::KeepId);
    if facts.uid == 0 {
        return work(&IdMap::identity());
    }
    let Some(maps) = maps(&facts).filter(|_| ranged) else { return work(&IdMap::default()) };
    let answer = sys::userns::run(&maps, false, || {
        work(&IdMap::identity())
            .map_or_else(|report| report.to_string().into_bytes(), |()| Vec::new())
    })
    .map_err(|error| Report::of(&error, None))?;
    if answer.is_empty() { Ok(()) } else { Err(Report::new(String::from_utf8_lossy(&answer))) }
}

/// The same for the files of a container by its record: those of a plain tree all belong to the caller.
pub(crate) fn within_record(
    context: &Context,
    record: &Record,
    root: &rootfs::Root,
    work: impl FnOnce(&IdMap) -> Result<(), Report>,
) -> Result<(), Report> {
    let plain = record.own.stand.driver == Some(rootfs::Driver::HardLink)
        && matches!(root, rootfs::Root::Directory(_));
    if plain { work(&IdMap::default()) } else { within(context, &record.config, work) }
}

/// Does work in a user and mount namespace of its own, where a container's root can be mounted.
pub(crate) fn within_mounts(
    context: &Context,
    config: &ContainerConfig,
    work: impl FnOnce() -> Result<(), Report>,
) -> Result<(), Report> {
    let facts = Facts::of(context.host(), &context.probing(), config);
    let ranged = matches!(config.namespaces.user, UserNamespace::Auto | UserNamespace::KeepId);
    let whole =
        || Maps { uids: vec![(0, 0, u32::MAX)], gids: vec![(0, 0, u32::MAX)], helpers: None };
    let maps = match maps(&facts).filter(|_| ranged) {
        Some(maps) => maps,
        None if facts.uid == 0 => whole(),
        None => Maps::single((0, 0)),
    };
    let answer = sys::userns::run(&maps, true, || {
        work().map_or_else(|report| report.to_string().into_bytes(), |()| Vec::new())
    })
    .map_err(|error| Report::of(&error, None))?;
    if answer.is_empty() { Ok(()) } else { Err(Report::new(String::from_utf8_lossy(&answer))) }
}
