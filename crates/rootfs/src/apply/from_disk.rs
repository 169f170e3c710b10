//! Applier operations for flattening: entries that come from files on disk, and deletions that are
//! carried out.

use super::attributes::times;
use super::{Applier, clean};
use crate::error::Error;
use crate::frame::{Entry, EntryKind};
use crate::owners::FileKind;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use sys::fs::resolve::{self, Place};

impl Applier<'_> {
    /// Deletes a name of the tree, if it exists.
    pub(crate) fn hide(&mut self, path: &[u8]) -> Result<(), Error> {
        let (parent, name) = resolve::split(path);
        let Some(place) = self.lookup(parent)? else { return Ok(()) };
        let full = resolve::join(&place.path, name);
        self.clear(&place, name, &full)
    }

    /// Deletes everything in a directory of the tree, if it exists.
    pub(crate) fn hide_all_in(&mut self, path: &[u8]) -> Result<(), Error> {
        let Some(place) = self.lookup(path)? else { return Ok(()) };
        let flags = sys::fs::DIRECTORY;
        let dir = resolve::strict(&self.root, &place.path, flags, resolve::Method::Best)
            .map_err(|errno| Error::disk("open directory", &place.path, errno))?;
        let entries = sys::fs::read_dir(&dir)
            .map_err(|errno| Error::disk("read directory", &place.path, errno))?;
        for entry in entries {
            let full = resolve::join(&place.path, &entry.name);
            self.clear(&place, &entry.name, &full)?;
        }
        Ok(())
    }

    fn lookup(&self, path: &[u8]) -> Result<Option<Place>, Error> {
        match self.existing(path) {
            // A path through a loop of symbolic links names nothing that could be deleted.
            Err(Errno::LOOP) => Ok(None),
            other => other.map_err(|errno| Error::disk("stat", path, errno)),
        }
    }

    /// Opens a directory of the tree, symbolic links resolved inside it; `None` if it is missing.
    pub(super) fn existing(&self, path: &[u8]) -> Result<Option<Place>, Errno> {
        match resolve::in_root(&self.root, path, |obstacle| Err::<(), _>(obstacle.errno)) {
            Ok(place) => Ok(Some(place)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Makes a hard link inside the tree; `false` if the target is missing.
    pub(crate) fn try_link(&mut self, path: &[u8], target: &[u8]) -> Result<bool, Error> {
        let entry = Entry::link(path, target);
        let Some((found, found_full)) = self.find(&clean(target)?, &entry)? else {
            return Ok(false);
        };
        let (parent, name) = resolve::split(path);
        let place = self.parent(parent, &entry)?;
        let full = resolve::join(&place.path, name);
        if full != found_full {
            self.link_to(&entry, &found, &found_full, &place, name, &full)?;
        }
        Ok(true)
    }

    pub(crate) fn count_file(&mut self, entry: &Entry) {
        self.meta.entries += 1;
        self.meta.bytes = self.meta.bytes.saturating_add(entry.size);
    }

    /// Makes a hard link to `source/name`; `false` if that is impossible.
    pub(crate) fn link_from(
        &mut self,
        entry: &Entry,
        source: &OwnedFd,
        source_name: &[u8],
    ) -> Result<bool, Error> {
        let (parent, name) = resolve::split(&entry.path);
        let place = self.parent(parent, entry)?;
        let full = resolve::join(&place.path, name);
        let made = self.make(&place, name, &full, "make the hard link", |dir, name| {
            match rustix::fs::linkat(source, source_name, dir, name, rustix::fs::AtFlags::empty()) {
                Err(
                    Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::ACCESS,
                ) => Ok(false),
                other => other.map(|()| true),
            }
        })?;
        if made {
            // The inode has all attributes that are allowed on disk; the table gets the others.
            let xattrs = entry.xattrs.iter().filter(|(name, _)| !super::is_plain_xattr(name));
            let left = xattrs.map(|(name, value)| (name.clone(), value.clone())).collect();
            self.record(&full, entry, left, false);
        }
        Ok(made)
    }

    /// Creates a file with the content of an open one.
    pub(crate) fn copy_from(&mut self, entry: &Entry, source: &OwnedFd) -> Result<(), Error> {
        let (parent, name) = resolve::split(&entry.path);
        let place = self.parent(parent, entry)?;
        let full = resolve::join(&place.path, name);
        let fd = self.create(&place, name, &full, entry.mode & 0o777 | 0o600)?;
        sys::fs::copy::contents(source, &fd)
            .map_err(|errno| Error::disk("copy", &entry.path, errno))?;
        let left = Self::set_xattrs(&fd, entry)?;
        let mut other = false;
        if entry.mode & 0o600 != 0o600 || self.needs_chmod(entry.mode) {
            other = Self::chmod(&fd, entry)?;
        }
        rustix::fs::futimens(fd.as_fd(), &times(entry.mtime))
            .map_err(|errno| Error::disk("set the time of", &entry.path, errno))?;
        self.record(&full, entry, left, other);
        Ok(())
    }

    /// Creates an entry without data.
    pub(crate) fn plain_entry(&mut self, entry: &Entry) -> Result<(), Error> {
        let (parent, name) = resolve::split(&entry.path);
        let place = self.parent(parent, entry)?;
        let full = resolve::join(&place.path, name);
        match entry.kind {
            EntryKind::File(FileKind::Directory) => self.directory(entry, &place, name, &full),
            EntryKind::File(FileKind::Symlink) => self.symlink(entry, &place, name, &full),
            EntryKind::File(FileKind::Fifo) => self.fifo(entry, &place, name, &full),
            _ => self.placeholder(entry, &place, name, &full),
        }
    }
}
