//! The system calls that this crate makes, as a trait with one method for each.
//!
//! An implementation makes exactly one system call in each method, passes the arguments on as they
//! are, and returns the kernel's error. Repeating a call that a signal interrupted is done by the
//! callers ([`crate::io`], [`crate::lock`]). Methods take `&self`: an implementation that owns its
//! descriptors uses interior mutability.

use core::ffi::CStr;
use linux_raw_sys::general::{AT_EMPTY_PATH, AT_FDCWD, stat, statfs64, statx, timespec};
use view::errno::Result;
use view::{Errno, HostFd};

/// `AT_FDCWD`, in the place of a directory's descriptor.
pub const CWD: HostFd = HostFd(AT_FDCWD);

/// Which file a call without a directory argument is for.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// The file that a path leads to; a symbolic link at its end is followed.
    Path(&'a CStr),
    /// The file that a path names; a symbolic link at its end is meant itself.
    Link(&'a CStr),
    /// An open file.
    File(HostFd),
}

impl<'a> Target<'a> {
    /// A path whose last symbolic link is followed, or not.
    #[inline]
    pub const fn path(path: &'a CStr, nofollow: bool) -> Self {
        if nofollow { Self::Link(path) } else { Self::Path(path) }
    }
}

/// A system call that older kernels do not have, and that sandboxes may refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// `openat2`, since Linux 5.6.
    Openat2,
    /// `statx`, since Linux 4.11.
    Statx,
    /// `faccessat2`, since Linux 5.8.
    Faccessat2,
    /// `getxattrat` and `listxattrat`, since Linux 6.13.
    Xattrat,
    /// `memfd_create`, since Linux 3.17.
    MemoryFile,
}

/// The kernel, as a process sees it. Each method is the system call of its name; see its man page.
///
/// Where a method takes `dir`, it is a descriptor or [`CWD`]. Descriptors that are returned have
/// `FD_CLOEXEC` and belong to the caller, who closes them.
pub trait Kernel {
    /// The process's umask applies to files that this makes. Where it is known to be 0, the calls
    /// that make up for it are left out.
    const APPLIES_UMASK: bool;

    /// `openat`; `O_CLOEXEC` is added.
    fn openat(&self, dir: HostFd, path: &CStr, flags: u32, mode: u32) -> Result<HostFd>;
    /// `openat2`; `O_CLOEXEC` is added.
    fn openat2(
        &self,
        dir: HostFd,
        path: &CStr,
        flags: u32,
        mode: u32,
        resolve: u64,
    ) -> Result<HostFd>;
    /// `memfd_create` with `MFD_CLOEXEC`.
    fn memfd_create(&self, name: &CStr) -> Result<HostFd>;
    /// `close`.
    fn close(&self, file: HostFd);

    /// `statx` with `STATX_BASIC_STATS | STATX_BTIME`.
    fn statx(&self, dir: HostFd, path: &CStr, flags: u32, into: &mut statx) -> Result<()>;
    /// `newfstatat`.
    fn fstatat(&self, dir: HostFd, path: &CStr, flags: u32) -> Result<stat>;
    /// `readlinkat`: the length of what was written.
    fn readlinkat(&self, dir: HostFd, path: &CStr, into: &mut [u8]) -> Result<usize>;
    /// `faccessat2`.
    fn faccessat2(&self, dir: HostFd, path: &CStr, mode: u32, flags: u32) -> Result<()>;
    /// `faccessat`, which has no flags: it follows, and asks for the real ids.
    fn faccessat(&self, dir: HostFd, path: &CStr, mode: u32) -> Result<()>;
    /// `statfs` or `fstatfs`.
    fn statfs(&self, target: Target<'_>, into: &mut statfs64) -> Result<()>;

    /// `mkdirat`.
    fn mkdirat(&self, dir: HostFd, path: &CStr, mode: u32) -> Result<()>;
    /// `mknodat` with device 0.
    fn mknodat(&self, dir: HostFd, path: &CStr, mode: u32) -> Result<()>;
    /// `symlinkat`.
    fn symlinkat(&self, target: &CStr, dir: HostFd, path: &CStr) -> Result<()>;
    /// `linkat`.
    fn linkat(&self, from: (HostFd, &CStr), to: (HostFd, &CStr), flags: u32) -> Result<()>;
    /// `renameat2`; `renameat` without flags, because older kernels and some file systems have no
    /// flags.
    fn renameat2(&self, from: (HostFd, &CStr), to: (HostFd, &CStr), flags: u32) -> Result<()>;
    /// `unlinkat`.
    fn unlinkat(&self, dir: HostFd, path: &CStr, flags: u32) -> Result<()>;

    /// `fchmodat`, which follows.
    fn fchmodat(&self, dir: HostFd, path: &CStr, mode: u32) -> Result<()>;
    /// `fchmod`.
    fn fchmod(&self, file: HostFd, mode: u32) -> Result<()>;
    /// `fchownat`; `u32::MAX` leaves an id as it is.
    fn fchownat(&self, dir: HostFd, path: &CStr, uid: u32, gid: u32, flags: u32) -> Result<()>;
    /// `utimensat`. Without a path it is for the file `dir` itself; without times it is now.
    fn utimensat(
        &self,
        dir: HostFd,
        path: Option<&CStr>,
        times: Option<&[timespec; 2]>,
        flags: u32,
    ) -> Result<()>;
    /// `truncate` or `ftruncate`.
    fn truncate(&self, target: Target<'_>, length: u64) -> Result<()>;

    /// `getxattr`, `lgetxattr` or `fgetxattr`. An empty `into` asks for the size.
    fn getxattr(&self, target: Target<'_>, name: &CStr, into: &mut [u8]) -> Result<usize>;
    /// `setxattr`, `lsetxattr` or `fsetxattr`.
    fn setxattr(&self, target: Target<'_>, name: &CStr, value: &[u8], flags: u32) -> Result<()>;
    /// `listxattr`, `llistxattr` or `flistxattr`. An empty `into` asks for the size.
    fn listxattr(&self, target: Target<'_>, into: &mut [u8]) -> Result<usize>;
    /// `removexattr` or `lremovexattr`.
    fn removexattr(&self, target: Target<'_>, name: &CStr) -> Result<()>;
    /// `getxattrat`; called only where the implementation has [`Feature::Xattrat`].
    fn getxattrat(
        &self,
        dir: HostFd,
        path: &CStr,
        flags: u32,
        name: &CStr,
        into: &mut [u8],
    ) -> Result<usize> {
        let _ = (dir, path, flags, name, into);
        Err(Errno::ENOSYS)
    }
    /// `listxattrat`, likewise.
    fn listxattrat(&self, dir: HostFd, path: &CStr, flags: u32, into: &mut [u8]) -> Result<usize> {
        let _ = (dir, path, flags, into);
        Err(Errno::ENOSYS)
    }

    /// `pread64`.
    fn pread(&self, file: HostFd, into: &mut [u8], offset: u64) -> Result<usize>;
    /// `pwrite64`.
    fn pwrite(&self, file: HostFd, from: &[u8], offset: u64) -> Result<usize>;
    /// `write`.
    fn write(&self, file: HostFd, from: &[u8]) -> Result<usize>;
    /// `lseek`.
    fn lseek(&self, file: HostFd, offset: u64, whence: u32) -> Result<u64>;
    /// `copy_file_range` between two files at the same offset.
    fn copy_file_range(
        &self,
        source: HostFd,
        target: HostFd,
        offset: u64,
        length: u64,
    ) -> Result<u64>;
    /// `ioctl(target, FICLONE, source)`.
    fn clone_contents(&self, source: HostFd, target: HostFd) -> Result<()>;
    /// `getdents64`: the length of what was written.
    fn getdents(&self, directory: HostFd, into: &mut [u8]) -> Result<usize>;
    /// `flock`.
    fn flock(&self, file: HostFd, operation: u32) -> Result<()>;

    /// Id of the calling thread: tells apart the makers of temporary files.
    fn thread_id(&self) -> u32;
    /// Whether a call is known not to be there.
    fn lacks(&self, feature: Feature) -> bool;
    /// Remembers that a call is not there.
    fn set_lacking(&self, feature: Feature);
    /// Puts parts of a path together, adds the NUL, and lends the result. Longer than a path can
    /// be is `ENAMETOOLONG`.
    fn with_path<T>(&self, parts: &[&[u8]], call: impl FnOnce(&CStr) -> Result<T>) -> Result<T>;
    /// Lends memory of [`BUFFER`] bytes, whose contents mean nothing.
    fn with_buffer<T>(&self, call: impl FnOnce(&mut [u8; BUFFER]) -> Result<T>) -> Result<T>;
}

/// Bytes that [`Kernel::with_buffer`] lends: a list of attributes and a value as long as Linux
/// allows, and some more for contents.
pub const BUFFER: usize = 192 * 1024;

/// A descriptor that is closed when it goes out of scope.
pub struct OpenFile<'k, K: Kernel> {
    kernel: &'k K,
    file: HostFd,
}

impl<K: Kernel> core::fmt::Debug for OpenFile<'_, K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.file.fmt(f)
    }
}

impl<'k, K: Kernel> OpenFile<'k, K> {
    /// `openat` of a path from the working directory.
    pub fn open(kernel: &'k K, path: &CStr, flags: u32, mode: u32) -> Result<Self> {
        kernel.openat(CWD, path, flags, mode).map(|file| Self { kernel, file })
    }

    /// Takes over a descriptor.
    pub const fn new(kernel: &'k K, file: HostFd) -> Self {
        Self { kernel, file }
    }

    /// The descriptor.
    pub const fn fd(&self) -> HostFd {
        self.file
    }

    /// The descriptor, which stays open.
    pub fn keep(self) -> HostFd {
        let file = self.file;
        core::mem::forget(self);
        file
    }

    /// `fstat`.
    pub fn status(&self) -> Result<stat> {
        self.kernel.fstatat(self.file, c"", AT_EMPTY_PATH)
    }
}

impl<K: Kernel> Drop for OpenFile<'_, K> {
    fn drop(&mut self) {
        self.kernel.close(self.file);
    }
}
