//! Offsets of the members of kernel structures in a guest's memory, for each architecture whose
//! calls are known.
//!
//! The guest's structures may differ from the host's: an i386 program has its own. So they are
//! written and read as bytes, by offsets.
//!
//! - [`stat`]: `struct stat` in its five forms, `struct statx`, `struct statfs` in its three.
//! - here: addresses and messages of sockets, directory entries, timestamps, small structures.

pub mod stat;

use crate::calls::Arch;
use linux_raw_sys::general::timespec;

/// A `u16` at an offset; 0 behind the end.
pub fn u16_at(from: &[u8], at: usize) -> u16 {
    from.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

/// A `u32` at an offset; 0 behind the end.
pub fn u32_at(from: &[u8], at: usize) -> u32 {
    from.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// A `u64` at an offset; 0 behind the end.
pub fn u64_at(from: &[u8], at: usize) -> u64 {
    from.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Writes bytes at an offset, if they fit.
pub fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = into.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// `struct sockaddr_un`: the family (`u16`), then the name.
pub mod sockaddr_un {
    /// `sun_path`.
    pub const PATH: usize = 2;
    /// `sizeof(sun_path)`; a name may fill it without a NUL.
    pub const PATH_SIZE: usize = 108;
    /// Size of the whole structure.
    pub const SIZE: usize = PATH + PATH_SIZE;
}

/// `sizeof(struct ucred)`: process, user, group, each a `u32`.
pub const UCRED: usize = 12;

/// `struct msghdr`, `struct mmsghdr` and `struct cmsghdr`; pointers and sizes are words of the
/// architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Msghdr {
    /// Size of a pointer and of a `size_t` in bytes; control messages are aligned to it too.
    pub word: usize,
    /// `msg_name`, a pointer.
    pub name: usize,
    /// `msg_namelen`, an `int`.
    pub name_length: usize,
    /// `msg_iov`, a pointer to `struct iovec`: a pointer and a size.
    pub vectors: usize,
    /// `msg_iovlen`, a size.
    pub vector_count: usize,
    /// `msg_control`, a pointer.
    pub control: usize,
    /// `msg_controllen`, a size.
    pub control_length: usize,
    /// `msg_flags`, an `unsigned int`.
    pub flags: usize,
    /// Size of `struct msghdr`.
    pub size: usize,
    /// Distance of two `struct mmsghdr`: a header, and the number of bytes (`unsigned int`) behind
    /// it.
    pub stride: usize,
    /// Size of `struct cmsghdr`: a length (`size_t`), level and type (`int`). The data follows
    /// directly.
    pub control_header: usize,
}

impl Msghdr {
    /// The layout of an architecture.
    pub const fn of(arch: Arch) -> Self {
        match arch.word() {
            8 => Self {
                word: 8,
                name: 0,
                name_length: 8,
                vectors: 16,
                vector_count: 24,
                control: 32,
                control_length: 40,
                flags: 48,
                size: 56,
                stride: 64,
                control_header: 16,
            },
            _ => Self {
                word: 4,
                name: 0,
                name_length: 4,
                vectors: 8,
                vector_count: 12,
                control: 16,
                control_length: 20,
                flags: 24,
                size: 28,
                stride: 32,
                control_header: 12,
            },
        }
    }

    /// A pointer or size in one of the structures.
    pub fn word_at(&self, from: &[u8], at: usize) -> u64 {
        if self.word == 8 { u64_at(from, at) } else { u64::from(u32_at(from, at)) }
    }

    /// Writes a pointer or size.
    pub fn put_word(&self, into: &mut [u8], at: usize, value: u64) {
        put(into, at, &value.to_le_bytes()[..self.word]);
    }
}

/// Directory entries: `struct linux_dirent64`, or `struct linux_dirent` of an architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dirent {
    /// Width of `d_ino` (at 0) and of `d_off` behind it.
    pub word: usize,
    /// `d_reclen`, a `u16`.
    pub length: usize,
    /// `d_name`, ended by a NUL.
    pub name: usize,
    /// `d_type` is a byte before the name; otherwise it is the entry's last byte.
    pub type_before_name: bool,
    /// Alignment of entries.
    pub align: usize,
}

impl Dirent {
    /// The layout of `getdents64`.
    pub const WIDE: Self = Self { word: 8, length: 16, name: 19, type_before_name: true, align: 8 };

    /// The layout of `getdents`.
    pub const fn old(arch: Arch) -> Self {
        let word = arch.word();
        let length = 2 * word;
        Self { word, length, name: length + 2, type_before_name: false, align: word }
    }

    /// Size of an entry; `name` is the length of the name without the NUL.
    pub const fn size(self, name: usize) -> usize {
        // The NUL, and the type if that is last.
        let bare = self.name + name + if self.type_before_name { 1 } else { 2 };
        bare.next_multiple_of(self.align)
    }
}

/// The form of two timestamps (access, modification) in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// `struct timespec[2]` of 64 bits.
    Nanoseconds,
    /// `struct old_timespec32[2]`.
    Nanoseconds32,
    /// `struct timeval[2]`.
    Microseconds,
    /// `struct old_timeval32[2]`.
    Microseconds32,
    /// `struct utimbuf`: whole seconds.
    Seconds,
    /// `struct old_utimbuf32`.
    Seconds32,
}

impl Times {
    /// The form of a call: `utime`, `utimes`, `futimesat`, `utimensat` and relatives.
    pub const fn of(arch: Arch, op: crate::calls::Op) -> Option<Self> {
        use crate::calls::Op;
        let wide = arch.word() == 8;
        Some(match op {
            Op::UtimensatTime64 => Self::Nanoseconds,
            Op::Utimensat if wide => Self::Nanoseconds,
            Op::Utimensat => Self::Nanoseconds32,
            Op::Utimes | Op::Futimesat if wide => Self::Microseconds,
            Op::Utimes | Op::Futimesat => Self::Microseconds32,
            Op::Utime if wide => Self::Seconds,
            Op::Utime => Self::Seconds32,
            _ => return None,
        })
    }

    /// Size of both timestamps in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::Nanoseconds | Self::Microseconds => 32,
            Self::Nanoseconds32 | Self::Microseconds32 | Self::Seconds => 16,
            Self::Seconds32 => 8,
        }
    }

    /// Both timestamps, as utimensat(2) takes them. `None` if the kernel gives `EINVAL`:
    /// microseconds of a second or more.
    pub fn read(self, from: &[u8]) -> Option<[timespec; 2]> {
        let narrow = |at: usize| i64::from(u32_at(from, at) as i32);
        let wide = |at: usize| u64_at(from, at) as i64;
        let one = |index: usize| {
            let (seconds, fraction) = match self {
                Self::Nanoseconds | Self::Microseconds => (wide(16 * index), wide(16 * index + 8)),
                Self::Nanoseconds32 | Self::Microseconds32 => {
                    (narrow(8 * index), narrow(8 * index + 4))
                }
                Self::Seconds => (wide(8 * index), 0),
                Self::Seconds32 => (narrow(4 * index), 0),
            };
            let nanoseconds = match self {
                Self::Microseconds | Self::Microseconds32 => {
                    (0..1_000_000).contains(&fraction).then(|| fraction * 1000)?
                }
                _ => fraction,
            };
            Some(timespec { tv_sec: seconds, tv_nsec: nanoseconds })
        };
        Some([one(0)?, one(1)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;
    use linux_raw_sys::general::linux_dirent64;

    #[test]
    fn entries() {
        assert_eq!(Dirent::WIDE.name, offset_of!(linux_dirent64, d_name));
        assert_eq!(Dirent::WIDE.length, offset_of!(linux_dirent64, d_reclen));
        assert_eq!(Dirent::WIDE.size(1), 24);
        assert_eq!(Dirent::WIDE.size(4), 24);
        assert_eq!(Dirent::WIDE.size(5), 32);
        assert_eq!(Dirent::old(Arch::X86_64).size(1), 24);
        assert_eq!(Dirent::old(Arch::I386).size(1), 16);
    }

    #[test]
    fn timestamps() {
        let mut bytes = [0; 32];
        put(&mut bytes, 0, &7_u64.to_le_bytes());
        put(&mut bytes, 8, &999_999_u64.to_le_bytes());
        put(&mut bytes, 16, &(-1_i64).to_le_bytes());
        let [first, second] = Times::Microseconds.read(&bytes).unwrap();
        assert_eq!((first.tv_sec, first.tv_nsec), (7, 999_999_000));
        assert_eq!((second.tv_sec, second.tv_nsec), (-1, 0));
        for bad in [1_000_000, i64::MAX, i64::MIN, -1] {
            put(&mut bytes, 8, &bad.to_le_bytes());
            assert!(Times::Microseconds.read(&bytes).is_none());
        }
        put(&mut bytes, 0, &(-2_i32).to_le_bytes());
        assert_eq!(Times::Seconds32.read(&bytes).unwrap()[0].tv_sec, -2);
    }

    #[test]
    fn words() {
        let mut bytes = [0xff; 8];
        let (narrow, wide) = (Msghdr::of(Arch::I386), Msghdr::of(Arch::X86_64));
        narrow.put_word(&mut bytes, 0, 5);
        assert_eq!(narrow.word_at(&bytes, 0), 5);
        assert_eq!(wide.word_at(&bytes, 0), 0xffff_ffff_0000_0005);
        assert_eq!(wide.word_at(&bytes, 4), 0);
    }
}
