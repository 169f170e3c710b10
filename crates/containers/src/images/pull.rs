//! The road of an image: from a registry into the store and onto disk as layers.
//!
//! ```text
//! resolve ─► config ─► for each layer, several at once:
//!                        registry ─► hash + partial blob ─┬─► commit blob
//!                                                         └─► decode ─► apply ─► commit layer
//!                      ─► manifest ─► name
//! ```
//!
//! A layer's bytes are unpacked while they arrive; what an earlier, broken-off pull left of a blob is hashed and
//! unpacked from disk before the registry is asked for the rest. A layer that is here is neither fetched nor
//! unpacked. The name comes last, so that a name never leads to half an image. When one layer fails the others stop at their
//! next buffer and keep what they have. Ctrl-C needs no handler: everything survives `kill -9`.

mod layer;
mod pipe;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use oci::{Descriptor, Digest, ImageConfig, Manifest, Platform, Reference};
use registry::{Client, Resolved};
use store::{BeginBlob, Image, Store};

use crate::container::protection;
use crate::error::{Error, Result};
use crate::events::Progress;
use crate::session::{Cancel, Session};
use crate::size;

pub use layer::Work;

/// What all layers of one image share on their way.
pub struct Road<'a> {
    /// Where they go.
    pub store: &'a Store,
    /// What one may ask for.
    pub limits: rootfs::Limits,
    /// Who is told.
    pub progress: &'a Progress<'a>,
    /// How many at once.
    pub parallel: usize,
    /// One has failed: the others are to stop.
    pub stop: AtomicBool,
    /// The caller may cancel all of it.
    pub cancel: &'a Cancel,
}

impl<'a> Road<'a> {
    /// With the session's store and settings.
    pub fn new(session: &'a Session, progress: &'a Progress<'a>) -> Result<Self> {
        let (store, settings) = (session.store()?, session.settings());
        let defaults = rootfs::Limits::default();
        let limits = rootfs::Limits {
            entries: settings.limit_entries.get(),
            total_bytes: settings.limit_layer_size.0.unwrap_or(u64::MAX),
            file_bytes: settings.limit_file_size.0.unwrap_or(u64::MAX),
            ..defaults
        };
        let parallel = usize::try_from(settings.parallel_downloads.get()).unwrap_or(6);
        let (stop, cancel) = (AtomicBool::new(false), session.cancel());
        Ok(Self { store, limits, progress, parallel, stop, cancel })
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.cancel.is_cancelled()
    }

    /// Why the work stops that [`Road::stopped`] ends.
    fn why_stopped(&self) -> Error {
        match self.cancel.check() {
            Err(cancelled) => cancelled,
            Ok(()) => Error::failed("stopped, because another layer failed"),
        }
    }

    /// Does the work of all layers, several at once; the first failure is the answer.
    pub fn all(&self, works: &[Work<'_>]) -> Result<()> {
        let next = AtomicUsize::new(0);
        let failure = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..self.parallel.min(works.len()) {
                scope.spawn(|| {
                    while let Some(work) = works.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if self.stop.load(Ordering::Relaxed) {
                            return;
                        }
                        if let Err(report) = layer::bring(self, work) {
                            // Those that stop because of the first failure have nothing new to say.
                            let mut first =
                                failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                            if !self.stop.swap(true, Ordering::Relaxed) || first.is_none() {
                                first.get_or_insert(report);
                            }
                        }
                    }
                });
            }
        });
        failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

/// What came of a pull.
pub struct Pulled {
    /// What the tag points to in the registry.
    pub digest: Digest,
    /// Nothing had to be fetched.
    pub unchanged: bool,
}

/// Pulls one image.
pub fn pull(
    road: &Road<'_>,
    client: &Client,
    reference: &Reference,
    platform: Option<&Platform>,
    unpack: bool,
) -> Result<Pulled> {
    let familiar = reference.familiar();
    let within = |report: Error| report.within(format!("cannot pull {familiar}"));
    let resolved = client.resolve(reference, platform).map_err(|error| within(error.into()))?;
    let digest = resolved.top_digest().clone();
    // Afterwards our own lease would keep the leftovers of dead processes from being swept.
    if let Err(error) = road.store.sweep(&store::remove_owned) {
        tracing::debug!("sweep: {error}");
    }
    // From the first look at what is here to the name nothing may be cleaned away.
    let _lease = road.store.lease()?;
    let image_config = config(road.store, client, reference, &resolved.manifest).map_err(within)?;
    let works =
        works(client, reference, &resolved.manifest, &image_config, unpack).map_err(within)?;
    let mut missing = Vec::new();
    for work in works {
        if !work.is_done(road.store)? {
            missing.push(work);
        }
    }
    let unchanged = missing.is_empty();
    announce(road, reference, &resolved, &missing);
    road.all(&missing).map_err(within)?;
    road.progress.finish();
    name(road.store, reference, &resolved, &image_config)?;
    Ok(Pulled { digest, unchanged })
}

fn announce(road: &Road<'_>, reference: &Reference, resolved: &Resolved, missing: &[Work<'_>]) {
    let bytes: u64 = missing.iter().map(|work| work.descriptor.size).sum();
    let all = resolved.manifest.layers.len();
    let from = if resolved.source == reference.registry() {
        String::new()
    } else {
        format!(" from {}", resolved.source)
    };
    road.progress.say(&match missing.len() {
        0 => format!("{}: all {all} layers are here", reference.familiar()),
        count => format!(
            "{}: {count} of {all} layers, {}{from}",
            reference.familiar(),
            size::human(bytes)
        ),
    });
    road.progress.expect(bytes);
}

/// The image's configuration, from the store where it is.
fn config(
    store: &Store,
    client: &Client,
    reference: &Reference,
    manifest: &Manifest,
) -> Result<ImageConfig> {
    let descriptor = &manifest.config;
    if store.blobs().contains(&descriptor.digest, Some(descriptor.size))?
        && let Ok(bytes) = store.blobs().read(&descriptor.digest)
    {
        return Ok(ImageConfig::parse(bytes)?);
    }
    let config = client.config(reference, manifest)?;
    put(store, descriptor, config.raw())?;
    Ok(config)
}

/// One piece of work per distinct layer, the largest first, so that it does not come last alone.
fn works<'a>(
    client: &'a Client,
    reference: &'a Reference,
    manifest: &Manifest,
    config: &ImageConfig,
    unpack: bool,
) -> Result<Vec<Work<'a>>> {
    let mut works: Vec<Work<'_>> = Vec::new();
    for (descriptor, diff_id) in pairs(manifest, config)? {
        if works.iter().any(|work| work.descriptor.digest == descriptor.digest) {
            continue;
        }
        works.push(Work { descriptor, diff_id, source: Some((client, reference)), unpack });
    }
    works.sort_by_key(|work| std::cmp::Reverse(work.descriptor.size));
    Ok(works)
}

/// Each layer with its diff ID.
pub fn pairs(manifest: &Manifest, config: &ImageConfig) -> Result<Vec<(Descriptor, Digest)>> {
    let diff_ids = config.diff_ids();
    if diff_ids.len() != manifest.layers.len() {
        return Err(Error::failed("the image contradicts itself").because(format!(
            "the manifest has {} layers and the configuration {}",
            manifest.layers.len(),
            diff_ids.len()
        )));
    }
    Ok(manifest.layers.iter().cloned().zip(diff_ids.iter().cloned()).collect())
}

/// Stores a document whose digest is known.
pub fn put(store: &Store, descriptor: &Descriptor, bytes: &[u8]) -> Result<()> {
    use std::io::Write;
    match store.blobs().begin(descriptor)? {
        BeginBlob::Have(_) => {}
        BeginBlob::Ingest(mut ingest) => {
            ingest.restart()?;
            ingest.write_all(bytes).map_err(|error| {
                Error::failed(format!("cannot store {}", descriptor.digest)).cause(error)
            })?;
            ingest.commit()?;
        }
    }
    Ok(())
}

/// Stores the manifest and gives the image its name.
fn name(
    store: &Store,
    reference: &Reference,
    resolved: &Resolved,
    config: &ImageConfig,
) -> Result<()> {
    let mut descriptor = keep(store, &resolved.manifest, config, resolved.top_digest())?;
    // Who protected the name meant whatever has it.
    let protected = protection::IMAGE_ANNOTATION;
    if let Some(before) = store.images().get(reference)?
        && let Some(value) = before.descriptor().annotations.get(protected)
    {
        descriptor.annotations.insert(protected.to_owned(), value.clone());
    }
    store.images().tag(reference, &descriptor)?;
    Ok(())
}

/// Stores a manifest in OCI's form, since that is all that skopeo and umoci look for in a layout. The digest by which
/// the registry or the archive knows the image stays beside it where that is another.
pub fn keep(
    store: &Store,
    manifest: &Manifest,
    config: &ImageConfig,
    known_as: &Digest,
) -> Result<Descriptor> {
    let manifest = manifest.to_oci();
    let mut descriptor = manifest.descriptor();
    put(store, &descriptor, manifest.raw())?;
    descriptor.platform = Some(config.platform());
    if *known_as != descriptor.digest {
        let known_as = known_as.to_string();
        descriptor.annotations.insert(store::ANNOTATION_KNOWN_AS.to_owned(), known_as);
    }
    Ok(descriptor)
}

/// Unpacks those layers of a stored image that are not on disk yet.
pub fn unpack(road: &Road<'_>, image: &Image) -> Result<()> {
    unpack_all(road, image.manifest()?, &image.config()?)
}

/// The same for an image that has no name yet.
pub fn unpack_all(road: &Road<'_>, manifest: &Manifest, config: &ImageConfig) -> Result<()> {
    let mut works: Vec<Work<'_>> = Vec::new();
    for (descriptor, diff_id) in pairs(manifest, config)? {
        let known = works.iter().any(|work| work.diff_id == diff_id);
        if !known && !road.store.layers().contains(&diff_id)? {
            works.push(Work { descriptor, diff_id, source: None, unpack: true });
        }
    }
    road.progress.expect(works.iter().map(|work| work.descriptor.size).sum());
    road.all(&works).map_err(|report| report.within("cannot unpack the image"))?;
    road.progress.finish();
    Ok(())
}
