//! Lists images and containers as udocker does: those of the store, and those in udocker's own
//! directory.

use std::path::PathBuf;

use super::legacy;
use crate::container::{list, record};
use crate::dialect::uuid;
use crate::error::Result;
use crate::protection;
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
pub struct ListedImage {
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
pub fn images(session: &Session, wanted: Wanted) -> Result<Vec<ListedImage>> {
    let store = session.store()?;
    let mut listed = Vec::new();
    for image in store.images().list()? {
        let Some(reference) = image.reference() else { continue };
        let mut entry = ListedImage {
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
        listed.push(ListedImage {
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

/// A container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedContainer {
    /// Its id, as a UUID.
    pub id: String,
    /// It is protected.
    pub protected: bool,
    /// `W` if its tree can be written, else `R`.
    pub access: char,
    /// Its execution mode; if none was set the dialect's usual one, else nothing.
    pub mode: String,
    /// Bytes of its own files; 0 unless wanted.
    pub bytes: u64,
    /// For which platform; empty if it does not say.
    pub platform: String,
    /// Its names.
    pub names: Vec<String>,
    /// Its image.
    pub image: String,
}

/// All containers, those of the store first; with `sizes` also how much each takes. A container of
/// udocker's that has a record in the store is listed once.
pub fn containers(session: &Session, sizes: bool) -> Result<Vec<ListedContainer>> {
    let store = session.store()?;
    let (mut listed, mut taken) = (Vec::new(), Vec::new());
    let old = legacy::containers(session);
    let usual = session.dialect().usual_mode.unwrap_or_default();
    for container in store.containers().list()? {
        let Ok(record) = record::read(&container) else { continue };
        // One of udocker's keeps the id that it had there.
        let label = record.config.labels.get(legacy::LABEL);
        let own = label.filter(|label| old.iter().any(|old| old.id == **label)).cloned();
        taken.extend(own.clone());
        listed.push(ListedContainer {
            id: own.unwrap_or_else(|| uuid(container.id())),
            protected: protection::holds(&record.config),
            access: if record.config.read_only { 'R' } else { 'W' },
            mode: record.config.exec_mode.clone().unwrap_or_else(|| usual.to_owned()),
            bytes: if sizes { store.container_size(container.id())? } else { 0 },
            platform: record.config.platform.clone(),
            names: container.names().unwrap_or_default(),
            image: list::image_name(&record),
        });
    }
    for found in old {
        if taken.contains(&found.id) {
            continue;
        }
        listed.push(ListedContainer {
            protected: found.directory.join("PROTECT").exists(),
            access: found.access(),
            mode: Some(found.mode())
                .filter(|mode| !mode.is_empty())
                .unwrap_or_else(|| usual.into()),
            bytes: 0,
            platform: String::new(),
            names: found.names.clone(),
            image: found.image(),
            id: found.id,
        });
    }
    Ok(listed)
}
