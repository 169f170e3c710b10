//! Works on files of subordinate users, as root of a user namespace in which they are mapped.

use std::path::Path;

use engine::facts::Facts;
use engine::plan;
use engine::spec::{ContainerConfig, UserNamespace};
use rootfs::union::IdMap;
use sys::userns::Maps;

use super::record::Record;
use crate::error::{Error, Result};
use crate::session::Session;

/// The ids that containers of this user have, where they have a range; root needs no namespace for
/// that.
pub fn maps(facts: &Facts) -> Option<Maps> {
    maps_with(facts, (0, 0))
}

/// The same where the caller's user and group have these numbers inside.
pub fn maps_with(facts: &Facts, caller: (u32, u32)) -> Option<Maps> {
    if facts.uid == 0 || !facts.has_range() {
        return None;
    }
    let lines = |id: u32, at: u32, subordinate: &[(u32, u32)]| {
        let lines = plan::range(id, at, subordinate);
        lines.iter().map(|line| (line.inside, line.outside, line.count)).collect()
    };
    Some(Maps {
        uids: lines(facts.uid, caller.0, &facts.subuids),
        gids: lines(facts.gid, caller.1, &facts.subgids),
        helpers: facts.newuidmap.clone().zip(facts.newgidmap.clone()),
    })
}

/// Deletes a directory tree, files of subordinate users included.
pub fn delete(
    session: &Session,
    path: &Path,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let first = store::remove_owned(path);
    if first.is_ok() {
        return first;
    }
    let facts = Facts::of(session.host(), &session.probing(), &ContainerConfig::default());
    let Some(maps) = maps(&facts) else { return first };
    session.may_fork("delete files of subordinate users")?;
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

/// Does work on a container's files with the right to read and write them all, and the map by which
/// their owners on disk are to be understood. Where subordinate ids are mapped this happens in a
/// process of its own, in a user namespace: what it writes to descriptors that are open arrives,
/// and so do the bytes that it returns; what it changes in memory does not, and an error keeps its
/// text alone.
pub fn within(
    session: &Session,
    config: &ContainerConfig,
    work: impl FnOnce(&IdMap) -> Result<Vec<u8>>,
) -> Result<Vec<u8>> {
    let facts = Facts::of(session.host(), &session.probing(), config);
    let ranged = matches!(config.namespaces.user, UserNamespace::Auto | UserNamespace::KeepId);
    if facts.uid == 0 {
        return work(&IdMap::identity());
    }
    let Some(maps) = maps(&facts).filter(|_| ranged) else { return work(&IdMap::default()) };
    session.may_fork("work on files of subordinate users")?;
    let answer = sys::userns::run(&maps, false, || encode(work(&IdMap::identity())));
    decode(&answer.map_err(|error| Error::of(&error))?)
}

/// Whether the kernel shows a container's files with owners that are on the disk.
pub fn are_on_disk(session: &Session, config: &ContainerConfig) -> bool {
    let facts = Facts::of(session.host(), &session.probing(), config);
    let ranged = matches!(config.namespaces.user, UserNamespace::Auto | UserNamespace::KeepId);
    facts.uid == 0 || ranged && maps(&facts).is_some()
}

/// The same for the files of a container by its record: those of a plain tree all belong to the
/// caller.
pub fn within_record(
    session: &Session,
    record: &Record,
    root: &rootfs::Root,
    work: impl FnOnce(&IdMap) -> Result<Vec<u8>>,
) -> Result<Vec<u8>> {
    let plain = record.own.root_form.driver == Some(rootfs::Driver::HardLink)
        && matches!(root, rootfs::Root::Directory(_));
    if plain { work(&IdMap::default()) } else { within(session, &record.config, work) }
}

/// Does work in a user and mount namespace of its own, where a container's root can be mounted.
pub fn within_mounts(
    session: &Session,
    config: &ContainerConfig,
    work: impl FnOnce() -> Result<Vec<u8>>,
) -> Result<Vec<u8>> {
    let facts = Facts::of(session.host(), &session.probing(), config);
    let ranged = matches!(config.namespaces.user, UserNamespace::Auto | UserNamespace::KeepId);
    let whole =
        || Maps { uids: vec![(0, 0, u32::MAX)], gids: vec![(0, 0, u32::MAX)], helpers: None };
    let maps = match maps(&facts).filter(|_| ranged) {
        Some(maps) => maps,
        None if facts.uid == 0 => whole(),
        None => Maps::single((0, 0)),
    };
    session.may_fork("mount a container's root")?;
    let answer = sys::userns::run(&maps, true, || encode(work()));
    decode(&answer.map_err(|error| Error::of(&error))?)
}

/// The first byte of an answer that is an error; its text follows.
const FAILED: u8 = 1;

/// An answer on its way between two processes.
fn encode(answer: Result<Vec<u8>>) -> Vec<u8> {
    let (status, bytes) = match answer {
        Ok(bytes) => (0, bytes),
        Err(error) => (FAILED, error.to_string().into_bytes()),
    };
    let mut encoded = vec![status];
    encoded.extend(bytes);
    encoded
}

fn decode(answer: &[u8]) -> Result<Vec<u8>> {
    match answer.split_first() {
        Some((&FAILED, text)) => Err(Error::failed(String::from_utf8_lossy(text))),
        Some((_, bytes)) => Ok(bytes.to_vec()),
        None => Err(Error::failed("the process in the user namespace gave no answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_cross_processes() {
        assert_eq!(decode(&encode(Ok(b"x".to_vec()))).unwrap(), b"x");
        assert_eq!(decode(&encode(Ok(Vec::new()))).unwrap(), b"");
        let error = Error::conflict("it runs").because("why").with_hint("lost");
        assert_eq!(decode(&encode(Err(error))).unwrap_err().to_string(), "it runs: why");
        assert!(decode(&[]).is_err());
    }
}
