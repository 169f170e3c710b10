//! The record of one name.

use super::RECORD;
use linux_raw_sys::general::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};

/// Bits of [`Entry::flags`].
pub mod flags {
    /// Its status is not wholly in the record (a time out of range, a size on disk that does not
    /// fit): the kernel must be asked.
    pub const ASK: u8 = 1;
    /// It has extended attributes or access lists.
    pub const ATTRIBUTES: u8 = 2;
    /// Its inode in the tree has the mark: a record, or attributes that only root may set.
    pub const MARKED: u8 = 4;
    /// All that may be.
    pub const ALL: u8 = ASK | ATTRIBUTES | MARKED;
}

/// What an index says of one name. Mode and owner are the true ones, as the guest sees them; size,
/// times, inode and blocks are those of the file in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry {
    /// Number of its directory's record; the root is in itself.
    pub parent: u32,
    /// Where its name begins among the texts.
    pub name: u32,
    /// A directory: the number of its first name's record. A link: where its target begins among
    /// the texts. A device: major number in the upper half, minor in the lower.
    pub data: u32,
    /// A directory: how many names it has. A link: the length of its target.
    pub count: u32,
    /// Size in bytes (`st_size`).
    pub size: u64,
    /// Time of the last change of its contents, in nanoseconds since 1970.
    pub mtime: i64,
    /// Time of the last change of its inode, likewise.
    pub ctime: i64,
    /// Number of the inode in the tree.
    pub inode: u64,
    /// Blocks of 512 bytes (`st_blocks`).
    pub blocks: u32,
    /// Names of the inode inside the image (`st_nlink`).
    pub links: u16,
    /// Type and mode, as in `st_mode`.
    pub mode: u16,
    /// Number of its pair of ids.
    pub owner: u16,
    /// Length of its name.
    pub name_length: u8,
    /// See [`flags`].
    pub flags: u8,
}

impl Entry {
    /// `S_IFMT`.
    pub const fn kind(&self) -> u32 {
        self.mode as u32 & S_IFMT
    }

    /// Returns true for a directory.
    pub const fn is_directory(&self) -> bool {
        self.kind() == S_IFDIR
    }

    /// Returns true for a symbolic link.
    pub const fn is_link(&self) -> bool {
        self.kind() == S_IFLNK
    }

    /// Returns true for a regular file.
    pub const fn is_file(&self) -> bool {
        self.kind() == S_IFREG
    }

    /// Major and minor number of a device; zeros for other files.
    pub const fn device(&self) -> (u32, u32) {
        match self.kind() {
            S_IFCHR | S_IFBLK => (self.data >> 20, self.data & 0xf_ffff),
            _ => (0, 0),
        }
    }

    /// [`Entry::data`] of a device; major numbers have 12 bits, minor numbers 20.
    pub const fn of_device(major: u32, minor: u32) -> u32 {
        major << 20 | minor & 0xf_ffff
    }

    /// Returns true if a bit of [`flags`] is set.
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The record's bytes.
    pub fn to_bytes(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let mut at = 0;
        let mut put = |value: &[u8]| {
            bytes[at..at + value.len()].copy_from_slice(value);
            at += value.len();
        };
        for word in [self.parent, self.name, self.data, self.count] {
            put(&word.to_le_bytes());
        }
        put(&self.size.to_le_bytes());
        put(&self.mtime.to_le_bytes());
        put(&self.ctime.to_le_bytes());
        put(&self.inode.to_le_bytes());
        put(&self.blocks.to_le_bytes());
        for half in [self.links, self.mode, self.owner] {
            put(&half.to_le_bytes());
        }
        put(&[self.name_length, self.flags]);
        bytes
    }

    /// Reads a record.
    #[inline]
    pub fn from_bytes(bytes: &[u8; RECORD]) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Self {
            parent: word(0),
            name: word(4),
            data: word(8),
            count: word(12),
            size: long(16),
            mtime: long(24) as i64,
            ctime: long(32) as i64,
            inode: long(40),
            blocks: word(48),
            links: half(52),
            mode: half(54),
            owner: half(56),
            name_length: bytes[58],
            flags: bytes[59],
        }
    }
}
