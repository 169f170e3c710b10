//! Maps of sparse files: old GNU headers and PAX formats 0.0, 0.1, 1.0 (GNU tar manual, "Storing
//! Sparse Files").

use super::number::number;
use super::pax::{Records, decimal};
use super::{BLOCK, Blocks, Entry, Reader, damaged, limit};
use crate::error::Error;

impl<B: Blocks> Reader<'_, B> {
    /// Sets the map and the true size of a sparse file; leaves other files unchanged.
    pub(super) fn read_sparse(
        &mut self,
        block: &[u8; BLOCK],
        flag: u8,
        records: &Records,
        entry: &mut Entry,
    ) -> Result<(), Error> {
        let stored = entry.size;
        let bad = |problem: &str| damaged(entry.offset, &entry.path, problem);
        let key = |name: &[u8]| -> Result<Option<u64>, Error> {
            records
                .get(name)
                .map(|text| decimal(text).ok_or_else(|| bad("bad sparse header")))
                .transpose()
        };
        let (ranges, size) = if flag == b'S' {
            self.old_gnu(block, stored)?
        } else if key(b"GNU.sparse.major")? == Some(1) {
            let size =
                key(b"GNU.sparse.realsize")?.ok_or_else(|| bad("sparse file without size"))?;
            (self.map_in_data()?, size)
        } else if let Some(text) = records.get(b"GNU.sparse.map") {
            let size = key(b"GNU.sparse.size")?.ok_or_else(|| bad("sparse file without size"))?;
            let numbers: Option<Vec<u64>> = text
                .split(|byte| *byte == b',')
                .filter(|part| !part.is_empty())
                .map(decimal)
                .collect();
            let numbers = numbers.ok_or_else(|| bad("bad sparse map"))?;
            (numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect(), size)
        } else if let Some(size) = key(b"GNU.sparse.size")? {
            (records.ranges().to_vec(), size)
        } else {
            return Ok(());
        };
        let found = ranges.len() as u64;
        if found > self.limits.sparse_ranges {
            let most = self.limits.sparse_ranges;
            return Err(limit(&entry.path, "number of sparse ranges", found, most));
        }
        let (mut end, mut total) = (0, 0_u64);
        for (start, length) in &ranges {
            let stop = start.checked_add(*length);
            if *start < end || stop.is_none_or(|stop| stop > size) {
                return Err(bad("a sparse file's map has ranges that overlap or exceed its size"));
            }
            end = start + length;
            total += length;
        }
        if total != self.data_left() {
            return Err(bad("a sparse file's map does not fit its data"));
        }
        entry.size = size;
        entry.sparse = Some(ranges.into_iter().filter(|(_, length)| *length > 0).collect());
        Ok(())
    }

    /// Reads four ranges from the header and 21 from each block that follows it.
    fn old_gnu(
        &mut self,
        block: &[u8; BLOCK],
        stored: u64,
    ) -> Result<(Vec<(u64, u64)>, u64), Error> {
        let offset = self.offset();
        let bad = || damaged(offset, b"", "bad sparse header");
        let value = |field: &[u8]| number(field).and_then(|value| u64::try_from(value).ok());
        let mut ranges = Vec::new();
        let mut add = |bytes: &[u8]| -> Option<()> {
            for pair in bytes.chunks_exact(24) {
                if pair[0] == 0 && pair[12] == 0 {
                    break;
                }
                ranges.push((value(&pair[..12])?, value(&pair[12..])?));
            }
            Some(())
        };
        add(&block[386..386 + 96]).ok_or_else(bad)?;
        let size = value(&block[483..495]).ok_or_else(bad)?;
        let mut more = block[482] != 0;
        let mut blocks = 0;
        while more {
            blocks += 1;
            if blocks * 21 > self.limits.sparse_ranges {
                let most = self.limits.sparse_ranges;
                return Err(limit(b"", "number of sparse ranges", blocks * 21, most));
            }
            // These blocks stand before the data and are not counted in the size.
            let next = self.block()?.ok_or_else(bad)?;
            add(&next[..504]).ok_or_else(bad)?;
            more = next[504] != 0;
        }
        self.expect_data(stored);
        Ok((ranges, size))
    }

    /// Format 1.0: decimal lines at the start of the data, padded to a block.
    fn map_in_data(&mut self) -> Result<Vec<(u64, u64)>, Error> {
        let offset = self.offset();
        let bad = || damaged(offset, b"", "bad sparse map");
        let most = self.limits.sparse_ranges;
        let mut numbers: Vec<u64> = Vec::new();
        let mut line = Vec::new();
        let mut wanted = None;
        while wanted.is_none_or(|wanted| (numbers.len() as u64) < wanted) {
            if self.data_left() < BLOCK as u64 {
                return Err(bad());
            }
            let mut block = [0; BLOCK];
            block.copy_from_slice(self.data()?.get(..BLOCK).ok_or_else(bad)?);
            self.advance(BLOCK);
            for byte in block {
                if byte != b'\n' {
                    line.push(byte);
                    if line.len() > 20 {
                        break;
                    }
                    continue;
                }
                let value = decimal(&line).ok_or_else(bad)?;
                line.clear();
                match wanted {
                    None if value > most => {
                        return Err(limit(b"", "number of sparse ranges", value, most));
                    }
                    None => wanted = Some(value * 2),
                    Some(_) => numbers.push(value),
                }
                if wanted == Some(numbers.len() as u64) {
                    break;
                }
            }
            if line.len() > 20 {
                return Err(bad());
            }
        }
        Ok(numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
    }
}
