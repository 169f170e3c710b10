//! Where in the log of notes the last record of a key stands, so that nobody has to read the whole log.
//!
//! Open addressing: a word is a part of the key's hash and the record's number plus one. A key has one entry at most; that it was removed says
//! the record. Only who has the log's lock writes here; readers look at any time. A writer who is killed between the log and the index leaves the
//! mark that it set before: then the next who wants to know something completes the index first, under the lock.

use core::sync::atomic::{AtomicU64, Ordering};

/// Places: a power of two.
pub(super) const WORDS: usize = 1 << 17;
/// More entries than this make long ways; then the index says that it is full, for ever.
const MOST: u64 = WORDS as u64 / 4 * 3;

/// The index.
#[derive(Debug, Clone, Copy)]
pub struct Notes<'a> {
    pub(super) covered: &'a AtomicU64,
    pub(super) entries: &'a AtomicU64,
    pub(super) pending: &'a AtomicU64,
    pub(super) table: &'a [AtomicU64],
}

/// Hash of a note's key.
pub fn hash(key: &[u8]) -> u64 {
    super::hash(key, 3)
}

impl<'a> Notes<'a> {
    /// How many records of the log are in the index.
    pub fn covered(&self) -> u64 {
        self.covered.load(Ordering::Acquire)
    }

    /// Whether the log may hold what the index does not.
    pub fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire) != 0
    }

    /// Says so, before the log is written (and afterwards that it is over). For who has the lock.
    pub fn set_pending(&self, pending: bool) {
        self.pending.store(pending.into(), Ordering::Release);
    }

    /// Whether there were too many notes: then the index knows nothing, and the log has to be read.
    pub fn is_full(&self) -> bool {
        self.entries.load(Ordering::Relaxed) >= MOST
    }

    /// Whether there is no note at all, and that is certain.
    pub fn is_empty(&self) -> bool {
        !self.is_pending() && self.entries.load(Ordering::Relaxed) == 0
    }

    /// Numbers of records that may be the last one of a key with this hash: each has to be looked at.
    pub fn find(&self, hash: u64) -> impl Iterator<Item = u64> + use<'a> {
        let table = self.table;
        let tag = hash >> 32;
        (0..table.len())
            .map(move |far| {
                table[(hash as usize).wrapping_add(far) % table.len()].load(Ordering::Acquire)
            })
            .take_while(|word| *word != 0)
            .filter(move |word| word >> 32 == tag)
            .map(|word| (word & 0xffff_ffff) - 1)
    }

    /// Adds record number [`Notes::covered`], or replaces an older one of the same key, which `is_same` tells by its number. For who has the
    /// lock.
    pub fn add(&self, hash: u64, mut is_same: impl FnMut(u64) -> bool) {
        let number = self.covered();
        let word = hash >> 32 << 32 | (number + 1) & 0xffff_ffff;
        for far in 0..self.table.len() {
            if self.is_full() {
                break;
            }
            let place = &self.table[(hash as usize).wrapping_add(far) % self.table.len()];
            let there = place.load(Ordering::Relaxed);
            if there == 0 {
                self.entries.fetch_add(1, Ordering::Relaxed);
            } else if there >> 32 != hash >> 32 || !is_same((there & 0xffff_ffff) - 1) {
                continue;
            }
            place.store(word, Ordering::Release);
            break;
        }
        self.skip();
    }

    /// Passes over a damaged record.
    pub fn skip(&self) {
        self.covered.fetch_add(1, Ordering::AcqRel);
    }
}
