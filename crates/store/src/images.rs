//! Images: names and ids to manifests.
//!
//! An image is an entry of the layout's index. Its **id** is its configuration's digest, as in Docker; its **digest** is its
//! manifest's. Names are kept in their canonical form, so that `debian` and `docker.io/library/debian:latest` are one.
//! An entry whose name went to another image stays, nameless, until it is removed or pruned.

use std::collections::{BTreeMap, HashSet};
use std::sync::OnceLock;

use oci::{Descriptor, Digest, Document, ImageConfig, Manifest, Platform, Reference};
use serde::Deserialize;

use crate::containers::halves;
use crate::error::{Error, Result};
use crate::{ContainerDir, Store, gc, index, names};

/// The annotation (in the layout's index) that keeps the digest by which a registry knows the image, where that is not the
/// stored manifest's: the index it was chosen from, or the Docker manifest it was translated from. With it
/// `name@sha256:<digest>` finds the image again.
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

/// What a list of images shows, read from manifest and configuration with little effort.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The configuration's digest.
    pub id: Digest,
    /// When it was built (RFC 3339), if it says so.
    pub created: Option<String>,
    /// What it runs on.
    pub platform: Platform,
    /// The stored (compressed) size in bytes: layers and configuration.
    pub size: u64,
    /// The configuration's labels.
    pub labels: BTreeMap<String, String>,
    /// The layers' diff IDs.
    pub diff_ids: Vec<Digest>,
}

/// What [`Images::remove`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removal {
    /// The names that are gone, in canonical form.
    pub untagged: Vec<String>,
    /// The image's id when its last name went.
    pub deleted: Option<Digest>,
    /// Bytes of blobs and layers that were deleted.
    pub freed: u64,
    /// The content stays until the next time, because other processes are using the store.
    pub deferred: bool,
}

impl Image {
    /// The entry as it stands in the index.
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

    /// By what an image of an upper store hides one beneath: its name, or its digest if it has none.
    fn key(&self) -> String {
        match self.descriptor.ref_name() {
            Some(name) => {
                index::parse_name(name).map_or_else(|| name.to_owned(), |name| name.to_string())
            }
            None => self.digest().to_string(),
        }
    }

    /// Whether it is in the store itself, not in one beneath.
    pub fn is_own(&self) -> bool {
        self.own
    }

    /// Its manifest; for an entry that is an index (other tools make these), the one for this machine.
    pub fn manifest(&self) -> Result<&Manifest> {
        if let Some(manifest) = self.manifest.get() {
            return Ok(manifest);
        }
        let manifest = self.manifest_for(&Platform::host())?;
        Ok(self.manifest.get_or_init(|| manifest))
    }

    /// Its manifest for a platform, where the entry is an index.
    pub fn manifest_for(&self, platform: &Platform) -> Result<Manifest> {
        let mut descriptor = self.descriptor.clone();
        // An index may hold indexes; nobody nests them deeply.
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

    /// What a list shows of it.
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

    /// Every name of this image (of its manifest), its own included.
    pub fn references(&self) -> Result<Vec<Reference>> {
        let images = self.store.images().list()?;
        let same = images.iter().filter(|image| image.digest() == self.digest());
        Ok(same.filter_map(Image::reference).collect())
    }
}

/// A name, an id or the beginning of one, as a person wrote it.
enum Wanted {
    Reference(Reference),
    /// `sha256:…` or digits, whole or its beginning.
    Id,
}

impl Images<'_> {
    /// All entries: this store's in the order of its index, then those beneath whose names are not taken above.
    pub fn list(self) -> Result<Vec<Image>> {
        self.list_containing(None)
    }

    /// The same with what a list shows of each: two threads read and check manifests and configurations when there are many.
    pub fn summaries(self) -> Result<Vec<(Image, Result<Summary>)>> {
        let images = self.list()?;
        let summaries = halves(&images, Image::summary);
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

    /// The image with exactly this name, or (`name@digest`) this name and digest.
    pub fn get(self, reference: &Reference) -> Result<Option<Image>> {
        // Whatever form its name has in the index, the last part of it is there as it is.
        let last = reference.repository().rsplit('/').next();
        let found =
            self.list_containing(last)?.into_iter().filter(|image| answers(image, reference));
        // All platforms of an index answer to its digest: what was fetched by just this name comes first.
        Ok(found.min_by_key(|image| image.reference().as_ref() != Some(reference)))
    }

    /// The image that a person means: a name, `name:tag`, `name@digest`, `sha256:id`, or the beginning of an id.
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

    /// Gives a name to a manifest (or index) that is in the store. An image that had the name keeps its place, without it.
    /// Brings everything that was added before onto the disk first ([`Store::sync_added`]).
    pub fn tag(self, reference: &Reference, descriptor: &Descriptor) -> Result<()> {
        let _lease = self.0.lease()?;
        self.0.blobs().open(descriptor)?;
        // What the index does not have yet may be the work of a process that was ended before it
        // could sync.
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

    /// Takes a name away and leaves the image in place; `false` when nothing had it.
    pub fn untag(self, reference: &Reference) -> Result<bool> {
        index::edit(self.0, |index| Ok(index.untag(reference, None)))
    }

    /// Removes what a person means, as `docker rmi` does: a name where there are others, else the image with what only it
    /// needs. An image with several names is removed by its id with `force` only; one that containers use loses its
    /// name with `force`, and its content goes when they are gone.
    pub fn remove(self, name: &str, force: bool) -> Result<Removal> {
        self.0.writable()?;
        let image = self.find(name)?;
        if !image.own {
            let reason = "the image is in a store beneath".into();
            return Err(Error::ReadOnly { path: self.0.path().to_owned(), reason });
        }
        let others: Vec<Reference> = image.references()?;
        let by_name = matches!(wanted(name), Some(Wanted::Reference(reference)) if answers(&image, &reference));
        if by_name && others.len() > 1 {
            let reference = image.reference();
            let Some(reference) = reference else { return Ok(Removal::default()) };
            self.untag(&reference)?;
            return Ok(Removal { untagged: vec![reference.to_string()], ..Removal::default() });
        }
        if !force {
            self.check_removable(&image, name, &others)?;
        }
        let deleted = image.id().unwrap_or_else(|_| image.digest().clone());
        let candidates = gc::contents(self.0, &image);
        index::edit(self.0, |index| Ok(index.remove(|entry| entry.digest == *image.digest())))?;
        let (freed, deferred) = gc::remove_unreferenced(self.0, &candidates)?;
        Ok(Removal {
            untagged: others.iter().map(ToString::to_string).collect(),
            deleted: Some(deleted),
            freed,
            deferred,
        })
    }

    fn check_removable(self, image: &Image, name: &str, names: &[Reference]) -> Result<()> {
        let in_use = |why| Err(Error::ImageInUse { name: name.to_owned(), why });
        if names.len() > 1 {
            let names: Vec<String> = names.iter().map(Reference::familiar).collect();
            return in_use(format!("it has several names: {}", names.join(", ")));
        }
        let users = self.0.containers().using(image)?;
        match users.as_slice() {
            [] => Ok(()),
            users => {
                let ids: Vec<&str> = users.iter().map(ContainerDir::short_id).collect();
                in_use(format!("containers {}", ids.join(", ")))
            }
        }
    }
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

/// Whether the image is the one that a reference names.
fn answers(image: &Image, wanted: &Reference) -> bool {
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

/// The images whose id or digest begins so, one for each id.
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
        // An image whose manifest cannot be read can still be named by its digest, to be removed.
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
