//! Manifests and indexes, OCI's and Docker's schema 2, parsed from bytes that are kept.
//!
//! The media type comes from the registry or the descriptor. If that is missing or generic, the
//! document's own `mediaType` and then its fields decide (OCI documents may lack `mediaType`). A
//! document whose own type contradicts the outer one is refused: reading one as the other is how
//! CVE-2021-41190 confused clients. Schema 1 is refused by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Descriptor, Error, Platform, media};

/// Size limit of a manifest or index in bytes; the distribution spec asks registries for 4 MiB.
pub const DOCUMENT_MAX: u64 = 4 << 20;
/// Limit of layers: more than any tool writes (overlay mounts end at 500, Docker at 127).
const LAYERS_MAX: usize = 4096;
const ENTRIES_MAX: usize = 65536;

/// The target of a tag or a digest.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "one per image, taken apart at once")]
pub enum Document {
    /// Several images, one per platform.
    Index(Index),
    /// One image.
    Manifest(Manifest),
}

/// One image: a configuration and layers.
#[derive(Debug, Clone)]
pub struct Manifest {
    /// OCI's or Docker's manifest type.
    pub media_type: String,
    /// The image's configuration.
    pub config: Descriptor,
    /// The layers, lowest first.
    pub layers: Vec<Descriptor>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// The type, if it is an artifact.
    pub artifact_type: Option<String>,
    raw: Arc<[u8]>,
}

/// Several images, one per platform.
#[derive(Debug, Clone)]
pub struct Index {
    /// OCI's or Docker's index type.
    pub media_type: String,
    /// The entries, in the order they are listed.
    pub manifests: Vec<Descriptor>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    raw: Arc<[u8]>,
}

/// The fields by which a document is recognised.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shape {
    schema_version: Option<u64>,
    media_type: Option<String>,
    manifests: Option<serde::de::IgnoredAny>,
    config: Option<serde::de::IgnoredAny>,
    layers: Option<serde::de::IgnoredAny>,
    fs_layers: Option<serde::de::IgnoredAny>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManifestJson {
    schema_version: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    artifact_type: Option<String>,
    config: Descriptor,
    layers: Option<Vec<Descriptor>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct IndexJson {
    schema_version: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    manifests: Option<Vec<Descriptor>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotations: Option<BTreeMap<String, String>>,
}

impl Document {
    /// Parses a document; `media_type` comes from the registry or the descriptor (may be empty).
    pub fn parse(bytes: impl Into<Arc<[u8]>>, media_type: &str) -> Result<Self, Error> {
        let raw: Arc<[u8]> = bytes.into();
        check_size("manifest", raw.len())?;
        let outer = media::essence(media_type);
        if media::is_schema1(outer) {
            return Err(Error::Schema1);
        }
        let shape: Shape = json("manifest", &raw)?;
        match recognise(&shape, outer)? {
            Kind::Index(media_type) => Index::from_raw(raw, media_type).map(Document::Index),
            Kind::Manifest(media_type) => {
                Manifest::from_raw(raw, media_type).map(Document::Manifest)
            }
        }
    }

    /// The original bytes.
    pub fn raw(&self) -> &[u8] {
        match self {
            Document::Index(index) => &index.raw,
            Document::Manifest(manifest) => &manifest.raw,
        }
    }

    /// The document's media type.
    pub fn media_type(&self) -> &str {
        match self {
            Document::Index(index) => &index.media_type,
            Document::Manifest(manifest) => &manifest.media_type,
        }
    }

    /// The document's descriptor.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor::of(self.media_type(), self.raw())
    }
}

enum Kind {
    Index(String),
    Manifest(String),
}

fn recognise(shape: &Shape, outer: &str) -> Result<Kind, Error> {
    let inner = shape.media_type.as_deref().map(media::essence).unwrap_or_default();
    if shape.fs_layers.is_some() || shape.schema_version == Some(1) || media::is_schema1(inner) {
        return Err(Error::Schema1);
    }
    let malformed = |reason: &str| Error::Malformed { what: "manifest", reason: reason.into() };
    let is_index = shape.manifests.is_some();
    let is_manifest = shape.config.is_some() || shape.layers.is_some();
    if is_index && is_manifest {
        return Err(malformed("it has the fields of an index and of a manifest"));
    }
    let known = |t: &str| media::is_index(t) || media::is_manifest(t);
    if known(inner) && known(outer) && media::is_index(inner) != media::is_index(outer) {
        return Err(malformed("its own media type contradicts the one it was served with"));
    }
    let named = [inner, outer].into_iter().find(|t| known(t));
    match named {
        Some(t) if media::is_index(t) && !is_manifest => Ok(Kind::Index(t.to_owned())),
        Some(t) if media::is_manifest(t) && !is_index => Ok(Kind::Manifest(t.to_owned())),
        Some(_) => Err(malformed("its content does not fit its media type")),
        None if is_index => Ok(Kind::Index(media::OCI_INDEX.to_owned())),
        None if is_manifest => Ok(Kind::Manifest(media::OCI_MANIFEST.to_owned())),
        None => {
            let shown = if inner.is_empty() { outer } else { inner };
            Err(Error::MediaType { media_type: shown.to_owned() })
        }
    }
}

impl Manifest {
    fn from_raw(raw: Arc<[u8]>, media_type: String) -> Result<Self, Error> {
        let parsed: ManifestJson = json("manifest", &raw)?;
        let layers = parsed.layers.unwrap_or_default();
        if layers.len() > LAYERS_MAX {
            let reason = format!("it has {} layers; the limit is {LAYERS_MAX}", layers.len());
            return Err(Error::Malformed { what: "manifest", reason });
        }
        Ok(Manifest {
            media_type,
            config: parsed.config,
            layers,
            annotations: parsed.annotations.unwrap_or_default(),
            artifact_type: parsed.artifact_type,
            raw,
        })
    }

    /// Builds a manifest, OCI's or Docker's according to `media_type`.
    pub fn build(media_type: &str, config: Descriptor, layers: Vec<Descriptor>) -> Self {
        let document = ManifestJson {
            schema_version: 2,
            media_type: Some(media_type.to_owned()),
            artifact_type: None,
            config: config.clone(),
            layers: Some(layers.clone()),
            annotations: None,
        };
        Manifest {
            media_type: media_type.to_owned(),
            config,
            layers,
            annotations: BTreeMap::new(),
            artifact_type: None,
            raw: to_bytes(&document).into(),
        }
    }

    /// Parses a manifest and refuses an index.
    pub fn parse(bytes: impl Into<Arc<[u8]>>, media_type: &str) -> Result<Self, Error> {
        match Document::parse(bytes, media_type)? {
            Document::Manifest(manifest) => Ok(manifest),
            Document::Index(index) => Err(Error::MediaType { media_type: index.media_type }),
        }
    }

    /// The original bytes.
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// The manifest's descriptor.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor::of(&self.media_type, &self.raw)
    }

    /// The same image as an OCI manifest, which has another digest if this one is Docker's. skopeo
    /// and umoci find only OCI manifests in a layout.
    #[must_use]
    pub fn to_oci(&self) -> Self {
        if self.media_type == media::OCI_MANIFEST {
            return self.clone();
        }
        let translated = |blob: &Descriptor| {
            let media_type = media::to_oci(&blob.media_type);
            Descriptor { media_type: media_type.to_owned(), ..blob.clone() }
        };
        let layers = self.layers.iter().map(translated).collect();
        Self::build(media::OCI_MANIFEST, translated(&self.config), layers)
    }

    /// The sum of the layers' stored sizes.
    pub fn layers_size(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.size))
    }

    /// Refuses manifests that describe something other than a container image.
    pub fn check_is_image(&self) -> Result<(), Error> {
        if media::is_config(&self.config.media_type) {
            return Ok(());
        }
        let kind = self.artifact_type.clone().unwrap_or_else(|| self.config.media_type.clone());
        Err(Error::Artifact { kind })
    }
}

impl Index {
    fn from_raw(raw: Arc<[u8]>, media_type: String) -> Result<Self, Error> {
        let parsed: IndexJson = json("index", &raw)?;
        let manifests = parsed.manifests.unwrap_or_default();
        if manifests.len() > ENTRIES_MAX {
            let reason = format!("it has {} entries; the limit is {ENTRIES_MAX}", manifests.len());
            return Err(Error::Malformed { what: "index", reason });
        }
        let annotations = parsed.annotations.unwrap_or_default();
        Ok(Index { media_type, manifests, annotations, raw })
    }

    /// Builds an OCI index of these entries.
    pub fn build(manifests: Vec<Descriptor>) -> Self {
        let document = IndexJson {
            schema_version: 2,
            media_type: Some(media::OCI_INDEX.to_owned()),
            manifests: Some(manifests.clone()),
            annotations: None,
        };
        Index {
            media_type: media::OCI_INDEX.to_owned(),
            manifests,
            annotations: BTreeMap::new(),
            raw: to_bytes(&document).into(),
        }
    }

    /// Parses an index and refuses a manifest.
    pub fn parse(bytes: impl Into<Arc<[u8]>>, media_type: &str) -> Result<Self, Error> {
        match Document::parse(bytes, media_type)? {
            Document::Index(index) => Ok(index),
            Document::Manifest(manifest) => {
                Err(Error::MediaType { media_type: manifest.media_type })
            }
        }
    }

    /// The original bytes.
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// The index's descriptor.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor::of(&self.media_type, &self.raw)
    }

    /// The entry that fits `wanted` best; the first listed among equals. Entries without a platform
    /// are taken only when no other fits.
    pub fn choose(&self, wanted: &Platform) -> Result<&Descriptor, Error> {
        const UNNAMED: u32 = 10_000;
        self.manifests
            .iter()
            .filter(|entry| entry.artifact_type.is_none())
            .filter(|entry| {
                entry.media_type.is_empty()
                    || media::is_manifest(&entry.media_type)
                    || media::is_index(&entry.media_type)
            })
            .filter_map(|entry| match &entry.platform {
                Some(platform) => wanted.score(platform).map(|score| (score, entry)),
                None => Some((UNNAMED, entry)),
            })
            .min_by_key(|(score, _)| *score)
            .map(|(_, entry)| entry)
            .ok_or_else(|| Error::NoPlatform {
                wanted: wanted.to_string(),
                available: self.platforms().iter().map(ToString::to_string).collect(),
            })
    }

    /// The platforms in the index, without attestations (`unknown/unknown`).
    pub fn platforms(&self) -> Vec<Platform> {
        let mut seen: Vec<Platform> = Vec::new();
        for platform in self.manifests.iter().filter_map(|entry| entry.platform.as_ref()) {
            let plain = platform.normalised();
            if plain.os != "unknown" && !seen.contains(&plain) {
                seen.push(plain);
            }
        }
        seen
    }
}

fn check_size(what: &'static str, size: usize) -> Result<(), Error> {
    let size = size as u64;
    if size > DOCUMENT_MAX {
        return Err(Error::TooLarge { what, size, limit: DOCUMENT_MAX });
    }
    Ok(())
}

fn json<'a, T: Deserialize<'a>>(what: &'static str, bytes: &'a [u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|e| Error::Malformed { what, reason: e.to_string() })
}

fn to_bytes(document: &impl Serialize) -> Vec<u8> {
    // Maps with text keys, numbers and text: nothing in these types can fail to serialise.
    serde_json::to_vec(document).unwrap_or_default()
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
