//! Builds an extra top layer with the files of other owners than root, which really belong to those
//! owners on disk.
//!
//! If a container has a range of ids, its kernel reads the owners from the disk. Layers belong to
//! the caller, who is root inside, and are shared by all containers. So files of other owners are
//! copied once per image, inside the user namespace, with true owners, and laid on top. File
//! capabilities are set there too. All other files stay shared.
//!
//! With one id ([`Form::Recorded`]) the copies carry records of what the image says of them, which
//! the engine shows.
//!
//! Contents are reflinked if the file system supports it, else copied: an image whose bulk belongs
//! to a user then costs its size once more. Devices are left out: they cannot be made in a user
//! namespace.

use crate::apply::times;
use crate::error::Error;
use crate::layer::{Layer, TREE};
use crate::owner_xattrs;
use crate::owners::{FileKind, Owners};
use crate::union::{Facts, Stack, walk};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use sys::fs::resolve::{self, Method};

/// An attribute that only root of a user namespace may set.
const CAPABILITY: &[u8] = b"security.capability";

/// Result of a build.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Built {
    /// Entries that got their true owner or capability.
    pub entries: u64,
    /// Paths whose owner is outside the namespace's range; they belong to root there.
    pub unmapped: Vec<Vec<u8>>,
    /// Records that their inodes cannot carry, by path.
    pub by_path: Owners,
}

/// Returns true if an image needs such a layer: some layer's table has a record.
#[must_use]
pub fn is_needed(layers: &[Layer]) -> bool {
    layers.iter().any(|layer| layer.meta.records > 0)
}

/// How the layer holds owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// On disk: for a namespace with a range of ids.
    True,
    /// As records on the inodes ([`crate::owner_xattrs`]), with all else that an unprivileged user
    /// cannot put on disk: for a namespace with one id, where records are shown.
    Recorded,
}

/// Builds the layer in `staging/tree` for an image's layers (topmost first). For true owners it
/// must run inside the user namespace in which the containers will run (its id 0 is the caller).
pub fn build(layers: &[Layer], staging: impl AsFd, form: Form) -> Result<Built, Error> {
    let staging = staging.as_fd();
    let root = crate::apply::new_tree(staging, TREE)?;
    let stack = Stack::layers(layers)?;
    let mut builder = Builder {
        stack: &stack,
        form,
        root,
        made: BTreeSet::new(),
        finish: BTreeMap::new(),
        links: HashMap::new(),
        trees: BTreeMap::new(),
        built: Built::default(),
    };
    if let Some(tree) = stack.root_tree() {
        builder.finish.insert(Vec::new(), stack.root_facts(tree)?);
    }
    walk(&stack, |path, merged| {
        let is_directory = merged.kind == FileKind::Directory;
        if is_directory {
            builder.trees.insert(path.to_vec(), merged.tree);
        }
        // Only files with a record can differ from the disk: no other file is opened.
        if stack.has_record(merged.tree, path) {
            builder.add(merged.tree, path)?;
        }
        Ok(is_directory)
    })?;
    builder.finish_directories()?;
    Ok(builder.built)
}

struct Builder<'a> {
    stack: &'a Stack,
    form: Form,
    root: OwnedFd,
    made: BTreeSet<Vec<u8>>,
    /// Directories with the attributes that they get at the end.
    finish: BTreeMap<Vec<u8>, Facts>,
    links: HashMap<(u64, u64), Vec<u8>>,
    /// For each directory the layer that has its attributes.
    trees: BTreeMap<Vec<u8>, usize>,
    built: Built,
}

impl Builder<'_> {
    fn add(&mut self, tree: usize, path: &[u8]) -> Result<(), Error> {
        let (parent, name) = resolve::split(path);
        let from = self.stack.open_dir(tree, parent)?;
        let (facts, source) = self.stack.open(tree, &from, path, name)?;
        let record = &facts.record;
        let foreign = record.uid != 0 || record.gid != 0;
        let differs = match self.form {
            Form::True => foreign || record.xattrs.contains_key(CAPABILITY),
            Form::Recorded => owner_xattrs::needs_record(record),
        };
        let device = matches!(record.kind, FileKind::Char | FileKind::Block);
        if !differs || record.kind == FileKind::Socket || device && self.form == Form::True {
            return Ok(());
        }
        self.parents(parent)?;
        let dir = self.open(parent)?;
        if record.kind == FileKind::Directory {
            self.make_directory(path)?;
            self.finish.insert(path.to_vec(), facts);
            return Ok(());
        }
        if let Some(inode) = facts.inode {
            if let Some(first) = self.links.get(&inode) {
                let (first_parent, first_name) = resolve::split(first);
                let first_dir = self.open(first_parent)?;
                return rustix::fs::linkat(&first_dir, first_name, &dir, name, AtFlags::empty())
                    .map_err(|errno| Error::disk("make the hard link", path, errno));
            }
            self.links.insert(inode, path.to_vec());
        }
        match (record.kind, &source) {
            (FileKind::Symlink, _) => {
                let target = rustix::fs::readlinkat(&from, name, Vec::new())
                    .map_err(|errno| Error::disk("read the link", path, errno))?;
                rustix::fs::symlinkat(target, &dir, name)
                    .map_err(|errno| Error::disk("make the symbolic link", path, errno))?;
                self.own(&dir, name, path, &facts)?;
            }
            (FileKind::Fifo, _) => {
                let mode = Mode::from_raw_mode(record.mode & 0o777);
                rustix::fs::mknodat(&dir, name, FileType::Fifo, mode, 0)
                    .map_err(|errno| Error::disk("make the fifo", path, errno))?;
                self.own(&dir, name, path, &facts)?;
            }
            (FileKind::Char | FileKind::Block, _) => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&dir, name, flags, Mode::from_raw_mode(0o600))
                    .map_err(|errno| Error::disk("create", path, errno))?;
                self.record(&file, path, &facts)?;
            }
            (_, Some(source)) => self.file(&dir, name, path, &facts, source)?,
            _ => {}
        }
        rustix::fs::utimensat(&dir, name, &times(facts.mtime), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| Error::disk("set the time of", path, errno))
    }

    fn file(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        path: &[u8],
        facts: &Facts,
        source: &OwnedFd,
    ) -> Result<(), Error> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600))
            .map_err(|errno| Error::disk("create", path, errno))?;
        sys::fs::copy::contents(source, &file).map_err(|errno| Error::disk("copy", path, errno))?;
        if self.form == Form::Recorded {
            set_attributes(file.as_fd(), path, facts)?;
            return self.record(&file, path, facts);
        }
        self.own(dir, name, path, facts)?;
        set_attributes(file.as_fd(), path, facts)?;
        sys::fs::chmod_fd(&file, facts.record.mode)
            .map_err(|errno| Error::disk("set the mode of", path, errno))
    }

    /// Puts the record of an open file or directory on it.
    fn record(&mut self, file: &OwnedFd, path: &[u8], facts: &Facts) -> Result<(), Error> {
        let now = rustix::fs::fstat(file).map_err(|errno| Error::disk("stat", path, errno))?;
        if owner_xattrs::write(file, path, now.st_mode, &facts.record)? {
            self.built.entries += 1;
        } else {
            self.built.by_path.insert(path, facts.record.clone());
        }
        Ok(())
    }

    /// Gives a file to its owner.
    fn own(&mut self, dir: &OwnedFd, name: &[u8], path: &[u8], facts: &Facts) -> Result<(), Error> {
        if self.form == Form::Recorded {
            self.built.by_path.insert(path, facts.record.clone());
            return Ok(());
        }
        let owner = Some(Uid::from_raw(facts.record.uid));
        let group = Some(Gid::from_raw(facts.record.gid));
        match rustix::fs::chownat(dir, name, owner, group, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(()) => self.built.entries += 1,
            // The id is not mapped in this namespace.
            Err(Errno::INVAL) => self.built.unmapped.push(path.to_vec()),
            Err(errno) => return Err(Error::disk("change the owner of", path, errno)),
        }
        Ok(())
    }

    /// Makes the directories above an entry, with their attributes in the image.
    fn parents(&mut self, path: &[u8]) -> Result<(), Error> {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in ends.chain((!path.is_empty()).then_some(path.len())).collect::<Vec<_>>() {
            let directory = &path[..end];
            if !self.make_directory(directory)? {
                continue;
            }
            let tree = self.trees.get(directory).copied().unwrap_or(0);
            let (parent, name) = resolve::split(directory);
            let dir = self.stack.open_dir(tree, parent)?;
            let (facts, _) = self.stack.open(tree, &dir, directory, name)?;
            self.finish.insert(directory.to_vec(), facts);
        }
        Ok(())
    }

    fn make_directory(&mut self, path: &[u8]) -> Result<bool, Error> {
        if !self.made.insert(path.to_vec()) {
            return Ok(false);
        }
        let (parent, name) = resolve::split(path);
        let dir = self.open(parent)?;
        rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o700))
            .map_err(|errno| Error::disk("make directory", path, errno))?;
        Ok(true)
    }

    fn open(&self, path: &[u8]) -> Result<OwnedFd, Error> {
        resolve::strict(&self.root, path, sys::fs::DIRECTORY, Method::Best)
            .map_err(|errno| Error::disk("open directory", path, errno))
    }

    fn finish_directories(&mut self) -> Result<(), Error> {
        for (path, facts) in std::mem::take(&mut self.finish).iter().rev() {
            let fd = self.open(path)?;
            let (parent, name) = resolve::split(path);
            if self.form == Form::Recorded {
                set_attributes(fd.as_fd(), path, facts)?;
                self.record(&fd, path, facts)?;
                rustix::fs::futimens(&fd, &times(facts.mtime))
                    .map_err(|errno| Error::disk("set the time of", path, errno))?;
                continue;
            }
            if path.is_empty() || (facts.record.uid, facts.record.gid) == (0, 0) {
                // Belongs to root already.
            } else {
                let dir = self.open(parent)?;
                self.own(&dir, name, path, facts)?;
            }
            set_attributes(fd.as_fd(), path, facts)?;
            sys::fs::chmod_fd(&fd, facts.record.mode)
                .map_err(|errno| Error::disk("set the mode of", path, errno))?;
            rustix::fs::futimens(&fd, &times(facts.mtime))
                .map_err(|errno| Error::disk("set the time of", path, errno))?;
        }
        Ok(())
    }
}

/// Sets the attributes that can be set inside the namespace: plain ones and capabilities.
fn set_attributes(fd: BorrowedFd<'_>, path: &[u8], facts: &Facts) -> Result<(), Error> {
    for (name, value) in &facts.record.xattrs {
        if name != CAPABILITY && !crate::apply::is_plain_xattr(name) {
            continue;
        }
        match sys::fs::xattr::set(fd, name, value) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::PERM | Errno::NOSPC) => {}
            Err(errno) => return Err(Error::disk("set an attribute of", path, errno)),
        }
    }
    Ok(())
}
