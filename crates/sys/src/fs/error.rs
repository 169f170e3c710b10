//! The error of operations that consist of several system calls.

use rustix::io::Errno;
use std::path::PathBuf;

/// The step that failed, the path, and the kernel's error.
#[derive(Debug, thiserror::Error)]
#[error("{step} {path:?}: {errno}")]
pub struct Error {
    /// The step, as a verb phrase: "open directory".
    pub step: &'static str,
    /// The path relative to the given descriptor.
    pub path: PathBuf,
    /// The kernel's error.
    pub errno: Errno,
}

impl Error {
    pub(crate) fn new(step: &'static str, path: &[u8], errno: Errno) -> Self {
        use std::os::unix::ffi::OsStrExt;
        Self { step, path: std::ffi::OsStr::from_bytes(path).into(), errno }
    }

    /// Advice for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self.errno {
            Errno::PERM | Errno::ACCESS => Some(
                "the file may belong to a subordinate user id; then it can only be changed in a user \
                 namespace"
                    .into(),
            ),
            Errno::XDEV => Some("a file system is mounted there; unmount it first".into()),
            Errno::NOSPC | Errno::DQUOT => Some("the disk or the quota is full".into()),
            _ => None,
        }
    }
}
