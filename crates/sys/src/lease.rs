//! Whether anybody has a file open for writing, or mapped so ([`F_SETLEASE` in fcntl(2)](https://man7.org/linux/man-pages/man2/fcntl.2.html)).
//!
//! A lease for reading is only given where nobody writes. It is asked for and given back at once; somebody who opens the file in between
//! waits that long. The signal that would tell of that is `SIGURG`, which does nothing unless it is caught (the usual one would end the process).
//!
//! # Safety
//! The `unsafe` calls pass whole numbers to `fcntl`.

use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::{Errno, Result};

use crate::raw;
use linux_raw_sys::general as numbers;

const SET_SIGNAL: usize = 10;
const SET_LEASE: usize = 1024;
const READ: usize = 0;
const NONE: usize = 2;

/// Whether somebody has the file open for writing, or mapped by such a descriptor. `file` is one's own, open for reading only.
///
/// # Errors
/// Whatever the kernel says where it does not know: `EINVAL` on file systems without leases, `EACCES` for somebody else's files.
pub fn is_written(file: impl AsFd) -> Result<bool> {
    let file = file.as_fd().as_raw_fd() as usize;
    let control = |command: usize, argument: usize| {
        // SAFETY: neither command takes an address.
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
