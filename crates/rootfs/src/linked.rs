//! A container's tree made of an image's: directories anew, files as further names of the image's inodes.
//!
//! Nothing writes to such a file: the engines that use these trees replace it by a copy first (see the inode list). Where a second name
//! cannot be made (another file system, too many names, a store of somebody else) the file is copied, by shared blocks where that goes.

use crate::apply::times;
use crate::drivers::ROOT;
use crate::error::Error;
use crate::settled::{INODES, copy_attributes, copy_file};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::io::Read;
use sys::fs::resolve::{self, Method, split};
use sys::fs::{DirStack, Kind, read_dir};

/// Name of a copy until it takes a file's place.
const STAGING: &[u8] = b".coracle-owning\xff";

/// What a new tree is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Linked {
    /// Further names of inodes.
    pub links: u64,
    /// Copies.
    pub copies: u64,
}

/// Makes `name` in `directory` a tree like `source`.
pub fn link_tree(source: impl AsFd, directory: impl AsFd, name: &str) -> Result<Linked, Error> {
    link_some(source, directory, name, None)
}

/// A container's tree of links once more, for another container: what it shares with the image by links, what is its own by copies.
/// Both are directories of containers.
pub fn clone_tree(from: impl AsFd, to: impl AsFd) -> Result<Linked, Error> {
    let (from, to) = (crate::copy::reopen(from)?, crate::copy::reopen(to)?);
    share_file(&from, &to, INODES)?;
    let list = read_list(&from)?;
    let source = rustix::fs::openat(&from, ROOT, sys::fs::DIRECTORY, Mode::empty())
        .map_err(|errno| Error::disk("open directory", ROOT.as_bytes(), errno))?;
    link_some(&source, &to, ROOT, Some(list))
}

/// Gives a container of links files of its own, wherever they are the image's: for engines whose programs write to them as they are.
///
/// Each is replaced by a copy in one step; until the last one is, the list of the image's inodes stays. Nobody may run in the container.
pub fn own_tree(container: impl AsFd) -> Result<(), Error> {
    let container = crate::copy::reopen(container)?;
    let list = read_list(&container)?;
    let top = rustix::fs::openat(&container, ROOT, sys::fs::DIRECTORY, Mode::empty())
        .map_err(|errno| Error::disk("open directory", ROOT.as_bytes(), errno))?;
    let mut work = Work {
        root: crate::copy::reopen(&top)?,
        copied: HashMap::new(),
        linked: Linked::default(),
        only: Some(list),
    };
    let mut stack = DirStack::new(top)?;
    let mut pending = vec![work.own(&stack)?];
    while let Some(directories) = pending.last_mut() {
        let Some(name) = directories.pop() else {
            pending.pop();
            stack.leave()?;
            continue;
        };
        stack.enter(&name)?;
        pending.push(work.own(&stack)?);
    }
    match rustix::fs::unlinkat(&container, INODES, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(Error::disk("remove", INODES.as_bytes(), errno)),
    }
}

/// The inodes of a list.
fn read_list(container: &OwnedFd) -> Result<HashSet<u64>, Error> {
    let fail = |errno| Error::disk("read", INODES.as_bytes(), errno);
    let file = match sys::fs::open_read(container, INODES.as_bytes(), OFlags::empty()) {
        Err(Errno::NOENT) => return Ok(HashSet::new()),
        file => file.map_err(fail)?,
    };
    let mut bytes = Vec::new();
    std::fs::File::from(file)
        .read_to_end(&mut bytes)
        .map_err(|error| fail(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    let inode = |pair: &[u8]| pair.first_chunk().map(|inode| u64::from_le_bytes(*inode));
    Ok(bytes.chunks_exact(12).filter_map(inode).collect())
}

fn link_some(
    source: impl AsFd,
    directory: impl AsFd,
    name: &str,
    only: Option<HashSet<u64>>,
) -> Result<Linked, Error> {
    let directory = directory.as_fd();
    let fail = |step, errno| Error::disk(step, name.as_bytes(), errno);
    rustix::fs::mkdirat(directory, name, Mode::from_raw_mode(0o700))
        .map_err(|errno| fail("make directory", errno))?;
    let top = rustix::fs::openat(directory, name, sys::fs::DIRECTORY, Mode::empty())
        .map_err(|errno| fail("open directory", errno))?;
    let mut work = Work {
        root: crate::copy::reopen(&top)?,
        copied: HashMap::new(),
        linked: Linked::default(),
        only,
    };
    let (mut from, mut to) = (DirStack::new(crate::copy::reopen(source)?)?, DirStack::new(top)?);
    let mut pending = vec![work.files(&from, &to)?];
    while let Some(directories) = pending.last_mut() {
        let Some(name) = directories.pop() else {
            pending.pop();
            finish(&from, &to)?;
            from.leave()?;
            to.leave()?;
            continue;
        };
        rustix::fs::mkdirat(to.fd(), &name[..], Mode::from_raw_mode(0o700))
            .map_err(|errno| Error::disk("make directory", &to.path_of(&name), errno))?;
        from.enter(&name)?;
        to.enter(&name)?;
        pending.push(work.files(&from, &to)?);
    }
    Ok(work.linked)
}

/// Puts a file of one directory into another, by a further name or a copy. One that is not there is left out.
pub(crate) fn share_file(from: &OwnedFd, to: &OwnedFd, name: &str) -> Result<(), Error> {
    match rustix::fs::linkat(from, name, to, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(_) => {}
    }
    let source = sys::fs::open_read(from, name.as_bytes(), OFlags::empty())
        .map_err(|errno| Error::disk("open", name.as_bytes(), errno))?;
    copy_file(&source, to, name.as_bytes(), name.as_bytes()).map(drop)
}

/// Mode, attributes and time of a directory, after everything in it.
fn finish(from: &DirStack, to: &DirStack) -> Result<(), Error> {
    let fail = |step, errno| Error::disk(step, &to.path(), errno);
    let stat = rustix::fs::fstat(from.fd()).map_err(|errno| fail("look at", errno))?;
    copy_attributes(from.fd(), to.fd(), &to.path(), |name| name.starts_with(b"user."))?;
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
    rustix::fs::fchmod(to.fd(), mode).map_err(|errno| fail("set the mode of", errno))?;
    rustix::fs::futimens(to.fd(), &mtime(&stat)).map_err(|errno| fail("set the time of", errno))
}

fn mtime(stat: &Stat) -> rustix::fs::Timestamps {
    times((stat.st_mtime, stat.st_mtime_nsec as u32))
}

struct Work {
    root: OwnedFd,
    /// Inodes with several names that were copied: where the copy is.
    copied: HashMap<u64, Vec<u8>>,
    linked: Linked,
    /// What may be linked, where that is not everything.
    only: Option<HashSet<u64>>,
}

impl Work {
    /// Everything in a directory but directories, whose names are returned.
    fn files(&mut self, from: &DirStack, to: &DirStack) -> Result<Vec<Vec<u8>>, Error> {
        let mut directories = Vec::new();
        let entries = read_dir(from.fd())
            .map_err(|errno| Error::disk("read directory", &from.path(), errno))?;
        for entry in entries {
            let name = &entry.name[..];
            match entry.kind {
                Kind::Directory => {
                    directories.push(entry.name);
                    continue;
                }
                Kind::Symlink => symlink(from.fd(), to.fd(), name),
                Kind::RegularFile
                    if self.only.as_ref().is_some_and(|only| !only.contains(&entry.inode)) =>
                {
                    self.copy(from, to, name)?;
                    Ok(())
                }
                Kind::RegularFile => {
                    match rustix::fs::linkat(from.fd(), name, to.fd(), name, AtFlags::empty()) {
                        Ok(()) => {
                            self.linked.links += 1;
                            Ok(())
                        }
                        Err(
                            Errno::XDEV
                            | Errno::PERM
                            | Errno::MLINK
                            | Errno::OPNOTSUPP
                            | Errno::ACCESS
                            | Errno::NOSYS,
                        ) => {
                            self.copy(from, to, name)?;
                            Ok(())
                        }
                        Err(errno) => Err(errno),
                    }
                }
                kind => special(from.fd(), to.fd(), name, kind),
            }
            .map_err(|errno| Error::disk("make", &to.path_of(name), errno))?;
        }
        Ok(directories)
    }

    /// Replaces the image's files in a directory; returns the names of directories in it.
    fn own(&mut self, at: &DirStack) -> Result<Vec<Vec<u8>>, Error> {
        let fail = |step, errno| Error::disk(step, &at.path(), errno);
        let stat = rustix::fs::fstat(at.fd()).map_err(|errno| fail("look at", errno))?;
        let entries = read_dir(at.fd()).map_err(|errno| fail("read directory", errno))?;
        let mut directories = Vec::new();
        let mut changed = false;
        for entry in entries {
            let images = self.only.as_ref().is_some_and(|only| only.contains(&entry.inode));
            match entry.kind {
                Kind::Directory => directories.push(entry.name),
                Kind::RegularFile if images => {
                    self.copy_as(at, at, &entry.name, STAGING)?;
                    rustix::fs::renameat(at.fd(), STAGING, at.fd(), &entry.name[..])
                        .map_err(|errno| fail("rename", errno))?;
                    changed = true;
                }
                _ => {}
            }
        }
        if changed {
            rustix::fs::futimens(at.fd(), &mtime(&stat))
                .map_err(|errno| fail("set the time of", errno))?;
        }
        Ok(directories)
    }

    fn copy(&mut self, from: &DirStack, to: &DirStack, name: &[u8]) -> Result<(), Error> {
        self.copy_as(from, to, name, name)
    }

    /// Copies a file to another name, or links what was copied of it before.
    fn copy_as(
        &mut self,
        from: &DirStack,
        to: &DirStack,
        name: &[u8],
        new: &[u8],
    ) -> Result<(), Error> {
        let path = to.path_of(name);
        let fail = |step, errno| Error::disk(step, &path, errno);
        let source = sys::fs::open_read(from.fd(), name, OFlags::empty())
            .map_err(|errno| fail("open", errno))?;
        let stat = rustix::fs::fstat(&source).map_err(|errno| fail("look at", errno))?;
        if stat.st_nlink > 1 {
            if let Some(first) = self.copied.get(&stat.st_ino) {
                let (parent, other) = split(first);
                let flags = sys::fs::NAME_ONLY | OFlags::DIRECTORY;
                return resolve::strict(&self.root, parent, flags, Method::Best)
                    .and_then(|dir| {
                        let _ = rustix::fs::unlinkat(to.fd(), new, AtFlags::empty());
                        rustix::fs::linkat(&dir, other, to.fd(), new, AtFlags::empty())
                    })
                    .map_err(|errno| fail("link", errno));
            }
            self.copied.insert(stat.st_ino, path.clone());
        }
        let target = copy_file(&source, to.fd(), new, &path)?;
        copy_attributes(&source, &target, &path, |name| name.starts_with(b"user.coracle."))?;
        rustix::fs::fchmod(&target, Mode::from_raw_mode(stat.st_mode & 0o7777))
            .map_err(|errno| fail("set the mode of", errno))?;
        self.linked.copies += 1;
        Ok(())
    }
}

fn symlink(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    let target = rustix::fs::readlinkat(from, name, Vec::new())?;
    rustix::fs::symlinkat(target, to, name)?;
    let stat = sys::fs::stat(from, name)?;
    rustix::fs::utimensat(to, name, &mtime(&stat), AtFlags::SYMLINK_NOFOLLOW)
}

fn special(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &[u8], kind: Kind) -> Result<(), Errno> {
    let stat = sys::fs::stat(from, name)?;
    rustix::fs::mknodat(to, name, kind, Mode::from_raw_mode(0o600), 0)?;
    let made = rustix::fs::openat(to, name, sys::fs::NAME_ONLY, Mode::empty())?;
    sys::fs::chmod_fd(&made, stat.st_mode & 0o7777)?;
    rustix::fs::utimensat(to, name, &mtime(&stat), AtFlags::SYMLINK_NOFOLLOW)
}
