//! Keeps `SIGSYS` (in modes F `SIGILL`) out of the signal masks that the guest gives the kernel: a
//! trap whose signal is blocked kills the process.
//!
//! In such a mask `SIGSTKFLT` stands for it ([`STAND_IN`]): nothing raises that since the 387. So
//! the kernel keeps for each thread whether the guest blocks the signal, over handlers, new threads
//! and `execve`. One that arrives while it is blocked is queued again as the stand-in, with a mark,
//! and waits in the kernel until the guest unblocks it (`delivery`) or asks for it (`waiting`). A
//! guest sees that who blocks one of the two has blocked both, and `signalfd` knows only the
//! stand-in.
//!
//! Masks that block the signals of bad accesses are noticed ([`notice`]).

use super::{FAULTS, bit, never_blocked};
use crate::dispatch::{CaughtCall, Ruling};
use crate::{memory, system};
use abi::calls::Op;
use abi::syscalls::ARCH_X86_64;
use linux_raw_sys::general as raw;
use view::Errno;

/// Stands for the signal of traps in the kernel's masks.
pub(super) const STAND_IN: u32 = raw::SIGSTKFLT;

/// The mask that the kernel gets for one of the guest.
pub(super) fn kernels(mask: u64) -> u64 {
    let trap = never_blocked();
    if mask & trap == 0 { mask } else { mask & !trap | bit(STAND_IN) }
}

/// Returns true if the guest blocks the signal of traps, by the kernel's mask.
pub(super) const fn holds_trap(mask: u64) -> bool {
    mask & bit(STAND_IN) != 0
}

/// Size of the kernel's `sigset_t` in bytes.
const SET: u64 = 8;

/// Where a call has its mask.
enum Given {
    /// The argument at the first index points to it, the one at the second is its size.
    Directly(usize, usize),
    /// The argument points to a pair of pointer and size.
    Packed(usize),
}

/// Decides a call with a mask; `None` for other calls.
pub(super) fn rule(caught: &mut CaughtCall<'_>, op: Op) -> Option<Ruling> {
    let given = match op {
        Op::RtSigprocmask => Given::Directly(1, 3),
        Op::RtSigsuspend => Given::Directly(0, 1),
        Op::Ppoll => Given::Directly(3, 4),
        Op::EpollPwait | Op::EpollPwait2 => Given::Directly(4, 5),
        Op::Pselect6 | Op::IoPgetevents => Given::Packed(5),
        Op::Sigprocmask
        | Op::Sigsuspend
        | Op::Ssetmask
        | Op::PpollTime64
        | Op::Pselect6Time64
        | Op::IoPgeteventsTime64 => return Some(Ruling::Done(Errno::ENOSYS.result())),
        _ => return None,
    };
    if caught.call.arch != ARCH_X86_64 {
        return Some(Ruling::Done(Errno::ENOSYS.result()));
    }
    let shown = if op == Op::RtSigprocmask { show_previous(caught) } else { Ok(()) };
    Some(match shown.and_then(|()| without(caught, &given)) {
        Ok(ruling) => ruling,
        Err(errno) => Ruling::Done(errno.result()),
    })
}

/// A mask is about to be used, or may be used later: if a thread blocks the signals of bad
/// accesses, memory has to be tested from now on.
pub(super) fn notice(mask: u64) {
    if mask & FAULTS != 0 {
        memory::be_careful();
    }
}

/// Returns true if the calling thread blocks neither of the two signals.
pub(crate) fn admits_faults() -> bool {
    current() & FAULTS == 0
}

/// The calling thread's mask, as the kernel has it.
fn current() -> u64 {
    let mut mask = 0_u64;
    let arguments = [u64::from(raw::SIG_BLOCK), 0, &raw mut mask as u64, 8, 0, 0];
    // SAFETY: the kernel writes one word, and `mask` is one.
    unsafe { system::call(raw::__NR_rt_sigprocmask, arguments) };
    mask
}

/// Answers the question of an `rt_sigprocmask` for the previous mask, if the kernel's answer would
/// have the stand-in. What remains of the call is in `caught`.
fn show_previous(caught: &mut CaughtCall<'_>) -> Result<(), Errno> {
    let [how, new, old, size, ..] = caught.call.arguments;
    let is_refused = new != 0 && how as u32 > raw::SIG_SETMASK;
    if old == 0 || size != SET || is_refused {
        return Ok(());
    }
    let mask = current();
    if !holds_trap(mask) {
        return Ok(());
    }
    // The two masks may be in the same place.
    if new != 0 {
        let mut bytes = [0; SET as usize];
        memory::read(new, &mut bytes)?;
        caught.buffers.output[..SET as usize].copy_from_slice(&bytes);
        caught.call.arguments[1] = caught.buffers.output.as_ptr() as u64;
    }
    memory::write(old, &(mask | never_blocked()).to_le_bytes())?;
    caught.call.arguments[2] = 0;
    Ok(())
}

/// The same call without the signals that must not be blocked. Calls that the kernel refuses
/// (another size, a bad pointer) are passed to it.
fn without(caught: &mut CaughtCall<'_>, given: &Given) -> Result<Ruling, Errno> {
    let mut call = caught.call;
    let [at, size] = match *given {
        Given::Directly(at, size) => [call.arguments[at], call.arguments[size]],
        Given::Packed(at) => {
            let mut packed = [[0; 8]; 2];
            memory::read(call.arguments[at], packed.as_flattened_mut())?;
            packed.map(u64::from_le_bytes)
        }
    };
    let mut bytes = [0; SET as usize];
    if at == 0 || size != SET {
        return Ok(Ruling::Kernel(call));
    }
    memory::read(at, &mut bytes)?;
    let mask = u64::from_le_bytes(bytes);
    notice(mask);
    if mask & never_blocked() == 0 {
        return Ok(Ruling::Kernel(call));
    }
    // The buffer belongs to this call until it returns; calls of signal handlers have slots of
    // their own.
    let room = &mut caught.buffers.output[..24];
    let there = room.as_ptr() as u64;
    room[..8].copy_from_slice(&kernels(mask).to_le_bytes());
    match *given {
        Given::Directly(index, _) => call.arguments[index] = there,
        Given::Packed(index) => {
            room[8..16].copy_from_slice(&there.to_le_bytes());
            room[16..24].copy_from_slice(&SET.to_le_bytes());
            call.arguments[index] = there + 8;
        }
    }
    Ok(Ruling::Kernel(call))
}
