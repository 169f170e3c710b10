//! Copies file contents between descriptors: by shared blocks if the file system supports them,
//! else in the kernel if possible, else by read and write; holes stay holes.

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{self, SeekFrom};
use rustix::io::{self, Errno};

/// Method of copying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Shared blocks (`FICLONE`): btrfs, XFS, bcachefs, ZFS.
    Reflink,
    /// Real copies.
    Copy,
}

/// Copies everything from `source` into the empty file `target`; returns the method.
pub fn contents(source: impl AsFd, target: impl AsFd) -> io::Result<Method> {
    let (source, target) = (source.as_fd(), target.as_fd());
    match fs::ioctl_ficlone(target, source) {
        Ok(()) => return Ok(Method::Reflink),
        Err(errno) if is_unsupported(errno) || errno == Errno::PERM || errno == Errno::TXTBSY => {}
        Err(errno) => return Err(errno),
    }
    bytes(source, target)?;
    Ok(Method::Copy)
}

/// Shares all blocks of `source` with the empty file `target`; fails if that is impossible.
pub fn reflink(source: impl AsFd, target: impl AsFd) -> io::Result<()> {
    fs::ioctl_ficlone(target, source)
}

/// Copies data ranges and leaves holes.
pub fn bytes(source: impl AsFd, target: impl AsFd) -> io::Result<()> {
    let (source, target) = (source.as_fd(), target.as_fd());
    let size = fs::fstat(source)?.st_size as u64;
    let mut position = 0;
    while position < size {
        let (start, end) = data_range(source, position, size)?;
        if start >= size {
            break;
        }
        range(source, target, start, end)?;
        position = end;
    }
    fs::ftruncate(target, size)
}

/// The next range at or after `position` that holds data; starts at `size` if there is none.
pub fn data_range(file: impl AsFd, position: u64, size: u64) -> io::Result<(u64, u64)> {
    let file = file.as_fd();
    let start = match fs::seek(file, SeekFrom::Data(position)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok((size, size)),
        Err(_) => return Ok((position, size)),
    };
    let end = fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size);
    Ok((start.min(size), end.min(size)))
}

fn range(source: BorrowedFd<'_>, target: BorrowedFd<'_>, start: u64, end: u64) -> io::Result<()> {
    let (mut from, mut to) = (start, start);
    while from < end {
        let length = usize::try_from(end - from).unwrap_or(usize::MAX).min(1 << 30);
        match fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), length) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) if is_unsupported(errno) => return by_hand(source, target, from, end),
            Err(errno) => return Err(errno),
        }
    }
    // Zero bytes before the end: some file systems (procfs, old overlay) do not support the call
    // and report no error.
    if from < end { by_hand(source, target, from, end) } else { Ok(()) }
}

fn by_hand(source: BorrowedFd<'_>, target: BorrowedFd<'_>, start: u64, end: u64) -> io::Result<()> {
    let mut buffer = vec![0_u8; 256 * 1024];
    let mut position = start;
    while position < end {
        let want = usize::try_from(end - position).unwrap_or(usize::MAX).min(buffer.len());
        let got = match io::pread(source, &mut buffer[..want], position) {
            Ok(0) => return Ok(()),
            Ok(got) => got,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        };
        let mut done = 0;
        while done < got {
            match io::pwrite(target, &buffer[done..got], position + done as u64) {
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        position += got as u64;
    }
    Ok(())
}

fn is_unsupported(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::XDEV | Errno::INVAL | Errno::NOTTY | Errno::BADF
    )
}
