//! Complete reads and writes: interrupted calls are repeated, and short writes go on.

use crate::Kernel;
use core::ffi::CStr;
use linux_raw_sys::general::{O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_RDWR, O_TMPFILE};
use view::errno::Result;
use view::{Errno, HostFd};

use crate::kernel::{CWD, OpenFile};
use crate::layout;

/// The mode of files that belong to the container's files beside its tree.
const OWNERS: u32 = 0o600;

/// `pread`, repeated when a signal interrupts it.
pub fn pread(kernel: &impl Kernel, file: HostFd, into: &mut [u8], offset: u64) -> Result<usize> {
    loop {
        match kernel.pread(file, into, offset) {
            Err(Errno::EINTR) => {}
            result => return result,
        }
    }
}

/// `pwrite` of all bytes.
pub fn pwrite_all(kernel: &impl Kernel, file: HostFd, from: &[u8], offset: u64) -> Result<()> {
    all(from, |rest, done| kernel.pwrite(file, rest, offset + done as u64))
}

/// `write` of all bytes.
pub fn write_all(kernel: &impl Kernel, file: HostFd, from: &[u8]) -> Result<()> {
    all(from, |rest, _| kernel.write(file, rest))
}

/// Writes piece after piece. `write` gets what is left, and how much has been written.
fn all(from: &[u8], mut write: impl FnMut(&[u8], usize) -> Result<usize>) -> Result<()> {
    let mut done = 0;
    while let Some(rest @ [_, ..]) = from.get(done..) {
        match write(rest, done) {
            Ok(0) => return Err(Errno::EIO),
            Ok(count) => done += count,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Opens a file of the container's own for reading and writing, and makes it if it is not there.
///
/// Its owner may read and write it, whatever the umask of the process is. A process that ended
/// between making the file and giving it its mode leaves a file that nobody may open: the mode is
/// set again.
pub fn open_or_create<'k, K: Kernel>(
    kernel: &'k K,
    path: &CStr,
    flags: u32,
) -> Result<OpenFile<'k, K>> {
    let flags = flags | O_RDWR | O_CREAT | O_CLOEXEC;
    match OpenFile::open(kernel, path, flags, OWNERS) {
        Err(Errno::EACCES) => {
            kernel.fchmodat(CWD, path, OWNERS)?;
            OpenFile::open(kernel, path, flags, OWNERS)
        }
        result => {
            let file = result?;
            allow_owner(kernel, &file)?;
            Ok(file)
        }
    }
}

/// Gives a new file the mode that the umask may have reduced.
pub(crate) fn allow_owner<K: Kernel>(kernel: &K, file: &OpenFile<'_, K>) -> Result<()> {
    if K::APPLIES_UMASK { kernel.fchmod(file.fd(), OWNERS) } else { Ok(()) }
}

/// How many names are tried for a temporary file.
pub(crate) const NAMES_MAX: u32 = 1 << 16;

/// Makes a file under the first of a series of names that is free, and hands it on with its path.
/// `make` removes the name when it is done with it.
pub(crate) fn with_temporary<'k, K: Kernel, T>(
    kernel: &'k K,
    directory: &[u8],
    kind: layout::Temporary,
    make: impl FnOnce(&CStr, OpenFile<'k, K>) -> Result<T>,
) -> Result<T> {
    let mut make = Some(make);
    for number in 0..NAMES_MAX {
        let name = kind.name(kernel.thread_id(), number);
        let done = kernel.with_path(&[directory, b"/", name.as_bytes()], |path| {
            let flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
            match (OpenFile::open(kernel, path, flags, OWNERS), &mut make) {
                // Left by a thread of this number that was killed.
                (Err(Errno::EEXIST), _) | (_, None) => Ok(None),
                (Err(errno), _) => Err(errno),
                (Ok(file), make) => make.take().map(|make| make(path, file)).transpose(),
            }
        })?;
        if let Some(done) = done {
            return Ok(done);
        }
    }
    Err(Errno::EEXIST)
}

/// A file without a name in `directory`, on file systems without `O_TMPFILE` one whose name is
/// removed at once. It may be opened again by its magic link, so its mode must let its owner in.
pub(crate) fn nameless_file<K: Kernel>(kernel: &K, directory: &[u8]) -> Result<HostFd> {
    let flags = O_RDWR | O_CLOEXEC | O_TMPFILE | O_DIRECTORY;
    let made = kernel.with_path(&[directory], |path| OpenFile::open(kernel, path, flags, OWNERS));
    match made {
        Err(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::EINVAL | Errno::ENOENT) => {
            with_temporary(kernel, directory, layout::Temporary::Text, |path, file| {
                kernel.unlinkat(CWD, path, 0)?;
                allow_owner(kernel, &file)?;
                Ok(file.keep())
            })
        }
        result => {
            let file = result?;
            allow_owner(kernel, &file)?;
            Ok(file.keep())
        }
    }
}
