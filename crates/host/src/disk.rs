//! The file system under the store: which kind, how much room, and what it can do.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Trial;

/// Kinds of file system that behave differently enough to matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FsKind {
    /// ext2, ext3, ext4: one magic number for the three.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// ZFS.
    Zfs,
    /// bcachefs.
    Bcachefs,
    /// f2fs.
    F2fs,
    /// Memory.
    Tmpfs,
    /// Memory, without limits.
    Ramfs,
    /// NFS of any version.
    Nfs,
    /// Lustre.
    Lustre,
    /// IBM Spectrum Scale.
    Gpfs,
    /// BeeGFS.
    Beegfs,
    /// CephFS.
    Ceph,
    /// PanFS.
    Panfs,
    /// Windows shares.
    Cifs,
    /// AFS.
    Afs,
    /// 9P, as virtual machines use.
    Plan9,
    /// Any FUSE file system (sshfs, gocryptfs, ...); also GlusterFS and WekaFS clients by FUSE.
    Fuse,
    /// An overlay: we are in a container.
    Overlay,
    /// eCryptfs, encrypted home directories.
    Ecryptfs,
    /// FAT and exFAT.
    Vfat,
    /// Squashfs.
    Squashfs,
    /// Anything else.
    #[default]
    Other,
}

impl FsKind {
    /// The kind that `statfs` names, by `f_type`.
    pub fn from_magic(magic: u64) -> FsKind {
        match magic & 0xffff_ffff {
            0xef53 => FsKind::Ext4,
            0x5846_5342 => FsKind::Xfs,
            0x9123_683e => FsKind::Btrfs,
            0x2fc1_2fc1 => FsKind::Zfs,
            0xca45_1a4e => FsKind::Bcachefs,
            0xf2f5_2010 => FsKind::F2fs,
            0x0102_1994 => FsKind::Tmpfs,
            0x8584_58f6 => FsKind::Ramfs,
            0x6969 => FsKind::Nfs,
            0x0bd0_0bd0 => FsKind::Lustre,
            0x4750_4653 => FsKind::Gpfs,
            0x1983_0326 => FsKind::Beegfs,
            0x00c3_6400 => FsKind::Ceph,
            0xaad7_aaea => FsKind::Panfs,
            0xff53_4d42 | 0xfe53_4d42 | 0x517b => FsKind::Cifs,
            0x5346_414f | 0x6b41_4653 => FsKind::Afs,
            0x0102_1997 => FsKind::Plan9,
            0x6573_5546 => FsKind::Fuse,
            0x794c_7630 => FsKind::Overlay,
            0xf15f => FsKind::Ecryptfs,
            0x4d44 | 0x2011_bab0 => FsKind::Vfat,
            0x7371_7368 => FsKind::Squashfs,
            _ => FsKind::Other,
        }
    }

    /// Several machines may see it at once.
    pub fn is_network(self) -> bool {
        matches!(
            self,
            FsKind::Nfs
                | FsKind::Lustre
                | FsKind::Gpfs
                | FsKind::Beegfs
                | FsKind::Ceph
                | FsKind::Panfs
                | FsKind::Cifs
                | FsKind::Afs
                | FsKind::Plan9
        )
    }
}

/// The file system under the store.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Disk {
    /// The store's path, as given.
    pub store: String,
    /// The directory that was probed: the store, or the nearest one above it that exists.
    pub probed: PathBuf,
    /// Which kind.
    pub kind: FsKind,
    /// The kind as the kernel names it in `mountinfo` (`ext4`, `fuse.sshfs`).
    pub name: String,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// Mount options of this mount and of its superblock.
    pub options: Vec<String>,
    /// Bytes in all.
    pub size: u64,
    /// Bytes that the caller can still use. Quotas are not seen.
    pub free: u64,
    /// Files that can still be made; `None` where the file system does not count.
    pub free_inodes: Option<u64>,
    /// Programs on it cannot be run (`noexec`).
    pub noexec: bool,
    /// Setuid bits on it have no effect (`nosuid`).
    pub nosuid: bool,
    /// It is mounted read-only.
    pub read_only: bool,
    /// A file could be written in it.
    pub writable: Trial,
    /// `user.*` extended attributes.
    pub user_xattr: Trial,
    /// Hard links.
    pub hard_links: Trial,
    /// Symbolic links.
    pub symlinks: Trial,
    /// `flock`.
    pub flock: Trial,
    /// Open file description locks.
    pub ofd_locks: Trial,
    /// `FICLONE`: copies that share their blocks.
    pub reflink: Trial,
    /// Names that differ only in case are different files.
    pub case_sensitive: Trial,
    /// A script on it could be run.
    pub exec: Trial,
}

impl Disk {
    /// Looks at the file system that a directory is on, or will be.
    pub fn probe(_store: &Path) -> Option<Disk> {
        None
    }
}
