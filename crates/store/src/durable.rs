//! Syncs containers and volumes to the disk, and removes those that a power failure left half made.
//!
//! A container or volume is made without waiting for the disk: written under `tmp/`, then renamed
//! into its place. If it outlives the command that makes it, [`ContainerDir::sync`] or
//! [`Volume::sync`] follows before its id or name is printed. They sync the record's bytes first,
//! then the directory that holds the record, then the directory that holds the names. On a file
//! system with a journal the first of these waits for one commit, which holds everything that was
//! done before, and the others find nothing left to write. One `syncfs` would do the same, but also
//! waits for what all other programs have written to that file system: 20 times as long while
//! another program fills a file. It is used only where a whole tree was written
//! ([`crate::Store::sync_all`]).
//!
//! An entry that was not synced may be half there after a power failure: the name was written
//! before the bytes, so the record is empty (or, on some file systems, full of zeros). While the
//! machine runs no process ever sees such a record, because a file is written before it is renamed
//! into place. So no living process owns it, and the command that meets it removes it, under the
//! lock that makers of containers hold.

use std::os::fd::AsFd as _;

use rustix::fs::OFlags;

use crate::containers::{CONFIG, DIRECTORY, NAMES, rel};
use crate::error::{Error, Result, Step};
use crate::lock::Mode;
use crate::volumes::{DATA, DIRECTORY as VOLUMES, INFO};
use crate::{ContainerDir, Containers, Store, Volume, Volumes, names};

/// An empty file in a container's directory that says that the container is on the disk.
const SYNCED: &str = "synced";
/// Size limit of a record in bytes; a longer file is not checked for zeros.
const RECORD: u64 = 1 << 20;

impl Store {
    /// Waits until everything that any process has written to the store's file system is on the
    /// disk.
    pub fn sync_all(&self) -> Result<()> {
        if self.syncs_names() { self.inner.root.sync_all() } else { Ok(()) }
    }

    /// Waits for one file or directory.
    pub(crate) fn sync_rel(&self, rel: &str) -> Result<()> {
        let root = &self.inner.root;
        let Some(file) = root.open_file(rel, OFlags::RDONLY)? else { return Ok(()) };
        rustix::fs::fsync(&file).map_err(|errno| Error::io(Step::Sync, root.join(rel), errno))
    }

    /// Returns true if a record is missing, empty or full of zeros: a power failure came before its
    /// bytes were on the disk.
    pub(crate) fn is_blank(&self, rel: &str) -> Result<bool> {
        let Some(stat) = self.inner.root.stat(rel)? else { return Ok(true) };
        if stat.st_size == 0 {
            return Ok(true);
        }
        let small = (stat.st_size as u64) < RECORD;
        let bytes = if small { self.inner.root.read(rel, RECORD)? } else { None };
        Ok(bytes.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0)))
    }
}

impl ContainerDir {
    /// Waits until the container, its record, its names and the layers of its root are on the disk.
    /// Costs one `stat` if that was done before.
    pub fn sync(&self) -> Result<()> {
        let store = self.store();
        if !store.syncs_names() || store.read_only().is_some() {
            return Ok(());
        }
        let root = &store.inner.root;
        let synced = format!("{}/{SYNCED}", rel(self.id()));
        if root.exists(&synced)? {
            return Ok(());
        }
        store.sync_added()?;
        let marked =
            self.sync_record().and_then(|()| root.create_file(&synced, OFlags::empty()).map(drop));
        self.unless_removed(marked)
    }

    /// Waits for the record and for the directories above it.
    fn sync_record(&self) -> Result<()> {
        let store = self.store();
        store.sync_rel(&format!("{}/{CONFIG}", rel(self.id())))?;
        store.inner.root.sync_dir(&rel(self.id()))?;
        store.inner.root.sync_dir(DIRECTORY)
    }

    /// Ignores a failure if another process has removed the container meanwhile.
    fn unless_removed(&self, result: Result<()>) -> Result<()> {
        if result.is_err() && !self.exists()? { Ok(()) } else { result }
    }

    /// Waits for a change of the record or the names, and for the container itself if it was not
    /// synced before.
    pub(crate) fn sync_change(&self) -> Result<()> {
        let store = self.store();
        if !store.syncs_names() {
            return Ok(());
        }
        let names = store.sync_rel(&format!("{}/{NAMES}", rel(self.id())));
        self.unless_removed(names.and_then(|()| self.sync_record()))
    }

    /// Removes the container if a power failure came before its record was on the disk.
    pub(crate) fn drop_if_lost(&self) -> Result<bool> {
        let (store, place) = (self.store(), rel(self.id()));
        let config = format!("{place}/{CONFIG}");
        let is_lost = || -> Result<bool> {
            // If the container was on the disk, its record was lost in another way: that is damage.
            let root = &store.inner.root;
            Ok(store.is_blank(&config)? && !root.exists(&format!("{place}/{SYNCED}"))?)
        };
        if store.read_only().is_some() || !self.exists()? || !is_lost()? {
            return Ok(false);
        }
        let lock = store.lockable("names", "the names of containers", false);
        // If the lock is held, a container is being made; a later command removes the lost one.
        let Some(_names) = lock.try_take(Mode::Exclusive)? else { return Ok(false) };
        if !is_lost()? {
            return Ok(false);
        }
        let root = &store.inner.root;
        for (name, _) in root.list(DIRECTORY)? {
            if !names::is_id(&name) && root.read_link(&rel(&name))?.as_deref() == Some(self.id()) {
                root.unlink(&rel(&name))?;
            }
        }
        store.discard(&place)?;
        tracing::debug!("container {} had no record: removed", self.id());
        Ok(true)
    }
}

impl Containers<'_> {
    /// Waits until removals of containers are on the disk.
    pub fn sync_removals(self) -> Result<()> {
        if self.0.syncs_names() { self.0.inner.root.sync_dir(DIRECTORY) } else { Ok(()) }
    }

    /// Removes names that lead to no container: the processes that made or removed it are gone.
    pub(crate) fn drop_dangling(self, links: &[&str]) -> Result<()> {
        if links.is_empty() || self.0.read_only().is_some() {
            return Ok(());
        }
        let lock = self.0.lockable("names", "the names of containers", false);
        // If the lock is held, the link may belong to a container that is being made or removed.
        let Some(_names) = lock.try_take(Mode::Exclusive)? else { return Ok(()) };
        let root = &self.0.inner.root;
        for link in links {
            match root.read_link(&rel(link))? {
                Some(id) if !root.exists(&rel(&id))? => root.unlink(&rel(link))?,
                _ => false,
            };
        }
        Ok(())
    }
}

impl Volume {
    /// Waits until the volume, without its contents, is on the disk.
    pub fn sync(&self) -> Result<()> {
        let store = self.store();
        if !store.syncs_names() || store.read_only().is_some() {
            return Ok(());
        }
        let place = format!("{VOLUMES}/{}", self.name());
        let synced = store
            .sync_rel(&format!("{place}/{INFO}"))
            .and_then(|()| store.inner.root.sync_dir(&place))
            .and_then(|()| store.inner.root.sync_dir(VOLUMES));
        // Another process may have removed it meanwhile.
        if synced.is_err() && !store.inner.root.exists(&place)? { Ok(()) } else { synced }
    }

    /// Removes the volume if a power failure came before its record was on the disk and it is
    /// empty.
    pub(crate) fn drop_if_lost(&self) -> Result<bool> {
        let store = self.store();
        let (place, root) = (format!("{VOLUMES}/{}", self.name()), &store.inner.root);
        let is_lost = |place: &str| -> Result<bool> {
            let record = format!("{place}/{INFO}");
            let there = root.exists(&record)?;
            Ok(there
                && store.is_blank(&record)?
                && root.list(&format!("{place}/{DATA}"))?.is_empty())
        };
        if store.read_only().is_some() || !is_lost(&place)? {
            return Ok(false);
        }
        let lock = store.lockable("names", "the names of containers", false);
        let Some(_names) = lock.try_take(Mode::Exclusive)? else { return Ok(false) };
        if !is_lost(&place)? {
            return Ok(false);
        }
        let Some(trashed) = store.to_trash(&place)? else { return Ok(false) };
        // Removing and making a volume takes no lock: another volume may have got the name
        // meanwhile.
        if !is_lost(&trashed)? {
            root.rename(&trashed, &place)?;
            return Ok(false);
        }
        let _ = sys::fs::remove_tree(root.as_fd(), trashed.as_bytes());
        Ok(true)
    }
}

impl Volumes<'_> {
    /// Waits until removals of volumes are on the disk.
    pub fn sync_removals(self) -> Result<()> {
        if self.0.syncs_names() { self.0.inner.root.sync_dir(VOLUMES) } else { Ok(()) }
    }
}
