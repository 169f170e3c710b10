//! Probes the file system under the store: its kind, free space, and features.

use std::fs::File;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FlockOperation};
use serde::{Deserialize, Serialize};
use sys::ofd::{OfdLock, try_ofd_lock};

use crate::Trial;
use crate::scratch::{Scratch, nearest_existing};

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
    /// An overlay: this process is in a container.
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
    /// Returns the kind for the `f_type` of `statfs`.
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

    /// The kind of file system that a path is on.
    pub fn of(path: &Path) -> Option<FsKind> {
        let answer = rustix::fs::statfs(path).ok()?;
        Some(FsKind::from_magic(answer.f_type as u64))
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
    /// The probed directory: the store, or the nearest existing one above it.
    pub probed: PathBuf,
    /// Its kind.
    pub kind: FsKind,
    /// The kind as the kernel names it in `mountinfo` (`ext4`, `fuse.sshfs`).
    pub name: String,
    /// Its mount point.
    pub mount_point: PathBuf,
    /// Mount options of this mount and of its superblock.
    pub options: Vec<String>,
    /// Size in bytes.
    pub size: u64,
    /// Free bytes for this caller. Quotas are not included.
    pub free: u64,
    /// Number of files that can still be created; `None` if the file system does not count them.
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
    /// Probes the file system of a directory, or of a future one, in a hidden directory that is
    /// removed again. `None` if no part of the path can be read.
    pub fn probe(store: &Path) -> Option<Disk> {
        let near = nearest_existing(store)?;
        let room = rustix::fs::statvfs(&near).ok()?;
        let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut disk = Disk {
            store: store.display().to_string(),
            kind: FsKind::of(&near)?,
            size: room.f_blocks.saturating_mul(room.f_frsize),
            free: room.f_bavail.saturating_mul(room.f_frsize),
            free_inodes: (room.f_files > 0).then_some(room.f_favail),
            ..Disk::default()
        };
        if let Some(mount) = mount_of(&mountinfo, &near) {
            disk.noexec = mount.has("noexec");
            disk.nosuid = mount.has("nosuid");
            disk.read_only = mount.has("ro");
            disk.name = mount.kind.into();
            disk.mount_point = mount.point;
            disk.options = mount.options;
        }
        disk.try_abilities(&near);
        disk.probed = near;
        Some(disk)
    }

    fn try_abilities(&mut self, near: &Path) {
        let scratch = match Scratch::new_in(near) {
            Ok(scratch) => scratch,
            Err(errno) => {
                self.writable = Trial::fails("mkdir", errno.to_string())
                    .with_errno(Some(errno.raw_os_error()))
                    .with_advice("set CORACLE_DIR to another directory; a complete store can be used read-only \
                     with CORACLE_STORE_RO");
                return;
            }
        };
        let at = |name: &str| scratch.path().join(name);
        let made = std::fs::OpenOptions::new()
            .write(true)
            .read(true)
            .create_new(true)
            .mode(0o755)
            .open(at("File"))
            .and_then(|mut file| {
                std::io::Write::write_all(&mut file, &[b'x'; 4096])?;
                Ok(file)
            });
        let (file, written) = match made {
            Ok(file) => (Some(file), Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.writable = trial("write of a file of 4096 bytes", written)
            .advise("free some space, or set CORACLE_DIR to another directory");
        let Some(file) = file else { return };
        let xattr = sys::fs::xattr::set(&file, b"user.coracle.probe", b"1");
        self.user_xattr = trial("fsetxattr(user.coracle.probe)", xattr)
            .advise("owners of files are stored beside the tree instead; overlay cannot be used");
        let link = std::fs::hard_link(at("File"), at("hard"));
        self.hard_links = trial("link", link).advise("trees are copied instead");
        let soft = symlink("File", at("soft"));
        self.symlinks = trial("symlink", soft)
            .advise("images cannot be unpacked here: set CORACLE_DIR to another directory");
        self.flock = trial(
            "flock(LOCK_EX)",
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive),
        );
        self.ofd_locks = trial("fcntl(F_OFD_SETLK)", try_ofd_lock(&file, OfdLock::Exclusive));
        let copy = File::create(at("copy"))
            .and_then(|copy| sys::fs::copy::reflink(&file, &copy).map_err(Into::into));
        self.reflink = trial("ioctl(FICLONE)", copy);
        let how = "a second name that differs in case";
        self.case_sensitive = if at("fILE").exists() {
            Trial::fails(how, "it is the same file")
                .with_advice("images with both 'a' and 'A' cannot be unpacked here")
        } else {
            Trial::works(how)
        };
        self.exec = trial(
            "access(X_OK) of a file with mode 755",
            rustix::fs::access(at("File"), Access::EXEC_OK),
        )
        .advise(
            "mounted noexec: programs of images run from here in an overlay alone (N1, R1); for \
             the other modes set CORACLE_DIR to another directory",
        );
    }
}

fn trial(how: &str, result: Result<(), impl Into<std::io::Error>>) -> Trial {
    match result.map_err(Into::into) {
        Ok(()) => Trial::works(how),
        Err(error) => Trial::fails(how, error.to_string()).with_errno(error.raw_os_error()),
    }
}

/// The line of mountinfo for a path.
struct MountLine<'text> {
    point: PathBuf,
    kind: &'text str,
    options: Vec<String>,
}

impl MountLine<'_> {
    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|known| known == option)
    }
}

/// The mount whose mount point is the longest prefix of the path; of several on one mount point the
/// last, which covers the others.
fn mount_of<'text>(mountinfo: &'text str, path: &Path) -> Option<MountLine<'text>> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let mut left = left.split(' ').skip(4);
            let point = PathBuf::from(unescape(left.next()?));
            let own = left.next()?;
            let mut right = right.split(' ');
            let kind = right.next()?;
            let shared = right.nth(1).unwrap_or_default();
            let mut options: Vec<String> =
                own.split(',').chain(shared.split(',')).map(str::to_owned).collect();
            options.dedup();
            path.starts_with(&point).then_some(MountLine { point, kind, options })
        })
        .max_by_key(|mount| mount.point.components().count())
}

/// mountinfo writes blanks, tabs, newlines and backslashes of names as three octal digits.
fn unescape(name: &str) -> String {
    let plain = name.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n");
    plain.replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
30 22 0:31 / /home rw,nosuid,nodev - nfs4 server:/home rw,vers=4.2
31 22 0:32 / /home/ada/my\\040disk ro,noexec - fuse.sshfs ada@far: rw,user_id=1000
32 22 0:33 / /tmp rw - tmpfs tmpfs rw
33 32 0:34 / /tmp rw,noexec - tmpfs tmpfs rw
";

    #[test]
    fn the_mount_of_a_path() {
        let mount = |path: &str| mount_of(MOUNTS, Path::new(path)).unwrap();
        assert_eq!(mount("/usr/bin").kind, "ext4");
        assert_eq!(mount("/home/ada/.local").kind, "nfs4");
        assert!(mount("/home/ada").has("nosuid"));
        assert_eq!(mount("/home/ada/my disk/x").kind, "fuse.sshfs");
        assert!(mount("/home/ada/my disk").has("ro"), "the mount is read-only, not its superblock");
        assert!(mount("/tmp/x").has("noexec"), "the upper of two mounts counts");
        assert_eq!(mount("/homeless").kind, "ext4", "a prefix in whole names only");
    }

    #[test]
    fn magics() {
        assert_eq!(FsKind::from_magic(0xef53), FsKind::Ext4);
        assert_eq!(FsKind::from_magic(0xffff_ffff_ff53_4d42), FsKind::Cifs, "sign-extended");
        assert_eq!(FsKind::from_magic(0x0bd0_0bd0), FsKind::Lustre);
        assert!(FsKind::Gpfs.is_network());
        assert!(!FsKind::Tmpfs.is_network());
    }

    #[test]
    fn a_directory_here() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::probe(&directory.path().join("not/yet/made")).unwrap();
        assert_eq!(disk.probed, directory.path().canonicalize().unwrap());
        assert!(disk.writable.is_works(), "{:?}", disk.writable);
        assert!(disk.symlinks.is_works());
        assert!(disk.size >= disk.free);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
    }
}
