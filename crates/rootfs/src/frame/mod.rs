//! Tar framing: reads entries from blocks of 512 bytes.
//!
//! Reads the formats that tar programs have written for forty years: v7, ustar with prefix, GNU
//! (long names, base-256 numbers, sparse files), PAX (path, linkpath, size, times, owners, extended
//! attributes of `star` and libarchive, sparse files 0.0, 0.1 and 1.0, global headers). The `tar`
//! crate supplies the header's layout only, because it knows no PAX sparse files, copies all data
//! through one more buffer, and ends silently at a truncated archive.
//!
//! An end without zero blocks is accepted, as by GNU tar, but only between entries. After the end
//! only zeros may follow. Volume continuations and unknown entry types are refused. Access and
//! change times, and owners' names, are not read.

mod entry;
mod number;
mod pax;
mod sparse;

use crate::error::Error;
use crate::limits::Limits;
use crate::owners::FileKind;
use number::number;
use std::collections::BTreeMap;
use std::io::{self, Read};

/// Size of a tar block in bytes.
pub const BLOCK: usize = 512;

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A file with data, a directory, a symbolic link, a fifo or a device.
    File(FileKind),
    /// A hard link.
    Link,
}

/// One entry's header with all its extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name in the archive, unchanged.
    pub path: Vec<u8>,
    /// Target of a hard or symbolic link.
    pub link: Vec<u8>,
    /// Its kind.
    pub kind: EntryKind,
    /// Permission and special bits, `0o7777`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size of the file with its holes, in bytes.
    pub size: u64,
    /// Modification time: seconds (may be negative) and nanoseconds.
    pub mtime: (i64, u32),
    /// Device numbers.
    pub device: (u32, u32),
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Data ranges (offset, length) of a sparse file, ascending and disjoint.
    pub sparse: Option<Vec<(u64, u64)>>,
    /// True if the archive holds data for it; a hard link may come with or without.
    pub has_data: bool,
    /// Position of its header in the stream.
    pub offset: u64,
}

impl Entry {
    /// Makes a hard link's entry with nothing but its names.
    pub(crate) fn link(path: &[u8], target: &[u8]) -> Self {
        Self {
            path: path.to_vec(),
            link: target.to_vec(),
            kind: EntryKind::Link,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 0,
            mtime: (0, 0),
            device: (0, 0),
            xattrs: BTreeMap::new(),
            sparse: None,
            has_data: false,
            offset: 0,
        }
    }

    /// Makes the entry of an empty file of root, from 1970.
    pub(crate) fn file(path: &[u8]) -> Self {
        Self { kind: EntryKind::File(FileKind::File), ..Self::link(path, b"") }
    }
}

/// A source of blocks.
pub trait Blocks {
    /// Returns buffered bytes; empty only at the end. As long as bytes are consumed in multiples of
    /// [`BLOCK`], it returns at least one block, except at the end of a stream that ends inside a
    /// block.
    fn fill(&mut self) -> io::Result<&[u8]>;
    /// Consumes bytes that `fill` has returned.
    fn consume(&mut self, count: usize);
}

/// Blocks from any reader.
pub struct Buffered<R> {
    reader: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl<R: Read> Buffered<R> {
    /// A buffer of 256 KiB.
    pub fn new(reader: R) -> Self {
        Self { reader, buffer: vec![0; 256 * 1024], start: 0, end: 0 }
    }
}

impl<R: Read> Blocks for Buffered<R> {
    fn fill(&mut self) -> io::Result<&[u8]> {
        if self.start == self.end {
            self.start = 0;
            self.end = read_full(&mut self.reader, &mut self.buffer)?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
    }
}

/// Reads until the buffer is full or the stream ends.
pub(crate) fn read_full(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match reader.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// A tar stream.
pub struct Reader<'a, B> {
    blocks: B,
    limits: &'a Limits,
    /// Position of the next byte.
    offset: u64,
    /// Bytes of data and of padding of the current entry that were not read yet.
    data: u64,
    padding: u64,
    entries: u64,
    global: pax::Records,
    ended: bool,
}

/// Extensions that precede their entry.
#[derive(Default)]
struct Pending {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    pax: Option<pax::Records>,
}

impl<'a, B: Blocks> Reader<'a, B> {
    /// Starts at the beginning of an archive.
    pub fn new(blocks: B, limits: &'a Limits) -> Self {
        Self {
            blocks,
            limits,
            offset: 0,
            data: 0,
            padding: 0,
            entries: 0,
            global: pax::Records::default(),
            ended: false,
        }
    }

    /// Position in the stream.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns the next entry, skipping unread data of the last one. Returns `None` at the
    /// archive's end, after which the stream is read to its end.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, Error> {
        let mut pending = Pending::default();
        loop {
            self.skip_data()?;
            let offset = self.offset;
            let Some(block) = self.header()? else {
                if pending.path.is_some() || pending.link.is_some() || pending.pax.is_some() {
                    return Err(damaged(offset, b"", "it ends after an extension header"));
                }
                return Ok(None);
            };
            let header = tar::Header::from_byte_slice(&block);
            check_sum(&block, offset)?;
            let flag = header.as_old().linkflag[0];
            let size = number(&header.as_old().size).and_then(|size| u64::try_from(size).ok());
            let size = size.ok_or_else(|| damaged(offset, b"", "size is not a number"))?;
            match flag {
                b'L' => pending.path = Some(self.long_name(size, offset)?),
                b'K' => pending.link = Some(self.long_name(size, offset)?),
                b'x' | b'X' => {
                    let text = self.small_data(size, offset)?;
                    let records =
                        pax::parse(&text).map_err(|problem| damaged(offset, b"", &problem))?;
                    pending.pax.get_or_insert_default().merge(records);
                }
                b'g' => {
                    let text = self.small_data(size, offset)?;
                    let records =
                        pax::parse(&text).map_err(|problem| damaged(offset, b"", &problem))?;
                    self.global.merge(records);
                }
                // A volume's label: says nothing about any file.
                b'V' => self.expect_data(size),
                _ => return self.entry(&block, flag, size, offset, pending).map(Some),
            }
        }
    }

    /// Buffered bytes of the current entry's stored data; empty at its end.
    pub fn data(&mut self) -> Result<&[u8], Error> {
        if self.data == 0 {
            return Ok(&[]);
        }
        let offset = self.offset;
        let left = usize::try_from(self.data).unwrap_or(usize::MAX);
        match self.blocks.fill() {
            Ok([]) => Err(damaged(offset, b"", "it ends inside a file's data")),
            Ok(bytes) => Ok(&bytes[..bytes.len().min(left)]),
            Err(source) => Err(Error::Read { offset, source }),
        }
    }

    /// Consumes `count` bytes that [`Reader::data`] has returned.
    pub fn advance(&mut self, count: usize) {
        debug_assert!(count as u64 <= self.data);
        self.blocks.consume(count);
        self.data -= count as u64;
        self.offset += count as u64;
    }

    /// Stored bytes of the current entry that were not read yet.
    pub fn data_left(&self) -> u64 {
        self.data
    }

    fn skip_data(&mut self) -> Result<(), Error> {
        self.data += std::mem::take(&mut self.padding);
        while self.data > 0 {
            let count = self.data()?.len();
            self.advance(count);
        }
        Ok(())
    }

    fn expect_data(&mut self, size: u64) {
        self.data = size;
        self.padding = size.next_multiple_of(BLOCK as u64) - size;
    }

    /// Reads the next header; `None` at the end of the archive, after which the rest is read.
    fn header(&mut self) -> Result<Option<[u8; BLOCK]>, Error> {
        if self.ended {
            return Ok(None);
        }
        let Some(block) = self.block()? else {
            self.ended = true;
            return Ok(None);
        };
        if block.iter().any(|byte| *byte != 0) {
            return Ok(Some(block));
        }
        self.ended = true;
        loop {
            let offset = self.offset;
            let bytes = self.blocks.fill().map_err(|source| Error::Read { offset, source })?;
            if bytes.is_empty() {
                return Ok(None);
            }
            if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
                let problem = "data follow its end; multi-volume archives are not supported";
                return Err(damaged(offset + at as u64, b"", problem));
            }
            let count = bytes.len();
            self.blocks.consume(count);
            self.offset += count as u64;
        }
    }

    /// Reads one block, `None` at the end of the stream.
    fn block(&mut self) -> Result<Option<[u8; BLOCK]>, Error> {
        let offset = self.offset;
        let bytes = self.blocks.fill().map_err(|source| Error::Read { offset, source })?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let Some(block) = bytes.first_chunk::<BLOCK>() else {
            return Err(damaged(offset, b"", "it ends inside a header"));
        };
        let block = *block;
        self.blocks.consume(BLOCK);
        self.offset += BLOCK as u64;
        Ok(Some(block))
    }

    /// Reads the data of an extension header, within their size limit.
    fn small_data(&mut self, size: u64, offset: u64) -> Result<Vec<u8>, Error> {
        if size > self.limits.header_bytes {
            return Err(limit(b"", "extension header size", size, self.limits.header_bytes));
        }
        let mut text = Vec::with_capacity(size as usize);
        self.expect_data(size);
        while self.data > 0 {
            let bytes = self.data()?;
            text.extend_from_slice(bytes);
            let count = bytes.len();
            self.advance(count);
        }
        debug_assert!(offset < self.offset);
        Ok(text)
    }

    fn long_name(&mut self, size: u64, offset: u64) -> Result<Vec<u8>, Error> {
        let mut name = self.small_data(size, offset)?;
        if let Some(end) = name.iter().position(|byte| *byte == 0) {
            name.truncate(end);
        }
        Ok(name)
    }

    /// Returns true if the next block looks like a header: old programs give hard links a size and
    /// no data.
    fn next_is_header(&mut self) -> Result<bool, Error> {
        let offset = self.offset;
        let bytes = self.blocks.fill().map_err(|source| Error::Read { offset, source })?;
        let Some(block) = bytes.first_chunk::<BLOCK>().copied() else { return Ok(true) };
        Ok(block.iter().all(|byte| *byte == 0) || check_sum(&block, offset).is_ok())
    }
}

fn damaged(offset: u64, entry: &[u8], problem: &str) -> Error {
    Error::Archive { offset, entry: entry.to_vec(), problem: problem.to_owned() }
}

fn limit(entry: &[u8], what: &'static str, found: u64, limit: u64) -> Error {
    Error::Limit { entry: entry.to_vec(), what, found, limit }
}

fn check_sum(block: &[u8; BLOCK], offset: u64) -> Result<(), Error> {
    let stored = number(&block[148..156]);
    // Old programs on some machines summed signed characters.
    let (mut unsigned, mut signed) = (8 * i64::from(b' '), 8 * i64::from(b' '));
    for byte in block[..148].iter().chain(&block[156..]) {
        unsigned += i64::from(*byte);
        signed += i64::from(byte.cast_signed());
    }
    if stored == Some(unsigned) || stored == Some(signed) {
        return Ok(());
    }
    Err(damaged(offset, b"", "a header's checksum is wrong, or this is not a tar archive"))
}
