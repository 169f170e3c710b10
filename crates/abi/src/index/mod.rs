//! The index of an image: what every name in it is, in one file that never changes.
//!
//! A process that maps the file answers questions about the image's files without the kernel. The
//! file is made once for a flattened tree and checked once on each machine ([`check`]); from then
//! on it is only mapped, read-only.
//!
//! ```text
//!   header      sizes, digest, which tree it describes ([`Header`])
//!   records     64 bytes for each name ([`Entry`])
//!   slots       8 bytes each: a hash table of (directory, name), half full
//!   inodes      4 bytes each: a hash table of inode numbers, half full
//!   owners      8 bytes each: pairs of user and group id
//!   texts       names and targets of symbolic links
//! ```
//!
//! Records have numbers. Record 0 is the root, and the records of a directory's names follow each
//! other, sorted by name. A directory's number is less than those of its names, so there can be no
//! cycle. All numbers are little-endian; there are no pointers. Sections begin at multiples of 64
//! bytes.
//!
//! Reading never panics and never reads outside of the file, whatever the bytes are. Only a checked
//! file gives right answers.

mod build;
mod check;
mod entry;
#[cfg(test)]
mod tests;

pub use build::{BuildError, File, build};
pub use check::{Damage, check};
pub use entry::{Entry, flags};

use crate::shared::hash;
use core::ops::Range;

/// First bytes of the file. The last digits count versions of the format.
pub const MAGIC: [u8; 8] = *b"CorIdx02";
/// Size of the header in bytes.
pub const HEADER: usize = 128;
/// Where the header holds the SHA-256 digest of the whole file, in which these bytes are zeros.
pub const DIGEST: Range<usize> = 96..128;
/// Number of the root directory.
pub const ROOT: u32 = 0;
/// The greatest number of records.
pub const RECORDS_MAX: usize = 1 << 30;

/// Size of a record in bytes.
const RECORD: usize = 64;
/// Size of a slot in bytes.
const SLOT: usize = 8;
/// Size of an entry in the table of inodes.
const INODE: usize = 4;
/// Size of a pair of ids.
const OWNER: usize = 8;
/// Sections begin at multiples of this.
const ALIGN: usize = 64;

/// The header: what the sections hold, and which tree this is the index of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Number of records.
    pub records: u32,
    /// Number of inodes in the table.
    pub inodes: u32,
    /// Number of pairs of ids.
    pub owners: u32,
    /// Bytes of names and targets.
    pub texts: u32,
    /// `st_blksize` of the tree's files.
    pub block_size: u32,
}

/// Where the sections lie, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Layout {
    records: Range<usize>,
    slots: Range<usize>,
    inodes: Range<usize>,
    owners: Range<usize>,
    texts: Range<usize>,
}

impl Layout {
    /// `None` if a size is impossible.
    fn of(header: &Header) -> Option<Self> {
        let records = usize::try_from(header.records).ok()?;
        let inodes = usize::try_from(header.inodes).ok()?;
        if records == 0 || records > RECORDS_MAX || inodes > records {
            return None;
        }
        let mut end = HEADER;
        let mut section = |count: usize, size: usize| {
            let start = end.checked_next_multiple_of(ALIGN)?;
            end = start.checked_add(count.checked_mul(size)?)?;
            Some(start..end)
        };
        Some(Self {
            records: section(records, RECORD)?,
            slots: section(slots_for(records), SLOT)?,
            inodes: section(inode_slots_for(inodes), INODE)?,
            owners: section(usize::try_from(header.owners).ok()?, OWNER)?,
            texts: section(usize::try_from(header.texts).ok()?, 1)?,
        })
    }
}

/// Number of slots for so many records, of which the root needs none.
const fn slots_for(records: usize) -> usize {
    records * 2
}

/// Number of places in the table of inodes: whole cache lines.
const fn inode_slots_for(inodes: usize) -> usize {
    (inodes * 2).next_multiple_of(LINE)
}

/// Number of entries of the table of inodes in a cache line. Consecutive inodes, as a directory's
/// files often have, begin in one.
const LINE: usize = ALIGN / INODE;

/// The hash of a name in a directory.
fn name_hash(directory: u32, name: &[u8]) -> u64 {
    hash(name, directory.into())
}

/// A hash's place in a table of `places`.
fn place(hash: u64, places: usize) -> usize {
    ((u128::from(hash) * places as u128) >> 64) as usize
}

/// The part of a slot that tells most names apart.
const fn tag(hash: u64) -> u32 {
    hash as u32
}

/// The first place of an inode.
fn inode_place(inode: u64, places: usize) -> usize {
    let line = (inode / LINE as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    place(line, places / LINE) * LINE + inode as usize % LINE
}

impl Header {
    fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        let numbers = [self.records, self.inodes, self.owners, self.texts, self.block_size];
        for (place, number) in bytes[8..].as_chunks_mut().0.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; HEADER]) -> Option<Self> {
        if !bytes.starts_with(&MAGIC) {
            return None;
        }
        let numbers = bytes[8..].as_chunks().0;
        let number = |at: usize| numbers.get(at).map_or(0, |bytes| u32::from_le_bytes(*bytes));
        Some(Self {
            records: number(0),
            inodes: number(1),
            owners: number(2),
            texts: number(3),
            block_size: number(4),
        })
    }
}

/// An index in memory.
#[derive(Debug, Clone, Copy)]
pub struct Index<'a> {
    header: Header,
    records: &'a [[u8; RECORD]],
    slots: &'a [[u8; SLOT]],
    inodes: &'a [[u8; INODE]],
    owners: &'a [[u8; OWNER]],
    texts: &'a [u8],
}

impl<'a> Index<'a> {
    /// Finds the sections of a file. `None` if it is of another version, or too short or too long
    /// for what its header says. What the sections hold is not looked at: see [`check`].
    pub fn open(bytes: &'a [u8]) -> Option<Self> {
        let header = Header::from_bytes(bytes.first_chunk()?)?;
        let Layout { records, slots, inodes, owners, texts } = Layout::of(&header)?;
        if texts.end != bytes.len() {
            return None;
        }
        Some(Self {
            header,
            records: bytes.get(records)?.as_chunks().0,
            slots: bytes.get(slots)?.as_chunks().0,
            inodes: bytes.get(inodes)?.as_chunks().0,
            owners: bytes.get(owners)?.as_chunks().0,
            texts: bytes.get(texts)?,
        })
    }

    /// The header.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Number of records.
    pub const fn len(&self) -> usize {
        self.records.len()
    }

    /// An index has at least its root.
    pub const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// What a record says.
    #[inline]
    pub fn entry(&self, number: u32) -> Option<Entry> {
        self.records.get(number as usize).map(Entry::from_bytes)
    }

    /// Its name in its directory; empty for the root.
    #[inline]
    pub fn name(&self, entry: &Entry) -> &'a [u8] {
        self.text(entry.name, entry.name_length.into())
    }

    /// The target of a symbolic link; empty for other files.
    #[inline]
    pub fn target(&self, entry: &Entry) -> &'a [u8] {
        if entry.is_link() { self.text(entry.data, entry.count as usize) } else { b"" }
    }

    fn text(&self, start: u32, length: usize) -> &'a [u8] {
        let start = start as usize;
        start.checked_add(length).and_then(|end| self.texts.get(start..end)).unwrap_or_default()
    }

    /// User and group of a file.
    #[inline]
    pub fn owner(&self, entry: &Entry) -> (u32, u32) {
        let pair = self.owners.get(usize::from(entry.owner)).copied().unwrap_or_default();
        let both = u64::from_le_bytes(pair);
        (both as u32, (both >> 32) as u32)
    }

    /// The numbers of a directory's names, sorted by name; none for other files.
    #[inline]
    pub fn children(&self, entry: &Entry) -> Range<u32> {
        if entry.is_directory() { entry.data..entry.data.saturating_add(entry.count) } else { 0..0 }
    }

    /// The record of a name in a directory. The bytes are one component of a path: not empty, not
    /// `.` or `..`.
    #[inline]
    pub fn child(&self, directory: u32, name: &[u8]) -> Option<u32> {
        let hash = name_hash(directory, name);
        let start = place(hash, self.slots.len());
        let (before, after) = self.slots.split_at_checked(start)?;
        for slot in after.iter().chain(before) {
            let slot = u64::from_le_bytes(*slot);
            if slot == 0 {
                return None;
            }
            if (slot >> 32) as u32 != tag(hash) {
                continue;
            }
            let number = (slot as u32).wrapping_sub(1);
            if let Some(entry) = self.entry(number)
                && entry.parent == directory
                && self.name(&entry) == name
            {
                return Some(number);
            }
        }
        None
    }

    /// The first record of an inode of the tree; of several names of one file the one with the
    /// least number.
    #[inline]
    pub fn by_inode(&self, inode: u64) -> Option<u32> {
        let start = inode_place(inode, self.inodes.len());
        let (before, after) = self.inodes.split_at_checked(start)?;
        for slot in after.iter().chain(before) {
            let number = u32::from_le_bytes(*slot).checked_sub(1)?;
            if self.entry(number).is_some_and(|entry| entry.inode == inode) {
                return Some(number);
            }
        }
        None
    }

    /// Puts the path of a record from the root into the beginning of `into`, without a slash before
    /// it; empty for the root. Returns its length; `None` if it does not fit, or the index is
    /// damaged.
    pub fn path(&self, number: u32, into: &mut [u8]) -> Option<usize> {
        let length = self.path_length(number)?;
        let (mut number, mut end) = (number, length);
        while number != ROOT {
            let entry = self.entry(number)?;
            let name = self.name(&entry);
            let start = end.checked_sub(name.len())?;
            into.get_mut(start..end)?.copy_from_slice(name);
            if start > 0 {
                *into.get_mut(start - 1)? = b'/';
            }
            end = start.saturating_sub(1);
            number = entry.parent;
        }
        Some(length)
    }

    fn path_length(&self, number: u32) -> Option<usize> {
        let (mut number, mut length) = (number, 0_usize);
        while number != ROOT {
            let entry = self.entry(number)?;
            length = length.checked_add(usize::from(entry.name_length) + 1)?;
            // A directory's number is less than those of its names.
            number = Some(entry.parent).filter(|parent| *parent < number)?;
        }
        // No slash before the first.
        Some(length.saturating_sub(1))
    }
}
