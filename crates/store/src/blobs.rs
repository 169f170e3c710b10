//! Blobs: files named by the digest of their content, in the OCI layout's `blobs/`.
//!
//! A blob is added through an [`Ingest`]: a partial file under `tmp/ingest`, locked for the one
//! process that writes it. The file stays when that process dies, and the next process resumes it.
//! A process that begins a blob which another process is fetching waits; then it finds the complete
//! blob or continues the download. Only content of the right size and digest is renamed into the
//! layout; wrong content is removed at once.
//!
//! Opening a blob checks its size, which detects a truncated copy; [`crate::verify`] hashes all of
//! it again. Documents (manifests, configurations) are hashed on every reading, since that costs
//! microseconds.

use std::fs::{File, FileTimes};
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::{Duration, SystemTime};

use oci::{Algorithm, Descriptor, Digest, Digester};
use rustix::fs::{FileType, OFlags};

use crate::error::{Error, Result, Step};
use crate::lock::{Lock, Mode};
use crate::root::{DOCUMENT_LIMIT, random_hex, read_all, reread};
use crate::{Lease, Store};

/// Directory of the partial blobs.
pub(crate) const INGEST: &str = "tmp/ingest";
const BUFFER: usize = 256 << 10;
/// A new blob's modification time is set this far into the past. A blob of this program needs no
/// grace period in a collection: its user holds a lease before it is referred to.
const BACKDATED: Duration = Duration::from_hours(1);

/// The blobs of a store and of the stores beneath it.
#[derive(Debug, Clone, Copy)]
pub struct Blobs<'store>(pub(crate) &'store Store);

/// A stored blob, open for reading.
#[derive(Debug)]
pub struct Blob {
    /// The blob's content.
    pub file: File,
    /// Length in bytes.
    pub size: u64,
    /// Path of the blob's file.
    pub path: PathBuf,
}

impl Read for Blob {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

/// Result of [`Blobs::begin`].
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one per blob, taken apart at once")]
pub enum BeginBlob {
    /// The blob is in the store.
    Have(Blob),
    /// This process has to fetch the blob.
    Ingest(Ingest),
}

/// Path of a blob's file, relative to the store.
pub(crate) fn rel(digest: &Digest) -> String {
    format!("oci/blobs/{}/{}", digest.algorithm().as_str(), digest.hex())
}

/// Converts a digest to one file name: `sha256-<hex>`.
pub(crate) fn flat(digest: &Digest) -> String {
    format!("{}-{}", digest.algorithm().as_str(), digest.hex())
}

/// Converts a file name that [`flat`] made back to the digest.
pub(crate) fn unflat(name: &str) -> Option<Digest> {
    Digest::from_str(&name.replacen('-', ":", 1)).ok()
}

/// Where a blob is while it is received.
fn part(digest: &Digest) -> String {
    format!("{INGEST}/{}.part", flat(digest))
}

impl Blobs<'_> {
    /// How many bytes of a blob that is not in the store were received, perhaps by a process that
    /// has ended.
    pub fn received(self, digest: &Digest) -> Result<u64> {
        Ok(self.0.inner.root.stat(&part(digest))?.map_or(0, |stat| stat.st_size as u64))
    }

    /// Returns true if the blob is in the store with this size (with any size for `None`).
    pub fn contains(self, digest: &Digest, size: Option<u64>) -> Result<bool> {
        let rel = rel(digest);
        for store in self.0.chain() {
            let there = store.inner.root.stat(&rel)?;
            if there.is_some_and(|stat| size.is_none_or(|size| size == stat.st_size as u64)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns true if the blob is in the store with the content that its digest names. If its size
    /// is known, [`Blobs::contains`] suffices and costs nothing: a power failure leaves blobs that
    /// are too short.
    pub fn is_whole(self, digest: &Digest) -> Result<bool> {
        match self.open_digest(digest) {
            Err(Error::NoBlob { .. }) => Ok(false),
            other => content_matches(other?, digest),
        }
    }

    /// As [`Blobs::is_whole`], for this store alone.
    fn is_whole_here(self, digest: &Digest) -> Result<bool> {
        reread(|| open_in(self.0, digest)?.map_or(Ok(false), |blob| content_matches(blob, digest)))
    }

    /// Opens a blob; fails if it is missing or its size differs from the descriptor's.
    pub fn open(self, descriptor: &Descriptor) -> Result<Blob> {
        self.find(&descriptor.digest, Some(descriptor.size))
    }

    /// Opens a blob of unknown size.
    pub fn open_digest(self, digest: &Digest) -> Result<Blob> {
        self.find(digest, None)
    }

    fn find(self, digest: &Digest, size: Option<u64>) -> Result<Blob> {
        let mut bad = None;
        for store in self.0.chain() {
            let Some(blob) = open_in(store, digest)? else { continue };
            match size {
                Some(size) if size != blob.size => {
                    let why = format!("it has {} bytes instead of {size}", blob.size);
                    bad = Some(Error::BadBlob { digest: digest.to_string(), path: blob.path, why });
                }
                _ => return Ok(blob),
            }
        }
        Err(bad.unwrap_or_else(|| Error::NoBlob { digest: digest.to_string() }))
    }

    /// Reads a document (manifest, configuration) whole and checks its digest.
    pub fn read(self, digest: &Digest) -> Result<Vec<u8>> {
        let (path, bytes) = reread(|| {
            let blob = self.open_digest(digest)?;
            let bytes = read_all(blob.file, || blob.path.clone(), DOCUMENT_LIMIT)?;
            Ok((blob.path, bytes))
        })?;
        if !digest.matches(&bytes) {
            let why = "its content has another digest".into();
            return Err(Error::BadBlob { digest: digest.to_string(), path, why });
        }
        Ok(bytes)
    }

    /// Lists every blob of this store (not of those beneath): digest and size.
    pub fn list(self) -> Result<Vec<(Digest, u64)>> {
        let root = &self.0.inner.root;
        let mut found = Vec::new();
        for (algorithm, kind) in root.list("oci/blobs")? {
            if kind != FileType::Directory {
                continue;
            }
            for (hex, _) in root.list(&format!("oci/blobs/{algorithm}"))? {
                // Other tools keep temporary files here while they write.
                let Ok(digest) = Digest::from_str(&format!("{algorithm}:{hex}")) else { continue };
                if let Some(stat) = root.stat(&rel(&digest))? {
                    found.push((digest, stat.st_size as u64));
                }
            }
        }
        Ok(found)
    }

    /// Begins to add a blob: waits while another process adds it, then returns the blob or an
    /// [`Ingest`].
    ///
    /// An ingest holds a lock on this blob; do not begin the same one twice in one thread.
    pub fn begin(self, descriptor: &Descriptor) -> Result<BeginBlob> {
        if let Ok(blob) = self.open(descriptor) {
            return Ok(BeginBlob::Have(blob));
        }
        self.0.writable()?;
        self.0.sweep_in_passing();
        crate::index::begin(self.0, false)?;
        let lease = self.0.lease()?;
        let digest = &descriptor.digest;
        let lockable =
            self.0.lockable(&format!("blob-{}", flat(digest)), format!("blob {digest}"), true);
        let limit = self.0.inner.wait.content_limit;
        let lock = lockable.take(Mode::Exclusive, &self.0.inner.wait, limit)?;
        if let Ok(blob) = self.open(descriptor) {
            return Ok(BeginBlob::Have(blob));
        }
        let root = &self.0.inner.root;
        let part = part(digest);
        let mut ingest = Ingest {
            store: self.0.clone(),
            file: root.create_file(&part, OFlags::empty())?,
            part,
            digest: digest.clone(),
            size: descriptor.size,
            digester: digest.digester(),
            offset: 0,
            _lock: lock,
            _lease: lease,
        };
        let mut is_stale = false;
        reread(|| {
            if is_stale {
                ingest.reopen()?;
            }
            is_stale = true;
            ingest.take_over()
        })?;
        Ok(BeginBlob::Ingest(ingest))
    }

    /// Stores bytes; `false` when they were there already.
    pub fn put_bytes(self, bytes: &[u8]) -> Result<(Digest, bool)> {
        let digest = Digest::of(bytes);
        if self.contains(&digest, Some(bytes.len() as u64))? {
            return Ok((digest, false));
        }
        self.0.writable()?;
        let _lease = self.0.lease()?;
        let root = &self.0.inner.root;
        root.make_dir("tmp")?;
        root.replace(&rel(&digest), bytes, self.0.syncs_now())?;
        self.0.note_unsynced(None);
        Ok((digest, true))
    }

    /// Stores a reader's content, whose digest is known only at its end.
    pub fn put_reader(self, reader: &mut dyn Read) -> Result<(Digest, u64)> {
        self.0.writable()?;
        let _lease = self.0.lease()?;
        let root = &self.0.inner.root;
        let temporary = format!("tmp/put-{}", random_hex(16)?);
        let result = self.copy_in(reader, &temporary);
        if result.is_err() {
            let _ = root.unlink(&temporary);
        }
        result
    }

    fn copy_in(self, reader: &mut dyn Read, temporary: &str) -> Result<(Digest, u64)> {
        let root = &self.0.inner.root;
        let mut file = root.create_file(temporary, OFlags::EXCL)?;
        let mut digester = Digester::new(Algorithm::Sha256);
        let mut buffer = vec![0; BUFFER];
        let mut size = 0;
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(Error::io(Step::Read, "the source", source)),
            };
            digester.update(&buffer[..count]);
            file.write_all(&buffer[..count])
                .map_err(|source| Error::io(Step::Write, root.join(temporary), source))?;
            size += count as u64;
        }
        let digest = digester.finish();
        self.publish(&file, temporary, &digest)?;
        Ok((digest, size))
    }

    /// Makes a complete file visible under its digest.
    fn publish(self, file: &File, temporary: &str, digest: &Digest) -> Result<()> {
        let root = &self.0.inner.root;
        if self.0.syncs_now() {
            rustix::fs::fdatasync(file)
                .map_err(|errno| Error::io(Step::Sync, root.join(temporary), errno))?;
        }
        // Only a blob that another tool brought counts as young (see `CollectOptions::grace`). If
        // the time cannot be set, this blob counts as young too.
        let past = SystemTime::now() - BACKDATED;
        let _ = file.set_times(FileTimes::new().set_modified(past));
        let target = rel(digest);
        // The existing blob may belong to an image and be on the disk: equal bytes that are not
        // synced yet must not replace it.
        if !root.rename_new(temporary, &target)? {
            if self.is_whole_here(digest)? {
                root.unlink(temporary)?;
                self.0.note_unsynced(None);
                return Ok(());
            }
            root.rename(temporary, &target)?;
        }
        if self.0.syncs_now() {
            root.sync_dir(&format!("oci/blobs/{}", digest.algorithm().as_str()))?;
        }
        self.0.note_unsynced(None);
        Ok(())
    }

    /// Removes a blob of this store; returns the bytes freed. Callers hold the exclusive lock.
    pub(crate) fn remove(self, digest: &Digest) -> Result<u64> {
        let rel = rel(digest);
        let Some(stat) = self.0.inner.root.stat(&rel)? else { return Ok(0) };
        Ok(if self.0.inner.root.unlink(&rel)? { stat.st_size as u64 } else { 0 })
    }
}

/// Returns true if a blob's content has this digest.
fn content_matches(mut blob: Blob, digest: &Digest) -> Result<bool> {
    let mut digester = digest.digester();
    let mut buffer = vec![0; BUFFER];
    loop {
        match blob.file.read(&mut buffer) {
            Ok(0) => return Ok(digester.finish() == *digest),
            Ok(count) => digester.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(Error::io(Step::Read, blob.path, source)),
        }
    }
}

fn open_in(store: &Store, digest: &Digest) -> Result<Option<Blob>> {
    let root = &store.inner.root;
    let rel = rel(digest);
    reread(|| {
        let Some(file) = root.open_file(&rel, OFlags::RDONLY)? else { return Ok(None) };
        let meta =
            file.metadata().map_err(|source| Error::io(Step::Stat, root.join(&rel), source))?;
        Ok(Some(Blob { file, size: meta.size(), path: root.join(&rel) }))
    })
}

/// A blob that is being written; the only writer for its digest among all processes.
///
/// Dropped without [`Ingest::commit`], the partial file is kept, and a later ingest resumes it.
#[derive(Debug)]
pub struct Ingest {
    store: Store,
    file: File,
    part: String,
    digest: Digest,
    size: u64,
    digester: Digester,
    offset: u64,
    // Fields are dropped in this order: the blob's lock before the store's.
    _lock: Lock,
    _lease: Lease,
}

impl Ingest {
    /// Number of bytes in the partial file: the source has to be read from this offset.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The blob's announced size.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// True if all bytes are there and only [`Ingest::commit`] is left to call.
    pub fn is_complete(&self) -> bool {
        self.offset == self.size
    }

    /// Path of the partial file, to read it while it is being written.
    pub fn path(&self) -> PathBuf {
        self.store.inner.root.join(&self.part)
    }

    /// The bytes that the partial file had at the start, for a consumer that must see the whole
    /// stream.
    pub fn existing(&self) -> Result<io::Take<File>> {
        let path = || self.path();
        let file = self
            .store
            .inner
            .root
            .open_file(&self.part, OFlags::RDONLY)?
            .ok_or_else(|| Error::NoBlob { digest: self.digest.to_string() })?;
        let mut file = file;
        file.seek(SeekFrom::Start(0)).map_err(|source| Error::io(Step::Read, path(), source))?;
        Ok(file.take(self.offset))
    }

    /// Begins again at the first byte, for a source that cannot resume.
    pub fn restart(&mut self) -> Result<()> {
        self.cut(0)?;
        self.digester = self.digest.digester();
        Ok(())
    }

    fn cut(&mut self, length: u64) -> Result<()> {
        rustix::fs::ftruncate(&self.file, length)
            .map_err(|errno| Error::io(Step::Write, self.path(), errno))?;
        self.file
            .seek(SeekFrom::Start(length))
            .map_err(|source| Error::io(Step::Write, self.path(), source))?;
        self.offset = length;
        Ok(())
    }

    /// Opens the partial file again, which another host has replaced since it was opened.
    fn reopen(&mut self) -> Result<()> {
        self.file = self.store.inner.root.create_file(&self.part, OFlags::empty())?;
        self.digester = self.digest.digester();
        self.offset = 0;
        Ok(())
    }

    /// Hashes the partial file of an earlier process. Content that cannot be the beginning of this
    /// blob is thrown away.
    fn take_over(&mut self) -> Result<()> {
        let mut buffer = vec![0; BUFFER];
        loop {
            let count = match self.file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(Error::io(Step::Read, self.path(), source)),
            };
            self.digester.update(&buffer[..count]);
            self.offset += count as u64;
            if self.offset > self.size {
                return self.restart();
            }
        }
        if self.is_complete() && self.digester.clone().finish() != self.digest {
            return self.restart();
        }
        Ok(())
    }

    /// Checks size and digest, syncs the file and makes the blob visible. Wrong content is removed.
    pub fn commit(self) -> Result<Blob> {
        let root = &self.store.inner.root;
        if self.offset != self.size {
            // Too few bytes may be the beginning of the right content: they stay.
            return Err(Error::WrongSize {
                digest: self.digest.to_string(),
                expected: self.size,
                found: self.offset,
            });
        }
        let found = self.digester.clone().finish();
        if found != self.digest {
            root.unlink(&self.part)?;
            return Err(Error::WrongDigest {
                expected: self.digest.to_string(),
                found: found.to_string(),
            });
        }
        self.store.blobs().publish(&self.file, &self.part, &self.digest)?;
        open_in(&self.store, &self.digest)?
            .ok_or_else(|| Error::NoBlob { digest: self.digest.to_string() })
    }

    /// Removes the partial file.
    pub fn discard(self) -> Result<()> {
        self.store.inner.root.unlink(&self.part).map(|_| ())
    }
}

impl Write for Ingest {
    /// Refuses more bytes than the descriptor announced.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.offset + bytes.len() as u64 > self.size {
            let message = format!("more than the announced {} bytes arrived", self.size);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let count = self.file.write(bytes)?;
        self.digester.update(&bytes[..count]);
        self.offset += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
