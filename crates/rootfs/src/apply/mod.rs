//! Applies a layer: unpacks a tar stream into a tree in overlay's on-disk form.
//!
//! One thread reads (and decodes, if the reader does) and hashes, another writes files. Every write
//! goes through a directory descriptor and one name that is not followed. Parents are resolved
//! inside the tree (`parents`), as Docker and containerd do: `lib/x` lands in `usr/lib` if the same
//! layer made `lib` a link to it, and no link leads out.
//!
//! - Later entries replace earlier ones, except that a directory over a directory only changes its
//!   attributes.
//! - Directories stay writable while the layer arrives; their modes and times are set at the end,
//!   deepest first.
//! - Everything belongs to the caller. Other owners, devices, and attributes outside `user.` go to
//!   the table. Attributes that control overlay or Coracle (`user.overlay.*`, `user.coracle.*`) go
//!   to the table too, never to disk.
//! - A device becomes an empty file. Character device 0:0 in an archive is a device like any other,
//!   never a whiteout.
//! - A whiteout hides lower layers only, whatever its place in the archive.
//! - Parents without an entry of their own are made, and listed in the description
//!   ([`LayerMeta::implicit`]); so are hard links to files that are in no earlier entry
//!   ([`LayerMeta::links`]). [`crate::image::plan`] handles both.

mod attributes;
mod files;
mod from_disk;
mod links;
mod parents;
pub(crate) mod pipeline;
mod whiteouts;

use crate::error::Error;
use crate::frame::{Blocks, Entry, EntryKind, Reader};
use crate::layer::{LayerMeta, TREE, encode_path};
use crate::limits::Limits;
use crate::owners::{FileKind, Owners};
pub(crate) use attributes::{is_plain_xattr, times};
use parents::Parents;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, mkdirat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::Read;
use sys::fs::resolve::Place;

/// Result of applying a layer.
#[derive(Debug, Clone)]
pub struct Applied {
    /// Digest of the uncompressed stream, to its very end.
    pub diff_id: oci::Digest,
    /// Content of `layer.json`.
    pub meta: LayerMeta,
    /// The ownership table, already written beside the tree.
    pub owners: Owners,
}

/// Unpacks an uncompressed tar stream into `staging/tree` and writes `staging/owners`. The tree may
/// exist if it is empty.
///
/// `progress` is called with the number of uncompressed bytes that were processed since the last
/// call. On an error the caller deletes the staging directory. The stream is read to its end, so
/// that the digest covers all of it.
pub fn apply(
    tar: impl Read + Send,
    staging: impl AsFd,
    limits: &Limits,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Applied, Error> {
    let staging = staging.as_fd();
    let root = new_tree(staging, TREE)?;
    let (diff_id, mut applier) = pipeline::run(tar, progress, |blocks| {
        let mut applier = Applier::new(root, limits)?;
        applier.all(Reader::new(blocks, limits))?;
        Ok(applier)
    })?;
    applier.meta.diff_id = diff_id.to_string();
    applier.meta.records = applier.owners.len() as u64;
    applier.owners.save(staging, crate::layer::OWNERS)?;
    Ok(Applied { diff_id, meta: applier.meta, owners: applier.owners })
}

/// Makes and opens the directory of a new tree; an existing one is used if it is empty.
pub(crate) fn new_tree(staging: impl AsFd, name: &str) -> Result<OwnedFd, Error> {
    let staging = staging.as_fd();
    let fail = |step, errno| Error::disk(step, name.as_bytes(), errno);
    match mkdirat(staging, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(fail("make directory", errno)),
    }
    let root = rustix::fs::openat(staging, name, sys::fs::DIRECTORY, Mode::empty())
        .map_err(|errno| fail("open directory", errno))?;
    match sys::fs::read_dir(&root) {
        Ok(entries) if entries.is_empty() => Ok(root),
        Ok(_) => Err(fail("use the existing directory", Errno::NOTEMPTY)),
        Err(errno) => Err(fail("read directory", errno)),
    }
}

/// A directory's attributes, to be set at the end.
#[derive(Debug, Clone)]
struct Directory {
    mode: u32,
    mtime: (i64, u32),
    implicit: bool,
}

/// State of one layer's application.
pub(crate) struct Applier<'a> {
    root: OwnedFd,
    limits: &'a Limits,
    parents: Parents,
    directories: BTreeMap<Vec<u8>, Directory>,
    pub(crate) owners: Owners,
    pub(crate) meta: LayerMeta,
    /// Hard links whose target was missing: canonical path of the link and cleaned target.
    deferred: Vec<(Vec<u8>, Vec<u8>)>,
    umask: Option<u32>,
    /// Set if entries go to a tree in use and not to a new layer: the directory that names are
    /// relative to. Then names that start with `.wh.` are ordinary, and no directory replaces a
    /// file or the reverse.
    live: Option<Vec<u8>>,
}

impl<'a> Applier<'a> {
    pub(crate) fn new(root: OwnedFd, limits: &'a Limits) -> Result<Self, Error> {
        // The parent of the tree may be setgid (a project's directory on a cluster), which new
        // directories inherit.
        rustix::fs::fchmod(&root, Mode::from_raw_mode(0o755))
            .map_err(|errno| Error::disk("set the mode of", b".", errno))?;
        Ok(Self::on(root, limits, None))
    }

    /// For an existing tree that is in use: entries go below `directory`.
    pub(crate) fn live(root: OwnedFd, limits: &'a Limits, directory: &[u8]) -> Self {
        Self::on(root, limits, Some(directory.to_vec()))
    }

    fn on(root: OwnedFd, limits: &'a Limits, live: Option<Vec<u8>>) -> Self {
        Self {
            root,
            limits,
            parents: Parents::new(),
            directories: BTreeMap::new(),
            owners: Owners::new(),
            meta: LayerMeta::default(),
            deferred: Vec::new(),
            umask: sys::fs::umask(),
            live,
        }
    }

    /// Applies every entry, then the deferred hard links and directories.
    pub(crate) fn all<B: Blocks>(&mut self, mut reader: Reader<'_, B>) -> Result<(), Error> {
        while let Some(entry) = reader.next_entry()? {
            self.entry(&entry, &mut reader)?;
        }
        self.meta.entries = reader.entries();
        self.deferred_links()?;
        self.finish_directories()
    }

    pub(crate) fn entry<B: Blocks>(
        &mut self,
        entry: &Entry,
        reader: &mut Reader<'_, B>,
    ) -> Result<(), Error> {
        let path = clean(&entry.path)?;
        self.count(entry)?;
        if let Some(base) = &self.live {
            if path.is_empty() {
                return Ok(());
            }
            let path = sys::fs::resolve::join(base, &path);
            let (parent, name) = sys::fs::resolve::split(&path);
            let place = self.parent(parent, entry)?;
            return self.one(entry, reader, &place, name);
        }
        if path.is_empty() {
            return self.root_entry(entry);
        }
        let (parent, name) = sys::fs::resolve::split(&path);
        if parent.split(|byte| *byte == b'/').any(|part| part.starts_with(whiteouts::PREFIX)) {
            return Err(Error::refused(&entry.path, "a whiteout cannot be a directory"));
        }
        let place = self.parent(parent, entry)?;
        if name.starts_with(whiteouts::PREFIX) {
            return self.whiteout(entry, &place, name);
        }
        self.one(entry, reader, &place, name)
    }

    fn one<B: Blocks>(
        &mut self,
        entry: &Entry,
        reader: &mut Reader<'_, B>,
        place: &Place,
        name: &[u8],
    ) -> Result<(), Error> {
        let full = sys::fs::resolve::join(&place.path, name);
        match entry.kind {
            EntryKind::Link => self.link(entry, reader, place, name, &full),
            EntryKind::File(FileKind::File) => self.file(entry, reader, place, name, &full),
            EntryKind::File(FileKind::Directory) => self.directory(entry, place, name, &full),
            EntryKind::File(FileKind::Symlink) => self.symlink(entry, place, name, &full),
            EntryKind::File(FileKind::Fifo) => self.fifo(entry, place, name, &full),
            EntryKind::File(FileKind::Char | FileKind::Block) => {
                self.placeholder(entry, place, name, &full)
            }
            EntryKind::File(FileKind::Socket) => {
                Err(Error::refused(&entry.path, "an archive cannot hold a socket"))
            }
        }
    }

    fn count(&mut self, entry: &Entry) -> Result<(), Error> {
        self.meta.bytes = self.meta.bytes.saturating_add(entry.size);
        if self.meta.bytes > self.limits.total_bytes {
            return Err(Error::Limit {
                entry: entry.path.clone(),
                what: "total size",
                found: self.meta.bytes,
                limit: self.limits.total_bytes,
            });
        }
        Ok(())
    }

    /// The entry `./` with the root's own attributes.
    pub(crate) fn root_entry(&mut self, entry: &Entry) -> Result<(), Error> {
        if entry.kind != EntryKind::File(FileKind::Directory) {
            return Err(Error::refused(&entry.path, "the root can only be a directory"));
        }
        self.meta.has_root = true;
        let fd = self.root.try_clone().map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Error::disk("open directory", b".", errno)
        })?;
        let left = Self::set_xattrs(&fd, entry)?;
        self.directories.insert(
            Vec::new(),
            Directory { mode: entry.mode, mtime: entry.mtime, implicit: false },
        );
        self.record(b"", entry, left, false);
        Ok(())
    }

    /// Sets modes and times of all directories, children before parents, and lists the implicit
    /// ones.
    pub(crate) fn finish_directories(&mut self) -> Result<(), Error> {
        self.parents.clear();
        for (path, directory) in std::mem::take(&mut self.directories).iter().rev() {
            if directory.implicit {
                self.meta.implicit.push(encode_path(path));
            }
            self.finish_directory(path, directory)?;
        }
        self.meta.implicit.reverse();
        Ok(())
    }
}

/// Converts a name from an archive to a path relative to the root: no leading slash, no empty part,
/// no `.`. `..` is resolved textually, as Docker does, and must not lead above the root.
pub(crate) fn clean(name: &[u8]) -> Result<Vec<u8>, Error> {
    let mut path: Vec<u8> = Vec::with_capacity(name.len());
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                if path.is_empty() {
                    return Err(Error::refused(name, "its name leads out of the tree"));
                }
                let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                path.truncate(end);
            }
            part => {
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(part);
            }
        }
    }
    Ok(path)
}
