//! Shows signals of traps that wait as their stand-ins (`masks`): `sigpending`, `sigtimedwait`.

use super::delivery::SET_ASIDE;
use super::masks::{self, STAND_IN};
use super::{bit, never_blocked, trap_signal};
use crate::dispatch::{CaughtCall, Ruling};
use crate::{entry, memory, system};
use abi::calls::Op;
use view::{After, Errno};

/// Size of the kernel's `sigset_t`, and of `siginfo_t`, in bytes.
const SET: usize = 8;
const INFORMATION: usize = 128;

/// Decides one of the two calls.
pub(super) fn rule(caught: &mut CaughtCall<'_>, op: Op) -> Ruling {
    let size = caught.call.arguments[if op == Op::RtSigpending { 1 } else { 3 }];
    // The kernel refuses other sizes, or writes less.
    if size != SET as u64 {
        return Ruling::Kernel(caught.call);
    }
    let result = if op == Op::RtSigpending { pending(caught) } else { wait(caught) };
    Ruling::Done(result.unwrap_or_else(Errno::result))
}

fn pending(caught: &CaughtCall<'_>) -> Result<i64, Errno> {
    let mut set = 0_u64;
    let arguments = [&raw mut set as u64, SET as u64, 0, 0, 0, 0];
    // SAFETY: the kernel writes one word, and `set` is one.
    unsafe { system::checked(caught.call.number, arguments)? };
    if masks::holds_trap(set) {
        set = set & !bit(STAND_IN) | never_blocked();
    }
    memory::write(caught.call.arguments[0], &set.to_le_bytes())?;
    Ok(0)
}

fn wait(caught: &mut CaughtCall<'_>) -> Result<i64, Errno> {
    let mut call = caught.call;
    let [set, information, ..] = call.arguments;
    let mut bytes = [0; SET];
    memory::read(set, &mut bytes)?;
    let wanted = u64::from_le_bytes(bytes);
    if wanted & (never_blocked() | bit(STAND_IN)) == 0 {
        // SAFETY: the guest's own call.
        return Ok(unsafe { entry::on_guest_stack(caught.frame, &call, After::Nothing) });
    }
    // The buffer belongs to this call until it returns.
    let room = &mut caught.buffers.output[..SET + INFORMATION];
    room.fill(0);
    room[..SET].copy_from_slice(&masks::kernels(wanted).to_le_bytes());
    call.arguments[0] = room.as_ptr() as u64;
    call.arguments[1] = room.as_ptr() as u64 + SET as u64;
    // SAFETY: the guest's own call, with memory of the slot for the set and the answer.
    let result = unsafe { entry::on_guest_stack(caught.frame, &call, After::Nothing) };
    if system::is_error(result) {
        return Ok(result);
    }
    let (mut shown, answer) = (result, &mut caught.buffers.output[SET..SET + INFORMATION]);
    if result == i64::from(STAND_IN) && answer[4..8] == SET_ASIDE.to_le_bytes() {
        shown = trap_signal().into();
        answer[..4].copy_from_slice(&trap_signal().to_le_bytes());
        answer[4..8].fill(0);
    }
    if information != 0 {
        memory::write(information, answer)?;
    }
    Ok(shown)
}
