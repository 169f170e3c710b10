//! OCI image layouts in directories (image-layout.md), which `skopeo copy oci:DIR`, `umoci` and
//! `podman save --format oci-dir` use.
//!
//! [`read`] copies the images of a layout, or the one of a plain directory (`skopeo copy dir:DIR`),
//! into a [`BlobSink`]; [`write()`] makes a layout from a
//! [`BlobSource`] and converts manifests in Docker's format to OCI's. A layout is not a store:
//! nothing here takes locks, and writing adds to the existing content.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use oci::{Descriptor, Digest, Document, ImageConfig, Index, Platform, media};

use crate::archive::{self, Documents, Export, Image, invalid};
use crate::{BlobSink, BlobSource, Error, limits};

/// An OCI layout in a directory, as a source of blobs.
#[derive(Debug, Clone)]
pub struct LayoutDir {
    path: PathBuf,
    /// The blobs lie beside the manifest, named by their digits (`skopeo copy dir:DIR`).
    plain: bool,
}

impl LayoutDir {
    /// Opens the layout at `path`, which must have an `oci-layout` file of a known version.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let layout = LayoutDir { path: path.to_owned(), plain: false };
        let bytes = layout.small("oci-layout", limits::CONFIG)?;
        let version: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let version = version.get("imageLayoutVersion").and_then(|v| v.as_str()).unwrap_or("none");
        if version.starts_with("1.") {
            return Ok(layout);
        }
        Err(invalid(format!("the version of the layout is {version:?}; only 1.x is supported")))
    }

    /// The layout's `index.json`.
    pub fn index(&self) -> Result<Index, Error> {
        let bytes = self.small("index.json", limits::MANIFEST)?;
        let what = self.path.join("index.json").display().to_string();
        Index::parse(bytes, media::OCI_INDEX).map_err(|source| Error::Document { what, source })
    }

    fn blob(&self, digest: &Digest) -> PathBuf {
        if self.plain {
            return self.path.join(digest.hex());
        }
        self.path.join("blobs").join(digest.algorithm().as_str()).join(digest.hex())
    }

    fn small(&self, name: &str, limit: u64) -> Result<Vec<u8>, Error> {
        let path = self.path.join(name);
        let what = || path.display().to_string();
        let file = File::open(&path).map_err(|source| Error::File {
            action: "read",
            path: path.clone(),
            source,
        })?;
        crate::client::response_text::read_limited(file, limit, what)
    }
}

impl BlobSource for LayoutDir {
    fn size(&self, digest: &Digest) -> io::Result<u64> {
        Ok(fs::metadata(self.blob(digest))?.len())
    }

    fn open(&self, digest: &Digest) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(self.blob(digest))?))
    }
}

impl Documents for LayoutDir {
    fn document(&mut self, digest: &Digest) -> Result<Option<Vec<u8>>, Error> {
        let path = self.blob(digest);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|source| Error::File {
                action: "read",
                path: path.clone(),
                source,
            })?,
        };
        let what = || path.display().to_string();
        let bytes = crate::client::response_text::read_limited(file, limits::CONFIG, what)?;
        if digest.matches(&bytes) {
            return Ok(Some(bytes));
        }
        let found = Digest::of(&bytes);
        Err(Error::WrongDigest { what: what(), expected: digest.clone(), found })
    }

    fn has(&self, digest: &Digest) -> bool {
        self.blob(digest).is_file()
    }
}

/// Copies a layout's images (all, or the one with this name) into a sink. If a name covers several
/// platforms, the image for `platform` (`None`: the host's) is taken.
pub fn read(
    path: &Path,
    name: Option<&str>,
    sink: &mut dyn BlobSink,
    platform: Option<&Platform>,
) -> Result<Vec<Image>, Error> {
    if name.is_none() && is_plain(path) {
        return Ok(vec![read_plain(path, sink)?]);
    }
    let mut layout = LayoutDir::open(path)?;
    let mut index = layout.index()?;
    if let Some(name) = name {
        let named = |entry: &Descriptor| entry.annotations.values().any(|value| value == name);
        let entries: Vec<Descriptor> =
            index.manifests.iter().filter(|entry| named(entry)).cloned().collect();
        if entries.is_empty() {
            return Err(invalid(format!("it has no image named {name}")));
        }
        index = Index::build(entries);
    }
    let wanted = platform.map_or_else(Platform::host, Platform::normalised);
    let images = archive::images(&index, &mut layout, &wanted)?;
    for image in &images {
        for blob in image.manifest.layers.iter().chain([&image.manifest.config, &image.descriptor])
        {
            copy(&layout, &blob.digest, sink)?;
        }
        if let Some(index) = &image.index {
            copy(&layout, &index.descriptor().digest, sink)?;
        }
    }
    Ok(images)
}

/// Whether it is a directory of one image as `skopeo copy dir:DIR` writes it.
fn is_plain(path: &Path) -> bool {
    !path.join("oci-layout").exists()
        && path.join("version").is_file()
        && path.join("manifest.json").is_file()
}

/// Copies the image of such a directory into a sink. It has no name there.
fn read_plain(path: &Path, sink: &mut dyn BlobSink) -> Result<Image, Error> {
    let mut layout = LayoutDir { path: path.to_owned(), plain: true };
    let what = || path.join("manifest.json").display().to_string();
    let document = |source| Error::Document { what: what(), source };
    let bytes = layout.small("manifest.json", limits::MANIFEST)?;
    let manifest = match Document::parse(bytes, "").map_err(document)? {
        Document::Manifest(manifest) => manifest,
        Document::Index(_) => return Err(invalid("it holds several platforms; copy one of them")),
    };
    manifest.check_is_image().map_err(document)?;
    for blob in manifest.layers.iter().chain([&manifest.config]) {
        copy(&layout, &blob.digest, sink)?;
    }
    let config = layout.document(&manifest.config.digest)?.unwrap_or_default();
    let config = ImageConfig::parse(config).map_err(document)?;
    let descriptor = manifest.descriptor();
    let fail = |source| Error::Blob { action: "store", what: what(), source };
    sink.put(Some(&descriptor.digest), &mut manifest.raw()).map_err(fail)?;
    Ok(Image {
        names: Vec::new(),
        references: Vec::new(),
        manifest,
        descriptor,
        index: None,
        config,
    })
}

fn copy(layout: &LayoutDir, digest: &Digest, sink: &mut dyn BlobSink) -> Result<(), Error> {
    if sink.has(digest) {
        return Ok(());
    }
    let fail = |action| move |source| Error::Blob { action, what: digest.to_string(), source };
    let mut reader = BlobSource::open(layout, digest).map_err(fail("read"))?;
    let (found, _) = sink.put(Some(digest), &mut reader).map_err(fail("store"))?;
    if found == *digest {
        return Ok(());
    }
    Err(Error::WrongDigest { what: digest.to_string(), expected: digest.clone(), found })
}

/// Writes images into a layout at `path`, which is made if it is missing; its content stays, except
/// entries of the same names.
pub fn write(path: &Path, images: &[Export], source: &dyn BlobSource) -> Result<(), Error> {
    let layout = LayoutDir { path: path.to_owned(), plain: false };
    let mut entries = Vec::new();
    if path.join("oci-layout").exists() {
        entries = LayoutDir::open(path)?.index()?.manifests;
    }
    let mut done = HashSet::new();
    for image in images {
        let manifest = image.manifest.to_oci();
        put(&layout, &manifest.descriptor().digest, &mut manifest.raw())?;
        for blob in image.manifest.layers.iter().chain([&image.manifest.config]) {
            if done.insert(&blob.digest) && !layout.has(&blob.digest) {
                let fail =
                    |source| Error::Blob { action: "read", what: blob.digest.to_string(), source };
                let mut reader = source.open(&blob.digest).map_err(fail)?;
                put(&layout, &blob.digest, &mut reader)?;
            }
        }
    }
    let new = archive::layout_index(images).manifests;
    entries.retain(|old| {
        let same_name = |entry: &Descriptor| entry.ref_name() == old.ref_name();
        let unnamed_other = |entry: &Descriptor| {
            old.ref_name().is_none() && entry.ref_name().is_none() && entry.digest != old.digest
        };
        !new.iter().any(|entry| same_name(entry) && !unnamed_other(entry))
    });
    entries.extend(new);
    replace(&path.join("index.json"), Index::build(entries).raw())?;
    replace(&path.join("oci-layout"), archive::LAYOUT_VERSION.as_bytes())
}

/// Writes a blob to a temporary file, checks it and renames it into place.
fn put(layout: &LayoutDir, digest: &Digest, reader: &mut dyn Read) -> Result<(), Error> {
    let path = layout.blob(digest);
    let fail = |action, path: &Path| {
        let path = path.to_owned();
        move |source| Error::File { action, path, source }
    };
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(fail("create", directory))?;
    }
    let temporary = beside(&path);
    let file = File::create(&temporary).map_err(fail("create", &temporary))?;
    let mut writer = Both { file, digester: digest.digester() };
    let copied = io::copy(reader, &mut writer).map_err(fail("write", &temporary));
    let found = writer.digester.finish();
    let result = copied.and_then(|_| {
        if found != *digest {
            let what = digest.to_string();
            return Err(Error::WrongDigest { what, expected: digest.clone(), found });
        }
        fs::rename(&temporary, &path).map_err(fail("write", &path))
    });
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

struct Both {
    file: File,
    digester: oci::Digester,
}

impl Write for Both {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write(bytes)?;
        self.digester.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let fail = |source| Error::File { action: "write", path: path.to_owned(), source };
    let temporary = beside(path);
    fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, path)).map_err(fail)
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}
