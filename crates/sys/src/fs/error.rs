//! The error of the operations that consist of several calls.

use rustix::io::Errno;
use std::path::PathBuf;

/// Which step failed, on what, and the kernel's answer.
#[derive(Debug, thiserror::Error)]
#[error("{step} {path:?}: {errno}")]
pub struct Error {
    /// What was tried, as a verb phrase: "open directory".
    pub step: &'static str,
    /// Relative to the descriptor that was given.
    pub path: PathBuf,
    /// The kernel's answer.
    pub errno: Errno,
}

impl Error {
    pub(crate) fn new(step: &'static str, path: &[u8], errno: Errno) -> Self {
        use std::os::unix::ffi::OsStrExt;
        Self { step, path: std::ffi::OsStr::from_bytes(path).into(), errno }
    }

    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self.errno {
            Errno::PERM | Errno::ACCESS => Some(
                "the file may belong to another user id (a subordinate one); it can be changed from inside a user namespace"
                    .into(),
            ),
            Errno::XDEV => Some("something is mounted there; unmount it first".into()),
            Errno::NOSPC | Errno::DQUOT => Some("the disk or the quota is full".into()),
            _ => None,
        }
    }
}
