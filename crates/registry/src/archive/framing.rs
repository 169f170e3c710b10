//! Tar framing for archives of images: reads names, sizes and kinds in bounded memory.
//!
//! The `tar` crate decodes header blocks only. This module reads the sequence of blocks, because
//! that crate reads GNU and PAX extension headers of any claimed size into memory.

use std::collections::BTreeMap;
use std::io::{self, Read};

use super::invalid;
use crate::{Error, limits};

const BLOCK: usize = 512;
/// Limit in bytes of data after the archive's end (tar pads to its record size), which are read so
/// that a pipe's writer does not get `SIGPIPE`.
const TRAILER: u64 = 16 << 20;

/// Kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    /// A symbolic link, its target relative to the entry's directory.
    Symlink(String),
    /// A hard link, its target from the root.
    Hardlink(String),
    Other,
}

/// An entry's header; its data are then read from [`Entries`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The path without leading `/` and `./`.
    pub(super) path: String,
    pub(super) kind: Kind,
    pub(super) size: u64,
}

/// The entries of a tar stream; as a reader, it yields the current entry's data.
pub(super) struct Entries<R> {
    reader: R,
    left: u64,
    padding: u64,
    count: usize,
}

#[derive(Default)]
struct Extended {
    path: Option<String>,
    link: Option<String>,
    size: Option<u64>,
}

impl<R: Read> Entries<R> {
    pub(super) fn new(reader: R) -> Self {
        Entries { reader, left: 0, padding: 0, count: 0 }
    }

    /// Reads the next entry, skipping unread data of the current one.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Error> {
        self.skip()?;
        let mut extended = Extended::default();
        loop {
            let mut block = [0; BLOCK];
            self.fill(&mut block)?;
            if block.iter().all(|&byte| byte == 0) {
                let _ = io::copy(&mut self.reader.by_ref().take(TRAILER), &mut io::sink());
                return Ok(None);
            }
            self.count += 1;
            if self.count > limits::ARCHIVE_ENTRIES {
                return Err(invalid(format!("more than {} entries", limits::ARCHIVE_ENTRIES)));
            }
            let header = tar::Header::from_byte_slice(&block);
            check_sum(header, &block)?;
            let bad = |_| invalid("a number in a header is not valid");
            let size = header.entry_size().map_err(bad)?;
            self.begin(size)?;
            match header.entry_type().as_byte() {
                b'L' => extended.path = Some(self.long_name()?),
                b'K' => extended.link = Some(self.long_name()?),
                b'x' => self.pax(&mut extended)?,
                b'g' => self.skip()?,
                kind => return self.entry(header, kind, extended).map(Some),
            }
        }
    }

    fn entry(
        &mut self,
        header: &tar::Header,
        kind: u8,
        extended: Extended,
    ) -> Result<Entry, Error> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let path = extended.path.unwrap_or_else(|| text(&header.path_bytes()));
        let link =
            extended.link.or_else(|| Some(text(&header.link_name_bytes()?))).unwrap_or_default();
        if let Some(size) = extended.size {
            self.begin(size)?;
        }
        let kind = match kind {
            0 | b'0' | b'7' => Kind::File,
            b'1' => Kind::Hardlink(link),
            b'2' => Kind::Symlink(link),
            b'S' => return Err(invalid("it has sparse entries, which are not supported")),
            _ => Kind::Other,
        };
        Ok(Entry { path: normal(&path), kind, size: self.left })
    }

    fn begin(&mut self, size: u64) -> Result<(), Error> {
        self.left = size;
        let padded = size.checked_next_multiple_of(BLOCK as u64);
        self.padding = padded.ok_or_else(|| invalid("an entry's size is too large"))? - size;
        Ok(())
    }

    fn skip(&mut self) -> Result<(), Error> {
        let rest = self.left.saturating_add(self.padding);
        let skipped = io::copy(&mut self.reader.by_ref().take(rest), &mut io::sink())
            .map_err(|source| Error::ArchiveIo { action: "read", source })?;
        (self.left, self.padding) = (0, 0);
        if skipped < rest { Err(too_early()) } else { Ok(()) }
    }

    fn fill(&mut self, block: &mut [u8]) -> Result<(), Error> {
        self.reader.read_exact(block).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => too_early(),
            _ => Error::ArchiveIo { action: "read", source },
        })
    }

    /// The whole data of a small entry.
    pub(super) fn data(&mut self, limit: u64) -> Result<Vec<u8>, Error> {
        if self.left > limit {
            return Err(invalid(format!("a document in it has more than {limit} bytes")));
        }
        let mut bytes = vec![0; self.left as usize];
        self.fill(&mut bytes)?;
        self.left = 0;
        Ok(bytes)
    }

    fn long_name(&mut self) -> Result<String, Error> {
        let bytes = self.data(limits::ARCHIVE_HEADER)?;
        self.skip()?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// PAX records: `length key=value\n` (POSIX.1-2001, pax).
    fn pax(&mut self, extended: &mut Extended) -> Result<(), Error> {
        let bytes = self.data(limits::ARCHIVE_HEADER)?;
        self.skip()?;
        let records = pax_records(&bytes).ok_or_else(|| invalid("a PAX header is not valid"))?;
        for (key, value) in records {
            match key.as_str() {
                "path" => extended.path = Some(value),
                "linkpath" => extended.link = Some(value),
                "size" => {
                    let size = value.parse().map_err(|_| invalid("a size is not a number"))?;
                    extended.size = Some(size);
                }
                key if key.starts_with("GNU.sparse") => {
                    return Err(invalid("it has sparse entries, which are not supported"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl<R: Read> Read for Entries<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let n = self.reader.read(&mut buffer[..most])?;
        if n == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the archive is truncated"));
        }
        self.left -= n as u64;
        Ok(n)
    }
}

fn too_early() -> Error {
    invalid("it is truncated")
}

fn check_sum(header: &tar::Header, block: &[u8; BLOCK]) -> Result<(), Error> {
    let sum = |range: std::ops::Range<usize>| -> u32 {
        block[range].iter().map(|&byte| u32::from(byte)).sum()
    };
    let found = sum(0..148) + sum(156..BLOCK) + 8 * u32::from(b' ');
    match header.cksum() {
        Ok(expected) if expected == found => Ok(()),
        _ => Err(invalid("it is not a tar stream, or it is damaged (wrong checksum of a header)")),
    }
}

fn pax_records(mut bytes: &[u8]) -> Option<BTreeMap<String, String>> {
    let mut records = BTreeMap::new();
    while !bytes.is_empty() {
        let space = bytes.iter().position(|&byte| byte == b' ')?;
        let length: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
        let record = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|&byte| byte == b'=')?;
        let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        records.insert(text(&record[..equals]), text(&record[equals + 1..]));
        bytes = &bytes[length..];
    }
    Some(records)
}

/// Normalises a path for look-ups: no empty and no `.` components.
pub(super) fn normal(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    parts.join("/")
}

/// The path that a link leads to, from the root; `None` if it leads out of the archive.
pub(super) fn target(entry: &Entry) -> Option<String> {
    let (base, link) = match &entry.kind {
        Kind::Hardlink(link) => ("", link),
        Kind::Symlink(link) if link.starts_with('/') => ("", link),
        Kind::Symlink(link) => (entry.path.rsplit_once('/').map_or("", |(dir, _)| dir), link),
        Kind::File | Kind::Other => return None,
    };
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use testkit::layer::{Entry as Made, Layer};

    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(Entry, Vec<u8>)>, Error> {
        let mut entries = Entries::new(bytes);
        let mut found = Vec::new();
        while let Some(entry) = entries.next()? {
            let mut data = Vec::new();
            entries
                .read_to_end(&mut data)
                .map_err(|source| Error::ArchiveIo { action: "read", source })?;
            found.push((entry, data));
        }
        Ok(found)
    }

    #[test]
    fn names_links_and_data() {
        let long = format!("d/{}", "x".repeat(300));
        let tar = Layer::new()
            .dir("d")
            .file("./a", 0o644, "hello")
            .file(&long, 0o644, vec![7; 1000])
            .symlink("d/l", "../a")
            .hardlink("h", "a")
            .entry(&Made::new(b'0', "p").pax("path", "d/pax").data("x").gnu_names())
            .finish();
        let found = all(&tar).unwrap();
        let names: Vec<&str> = found.iter().map(|(e, _)| e.path.as_str()).collect();
        assert_eq!(names[..3], ["d", "a", &long]);
        assert_eq!(found[1].1, b"hello");
        assert_eq!(found[2].1.len(), 1000);
        assert_eq!(target(&found[3].0).unwrap(), "a");
        assert_eq!(target(&found[4].0).unwrap(), "a");
        assert_eq!(target(&found[1].0), None);
        let out = Entry { path: "l".into(), kind: Kind::Symlink("../../x".into()), size: 0 };
        assert_eq!(target(&out), None);
    }

    #[test]
    fn broken_streams() {
        let tar = Layer::new().file("a", 0o644, "hello").finish();
        for length in [0, 100, 512, 514, 1023, 1024] {
            assert!(all(&tar[..length]).is_err(), "{length}");
        }
        assert!(all(&tar[..1536]).is_ok());
        assert!(all(&[1; 2048]).is_err());
        let absurd = Layer::new().entry(&Made::new(b'0', "a").claimed_size(u64::MAX / 4)).finish();
        assert!(all(&absurd).is_err());
        let long = Layer::new().entry(&Made::new(b'L', "a").claimed_size(1 << 40)).finish();
        assert!(all(&long).is_err());
        let sparse = Layer::new().entry(&Made::new(b'S', "a")).finish();
        assert!(all(&sparse).is_err());
    }

    proptest! {
        #[test]
        fn never_panics(at in 0usize..1024, byte in any::<u8>()) {
            let mut tar = Layer::new().file("a", 0o644, "hello").finish();
            tar[at] = byte;
            let _ = all(&tar);
            let _ = pax_records(&tar[at..]);
        }
    }
}
