//! Computes the disk usage of a tree.
use crate::error::Error;
use rustix::fs::{CWD, Mode};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use sys::fs::{DirStack, Kind, read_dir};

/// Size and number of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes of the blocks on disk.
    pub disk: u64,
    /// Sum of the file sizes.
    pub apparent: u64,
    /// Files of any kind, hard links counted once.
    pub inodes: u64,
    /// Directories that the caller may not read (they belong to a subordinate id): their content is
    /// not counted.
    pub unreadable: u64,
}

/// Adds up everything below a host path.
pub fn tree_usage(path: &Path) -> Result<Usage, Error> {
    let fail = |step, at: &[u8], errno| Error::disk(step, at, errno);
    let top = rustix::fs::openat(CWD, path, sys::fs::DIRECTORY, Mode::empty())
        .map_err(|errno| fail("open directory", path.as_os_str().as_bytes(), errno))?;
    let mut usage = Usage::default();
    let mut seen = HashSet::new();
    let mut stack = DirStack::new(top)?;
    let mut pending =
        vec![read_dir(stack.fd()).map_err(|errno| fail("read directory", b".", errno))?];
    while let Some(entries) = pending.last_mut() {
        let Some(entry) = entries.pop() else {
            pending.pop();
            stack.leave()?;
            continue;
        };
        let stat = match sys::fs::stat(stack.fd(), &entry.name) {
            Ok(stat) => stat,
            Err(rustix::io::Errno::NOENT) => continue,
            Err(errno) => return Err(fail("stat", &stack.path_of(&entry.name), errno)),
        };
        let is_directory = entry.kind == Kind::Directory;
        if is_directory || stat.st_nlink == 1 || seen.insert((stat.st_dev, stat.st_ino)) {
            usage.disk += stat.st_blocks as u64 * 512;
            usage.apparent += stat.st_size as u64;
            usage.inodes += 1;
        }
        if is_directory && stat.st_dev == stack.root_id().0 {
            let name = entry.name;
            let fd = match sys::fs::open_read(stack.fd(), &name, rustix::fs::OFlags::DIRECTORY) {
                Ok(fd) => fd,
                Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => {
                    usage.unreadable += 1;
                    continue;
                }
                Err(rustix::io::Errno::NOENT) => continue,
                Err(errno) => return Err(fail("open directory", &stack.path_of(&name), errno)),
            };
            stack.enter_fd(&name, fd)?;
            let path = stack.path();
            pending
                .push(read_dir(stack.fd()).map_err(|errno| fail("read directory", &path, errno))?);
        }
    }
    Ok(usage)
}
