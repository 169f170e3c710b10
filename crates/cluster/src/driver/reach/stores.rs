//! The stores of a cluster's hosts.
//!
//! Containers and networks of a host are in a store that no other host writes. That is the user's
//! own store there, unless several hosts see one store, as with a home directory on a network file
//! system: then each host has a store of its own on a disk of its own, which ends with the cluster,
//! and reads images from the shared one, or with `pack` gets them as other hosts do. Whether a
//! store is shared is proven by a file that one host writes and another one reads.

use std::path::{Path, PathBuf};

use containers::Session;
use containers::images::parts::Parts;
use containers::size;
use oci::{Compression, Descriptor};
use remote::channel::Channel;
use remote::wire::ROOM;
use remote::wire::messages::{OWN, Start};

use super::super::hosts::{Host, at_once};
use super::super::remote::{Remote, Stores};
use super::super::{Setting, make_store};
use super::Opened;
use crate::error::{Error, Result};
use crate::place::{self, Place};
use crate::spec::{Image, Spec};

/// The store that a host's commands use by themselves.
fn usual_store(one: &Opened<'_>) -> Result<PathBuf> {
    let channel = &one.channel;
    let ask = Start::new([OWN, "info", "--format", "{{.DockerRootDir}}"]);
    let done = channel.start(&ask)?.output(64 << 10)?;
    let text = String::from_utf8_lossy(&done.stdout).trim_end_matches('\n').to_owned();
    if text.starts_with('/') && done.ended.status() == 0 {
        return Ok(PathBuf::from(text));
    }
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(Error::new(format!("the store on {}: {said}", channel.name())))
}

/// The file in a host's usual store by which shared ones are found.
fn mark_of_host(store: &Path, cluster: &str) -> PathBuf {
    place::directory(store, cluster).join("mark-of-host")
}

/// Removes a mark, and its directory if that was made for it.
fn remove_mark(one: &Opened<'_>, store: &Path, cluster: &str) -> Result<()> {
    let mark = mark_of_host(store, cluster);
    let path = mark.display().to_string();
    let parent = mark.parent().unwrap_or(Path::new("/")).display().to_string();
    // What an agent that was killed has written of it is there under another name.
    let script = "cd \"$2\" 2> /dev/null && rm -f \"$1\" .mark-of-host.*; \
                  rmdir \"$2\" 2> /dev/null; true";
    one.channel.start(&Start::new(["sh", "-c", script, "sh", &path, &parent]))?.wait()?;
    Ok(())
}

/// Removes the marks of a driver that has ended in the middle of [`find`].
pub(super) fn remove_marks(opened: &[Opened<'_>], cluster: &str) -> Result<()> {
    let remove = |one| remove_mark(one, &usual_store(one)?, cluster);
    at_once(opened.iter(), remove).into_iter().collect()
}

/// What a cluster's images want of stores.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Wants {
    /// They are not unpacked in a store that several hosts see.
    pack: bool,
    /// Bytes that all of them take in a store, as far as that is known.
    pub(super) room: u64,
}

impl Wants {
    /// What those of a file want. A registry is asked only if they are to be in new stores for
    /// sure.
    pub(in super::super) fn of(spec: &Spec, session: &Session) -> Self {
        let parts = |image: &Image| {
            let Image::Named(name) = image else { return None };
            match Parts::stored(session, name) {
                // If the registry does not answer, the pull says so.
                Ok(None) if spec.pack => Parts::resolved(session, name).ok().map(|found| found.0),
                found => found.ok().flatten(),
            }
        };
        let images = crate::plan::images::of(spec);
        let room = images.iter().filter_map(parts).map(|parts| room_of(&parts)).sum();
        Self { pack: spec.pack, room }
    }
}

/// A store has an image packed and unpacked. Compressed layers usually grow to the threefold.
fn room_of(parts: &Parts) -> u64 {
    let size = |blob: &Descriptor| match blob.compression() {
        Some(Compression::None) | None => 2 * blob.size,
        Some(_) => 4 * blob.size,
    };
    parts.blobs().iter().map(size).sum()
}

/// Where the stores of hosts are.
pub(super) fn find(
    opened: &[Opened<'_>],
    (setting, place): (&Setting, &Place),
    wants: Wants,
) -> Result<Vec<Stores>> {
    let mark = sys::random::suffix().map_err(|error| Error::new(error.to_string()))?;
    let own = place.path().join("mark");
    setting.here.put(&own, 0o600, mark.as_bytes())?;
    let usual: Result<Vec<PathBuf>> = at_once(opened.iter(), usual_store).into_iter().collect();
    let usual = usual?;
    let marked = |store: &PathBuf| mark_of_host(store, place.cluster());
    let pairs = || opened.iter().zip(&usual);
    let write = |(Opened { channel, .. }, store): (&Opened<'_>, &PathBuf)| {
        let mark = format!("{mark} {}", channel.name());
        Ok(channel.put(&marked(store), 0o600, &mut mark.as_bytes())?)
    };
    at_once(pairs(), write).into_iter().collect::<Result<Vec<()>>>()?;
    let read = |channel: &Channel, path: &Path| {
        let mut text = Vec::new();
        channel.get(path, &mut text).ok().map(|()| text)
    };
    let look = |(Opened { channel, .. }, store): (&Opened<'_>, &PathBuf)| {
        let sees_ours = read(channel, &own).is_some_and(|text| text == mark.as_bytes());
        Ok((sees_ours, read(channel, &marked(store))))
    };
    let seen: Result<Vec<_>> = at_once(pairs(), look).into_iter().collect();
    let seen = seen?;
    let shared =
        |text: &Option<Vec<u8>>| seen.iter().filter(|(_, other)| other == text).count() > 1;
    let stores = pairs().zip(&seen).map(|((Opened { channel, .. }, store), (sees_ours, text))| {
        let (read_only, room) = match (sees_ours, shared(text)) {
            (false, false) => return Ok(Stores::usual(store.clone())),
            _ if wants.pack => (None, Some(wants.room)),
            (true, _) => (Some(setting.store.clone()), None),
            (false, true) => (Some(store.clone()), Some(wants.room)),
        };
        let scratch = scratch(channel, room)?;
        let store = scratch.join(place::own_store(place.cluster()));
        Ok(Stores { store, read_only, is_own: true })
    });
    let stores: Result<Vec<Stores>> = stores.collect();
    let forget = |(one, store): (&Opened<'_>, &PathBuf)| remove_mark(one, store, place.cluster());
    at_once(pairs(), forget).into_iter().collect::<Result<Vec<()>>>()?;
    let _ = std::fs::remove_file(&own);
    stores
}

/// A host's directory for a store of its own; of one that gets images the bytes that it needs.
fn scratch(channel: &Channel, room: Option<u64>) -> Result<&Path> {
    let facts = channel.facts();
    let found = if room.is_some() { &facts.roomy } else { &facts.scratch };
    found.as_deref().ok_or_else(|| {
        let room = room.map_or_else(|| "a store".to_owned(), size::human);
        let passed: Vec<String> =
            facts.passed.iter().map(|(place, told)| no_room(place, told)).collect();
        let (name, passed) = (channel.name(), passed.join(", "));
        Error::new(format!("{name} has no directory of its own with room for {room}: {passed}"))
            .with_hint("set TMPDIR there to a directory on its own disk")
    })
}

/// Why a place has no store, from an entry of `Facts::passed`.
fn no_room(place: &str, told: &str) -> String {
    match told.parse::<u64>() {
        Ok(free) if free < ROOM => format!("{place}: {} free are too few", size::human(free)),
        Ok(free) => format!("{place} has {} free", size::human(free)),
        Err(_) => format!("{place}: {told}"),
    }
}

/// Has the store of a host, and says in it if it ends with the cluster.
pub(super) fn mark_store(remote: &Remote, cluster: &str) -> Result<()> {
    let Stores { store, is_own, .. } = remote.stores();
    if !is_own {
        return Ok(());
    }
    make_store(remote)?;
    remote.put(&place::own_store_mark(&place::directory(store, cluster)), 0o600, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_place_has_no_store() {
        assert_eq!(no_room("/tmp", &(ROOM - 1).to_string()), "/tmp: 67.1MB free are too few");
        assert_eq!(no_room("/tmp", &ROOM.to_string()), "/tmp has 67.1MB free");
        let other = "it is not a directory";
        assert_eq!(no_room("/tmp", other), "/tmp: it is not a directory");
    }
}
