//! Writes tar headers and data: ustar, with a PAX extended header for values that ustar cannot
//! hold.

use crate::error::Error;
use crate::frame::{BLOCK, Entry, EntryKind};
use crate::owners::FileKind;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::io::Write;

/// A sparse map must save at least this many bytes.
const SPARSE_FROM: u64 = 1 << 20;

/// Writes one archive.
pub struct Writer<W> {
    out: W,
    written: u64,
    buffer: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Starts an archive.
    pub fn new(out: W) -> Self {
        Self { out, written: 0, buffer: vec![0; 256 * 1024] }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes).map_err(Error::Write)
    }

    fn pad(&mut self, size: u64) -> Result<(), Error> {
        let padding = size.next_multiple_of(BLOCK as u64) - size;
        self.put(&[0; BLOCK][..padding as usize])
    }

    /// Writes an entry's headers. `stored`: bytes of data that follow, if not the file's size.
    pub fn header(&mut self, entry: &Entry, stored: Option<u64>) -> Result<(), Error> {
        let records = pax_records(entry, stored.unwrap_or(entry.size), Vec::new());
        self.headers(entry, stored.unwrap_or(entry.size), &records)
    }

    fn headers(&mut self, entry: &Entry, stored: u64, records: &[u8]) -> Result<(), Error> {
        if !records.is_empty() {
            let mut header = Header::new(b'x', 0o644);
            header.name(b"././@PaxHeader");
            header.octal(124, 12, records.len() as u64);
            self.put(&header.finish())?;
            self.put(records)?;
            self.pad(records.len() as u64)?;
        }
        self.put(&ustar(entry, stored))
    }

    /// Writes data of an entry whose headers were written.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.put(bytes)
    }

    /// Writes a hole as zeros.
    pub fn zeros(&mut self, count: u64) -> Result<(), Error> {
        let mut left = count;
        while left > 0 {
            let part = left.min(BLOCK as u64);
            self.put(&[0; BLOCK][..part as usize])?;
            left -= part;
        }
        Ok(())
    }

    /// Ends the data of an entry of this size.
    pub fn end(&mut self, size: u64) -> Result<(), Error> {
        self.pad(size)
    }

    /// Writes a regular file with its data.
    pub fn file(&mut self, entry: &Entry, fd: &OwnedFd, sparse: bool) -> Result<(), Error> {
        let ranges =
            if sparse && entry.size >= SPARSE_FROM { data_ranges(entry, fd)? } else { None };
        let Some(ranges) = ranges else {
            self.header(entry, None)?;
            self.data(entry, fd, 0, entry.size)?;
            return self.pad(entry.size);
        };
        let mut map = format!("{}\n", ranges.len()).into_bytes();
        for (start, length) in &ranges {
            map.extend_from_slice(format!("{start}\n{length}\n").as_bytes());
        }
        map.resize(map.len().next_multiple_of(BLOCK), 0);
        let stored = map.len() as u64 + ranges.iter().map(|(_, length)| length).sum::<u64>();
        let mut extra = Vec::new();
        record(&mut extra, b"GNU.sparse.major", b"1");
        record(&mut extra, b"GNU.sparse.minor", b"0");
        record(&mut extra, b"GNU.sparse.name", &entry.path);
        record(&mut extra, b"GNU.sparse.realsize", entry.size.to_string().as_bytes());
        let records = pax_records(entry, stored, extra);
        self.headers(entry, stored, &records)?;
        self.put(&map)?;
        for (start, length) in &ranges {
            self.data(entry, fd, *start, *length)?;
        }
        self.pad(stored)
    }

    fn data(&mut self, entry: &Entry, fd: &OwnedFd, start: u64, length: u64) -> Result<(), Error> {
        let (mut position, end) = (start, start + length);
        let mut buffer = std::mem::take(&mut self.buffer);
        while position < end {
            let want = usize::try_from(end - position).unwrap_or(usize::MAX).min(buffer.len());
            match rustix::io::pread(fd, &mut buffer[..want], position) {
                // A process may truncate the file meanwhile; the data must have the size in the
                // header.
                Ok(0) => {
                    buffer[..want].fill(0);
                    self.put(&buffer[..want])?;
                    position += want as u64;
                }
                Ok(count) => {
                    self.put(&buffer[..count])?;
                    position += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::disk("read", &entry.path, errno)),
            }
        }
        self.buffer = buffer;
        Ok(())
    }

    /// Writes the end mark; returns the archive's size.
    pub fn finish(mut self) -> Result<u64, Error> {
        self.put(&[0; 2 * BLOCK])?;
        self.out.flush().map_err(Error::Write)?;
        Ok(self.written)
    }
}

fn data_ranges(entry: &Entry, fd: &OwnedFd) -> Result<Option<Vec<(u64, u64)>>, Error> {
    let mut ranges = Vec::new();
    let (mut position, mut data) = (0, 0);
    while position < entry.size {
        let (start, end) = sys::fs::copy::data_range(fd.as_fd(), position, entry.size)
            .map_err(|errno| Error::disk("find the holes of", &entry.path, errno))?;
        if start < end {
            ranges.push((start, end - start));
            data += end - start;
        }
        position = end.max(position + 1);
    }
    // GNU tar expects the end marked by an empty range.
    ranges.push((entry.size, 0));
    Ok((entry.size - data >= SPARSE_FROM).then_some(ranges))
}

/// Adds `length key=value\n`, where the length counts itself.
fn record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + rest.to_string().len();
    if rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(length.to_string().as_bytes());
    records.push(b' ');
    records.extend_from_slice(key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// Largest number in a field of eight bytes.
const SMALL: u64 = 0o7_777_777;
/// Largest number in a field of twelve bytes.
const LARGE: u64 = 0o77_777_777_777;

fn pax_records(entry: &Entry, stored: u64, extra: Vec<u8>) -> Vec<u8> {
    let mut records = extra;
    let sparse = !records.is_empty();
    if !sparse && split_name(&entry.path).is_none() {
        record(&mut records, b"path", &entry.path);
    }
    if entry.link.len() > 100 {
        record(&mut records, b"linkpath", &entry.link);
    }
    if stored > LARGE {
        record(&mut records, b"size", stored.to_string().as_bytes());
    }
    for (key, id) in [(b"uid", entry.uid), (b"gid", entry.gid)] {
        if u64::from(id) > SMALL {
            record(&mut records, key, id.to_string().as_bytes());
        }
    }
    let (seconds, nanoseconds) = entry.mtime;
    if nanoseconds != 0 || !u64::try_from(seconds).is_ok_and(|seconds| seconds <= LARGE) {
        record(&mut records, b"mtime", time(seconds, nanoseconds).as_bytes());
    }
    let (major, minor) = entry.device;
    for (key, number) in [(&b"SCHILY.devmajor"[..], major), (b"SCHILY.devminor", minor)] {
        if u64::from(number) > SMALL {
            record(&mut records, key, number.to_string().as_bytes());
        }
    }
    for (name, value) in &entry.xattrs {
        match name.strip_prefix(b"pax:") {
            Some(key) => record(&mut records, key, value),
            None => record(&mut records, &[b"SCHILY.xattr.", &name[..]].concat(), value),
        }
    }
    records
}

fn time(seconds: i64, nanoseconds: u32) -> String {
    if nanoseconds == 0 {
        return seconds.to_string();
    }
    let (sign, whole, fraction) = if seconds < 0 {
        ("-", (seconds + 1).unsigned_abs(), 1_000_000_000 - nanoseconds)
    } else {
        ("", seconds.unsigned_abs(), nanoseconds)
    };
    format!("{sign}{whole}.{fraction:09}").trim_end_matches('0').to_owned()
}

/// Splits a name into ustar's prefix and name; `None` if it does not fit.
fn split_name(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.len() <= 100 {
        return Some((b"", path));
    }
    // The name may be 100 bytes and the prefix 155; the slash between them is not stored.
    let from = path.len().checked_sub(101)?;
    let slash = from + path[from..path.len() - 1].iter().position(|byte| *byte == b'/')?;
    (slash > 0 && slash <= 155).then(|| (&path[..slash], &path[slash + 1..]))
}

fn ustar(entry: &Entry, stored: u64) -> [u8; BLOCK] {
    let flag = match entry.kind {
        EntryKind::Link => b'1',
        EntryKind::File(kind) => match kind {
            FileKind::File | FileKind::Socket => b'0',
            FileKind::Symlink => b'2',
            FileKind::Char => b'3',
            FileKind::Block => b'4',
            FileKind::Directory => b'5',
            FileKind::Fifo => b'6',
        },
    };
    let mut header = Header::new(flag, entry.mode);
    match split_name(&entry.path) {
        Some((prefix, name)) => {
            header.name(name);
            header.bytes(345, 155, prefix);
        }
        // The PAX header has the whole name; this is for readers that ignore PAX headers.
        None => header.name(&entry.path[..100]),
    }
    header.octal(108, 8, u64::from(entry.uid).min(SMALL));
    header.octal(116, 8, u64::from(entry.gid).min(SMALL));
    header.octal(124, 12, stored.min(LARGE));
    header.octal(136, 12, u64::try_from(entry.mtime.0).unwrap_or(0).min(LARGE));
    header.bytes(157, 100, &entry.link[..entry.link.len().min(100)]);
    let is_device = matches!(flag, b'3' | b'4');
    let (major, minor) = if is_device { entry.device } else { (0, 0) };
    header.octal(329, 8, u64::from(major).min(SMALL));
    header.octal(337, 8, u64::from(minor).min(SMALL));
    header.finish()
}

struct Header([u8; BLOCK]);

impl Header {
    fn new(flag: u8, mode: u32) -> Self {
        let mut header = Self([0; BLOCK]);
        header.octal(100, 8, u64::from(mode & 0o7777));
        for (at, width) in [(108, 8), (116, 8), (124, 12), (136, 12)] {
            header.octal(at, width, 0);
        }
        header.0[156] = flag;
        header.bytes(257, 8, b"ustar\x0000");
        header
    }

    fn bytes(&mut self, at: usize, width: usize, bytes: &[u8]) {
        let length = bytes.len().min(width);
        self.0[at..at + length].copy_from_slice(&bytes[..length]);
    }

    fn name(&mut self, name: &[u8]) {
        self.bytes(0, 100, name);
    }

    fn octal(&mut self, at: usize, width: usize, value: u64) {
        let text = format!("{value:0digits$o}", digits = width - 1);
        self.bytes(at, width - 1, text.as_bytes());
    }

    fn finish(mut self) -> [u8; BLOCK] {
        self.0[148..156].fill(b' ');
        let sum: u64 = self.0.iter().map(|byte| u64::from(*byte)).sum();
        let text = format!("{sum:06o}\0 ");
        self.bytes(148, 8, text.as_bytes());
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_lengths_count_themselves() {
        for length in [1, 2, 80, 88, 89, 90, 91, 92, 93, 980, 985, 990, 995, 9_980, 9_990] {
            let mut records = Vec::new();
            record(&mut records, b"path", &vec![b'x'; length]);
            let said: usize =
                std::str::from_utf8(&records).unwrap().split(' ').next().unwrap().parse().unwrap();
            assert_eq!(said, records.len());
        }
    }

    #[test]
    fn times_before_1970() {
        assert_eq!(time(-2, 500_000_000), "-1.5");
        assert_eq!(time(-1, 1), "-0.999999999");
        assert_eq!(time(1, 20), "1.00000002");
        assert_eq!(time(-7, 0), "-7");
    }

    #[test]
    fn long_names_are_split_at_a_slash() {
        let long = [vec![b'a'; 90], vec![b'/'], vec![b'b'; 60]].concat();
        assert_eq!(split_name(&long).unwrap().1.len(), 60);
        assert!(split_name(&[b'a'; 101]).is_none());
        assert!(split_name(&[vec![b'a'; 160], vec![b'/'], vec![b'b'; 60]].concat()).is_none());
    }
}
