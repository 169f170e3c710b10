//! [`hostfs::Kernel`] by raw system calls.
//!
//! The guest's descriptors and its working directory are this process's own, so each call on a
//! file is one system call ([`Process::descriptor`]).

use super::calls;
use super::path_buffer::LongPath;
use crate::system;
use crate::{shared, tree};
use abi::shared::Switches;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};
use hostfs::at::{MagicLink, Missing, Process};
use hostfs::kernel::BUFFER;
use hostfs::overlay::Layers;
use hostfs::{CWD, Feature, Kernel, Target};
use linux_raw_sys::general as raw;
use linux_raw_sys::general::{F_GETFL, O_CLOEXEC, stat, statfs64, statx, timespec};
use view::errno::Result;
use view::{Dir, Errno, HostFd, Text};

/// The kernel, called by this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Linux;

pub(crate) const LINUX: Linux = Linux;

/// Kernels before 3.17 have no `/proc/thread-self`.
static NO_THREAD_SELF: AtomicBool = AtomicBool::new(false);
/// There is no `faccessat2`.
static NO_FACCESSAT2: AtomicBool = AtomicBool::new(false);
/// There are no `getxattrat` and `listxattrat`.
static NO_XATTRAT: AtomicBool = AtomicBool::new(false);

#[inline]
pub(super) fn fd(HostFd(descriptor): HostFd) -> u64 {
    i64::from(descriptor) as u64
}

#[inline]
pub(super) fn text(path: &CStr) -> u64 {
    path.as_ptr() as u64
}

/// A call that only reads what its arguments point to.
macro_rules! reads {
    ($number:ident $(, $argument:expr)*) => {{
        let given = [$($argument),*];
        let mut all = [0_u64; 6];
        all[..given.len()].copy_from_slice(&given);
        // SAFETY: the kernel reads strings and structures that live until it returns, and writes
        // nothing.
        unsafe { crate::system::checked(linux_raw_sys::general::$number, all) }
    }};
}

/// A call that writes what its arguments point to.
macro_rules! writes {
    ($number:ident $(, $argument:expr)*) => {{
        let given = [$($argument),*];
        let mut all = [0_u64; 6];
        all[..given.len()].copy_from_slice(&given);
        // SAFETY: the buffers are lent to be written, with their lengths; strings live until the
        // kernel returns.
        unsafe { crate::system::checked(linux_raw_sys::general::$number, all) }
    }};
}

pub(super) use {reads, writes};

/// Makes a call that returns a descriptor; tries again with more descriptors allowed where there
/// were too many.
#[inline]
fn with_room(call: impl Fn() -> Result<u64>) -> Result<HostFd> {
    let result = match call() {
        Err(Errno::EMFILE) => raised(&call),
        result => result,
    };
    result.map(|number| HostFd(number as i32))
}

/// Makes a call with a raised limit of descriptors: the soft limit is the guest's, and the
/// stage's descriptors are not to count. It is raised for one thread at a time, since each puts
/// back what it found. Where the guest has raised it as far as it goes, nothing helps.
#[cold]
fn raised(call: &impl Fn() -> Result<u64>) -> Result<u64> {
    const MORE: u64 = 64;
    const LIMIT: u64 = raw::RLIMIT_NOFILE as u64;
    static BUSY: AtomicBool = AtomicBool::new(false);
    system::take_turn(&BUSY, || {});
    let mut old = raw::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let read = writes!(__NR_prlimit64, 0, LIMIT, 0, &raw mut old as u64);
    let result = if read.is_ok() && old.rlim_cur < old.rlim_max {
        let cur = old.rlim_cur.saturating_add(MORE).min(old.rlim_max);
        let new = raw::rlimit64 { rlim_cur: cur, ..old };
        let result = reads!(__NR_prlimit64, 0, LIMIT, &raw const new as u64).and_then(|_| call());
        let _ = reads!(__NR_prlimit64, 0, LIMIT, &raw const old as u64);
        result
    } else {
        Err(Errno::EMFILE)
    };
    BUSY.store(false, Ordering::Release);
    result
}

/// Where the kernel writes bytes: address and length.
fn room(into: &mut [u8]) -> (u64, u64) {
    (into.as_mut_ptr() as u64, into.len() as u64)
}

fn length(result: Result<u64>) -> Result<usize> {
    result.map(|length| length as usize)
}

impl Kernel for Linux {
    const APPLIES_UMASK: bool = true;

    #[inline]
    fn openat(&self, dir: HostFd, path: &CStr, flags: u32, mode: u32) -> Result<HostFd> {
        let flags = u64::from(flags | O_CLOEXEC);
        with_room(|| reads!(__NR_openat, fd(dir), text(path), flags, mode.into()))
    }

    #[inline]
    fn openat2(
        &self,
        dir: HostFd,
        path: &CStr,
        flags: u32,
        mode: u32,
        resolve: u64,
    ) -> Result<HostFd> {
        let flags = u64::from(flags | O_CLOEXEC);
        let how = raw::open_how { flags, mode: mode.into(), resolve };
        let size = size_of::<raw::open_how>() as u64;
        with_room(|| reads!(__NR_openat2, fd(dir), text(path), &raw const how as u64, size))
    }

    fn memfd_create(&self, name: &CStr) -> Result<HostFd> {
        with_room(|| reads!(__NR_memfd_create, text(name), raw::MFD_CLOEXEC.into()))
    }

    #[inline]
    fn close(&self, file: HostFd) {
        system::close(fd(file));
    }

    #[inline]
    fn statx(&self, dir: HostFd, path: &CStr, flags: u32, into: &mut statx) -> Result<()> {
        let mask = u64::from(raw::STATX_BASIC_STATS | raw::STATX_BTIME);
        let into = &raw mut *into as u64;
        writes!(__NR_statx, fd(dir), text(path), flags.into(), mask, into).map(drop)
    }

    fn fstatat(&self, dir: HostFd, path: &CStr, flags: u32) -> Result<stat> {
        let mut status = MaybeUninit::<stat>::zeroed();
        let into = status.as_mut_ptr() as u64;
        writes!(__NR_newfstatat, fd(dir), text(path), into, flags.into())?;
        // SAFETY: numbers, which are valid as zeros and as whatever the kernel wrote.
        Ok(unsafe { status.assume_init() })
    }

    #[inline]
    fn readlinkat(&self, dir: HostFd, path: &CStr, into: &mut [u8]) -> Result<usize> {
        let (at, room) = room(into);
        length(writes!(__NR_readlinkat, fd(dir), text(path), at, room))
    }

    fn faccessat2(&self, dir: HostFd, path: &CStr, mode: u32, flags: u32) -> Result<()> {
        reads!(__NR_faccessat2, fd(dir), text(path), mode.into(), flags.into()).map(drop)
    }

    fn faccessat(&self, dir: HostFd, path: &CStr, mode: u32) -> Result<()> {
        reads!(__NR_faccessat, fd(dir), text(path), mode.into()).map(drop)
    }

    fn statfs(&self, target: Target<'_>, into: &mut statfs64) -> Result<()> {
        let into = &raw mut *into as u64;
        match target {
            Target::File(file) => writes!(__NR_fstatfs, fd(file), into),
            Target::Path(path) | Target::Link(path) => writes!(__NR_statfs, text(path), into),
        }
        .map(drop)
    }

    fn mkdirat(&self, dir: HostFd, path: &CStr, mode: u32) -> Result<()> {
        reads!(__NR_mkdirat, fd(dir), text(path), mode.into()).map(drop)
    }

    fn mknodat(&self, dir: HostFd, path: &CStr, mode: u32) -> Result<()> {
        reads!(__NR_mknodat, fd(dir), text(path), mode.into(), 0).map(drop)
    }

    fn symlinkat(&self, target: &CStr, dir: HostFd, path: &CStr) -> Result<()> {
        reads!(__NR_symlinkat, text(target), fd(dir), text(path)).map(drop)
    }

    fn linkat(&self, from: (HostFd, &CStr), to: (HostFd, &CStr), flags: u32) -> Result<()> {
        let (old, new) = ((fd(from.0), text(from.1)), (fd(to.0), text(to.1)));
        reads!(__NR_linkat, old.0, old.1, new.0, new.1, flags.into()).map(drop)
    }

    fn renameat2(&self, from: (HostFd, &CStr), to: (HostFd, &CStr), flags: u32) -> Result<()> {
        let (old, new) = ((fd(from.0), text(from.1)), (fd(to.0), text(to.1)));
        match flags {
            0 => reads!(__NR_renameat, old.0, old.1, new.0, new.1),
            flags => reads!(__NR_renameat2, old.0, old.1, new.0, new.1, flags.into()),
        }
        .map(drop)
    }

    fn unlinkat(&self, dir: HostFd, path: &CStr, flags: u32) -> Result<()> {
        reads!(__NR_unlinkat, fd(dir), text(path), flags.into()).map(drop)
    }

    fn fchmodat(&self, dir: HostFd, path: &CStr, mode: u32) -> Result<()> {
        reads!(__NR_fchmodat, fd(dir), text(path), mode.into()).map(drop)
    }

    fn fchmod(&self, file: HostFd, mode: u32) -> Result<()> {
        reads!(__NR_fchmod, fd(file), mode.into()).map(drop)
    }

    fn fchownat(&self, dir: HostFd, path: &CStr, uid: u32, gid: u32, flags: u32) -> Result<()> {
        reads!(__NR_fchownat, fd(dir), text(path), uid.into(), gid.into(), flags.into()).map(drop)
    }

    fn utimensat(
        &self,
        dir: HostFd,
        path: Option<&CStr>,
        times: Option<&[timespec; 2]>,
        flags: u32,
    ) -> Result<()> {
        let times = times.map_or(0, |times| times.as_ptr() as u64);
        reads!(__NR_utimensat, fd(dir), path.map_or(0, text), times, flags.into()).map(drop)
    }

    fn truncate(&self, target: Target<'_>, length: u64) -> Result<()> {
        match target {
            Target::File(file) => reads!(__NR_ftruncate, fd(file), length),
            Target::Path(path) | Target::Link(path) => reads!(__NR_truncate, text(path), length),
        }
        .map(drop)
    }

    #[inline]
    fn getxattr(&self, target: Target<'_>, name: &CStr, into: &mut [u8]) -> Result<usize> {
        let ((at, room), name) = (room(into), text(name));
        length(match target {
            Target::Path(path) => writes!(__NR_getxattr, text(path), name, at, room),
            Target::Link(path) => writes!(__NR_lgetxattr, text(path), name, at, room),
            Target::File(file) => writes!(__NR_fgetxattr, fd(file), name, at, room),
        })
    }

    fn setxattr(&self, target: Target<'_>, name: &CStr, value: &[u8], flags: u32) -> Result<()> {
        let (at, length, name) = (value.as_ptr() as u64, value.len() as u64, text(name));
        let flags = u64::from(flags);
        match target {
            Target::Path(path) => reads!(__NR_setxattr, text(path), name, at, length, flags),
            Target::Link(path) => reads!(__NR_lsetxattr, text(path), name, at, length, flags),
            Target::File(file) => reads!(__NR_fsetxattr, fd(file), name, at, length, flags),
        }
        .map(drop)
    }

    #[inline]
    fn listxattr(&self, target: Target<'_>, into: &mut [u8]) -> Result<usize> {
        let (at, room) = room(into);
        length(match target {
            Target::Path(path) => writes!(__NR_listxattr, text(path), at, room),
            Target::Link(path) => writes!(__NR_llistxattr, text(path), at, room),
            Target::File(file) => writes!(__NR_flistxattr, fd(file), at, room),
        })
    }

    fn removexattr(&self, target: Target<'_>, name: &CStr) -> Result<()> {
        match target {
            Target::Path(path) => reads!(__NR_removexattr, text(path), text(name)),
            Target::Link(path) => reads!(__NR_lremovexattr, text(path), text(name)),
            Target::File(file) => reads!(__NR_fremovexattr, fd(file), text(name)),
        }
        .map(drop)
    }

    #[inline]
    fn getxattrat(
        &self,
        dir: HostFd,
        path: &CStr,
        flags: u32,
        name: &CStr,
        into: &mut [u8],
    ) -> Result<usize> {
        /// `struct xattr_args`.
        #[repr(C)]
        struct Value {
            at: u64,
            size: u32,
            flags: u32,
        }
        let mut value = Value { at: into.as_mut_ptr() as u64, size: into.len() as u32, flags: 0 };
        let (args, size) = (&raw mut value as u64, size_of::<Value>() as u64);
        let (path, flags) = (text(path), u64::from(flags));
        length(writes!(__NR_getxattrat, fd(dir), path, flags, text(name), args, size))
    }

    fn listxattrat(&self, dir: HostFd, path: &CStr, flags: u32, into: &mut [u8]) -> Result<usize> {
        let (at, room) = room(into);
        length(writes!(__NR_listxattrat, fd(dir), text(path), flags.into(), at, room))
    }

    fn pread(&self, file: HostFd, into: &mut [u8], offset: u64) -> Result<usize> {
        let (at, room) = room(into);
        length(writes!(__NR_pread64, fd(file), at, room, offset))
    }

    fn pwrite(&self, file: HostFd, from: &[u8], offset: u64) -> Result<usize> {
        let (at, size) = (from.as_ptr() as u64, from.len() as u64);
        length(reads!(__NR_pwrite64, fd(file), at, size, offset))
    }

    fn write(&self, file: HostFd, from: &[u8]) -> Result<usize> {
        length(reads!(__NR_write, fd(file), from.as_ptr() as u64, from.len() as u64))
    }

    fn lseek(&self, file: HostFd, offset: u64, whence: u32) -> Result<u64> {
        reads!(__NR_lseek, fd(file), offset, whence.into())
    }

    fn copy_file_range(
        &self,
        source: HostFd,
        target: HostFd,
        offset: u64,
        length: u64,
    ) -> Result<u64> {
        let (mut from, mut to) = (offset, offset);
        let (from, to) = (&raw mut from as u64, &raw mut to as u64);
        writes!(__NR_copy_file_range, fd(source), from, fd(target), to, length, 0)
    }

    fn clone_contents(&self, source: HostFd, target: HostFd) -> Result<()> {
        const FICLONE: u64 = 0x4004_9409;
        reads!(__NR_ioctl, fd(target), FICLONE, fd(source)).map(drop)
    }

    fn getdents(&self, directory: HostFd, into: &mut [u8]) -> Result<usize> {
        calls::getdents(directory.0, into)
    }

    fn flock(&self, file: HostFd, operation: u32) -> Result<()> {
        reads!(__NR_flock, fd(file), operation.into()).map(drop)
    }

    fn thread_id(&self) -> u32 {
        calls::gettid()
    }

    #[inline]
    fn lacks(&self, feature: Feature) -> bool {
        match feature {
            Feature::Openat2 => shared::switches().has(Switches::NO_OPENAT2),
            Feature::Statx => shared::switches().has(Switches::NO_STATX),
            Feature::MemoryFile => shared::switches().has(Switches::NO_MEMORY_FILES),
            Feature::Faccessat2 => NO_FACCESSAT2.load(Ordering::Relaxed),
            Feature::Xattrat => NO_XATTRAT.load(Ordering::Relaxed),
        }
    }

    #[cold]
    fn set_lacking(&self, feature: Feature) {
        match feature {
            Feature::Openat2 => shared::switch_on(Switches::NO_OPENAT2),
            Feature::Statx => shared::switch_on(Switches::NO_STATX),
            // A filter of the guest's may refuse it at one time.
            Feature::MemoryFile => {}
            Feature::Faccessat2 => NO_FACCESSAT2.store(true, Ordering::Relaxed),
            Feature::Xattrat => NO_XATTRAT.store(true, Ordering::Relaxed),
        }
    }

    #[inline(never)]
    fn with_path<T>(&self, parts: &[&[u8]], call: impl FnOnce(&CStr) -> Result<T>) -> Result<T> {
        call(LongPath::new().join(parts)?)
    }

    fn with_buffer<T>(&self, call: impl FnOnce(&mut [u8; BUFFER]) -> Result<T>) -> Result<T> {
        let mapped = system::map(system::Place::Near(0), BUFFER as u64, 3, None);
        let start = mapped.map_err(|_| Errno::ENOMEM)?;
        // SAFETY: a mapping of this length, to which there is no other reference; it is unmapped
        // when this one has ended.
        let result = call(unsafe { &mut *(start as *mut [u8; BUFFER]) });
        system::unmap(start, BUFFER as u64);
        result
    }
}

impl Process for Linux {
    #[inline]
    fn descriptor(&self, dir: Dir) -> Result<Option<HostFd>> {
        Ok(Some(match dir {
            Dir::Held(HostFd(fd)) | Dir::Guest(fd) => HostFd(fd),
            Dir::Root | Dir::Cwd => CWD,
        }))
    }

    fn proc_directory(&self, _dir: Dir, into: &mut MagicLink) {
        let is_old = NO_THREAD_SELF.load(Ordering::Relaxed);
        into.push(if is_old { b"/proc/self/" } else { b"/proc/thread-self/" });
    }

    #[cold]
    fn missing(&self, dir: Dir) -> Missing {
        match dir {
            Dir::Guest(fd) | Dir::Held(HostFd(fd)) if calls::fcntl(fd, F_GETFL, 0).is_err() => {
                Missing::Closed
            }
            _ if is_without_thread_self() => Missing::TryAgain,
            _ => Missing::Behind,
        }
    }

    #[inline]
    fn layers(&self) -> Option<Layers<'_>> {
        let places = shared::places();
        let image = shared::world().image?;
        Some(Layers { image, work: places.copy_dir, moved: places.moved })
    }

    fn in_tree<'p>(&self, path: &'p CStr) -> Option<(HostFd, &'p CStr)> {
        tree::split(path).map(|(tree, rest)| (HostFd(tree), rest))
    }

    fn is_tree_lost(&self, errno: Errno) -> bool {
        tree::is_lost(errno)
    }

    fn is_upper(&self, dir: Dir) -> bool {
        tree::is_upper(dir)
    }

    fn cwd_name(&self, into: &mut Text) -> bool {
        // Quicker than the link, but it does not name what has no name or lies elsewhere.
        let name = into.fill(|bytes| calls::getcwd(bytes).map(|length| length - 1));
        name.is_ok() && into.as_bytes().first() == Some(&b'/')
    }
}

/// Notes that the kernel has no `/proc/thread-self`, if that is so; whether it is news.
#[cold]
pub(super) fn is_without_thread_self() -> bool {
    let known = NO_THREAD_SELF.load(Ordering::Relaxed);
    let look = || LINUX.fstatat(CWD, c"/proc/thread-self", 0);
    let is = !known && matches!(look(), Err(Errno::ENOENT));
    if is {
        NO_THREAD_SELF.store(true, Ordering::Relaxed);
    }
    is
}
