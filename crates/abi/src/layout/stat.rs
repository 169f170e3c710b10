//! Writes the status of a file in every form in which a call returns it.
//!
//! The source is always the widest form, `struct statx`. If a number does not fit into a narrow
//! form, that is an error as in the kernel (`fs/stat.c`, `arch/x86/kernel/sys_ia32.c`,
//! `fs/statfs.c`): [`Overflow`], for `EOVERFLOW`.

use super::put;
use crate::calls::{Arch, Op};
use linux_raw_sys::general::{__kernel_fsid_t, statfs64, statx, statx_timestamp};

/// A number does not fit: `EOVERFLOW`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overflow;

/// The forms of `struct stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stat {
    /// `struct stat` of x86-64.
    X86_64,
    /// `struct stat` of arm64.
    Aarch64,
    /// `struct stat64` of i386.
    I386Wide,
    /// `struct stat` of i386.
    I386,
    /// `struct __old_kernel_stat` of i386.
    I386Oldest,
}

/// Size of the largest form of `struct stat`.
pub const STAT_MAX: usize = 144;
/// Size of `struct statx`.
pub const STATX_SIZE: usize = 256;
/// Size of the largest form of `struct statfs`.
pub const STATFS_MAX: usize = 120;

const NEVER: statx_timestamp = statx_timestamp { tv_sec: 0, tv_nsec: 0, __reserved: 0 };

/// A structure with all fields zero, to be filled in.
pub const EMPTY_STATX: statx = statx {
    stx_mask: 0,
    stx_blksize: 0,
    stx_attributes: 0,
    stx_nlink: 0,
    stx_uid: 0,
    stx_gid: 0,
    stx_mode: 0,
    __spare0: [0],
    stx_ino: 0,
    stx_size: 0,
    stx_blocks: 0,
    stx_attributes_mask: 0,
    stx_atime: NEVER,
    stx_btime: NEVER,
    stx_ctime: NEVER,
    stx_mtime: NEVER,
    stx_rdev_major: 0,
    stx_rdev_minor: 0,
    stx_dev_major: 0,
    stx_dev_minor: 0,
    stx_mnt_id: 0,
    stx_dio_mem_align: 0,
    stx_dio_offset_align: 0,
    stx_subvol: 0,
    stx_atomic_write_unit_min: 0,
    stx_atomic_write_unit_max: 0,
    stx_atomic_write_segments_max: 0,
    stx_dio_read_offset_align: 0,
    stx_atomic_write_unit_max_opt: 0,
    __spare2: [0],
    __spare3: [0; 8],
};

/// A structure with all fields zero, to be filled in.
pub const EMPTY_STATFS: statfs64 = statfs64 {
    f_type: 0,
    f_bsize: 0,
    f_blocks: 0,
    f_bfree: 0,
    f_bavail: 0,
    f_files: 0,
    f_ffree: 0,
    f_fsid: __kernel_fsid_t { val: [0; 2] },
    f_namelen: 0,
    f_frsize: 0,
    f_flags: 0,
    f_spare: [0; 4],
};

/// `new_encode_dev` of the kernel: a device number in 32 bits.
pub const fn encode_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12)
}

/// Major and minor number of a device number as mknod(2) takes it.
pub const fn decode_device(device: u32) -> (u32, u32) {
    ((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xf_ff00))
}

/// `old_encode_dev`: eight bits for each number.
fn oldest_device(major: u32, minor: u32) -> Result<u16, Overflow> {
    if major > 255 || minor > 255 {
        return Err(Overflow);
    }
    Ok((major << 8 | minor) as u16)
}

/// `high2lowuid`: ids beyond 16 bits become the overflow id.
pub const fn narrow_id(id: u32) -> u16 {
    if id > 0xffff { 65534 } else { id as u16 }
}

/// `MAX_NON_LFS`: size of the largest file for programs without large file support.
const MAX_NON_LFS: u64 = (1 << 31) - 1;

impl Stat {
    /// The form that a call fills in.
    pub const fn of(arch: Arch, op: Op) -> Option<Self> {
        Some(match (arch, op) {
            (Arch::X86_64, Op::Stat | Op::Lstat | Op::Fstat | Op::Newfstatat) => Self::X86_64,
            (Arch::Aarch64, Op::Fstat | Op::Newfstatat) => Self::Aarch64,
            (Arch::I386, Op::Stat64 | Op::Lstat64 | Op::Fstat64 | Op::Fstatat64) => Self::I386Wide,
            (Arch::I386, Op::Stat | Op::Lstat | Op::Fstat) => Self::I386,
            (Arch::I386, Op::Oldstat | Op::Oldlstat | Op::Oldfstat) => Self::I386Oldest,
            _ => return None,
        })
    }

    /// The bytes of the structure, and their number.
    pub fn write(self, from: &statx) -> Result<([u8; STAT_MAX], usize), Overflow> {
        let mut into = [0; STAT_MAX];
        let size = match self {
            Self::X86_64 => x86_64(from, &mut into),
            Self::Aarch64 => aarch64(from, &mut into),
            Self::I386Wide => i386_wide(from, &mut into),
            Self::I386 => i386(from, &mut into)?,
            Self::I386Oldest => i386_oldest(from, &mut into)?,
        };
        Ok((into, size))
    }
}

fn device(from: &statx) -> u64 {
    u64::from(encode_device(from.stx_dev_major, from.stx_dev_minor))
}

fn special(from: &statx) -> u64 {
    u64::from(encode_device(from.stx_rdev_major, from.stx_rdev_minor))
}

fn times(from: &statx) -> [statx_timestamp; 3] {
    [from.stx_atime, from.stx_mtime, from.stx_ctime]
}

/// Writes three times of two words each.
fn put_times(from: &statx, into: &mut [u8], at: usize, word: usize) {
    for (index, time) in times(from).iter().enumerate() {
        put(into, at + 2 * word * index, &time.tv_sec.to_le_bytes()[..word]);
        put(into, at + 2 * word * index + word, &u64::from(time.tv_nsec).to_le_bytes()[..word]);
    }
}

fn x86_64(from: &statx, into: &mut [u8]) -> usize {
    put(into, 0, &device(from).to_le_bytes());
    put(into, 8, &from.stx_ino.to_le_bytes());
    put(into, 16, &u64::from(from.stx_nlink).to_le_bytes());
    put(into, 24, &u32::from(from.stx_mode).to_le_bytes());
    put(into, 28, &from.stx_uid.to_le_bytes());
    put(into, 32, &from.stx_gid.to_le_bytes());
    put(into, 40, &special(from).to_le_bytes());
    put(into, 48, &from.stx_size.to_le_bytes());
    put(into, 56, &u64::from(from.stx_blksize).to_le_bytes());
    put(into, 64, &from.stx_blocks.to_le_bytes());
    put_times(from, into, 72, 8);
    144
}

fn aarch64(from: &statx, into: &mut [u8]) -> usize {
    put(into, 0, &device(from).to_le_bytes());
    put(into, 8, &from.stx_ino.to_le_bytes());
    put(into, 16, &u32::from(from.stx_mode).to_le_bytes());
    put(into, 20, &from.stx_nlink.to_le_bytes());
    put(into, 24, &from.stx_uid.to_le_bytes());
    put(into, 28, &from.stx_gid.to_le_bytes());
    put(into, 32, &special(from).to_le_bytes());
    put(into, 48, &from.stx_size.to_le_bytes());
    put(into, 56, &from.stx_blksize.to_le_bytes());
    put(into, 64, &from.stx_blocks.to_le_bytes());
    put_times(from, into, 72, 8);
    128
}

fn i386_wide(from: &statx, into: &mut [u8]) -> usize {
    put(into, 0, &device(from).to_le_bytes());
    put(into, 12, &(from.stx_ino as u32).to_le_bytes());
    put(into, 16, &u32::from(from.stx_mode).to_le_bytes());
    put(into, 20, &from.stx_nlink.to_le_bytes());
    put(into, 24, &from.stx_uid.to_le_bytes());
    put(into, 28, &from.stx_gid.to_le_bytes());
    put(into, 32, &special(from).to_le_bytes());
    put(into, 44, &from.stx_size.to_le_bytes());
    put(into, 52, &from.stx_blksize.to_le_bytes());
    put(into, 56, &from.stx_blocks.to_le_bytes());
    put_times(from, into, 64, 4);
    put(into, 88, &from.stx_ino.to_le_bytes());
    96
}

fn i386(from: &statx, into: &mut [u8]) -> Result<usize, Overflow> {
    if from.stx_size > MAX_NON_LFS {
        return Err(Overflow);
    }
    put(into, 0, &(device(from) as u32).to_le_bytes());
    put(into, 4, &u32::try_from(from.stx_ino).map_err(|_| Overflow)?.to_le_bytes());
    put(into, 8, &from.stx_mode.to_le_bytes());
    put(into, 10, &u16::try_from(from.stx_nlink).map_err(|_| Overflow)?.to_le_bytes());
    put(into, 12, &narrow_id(from.stx_uid).to_le_bytes());
    put(into, 14, &narrow_id(from.stx_gid).to_le_bytes());
    put(into, 16, &(special(from) as u32).to_le_bytes());
    put(into, 20, &(from.stx_size as u32).to_le_bytes());
    put(into, 24, &from.stx_blksize.to_le_bytes());
    put(into, 28, &(from.stx_blocks as u32).to_le_bytes());
    put_times(from, into, 32, 4);
    Ok(64)
}

fn i386_oldest(from: &statx, into: &mut [u8]) -> Result<usize, Overflow> {
    if from.stx_size > MAX_NON_LFS {
        return Err(Overflow);
    }
    put(into, 0, &oldest_device(from.stx_dev_major, from.stx_dev_minor)?.to_le_bytes());
    put(into, 2, &u16::try_from(from.stx_ino).map_err(|_| Overflow)?.to_le_bytes());
    put(into, 4, &from.stx_mode.to_le_bytes());
    put(into, 6, &u16::try_from(from.stx_nlink).map_err(|_| Overflow)?.to_le_bytes());
    put(into, 8, &narrow_id(from.stx_uid).to_le_bytes());
    put(into, 10, &narrow_id(from.stx_gid).to_le_bytes());
    put(into, 12, &oldest_device(from.stx_rdev_major, from.stx_rdev_minor)?.to_le_bytes());
    put(into, 16, &(from.stx_size as u32).to_le_bytes());
    for (index, time) in times(from).iter().enumerate() {
        put(into, 20 + 4 * index, &(time.tv_sec as u32).to_le_bytes());
    }
    Ok(32)
}

/// The bytes of `struct statx`, which is the same on all architectures.
pub fn statx_bytes(from: &statx) -> [u8; STATX_SIZE] {
    let mut into = [0; STATX_SIZE];
    put(&mut into, 0, &from.stx_mask.to_le_bytes());
    put(&mut into, 4, &from.stx_blksize.to_le_bytes());
    put(&mut into, 8, &from.stx_attributes.to_le_bytes());
    put(&mut into, 16, &from.stx_nlink.to_le_bytes());
    put(&mut into, 20, &from.stx_uid.to_le_bytes());
    put(&mut into, 24, &from.stx_gid.to_le_bytes());
    put(&mut into, 28, &from.stx_mode.to_le_bytes());
    put(&mut into, 32, &from.stx_ino.to_le_bytes());
    put(&mut into, 40, &from.stx_size.to_le_bytes());
    put(&mut into, 48, &from.stx_blocks.to_le_bytes());
    put(&mut into, 56, &from.stx_attributes_mask.to_le_bytes());
    let stamps = [from.stx_atime, from.stx_btime, from.stx_ctime, from.stx_mtime];
    for (index, stamp) in stamps.iter().enumerate() {
        put(&mut into, 64 + 16 * index, &stamp.tv_sec.to_le_bytes());
        put(&mut into, 72 + 16 * index, &stamp.tv_nsec.to_le_bytes());
    }
    put(&mut into, 128, &from.stx_rdev_major.to_le_bytes());
    put(&mut into, 132, &from.stx_rdev_minor.to_le_bytes());
    put(&mut into, 136, &from.stx_dev_major.to_le_bytes());
    put(&mut into, 140, &from.stx_dev_minor.to_le_bytes());
    put(&mut into, 144, &from.stx_mnt_id.to_le_bytes());
    put(&mut into, 152, &from.stx_dio_mem_align.to_le_bytes());
    put(&mut into, 156, &from.stx_dio_offset_align.to_le_bytes());
    put(&mut into, 160, &from.stx_subvol.to_le_bytes());
    put(&mut into, 168, &from.stx_atomic_write_unit_min.to_le_bytes());
    put(&mut into, 172, &from.stx_atomic_write_unit_max.to_le_bytes());
    put(&mut into, 176, &from.stx_atomic_write_segments_max.to_le_bytes());
    put(&mut into, 180, &from.stx_dio_read_offset_align.to_le_bytes());
    put(&mut into, 184, &from.stx_atomic_write_unit_max_opt.to_le_bytes());
    into
}

/// The forms of `struct statfs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statfs {
    /// The form of the 64-bit architectures.
    Wide,
    /// `struct compat_statfs64` of i386; its size is an argument of the call.
    I386Wide,
    /// `struct statfs` of i386.
    I386,
}

impl Statfs {
    /// The form that a call fills in.
    pub const fn of(arch: Arch, op: Op) -> Option<Self> {
        Some(match (arch, op) {
            (Arch::X86_64 | Arch::Aarch64, Op::Statfs | Op::Fstatfs) => Self::Wide,
            (Arch::I386, Op::Statfs64 | Op::Fstatfs64) => Self::I386Wide,
            (Arch::I386, Op::Statfs | Op::Fstatfs) => Self::I386,
            _ => return None,
        })
    }

    /// Size in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::Wide => 120,
            Self::I386Wide => 84,
            Self::I386 => 64,
        }
    }

    /// The bytes of the structure; only the first [`Statfs::size`] are used.
    pub fn write(self, from: &statfs64) -> Result<[u8; STATFS_MAX], Overflow> {
        let mut into = [0; STATFS_MAX];
        let numbers = [from.f_blocks, from.f_bfree, from.f_bavail, from.f_files, from.f_ffree];
        let (head, middle) = if self == Self::Wide { (8, 8) } else { (4, 8) };
        let middle = if self == Self::I386 { 4 } else { middle };
        put(&mut into, 0, &(from.f_type as u64).to_le_bytes()[..head]);
        put(&mut into, head, &(from.f_bsize as u64).to_le_bytes()[..head]);
        for (index, number) in numbers.iter().enumerate() {
            // "Unknown" is all ones, also in a shorter form.
            if middle == 4 && *number > u64::from(u32::MAX) && *number != u64::MAX {
                return Err(Overflow);
            }
            put(&mut into, 2 * head + middle * index, &number.to_le_bytes()[..middle]);
        }
        let mut at = 2 * head + 5 * middle;
        for half in from.f_fsid.val {
            put(&mut into, at, &half.to_le_bytes());
            at += 4;
        }
        for number in [from.f_namelen as u64, from.f_frsize as u64, from.f_flags as u64] {
            put(&mut into, at, &number.to_le_bytes()[..head]);
            at += head;
        }
        Ok(into)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{u16_at, u32_at, u64_at};
    use super::*;
    use core::mem::offset_of;
    use linux_raw_sys::general::stat;

    fn example() -> statx {
        let stamp = |seconds| statx_timestamp { tv_sec: seconds, tv_nsec: 5, __reserved: 0 };
        statx {
            stx_mask: 0x7ff,
            stx_blksize: 4096,
            stx_attributes: 1,
            stx_nlink: 2,
            stx_uid: 70_000,
            stx_gid: 1000,
            stx_mode: 0o100_644,
            stx_ino: 77,
            stx_size: 1234,
            stx_blocks: 8,
            stx_attributes_mask: 3,
            stx_atime: stamp(1),
            stx_btime: stamp(2),
            stx_ctime: stamp(3),
            stx_mtime: stamp(4),
            stx_rdev_major: 1,
            stx_rdev_minor: 3,
            stx_dev_major: 8,
            stx_dev_minor: 0x1234,
            stx_mnt_id: 99,
            ..EMPTY_STATX
        }
    }

    #[test]
    fn wide_forms_match_the_kernel_headers() {
        let (bytes, size) = Stat::X86_64.write(&example()).unwrap();
        assert_eq!(size, size_of::<stat>());
        assert_eq!(u64_at(&bytes, offset_of!(stat, st_ino)), 77);
        assert_eq!(u64_at(&bytes, offset_of!(stat, st_nlink)), 2);
        assert_eq!(u32_at(&bytes, offset_of!(stat, st_mode)), 0o100_644);
        assert_eq!(u32_at(&bytes, offset_of!(stat, st_uid)), 70_000);
        assert_eq!(u64_at(&bytes, offset_of!(stat, st_rdev)), 0x103);
        assert_eq!(u64_at(&bytes, offset_of!(stat, st_dev)), 0x0120_0834);
        assert_eq!(u64_at(&bytes, offset_of!(stat, st_blocks)), 8);
        assert_eq!(u64_at(&bytes, offset_of!(stat, st_mtime)), 4);
        assert_eq!(u64_at(&bytes, offset_of!(stat, st_ctime_nsec)), 5);
        let bytes = statx_bytes(&example());
        assert_eq!(size_of::<statx>(), STATX_SIZE);
        assert_eq!(u64_at(&bytes, offset_of!(statx, stx_ino)), 77);
        assert_eq!(u64_at(&bytes, offset_of!(statx, stx_mtime)), 4);
        assert_eq!(u64_at(&bytes, offset_of!(statx, stx_btime)), 2);
        assert_eq!(u32_at(&bytes, offset_of!(statx, stx_dev_minor)), 0x1234);
        assert_eq!(u64_at(&bytes, offset_of!(statx, stx_mnt_id)), 99);
    }

    #[test]
    fn narrow_forms_have_limits() {
        let mut file = example();
        let (bytes, size) = Stat::I386.write(&file).unwrap();
        assert_eq!((size, u16_at(&bytes, 12)), (64, 65534));
        assert_eq!(u32_at(&bytes, 20), 1234);
        assert_eq!(Stat::I386Oldest.write(&file), Err(Overflow));
        file.stx_ino = 1 << 33;
        assert_eq!(Stat::I386.write(&file), Err(Overflow));
        let (bytes, size) = Stat::I386Wide.write(&file).unwrap();
        assert_eq!((size, u32_at(&bytes, 12), u64_at(&bytes, 88)), (96, 0, 1 << 33));
        file.stx_ino = 5;
        file.stx_size = 1 << 31;
        assert_eq!(Stat::I386.write(&file), Err(Overflow));
    }

    #[test]
    fn device_numbers_round_trip() {
        for (major, minor) in [(1, 3), (259, 0x1_2345), (0xfff, 0xf_ffff)] {
            assert_eq!(decode_device(encode_device(major, minor)), (major, minor));
        }
    }

    #[test]
    fn file_systems() {
        assert_eq!(size_of::<statfs64>(), Statfs::Wide.size());
        let mut system = EMPTY_STATFS;
        system.f_type = 0xef53;
        system.f_blocks = 1 << 33;
        system.f_namelen = 255;
        let bytes = Statfs::Wide.write(&system).unwrap();
        assert_eq!(u64_at(&bytes, offset_of!(statfs64, f_blocks)), 1 << 33);
        assert_eq!(u64_at(&bytes, offset_of!(statfs64, f_namelen)), 255);
        assert_eq!(Statfs::I386.write(&system), Err(Overflow));
        let bytes = Statfs::I386Wide.write(&system).unwrap();
        assert_eq!(u64_at(&bytes, 8), 1 << 33);
        assert_eq!(u32_at(&bytes, 56), 255);
    }
}
