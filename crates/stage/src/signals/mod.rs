//! Handles the guest's signals: its handlers and masks, as far as the stage has to intervene.
//!
//! **Every handler that the kernel knows is the stage's** if the guest has one (not `SIG_DFL`, not
//! `SIG_IGN`), with the guest's own flags, mask and restorer. The guest's handler is in a table
//! (`actions`), and the stage's jumps to it with the same frame and registers (`delivery`). So:
//!
//! - `SIGSYS` of the container's filter goes to `entry`; the guest's own goes to its handler.
//! - `SIGSEGV` and `SIGBUS` in `memory`'s copy routines become `EFAULT`.
//! - A signal is **deferred** if it arrives while the interrupted stack pointer lies in a slot's
//!   stack (the stage is working). Its `siginfo_t` is kept in the slot's [`crate::slots::Head`],
//!   all signals are blocked in the interrupted context, and the call goes on. At the end of the
//!   call, or before it blocks ([`crate::entry::on_guest_stack`]), the signal is queued again
//!   (`rt_tgsigqueueinfo`) and the mask restored, with the guest's stack pointer in place. So no
//!   handler ever runs on a slot's stack, and a handler that leaves by `siglongjmp` never leaves
//!   the stage's work half done. Calls that block do so on the guest's stack, where handlers run at
//!   once.
//! - `SIGSYS` is in no mask that the kernel gets; another signal stands for it there, and one that
//!   the guest blocks waits as that signal (`masks`). A handler may write it into its
//!   `ucontext_t`. So a handler that gets one (`SA_SIGINFO`) ends in a call that is caught, and its
//!   mask is checked before the kernel takes it ([`before_return`]). Other handlers end within the
//!   stage, by the same instructions: unwinders recognise a signal's frame by them.
//!
//! `SIGSEGV` and `SIGBUS` stay in the guest's masks. If they may be blocked, a fault would end the
//! process; then memory is tested before it is accessed (`memory`).

mod actions;
mod alternate;
pub(crate) mod context;
mod delivery;
mod masks;
mod waiting;

pub(crate) use actions::clear;
pub(crate) use alternate::before_protection;
pub(crate) use delivery::{
    before_return, deliver, exchange_mask, hold, hold_back, stage_fault, stage_return, stage_signal,
};
pub(crate) use masks::admits_faults;

use crate::dispatch::{CaughtCall, Ruling};
use abi::calls::Op;
use abi::syscalls::{ARCH_I386, ARCH_X86_64};
use linux_raw_sys::general as raw;
use view::Errno;

const SYS: u32 = raw::SIGSYS;
const SEGV: u32 = raw::SIGSEGV;
const BUS: u32 = raw::SIGBUS;

/// The signal by which calls are caught: that of the filter, or of the instruction that replaces
/// `syscall` (modes F).
pub(crate) fn trap_signal() -> u32 {
    if crate::shared::is_mode_f() { raw::SIGILL } else { SYS }
}

/// Signals that the kernel must always be able to deliver.
fn never_blocked() -> u64 {
    bit(trap_signal())
}
/// Signals of bad accesses to memory.
const FAULTS: u64 = bit(SEGV) | bit(BUS);
/// The signals that always have the stage's handler.
fn always() -> [u32; 4] {
    [trap_signal(), masks::STAND_IN, SEGV, BUS]
}
fn is_always(signal: u32) -> bool {
    always().contains(&signal)
}
/// Signals that are caused by the thread itself.
const SYNCHRONOUS: u64 =
    FAULTS | bit(SYS) | bit(raw::SIGILL) | bit(raw::SIGTRAP) | bit(raw::SIGFPE);

/// The bit of a signal in a mask.
const fn bit(signal: u32) -> u64 {
    1 << ((signal.wrapping_sub(1)) & 63)
}

/// Rules for calls about signals. [`Ruling::View`] for all other calls.
pub(crate) fn rule(caught: &mut CaughtCall<'_>, op: Op) -> Ruling {
    match op {
        Op::RtSigaction => actions::rule(caught),
        Op::Sigaltstack => alternate::rule(caught),
        Op::RtSigpending | Op::RtSigtimedwait if caught.call.arch == ARCH_X86_64 => {
            waiting::rule(caught, op)
        }
        Op::Sigaction | Op::Signal if caught.call.arch == ARCH_I386 => {
            Ruling::Done(Errno::ENOSYS.result())
        }
        _ => masks::rule(caught, op).unwrap_or(Ruling::View),
    }
}

/// Installs the handlers that the stage needs, at the start of a program. (`execve` has reset all
/// others to the default.) `ignored` is the result of [`ignored`] in the previous program.
pub(crate) fn install(ignored: u64) {
    actions::install(ignored);
}

/// Unblocks the signals that must not be blocked: the process that starts a container may have
/// blocked them.
pub(crate) fn unblock() {
    let mask = never_blocked();
    let arguments = [u64::from(raw::SIG_UNBLOCK), &raw const mask as u64, 0, 8, 0, 0];
    // SAFETY: the kernel reads the mask, one word on this stack.
    unsafe { crate::system::call(raw::__NR_rt_sigprocmask, arguments) };
    if !admits_faults() {
        crate::memory::be_careful();
    }
}

/// The signals, as a mask, that always have the stage's handler and that the guest ignores: the
/// next program has to know them.
pub(crate) fn ignored() -> u64 {
    actions::ignored()
}
