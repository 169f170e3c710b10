//! Writes archives that other tools read.
//!
//! **docker-archive**, as `docker save` before version 25 wrote it, which Docker, podman, skopeo
//! and udocker all read: a directory per layer with `VERSION`, `json` and an uncompressed
//! `layer.tar`, the configurations, `manifest.json`, `repositories`. A layer that several images
//! share is there once; at another place in the stack it is a symbolic link. A tar header needs the
//! length before the data, so a compressed layer of unknown length is decompressed twice.
//!
//! **oci-archive**: the OCI layout as a tar stream, blobs unchanged. A manifest in Docker's format
//! is converted to OCI's, because skopeo and umoci find no other in a layout. Its entries,
//! directories among them, belong to the caller: skopeo 1.9 unpacks the archive with `chown`, and
//! directories that it has to make itself are root's, which fails for an unprivileged user.
//!
//! Names, modes and times are fixed, so the same images give one user the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;

use oci::chain_ids;
use oci::descriptor::{ANNOTATION_CONTAINERD_NAME, ANNOTATION_REF_NAME};
use oci::{Compression, Descriptor, Digest, Digester, ImageConfig, Index, Manifest, Reference};
use serde_json::{Value, json};

use super::contents::decoder;
use crate::{BlobSource, Error, limits};

const BUFFER: usize = 256 << 10;

/// An image to write.
#[derive(Debug, Clone)]
pub struct Export {
    /// Its names in the archive; may be empty.
    pub references: Vec<Reference>,
    /// The image.
    pub manifest: Manifest,
}

/// Writes an oci-archive.
pub fn write_oci(
    images: &[Export],
    source: &dyn BlobSource,
    writer: &mut dyn Write,
) -> Result<(), Error> {
    let mut tar = Tar::new(writer);
    // The owner of this entry is the effective user; without /proc it stays root.
    if let Ok(this) = std::fs::metadata("/proc/self") {
        tar.owner = (this.uid(), this.gid());
    }
    let algorithms: BTreeSet<&str> = images
        .iter()
        .flat_map(|image| blobs(&image.manifest))
        .map(|blob| blob.digest.algorithm().as_str())
        .chain(["sha256"])
        .collect();
    tar.directory("blobs/")?;
    for algorithm in algorithms {
        tar.directory(&format!("blobs/{algorithm}/"))?;
    }
    let mut written = BTreeSet::new();
    for image in images {
        let manifest = image.manifest.to_oci();
        let digest = manifest.descriptor().digest;
        if written.insert(digest.clone()) {
            tar.file(&blob_path(&digest), manifest.raw())?;
        }
        for blob in blobs(&manifest) {
            if written.insert(blob.digest.clone()) {
                let (size, mut reader) = open(source, &blob.digest)?;
                tar.stream(&blob_path(&blob.digest), size, &mut reader)?;
            }
        }
    }
    tar.file("index.json", layout_index(images).raw())?;
    tar.file("oci-layout", LAYOUT_VERSION.as_bytes())?;
    tar.finish()
}

/// The content of `oci-layout`.
pub(crate) const LAYOUT_VERSION: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;

/// Builds `index.json` for images and their names.
pub(crate) fn layout_index(images: &[Export]) -> Index {
    let mut entries: Vec<Descriptor> = Vec::new();
    for image in images {
        let plain = image.manifest.to_oci().descriptor();
        if image.references.is_empty() {
            entries.push(plain.clone());
        }
        for reference in &image.references {
            let mut entry = plain.clone();
            for key in [ANNOTATION_REF_NAME, ANNOTATION_CONTAINERD_NAME] {
                entry.annotations.insert(key.to_owned(), reference.to_string());
            }
            entries.push(entry);
        }
    }
    Index::build(entries)
}

/// The blobs that a manifest refers to.
fn blobs(manifest: &Manifest) -> impl Iterator<Item = &Descriptor> {
    manifest.layers.iter().chain([&manifest.config])
}

/// Path of a blob in a layout.
fn blob_path(digest: &Digest) -> String {
    format!("blobs/{}/{}", digest.algorithm().as_str(), digest.hex())
}

fn open(source: &dyn BlobSource, digest: &Digest) -> Result<(u64, Box<dyn Read + Send>), Error> {
    let fail = |source| Error::Blob { action: "read", what: digest.to_string(), source };
    Ok((source.size(digest).map_err(fail)?, source.open(digest).map_err(fail)?))
}

/// Writes a docker-archive.
pub fn write_docker(
    images: &[Export],
    source: &dyn BlobSource,
    writer: &mut dyn Write,
) -> Result<(), Error> {
    let mut archive = DockerArchive {
        tar: Tar::new(writer),
        source,
        layers: BTreeMap::new(),
        directories: BTreeSet::new(),
        configs: BTreeSet::new(),
        manifest: Vec::new(),
        repositories: BTreeMap::new(),
    };
    for image in images {
        archive.image(image)?;
    }
    let DockerArchive { mut tar, manifest, repositories, .. } = archive;
    tar.file("manifest.json", Value::Array(manifest).to_string().as_bytes())?;
    if !repositories.is_empty() {
        tar.file("repositories", json!(repositories).to_string().as_bytes())?;
    }
    tar.finish()
}

struct DockerArchive<'a> {
    tar: Tar<'a>,
    source: &'a dyn BlobSource,
    /// Path of each layer's data, by diff ID.
    layers: BTreeMap<Digest, String>,
    directories: BTreeSet<String>,
    configs: BTreeSet<Digest>,
    manifest: Vec<Value>,
    repositories: BTreeMap<String, BTreeMap<String, String>>,
}

impl DockerArchive<'_> {
    fn image(&mut self, image: &Export) -> Result<(), Error> {
        let manifest = &image.manifest;
        let digest = &manifest.config.digest;
        let config = self.config(digest)?;
        if config.diff_ids().len() != manifest.layers.len() {
            return Err(super::invalid(format!(
                "the manifest has {} layers and the configuration {}",
                manifest.layers.len(),
                config.diff_ids().len()
            )));
        }
        let ids = layer_ids(&config, digest);
        let mut paths = Vec::new();
        for (at, layer) in manifest.layers.iter().enumerate() {
            let parent = at.checked_sub(1).map(|below| ids[below].as_str());
            let top = (at + 1 == ids.len()).then_some(&config);
            let diff_id = &config.diff_ids()[at];
            self.directory(&ids[at], parent, top, layer, diff_id)?;
            paths.push(self.layers[diff_id].clone());
        }
        let config_path = format!("{}.json", digest.hex());
        if self.configs.insert(digest.clone()) {
            self.tar.file(&config_path, config.raw())?;
        }
        let tags: Vec<String> = image.references.iter().map(Reference::familiar).collect();
        self.manifest.push(json!({ "Config": config_path, "RepoTags": tags, "Layers": paths }));
        for reference in &image.references {
            if let (Some(tag), Some(top)) = (reference.tag(), ids.last()) {
                let tags = self.repositories.entry(reference.familiar_name()).or_default();
                tags.insert(tag.to_owned(), top.clone());
            }
        }
        Ok(())
    }

    fn config(&self, digest: &Digest) -> Result<ImageConfig, Error> {
        let (_, reader) = open(self.source, digest)?;
        let what = || format!("the configuration {digest}");
        let bytes = crate::client::response_text::read_limited(reader, limits::CONFIG, what)?;
        if !digest.matches(&bytes) {
            let found = Digest::of(&bytes);
            return Err(Error::WrongDigest { what: what(), expected: digest.clone(), found });
        }
        ImageConfig::parse(bytes).map_err(|source| Error::Document { what: what(), source })
    }

    /// Writes one layer's directory, unless it is there.
    fn directory(
        &mut self,
        id: &str,
        parent: Option<&str>,
        top: Option<&ImageConfig>,
        layer: &Descriptor,
        diff_id: &Digest,
    ) -> Result<(), Error> {
        if !self.directories.insert(id.to_owned()) {
            return Ok(());
        }
        self.tar.directory(&format!("{id}/"))?;
        self.tar.file(&format!("{id}/VERSION"), b"1.0")?;
        self.tar.file(&format!("{id}/json"), legacy_json(id, parent, top).as_bytes())?;
        let path = format!("{id}/layer.tar");
        if let Some(known) = self.layers.get(diff_id) {
            return self.tar.symlink(&path, &format!("../{known}"));
        }
        self.layer(&path, layer, diff_id)?;
        self.layers.insert(diff_id.clone(), path);
        Ok(())
    }

    fn layer(&mut self, path: &str, layer: &Descriptor, diff_id: &Digest) -> Result<(), Error> {
        let fail = |source| Error::Blob { action: "read", what: layer.digest.to_string(), source };
        let size = match self.source.uncompressed_size(layer) {
            Some(size) => size,
            None => io::copy(&mut self.plain(layer)?, &mut io::sink()).map_err(fail)?,
        };
        let mut reader = Hashing { inner: self.plain(layer)?, digester: diff_id.digester() };
        self.tar.stream(path, size, &mut reader)?;
        let more = reader.read(&mut [0; 1]).map_err(fail)?;
        let found = reader.digester.finish();
        if more > 0 || found != *diff_id {
            let what = format!("the layer {}", layer.digest);
            return Err(Error::WrongDigest { what, expected: diff_id.clone(), found });
        }
        Ok(())
    }

    fn plain(&self, layer: &Descriptor) -> Result<Box<dyn Read>, Error> {
        let (_, mut reader) = open(self.source, &layer.digest)?;
        let fail = |source| Error::Blob { action: "read", what: layer.digest.to_string(), source };
        let mut head = Vec::new();
        reader.by_ref().take(Compression::MAGIC_LEN as u64).read_to_end(&mut head).map_err(fail)?;
        let compression = Compression::from_magic(&head);
        let whole = BufReader::with_capacity(BUFFER, io::Cursor::new(head).chain(reader));
        decoder(compression, whole)
    }
}

/// The ids of the layers' directories. Docker took its own from its graph. Here they are the chain
/// IDs; the top layer's id also depends on the configuration, as Docker's did.
fn layer_ids(config: &ImageConfig, digest: &Digest) -> Vec<String> {
    let chain = chain_ids(config.diff_ids());
    let last = chain.len().saturating_sub(1);
    let id = |(at, link): (usize, &Digest)| {
        if at == last { Digest::of(format!("{link} {digest}").as_bytes()) } else { link.clone() }
    };
    chain.iter().enumerate().map(id).map(|id| id.hex()[..64].to_owned()).collect()
}

/// A layer's `json` in the version 1 format: the top one has the image's configuration.
fn legacy_json(id: &str, parent: Option<&str>, top: Option<&ImageConfig>) -> String {
    let mut value = json!({ "id": id, "created": "1970-01-01T00:00:00Z", "os": "linux" });
    if let Some(parent) = parent {
        value["parent"] = parent.into();
    }
    if let Some(config) = top {
        let whole: Value = serde_json::from_slice(config.raw()).unwrap_or_default();
        for key in
            ["created", "architecture", "os", "variant", "author", "config", "docker_version"]
        {
            if let Some(field) = whole.get(key) {
                value[key] = field.clone();
            }
        }
    }
    value.to_string()
}

/// A reader that hashes its data.
struct Hashing<R> {
    inner: R,
    digester: Digester,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.digester.update(&buffer[..n]);
        Ok(n)
    }
}

/// A tar stream with fixed owners, modes and times.
struct Tar<'a> {
    owner: (u32, u32),
    builder: tar::Builder<io::BufWriter<&'a mut dyn Write>>,
}

impl<'a> Tar<'a> {
    fn new(writer: &'a mut dyn Write) -> Self {
        let builder = tar::Builder::new(io::BufWriter::with_capacity(BUFFER, writer));
        Tar { owner: (0, 0), builder }
    }

    fn file(&mut self, path: &str, bytes: &[u8]) -> Result<(), Error> {
        self.stream(path, bytes.len() as u64, &mut &*bytes)
    }

    /// Writes exactly `size` bytes of `reader`; fewer are an error.
    fn stream(&mut self, path: &str, size: u64, reader: &mut dyn Read) -> Result<(), Error> {
        let mut header = self.header(tar::EntryType::Regular, 0o644);
        header.set_size(size);
        let mut counted = Counted { inner: reader.take(size), count: 0 };
        self.builder.append_data(&mut header, path, &mut counted).map_err(writing)?;
        let found = counted.count;
        if found == size {
            return Ok(());
        }
        Err(Error::WrongSize { what: path.to_owned(), expected: size, found })
    }

    fn directory(&mut self, path: &str) -> Result<(), Error> {
        let mut header = self.header(tar::EntryType::Directory, 0o755);
        self.builder.append_data(&mut header, path, io::empty()).map_err(writing)
    }

    fn symlink(&mut self, path: &str, target: &str) -> Result<(), Error> {
        let mut header = self.header(tar::EntryType::Symlink, 0o777);
        self.builder.append_link(&mut header, path, target).map_err(writing)
    }

    fn header(&self, kind: tar::EntryType, mode: u32) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(self.owner.0.into());
        header.set_gid(self.owner.1.into());
        header.set_mtime(0);
        header.set_size(0);
        header
    }

    fn finish(mut self) -> Result<(), Error> {
        self.builder.finish().map_err(writing)?;
        let mut buffer = self.builder.into_inner().map_err(writing)?;
        buffer.flush().map_err(writing)
    }
}

fn writing(source: io::Error) -> Error {
    Error::ArchiveIo { action: "write", source }
}

struct Counted<R> {
    inner: R,
    count: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.count += n as u64;
        Ok(n)
    }
}
