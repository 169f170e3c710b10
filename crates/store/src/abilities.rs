//! Probes what the file system under a store supports and keeps the answers in `store.json`.
//!
//! Nothing is concluded from a file system's name: the same name behaves differently by kernel,
//! mount option and server. The answers are stored under the file system's number and the kernel's
//! release. So a store that was copied elsewhere, or that nodes with other kernels share, is probed
//! again there.

use std::fmt::Write as _;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use rustix::fs::{
    self, AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, SeekFrom, StatFs, XattrFlags,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, Step};
use crate::lock::{self, LockMethod};
use crate::root::{Root, random_hex};

/// Features of the file system that holds a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is one answer of one probe")]
pub struct Abilities {
    /// Kind of file system, for display: `ext4`, `nfs`, `0x1234abcd`.
    pub file_system: String,
    /// True if other machines may see the same files (NFS, Lustre, GPFS, Ceph...).
    pub network: bool,
    /// Kind of lock that works between processes.
    pub locks: LockMethod,
    /// Extended attributes in the `user.` name space work.
    pub user_xattr: bool,
    /// A file may have several names.
    pub hard_links: bool,
    /// Symbolic links work.
    pub symlinks: bool,
    /// Permission bits are kept.
    pub modes: bool,
    /// `a` and `A` are different names.
    pub case_sensitive: bool,
    /// Files can share their data until one is written to (`FICLONE`).
    pub reflink: bool,
    /// This user may create overlay's whiteouts (character device 0:0).
    pub whiteout: bool,
    /// Two names can be exchanged in one step, and a file renamed without replacing another
    /// (`RENAME_EXCHANGE`, `RENAME_NOREPLACE`).
    #[serde(default)]
    pub exchange: bool,
    /// A symbolic link may have several names.
    #[serde(default)]
    pub linked_links: bool,
    /// A directory can be read from any position, also from one that none of its names has.
    #[serde(default)]
    pub positions: bool,
}

/// A position in a directory that no name has: `view` uses such positions where it lists the names
/// of two directories as one.
const POSITION: u64 = 0x7000_0000;

impl Abilities {
    /// Abilities as far as they are known without writing, for a read-only store that was never
    /// probed.
    pub(crate) fn assume(root: &Root) -> Result<Self> {
        let stat = statfs(root)?;
        let (file_system, network) = describe(stat.f_type as u64);
        Ok(Self {
            file_system,
            network,
            locks: LockMethod::Flock,
            user_xattr: false,
            hard_links: false,
            symlinks: true,
            modes: true,
            case_sensitive: true,
            reflink: false,
            whiteout: false,
            exchange: false,
            linked_links: false,
            positions: false,
        })
    }

    /// Names what is missing for an upper directory that an engine without mounts lays over an
    /// image's tree; `None` if all is there.
    #[must_use]
    pub fn lacking_for_layers(&self) -> Option<&'static str> {
        let needed = [
            (self.user_xattr, "extended attributes"),
            (self.whiteout, "whiteouts"),
            (self.hard_links, "hard links"),
            (self.linked_links, "hard links of symbolic links"),
            (self.exchange, "the exchange of two names"),
            (self.positions, "free positions in directories"),
        ];
        needed.iter().find(|(there, _)| !there).map(|(_, what)| *what)
    }

    /// Probes every feature in a new directory under `tmp/`.
    pub(crate) fn probe(root: &Arc<Root>) -> Result<Self> {
        let (file_system, network) = describe(statfs(root)?.f_type as u64);
        root.make_dir("tmp")?;
        let mut attempts = 8;
        loop {
            attempts -= 1;
            let directory = format!("tmp/probe-{}", random_hex(8)?);
            root.make_dir(&directory)?;
            let found = Self::probe_in(root, &directory, file_system.clone(), network);
            // A process that opened the store just before may clear `tmp/` during the probe; then a
            // failure proves nothing.
            let disturbed = !root.exists(&format!("{directory}/a"))?;
            let _ = sys::fs::remove_tree(root.as_fd(), directory.as_bytes());
            if !disturbed || attempts == 0 {
                return found;
            }
        }
    }

    fn probe_in(
        root: &Arc<Root>,
        directory: &str,
        file_system: String,
        network: bool,
    ) -> Result<Self> {
        let name = |name: &str| format!("{directory}/{name}");
        let file = root.create_file(&name("a"), OFlags::EXCL)?;
        let fd = root.as_fd();
        let executable = Mode::from_raw_mode(0o751);
        let modes = fs::fchmod(&file, executable).is_ok()
            && root.stat(&name("a"))?.is_some_and(|stat| stat.st_mode & 0o777 == 0o751);
        let mode = Mode::from_raw_mode(0o600);
        Ok(Self {
            locks: probe_locks(root, &name("lock"), network)?,
            user_xattr: fs::fsetxattr(&file, "user.coracle.probe", b"1", XattrFlags::empty())
                .is_ok(),
            hard_links: fs::linkat(fd, name("a"), fd, name("b"), AtFlags::empty()).is_ok(),
            symlinks: fs::symlinkat("a", fd, name("l")).is_ok(),
            modes,
            case_sensitive: !root.exists(&name("A"))?,
            reflink: root
                .create_file(&name("c"), OFlags::EXCL)
                .is_ok_and(|copy| fs::ioctl_ficlone(&copy, &file).is_ok()),
            whiteout: fs::mknodat(fd, name("w"), FileType::CharacterDevice, mode, 0).is_ok(),
            exchange: exchanges(root, &name("x"), &name("y"))?,
            linked_links: fs::linkat(fd, name("l"), fd, name("m"), AtFlags::empty()).is_ok(),
            positions: has_positions(root, directory),
            file_system,
            network,
        })
    }

    /// Names a missing feature that root trees cannot do without; `None` if all are there.
    pub(crate) fn lacking(&self) -> Option<&'static str> {
        if !self.symlinks {
            Some("symbolic links")
        } else if !self.modes {
            Some("permission bits")
        } else if !self.case_sensitive {
            Some("distinction of upper and lower case")
        } else {
            None
        }
    }
}

/// Returns true if two names can be exchanged, and a rename refuses to replace a file.
fn exchanges(root: &Root, one: &str, other: &str) -> Result<bool> {
    root.make_dir(one)?;
    root.create_file(other, OFlags::EXCL)?;
    let rename = |flags| fs::renameat_with(root.as_fd(), one, root.as_fd(), other, flags);
    let is_kept = rename(RenameFlags::NOREPLACE) == Err(Errno::EXIST);
    let is_exchanged = rename(RenameFlags::EXCHANGE).is_ok()
        && root.stat(one)?.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
    Ok(is_kept && is_exchanged)
}

/// Returns true if a directory's position stays where it is put.
fn has_positions(root: &Root, directory: &str) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let stays = || -> rustix::io::Result<bool> {
        let open = fs::openat(root.as_fd(), directory, flags, Mode::empty())?;
        Ok(fs::seek(&open, SeekFrom::Start(POSITION))? == POSITION
            && fs::seek(&open, SeekFrom::Current(0))? == POSITION)
    };
    stays().unwrap_or(false)
}

/// Returns the first kind of lock that excludes a second open file, on other hosts too.
fn probe_locks(root: &Arc<Root>, rel: &str, network: bool) -> Result<LockMethod> {
    let mut tried = String::new();
    let mut methods = &[LockMethod::Flock, LockMethod::Ofd][..];
    if network && !sys::carried::reaches_hosts(root.as_fd()) {
        methods = &[];
        tried.push_str("kernel locks: other hosts may not see them; ");
    }
    for &method in methods {
        let failure = match file_locks_work(root, rel, method)? {
            Ok(true) => return Ok(method),
            Ok(false) => "two processes could hold it at once".to_owned(),
            Err(errno) => std::io::Error::from(errno).to_string(),
        };
        let name = if method == LockMethod::Flock { "flock" } else { "byte-range lock" };
        let _ = write!(tried, "{name}: {failure}; ");
    }
    match lock::links_work(root, rel) {
        Ok(()) => Ok(LockMethod::Symlink),
        Err(Error::Io { source, .. }) => {
            let _ = write!(tried, "symbolic link: {source}");
            Err(Error::NoLocks { path: root.path.clone(), tried })
        }
        Err(other) => Err(other),
    }
}

fn file_locks_work(
    root: &Root,
    rel: &str,
    method: LockMethod,
) -> Result<std::result::Result<bool, Errno>> {
    let one = root.create_file(rel, OFlags::empty())?;
    let other = root.create_file(rel, OFlags::empty())?;
    Ok(lock::lock_file(&one, method, lock::Mode::Exclusive).and_then(|()| {
        match lock::lock_file(&other, method, lock::Mode::Exclusive) {
            Ok(()) => Ok(false),
            Err(Errno::AGAIN) => Ok(true),
            Err(errno) => Err(errno),
        }
    }))
}

fn statfs(root: &Root) -> Result<StatFs> {
    fs::fstatfs(root).map_err(|errno| Error::io(Step::Stat, &root.path, errno))
}

/// What is probed: the number grows with each new question, which older answers lack.
const QUESTIONS: u32 = 3;

/// Key of the stored answers: the file system, the kernel, and what was asked.
pub(crate) fn key(root: &Root) -> Result<String> {
    let stat = statfs(root)?;
    let kernel = rustix::system::uname();
    // The type holds the number of the file system in private fields; its debug form is stable
    // enough for a cache.
    let number: String =
        format!("{:?}", stat.f_fsid).chars().filter(|c| c.is_ascii_digit() || *c == ',').collect();
    let release = kernel.release().to_string_lossy();
    Ok(format!("{:x}-{number}-{release}-{QUESTIONS}", stat.f_type))
}

/// Returns a file system's name by its magic number, and true if other machines may share it
/// ([statfs(2)](https://man7.org/linux/man-pages/man2/statfs.2.html), `linux/magic.h`, and the
/// projects' own headers).
fn describe(magic: u64) -> (String, bool) {
    let (name, network) = match magic as u32 {
        0xef53 => ("ext4", false),
        0x5846_5342 => ("xfs", false),
        0x9123_683e => ("btrfs", false),
        0x0102_1994 => ("tmpfs", false),
        0x8584_58f6 => ("ramfs", false),
        0x794c_7630 => ("overlay", false),
        0x2fc1_2fc1 => ("zfs", false),
        0xf2f5_2010 => ("f2fs", false),
        0xca45_1a4e => ("bcachefs", false),
        0x4d44 => ("vfat", false),
        0x2011_bab0 => ("exfat", false),
        0x5346_544e | 0x7366_746e => ("ntfs", false),
        0x7371_7368 => ("squashfs", false),
        0x6969 => ("nfs", true),
        0x0bd0_0bd0 => ("lustre", true),
        0x4750_4653 => ("gpfs", true),
        0x00c3_6400 => ("ceph", true),
        0x1983_0326 => ("beegfs", true),
        0x6573_5546 => ("fuse", true),
        0x0102_1997 => ("9p", true),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => ("smb", true),
        0x5346_414f | 0x6b41_4653 => ("afs", true),
        0x2003_0528 => ("orangefs", true),
        0xaad7_aaea => ("panfs", true),
        other => return (format!("{other:#x}"), false),
    };
    (name.into(), network)
}

/// Returns true if other users could replace this directory: its parent is writable for everybody
/// and is not sticky.
pub(crate) fn replaceable(parent: &std::path::Path) -> Result<bool> {
    let stat = fs::statat(CWD, parent, AtFlags::empty())
        .map_err(|errno| Error::io(Step::Stat, parent, errno))?;
    Ok(stat.st_mode & 0o1002 == 0o002)
}
