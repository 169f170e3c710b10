//! Extended attributes of open files. On a file system without attributes, reading finds none and
//! writing fails.

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{self, XattrFlags};
use rustix::io::{self, Errno};

/// The largest value that Linux accepts (`XATTR_SIZE_MAX`).
pub const VALUE_MAX: usize = 65536;

/// All names that the caller may see.
pub fn list(fd: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    let fd = fd.as_fd();
    let mut small = [0_u8; 256];
    let mut large;
    let names: &[u8] = match fs::flistxattr(fd, &mut small[..]) {
        Ok(length) => &small[..length],
        Err(Errno::RANGE) => {
            large = vec![0_u8; VALUE_MAX];
            let length = fs::flistxattr(fd, &mut large[..])?;
            &large[..length]
        }
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => return Ok(Vec::new()),
        Err(errno) => return Err(errno),
    };
    Ok(names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}

/// Reads one value; `None` if the attribute is missing or the file system has no attributes.
///
/// The permission for `user.*` attributes is checked at the call, not at the opening of the file.
/// If the mode forbids reading to the owner, it is widened for a moment.
pub fn get(fd: impl AsFd, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let fd = fd.as_fd();
    match value(fd, name) {
        Err(Errno::ACCESS) => {}
        result => return result,
    }
    let mode = fs::fstat(fd)?.st_mode & 0o7777;
    if mode & 0o400 != 0 || super::chmod_fd(fd, mode | 0o400).is_err() {
        return Err(Errno::ACCESS);
    }
    let result = value(fd, name);
    super::chmod_fd(fd, mode)?;
    result
}

fn value(fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut small = [0_u8; 256];
    match fs::fgetxattr(fd, name, &mut small[..]) {
        Ok(length) => Ok(Some(small[..length].to_vec())),
        Err(Errno::RANGE) => {
            let mut large = vec![0_u8; VALUE_MAX];
            let length = fs::fgetxattr(fd, name, &mut large[..])?;
            large.truncate(length);
            Ok(Some(large))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Sets one value.
pub fn set(fd: impl AsFd, name: &[u8], value: &[u8]) -> io::Result<()> {
    fs::fsetxattr(fd, name, value, XattrFlags::empty())
}

/// Removes one; no error if it is missing.
pub fn remove(fd: impl AsFd, name: &[u8]) -> io::Result<()> {
    match fs::fremovexattr(fd, name) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        other => other,
    }
}
