//! Lists images as udocker does: those of the store, and those in udocker's own directory.

use std::path::PathBuf;

use super::legacy;
use crate::container::protection;
use crate::error::Result;
use crate::session::Session;

/// What is wanted of each image beyond its name.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    /// Its layers.
    pub layers: bool,
    /// Its platform.
    pub platform: bool,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// `NAME:TAG`.
    pub name: String,
    /// It is protected.
    pub protected: bool,
    /// For which platform; empty unless wanted, or if it does not say.
    pub platform: String,
    /// The directory that has its layers.
    pub directory: PathBuf,
    /// Its layers, the lowest first: name and bytes. Empty unless wanted.
    pub layers: Vec<(String, u64)>,
}

/// All images with names, sorted by name. An image of the store hides one of udocker's that has the
/// same name.
pub fn images(session: &Session, wanted: Wanted) -> Result<Vec<Listed>> {
    let store = session.store()?;
    let mut listed = Vec::new();
    for image in store.images().list()? {
        let Some(reference) = image.reference() else { continue };
        let mut entry = Listed {
            name: reference.familiar(),
            protected: protection::holds_image(&image),
            platform: String::new(),
            directory: store.path().join("oci"),
            layers: Vec::new(),
        };
        if wanted.platform {
            entry.platform = image.config()?.platform().to_string();
        }
        if wanted.layers {
            let layers = image.manifest()?.layers.iter();
            entry.layers = layers.map(|layer| (layer.digest.to_string(), layer.size)).collect();
        }
        listed.push(entry);
    }
    for image in legacy::images(session) {
        if listed.iter().any(|known| known.name == image.name) {
            continue;
        }
        let size_of = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, path.metadata().map_or(0, |meta| meta.len()))
        };
        let files = if wanted.layers { image.layers().unwrap_or_default() } else { Vec::new() };
        listed.push(Listed {
            protected: image.is_protected(),
            platform: if wanted.platform { image.platform() } else { String::new() },
            layers: files.iter().map(size_of).collect(),
            name: image.name,
            directory: image.directory,
        });
    }
    listed.sort();
    Ok(listed)
}
