//! The content of a recorded disk: pages, the log of its writes, and the disk's state after a power
//! failure.
//!
//! The log has every write with its bytes, every flush and every mark of the test. [`Image::cut`]
//! sets the disk to a state that a disk with a volatile cache may have after a beginning of the
//! log: all writes before its last flush, and all, none or some of the later ones, in pages of 4
//! KiB.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Writes are kept and lost in units of this many bytes.
const PAGE: u64 = 4096;

type Page = Box<[u8; PAGE as usize]>;

/// One entry of the log.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    /// A write, whose bytes are in the spool from `at` on.
    Write {
        /// Offset on the disk.
        offset: u64,
        /// Number of bytes.
        length: u32,
        /// Offset in the spool.
        at: u64,
    },
    /// All earlier writes are on the disk.
    Flush,
    /// A mark of the test.
    Mark(u32),
}

/// How a cut treats the writes after the last flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// All are on the disk.
    Kept,
    /// None is on the disk.
    Lost,
    /// Some pages are on the disk, chosen by this seed.
    Part(u64),
}

/// The disk.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) size: u64,
    pages: HashMap<u64, Page>,
    /// Writes after a cut, which the next cut discards.
    above: Option<HashMap<u64, Page>>,
    log: Vec<Entry>,
    spool: File,
    spooled: u64,
    /// Number of log entries that are in `pages`, after a cut.
    applied: usize,
}

impl Image {
    /// Makes an empty disk of `size` bytes; its written bytes are kept in `spool`.
    pub(super) fn new(size: u64, spool: File) -> Self {
        let (pages, log) = (HashMap::new(), Vec::new());
        Self { size, pages, above: None, log, spool, spooled: 0, applied: 0 }
    }

    /// The log.
    pub(super) fn log(&self) -> &[Entry] {
        &self.log
    }

    /// Records a flush.
    pub(super) fn flush(&mut self) {
        if self.above.is_none() {
            self.log.push(Entry::Flush);
        }
    }

    /// Records a mark.
    pub(super) fn mark(&mut self, number: u32) {
        self.log.push(Entry::Mark(number));
    }

    /// Reads from the disk.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        each_page(offset, into.len(), |page, within, range| {
            let above = self.above.as_ref().and_then(|above| above.get(&page));
            match above.or_else(|| self.pages.get(&page)) {
                Some(bytes) => {
                    let length = range.len();
                    into[range].copy_from_slice(&bytes[within..within + length]);
                }
                None => into[range].fill(0),
            }
        });
    }

    /// Writes to the disk; also to the log, until the first cut.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if let Some(above) = &mut self.above {
            put(above, Some(&self.pages), offset, bytes);
            return Ok(());
        }
        self.spool.write_all_at(bytes, self.spooled)?;
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.log.push(Entry::Write { offset, length, at: self.spooled });
        self.spooled += bytes.len() as u64;
        put(&mut self.pages, None, offset, bytes);
        Ok(())
    }

    /// Sets the disk to the state after a power failure that follows the first `count` entries of
    /// the log. Counts must not decrease from call to call.
    pub(super) fn cut(&mut self, count: usize, tail: Tail) -> io::Result<()> {
        if self.above.is_none() {
            self.pages.clear();
        }
        let count = count.min(self.log.len());
        let flushed = self.log[..count].iter().rposition(|entry| matches!(entry, Entry::Flush));
        let flushed = flushed.unwrap_or(0);
        if flushed < self.applied {
            return Err(io::Error::other("cuts must be made in their order"));
        }
        for index in self.applied..flushed {
            if let Entry::Write { offset, length, at } = self.log[index] {
                let bytes = self.spooled(at, length)?;
                put(&mut self.pages, None, offset, &bytes);
            }
        }
        self.applied = flushed;
        let mut above = HashMap::new();
        let mut dice = match tail {
            Tail::Part(seed) => seed | 1,
            _ => 0,
        };
        for entry in &self.log[flushed..count] {
            let Entry::Write { offset, length, at } = *entry else { continue };
            let bytes = self.spooled(at, length)?;
            if tail == Tail::Kept {
                put(&mut above, Some(&self.pages), offset, &bytes);
            }
            if dice != 0 {
                each_page(offset, bytes.len(), |page, within, range| {
                    dice ^= dice << 13;
                    dice ^= dice >> 7;
                    dice ^= dice << 17;
                    if (dice >> 32) & 1 == 0 {
                        let start = page * PAGE + within as u64;
                        put(&mut above, Some(&self.pages), start, &bytes[range]);
                    }
                });
            }
        }
        self.above = Some(above);
        Ok(())
    }

    fn spooled(&self, at: u64, length: u32) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length as usize];
        self.spool.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }
}

/// Writes into pages; the rest of a new page comes from `beneath`, or is zero.
fn put(
    pages: &mut HashMap<u64, Page>,
    beneath: Option<&HashMap<u64, Page>>,
    offset: u64,
    bytes: &[u8],
) {
    each_page(offset, bytes.len(), |page, within, range| {
        let old = || beneath.and_then(|pages| pages.get(&page)).cloned();
        let target =
            pages.entry(page).or_insert_with(|| old().unwrap_or(Box::new([0; PAGE as usize])));
        target[within..within + range.len()].copy_from_slice(&bytes[range]);
    });
}

/// Calls a function for each page with its number, the offset within it, and the range of the bytes
/// for it.
fn each_page(offset: u64, length: usize, mut call: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < length {
        let place = offset + done as u64;
        let within = (place % PAGE) as usize;
        let count = (PAGE as usize - within).min(length - done);
        call(place / PAGE, within, done..done + count);
        done += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(image: &Image, offset: u64) -> u8 {
        let mut byte = [0];
        image.read(offset, &mut byte);
        byte[0]
    }

    #[test]
    fn a_cut_keeps_what_was_flushed() {
        let mut image = Image::new(1 << 20, tempfile::tempfile().unwrap());
        image.write(10, &[1; 5000]).unwrap();
        image.flush();
        image.mark(7);
        image.write(4000, &[2; 200]).unwrap();
        image.write(9000, &[3]).unwrap();
        image.flush();
        assert_eq!(image.log().len(), 6);
        for (count, tail, expected) in [
            (1, Tail::Lost, [0, 0, 0]),
            (2, Tail::Lost, [1, 1, 0]),
            (4, Tail::Lost, [1, 1, 0]),
            (4, Tail::Kept, [1, 2, 0]),
            (5, Tail::Lost, [1, 1, 0]),
            (6, Tail::Lost, [1, 2, 3]),
        ] {
            image.cut(count, tail).unwrap();
            let found = [20, 4000, 9000].map(|offset| at(&image, offset));
            assert_eq!(found, expected, "{count} {tail:?}");
            // Writes to a cut disk are discarded by the next cut.
            image.write(20, &[9; 9000]).unwrap();
            assert_eq!(at(&image, 4000), 9);
        }
        assert!(image.cut(1, Tail::Lost).is_err());
    }
}
