//! The guest's signals: its handlers and masks, as far as the stage has to stand between.
//!
//! **Every handler that the kernel knows is ours** where the guest has one (not `SIG_DFL`, not `SIG_IGN`), with the guest's own flags, mask and
//! restorer; the guest's handler stands in a table (`actions`), and ours goes on to it by a jump with the same frame and registers
//! (`delivery`). So:
//!
//! - `SIGSYS` of our filter comes to `entry`; the guest's own goes on.
//! - `SIGSEGV` and `SIGBUS` in `memory`'s copy routines become `EFAULT`.
//! - A signal that arrives while the interrupted stack pointer lies in a slot's stack (the stage is at work) is **deferred**: its
//!   `siginfo_t` is kept in the slot's [`crate::slots::Head`], all signals are blocked in the interrupted context, and the call goes on. At its end,
//!   or before it blocks ([`crate::entry::on_guest_stack`]), the signal is queued again (`rt_tgsigqueueinfo`) and the mask restored, with
//!   the guest's stack pointer in place. So no handler ever runs on a slot's stack, and none that leaves by `siglongjmp` leaves the stage's
//!   work half done. Calls that block do so on the guest's stack, where handlers run at once.
//! - `SIGSYS` is in no mask that the kernel is given (`masks`). Nor in one that a handler writes into its `ucontext_t` by hand: a handler that is
//!   given one (`SA_SIGINFO`) ends in a call that is caught, and its mask is looked at before the kernel takes it ([`before_return`]). Others end
//!   within the stage, at the same instructions: unwinders know a signal's frame by them.
//!
//! `SIGSEGV` and `SIGBUS` stay in the guest's masks. Where they may be blocked, a fault would end the process; then memory is tried before it is
//! touched (`memory`).

mod actions;
pub(crate) mod context;
mod delivery;
mod masks;

pub(crate) use actions::clear;
pub(crate) use delivery::{
    before_return, deliver, exchange_mask, hold, hold_back, stage_fault, stage_return, stage_signal,
};
pub(crate) use masks::admits_faults;

use crate::dispatch::{Road, Visit};
use abi::calls::Op;
use abi::syscalls::ARCH_I386;
use linux_raw_sys::general as raw;
use view::Errno;

const SYS: u32 = raw::SIGSYS;
const SEGV: u32 = raw::SIGSEGV;
const BUS: u32 = raw::SIGBUS;

/// The signal by which calls come: of the filter, or of the instruction that has taken the place of `syscall` (modes F).
fn own() -> u32 {
    if crate::shared::has_texts() { raw::SIGILL } else { SYS }
}

/// What the kernel must always be able to deliver.
fn never_blocked() -> u64 {
    bit(own())
}
/// Signals of bad accesses to memory.
const FAULTS: u64 = bit(SEGV) | bit(BUS);
/// Signals that come of what the thread itself does.
const SYNCHRONOUS: u64 =
    FAULTS | bit(SYS) | bit(raw::SIGILL) | bit(raw::SIGTRAP) | bit(raw::SIGFPE);

/// A signal in a mask.
const fn bit(signal: u32) -> u64 {
    1 << ((signal.wrapping_sub(1)) & 63)
}

/// Rules for calls about signals. [`Road::View`] for what is none of this module's business.
pub(crate) fn rule(visit: &mut Visit<'_>, op: Op) -> Road {
    match op {
        Op::RtSigaction => actions::rule(visit),
        Op::Sigaction | Op::Signal if visit.call.arch == ARCH_I386 => {
            Road::Done(Errno::ENOSYS.result())
        }
        _ => masks::rule(visit, op).unwrap_or(Road::View),
    }
}

/// Installs the handlers that the stage needs, at the start of a program. (`execve` has reset all others to the default.) `ignored`: what
/// [`ignored`] said before.
pub(crate) fn install(ignored: u64) {
    actions::install(ignored);
}

/// Unblocks what must not be blocked: who starts a container may have blocked it.
pub(crate) fn unblock() {
    let mask = never_blocked();
    let arguments = [u64::from(raw::SIG_UNBLOCK), &raw const mask as u64, 0, 8, 0, 0];
    // SAFETY: the kernel reads the mask.
    unsafe { crate::system::call(raw::__NR_rt_sigprocmask, arguments) };
    if !admits_faults() {
        crate::memory::be_careful();
    }
}

/// Which of the signals whose handlers are always ours the guest ignores, as a mask: what the next program has to be told.
pub(crate) fn ignored() -> u64 {
    actions::ignored()
}
