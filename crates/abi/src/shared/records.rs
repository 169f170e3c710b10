//! What programs are started with: worlds, filters. Each stands here once, and never changes: processes read it in place.
//!
//! A record is a word with its length in bytes, and its bytes; its number says where. There is one writer at a time.

use super::{WORD, get_bytes, has_bytes, put_bytes};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

pub(super) const WORDS: usize = 2 * 1024 * 1024 / WORD;

/// The records.
#[derive(Debug, Clone, Copy)]
pub struct Records<'a> {
    pub(super) used: &'a AtomicU64,
    pub(super) words: &'a [AtomicU64],
    /// Where the section starts in the file, in bytes.
    pub(super) start: usize,
}

impl Records<'_> {
    /// The number of a record with these bytes, which is added unless it is there. `None` where there is no room. Whoever calls this is alone.
    pub fn add(&self, bytes: &[u8]) -> Option<u32> {
        let end = self.used.load(Ordering::Relaxed) as usize;
        let mut at = 0;
        while at < end {
            let length = self.words.get(at)?.load(Ordering::Relaxed) as usize;
            if length == bytes.len() && has_bytes(self.words.get(at + 1..)?, bytes) {
                return u32::try_from(at).ok();
            }
            at += 1 + length.div_ceil(WORD);
        }
        let room = self.words.get(end..end + 1 + bytes.len().div_ceil(WORD))?;
        put_bytes(&room[1..], bytes);
        room[0].store(bytes.len() as u64, Ordering::Release);
        self.used.store((end + room.len()) as u64, Ordering::Release);
        u32::try_from(end).ok()
    }

    /// Where the bytes of a record stand in the file. A multiple of eight begins them, and they never change.
    pub fn find(&self, number: u32) -> Option<Range<usize>> {
        let at = number as usize;
        if at as u64 >= self.used.load(Ordering::Acquire) {
            return None;
        }
        let length = self.words.get(at)?.load(Ordering::Acquire) as usize;
        self.words.get(at + 1..at + 1 + length.div_ceil(WORD))?;
        let start = self.start + (at + 1) * WORD;
        Some(start..start + length)
    }

    /// Copies a record; its length, or `None` where it is none or `into` is too small.
    pub fn read(&self, number: u32, into: &mut [u8]) -> Option<usize> {
        let range = self.find(number)?;
        let into = into.get_mut(..range.len())?;
        get_bytes(self.words.get(number as usize + 1..)?, into);
        Some(range.len())
    }
}
