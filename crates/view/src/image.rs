//! The image beneath a container's own changes: answers from its index, without the kernel.
//!
//! A container's tree has two layers, as with overlayfs: the image's tree, which never changes, and
//! an upper directory in overlay's form with what the container has changed. [`Index`] says what is
//! in the image, [`Changes`] about which of its names the upper directory must be asked. Host paths
//! that the view uses lie in the upper directory, for every file of the tree: they are the names
//! that files would have if all were there. `hostfs` finds the layer that has the file.

use crate::errno::Errno;
use crate::identity::{Lists, Truth};
use crate::text::Text;
use abi::index::{Entry, Index, ROOT, flags};
use abi::shared::changes::Changes;
use linux_raw_sys::general::{
    S_IFBLK, S_IFCHR, S_IFDIR, S_IFMT, S_IFREG, S_ISVTX, STATX_BASIC_STATS, statx, statx_timestamp,
    timespec,
};

/// An image and what a container has changed of it.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    /// What is in the image.
    pub index: Index<'a>,
    /// Where the container may differ from it.
    pub changes: Changes<'a>,
    /// Host path of the image's tree.
    pub lower: &'a [u8],
    /// Host path of the upper directory, which is the host path of the binding at `/`.
    pub upper: &'a [u8],
    /// Device (major, minor) of both.
    pub device: (u32, u32),
    /// Owner (user and group id on the host) of all files of the image's tree.
    pub owner: (u32, u32),
}

/// How far a path leads without the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walked {
    /// To this record, whose name means what the index says. Of a directory the status, and names
    /// that the index lacks, may be the upper directory's ([`Changes::is_merged`]).
    To(u32),
    /// There is no such name: `ENOENT`.
    Missing,
    /// A component before the last is no directory, and no link: `ENOTDIR`.
    NoDirectory,
    /// This record is a symbolic link, and its name ends here in the path: more follows.
    Link(u32, usize),
    /// The upper directory must be asked: for the name that begins at this offset, in this
    /// directory.
    Ask(u32, usize),
}

impl Image<'_> {
    /// Follows the names of a relative path, without `.`, `..` or doubled slashes, from a
    /// directory.
    #[inline]
    pub fn walk(&self, from: u32, path: &[u8]) -> Walked {
        let (mut here, mut at) = (from, 0);
        while at < path.len() {
            let length = path[at..].iter().position(|byte| *byte == b'/');
            let end = length.map_or(path.len(), |length| at + length);
            let Some(next) = self.index.child(here, &path[at..end]) else {
                return if self.changes.is_merged(here) {
                    Walked::Ask(here, at)
                } else {
                    self.nothing_in(here)
                };
            };
            if self.changes.is_covered(next) {
                return Walked::Ask(here, at);
            }
            here = next;
            if end == path.len() {
                break;
            }
            at = end + 1;
            match self.index.entry(here) {
                Some(entry) if entry.is_directory() => {}
                Some(entry) if entry.is_link() => return Walked::Link(here, end),
                _ => return Walked::NoDirectory,
            }
        }
        Walked::To(here)
    }

    fn nothing_in(&self, directory: u32) -> Walked {
        let is_directory = self.index.entry(directory).is_some_and(|entry| entry.is_directory());
        if is_directory { Walked::Missing } else { Walked::NoDirectory }
    }

    /// Returns true if a path from the root leads to something in the container's own directories
    /// only, with nothing of the image beneath: the kernel finds it in the upper directory, or
    /// nowhere.
    #[inline]
    pub fn is_own(&self, path: &[u8]) -> bool {
        let Walked::Ask(directory, start) = self.walk(ROOT, path) else { return false };
        let rest = &path[start..];
        let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        !self.changes.has_redirects() && self.index.child(directory, &rest[..end]).is_none()
    }

    /// Returns true if a directory with this status may be seen in both layers. One that is merged
    /// with a directory of the image has the mark.
    pub fn may_be_layered(&self, facts: &statx) -> bool {
        let mode = u32::from(facts.stx_mode);
        let marked = mode & S_ISVTX != 0;
        mode & S_IFMT == S_IFDIR
            && (facts.stx_dev_major, facts.stx_dev_minor) == self.device
            && (marked || self.changes.has_redirects() || self.of_facts(facts).is_some())
    }

    /// What the index says of a file on this device with this inode, if it is the image's.
    #[inline]
    pub fn of_inode(&self, device: (u32, u32), inode: u64) -> Option<(u32, Entry)> {
        if device != self.device {
            return None;
        }
        let record = self.index.by_inode(inode)?;
        Some((record, self.index.entry(record)?))
    }

    /// The same for a status.
    #[inline]
    pub fn of_facts(&self, facts: &statx) -> Option<(u32, Entry)> {
        self.of_inode((facts.stx_dev_major, facts.stx_dev_minor), facts.stx_ino)
    }

    /// Returns true if an open file of the image may no longer be what the container has under its
    /// name.
    pub fn may_differ(&self, record: u32) -> bool {
        let changes = &self.changes;
        changes.is_covered(record)
            || changes.is_merged(record)
            || changes.has_covered_links() && self.has_several(record)
    }

    /// Returns true if a record's file has other names.
    fn has_several(&self, record: u32) -> bool {
        self.index.entry(record).is_none_or(|entry| entry.links > 1 && !entry.is_directory())
    }

    /// The name of a record is about to mean something else.
    pub fn cover(&self, record: u32) {
        self.changes.cover(record, self.has_several(record));
    }

    /// The part of a host path behind the upper directory, without its slash: empty for the root.
    pub fn in_upper<'p>(&self, host: &'p [u8]) -> Option<&'p [u8]> {
        inside(host, self.upper)
    }

    /// The same for the image's tree.
    pub fn in_lower<'p>(&self, host: &'p [u8]) -> Option<&'p [u8]> {
        inside(host, self.lower)
    }

    /// Type, mode and owner of a file with this status, if it is the image's and the index has all
    /// of that.
    pub fn truth_of(&self, facts: &statx) -> Option<Truth> {
        let (_, entry) = self.of_facts(facts)?;
        (!entry.has(flags::ATTRIBUTES)).then(|| self.truth(&entry))
    }

    /// The number of names inside the image of a file that is no directory, by its inode.
    pub fn links(&self, inode: u64) -> Option<u32> {
        let entry = self.index.entry(self.index.by_inode(inode)?)?;
        (!entry.is_directory()).then_some(entry.links.into())
    }

    /// Gives a copy of a file of the image, or a directory that is merged with one, the number of
    /// that, and a directory the number of its directories in both layers.
    pub fn correct_copy(&self, inode: u64, facts: &mut statx) {
        facts.stx_ino = inode;
        let base = self.index.by_inode(inode).and_then(|base| self.index.entry(base));
        let Some(base) = base.filter(Entry::is_directory) else { return };
        let (mut lower, mut merged) = (0, 0);
        for child in self.index.children(&base) {
            let is_directory = self.index.entry(child).is_some_and(|child| child.is_directory());
            if is_directory && !self.changes.is_covered(child) {
                lower += 1;
                merged += u32::from(self.changes.is_merged(child));
            }
        }
        facts.stx_nlink = (facts.stx_nlink + lower).saturating_sub(merged);
    }

    /// Puts the host path that the view uses for a record into `into`, if no directory above it
    /// has another name in the container.
    pub fn place(&self, record: u32, into: &mut Text) -> Option<()> {
        self.named(self.upper, record, into)
    }

    /// Puts the host path of a record's file in the image's tree into `into`.
    pub fn real(&self, record: u32, into: &mut Text) -> Option<()> {
        self.named(self.lower, record, into)
    }

    fn named(&self, above: &[u8], record: u32, into: &mut Text) -> Option<()> {
        into.fill(|bytes| {
            let (head, rest) =
                bytes.split_at_mut_checked(above.len()).ok_or(Errno::ENAMETOOLONG)?;
            head.copy_from_slice(above);
            if record == ROOT {
                return Ok(head.len());
            }
            let (slash, rest) = rest.split_first_mut().ok_or(Errno::ENAMETOOLONG)?;
            *slash = b'/';
            let length = self.index.path(record, rest).ok_or(Errno::ENAMETOOLONG)?;
            Ok(above.len() + 1 + length)
        })
        .ok()
    }

    /// Returns true if the names from the root to a record mean in the container what they mean in
    /// the image.
    pub fn is_reached(&self, record: u32) -> bool {
        let mut here = record;
        while here != ROOT {
            if self.changes.is_covered(here) {
                return false;
            }
            let Some(entry) = self.index.entry(here).filter(|entry| entry.parent < here) else {
                return false;
            };
            here = entry.parent;
        }
        true
    }

    /// Type, mode and owner of a file. It may have access lists that are not in here.
    pub fn truth(&self, entry: &Entry) -> Truth {
        let (uid, gid) = self.index.owner(entry);
        Truth { mode: entry.mode.into(), uid, gid, device: entry.device(), lists: Lists::NONE }
    }

    /// Status of a file as the kernel shows it on the disk, where the caller owns everything and a
    /// mark says that the true owner or mode is another.
    pub fn facts(&self, entry: &Entry) -> statx {
        let truth = self.truth(entry);
        let kind = match truth.mode & S_IFMT {
            S_IFCHR | S_IFBLK => S_IFREG,
            kind => kind,
        };
        let plain =
            !truth.needs_record() && (truth.uid, truth.gid) == (0, 0) && !entry.has(flags::MARKED);
        let marked = matches!(kind, S_IFREG | S_IFDIR) && !plain;
        let mode = kind | truth.disk_bits() | if marked { S_ISVTX } else { 0 };
        let mut facts = statx {
            stx_mask: STATX_BASIC_STATS,
            stx_blksize: self.index.header().block_size,
            stx_mode: mode as u16,
            stx_uid: self.owner.0,
            stx_gid: self.owner.1,
            stx_ino: entry.inode,
            stx_dev_major: self.device.0,
            stx_dev_minor: self.device.1,
            ..abi::layout::stat::EMPTY_STATX
        };
        correct(entry, &mut facts);
        facts
    }
}

/// The part of a path behind a directory, without its slash.
fn inside<'p>(path: &'p [u8], directory: &[u8]) -> Option<&'p [u8]> {
    let rest = path.strip_prefix(directory)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix(b"/") }
}

/// Puts what is the same for all containers of an image, and for ever, into a file's status:
/// reading it, or another name of it in some container, shows in none. `atime` is `mtime`.
pub fn correct(entry: &Entry, facts: &mut statx) {
    facts.stx_nlink = entry.links.into();
    facts.stx_size = entry.size;
    facts.stx_blocks = entry.blocks.into();
    facts.stx_mtime = stamp(entry.mtime);
    facts.stx_atime = facts.stx_mtime;
    facts.stx_ctime = stamp(entry.ctime);
}

/// When a file was read and written, for `utimensat`.
pub const fn times(entry: &Entry) -> [timespec; 2] {
    let time = stamp(entry.mtime);
    [timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_nsec as i64 }; 2]
}

/// Returns true if the kernel must be asked for the status of a file.
pub const fn is_incomplete(entry: &Entry) -> bool {
    entry.has(flags::ASK)
}

const fn stamp(time: i64) -> statx_timestamp {
    const SECOND: i64 = 1_000_000_000;
    statx_timestamp {
        tv_sec: time.div_euclid(SECOND),
        tv_nsec: time.rem_euclid(SECOND) as u32,
        __reserved: 0,
    }
}
