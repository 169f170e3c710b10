//! A hash table of the inodes that a container shares with its image, with the number of names that
//! each has in the image.
//!
//! In the container's file `inodes` an entry has 12 bytes: inode (8), names (4), little-endian.
//! Here it has two words. The high half of the second says if a copy has replaced the inode; then a
//! process that has the inode open may have to look for that copy. The table uses open addressing
//! and is at most half full, because nearly every `stat` of a file looks into it. Four consecutive
//! inodes, as a directory's files often have, begin in one cache line.

extern crate alloc;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

/// Number of words in an entry.
const ENTRY_WORDS: usize = 2;
/// Number of entries in a cache line.
const LINE: usize = 4;
/// Size of an entry in the file, in bytes.
const ENTRY: usize = 12;
/// Flag in the word of the names: a copy was made.
const REPLACED: u64 = 1 << 32;

/// The table.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    /// Number of inodes that were replaced.
    pub(super) replaced: &'a AtomicU64,
    pub(super) words: &'a [AtomicU64],
}

/// Iterates over the entries of the file.
pub(super) fn entries(file: &[u8]) -> impl Iterator<Item = (u64, u32)> {
    file.as_chunks::<ENTRY>().0.iter().filter_map(|entry| {
        let inode = u64::from_le_bytes(*entry.first_chunk()?);
        Some((inode, u32::from_le_bytes(*entry.last_chunk()?)))
    })
}

/// Number of entries in a file of this many bytes.
pub const fn count(bytes: usize) -> usize {
    bytes / ENTRY
}

/// Size of the table for this many entries, in words.
pub(super) const fn words(entries: usize) -> usize {
    (entries * 2).next_multiple_of(LINE) * ENTRY_WORDS
}

/// The first place for an inode's entry, of `places`.
fn home(inode: u64, places: usize) -> usize {
    // Fibonacci hashing; then the product's high half is evenly below the number of lines.
    let hash = (inode / LINE as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let line = (u128::from(hash) * (places / LINE) as u128) >> 64;
    line as usize * LINE + inode as usize % LINE
}

/// The table of a file's contents.
pub fn table(file: &[u8]) -> Vec<AtomicU64> {
    let mut words = Vec::new();
    words.resize_with(self::words(count(file.len())), AtomicU64::default);
    fill(&words, file);
    words
}

/// Enters the contents of the file into a table of zeros.
pub(super) fn fill(words: &[AtomicU64], file: &[u8]) {
    for (inode, names) in entries(file) {
        if let Some([key, value]) = place(words, inode) {
            key.store(inode, Ordering::Relaxed);
            value.store(names.into(), Ordering::Relaxed);
        }
    }
}

/// The entry of an inode, or the free one where it would be. Inode numbers begin at 1.
#[inline]
fn place(words: &[AtomicU64], inode: u64) -> Option<&[AtomicU64; ENTRY_WORDS]> {
    let (places, _) = words.as_chunks::<ENTRY_WORDS>();
    let home = home(inode, places.len());
    // At most half of the places are taken, so the search is short.
    places.get(home..)?.iter().chain(&places[..home]).find(|[key, _]| {
        let key = key.load(Ordering::Relaxed);
        key == inode || key == 0
    })
}

impl Image<'_> {
    #[inline]
    fn entry(&self, inode: u64) -> Option<&AtomicU64> {
        let [key, value] = place(self.words, inode)?;
        (inode != 0 && key.load(Ordering::Relaxed) == inode).then_some(value)
    }

    /// The number of an inode's names inside the image, if it belongs to the image.
    pub fn links(&self, inode: u64) -> Option<u32> {
        self.entry(inode).map(|entry| entry.load(Ordering::Relaxed) as u32)
    }

    /// Returns true if a copy may have replaced one of its names.
    pub fn is_replaced(&self, inode: u64) -> bool {
        self.replaced.load(Ordering::Relaxed) != 0
            && self.entry(inode).is_some_and(|entry| entry.load(Ordering::Relaxed) & REPLACED != 0)
    }

    /// Marks an inode as replaced; called before that happens.
    pub fn replace(&self, inode: u64) {
        if let Some(entry) = self.entry(inode) {
            entry.fetch_or(REPLACED, Ordering::Relaxed);
            self.replaced.fetch_add(1, Ordering::Relaxed);
        }
    }
}
