//! Open-file-description locks
//! ([fcntl_locking(2)](https://man7.org/linux/man-pages/man2/fcntl_locking.2.html)), over a whole
//! file.
//!
//! They belong to the open file as `flock(2)`'s do, not to the process, and work on file systems
//! that know byte-range locks only. `rustix` offers `F_SETLK` alone, whose locks are released by
//! any close of the file in the process. A shared lock needs a readable descriptor, an exclusive
//! one a writable one.
//!
//! # Safety
//! The one `unsafe` call passes a pointer to a live, correctly laid out `flock` structure to
//! `fcntl`.

use std::ffi::{c_int, c_short};
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::{Errno, Result};

/// Operation on the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfdLock {
    /// Take a shared lock.
    Shared,
    /// Take an exclusive lock.
    Exclusive,
    /// Release the lock (closing the last copy of the descriptor does so too).
    Unlock,
}

// `F_RDLCK`, `F_WRLCK` and `F_UNLCK` of the generic ABI, which x86-64 and aarch64 share.
const READ: c_short = 0;
const WRITE: c_short = 1;
const NONE: c_short = 2;

unsafe extern "C" {
    fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
}

/// Takes or releases the lock without waiting; [`Errno::AGAIN`] if another open file holds it.
pub fn try_ofd_lock(file: impl AsFd, lock: OfdLock) -> Result<()> {
    let request = linux_raw_sys::general::flock {
        l_type: match lock {
            OfdLock::Shared => READ,
            OfdLock::Exclusive => WRITE,
            OfdLock::Unlock => NONE,
        },
        l_whence: 0, // SEEK_SET
        l_start: 0,
        l_len: 0, // to the end, wherever that will be
        l_pid: 0, // required to be 0
    };
    let command = linux_raw_sys::general::F_OFD_SETLK as c_int;
    // SAFETY: the descriptor is open for as long as the borrow lasts; `request` has the kernel's
    // layout on 64-bit targets (glibc's `struct flock` is the same there) and outlives the call,
    // which only reads it.
    let result = unsafe { fcntl(file.as_fd().as_raw_fd(), command, &raw const request) };
    if result == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS) => Err(Errno::AGAIN), // POSIX allows either
        Some(errno) => Err(errno),
        None => Err(Errno::IO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excludes_other_open_files_of_the_same_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let open = || {
            std::fs::File::options().read(true).write(true).create(true).truncate(false).open(&path)
        };
        let (a, b) = (open().unwrap(), open().unwrap());
        try_ofd_lock(&a, OfdLock::Shared).unwrap();
        try_ofd_lock(&b, OfdLock::Shared).unwrap();
        assert_eq!(try_ofd_lock(&b, OfdLock::Exclusive), Err(Errno::AGAIN));
        try_ofd_lock(&a, OfdLock::Unlock).unwrap();
        try_ofd_lock(&b, OfdLock::Exclusive).unwrap();
        assert_eq!(try_ofd_lock(&a, OfdLock::Shared), Err(Errno::AGAIN));
        drop(b);
        try_ofd_lock(&a, OfdLock::Exclusive).unwrap();
    }
}
