//! Containers: one directory each, called by its id, and symbolic links for its names.
//!
//! A container is made under `tmp/` and renamed into `containers/` with its `container.json`
//! inside, so a container without that file is never visible. A name is a link `containers/<name>
//! -> <id>`: the process that makes the link owns the name. Each container keeps a list of all
//! names that it was ever given (`names`), so that its links are found without reading those of all
//! containers; only the links count. Names change under `locks/names`. Under that lock, a link
//! whose container is missing can only be a leftover and is replaced.
//!
//! The engine defines the contents of `container.json` and `state.json`. State describes processes,
//! which a power failure ends, so it is replaced atomically but not synced. Making a container
//! waits for no disk either. A container that outlives its command is synced by
//! [`ContainerDir::sync`] (see `durable`), and so is each change of `container.json` or of the
//! names, unless the store is relaxed.

use std::collections::HashMap;
use std::num::NonZero;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::lock::{Lock, Lockable, Mode};
use crate::root::{encode, random_hex, random_id};
use crate::{Delete, DeleteError, Image, Store, names};

pub(crate) const DIRECTORY: &str = "containers";
pub(crate) const CONFIG: &str = "container.json";
pub(crate) const NAMES: &str = "names";
/// Number of random names that are tried before a number is appended to one.
const NAME_TRIES: usize = 6;
/// From this number of containers on, further threads pay, and so many containers are enough for
/// one of them.
const PARALLEL: usize = 400;
/// More threads than these wait for each other at the file system.
const THREADS: usize = 4;

/// The containers of a store.
#[derive(Debug, Clone, Copy)]
pub struct Containers<'store>(pub(crate) &'store Store);

/// One container's directory.
#[derive(Debug, Clone)]
pub struct ContainerDir {
    store: Store,
    id: String,
    /// Set by [`Containers::list`], which reads all links anyway.
    names: Option<Vec<String>>,
}

/// A held lock on a container.
#[derive(Debug)]
pub struct ContainerLock(#[expect(dead_code, reason = "held for its Drop")] Lock);

/// Deletes a file or directory tree whose files all belong to this user; [`ContainerDir::remove`]
/// uses it.
pub fn remove_owned(path: &Path) -> std::result::Result<(), DeleteError> {
    use std::os::unix::ffi::OsStrExt as _;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(format!("{} is not an entry of a directory", path.display()).into());
    };
    let parent = std::fs::File::open(parent)?;
    Ok(sys::fs::remove_tree(&parent, name.as_bytes())?)
}

pub(crate) fn rel(id_or_name: &str) -> String {
    format!("{DIRECTORY}/{id_or_name}")
}

impl Containers<'_> {
    fn dir(self, id: String) -> ContainerDir {
        ContainerDir { store: self.0.clone(), id, names: None }
    }

    /// Makes a container and writes `config` as its `container.json`. Without a name it gets a
    /// random one.
    ///
    /// `config` is called with the id and the name of the new container. Hold a [`crate::Lease`]
    /// from before the image is looked up until this returns. Until [`ContainerDir::sync`] returns,
    /// a power failure may remove the container again.
    pub fn create<T: Serialize>(
        self,
        name: Option<&str>,
        config: impl FnOnce(&str, &str) -> T,
    ) -> Result<ContainerDir> {
        self.0.writable()?;
        if let Some(name) = name {
            names::check(name)?;
        }
        let _lease = self.0.lease()?;
        self.0.sync_own()?;
        let root = &self.0.inner.root;
        let id = random_id()?;
        // Keeps other processes from taking this name until the container exists.
        let lock = self.lock_names()?;
        let name = match name {
            Some(name) => {
                self.free_name(name)?;
                name.to_owned()
            }
            None => self.random_name()?,
        };
        let temporary = format!("tmp/new-{id}");
        root.make_dir(&temporary)?;
        let config_rel = format!("{temporary}/{CONFIG}");
        let bytes = encode(&config(&id, &name), || root.join(&config_rel))?;
        let made = root
            .write_new(&config_rel, &bytes, false)
            .and_then(|()| root.write_new(&format!("{temporary}/{NAMES}"), name.as_bytes(), false))
            .and_then(|()| root.symlink(&id, &rel(&name)).map(|_| ()))
            .and_then(|()| root.rename(&temporary, &rel(&id)));
        if let Err(error) = made {
            // The link is a leftover now; the next container with this name replaces it.
            let _ = sys::fs::remove_tree(root.as_fd(), temporary.as_bytes());
            return Err(error);
        }
        drop(lock);
        let container = ContainerDir { names: Some(vec![name]), ..self.dir(id) };
        if self.0.syncs_now() {
            container.sync()?;
        }
        Ok(container)
    }

    fn lock_names(self) -> Result<Lock> {
        let lockable = self.0.lockable("names", "the names of containers", false);
        lockable.take(Mode::Exclusive, &self.0.inner.wait, Some(self.0.inner.wait.limit))
    }

    /// Checks that no container has a name, and removes a leftover link. Callers hold the lock on
    /// names.
    fn free_name(self, name: &str) -> Result<()> {
        let root = &self.0.inner.root;
        let Some(id) = root.read_link(&rel(name))? else { return Ok(()) };
        if names::is_id(&id) && root.exists(&rel(&id))? {
            return Err(Error::NameInUse { name: name.to_owned(), id });
        }
        root.unlink(&rel(name)).map(|_| ())
    }

    fn random_name(self) -> Result<String> {
        for attempt in 0.. {
            let mut name = names::random()?;
            if attempt >= NAME_TRIES {
                name = format!("{name}{}", random_hex(2)?);
            }
            match self.free_name(&name) {
                Ok(()) => return Ok(name),
                Err(Error::NameInUse { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// Finds a container by a name, an id or the beginning of an id, also in the form of a UUID. A
    /// whole name or id costs one
    /// system call.
    pub fn find(self, name: &str) -> Result<ContainerDir> {
        let root = &self.0.inner.root;
        let unknown = || Error::NoContainer { name: name.to_owned() };
        // A whole id must be checked to exist; for a name, the link and its target.
        if names::is_id(name) {
            return root.exists(&rel(name))?.then(|| self.dir(name.to_owned())).ok_or_else(unknown);
        }
        if names::check(name).is_ok()
            && let Some(id) = root.read_link(&rel(name))?
            && names::is_id(&id)
            && root.exists(&rel(&id))?
        {
            return Ok(self.dir(id));
        }
        let digits = names::without_dashes(name);
        let beginning = digits.as_deref().unwrap_or(name);
        if beginning.is_empty() || !names::is_hex(beginning) {
            return Err(unknown());
        }
        let mut ids: Vec<String> =
            root.list(DIRECTORY)?.into_iter().map(|(entry, _)| entry).collect();
        ids.retain(|entry| names::is_id(entry) && entry.starts_with(beginning));
        match ids.len() {
            0 => Err(unknown()),
            1 => Ok(self.dir(ids.remove(0))),
            _ => {
                ids.sort_unstable();
                let candidates = ids.iter().map(|id| id[..12].to_owned()).collect();
                Err(Error::AmbiguousContainer { name: name.to_owned(), candidates })
            }
        }
    }

    /// Returns the sorted ids, and the links beside them.
    fn entries(self) -> Result<(Vec<String>, Vec<String>)> {
        let mut ids = Vec::new();
        let mut links = Vec::new();
        for (entry, kind) in self.0.inner.root.list(DIRECTORY)? {
            // Some file systems do not report an entry's kind; ids and names differ in form.
            if names::is_id(&entry) {
                ids.push(entry);
            } else if matches!(kind, FileType::Symlink | FileType::Unknown) {
                links.push(entry);
            }
        }
        ids.sort_unstable();
        Ok((ids, links))
    }

    /// All containers, with their names, sorted by id.
    pub fn list(self) -> Result<Vec<ContainerDir>> {
        let (ids, links) = self.entries()?;
        let targets = parallel_map(&links, |link| self.0.inner.root.read_link(&rel(link)));
        let mut names_of: HashMap<String, Vec<String>> = HashMap::with_capacity(links.len());
        for (link, target) in links.into_iter().zip(targets) {
            if let Some(id) = target? {
                names_of.entry(id).or_default().push(link);
            }
        }
        let found = ids
            .into_iter()
            .map(|id| {
                let mut names = names_of.remove(&id).unwrap_or_default();
                names.sort_unstable();
                ContainerDir { names: Some(names), ..self.dir(id) }
            })
            .collect();
        let dangling: Vec<&str> = names_of.values().flatten().map(String::as_str).collect();
        self.drop_dangling(&dangling)?;
        Ok(found)
    }

    /// Applies a function (for example one that reads configuration and state) to all containers,
    /// on several threads when there are many. The order is that of [`Containers::list`].
    pub fn map<R: Send>(self, read: impl Fn(&ContainerDir) -> R + Sync) -> Result<Vec<R>> {
        Ok(parallel_map(&self.list()?, read))
    }

    /// As [`Containers::map`], without reading the names first: they are looked up when the
    /// function asks for them. Faster for a function that asks few containers or none.
    pub fn map_nameless<R: Send>(self, read: impl Fn(&ContainerDir) -> R + Sync) -> Result<Vec<R>> {
        let (ids, _) = self.entries()?;
        Ok(parallel_map(&ids, |id| read(&self.dir(id.clone()))))
    }

    /// The containers that were made from an image: those whose `container.json` has the digest of
    /// its manifest or configuration anywhere in the `image` object.
    pub fn using(self, image: &Image) -> Result<Vec<ContainerDir>> {
        let mut wanted = vec![image.digest().to_string()];
        if let Ok(id) = image.id() {
            wanted.push(id.to_string());
        }
        let found = self.map_nameless(|container| -> Result<Option<ContainerDir>> {
            let Some(config) = container.read_any()? else { return Ok(None) };
            let mut digests = Vec::new();
            collect_strings(config.get("image").unwrap_or(&serde_json::Value::Null), &mut digests);
            let uses = digests.iter().any(|digest| wanted.iter().any(|wanted| wanted == digest));
            Ok(uses.then(|| container.clone()))
        })?;
        let found: Vec<Option<ContainerDir>> = found.into_iter().collect::<Result<_>>()?;
        Ok(found.into_iter().flatten().collect())
    }
}

/// Applies a function to every item, on several threads when there are many, and keeps the order.
pub(crate) fn parallel_map<T: Sync, R: Send>(items: &[T], each: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if items.len() < PARALLEL {
        return items.iter().map(each).collect();
    }
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = processors.clamp(2, THREADS).min(items.len().div_ceil(PARALLEL / 2));
    let mut parts = items.chunks(items.len().div_ceil(threads));
    let first = parts.next().unwrap_or_default();
    let work = &|part: &[T]| part.iter().map(&each).collect::<Vec<R>>();
    std::thread::scope(|scope| {
        let workers: Vec<_> = parts.map(|part| scope.spawn(move || work(part))).collect();
        let mut answers = work(first);
        for worker in workers {
            match worker.join() {
                Ok(rest) => answers.extend(rest),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        answers
    })
}

/// Collects every string in a JSON value.
pub(crate) fn collect_strings<'v>(value: &'v serde_json::Value, into: &mut Vec<&'v str>) {
    match value {
        serde_json::Value::String(text) => into.push(text),
        serde_json::Value::Array(items) => {
            for item in items {
                collect_strings(item, into);
            }
        }
        serde_json::Value::Object(fields) => {
            for field in fields.values() {
                collect_strings(field, into);
            }
        }
        _ => {}
    }
}

impl ContainerDir {
    /// The id: 64 hexadecimal digits.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The first 12 digits of the id.
    pub fn short_id(&self) -> &str {
        &self.id[..12]
    }

    /// The container's directory.
    pub fn path(&self) -> PathBuf {
        self.store.inner.root.join(&rel(&self.id))
    }

    /// A path in the container's directory.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Returns true if the container still exists: another process may have removed it.
    pub fn exists(&self) -> Result<bool> {
        self.store.inner.root.exists(&rel(&self.id))
    }

    /// The container's names, sorted.
    pub fn names(&self) -> Result<Vec<String>> {
        if let Some(names) = &self.names {
            return Ok(names.clone());
        }
        self.current_names()
    }

    fn current_names(&self) -> Result<Vec<String>> {
        let root = &self.store.inner.root;
        let mut current = Vec::new();
        for name in self.known_names()? {
            if root.read_link(&rel(&name))?.as_deref() == Some(&self.id) {
                current.push(name);
            }
        }
        current.sort_unstable();
        current.dedup();
        Ok(current)
    }

    /// Reads the list of names that the container may have.
    fn known_names(&self) -> Result<Vec<String>> {
        let bytes = self.store.inner.root.read(&self.rel(NAMES), 1 << 20)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let known: Vec<String> =
            text.lines().filter(|name| names::check(name).is_ok()).map(str::to_owned).collect();
        if !known.is_empty() {
            return Ok(known);
        }
        // The container has no names, or a power failure came before the list was on the disk.
        let root = &self.store.inner.root;
        let (_, mut links) = self.store.containers().entries()?;
        links.retain(|link| {
            root.read_link(&rel(link)).is_ok_and(|id| id.as_deref() == Some(&self.id))
        });
        Ok(links)
    }

    fn write_names(&self, names: &[String]) -> Result<()> {
        let text = names.join("\n");
        let written = self.store.inner.root.replace(&self.rel(NAMES), text.as_bytes(), false);
        written.map_err(|error| self.gone(error))
    }

    fn rel(&self, name: &str) -> String {
        format!("{DIRECTORY}/{}/{name}", self.id)
    }

    /// Reads `container.json`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T> {
        self.read_file(CONFIG)?.ok_or_else(|| Error::NoContainer { name: self.id.clone() })
    }

    pub(crate) fn read_any(&self) -> Result<Option<serde_json::Value>> {
        self.read_file(CONFIG)
    }

    /// Replaces `container.json`.
    pub fn write<T: Serialize>(&self, value: &T) -> Result<()> {
        self.replace(CONFIG, value, self.store.syncs_names())?;
        // The container itself may not be on the disk yet.
        self.sync()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Reads another JSON file of the container (`state.json`); `None` when there is none. If a
    /// power failure has left the container without its `container.json`, reading that file removes
    /// the container.
    pub fn read_file<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let found = match self.store.inner.root.read_json(&self.rel(name)) {
            Err(Error::BadJson { .. }) if self.store.is_blank(&self.rel(name))? => Ok(None),
            other => other,
        }?;
        if found.is_none() && name == CONFIG {
            self.drop_if_lost()?;
        }
        Ok(found)
    }

    /// Replaces such a file atomically, without waiting for the disk.
    pub fn write_file<T: Serialize>(&self, name: &str, value: &T) -> Result<()> {
        self.replace(name, value, false)
    }

    fn replace<T: Serialize>(&self, name: &str, value: &T, durable: bool) -> Result<()> {
        self.store.writable()?;
        // Must not recreate the directory of a removed container.
        if !self.exists()? {
            return Err(Error::NoContainer { name: self.id.clone() });
        }
        let bytes = encode(value, || self.join(name))?;
        self.store
            .inner
            .root
            .replace(&self.rel(name), &bytes, durable)
            .map_err(|error| self.gone(error))
    }

    /// Adds a name.
    pub fn add_name(&mut self, name: &str) -> Result<()> {
        self.store.writable()?;
        names::check(name)?;
        let store = self.store.clone();
        let containers = store.containers();
        let names = containers.lock_names()?;
        self.link(containers, name)?;
        drop(names);
        self.sync_change()
    }

    fn link(&mut self, containers: Containers<'_>, name: &str) -> Result<()> {
        match containers.free_name(name) {
            Err(Error::NameInUse { id, .. }) if id == self.id => return Ok(()),
            other => other?,
        }
        if !self.exists()? {
            return Err(Error::NoContainer { name: self.id.clone() });
        }
        let mut known = self.known_names()?;
        known.push(name.to_owned());
        // The list comes first: it may have too many names, never too few.
        self.write_names(&known)?;
        self.store.inner.root.symlink(&self.id, &rel(name))?;
        self.names = None;
        Ok(())
    }

    /// Removes a name; `false` when the container did not have it. The container may be left
    /// without any name; its id remains.
    pub fn remove_name(&mut self, name: &str) -> Result<bool> {
        self.store.writable()?;
        let store = self.store.clone();
        let containers = store.containers();
        let names = containers.lock_names()?;
        let had = self.unlink_name(name)?;
        drop(names);
        self.sync_change()?;
        Ok(had)
    }

    fn unlink_name(&mut self, name: &str) -> Result<bool> {
        let root = &self.store.inner.root;
        let had = names::check(name).is_ok()
            && root.read_link(&rel(name))?.as_deref() == Some(&self.id)
            && root.unlink(&rel(name))?;
        let mut known = self.known_names()?;
        known.retain(|known| known != name);
        self.write_names(&known)?;
        self.names = None;
        Ok(had)
    }

    /// Replaces one of the container's names (all of them when `old` is `None`) by a new one.
    pub fn rename(&mut self, old: Option<&str>, new: &str) -> Result<()> {
        self.store.writable()?;
        names::check(new)?;
        let store = self.store.clone();
        let containers = store.containers();
        let names = containers.lock_names()?;
        let old = match old {
            Some(old) => vec![old.to_owned()],
            None => self.current_names()?,
        };
        // The new name first, so that one of the two always leads to the container.
        self.link(containers, new)?;
        for name in old.iter().filter(|name| *name != new) {
            self.unlink_name(name)?;
        }
        drop(names);
        self.sync_change()
    }

    fn lockable(&self) -> Lockable {
        Lockable {
            rel: self.rel("lock"),
            ..self.store.lockable("", format!("container {}", self.short_id()), false)
        }
    }

    /// Takes the shared lock, for users of the container (a run, an exec): nothing changes or
    /// removes it meanwhile.
    pub fn lock_shared(&self) -> Result<ContainerLock> {
        self.lock(Mode::Shared)
    }

    /// Takes the exclusive lock, to change or remove the container.
    pub fn lock_exclusive(&self) -> Result<ContainerLock> {
        self.lock(Mode::Exclusive)
    }

    /// As [`ContainerDir::lock_exclusive`], but `None` when another process holds the lock.
    pub fn try_lock_exclusive(&self) -> Result<Option<ContainerLock>> {
        self.store.writable()?;
        let lock = self.lockable().try_take(Mode::Exclusive).map_err(|error| self.gone(error))?;
        self.still_there()?;
        Ok(lock.map(ContainerLock))
    }

    fn lock(&self, mode: Mode) -> Result<ContainerLock> {
        self.store.writable()?;
        if !self.exists()? {
            return Err(Error::NoContainer { name: self.id.clone() });
        }
        let limit = Some(self.store.inner.wait.limit);
        let lock = self.lockable().take(mode, &self.store.inner.wait, limit);
        let lock = lock.map_err(|error| self.gone(error))?;
        self.still_there()?;
        Ok(ContainerLock(lock))
    }

    /// Translates "no such file", and a directory that stays stale: here they mean that another
    /// process, or another host, has removed the container.
    fn gone(&self, error: Error) -> Error {
        use std::io::ErrorKind::{NotFound, StaleNetworkFileHandle};
        match error {
            Error::Io { source, .. }
                if matches!(source.kind(), NotFound | StaleNetworkFileHandle) =>
            {
                Error::NoContainer { name: self.id.clone() }
            }
            other => other,
        }
    }

    /// Checks, after a lock was taken, that the lock's last holder has not removed the container.
    fn still_there(&self) -> Result<()> {
        if self.store.inner.root.exists(&self.rel(CONFIG))? {
            return Ok(());
        }
        Err(Error::NoContainer { name: self.id.clone() })
    }

    /// Removes the container and its names. The caller checks that it does not run and holds its
    /// lock exclusively.
    pub fn remove(self) -> Result<()> {
        self.remove_with(&remove_owned)
    }

    /// As [`ContainerDir::remove`], with a function that deletes a directory whose files may belong
    /// to subordinate users. Files that it cannot delete stay in `trash/`, and the next sweep tries
    /// again.
    pub fn remove_with(mut self, delete: &Delete<'_>) -> Result<()> {
        self.store.writable()?;
        let store = self.store.clone();
        let trashed = {
            let _names = store.containers().lock_names()?;
            let names = self.current_names()?;
            let trashed = store.to_trash(&rel(&self.id))?;
            // From here on the links lead nowhere, so the names are free for other containers even
            // if this process dies now.
            for name in names {
                store.inner.root.unlink(&rel(&name))?;
            }
            self.names = None;
            trashed
        };
        let Some(trashed) = trashed else {
            return Err(Error::NoContainer { name: self.id.clone() });
        };
        store.delete_trashed(&trashed, delete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_done_once_and_in_order() {
        for count in [0, 1, PARALLEL - 1, PARALLEL, PARALLEL + 1, 4 * PARALLEL + 3] {
            let items: Vec<usize> = (0..count).collect();
            let doubled: Vec<usize> = items.iter().map(|item| 2 * item).collect();
            assert_eq!(parallel_map(&items, |item| 2 * item), doubled, "{count}");
        }
    }
}
