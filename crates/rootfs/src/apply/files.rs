//! Creates the entries: files, directories, symbolic links, fifos, and placeholders for devices.

use super::attributes::times;
use super::{Applier, Directory};
use crate::error::Error;
use crate::frame::{Blocks, Entry, Reader};
use crate::owners::FileKind;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use sys::fs::resolve::Place;

/// Size in bytes from which files are searched for zeros, which become holes: images made from
/// sparse files (usually a `lastlog` of many gigabytes) then do not fill the disk.
const HOLES_FROM: u64 = 1 << 20;
/// Shortest run of zeros, in bytes, that becomes a hole.
const HOLE: usize = 64 * 1024;

impl Applier<'_> {
    pub(super) fn file<B: Blocks>(
        &mut self,
        entry: &Entry,
        reader: &mut Reader<'_, B>,
        place: &Place,
        name: &[u8],
        full: &[u8],
    ) -> Result<(), Error> {
        // Attributes can only be set while the mode lets the owner write.
        let extra = if entry.xattrs.is_empty() { 0 } else { 0o600 };
        let fd = self.create(place, name, full, entry.mode & 0o777 | extra)?;
        write_data(&fd, entry, reader)?;
        let left = Self::set_xattrs(&fd, entry)?;
        let mut other = false;
        if extra & !entry.mode != 0 || self.needs_chmod(entry.mode) {
            other = Self::chmod(&fd, entry)?;
        }
        rustix::fs::futimens(&fd, &times(entry.mtime))
            .map_err(|errno| Error::disk("set the time of", &entry.path, errno))?;
        self.record(full, entry, left, other);
        Ok(())
    }

    /// Creates a new file, and replaces an existing entry of that name.
    pub(super) fn create(
        &mut self,
        place: &Place,
        name: &[u8],
        full: &[u8],
        mode: u32,
    ) -> Result<OwnedFd, Error> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode);
        self.make(place, name, full, "create", |dir, name| {
            rustix::fs::openat(dir, name, flags, mode)
        })
    }

    /// Calls `make`. If another entry has the name, removes that and calls `make` again.
    pub(super) fn make<T>(
        &mut self,
        place: &Place,
        name: &[u8],
        full: &[u8],
        step: &'static str,
        make: impl Fn(&OwnedFd, &[u8]) -> rustix::io::Result<T>,
    ) -> Result<T, Error> {
        for _ in 0..4 {
            match make(&place.dir, name) {
                Err(Errno::EXIST) => self.clear(place, name, full)?,
                Err(errno) => return Err(Error::disk(step, full, errno)),
                Ok(value) => {
                    self.owners.remove_whiteout(full);
                    return Ok(value);
                }
            }
        }
        // Another process creates files in this staging directory.
        Err(Error::disk(step, full, Errno::EXIST))
    }

    /// Removes the entry that an earlier one made at this name, with its records in the table.
    pub(super) fn clear(&mut self, place: &Place, name: &[u8], full: &[u8]) -> Result<(), Error> {
        let stat = match sys::fs::stat(&place.dir, name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(Error::disk("stat", full, errno)),
        };
        if self.live.is_some() && FileKind::from_mode(stat.st_mode) == FileKind::Directory {
            return Err(Error::refused(full, "a file must not replace a directory"));
        }
        self.owners.remove_tree(full);
        if matches!(FileKind::from_mode(stat.st_mode), FileKind::Directory | FileKind::Symlink) {
            self.parents.clear();
            self.directories.remove(full);
            let mut prefix = full.to_vec();
            prefix.push(b'/');
            let below: Vec<_> = self
                .directories
                .range(prefix.clone()..)
                .map(|(path, _)| path.clone())
                .take_while(|path| path.starts_with(&prefix))
                .collect();
            for path in below {
                self.directories.remove(&path);
            }
        }
        sys::fs::remove_tree(&place.dir, name).map_err(Error::Tree)
    }

    pub(super) fn directory(
        &mut self,
        entry: &Entry,
        place: &Place,
        name: &[u8],
        full: &[u8],
    ) -> Result<(), Error> {
        let mode = Mode::from_raw_mode(entry.mode & 0o777 | 0o700);
        let mut opaque = self.owners.remove_whiteout(full);
        match rustix::fs::mkdirat(&place.dir, name, mode) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                let stat = sys::fs::stat(&place.dir, name)
                    .map_err(|errno| Error::disk("stat", full, errno))?;
                if FileKind::from_mode(stat.st_mode) == FileKind::Directory {
                    // An earlier entry made the directory: the mode is set at the end in any case.
                    sys::fs::open_dir_force(&place.dir, name)
                        .and_then(|fd| rustix::fs::fchmod(&fd, mode))
                        .map_err(|errno| Error::disk("set the mode of", full, errno))?;
                } else if self.live.is_some() {
                    return Err(Error::refused(full, "a directory must not replace a file"));
                } else {
                    opaque |= sys::fs::whiteout::is(&stat);
                    self.clear(place, name, full)?;
                    rustix::fs::mkdirat(&place.dir, name, mode)
                        .map_err(|errno| Error::disk("make directory", full, errno))?;
                }
            }
            Err(errno) => return Err(Error::disk("make directory", full, errno)),
        }
        if opaque {
            self.set_opaque(full)?;
        }
        let left = if entry.xattrs.is_empty() {
            super::attributes::Xattrs::new()
        } else {
            let fd = rustix::fs::openat(&place.dir, name, sys::fs::DIRECTORY, Mode::empty())
                .map_err(|errno| Error::disk("open directory", full, errno))?;
            Self::set_xattrs(&fd, entry)?
        };
        self.directories.insert(
            full.to_vec(),
            Directory { mode: entry.mode, mtime: entry.mtime, implicit: false },
        );
        self.record(full, entry, left, false);
        Ok(())
    }

    pub(super) fn symlink(
        &mut self,
        entry: &Entry,
        place: &Place,
        name: &[u8],
        full: &[u8],
    ) -> Result<(), Error> {
        if entry.link.is_empty() {
            return Err(Error::refused(&entry.path, "a symbolic link without target"));
        }
        self.make(place, name, full, "make the symbolic link", |dir, name| {
            rustix::fs::symlinkat(&entry.link[..], dir, name)
        })?;
        self.finish_special(entry, place, name)?;
        self.record(full, entry, entry.xattrs.clone(), false);
        Ok(())
    }

    pub(super) fn fifo(
        &mut self,
        entry: &Entry,
        place: &Place,
        name: &[u8],
        full: &[u8],
    ) -> Result<(), Error> {
        let mode = Mode::from_raw_mode(entry.mode & 0o777);
        let is_fifo = self.make(place, name, full, "make the fifo", |dir, name| {
            match rustix::fs::mknodat(dir, name, FileType::Fifo, mode, 0) {
                Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
                other => other.map(|()| true),
            }
        })?;
        if !is_fifo {
            return self.placeholder(entry, place, name, full);
        }
        let other = self.finish_special(entry, place, name)?;
        // A fifo is never opened, so its attributes cannot be set by descriptor.
        self.record(full, entry, entry.xattrs.clone(), other);
        Ok(())
    }

    /// Creates an empty file in place of an entry that an unprivileged user cannot create; the
    /// table has its true kind.
    pub(super) fn placeholder(
        &mut self,
        entry: &Entry,
        place: &Place,
        name: &[u8],
        full: &[u8],
    ) -> Result<(), Error> {
        let fd = self.create(place, name, full, entry.mode & 0o666)?;
        rustix::fs::futimens(&fd, &times(entry.mtime))
            .map_err(|errno| Error::disk("set the time of", &entry.path, errno))?;
        self.record(full, entry, entry.xattrs.clone(), true);
        Ok(())
    }
}

fn write_data<B: Blocks>(
    fd: &OwnedFd,
    entry: &Entry,
    reader: &mut Reader<'_, B>,
) -> Result<(), Error> {
    let fail = |errno| Error::disk("write", &entry.path, errno);
    match &entry.sparse {
        None => {
            let holes = entry.size >= HOLES_FROM;
            let end = write_range(fd, entry, reader, 0, entry.size, holes)?;
            if end < entry.size {
                rustix::fs::ftruncate(fd, entry.size).map_err(fail)?;
            }
        }
        Some(ranges) => {
            rustix::fs::ftruncate(fd, entry.size).map_err(fail)?;
            for (start, length) in ranges {
                write_range(fd, entry, reader, *start, *length, false)?;
            }
        }
    }
    Ok(())
}

/// Writes the next `length` stored bytes at `start`; returns the end of the last byte that was not
/// left as a hole.
fn write_range<B: Blocks>(
    fd: &OwnedFd,
    entry: &Entry,
    reader: &mut Reader<'_, B>,
    start: u64,
    length: u64,
    holes: bool,
) -> Result<u64, Error> {
    let (mut position, mut written) = (start, start);
    let stop = start + length;
    while position < stop {
        let bytes = reader.data()?;
        let left = usize::try_from(stop - position).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(left)];
        let count = bytes.len();
        if holes {
            for piece in bytes.chunks(HOLE) {
                if piece.len() < HOLE || !is_zero(piece) {
                    sys::fs::pwrite_all(fd, piece, position)
                        .map_err(|errno| Error::disk("write", &entry.path, errno))?;
                    written = position + piece.len() as u64;
                }
                position += piece.len() as u64;
            }
        } else {
            sys::fs::pwrite_all(fd, bytes, position)
                .map_err(|errno| Error::disk("write", &entry.path, errno))?;
            position += count as u64;
            written = position;
        }
        reader.advance(count);
    }
    Ok(written)
}

fn is_zero(bytes: &[u8]) -> bool {
    // Blocks of 128 bytes, which the compiler turns into vector code; stops at the first block that
    // is not zero.
    bytes.chunks(128).all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}
