//! Links with short paths to directories, for addresses of sockets
//! ([`view::stored::Places::aliases`]).
//!
//! ```text
//!   /tmp/.cor-0123456a  ->  …/containers/…/run/aliases
//!   /tmp/.cor-0123456a/89ab  ->  a directory
//! ```
//!
//! Every user may write to `/tmp`. A file of that name counts only if it is a link of this user
//! that leads to this container's directory of links; else another digit is tried. No other user
//! can replace such a link afterwards, because `/tmp` has the sticky bit.

use super::calls;
use super::linux::LINUX;
use super::path_buffer::PathBuffer;
use crate::shared;
use core::ffi::CStr;
use hostfs::{CWD, Kernel};
use linux_raw_sys::general::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, S_IFLNK, S_IFMT};
use view::errno::Result;
use view::stored::{ALIASES, ALIASES_DIGITS, LINK_DIGITS, LINKS};
use view::{Errno, HostFd, Text};

/// Length of a link's path.
pub(super) const LENGTH: usize = ALIASES.len() + ALIASES_DIGITS + 1 + LINK_DIGITS;

const DIGITS: &[u8; 16] = b"0123456789abcdef";
/// How many names are tried for a directory.
const TRIES: u64 = 16;

/// For such a path. (Containers of tests may have longer ones.)
type Short = PathBuffer<64>;

/// Makes a link to a directory, whose path is `path`; puts the link's own path in its place.
pub(super) fn link(directory: i32, path: &mut Text) -> Result<()> {
    let mut links = Short::new();
    let wanted = identity(HostFd(directory), c"", AT_EMPTY_PATH)?;
    if identity(CWD, path.as_c_str(), 0) != Ok(wanted) {
        return Err(Errno::ENOENT);
    }
    let hash = abi::shared::hash(path.as_bytes(), 4);
    let links = directory_of_links(&mut links)?;
    for step in 0..TRIES {
        let mut link = Short::new();
        link.push(links.to_bytes())?;
        link.push(b"/")?;
        for digit in 0..LINK_DIGITS {
            let value = hash.wrapping_add(step) >> (4 * digit);
            link.push(&[DIGITS[value as usize % DIGITS.len()]])?;
        }
        link.push(b"\0")?;
        let link = link.as_c_str()?;
        match LINUX.symlinkat(path.as_c_str(), CWD, link) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error),
        }
        if identity(CWD, link, 0) == Ok(wanted) {
            return path.set(link.to_bytes());
        }
    }
    Err(Errno::EEXIST)
}

/// The link to the container's directory of links; both are made if they are not there.
fn directory_of_links(room: &mut Short) -> Result<&CStr> {
    let places = shared::places();
    if places.aliases.is_empty() {
        return Err(Errno::ENOENT);
    }
    LINUX.with_path(&[places.run, b"/", LINKS], |directory| {
        *room = link_to(directory, places.aliases)?;
        Ok(())
    })?;
    room.as_c_str()
}

/// Makes the directory of links, and finds or makes a link to it.
fn link_to(directory: &CStr, aliases: &[u8]) -> Result<Short> {
    match LINUX.mkdirat(CWD, directory, 0o700) {
        // The umask may have taken some of it.
        Ok(()) => LINUX.fchmodat(CWD, directory, 0o700)?,
        Err(Errno::EEXIST) => {}
        Err(error) => return Err(error),
    }
    let wanted = identity(CWD, directory, AT_SYMLINK_NOFOLLOW)?;
    for digit in DIGITS {
        let mut link = Short::new();
        link.push(aliases)?;
        link.push(&[*digit, b'\0'])?;
        match LINUX.symlinkat(directory, CWD, link.as_c_str()?) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error),
        }
        if is_ours(link.as_c_str()?) && identity(CWD, link.as_c_str()?, 0) == Ok(wanted) {
            return Ok(link);
        }
    }
    Err(Errno::EEXIST)
}

/// Whether it is a link that this user has made.
fn is_ours(link: &CStr) -> bool {
    let status = LINUX.fstatat(CWD, link, AT_SYMLINK_NOFOLLOW);
    status.is_ok_and(|link| link.st_uid == calls::geteuid() && link.st_mode & S_IFMT == S_IFLNK)
}

/// Device and inode.
fn identity(dir: HostFd, path: &CStr, flags: u32) -> Result<(u64, u64)> {
    LINUX.fstatat(dir, path, flags).map(|status| (status.st_dev, status.st_ino))
}
