//! What `rustix` knows of a file, in the kernel's own structure.

use abi::layout::stat::EMPTY_STATX;
use linux_raw_sys::general::{STATX_BASIC_STATS, statx, statx_timestamp};

/// From `statx`.
pub(super) fn from_statx(facts: &rustix::fs::Statx) -> statx {
    let stamp = |time: rustix::fs::StatxTimestamp| statx_timestamp {
        tv_sec: time.tv_sec,
        tv_nsec: time.tv_nsec,
        __reserved: 0,
    };
    statx {
        stx_mask: facts.stx_mask,
        stx_blksize: facts.stx_blksize,
        stx_attributes: facts.stx_attributes.bits(),
        stx_nlink: facts.stx_nlink,
        stx_uid: facts.stx_uid,
        stx_gid: facts.stx_gid,
        stx_mode: facts.stx_mode,
        stx_ino: facts.stx_ino,
        stx_size: facts.stx_size,
        stx_blocks: facts.stx_blocks,
        stx_attributes_mask: facts.stx_attributes_mask.bits(),
        stx_atime: stamp(facts.stx_atime),
        stx_btime: stamp(facts.stx_btime),
        stx_ctime: stamp(facts.stx_ctime),
        stx_mtime: stamp(facts.stx_mtime),
        stx_rdev_major: facts.stx_rdev_major,
        stx_rdev_minor: facts.stx_rdev_minor,
        stx_dev_major: facts.stx_dev_major,
        stx_dev_minor: facts.stx_dev_minor,
        stx_mnt_id: facts.stx_mnt_id,
        ..EMPTY_STATX
    }
}

/// From `stat`, without the time of birth.
pub(super) fn from_stat(facts: &rustix::fs::Stat) -> statx {
    let stamp = |seconds: i64, nanoseconds: u64| statx_timestamp {
        tv_sec: seconds,
        tv_nsec: nanoseconds as u32,
        __reserved: 0,
    };
    statx {
        stx_mask: STATX_BASIC_STATS,
        stx_blksize: facts.st_blksize as u32,
        stx_nlink: facts.st_nlink as u32,
        stx_uid: facts.st_uid,
        stx_gid: facts.st_gid,
        stx_mode: facts.st_mode as u16,
        stx_ino: facts.st_ino,
        stx_size: facts.st_size as u64,
        stx_blocks: facts.st_blocks as u64,
        stx_atime: stamp(facts.st_atime, facts.st_atime_nsec as _),
        stx_ctime: stamp(facts.st_ctime, facts.st_ctime_nsec as _),
        stx_mtime: stamp(facts.st_mtime, facts.st_mtime_nsec as _),
        stx_rdev_major: rustix::fs::major(facts.st_rdev),
        stx_rdev_minor: rustix::fs::minor(facts.st_rdev),
        stx_dev_major: rustix::fs::major(facts.st_dev),
        stx_dev_minor: rustix::fs::minor(facts.st_dev),
        ..EMPTY_STATX
    }
}
