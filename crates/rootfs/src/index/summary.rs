//! Counts what is in an index.

use abi::index::{DIGEST, Index, MAGIC, flags};
use std::fmt::Write as _;

/// What an index holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Version of the format: the last digits of its magic number.
    pub version: u32,
    /// Names, the root included.
    pub names: u64,
    /// Names of directories.
    pub directories: u64,
    /// Names of regular files.
    pub files: u64,
    /// Symbolic links.
    pub links: u64,
    /// Names of devices, pipes and sockets.
    pub others: u64,
    /// Inodes.
    pub inodes: u64,
    /// Size of the index in bytes.
    pub bytes: u64,
    /// Different pairs of user and group.
    pub owners: u64,
    /// Names with extended attributes or access lists.
    pub with_attributes: u64,
    /// Names of which the kernel must be asked.
    pub to_ask: u64,
    /// SHA-256 of the index, in which this digest counts as zeros; 64 digits.
    pub digest: String,
}

/// Counts what is in an index; `None` if the bytes are none.
#[must_use]
pub fn summary(bytes: &[u8]) -> Option<Summary> {
    let index = Index::open(bytes)?;
    let header = index.header();
    let digits = std::str::from_utf8(MAGIC.get(6..)?).ok()?;
    let mut summary = Summary {
        version: digits.parse().ok()?,
        names: header.records.into(),
        inodes: header.inodes.into(),
        owners: header.owners.into(),
        bytes: bytes.len() as u64,
        ..Summary::default()
    };
    for number in 0..header.records {
        let entry = index.entry(number)?;
        let count = match (entry.is_directory(), entry.is_file(), entry.is_link()) {
            (true, _, _) => &mut summary.directories,
            (_, true, _) => &mut summary.files,
            (_, _, true) => &mut summary.links,
            _ => &mut summary.others,
        };
        *count += 1;
        summary.with_attributes += u64::from(entry.has(flags::ATTRIBUTES));
        summary.to_ask += u64::from(entry.has(flags::ASK));
    }
    for byte in bytes.get(DIGEST)? {
        // Writing to a string cannot fail.
        let _ = write!(summary.digest, "{byte:02x}");
    }
    Some(summary)
}
