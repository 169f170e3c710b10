//! A stack of trees read as one: what a container sees, computed without mounting anything.
use crate::error::Error;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Opens the top of a tree by its host path.
pub(crate) fn open_tree(path: &Path) -> Result<OwnedFd, Error> {
    rustix::fs::openat(CWD, path, sys::fs::DIRECTORY, Mode::empty())
        .map_err(|errno| Error::disk("open directory", path.as_os_str().as_bytes(), errno))
}

/// Which id inside stands for which id on disk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IdMap {
    /// (first id inside, first id on disk, count) for users.
    pub users: Vec<(u32, u32, u32)>,
    /// The same for groups.
    pub groups: Vec<(u32, u32, u32)>,
}
