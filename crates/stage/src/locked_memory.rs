//! `mlockall` within a limit that the program's memory does not reach, but the stage's does.
//!
//! The kernel compares the size of the whole address space with `RLIMIT_MEMLOCK`. Where that is too
//! large because of the stage, the program's mappings are locked one by one. Memory that the stage
//! maps after `MCL_FUTURE` counts, as any other.

use crate::dispatch::{CaughtCall, Ruling};
use crate::rewrite::mapping;
use crate::system;
use abi::boot::RANGE;
use abi::syscalls::ARCH_X86_64;
use linux_raw_sys::general as raw;
use view::Errno;

/// Decides an `mlockall` with `MCL_CURRENT`.
pub(crate) fn rule(caught: &CaughtCall<'_>) -> Ruling {
    let call = caught.call;
    if call.arch != ARCH_X86_64 {
        return Ruling::Kernel(call);
    }
    // SAFETY: locking changes no contents of memory.
    let result = unsafe { system::call(call.number, call.arguments) };
    if result != Errno::ENOMEM.result() || !is_within_limit() {
        return Ruling::Done(result);
    }
    let flags = call.arguments[0] as u32;
    let later = flags & !raw::MCL_CURRENT;
    // What was asked for before about memory to come is replaced.
    let (number, later) = if flags & raw::MCL_FUTURE == 0 {
        (raw::__NR_munlockall, 0)
    } else {
        (raw::__NR_mlockall, later)
    };
    // SAFETY: as above.
    unsafe { system::call(number, [u64::from(later), 0, 0, 0, 0, 0]) };
    let how = if flags & raw::MCL_ONFAULT == 0 { 0 } else { raw::MLOCK_ONFAULT };
    each_of_guest(|start, end| {
        // Memory that cannot be locked is passed over, as by the kernel.
        // SAFETY: as above.
        unsafe { system::call(raw::__NR_mlock2, [start, end - start, how.into(), 0, 0, 0]) };
    });
    Ruling::Done(0)
}

/// Returns true if the guest's mappings are not larger than the limit.
fn is_within_limit() -> bool {
    let mut limit = [0_u64; 2];
    let arguments = [0, u64::from(raw::RLIMIT_MEMLOCK), 0, limit.as_mut_ptr() as u64, 0, 0];
    // SAFETY: the kernel writes `struct rlimit64`, two words, to this stack.
    if unsafe { system::call(raw::__NR_prlimit64, arguments) } != 0 {
        return false;
    }
    let mut size = 0;
    each_of_guest(|start, end| size += end - start) && size <= limit[0]
}

/// Passes the mappings outside of the stage's range, and of the kernel's.
fn each_of_guest(mut visit: impl FnMut(u64, u64)) -> bool {
    let base = system::base();
    mapping::each(|start, end| {
        if start < 1 << 47 && !(base..base + RANGE).contains(&start) {
            visit(start, end);
        }
    })
}
