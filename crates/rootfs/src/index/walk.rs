//! Walks a tree and collects what its index says of each name.
//!
//! A directory's names get consecutive numbers, sorted. The names of its first subdirectory follow,
//! then all that is below that, then the next subdirectory's: what lies together in the tree lies
//! together in the index.

use crate::error::Error;
use crate::owner_xattrs::{HIDDEN, MARK};
use crate::owners::{FileKind, OWNER_XATTR, Owners, Record};
use abi::index::{Entry, File, flags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use std::collections::HashMap;
use std::ops::Range;
use sys::fs::{DirStack, Kind, read_dir};

/// Prefix of the attributes that belong to Coracle.
const OWN: &[u8] = b"user.coracle.";
/// How a regular file is opened for its attributes.
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);
/// The largest numbers of devices that a record holds.
const MAJOR_MAX: u32 = 0xfff;
const MINOR_MAX: u32 = 0xf_ffff;

/// The names of a tree, in the order of their numbers.
pub(super) struct Names {
    found: Vec<Found>,
    /// Names and targets of links.
    texts: Vec<u8>,
    /// Number of names of each inode that has several.
    several: HashMap<u64, u32>,
}

struct Found {
    entry: Entry,
    owner: (u32, u32),
    name: Range<usize>,
    target: Range<usize>,
}

/// What is not on disk as the guest sees it.
struct Truth {
    mode: u32,
    owner: (u32, u32),
    device: (u32, u32),
    flags: u8,
}

/// Walks the tree. `loose` has the records that fit on no inode.
pub(super) fn walk(top: OwnedFd, loose: &Owners) -> Result<Names, Error> {
    let mut walk = Walk {
        loose,
        device: 0,
        names: Names { found: Vec::new(), texts: Vec::new(), several: HashMap::new() },
    };
    let mut stack = DirStack::new(top)?;
    walk.root(stack.fd())?;
    let mut pending = vec![walk.directory(&stack, abi::index::ROOT)?];
    while let Some(directories) = pending.last_mut() {
        let Some((number, name)) = directories.pop() else {
            pending.pop();
            stack.leave()?;
            continue;
        };
        stack.enter(&name)?;
        pending.push(walk.directory(&stack, number)?);
    }
    Ok(walk.names)
}

impl Names {
    /// As the writer of an index wants them.
    pub(super) fn files(&self) -> impl Iterator<Item = File<'_>> {
        let text = |range: &Range<usize>| self.texts.get(range.clone()).unwrap_or_default();
        self.found.iter().map(move |found| {
            let mut entry = found.entry;
            if let Some(count) = self.several.get(&entry.inode)
                && !entry.is_directory()
            {
                set_links(&mut entry, u64::from(*count));
            }
            let (name, target) = (text(&found.name), text(&found.target));
            File { entry, owner: found.owner, name, target }
        })
    }

    fn text(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.texts.len();
        self.texts.extend_from_slice(bytes);
        start..self.texts.len()
    }
}

struct Walk<'a> {
    loose: &'a Owners,
    /// The file system of the tree.
    device: u64,
    names: Names,
}

impl Walk<'_> {
    fn root(&mut self, top: BorrowedFd<'_>) -> Result<(), Error> {
        let stat = rustix::fs::fstat(top).map_err(|errno| Error::disk("stat", b"", errno))?;
        self.device = stat.st_dev;
        self.add(abi::index::ROOT, b"", &stat, &on_disk(&stat), b"")?;
        Ok(())
    }

    /// Adds the names of a directory, which has a record already, and returns its subdirectories,
    /// the last one first.
    fn directory(&mut self, stack: &DirStack, own: u32) -> Result<Vec<(u32, Vec<u8>)>, Error> {
        let fail = |step, errno| Error::disk(step, &stack.path(), errno);
        let stat = rustix::fs::fstat(stack.fd()).map_err(|errno| fail("stat", errno))?;
        let truth = self.truth(&stat, Some(stack.fd()), || stack.path())?;
        if let Some(found) = self.names.found.get_mut(own as usize) {
            found.set(&truth);
        }
        let mut entries = read_dir(stack.fd()).map_err(|errno| fail("read directory", errno))?;
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let mut directories = Vec::new();
        for entry in entries {
            let number = self.name(stack, own, &entry)?;
            if entry.kind == Kind::Directory {
                directories.push((number, entry.name));
            }
        }
        directories.reverse();
        Ok(directories)
    }

    /// Adds a name of the current directory; the attributes of a subdirectory come when the walk
    /// enters it.
    fn name(
        &mut self,
        stack: &DirStack,
        parent: u32,
        entry: &sys::fs::Entry,
    ) -> Result<u32, Error> {
        let name = &entry.name;
        let fail = |step, errno| Error::disk(step, &stack.path_of(name), errno);
        let path = || stack.path_of(name);
        if entry.kind == Kind::RegularFile {
            // Its status comes from the descriptor: one look for the name less.
            let file = rustix::fs::openat(stack.fd(), name, FILE, Mode::empty())
                .map_err(|errno| fail("open", errno))?;
            let stat = rustix::fs::fstat(&file).map_err(|errno| fail("stat", errno))?;
            let truth = self.truth(&stat, Some(file.as_fd()), path)?;
            return self.add(parent, name, &stat, &truth, b"");
        }
        let stat = sys::fs::stat(stack.fd(), name).map_err(|errno| fail("stat", errno))?;
        let mut target = Vec::new();
        if entry.kind == Kind::Symlink {
            target = rustix::fs::readlinkat(stack.fd(), name, Vec::new())
                .map_err(|errno| fail("read the link", errno))?
                .into_bytes();
        }
        let truth = match entry.kind {
            Kind::Directory => on_disk(&stat),
            _ => self.truth(&stat, None, path)?,
        };
        self.add(parent, name, &stat, &truth, &target)
    }

    fn add(
        &mut self,
        parent: u32,
        name: &[u8],
        stat: &Stat,
        truth: &Truth,
        target: &[u8],
    ) -> Result<u32, Error> {
        if stat.st_dev != self.device {
            return Err(super::refused("another file system is mounted in the tree"));
        }
        let number = u32::try_from(self.names.found.len())
            .map_err(|_| super::refused("the image has more names than an index can hold"))?;
        let mut found = Found {
            entry: Entry { parent, ..facts(stat) },
            owner: (0, 0),
            name: self.names.text(name),
            target: self.names.text(target),
        };
        found.set(truth);
        if found.entry.is_directory() {
            set_links(&mut found.entry, stat.st_nlink);
        } else if stat.st_nlink > 1 {
            *self.names.several.entry(stat.st_ino).or_default() += 1;
        }
        self.names.found.push(found);
        Ok(number)
    }

    /// What the guest sees of a file. `fd` is the file, if it can have attributes of users.
    fn truth(
        &self,
        stat: &Stat,
        fd: Option<BorrowedFd<'_>>,
        path: impl Fn() -> Vec<u8>,
    ) -> Result<Truth, Error> {
        let mut truth = on_disk(stat);
        let mut text = None;
        if let Some(fd) = fd {
            if stat.st_mode & MARK != 0 {
                truth.flags |= flags::MARKED;
            }
            let fail = |errno| Error::disk("read an attribute of", &path(), errno);
            for name in sys::fs::xattr::list(fd).map_err(fail)? {
                if name == OWNER_XATTR && stat.st_mode & MARK != 0 {
                    text = sys::fs::xattr::get(fd, OWNER_XATTR).map_err(fail)?;
                } else if !name.starts_with(OWN) || name.starts_with(HIDDEN) {
                    truth.flags |= flags::ATTRIBUTES;
                }
            }
        }
        if let Some(text) = text {
            match Record::from_xattr(&text) {
                Some(record) => truth.recorded(&record),
                // Whoever asks the kernel decides what it means.
                None => truth.flags |= flags::ASK,
            }
            // After the two numbers of the device come letters for access lists.
            let lists = text.split(|byte| *byte == b':').nth(6);
            if lists.is_some_and(|letters| !letters.is_empty()) {
                truth.flags |= flags::ATTRIBUTES;
            }
        } else if !self.loose.is_empty()
            && let Some(record) = self.loose.get(&path())
        {
            truth.recorded(record);
        }
        Ok(truth)
    }
}

impl Truth {
    fn recorded(&mut self, record: &Record) {
        self.mode = kind_bits(record.kind) | record.mode & 0o7777;
        self.owner = (record.uid, record.gid);
        self.device = record.device;
        if !record.xattrs.is_empty() {
            self.flags |= flags::ATTRIBUTES;
        }
    }

    fn is_device(&self) -> bool {
        let kind = FileType::from_raw_mode(self.mode);
        matches!(kind, FileType::CharacterDevice | FileType::BlockDevice)
    }
}

impl Found {
    /// Replaces what the disk does not say.
    fn set(&mut self, truth: &Truth) {
        let entry = &mut self.entry;
        entry.mode = truth.mode as u16;
        entry.flags |= truth.flags;
        self.owner = truth.owner;
        if truth.is_device() {
            let (major, minor) = truth.device;
            if major > MAJOR_MAX || minor > MINOR_MAX {
                entry.flags |= flags::ASK;
            }
            entry.data = Entry::of_device(major & MAJOR_MAX, minor);
            entry.size = 0;
        }
    }
}

/// A file without a record.
fn on_disk(stat: &Stat) -> Truth {
    let device = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    Truth { mode: stat.st_mode, owner: (0, 0), device, flags: 0 }
}

/// What the disk says of any file.
fn facts(stat: &Stat) -> Entry {
    let mut entry = Entry { inode: stat.st_ino, links: 1, ..Entry::default() };
    let mut asks = false;
    let mut time = |seconds: i64, nanoseconds: u64| {
        let all = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        i64::try_from(all).unwrap_or_else(|_| {
            asks = true;
            0
        })
    };
    entry.mtime = time(stat.st_mtime, stat.st_mtime_nsec);
    entry.ctime = time(stat.st_ctime, stat.st_ctime_nsec);
    let mut fits = |number: i64| u64::try_from(number).inspect_err(|_| asks = true);
    entry.size = fits(stat.st_size).unwrap_or_default();
    let blocks = fits(stat.st_blocks).unwrap_or_default();
    entry.blocks = u32::try_from(blocks).unwrap_or_else(|_| {
        asks = true;
        u32::MAX
    });
    if asks {
        entry.flags |= flags::ASK;
    }
    entry
}

/// Sets the number of names.
fn set_links(entry: &mut Entry, count: u64) {
    entry.links = u16::try_from(count).unwrap_or_else(|_| {
        entry.flags |= flags::ASK;
        u16::MAX
    });
    // Some file systems count no names of directories.
    entry.links = entry.links.max(1);
}

/// `S_IFMT` of a kind.
fn kind_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Char => FileType::CharacterDevice,
        FileKind::Block => FileType::BlockDevice,
        FileKind::Socket => FileType::Socket,
    }
    .as_raw_mode()
}
