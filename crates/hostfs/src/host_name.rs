//! The host name of a container that a process has set, in two files of its directory.
//!
//! ```text
//!   .host-name           the name, set or as it was at the start
//!   .host-name-written   the file that guests write to who have opened the one in `/proc`
//! ```
//!
//! Each says the name in its first line. The second one counts before the first as soon as it is
//! not empty, so a guest's `write`, which no rule sees, sets the name. Who opens the file to write
//! to it needs an empty one: what was written before becomes the first file, by `rename`, and a new
//! one is made; a guest that has the old one open goes on behind the end of its line, which has no
//! effect, as with the kernel's. Those who have opened it and have written nothing share it.
//!
//! `sethostname` puts a whole new file into the place of the one that counts. Changes are made
//! under the container's lock. Readers need none, since each step is one `rename`: whenever a
//! process is killed, the name is the old one or the new one.

use crate::kernel::{CWD, Kernel, OpenFile, Target};
use crate::{io, layout, lock};
use core::ffi::CStr;
use linux_raw_sys::general::{AT_SYMLINK_NOFOLLOW, O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK, O_RDONLY};
use view::errno::Result;
use view::guest::HOST_NAME_MAX;
use view::{Errno, HostFd};

/// What the guest sees of the files' modes.
const MODE: u32 = 0o644;

/// The name as it is now. `run` is the container's [`layout::RUN`]. `None` if the files do not say
/// it.
pub fn now<K: Kernel>(kernel: &K, run: &[u8], into: &mut [u8; HOST_NAME_MAX]) -> Option<usize> {
    [layout::HOST_NAME_WRITTEN, layout::HOST_NAME]
        .into_iter()
        .find_map(|file| with(kernel, run, file, |path| read(kernel, path, into)).ok().flatten())
}

/// Sets the name.
pub fn set<K: Kernel>(kernel: &K, run: &[u8], name: &[u8]) -> Result<()> {
    let mut line = [b'\n'; HOST_NAME_MAX + 1];
    line.get_mut(..name.len()).ok_or(Errno::EINVAL)?.copy_from_slice(name);
    let line = line.get(..=name.len()).ok_or(Errno::EINVAL)?;
    lock::while_alone(kernel, run, || {
        // Where a guest has not written yet, it may do so later.
        let size = with(kernel, run, layout::HOST_NAME_WRITTEN, |path| size(kernel, path))?;
        let place = if size > 0 { layout::HOST_NAME_WRITTEN } else { layout::HOST_NAME };
        with(kernel, run, layout::HOST_NAME_NEW, |new| {
            let file = io::open_or_create(kernel, new, O_NOFOLLOW)?;
            // A process that was killed may have left it.
            kernel.truncate(Target::File(file.fd()), 0)?;
            kernel.fchmod(file.fd(), MODE)?;
            io::write_all(kernel, file.fd(), line)?;
            with(kernel, run, place, |place| kernel.renameat2((CWD, new), (CWD, place), 0))
        })
    })
}

/// A file by which a guest sets the name.
pub fn file<K: Kernel>(kernel: &K, run: &[u8]) -> Result<HostFd> {
    lock::while_alone(kernel, run, || {
        with(kernel, run, layout::HOST_NAME_WRITTEN, |written| {
            if size(kernel, written)? > 0 {
                with(kernel, run, layout::HOST_NAME, |settled| {
                    kernel.renameat2((CWD, written), (CWD, settled), 0)
                })?;
            }
            let file = io::open_or_create(kernel, written, O_NOFOLLOW)?;
            kernel.fchmod(file.fd(), MODE)?;
            Ok(file.keep())
        })
    })
}

fn with<K: Kernel, T>(
    kernel: &K,
    run: &[u8],
    name: &str,
    call: impl FnOnce(&CStr) -> Result<T>,
) -> Result<T> {
    let parts = [run, b"/", layout::MEMORY.as_bytes(), b"/", name.as_bytes()];
    kernel.with_path(&parts, call)
}

/// The size of a file, which is 0 if it is not there.
fn size<K: Kernel>(kernel: &K, path: &CStr) -> Result<u64> {
    match kernel.fstatat(CWD, path, AT_SYMLINK_NOFOLLOW) {
        Err(Errno::ENOENT) => Ok(0),
        status => Ok(status?.st_size as u64),
    }
}

/// The name that a file says; `None` if it is empty.
fn read<K: Kernel>(
    kernel: &K,
    path: &CStr,
    into: &mut [u8; HOST_NAME_MAX],
) -> Result<Option<usize>> {
    let flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    let file = OpenFile::open(kernel, path, flags, 0)?;
    let mut line = [0; HOST_NAME_MAX];
    let length = io::pread(kernel, file.fd(), &mut line, 0)?;
    let Some(line) = line.get(..length).filter(|line| !line.is_empty()) else { return Ok(None) };
    let is_end = |byte: &u8| matches!(byte, b'\n' | 0);
    let name = line.split(is_end).next().unwrap_or_default();
    into.get_mut(..name.len()).ok_or(Errno::EIO)?.copy_from_slice(name);
    Ok(Some(name.len()))
}
