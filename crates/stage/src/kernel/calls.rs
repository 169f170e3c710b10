//! The kernel's calls on files, one function each; see the manual's page of that name.
//!
//! Paths are strings that end with a NUL, buffers are references: nothing here can be called wrongly.

use crate::system::{self, checked};
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};
use linux_raw_sys::general as raw;
use view::Errno;
use view::errno::Result;

/// `AT_FDCWD`, as a descriptor.
pub(crate) const CWD: i32 = raw::AT_FDCWD;

fn fd(descriptor: i32) -> u64 {
    i64::from(descriptor) as u64
}

fn text(path: &CStr) -> u64 {
    path.as_ptr() as u64
}

/// A call that only reads what its arguments point to.
macro_rules! reads {
    ($number:ident $(, $argument:expr)*) => {{
        let given = [$($argument),*];
        let mut all = [0_u64; 6];
        all[..given.len()].copy_from_slice(&given);
        // SAFETY: the kernel reads strings and structures that live until it returns, and writes nothing.
        unsafe { checked(raw::$number, all) }
    }};
}

/// A call that writes what its arguments point to.
macro_rules! writes {
    ($number:ident $(, $argument:expr)*) => {{
        let given = [$($argument),*];
        let mut all = [0_u64; 6];
        all[..given.len()].copy_from_slice(&given);
        // SAFETY: the buffers are lent to be written, with their lengths; strings live until the kernel returns.
        unsafe { checked(raw::$number, all) }
    }};
}

/// Tries again with more descriptors allowed where there were too many.
fn with_room(call: impl Fn() -> Result<u64>) -> Result<i32> {
    let result = match call() {
        Err(Errno::EMFILE) => raised(&call),
        result => result,
    };
    result.map(|number| number as i32)
}

/// The process's soft limit of descriptors is the guest's; ours are not to count. It is raised for one thread at a time, since each puts back
/// what it found. Where the guest has raised it as far as it goes, nothing helps.
#[cold]
fn raised(call: &impl Fn() -> Result<u64>) -> Result<u64> {
    const MORE: u64 = 64;
    const LIMIT: u64 = raw::RLIMIT_NOFILE as u64;
    /// A child of `fork` may have come in the middle of another thread's turn, which never ends there.
    const PATIENCE: u32 = 10_000;
    static BUSY: AtomicBool = AtomicBool::new(false);
    let mut tries = 0;
    while BUSY.swap(true, Ordering::Acquire) && tries < PATIENCE {
        system::pause();
        tries += 1;
    }
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

pub(crate) fn openat(dir: i32, path: &CStr, flags: u32, mode: u32) -> Result<i32> {
    with_room(|| reads!(__NR_openat, fd(dir), text(path), flags.into(), mode.into()))
}

/// `EAGAIN`, where something was renamed meanwhile, is asked again some times.
pub(crate) fn openat2(dir: i32, path: &CStr, flags: u32, mode: u32, resolve: u64) -> Result<i32> {
    let how = raw::open_how { flags: flags.into(), mode: mode.into(), resolve };
    let size = size_of::<raw::open_how>() as u64;
    let call = || reads!(__NR_openat2, fd(dir), text(path), &raw const how as u64, size);
    for _ in 0..64 {
        match with_room(call) {
            Err(Errno::EAGAIN) => {}
            result => return result,
        }
    }
    with_room(call)
}

pub(crate) fn close(descriptor: i32) {
    system::close(fd(descriptor));
}

pub(crate) fn statx(dir: i32, path: &CStr, flags: u32, into: &mut raw::statx) -> Result<()> {
    let mask = u64::from(raw::STATX_BASIC_STATS | raw::STATX_BTIME);
    let into = &raw mut *into as u64;
    writes!(__NR_statx, fd(dir), text(path), flags.into(), mask, into).map(drop)
}

pub(crate) fn newfstatat(dir: i32, path: &CStr, flags: u32) -> Result<raw::stat> {
    let mut facts = core::mem::MaybeUninit::<raw::stat>::zeroed();
    let into = facts.as_mut_ptr() as u64;
    writes!(__NR_newfstatat, fd(dir), text(path), into, flags.into())?;
    // SAFETY: numbers, which are valid as zeros and as whatever the kernel wrote.
    Ok(unsafe { facts.assume_init() })
}

/// Into the guest's memory.
pub(crate) fn newfstatat_into(dir: i32, path: &CStr, flags: u32, into: u64) -> Result<()> {
    reads!(__NR_newfstatat, fd(dir), text(path), into, flags.into()).map(drop)
}

/// Into the guest's memory.
pub(crate) fn statx_into(dir: i32, path: &CStr, flags: u32, mask: u32, into: u64) -> Result<()> {
    reads!(__NR_statx, fd(dir), text(path), flags.into(), mask.into(), into).map(drop)
}

/// Into the guest's memory.
pub(crate) fn fstat_into(descriptor: i32, into: u64) -> Result<()> {
    reads!(__NR_fstat, fd(descriptor), into).map(drop)
}

pub(crate) fn readlinkat(dir: i32, path: &CStr, into: &mut [u8]) -> Result<usize> {
    let (at, room) = (into.as_mut_ptr() as u64, into.len() as u64);
    writes!(__NR_readlinkat, fd(dir), text(path), at, room).map(|length| length as usize)
}

/// With its NUL.
pub(crate) fn getcwd(into: &mut [u8]) -> Result<usize> {
    writes!(__NR_getcwd, into.as_mut_ptr() as u64, into.len() as u64).map(|length| length as usize)
}

pub(crate) fn faccessat2(dir: i32, path: &CStr, mode: u32, flags: u32) -> Result<()> {
    reads!(__NR_faccessat2, fd(dir), text(path), mode.into(), flags.into()).map(drop)
}

/// By the real ids, and following.
pub(crate) fn faccessat(dir: i32, path: &CStr, mode: u32) -> Result<()> {
    reads!(__NR_faccessat, fd(dir), text(path), mode.into()).map(drop)
}

pub(crate) fn mkdirat(dir: i32, path: &CStr, mode: u32) -> Result<()> {
    reads!(__NR_mkdirat, fd(dir), text(path), mode.into()).map(drop)
}

pub(crate) fn mknodat(dir: i32, path: &CStr, mode: u32) -> Result<()> {
    reads!(__NR_mknodat, fd(dir), text(path), mode.into(), 0).map(drop)
}

pub(crate) fn unlinkat(dir: i32, path: &CStr, flags: u32) -> Result<()> {
    reads!(__NR_unlinkat, fd(dir), text(path), flags.into()).map(drop)
}

/// Without flags the older call: kernels before 3.15 have no other, and some file systems take no flags.
pub(crate) fn renameat2(from: (i32, &CStr), to: (i32, &CStr), flags: u32) -> Result<()> {
    let (old, new) = ((fd(from.0), text(from.1)), (fd(to.0), text(to.1)));
    if flags == 0 {
        return reads!(__NR_renameat, old.0, old.1, new.0, new.1).map(drop);
    }
    reads!(__NR_renameat2, old.0, old.1, new.0, new.1, flags.into()).map(drop)
}

pub(crate) fn linkat(from: (i32, &CStr), to: (i32, &CStr), flags: u32) -> Result<()> {
    let (old, new) = ((fd(from.0), text(from.1)), (fd(to.0), text(to.1)));
    reads!(__NR_linkat, old.0, old.1, new.0, new.1, flags.into()).map(drop)
}

pub(crate) fn symlinkat(target: &CStr, dir: i32, path: &CStr) -> Result<()> {
    reads!(__NR_symlinkat, text(target), fd(dir), text(path)).map(drop)
}

/// Following.
pub(crate) fn fchmodat(dir: i32, path: &CStr, mode: u32) -> Result<()> {
    reads!(__NR_fchmodat, fd(dir), text(path), mode.into()).map(drop)
}

/// Opens a file of our own, which may be new: its owner may read and write it, whatever the guest's umask takes.
pub(crate) fn open_made(path: &CStr, flags: u32) -> Result<i32> {
    const MODE: u32 = 0o600;
    match openat(CWD, path, flags, MODE) {
        // Somebody is making it.
        Err(Errno::EACCES) => {
            fchmodat(CWD, path, MODE)?;
            openat(CWD, path, flags, MODE)
        }
        Ok(file) => fchmod(file, MODE).map(|()| file).inspect_err(|_| close(file)),
        result => result,
    }
}

pub(crate) fn fchmod(file: i32, mode: u32) -> Result<()> {
    reads!(__NR_fchmod, fd(file), mode.into()).map(drop)
}

pub(crate) fn fchownat(dir: i32, path: &CStr, uid: u32, gid: u32, flags: u32) -> Result<()> {
    reads!(__NR_fchownat, fd(dir), text(path), uid.into(), gid.into(), flags.into()).map(drop)
}

/// `None`: the file of `dir` itself.
pub(crate) fn utimensat(
    dir: i32,
    path: Option<&CStr>,
    times: Option<&[raw::timespec; 2]>,
    flags: u32,
) -> Result<()> {
    let times = times.map_or(0, |times| times.as_ptr() as u64);
    reads!(__NR_utimensat, fd(dir), path.map_or(0, text), times, flags.into()).map(drop)
}

pub(crate) fn truncate(path: &CStr, length: u64) -> Result<()> {
    reads!(__NR_truncate, text(path), length).map(drop)
}

pub(crate) fn ftruncate(file: i32, length: u64) -> Result<()> {
    reads!(__NR_ftruncate, fd(file), length).map(drop)
}

pub(crate) fn statfs(path: &CStr, into: &mut raw::statfs64) -> Result<()> {
    writes!(__NR_statfs, text(path), &raw mut *into as u64).map(drop)
}

pub(crate) fn fstatfs(file: i32, into: &mut raw::statfs64) -> Result<()> {
    writes!(__NR_fstatfs, fd(file), &raw mut *into as u64).map(drop)
}

pub(crate) fn getxattr(path: &CStr, nofollow: bool, name: &CStr, into: &mut [u8]) -> Result<usize> {
    let (at, room) = (into.as_mut_ptr() as u64, into.len() as u64);
    let length = if nofollow {
        writes!(__NR_lgetxattr, text(path), text(name), at, room)
    } else {
        writes!(__NR_getxattr, text(path), text(name), at, room)
    };
    length.map(|length| length as usize)
}

/// Since Linux 6.13.
pub(crate) fn getxattrat(
    dir: i32,
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
    writes!(__NR_getxattrat, fd(dir), text(path), flags.into(), text(name), args, size)
        .map(|length| length as usize)
}

/// Since Linux 6.13.
pub(crate) fn listxattrat(dir: i32, path: &CStr, flags: u32, into: &mut [u8]) -> Result<usize> {
    let (at, room) = (into.as_mut_ptr() as u64, into.len() as u64);
    writes!(__NR_listxattrat, fd(dir), text(path), flags.into(), at, room)
        .map(|length| length as usize)
}

pub(crate) fn setxattr(
    path: &CStr,
    nofollow: bool,
    name: &CStr,
    value: &[u8],
    flags: u32,
) -> Result<()> {
    let (at, length) = (value.as_ptr() as u64, value.len() as u64);
    if nofollow {
        reads!(__NR_lsetxattr, text(path), text(name), at, length, flags.into()).map(drop)
    } else {
        reads!(__NR_setxattr, text(path), text(name), at, length, flags.into()).map(drop)
    }
}

pub(crate) fn listxattr(path: &CStr, nofollow: bool, into: &mut [u8]) -> Result<usize> {
    let (at, room) = (into.as_mut_ptr() as u64, into.len() as u64);
    let length = if nofollow {
        writes!(__NR_llistxattr, text(path), at, room)
    } else {
        writes!(__NR_listxattr, text(path), at, room)
    };
    length.map(|length| length as usize)
}

pub(crate) fn removexattr(path: &CStr, nofollow: bool, name: &CStr) -> Result<()> {
    if nofollow {
        reads!(__NR_lremovexattr, text(path), text(name)).map(drop)
    } else {
        reads!(__NR_removexattr, text(path), text(name)).map(drop)
    }
}

pub(crate) fn flistxattr(file: i32, into: &mut [u8]) -> Result<usize> {
    let (at, room) = (into.as_mut_ptr() as u64, into.len() as u64);
    writes!(__NR_flistxattr, fd(file), at, room).map(|length| length as usize)
}

pub(crate) fn fgetxattr(file: i32, name: &CStr, into: &mut [u8]) -> Result<usize> {
    let (at, room) = (into.as_mut_ptr() as u64, into.len() as u64);
    writes!(__NR_fgetxattr, fd(file), text(name), at, room).map(|length| length as usize)
}

pub(crate) fn fsetxattr(file: i32, name: &CStr, value: &[u8]) -> Result<()> {
    let (at, length) = (value.as_ptr() as u64, value.len() as u64);
    reads!(__NR_fsetxattr, fd(file), text(name), at, length, 0).map(drop)
}

/// Once; a signal does not interrupt it for long.
pub(crate) fn pread(file: i32, into: &mut [u8], offset: u64) -> Result<usize> {
    let (at, room) = (into.as_mut_ptr() as u64, into.len() as u64);
    loop {
        match writes!(__NR_pread64, fd(file), at, room, offset) {
            Err(Errno::EINTR) => {}
            result => return result.map(|count| count as usize),
        }
    }
}

/// All of it, at a place.
pub(crate) fn pwrite_all(file: i32, mut from: &[u8], mut offset: u64) -> Result<()> {
    while !from.is_empty() {
        match reads!(__NR_pwrite64, fd(file), from.as_ptr() as u64, from.len() as u64, offset) {
            Ok(0) => return Err(Errno::EIO),
            Ok(written) => {
                from = &from[written as usize..];
                offset += written;
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// All of it, where the file stands.
pub(crate) fn write_all(file: i32, mut from: &[u8]) -> Result<()> {
    while !from.is_empty() {
        match reads!(__NR_write, fd(file), from.as_ptr() as u64, from.len() as u64) {
            Ok(0) => return Err(Errno::EIO),
            Ok(written) => from = &from[written as usize..],
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

pub(crate) fn lseek(file: i32, offset: u64, whence: u32) -> Result<u64> {
    reads!(__NR_lseek, fd(file), offset, whence.into())
}

/// Both files at the same place.
pub(crate) fn copy_file_range(source: i32, target: i32, place: u64, length: u64) -> Result<u64> {
    let (mut from, mut to) = (place, place);
    let (from, to) = (&raw mut from as u64, &raw mut to as u64);
    writes!(__NR_copy_file_range, fd(source), from, fd(target), to, length, 0)
}

/// `FICLONE`.
pub(crate) fn clone_contents(source: i32, target: i32) -> Result<()> {
    const FICLONE: u64 = 0x4004_9409;
    reads!(__NR_ioctl, fd(target), FICLONE, fd(source)).map(drop)
}

/// Waits for the lock; where the file system has none, it is not needed much.
pub(crate) fn flock(file: i32, operation: u32) -> Result<()> {
    loop {
        match reads!(__NR_flock, fd(file), operation.into()) {
            Err(Errno::EINTR) => {}
            Err(Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::ENOLCK) => return Ok(()),
            result => return result.map(drop),
        }
    }
}

pub(crate) fn fcntl(file: i32, command: u32, argument: u64) -> Result<u64> {
    reads!(__NR_fcntl, fd(file), command.into(), argument)
}

/// What is held while the guest's own call goes on goes to a number that the guest does not get: it is to have the lowest that is free to its own
/// knowledge. The descriptor itself where it cannot go there.
#[cold]
#[inline(never)]
pub(crate) fn lifted(descriptor: i32) -> i32 {
    let command = raw::F_DUPFD_CLOEXEC;
    let Ok(high) = fcntl(descriptor, command, abi::boot::TREE_DESCRIPTOR as u64 + 1) else {
        return descriptor;
    };
    close(descriptor);
    high as i32
}

/// Close-on-exec.
pub(crate) fn memfd_create(name: &CStr) -> Result<i32> {
    with_room(|| reads!(__NR_memfd_create, text(name), raw::MFD_CLOEXEC.into()))
}

pub(crate) fn getdents(directory: i32, into: &mut [u8]) -> Result<usize> {
    let (at, room) = (into.as_mut_ptr() as u64, into.len() as u64);
    writes!(__NR_getdents64, fd(directory), at, room).map(|length| length as usize)
}

pub(crate) fn getpid() -> u32 {
    reads!(__NR_getpid).unwrap_or(0) as u32
}

pub(crate) fn gettid() -> u32 {
    reads!(__NR_gettid).unwrap_or(0) as u32
}

pub(crate) fn geteuid() -> u32 {
    reads!(__NR_geteuid).unwrap_or(0) as u32
}

pub(crate) fn kill(process: u32, signal: u32) -> Result<()> {
    reads!(__NR_kill, process.into(), signal.into()).map(drop)
}

/// Nanoseconds of `CLOCK_BOOTTIME`.
pub(crate) fn boot_time() -> u64 {
    let mut now = raw::timespec { tv_sec: 0, tv_nsec: 0 };
    let clock = u64::from(raw::CLOCK_BOOTTIME);
    match writes!(__NR_clock_gettime, clock, &raw mut now as u64) {
        Ok(_) => now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64,
        Err(_) => 0,
    }
}
