//! Garbage collection: deletes content that nothing refers to.
//!
//! Roots are the entries of the index and the digests in every `container.json`. From them,
//! manifests lead to configurations and layers, indexes to manifests, configurations to diff IDs
//! and chain IDs. References of a damaged document are not followed: that content is fetched again
//! together with the document. A read error of the disk, or an index or container record that
//! cannot be parsed, stops a collection with an error, because then it is unknown what is in use. A
//! collection holds the exclusive lock throughout, so nothing is added meanwhile; see the crate's
//! documentation.

use std::collections::HashSet;
use std::str::FromStr as _;
use std::time::{Duration, SystemTime};

use oci::{Digest, Document, ImageConfig, chain_ids, media};

use crate::blobs::{INGEST, unflat};
use crate::containers::collect_strings;
use crate::error::{Error, Result};
use crate::trees::{BUILD, Kind};
use crate::usage::{Shared, tree_size};
use crate::{ContainerDir, Delete, Image, LockMethod, Store, Volume, index, lock};

/// How long `rmi` waits for other processes before it leaves the content to the next collection.
const PATIENCE: Duration = Duration::from_millis(500);
/// Size limit in bytes: larger documents are not searched for references.
const DOCUMENT: u64 = 8 << 20;

/// Result of a removal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Freed {
    /// Bytes freed on the disk, as far as they could be counted.
    pub bytes: u64,
    /// Removed objects: digests, names, ids.
    pub items: Vec<String>,
    /// Unused content stays because other processes are using the store.
    pub deferred: bool,
}

impl Freed {
    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.items.extend(other.items);
        self.deferred |= other.deferred;
    }
}

/// Age limits of [`Store::collect`].
#[derive(Debug, Clone)]
pub struct CollectOptions {
    /// Partial blobs whose last write is older than this are removed; the next pull resumes younger
    /// ones.
    pub partials_older_than: Duration,
    /// Unreferenced blobs that are younger than this stay: a tool that does not know this store's
    /// locks may have written them and be about to refer to them. Blobs that came through
    /// [`crate::Ingest`] never count as young.
    pub grace: Duration,
}

impl Default for CollectOptions {
    fn default() -> Self {
        Self { partials_older_than: Duration::from_hours(24), grace: Duration::from_mins(10) }
    }
}

/// Everything that something refers to.
#[derive(Debug, Default)]
pub(crate) struct Marked {
    pub(crate) digests: HashSet<Digest>,
    /// Digests whose documents were read. A digest can be marked but not followed: an image may
    /// list another image's manifest as a layer, or under an unknown media type.
    followed: HashSet<Digest>,
    /// Digests that are referred to and are missing or unreadable.
    pub(crate) missing: Vec<(Digest, Error)>,
}

impl Marked {
    /// Follows references from a digest. `media_type` is a hint only.
    fn follow(&mut self, store: &Store, digest: &Digest, media_type: &str) {
        self.digests.insert(digest.clone());
        // A layer has no references and is not read.
        let is_document = media::is_index(media_type)
            || media::is_manifest(media_type)
            || media::is_config(media_type)
            || media_type.is_empty();
        if !is_document || !self.followed.insert(digest.clone()) {
            return;
        }
        match store.blobs().open_digest(digest) {
            Ok(blob) if blob.size > DOCUMENT => return,
            Ok(_) => {}
            // A diff ID or chain ID of a container: it names no blob and has no references.
            Err(Error::NoBlob { .. }) if media_type.is_empty() => return,
            Err(error) => return self.missing.push((digest.clone(), error)),
        }
        let bytes = match store.blobs().read(digest) {
            Ok(bytes) => bytes,
            Err(error) => return self.missing.push((digest.clone(), error)),
        };
        self.follow_document(store, digest, media_type, bytes);
    }

    fn follow_document(
        &mut self,
        store: &Store,
        digest: &Digest,
        media_type: &str,
        bytes: Vec<u8>,
    ) {
        let bad = |what, why: &dyn std::fmt::Display| Error::BadDocument {
            digest: digest.to_string(),
            what,
            why: why.to_string(),
        };
        if media::is_config(media_type) {
            match ImageConfig::parse(bytes) {
                Ok(config) => self.mark_config(&config),
                Err(error) => self.missing.push((digest.clone(), bad("configuration", &error))),
            }
            return;
        }
        match Document::parse(bytes.clone(), media_type) {
            Ok(Document::Index(index)) => {
                for entry in &index.manifests {
                    // An index may have only some of its platforms in the store.
                    if store.blobs().contains(&entry.digest, None).unwrap_or(true) {
                        self.follow(store, &entry.digest, &entry.media_type);
                    }
                }
            }
            Ok(Document::Manifest(manifest)) => {
                self.follow(store, &manifest.config.digest, &manifest.config.media_type);
                for layer in &manifest.layers {
                    self.digests.insert(layer.digest.clone());
                }
            }
            // A container refers to its configuration without a media type.
            Err(_) if media_type.is_empty() => {
                if let Ok(config) = ImageConfig::parse(bytes) {
                    self.mark_config(&config);
                }
            }
            Err(error) => self.missing.push((digest.clone(), bad("manifest", &error))),
        }
    }

    fn mark_config(&mut self, config: &ImageConfig) {
        self.digests.extend(config.diff_ids().iter().cloned());
        self.digests.extend(chain_ids(config.diff_ids()));
    }
}

/// Marks all content that is in use.
pub(crate) fn mark(store: &Store) -> Result<Marked> {
    let mut marked = Marked::default();
    for entry in index::read_entries(store, None)? {
        marked.follow(store, &entry.digest, &entry.media_type);
        // Annotations may hold digests, for example of the index from which a manifest was chosen.
        for digest in entry.annotations.values().filter_map(|text| Digest::from_str(text).ok()) {
            marked.follow(store, &digest, "");
        }
    }
    let configs = store.containers().map(ContainerDir::read_any)?;
    for config in configs {
        let Some(config) = config? else { continue };
        let mut strings = Vec::new();
        collect_strings(&config, &mut strings);
        for digest in strings.iter().filter_map(|text| Digest::from_str(text).ok()) {
            marked.follow(store, &digest, "");
        }
    }
    // Damaged documents are skipped: the content that they refer to is useless without them and is
    // fetched again with them. A read error stops the collection.
    let unreadable = marked.missing.iter().position(|(_, error)| matches!(error, Error::Io { .. }));
    match unreadable {
        Some(index) => Err(marked.missing.swap_remove(index).1),
        None => Ok(marked),
    }
}

/// Everything that an image refers to, as far as it can be read: the candidates for removal with
/// the image.
pub(crate) fn contents(store: &Store, image: &Image) -> HashSet<Digest> {
    let mut marked = Marked::default();
    let entry = image.descriptor();
    marked.follow(store, &entry.digest, &entry.media_type);
    for digest in entry.annotations.values().filter_map(|text| Digest::from_str(text).ok()) {
        marked.follow(store, &digest, "");
    }
    marked.digests
}

/// Deletes those candidates that nothing refers to any more. Returns the bytes freed, and true if
/// the work was put off because other processes are using the store.
pub(crate) fn remove_unreferenced(
    store: &Store,
    candidates: &HashSet<Digest>,
) -> Result<(u64, bool)> {
    let mut freed = 0;
    {
        let _gc = match store.exclusive("removing an image", PATIENCE.min(store.inner.wait.limit)) {
            Err(Error::Busy { .. } | Error::OwnLease { .. }) => return Ok((0, true)),
            other => other?,
        };
        let marked = mark(store)?;
        for digest in candidates.difference(&marked.digests) {
            freed += remove_content(store, digest)?;
        }
        trash_leftovers(store, &mut Freed::default())?;
    }
    empty_trash(store, &crate::remove_owned)?;
    Ok((freed, false))
}

/// Deletes a blob, or moves a layer or tree into the trash.
fn remove_content(store: &Store, digest: &Digest) -> Result<u64> {
    let mut freed = store.blobs().remove(digest)?;
    for kind in Kind::ALL {
        let rel = kind.rel(digest);
        if let Some(trashed) = store.to_trash(&rel)? {
            freed += tree_size(&store.inner.root, &trashed, Shared::Excluded).unwrap_or(0);
        }
    }
    Ok(freed)
}

/// Moves the leftovers of dead processes into the trash. Under the exclusive lock all of `tmp/`
/// belongs to dead processes, except blobs that can be resumed.
fn trash_leftovers(store: &Store, freed: &mut Freed) -> Result<()> {
    let root = &store.inner.root;
    for (name, _) in root.list("tmp")? {
        let keep = [INGEST, BUILD].iter().any(|kept| kept.strip_prefix("tmp/") == Some(&name));
        if !keep && store.to_trash(&format!("tmp/{name}"))?.is_some() {
            freed.items.push(format!("tmp/{name}"));
        }
    }
    for (name, _) in root.list(BUILD)? {
        if store.to_trash(&format!("{BUILD}/{name}"))?.is_some() {
            freed.items.push(format!("{BUILD}/{name}"));
        }
    }
    // Temporary siblings of files that were to be replaced: `.<name>.<16 hexadecimal digits>`.
    let mut directories = vec!["oci".to_owned()];
    directories
        .extend(root.list("oci/blobs")?.into_iter().map(|(name, _)| format!("oci/blobs/{name}")));
    for directory in directories {
        for (name, _) in root.list(&directory)? {
            if is_sibling(&name) {
                root.unlink(&format!("{directory}/{name}"))?;
            }
        }
    }
    Ok(())
}

fn is_sibling(name: &str) -> bool {
    let Some((stem, random)) = name.rsplit_once('.') else { return false };
    stem.len() > 1 && stem.starts_with('.') && random.len() == 16 && crate::names::is_hex(random)
}

/// Deletes everything in the trash; returns the bytes freed. Needs no lock, since nothing is ever
/// moved out of the trash.
fn empty_trash(store: &Store, delete: &Delete<'_>) -> Result<u64> {
    let root = &store.inner.root;
    let mut freed = 0;
    for (name, _) in root.list("trash")? {
        let rel = format!("trash/{name}");
        let size = tree_size(root, &rel, Shared::Excluded).unwrap_or(0);
        // Entries that cannot be deleted (files of subordinate users, mount points) stay for a
        // later sweep.
        let _ = delete(&root.join(&rel));
        if !root.exists(&rel)? {
            freed += size;
        }
    }
    Ok(freed)
}

impl Store {
    /// Deletes the leftovers of dead processes unless another process is using the store. Costs two
    /// directory listings when there is nothing to do.
    pub fn sweep(&self, delete: &Delete<'_>) -> Result<Freed> {
        self.writable()?;
        let mut freed = Freed::default();
        let root = &self.inner.root;
        if self.inner.abilities.locks == LockMethod::Symlink {
            lock::clear_own(root)?;
        }
        let rubbish = root.list("tmp")?.iter().any(|(name, _)| name != "ingest" && name != "build")
            || !root.list(BUILD)?.is_empty();
        if rubbish {
            match self.exclusive("sweeping", Duration::ZERO) {
                Err(Error::Busy { .. } | Error::OwnLease { .. }) => freed.deferred = true,
                gc => {
                    let _gc = gc?;
                    trash_leftovers(self, &mut freed)?;
                }
            }
        }
        freed.bytes += empty_trash(self, delete)?;
        Ok(freed)
    }

    /// Sweeps once per `Store` value, before its first write; failures are only logged.
    pub(crate) fn sweep_in_passing(&self) {
        if !self.inner.swept.swap(true, std::sync::atomic::Ordering::Relaxed)
            && let Err(error) = self.sweep(&crate::remove_owned)
        {
            tracing::debug!("sweep: {error}");
        }
    }

    /// Deletes all unreferenced content, old partial blobs and the leftovers of dead processes.
    /// Waits for other processes up to [`crate::WaitPolicy::limit`], then fails with
    /// [`Error::Busy`].
    pub fn collect(&self, options: &CollectOptions, delete: &Delete<'_>) -> Result<Freed> {
        let mut freed = Freed::default();
        {
            let _gc = self.exclusive("collecting garbage", self.inner.wait.limit)?;
            let marked = mark(self)?;
            let now = SystemTime::now();
            for (digest, size) in self.blobs().list()? {
                if !marked.digests.contains(&digest)
                    && self.age(&crate::blobs::rel(&digest), now)? >= options.grace
                {
                    self.blobs().remove(&digest)?;
                    freed.bytes += size;
                    freed.items.push(format!("blob {digest}"));
                }
            }
            for kind in Kind::ALL {
                for digest in (crate::Trees { store: self, kind }).list()? {
                    if !marked.digests.contains(&digest) {
                        self.to_trash(&kind.rel(&digest))?;
                        freed.items.push(format!("{} {digest}", kind.name()));
                    }
                }
            }
            self.drop_partials(options, now, &mut freed)?;
            trash_leftovers(self, &mut freed)?;
        }
        freed.bytes += empty_trash(self, delete)?;
        Ok(freed)
    }

    fn drop_partials(
        &self,
        options: &CollectOptions,
        now: SystemTime,
        freed: &mut Freed,
    ) -> Result<()> {
        let root = &self.inner.root;
        for (name, _) in root.list(INGEST)? {
            let rel = format!("{INGEST}/{name}");
            let Some(stat) = root.stat(&rel)? else { continue };
            // A partial blob is useless if the whole blob arrived in another way.
            let digest = name.strip_suffix(".part").and_then(unflat);
            let have = match &digest {
                Some(digest) => self.blobs().contains(digest, None)?,
                None => true,
            };
            if (have || self.age(&rel, now)? >= options.partials_older_than) && root.unlink(&rel)? {
                freed.bytes += stat.st_blocks as u64 * 512;
                freed.items.push(format!("partial blob {name}"));
            }
        }
        Ok(())
    }

    fn age(&self, rel: &str, now: SystemTime) -> Result<Duration> {
        let Some(stat) = self.inner.root.stat(rel)? else { return Ok(Duration::ZERO) };
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(stat.st_mtime.max(0) as u64);
        // If this clock runs behind the file server's, every file counts as young.
        Ok(now.duration_since(since).unwrap_or_default())
    }

    /// Removes the images that `select` chooses, except those that containers use, then collects.
    pub fn prune_images(
        &self,
        select: &dyn Fn(&Image) -> bool,
        options: &CollectOptions,
        delete: &Delete<'_>,
    ) -> Result<Freed> {
        self.writable()?;
        let mut freed = Freed::default();
        for image in self.images().list()? {
            if !image.is_own() || !select(&image) || !self.containers().using(&image)?.is_empty() {
                continue;
            }
            let shown = image
                .reference()
                .map_or_else(|| image.digest().to_string(), |name| name.to_string());
            let removed =
                index::edit(self, |index| Ok(index.remove(|entry| entry == image.descriptor())))?;
            if removed > 0 {
                freed.items.push(shown);
            }
        }
        freed.add(self.collect(options, delete)?);
        Ok(freed)
    }

    /// Removes the containers that `select` chooses and that no process holds locked. `select` is
    /// called under the container's lock; it must return false for running containers.
    pub fn prune_containers(
        &self,
        select: &dyn Fn(&ContainerDir) -> bool,
        delete: &Delete<'_>,
    ) -> Result<Freed> {
        let mut freed = Freed::default();
        for container in self.containers().list()? {
            let lock = match container.try_lock_exclusive() {
                Ok(Some(lock)) => lock,
                Ok(None) | Err(Error::NoContainer { .. }) => continue,
                Err(other) => return Err(other),
            };
            if !select(&container) {
                continue;
            }
            let id = container.id().to_owned();
            let size = tree_size(&self.inner.root, &format!("containers/{id}"), Shared::Excluded)
                .unwrap_or(0);
            container.remove_with(delete)?;
            drop(lock);
            freed.bytes += size;
            freed.items.push(id);
        }
        if !freed.items.is_empty() {
            self.containers().sync_removals()?;
        }
        Ok(freed)
    }

    /// Removes the volumes that `select` chooses. It is called while no container can be made; it
    /// must return false for volumes that a container uses.
    pub fn prune_volumes(
        &self,
        select: &dyn Fn(&Volume) -> bool,
        delete: &Delete<'_>,
    ) -> Result<Freed> {
        self.remove_volumes(select, delete, self.inner.wait.limit)
    }

    /// As [`Store::prune_volumes`], but does not wait long for other processes that use the store:
    /// then it removes nothing and returns [`Freed::deferred`].
    pub fn release_volumes(
        &self,
        select: &dyn Fn(&Volume) -> bool,
        delete: &Delete<'_>,
    ) -> Result<Freed> {
        match self.remove_volumes(select, delete, PATIENCE.min(self.inner.wait.limit)) {
            Err(Error::Busy { .. } | Error::OwnLease { .. }) => {
                Ok(Freed { deferred: true, ..Freed::default() })
            }
            result => result,
        }
    }

    fn remove_volumes(
        &self,
        select: &dyn Fn(&Volume) -> bool,
        delete: &Delete<'_>,
        limit: Duration,
    ) -> Result<Freed> {
        let mut freed = Freed::default();
        {
            let _gc = self.exclusive("removing volumes", limit)?;
            for volume in self.volumes().list()? {
                // A removal must not descend into what is mounted there: it is not the store's.
                if select(&volume)
                    && volume.mount_points()?.is_empty()
                    && self.to_trash(&format!("volumes/{}", volume.name()))?.is_some()
                {
                    freed.items.push(volume.name().to_owned());
                }
            }
        }
        if !freed.items.is_empty() {
            self.volumes().sync_removals()?;
        }
        freed.bytes += empty_trash(self, delete)?;
        Ok(freed)
    }
}
