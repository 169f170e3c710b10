//! Builds images from an OCI layout's `index.json`, for archives and for directories.

use std::collections::BTreeMap;

use oci::{Descriptor, Digest, Document, ImageConfig, Index, Manifest, Platform};

use super::{Image, invalid, references};
use crate::{Error, limits};

/// Access to the layout's documents.
pub(crate) trait Documents {
    /// Returns a small blob's bytes, checked; `None` if it is missing.
    fn document(&mut self, digest: &Digest) -> Result<Option<Vec<u8>>, Error>;
    /// Returns true if a blob is present.
    fn has(&self, digest: &Digest) -> bool;
}

/// The images in a layout's index. Entries with the same name and different platforms are one
/// image; artifacts are left out.
pub(crate) fn images(
    index: &Index,
    documents: &mut dyn Documents,
    platform: &Platform,
) -> Result<Vec<Image>, Error> {
    let mut images: Vec<Image> = Vec::new();
    for entries in by_name(index) {
        let chosen = choose(&entries, platform)?;
        let Some(image) = image(chosen, documents, platform)? else { continue };
        let same = images.iter_mut().find(|i| i.descriptor.digest == image.descriptor.digest);
        match same {
            Some(known) => {
                known.names.extend(image.names);
                known.references.extend(image.references);
            }
            None => images.push(image),
        }
    }
    if images.is_empty() {
        return Err(invalid("its index.json lists no image"));
    }
    Ok(images)
}

/// Groups entries that share a name, in the order of the names; an entry without name is a group by
/// itself unless it has a platform.
fn by_name(index: &Index) -> Vec<Vec<Descriptor>> {
    let mut groups: Vec<Vec<Descriptor>> = Vec::new();
    let mut known: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for entry in &index.manifests {
        let name = entry.ref_name();
        let joins = entry.platform.is_some();
        match known.get(&name) {
            Some(&at) if joins && groups[at].iter().all(|e| e.platform.is_some()) => {
                groups[at].push(entry.clone());
            }
            _ => {
                known.insert(name, groups.len());
                groups.push(vec![entry.clone()]);
            }
        }
    }
    groups
}

fn choose(entries: &[Descriptor], platform: &Platform) -> Result<Descriptor, Error> {
    match entries {
        [one] => Ok(one.clone()),
        several => {
            let index = Index::build(several.to_vec());
            let chosen = index.choose(platform);
            chosen.cloned().map_err(|source| document("index.json", source))
        }
    }
}

fn image(
    entry: Descriptor,
    documents: &mut dyn Documents,
    platform: &Platform,
) -> Result<Option<Image>, Error> {
    let names: Vec<String> = entry.ref_name().map(str::to_owned).into_iter().collect();
    let mut top: Option<Index> = None;
    let mut entry = entry;
    for _ in 0..limits::INDEX_DEPTH {
        let bytes = documents
            .document(&entry.digest)?
            .ok_or_else(|| invalid(format!("{} is listed but missing", entry.digest)))?;
        let parsed = Document::parse(bytes, &entry.media_type)
            .map_err(|source| document(&entry.digest.to_string(), source))?;
        match parsed {
            Document::Manifest(manifest) => return finish(names, manifest, &entry, top, documents),
            Document::Index(index) => {
                entry = choose_present(&index, documents, platform)?;
                top.get_or_insert(index);
            }
        }
    }
    Err(invalid("its indexes are nested too deeply"))
}

/// Chooses among the manifests that are present: archives of one platform may have an index of
/// many, with most manifests missing.
fn choose_present(
    index: &Index,
    documents: &dyn Documents,
    platform: &Platform,
) -> Result<Descriptor, Error> {
    let present: Vec<Descriptor> =
        index.manifests.iter().filter(|entry| documents.has(&entry.digest)).cloned().collect();
    let present = Index::build(present);
    let chosen = present.choose(platform);
    chosen.cloned().map_err(|source| document("index.json", source))
}

fn finish(
    names: Vec<String>,
    manifest: Manifest,
    entry: &Descriptor,
    index: Option<Index>,
    documents: &mut dyn Documents,
) -> Result<Option<Image>, Error> {
    if manifest.check_is_image().is_err() {
        tracing::debug!(digest = %entry.digest, "artifact skipped");
        return Ok(None);
    }
    for blob in manifest.layers.iter().chain([&manifest.config]) {
        if !documents.has(&blob.digest) {
            return Err(invalid(format!("{} is listed but missing", blob.digest)));
        }
    }
    let bytes = documents.document(&manifest.config.digest)?.ok_or_else(|| {
        invalid(format!("{} is not an image configuration", manifest.config.digest))
    })?;
    let config = ImageConfig::parse(bytes)
        .map_err(|source| document(&manifest.config.digest.to_string(), source))?;
    let size = manifest.raw().len() as u64;
    let descriptor = Descriptor::new(&manifest.media_type, entry.digest.clone(), size);
    let references = references(&names);
    Ok(Some(Image { names, references, manifest, descriptor, index, config }))
}

fn document(what: &str, source: oci::Error) -> Error {
    Error::Document { what: what.to_owned(), source }
}
