//! Makes layers by code: a writer of raw tar streams, valid or invalid.
//!
//! A library that writes valid archives cannot write the hostile ones that the tests need: names
//! with `..`, wrong sizes, links out of the tree, a PAX record of 100,000 bytes. So the headers are
//! built here byte by byte (POSIX.1-2001 ustar, PAX extended headers, GNU long names). [`Layer`]
//! has short methods for the usual entries; [`Entry`] gives every field.
//!
//! Not here: compression and digests (see [`crate::image`]), and reading.

use std::fs;

use crate::command::find_program;
use crate::skip::Skip;

const BLOCK: usize = 512;

/// Form of a name that does not fit 100 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LongNames {
    /// A PAX extended header (most tools write it today).
    #[default]
    Pax,
    /// GNU's `L` and `K` entries.
    Gnu,
}

/// One tar entry with every field accessible.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name as bytes, written unchanged.
    pub path: Vec<u8>,
    /// The link target, for kinds `1` and `2`.
    pub link: Vec<u8>,
    /// The type flag: `b'0'` file, `b'1'` hard link, `b'2'` symlink, `b'3'` char device,
    /// `b'4'` block device, `b'5'` directory, `b'6'` fifo.
    pub kind: u8,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Seconds since 1970.
    pub mtime: u64,
    /// Device numbers.
    pub device: (u32, u32),
    /// The contents.
    pub data: Vec<u8>,
    /// A size for the header that differs from the length of `data`.
    pub claimed_size: Option<u64>,
    /// PAX records written before the entry, in this order.
    pub pax: Vec<(String, Vec<u8>)>,
    /// Form of long names.
    pub long_names: LongNames,
}

impl Entry {
    /// An entry of type `kind` with mode 0644, owner 0:0, time 2020-01-01.
    pub fn new(kind: u8, path: impl AsRef<[u8]>) -> Self {
        Self {
            path: path.as_ref().to_vec(),
            link: Vec::new(),
            kind,
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime: 1_577_836_800,
            device: (0, 0),
            data: Vec::new(),
            claimed_size: None,
            pax: Vec::new(),
            long_names: LongNames::Pax,
        }
    }

    /// Sets the permission bits.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the owner.
    #[must_use]
    pub fn owner(mut self, uid: u64, gid: u64) -> Self {
        (self.uid, self.gid) = (uid, gid);
        self
    }

    /// Sets the link target.
    #[must_use]
    pub fn link(mut self, target: impl AsRef<[u8]>) -> Self {
        self.link = target.as_ref().to_vec();
        self
    }

    /// Sets the contents.
    #[must_use]
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = data.into();
        self
    }

    /// Sets the device numbers.
    #[must_use]
    pub fn device(mut self, major: u32, minor: u32) -> Self {
        self.device = (major, minor);
        self
    }

    /// Sets the modification time.
    #[must_use]
    pub fn mtime(mut self, seconds: u64) -> Self {
        self.mtime = seconds;
        self
    }

    /// Sets the size in the header, which may be wrong.
    #[must_use]
    pub fn claimed_size(mut self, size: u64) -> Self {
        self.claimed_size = Some(size);
        self
    }

    /// Adds a PAX record.
    #[must_use]
    pub fn pax(mut self, key: &str, value: impl AsRef<[u8]>) -> Self {
        self.pax.push((key.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Adds an extended attribute (`SCHILY.xattr.*`).
    #[must_use]
    pub fn xattr(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.pax(&format!("SCHILY.xattr.{name}"), value)
    }

    /// Writes long names in GNU's form.
    #[must_use]
    pub fn gnu_names(mut self) -> Self {
        self.long_names = LongNames::Gnu;
        self
    }
}

/// A tar stream under construction.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    bytes: Vec<u8>,
}

impl Layer {
    /// An empty layer.
    pub fn new() -> Self {
        Self::default()
    }

    /// The directories `/bin`, `/etc` and `/tmp`, and busybox with links to it.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn busybox(applets: &[&str]) -> Result<Self, Skip> {
        let path = find_program("busybox");
        let path = path.ok_or(Skip("busybox-static is not installed".to_owned()))?;
        let mut layer = Self::new();
        for (dir, mode) in [("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777)] {
            layer.push(&Entry::new(b'5', dir).mode(mode));
        }
        layer = layer.file("bin/busybox", 0o755, fs::read(path).expect("busybox"));
        for applet in applets {
            layer = layer.symlink(&format!("bin/{applet}"), "busybox");
        }
        Ok(layer)
    }

    /// Adds any entry.
    #[must_use]
    pub fn entry(mut self, entry: &Entry) -> Self {
        self.push(entry);
        self
    }

    /// Adds any entry, for loops.
    pub fn push(&mut self, entry: &Entry) {
        let mut pax = entry.pax.clone();
        for (name, key, gnu) in [(&entry.path, "path", b'L'), (&entry.link, "linkpath", b'K')] {
            if name.len() > 100 {
                match entry.long_names {
                    LongNames::Pax => pax.push((key.to_owned(), name.clone())),
                    LongNames::Gnu => {
                        let mut data = name.clone();
                        data.push(0);
                        self.write(&Entry::new(gnu, "././@LongLink").data(data));
                    }
                }
            }
        }
        if !pax.is_empty() {
            let records: Vec<u8> = pax.iter().flat_map(|(k, v)| pax_record(k, v)).collect();
            self.write(&Entry::new(b'x', "./PaxHeaders/entry").data(records));
        }
        self.write(entry);
    }

    /// Adds a directory with mode 0755.
    #[must_use]
    pub fn dir(self, path: &str) -> Self {
        self.entry(&Entry::new(b'5', path).mode(0o755))
    }

    /// Adds a regular file.
    #[must_use]
    pub fn file(self, path: &str, mode: u32, data: impl Into<Vec<u8>>) -> Self {
        self.entry(&Entry::new(b'0', path).mode(mode).data(data))
    }

    /// Adds a symbolic link.
    #[must_use]
    pub fn symlink(self, path: &str, target: &str) -> Self {
        self.entry(&Entry::new(b'2', path).mode(0o777).link(target))
    }

    /// Adds a hard link to an earlier entry.
    #[must_use]
    pub fn hardlink(self, path: &str, target: &str) -> Self {
        self.entry(&Entry::new(b'1', path).link(target))
    }

    /// Adds a whiteout: `path` of the layers below disappears (OCI image-spec, layer.md).
    #[must_use]
    pub fn whiteout(self, path: &str) -> Self {
        let name = match path.rsplit_once('/') {
            Some((parent, name)) => format!("{parent}/.wh.{name}"),
            None => format!(".wh.{path}"),
        };
        self.file(&name, 0o644, Vec::new())
    }

    /// Adds an opaque marker: the content of `dir` in the layers below disappears.
    #[must_use]
    pub fn opaque(self, dir: &str) -> Self {
        self.file(&format!("{dir}/.wh..wh..opq"), 0o644, Vec::new())
    }

    /// Adds bytes unchanged.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// The finished stream, closed by two zero blocks.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }

    /// The stream without its end marker, for truncated archives.
    #[must_use]
    pub fn unfinished(self) -> Vec<u8> {
        self.bytes
    }

    fn write(&mut self, entry: &Entry) {
        let size = entry.claimed_size.unwrap_or(entry.data.len() as u64);
        self.bytes.extend_from_slice(&header(entry, size));
        self.bytes.extend_from_slice(&entry.data);
        let padding = entry.data.len().next_multiple_of(BLOCK) - entry.data.len();
        self.bytes.resize(self.bytes.len() + padding, 0);
    }
}

/// One `length key=value\n` record whose length counts its own digits.
fn pax_record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    let mut record = format!("{length} {key}=").into_bytes();
    record.extend_from_slice(value);
    record.push(b'\n');
    record
}

/// One 512-byte ustar header with its checksum.
fn header(entry: &Entry, size: u64) -> [u8; BLOCK] {
    let mut header = [0u8; BLOCK];
    let short = |name: &[u8]| name[..name.len().min(100)].to_vec();
    put(&mut header, 0, &short(&entry.path));
    number(&mut header, 100, 8, u64::from(entry.mode));
    number(&mut header, 108, 8, entry.uid);
    number(&mut header, 116, 8, entry.gid);
    number(&mut header, 124, 12, size);
    number(&mut header, 136, 12, entry.mtime);
    header[156] = entry.kind;
    put(&mut header, 157, &short(&entry.link));
    put(&mut header, 257, b"ustar\x0000");
    number(&mut header, 329, 8, u64::from(entry.device.0));
    number(&mut header, 337, 8, u64::from(entry.device.1));
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    put(&mut header, 148, format!("{sum:06o}\0 ").as_bytes());
    header
}

fn put(header: &mut [u8; BLOCK], at: usize, bytes: &[u8]) {
    header[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Writes an octal field, or GNU's base-256 if the number does not fit.
fn number(header: &mut [u8; BLOCK], at: usize, width: usize, value: u64) {
    let digits = format!("{value:0w$o}", w = width - 1);
    if digits.len() < width {
        put(header, at, digits.as_bytes());
    } else {
        header[at] = 0x80;
        let bytes = value.to_be_bytes();
        let from = width.saturating_sub(8).max(1);
        let tail = &bytes[8 - (width - from)..];
        header[at + from..at + width].copy_from_slice(tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn a_reader_understands_what_is_written() {
        let long = format!("dir/{}", "n".repeat(300));
        let tar = Layer::new()
            .dir("dir")
            .file("dir/file", 0o4755, "data")
            .file(&long, 0o600, "long")
            .entry(&Entry::new(b'0', format!("g{}", "x".repeat(200))).gnu_names().data("gnu"))
            .symlink("dir/link", "file")
            .entry(&Entry::new(b'0', "big-ids").owner(1 << 33, 70_000))
            .finish();
        let mut archive = tar::Archive::new(tar.as_slice());
        let mut seen = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut data = String::new();
            entry.read_to_string(&mut data).unwrap();
            let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            seen.push((path, data, entry.header().uid().unwrap(), entry.header().mode().unwrap()));
        }
        assert_eq!(seen.len(), 6);
        assert_eq!(seen[1], ("dir/file".into(), "data".into(), 0, 0o4755));
        assert_eq!(seen[2].0, long);
        assert_eq!(seen[3].1, "gnu");
        assert_eq!(seen[5].2, 1 << 33);
    }

    #[test]
    fn pax_lengths_count_themselves() {
        assert_eq!(pax_record("a", b"b"), b"6 a=b\n");
        assert_eq!(pax_record("path", &[b'x'; 91]).len(), 100 + 1);
        for n in 0..2000 {
            let record = pax_record("k", &vec![b'v'; n]);
            let text = String::from_utf8_lossy(&record).into_owned();
            let claimed: usize = text.split(' ').next().unwrap().parse().unwrap();
            assert_eq!(claimed, record.len(), "value of {n} bytes");
        }
    }
}
