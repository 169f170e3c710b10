//! The copy that is made before a file changes that a container shares with its image.
//!
//! The same protocol as a tracer's: the copy is made in a directory of the container's own on the same file system, with contents, mode, times
//! and attributes, then renamed over the shared file, under a lock. So the name is never missing, nobody sees half a copy, and of several who
//! want one at once all but the first throw theirs away. A copy whose maker was killed stays under a name that begins with `.copy-of-`,
//! and is swept when nobody lives in the container.

use super::at::Name;
use super::calls::{self, CWD};
use super::inode_log::host_path;
use crate::{shared, system};
use core::ffi::CStr;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, LOCK_EX, O_CLOEXEC, O_CREAT, O_EXCL, O_NOFOLLOW,
    O_NONBLOCK, O_RDONLY, O_RDWR, S_IFMT, S_IFREG, SEEK_DATA, SEEK_HOLE, stat, timespec,
};
use view::Errno;
use view::calls::support::COPY;
use view::errno::Result;

/// How names of copies begin that are being made.
const UNFINISHED: &[u8] = b".copy-of-";
/// Bytes of the room in which names and values of attributes are read, and contents where the kernel does not copy them by itself.
const ROOM: usize = 192 * 1024;
/// The longest list of attributes, and the longest value.
const LONGEST: usize = 64 * 1024;

/// A descriptor, closed at the end.
struct Open(i32);

impl Drop for Open {
    fn drop(&mut self) {
        calls::close(self.0);
    }
}

/// Room that is mapped while a copy is made.
struct Room(u64);

impl Room {
    fn new() -> Result<Self> {
        let mapped = system::map(system::Place::Near(0), ROOM as u64, 3, None);
        mapped.map(Self).map_err(|_| Errno::ENOMEM)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: a mapping of this length that is ours alone.
        unsafe { core::slice::from_raw_parts_mut(self.0 as *mut u8, ROOM) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        system::unmap(self.0, ROOM as u64);
    }
}

/// Puts a copy in the place of a regular file. `path` is absolute. Somebody else's copy meanwhile is as good.
pub(super) fn copy_up(path: &CStr) -> Result<()> {
    let flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
    let source = Open(calls::openat(CWD, path, flags, 0)?);
    let mut room = Name::new();
    let (name, copy) = begin(&mut room)?;
    let result = fill(&source, &copy).and_then(|()| replace(&source, name, path));
    // The copy, where it was not taken.
    let _ = calls::unlinkat(CWD, name, 0);
    result
}

/// A file for a copy, and its name.
fn begin(room: &mut Name) -> Result<(&CStr, Open)> {
    let flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
    let maker = calls::gettid();
    let mut copy = None;
    let mut count = 0;
    while copy.is_none() {
        *room = Name::new();
        room.push(shared::places().copy_dir)?;
        room.push(b"/")?;
        room.push(UNFINISHED)?;
        room.push_number(maker)?;
        room.push(b"-")?;
        room.push_number(count)?;
        room.push(b"\0")?;
        match calls::open_made(room.as_c_str()?, flags) {
            // One with our number was killed over its copy, or left it by a signal.
            Err(Errno::EEXIST) => count += 1,
            result => copy = Some(Open(result?)),
        }
    }
    Ok((room.as_c_str()?, copy.ok_or(Errno::EEXIST)?))
}

fn replace(source: &Open, copy: &CStr, path: &CStr) -> Result<()> {
    let _lock = lock()?;
    let bytes = path.to_bytes();
    let slash = bytes.iter().rposition(|byte| *byte == b'/').ok_or(Errno::ENOENT)?;
    let mut room = Name::new();
    let parent = host_path(&mut room, &bytes[..slash.max(1)], b"")?;
    let before = calls::newfstatat(CWD, parent, 0)?;
    if !is_same(source, path)? {
        return Ok(());
    }
    shared::shared().image().replace(facts_of(source)?.st_ino);
    // Not an exchange: whoever has the shared file open is to see that its name is gone, and not where copies are made.
    match calls::renameat2((CWD, copy), (CWD, path), 0) {
        Err(Errno::ENOENT) => return Ok(()),
        result => result?,
    }
    // The directory's times are the guest's: for it, nothing happened here.
    let _ = calls::utimensat(CWD, Some(parent), Some(&times_of(&before)), 0);
    Ok(())
}

/// One replacement at a time in all processes of the container.
fn lock() -> Result<Open> {
    let mut room = Name::new();
    let path = host_path(&mut room, shared::places().copy_dir, b".copy-turn")?;
    let file = Open(calls::open_made(path, O_RDWR | O_CREAT | O_CLOEXEC)?);
    calls::flock(file.0, LOCK_EX).map(|()| file)
}

fn facts_of(file: &Open) -> Result<stat> {
    calls::newfstatat(file.0, c"", AT_EMPTY_PATH)
}

fn is_same(source: &Open, path: &CStr) -> Result<bool> {
    let source = facts_of(source)?;
    match calls::newfstatat(CWD, path, AT_SYMLINK_NOFOLLOW) {
        Ok(there) => Ok((there.st_dev, there.st_ino) == (source.st_dev, source.st_ino)),
        Err(Errno::ENOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Everything of a file but its name.
fn fill(source: &Open, copy: &Open) -> Result<()> {
    let facts = facts_of(source)?;
    if facts.st_mode & S_IFMT != S_IFREG {
        return Err(Errno::EINVAL);
    }
    let mut room = Room::new()?;
    contents(source.0, copy.0, facts.st_size as u64, room.bytes())?;
    attributes(source.0, copy.0, room.bytes())?;
    // By this the view knows the copy of a file that it still has open; where there are no attributes, by its size.
    let mut number = [0; 20];
    let _ = calls::fsetxattr(copy.0, COPY, decimal(facts.st_ino, &mut number));
    // Another group of the caller's; else the copy has the group that new files get here.
    let _ = calls::fchownat(copy.0, c"", u32::MAX, facts.st_gid, AT_EMPTY_PATH);
    calls::fchmod(copy.0, facts.st_mode & 0o7777)?;
    calls::utimensat(copy.0, None, Some(&times_of(&facts)), 0)
}

fn decimal(number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    let mut left = number;
    loop {
        at -= 1;
        // One decimal digit.
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            return &digits[at..];
        }
    }
}

/// When a file was read and written.
fn times_of(facts: &stat) -> [timespec; 2] {
    let time = |seconds, nanoseconds| timespec { tv_sec: seconds as _, tv_nsec: nanoseconds as _ };
    [time(facts.st_atime, facts.st_atime_nsec), time(facts.st_mtime, facts.st_mtime_nsec)]
}

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

/// Shared blocks where the file system can, copied by the kernel where it can, by hand else; holes stay holes.
fn contents(source: i32, copy: i32, size: u64, room: &mut [u8]) -> Result<()> {
    match calls::clone_contents(source, copy) {
        Ok(()) => return Ok(()),
        Err(Errno::EPERM | Errno::ETXTBSY) => {}
        Err(errno) if is_unsupported(errno) => {}
        Err(errno) => return Err(errno),
    }
    let mut position = 0;
    while position < size {
        let start = match calls::lseek(source, position, SEEK_DATA) {
            Err(Errno::ENXIO) => break,
            Err(_) => position,
            Ok(start) => start,
        };
        let end = calls::lseek(source, start, SEEK_HOLE).unwrap_or(size).min(size);
        range(source, copy, start, end, room)?;
        position = end;
    }
    calls::ftruncate(copy, size)
}

fn range(source: i32, copy: i32, start: u64, end: u64, room: &mut [u8]) -> Result<()> {
    const PIECE: u64 = 1 << 30;
    let mut at = start;
    while at < end {
        match calls::copy_file_range(source, copy, at, (end - at).min(PIECE)) {
            // Before the end: some file systems cannot do it and do not say so.
            Ok(0) => break,
            Ok(count) => at += count,
            Err(Errno::EINTR) => {}
            Err(errno) if is_unsupported(errno) => break,
            Err(errno) => return Err(errno),
        }
    }
    while at < end {
        let want = room.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        let got = calls::pread(source, &mut room[..want], at)?;
        if got == 0 {
            break;
        }
        calls::pwrite_all(copy, &room[..got], at)?;
        at += got as u64;
    }
    Ok(())
}

fn attributes(source: i32, copy: i32, room: &mut [u8]) -> Result<()> {
    let (names, values) = room.split_at_mut(LONGEST);
    let length = match calls::flistxattr(source, names) {
        Err(Errno::EOPNOTSUPP) => return Ok(()),
        result => result?,
    };
    let mut rest = &names[..length];
    while let Ok(name) = CStr::from_bytes_until_nul(rest) {
        rest = &rest[name.count_bytes() + 1..];
        let value = match calls::fgetxattr(source, name, &mut values[..LONGEST]) {
            Ok(length) => &values[..length],
            // Gone meanwhile, or not for us.
            Err(Errno::ENODATA | Errno::EOPNOTSUPP) => continue,
            Err(errno) => return Err(errno),
        };
        match calls::fsetxattr(copy, name, value) {
            // Labels of the host's policy are given by the host.
            Err(Errno::EPERM | Errno::EOPNOTSUPP | Errno::EACCES)
                if !name.to_bytes().starts_with(b"user.") => {}
            result => result?,
        }
    }
    Ok(())
}
