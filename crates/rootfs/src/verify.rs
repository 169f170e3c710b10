//! Checks that an unpacked layer equals its archive: compares every file byte by byte while the
//! archive is read.
//!
//! Reads, never repairs. Times and modes are compared as far as they are on disk; the ownership
//! table is compared record by record. Names in the archive are followed as they were when it was
//! unpacked (`names`).

use crate::apply::{clean, pipeline};
use crate::error::Error;
use crate::frame::{Blocks, Entry, EntryKind, Reader};
use crate::layer::Layer;
use crate::limits::Limits;
use crate::names::{Names, remove_below};
use crate::owners::{FileKind, Owners};
use crate::union::{Stack, open_tree, walk};
use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, Stat};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashSet};
use std::io::Read;
use sys::fs::resolve::{self, join, split};

/// A path that differs from the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Path in the tree.
    pub path: Vec<u8>,
    /// The difference.
    pub problem: &'static str,
}

/// Compares a layer with its uncompressed archive; also returns the archive's digest.
pub fn layer(
    tar: impl Read + Send,
    layer: &Layer,
    limits: &Limits,
) -> Result<(oci::Digest, Vec<Mismatch>), Error> {
    let (digest, mut work) = pipeline::run(tar, &|_| {}, |blocks| {
        // The stack keeps unreadable directories open meanwhile.
        let stack = Stack::layers(std::slice::from_ref(layer))?;
        let root = open_tree(&layer.tree())?;
        let links = layer.meta.link_paths().into_iter().map(|(link, _)| link).collect();
        let (names, found) = (Names::default(), BTreeMap::new());
        let mut work = Work { root, owners: layer.owners()?, links, names, found, stack };
        let mut reader = Reader::new(blocks, limits);
        while let Some(entry) = reader.next_entry()? {
            work.entry(&entry, &mut reader)?;
        }
        Ok(work)
    })?;
    work.unexplained_files(layer)?;
    let wrong = work.found.into_iter();
    let wrong = wrong.filter_map(|(path, problem)| Some(Mismatch { path, problem: problem? }));
    Ok((digest, wrong.collect()))
}

struct Work {
    root: OwnedFd,
    owners: Owners,
    stack: Stack,
    /// Hard links into lower layers, which the tree does not have.
    links: HashSet<Vec<u8>>,
    names: Names,
    /// The result of the last entry of each path.
    found: BTreeMap<Vec<u8>, Option<&'static str>>,
}

impl Work {
    fn entry<B: Blocks>(&mut self, entry: &Entry, reader: &mut Reader<'_, B>) -> Result<(), Error> {
        let path = clean(&entry.path)?;
        let (parent, name) = split(&path);
        if path.is_empty() || name == b".wh..wh..opq" {
            return Ok(());
        }
        let Some(parent) = self.names.directory(parent) else {
            self.found.insert(path, Some("its directory is missing"));
            return Ok(());
        };
        let place = self.place(&parent)?;
        if let Some(hidden) = name.strip_prefix(b".wh.") {
            let full = join(&parent, hidden);
            let on_disk = |place: &OwnedFd| sys::fs::stat(place, hidden).is_ok();
            let there = self.owners.is_whiteout(&full) || place.as_ref().is_some_and(on_disk);
            let problem = (!there).then_some("the whiteout is missing");
            self.found.entry(full).or_insert(problem);
            return Ok(());
        }
        let full = join(&parent, name);
        if self.names.add(&full, entry) {
            remove_below(&mut self.found, &full);
        }
        let Some(place) = place else {
            // Its directory was replaced later, or is missing: a later entry for the path overrides
            // this result.
            self.found.insert(full, Some("its directory is missing"));
            return Ok(());
        };
        let problem = match sys::fs::stat(&place, name) {
            Ok(stat) => self.compare(entry, reader, &place, &full, &stat)?,
            Err(Errno::NOENT) if self.links.contains(&full) => None,
            Err(Errno::NOENT) => Some("it is missing"),
            Err(errno) => return Err(Error::disk("stat", &full, errno)),
        };
        self.found.insert(full, problem);
        Ok(())
    }

    /// Opens a directory of the finished tree.
    fn place(&self, path: &[u8]) -> Result<Option<OwnedFd>, Error> {
        let flags = sys::fs::NAME_ONLY | OFlags::DIRECTORY;
        match resolve::strict(&self.root, path, flags, resolve::Method::Best) {
            Ok(place) => Ok(Some(place)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(errno) => Err(Error::disk("open directory", path, errno)),
        }
    }

    fn compare<B: Blocks>(
        &self,
        entry: &Entry,
        reader: &mut Reader<'_, B>,
        place: &OwnedFd,
        full: &[u8],
        stat: &Stat,
    ) -> Result<Option<&'static str>, Error> {
        let EntryKind::File(kind) = entry.kind else { return Ok(None) };
        let record = self.owners.get(full);
        let plain = (entry.uid, entry.gid) == (0, 0);
        if record.map_or(!plain, |record| (record.uid, record.gid) != (entry.uid, entry.gid)) {
            return Ok(Some("its owner in the ownership table differs"));
        }
        let truth = record.map_or(FileKind::from_mode(stat.st_mode), |record| record.kind);
        if truth != kind {
            return Ok(Some("its kind differs"));
        }
        let mode = record.map_or(stat.st_mode & 0o7777, |record| record.mode);
        if kind != FileKind::Symlink && mode != entry.mode {
            return Ok(Some("its mode differs"));
        }
        if (stat.st_mtime, stat.st_mtime_nsec as u32) != entry.mtime {
            return Ok(Some("its time differs"));
        }
        let name = split(full).1;
        match kind {
            FileKind::Symlink => {
                let target = rustix::fs::readlinkat(place, name, Vec::new())
                    .map_err(|errno| Error::disk("read the link", full, errno))?;
                Ok((target.as_bytes() != entry.link).then_some("its target differs"))
            }
            FileKind::File if stat.st_size as u64 != entry.size => Ok(Some("its size differs")),
            FileKind::File => same_content(entry, reader, place, full),
            _ => Ok(None),
        }
    }

    /// Reports files that no entry explains.
    fn unexplained_files(&mut self, layer: &Layer) -> Result<(), Error> {
        let implicit = layer.meta.implicit_paths();
        let found = &mut self.found;
        walk(&self.stack, |path, _| {
            if !found.contains_key(path) && implicit.iter().all(|known| known != path) {
                found.insert(path.to_vec(), Some("it is not in the archive"));
            }
            Ok(true)
        })
    }
}

/// Compares the next data of the archive with a file; a hole in the archive must read as zeros.
fn same_content<B: Blocks>(
    entry: &Entry,
    reader: &mut Reader<'_, B>,
    place: &OwnedFd,
    full: &[u8],
) -> Result<Option<&'static str>, Error> {
    const DIFFERS: Option<&str> = Some("its content differs");
    let fail = |errno| Error::disk("read", full, errno);
    let file = sys::fs::open_read(place, split(full).1, OFlags::empty()).map_err(fail)?;
    let whole = [(0, entry.size)];
    let ranges = entry.sparse.as_deref().unwrap_or(&whole);
    let mut buffer = vec![0; 256 * 1024];
    let mut end = 0;
    for (start, length) in ranges.iter().copied().chain([(entry.size, 0)]) {
        if !is_hole(&file, end, start, &mut buffer).map_err(fail)? {
            return Ok(DIFFERS);
        }
        let mut position = start;
        end = start + length;
        while position < end {
            let bytes = reader.data()?;
            let left = usize::try_from(end - position).unwrap_or(usize::MAX);
            let count = bytes.len().min(left).min(buffer.len());
            let same = fill(&file, &mut buffer[..count], position).map_err(fail)?
                && buffer[..count] == bytes[..count];
            reader.advance(count);
            position += count as u64;
            if !same {
                return Ok(DIFFERS);
            }
        }
    }
    Ok(None)
}

/// Returns true if a range reads as zeros; ranges that the file system reports as holes are not
/// read.
fn is_hole(file: &OwnedFd, start: u64, end: u64, buffer: &mut [u8]) -> rustix::io::Result<bool> {
    let mut position = start;
    while position < end {
        let (data, stop) = sys::fs::copy::data_range(file, position, end)?;
        position = data;
        while position < stop {
            let left = usize::try_from(stop - position).unwrap_or(usize::MAX);
            let count = left.min(buffer.len());
            if !fill(file, &mut buffer[..count], position)?
                || buffer[..count].iter().any(|byte| *byte != 0)
            {
                return Ok(false);
            }
            position += count as u64;
        }
        position = position.max(stop);
    }
    Ok(true)
}

/// Reads a range to its end; `false` if the file ends before.
fn fill(file: &OwnedFd, buffer: &mut [u8], position: u64) -> rustix::io::Result<bool> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(file, &mut buffer[done..], position + done as u64) {
            Ok(0) => return Ok(false),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(true)
}
