//! File-system calls by descriptor, safe against hostile trees and races.
//!
//! All of them start from a directory descriptor and go down by single names that are never
//! followed if they are symbolic links, or by `openat2` with `RESOLVE_BENEATH |
//! RESOLVE_NO_SYMLINKS` if the kernel has it (5.6). A path is a byte string without a leading
//! slash, relative to the descriptor.
//!
//! - [`resolve`]: open a directory beneath another, strictly or with links resolved inside the
//!   root;
//! - [`DirStack`]: go down and up in a tree of any depth with a bounded number of open descriptors;
//! - [`remove_tree`]: delete everything that its owner may delete, whatever its modes;
//! - [`copy`]: file contents by reflink, `copy_file_range` or read and write, holes kept;
//! - [`xattr`]: extended attributes of open files;
//! - [`whiteout`]: overlay's deletion marks.
//!
//! This module has no policy, no locks, and no process-wide state except the cached fact whether
//! `openat2` exists.

pub mod calls;
pub mod copy;
mod dirs;
mod error;
mod remove;
pub mod resolve;
pub mod whiteout;
pub mod xattr;

pub use dirs::{DirStack, Entry, Kind, read_dir};
pub use error::Error;
pub use remove::remove_tree;

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::{self, Errno};

/// Flags with which every directory is opened for reading: close on exec, never through a link.
pub const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

/// Flags of a descriptor that only names a file.
pub const NAME_ONLY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The process's file mode creation mask, read without changing it (which would race with other
/// threads); `None` before Linux 4.7 or without `/proc`.
#[must_use]
pub fn umask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

/// Does something in a directory, which may be an `O_PATH` descriptor, and sets its modification
/// time back to what it was, where the caller may.
pub fn keep_time<T>(dir: impl AsFd, work: impl FnOnce() -> T) -> T {
    let dir = dir.as_fd();
    let before = fs::fstat(dir);
    let done = work();
    if let Ok(stat) = before {
        let times = fs::Timestamps {
            last_access: fs::Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
            last_modification: fs::Timespec {
                tv_sec: stat.st_mtime,
                tv_nsec: stat.st_mtime_nsec as _,
            },
        };
        let _ = fs::utimensat(dir, c".", &times, AtFlags::empty());
    }
    done
}

/// Bytes that [`read_rest`] gets with one call.
const AT_ONCE: usize = 4096;

/// Reads a regular file from where it is to its end. A small one costs one call: only at its end a
/// regular file gives less than was asked for.
pub fn read_rest(file: impl AsFd) -> io::Result<Vec<u8>> {
    let file = file.as_fd();
    let mut bytes = Vec::new();
    let mut buffer = [0; AT_ONCE];
    loop {
        let count = io::retry_on_intr(|| io::read(file, &mut buffer))?;
        bytes.extend_from_slice(&buffer[..count]);
        if count < AT_ONCE {
            return Ok(bytes);
        }
    }
}

/// Writes all bytes to a file, from `position` on.
pub fn pwrite_all(fd: impl AsFd, mut bytes: &[u8], mut position: u64) -> io::Result<()> {
    let fd = fd.as_fd();
    while !bytes.is_empty() {
        match io::pwrite(fd, bytes, position) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                bytes = &bytes[count..];
                position += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Changes the mode of the file of `fd`, which may be an `O_PATH` descriptor; never follows a link.
pub fn chmod_fd(fd: impl AsFd, mode: u32) -> io::Result<()> {
    let fd = fd.as_fd();
    match fs::fchmod(fd, Mode::from_raw_mode(mode)) {
        Err(Errno::BADF) => {}
        other => return other,
    }
    // `fchmod` refuses O_PATH, and `fchmodat2` only came with 6.6; the magic link works everywhere.
    fs::chmod(format!("/proc/self/fd/{}", fd.as_raw_fd()), Mode::from_raw_mode(mode))
}

/// Opens a directory for reading even if its mode forbids that to its owner: the mode is then
/// widened permanently.
pub fn open_dir_force(dir: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    let dir = dir.as_fd();
    match fs::openat(dir, name, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => {}
        other => return other,
    }
    let path = fs::openat(dir, name, NAME_ONLY | OFlags::DIRECTORY, Mode::empty())?;
    let mode = fs::fstat(&path)?.st_mode & 0o7777;
    chmod_fd(&path, mode | 0o700)?;
    fs::openat(dir, name, DIRECTORY, Mode::empty())
}

/// How often [`open_read`] tries while other processes open the same file in the same way.
const OPEN_TRIES: usize = 100;

/// Opens a regular file or a directory for reading. If its mode forbids that to its owner, the mode
/// is widened during the call and restored before it returns.
pub fn open_read(dir: impl AsFd, name: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let dir = dir.as_fd();
    let flags = flags
        | OFlags::RDONLY
        | OFlags::NOFOLLOW
        | OFlags::CLOEXEC
        | OFlags::NONBLOCK
        | OFlags::NOCTTY;
    let needed = if flags.contains(OFlags::DIRECTORY) { 0o500 } else { 0o400 };
    for _ in 0..OPEN_TRIES {
        match fs::openat(dir, name, flags, Mode::empty()) {
            Err(Errno::ACCESS) => {}
            other => return other,
        }
        let path = fs::openat(dir, name, NAME_ONLY, Mode::empty())?;
        let mode = fs::fstat(&path)?.st_mode & 0o7777;
        if mode & needed == needed {
            // Another thread or process has widened the mode just now, and restores the true mode
            // itself.
            std::thread::yield_now();
            continue;
        }
        if chmod_fd(&path, mode | needed).is_err() {
            return Err(Errno::ACCESS);
        }
        let opened = fs::openat(dir, name, flags, Mode::empty());
        chmod_fd(&path, mode)?;
        match opened {
            // The other one has restored the mode in between.
            Err(Errno::ACCESS) => {}
            other => return other,
        }
    }
    Err(Errno::ACCESS)
}

/// Metadata of a name, links not followed.
pub fn stat(dir: impl AsFd, name: &[u8]) -> io::Result<fs::Stat> {
    fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

#[cfg(test)]
mod tests;
