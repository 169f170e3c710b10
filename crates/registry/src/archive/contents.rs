//! Reads an archive in one pass: blobs go to the sink, documents to memory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufReader, Cursor, Read};

use oci::{Compression, Digest, Index, media};
use serde::Deserialize;

use super::framing::{Entries, Entry, normal, target};
use super::{Documents, Image, invalid, references};
use crate::{BlobSink, Error, limits};

const LINKS: usize = 8;
const BUFFER: usize = 256 << 10;

/// Contents of an archive.
#[derive(Default)]
pub(super) struct Contents {
    /// `manifest.json`, `index.json`, `oci-layout`, by path.
    named: HashMap<String, Vec<u8>>,
    /// Blobs in the sink, by path.
    stored: HashMap<String, Stored>,
    /// Small JSON documents among them, by digest.
    documents: HashMap<Digest, Vec<u8>>,
    links: HashMap<String, String>,
    digests: HashSet<Digest>,
    /// Bytes of documents, paths and links in memory.
    kept: u64,
}

/// A blob in the sink.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) digest: Digest,
    pub(super) size: u64,
    pub(super) compression: Compression,
}

/// An entry of Docker's `manifest.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DockerImage {
    pub(super) config: String,
    pub(super) repo_tags: Option<Vec<String>>,
    pub(super) layers: Option<Vec<String>>,
}

impl Contents {
    /// Reads the whole archive.
    pub(super) fn read(reader: &mut dyn Read, sink: &mut dyn BlobSink) -> Result<Self, Error> {
        let mut contents = Contents::default();
        let mut entries = Entries::new(decompressed(reader)?);
        while let Some(entry) = entries.next()? {
            if let Some(target) = target(&entry) {
                contents.keep(entry.path.len() + target.len())?;
                contents.links.insert(entry.path, target);
            } else if entry.kind == super::framing::Kind::File {
                contents.take(entry, &mut entries, sink)?;
            }
        }
        Ok(contents)
    }

    fn take<R: Read>(
        &mut self,
        entry: Entry,
        entries: &mut Entries<R>,
        sink: &mut dyn BlobSink,
    ) -> Result<(), Error> {
        match entry.path.as_str() {
            "manifest.json" | "index.json" | "oci-layout" => {
                let bytes = entries.data(limits::ARCHIVE_DOCUMENTS.min(limits::PAGE))?;
                self.keep(bytes.len())?;
                self.named.insert(entry.path, bytes);
                return Ok(());
            }
            "repositories" => return Ok(()),
            _ => {}
        }
        let expected = blob_digest(&entry.path);
        // Only blobs, files at the top, and Docker's layer.tar in a directory per layer are read;
        // other files belong to a root file system and are skipped.
        let depth = entry.path.matches('/').count();
        let layer = depth == 1 && entry.path.ends_with("/layer.tar");
        if expected.is_none() && depth != 0 && !layer {
            return Ok(());
        }
        let stored = self.store(&entry, expected.as_ref(), entries, sink)?;
        self.keep(entry.path.len())?;
        self.digests.insert(stored.digest.clone());
        self.stored.insert(entry.path, stored);
        Ok(())
    }

    fn store<R: Read>(
        &mut self,
        entry: &Entry,
        expected: Option<&Digest>,
        entries: &mut Entries<R>,
        sink: &mut dyn BlobSink,
    ) -> Result<Stored, Error> {
        let fail = |source| Error::Blob { action: "store", what: entry.path.clone(), source };
        let mut head = Vec::new();
        entries
            .by_ref()
            .take(Compression::MAGIC_LEN as u64)
            .read_to_end(&mut head)
            .map_err(|source| Error::ArchiveIo { action: "read", source })?;
        let compression = Compression::from_magic(&head);
        let put = |sink: &mut dyn BlobSink, bytes: &mut dyn Read| {
            let (digest, size) = sink.put(expected, bytes).map_err(fail)?;
            if expected.is_some_and(|expected| *expected != digest) || size != entry.size {
                return Err(invalid(format!(
                    "the content of {} does not match the digest in its name",
                    entry.path
                )));
            }
            Ok(Stored { digest, size, compression })
        };
        if head.first() == Some(&b'{') && entry.size <= limits::CONFIG {
            head.extend(entries.data(limits::CONFIG)?);
            self.keep(head.len())?;
            let stored = put(sink, &mut head.as_slice())?;
            self.documents.insert(stored.digest.clone(), head);
            return Ok(stored);
        }
        match expected {
            Some(digest) if sink.has(digest) => {
                Ok(Stored { digest: digest.clone(), size: entry.size, compression })
            }
            _ => put(sink, &mut Cursor::new(head).chain(entries)),
        }
    }

    fn keep(&mut self, length: usize) -> Result<(), Error> {
        self.kept += length as u64;
        if self.kept > limits::ARCHIVE_DOCUMENTS {
            let what = "the archive's metadata (documents, names)".to_owned();
            return Err(Error::TooLarge { what, limit: limits::ARCHIVE_DOCUMENTS });
        }
        Ok(())
    }

    /// True if the archive is an OCI layout.
    pub(super) fn is_layout(&self) -> bool {
        self.named.contains_key("index.json") && self.named.contains_key("oci-layout")
    }

    pub(super) fn take_index(&mut self) -> Result<Index, Error> {
        let bytes = self.named.remove("index.json").unwrap_or_default();
        let what = "index.json".to_owned();
        Index::parse(bytes, media::OCI_INDEX).map_err(|source| Error::Document { what, source })
    }

    /// The images of Docker's `manifest.json`.
    pub(super) fn docker_images(&self) -> Result<Vec<DockerImage>, Error> {
        let bytes = self
            .named
            .get("manifest.json")
            .ok_or_else(|| invalid("it has neither manifest.json nor index.json"))?;
        serde_json::from_slice(bytes).map_err(|e| invalid(format!("manifest.json: {e}")))
    }

    /// Returns a blob by its path, through links.
    pub(super) fn blob(&self, path: &str) -> Option<&Stored> {
        let mut path = normal(path);
        for _ in 0..LINKS {
            if let Some(stored) = self.stored.get(&path) {
                return Some(stored);
            }
            path.clone_from(self.links.get(&path)?);
        }
        None
    }

    /// Returns a small JSON document by its digest.
    pub(super) fn json(&self, digest: &Digest) -> Option<&[u8]> {
        self.documents.get(digest).map(Vec::as_slice)
    }

    /// Adds the names in `manifest.json` to the images of the layout beside it.
    pub(super) fn add_docker_tags(&self, images: &mut [Image]) {
        let Ok(docker) = self.docker_images() else { return };
        let mut tags: BTreeMap<Digest, Vec<String>> = BTreeMap::new();
        for image in docker {
            if let Some(stored) = self.blob(&image.config) {
                let names = image.repo_tags.unwrap_or_default();
                tags.entry(stored.digest.clone()).or_default().extend(names);
            }
        }
        for image in images {
            if let Some(more) = tags.get(&image.manifest.config.digest) {
                let known = image.references.clone();
                for reference in references(more) {
                    if !known.contains(&reference) {
                        image.names.push(reference.to_string());
                        image.references.push(reference);
                    }
                }
            }
        }
    }
}

impl Documents for Contents {
    fn document(&mut self, digest: &Digest) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.documents.get(digest).cloned())
    }

    fn has(&self, digest: &Digest) -> bool {
        self.digests.contains(digest)
    }
}

/// Parses `blobs/sha256/<hex>` as a digest.
fn blob_digest(path: &str) -> Option<Digest> {
    let (algorithm, hex) = path.strip_prefix("blobs/")?.split_once('/')?;
    format!("{algorithm}:{hex}").parse().ok()
}

/// Decompresses the archive; the format is recognised by its first bytes.
fn decompressed<'a>(reader: &'a mut dyn Read) -> Result<Box<dyn Read + 'a>, Error> {
    let fail = |source| Error::ArchiveIo { action: "read", source };
    let mut head = Vec::new();
    Read::take(&mut *reader, Compression::MAGIC_LEN as u64).read_to_end(&mut head).map_err(fail)?;
    let compression = Compression::from_magic(&head);
    let whole = BufReader::with_capacity(BUFFER, Cursor::new(head).chain(reader));
    decoder(compression, whole)
}

/// Decompresses a stream.
pub(super) fn decoder<'a>(
    compression: Compression,
    reader: impl std::io::BufRead + 'a,
) -> Result<Box<dyn Read + 'a>, Error> {
    Ok(match compression {
        Compression::None => Box::new(reader),
        Compression::Gzip => {
            Box::new(BufReader::with_capacity(BUFFER, flate2::bufread::MultiGzDecoder::new(reader)))
        }
        Compression::Zstd => Box::new(BufReader::with_capacity(
            BUFFER,
            zstd::Decoder::with_buffer(reader)
                .map_err(|source| Error::ArchiveIo { action: "read", source })?,
        )),
        Compression::Bzip2 | Compression::Xz => {
            return Err(Error::Compression { method: compression.to_string() });
        }
    })
}
