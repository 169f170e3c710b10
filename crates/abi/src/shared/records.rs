//! Stores the data that programs are started with (worlds, filters). Each record is stored once and
//! never changes, so processes read it in place.
//!
//! A record is a word with its length in bytes, and its bytes. Its number is its position. There is
//! one writer at a time. Small records go to the first part as long as there is room, because every
//! program reads there ([`super`]).

use super::{WORD, get_bytes, has_bytes, put_bytes};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

/// Size of the first part in words. A record larger than half of it goes to the second.
pub(super) const FIRST_WORDS: usize = 32 * 1024 / WORD;
/// Size of the second part in words.
pub(super) const WORDS: usize = 2 * 1024 * 1024 / WORD;

/// One of the two parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) used: &'a AtomicU64,
    pub(super) words: &'a [AtomicU64],
    /// Its start in the file, in bytes.
    pub(super) start: usize,
}

/// The records.
#[derive(Debug, Clone, Copy)]
pub struct Records<'a> {
    pub(super) parts: [Part<'a>; 2],
}

impl<'a> Part<'a> {
    /// Position of an existing record with these bytes.
    fn known(&self, bytes: &[u8]) -> Option<usize> {
        let end = self.used.load(Ordering::Relaxed) as usize;
        let mut at = 0;
        while at < end {
            let length = self.words.get(at)?.load(Ordering::Relaxed) as usize;
            if length == bytes.len() && has_bytes(self.words.get(at + 1..)?, bytes) {
                return Some(at);
            }
            at += 1 + length.div_ceil(WORD);
        }
        None
    }

    fn append(&self, bytes: &[u8]) -> Option<usize> {
        let end = self.used.load(Ordering::Relaxed) as usize;
        let room = self.words.get(end..end + 1 + bytes.len().div_ceil(WORD))?;
        put_bytes(&room[1..], bytes);
        room[0].store(bytes.len() as u64, Ordering::Release);
        self.used.store((end + room.len()) as u64, Ordering::Release);
        Some(end)
    }

    /// The words of the record at a position, and its length in bytes.
    fn record(&self, at: usize) -> Option<(&'a [AtomicU64], usize)> {
        if at as u64 >= self.used.load(Ordering::Acquire) {
            return None;
        }
        let length = self.words.get(at)?.load(Ordering::Acquire) as usize;
        Some((self.words.get(at + 1..at + 1 + length.div_ceil(WORD))?, length))
    }
}

impl<'a> Records<'a> {
    /// Returns the number of a record with these bytes, which is added if it is new. `None` if
    /// there is no room. The caller makes sure that there is no other writer.
    pub fn add(&self, bytes: &[u8]) -> Option<u32> {
        let [first, others] = &self.parts;
        let at = if let Some(at) = first.known(bytes) {
            at
        } else if let Some(at) = others.known(bytes) {
            FIRST_WORDS + at
        } else {
            let small = bytes.len() <= FIRST_WORDS * WORD / 2;
            match small.then(|| first.append(bytes)).flatten() {
                Some(at) => at,
                None => FIRST_WORDS + others.append(bytes)?,
            }
        };
        u32::try_from(at).ok()
    }

    /// The part that holds a number, and the position in it.
    fn part(&self, number: u32) -> (Part<'a>, usize) {
        let [first, others] = self.parts;
        let at = number as usize;
        if at < FIRST_WORDS { (first, at) } else { (others, at - FIRST_WORDS) }
    }

    /// The range of a record's bytes in the file. It begins at a multiple of eight, and its
    /// contents never change.
    pub fn find(&self, number: u32) -> Option<Range<usize>> {
        let (part, at) = self.part(number);
        let (_, length) = part.record(at)?;
        let start = part.start + (at + 1) * WORD;
        Some(start..start + length)
    }

    /// Copies a record and returns its length; `None` if the number is not valid or `into` is too
    /// small.
    pub fn read(&self, number: u32, into: &mut [u8]) -> Option<usize> {
        let (part, at) = self.part(number);
        let (words, length) = part.record(at)?;
        get_bytes(words, into.get_mut(..length)?);
        Some(length)
    }
}
