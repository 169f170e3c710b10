//! Images: looks up manifests by name or id.
//!
//! An image is an entry of the layout's index. Its **id** is its configuration's digest, as in
//! Docker; its **digest** is its manifest's. Names are kept in their canonical form, so `debian`
//! and `docker.io/library/debian:latest` are the same. An entry whose name went to another image
//! stays, nameless, until it is removed or pruned.

use std::collections::{BTreeMap, HashSet};
use std::sync::OnceLock;

use oci::{Descriptor, Digest, Document, ImageConfig, Manifest, Platform, Reference};
use serde::Deserialize;

use crate::containers::parallel_map;
use crate::error::{Error, Result};
use crate::{ContainerDir, Store, gc, index, names};

/// Annotation in the layout's index with the digest by which a registry knows the image, if that
/// differs from the stored manifest's: the digest of the index from which the manifest was chosen,
/// or of the Docker manifest that was translated. It lets `name@sha256:<digest>` find the image
/// again.
pub const ANNOTATION_KNOWN_AS: &str = "dev.coracle.image.known-as";

/// The images of a store and of those beneath it.
#[derive(Debug, Clone, Copy)]
pub struct Images<'store>(pub(crate) &'store Store);

/// One entry of the index.
#[derive(Debug, Clone)]
pub struct Image {
    store: Store,
    descriptor: Descriptor,
    own: bool,
    manifest: OnceLock<Manifest>,
}

/// The fields that a list of images shows, read from manifest and configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The configuration's digest.
    pub id: Digest,
    /// Build time (RFC 3339), if the configuration has one.
    pub created: Option<String>,
    /// The platform that it runs on.
    pub platform: Platform,
    /// The stored (compressed) size in bytes: layers and configuration.
    pub size: u64,
    /// The configuration's labels.
    pub labels: BTreeMap<String, String>,
    /// The layers' diff IDs.
    pub diff_ids: Vec<Digest>,
}

/// Result of [`Images::remove`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removal {
    /// The names that were removed, in canonical form.
    pub untagged: Vec<String>,
    /// The image's id if its last name was removed.
    pub deleted: Option<Digest>,
    /// Bytes of blobs and layers that were deleted.
    pub freed: u64,
    /// The content stays until a later collection, because other processes are using the store.
    pub deferred: bool,
}

impl Image {
    /// The image's entry in the index.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The manifest's (or index') digest.
    pub fn digest(&self) -> &Digest {
        &self.descriptor.digest
    }

    /// Its name in canonical form, if it has one.
    pub fn reference(&self) -> Option<Reference> {
        self.descriptor.ref_name().and_then(index::parse_name)
    }

    /// Key by which an image of an upper store hides one beneath: its name, or its digest if it has
    /// none.
    fn key(&self) -> String {
        match self.descriptor.ref_name() {
            Some(name) => {
                index::parse_name(name).map_or_else(|| name.to_owned(), |name| name.to_string())
            }
            None => self.digest().to_string(),
        }
    }

    /// True if it is in the store itself, false if in one beneath.
    pub fn is_own(&self) -> bool {
        self.own
    }

    /// Its manifest. If the entry is an index (other tools make these), the manifest for this
    /// machine's platform.
    pub fn manifest(&self) -> Result<&Manifest> {
        if let Some(manifest) = self.manifest.get() {
            return Ok(manifest);
        }
        let manifest = self.manifest_for(&Platform::host())?;
        Ok(self.manifest.get_or_init(|| manifest))
    }

    /// Its manifest for a platform, if the entry is an index.
    pub fn manifest_for(&self, platform: &Platform) -> Result<Manifest> {
        let mut descriptor = self.descriptor.clone();
        // An index may hold indexes; real images nest them once or twice.
        for _ in 0..4 {
            match self.document(&descriptor)? {
                Document::Manifest(manifest) => return Ok(manifest),
                Document::Index(index) => {
                    let chosen = index.choose(platform);
                    descriptor =
                        chosen.map_err(|error| self.bad(&descriptor, "index", &error))?.clone();
                }
            }
        }
        Err(self.bad(&descriptor, "manifest", &"it is an index in an index in an index"))
    }

    fn document(&self, descriptor: &Descriptor) -> Result<Document> {
        let bytes = self.store.blobs().read(&descriptor.digest)?;
        Document::parse(bytes, &descriptor.media_type)
            .map_err(|error| self.bad(descriptor, "manifest", &error))
    }

    fn bad(
        &self,
        descriptor: &Descriptor,
        what: &'static str,
        why: &dyn std::fmt::Display,
    ) -> Error {
        let name = self.descriptor.ref_name().unwrap_or("<none>");
        let why = format!("{why} (image {name})");
        Error::BadDocument { digest: descriptor.digest.to_string(), what, why }
    }

    /// Its id: the digest of its configuration.
    pub fn id(&self) -> Result<Digest> {
        Ok(self.manifest()?.config.digest.clone())
    }

    /// Its configuration.
    pub fn config(&self) -> Result<ImageConfig> {
        let descriptor = &self.manifest()?.config;
        let bytes = self.store.blobs().read(&descriptor.digest)?;
        ImageConfig::parse(bytes).map_err(|error| self.bad(descriptor, "configuration", &error))
    }

    /// Reads the fields that a list shows.
    pub fn summary(&self) -> Result<Summary> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Config {
            created: Option<String>,
            os: String,
            architecture: String,
            variant: Option<String>,
            #[serde(rename = "config")]
            inner: Option<Inner>,
            rootfs: RootFs,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Inner {
            #[serde(alias = "Labels")]
            labels: Option<BTreeMap<String, String>>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct RootFs {
            diff_ids: Vec<Digest>,
        }
        let manifest = self.manifest()?;
        let bytes = self.store.blobs().read(&manifest.config.digest)?;
        let config: Config = serde_json::from_slice(&bytes)
            .map_err(|error| self.bad(&manifest.config, "configuration", &error))?;
        Ok(Summary {
            id: manifest.config.digest.clone(),
            created: config.created,
            platform: Platform::new(&config.os, &config.architecture, config.variant.as_deref()),
            size: manifest.layers_size() + manifest.config.size,
            labels: config.inner.and_then(|inner| inner.labels).unwrap_or_default(),
            diff_ids: config.rootfs.diff_ids,
        })
    }

    /// Every name of this image's manifest, its own included.
    pub fn references(&self) -> Result<Vec<Reference>> {
        let images = self.store.images().list()?;
        let same = images.iter().filter(|image| image.digest() == self.digest());
        Ok(same.filter_map(Image::reference).collect())
    }
}

/// An image as the user named it: a name, an id or the beginning of an id.
enum Wanted {
    Reference(Reference),
    /// `sha256:…` or hexadecimal digits, whole or the beginning.
    Id,
}

impl Images<'_> {
    /// All entries: those of this store in the order of its index, then those of stores beneath
    /// whose names are not used above.
    pub fn list(self) -> Result<Vec<Image>> {
        self.list_containing(None)
    }

    /// As [`Images::list`], with the summary of each: two threads read and check manifests and
    /// configurations when there are many.
    pub fn summaries(self) -> Result<Vec<(Image, Result<Summary>)>> {
        let images = self.list()?;
        let summaries = parallel_map(&images, Image::summary);
        Ok(images.into_iter().zip(summaries).collect())
    }

    fn list_containing(self, text: Option<&str>) -> Result<Vec<Image>> {
        let mut images: Vec<Image> = Vec::new();
        let mut taken = HashSet::new();
        for (depth, store) in self.0.chain().enumerate() {
            let first = images.len();
            for descriptor in index::read_entries(store, text)? {
                let store = self.0.clone();
                let image = Image { store, descriptor, own: depth == 0, manifest: OnceLock::new() };
                if depth == 0 || !taken.contains(&image.key()) {
                    images.push(image);
                }
            }
            if !self.0.inner.below.is_empty() {
                taken.extend(images[first..].iter().map(Image::key));
            }
        }
        Ok(images)
    }

    /// Returns the image with exactly this name, or (`name@digest`) this name and digest.
    pub fn get(self, reference: &Reference) -> Result<Option<Image>> {
        // In whatever form the index has the name, its last component is there unchanged.
        let last = reference.repository().rsplit('/').next();
        let found = self
            .list_containing(last)?
            .into_iter()
            .filter(|image| matches_reference(image, reference));
        // All platforms of an index match its digest: the image that was fetched by exactly this
        // name comes first.
        Ok(found.min_by_key(|image| image.reference().as_ref() != Some(reference)))
    }

    /// Finds an image by a name, `name:tag`, `name@digest`, `sha256:id`, or the beginning of an id.
    pub fn find(self, name: &str) -> Result<Image> {
        if let Some(Wanted::Reference(reference)) = wanted(name)
            && let Some(image) = self.get(&reference)?
        {
            return Ok(image);
        }
        let mut found = by_id(self, name)?;
        match found.len() {
            0 => Err(Error::NoImage { name: name.into() }),
            1 => Ok(found.remove(0).1),
            _ => Err(Error::AmbiguousImage {
                name: name.into(),
                candidates: found.iter().map(|(id, image)| candidate(id, image)).collect(),
            }),
        }
    }

    /// Gives a name to a manifest (or index) that is in the store. An image that had the name keeps
    /// its entry, without the name. First syncs everything that was added before
    /// ([`Store::sync_added`]).
    pub fn tag(self, reference: &Reference, descriptor: &Descriptor) -> Result<()> {
        let _lease = self.0.lease()?;
        self.0.blobs().open(descriptor)?;
        // Content that the index does not have yet may come from a process that was killed before
        // it could sync.
        let digest = descriptor.digest.to_string();
        let known = index::read_entries(self.0, Some(digest.as_str()))?;
        if !known.iter().any(|entry| entry.digest == descriptor.digest) {
            self.0.note_unsynced(None);
        }
        self.0.sync_added()?;
        index::edit(self.0, |index| {
            index.tag(reference, descriptor).map_err(|source| Error::Encode {
                path: self.0.inner.root.join("oci/index.json"),
                source,
            })
        })
    }

    /// Removes a name and leaves the image in place; `false` when no image had the name.
    pub fn untag(self, reference: &Reference) -> Result<bool> {
        index::edit(self.0, |index| Ok(index.untag(reference, None)))
    }

    /// Removes an image as `docker rmi` does: the given name if the image has others, else the
    /// image with all content that only it needs. An image with several names is removed by its id
    /// with `force` only. One that containers use loses its name with `force`, and its content is
    /// removed after the containers.
    pub fn remove(self, name: &str, force: bool) -> Result<Removal> {
        self.0.writable()?;
        let image = self.find(name)?;
        if !image.own {
            let reason = "the image is in a read-only store beneath".into();
            return Err(Error::ReadOnly { path: self.0.path().to_owned(), reason });
        }
        let others: Vec<Reference> = image.references()?;
        let by_name = matches!(
            wanted(name),
            Some(Wanted::Reference(reference)) if matches_reference(&image, &reference)
        );
        let reference = if by_name { image.reference() } else { None };
        if !force && (reference.is_none() || others.len() < 2) {
            self.check_removable(&image, name, &others)?;
        }
        let deleted = image.id().unwrap_or_else(|_| image.digest().clone());
        let candidates = gc::contents(self.0, &image);
        // Counted again under the lock: another process may have given the image a name meanwhile.
        let names = index::edit(self.0, |index| {
            let names = index.names(image.digest());
            match &reference {
                Some(reference) if names.iter().any(|other| other != reference) => {
                    index.untag(reference, None);
                    return Ok(None);
                }
                None if !force && names.len() > 1 => return Err(several_names(name, &names)),
                _ => {}
            }
            index.remove(|entry| entry.digest == *image.digest());
            Ok(Some(names))
        })?;
        let Some(names) = names else {
            let untagged = reference.iter().map(ToString::to_string).collect();
            return Ok(Removal { untagged, ..Removal::default() });
        };
        let (freed, deferred) = gc::remove_unreferenced(self.0, &candidates)?;
        Ok(Removal {
            untagged: names.iter().map(ToString::to_string).collect(),
            deleted: Some(deleted),
            freed,
            deferred,
        })
    }

    fn check_removable(self, image: &Image, name: &str, names: &[Reference]) -> Result<()> {
        if names.len() > 1 {
            return Err(several_names(name, names));
        }
        let users = self.0.containers().using(image)?;
        match users.as_slice() {
            [] => Ok(()),
            users => {
                let ids: Vec<&str> = users.iter().map(ContainerDir::short_id).collect();
                let why = format!("containers {}", ids.join(", "));
                Err(Error::ImageInUse { name: name.to_owned(), why })
            }
        }
    }
}

fn several_names(name: &str, names: &[Reference]) -> Error {
    let names: Vec<String> = names.iter().map(Reference::familiar).collect();
    let why = format!("it has several names: {}", names.join(", "));
    Error::ImageInUse { name: name.to_owned(), why }
}

fn wanted(name: &str) -> Option<Wanted> {
    let hex = name.strip_prefix("sha256:").or_else(|| name.strip_prefix("sha512:"));
    if let Some(hex) = hex
        && !hex.is_empty()
        && names::is_hex(hex)
    {
        return Some(Wanted::Id);
    }
    if let Ok(reference) = Reference::parse(name) {
        return Some(Wanted::Reference(reference));
    }
    names::is_hex(name).then_some(Wanted::Id)
}

/// Returns true if the image is the one that a reference names.
fn matches_reference(image: &Image, wanted: &Reference) -> bool {
    let Some(reference) = image.reference() else { return false };
    match wanted.digest() {
        None => reference == *wanted,
        Some(digest) => {
            let index = image.descriptor.annotations.get(ANNOTATION_KNOWN_AS);
            let same = image.digest() == digest
                || reference.digest() == Some(digest)
                || index.is_some_and(|index| *index == digest.to_string());
            same && reference.name() == wanted.name()
        }
    }
}

/// The images whose id or digest begins with `prefix`, one for each id.
fn by_id(images: Images<'_>, prefix: &str) -> Result<Vec<(Digest, Image)>> {
    let hex = prefix.split_once(':').map_or(prefix, |(_, hex)| hex);
    if hex.is_empty() || !names::is_hex(hex) {
        return Ok(Vec::new());
    }
    let matches = |digest: &Digest| {
        let algorithm = prefix.split_once(':').map(|(algorithm, _)| algorithm);
        digest.hex().starts_with(hex)
            && algorithm.is_none_or(|algorithm| algorithm == digest.algorithm().as_str())
    };
    let mut found: Vec<(Digest, Image)> = Vec::new();
    for image in &images.list()? {
        // An image whose manifest cannot be read can still be named by its digest, so that it can
        // be removed.
        let id = image.id().unwrap_or_else(|_| image.digest().clone());
        if (matches(&id) || matches(image.digest())) && !found.iter().any(|(other, _)| *other == id)
        {
            found.push((id, image.clone()));
        }
    }
    Ok(found)
}

fn candidate(id: &Digest, image: &Image) -> String {
    match image.reference() {
        Some(reference) => format!("{} ({})", id.short(), reference.familiar()),
        None => id.short().to_owned(),
    }
}
