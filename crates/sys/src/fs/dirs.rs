//! Lists directories, and walks down and up in trees of any depth.

use super::{DIRECTORY, Error};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, FileType, Mode, RawDir};
use rustix::io::{self, Errno};
use std::mem::MaybeUninit;

/// Kind of a directory entry.
pub type Kind = FileType;

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name, without slash or NUL.
    pub name: Vec<u8>,
    /// Its kind; never [`Kind::Unknown`].
    pub kind: Kind,
    /// Inode number in the directory.
    pub inode: u64,
}

/// Reads a directory from its start, without `.` and `..`, in the file system's order.
pub fn read_dir(dir: impl AsFd) -> io::Result<Vec<Entry>> {
    let dir = dir.as_fd();
    fs::seek(dir, fs::SeekFrom::Start(0))?;
    let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
    let mut iterator = RawDir::new(dir, &mut buffer);
    let mut entries = Vec::new();
    while let Some(entry) = iterator.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let mut kind = entry.file_type();
        if kind == Kind::Unknown {
            match super::stat(dir, name) {
                Ok(stat) => kind = Kind::from_raw_mode(stat.st_mode),
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno),
            }
        }
        entries.push(Entry { name: name.to_vec(), kind, inode: entry.ino() });
    }
    Ok(entries)
}

/// Number of directories of one stack that stay open.
const OPEN_MAX: usize = 48;

struct Level {
    name: Vec<u8>,
    device: u64,
    inode: u64,
    fd: Option<OwnedFd>,
}

/// A position in a tree, with the path back to its start.
///
/// Only the last few directories stay open. A closed one is found again through `..` and must then
/// be the same inode, so that a directory that is moved meanwhile cannot lead the walk out of the
/// tree.
pub struct DirStack {
    levels: Vec<Level>,
}

impl DirStack {
    /// Starts at an open directory.
    pub fn new(root: OwnedFd) -> Result<Self, Error> {
        let stat = fs::fstat(&root).map_err(|errno| Error::new("stat", b"", errno))?;
        let root =
            Level { name: Vec::new(), device: stat.st_dev, inode: stat.st_ino, fd: Some(root) };
        Ok(Self { levels: vec![root] })
    }

    /// The current directory.
    ///
    /// # Panics
    /// Never: the top of the stack is always open.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.levels.last().and_then(|level| level.fd.as_ref()).expect("the top is open").as_fd()
    }

    /// The depth, 0 at the start.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.levels.len() - 1
    }

    /// Path of the current directory relative to the start; empty there.
    #[must_use]
    pub fn path(&self) -> Vec<u8> {
        let mut path = Vec::new();
        for level in &self.levels[1..] {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&level.name);
        }
        path
    }

    /// Path of a name in the current directory.
    #[must_use]
    pub fn path_of(&self, name: &[u8]) -> Vec<u8> {
        let mut path = self.path();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }

    /// Device and inode of the start.
    #[must_use]
    pub fn root_id(&self) -> (u64, u64) {
        (self.levels[0].device, self.levels[0].inode)
    }

    /// Goes into a subdirectory.
    pub fn enter(&mut self, name: &[u8]) -> Result<(), Error> {
        let fd = fs::openat(self.fd(), name, DIRECTORY, Mode::empty())
            .map_err(|errno| Error::new("open directory", &self.path_of(name), errno))?;
        self.enter_fd(name, fd)
    }

    /// Goes into a subdirectory that is already open.
    pub fn enter_fd(&mut self, name: &[u8], fd: OwnedFd) -> Result<(), Error> {
        let stat =
            fs::fstat(&fd).map_err(|errno| Error::new("stat", &self.path_of(name), errno))?;
        let count = self.levels.len();
        if count > OPEN_MAX {
            // Level 0 stays open: the walk started there.
            self.levels[count - OPEN_MAX].fd = None;
        }
        self.levels.push(Level {
            name: name.to_vec(),
            device: stat.st_dev,
            inode: stat.st_ino,
            fd: Some(fd),
        });
        Ok(())
    }

    /// Goes back to the parent and returns the name that was left; `None` at the start.
    ///
    /// # Panics
    /// Never: the start cannot be left.
    pub fn leave(&mut self) -> Result<Option<Vec<u8>>, Error> {
        if self.levels.len() == 1 {
            return Ok(None);
        }
        let Some(left) = self.levels.pop() else { return Ok(None) };
        let missing = self.levels.last().is_some_and(|level| level.fd.is_none());
        if missing && let Some(fd) = &left.fd {
            let path = self.path();
            let parent = fs::openat(fd, "..", DIRECTORY, Mode::empty())
                .map_err(|errno| Error::new("go back to directory", &path, errno))?;
            let stat = fs::fstat(&parent).map_err(|errno| Error::new("stat", &path, errno))?;
            let level = self.levels.last_mut().expect("checked above");
            if (stat.st_dev, stat.st_ino) != (level.device, level.inode) {
                return Err(Error::new("go back to directory (it was moved)", &path, Errno::STALE));
            }
            level.fd = Some(parent);
        }
        Ok(Some(left.name))
    }
}
