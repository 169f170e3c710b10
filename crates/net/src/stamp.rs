//! Whether a file was replaced since it was read: the store replaces its files, and never changes
//! one in place.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Inode number and time of change of a file; `None` if there is no file.
pub(crate) type Stamp = Option<(u64, i64, i64)>;

/// The stamp of a file. Taken before the file is read, it tells later whether that is out of date.
pub(crate) fn stamp(path: &Path) -> Stamp {
    let found = std::fs::metadata(path).ok()?;
    Some((found.ino(), found.mtime(), found.mtime_nsec()))
}
