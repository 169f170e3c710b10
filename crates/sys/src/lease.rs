//! Finds out if a file is open for writing, or mapped so ([`F_SETLEASE` in
//! fcntl(2)](https://man7.org/linux/man-pages/man2/fcntl.2.html)).
//!
//! A read lease is only granted if no process has the file open for writing. It is taken and
//! released at once; a process that opens the file in between waits that long. The kernel would
//! announce that by `SIGURG`, which is ignored unless it is caught (the default signal would end
//! the process).
//!
//! # Safety
//! The `unsafe` calls pass integers to `fcntl`.

use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::{Errno, Result};

use crate::raw;
use linux_raw_sys::general as numbers;

const SET_SIGNAL: usize = 10;
const SET_LEASE: usize = 1024;
const READ: usize = 0;
const NONE: usize = 2;

/// Returns true if a process has the file open for writing, or mapped through such a descriptor.
/// `file` is the caller's own descriptor, open for reading only.
///
/// # Errors
/// The kernel's error if it does not know: `EINVAL` on file systems without leases, `EACCES` for
/// other users' files.
pub fn is_written(file: impl AsFd) -> Result<bool> {
    let file = file.as_fd().as_raw_fd() as usize;
    let control = |command: usize, argument: usize| {
        // SAFETY: both commands take integers, no pointers.
        unsafe { raw::call(numbers::__NR_fcntl, [file, command, argument, 0, 0]) }
    };
    control(SET_SIGNAL, numbers::SIGURG as usize)?;
    match control(SET_LEASE, READ) {
        Ok(_) => {
            control(SET_LEASE, NONE)?;
            Ok(false)
        }
        Err(Errno::AGAIN) => Ok(true),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_and_their_mappings_are_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [0; 4096]).unwrap();
        let ask = || is_written(std::fs::File::open(&path).unwrap());
        if ask() == Err(Errno::INVAL) {
            println!("SKIP writers_and_their_mappings_are_noticed: no leases on this file system");
            return;
        }
        assert_eq!(ask(), Ok(false));
        let reader = std::fs::File::open(&path).unwrap();
        assert_eq!(ask(), Ok(false));
        let writer = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        assert_eq!(ask(), Ok(true));
        let words = crate::shared::SharedWords::map(&writer).unwrap();
        drop((reader, writer));
        assert_eq!(ask(), Ok(true));
        drop(words);
        assert_eq!(ask(), Ok(false));
    }
}
