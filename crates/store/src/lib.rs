//! Where images, unpacked layers, containers and volumes are kept, so that nothing half done is ever taken for whole.
//!
//! ```text
//! store.json                                    format, and what this file system can do
//! oci/{oci-layout,index.json,blobs/sha256/…}    a plain OCI layout: skopeo, umoci and podman read and write it
//! layers/<alg>-<hex>/{tree/,owners,layer.json}  one unpacked layer, by diff ID
//! trees/<alg>-<hex>/{tree/,owners,tree.json}    a flattened image, by chain ID
//! containers/<id>/…, containers/<name> -> <id>
//! volumes/<name>/{_data/,volume.json}
//! tmp/{ingest/<alg>-<hex>.part, build/…, …}     not finished; locks/; trash/
//! ```
//!
//! # How nothing gets lost
//! Content is written aside and renamed into place when it is whole. A rename is the only way in
//! which anything becomes visible, and into `trash/` the first step in which anything goes away. So
//! a process that is killed leaves rubbish in `tmp/` and `trash/` only. Durability against power
//! failures is described at [`Durability`] and in `durable`.
//!
//! # Locks, in the order in which they are taken
//! 1. `locks/gc`, shared, by everybody who adds content that nothing refers to yet, or is about to refer to content
//!    ([`Store::lease`]; [`Ingest`], [`Staging`] and [`Cached`] have one inside). Exclusive by whoever deletes content.
//! 2. `locks/blob-*`, 3. `locks/layer-*`, 4. `locks/tree-*`, exclusive, by the one process that brings this piece in.
//! 5. `containers/<id>/lock`, by the container's users (shared) and changers (exclusive).
//! 6. `locks/names`, exclusive, while names of containers change.
//! 7. `locks/index`, exclusive, while `oci/index.json` is rewritten. Under 6 and 7 nothing else is taken.
//!
//! A thread holds at most one lock of each of the ranks 2 to 4. The kernel gives locks back when their holder dies; a
//! child made by `fork` without `exec` shares them, so let go of leases before forking something that stays.
//!
//! # What may be deleted
//! Content that neither `index.json` nor any `container.json` refers to (any string in it that is a digest counts), and
//! only by a process that holds `locks/gc` exclusively. A run holds its lease until its `container.json` is written;
//! from then on the reference protects the layers, whether or not the process lives, and no descriptor needs to be kept
//! open in the container. Everything in `tmp/` except partial blobs belongs to a holder of the shared lock, so whoever
//! has the exclusive one may delete it all. Removing an image takes its name away at once; where the exclusive lock
//! cannot be had soon, because somebody is pulling, its content stays until the next time.
//!
//! Tools that know nothing of these locks may write to `oci/`: an index that changed between reading and writing is
//! read again, and young blobs that nobody refers to are left alone for a while.
//!
//! # What this crate does not do
//! It knows no registry, no tar and no engine. It never prints and reads no environment.

mod abilities;
mod blobs;
mod containers;
mod durable;
mod error;
mod gc;
mod images;
mod index;
mod lock;
pub mod names;
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
pub use lock::{LockMethod, OnWait, WaitPolicy, Waiting};
pub use trees::{BeginTree, Cached, Kind, Staging, Trees};
pub use usage::{Amount, Usage};
pub use verify::{Problem, TreeCheck, VerifyOptions};
pub use volumes::{Volume, VolumeInfo, Volumes};

use lock::{Lock, Lockable, Mode};
use root::Root;

/// What survives a power failure, and what it costs. A killed process never loses or breaks anything either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// One sync of the file system for everything that came in, before an image gets its name
    /// ([`Store::sync_added`], which [`Images::tag`] and [`ContainerDir::sync`] call;
    /// [`Containers::create`] settles what its own process has made). After a power failure before
    /// that, unpacked layers are thrown away and unpacked again; blobs are protected by their size
    /// (file systems in ordered mode, the default, never show a size without its data) and by
    /// [`Store::verify`].
    #[default]
    Deferred,
    /// Every blob and layer is synced before it becomes visible.
    Full,
    /// Nothing is synced: for stores that live no longer than the machine is up (`/dev/shm`, a job's local disk, tests).
    /// Unpacked layers count within one boot only.
    Relaxed,
}

/// How to open a store.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Make it (and the directories above, with mode 0700) where there is none.
    pub create: bool,
    /// Read-only stores beneath, nearest first: what is not found in this one is looked up there.
    pub below: Vec<PathBuf>,
    /// See there.
    pub durability: Durability,
    /// How long to wait for other processes, and whom to tell.
    pub wait: WaitPolicy,
    /// Never write, even where that would be possible.
    pub read_only: bool,
    /// Believe this instead of probing (tests; file systems that lie).
    pub abilities: Option<Abilities>,
}

/// An open store. Cheap to clone; clones are the same store.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) root: Arc<Root>,
    pub(crate) abilities: Abilities,
    /// Why nothing can be written.
    pub(crate) read_only: Option<String>,
    pub(crate) below: Vec<Store>,
    pub(crate) durability: Durability,
    pub(crate) wait: WaitPolicy,
    lease: Mutex<Weak<Lock>>,
    unsynced: Mutex<Unsynced>,
    /// Whether the leftovers of dead processes were looked for.
    pub(crate) swept: std::sync::atomic::AtomicBool,
}

/// What this process has made visible and not synced yet.
#[derive(Debug, Default)]
struct Unsynced {
    any: bool,
    /// Metadata files that carry a boot's number.
    metas: Vec<String>,
    /// The same, of entries that another process has made and not settled yet, or never will.
    found: Vec<String>,
}

/// Why a caller's [`Delete`] failed.
pub type DeleteError = Box<dyn std::error::Error + Send + Sync>;

/// Deletes the file or directory tree with this path: [`remove_owned`], or something that can do so inside a user
/// namespace, for trees with files of subordinate users.
pub type Delete<'call> = dyn Fn(&Path) -> std::result::Result<(), DeleteError> + 'call;

/// A promise that nothing is deleted from the store while it lives; see the crate's essay.
#[derive(Debug, Clone)]
pub struct Lease(
    #[expect(dead_code, reason = "held for its Drop; none in a store that is read-only")]
    Option<Arc<Lock>>,
);

impl Store {
    /// Opens a store (an absolute path), making it if [`Options::create`] says so.
    pub fn open(path: &Path, options: Options) -> Result<Self> {
        open::open(path, options)
    }

    /// The store's directory.
    pub fn path(&self) -> &Path {
        &self.inner.root.path
    }

    /// What its file system can do.
    pub fn abilities(&self) -> &Abilities {
        &self.inner.abilities
    }

    /// Why nothing can be written, if so.
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

    /// The images by name.
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

    /// This store, then those beneath it.
    pub(crate) fn chain(&self) -> impl Iterator<Item = &Store> {
        std::iter::once(self).chain(&self.inner.below)
    }

    /// Refuses where nothing can be written.
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

    /// A user says that a host which shares this store is gone: its locks on the store and on this
    /// container do not count any more. Something is to be done only where locks are symbolic
    /// links; see [`LockMethod`].
    pub fn forget_host(&self, host: &str, container: &ContainerDir) -> Result<()> {
        self.writable()?;
        if self.inner.abilities.locks != LockMethod::Symlink {
            return Ok(());
        }
        let place = format!("containers/{}", container.id());
        lock::forget_host(&self.inner.root, &["locks", &place], host)
    }

    /// Keeps content from being deleted for as long as the lease lives. Take one before looking an image up that is to
    /// be run, and let go of it when `container.json` refers to what is used.
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

    /// The store for this process alone, for deleting.
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

    /// Whether content is synced piece by piece.
    pub(crate) fn syncs_now(&self) -> bool {
        self.inner.durability == Durability::Full
    }

    /// Whether names (index, containers, volumes) are synced.
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

    /// Notes that an entry of another process' is used that may not be on the disk yet.
    pub(crate) fn note_found(&self, meta: String) {
        if self.inner.durability == Durability::Deferred && self.inner.read_only.is_none() {
            let mut unsynced = self.inner.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
            if !unsynced.found.contains(&meta) && !unsynced.metas.contains(&meta) {
                unsynced.found.push(meta);
            }
        }
    }

    /// Brings everything that this process has added, and what it uses of others, onto the disk:
    /// one sync of the file system, none if all is there. See [`Durability::Deferred`].
    pub fn sync_added(&self) -> Result<()> {
        self.sync_unsynced(true)
    }

    /// The same for what this process has added alone.
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
        trees::promote(self, &metas)
    }

    /// Takes a directory or file away: out of sight by renaming it into `trash/`, then deleted. What cannot be deleted
    /// stays there for the next sweep.
    pub(crate) fn discard(&self, rel: &str) -> Result<()> {
        let Some(trashed) = self.to_trash(rel)? else { return Ok(()) };
        let _ = sys::fs::remove_tree(self.inner.root.as_fd(), trashed.as_bytes());
        Ok(())
    }

    /// Deletes what was renamed into `trash/`. Somebody who sweeps may be deleting the same: entries that vanish under our
    /// hands are fine, as long as all is gone in the end.
    pub(crate) fn delete_trashed(&self, trashed: &str, delete: &Delete<'_>) -> Result<()> {
        let path = self.inner.root.join(trashed);
        for attempt in 1.. {
            let Err(source) = delete(&path) else { return Ok(()) };
            if !self.inner.root.exists(trashed)? {
                return Ok(());
            }
            let vanished = source
                .downcast_ref::<sys::fs::Error>()
                .is_some_and(|error| error.errno == rustix::io::Errno::NOENT);
            if !vanished || attempt == 10 {
                return Err(Error::Removal { path, source });
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// Renames into `trash/`; the new name, or `None` when there was nothing.
    pub(crate) fn to_trash(&self, rel: &str) -> Result<Option<String>> {
        let root = &self.inner.root;
        if !root.exists(rel)? {
            return Ok(None);
        }
        let trashed = format!("trash/{}", root::random_hex(16)?);
        root.rename(rel, &trashed)?;
        Ok(Some(trashed))
    }
}
