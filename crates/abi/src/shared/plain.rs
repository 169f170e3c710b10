//! Which directories are known to be reached without meeting a symbolic link.
//!
//! One word per entry: a hash of path and question, mixed with the generation in which it was found out. A change of any directory counts the
//! generation up, and with it all entries mean nothing. Two places for each hash.

use super::hash;
use core::sync::atomic::{AtomicU64, Ordering};

/// Entries: a power of two.
pub(super) const WORDS: usize = 8192;

/// The table.
#[derive(Debug, Clone, Copy)]
pub struct Plain<'a> {
    pub(super) generation: &'a AtomicU64,
    pub(super) table: &'a [AtomicU64],
}

/// Where an entry stands, and what stands there.
fn entry(path: &[u8], question: u64, generation: u64) -> (usize, u64) {
    let hash = hash(path, question);
    let index = (hash >> 51) as usize;
    // Never 0, which is an empty place.
    (index, (hash ^ generation.wrapping_mul(0xd6e8_feb8_6659_fd93)) | 1)
}

impl Plain<'_> {
    /// The generation: to be read before a directory is looked at.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether it is known of a directory. `question` tells apart what may be asked about one text: any number.
    pub fn is(&self, path: &[u8], question: u64) -> bool {
        let (index, word) = entry(path, question, self.generation());
        let at = |index: usize| self.table.get(index).map(|word| word.load(Ordering::Relaxed));
        at(index) == Some(word) || at(index ^ 1) == Some(word)
    }

    /// Makes it known, unless there was a change since `generation` was read.
    pub fn set(&self, path: &[u8], question: u64, generation: u64) {
        let (index, word) = entry(path, question, generation);
        let at = |index: usize| self.table.get(index);
        let [Some(first), Some(second)] = [at(index), at(index ^ 1)] else { return };
        // What stands in the way may be of old, but that cannot be told.
        let first_is_free = first.load(Ordering::Relaxed) == 0;
        let place = if first_is_free || word & 2 == 0 { first } else { second };
        if place.load(Ordering::Relaxed) != word {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// A directory changed: nothing is known any more.
    pub fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}
