//! The guest's signal actions: `rt_sigaction`, and the table of handlers that the stage's handler
//! jumps to.
//!
//! For a handler of the guest the stage installs its own, with the guest's flags, mask (without
//! `SIGSYS`) and restorer, and stores the guest's in [`TABLE`]. Four signals always have the
//! stage's handler; the guest's actions for them are only in the table. The handler in the kernel's
//! answer shows if an action is the guest's own. So children that share this memory but not the
//! kernel's table (`vfork`) need no table of their own: their actions are installed unchanged.
//!
//! A handler may run on another thread while its entry is being changed. Each word of an entry is
//! atomic, and the handler's decides.

use super::{
    FAULTS, SYS, always, bit, is_always, masks, never_blocked, stage_fault, stage_return,
    stage_signal, trap_signal,
};
use crate::dispatch::{CaughtCall, Ruling};
use crate::entry::{stage_sigill, stage_sigsys};
use crate::{memory, system, tasks};
use abi::syscalls::ARCH_X86_64;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use linux_raw_sys::general as raw;
use view::Errno;

/// The default action, and the one that ignores the signal.
pub(super) const DEFAULT: u64 = 0;
pub(super) const IGNORE: u64 = 1;

const INFORMED: u64 = raw::SA_SIGINFO as u64;
const RESTORED: u64 = raw::SA_RESTORER as u64;
const ONCE: u64 = raw::SA_RESETHAND as u64;
const ALTERNATE: u64 = raw::SA_ONSTACK as u64;
const NESTED: u64 = raw::SA_NODEFER as u64;

/// `struct kernel_sigaction`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Action {
    pub(super) handler: u64,
    pub(super) flags: u64,
    pub(super) restorer: u64,
    pub(super) mask: u64,
}

impl Action {
    const SIZE: usize = size_of::<Self>();

    fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        let word = |index: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * index..8 * index + 8]);
            u64::from_le_bytes(word)
        };
        Self { handler: word(0), flags: word(1), restorer: word(2), mask: word(3) }
    }

    fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        for (slot, word) in
            bytes.chunks_exact_mut(8).zip([self.handler, self.flags, self.restorer, self.mask])
        {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Returns true if it calls a function.
    pub(super) const fn is_handler(&self) -> bool {
        self.handler > IGNORE
    }
}

/// One entry of the table, in atomic words.
struct Entry([AtomicU64; 4]);

/// The guest's action for each signal that has the stage's handler, from signal 1 on.
static TABLE: [Entry; 64] = [const { Entry([const { AtomicU64::new(0) }; 4]) }; 64];

/// Set if a process that shares this memory has set one of the four signals that always have the
/// stage's handler; then only the kernel knows its action.
static BORROWED: AtomicBool = AtomicBool::new(false);

/// Set if the stage's handlers must not use alternate stacks.
static LEFT: AtomicBool = AtomicBool::new(false);

/// The guest's action for a signal for which the kernel has the stage's handler.
pub(super) fn guests(signal: u32) -> Action {
    let Some(entry) = TABLE.get((signal as usize).wrapping_sub(1)) else {
        return Action::default();
    };
    let [handler, flags, restorer, mask] = entry.0.each_ref().map(|word| word.load(Relaxed));
    Action { handler, flags, restorer, mask }
}

fn set_guests(signal: u32, action: Action) {
    let Some(entry) = TABLE.get((signal as usize).wrapping_sub(1)) else { return };
    let words = [action.handler, action.flags, action.restorer, action.mask];
    for (slot, word) in entry.0.iter().zip(words) {
        if slot.load(Relaxed) != word {
            slot.store(word, Relaxed);
        }
    }
}

/// Resets a handler with `SA_RESETHAND` after it was called.
pub(super) fn reset(signal: u32) {
    set_guests(signal, Action { handler: DEFAULT, ..guests(signal) });
}

fn address(of: unsafe extern "C" fn()) -> u64 {
    of as *const () as u64
}

/// The action that the kernel gets for an action of the guest.
fn made_of(signal: u32, action: Action) -> Action {
    let stack = if LEFT.load(Relaxed) { 0 } else { ALTERNATE };
    let ours = Action {
        handler: address(stage_signal),
        flags: INFORMED | RESTORED | NESTED | stack,
        restorer: address(stage_return),
        mask: 0,
    };
    if signal == trap_signal() {
        let handler = if signal == SYS { stage_sigsys } else { stage_sigill };
        return Action { handler: address(handler), mask: bit(masks::STAND_IN), ..ours };
    }
    let mask = masks::kernels(action.mask);
    if !action.is_handler() {
        return if is_always(signal) { ours } else { Action { mask, ..action } };
    }
    let flags = action.flags | INFORMED;
    // A handler that does not get its frame cannot change the mask in it.
    let plain = action.flags & (INFORMED | RESTORED) == RESTORED;
    let restorer = if plain { ours.restorer } else { action.restorer };
    if is_always(signal) {
        let restorer = if flags & RESTORED == 0 { ours.restorer } else { restorer };
        return Action { handler: ours.handler, flags: flags & !ONCE | RESTORED, restorer, mask };
    }
    Action { handler: ours.handler, flags, restorer, mask }
}

/// The action that the guest sees, from the kernel's action and the stored one.
fn shown(signal: u32, kernel: Action, known: Action) -> Action {
    if kernel.handler == address(stage_fault) {
        return Action::default();
    }
    let ours = [address(stage_signal), address(stage_sigsys), address(stage_sigill)];
    if !ours.contains(&kernel.handler) {
        return kernel;
    }
    if is_always(signal) {
        return known;
    }
    let mended = never_blocked() | bit(masks::STAND_IN);
    Action {
        handler: known.handler,
        flags: kernel.flags & !INFORMED | known.flags & INFORMED,
        restorer: known.restorer,
        mask: kernel.mask & !mended | known.mask & mended,
    }
}

/// `rt_sigaction`; returns the previous action.
fn exchange(signal: u32, new: Option<Action>) -> Result<Action, Errno> {
    let mut before = Action::default();
    let given = new.as_ref().map_or(0, |new| &raw const *new as u64);
    let arguments = [u64::from(signal), given, &raw mut before as u64, 8, 0, 0];
    // SAFETY: the kernel reads one structure and writes another, both on this stack; the handlers
    // are the guest's own, or the stage's, which expects any signal.
    unsafe { system::checked(raw::__NR_rt_sigaction, arguments) }.map(|_| before)
}

/// Decides an `rt_sigaction`.
pub(super) fn rule(caught: &mut CaughtCall<'_>) -> Ruling {
    let call = caught.call;
    let [signal, new, old, size, ..] = call.arguments;
    if call.arch != ARCH_X86_64 {
        return Ruling::Done(Errno::ENOSYS.result());
    }
    let signal = signal as u32;
    // The kernel reports the error.
    if size != 8 || !(1..=64).contains(&signal) {
        return Ruling::Kernel(call);
    }
    match act(signal, new, old) {
        Ok(()) => Ruling::Done(0),
        Err(errno) => Ruling::Done(errno.result()),
    }
}

fn act(signal: u32, new: u64, old: u64) -> Result<(), Errno> {
    let mut bytes = [0; Action::SIZE];
    let new = if new == 0 {
        None
    } else {
        memory::read(new, &mut bytes)?;
        Some(Action::from_bytes(&bytes))
    };
    let before = match new {
        None => shown(signal, exchange(signal, None)?, guests(signal)),
        Some(new) => set(signal, new)?,
    };
    if old == 0 { Ok(()) } else { memory::write(old, &before.to_bytes()) }
}

/// Does the work of `CLONE_CLEAR_SIGHAND` in the child: all handlers of the guest become the
/// default action.
pub(crate) extern "C" fn clear() {
    for signal in (1..=64).filter(|signal| guests(*signal).is_handler()) {
        // It cannot fail: there is a handler for this signal.
        let _ = set(signal, Action::default());
    }
}

fn set(signal: u32, new: Action) -> Result<Action, Errno> {
    super::masks::notice(new.mask);
    if tasks::is_vfork_child() {
        // The kernel's table is this process's own, the memory its parent's.
        let is_fault = FAULTS & bit(signal) != 0 && new.handler == DEFAULT;
        let new = if is_fault {
            // `posix_spawn` does this before it executes a name, whose memory may not be mapped.
            Action { handler: address(stage_fault), ..made_of(signal, new) }
        } else {
            Action { mask: masks::kernels(new.mask), ..new }
        };
        if is_always(signal) {
            BORROWED.store(true, Relaxed);
        }
        let before = exchange(signal, (signal != trap_signal()).then_some(new))?;
        return Ok(shown(signal, before, guests(signal)));
    }
    let known = guests(signal);
    if new.is_handler() {
        set_guests(signal, new);
    }
    let before = exchange(signal, Some(made_of(signal, new))).inspect_err(|_| {
        set_guests(signal, known);
    })?;
    set_guests(signal, Action { mask: new.mask & !UNBLOCKABLE, ..new });
    Ok(shown(signal, before, known))
}

/// `SIGKILL` and `SIGSTOP`, which the kernel removes from every mask.
const UNBLOCKABLE: u64 = bit(raw::SIGKILL) | bit(raw::SIGSTOP);

/// At the start of a program: installs the stage's handlers of the four signals, which have the
/// default action now. `ignored` (bits as in a mask) are the signals that the guest had ignored
/// before.
pub(super) fn install(ignored: u64) {
    for signal in always() {
        let handler = if ignored & bit(signal) == 0 { DEFAULT } else { IGNORE };
        let action = Action { handler, ..Action::default() };
        set_guests(signal, action);
        // It cannot fail: the signals exist.
        let _ = exchange(signal, Some(made_of(signal, action)));
    }
}

/// From now on the stage's handlers run on ordinary stacks.
pub(super) fn leave_alternate_stacks() {
    if LEFT.swap(true, Relaxed) {
        return;
    }
    for signal in always() {
        // It cannot fail: the signals exist.
        let _ = exchange(signal, Some(made_of(signal, guests(signal))));
    }
}

/// The signals of the four that the guest ignores: the kernel does not know that, and loses it at
/// an `execve`.
pub(super) fn ignored() -> u64 {
    let ignores = |signal: u32| {
        let known = guests(signal);
        if !BORROWED.load(Relaxed) {
            return known.handler == IGNORE;
        }
        exchange(signal, None).is_ok_and(|kernel| shown(signal, kernel, known).handler == IGNORE)
    };
    always()
        .into_iter()
        .filter(|signal| ignores(*signal))
        .fold(0, |mask, signal| mask | bit(signal))
}

/// Gives a signal its default action from now on: the process is about to end by it.
pub(super) fn make_default(signal: u32) {
    let _ = exchange(signal, Some(Action::default()));
}
