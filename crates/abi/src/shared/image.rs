//! The inodes that a container shares with its image, and how many names each has there.
//!
//! In the container's file `inodes` an entry has 12 bytes: inode (8), names (4), little-endian, sorted. Here it has two words.

use core::sync::atomic::{AtomicU64, Ordering};

/// Words of an entry.
pub(super) const ENTRY_WORDS: usize = 2;
/// Bytes of an entry in the file.
const ENTRY: usize = 12;

/// The list.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
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

pub(super) fn fill(words: &[AtomicU64], file: &[u8]) {
    let (places, _) = words.as_chunks::<ENTRY_WORDS>();
    for ([inode, names], entry) in places.iter().zip(entries(file)) {
        inode.store(entry.0, Ordering::Relaxed);
        names.store(entry.1.into(), Ordering::Relaxed);
    }
}

impl Image<'_> {
    /// How many names an inode has inside the image, if it is the image's.
    pub fn links(&self, inode: u64) -> Option<u32> {
        let (entries, _) = self.words.as_chunks::<ENTRY_WORDS>();
        let at =
            entries.binary_search_by_key(&inode, |entry| entry[0].load(Ordering::Relaxed)).ok()?;
        Some(entries[at][1].load(Ordering::Relaxed) as u32)
    }
}
