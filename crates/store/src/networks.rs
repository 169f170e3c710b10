//! Networks with names: a directory each, whose files the crate `net` defines.
//!
//! A network is made under `tmp/`, synced, and renamed into `networks/<name>` with its
//! `network.json` inside, so a network without that file is never visible. Most other files say who
//! is a member of it. They are about processes, which no power failure survives, so they are
//! replaced atomically but not synced, and one that a power failure has left empty counts as
//! missing. `networks/` itself holds files of the same kind that concern all networks.
//!
//! Networks are made and removed under [`Networks::lock`], members change under
//! [`NetworkDir::lock`], and files in `networks/` under [`Networks::lock_file`]; they are taken in
//! this order. The crate's documentation says where they stand among the others.

use std::os::fd::AsFd as _;
use std::path::PathBuf;

use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::lock::{Lock, Lockable, Mode};
use crate::root::{encode, random_hex};
use crate::{Store, names};

const DIRECTORY: &str = "networks";
/// The definition.
const INFO: &str = "network.json";

/// The networks of a store.
#[derive(Debug, Clone, Copy)]
pub struct Networks<'store>(pub(crate) &'store Store);

/// One network's directory.
#[derive(Debug, Clone)]
pub struct NetworkDir {
    store: Store,
    name: String,
}

/// A held lock on networks.
#[derive(Debug)]
pub struct NetworkLock(#[expect(dead_code, reason = "held for its Drop")] Lock);

/// Whether a name is one of a file in these directories: one component that is not hidden.
fn is_file(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains('/')
}

impl Networks<'_> {
    fn take(self, lock: &Lockable) -> Result<NetworkLock> {
        self.0.writable()?;
        let wait = &self.0.inner.wait;
        lock.take(Mode::Exclusive, wait, Some(wait.limit)).map(NetworkLock)
    }

    /// Keeps other processes from making and removing networks.
    pub fn lock(self) -> Result<NetworkLock> {
        self.take(&self.0.lockable("networks", "the networks", false))
    }

    /// Keeps other processes from changing a file in the directory of all networks.
    pub fn lock_file(self, name: &str) -> Result<NetworkLock> {
        self.take(&self.0.lockable(&format!("networks-{name}"), format!("networks/{name}"), false))
    }

    /// Makes a network with `info` as its `network.json`, and waits until it is on the disk. `None`
    /// where there is one of this name. Hold [`Networks::lock`].
    ///
    /// # Errors
    /// [`Error::BadName`] for a name that could not be a directory's.
    pub fn create<T: Serialize>(self, name: &str, info: &T) -> Result<Option<NetworkDir>> {
        names::check(name)?;
        self.0.writable()?;
        let _lease = self.0.lease()?;
        let network = NetworkDir { store: self.0.clone(), name: name.to_owned() };
        let (root, durable) = (&self.0.inner.root, self.0.syncs_names());
        if root.exists(&network.rel())? {
            return Ok(None);
        }
        let temporary = format!("tmp/network-{}", random_hex(16)?);
        let info_rel = format!("{temporary}/{INFO}");
        root.make_dir(&temporary)?;
        let bytes = encode(info, || root.join(&info_rel))?;
        let made = root
            .write_new(&info_rel, &bytes, durable)
            .and_then(|()| if durable { root.sync_dir(&temporary) } else { Ok(()) })
            .and_then(|()| root.rename_new(&temporary, &network.rel()));
        if !matches!(made, Ok(true)) {
            let _ = sys::fs::remove_tree(root.as_fd(), temporary.as_bytes());
            return made.map(|_| None);
        }
        if durable {
            root.sync_dir(DIRECTORY)?;
        }
        Ok(Some(network))
    }

    /// The network with this name.
    pub fn get(self, name: &str) -> Result<Option<NetworkDir>> {
        if names::check(name).is_err() {
            return Ok(None);
        }
        let network = NetworkDir { store: self.0.clone(), name: name.to_owned() };
        Ok(network.exists()?.then_some(network))
    }

    /// All networks, by name.
    pub fn list(self) -> Result<Vec<NetworkDir>> {
        let mut found: Vec<String> =
            self.0.inner.root.list(DIRECTORY)?.into_iter().map(|(name, _)| name).collect();
        found.sort_unstable();
        let mut networks = Vec::with_capacity(found.len());
        for name in found {
            networks.extend(self.get(&name)?);
        }
        Ok(networks)
    }

    /// The path of a file of all networks; its directory is made.
    pub fn path(self, name: &str) -> PathBuf {
        debug_assert!(is_file(name), "{name:?} is a file's name");
        self.0.inner.root.join(&format!("{DIRECTORY}/{name}"))
    }

    /// Reads a JSON file of all networks; `None` when there is none.
    pub fn read<T: DeserializeOwned>(self, name: &str) -> Result<Option<T>> {
        read(self.0, &format!("{DIRECTORY}/{name}"))
    }

    /// Replaces such a file atomically. Hold [`Networks::lock_file`].
    pub fn write<T: Serialize>(self, name: &str, value: &T) -> Result<()> {
        debug_assert!(is_file(name), "{name:?} is a file's name");
        self.0.writable()?;
        let (rel, root) = (format!("{DIRECTORY}/{name}"), &self.0.inner.root);
        root.replace_locked(&rel, &encode(value, || root.join(&rel))?, false)
    }
}

impl NetworkDir {
    fn rel(&self) -> String {
        format!("{DIRECTORY}/{}", self.name)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The path of one of its files.
    pub fn join(&self, name: &str) -> PathBuf {
        self.store.inner.root.join(&self.rel()).join(name)
    }

    /// Whether the network still exists: another process may have removed it.
    pub fn exists(&self) -> Result<bool> {
        match self.store.inner.root.exists(&format!("{}/{INFO}", self.rel())) {
            // A file of all networks.
            Err(error) if error.errno() == Some(Errno::NOTDIR.raw_os_error()) => Ok(false),
            other => other,
        }
    }

    /// Keeps other processes from changing its members, and from removing it.
    pub fn lock(&self) -> Result<NetworkLock> {
        let what = format!("the network {}", self.name);
        // The lock's file goes with its holder: a store would keep one for each name it ever had.
        let lock = self.store.lockable(&format!("network-{}", self.name), what, true);
        self.store.networks().take(&lock)
    }

    /// Reads `network.json`; `None` if the network was removed.
    pub fn info<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        self.store.inner.root.read_json(&format!("{}/{INFO}", self.rel()))
    }

    /// The names of its files.
    pub fn files(&self) -> Result<Vec<String>> {
        let listed = self.store.inner.root.list(&self.rel())?;
        Ok(listed.into_iter().map(|(name, _)| name).filter(|name| is_file(name)).collect())
    }

    /// Reads another JSON file of the network; `None` when there is none.
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        read(&self.store, &format!("{}/{name}", self.rel()))
    }

    /// Replaces such a file atomically. Hold [`NetworkDir::lock`].
    ///
    /// # Errors
    /// [`Error::Io`] if the network was removed.
    pub fn write<T: Serialize>(&self, name: &str, value: &T) -> Result<()> {
        debug_assert!(is_file(name) && name != INFO, "{name:?} is a further file's name");
        self.store.writable()?;
        let (rel, root) = (format!("{}/{name}", self.rel()), &self.store.inner.root);
        root.replace_locked(&rel, &encode(value, || root.join(&rel))?, false)
    }

    /// The same, and the file is on the disk when this returns.
    ///
    /// # Errors
    /// As of [`Self::write`].
    pub fn write_durable<T: Serialize>(&self, name: &str, value: &T) -> Result<()> {
        debug_assert!(is_file(name) && name != INFO, "{name:?} is a further file's name");
        self.store.writable()?;
        let (rel, root) = (format!("{}/{name}", self.rel()), &self.store.inner.root);
        let bytes = encode(value, || root.join(&rel))?;
        let durable = self.store.syncs_names();
        root.replace_locked(&rel, &bytes, durable)?;
        if durable { root.sync_dir(&self.rel()) } else { Ok(()) }
    }

    /// Removes the network; `false` where there was none. Hold [`Networks::lock`] and
    /// [`NetworkDir::lock`].
    pub fn remove(&self) -> Result<bool> {
        self.store.writable()?;
        if !self.exists()? {
            return Ok(false);
        }
        self.store.discard(&self.rel())?;
        if self.store.syncs_names() {
            self.store.inner.root.sync_dir(DIRECTORY)?;
        }
        Ok(true)
    }
}

fn read<T: DeserializeOwned>(store: &Store, rel: &str) -> Result<Option<T>> {
    match store.inner.root.read_json(rel) {
        Err(Error::BadJson { .. }) if store.is_blank(rel)? => Ok(None),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Options;

    fn store(path: &Path) -> Store {
        Store::open(path, Options { create: true, ..Options::default() }).unwrap()
    }

    #[test]
    fn a_network_is_made_once_and_goes_with_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        let networks = store.networks();
        assert!(networks.list().unwrap().is_empty());
        let made = networks.create("lab", &"definition").unwrap().unwrap();
        assert!(networks.create("lab", &"another").unwrap().is_none());
        assert_eq!(made.info::<String>().unwrap().as_deref(), Some("definition"));
        made.write("members-a.json", &1).unwrap();
        networks.write("slots-a.json", &2).unwrap();
        std::fs::write(made.join("members-b.json"), "\0\0").unwrap();
        assert_eq!(made.read::<u32>("members-a.json").unwrap(), Some(1));
        assert_eq!(made.read::<u32>("members-b.json").unwrap(), None, "lost with the power");
        let names = |list: Vec<NetworkDir>| -> Vec<String> {
            list.iter().map(|network| network.name().to_owned()).collect()
        };
        assert_eq!(names(networks.list().unwrap()), ["lab"]);
        assert!(networks.get("slots-a.json").unwrap().is_none());
        assert!(networks.get("../containers").unwrap().is_none());
        let mut files = made.files().unwrap();
        files.sort_unstable();
        assert_eq!(files, ["members-a.json", "members-b.json", "network.json"]);
        assert!(made.remove().unwrap() && !made.remove().unwrap());
        assert!(networks.get("lab").unwrap().is_none() && made.write("x.json", &1).is_err());
        assert_eq!(made.info::<String>().unwrap(), None);
        assert!(std::fs::read_dir(directory.path().join("tmp")).unwrap().next().is_none());
        assert_eq!(networks.read::<u32>("slots-a.json").unwrap(), Some(2));
    }

    #[test]
    fn what_a_killed_writer_left_goes_with_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        let network = store.networks().create("lab", &()).unwrap().unwrap();
        for _ in 0..2 {
            std::fs::write(network.join(".members-a.json.new"), "{").unwrap();
            std::fs::write(store.networks().path("x").with_file_name(".slots-a.json.new"), "{")
                .unwrap();
            network.write("members-a.json", &1).unwrap();
            store.networks().write("slots-a.json", &2).unwrap();
        }
        for place in ["networks", "networks/lab"] {
            let names = std::fs::read_dir(directory.path().join(place)).unwrap().flatten();
            let hidden = names.map(|entry| entry.file_name().into_string().unwrap());
            let hidden: Vec<String> = hidden.filter(|name| name.starts_with('.')).collect();
            assert!(hidden.is_empty(), "{place}: {hidden:?}");
        }
        assert_eq!(network.read::<u32>("members-a.json").unwrap(), Some(1));
    }

    #[test]
    fn locks_exclude_and_leave_no_file_of_a_network() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            create: true,
            wait: crate::WaitPolicy {
                limit: std::time::Duration::from_millis(10),
                ..crate::WaitPolicy::default()
            },
            ..Options::default()
        };
        let store = Store::open(directory.path(), options).unwrap();
        let network = store.networks().create("lab", &()).unwrap().unwrap();
        let held = network.lock().unwrap();
        let refused = network.lock().unwrap_err();
        assert!(refused.to_string().contains("the network lab"), "{refused}");
        drop(held);
        drop(network.lock().unwrap());
        let left = std::fs::read_dir(directory.path().join("locks")).unwrap();
        let left: Vec<_> = left.flatten().map(|entry| entry.file_name()).collect();
        assert!(left.iter().all(|name| name != "network-lab"), "{left:?}");
    }
}
