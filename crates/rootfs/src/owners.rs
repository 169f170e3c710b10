//! The ownership table: the facts about a tree that an unprivileged user cannot put on disk.
//!
//! A path without a record is as it is on disk, with owner 0:0. A path that its owner may not read
//! (mode 000) always has a record. A record holds the true kind, mode, owner and device number of
//! its path, and those extended attributes that are not on disk. Whiteouts and opaque directories
//! are listed here only if the file system cannot hold them.
//!
//! The file is text, one line per record, sorted by path bytes, so that equal tables are equal
//! files:
//! ```text
//! coracle-owners 1
//! f 0755 0 0 - security.capability=0100000202000000 usr/bin/ping
//! d 0700 1000 1000 - - home/user
//! c 0666 0 0 1:3 - dev/null
//! w etc/gone
//! o etc/dir
//! ```
//! In paths `\\` stands for a backslash and `\n` for a line feed; all other bytes stand for
//! themselves.

use crate::error::Error;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::Bound;
use std::path::Path;

const MAGIC: &[u8] = b"coracle-owners 1\n";

/// Extended attribute that holds the record of an inode in a container's upper directory.
pub const OWNER_XATTR: &[u8] = b"user.coracle.owner";

const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

/// Kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Character device.
    Char,
    /// Block device.
    Block,
    /// Unix socket.
    Socket,
}

impl FileKind {
    /// The letter in tables, the same as in `ls -l` and `find -type`.
    #[must_use]
    pub fn letter(self) -> u8 {
        match self {
            Self::File => b'f',
            Self::Directory => b'd',
            Self::Symlink => b'l',
            Self::Fifo => b'p',
            Self::Char => b'c',
            Self::Block => b'b',
            Self::Socket => b's',
        }
    }

    fn from_letter(letter: u8) -> Option<Self> {
        Some(match letter {
            b'f' => Self::File,
            b'd' => Self::Directory,
            b'l' => Self::Symlink,
            b'p' => Self::Fifo,
            b'c' => Self::Char,
            b'b' => Self::Block,
            b's' => Self::Socket,
            _ => return None,
        })
    }

    /// Reads the kind from the type bits of `st_mode`.
    #[must_use]
    pub fn from_mode(mode: u32) -> Self {
        match FileType::from_raw_mode(mode) {
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Fifo,
            FileType::CharacterDevice => Self::Char,
            FileType::BlockDevice => Self::Block,
            FileType::Socket => Self::Socket,
            _ => Self::File,
        }
    }
}

/// The true attributes of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Kind of the file.
    pub kind: FileKind,
    /// Permission and special bits, `0o7777`.
    pub mode: u32,
    /// Owner in the image.
    pub uid: u32,
    /// Group in the image.
    pub gid: u32,
    /// Major and minor number of a device, else 0, 0.
    pub device: (u32, u32),
    /// Extended attributes that are not on disk.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Record {
    /// The text of [`OWNER_XATTR`]: `uid:gid:mode(octal):type:major:minor`, and `:a`, `:d` or `:ad`
    /// if there is an access list, a default list or both.
    #[must_use]
    pub fn to_xattr(&self) -> String {
        let (major, minor) = self.device;
        let kind = char::from(self.kind.letter());
        let has = |list| self.kind != FileKind::Symlink && self.xattrs.contains_key(list);
        let lists = match (has(ACCESS_LIST), has(DEFAULT_LIST)) {
            (false, false) => "",
            (true, false) => ":a",
            (false, true) => ":d",
            (true, true) => ":ad",
        };
        format!("{}:{}:{:o}:{kind}:{major}:{minor}{lists}", self.uid, self.gid, self.mode)
    }

    /// Gives those entries of the access list that equal the mode the values of the mode: on an
    /// inode with a record they are not kept up to date (acl(5), `linux/posix_acl_xattr.h`).
    pub(crate) fn update_access_list(&mut self) {
        let Some(list) = self.xattrs.get_mut(ACCESS_LIST) else { return };
        let entries = || list.get(4..).unwrap_or_default().chunks_exact(8);
        let middle: u8 = if entries().any(|entry| entry[0] == 0x10) { 0x10 } else { 0x04 };
        for entry in list.get_mut(4..).unwrap_or_default().chunks_exact_mut(8) {
            let permissions = match entry[0] {
                0x01 => self.mode >> 6,
                0x20 => self.mode,
                tag if tag == middle => self.mode >> 3,
                _ => continue,
            };
            entry[2] = permissions as u8 & 7;
        }
    }

    /// Reads the text of [`OWNER_XATTR`].
    #[must_use]
    pub fn from_xattr(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut parts = text.split(':');
        let uid = parts.next()?.parse().ok()?;
        let gid = parts.next()?.parse().ok()?;
        let mode = u32::from_str_radix(parts.next()?, 8).ok()? & 0o7777;
        let [letter] = parts.next()?.as_bytes() else { return None };
        let kind = FileKind::from_letter(*letter)?;
        let device = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { kind, mode, uid, gid, device, xattrs: BTreeMap::new() })
    }
}

/// The ownership table of one tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owners {
    records: BTreeMap<Vec<u8>, Record>,
    whiteouts: BTreeSet<Vec<u8>>,
    opaques: BTreeSet<Vec<u8>>,
}

impl Owners {
    /// Makes an empty table: everything is as on disk and belongs to 0:0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The record of a path (relative, no leading slash; the root is the empty path).
    #[must_use]
    pub fn get(&self, path: &[u8]) -> Option<&Record> {
        self.records.get(path)
    }

    /// Adds or replaces a record.
    pub fn insert(&mut self, path: &[u8], record: Record) {
        self.records.insert(path.to_vec(), record);
    }

    /// All records, sorted by path bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Record)> {
        self.records.iter().map(|(path, record)| (&path[..], record))
    }

    /// Whiteouts that are not on disk.
    pub fn whiteouts(&self) -> impl Iterator<Item = &[u8]> {
        self.whiteouts.iter().map(|path| &path[..])
    }

    /// Returns true if the table (not the disk) has a whiteout for this path.
    #[must_use]
    pub fn is_whiteout(&self, path: &[u8]) -> bool {
        self.whiteouts.contains(path)
    }

    /// Returns true if the table (not the disk) marks this directory as opaque.
    #[must_use]
    pub fn is_opaque(&self, path: &[u8]) -> bool {
        self.opaques.contains(path)
    }

    /// Opaque directories that are not marked on disk.
    pub fn opaques(&self) -> impl Iterator<Item = &[u8]> {
        self.opaques.iter().map(|path| &path[..])
    }

    /// Adds a whiteout.
    pub fn add_whiteout(&mut self, path: &[u8]) {
        self.whiteouts.insert(path.to_vec());
    }

    /// Adds an opaque mark.
    pub fn add_opaque(&mut self, path: &[u8]) {
        self.opaques.insert(path.to_vec());
    }

    /// Removes a whiteout; returns true if there was one.
    pub fn remove_whiteout(&mut self, path: &[u8]) -> bool {
        self.whiteouts.remove(path)
    }

    /// Removes one path's record and opaque mark.
    pub fn remove(&mut self, path: &[u8]) {
        self.records.remove(path);
        self.opaques.remove(path);
    }

    /// Removes everything at and below a path (all of it for the empty path).
    pub fn remove_tree(&mut self, path: &[u8]) {
        self.remove(path);
        self.whiteouts.remove(path);
        self.remove_below(path);
    }

    /// Removes everything below a path, not the path itself.
    pub fn remove_below(&mut self, path: &[u8]) {
        let mut prefix = path.to_vec();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        let below = |key: &Vec<u8>| key.starts_with(&prefix) && !key.is_empty();
        let from = (Bound::Excluded(prefix.clone()), Bound::Unbounded);
        let keys: Vec<_> = self
            .records
            .range(from.clone())
            .map(|(key, _)| key.clone())
            .take_while(below)
            .collect();
        for key in keys {
            self.records.remove(&key);
        }
        for set in [&mut self.whiteouts, &mut self.opaques] {
            let keys: Vec<_> =
                set.range(from.clone()).take_while(|key| below(key)).cloned().collect();
            for key in keys {
                set.remove(&key);
            }
        }
    }

    /// Number of records and marks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len() + self.whiteouts.len() + self.opaques.len()
    }

    /// Returns true if the table has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads a table file; a missing file is an empty table.
    pub fn read(path: &Path) -> Result<Self, Error> {
        match std::fs::read(path) {
            Ok(bytes) => Self::parse(&bytes).map_err(|(line, problem)| Error::Table {
                path: path.to_path_buf(),
                line,
                problem,
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => {
                Err(Error::Table { path: path.to_path_buf(), line: 0, problem: error.to_string() })
            }
        }
    }

    /// Parses the text; an error carries the line number.
    pub fn parse(bytes: &[u8]) -> Result<Self, (usize, String)> {
        let Some(body) = bytes.strip_prefix(MAGIC) else {
            return Err((1, "not an ownership table of version 1".into()));
        };
        let mut table = Self::default();
        for (index, line) in body.split(|byte| *byte == b'\n').enumerate() {
            if !line.is_empty() {
                table.parse_line(line).ok_or_else(|| (index + 2, "malformed record".to_owned()))?;
            }
        }
        Ok(table)
    }

    fn parse_line(&mut self, line: &[u8]) -> Option<()> {
        let mut fields = line.splitn(2, |byte| *byte == b' ');
        let (kind, rest) = (fields.next()?, fields.next()?);
        match kind {
            b"w" => {
                self.whiteouts.insert(unescape(rest)?);
                return Some(());
            }
            b"o" => {
                self.opaques.insert(unescape(rest)?);
                return Some(());
            }
            _ => {}
        }
        let [letter] = kind else { return None };
        let kind = FileKind::from_letter(*letter)?;
        let mut fields = rest.splitn(6, |byte| *byte == b' ');
        let mut text = || std::str::from_utf8(fields.next()?).ok();
        let mode = u32::from_str_radix(text()?, 8).ok()?;
        let (uid, gid) = (text()?.parse().ok()?, text()?.parse().ok()?);
        let device = match text()? {
            "-" => (0, 0),
            pair => {
                let (major, minor) = pair.split_once(':')?;
                (major.parse().ok()?, minor.parse().ok()?)
            }
        };
        let xattrs = parse_xattrs(text()?)?;
        let path = unescape(fields.next()?)?;
        self.records.insert(path, Record { kind, mode, uid, gid, device, xattrs });
        Some(())
    }

    /// Writes the text.
    pub fn write(&self, writer: impl Write) -> std::io::Result<()> {
        let mut writer = std::io::BufWriter::with_capacity(64 * 1024, writer);
        writer.write_all(MAGIC)?;
        for (path, record) in &self.records {
            let kind = char::from(record.kind.letter());
            write!(writer, "{kind} {:04o} {} {} ", record.mode, record.uid, record.gid)?;
            match record.device {
                (0, 0) => write!(writer, "- ")?,
                (major, minor) => write!(writer, "{major}:{minor} ")?,
            }
            write_xattrs(&mut writer, &record.xattrs)?;
            write_path(&mut writer, path)?;
        }
        for path in &self.whiteouts {
            writer.write_all(b"w ")?;
            write_path(&mut writer, path)?;
        }
        for path in &self.opaques {
            writer.write_all(b"o ")?;
            write_path(&mut writer, path)?;
        }
        writer.flush()
    }

    /// Writes the table to a new file beside a tree, which replaces an older one. A process that
    /// has the old file open, and other hard links to it, keep the old content.
    pub fn save(&self, directory: impl rustix::fd::AsFd, name: &str) -> Result<(), Error> {
        use rustix::fs::{AtFlags, Mode, OFlags};
        let directory = directory.as_fd();
        let fail = |step, errno| Error::disk(step, name.as_bytes(), errno);
        let new = format!("{name}.new-{}", std::process::id());
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, &new, flags, Mode::from_raw_mode(0o644))
            .map_err(|errno| fail("create the ownership table", errno))?;
        let written = self
            .write(std::fs::File::from(file))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            .and_then(|()| rustix::fs::renameat(directory, &new, directory, name));
        written.map_err(|errno| {
            let _ = rustix::fs::unlinkat(directory, &new, AtFlags::empty());
            fail("write the ownership table", errno)
        })
    }
}

fn write_xattrs(
    writer: &mut impl Write,
    xattrs: &BTreeMap<Vec<u8>, Vec<u8>>,
) -> std::io::Result<()> {
    if xattrs.is_empty() {
        return writer.write_all(b"- ");
    }
    for (index, (name, value)) in xattrs.iter().enumerate() {
        if index > 0 {
            writer.write_all(b",")?;
        }
        for byte in name {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b':' | b'/') {
                writer.write_all(&[*byte])?;
            } else {
                write!(writer, "%{byte:02x}")?;
            }
        }
        writer.write_all(b"=")?;
        for byte in value {
            write!(writer, "{byte:02x}")?;
        }
    }
    writer.write_all(b" ")
}

fn parse_xattrs(text: &str) -> Option<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut xattrs = BTreeMap::new();
    if text == "-" {
        return Some(xattrs);
    }
    for pair in text.split(',') {
        let (name, value) = pair.split_once('=')?;
        let mut plain = Vec::new();
        let mut bytes = name.as_bytes();
        while let Some((first, rest)) = bytes.split_first() {
            if *first == b'%' {
                plain.push(hex_byte(rest.get(..2)?)?);
                bytes = &rest[2..];
            } else {
                plain.push(*first);
                bytes = rest;
            }
        }
        let value = value.as_bytes().chunks(2).map(hex_byte).collect::<Option<Vec<u8>>>()?;
        xattrs.insert(plain, value);
    }
    Some(xattrs)
}

fn hex_byte(pair: &[u8]) -> Option<u8> {
    let [high, low] = pair else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    Some(digit(*high)? << 4 | digit(*low)?)
}

fn write_path(writer: &mut impl Write, path: &[u8]) -> std::io::Result<()> {
    for part in path.split_inclusive(|byte| matches!(byte, b'\\' | b'\n')) {
        match part.split_last() {
            Some((b'\\', plain)) => {
                writer.write_all(plain)?;
                writer.write_all(b"\\\\")?;
            }
            Some((b'\n', plain)) => {
                writer.write_all(plain)?;
                writer.write_all(b"\\n")?;
            }
            _ => writer.write_all(part)?,
        }
    }
    writer.write_all(b"\n")
}

fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut path = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        path.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                _ => return None,
            },
            other => *other,
        });
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> impl Strategy<Value = Record> {
        let kind = prop::sample::select(b"fdlpcbs".to_vec());
        let name = prop::collection::vec(1_u8.., 1..12);
        let xattrs =
            prop::collection::btree_map(name, prop::collection::vec(any::<u8>(), 0..9), 0..3);
        (kind, 0_u32..0o10000, any::<u32>(), any::<u32>(), any::<(u32, u32)>(), xattrs).prop_map(
            |(kind, mode, uid, gid, device, xattrs)| {
                let kind = FileKind::from_letter(kind).unwrap();
                Record { kind, mode, uid, gid, device, xattrs }
            },
        )
    }

    #[test]
    fn saving_a_table_keeps_hard_links_to_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, own) = (dir.path().join("shared"), dir.path().join("own"));
        std::fs::write(&shared, "the image's").unwrap();
        std::fs::hard_link(&shared, &own).unwrap();
        let directory = std::fs::File::open(dir.path()).unwrap();
        Owners::new().save(&directory, "own").unwrap();
        assert_eq!(std::fs::read(&shared).unwrap(), b"the image's");
        assert!(Owners::read(&own).unwrap().is_empty());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    proptest! {
        #[test]
        fn text_round_trip(
            records in prop::collection::btree_map(prop::collection::vec(1_u8.., 0..20), record(), 0..20),
            marks in prop::collection::btree_set(prop::collection::vec(1_u8.., 0..20), 0..5),
        ) {
            let table = Owners { records, whiteouts: marks.clone(), opaques: marks };
            let mut text = Vec::new();
            table.write(&mut text).unwrap();
            prop_assert_eq!(Owners::parse(&text).unwrap(), table);
        }

        #[test]
        fn xattr_round_trip(record in record()) {
            let plain = Record { xattrs: BTreeMap::new(), ..record };
            prop_assert_eq!(Record::from_xattr(plain.to_xattr().as_bytes()), Some(plain));
        }
    }

    #[test]
    fn removing_a_directory_takes_what_is_below_and_no_more() {
        let mut table = Owners::new();
        let record = Record::from_xattr(b"1:1:644:f:0:0").unwrap();
        for path in [&b"a"[..], b"a/b", b"a/b/c", b"a-b", b"a.b", b"ab", b"b"] {
            table.insert(path, record.clone());
        }
        table.add_whiteout(b"a/w");
        table.remove_tree(b"a");
        let left: Vec<_> = table.iter().map(|(path, _)| path.to_vec()).collect();
        assert_eq!(left, [&b"a-b"[..], b"a.b", b"ab", b"b"]);
        assert_eq!(table.whiteouts().count(), 0);
        table.remove_below(b"");
        assert!(table.is_empty());
    }

    #[test]
    fn records_say_which_lists_there_are() {
        let mut record = Record::from_xattr(b"1:2:640:f:0:0:ad").unwrap();
        assert_eq!(record.to_xattr(), "1:2:640:f:0:0");
        record.xattrs.insert(DEFAULT_LIST.to_vec(), Vec::new());
        assert_eq!(record.to_xattr(), "1:2:640:f:0:0:d");
        let entry = |tag: u8, permissions: u8| [tag, 0, permissions, 0, 9, 0, 0, 0];
        let list = |entries: &[[u8; 8]]| [&[2, 0, 0, 0], entries.as_flattened()].concat();
        let named = [entry(1, 7), entry(2, 7), entry(4, 5), entry(16, 7), entry(32, 7)];
        record.xattrs.insert(ACCESS_LIST.to_vec(), list(&named));
        assert_eq!(record.to_xattr(), "1:2:640:f:0:0:ad");
        record.update_access_list();
        let updated = [entry(1, 6), entry(2, 7), entry(4, 5), entry(16, 4), entry(32, 0)];
        assert_eq!(record.xattrs[ACCESS_LIST], list(&updated));
    }

    #[test]
    fn malformed_lines_are_named() {
        let text = b"coracle-owners 1\nf 0644 0 0 - - a\nf 0644 0 x - - b\n";
        assert_eq!(Owners::parse(text).unwrap_err().0, 3);
        assert_eq!(Owners::parse(b"nonsense").unwrap_err().0, 1);
    }
}
