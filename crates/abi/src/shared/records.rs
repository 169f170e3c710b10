//! What programs are started with: worlds, filters. Each stands here once, and never changes: processes read it in place.
//!
//! A record is a word with its length in bytes, and its bytes; its number says where. There is one writer at a time. What is small goes to the
//! first part, which lies where every program looks ([`super`]), as long as there is room.

use super::{WORD, get_bytes, has_bytes, put_bytes};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

/// Words of the first part. What is larger than half of it does not go there.
pub(super) const FIRST_WORDS: usize = 32 * 1024 / WORD;
/// Words of the other.
pub(super) const WORDS: usize = 2 * 1024 * 1024 / WORD;

/// One of the two parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) used: &'a AtomicU64,
    pub(super) words: &'a [AtomicU64],
    /// Where it starts in the file, in bytes.
    pub(super) start: usize,
}

/// The records.
#[derive(Debug, Clone, Copy)]
pub struct Records<'a> {
    pub(super) parts: [Part<'a>; 2],
}

impl<'a> Part<'a> {
    /// Where these bytes are a record already.
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

    /// The words of the record at a place, and its length in bytes.
    fn record(&self, at: usize) -> Option<(&'a [AtomicU64], usize)> {
        if at as u64 >= self.used.load(Ordering::Acquire) {
            return None;
        }
        let length = self.words.get(at)?.load(Ordering::Acquire) as usize;
        Some((self.words.get(at + 1..at + 1 + length.div_ceil(WORD))?, length))
    }
}

impl<'a> Records<'a> {
    /// The number of a record with these bytes, which is added unless it is there. `None` where there is no room. Whoever calls this is alone.
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

    /// The part of a number, and the place there.
    fn part(&self, number: u32) -> (Part<'a>, usize) {
        let [first, others] = self.parts;
        let at = number as usize;
        if at < FIRST_WORDS { (first, at) } else { (others, at - FIRST_WORDS) }
    }

    /// Where the bytes of a record stand in the file. A multiple of eight begins them, and they never change.
    pub fn find(&self, number: u32) -> Option<Range<usize>> {
        let (part, at) = self.part(number);
        let (_, length) = part.record(at)?;
        let start = part.start + (at + 1) * WORD;
        Some(start..start + length)
    }

    /// Copies a record; its length, or `None` where it is none or `into` is too small.
    pub fn read(&self, number: u32, into: &mut [u8]) -> Option<usize> {
        let (part, at) = self.part(number);
        let (words, length) = part.record(at)?;
        get_bytes(words, into.get_mut(..length)?);
        Some(length)
    }
}
