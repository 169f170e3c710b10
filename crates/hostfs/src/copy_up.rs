//! Replaces a file that a container shares with its image by a copy, before the first change.
//!
//! The regular files of a container's tree are hard links of the image's. The copy is made in a
//! directory of the container's own on the same file system, with contents, attributes, mode and
//! times, and is then renamed over the shared file, under a lock. So the name is never missing,
//! no process sees half a copy, and of several that want one at once all but the first discard
//! theirs. A copy whose maker was killed keeps its temporary name ([`layout::is_temporary`]), and
//! is removed when no process lives in the container.
//!
//! Two properties are as with overlay: a descriptor that was opened for reading before the copy
//! goes on showing the image's file, and of a file with several names inside the image only the
//! name that is changed gets the copy.

use crate::file_contents::{Origin, fill};
use crate::kernel::{CWD, Kernel, OpenFile};
use crate::{io, layout, lock};
use core::ffi::CStr;
use linux_raw_sys::general::{
    AT_SYMLINK_NOFOLLOW, O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, stat, timespec,
};
use view::Errno;
use view::errno::Result;

/// The inodes that a container shares with its image.
pub trait Image {
    /// Whether an inode is one of them.
    fn has(&self, inode: u64) -> bool;
    /// An inode is about to lose a name: processes that have it open must look for the copy from
    /// then on. The caller has the lock.
    fn will_replace(&mut self, inode: u64);
}

/// Replaces the regular file at `path`, which is absolute, by a copy of its own. It is as good if
/// another process does so meanwhile.
///
/// `directory` is where copies are made. This may take as long as the file is large.
pub fn copy_up<K: Kernel>(
    kernel: &K,
    directory: &[u8],
    path: &CStr,
    image: &mut impl Image,
) -> Result<()> {
    let flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
    let source = OpenFile::open(kernel, path, flags, 0)?;
    let status = source.status()?;
    // Another process's copy is not copied again: that process may be writing to it already.
    if !image.has(status.st_ino) {
        return Ok(());
    }
    io::with_temporary(kernel, directory, layout::Temporary::Copy, |name, copy| {
        let replaced = io::allow_owner(kernel, &copy)
            .and_then(|()| fill(kernel, (&source, &status), &copy, Origin::Attribute))
            .and_then(|()| {
                let replace = || replace(kernel, &status, name, path, image);
                lock::while_alone(kernel, directory, replace)
            });
        // After the rename the name is free: it may be another thread's copy already.
        if replaced != Ok(true) {
            let _ = kernel.unlinkat(CWD, name, 0);
        }
        replaced.map(drop)
    })
}

/// Renames a copy over the file that it was made of; false where that is no longer there.
fn replace<K: Kernel>(
    kernel: &K,
    source: &stat,
    copy: &CStr,
    path: &CStr,
    image: &mut impl Image,
) -> Result<bool> {
    let bytes = path.to_bytes();
    let slash = bytes.iter().rposition(|byte| *byte == b'/').ok_or(Errno::ENOENT)?;
    let parent = bytes.get(..slash.max(1)).unwrap_or_default();
    kernel.with_path(&[parent], |parent| {
        let before = kernel.fstatat(CWD, parent, 0)?;
        match kernel.fstatat(CWD, path, AT_SYMLINK_NOFOLLOW) {
            Ok(there) if (there.st_dev, there.st_ino) == (source.st_dev, source.st_ino) => {}
            Ok(_) | Err(Errno::ENOENT) => return Ok(false),
            Err(errno) => return Err(errno),
        }
        image.will_replace(source.st_ino);
        // Not an exchange: a process that has the shared file open is to see that its name is
        // gone, and not where copies are made.
        match kernel.renameat2((CWD, copy), (CWD, path), 0) {
            Err(Errno::ENOENT) => return Ok(false),
            result => result?,
        }
        // The directory's times are the guest's: for the guest, nothing happened here.
        let _ = kernel.utimensat(CWD, Some(parent), Some(&times_of(&before)), 0);
        Ok(true)
    })
}

/// When a file was read and written.
pub(crate) fn times_of(status: &stat) -> [timespec; 2] {
    let time = |seconds, nanoseconds| timespec { tv_sec: seconds as _, tv_nsec: nanoseconds as _ };
    [time(status.st_atime, status.st_atime_nsec), time(status.st_mtime, status.st_mtime_nsec)]
}
