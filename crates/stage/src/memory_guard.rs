//! Protects the stage's own memory from calls of the guest.
//!
//! A program that cleans up its address space, or uses fixed addresses, does not know of the
//! mappings at [`abi::boot::LOADER_START`]. To it nothing is mapped there: its calls have no effect
//! there, and it gets no mapping there. Only calls that name an address near the range, or a length
//! of 4 GiB and more, are caught at all.
//!
//! If the kernel does not allow another place for it (`PR_SET_MM_MAP`), the guest's heap lies
//! behind the stage's image ([`lend_heap`]): that part of the range is the guest's.

use crate::dispatch::{CaughtCall, Ruling};
use crate::{signals, system};
use abi::boot::{RANGE, SHARED, SLOTS, SPARE, STUBS};
use abi::calls::Op;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use linux_raw_sys::general as raw;
use view::{Call, Errno};

/// End of a process's address space.
const TASK_SIZE: u64 = 0x7fff_ffff_f000;

/// Start of the guest's heap, if it lies in the range, and the limit of its growth; else 0.
static HEAP: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Finds the heap: the kernel has put it behind the image of the stage, at random within the next
/// GiB. It may grow up to the next mapping of the stage.
pub(crate) fn lend_heap() {
    // SAFETY: nothing uses the heap yet; an end that the heap cannot have changes nothing.
    let end = |at: u64| unsafe { system::call(raw::__NR_brk, [at, 0, 0, 0, 0, 0]) } as u64;
    let heap = end(0);
    let more = heap + abi::elf::PAGE;
    if !overlaps(heap, 1) || end(more) != more {
        return;
    }
    end(heap);
    let ends = [SHARED, SLOTS, STUBS, SPARE, RANGE].map(|offset| system::base() + offset);
    let Some(most) = ends.into_iter().find(|end| heap < *end) else { return };
    // If the stage has no mapping there yet, one is made: the kernel stops the heap only before a
    // mapping.
    let _ = system::map(system::Place::Free(most), abi::elf::PAGE, 0, None);
    HEAP[1].store(most, Relaxed);
    HEAP[0].store(heap, Relaxed);
}

/// Returns true if memory that the stage might use is, in part, lent to the guest as its heap.
pub(crate) fn is_lent(address: u64, length: u64) -> bool {
    let [heap, most] = HEAP.each_ref().map(|word| word.load(Relaxed));
    heap != 0 && address < most && heap < address + length
}

/// Rules for `mmap`, `munmap`, `mprotect`, `mremap`, `madvise`... that name the stage's range.
pub(crate) fn rule(caught: &mut CaughtCall<'_>, op: Op) -> Ruling {
    let call = caught.call;
    let [address, length, third, flags, new, _] = call.arguments;
    if op == Op::Shmat {
        // The length is the segment's, but only the start counts: the range is far from all other
        // mappings.
        return if overlaps(length, 1) { refuse(Errno::EINVAL) } else { Ruling::Kernel(call) };
    }
    if matches!(op, Op::Mprotect | Op::PkeyMprotect) {
        signals::before_protection(address, length, third);
    }
    let hit = overlaps(address, length);
    match op {
        Op::Mremap => {
            let fixed = flags as u32 & raw::MREMAP_FIXED != 0;
            if hit {
                return refuse(Errno::EFAULT);
            }
            if fixed && overlaps(new, third) {
                return refuse(Errno::EINVAL);
            }
            Ruling::Kernel(call)
        }
        _ if !hit => Ruling::Kernel(call),
        Op::Mmap => match flags as u32 {
            flags if flags & raw::MAP_FIXED_NOREPLACE == raw::MAP_FIXED_NOREPLACE => {
                refuse(Errno::EEXIST)
            }
            flags if flags & raw::MAP_FIXED != 0 => refuse(Errno::ENOMEM),
            // The address is only a hint.
            _ => Ruling::Kernel(without_address(call)),
        },
        Op::Munmap => around(&call, None),
        Op::Madvise => around(&call, Some(Errno::ENOMEM)),
        Op::RemapFilePages => refuse(Errno::EINVAL),
        _ => refuse(Errno::ENOMEM),
    }
}

fn refuse(errno: Errno) -> Ruling {
    Ruling::Done(errno.result())
}

fn without_address(mut call: Call) -> Call {
    call.arguments[0] = 0;
    call
}

/// Returns true if memory belongs, in part, to the stage. Ranges that the kernel would refuse
/// anyway do not count.
fn overlaps(address: u64, length: u64) -> bool {
    let start = system::base();
    let Some(end) = address.checked_add(length) else { return false };
    let [heap, most] = HEAP.each_ref().map(|word| word.load(Relaxed));
    if heap != 0 && address >= heap && end <= most {
        return false;
    }
    length != 0 && end <= TASK_SIZE && address < start + RANGE && end > start
}

/// Makes a call for the memory before and behind the stage's. `holes`: the call's error for memory
/// where nothing is mapped.
fn around(call: &Call, holes: Option<Errno>) -> Ruling {
    let [address, length, third, ..] = call.arguments;
    if !address.is_multiple_of(abi::elf::PAGE) {
        return refuse(Errno::EINVAL);
    }
    let end = (address + length).next_multiple_of(abi::elf::PAGE);
    let start = system::base();
    let pieces = [(address, start.min(end)), ((start + RANGE).max(address), end)];
    for (from, to) in pieces {
        if from < to {
            let arguments = [from, to - from, third, 0, 0, 0];
            // SAFETY: the guest's own call, on memory that does not belong to the stage.
            let result = unsafe { system::call(call.number, arguments) };
            if system::is_error(result) && Some(Errno(result.unsigned_abs() as u16)) != holes {
                return Ruling::Done(result);
            }
        }
    }
    holes.map_or(Ruling::Done(0), refuse)
}
