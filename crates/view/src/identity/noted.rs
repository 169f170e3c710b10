//! Stores extended attributes of inodes that cannot have user attributes: links, pipes, sockets,
//! and all files on a file system without attributes.
//!
//! They are one record in the log, beside the one with the inode's owner. A record is small (some
//! two hundred bytes), so this is for the labels that programs put on such files, not for data. A
//! value that does not fit is refused with `ENOSPC`, as file systems do that keep attributes in the
//! inode.

use super::record::{NOTE_KEY, note_key};
use crate::errno::{Errno, Result};
use crate::guest::Host;
use linux_raw_sys::general::{XATTR_CREATE, XATTR_REPLACE, statx};

/// The greatest size of a record, in bytes.
const ROOM: usize = 212;

/// All attributes of one inode, one after the other: name, a zero byte, length of the value in one
/// byte, value.
struct Noted {
    bytes: [u8; ROOM],
    length: usize,
}

/// One attribute, and its position.
struct Entry<'n> {
    start: usize,
    end: usize,
    name: &'n [u8],
    value: &'n [u8],
}

fn key_of(facts: &statx) -> [u8; NOTE_KEY + 1] {
    let mut key = [b'x'; NOTE_KEY + 1];
    key[1..].copy_from_slice(&note_key(facts));
    key
}

impl Noted {
    fn read(host: &mut impl Host, facts: &statx) -> Self {
        let mut bytes = [0; ROOM];
        let length = host.note(&key_of(facts), &mut bytes).unwrap_or(0).min(ROOM);
        Self { bytes, length }
    }

    fn write(&self, host: &mut impl Host, facts: &statx) -> Result<()> {
        let record = &self.bytes[..self.length];
        host.set_note(&key_of(facts), (!record.is_empty()).then_some(record))
    }

    fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut start = 0;
        core::iter::from_fn(move || {
            let rest = self.bytes.get(start..self.length)?;
            let nul = rest.iter().position(|byte| *byte == 0)?;
            let size = usize::from(*rest.get(nul + 1)?);
            let value = rest.get(nul + 2..nul + 2 + size)?;
            let end = start + nul + 2 + size;
            let entry = Entry { start, end, name: &rest[..nul], value };
            start = end;
            Some(entry)
        })
    }

    fn find(&self, name: &[u8]) -> Option<Entry<'_>> {
        self.entries().find(|entry| entry.name == name)
    }

    fn remove(&mut self, start: usize, end: usize) {
        self.bytes.copy_within(end..self.length, start);
        self.length -= end - start;
    }

    fn push(&mut self, bytes: &[u8]) -> Result<()> {
        let end = self.length + bytes.len();
        self.bytes.get_mut(self.length..end).ok_or(Errno::ENOSPC)?.copy_from_slice(bytes);
        self.length = end;
        Ok(())
    }
}

/// Reads an attribute as getxattr(2) does: `ENODATA` if it does not exist, `ERANGE` if `into` is
/// too short; an empty `into` asks for the length.
pub fn get(host: &mut impl Host, facts: &statx, name: &[u8], into: &mut [u8]) -> Result<usize> {
    let noted = Noted::read(host, facts);
    let value = noted.find(name).ok_or(Errno::ENODATA)?.value;
    if !into.is_empty() {
        into.get_mut(..value.len()).ok_or(Errno::ERANGE)?.copy_from_slice(value);
    }
    Ok(value.len())
}

/// Sets an attribute as setxattr(2) does, with its flags.
pub fn set(
    host: &mut impl Host,
    facts: &statx,
    name: &[u8],
    value: &[u8],
    flags: u32,
) -> Result<()> {
    let mut noted = Noted::read(host, facts);
    match noted.find(name) {
        Some(_) if flags & XATTR_CREATE != 0 => return Err(Errno::EEXIST),
        None if flags & XATTR_REPLACE != 0 => return Err(Errno::ENODATA),
        Some(Entry { start, end, .. }) => noted.remove(start, end),
        None => {}
    }
    let size = u8::try_from(value.len()).map_err(|_| Errno::ENOSPC)?;
    noted.push(name)?;
    noted.push(&[0, size])?;
    noted.push(value)?;
    noted.write(host, facts)
}

/// Removes an attribute as removexattr(2) does.
pub fn remove(host: &mut impl Host, facts: &statx, name: &[u8]) -> Result<()> {
    let mut noted = Noted::read(host, facts);
    let Entry { start, end, .. } = noted.find(name).ok_or(Errno::ENODATA)?;
    noted.remove(start, end);
    noted.write(host, facts)
}

/// Appends the names for which `shown` returns true to a list of `length` bytes; returns the new
/// length.
pub fn list(
    host: &mut impl Host,
    facts: &statx,
    into: &mut [u8],
    mut length: usize,
    shown: impl Fn(&[u8]) -> bool,
) -> Result<usize> {
    let noted = Noted::read(host, facts);
    for Entry { name, .. } in noted.entries().filter(|entry| shown(entry.name)) {
        let room = into.get_mut(length..=length + name.len()).ok_or(Errno::E2BIG)?;
        room[..name.len()].copy_from_slice(name);
        room[name.len()] = 0;
        length += room.len();
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::NO_FACTS;
    use crate::testing::Fake;

    #[test]
    fn attributes_behave_as_in_the_kernel() {
        let mut host = Fake::new();
        let facts = NO_FACTS;
        let mut into = [0; 16];
        assert_eq!(get(&mut host, &facts, b"trusted.a", &mut into), Err(Errno::ENODATA));
        assert_eq!(set(&mut host, &facts, b"trusted.a", b"1", XATTR_REPLACE), Err(Errno::ENODATA));
        set(&mut host, &facts, b"trusted.a", b"12", XATTR_CREATE).unwrap();
        set(&mut host, &facts, b"security.b", b"", 0).unwrap();
        assert_eq!(set(&mut host, &facts, b"trusted.a", b"1", XATTR_CREATE), Err(Errno::EEXIST));
        set(&mut host, &facts, b"trusted.a", b"345", 0).unwrap();
        assert_eq!(get(&mut host, &facts, b"trusted.a", &mut []), Ok(3));
        assert_eq!(get(&mut host, &facts, b"trusted.a", &mut into[..2]), Err(Errno::ERANGE));
        assert_eq!(get(&mut host, &facts, b"trusted.a", &mut into), Ok(3));
        assert_eq!(&into[..3], b"345");
        let mut names = *b"user.c\0.......................";
        let length = list(&mut host, &facts, &mut names, 7, |_| true).unwrap();
        assert_eq!(&names[..length], b"user.c\0security.b\0trusted.a\0");
        assert_eq!(set(&mut host, &facts, b"trusted.d", &[7; 250], 0), Err(Errno::ENOSPC));
        remove(&mut host, &facts, b"security.b").unwrap();
        assert_eq!(remove(&mut host, &facts, b"security.b"), Err(Errno::ENODATA));
        remove(&mut host, &facts, b"trusted.a").unwrap();
        assert!(host.notes.is_empty());
    }
}
