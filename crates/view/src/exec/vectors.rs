//! Builds `argv` for scripts and emulators: new strings in front, then the guest's own pointers.

use crate::errno::{Errno, Result};
use crate::guest::Guest;

/// The greatest number of words in front: two for each of six levels of scripts, the script's own
/// name, and an emulator's three.
const FRONT_MAX: usize = 20;

/// Strings in front of the guest's own arguments. The one pushed last comes first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Front {
    words: [u64; FRONT_MAX],
    count: usize,
}

impl Front {
    /// No strings: `argv` does not change.
    pub(super) const NONE: Self = Self { words: [0; FRONT_MAX], count: 0 };

    /// Returns true if there are no strings.
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Puts a string (with its NUL) into scratch memory, and its address in front of the others.
    pub(super) fn push(&mut self, guest: &mut impl Guest, text: &[u8]) -> Result<()> {
        let address = guest.scratch(text, 1)?;
        self.push_address(address)
    }

    /// Puts the address of one of the guest's own strings in front.
    pub(super) fn push_address(&mut self, address: u64) -> Result<()> {
        *self.words.get_mut(self.count).ok_or(Errno::ELOOP)? = address;
        self.count += 1;
        Ok(())
    }

    /// Removes the first string, if there is one: the name of an interpreter that is itself a
    /// script.
    pub(super) fn pop(&mut self) -> Option<u64> {
        self.count = self.count.checked_sub(1)?;
        Some(self.words[self.count])
    }

    fn in_order(&self) -> impl Iterator<Item = u64> + '_ {
        self.words[..self.count].iter().rev().copied()
    }

    /// Builds the whole vector in scratch memory: these strings, then the guest's `argv` without
    /// its first. `width` is that of a pointer.
    ///
    /// `buffer` is working memory. `E2BIG` if the vector does not fit: a guest's scratch memory is
    /// smaller than the kernel's limit.
    pub(super) fn vector(
        &self,
        guest: &mut impl Guest,
        argv: u64,
        width: usize,
        buffer: &mut [u8],
    ) -> Result<u64> {
        let rest = if argv == 0 { 0 } else { count(guest, argv, width, buffer)?.saturating_sub(1) };
        // Includes the null pointer at the end, which is the guest's own unless it has no vector.
        let words = self.count + rest + 1;
        let at = guest.scratch_room(words * width, width)?;
        let per_piece = buffer.len() / width;
        let mut start = 0;
        while start < words {
            let length = per_piece.min(words - start);
            let bytes = &mut buffer[..length * width];
            self.piece(guest, argv, width, start, (words, bytes))?;
            guest.write(at + (start * width) as u64, bytes)?;
            start += length;
        }
        Ok(at)
    }

    /// Fills in the words from `start` on of the new vector.
    fn piece(
        &self,
        guest: &mut impl Guest,
        argv: u64,
        width: usize,
        start: usize,
        (words, bytes): (usize, &mut [u8]),
    ) -> Result<()> {
        let own = self.count.saturating_sub(start).min(bytes.len() / width);
        for (word, slot) in self.in_order().skip(start).zip(bytes.chunks_exact_mut(width)) {
            slot.copy_from_slice(&word.to_le_bytes()[..width]);
        }
        let behind = &mut bytes[own * width..];
        behind.fill(0);
        let first = (start + own - self.count) + 1;
        let present = (words - 1 - (start + own)).min(behind.len() / width);
        if present > 0 {
            let from = argv + (first * width) as u64;
            guest.read(from, &mut behind[..present * width])?;
        }
        Ok(())
    }
}

/// Number of pointers before the null pointer.
fn count(guest: &mut impl Guest, at: u64, width: usize, buffer: &mut [u8]) -> Result<usize> {
    /// `MAX_ARG_STRINGS` is greater, but no list that long fits beside its strings.
    const MOST: usize = 1 << 20;
    let room = buffer.len() / 16 * 16;
    let mut found = 0;
    while found < MOST {
        let got = guest.read_some(at + (found * width) as u64, &mut buffer[..room])?;
        let whole = got - got % width;
        if whole == 0 {
            return Err(Errno::EFAULT);
        }
        for word in buffer[..whole].chunks_exact(width) {
            if word.iter().all(|byte| *byte == 0) {
                return Ok(found);
            }
            found += 1;
        }
    }
    Err(Errno::E2BIG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fake;
    use std::vec::Vec;

    fn words(fake: &Fake, at: u64, width: usize) -> Vec<u64> {
        let mut all = Vec::new();
        for index in 0.. {
            let mut word = [0; 8];
            word[..width].copy_from_slice(&fake.peek(at + (index * width) as u64, width));
            match u64::from_le_bytes(word) {
                0 => return all,
                word => all.push(word),
            }
        }
        all
    }

    #[test]
    fn the_first_argument_is_replaced() {
        for width in [8, 4] {
            let mut fake = Fake::new();
            let argv: Vec<u8> = [0x1_1000_u64, 0x1_2000, 0x1_3000, 0]
                .iter()
                .flat_map(|word| word.to_le_bytes()[..width].to_vec())
                .collect();
            fake.map(0x1000, &argv);
            let mut front = Front::NONE;
            front.push(&mut fake, b"script\0").unwrap();
            front.push(&mut fake, b"interpreter\0").unwrap();
            let mut buffer = [0; 64];
            let at = front.vector(&mut fake, 0x1000, width, &mut buffer).unwrap();
            let found = words(&fake, at, width);
            assert_eq!(fake.peek_text(found[0]), "interpreter");
            assert_eq!(fake.peek_text(found[1]), "script");
            assert_eq!(found[2..], [0x1_2000, 0x1_3000]);
            let empty = front.vector(&mut fake, 0, width, &mut buffer).unwrap();
            assert_eq!(words(&fake, empty, width).len(), 2);
        }
    }

    #[test]
    fn bad_vectors() {
        let mut fake = Fake::new();
        let mut front = Front::NONE;
        front.push_address(7).unwrap();
        assert_eq!(front.vector(&mut fake, 8, 8, &mut [0; 64]), Err(Errno::EFAULT));
    }
}
