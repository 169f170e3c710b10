//! The cache of directories that can be reached without meeting a symbolic link.
//!
//! An entry is one word: a hash of path and question, mixed with the generation in which it was
//! found out. A change of any directory advances the generation, which invalidates all entries.
//! Each hash has two places.

use super::hash;
use core::sync::atomic::{AtomicU64, Ordering};

/// Number of entries: a power of two.
pub(super) const WORDS: usize = 8192;

/// The table.
#[derive(Debug, Clone, Copy)]
pub struct Plain<'a> {
    pub(super) generation: &'a AtomicU64,
    pub(super) table: &'a [AtomicU64],
}

/// The index of an entry, and its word.
fn entry(path: &[u8], question: u64, generation: u64) -> (usize, u64) {
    let hash = hash(path, question);
    let index = (hash >> 51) as usize;
    // Never 0, which marks an empty place.
    (index, (hash ^ generation.wrapping_mul(0xd6e8_feb8_6659_fd93)) | 1)
}

impl Plain<'_> {
    /// The generation; it must be read before a directory is looked at.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns true if it is known of a directory. `question` is any number; it distinguishes
    /// several facts about one path.
    pub fn is(&self, path: &[u8], question: u64) -> bool {
        let (index, word) = entry(path, question, self.generation());
        let at = |index: usize| self.table.get(index).map(|word| word.load(Ordering::Relaxed));
        at(index) == Some(word) || at(index ^ 1) == Some(word)
    }

    /// Stores the fact, unless there was a change since `generation` was read.
    pub fn set(&self, path: &[u8], question: u64, generation: u64) {
        let (index, word) = entry(path, question, generation);
        let at = |index: usize| self.table.get(index);
        let [Some(first), Some(second)] = [at(index), at(index ^ 1)] else { return };
        // The entries that occupy the places may be outdated, but that cannot be seen.
        let first_is_free = first.load(Ordering::Relaxed) == 0;
        let place = if first_is_free || word & 2 == 0 { first } else { second };
        if place.load(Ordering::Relaxed) != word {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// A directory has changed: invalidates all entries.
    pub fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}
