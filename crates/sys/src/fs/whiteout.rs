//! Overlay's deletion marks: a character device 0:0 hides a name, an extended attribute hides a
//! directory's lower content.
//!
//! Any user may make a 0:0 device since Linux 5.8. Inside user namespaces overlay is mounted with
//! `userxattr` and reads the attribute in the `user.` name space.

use rustix::fd::AsFd;
use rustix::fs::{self, FileType, Mode, Stat};
use rustix::io;

/// Attribute that makes a directory opaque (`userxattr` mounts).
pub const OPAQUE: &[u8] = b"user.overlay.opaque";
/// The same for mounts by a privileged user.
pub const OPAQUE_TRUSTED: &[u8] = b"trusted.overlay.opaque";

/// Makes a whiteout.
pub fn make(dir: impl AsFd, name: &[u8]) -> io::Result<()> {
    fs::mknodat(dir, name, FileType::CharacterDevice, Mode::empty(), fs::makedev(0, 0))
}

/// Returns true if the file is a whiteout.
#[must_use]
pub fn is(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

/// Makes an open directory opaque.
pub fn set_opaque(dir: impl AsFd) -> io::Result<()> {
    super::xattr::set(dir, OPAQUE, b"y")
}

/// Returns true if an open directory is opaque.
pub fn is_opaque(dir: impl AsFd) -> io::Result<bool> {
    let dir = dir.as_fd();
    if super::xattr::get(dir, OPAQUE)?.is_some_and(|value| value == b"y") {
        return Ok(true);
    }
    Ok(super::xattr::get(dir, OPAQUE_TRUSTED)?.is_some_and(|value| value == b"y"))
}
