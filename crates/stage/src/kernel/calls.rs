//! System calls on files that are not part of [`hostfs::Kernel`], and those that the rest of the
//! stage makes; see the man page of each name.
//!
//! Paths are strings that end with a NUL, buffers are references: no call here can be made wrongly.

use super::linux::{LINUX, fd, reads, text, writes};
use crate::system;
use core::ffi::CStr;
use hostfs::{Kernel, Target, io};
use linux_raw_sys::general as raw;
use view::HostFd;
use view::errno::Result;

/// `AT_FDCWD`, as a descriptor.
pub(crate) const CWD: i32 = raw::AT_FDCWD;

pub(crate) fn openat(dir: i32, path: &CStr, flags: u32, mode: u32) -> Result<i32> {
    LINUX.openat(HostFd(dir), path, flags, mode).map(|HostFd(file)| file)
}

pub(crate) fn close(descriptor: i32) {
    system::close(i64::from(descriptor) as u64);
}

pub(crate) fn newfstatat(dir: i32, path: &CStr, flags: u32) -> Result<raw::stat> {
    LINUX.fstatat(HostFd(dir), path, flags)
}

/// Into the guest's memory.
pub(crate) fn newfstatat_into(dir: HostFd, path: &CStr, flags: u32, into: u64) -> Result<()> {
    reads!(__NR_newfstatat, fd(dir), text(path), into, flags.into()).map(drop)
}

/// Into the guest's memory.
pub(crate) fn statx_into(dir: HostFd, path: &CStr, flags: u32, mask: u32, into: u64) -> Result<()> {
    reads!(__NR_statx, fd(dir), text(path), flags.into(), mask.into(), into).map(drop)
}

/// Into the guest's memory.
pub(crate) fn fstat_into(descriptor: i32, into: u64) -> Result<()> {
    reads!(__NR_fstat, fd(HostFd(descriptor)), into).map(drop)
}

pub(crate) fn fstat(descriptor: i32) -> Result<raw::stat> {
    let mut status = core::mem::MaybeUninit::<raw::stat>::uninit();
    fstat_into(descriptor, status.as_mut_ptr() as u64)?;
    // SAFETY: the kernel has written all of it.
    Ok(unsafe { status.assume_init() })
}

pub(crate) fn readlinkat(dir: i32, path: &CStr, into: &mut [u8]) -> Result<usize> {
    LINUX.readlinkat(HostFd(dir), path, into)
}

/// With its NUL.
pub(crate) fn getcwd(into: &mut [u8]) -> Result<usize> {
    writes!(__NR_getcwd, into.as_mut_ptr() as u64, into.len() as u64).map(|length| length as usize)
}

pub(crate) fn unlinkat(dir: i32, path: &CStr, flags: u32) -> Result<()> {
    LINUX.unlinkat(HostFd(dir), path, flags)
}

pub(crate) fn renameat2(from: (i32, &CStr), to: (i32, &CStr), flags: u32) -> Result<()> {
    LINUX.renameat2((HostFd(from.0), from.1), (HostFd(to.0), to.1), flags)
}

pub(crate) fn ftruncate(file: i32, length: u64) -> Result<()> {
    LINUX.truncate(Target::File(HostFd(file)), length)
}

pub(crate) fn pread(file: i32, into: &mut [u8], offset: u64) -> Result<usize> {
    io::pread(&LINUX, HostFd(file), into, offset)
}

/// All of it, at a place.
pub(crate) fn pwrite_all(file: i32, from: &[u8], offset: u64) -> Result<()> {
    io::pwrite_all(&LINUX, HostFd(file), from, offset)
}

pub(crate) fn fcntl(file: i32, command: u32, argument: u64) -> Result<u64> {
    reads!(__NR_fcntl, fd(HostFd(file)), command.into(), argument)
}

/// Moves a descriptor that is held while the guest's own call goes on to a high number: the guest
/// is to get the lowest number that is free to its own knowledge. Where it cannot be moved, it
/// stays.
#[cold]
#[inline(never)]
pub(crate) fn lifted(descriptor: i32) -> i32 {
    let command = raw::F_DUPFD_CLOEXEC;
    let Ok(high) = fcntl(descriptor, command, abi::boot::UPPER_DESCRIPTOR as u64 + 1) else {
        return descriptor;
    };
    close(descriptor);
    high as i32
}

pub(crate) fn getdents(directory: i32, into: &mut [u8]) -> Result<usize> {
    let (at, room) = (into.as_mut_ptr() as u64, into.len() as u64);
    writes!(__NR_getdents64, fd(HostFd(directory)), at, room).map(|length| length as usize)
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
