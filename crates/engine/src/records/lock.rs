//! Takes and asks for locks that show that a process lives, also between machines.
//!
//! A Coracle process that stays beside a program holds an exclusive lock on a file of the
//! container. The kernel, or the file server, gives it back when the process ends, however it
//! ends. A process that asks takes the lock shared for a moment. So two that ask do not mislead
//! each other, and one that wants it exclusively can tell an asker from a holder ([`take`]).
//!
//! `flock(2)` is tried first, then open-file-description locks; where the file system belongs to
//! one kernel, both are taken ([`sys::carried`]); only [`wait`] takes the first that is there. A
//! lock that another machine does not see would say there that the process is dead. So a lock
//! counts between machines only where the file system is known to carry it ([`reach`]).

use std::os::fd::AsFd;
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
fn attempt(file: impl AsFd, lock: OfdLock) -> Result<(), Errno> {
    let file = file.as_fd();
    match sys::carried::try_both(file, lock) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(Errno::WOULDBLOCK),
        Err(_) => rustix::io::retry_on_intr(|| try_ofd_lock(file, lock)),
    }
}

fn exclusive(file: impl AsFd) -> Result<(), Errno> {
    attempt(file, OfdLock::Exclusive)
}

fn shared(file: impl AsFd) -> Result<(), Errno> {
    attempt(file, OfdLock::Shared)
}

/// Gives the lock back, also for copies of the descriptor that forked processes have.
pub(crate) fn release(file: impl AsFd) {
    let _ = attempt(file, OfdLock::Unlock);
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
    if sys::carried::reaches_hosts(file) { Reach::Hosts } else { Reach::Kernel }
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
}
