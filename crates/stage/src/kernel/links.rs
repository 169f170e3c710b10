//! Links with short paths to directories, for addresses of sockets ([`view::stored::Places::aliases`]).
//!
//! ```text
//!   /tmp/.cor-0123456a  ->  …/containers/…/run/aliases        /tmp/.cor-0123456a/89ab  ->  a directory
//! ```
//!
//! `/tmp` is everybody's. What is there under the name counts only if it is a link of our own that leads to this container's directory of links; else
//! another digit is tried. Nobody else can replace such a link afterwards, as that is not allowed in `/tmp`.

use super::at::{Name, Room};
use super::{calls, inode_log};
use crate::shared;
use core::ffi::CStr;
use linux_raw_sys::general::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, S_IFLNK, S_IFMT};
use view::errno::Result;
use view::stored::{ALIASES, ALIASES_DIGITS, LINK_DIGITS, LINKS};
use view::{Errno, Text};

/// Length of a link's path.
pub(super) const LENGTH: usize = ALIASES.len() + ALIASES_DIGITS + 1 + LINK_DIGITS;

const DIGITS: &[u8; 16] = b"0123456789abcdef";
/// How many names are tried for a directory.
const TRIES: u64 = 16;

/// Room for such a path. (Other containers' may be longer, those of tests.)
type Short = Room<64>;

/// Makes a link to a directory, whose path is `path`; puts the link's own path in its place.
pub(super) fn link(directory: i32, path: &mut Text) -> Result<()> {
    let mut links = Short::new();
    let wanted = identity(directory, c"", AT_EMPTY_PATH)?;
    if identity(calls::CWD, path.as_c_str(), 0) != Ok(wanted) {
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
        match calls::symlinkat(path.as_c_str(), calls::CWD, link) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error),
        }
        if identity(calls::CWD, link, 0) == Ok(wanted) {
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
    let mut name = Name::new();
    let directory = inode_log::host_path(&mut name, places.run, LINKS)?;
    match calls::mkdirat(calls::CWD, directory, 0o700) {
        Ok(()) => calls::fchmodat(calls::CWD, directory, 0o700)?,
        Err(Errno::EEXIST) => {}
        Err(error) => return Err(error),
    }
    let wanted = identity(calls::CWD, directory, AT_SYMLINK_NOFOLLOW)?;
    let mut found = None;
    for digit in DIGITS {
        let mut link = Short::new();
        link.push(places.aliases)?;
        link.push(&[*digit, b'\0'])?;
        match calls::symlinkat(directory, calls::CWD, link.as_c_str()?) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error),
        }
        if is_ours(link.as_c_str()?) && identity(calls::CWD, link.as_c_str()?, 0) == Ok(wanted) {
            found = Some(link);
            break;
        }
    }
    *room = found.ok_or(Errno::EEXIST)?;
    room.as_c_str()
}

/// Whether it is a link that this user has made.
fn is_ours(link: &CStr) -> bool {
    calls::newfstatat(calls::CWD, link, AT_SYMLINK_NOFOLLOW)
        .is_ok_and(|facts| facts.st_uid == calls::geteuid() && facts.st_mode & S_IFMT == S_IFLNK)
}

/// Device and inode.
fn identity(descriptor: i32, path: &CStr, flags: u32) -> Result<(u64, u64)> {
    calls::newfstatat(descriptor, path, flags).map(|facts| (facts.st_dev, facts.st_ino))
}
