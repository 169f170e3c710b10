//! The inodes that a container shares with its image, and how many names each has there.
//!
//! In the container's file `inodes` an entry has 12 bytes: inode (8), names (4), little-endian. Here it has two words; the high half of the
//! second says whether a copy has taken the place of the inode, so that whoever has it open may have to look for that copy. The entries are an open
//! hash table, at most half full: nearly every look at a file asks it. Four inodes in a row, as a directory's files often are, begin in one cache line.

use core::sync::atomic::{AtomicU64, Ordering};

/// Words of an entry.
const ENTRY_WORDS: usize = 2;
/// Entries of a cache line.
const LINE: usize = 4;
/// Bytes of an entry in the file.
const ENTRY: usize = 12;
/// In the word of the names: a copy was made.
const REPLACED: u64 = 1 << 32;

/// The table.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    /// How many were replaced.
    pub(super) replaced: &'a AtomicU64,
    pub(super) words: &'a [AtomicU64],
}

/// Entries of the file's text.
pub(super) fn entries(file: &[u8]) -> impl Iterator<Item = (u64, u32)> {
    file.as_chunks::<ENTRY>().0.iter().filter_map(|entry| {
        let inode = u64::from_le_bytes(*entry.first_chunk()?);
        Some((inode, u32::from_le_bytes(*entry.last_chunk()?)))
    })
}

/// How many entries a file of this many bytes has.
pub const fn count(bytes: usize) -> usize {
    bytes / ENTRY
}

/// Words of the table for so many entries.
pub(super) const fn words(entries: usize) -> usize {
    (entries * 2).next_multiple_of(LINE) * ENTRY_WORDS
}

/// Where an inode's entry may be at first, of `places`.
fn home(inode: u64, places: usize) -> usize {
    // Fibonacci hashing; then the product's high half is evenly below the number of lines.
    let hash = (inode / LINE as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let line = (u128::from(hash) * (places / LINE) as u128) >> 64;
    line as usize * LINE + inode as usize % LINE
}

impl Image<'_> {
    /// Enters what the file says.
    pub(super) fn fill(&self, file: &[u8]) {
        for (inode, names) in entries(file) {
            if let Some([key, value]) = self.place(inode) {
                key.store(inode, Ordering::Relaxed);
                value.store(names.into(), Ordering::Relaxed);
            }
        }
    }

    /// The words of an inode, or those where they would be. There is none of number 0.
    #[inline]
    fn place(&self, inode: u64) -> Option<&[AtomicU64; ENTRY_WORDS]> {
        let (places, _) = self.words.as_chunks::<ENTRY_WORDS>();
        let home = home(inode, places.len());
        // At most half of them are taken, so this ends soon.
        places.get(home..)?.iter().chain(&places[..home]).find(|[key, _]| {
            let key = key.load(Ordering::Relaxed);
            key == inode || key == 0
        })
    }

    #[inline]
    fn entry(&self, inode: u64) -> Option<&AtomicU64> {
        let [key, value] = self.place(inode)?;
        (inode != 0 && key.load(Ordering::Relaxed) == inode).then_some(value)
    }

    /// How many names an inode has inside the image, if it is the image's.
    pub fn links(&self, inode: u64) -> Option<u32> {
        self.entry(inode).map(|entry| entry.load(Ordering::Relaxed) as u32)
    }

    /// Whether a copy may have taken the place of one of its names.
    pub fn is_replaced(&self, inode: u64) -> bool {
        self.replaced.load(Ordering::Relaxed) != 0
            && self.entry(inode).is_some_and(|entry| entry.load(Ordering::Relaxed) & REPLACED != 0)
    }

    /// Says so, before it happens.
    pub fn replace(&self, inode: u64) {
        if let Some(entry) = self.entry(inode) {
            entry.fetch_or(REPLACED, Ordering::Relaxed);
            self.replaced.fetch_add(1, Ordering::Relaxed);
        }
    }
}
