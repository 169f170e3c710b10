//! Builds an [`Entry`] from a header block and the extensions before it.

use super::number::number;
use super::pax::Records;
use super::{BLOCK, Blocks, Entry, EntryKind, Pending, Reader, damaged, limit};
use crate::error::Error;
use crate::owners::FileKind;

/// A header with its extensions; reading any field can fail with "damaged".
struct Source<'a> {
    block: &'a [u8; BLOCK],
    records: Records,
    path: Vec<u8>,
    offset: u64,
}

impl Source<'_> {
    fn bad(&self, problem: &str) -> Error {
        damaged(self.offset, &self.path, problem)
    }

    /// A number from the header, which PAX may override.
    fn number(&self, key: &[u8], from: usize, to: usize, what: &str) -> Result<i64, Error> {
        match self.records.number(key).map_err(|problem| self.bad(&problem))? {
            Some(value) => Ok(value),
            None => number(&self.block[from..to])
                .ok_or_else(|| self.bad(&format!("{what} is not a number"))),
        }
    }

    fn id(&self, key: &[u8], from: usize, to: usize, what: &str) -> Result<u32, Error> {
        let value = self.number(key, from, to, what)?;
        match u32::try_from(value) {
            Ok(id) if id != u32::MAX => Ok(id),
            _ => Err(self.bad(&format!("{what} {value} is out of range"))),
        }
    }

    fn mtime(&self) -> Result<(i64, u32), Error> {
        match self.records.time(b"mtime").map_err(|problem| self.bad(&problem))? {
            Some(time) => Ok(time),
            None => Ok((self.number(b"", 136, 148, "time")?, 0)),
        }
    }

    fn device(&self) -> Result<(u32, u32), Error> {
        let part = |key, from, to| -> Result<u32, Error> {
            let value = self.number(key, from, to, "device number")?;
            u32::try_from(value).map_err(|_| self.bad("device number is out of range"))
        };
        Ok((part(b"SCHILY.devmajor", 329, 337)?, part(b"SCHILY.devminor", 337, 345)?))
    }
}

impl<B: Blocks> Reader<'_, B> {
    /// Builds an entry from its header and the extensions before it.
    pub(super) fn entry(
        &mut self,
        block: &[u8; BLOCK],
        flag: u8,
        size: u64,
        offset: u64,
        pending: Pending,
    ) -> Result<Entry, Error> {
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(limit(b"", "number of entries", self.entries, self.limits.entries));
        }
        let has_pax = pending.pax.is_some();
        let mut records = self.global.clone();
        if let Some(own) = pending.pax {
            records.merge(own);
        }
        let path = match records.path() {
            Some(name) => name.to_vec(),
            None => pending.path.unwrap_or_else(|| header_path(block)),
        };
        let link = match records.get(b"linkpath") {
            Some(name) => name.to_vec(),
            None => pending.link.unwrap_or_else(|| text(&block[157..257]).to_vec()),
        };
        let source = Source { block, records, path, offset };
        self.check_names(&source, &link)?;
        let size = match source.records.number(b"size").map_err(|problem| source.bad(&problem))? {
            Some(size) => u64::try_from(size).map_err(|_| source.bad("negative size"))?,
            None => size,
        };
        let kind = kind_of(flag, &source.path).map_err(|problem| source.bad(&problem))?;
        let has_data = match kind {
            EntryKind::File(FileKind::File) => true,
            // GNU's incremental dumps list a directory's files here.
            EntryKind::File(FileKind::Directory) => flag == b'D',
            EntryKind::Link => size > 0 && (has_pax || !self.next_is_header()?),
            EntryKind::File(_) => false,
        };
        let is_device = matches!(kind, EntryKind::File(FileKind::Char | FileKind::Block));
        let mut entry = Entry {
            link,
            kind,
            mode: source.number(b"", 100, 108, "mode")? as u32 & 0o7777,
            uid: source.id(b"uid", 108, 116, "owner")?,
            gid: source.id(b"gid", 116, 124, "group")?,
            size: if has_data { size } else { 0 },
            mtime: source.mtime()?,
            device: if is_device { source.device()? } else { (0, 0) },
            xattrs: source.records.xattrs().map_err(|problem| source.bad(&problem))?,
            sparse: None,
            has_data,
            offset,
            path: source.path,
        };
        self.expect_data(entry.size);
        if kind == EntryKind::File(FileKind::File) {
            self.read_sparse(block, flag, &source.records, &mut entry)?;
        }
        if flag == b'D' {
            (entry.size, entry.has_data) = (0, false);
        }
        self.check_sizes(&entry)?;
        Ok(entry)
    }

    fn check_names(&self, source: &Source<'_>, link: &[u8]) -> Result<(), Error> {
        let most = self.limits.path_bytes;
        for (what, name) in [("path length", &source.path[..]), ("link target length", link)] {
            if name.len() as u64 > most {
                return Err(limit(&source.path, what, name.len() as u64, most));
            }
            if name.contains(&0) {
                return Err(source.bad("a name holds a NUL byte"));
            }
        }
        Ok(())
    }

    fn check_sizes(&self, entry: &Entry) -> Result<(), Error> {
        let most = self.limits.xattr_bytes;
        for value in entry.xattrs.values() {
            let found = value.len() as u64;
            if found > most {
                return Err(limit(&entry.path, "extended attribute size", found, most));
            }
        }
        if entry.size > self.limits.file_bytes {
            return Err(limit(&entry.path, "file size", entry.size, self.limits.file_bytes));
        }
        Ok(())
    }
}

fn kind_of(flag: u8, path: &[u8]) -> Result<EntryKind, String> {
    Ok(EntryKind::File(match flag {
        // v7 had no type for directories: a trailing slash marks them.
        0 | b'0' | b'7' if path.ends_with(b"/") => FileKind::Directory,
        0 | b'0' | b'7' | b'S' => FileKind::File,
        b'1' => return Ok(EntryKind::Link),
        b'2' => FileKind::Symlink,
        b'3' => FileKind::Char,
        b'4' => FileKind::Block,
        b'5' | b'D' => FileKind::Directory,
        b'6' => FileKind::Fifo,
        b'M' => return Err("it continues a file of another volume, which is not supported".into()),
        b'N' => return Err("GNU's old long names (type N) are not supported".into()),
        other => return Err(format!("entries of type {:?} are not supported", char::from(other))),
    }))
}

/// The bytes before the first NUL.
fn text(field: &[u8]) -> &[u8] {
    &field[..field.iter().position(|byte| *byte == 0).unwrap_or(field.len())]
}

/// The name in a header, with the prefix where the format has one.
fn header_path(block: &[u8; BLOCK]) -> Vec<u8> {
    let name = text(&block[..100]);
    if &block[257..263] != b"ustar\0" {
        return name.to_vec();
    }
    // star keeps times in the last bytes of the prefix and signs with "tar" at the block's end.
    let end = if &block[508..512] == b"tar\0" { 345 + 131 } else { 345 + 155 };
    let prefix = text(&block[345..end]);
    if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
}
