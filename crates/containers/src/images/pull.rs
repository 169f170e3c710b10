//! Pulls images: from a registry into the store, and onto disk as unpacked layers.
//!
//! ```text
//! resolve ─► config ─► for each layer, several at once:
//!                        registry ─► hash + partial blob ─┬─► commit blob
//!                                                         └─► decode ─► apply ─► commit layer
//!                      ─► manifest ─► name
//! ```
//!
//! A layer's bytes are unpacked while they arrive. What an earlier, interrupted pull left of a blob
//! is hashed and unpacked from disk, and the registry is asked for the rest. A layer that is in the
//! store is neither fetched nor unpacked. The name comes last, so that it never leads to half an
//! image. If one layer fails, or the operation is cancelled, the others stop at their next buffer
//! and keep what they have. A process that is killed loses nothing that it has stored.

mod layer;
mod pipe;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use oci::{Descriptor, Digest, ImageConfig, Manifest, Platform, Reference};
use registry::{Client, Resolved};
use rootfs::{Layer, LayerMeta};
use store::{BeginBlob, Image, Store};

use super::remote;
use crate::error::{Error, Result};
use crate::events::Progress;
use crate::journal;
use crate::protection;
use crate::request::RegistryRequest;
use crate::session::{Cancel, Session};
use crate::size;

pub use layer::Work;

/// What the work on all layers of one image shares.
pub struct Road<'a> {
    /// Where the layers are stored.
    pub store: &'a Store,
    /// How large a layer may be.
    pub limits: rootfs::Limits,
    /// Tells how far the work is.
    pub progress: &'a Progress<'a>,
    /// How many layers are worked on at once.
    pub parallel: usize,
    /// One layer has failed: the others stop.
    pub stop: AtomicBool,
    /// The caller's cancellation.
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

    /// The error of work that ends because of [`Road::stopped`].
    fn why_stopped(&self) -> Error {
        match self.cancel.check() {
            Err(cancelled) => cancelled,
            Ok(()) => Error::failed("stopped, because another layer failed"),
        }
    }

    /// Does the work of all layers, several at once; the first failure is the answer, or that the
    /// caller has cancelled.
    pub fn all(&self, works: &[Work<'_>]) -> Result<()> {
        let next = AtomicUsize::new(0);
        let failure = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..self.parallel.min(works.len()) {
                scope.spawn(|| {
                    while let Some(work) = works.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if self.stopped() {
                            return;
                        }
                        if let Err(report) = layer::bring(self, work) {
                            // The others stop because of the first failure: their errors say
                            // nothing new.
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
        // What a layer says that was stopped is a consequence.
        self.cancel.check()?;
        failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

/// What a failed read of bytes from a registry means.
pub fn broken(error: std::io::Error) -> Error {
    registry::Error::from_io(error)
        .map_or_else(|error| Error::failed("the download broke off").cause(error), Error::from)
}

/// Which images to pull.
#[derive(Debug, Clone)]
pub struct PullRequest {
    /// The image's name.
    pub name: String,
    /// For which platform; `None` for the host's.
    pub platform: Option<Platform>,
    /// Pull every tag of the repository; the name has none.
    pub all_tags: bool,
    /// Unpack the layers as they arrive. If not, the first run unpacks them.
    pub unpack: bool,
    /// How the registry is reached.
    pub registry: RegistryRequest,
}

/// What a request leads to: a registry, and the references that are pulled from it.
pub struct Remote<'a> {
    session: &'a Session,
    client: Client,
    references: Vec<Reference>,
    platform: Option<Platform>,
    unpack: bool,
}

impl<'a> Remote<'a> {
    /// Reads the name, and asks the registry for its tags if all of them are requested.
    pub fn find(session: &'a Session, request: &PullRequest) -> Result<Self> {
        let name = &remote::named(&request.registry, &request.name);
        let reference = remote::reference(session, name)?;
        if request.all_tags && (name.contains('@') || has_tag(name)) {
            return Err(Error::invalid(format!(
                "--all-tags pulls every tag, and '{name}' names one"
            )));
        }
        let client = remote::client(session, &request.registry, reference.registry())?;
        let references = if request.all_tags {
            let tags = client.tags(&reference, 0)?;
            tags.iter().map(|tag| reference.with_tag(tag)).collect::<Result<_, _>>()?
        } else {
            vec![reference]
        };
        let (platform, unpack) = (request.platform.clone(), request.unpack);
        Ok(Self { session, client, references, platform, unpack })
    }

    /// The references, each of which [`Remote::pull`] can pull.
    pub fn references(&self) -> &[Reference] {
        &self.references
    }

    /// Pulls one image, and tells at the end whether there was something to fetch.
    pub fn pull(&self, reference: &Reference) -> Result<Pulled> {
        self.session.cancel().check()?;
        let progress = self.session.progress();
        let road = Road::new(self.session, &progress)?;
        let platform = self.platform.as_ref();
        let pulled = pull(&road, &self.client, reference, platform, self.unpack)?;
        let state = if pulled.unchanged { "up to date" } else { "pulled" };
        progress.say(&format!("{}: {state}", reference.familiar()));
        journal::tell_image(self.session, "pull", reference);
        Ok(pulled)
    }
}

/// Whether a name has a tag: a colon after the last slash.
fn has_tag(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|last| last.contains(':'))
}

/// The result of a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// The digest that the tag points to in the registry.
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
    // Before the lease is taken, which would keep the leftovers of dead processes from being swept.
    if let Err(error) = road.store.sweep(&store::remove_owned) {
        tracing::debug!("sweep: {error}");
    }
    // From the first look into the store to the last name nothing may be removed.
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
    check_links(road.store, &image_config).map_err(within)?;
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

/// The image's configuration, from the store if it is there.
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

/// Each layer with its diff ID. An encrypted layer is an error.
pub fn pairs(manifest: &Manifest, config: &ImageConfig) -> Result<Vec<(Descriptor, Digest)>> {
    let diff_ids = config.diff_ids();
    if diff_ids.len() != manifest.layers.len() {
        return Err(Error::failed("the image contradicts itself").because(format!(
            "the manifest has {} layers and the configuration {}",
            manifest.layers.len(),
            diff_ids.len()
        )));
    }
    if let Some(layer) = manifest.layers.iter().find(|layer| layer.is_encrypted()) {
        return Err(Error::unsupported(format!("the layer {} is encrypted", layer.digest))
            .with_hint(
                "decrypt the image first: \
                 skopeo copy --decryption-key KEY docker://NAME docker-archive:FILE:NAME",
            ));
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
    protect_as(store, reference, &mut descriptor)?;
    store.images().tag(reference, &descriptor)?;
    Ok(())
}

/// Protects an image that is to get a name as the one that has it now: protection belongs to the
/// name, whatever image has it.
pub fn protect_as(store: &Store, reference: &Reference, descriptor: &mut Descriptor) -> Result<()> {
    let protected = protection::IMAGE_ANNOTATION;
    let before = store.images().get(reference)?;
    match before.and_then(|image| image.descriptor().annotations.get(protected).cloned()) {
        Some(value) => descriptor.annotations.insert(protected.to_owned(), value),
        None => descriptor.annotations.remove(protected),
    };
    Ok(())
}

/// Stores a manifest in OCI's form, since skopeo and umoci read no other in a layout. If the
/// registry or the archive knows the image by another digest, that is kept in an annotation.
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
    check_links(road.store, config)
}

/// An image that no container can be made of is refused when it comes, not when it is first run.
fn check_links(store: &Store, config: &ImageConfig) -> Result<()> {
    let mut layers = Vec::new();
    for diff_id in config.diff_ids() {
        // Not all of its layers are unpacked: its first run does that.
        let Some(cached) = store.layers().get(diff_id)? else { return Ok(()) };
        layers.push(Layer::new(cached.path().to_owned(), cached.meta::<LayerMeta>()?));
    }
    Ok(rootfs::image::links_have_targets(&layers)?)
}
