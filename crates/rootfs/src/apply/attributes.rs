//! Sets modes, times and extended attributes of entries, and adds to the ownership table what
//! cannot be set on disk.

use super::{Applier, Directory};
use crate::error::Error;
use crate::frame::{Entry, EntryKind};
use crate::owners::{FileKind, Record};
use crate::unlock::locks_out;
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Mode, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use std::collections::BTreeMap;
use sys::fs::resolve::{self, Method, Place};

/// Prefixes in the `user.` name space that control overlay and Coracle: a layer must not set such
/// attributes on disk.
const RESERVED: [&[u8]; 2] = [b"user.overlay.", b"user.coracle."];

/// Returns true if any user may set the attribute on disk and neither overlay nor Coracle
/// interprets it.
pub(crate) fn is_plain_xattr(name: &[u8]) -> bool {
    name.starts_with(b"user.") && !RESERVED.iter().any(|prefix| name.starts_with(prefix))
}

pub(super) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Times for `utimensat`: the access time stays as it is.
pub(crate) fn times((seconds, nanoseconds): (i64, u32)) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
    }
}

impl Applier<'_> {
    /// Sets on disk those extended attributes that are allowed there; returns the others, for the
    /// table. The file must be writable by mode.
    pub(super) fn set_xattrs(fd: impl AsFd, entry: &Entry) -> Result<Xattrs, Error> {
        let fd = fd.as_fd();
        let mut left = Xattrs::new();
        for (name, value) in &entry.xattrs {
            if is_plain_xattr(name) {
                match sys::fs::xattr::set(fd, name, value) {
                    Ok(()) => continue,
                    // The file system has no attributes, or too many for one inode (ext4 returns
                    // ENOSPC then).
                    Err(
                        Errno::OPNOTSUPP
                        | Errno::NOSPC
                        | Errno::TOOBIG
                        | Errno::RANGE
                        | Errno::PERM
                        | Errno::ACCESS
                        | Errno::NOSYS,
                    ) => {}
                    Err(errno) => {
                        return Err(Error::disk("set an attribute of", &entry.path, errno));
                    }
                }
            }
            left.insert(name.clone(), value.clone());
        }
        Ok(left)
    }

    /// Adds a record to the table if the disk does not hold all facts. `other_on_disk`: kind or
    /// mode differ on disk.
    pub(super) fn record(
        &mut self,
        full: &[u8],
        entry: &Entry,
        xattrs: Xattrs,
        other_on_disk: bool,
    ) {
        // Readers change such a mode for a moment, so it must not be read from the disk.
        let locked = self.live.is_none()
            && matches!(entry.kind, EntryKind::File(kind) if locks_out(kind, entry.mode));
        let plain = entry.uid == 0 && entry.gid == 0 && xattrs.is_empty();
        if plain && !other_on_disk && !locked {
            if !self.owners.is_empty() && self.owners.get(full).is_some() {
                let opaque = self.owners.is_opaque(full);
                self.owners.remove(full);
                if opaque {
                    self.owners.add_opaque(full);
                }
            }
            return;
        }
        let EntryKind::File(kind) = entry.kind else { return };
        let mode = if kind == FileKind::Symlink { 0o777 } else { entry.mode };
        let (uid, gid, device) = (entry.uid, entry.gid, entry.device);
        self.owners.insert(full, Record { kind, mode, uid, gid, device, xattrs });
    }

    /// Returns true if the umask changed the mode of a file or directory that was made with `mode`.
    pub(super) fn needs_chmod(&self, mode: u32) -> bool {
        mode & 0o7000 != 0 || self.umask.is_none_or(|umask| mode & umask & 0o777 != 0)
    }

    /// Sets the mode of an open file; returns true if the kernel kept another one (the caller is
    /// not in the group: no setgid).
    pub(super) fn chmod(fd: impl AsFd, entry: &Entry) -> Result<bool, Error> {
        chmod_checked(fd, entry.mode)
            .map_err(|errno| Error::disk("set the mode of", &entry.path, errno))
    }

    /// Sets mode and time of a file that was made by name and cannot be opened.
    pub(super) fn finish_special(
        &self,
        entry: &Entry,
        place: &Place,
        name: &[u8],
    ) -> Result<bool, Error> {
        let mut other = false;
        if entry.kind != EntryKind::File(FileKind::Symlink) && self.needs_chmod(entry.mode) {
            let fd = rustix::fs::openat(&place.dir, name, sys::fs::NAME_ONLY, Mode::empty())
                .map_err(|errno| Error::disk("open", &entry.path, errno))?;
            other = Self::chmod(&fd, entry)?;
        }
        rustix::fs::utimensat(&place.dir, name, &times(entry.mtime), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| Error::disk("set the time of", &entry.path, errno))?;
        Ok(other)
    }

    /// Sets the final mode and time of a directory.
    pub(super) fn finish_directory(
        &mut self,
        path: &[u8],
        directory: &Directory,
    ) -> Result<(), Error> {
        let fd = resolve::strict(&self.root, path, sys::fs::DIRECTORY, Method::Best)
            .map_err(|errno| Error::disk("open directory", path, errno))?;
        let mode = directory.mode;
        if path.is_empty() || mode & 0o700 != 0o700 || self.needs_chmod(mode) {
            let other = chmod_checked(&fd, mode)
                .map_err(|errno| Error::disk("set the mode of", path, errno))?;
            if other && self.owners.get(path).is_none() {
                let record = Record {
                    kind: FileKind::Directory,
                    mode,
                    uid: 0,
                    gid: 0,
                    device: (0, 0),
                    xattrs: Xattrs::new(),
                };
                self.owners.insert(path, record);
            }
        }
        rustix::fs::futimens(&fd, &times(directory.mtime))
            .map_err(|errno| Error::disk("set the time of", path, errno))
    }
}

fn chmod_checked(fd: impl AsFd, mode: u32) -> rustix::io::Result<bool> {
    let fd = fd.as_fd();
    match sys::fs::chmod_fd(fd, mode) {
        Ok(()) => {}
        // FreeBSD-like servers refuse the sticky bit on files, `nosuid` FUSE the special bits: the
        // table has the true mode.
        Err(Errno::PERM) if mode & 0o7000 != 0 => sys::fs::chmod_fd(fd, mode & 0o777)?,
        Err(errno) => return Err(errno),
    }
    if mode & 0o6000 == 0 && mode & 0o1000 == 0 {
        return Ok(false);
    }
    Ok(rustix::fs::fstat(fd)?.st_mode & 0o7777 != mode)
}
