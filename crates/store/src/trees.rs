//! Unpacked layers and flattened trees: directories that are built once, then shared by all
//! containers.
//!
//! `rootfs` fills a [`Staging`] directory under `tmp/build` while the lock on its digest is held;
//! [`Staging::commit`] writes the metadata and renames the directory to its place. So a directory
//! in `layers/` or `trees/` is complete from its first moment there, whichever process is killed at
//! whatever time.
//!
//! After a power failure the rename may be on the disk before the files' data. Either everything is
//! synced before the rename ([`crate::Durability::Full`]), or the metadata holds the boot id under
//! which it was written and counts only within that boot, until [`Store::sync_added`] has synced
//! everything and removed the boot id. An entry with another boot id is thrown away and built
//! again.

use std::os::fd::AsFd as _;
use std::path::PathBuf;

use oci::Digest;
use serde::{Deserialize, Serialize};

use crate::blobs::{flat, unflat};
use crate::error::{Error, Result};
use crate::lock::{Lock, Mode};
use crate::root::encode;
use crate::{Lease, Store};

/// Directory in which entries are built.
pub(crate) const BUILD: &str = "tmp/build";

/// One of the two caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One layer, by its diff ID.
    Layer,
    /// A flattened image, by its chain ID.
    Tree,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Layer, Self::Tree];

    /// Name of the kind: `layer` or `tree`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Layer => "layer",
            Self::Tree => "tree",
        }
    }

    pub(crate) fn directory(self) -> &'static str {
        match self {
            Self::Layer => "layers",
            Self::Tree => "trees",
        }
    }

    pub(crate) fn rel(self, digest: &Digest) -> String {
        format!("{}/{}", self.directory(), flat(digest))
    }

    fn meta_name(self) -> String {
        format!("{}.json", self.name())
    }
}

/// The unpacked layers, or the flattened trees, of a store and of those beneath it.
#[derive(Debug, Clone, Copy)]
pub struct Trees<'store> {
    pub(crate) store: &'store Store,
    pub(crate) kind: Kind,
}

/// The metadata file: this module's fields around the caller's.
#[derive(Debug, Serialize, Deserialize)]
struct Meta<T> {
    /// The boot id within which this entry counts; `None` when it is safely on the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<String>,
    /// The caller's metadata.
    meta: T,
}

/// The metadata of an entry that counts.
struct Found {
    meta: serde_json::Value,
    /// The entry counts within this boot only.
    is_unsynced: bool,
}

/// A finished directory. While it lives, garbage collection does not remove it.
#[derive(Debug, Clone)]
pub struct Cached {
    pub(crate) path: PathBuf,
    meta: serde_json::Value,
    pub(crate) digest: Digest,
    /// False in a store beneath.
    pub(crate) is_own: bool,
    /// `None` in a store beneath, which this program never cleans.
    _lease: Option<Lease>,
}

impl Cached {
    /// Its directory.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Returns true if it belongs to this store, not to one beneath.
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// The root tree in the directory.
    pub fn tree(&self) -> PathBuf {
        self.path.join("tree")
    }

    /// The ownership table in the directory, which may be missing.
    pub fn owners(&self) -> PathBuf {
        self.path.join("owners")
    }

    /// Its diff ID or chain ID.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The metadata that its builder passed to [`Staging::commit`].
    pub fn meta<T: serde::de::DeserializeOwned>(&self) -> Result<T> {
        T::deserialize(&self.meta)
            .map_err(|source| Error::BadJson { path: self.path.clone(), source })
    }
}

/// Result of [`Trees::begin`].
#[derive(Debug)]
pub enum BeginTree {
    /// The entry is in the store.
    Have(Cached),
    /// This process has to build the entry.
    Build(Staging),
}

impl Trees<'_> {
    /// Returns the entry, if it is in the store; it is not deleted while the result lives.
    pub fn get(&self, digest: &Digest) -> Result<Option<Cached>> {
        // The lease comes first: an entry found after it cannot be deleted.
        let lease = self.store.lease()?;
        for (depth, store) in self.store.chain().enumerate() {
            if let Some(meta) = self.read_meta(store, digest)? {
                if depth == 0 && meta.is_unsynced {
                    self.store.note_found(self.meta_rel(digest));
                }
                let meta = meta.meta;
                return Ok(Some(Cached {
                    path: store.inner.root.join(&self.kind.rel(digest)),
                    meta,
                    digest: digest.clone(),
                    is_own: depth == 0,
                    _lease: (depth == 0).then_some(lease),
                }));
            }
        }
        Ok(None)
    }

    /// As [`Trees::get`], in this store alone and without a lease: for callers that hold a lease or
    /// the exclusive lock.
    pub(crate) fn get_own(&self, digest: &Digest) -> Result<Option<Cached>> {
        let meta = self.read_meta(self.store, digest)?;
        Ok(meta.map(|Found { meta, .. }| Cached {
            path: self.store.inner.root.join(&self.kind.rel(digest)),
            meta,
            digest: digest.clone(),
            is_own: true,
            _lease: None,
        }))
    }

    /// Returns true if the entry is in the store; does not protect it from deletion.
    pub fn contains(&self, digest: &Digest) -> Result<bool> {
        for store in self.store.chain() {
            if self.read_meta(store, digest)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn meta_rel(&self, digest: &Digest) -> String {
        format!("{}/{}", self.kind.rel(digest), self.kind.meta_name())
    }

    /// The metadata of an entry that counts; `None` if there is none, or if a power failure may
    /// have left it incomplete.
    fn read_meta(&self, store: &Store, digest: &Digest) -> Result<Option<Found>> {
        match store.inner.root.read_json::<Meta<serde_json::Value>>(&self.meta_rel(digest)) {
            Ok(Some(meta)) => {
                let is_unsynced = meta.boot.is_some();
                let counts = meta.boot.is_none_or(|boot| boot == boot_id());
                Ok(counts.then_some(Found { meta: meta.meta, is_unsynced }))
            }
            // After a power failure the file may be there and empty.
            Ok(None) | Err(Error::BadJson { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Begins to build an entry: waits while another process builds it, then returns the entry or a
    /// [`Staging`] directory.
    ///
    /// A staging directory holds a lock on this digest; do not begin the same one twice in one
    /// thread, and begin no blob while holding it.
    pub fn begin(&self, digest: &Digest) -> Result<BeginTree> {
        if let Some(cached) = self.get(digest)? {
            return Ok(BeginTree::Have(cached));
        }
        self.store.writable()?;
        self.store.sweep_in_passing();
        let lease = self.store.lease()?;
        let name = format!("{}-{}", self.kind.name(), flat(digest));
        let lockable = self.store.lockable(&name, format!("{} {digest}", self.kind.name()), true);
        let limit = self.store.inner.wait.content_limit;
        let lock = lockable.take(Mode::Exclusive, &self.store.inner.wait, limit)?;
        if let Some(cached) = self.get(digest)? {
            return Ok(BeginTree::Have(cached));
        }
        let root = &self.store.inner.root;
        let rel = format!("{BUILD}/{name}");
        // Under the lock, both can only be leftovers of a dead process or of an earlier boot.
        self.store.discard(&self.kind.rel(digest))?;
        self.store.discard(&rel)?;
        root.make_dir(&rel)?;
        root.make_dir(&format!("{rel}/tree"))?;
        let digest = digest.clone();
        let store = self.store.clone();
        Ok(BeginTree::Build(Staging {
            store,
            kind: self.kind,
            digest,
            rel,
            _lock: lock,
            _lease: lease,
        }))
    }

    /// Lists every entry of this store (not of those beneath).
    pub fn list(&self) -> Result<Vec<Digest>> {
        let names = self.store.inner.root.list(self.kind.directory())?;
        Ok(names.iter().filter_map(|(name, _)| unflat(name)).collect())
    }

    /// Removes an entry of this store. Callers hold the exclusive lock.
    pub(crate) fn remove(&self, digest: &Digest) -> Result<()> {
        self.store.discard(&self.kind.rel(digest))
    }
}

/// A directory that is being filled; the only one for its digest among all processes.
///
/// Dropped without [`Staging::commit`], it is removed.
#[derive(Debug)]
pub struct Staging {
    store: Store,
    kind: Kind,
    digest: Digest,
    rel: String,
    // Fields are dropped in this order: the entry's lock before the store's.
    _lock: Lock,
    _lease: Lease,
}

impl Staging {
    /// The directory; everything in it is kept.
    pub fn dir(&self) -> PathBuf {
        self.store.inner.root.join(&self.rel)
    }

    /// The (empty, existing) directory of the root tree in it.
    pub fn tree(&self) -> PathBuf {
        self.dir().join("tree")
    }

    /// Path of the ownership table.
    pub fn owners(&self) -> PathBuf {
        self.dir().join("owners")
    }

    /// The diff ID or chain ID that is being built.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Makes the directory visible, with the caller's metadata.
    pub fn commit(mut self, meta: &impl Serialize) -> Result<Cached> {
        let root = std::sync::Arc::clone(&self.store.inner.root);
        let meta_rel = format!("{}/{}", self.rel, self.kind.meta_name());
        let boot = (!self.store.syncs_now()).then(boot_id);
        let bytes = encode(&Meta { boot: boot.clone(), meta }, || root.join(&meta_rel))?;
        root.write_new(&meta_rel, &bytes, false)?;
        if self.store.syncs_now() {
            root.sync_all()?;
        }
        let target = self.kind.rel(&self.digest);
        root.rename(&self.rel, &target)?;
        self.rel.clear();
        if self.store.syncs_now() {
            root.sync_dir(self.kind.directory())?;
        } else {
            self.store.note_unsynced(Some(format!("{target}/{}", self.kind.meta_name())));
        }
        let trees = Trees { store: &self.store, kind: self.kind };
        trees.get(&self.digest)?.ok_or_else(|| Error::NoTree {
            what: self.kind.name(),
            digest: self.digest.to_string(),
        })
    }

    /// Removes the directory and reports a failure.
    pub fn abort(mut self) -> Result<()> {
        let rel = std::mem::take(&mut self.rel);
        self.store.discard(&rel)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.rel.is_empty() {
            // Files that cannot be removed now are swept later.
            let _ = sys::fs::remove_tree(self.store.inner.root.as_fd(), self.rel.as_bytes());
        }
    }
}

/// Removes the boot id from the metadata of entries that are on the disk now, and syncs the
/// metadata too, since a container's record may refer to them next.
pub(crate) fn clear_boot_ids(store: &Store, metas: &[String]) -> Result<()> {
    let root = &store.inner.root;
    let mut cleared = Vec::with_capacity(metas.len());
    for meta_rel in metas {
        let Some(meta) = root.read_json::<Meta<serde_json::Value>>(meta_rel)? else { continue };
        // Another host's entry is not on the disk because this host has synced.
        if meta.boot.is_some_and(|boot| boot == boot_id()) {
            let bytes = encode(&Meta { boot: None, meta: meta.meta }, || root.join(meta_rel))?;
            root.replace(meta_rel, &bytes, false)?;
            cleared.push(meta_rel);
        }
    }
    // One commit of the journal holds all of them, so only the first call waits.
    for meta_rel in cleared {
        store.sync_rel(meta_rel)?;
        if let Some((directory, _)) = meta_rel.rsplit_once('/') {
            root.sync_dir(directory)?;
        }
    }
    Ok(())
}

/// The boot id of the running kernel.
fn boot_id() -> String {
    static ID: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    ID.get_or_init(|| {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        id.trim().to_owned()
    })
    .clone()
}
