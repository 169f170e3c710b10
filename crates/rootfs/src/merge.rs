//! Merges a container's changes from an overlay's upper directory into its own whole tree.
//!
//! For a container that ran with mounts and shall run without: `upper/` is laid over `ROOT/` as the
//! kernel would show it, and everything in it gets the form of [`crate::owner_xattrs`]. Files move
//! by rename, so that a large upper costs little.
//!
//! After an interruption it can be started again: files that have moved are no longer in the upper,
//! whiteouts stay there until the end, and an opaque directory loses its mark when the hidden
//! content is gone, before anything moves in. Until the end the overlay of both shows the same
//! tree.

use crate::apply::times;
use crate::drivers::{ORIGIN, ROOT};
use crate::error::Error;
use crate::owner_xattrs::{self, BY_PATH, MARK};
use crate::owners::{FileKind, OWNER_XATTR, Owners};
use crate::union::{IdMap, Stack};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, Stat};
use rustix::io::Errno;
use std::path::Path;
use sys::fs::{DirStack, Kind, read_dir};

/// Prefix of the attributes that control overlay.
const OVERLAY: &[u8] = b"user.overlay.";

/// Merges `upper/` of a container's directory into `ROOT/`. No process may run in the container.
/// Records of inodes that cannot have attributes are added to the table [`BY_PATH`] of that
/// directory. The upper itself is left as an empty shell for the caller to delete.
pub fn merge_upper(container: &Path, ids: &IdMap) -> Result<(), Error> {
    let open = |name: &str| crate::union::open_tree(&container.join(name));
    let table = crate::union::upper_owners(&container.join("upper"))?;
    let mut by_path = Owners::read(&container.join(BY_PATH))?;
    let before = by_path.len();
    let upper = open("upper")?;
    let mut work =
        Work { own: Stack::live(crate::copy::reopen(&upper)?, table, ids), by_path: &mut by_path };
    let (mut from, mut to) = (DirStack::new(upper)?, DirStack::new(open(ROOT)?)?);
    // A directory's own attributes are read before its files move out, which changes its time.
    let mut pending = vec![(look(&from)?, work.files(&from, &to)?)];
    while let Some((stat, directories)) = pending.last_mut() {
        let Some(name) = directories.pop() else {
            work.finish(&from, &to, stat)?;
            pending.pop();
            from.leave()?;
            to.leave()?;
            continue;
        };
        enter(&mut from, &mut to, &name)?;
        pending.push((look(&from)?, work.files(&from, &to)?));
    }
    if by_path.len() != before {
        let directory = crate::union::open_tree(container)?;
        by_path.save(&directory, BY_PATH)?;
    }
    Ok(())
}

/// Enters a directory of the upper, and makes it in the tree if it is missing.
fn enter(from: &mut DirStack, to: &mut DirStack, name: &[u8]) -> Result<(), Error> {
    let path = to.path_of(name);
    let fail = |step, errno| Error::disk(step, &path, errno);
    let source =
        sys::fs::open_dir_force(from.fd(), name).map_err(|errno| fail("open directory", errno))?;
    let opaque = sys::fs::whiteout::is_opaque(&source).map_err(|errno| fail("stat", errno))?;
    let is_directory = sys::fs::stat(to.fd(), name)
        .is_ok_and(|stat| FileKind::from_mode(stat.st_mode) == FileKind::Directory);
    if opaque || !is_directory {
        sys::fs::remove_tree(to.fd(), name).map_err(Error::Tree)?;
    }
    match rustix::fs::mkdirat(to.fd(), name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(fail("make directory", errno)),
    }
    if opaque {
        for attribute in [&b"user.overlay.opaque"[..], b"trusted.overlay.opaque"] {
            let _ = sys::fs::xattr::remove(&source, attribute);
        }
    }
    from.enter_fd(name, source)?;
    to.enter(name)?;
    Ok(())
}

fn look(stack: &DirStack) -> Result<Stat, Error> {
    rustix::fs::fstat(stack.fd()).map_err(|errno| Error::disk("stat", &stack.path(), errno))
}

struct Work<'a> {
    /// The upper, read with the owners of its files.
    own: Stack,
    by_path: &'a mut Owners,
}

impl Work<'_> {
    /// Merges everything in a directory except directories, whose names are returned.
    fn files(&mut self, from: &DirStack, to: &DirStack) -> Result<Vec<Vec<u8>>, Error> {
        let mut directories = Vec::new();
        let entries = read_dir(from.fd())
            .map_err(|errno| Error::disk("read directory", &from.path(), errno))?;
        for entry in entries {
            if entry.kind == Kind::Directory {
                directories.push(entry.name);
                continue;
            }
            self.file(from, to, &entry.name)?;
        }
        Ok(directories)
    }

    fn file(&mut self, from: &DirStack, to: &DirStack, name: &[u8]) -> Result<(), Error> {
        let path = to.path_of(name);
        let fail = |step, errno| Error::disk(step, &path, errno);
        let stat = sys::fs::stat(from.fd(), name).map_err(|errno| fail("stat", errno))?;
        if sys::fs::whiteout::is(&stat) {
            return sys::fs::remove_tree(to.fd(), name).map_err(Error::Tree);
        }
        let dir = crate::copy::reopen(from.fd())?;
        let (facts, fd) = self.own.open(0, &dir, &path, name)?;
        let mut record = facts.record;
        if let Some(fd) = &fd {
            // The mark comes from the tree beneath and is not the file's own sticky bit.
            record.mode &= !MARK;
            chown_to_caller(fd, &stat);
            // Only above an image's tree the number of another inode counts.
            let _ = sys::fs::xattr::remove(fd, ORIGIN);
            if !owner_xattrs::write(fd, &path, stat.st_mode, &record)? {
                self.by_path.insert(&path, record);
            } else if !owner_xattrs::needs_record(&record) {
                let _ = sys::fs::xattr::remove(fd, OWNER_XATTR);
            }
        } else {
            if (record.uid, record.gid) != (0, 0) {
                self.by_path.insert(&path, record);
            }
            let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
            if stat.st_uid != user.as_raw() {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                let _ = rustix::fs::chownat(from.fd(), name, Some(user), Some(group), flags);
            }
        }
        let is_directory = sys::fs::stat(to.fd(), name)
            .is_ok_and(|stat| FileKind::from_mode(stat.st_mode) == FileKind::Directory);
        if is_directory {
            sys::fs::remove_tree(to.fd(), name).map_err(Error::Tree)?;
        }
        rustix::fs::renameat(from.fd(), name, to.fd(), name).map_err(|errno| fail("move", errno))
    }

    /// Sets a directory's own attributes from the upper, after all its contents are there.
    fn finish(&mut self, from: &DirStack, to: &DirStack, stat: &Stat) -> Result<(), Error> {
        let path = to.path();
        let fail = |step, errno| Error::disk(step, &path, errno);
        let source = crate::copy::reopen(from.fd())?;
        let target = crate::copy::reopen(to.fd())?;
        let record = self.own.facts(0, &path, stat, Some(&source))?.record;
        owner_xattrs::copy_attributes(&source, &target, &path, |name| {
            name.starts_with(b"user.") && !name.starts_with(OVERLAY) && name != ORIGIN
        })?;
        let now = rustix::fs::fstat(&target).map_err(|errno| fail("stat", errno))?;
        if !owner_xattrs::write(&target, &path, now.st_mode, &record)? {
            self.by_path.insert(&path, record);
        } else if !owner_xattrs::needs_record(&record) {
            let _ = sys::fs::xattr::remove(&target, OWNER_XATTR);
        }
        // The upper's time too, in case the merge is interrupted and started again.
        let times = times((stat.st_mtime, stat.st_mtime_nsec as u32));
        let _ = rustix::fs::futimens(&source, &times);
        rustix::fs::futimens(&target, &times).map_err(|errno| fail("set the time of", errno))
    }
}

/// Gives a file of a subordinate id to the caller; its record has the true owner.
fn chown_to_caller(fd: &OwnedFd, stat: &Stat) {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if stat.st_uid != user.as_raw() {
        let _ = rustix::fs::fchown(fd.as_fd(), Some(user), Some(group));
    }
}
