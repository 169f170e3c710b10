//! One unpacked layer on disk: `tree/`, `owners`, `layer.json`.
//!
//! `tree/` is in overlay's own form (whiteouts as character devices 0:0, opaque directories by
//! attribute), so that it can be a lower directory without changes. Everything in it belongs to the
//! caller on disk; [`crate::owners`] has the true owners.

use crate::error::Error;
use crate::owners::Owners;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Name of the tree in a layer's directory.
pub const TREE: &str = "tree";
/// Name of the ownership table.
pub const OWNERS: &str = "owners";
/// Name of the description.
pub const META: &str = "layer.json";

/// Content of `layer.json`: facts that are needed before the layer's tree is used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LayerMeta {
    /// Digest of the uncompressed archive.
    pub diff_id: String,
    /// Entries in the archive.
    pub entries: u64,
    /// Sum of the file sizes, in bytes.
    pub bytes: u64,
    /// Records in the ownership table.
    pub records: u64,
    /// Some whiteouts or opaque marks are only in the table, so the tree cannot be an overlay layer
    /// by itself.
    pub marks_in_table: bool,
    /// The layer hides everything beneath it.
    pub root_opaque: bool,
    /// The archive has an entry for the root directory itself.
    pub has_root: bool,
    /// Directories without an entry of their own, as text (see [`encode_path`]).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub implicit: Vec<String>,
    /// Hard links whose target is in no earlier entry: (link, target).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<(String, String)>,
}

impl LayerMeta {
    /// Implicit directories as raw paths.
    #[must_use]
    pub fn implicit_paths(&self) -> Vec<Vec<u8>> {
        self.implicit.iter().map(|text| decode_path(text)).collect()
    }

    /// Deferred hard links as raw paths.
    #[must_use]
    pub fn link_paths(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.links.iter().map(|(link, target)| (decode_path(link), decode_path(target))).collect()
    }
}

/// Encodes a path as JSON text: bytes that are not UTF-8, and `%`, become `%xx`.
#[must_use]
pub fn encode_path(path: &[u8]) -> String {
    let mut text = String::new();
    for chunk in path.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '%' {
                text.push_str("%25");
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            text.push('%');
            text.push_str(&hex(*byte));
        }
    }
    text
}

fn hex(byte: u8) -> String {
    format!("{byte:02x}")
}

/// Decodes the text of [`encode_path`]. A lone `%` stands for itself.
#[must_use]
pub fn decode_path(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut path = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        match hex.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                path.push(byte);
                at += 3;
            }
            _ => {
                path.push(bytes[at]);
                at += 1;
            }
        }
    }
    path
}

/// The store wraps its callers' metadata in an object.
#[derive(Deserialize)]
#[serde(untagged)]
enum Described {
    ByStore { meta: LayerMeta },
    Plain(LayerMeta),
}

/// A layer, or a flattened tree in the same form, on disk.
#[derive(Debug, Clone)]
pub struct Layer {
    /// The directory that holds `tree/`, `owners` and the description.
    pub directory: PathBuf,
    /// The description.
    pub meta: LayerMeta,
}

impl Layer {
    /// Makes a layer from a description that the caller has read already (the store returns it).
    #[must_use]
    pub fn new(directory: PathBuf, meta: LayerMeta) -> Self {
        Self { directory, meta }
    }

    /// Reads `layer.json`.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        Self::open_as(directory, META)
    }

    /// Reads the description from another file, such as `tree.json`.
    pub fn open_as(directory: &Path, name: &str) -> Result<Self, Error> {
        let path = directory.join(name);
        let bad = |problem: String| Error::Table { path: path.clone(), line: 0, problem };
        let text = std::fs::read(&path).map_err(|error| bad(error.to_string()))?;
        let described: Described =
            serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
        let meta = match described {
            Described::ByStore { meta } | Described::Plain(meta) => meta,
        };
        Ok(Self { directory: directory.to_path_buf(), meta })
    }

    /// The tree's path.
    #[must_use]
    pub fn tree(&self) -> PathBuf {
        self.directory.join(TREE)
    }

    /// Reads the ownership table.
    pub fn owners(&self) -> Result<Owners, Error> {
        Owners::read(&self.directory.join(OWNERS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_json_are_lossless() {
        for path in [
            &b"plain"[..],
            b"with%percent",
            b"\xff\xfe",
            "\u{fc}%41".as_bytes(),
            b"%",
            b"%2",
            b"a%zz",
        ] {
            assert_eq!(decode_path(&encode_path(path)), path);
        }
    }
}
