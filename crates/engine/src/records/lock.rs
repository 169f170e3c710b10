//! Takes and asks for locks that show that a process lives, also between machines.
//!
//! A Coracle process that stays beside a program holds an exclusive lock on a file of the
//! container. The kernel, or the file server, gives it back when the process ends, however it
//! ends. A process that asks takes the lock shared for a moment. So two that ask do not mislead
//! each other, and one that wants it exclusively can tell an asker from a holder ([`take`]).
//!
//! `flock(2)` is tried first, then open-file-description locks. A lock that another machine
//! does not see would say there that the process is dead. So a lock counts between machines
//! only where the file system is known to carry it ([`reach`]):
//!
//! | file system | |
//! |---|---|
//! | ext4, XFS, Btrfs, tmpfs, overlay, ZFS, F2FS, bcachefs | one kernel has it, and carries it |
//! | NFS | by the server, unless mounted with `local_lock=flock` or `local_lock=all` |
//! | Lustre | where mounted with `flock`, not with `localflock` or `noflock` |
//! | Ceph | by the metadata server |
//! | any other (BeeGFS, FUSE, 9p, SMB...) | not counted on |

use std::os::fd::{AsFd, AsRawFd as _};
use std::path::Path;
use std::time::Duration;

use crate::spec::Reach;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use sys::ofd::{OfdLock, try_ofd_lock};

/// Whether a lock is held by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Held,
    Free,
    /// The file system has no locks.
    Unknown,
}

/// What came of taking a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is the caller's now.
    Ours,
    /// Another process holds it.
    Busy,
    /// There are no locks here.
    NoLocks,
}

/// One attempt, by `flock` and else by an open-file-description lock.
fn attempt(file: impl AsFd, flock: FlockOperation, ofd: OfdLock) -> Result<(), Errno> {
    let file = file.as_fd();
    match rustix::io::retry_on_intr(|| rustix::fs::flock(file, flock)) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(Errno::WOULDBLOCK),
        Err(_) => rustix::io::retry_on_intr(|| try_ofd_lock(file, ofd)),
    }
}

fn exclusive(file: impl AsFd) -> Result<(), Errno> {
    attempt(file, FlockOperation::NonBlockingLockExclusive, OfdLock::Exclusive)
}

fn shared(file: impl AsFd) -> Result<(), Errno> {
    attempt(file, FlockOperation::NonBlockingLockShared, OfdLock::Shared)
}

/// Gives the lock back, also for copies of the descriptor that forked processes have.
pub(crate) fn release(file: impl AsFd) {
    let _ = attempt(file, FlockOperation::Unlock, OfdLock::Unlock);
}

/// Takes the lock for the caller alone, without waiting for a holder.
pub(crate) fn take(file: impl AsFd) -> Taken {
    let file = file.as_fd();
    // An asker holds it for microseconds.
    for _ in 0..100 {
        match exclusive(file) {
            Ok(()) => return Taken::Ours,
            Err(Errno::WOULDBLOCK) => {}
            Err(_) => return Taken::NoLocks,
        }
        if shared(file).is_err() {
            return Taken::Busy;
        }
        release(file);
        std::thread::sleep(Duration::from_micros(200));
    }
    Taken::Busy
}

/// Takes the lock for the caller alone, and waits for it.
///
/// # Errors
/// What the kernel says where it has neither kind of lock.
pub(super) fn wait(file: impl AsFd) -> Result<(), Errno> {
    let file = file.as_fd();
    loop {
        match rustix::fs::flock(file, FlockOperation::LockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => break,
            Err(errno) => return Err(errno),
        }
    }
    loop {
        match try_ofd_lock(file, OfdLock::Exclusive) {
            Err(Errno::AGAIN) => std::thread::sleep(Duration::from_millis(1)),
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Whether another process holds the lock.
pub(super) fn ask(file: impl AsFd) -> Asked {
    let file = file.as_fd();
    match shared(file) {
        Ok(()) => {
            release(file);
            Asked::Free
        }
        Err(Errno::WOULDBLOCK) => Asked::Held,
        Err(_) => Asked::Unknown,
    }
}

/// How far locks on files of this file system are seen. `file` is any of them.
pub(crate) fn reach(file: impl AsFd) -> Reach {
    let file = file.as_fd();
    let Ok(stat) = rustix::fs::fstatfs(file) else { return Reach::Kernel };
    let options = || mount_options(file.as_raw_fd()).unwrap_or_default();
    judge(stat.f_type as u32, options)
}

/// Whether other machines may have the file system that a file lies on.
pub fn is_shared(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|stat| !is_one_kernels(stat.f_type as u32))
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

/// How far locks are seen, by a file system's magic number and its mount options.
fn judge(magic: u32, options: impl FnOnce() -> String) -> Reach {
    let has = |options: &str, wanted: &str| options.split(',').any(|option| option == wanted);
    let all = match magic {
        magic if is_one_kernels(magic) => true,
        // Ceph
        0x00c3_6400 => true,
        // NFS
        0x6969 => {
            let options = options();
            !options.is_empty()
                && !has(&options, "local_lock=flock")
                && !has(&options, "local_lock=all")
        }
        // Lustre
        0x0bd0_0bd0 => has(&options(), "flock"),
        _ => false,
    };
    if all { Reach::Hosts } else { Reach::Kernel }
}

/// The options of the file system under a descriptor, as `/proc/self/mountinfo` shows them
/// ([proc_pid_mountinfo(5)](https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html)).
fn mount_options(file: i32) -> Option<String> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{file}")).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().to_owned();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(&id))?;
    line.rsplit(' ').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_holder_is_told_from_one_who_asks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let open = || {
            File::options().create(true).truncate(false).read(true).write(true).open(&path).unwrap()
        };
        let (holder, other, asker) = (
            open(),
            open(),
            File::open({
                open();
                &path
            })
            .unwrap(),
        );
        assert_eq!(ask(&asker), Asked::Free);
        assert_eq!(take(&holder), Taken::Ours);
        assert_eq!((ask(&asker), take(&other)), (Asked::Held, Taken::Busy));
        release(&holder);
        assert_eq!(ask(&asker), Asked::Free);
        shared(&asker).unwrap();
        let waiting = std::thread::spawn(move || take(&other));
        std::thread::sleep(Duration::from_millis(2));
        release(&asker);
        assert_eq!(waiting.join().unwrap(), Taken::Ours);
    }

    #[test]
    fn only_known_file_systems_carry_locks_to_other_machines() {
        let with = |magic: u32, options: &str| judge(magic, || options.to_owned());
        assert_eq!(with(0xef53, ""), Reach::Hosts);
        assert_eq!(with(0x6969, "rw,vers=4.2,hard,local_lock=none,addr=1.2.3.4"), Reach::Hosts);
        assert_eq!(with(0x6969, "rw,vers=3,local_lock=flock,addr=1.2.3.4"), Reach::Kernel);
        assert_eq!(with(0x6969, "rw,vers=3,nolock,local_lock=all"), Reach::Kernel);
        assert_eq!(with(0x6969, ""), Reach::Kernel);
        assert_eq!(with(0x0bd0_0bd0, "rw,flock,lazystatfs"), Reach::Hosts);
        assert_eq!(with(0x0bd0_0bd0, "rw,localflock"), Reach::Kernel);
        assert_eq!(with(0x6573_5546, "rw"), Reach::Kernel);
        assert_eq!(with(0x00c3_6400, "rw"), Reach::Hosts);
        assert!(is_shared(Path::new("/proc")) && !is_shared(Path::new("/dev/shm")));
        let file = File::open("/proc/self/stat").unwrap();
        assert!(mount_options(file.as_raw_fd()).is_some());
    }
}
