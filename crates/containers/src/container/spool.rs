//! Keeps an archive in a file without a name between writing and reading it.
//!
//! Reading a container's files may need a process of its own in a user namespace
//! ([`super::ids::within`]), which must be forked while there is one thread. So an archive is
//! written whole before it is read.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::session::Session;

/// A file without a name in the store, or where udocker's users want such files.
pub fn file(session: &Session) -> Result<File> {
    let directory = match &session.dialect().temporary {
        Some(directory) => directory.clone(),
        None => session.store()?.path().join("tmp"),
    };
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let made = match rustix::fs::openat(CWD, &directory, flags, Mode::RUSR | Mode::WUSR) {
        // NFS, FUSE and others have no files without a name.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            named(&directory.join(super::volumes::random_name()?))
        }
        other => other,
    };
    made.map(File::from).map_err(|error| {
        Error::failed(format!("cannot make a temporary file in {}", directory.display()))
            .cause(error)
    })
}

/// A file that loses its name at once; one that a killed process leaves is swept with the rest of
/// `tmp`.
fn named(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::unlink(path)?;
    Ok(file)
}

/// Back to its beginning.
pub fn rewind(mut file: &File) -> Result<()> {
    file.seek(io::SeekFrom::Start(0)).map(drop).map_err(unreadable)
}

fn unreadable(error: io::Error) -> Error {
    Error::failed("cannot read the temporary file").cause(error)
}

/// What an archive begins with.
pub struct First {
    /// Its first entry is a directory.
    pub is_directory: bool,
    /// Its permissions.
    pub mode: u32,
}

/// Looks at the first entry of an archive.
pub fn rewound(mut file: &File) -> Result<First> {
    rewind(file)?;
    let mut header = [0_u8; 512];
    let octal = |digits: &[u8]| {
        std::str::from_utf8(digits).ok().and_then(|text| u32::from_str_radix(text, 8).ok())
    };
    loop {
        if file.read(&mut header[..1]).map_err(unreadable)? == 0 {
            return Ok(First { is_directory: false, mode: 0 });
        }
        file.read_exact(&mut header[1..]).map_err(unreadable)?;
        match header[156] {
            // A header of what is to follow: passed over with its content.
            b'x' | b'g' | b'L' | b'K' => {
                let blocks = i64::from(octal(&header[124..135]).unwrap_or(0).div_ceil(512));
                file.seek(io::SeekFrom::Current(blocks * 512)).map_err(unreadable)?;
            }
            kind => {
                let mode = octal(&header[100..107]).unwrap_or(0o755) & 0o7777;
                return Ok(First { is_directory: kind == b'5', mode });
            }
        }
    }
}

/// Opens a directory by its host path.
pub fn open_directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
        .map_err(|error| Error::failed(format!("cannot open {}", path.display())).cause(error))
}
