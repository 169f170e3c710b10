//! Interns the guest paths of programs: each is stored once, and a process names the program that
//! it runs by a number.
//!
//! A hash table finds a path's number. Paths are appended and never removed. Two processes that add
//! the same path at the same time store it twice, which is harmless.

use super::{WORD, get_bytes, has_bytes, hash, put_bytes};
use core::sync::atomic::{AtomicU64, Ordering};

/// Number of places in the table: a power of two.
pub(super) const TABLE: usize = 2048;
/// Number of words for paths: one with the length, then the bytes.
pub(super) const WORDS: usize = 172 * 1024 / WORD;
/// The greatest distance of an entry from its first place.
const FAR: usize = 32;

/// The interned paths.
#[derive(Debug, Clone, Copy)]
pub struct Texts<'a> {
    pub(super) used: &'a AtomicU64,
    pub(super) table: &'a [AtomicU64],
    pub(super) words: &'a [AtomicU64],
}

impl Texts<'_> {
    fn text(&self, number: u32) -> Option<(usize, &[AtomicU64])> {
        let at = (number as usize).checked_sub(1)?;
        let length = self.words.get(at)?.load(Ordering::Acquire) as usize;
        Some((length, self.words.get(at + 1..at + 1 + length.div_ceil(WORD))?))
    }

    fn is(&self, number: u32, bytes: &[u8]) -> bool {
        self.text(number)
            .is_some_and(|(length, words)| length == bytes.len() && has_bytes(words, bytes))
    }

    /// Returns the number of a path, which is added if it is new. Never 0. `None` if there is no
    /// room.
    pub fn add(&self, bytes: &[u8]) -> Option<u32> {
        let hash = hash(bytes, 2);
        let tag = hash >> 32 << 32;
        let places = (0..FAR).map(|far| (hash as usize).wrapping_add(far) % TABLE);
        let mut new = 0;
        for place in places {
            let place = self.table.get(place)?;
            let mut there = place.load(Ordering::Acquire);
            if there == 0 {
                if new == 0 {
                    new = self.append(bytes)?;
                }
                match place.compare_exchange(
                    0,
                    tag | u64::from(new),
                    Ordering::AcqRel,
                    Ordering::Acquire,
                ) {
                    Ok(_) => return Some(new),
                    Err(other) => there = other,
                }
            }
            if there & tag == tag && there >> 32 << 32 == tag && self.is(there as u32, bytes) {
                return Some(there as u32);
            }
        }
        None
    }

    fn append(&self, bytes: &[u8]) -> Option<u32> {
        let length = 1 + bytes.len().div_ceil(WORD);
        if self.used.load(Ordering::Relaxed) as usize + length > WORDS {
            return None;
        }
        let at = self.used.fetch_add(length as u64, Ordering::AcqRel) as usize;
        let room = self.words.get(at..at + length)?;
        put_bytes(&room[1..], bytes);
        room[0].store(bytes.len() as u64, Ordering::Release);
        u32::try_from(at + 1).ok()
    }

    /// Copies a path and returns its length; `None` if the number is not valid or `into` is too
    /// small.
    pub fn read(&self, number: u32, into: &mut [u8]) -> Option<usize> {
        let (length, words) = self.text(number)?;
        get_bytes(words, into.get_mut(..length)?);
        Some(length)
    }
}
