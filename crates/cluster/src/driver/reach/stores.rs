//! The stores of a cluster's hosts.
//!
//! Containers and networks of a host are in a store that no other host writes. That is the user's
//! own store there, unless several hosts see one store, as with a home directory on a network file
//! system: then each host has a store of its own on a disk of its own, which ends with the cluster,
//! and reads images from the shared one. Whether a store is shared is proven by a file that one
//! host writes and another one reads.

use std::path::{Path, PathBuf};

use super::super::hosts::{Host, at_once};
use super::super::remote::{Remote, Stores};
use super::super::{Setting, make_store};
use super::Opened;
use crate::channel::Channel;
use crate::error::{Error, Result};
use crate::place::{self, Place};
use crate::wire::messages::{OWN, Start};

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

/// Where the stores of hosts are.
pub(super) fn find(opened: &[Opened<'_>], setting: &Setting, place: &Place) -> Result<Vec<Stores>> {
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
        let read_only = match (sees_ours, shared(text)) {
            (true, _) => Some(setting.store.clone()),
            (false, true) => Some(store.clone()),
            (false, false) => return Ok(Stores { store: store.clone(), read_only: None }),
        };
        let scratch = channel.facts().scratch.as_ref().ok_or_else(|| {
            let fact = format!("{} has no directory of its own for a store", channel.name());
            Error::new(fact).with_hint("set TMPDIR there to a directory on its own disk")
        })?;
        Ok(Stores { store: scratch.join(place::own_store(place.cluster())), read_only })
    });
    let stores: Result<Vec<Stores>> = stores.collect();
    let forget = |(one, store): (&Opened<'_>, &PathBuf)| remove_mark(one, store, place.cluster());
    at_once(pairs(), forget).into_iter().collect::<Result<Vec<()>>>()?;
    let _ = std::fs::remove_file(&own);
    stores
}

/// Has the store of a host, and says in it if it ends with the cluster.
pub(super) fn mark_store(remote: &Remote, cluster: &str) -> Result<()> {
    let Stores { store, read_only } = remote.stores();
    if read_only.is_none() {
        return Ok(());
    }
    make_store(remote)?;
    remote.put(&place::own_store_mark(&place::directory(store, cluster)), 0o600, &[])
}
