//! Converts trees for engines that interpose on system calls: each inode carries its true owner and
//! mode in attributes.
//!
//! These engines mount nothing, so what a program sees of an owner or a mode comes from the inode
//! alone. The form on disk, which those engines maintain while programs run:
//!
//! - everything belongs to the caller, who may read and write every file and search every
//!   directory; no set-id bits;
//! - differing facts (owner, mode, device, attributes that only root may set) are in attributes of
//!   the inode ([`OWNER_XATTR`], [`HIDDEN`]), and the sticky bit of its mode marks that there are
//!   some: an ordinary file costs nothing;
//! - symbolic links, pipes and sockets cannot have such attributes; their records are returned to
//!   the caller ([`Converted::by_path`]).
//!
//! [`convert_tree`] brings a tree into this form. Files that share their inode with a layer are
//! replaced by copies if something must be written to them.

use crate::apply::{is_plain_xattr, times};
use crate::error::Error;
use crate::owners::{FileKind, OWNER_XATTR, Owners, Record};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use sys::fs::resolve::{self, Method, split};
use sys::fs::{DirStack, Kind, read_dir};

/// Prefix before the true name of an attribute that only root may set.
pub const HIDDEN: &[u8] = b"user.coracle.x.";
/// Name of the inode list beside a tree.
pub const INODES: &str = "inodes";
/// Name of the table of records that could not be set on their inodes.
pub const BY_PATH: &str = "loose";
/// `S_ISVTX`: the inode has attributes of this form.
pub const MARK: u32 = 0o1000;

/// Result of a conversion.
#[derive(Debug, Clone, Default)]
pub struct Converted {
    /// Every regular file: inode and number of names in the tree, sorted by inode.
    pub inodes: Vec<(u64, u32)>,
    /// Records that could not be set on their inodes, by path.
    pub by_path: Owners,
}

impl Converted {
    /// Encodes the inode list: little-endian pairs of `u64` and `u32`.
    #[must_use]
    pub fn inode_list(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.inodes.len() * 12);
        for (inode, names) in &self.inodes {
            bytes.extend_from_slice(&inode.to_le_bytes());
            bytes.extend_from_slice(&names.to_le_bytes());
        }
        bytes
    }

    /// Writes both beside the tree. An empty list or table is not written.
    pub(crate) fn save(&self, directory: impl AsFd) -> Result<(), Error> {
        let directory = directory.as_fd();
        if !self.by_path.is_empty() {
            self.by_path.save(directory, BY_PATH)?;
        }
        let fail = |errno| Error::disk("write", INODES.as_bytes(), errno);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, INODES, flags, Mode::from_raw_mode(0o644))
            .map_err(fail)?;
        std::fs::File::from(file)
            .write_all(&self.inode_list())
            .map_err(|error| fail(Errno::from_io_error(&error).unwrap_or(Errno::IO)))
    }
}

/// The mode on disk, without the mark, of a file that programs see with `mode`.
pub(crate) fn disk_mode(kind: FileKind, mode: u32) -> u32 {
    match kind {
        FileKind::Directory => mode & 0o777 | 0o700,
        FileKind::Char | FileKind::Block => 0o600,
        _ => mode & 0o777 | 0o600,
    }
}

/// Returns true if the mode on disk cannot hold all facts.
pub(crate) fn needs_record(record: &Record) -> bool {
    matches!(record.kind, FileKind::Char | FileKind::Block)
        || (record.uid, record.gid) != (0, 0)
        || record.mode & 0o6777 != disk_mode(record.kind, record.mode)
        || record.xattrs.keys().any(|name| !is_plain_xattr(name))
}

/// The mode on disk of a file in this form.
fn mode_with_mark(record: &Record) -> u32 {
    let mark = if needs_record(record) { MARK } else { record.mode & MARK };
    disk_mode(record.kind, record.mode) | mark
}

/// Converts a tree to this form. `owners` has the facts that are not on disk, and new records are
/// added to it. With `shared`, its files may be hard links to a layer's.
pub fn convert_tree(
    root: impl AsFd,
    owners: &mut Owners,
    shared: bool,
) -> Result<Converted, Error> {
    let top = crate::copy::reopen(&root)?;
    let mut work = Work {
        root: crate::copy::reopen(&root)?,
        owners,
        shared,
        copied: HashMap::new(),
        names: HashMap::new(),
        by_path: Owners::new(),
    };
    let mut stack = DirStack::new(top)?;
    work.directory(&stack)?;
    let mut pending = vec![work.files(&stack)?];
    while let Some(directories) = pending.last_mut() {
        let Some(name) = directories.pop() else {
            pending.pop();
            stack.leave()?;
            continue;
        };
        let path = stack.path_of(&name);
        // The table has the true mode of directories that have to be opened by force.
        let stat =
            sys::fs::stat(stack.fd(), &name).map_err(|errno| Error::disk("stat", &path, errno))?;
        work.note_mode(&path, &stat);
        let fd = sys::fs::open_dir_force(stack.fd(), &name)
            .map_err(|errno| Error::disk("open directory", &path, errno))?;
        stack.enter_fd(&name, fd)?;
        work.directory(&stack)?;
        pending.push(work.files(&stack)?);
    }
    let mut inodes: Vec<(u64, u32)> = work.names.into_iter().collect();
    inodes.sort_unstable();
    Ok(Converted { inodes, by_path: work.by_path })
}

/// As [`convert_tree`], for single new paths of a tree in use. Returns the records that could not
/// be set.
pub fn convert_paths(root: impl AsFd, paths: &[Vec<u8>], owners: &Owners) -> Result<Owners, Error> {
    let root = root.as_fd();
    let mut by_path = Owners::new();
    for path in paths {
        let fail = |step, errno| Error::disk(step, path, errno);
        let (parent, name) = split(path);
        let place = resolve::in_root(root, parent, |missing| Err(missing.errno))
            .map_err(|errno| fail("open directory", errno))?;
        let full = resolve::join(&place.path, name);
        let stat = match sys::fs::stat(&place.dir, name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(fail("stat", errno)),
        };
        let kind = FileKind::from_mode(stat.st_mode);
        let record = owners.get(&full).cloned().unwrap_or_else(|| plain(&stat));
        let flags = match kind {
            FileKind::Directory => OFlags::DIRECTORY,
            FileKind::File => OFlags::empty(),
            _ => {
                let link = kind == FileKind::Symlink;
                if (record.uid, record.gid) != (0, 0) || !link && needs_record(&record) {
                    by_path.insert(&full, record);
                }
                continue;
            }
        };
        let fd =
            sys::fs::open_read(&place.dir, name, flags).map_err(|errno| fail("open", errno))?;
        if !write(&fd, &full, stat.st_mode, &record)? {
            by_path.insert(&full, record);
        }
    }
    Ok(by_path)
}

/// Marks all inodes of a tree that have a record and no mark. A file that cannot be opened stays as
/// it is.
pub fn mark_records(top: OwnedFd) -> Result<(), Error> {
    let mark = |fd: &OwnedFd, path: &[u8]| -> Result<(), Error> {
        let stat = rustix::fs::fstat(fd).map_err(|errno| Error::disk("stat", path, errno))?;
        let text = sys::fs::xattr::get(fd, OWNER_XATTR).ok().flatten();
        let record = text.and_then(|text| Record::from_xattr(&text));
        match record.filter(|_| stat.st_mode & MARK == 0) {
            Some(record) => write(fd, path, stat.st_mode, &record).map(drop),
            None => Ok(()),
        }
    };
    mark(&crate::copy::reopen(&top)?, b"")?;
    let mut stack = DirStack::new(top)?;
    let list = |stack: &DirStack| {
        read_dir(stack.fd()).map_err(|errno| Error::disk("read directory", &stack.path(), errno))
    };
    let mut pending = vec![list(&stack)?];
    while let Some(entries) = pending.last_mut() {
        let Some(entry) = entries.pop() else {
            pending.pop();
            stack.leave()?;
            continue;
        };
        if !matches!(entry.kind, Kind::Directory | Kind::RegularFile) {
            continue;
        }
        let path = stack.path_of(&entry.name);
        let Ok(fd) = sys::fs::open_read(stack.fd(), &entry.name, OFlags::empty()) else { continue };
        mark(&fd, &path)?;
        if entry.kind == Kind::Directory {
            stack.enter_fd(&entry.name, fd)?;
            pending.push(list(&stack)?);
        }
    }
    Ok(())
}

/// The record of a file as the disk shows it.
fn plain(stat: &Stat) -> Record {
    Record {
        kind: FileKind::from_mode(stat.st_mode),
        mode: stat.st_mode & 0o7777,
        uid: 0,
        gid: 0,
        device: (0, 0),
        xattrs: BTreeMap::new(),
    }
}

struct Work<'a> {
    root: OwnedFd,
    owners: &'a mut Owners,
    shared: bool,
    /// Inodes of a layer that were replaced: path of the copy.
    copied: HashMap<u64, Vec<u8>>,
    names: HashMap<u64, u32>,
    by_path: Owners,
}

impl Work<'_> {
    /// The record of a path, from the table or the disk.
    fn record(&self, path: &[u8], stat: &Stat) -> Record {
        self.owners.get(path).cloned().unwrap_or_else(|| plain(stat))
    }

    /// Adds a mode to the table that the disk will not hold.
    fn note_mode(&mut self, path: &[u8], stat: &Stat) {
        let record = self.record(path, stat);
        if needs_record(&record) {
            self.owners.insert(path, record);
        }
    }

    /// Converts the current directory of the walk.
    fn directory(&mut self, stack: &DirStack) -> Result<(), Error> {
        let path = stack.path();
        let stat =
            rustix::fs::fstat(stack.fd()).map_err(|errno| Error::disk("stat", &path, errno))?;
        let record = self.record(&path, &stat);
        if needs_record(&record) {
            self.owners.insert(&path, record.clone());
        }
        if !write(stack.fd(), &path, stat.st_mode, &record)? {
            self.by_path.insert(&path, record);
        }
        Ok(())
    }

    /// Converts everything in a directory except directories, whose names are returned.
    fn files(&mut self, stack: &DirStack) -> Result<Vec<Vec<u8>>, Error> {
        let dir = stack.fd();
        let fail = |step, errno| Error::disk(step, &stack.path(), errno);
        let before = rustix::fs::fstat(dir).map_err(|errno| fail("stat", errno))?;
        let mut directories = Vec::new();
        let mut touched = false;
        for entry in read_dir(dir).map_err(|errno| fail("read directory", errno))? {
            let path = stack.path_of(&entry.name);
            match entry.kind {
                Kind::Directory => directories.push(entry.name),
                Kind::RegularFile => touched |= self.file(stack, &entry.name, &path)?,
                _ => self.special(stack, &entry.name, &path)?,
            }
        }
        if touched {
            let times = times((before.st_mtime, before.st_mtime_nsec as u32));
            rustix::fs::futimens(dir, &times).map_err(|errno| fail("set the time of", errno))?;
        }
        Ok(directories)
    }

    /// Handles symbolic links, pipes and sockets.
    fn special(&mut self, stack: &DirStack, name: &[u8], path: &[u8]) -> Result<(), Error> {
        let stat =
            sys::fs::stat(stack.fd(), name).map_err(|errno| Error::disk("stat", path, errno))?;
        let mut record = self.record(path, &stat);
        record.kind = FileKind::from_mode(stat.st_mode);
        let link = record.kind == FileKind::Symlink;
        if (record.uid, record.gid) != (0, 0) || !link && needs_record(&record) {
            self.by_path.insert(path, record.clone());
        }
        let mode = disk_mode(record.kind, record.mode);
        if !link && stat.st_mode & 0o7777 != mode {
            let fd = rustix::fs::openat(stack.fd(), name, sys::fs::NAME_ONLY, Mode::empty())
                .map_err(|errno| Error::disk("open", path, errno))?;
            sys::fs::chmod_fd(&fd, mode)
                .map_err(|errno| Error::disk("set the mode of", path, errno))?;
        }
        Ok(())
    }

    /// Converts a regular file; returns true if the directory was changed.
    fn file(&mut self, stack: &DirStack, name: &[u8], path: &[u8]) -> Result<bool, Error> {
        let dir = stack.fd();
        let stat = sys::fs::stat(dir, name).map_err(|errno| Error::disk("stat", path, errno))?;
        let record = self.record(path, &stat);
        let needs = needs_record(&record);
        if !needs && stat.st_mode & 0o7777 == mode_with_mark(&record) {
            self.count(stat.st_ino);
            return Ok(false);
        }
        if needs {
            self.owners.insert(path, record.clone());
        }
        if !self.shared || stat.st_nlink == 1 {
            let fd = sys::fs::open_read(dir, name, OFlags::empty())
                .map_err(|errno| Error::disk("open", path, errno))?;
            if !write(fd.as_fd(), path, stat.st_mode, &record)? {
                self.by_path.insert(path, record);
            }
            self.count(stat.st_ino);
            return Ok(false);
        }
        let new = if let Some(first) = self.copied.get(&stat.st_ino) {
            self.link_again(stack, first, path)?
        } else {
            let new = self.copy(stack, name, path, &record)?;
            self.copied.insert(stat.st_ino, path.to_vec());
            new
        };
        self.count(new);
        Ok(true)
    }

    fn count(&mut self, inode: u64) {
        *self.names.entry(inode).or_insert(0) += 1;
    }

    /// Links another name of a replaced file to the copy; returns its inode.
    fn link_again(&self, stack: &DirStack, first: &[u8], path: &[u8]) -> Result<u64, Error> {
        let fail = |step, errno| Error::disk(step, path, errno);
        let (parent, name) = split(first);
        let flags = sys::fs::NAME_ONLY | OFlags::DIRECTORY;
        let from = resolve::strict(&self.root, parent, flags, Method::Best)
            .map_err(|errno| fail("find the other name of", errno))?;
        let (_, own) = split(path);
        let dir = stack.fd();
        let _ = rustix::fs::unlinkat(dir, STAGING, AtFlags::empty());
        rustix::fs::linkat(&from, name, dir, STAGING, AtFlags::empty())
            .map_err(|errno| fail("link", errno))?;
        rustix::fs::renameat(dir, STAGING, dir, own).map_err(|errno| fail("rename", errno))?;
        sys::fs::stat(dir, own).map(|stat| stat.st_ino).map_err(|errno| fail("stat", errno))
    }

    /// Replaces a file by a copy; returns its inode.
    fn copy(
        &mut self,
        stack: &DirStack,
        name: &[u8],
        path: &[u8],
        record: &Record,
    ) -> Result<u64, Error> {
        let fail = |step, errno| Error::disk(step, path, errno);
        let dir = stack.fd();
        let source =
            sys::fs::open_read(dir, name, OFlags::empty()).map_err(|errno| fail("open", errno))?;
        let target = copy_file(&source, dir, STAGING, path)?;
        let stat = rustix::fs::fstat(&target).map_err(|errno| fail("stat", errno))?;
        if !write(target.as_fd(), path, stat.st_mode, record)? {
            self.by_path.insert(path, record.clone());
        }
        rustix::fs::renameat(dir, STAGING, dir, name).map_err(|errno| fail("rename", errno))?;
        Ok(stat.st_ino)
    }
}

/// A temporary name that no image uses.
const STAGING: &[u8] = b".coracle-settling\xff";

/// Copies a file with its plain attributes and its time; its mode is 0600.
pub(crate) fn copy_file(
    source: &OwnedFd,
    dir: impl AsFd,
    name: &[u8],
    path: &[u8],
) -> Result<OwnedFd, Error> {
    let fail = |step, errno| Error::disk(step, path, errno);
    let dir = dir.as_fd();
    let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let target = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600))
        .map_err(|errno| fail("create", errno))?;
    sys::fs::copy::contents(source, &target).map_err(|errno| fail("copy", errno))?;
    copy_attributes(source, &target, path, is_plain_xattr)?;
    let stat = rustix::fs::fstat(source).map_err(|errno| fail("stat", errno))?;
    rustix::fs::futimens(&target, &times((stat.st_mtime, stat.st_mtime_nsec as u32)))
        .map_err(|errno| fail("set the time of", errno))?;
    Ok(target)
}

/// Copies the attributes that `wanted` selects.
pub(crate) fn copy_attributes(
    source: impl AsFd,
    target: impl AsFd,
    path: &[u8],
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<(), Error> {
    let fail = |errno| Error::disk("copy an attribute of", path, errno);
    let (source, target) = (source.as_fd(), target.as_fd());
    for name in sys::fs::xattr::list(source).map_err(fail)? {
        if !wanted(&name) {
            continue;
        }
        if let Some(value) = sys::fs::xattr::get(source, &name).map_err(fail)? {
            sys::fs::xattr::set(target, &name, &value).map_err(fail)?;
        }
    }
    Ok(())
}

/// Converts an open file or directory. `false` if the record could not be set; the mode is set all
/// the same.
pub(crate) fn write(
    fd: impl AsFd,
    path: &[u8],
    mode_now: u32,
    record: &Record,
) -> Result<bool, Error> {
    let fail = |step, errno| Error::disk(step, path, errno);
    let fd = fd.as_fd();
    if !needs_record(record) {
        let wanted = mode_with_mark(record);
        if mode_now & 0o7777 != wanted {
            sys::fs::chmod_fd(fd, wanted).map_err(|errno| fail("set the mode of", errno))?;
        }
        return Ok(true);
    }
    write_marked(fd, path, mode_now, record)
}

/// The same with a record even where the mode on disk could hold all facts: the mark says that
/// there are more attributes.
pub(crate) fn write_marked(
    fd: impl AsFd,
    path: &[u8],
    mode_now: u32,
    record: &Record,
) -> Result<bool, Error> {
    let fail = |step, errno| Error::disk(step, path, errno);
    let fd = fd.as_fd();
    let wanted = disk_mode(record.kind, record.mode) | MARK;
    // Attributes can be set only while the mode lets the owner write.
    if mode_now & 0o200 == 0 {
        sys::fs::chmod_fd(fd, wanted & 0o777).map_err(|errno| fail("set the mode of", errno))?;
    }
    let mut carried = set(fd, path, OWNER_XATTR, record.to_xattr().as_bytes())?;
    for (name, value) in &record.xattrs {
        // An image must not set attributes that control overlay or Coracle.
        if name.starts_with(b"user.") {
            if is_plain_xattr(name) {
                set(fd, path, name, value)?;
            }
            continue;
        }
        carried &= set(fd, path, &[HIDDEN, name].concat(), value)?;
    }
    let mode = if carried { wanted } else { wanted & !MARK };
    sys::fs::chmod_fd(fd, mode).map_err(|errno| fail("set the mode of", errno))?;
    Ok(carried)
}

fn set(fd: impl AsFd, path: &[u8], name: &[u8], value: &[u8]) -> Result<bool, Error> {
    match sys::fs::xattr::set(fd, name, value) {
        Ok(()) => Ok(true),
        Err(
            Errno::OPNOTSUPP
            | Errno::NOSPC
            | Errno::TOOBIG
            | Errno::RANGE
            | Errno::PERM
            | Errno::NOSYS,
        ) => Ok(false),
        Err(errno) => Err(Error::disk("set an attribute of", path, errno)),
    }
}
