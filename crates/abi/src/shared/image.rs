//! The inodes that a container shares with its image, and how many names each has there.
//!
//! In the container's file `inodes` an entry has 12 bytes: inode (8), names (4), little-endian, sorted. Here it has two words; the high half of the
//! second says whether a copy has taken the place of the inode, so that whoever has it open may have to look for that copy. Of the list, which may
//! be long, an index has every so many inodes in one page: a new process that looks for an inode touches that page, and one of the list.

use core::sync::atomic::{AtomicU64, Ordering};

/// Words of an entry.
pub(super) const ENTRY_WORDS: usize = 2;
/// Words of the index.
pub(super) const INDEX: usize = 512;
/// Bytes of an entry in the file.
const ENTRY: usize = 12;
/// In the word of the names: a copy was made.
const REPLACED: u64 = 1 << 32;

/// The list.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    pub(super) index: &'a [AtomicU64],
    /// How many were replaced.
    pub(super) replaced: &'a AtomicU64,
    pub(super) words: &'a [AtomicU64],
}

/// How many entries of the list one of the index stands for, where the list has so many.
const fn stride(entries: usize) -> usize {
    entries.div_ceil(INDEX)
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

pub(super) fn fill(index: &[AtomicU64], words: &[AtomicU64], file: &[u8]) {
    let (places, _) = words.as_chunks::<ENTRY_WORDS>();
    let stride = stride(entries(file).count()).max(1);
    for (first, entry) in index.iter().zip(entries(file).step_by(stride)) {
        first.store(entry.0, Ordering::Relaxed);
    }
    for ([inode, names], entry) in places.iter().zip(entries(file)) {
        inode.store(entry.0, Ordering::Relaxed);
        names.store(entry.1.into(), Ordering::Relaxed);
    }
}

impl Image<'_> {
    fn entry(&self, inode: u64) -> Option<&AtomicU64> {
        let (entries, _) = self.words.as_chunks::<ENTRY_WORDS>();
        let stride = stride(entries.len());
        let firsts = self.index.get(..entries.len().checked_div(stride)?)?;
        let before = firsts.partition_point(|first| first.load(Ordering::Relaxed) <= inode);
        let start = before.saturating_sub(1) * stride;
        // Behind the last of the index there may be a shorter piece, which has none of its own.
        let end = if before == firsts.len() { entries.len() } else { start + stride };
        let piece = entries.get(start..end)?;
        let at =
            piece.binary_search_by_key(&inode, |entry| entry[0].load(Ordering::Relaxed)).ok()?;
        Some(&piece[at][1])
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
