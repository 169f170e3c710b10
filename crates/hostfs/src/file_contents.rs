//! Copies everything of a file but its name: contents, attributes, group, mode and times.

use crate::copy_up::times_of;
use crate::io;
use crate::kernel::{BUFFER, Kernel, OpenFile, Target};
use crate::layout::Decimal;
use core::ffi::CStr;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, S_IFMT, S_IFREG, SEEK_DATA, SEEK_HOLE, XATTR_CREATE, stat,
};
use view::calls::support::COPY;
use view::errno::Result;
use view::identity::OWNER;
use view::identity::record::ORIGIN;
use view::{Errno, HostFd};

/// The longest list of attributes, and the longest value (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const LONGEST: usize = 64 * 1024;
/// Most bytes that one `copy_file_range` is asked for.
const PIECE: u64 = 1 << 30;
const _: () = assert!(2 * LONGEST <= BUFFER, "a list and a value do not fit");

/// Makes the empty file `copy` the same as `source` with this status, and notes the inode that it
/// was made of.
pub(crate) fn fill<K: Kernel>(
    kernel: &K,
    (source, status): (&OpenFile<'_, K>, &stat),
    copy: &OpenFile<'_, K>,
    origin: Origin<'_>,
) -> Result<()> {
    if status.st_mode & S_IFMT != S_IFREG {
        return Err(Errno::EINVAL);
    }
    let (from, to) = (source.fd(), copy.fd());
    kernel.with_buffer(|buffer| contents(kernel, from, to, status.st_size as u64, buffer))?;
    metadata(kernel, (source, status), copy, origin)
}

/// How a copy shows which file it was made of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// By an attribute.
    Attribute,
    /// By another one, and a record with this text if it has none: then its mark says that there
    /// is more to be read, and the copy keeps the number of the file.
    Record(&'a [u8]),
    /// By the attributes that it has itself.
    Same,
}

/// The bit of a mode on disk that says that there is a record.
const MARK: u32 = 0o1000;

/// Gives a file attributes, group, mode and times of another one, and notes the inode that it was
/// made of.
pub(crate) fn metadata<K: Kernel>(
    kernel: &K,
    (source, status): (&OpenFile<'_, K>, &stat),
    copy: &OpenFile<'_, K>,
    origin: Origin<'_>,
) -> Result<()> {
    let (from, to) = (source.fd(), copy.fd());
    kernel.with_buffer(|buffer| attributes(kernel, from, to, buffer))?;
    // By this the view recognises the copy of a file that a process still has open; where there
    // are no attributes, it goes by the size.
    let inode = Decimal::new(status.st_ino);
    let mark = match origin {
        Origin::Attribute => {
            let _ = kernel.setxattr(Target::File(to), COPY, inode.as_bytes(), 0);
            0
        }
        Origin::Same => 0,
        Origin::Record(text) => {
            kernel.setxattr(Target::File(to), ORIGIN, inode.as_bytes(), 0)?;
            match kernel.setxattr(Target::File(to), OWNER, text, XATTR_CREATE) {
                Ok(()) | Err(Errno::EEXIST) => MARK,
                Err(errno) => return Err(errno),
            }
        }
    };
    // The file may have another group of the caller's. If that cannot be given, the copy keeps
    // the group that new files get here.
    let _ = kernel.fchownat(to, c"", u32::MAX, status.st_gid, AT_EMPTY_PATH);
    kernel.fchmod(to, status.st_mode & 0o7777 | mark)?;
    kernel.utimensat(to, None, Some(&times_of(status)), 0)
}

/// Whether the kernel or the file system cannot do a call at all for these files.
fn is_unsupported(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::EOPNOTSUPP
            | Errno::ENOSYS
            | Errno::EXDEV
            | Errno::EINVAL
            | Errno::ENOTTY
            | Errno::EBADF
    )
}

/// Shares blocks where the file system can, else has the kernel copy, else reads and writes.
/// Holes stay holes.
fn contents(
    kernel: &impl Kernel,
    source: HostFd,
    copy: HostFd,
    size: u64,
    buffer: &mut [u8],
) -> Result<()> {
    match kernel.clone_contents(source, copy) {
        Ok(()) => return Ok(()),
        Err(Errno::EPERM | Errno::ETXTBSY) => {}
        Err(errno) if is_unsupported(errno) => {}
        Err(errno) => return Err(errno),
    }
    let mut position = 0;
    while position < size {
        let start = match kernel.lseek(source, position, SEEK_DATA) {
            Err(Errno::ENXIO) => break,
            // No holes are known: all of it is data.
            Err(_) => position,
            Ok(start) => start.max(position),
        };
        // A hole never begins where data does; else this loop might not end.
        let hole = kernel.lseek(source, start, SEEK_HOLE).ok().filter(|hole| *hole > start);
        let end = hole.unwrap_or(size).min(size);
        range(kernel, (source, copy), (start, end), buffer)?;
        position = end;
    }
    kernel.truncate(Target::File(copy), size)
}

fn range(
    kernel: &impl Kernel,
    (source, copy): (HostFd, HostFd),
    (start, end): (u64, u64),
    buffer: &mut [u8],
) -> Result<()> {
    let mut at = start;
    while at < end {
        match kernel.copy_file_range(source, copy, at, (end - at).min(PIECE)) {
            // Before the end: some file systems cannot do it and do not say so.
            Ok(0) => break,
            Ok(count) => at += count,
            Err(Errno::EINTR) => {}
            Err(errno) if is_unsupported(errno) => break,
            Err(errno) => return Err(errno),
        }
    }
    while at < end {
        let want = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        let piece = buffer.get_mut(..want).unwrap_or_default();
        let got = io::pread(kernel, source, piece, at)?;
        let Some(read @ [_, ..]) = piece.get(..got) else { break };
        io::pwrite_all(kernel, copy, read, at)?;
        at += got as u64;
    }
    Ok(())
}

fn attributes(
    kernel: &impl Kernel,
    source: HostFd,
    copy: HostFd,
    buffer: &mut [u8; BUFFER],
) -> Result<()> {
    let (names, values) = buffer.split_at_mut(LONGEST);
    let value = values.get_mut(..LONGEST).unwrap_or_default();
    let length = match kernel.listxattr(Target::File(source), names) {
        // The file system has no attributes, or the caller may not see any.
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EPERM) => return Ok(()),
        result => result?,
    };
    let mut rest = names.get(..length).unwrap_or_default();
    while let Ok(name) = CStr::from_bytes_until_nul(rest) {
        rest = rest.get(name.count_bytes() + 1..).unwrap_or_default();
        let length = match kernel.getxattr(Target::File(source), name, value) {
            Ok(length) => length,
            // It was removed meanwhile, or the caller may not read it.
            Err(Errno::ENODATA | Errno::EOPNOTSUPP | Errno::ENOSYS) => continue,
            Err(errno) => return Err(errno),
        };
        let value = value.get(..length).unwrap_or_default();
        match kernel.setxattr(Target::File(copy), name, value, 0) {
            // Labels of the host's policy are given by the host.
            Err(Errno::EPERM | Errno::EOPNOTSUPP | Errno::EACCES)
                if !name.to_bytes().starts_with(b"user.") => {}
            result => result?,
        }
    }
    Ok(())
}
