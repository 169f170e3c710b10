//! The status of a file, also where there is no `statx`.

use crate::kernel::{Feature, Kernel};
use abi::layout::stat::EMPTY_STATX;
use core::ffi::CStr;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, stat, statx, statx_timestamp,
};
use view::errno::Result;
use view::{Errno, HostFd};

/// `statx`, or what `newfstatat` says.
pub fn look<K: Kernel>(
    kernel: &K,
    dir: HostFd,
    path: &CStr,
    flags: u32,
    into: &mut statx,
) -> Result<()> {
    if !kernel.lacks(Feature::Statx) {
        match kernel.statx(dir, path, flags, into) {
            Err(Errno::ENOSYS | Errno::EPERM) => kernel.set_lacking(Feature::Statx),
            result => return result,
        }
    }
    let flags = flags & (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH);
    *into = from_stat(&kernel.fstatat(dir, path, flags)?);
    Ok(())
}

/// What `stat` says in the structure of `statx`, without the time of birth.
fn from_stat(status: &stat) -> statx {
    let stamp = |seconds, nanoseconds| statx_timestamp {
        tv_sec: seconds as i64,
        tv_nsec: nanoseconds as u32,
        __reserved: 0,
    };
    let major = |device: u64| ((device >> 8) & 0xfff | (device >> 32) & !0xfff) as u32;
    let minor = |device: u64| (device & 0xff | (device >> 12) & !0xff) as u32;
    statx {
        stx_mask: STATX_BASIC_STATS,
        stx_blksize: status.st_blksize as u32,
        stx_nlink: status.st_nlink as u32,
        stx_uid: status.st_uid,
        stx_gid: status.st_gid,
        stx_mode: status.st_mode as u16,
        stx_ino: status.st_ino,
        stx_size: status.st_size as u64,
        stx_blocks: status.st_blocks as u64,
        stx_atime: stamp(status.st_atime, status.st_atime_nsec),
        stx_ctime: stamp(status.st_ctime, status.st_ctime_nsec),
        stx_mtime: stamp(status.st_mtime, status.st_mtime_nsec),
        stx_rdev_major: major(status.st_rdev),
        stx_rdev_minor: minor(status.st_rdev),
        stx_dev_major: major(status.st_dev),
        stx_dev_minor: minor(status.st_dev),
        ..EMPTY_STATX
    }
}
