//! Gives an upper directory that the kernel had mounted the form that engines without mounts want,
//! where it is.
//!
//! Whiteouts and opaque directories are understood as they are. Each file gets the form of
//! [`crate::owner_xattrs`]: it belongs to the caller, and an attribute has the owner that the
//! kernel had given it. Each directory that is merged with one of the image's gets the number of
//! that, which programs see.
//!
//! What has been converted is not changed by a second conversion, so an interrupted one is started
//! again.

use crate::drivers::ORIGIN;
use crate::error::Error;
use crate::image::ImageTrees;
use crate::owner_xattrs::{self, MARK, needs_record};
use crate::owners::{FileKind, OWNER_XATTR, Owners, Record};
use crate::redirects;
use crate::union::{IdMap, Stack, is_special, open_tree, walk};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;
use std::path::Path;
use sys::fs::resolve::{self, Method};
use sys::fs::{DirStack, Kind, read_dir};

/// The owners of links, pipes and sockets in an upper directory, which it cannot have as
/// attributes. They have to be written down before [`settle`], after which the disk does not tell.
pub fn records(container: &Path, ids: &IdMap) -> Result<Owners, Error> {
    let own = Stack::upper(&container.join("upper"), None, ids)?;
    let mut owners = Owners::new();
    walk(&own, |path, merged| {
        if is_special(merged.kind) {
            let (parent, name) = resolve::split(path);
            let (facts, _) = own.open(0, &own.open_dir(0, parent)?, path, name)?;
            if (facts.record.uid, facts.record.gid) != (0, 0) {
                owners.insert(path, facts.record);
            }
        }
        Ok(true)
    })?;
    Ok(owners)
}

/// Settles the upper directory of a container's directory above the image's tree. No process may
/// run in the container. Returns records that could not be stored with their files.
pub fn settle(container: &Path, image: &ImageTrees, ids: &IdMap) -> Result<Owners, Error> {
    let upper = container.join("upper");
    let [layer] = &image.layers[..] else { return Ok(Owners::new()) };
    let top = open_tree(&upper)?;
    let mut work = Work {
        own: Stack::upper(&upper, None, ids)?,
        lower: open_tree(&layer.tree())?,
        by_path: Owners::new(),
    };
    let mut stack = DirStack::new(top)?;
    let merged = work.directory(&stack, true)?;
    let mut pending = vec![(work.files(&stack)?, merged)];
    while let Some((directories, merged)) = pending.last_mut() {
        let Some(name) = directories.pop() else {
            pending.pop();
            stack.leave()?;
            continue;
        };
        let merged = *merged;
        let fd = sys::fs::open_dir_force(stack.fd(), &name)
            .map_err(|errno| Error::disk("open directory", &stack.path_of(&name), errno))?;
        stack.enter_fd(&name, fd)?;
        let merged = work.directory(&stack, merged)?;
        pending.push((work.files(&stack)?, merged));
    }
    Ok(work.by_path)
}

struct Work {
    own: Stack,
    lower: OwnedFd,
    by_path: Owners,
}

impl Work {
    /// Settles a directory, but not what is in it; whether the image has one that is merged with
    /// it, if that is so of the directory above.
    fn directory(&mut self, stack: &DirStack, above: bool) -> Result<bool, Error> {
        let path = stack.path();
        let fail = |step, errno| Error::disk(step, &path, errno);
        let fd = crate::copy::reopen(stack.fd())?;
        let is_other = sys::fs::whiteout::is_opaque(&fd).map_err(|errno| fail("stat", errno))?
            || redirects::target(&fd, &path)?.is_some();
        let base = if above && !is_other { self.base(&path)? } else { None };
        if let Some(base) = &base {
            let number = base.st_ino.to_string();
            sys::fs::xattr::set(&fd, ORIGIN, number.as_bytes())
                .map_err(|errno| fail("set an attribute of", errno))?;
        }
        self.inode(&fd, &path)?;
        Ok(base.is_some())
    }

    /// The directory of the image at a path.
    fn base(&self, path: &[u8]) -> Result<Option<Stat>, Error> {
        match resolve::strict(&self.lower, path, sys::fs::DIRECTORY, Method::Best) {
            Ok(fd) => {
                rustix::fs::fstat(fd).map(Some).map_err(|errno| Error::disk("stat", path, errno))
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(errno) => Err(Error::disk("open directory", path, errno)),
        }
    }

    /// Settles everything in a directory except directories, whose names are returned.
    fn files(&mut self, stack: &DirStack) -> Result<Vec<Vec<u8>>, Error> {
        let mut directories = Vec::new();
        let entries = read_dir(stack.fd())
            .map_err(|errno| Error::disk("read directory", &stack.path(), errno))?;
        for entry in entries {
            let path = stack.path_of(&entry.name);
            match entry.kind {
                Kind::Directory => directories.push(entry.name),
                Kind::RegularFile => {
                    let flags = rustix::fs::OFlags::empty();
                    let fd = sys::fs::open_read(stack.fd(), &entry.name, flags)
                        .map_err(|errno| Error::disk("open", &path, errno))?;
                    self.inode(&fd, &path)?;
                }
                _ => special(stack, &entry.name, &path)?,
            }
        }
        Ok(directories)
    }

    /// Settles an open file or directory.
    fn inode(&mut self, fd: &OwnedFd, path: &[u8]) -> Result<(), Error> {
        let fail = |step, errno| Error::disk(step, path, errno);
        let stat = rustix::fs::fstat(fd).map_err(|errno| fail("stat", errno))?;
        let record = self.own.facts(0, path, &stat, Some(fd))?.record;
        let was_there = has(fd, OWNER_XATTR, path)?;
        let record = if was_there { changed(record, &stat, self.own.ids()) } else { record };
        let record = without_mark(record, was_there);
        let is_written = if has(fd, ORIGIN, path)? {
            owner_xattrs::write_marked(fd, path, stat.st_mode, &record)?
        } else {
            owner_xattrs::write(fd, path, stat.st_mode, &record)?
        };
        if !is_written {
            self.by_path.insert(path, record);
        } else if !needs_record(&record) && !has(fd, ORIGIN, path)? {
            let _ = sys::fs::xattr::remove(fd, OWNER_XATTR);
        }
        // Last: until then an interrupted conversion finds the owner.
        chown_to_caller(fd, &stat);
        Ok(())
    }
}

/// Settles a link, pipe or socket. Whiteouts stay.
fn special(stack: &DirStack, name: &[u8], path: &[u8]) -> Result<(), Error> {
    let stat = sys::fs::stat(stack.fd(), name).map_err(|errno| Error::disk("stat", path, errno))?;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let is_callers = (stat.st_uid, stat.st_gid) == (user.as_raw(), group.as_raw());
    if is_special(FileKind::from_mode(stat.st_mode)) && !is_callers {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let _ = rustix::fs::chownat(stack.fd(), name, Some(user), Some(group), flags);
    }
    Ok(())
}

fn has(fd: impl AsFd, name: &[u8], path: &[u8]) -> Result<bool, Error> {
    sys::fs::xattr::get(fd, name)
        .map(|value| value.is_some())
        .map_err(|errno| Error::disk("read an attribute of", path, errno))
}

/// A record that was there before, with what the kernel has changed since: it knows of no records.
/// Those who keep records leave every file to the caller, with a mode that follows from it.
fn changed(mut record: Record, stat: &Stat, ids: &IdMap) -> Record {
    let (user, group) = ids.of_disk(stat.st_uid, stat.st_gid);
    let caller = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if stat.st_uid != caller.0 {
        (record.uid, record.gid) = (user, group);
    } else if stat.st_gid != caller.1 && group != 0 {
        record.gid = group;
    }
    let mode = stat.st_mode & 0o7777;
    let is_plain = matches!(record.kind, FileKind::File | FileKind::Directory);
    if is_plain && mode | MARK != owner_xattrs::disk_mode(record.kind, record.mode) | MARK {
        record.mode = mode & !MARK | record.mode & MARK;
    }
    record
}

/// The mark comes from the tree beneath, and is no file's own sticky bit.
fn without_mark(mut record: Record, was_there: bool) -> Record {
    if record.kind == FileKind::File && !was_there {
        record.mode &= !MARK;
    }
    record
}

/// Gives a file of a subordinate id to the caller; its record has the true owner.
fn chown_to_caller(fd: &OwnedFd, stat: &Stat) {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if stat.st_uid != user.as_raw() {
        let _ = rustix::fs::fchown(fd.as_fd(), Some(user), Some(group));
    }
}
