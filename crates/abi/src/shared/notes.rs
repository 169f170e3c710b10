//! An index of the log: finds the last record of a key without reading the whole log.
//!
//! A hash table with open addressing: a word holds a part of the key's hash and the record's number
//! plus one. A key has one entry at most; if it was removed, its record says so. Only the holder of
//! the log's lock writes here; other processes read at any time. A writer that is killed between
//! the log and the index leaves the flag set that it set before. Then the next process that reads
//! completes the index first, under the lock.

use core::sync::atomic::{AtomicU64, Ordering};

/// Number of places: a power of two.
pub(super) const WORDS: usize = 1 << 17;
/// More entries would make searches long. At this number the index is full for ever.
const MOST: u64 = WORDS as u64 / 4 * 3;

/// The index.
#[derive(Debug, Clone, Copy)]
pub struct Notes<'a> {
    pub(super) covered: &'a AtomicU64,
    pub(super) entries: &'a AtomicU64,
    pub(super) pending: &'a AtomicU64,
    pub(super) table: &'a [AtomicU64],
}

/// Hash of a record's key.
pub fn hash(key: &[u8]) -> u64 {
    super::hash(key, 3)
}

impl<'a> Notes<'a> {
    /// Number of records of the log that are in the index.
    pub fn covered(&self) -> u64 {
        self.covered.load(Ordering::Acquire)
    }

    /// Returns true if the log may contain records that are not in the index.
    pub fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire) != 0
    }

    /// Sets that flag before the log is written, and clears it afterwards. Only for the holder of
    /// the lock.
    pub fn set_pending(&self, pending: bool) {
        self.pending.store(pending.into(), Ordering::Release);
    }

    /// Returns true if there were too many records: then the index is not used, and the log has to
    /// be read.
    pub fn is_full(&self) -> bool {
        self.entries.load(Ordering::Relaxed) >= MOST
    }

    /// Returns true if it is certain that there is no record.
    pub fn is_empty(&self) -> bool {
        !self.is_pending() && self.entries.load(Ordering::Relaxed) == 0
    }

    /// Numbers of records that may be the last one of a key with this hash: each has to be checked.
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

    /// Adds record number [`Notes::covered`], or replaces an older one of the same key, for whose
    /// number `is_same` returns true. Only for the holder of the lock.
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

    /// Skips a damaged record.
    pub fn skip(&self) {
        self.covered.fetch_add(1, Ordering::AcqRel);
    }
}
