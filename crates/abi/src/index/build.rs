//! Makes the bytes of an index. This allocates; the programs that read an index do not need it.

extern crate alloc;

use super::{
    Entry, HEADER, Header, INODE, Layout, OWNER, RECORD, RECORDS_MAX, SLOT, inode_place, name_hash,
    place, tag,
};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// A file of the tree.
#[derive(Debug, Clone, Copy, Default)]
pub struct File<'a> {
    /// What is known of it. The members that say where something lies in the index are filled in:
    /// `name`, `name_length`, `owner`, and of directories and links `data` and `count`.
    pub entry: Entry,
    /// User and group.
    pub owner: (u32, u32),
    /// Name in its directory; empty for the root.
    pub name: &'a [u8],
    /// Target of a symbolic link.
    pub target: &'a [u8],
}

/// Why no index can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildError {
    /// The files are not in the order of their numbers, or a name is none.
    Order {
        /// Number of the file.
        number: usize,
    },
    /// There are more files, owners or bytes of names than the format can hold.
    TooMany,
}

/// Makes the index of these files. The root is the first, directories come before their names, and
/// the names of one directory follow each other, sorted. `block_size` is `st_blksize`.
pub fn build(files: &[File<'_>], block_size: u32) -> Result<Vec<u8>, BuildError> {
    if files.len() > RECORDS_MAX {
        return Err(BuildError::TooMany);
    }
    let owners = Owners::of(files)?;
    let mut texts = Vec::new();
    let entries = entries(files, &owners, &mut texts)?;
    let inodes = inodes(files);
    let number = |count: usize| u32::try_from(count).map_err(|_| BuildError::TooMany);
    let header = Header {
        records: number(files.len())?,
        inodes: number(inodes.len())?,
        owners: number(owners.pairs.len())?,
        texts: number(texts.len())?,
        block_size,
    };
    let layout = Layout::of(&header).ok_or(BuildError::TooMany)?;
    let mut bytes = vec![0; layout.texts.end];
    bytes[..HEADER].copy_from_slice(&header.to_bytes());
    let records = bytes[layout.records].as_chunks_mut::<RECORD>().0;
    for (record, entry) in records.iter_mut().zip(&entries) {
        *record = entry.to_bytes();
    }
    let slots = bytes[layout.slots].as_chunks_mut::<SLOT>().0;
    for (number, file) in (0_u32..).zip(files).skip(1) {
        let hash = name_hash(file.entry.parent, file.name);
        let slot = u64::from(tag(hash)) << 32 | u64::from(number + 1);
        put(slots, place(hash, slots.len()), slot.to_le_bytes());
    }
    let table = bytes[layout.inodes].as_chunks_mut::<INODE>().0;
    for (inode, number) in inodes {
        put(table, inode_place(inode, table.len()), (number + 1).to_le_bytes());
    }
    let pairs = bytes[layout.owners].as_chunks_mut::<OWNER>().0;
    for (place, (user, group)) in pairs.iter_mut().zip(&owners.pairs) {
        *place = (u64::from(*user) | u64::from(*group) << 32).to_le_bytes();
    }
    bytes[layout.texts].copy_from_slice(&texts);
    Ok(bytes)
}

/// Puts an entry into the first free place from `start` on. At most half of the places are taken.
fn put<const N: usize>(places: &mut [[u8; N]], start: usize, entry: [u8; N]) {
    let (before, after) = places.split_at_mut(start);
    if let Some(free) = after.iter_mut().chain(before).find(|place| **place == [0; N]) {
        *free = entry;
    }
}

/// The pairs of ids, each once.
struct Owners {
    pairs: Vec<(u32, u32)>,
    numbers: BTreeMap<(u32, u32), u16>,
}

impl Owners {
    fn of(files: &[File<'_>]) -> Result<Self, BuildError> {
        let mut owners = Self { pairs: Vec::new(), numbers: BTreeMap::new() };
        for file in files {
            if !owners.numbers.contains_key(&file.owner) {
                let number = u16::try_from(owners.pairs.len()).map_err(|_| BuildError::TooMany)?;
                owners.pairs.push(file.owner);
                owners.numbers.insert(file.owner, number);
            }
        }
        Ok(owners)
    }
}

/// The records. Names and targets are added to `texts`.
fn entries(
    files: &[File<'_>],
    owners: &Owners,
    texts: &mut Vec<u8>,
) -> Result<Vec<Entry>, BuildError> {
    let mut entries: Vec<Entry> = Vec::with_capacity(files.len());
    for (number, file) in files.iter().enumerate() {
        let wrong = BuildError::Order { number };
        let mut entry = file.entry;
        let mut text = |text: &[u8]| {
            let start = u32::try_from(texts.len()).map_err(|_| BuildError::TooMany)?;
            texts.extend_from_slice(text);
            Ok(start)
        };
        entry.name = text(file.name)?;
        entry.name_length = u8::try_from(file.name.len()).map_err(|_| wrong)?;
        entry.owner = owners.numbers.get(&file.owner).copied().unwrap_or_default();
        if entry.is_link() {
            entry.data = text(file.target)?;
            entry.count = u32::try_from(file.target.len()).map_err(|_| wrong)?;
        } else if entry.is_directory() {
            (entry.data, entry.count) = (0, 0);
        }
        if number > 0 {
            let own = u32::try_from(number).map_err(|_| BuildError::TooMany)?;
            let parent = entries.get_mut(entry.parent as usize).ok_or(wrong)?;
            if parent.count == 0 {
                parent.data = own;
            }
            if !parent.is_directory() || parent.data + parent.count != own {
                return Err(wrong);
            }
            parent.count += 1;
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// Each inode once, with its first record.
fn inodes(files: &[File<'_>]) -> Vec<(u64, u32)> {
    let mut inodes: Vec<(u64, u32)> =
        files.iter().zip(0_u32..).map(|(file, number)| (file.entry.inode, number)).collect();
    inodes.sort_unstable();
    inodes.dedup_by_key(|(inode, _)| *inode);
    inodes
}
