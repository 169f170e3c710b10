//! Notices that the guest is about to take away the right to write to an alternate stack.
//!
//! The signal that catches a call needs a stack. It uses the alternate one, because a program may
//! have one for the reason that its ordinary stacks are too small for a frame. Without the stage
//! only the guest's own signals need that stack: a program may close it while none can arrive. From
//! then on the stage's handlers run on the ordinary stack, as `signal(7)` has it without
//! `SA_ONSTACK`.
//!
//! Stacks that are unmapped without having been given up (`SS_DISABLE`) are not noticed, nor are
//! more stacks than [`STACKS`] has entries.

use super::actions;
use crate::dispatch::{CaughtCall, Ruling};
use crate::{memory, tasks};
use abi::syscalls::ARCH_X86_64;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use linux_raw_sys::general as raw;

/// The alternate stacks that threads have named last: first address, end.
static STACKS: [[AtomicU64; 2]; 64] = [const { [const { AtomicU64::new(0) }; 2] }; 64];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// What a frame and a handler of the stage need at most, from the end of a stack.
const NEEDED: u64 = 16 * 1024;

/// `sigaltstack`: remembers the stack.
pub(super) fn rule(caught: &CaughtCall<'_>) -> Ruling {
    let call = caught.call;
    let mut bytes = [0; 24];
    // The kernel reports the errors.
    if call.arch != ARCH_X86_64 || memory::read(call.arguments[0], &mut bytes).is_err() {
        return Ruling::Kernel(call);
    }
    let word = |index: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[8 * index..8 * index + 8]);
        u64::from_le_bytes(word)
    };
    let [start, flags, size] = [word(0), word(1), word(2)];
    if flags as u32 & raw::SS_DISABLE == 0
        && let Some(end) = start.checked_add(size)
        && !STACKS
            .iter()
            .any(|[first, last]| first.load(Relaxed) == start && last.load(Relaxed) == end)
    {
        let [first, last] = &STACKS[NEXT.fetch_add(1, Relaxed) % STACKS.len()];
        first.store(start, Relaxed);
        last.store(end, Relaxed);
    }
    Ruling::Kernel(call)
}

/// Before an `mprotect`: if an alternate stack loses the right to be written to, the stage's
/// handlers leave all of them.
pub(crate) fn before_protection(address: u64, length: u64, rights: u64) {
    if rights as u32 & raw::PROT_WRITE != 0 || tasks::is_vfork_child() {
        return;
    }
    let end = address.saturating_add(length);
    let is_hit = STACKS.iter().any(|[first, last]| {
        let (first, last) = (first.load(Relaxed), last.load(Relaxed));
        address < last && end > first.max(last.saturating_sub(NEEDED))
    });
    if is_hit {
        actions::leave_alternate_stacks();
    }
}
