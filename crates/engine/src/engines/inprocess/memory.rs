//! Lays out the arguments of the first program as a guest's memory.
//!
//! The view reads a program's arguments from the memory of the process that calls `execve`. Before
//! the first program there is no guest, so its arguments are laid out here, at addresses that mean
//! nothing to anybody else: no memory of this process is ever touched.

use std::ffi::CString;
use view::errno::Result;
use view::{Errno, Text};

/// Where the first part lies. Small numbers are bad addresses for the view as for the kernel.
const START: u64 = 0x10_0000;
/// Parts are apart, so that no reading runs from one into the next.
const GAP: u64 = 0x1000;
/// What one call may have put here; see [`view::guest::Guest::scratch`].
const SCRATCH_MAX: usize = 128 * 1024;

/// Memory of a program that does not run yet.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Sorted by address; each is its address and its bytes.
    parts: Vec<(u64, Vec<u8>)>,
    scratch: usize,
}

impl Memory {
    /// Puts bytes somewhere; where.
    pub(super) fn put(&mut self, bytes: Vec<u8>) -> u64 {
        let end = self.parts.last().map_or(START, |(at, bytes)| at + bytes.len() as u64);
        let at = end.next_multiple_of(GAP) + GAP;
        self.parts.push((at, bytes));
        at
    }

    /// Puts strings, and a list of their addresses that ends with a null pointer; where the list
    /// is.
    pub(super) fn put_list(&mut self, texts: &[String]) -> u64 {
        let mut all = Vec::new();
        let mut places = Vec::with_capacity(texts.len());
        for text in texts {
            places.push(all.len() as u64);
            all.extend_from_slice(text.as_bytes());
            all.push(0);
        }
        let at = self.put(all);
        let mut list: Vec<u8> =
            places.iter().flat_map(|place| (at + place).to_le_bytes()).collect();
        list.extend([0; 8]);
        self.put(list)
    }

    /// The strings of such a list.
    pub(super) fn list(&mut self, at: u64) -> Result<Vec<CString>> {
        let mut texts = Vec::new();
        for index in 0.. {
            let mut word = [0; 8];
            self.read(at + 8 * index, &mut word)?;
            match u64::from_le_bytes(word) {
                0 => break,
                place => texts.push(self.string(place)?),
            }
        }
        Ok(texts)
    }

    fn string(&mut self, at: u64) -> Result<CString> {
        let part = self.part(at).ok_or(Errno::EFAULT)?;
        let end = part.iter().position(|&byte| byte == 0).ok_or(Errno::EFAULT)?;
        CString::new(&part[..end]).map_err(|_| Errno::EFAULT)
    }

    /// What is there from an address on.
    fn part(&mut self, at: u64) -> Option<&mut [u8]> {
        let index = self.parts.partition_point(|(start, _)| *start <= at).checked_sub(1)?;
        let (start, bytes) = self.parts.get_mut(index)?;
        bytes.get_mut(usize::try_from(at - *start).ok()?..).filter(|part| !part.is_empty())
    }
}

impl Memory {
    pub(super) fn read(&mut self, at: u64, into: &mut [u8]) -> Result<()> {
        let part = self.part(at).and_then(|part| part.get(..into.len())).ok_or(Errno::EFAULT)?;
        into.copy_from_slice(part);
        Ok(())
    }

    pub(super) fn read_some(&mut self, at: u64, into: &mut [u8]) -> Result<usize> {
        let part = self.part(at).ok_or(Errno::EFAULT)?;
        let length = part.len().min(into.len());
        into[..length].copy_from_slice(&part[..length]);
        Ok(length)
    }

    pub(super) fn write(&mut self, at: u64, from: &[u8]) -> Result<()> {
        let part =
            self.part(at).and_then(|part| part.get_mut(..from.len())).ok_or(Errno::EFAULT)?;
        part.copy_from_slice(from);
        Ok(())
    }

    pub(super) fn scratch(&mut self, bytes: Vec<u8>) -> Result<u64> {
        self.scratch += bytes.len();
        if self.scratch > SCRATCH_MAX {
            return Err(Errno::E2BIG);
        }
        Ok(self.put(bytes))
    }

    pub(super) fn read_text(&mut self, at: u64, into: &mut Text) -> Result<()> {
        into.set(self.string(at)?.to_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back() {
        let mut memory = Memory::default();
        let texts = ["a", "", "a longer one"].map(str::to_owned);
        let at = memory.put_list(&texts);
        let back: Vec<_> = memory.list(at).unwrap();
        assert_eq!(back, texts.map(|text| CString::new(text).unwrap()));
        assert_eq!(memory.list(at - 1), Err(Errno::EFAULT));
        let empty = memory.put_list(&[]);
        assert!(memory.list(empty).unwrap().is_empty());
    }

    #[test]
    fn what_is_not_there_is_no_memory() {
        let mut memory = Memory::default();
        let at = memory.put(b"four".to_vec());
        let mut four = [0; 4];
        assert_eq!(memory.read(at, &mut four), Ok(()));
        assert_eq!(&four, b"four");
        assert_eq!(memory.read(at + 1, &mut four), Err(Errno::EFAULT));
        assert_eq!(memory.read_some(at + 1, &mut four), Ok(3));
        assert_eq!(memory.read_some(at + 4, &mut four), Err(Errno::EFAULT));
        assert_eq!(memory.read_some(0, &mut four), Err(Errno::EFAULT));
        assert_eq!(memory.write(at + 2, b"xx"), Ok(()));
        assert_eq!(memory.scratch(vec![0; SCRATCH_MAX + 1]), Err(Errno::E2BIG));
    }
}
