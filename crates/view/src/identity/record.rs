//! The truth of a file (type, mode and owner as the guest sees them) and its stored form, the
//! record.

use super::access_list::Granted;
use crate::world::Kind;
use core::ffi::CStr;
use core::fmt::Write;
use linux_raw_sys::general::{
    S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK, S_ISUID, S_ISVTX,
    STATX_BTIME, statx,
};

/// The attribute that holds an inode's record.
pub const OWNER: &CStr = c"user.coracle.owner";
/// Attribute of a copy of a file of an image with an index, and of a directory that is merged with
/// one of the image: the inode number of that, which the guest goes on seeing. Such an inode always
/// has a record, so that its mark says that there is more to be read.
pub const ORIGIN: &CStr = c"user.coracle.origin";
/// Prefix of the stored name of an attribute that only root may set.
pub const HIDDEN_ATTRIBUTES: &[u8] = b"user.coracle.x.";
/// Prefix of all attributes of the container engine, which the guest does not see.
pub const OWN_ATTRIBUTES: &[u8] = b"user.coracle.";
/// Length of the longest record, in bytes.
pub const RECORD_MAX: usize = 64;

/// A file as the guest sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Truth {
    /// Type and mode, as in `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Its access lists.
    pub lists: Lists,
}

/// What is known of the access lists of a file: acl(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lists {
    /// It has an access list that says more than its mode.
    pub access: bool,
    /// It is a directory with a default list, which new files inherit.
    pub default: bool,
    /// What the access list grants to the thread for which the file was looked at. `None`: the mode
    /// decides.
    pub granted: Option<Granted>,
}

impl Lists {
    /// A file without lists.
    pub const NONE: Self = Self { access: false, default: false, granted: None };

    const fn letters(self) -> &'static str {
        match (self.access, self.default) {
            (false, false) => "",
            (true, false) => ":a",
            (false, true) => ":d",
            (true, true) => ":ad",
        }
    }
}

const LETTERS: [(u8, u32); 7] = [
    (b'f', S_IFREG),
    (b'd', S_IFDIR),
    (b'l', S_IFLNK),
    (b'p', S_IFIFO),
    (b'c', S_IFCHR),
    (b'b', S_IFBLK),
    (b's', S_IFSOCK),
];

impl Truth {
    /// `S_IFMT`.
    pub const fn kind(&self) -> u32 {
        self.mode & S_IFMT
    }

    /// Permissions and special bits, `0o7777`.
    pub const fn bits(&self) -> u32 {
        self.mode & 0o7777
    }

    /// Returns true if it is a directory.
    pub const fn is_directory(&self) -> bool {
        self.kind() == S_IFDIR
    }

    /// Returns true if it is a device.
    pub const fn is_device(&self) -> bool {
        matches!(self.kind(), S_IFCHR | S_IFBLK)
    }

    /// The mode (without type) that such a file has on disk, without the mark: its owner there may
    /// do everything, and its set-id bits are not set.
    pub const fn disk_bits(&self) -> u32 {
        match self.kind() {
            S_IFDIR => self.mode & 0o777 | 0o700,
            S_IFCHR | S_IFBLK => 0o600,
            _ => self.mode & 0o777 | 0o600,
        }
    }

    /// The same for the host's own files, which the caller's colleagues and other programs use: the
    /// mode itself, as far as the engine can do with it. A directory's owner must be able to search
    /// and read it; what else the owner may not do, calls lift when they need it. Set-id bits of
    /// programs are recorded: a container must not leave programs of the caller's id on the host.
    pub const fn host_bits(&self) -> u32 {
        match self.kind() {
            S_IFDIR if self.mode & 0o500 == 0o500 => self.mode & 0o3777,
            S_IFDIR => self.mode & 0o3777 | 0o700,
            S_IFREG => self.mode & 0o1777,
            _ => self.disk_bits(),
        }
    }

    /// [`Self::host_bits`] or [`Self::disk_bits`], for a file of this kind of binding.
    pub const fn bits_on_disk(&self, kind: Kind) -> u32 {
        if matches!(kind, Kind::Host) { self.host_bits() } else { self.disk_bits() }
    }

    /// Returns true if mode and type on disk cannot describe the file completely.
    pub const fn needs_record(&self) -> bool {
        self.differs(0o6777, self.disk_bits())
    }

    /// The same for a file of this kind of binding.
    pub const fn needs_record_in(&self, kind: Kind) -> bool {
        match kind {
            Kind::Host if can_carry(self.mode) => self.differs(0o7777, self.host_bits()),
            _ => self.needs_record(),
        }
    }

    const fn differs(&self, bits: u32, on_disk: u32) -> bool {
        let Lists { access, default, .. } = self.lists;
        let differs = self.mode & bits != on_disk || is_unfinished(self.mode);
        self.is_device() || differs || access || default
    }

    /// The mode that a file with a record has on disk: the owner's rights, and the mark.
    pub const fn marked_bits(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Host if self.is_directory() => self.mode & 0o3777 | 0o700 | S_ISUID,
            _ => self.disk_bits() | S_ISVTX,
        }
    }

    /// The text of the record.
    pub fn to_text(&self) -> RecordText {
        let mut text = RecordText { length: 0, bytes: [0; RECORD_MAX] };
        let letter = LETTERS
            .iter()
            .find(|(_, kind)| *kind == self.kind())
            .map_or('f', |row| char::from(row.0));
        let (major, minor) = self.device;
        let (Self { uid, gid, .. }, bits) = (self, self.bits());
        let lists = self.lists.letters();
        // The longest such text has 53 bytes.
        let _ = write!(text, "{uid}:{gid}:{bits:o}:{letter}:{major}:{minor}{lists}");
        text
    }

    /// Parses a record; `None` if the text is not one.
    pub fn from_text(text: &[u8]) -> Option<Self> {
        let mut parts = text.split(|byte| *byte == b':');
        let mut part = |radix| number(parts.next()?, radix);
        let (uid, gid, bits) = (part(10)?, part(10)?, part(8)? & 0o7777);
        let [letter] = parts.next()? else { return None };
        let kind = LETTERS.iter().find(|(known, _)| known == letter)?.1;
        let mut part = |radix| number(parts.next()?, radix);
        let device = (part(10)?, part(10)?);
        let lists = parts.next().unwrap_or_default();
        let has = |letter| lists.contains(&letter);
        let lists = Lists { access: has(b'a'), default: has(b'd'), granted: None };
        Some(Self { mode: kind | bits, uid, gid, device, lists })
    }
}

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    let text = core::str::from_utf8(digits).ok()?;
    u32::from_str_radix(text, radix).ok()
}

/// A record's text.
#[derive(Debug, Clone, Copy)]
pub struct RecordText {
    length: usize,
    bytes: [u8; RECORD_MAX],
}

impl RecordText {
    /// The bytes of the text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Write for RecordText {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let end = self.length + text.len();
        self.bytes
            .get_mut(self.length..end)
            .ok_or(core::fmt::Error)?
            .copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// Length of the key of a record in the log.
pub const NOTE_KEY: usize = 28;

/// Key of an inode's record in the log: device (8 bytes), inode (8), time of birth (seconds 8,
/// nanoseconds 4), all little-endian. If the time of birth is known, it distinguishes inodes of
/// different file systems, and the device is 0, because a disk can have another number after a
/// restart.
pub fn note_key(facts: &statx) -> [u8; NOTE_KEY] {
    let mut key = [0; NOTE_KEY];
    key[8..16].copy_from_slice(&facts.stx_ino.to_le_bytes());
    if facts.stx_mask & STATX_BTIME != 0 {
        key[16..24].copy_from_slice(&facts.stx_btime.tv_sec.to_le_bytes());
        key[24..28].copy_from_slice(&facts.stx_btime.tv_nsec.to_le_bytes());
    } else {
        let device = u64::from(facts.stx_dev_major) << 32 | u64::from(facts.stx_dev_minor);
        key[..8].copy_from_slice(&device.to_le_bytes());
    }
    key
}

/// The mode on disk of an inode that is being made, without its type: the mark, and the owner's
/// rights alone. A finished inode of this mode has a record ([`Truth::needs_record`]), so no other
/// process takes one without for root's own.
pub const fn unfinished_bits(kind: u32) -> u32 {
    S_ISVTX | if kind == S_IFDIR { 0o700 } else { 0o600 }
}

/// Returns true if an inode without a record has the mode of one that is being made.
pub const fn is_unfinished(mode: u32) -> bool {
    let kind = mode & S_IFMT;
    !matches!(kind, S_IFLNK | S_IFSOCK) && mode & 0o7777 == unfinished_bits(kind)
}

/// Returns true if an inode of this type on disk can carry the attribute.
pub const fn can_carry(mode: u32) -> bool {
    matches!(mode & S_IFMT, S_IFREG | S_IFDIR)
}

/// Returns true if an inode has the mark.
pub const fn is_marked(mode: u32) -> bool {
    mode & S_ISVTX != 0 || mode & (S_IFMT | S_ISUID) == S_IFDIR | S_ISUID
}

/// Returns true if an inode may have a record: it has the mark, or is of a type that cannot have
/// one.
pub const fn may_be_recorded(mode: u32) -> bool {
    is_marked(mode) || matches!(mode & S_IFMT, S_IFLNK | S_IFIFO | S_IFSOCK)
}
