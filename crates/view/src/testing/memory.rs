//! The fake guest's memory.

use super::{Fake, Result};
use crate::guest::Guest;
use crate::text::Text;
use crate::{Errno, text::PATH_MAX};
use std::vec;
use std::vec::Vec;

impl Fake {
    /// Maps bytes at an address. Pieces do not join: reading over the end of one is `EFAULT`.
    pub fn map(&mut self, at: u64, bytes: &[u8]) -> &mut Self {
        self.memory.insert(at, bytes.to_vec());
        self
    }

    /// Maps a string with its NUL.
    pub fn map_text(&mut self, at: u64, text: &str) -> &mut Self {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.map(at, &bytes)
    }

    /// The `length` bytes at an address.
    pub fn peek(&self, at: u64, length: usize) -> Vec<u8> {
        self.piece(at).expect("mapped")[..length].to_vec()
    }

    /// The string at an address.
    pub fn peek_text(&self, at: u64) -> std::string::String {
        let bytes = self.piece(at).expect("mapped");
        let end = bytes.iter().position(|byte| *byte == 0).expect("a NUL");
        std::string::String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    fn piece(&self, at: u64) -> Result<&[u8]> {
        let (start, bytes) = self.memory.range(..=at).next_back().ok_or(Errno::EFAULT)?;
        let offset = usize::try_from(at - start).map_err(|_| Errno::EFAULT)?;
        if offset >= bytes.len() { Err(Errno::EFAULT) } else { Ok(&bytes[offset..]) }
    }
}

impl Guest for Fake {
    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<()> {
        let from = self.piece(at)?.get(..into.len()).ok_or(Errno::EFAULT)?;
        into.copy_from_slice(from);
        Ok(())
    }

    fn read_some(&mut self, at: u64, into: &mut [u8]) -> Result<usize> {
        let from = self.piece(at)?;
        let length = from.len().min(into.len());
        into[..length].copy_from_slice(&from[..length]);
        Ok(length)
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Result<()> {
        let (start, bytes) = self.memory.range_mut(..=at).next_back().ok_or(Errno::EFAULT)?;
        let offset = usize::try_from(at - start).map_err(|_| Errno::EFAULT)?;
        let into = bytes.get_mut(offset..offset + from.len()).ok_or(Errno::EFAULT)?;
        into.copy_from_slice(from);
        Ok(())
    }

    fn scratch(&mut self, bytes: &[u8], align: usize) -> Result<u64> {
        let at = self.scratch.next_multiple_of(align as u64);
        if at + bytes.len() as u64 > 0x10_0000 + 0x2_0000 {
            return Err(Errno::E2BIG);
        }
        self.scratch = at + bytes.len().max(1) as u64;
        self.memory.insert(at, bytes.to_vec());
        Ok(at)
    }

    fn scratch_room(&mut self, length: usize, align: usize) -> Result<u64> {
        self.scratch(&vec![0; length], align)
    }

    fn read_text(&mut self, at: u64, into: &mut Text) -> Result<()> {
        let mut bytes = vec![0; PATH_MAX];
        let got = self.read_some(at, &mut bytes)?;
        match bytes[..got].iter().position(|byte| *byte == 0) {
            Some(end) => into.set(&bytes[..end]),
            None if got == PATH_MAX => Err(Errno::ENAMETOOLONG),
            None => Err(Errno::EFAULT),
        }
    }
}
