//! Makes a container's tree from an image's: new directories, and hard links to the image's files.
//!
//! No process writes to such a file: the engines that use these trees replace it by a copy first
//! (see the inode list). If a hard link is impossible (another file system, too many links, a store
//! of another user), the file is copied, with shared blocks if the file system supports them.

mod pair;

use crate::apply::times;
use crate::drivers::ROOT;
use crate::error::Error;
use crate::owner_xattrs::{INODES, copy_attributes, copy_file};
use pair::Pair;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::num::NonZero;
use std::sync::{Mutex, MutexGuard, PoisonError};
use sys::fs::resolve::{self, Method, split};
use sys::fs::{DirStack, Entry, Kind, read_dir};

/// Temporary name of a copy until it replaces a file.
const STAGING: &[u8] = b".coracle-owning\xff";

/// Contents of a new tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Linked {
    /// Number of hard links.
    pub links: u64,
    /// Number of copied files.
    pub copies: u64,
}

impl Linked {
    fn add(&mut self, other: Self) {
        self.links += other.links;
        self.copies += other.copies;
    }
}

/// Makes a tree like `source` at `directory/name`.
pub fn link_tree(source: impl AsFd, directory: impl AsFd, name: &str) -> Result<Linked, Error> {
    link_selected(source, directory, name, None)
}

/// Copies a container's tree of hard links for another container: files of the image by hard links,
/// the container's own files by copies. Both arguments are containers' directories.
pub fn clone_tree(from: impl AsFd, to: impl AsFd) -> Result<Linked, Error> {
    let (from, to) = (crate::copy::reopen(from)?, crate::copy::reopen(to)?);
    share_file(&from, &to, INODES)?;
    let list = read_list(&from)?;
    let source = rustix::fs::openat(&from, ROOT, sys::fs::DIRECTORY, Mode::empty())
        .map_err(|errno| Error::disk("open directory", ROOT.as_bytes(), errno))?;
    link_selected(&source, &to, ROOT, Some(&list))
}

/// Replaces a container's hard links to files of the image by copies, for engines whose programs
/// write to files directly.
///
/// Each file is replaced in one step; the list of the image's inodes stays until the last one is
/// replaced. No process may run in the container.
pub fn copy_shared_files(container: impl AsFd) -> Result<(), Error> {
    let container = crate::copy::reopen(container)?;
    let list = read_list(&container)?;
    let top = rustix::fs::openat(&container, ROOT, sys::fs::DIRECTORY, Mode::empty())
        .map_err(|errno| Error::disk("open directory", ROOT.as_bytes(), errno))?;
    copy_shared_below(top, &list, false)?;
    match rustix::fs::unlinkat(&container, INODES, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(Error::disk("remove", INODES.as_bytes(), errno)),
    }
}

/// The same for a tree of any name. With `specials`, links, pipes and sockets with several names
/// become several.
pub(crate) fn copy_shared_below(
    top: OwnedFd,
    list: &HashSet<u64>,
    specials: bool,
) -> Result<(), Error> {
    let (root, copied) = (crate::copy::reopen(&top)?, Mutex::default());
    let mut work = Work { specials, ..Work::new(&root, &copied, Some(list)) };
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
    Ok(())
}

/// Makes a container's upper directory like another one's: files of the image by hard links, the
/// container's own files by copies. `tree` is the directory of the image's tree.
pub fn clone_upper(from: impl AsFd, to: impl AsFd, tree: impl AsFd) -> Result<Linked, Error> {
    let list = read_list(&crate::copy::reopen(tree)?)?;
    let source = rustix::fs::openat(&from, UPPER, sys::fs::DIRECTORY, Mode::empty())
        .map_err(|errno| Error::disk("open directory", UPPER.as_bytes(), errno))?;
    let (from, to) = (crate::copy::reopen(from)?, crate::copy::reopen(to)?);
    share_copy(&from, &to, crate::redirects::MOVED)?;
    link_selected(&source, &to, UPPER, Some(&list))
}

/// The upper directory.
const UPPER: &str = "upper";

/// Reads an inode list.
pub(crate) fn read_list(container: &OwnedFd) -> Result<HashSet<u64>, Error> {
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

/// Maximum number of threads at one tree: the file system's own locks make more useless.
const THREADS: usize = 4;

/// Trees this far below the top are assigned to a thread as a whole.
const SHARED: usize = 3;

/// Makes a tree: its upper directories in this thread, their contents in as many threads as there
/// are processors.
fn link_selected(
    source: impl AsFd,
    directory: impl AsFd,
    name: &str,
    only: Option<&HashSet<u64>>,
) -> Result<Linked, Error> {
    let directory = directory.as_fd();
    let fail = |step, errno| Error::disk(step, name.as_bytes(), errno);
    rustix::fs::mkdirat(directory, name, Mode::from_raw_mode(0o700))
        .map_err(|errno| fail("make directory", errno))?;
    let target = rustix::fs::openat(directory, name, sys::fs::DIRECTORY, Mode::empty())
        .map_err(|errno| fail("open directory", errno))?;
    let source = crate::copy::reopen(source)?;
    let copied = Mutex::default();
    let mut pair = Pair::new(&source, &target)?;
    let (mut upper, mut parts) = (Vec::new(), Vec::new());
    make_upper(&mut pair, &[], (&mut upper, &mut parts))?;
    let count = std::thread::available_parallelism().map_or(1, NonZero::get);
    let count = count.min(THREADS).min(parts.len());
    let queue = Mutex::new(parts.into_iter());
    let share = || {
        let mut work = Work::new(&target, &copied, only);
        let mut pair = Pair::new(&source, &target)?;
        let next = || lock(&queue).next();
        while let Some(Part { way, what }) = next() {
            pair.at(&way, |pair| match what {
                What::Files(entries) => work.files(pair, entries),
                What::Tree(name) => {
                    pair.make(&name)?;
                    work.tree(pair)
                }
            })?;
        }
        Ok(work.linked)
    };
    let done: Vec<Result<Linked, Error>> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..count).map(|_| scope.spawn(share)).collect();
        let mine = share();
        let ended = others
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        std::iter::once(mine).chain(ended).collect()
    });
    let mut all = Linked::default();
    for linked in done {
        all.add(linked?);
    }
    // Children first: a directory that its owner may not write to cannot be changed any more.
    for path in upper.iter().rev() {
        pair.at(path, |pair| pair.finish())?;
    }
    Ok(all)
}

/// The names from the top to a directory.
type Way = Vec<Vec<u8>>;

/// One thread's unit of work, in an existing directory.
struct Part {
    way: Way,
    what: What,
}

enum What {
    /// These files of the directory.
    Files(Vec<Entry>),
    /// A directory in it, with all contents.
    Tree(Vec<u8>),
}

/// Makes the upper directories; lists their paths, to finish them later, and the remaining work.
fn make_upper(
    pair: &mut Pair,
    way: &[Vec<u8>],
    (upper, parts): (&mut Vec<Way>, &mut Vec<Part>),
) -> Result<(), Error> {
    let part = |what| Part { way: way.to_vec(), what };
    let (directories, files) = pair.list()?;
    upper.push(way.to_vec());
    if !files.is_empty() {
        parts.push(part(What::Files(files)));
    }
    for name in directories {
        if way.len() + 1 == SHARED {
            parts.push(part(What::Tree(name)));
            continue;
        }
        pair.make(&name)?;
        make_upper(pair, &[way, &[name]].concat(), (upper, parts))?;
        pair.leave()?;
    }
    Ok(())
}

/// Locks a mutex even after a panic: each step is one call, so the data are whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shares a file of one directory with another, by a hard link or a copy. A missing file is
/// skipped.
pub(crate) fn share_file(from: &OwnedFd, to: &OwnedFd, name: &str) -> Result<(), Error> {
    match rustix::fs::linkat(from, name, to, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(_) => {}
    }
    let source = sys::fs::open_read(from, name.as_bytes(), OFlags::empty())
        .map_err(|errno| Error::disk("open", name.as_bytes(), errno))?;
    copy_file(&source, to, name.as_bytes(), name.as_bytes()).map(drop)
}

/// Copies a file of one directory into another. A missing file is skipped.
fn share_copy(from: &OwnedFd, to: &OwnedFd, name: &str) -> Result<(), Error> {
    let source = match sys::fs::open_read(from, name.as_bytes(), OFlags::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        source => source.map_err(|errno| Error::disk("open", name.as_bytes(), errno))?,
    };
    copy_file(&source, to, name.as_bytes(), name.as_bytes()).map(drop)
}

fn mtime(stat: &Stat) -> rustix::fs::Timestamps {
    times((stat.st_mtime, stat.st_mtime_nsec as u32))
}

/// The state of one thread.
struct Work<'a> {
    root: &'a OwnedFd,
    /// Inodes with several names that were copied: path of the copy.
    copied: &'a Mutex<HashMap<u64, Vec<u8>>>,
    linked: Linked,
    /// The inodes that may be linked; `None` for all.
    only: Option<&'a HashSet<u64>>,
    /// Links, pipes and sockets may be the image's, too.
    specials: bool,
}

impl<'a> Work<'a> {
    fn new(
        root: &'a OwnedFd,
        copied: &'a Mutex<HashMap<u64, Vec<u8>>>,
        only: Option<&'a HashSet<u64>>,
    ) -> Self {
        Self { root, copied, linked: Linked::default(), only, specials: false }
    }

    /// Fills a directory that has just been made; leaves it at the end.
    fn tree(&mut self, pair: &mut Pair) -> Result<(), Error> {
        let begin = |work: &mut Self, pair: &Pair| {
            let (directories, files) = pair.list()?;
            work.files(pair, files).map(|()| directories)
        };
        let mut pending = vec![begin(self, pair)?];
        while let Some(directories) = pending.last_mut() {
            if let Some(name) = directories.pop() {
                pair.make(&name)?;
                pending.push(begin(self, pair)?);
            } else {
                pending.pop();
                pair.finish()?;
                pair.leave()?;
            }
        }
        Ok(())
    }

    /// Links or copies files of a directory, of whatever kind.
    fn files(&mut self, Pair { from, to }: &Pair, entries: Vec<Entry>) -> Result<(), Error> {
        for entry in entries {
            let name = &entry.name[..];
            match entry.kind {
                Kind::Symlink => symlink(from.fd(), to.fd(), name),
                Kind::RegularFile if self.only.is_some_and(|only| !only.contains(&entry.inode)) => {
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
        Ok(())
    }

    /// Replaces the image's files in a directory by copies; returns the names of directories in it.
    fn own(&mut self, at: &DirStack) -> Result<Vec<Vec<u8>>, Error> {
        let fail = |step, errno| Error::disk(step, &at.path(), errno);
        let stat = rustix::fs::fstat(at.fd()).map_err(|errno| fail("stat", errno))?;
        let entries = read_dir(at.fd()).map_err(|errno| fail("read directory", errno))?;
        let mut directories = Vec::new();
        let mut changed = false;
        for entry in entries {
            let images = self.only.is_some_and(|only| only.contains(&entry.inode));
            match entry.kind {
                Kind::Directory => directories.push(entry.name),
                Kind::RegularFile if images => {
                    self.copy_as(at, at, &entry.name, STAGING)?;
                    rustix::fs::renameat(at.fd(), STAGING, at.fd(), &entry.name[..])
                        .map_err(|errno| fail("rename", errno))?;
                    changed = true;
                }
                Kind::Symlink | Kind::Fifo | Kind::Socket if self.specials => {
                    changed |= own_special(at, &entry)
                        .map_err(|errno| Error::disk("copy", &at.path_of(&entry.name), errno))?;
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

    /// Copies a file to another name, or links an earlier copy of the same inode.
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
        let stat = rustix::fs::fstat(&source).map_err(|errno| fail("stat", errno))?;
        // A thread that copies the same file under another name waits.
        let mut copied = (stat.st_nlink > 1).then(|| lock(self.copied));
        if let Some(copied) = &mut copied {
            if let Some(first) = copied.get(&stat.st_ino) {
                let (parent, other) = split(first);
                let flags = sys::fs::NAME_ONLY | OFlags::DIRECTORY;
                return resolve::strict(self.root, parent, flags, Method::Best)
                    .and_then(|dir| {
                        let _ = rustix::fs::unlinkat(to.fd(), new, AtFlags::empty());
                        rustix::fs::linkat(&dir, other, to.fd(), new, AtFlags::empty())
                    })
                    .map_err(|errno| fail("link", errno));
            }
            copied.insert(stat.st_ino, path.clone());
        }
        let target = copy_file(&source, to.fd(), new, &path)?;
        copy_attributes(&source, &target, &path, |name| name.starts_with(b"user.coracle."))?;
        rustix::fs::fchmod(&target, Mode::from_raw_mode(stat.st_mode & 0o7777))
            .map_err(|errno| fail("set the mode of", errno))?;
        self.linked.copies += 1;
        Ok(())
    }
}

/// Replaces a link, pipe or socket that has another name by one that has none; returns true if that
/// was needed.
fn own_special(at: &DirStack, entry: &Entry) -> Result<bool, Errno> {
    let (fd, name) = (at.fd(), &entry.name[..]);
    if sys::fs::stat(fd, name)?.st_nlink < 2 {
        return Ok(false);
    }
    let _ = rustix::fs::unlinkat(fd, STAGING, AtFlags::empty());
    match entry.kind {
        Kind::Symlink => symlink_as(fd, fd, name, STAGING)?,
        kind => special_as(fd, fd, (name, STAGING), kind)?,
    }
    rustix::fs::renameat(fd, STAGING, fd, name)?;
    Ok(true)
}

fn symlink(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    symlink_as(from, to, name, name)
}

fn symlink_as(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    name: &[u8],
    new: &[u8],
) -> Result<(), Errno> {
    let target = rustix::fs::readlinkat(from, name, Vec::new())?;
    rustix::fs::symlinkat(target, to, new)?;
    let stat = sys::fs::stat(from, name)?;
    rustix::fs::utimensat(to, new, &mtime(&stat), AtFlags::SYMLINK_NOFOLLOW)
}

fn special(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &[u8], kind: Kind) -> Result<(), Errno> {
    special_as(from, to, (name, name), kind)
}

fn special_as(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    (name, new): (&[u8], &[u8]),
    kind: Kind,
) -> Result<(), Errno> {
    let stat = sys::fs::stat(from, name)?;
    rustix::fs::mknodat(to, new, kind, Mode::from_raw_mode(0o600), 0)?;
    let made = rustix::fs::openat(to, new, sys::fs::NAME_ONLY, Mode::empty())?;
    sys::fs::chmod_fd(&made, stat.st_mode & 0o7777)?;
    rustix::fs::utimensat(to, new, &mtime(&stat), AtFlags::SYMLINK_NOFOLLOW)
}
