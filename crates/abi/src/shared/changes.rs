//! What a container has changed of its image: two bits for each record of the image's index
//! ([`crate::index`]).
//!
//! The container's own files lie in an upper directory, in overlay's form, and the image's tree
//! beneath. The bits tell when the upper directory need not be asked. They are only ever set: a
//! process that is killed between a bit and the change, or the change and a bit, leaves a state
//! that is read rightly.
//!
//! | bit of a record | meaning | set |
//! |---|---|---|
//! | covered | the upper directory may have something else under this name | before it has |
//! | merged | the directory may exist in the upper directory, with names that the index lacks | after it was made, before anything is made in it |

use core::sync::atomic::{AtomicU64, Ordering};

/// Records in a word: two bits each.
const RECORDS: usize = 32;
/// Bits of a record.
const COVERED: u64 = 1;
const MERGED: u64 = 2;

/// The table.
#[derive(Debug, Clone, Copy)]
pub struct Changes<'a> {
    /// Number of directories of the image that got another name.
    pub(super) redirects: &'a AtomicU64,
    /// Whether a name of a file with several names was covered.
    pub(super) links: &'a AtomicU64,
    /// Counts beginnings and ends of moves.
    pub(super) moves: &'a AtomicU64,
    pub(super) words: &'a [AtomicU64],
}

/// Returns true if [`Changes::moves`] says that a directory is getting another name.
pub const fn is_moving(moves: u64) -> bool {
    moves % 2 == 1
}

/// Size of the table for an index of this many records, in words.
pub(super) const fn words(records: usize) -> usize {
    records.div_ceil(RECORDS)
}

impl Changes<'_> {
    fn has(&self, record: u32, bit: u64) -> bool {
        let word = self.words.get(record as usize / RECORDS);
        // What is not in the table is changed: then the disk is asked.
        word.is_none_or(|word| {
            word.load(Ordering::Acquire) >> (record as usize % RECORDS * 2) & bit != 0
        })
    }

    fn set(&self, record: u32, bit: u64) {
        if let Some(word) = self.words.get(record as usize / RECORDS) {
            word.fetch_or(bit << (record as usize % RECORDS * 2), Ordering::AcqRel);
        }
    }

    /// Returns true if the upper directory has to be asked about the name of this record.
    #[inline]
    pub fn is_covered(&self, record: u32) -> bool {
        self.has(record, COVERED)
    }

    /// The name of this record is about to mean something else. `several`: its file has others.
    pub fn cover(&self, record: u32, several: bool) {
        if several {
            self.links.store(1, Ordering::Release);
        }
        self.set(record, COVERED);
    }

    /// Returns true if a name of a file with several names may mean something else.
    #[inline]
    pub fn has_covered_links(&self) -> bool {
        self.links.load(Ordering::Acquire) != 0
    }

    /// Returns true if this directory may be in the upper directory, too.
    #[inline]
    pub fn is_merged(&self, record: u32) -> bool {
        self.has(record, MERGED)
    }

    /// This directory is in the upper directory.
    pub fn merge(&self, record: u32) {
        self.set(record, MERGED);
    }

    /// Returns true if a directory of the image may have another name than in the index.
    #[inline]
    pub fn has_redirects(&self) -> bool {
        self.redirects.load(Ordering::Acquire) != 0
    }

    /// A directory of the image is about to get another name.
    pub fn redirect(&self) {
        self.redirects.fetch_add(1, Ordering::AcqRel);
    }

    /// A number that is another one after a directory got another name. It is odd while that
    /// happens ([`is_moving`]), and after a process was killed in the middle of it.
    ///
    /// A directory that may be in both layers is found by its name. A process that asked for the
    /// name and finds nothing there sees by this number whether the name was still the right one.
    #[inline]
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::SeqCst)
    }

    /// A directory is about to get another name. The caller holds the lock under which directories
    /// are moved.
    pub fn move_begins(&self) {
        // After one that never ended this is a new number, too.
        self.moves.store((self.moves() + 1) | 1, Ordering::SeqCst);
    }

    /// It has got it, or keeps the old one. Who holds the lock may say so, because then no
    /// directory is moved.
    pub fn move_ends(&self) {
        self.moves.store(self.moves().next_multiple_of(2), Ordering::SeqCst);
    }
}
