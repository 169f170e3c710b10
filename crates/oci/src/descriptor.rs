//! A typed pointer to a blob: media type, digest, size, and any other fields.
//!
//! Not `oci_spec`'s type, because that one drops unknown fields, and a store's `index.json` must
//! keep other tools' fields unchanged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Compression, Digest, Platform, media};

/// The annotation that names a manifest in a layout: a tag, or a whole reference.
pub const ANNOTATION_REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The annotation in which containerd (and so Docker's archives) keep the whole reference.
pub const ANNOTATION_CONTAINERD_NAME: &str = "io.containerd.image.name";

/// A typed pointer to a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Media type of the blob.
    #[serde(default)]
    pub media_type: String,
    /// Digest of its content.
    pub digest: Digest,
    /// Its length in bytes.
    pub size: u64,
    /// Other locations of the blob (foreign layers).
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_empty")]
    pub urls: Vec<String>,
    /// Annotations.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "null_is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
    /// The image's platform, in an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// The type of an artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// Every other field, unchanged.
    #[serde(flatten)]
    pub other: serde_json::Map<String, serde_json::Value>,
}

impl Descriptor {
    /// A pointer to a blob of known digest and size.
    pub fn new(media_type: impl Into<String>, digest: Digest, size: u64) -> Self {
        Descriptor {
            media_type: media_type.into(),
            digest,
            size,
            urls: Vec::new(),
            annotations: BTreeMap::new(),
            platform: None,
            artifact_type: None,
            other: serde_json::Map::new(),
        }
    }

    /// A pointer to these bytes.
    pub fn of(media_type: impl Into<String>, bytes: &[u8]) -> Self {
        Self::new(media_type, Digest::of(bytes), bytes.len() as u64)
    }

    /// The name of this entry in a layout's index: containerd's, else OCI's.
    pub fn ref_name(&self) -> Option<&str> {
        let get = |key| self.annotations.get(key).map(String::as_str);
        get(ANNOTATION_CONTAINERD_NAME).or_else(|| get(ANNOTATION_REF_NAME))
    }

    /// The compression according to the media type.
    pub fn compression(&self) -> Option<Compression> {
        Compression::from_media_type(&self.media_type)
    }

    /// True if the blob is encrypted (ocicrypt's media types).
    pub fn is_encrypted(&self) -> bool {
        media::essence(&self.media_type).ends_with("+encrypted")
    }

    /// True if the blob has to be fetched from [`Descriptor::urls`] and not from the registry.
    pub fn is_foreign(&self) -> bool {
        media::is_foreign_layer(&self.media_type) && !self.urls.is_empty()
    }
}

/// Go writes a nil slice or map as `null`.
fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_unknown_fields() {
        let json = r#"{"mediaType":"a/b","digest":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","size":0,"urls":null,"data":"eA==","x-new":{"a":[1]}}"#;
        let descriptor: Descriptor = serde_json::from_str(json).unwrap();
        assert!(descriptor.urls.is_empty());
        let back = serde_json::to_value(&descriptor).unwrap();
        assert_eq!(back["data"], "eA==");
        assert_eq!(back["x-new"]["a"][0], 1);
        assert!(back.get("annotations").is_none());
    }

    #[test]
    fn refuses_a_negative_size_and_a_bad_digest() {
        for bad in [r#"{"mediaType":"a","digest":"sha256:00","size":0}"#, r#"{"size":1}"#] {
            assert!(serde_json::from_str::<Descriptor>(bad).is_err());
        }
    }

    #[test]
    fn names() {
        let mut descriptor = Descriptor::of(media::OCI_MANIFEST, b"{}");
        assert_eq!(descriptor.ref_name(), None);
        descriptor.annotations.insert(ANNOTATION_REF_NAME.into(), "latest".into());
        assert_eq!(descriptor.ref_name(), Some("latest"));
        descriptor.annotations.insert(ANNOTATION_CONTAINERD_NAME.into(), "a/b:latest".into());
        assert_eq!(descriptor.ref_name(), Some("a/b:latest"));
    }
}
