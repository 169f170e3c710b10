//! Exclusive locks on files, by `flock`.
//!
//! The lock is released explicitly and not by closing the descriptor: another thread of the
//! process may have called `fork` meanwhile, and the child's copy of the descriptor would keep the
//! lock until the child executes a program.

use crate::kernel::{Kernel, OpenFile};
use crate::{io, layout};
use linux_raw_sys::general::{LOCK_EX, LOCK_UN};
use view::errno::Result;
use view::{Errno, HostFd};

/// A lock that is held until this goes out of scope.
pub struct Locked<'k, K: Kernel> {
    kernel: &'k K,
    file: HostFd,
}

impl<'k, K: Kernel> Locked<'k, K> {
    /// Waits for the lock on an open file.
    ///
    /// On file systems without locks there is none, and the caller goes on: at most one process of
    /// the container writes there at a time as a rule, and a record of the log is one write.
    pub fn wait(kernel: &'k K, file: HostFd) -> Result<Self> {
        loop {
            match kernel.flock(file, LOCK_EX) {
                Err(Errno::EINTR) => {}
                Ok(()) | Err(Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::ENOLCK) => {
                    return Ok(Self { kernel, file });
                }
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl<K: Kernel> Drop for Locked<'_, K> {
    fn drop(&mut self) {
        // It cannot fail for a lock that is held; where there are no locks, there is none.
        let _ = self.kernel.flock(self.file, LOCK_UN);
    }
}

/// Runs `work` while no other process of the container replaces a file by its copy.
pub(crate) fn while_alone<K: Kernel, T>(
    kernel: &K,
    directory: &[u8],
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let file: OpenFile<'_, K> = kernel
        .with_path(&[directory, b"/", layout::COPY_LOCK], |path| {
            io::open_or_create(kernel, path, 0)
        })?;
    let _locked = Locked::wait(kernel, file.fd())?;
    work()
}
