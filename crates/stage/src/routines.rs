//! Memory routines that the compiler calls, because no library provides them.
//!
//! They copy and compare mostly paths and small structures, so short lengths are handled with a few
//! words. The loops are assembly, because the compiler would turn loops into calls of these same
//! functions.

use core::arch::asm;
use core::ptr::{read_unaligned, write_unaligned};

/// Length in bytes from which on one string instruction is faster than words.
const LONG: usize = 256;

/// Copies up to 32 bytes. All are read before the first is written, so regions may overlap.
///
/// # Safety
///
/// As for `memmove`, with `length` at most 32.
#[inline]
unsafe fn copy_short(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: the caller owns both regions for `length` bytes; each pair of accesses covers exactly
    // the first and the last bytes of them.
    unsafe {
        if length >= 16 {
            let first = read_unaligned(from.cast::<u128>());
            let last = read_unaligned(from.add(length - 16).cast::<u128>());
            write_unaligned(to.cast(), first);
            write_unaligned(to.add(length - 16).cast(), last);
        } else if length >= 8 {
            let first = read_unaligned(from.cast::<u64>());
            let last = read_unaligned(from.add(length - 8).cast::<u64>());
            write_unaligned(to.cast(), first);
            write_unaligned(to.add(length - 8).cast(), last);
        } else if length >= 4 {
            let first = read_unaligned(from.cast::<u32>());
            let last = read_unaligned(from.add(length - 4).cast::<u32>());
            write_unaligned(to.cast(), first);
            write_unaligned(to.add(length - 4).cast(), last);
        } else if length != 0 {
            let (first, middle, last) = (*from, *from.add(length / 2), *from.add(length - 1));
            *to = first;
            *to.add(length / 2) = middle;
            *to.add(length - 1) = last;
        }
    }
}

/// memcpy(3).
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller owns both regions for `length` bytes; the direction flag is clear in every
    // Rust function. The loop of 16 bytes ends at most 15 bytes before the end, which the last 16
    // cover.
    unsafe {
        if length <= 32 {
            copy_short(to, from, length);
        } else if length < LONG {
            asm!(
                "2:",
                "movups {vector}, [{from} + {at}]",
                "movups [{to} + {at}], {vector}",
                "add {at}, 16",
                "cmp {at}, {end}",
                "jb 2b",
                "movups {vector}, [{from} + {end}]",
                "movups [{to} + {end}], {vector}",
                vector = out(xmm_reg) _,
                from = in(reg) from,
                to = in(reg) to,
                at = inout(reg) 0_usize => _,
                end = in(reg) length - 16,
                options(nostack),
            );
        } else {
            asm!(
                "rep movsb",
                inout("rcx") length => _,
                inout("rdi") to => _,
                inout("rsi") from => _,
                options(nostack, preserves_flags),
            );
        }
    }
    to
}

/// memmove(3).
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    // SAFETY: as for `memcpy`. Copies from the front if the target does not begin within the
    // source, else from the back, and clears the direction flag again.
    unsafe {
        if length <= 32 {
            copy_short(to, from, length);
        } else if (to as usize).wrapping_sub(from as usize) >= length {
            asm!(
                "rep movsb",
                inout("rcx") length => _,
                inout("rdi") to => _,
                inout("rsi") from => _,
                options(nostack, preserves_flags),
            );
        } else {
            asm!(
                "std",
                "rep movsb",
                "cld",
                inout("rcx") length => _,
                inout("rdi") to.add(length - 1) => _,
                inout("rsi") from.add(length - 1) => _,
                options(nostack),
            );
        }
    }
    to
}

/// memset(3).
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, length: usize) -> *mut u8 {
    let word = u64::from(byte as u8) * 0x0101_0101_0101_0101;
    // SAFETY: the caller owns the region for `length` bytes; short lengths are covered from both
    // ends.
    unsafe {
        if length > 32 {
            asm!(
                "rep stosb",
                inout("rcx") length => _,
                inout("rdi") to => _,
                in("al") byte as u8,
                options(nostack, preserves_flags),
            );
        } else if length >= 16 {
            write_unaligned(to.cast(), word);
            write_unaligned(to.add(8).cast(), word);
            write_unaligned(to.add(length - 16).cast(), word);
            write_unaligned(to.add(length - 8).cast(), word);
        } else if length >= 8 {
            write_unaligned(to.cast(), word);
            write_unaligned(to.add(length - 8).cast(), word);
        } else if length >= 4 {
            write_unaligned(to.cast(), word as u32);
            write_unaligned(to.add(length - 4).cast(), word as u32);
        } else if length != 0 {
            *to = byte as u8;
            *to.add(length / 2) = byte as u8;
            *to.add(length - 1) = byte as u8;
        }
    }
    to
}

/// memcmp(3).
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, length: usize) -> i32 {
    let mut index = 0;
    // SAFETY: the caller owns both regions for `length` bytes, and no access goes beyond.
    unsafe {
        while index + 8 <= length {
            let left = read_unaligned(one.add(index).cast::<u64>());
            let right = read_unaligned(other.add(index).cast::<u64>());
            if left != right {
                return if left.swap_bytes() < right.swap_bytes() { -1 } else { 1 };
            }
            index += 8;
        }
        while index < length {
            let (left, right) = (*one.add(index), *other.add(index));
            if left != right {
                return i32::from(left) - i32::from(right);
            }
            index += 1;
        }
    }
    0
}

/// bcmp(3).
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, length: usize) -> i32 {
    // SAFETY: the caller owns both regions for `length` bytes, as `memcmp` requires.
    unsafe { memcmp(one, other, length) }
}

/// strlen(3).
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut length: usize = 0;
    // SAFETY: reads one byte at a time up to the NUL, which the caller guarantees.
    unsafe {
        asm!(
            "2:",
            "cmp byte ptr [{text} + {length}], 0",
            "je 3f",
            "inc {length}",
            "jmp 2b",
            "3:",
            text = in(reg) text,
            length = inout(reg) length,
            options(nostack, readonly),
        );
    }
    length
}
