//! Tells how far locks on files of a file system are seen: by one kernel, or by every host that has
//! the file system. A lock that another host does not see would say there that nothing is locked.
//!
//! | file system | `flock(2)` is seen |
//! |---|---|
//! | ext4, XFS, Btrfs, tmpfs, overlay, ZFS, F2FS, bcachefs | by the one kernel that has it |
//! | NFS | by the server, unless mounted with `local_lock=flock` or `local_lock=all` |
//! | Lustre | by all hosts if mounted with `flock`, not with `localflock` or `noflock` |
//! | Ceph | by the metadata server |
//! | fuse-overlayfs, and FUSE on a block device | by the one kernel that has it |
//! | any other (BeeGFS, other FUSE, 9p, SMB...) | perhaps by this kernel only |
//!
//! An NFS server turns its clients' locks, also `flock(2)`, into byte-range locks on its own file
//! system, where `flock(2)` of its own processes is another kind. So a process that locks a file
//! there by both kinds excludes the clients too ([`try_both`]).

use std::os::fd::{AsFd, AsRawFd as _};
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::{Errno, Result};

use crate::ofd::{OfdLock, try_ofd_lock};

/// How a file system is mounted.
#[derive(Debug, Default)]
struct Mounted {
    /// Its type, `nfs4` or `fuse.sshfs`.
    kind: String,
    /// Its options, separated by commas.
    options: String,
}

/// Returns true if every host that has the file system sees a lock. `file` is any of its files; it
/// may be open as a path only.
pub fn reaches_hosts(file: impl AsFd) -> bool {
    let file = file.as_fd();
    let Ok(stat) = rustix::fs::fstatfs(file) else { return false };
    judge(stat.f_type as u32, || mounted(file.as_raw_fd()).unwrap_or_default())
}

/// Returns true if other machines may have the file system that a path lies on.
pub fn is_shared(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|stat| !is_one_kernels(stat.f_type as u32))
}

/// Takes or releases a lock by `flock(2)` without waiting. If the file system belongs to one
/// kernel, does the same by an open-file-description lock, for clients of this kernel's NFS server;
/// the file must be open for writing for an exclusive lock to reach them.
///
/// # Errors
/// [`Errno::AGAIN`] if another open file has the lock; the kernel's error if it has no `flock`.
pub fn try_both(file: impl AsFd, lock: OfdLock) -> Result<()> {
    let file = file.as_fd();
    let operation = match lock {
        OfdLock::Shared => FlockOperation::NonBlockingLockShared,
        OfdLock::Exclusive => FlockOperation::NonBlockingLockExclusive,
        OfdLock::Unlock => FlockOperation::NonBlockingUnlock,
    };
    rustix::io::retry_on_intr(|| rustix::fs::flock(file, operation))?;
    let is_local = rustix::fs::fstatfs(file).is_ok_and(|stat| is_one_kernels(stat.f_type as u32));
    if is_local && try_ofd_lock(file, lock) == Err(Errno::AGAIN) {
        rustix::fs::flock(file, FlockOperation::NonBlockingUnlock)?;
        return Err(Errno::AGAIN);
    }
    Ok(())
}

/// Whether a file system is in the hands of one kernel, by its magic number (statfs(2)): ext4,
/// XFS, Btrfs, tmpfs, ramfs, overlay, ZFS, F2FS, bcachefs.
fn is_one_kernels(magic: u32) -> bool {
    matches!(
        magic,
        0xef53
            | 0x5846_5342
            | 0x9123_683e
            | 0x0102_1994
            | 0x8584_58f6
            | 0x794c_7630
            | 0x2fc1_2fc1
            | 0xf2f5_2010
            | 0xca45_1a4e
    )
}

/// Returns true if all hosts see a lock, by the file system's magic number and its mount.
fn judge(magic: u32, mounted: impl FnOnce() -> Mounted) -> bool {
    let has = |options: &str, wanted: &str| options.split(',').any(|option| option == wanted);
    match magic {
        magic if is_one_kernels(magic) => true,
        // Ceph
        0x00c3_6400 => true,
        // NFS
        0x6969 => {
            let options = mounted().options;
            !options.is_empty()
                && !has(&options, "local_lock=flock")
                && !has(&options, "local_lock=all")
        }
        // Lustre
        0x0bd0_0bd0 => has(&mounted().options, "flock"),
        // FUSE
        0x6573_5546 => matches!(mounted().kind.as_str(), "fuse.fuse-overlayfs" | "fuseblk"),
        _ => false,
    }
}

/// The mount under a descriptor, as `/proc/self/mountinfo` shows them
/// ([proc_pid_mountinfo(5)](https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html)).
fn mounted(file: i32) -> Option<Mounted> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{file}")).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().to_owned();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(&id))?;
    let (_, rest) = line.split_once(" - ")?;
    let mut words = rest.split(' ');
    let kind = words.next()?.to_owned();
    Some(Mounted { kind, options: words.next_back()?.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn only_known_file_systems_carry_locks_to_other_machines() {
        let with = |magic: u32, kind: &str, options: &str| {
            judge(magic, || Mounted { kind: kind.into(), options: options.into() })
        };
        assert!(with(0xef53, "ext4", ""));
        assert!(with(0x6969, "nfs4", "rw,vers=4.2,hard,local_lock=none,addr=1.2.3.4"));
        assert!(!with(0x6969, "nfs", "rw,vers=3,local_lock=flock,addr=1.2.3.4"));
        assert!(!with(0x6969, "nfs", "rw,vers=3,nolock,local_lock=all"));
        assert!(!with(0x6969, "", ""));
        assert!(with(0x0bd0_0bd0, "lustre", "rw,flock,lazystatfs"));
        assert!(!with(0x0bd0_0bd0, "lustre", "rw,localflock"));
        assert!(!with(0x6573_5546, "fuse.sshfs", "rw"));
        assert!(with(0x6573_5546, "fuse.fuse-overlayfs", "rw"));
        assert!(with(0x00c3_6400, "ceph", "rw"));
        assert!(is_shared(Path::new("/proc")) && !is_shared(Path::new("/dev/shm")));
        let file = File::open("/proc/self/stat").unwrap();
        assert_eq!(mounted(file.as_raw_fd()).unwrap().kind, "proc");
    }

    /// As an NFS server locks a file for its clients.
    #[test]
    fn byte_range_locks_exclude_too() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let open = || {
            File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap()
        };
        let (ours, servers) = (open(), open());
        try_ofd_lock(&servers, OfdLock::Shared).unwrap();
        assert_eq!(try_both(&ours, OfdLock::Exclusive), Err(Errno::AGAIN));
        try_both(&ours, OfdLock::Shared).unwrap();
        assert_eq!(try_ofd_lock(&servers, OfdLock::Exclusive), Err(Errno::AGAIN));
        try_both(&ours, OfdLock::Unlock).unwrap();
        try_ofd_lock(&servers, OfdLock::Exclusive).unwrap();
        assert_eq!(try_both(&ours, OfdLock::Shared), Err(Errno::AGAIN));
    }
}
