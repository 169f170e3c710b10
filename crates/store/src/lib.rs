//! Keeps images, unpacked layers, containers, volumes and networks on disk, safe against crashes
//! and concurrent processes.
//!
//! ```text
//! store.json                                    format, and features of this file system
//! oci/{oci-layout,index.json,blobs/sha256/…}    an OCI layout that skopeo, umoci and podman share
//! layers/<alg>-<hex>/{tree/,owners,layer.json}  one unpacked layer, by diff ID
//! trees/<alg>-<hex>/{tree/,owners,tree.json}    a flattened image, by chain ID
//! containers/<id>/…, containers/<name> -> <id>
//! volumes/<name>/{_data/,volume.json}
//! networks/<name>/{network.json,members-HOST.json}, networks/slots-HOST.json
//! events/HOST.jsonl                           what happened
//! tmp/{ingest/<alg>-<hex>.part, build/…, …}     not finished; locks/; trash/
//! ```
//!
//! # How nothing gets lost
//! Content is written under `tmp/` and renamed into place when it is complete. Nothing becomes
//! visible in any other way than by a rename, and every removal begins with a rename into `trash/`.
//! So a killed process leaves leftovers in `tmp/` and `trash/` only. [`Durability`] and `durable`
//! describe what survives a power failure.
//!
//! # Locks, in the order in which they are taken
//! 1. `locks/gc`, shared, by every process that adds content that nothing refers to yet, or is
//!    about to refer to content ([`Store::lease`]; [`Ingest`], [`Staging`] and [`Cached`] have one
//!    inside). Exclusive by a process that deletes content.
//! 2. `locks/blob-*`, 3. `locks/layer-*`, 4. `locks/tree-*`, exclusive, by the one process that
//!    adds this blob, layer or tree.
//! 5. `containers/<id>/lock`, by the container's users (shared) and changers (exclusive).
//!    After it `volumes/<name>/lock`, exclusive, while a driver mounts or unmounts the volume.
//! 6. `locks/networks`, exclusive, while networks are made and removed; then
//!    `locks/network-<name>`, while that network's members change; then `locks/networks-<file>`,
//!    while a file in `networks/` is rewritten.
//! 7. `locks/names`, exclusive, while names of containers change.
//! 8. `locks/index`, exclusive, while `oci/index.json` is rewritten. Under 7 and 8 nothing else is
//!    taken.
//!
//! A thread holds at most one lock of each of the ranks 2 to 4. The kernel releases locks when
//! their holder dies. A child made by `fork` without `exec` shares them, so drop leases before
//! forking a process that stays.
//!
//! # What may be deleted
//! Content that neither `index.json` nor any `container.json` refers to (any string in it that is a
//! digest counts), and only by a process that holds `locks/gc` exclusively. A run holds its lease
//! until its `container.json` is written; from then on the reference protects the layers, whether
//! or not the process lives, and no descriptor needs to be kept open in the container. Everything
//! in `tmp/` except partial blobs belongs to a holder of the shared lock, so the holder of the
//! exclusive lock may delete it all. Removing an image removes its name at once. If the exclusive
//! lock cannot be had soon, because another process is pulling, the content stays until a later
//! collection.
//!
//! Tools that do not know these locks may write to `oci/`: an index that changed between reading
//! and writing is read again, and young blobs that nothing refers to are kept for a while.
//!
//! # What this crate does not do
//! It knows no registry, no tar and no engine. It never prints and reads no environment.

mod abilities;
mod beside;
mod blobs;
mod containers;
mod durable;
mod error;
mod gc;
mod images;
mod index;
mod journal;
mod lock;
pub mod names;
mod networks;
mod open;
mod root;
mod trees;
mod usage;
mod verify;
mod volumes;

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

pub use abilities::Abilities;
pub use blobs::{BeginBlob, Blob, Blobs, Ingest};
pub use containers::{ContainerDir, ContainerLock, Containers, remove_owned};
pub use error::{Error, Result, Step};
pub use gc::{CollectOptions, Freed};
pub use images::{ANNOTATION_KNOWN_AS, Image, Images, Removal, Summary};
pub use journal::{Journal, JournalReader};
pub use lock::{LockMethod, OnWait, WaitPolicy, Waiting};
pub use networks::{NetworkDir, NetworkLock, Networks};
pub use root::random_id;
pub use trees::{BeginTree, Cached, Kind, Staging, Trees};
pub use usage::{Amount, Usage};
pub use verify::{Problem, TreeCheck, VerifyOptions};
pub use volumes::{Volume, VolumeInfo, VolumeLock, Volumes};

use lock::{Lock, Lockable, Mode};
use root::Root;
use rustix::io::Errno;

/// The data that survive a power failure, and the cost. A killed process never loses or breaks
/// anything either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// One sync of the file system for all content that was added, before an image gets its name
    /// ([`Store::sync_added`], which [`Images::tag`] and [`ContainerDir::sync`] call;
    /// [`Containers::create`] syncs only what its own process has added). After a power failure
    /// before that, unpacked layers are thrown away and unpacked again; blobs are protected by
    /// their size (file systems in ordered mode, the default, never show a size without its data)
    /// and by [`Store::verify`].
    #[default]
    Deferred,
    /// Every blob and layer is synced before it becomes visible.
    Full,
    /// Nothing is synced: for stores that live no longer than the machine is up (`/dev/shm`, a
    /// job's local disk, tests). Unpacked layers count within one boot only.
    Relaxed,
}

/// How to open a store.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Create the store (and the directories above, with mode 0700) if there is none.
    pub create: bool,
    /// Read-only stores beneath, nearest first: content that is not in this store is looked up
    /// there.
    pub below: Vec<PathBuf>,
    /// The data to sync.
    pub durability: Durability,
    /// How long to wait for other processes, and the callback to report it.
    pub wait: WaitPolicy,
    /// Never write, even if the store is writable.
    pub read_only: bool,
    /// Use these abilities instead of probing (tests; file systems that report wrongly).
    pub abilities: Option<Abilities>,
}

/// An open store. Cheap to clone; clones share one state.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) root: Arc<Root>,
    pub(crate) abilities: Abilities,
    /// The reason why the store is read-only, if it is.
    pub(crate) read_only: Option<String>,
    pub(crate) below: Vec<Store>,
    pub(crate) durability: Durability,
    pub(crate) wait: WaitPolicy,
    lease: Mutex<Weak<Lock>>,
    unsynced: Mutex<Unsynced>,
    /// True once the leftovers of dead processes were looked for.
    pub(crate) swept: std::sync::atomic::AtomicBool,
}

/// Content that this process has made visible and not synced yet.
#[derive(Debug, Default)]
struct Unsynced {
    any: bool,
    /// Metadata files that hold a boot id.
    metas: Vec<String>,
    /// Metadata files of entries that another process has made and not synced yet, or never will.
    found: Vec<String>,
}

/// The error of a caller's [`Delete`].
pub type DeleteError = Box<dyn std::error::Error + Send + Sync>;

/// Deletes the file or directory tree at a path: [`remove_owned`], or a function that works inside
/// a user namespace, for trees with files of subordinate users.
pub type Delete<'call> = dyn Fn(&Path) -> std::result::Result<(), DeleteError> + 'call;

/// The kernel's error in that of a [`Delete`], if it is one.
fn errno_of(error: &DeleteError) -> Option<Errno> {
    if let Some(error) = error.downcast_ref::<sys::fs::Error>() {
        return Some(error.errno);
    }
    error.downcast_ref::<std::io::Error>().and_then(Errno::from_io_error)
}

/// While it lives, nothing is deleted from the store; see the crate's documentation.
#[derive(Debug, Clone)]
pub struct Lease(
    #[expect(dead_code, reason = "held for its Drop; none in a store that is read-only")]
    Option<Arc<Lock>>,
);

impl Store {
    /// Opens a store at an absolute path; creates it if [`Options::create`] is set.
    pub fn open(path: &Path, options: Options) -> Result<Self> {
        open::open(path, options)
    }

    /// The store's directory.
    pub fn path(&self) -> &Path {
        &self.inner.root.path
    }

    /// Features of the store's file system.
    pub fn abilities(&self) -> &Abilities {
        &self.inner.abilities
    }

    /// The reason why the store is read-only, if it is.
    pub fn read_only(&self) -> Option<&str> {
        self.inner.read_only.as_deref()
    }

    /// The stores beneath, nearest first.
    pub fn below(&self) -> &[Store] {
        &self.inner.below
    }

    /// The blobs.
    pub fn blobs(&self) -> Blobs<'_> {
        Blobs(self)
    }

    /// The images.
    pub fn images(&self) -> Images<'_> {
        Images(self)
    }

    /// The unpacked layers.
    pub fn layers(&self) -> Trees<'_> {
        Trees { store: self, kind: Kind::Layer }
    }

    /// The flattened trees.
    pub fn trees(&self) -> Trees<'_> {
        Trees { store: self, kind: Kind::Tree }
    }

    /// The containers.
    pub fn containers(&self) -> Containers<'_> {
        Containers(self)
    }

    /// The volumes.
    pub fn volumes(&self) -> Volumes<'_> {
        Volumes(self)
    }

    /// The networks with names.
    pub fn networks(&self) -> Networks<'_> {
        Networks(self)
    }

    /// What happened.
    pub fn journal(&self) -> Journal<'_> {
        Journal(self)
    }

    /// This store, then those beneath it.
    pub(crate) fn chain(&self) -> impl Iterator<Item = &Store> {
        std::iter::once(self).chain(&self.inner.below)
    }

    /// Fails if the store is read-only.
    pub(crate) fn writable(&self) -> Result<()> {
        match &self.inner.read_only {
            None => Ok(()),
            Some(reason) => {
                Err(Error::ReadOnly { path: self.path().to_owned(), reason: reason.clone() })
            }
        }
    }

    pub(crate) fn lockable(
        &self,
        name: &str,
        what: impl Into<String>,
        ephemeral: bool,
    ) -> Lockable {
        Lockable {
            root: Arc::clone(&self.inner.root),
            method: self.inner.abilities.locks,
            rel: format!("locks/{name}"),
            what: what.into(),
            ephemeral,
        }
    }

    fn gc_lock(&self) -> Lockable {
        self.lockable("gc", format!("the store {}", self.path().display()), false)
    }

    /// Drops the locks that a host holds on the store and on this container, because a user says
    /// that the host, which shares this store, is gone. Only locks made of symbolic links need
    /// this; see [`LockMethod`].
    pub fn forget_host(&self, host: &str, container: &ContainerDir) -> Result<()> {
        self.writable()?;
        if self.inner.abilities.locks != LockMethod::Symlink {
            return Ok(());
        }
        let place = format!("containers/{}", container.id());
        lock::forget_host(&self.inner.root, &["locks", &place], host)
    }

    /// Keeps content from being deleted for as long as the lease lives. Take one before looking up
    /// an image to run, and drop it when `container.json` refers to the image.
    pub fn lease(&self) -> Result<Lease> {
        if self.inner.read_only.is_some() {
            return Ok(Lease(None));
        }
        let mut current = self.inner.lease.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = current.upgrade() {
            return Ok(Lease(Some(lock)));
        }
        let limit = Some(self.inner.wait.limit);
        let lock = Arc::new(self.gc_lock().take(Mode::Shared, &self.inner.wait, limit)?);
        *current = Arc::downgrade(&lock);
        Ok(Lease(Some(lock)))
    }

    /// Takes the exclusive lock of the store, for deleting.
    pub(crate) fn exclusive(&self, what: &'static str, limit: Duration) -> Result<Lock> {
        self.writable()?;
        let taken = self.gc_lock().take(Mode::Exclusive, &self.inner.wait, Some(limit));
        if let Err(Error::Busy { .. }) = &taken {
            let current = self.inner.lease.lock().unwrap_or_else(PoisonError::into_inner);
            let count = current.strong_count();
            if count > 0 {
                return Err(Error::OwnLease { what, count });
            }
        }
        taken
    }

    /// True if each blob and layer is synced by itself: always on a file system that other hosts
    /// may have. There a file server may refuse what was written only when it is synced, and a boot
    /// id would say to other hosts that the layer does not count.
    pub(crate) fn syncs_now(&self) -> bool {
        self.inner.durability == Durability::Full || self.inner.root.on_network()
    }

    /// True if names (index, containers, volumes) are synced.
    pub(crate) fn syncs_names(&self) -> bool {
        self.inner.durability != Durability::Relaxed
    }

    pub(crate) fn note_unsynced(&self, meta: Option<String>) {
        if !self.syncs_now() {
            let mut unsynced = self.inner.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
            unsynced.any = true;
            unsynced.metas.extend(meta);
        }
    }

    /// Notes the use of another process's entry that may not be on the disk yet.
    pub(crate) fn note_found(&self, meta: String) {
        if self.inner.durability == Durability::Deferred && self.inner.read_only.is_none() {
            let mut unsynced = self.inner.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
            if !unsynced.found.contains(&meta) && !unsynced.metas.contains(&meta) {
                unsynced.found.push(meta);
            }
        }
    }

    /// Syncs everything that this process has added, and the entries of other processes that it
    /// uses: one sync of the file system, none if everything is on the disk. See
    /// [`Durability::Deferred`].
    pub fn sync_added(&self) -> Result<()> {
        self.sync_unsynced(true)
    }

    /// As [`Store::sync_added`], but does nothing if only entries of other processes are unsynced.
    pub(crate) fn sync_own(&self) -> Result<()> {
        self.sync_unsynced(false)
    }

    fn sync_unsynced(&self, found: bool) -> Result<()> {
        if self.inner.durability != Durability::Deferred {
            return Ok(());
        }
        let metas = {
            let mut current = self.inner.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
            if !current.any && (!found || current.found.is_empty()) {
                return Ok(());
            }
            let all = std::mem::take(&mut *current);
            [all.metas, all.found].concat()
        };
        self.inner.root.sync_all()?;
        trees::clear_boot_ids(self, &metas)
    }

    /// Removes a directory or file: renames it into `trash/`, then deletes it. Files that cannot be
    /// deleted stay there for the next sweep.
    pub(crate) fn discard(&self, rel: &str) -> Result<()> {
        let Some(trashed) = self.to_trash(rel)? else { return Ok(()) };
        let _ = sys::fs::remove_tree(self.inner.root.as_fd(), trashed.as_bytes());
        Ok(())
    }

    /// Deletes an entry of `trash/`. A sweep of another process may be deleting the same entry:
    /// files that vanish meanwhile are no error if the entry is gone at the end. So are files that
    /// appear: a process that was creating one when the directory was renamed creates it in there.
    pub(crate) fn delete_trashed(&self, trashed: &str, delete: &Delete<'_>) -> Result<()> {
        let path = self.inner.root.join(trashed);
        for attempt in 1.. {
            let Err(source) = delete(&path) else { return Ok(()) };
            if !self.inner.root.exists(trashed)? {
                return Ok(());
            }
            let errno = errno_of(&source);
            // A client of NFS gives a file that is open another name instead of removing it: the
            // container's lock, at least. The next sweep removes the rest.
            let is_open = matches!(errno, Some(Errno::NOTEMPTY | Errno::BUSY));
            if is_open && self.inner.root.on_network() {
                return Ok(());
            }
            let has_changed = is_open || matches!(errno, Some(Errno::NOENT | Errno::STALE));
            if !has_changed || attempt == 10 {
                return Err(Error::Removal { path, source });
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// Renames into `trash/`; returns the new name, or `None` when there was nothing.
    pub(crate) fn to_trash(&self, rel: &str) -> Result<Option<String>> {
        let trashed = format!("trash/{}", root::random_hex(16)?);
        // Not asked before: a client of NFS knows a name for a while after another host has removed
        // it.
        match self.inner.root.rename(rel, &trashed) {
            Ok(()) => Ok(Some(trashed)),
            Err(error) if error.errno() == Some(Errno::NOENT.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
