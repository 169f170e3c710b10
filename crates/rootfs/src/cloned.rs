//! Reads a container's archive in udocker's format: the tree below `ROOT/`, and files beside it
//! that describe the container.
//!
//! [`read`] makes a layer of such an archive: everything below `ROOT/`, under the names that it has
//! there. [`crate::pack::cloned`] writes one.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use crate::error::Error;
use crate::frame::{Buffered, Entry, EntryKind, Reader};
use crate::limits::Limits;
use crate::owners::FileKind;
use crate::pack::Writer;

/// Prefix of the tree in the archive.
pub const TREE: &[u8] = b"ROOT/";

/// Size limit in bytes of the files that describe a container.
const DESCRIPTION_MAX: u64 = 4 << 20;

/// Writes the tree of an archive (uncompressed) as a layer; returns the files beside the tree by
/// name.
pub fn read(
    archive: impl Read,
    limits: &Limits,
    layer: impl Write,
) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let mut reader = Reader::new(Buffered::new(archive), limits);
    let mut writer = Writer::new(layer);
    let mut beside = BTreeMap::new();
    while let Some(mut entry) = reader.next_entry()? {
        let bare = entry.path.strip_prefix(b"./").unwrap_or(&entry.path).to_vec();
        if let Some(inner) = bare.strip_prefix(TREE) {
            entry.path = if inner.is_empty() { b"./".to_vec() } else { inner.to_vec() };
            if entry.kind == EntryKind::Link {
                let target = entry.link.strip_prefix(b"./").unwrap_or(&entry.link);
                entry.link = target.strip_prefix(TREE).unwrap_or(target).to_vec();
            }
            copy(&mut reader, entry, &mut writer)?;
        } else if entry.kind == EntryKind::File(FileKind::File)
            && entry.size <= DESCRIPTION_MAX
            && !bare.contains(&b'/')
        {
            let mut text = Vec::new();
            loop {
                let bytes = reader.data()?;
                if bytes.is_empty() {
                    break;
                }
                let count = bytes.len();
                text.extend_from_slice(bytes);
                reader.advance(count);
            }
            beside.insert(String::from_utf8_lossy(&bare).into_owned(), text);
        }
    }
    writer.finish()?;
    Ok(beside)
}

/// Copies one entry; holes become zeros.
fn copy<R: Read, W: Write>(
    reader: &mut Reader<'_, Buffered<R>>,
    mut entry: Entry,
    writer: &mut Writer<W>,
) -> Result<(), Error> {
    let ranges = entry.sparse.take();
    if entry.kind != EntryKind::File(FileKind::File) {
        // The data that a hard link repeats is that of its target.
        entry.size = 0;
    }
    writer.header(&entry, None)?;
    let mut at = 0;
    let whole = [(0, entry.size)];
    for (start, length) in ranges.as_deref().unwrap_or(&whole) {
        writer.zeros(start - at)?;
        let mut left = *length;
        while left > 0 {
            let bytes = reader.data()?;
            let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if count == 0 {
                break;
            }
            writer.bytes(&bytes[..count])?;
            reader.advance(count);
            left -= count as u64;
        }
        at = start + length;
    }
    writer.zeros(entry.size - at)?;
    writer.end(entry.size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_the_layer() {
        let mut archive = Vec::new();
        let mut writer = Writer::new(&mut archive);
        let mut put = |path: &[u8], text: &[u8]| {
            let entry = Entry { size: text.len() as u64, has_data: true, ..Entry::file(path) };
            writer.header(&entry, None).unwrap();
            writer.bytes(text).unwrap();
            writer.end(entry.size).unwrap();
        };
        put(b"./container.json", b"{}");
        put(b"./ROOT/a", &[7; 1000]);
        put(b"./other/b", b"no");
        writer.header(&Entry::link(b"./ROOT/c", b"./ROOT/a"), None).unwrap();
        writer.finish().unwrap();
        let mut layer = Vec::new();
        let limits = Limits::default();
        let beside = read(&archive[..], &limits, &mut layer).unwrap();
        assert_eq!(beside, [("container.json".to_owned(), b"{}".to_vec())].into());
        let mut reader = Reader::new(Buffered::new(&layer[..]), &limits);
        let first = reader.next_entry().unwrap().unwrap();
        assert_eq!((&first.path[..], first.size, reader.data().unwrap()[0]), (&b"a"[..], 1000, 7));
        let second = reader.next_entry().unwrap().unwrap();
        assert_eq!((&second.path[..], &second.link[..]), (&b"c"[..], &b"a"[..]));
        assert!(reader.next_entry().unwrap().is_none());
    }
}
