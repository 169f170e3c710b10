//! Handles arriving signals: the handler that the kernel calls, and the decision where it
//! continues.

use super::actions::{self, IGNORE};
use super::context::{Context, Information};
use super::masks::{self, STAND_IN};
use super::{FAULTS, SYNCHRONOUS, SYS, bit, is_always, never_blocked, trap_signal};
use crate::frame::Frame;
use crate::{entry, memory, slots, system, tasks};
use core::arch::global_asm;
use linux_raw_sys::general as raw;

// The guest's handler gets the arguments that the kernel passed: three arguments, the stack
// pointer, the callee-saved registers. If there is no handler to jump to, the frame is left as
// `sigreturn` expects it.
global_asm!(
    ".globl stage_signal",
    ".p2align 4",
    "stage_signal:",
    "push rdi",
    "push rsi",
    "push rdx",
    "call {decide}",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "mov r11, rax",
    "xor eax, eax",
    "test r11, r11",
    "jz 2f",
    "jmp r11",
    "2:",
    "add rsp, 8",
    ".globl stage_return",
    "stage_return:",
    // mov rax, 15; syscall: as libraries have it, because unwinders and debuggers look for these
    // bytes.
    ".byte 0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05",
    ".globl stage_fault",
    ".p2align 4",
    "stage_fault:",
    "sub rsp, 24",
    "call {decide_fault}",
    "add rsp, 32",
    "jmp stage_return",
    decide = sym decide,
    decide_fault = sym decide_fault,
);

unsafe extern "C" {
    /// The handler of every signal that the guest handles, and of the four that always have the
    /// stage's handler.
    pub(crate) fn stage_signal();
    /// The handler of `SIGSEGV` and `SIGBUS` in a child of `vfork` that wants the default action,
    /// whatever its parent wants.
    pub(crate) fn stage_fault();
    /// The end of a handler of the stage: `rt_sigreturn`.
    pub(crate) fn stage_return();
}

/// Decides where the handler continues: at the guest's function, or 0 to return from the signal.
///
/// It runs on the guest's stack or its alternate one, with little space.
unsafe extern "C" fn decide(
    signal: u32,
    information: *mut Information,
    context: *mut Context,
) -> u64 {
    // SAFETY: the kernel's arguments to a handler with SA_SIGINFO, which live until the handler
    // returns, on this thread's stack.
    let (information, context) = unsafe { (&mut *information, &mut *context) };
    // Otherwise a process has sent it.
    let fault = information.code > 0;
    if fault
        && FAULTS & bit(signal) != 0
        && let Some(mended) = memory::fixup(context.registers.rip)
    {
        context.registers.rip = mended;
        return 0;
    }
    let is_trap = signal == trap_signal();
    let in_slot = slots::contain(context.registers.rsp);
    let is_back = is_trap && information.data == BROUGHT_BACK;
    if is_back {
        information.data = 0;
    }
    if is_trap && !fault && (in_slot || !is_back && masks::holds_trap(context.mask)) {
        set_aside(information);
        return 0;
    }
    if in_slot && !(fault && SYNCHRONOUS & bit(signal) != 0) {
        defer(signal, information, context);
        return 0;
    }
    if signal == STAND_IN && information.data == SET_ASIDE {
        bring_back(information);
        return 0;
    }
    let mut action = actions::guests(signal);
    if is_trap && fault && masks::holds_trap(context.mask) && !is_of_a_stage(&action) {
        // A fault whose signal is blocked ends the process.
        action = actions::Action::default();
    }
    if action.is_handler() {
        entry::hide_stage(context);
        if tasks::SETXID_SIGNALS.contains(&signal) {
            tasks::note_setxid();
        }
        hand_over(signal, &action, context.mask);
        spare_stack(context);
        return action.handler;
    }
    if fault && SYNCHRONOUS & bit(signal) != 0 && signal != SYS {
        // The fault occurs again, and the kernel ends the process as it would have without the
        // stage.
        actions::make_default(signal);
    } else if action.handler != IGNORE || fault {
        actions::make_default(signal);
        send_again(signal, &raw const *information as u64);
    }
    0
}

/// As [`decide`], with the default action: pointers of the guest may be bad, and everything else
/// ends the process.
unsafe extern "C" fn decide_fault(
    signal: u32,
    information: *const Information,
    context: *mut Context,
) {
    // SAFETY: the kernel's arguments to a handler with SA_SIGINFO, which live until the handler
    // returns, on this thread's stack.
    let (information, context) = unsafe { (&*information, &mut *context) };
    let fault = information.code > 0;
    if fault && let Some(mended) = memory::fixup(context.registers.rip) {
        context.registers.rip = mended;
        return;
    }
    actions::make_default(signal);
    if !fault {
        send_again(signal, &raw const *information as u64);
    }
}

/// Saves space on a small alternate stack. The signal by which the end of a handler is caught needs
/// as much of the stack as this one. If an alternate stack does not have that, the handler ends
/// within the stage, and its mask is not checked.
fn spare_stack(context: &mut Context) {
    /// The red zone, and the needs of the `SIGSYS` handler.
    const MORE: u64 = 1024;
    let [start, _, size] = context.alternate;
    let frame = (&raw const *context as u64) - 8;
    let left = frame.wrapping_sub(start);
    if left < size && left < size - left + MORE {
        // SAFETY: the word before the context is the address to which the handler returns; the
        // kernel has written both on this stack.
        unsafe { *(frame as *mut u64) = stage_return as *const () as u64 };
    }
}

/// Removes `SIGSYS` from the mask of a handler's frame that is about to be restored. Returns the
/// stack pointer with that frame, for the stage's own end of handlers. Called in the handler of
/// `SIGSYS`, which has interrupted the guest's `rt_sigreturn`.
pub(crate) fn before_return(registers: &super::context::Registers) -> u64 {
    let at = registers.rsp + core::mem::offset_of!(Context, mask) as u64;
    let mut bytes = [0; 8];
    if memory::read(at, &mut bytes).is_ok() {
        let mask = u64::from_le_bytes(bytes);
        super::masks::notice(mask);
        if mask & never_blocked() != 0 {
            let _ = memory::write(at, &masks::kernels(mask).to_le_bytes());
        }
    }
    registers.rsp
}

/// In `si_errno` of a stand-in: it is the signal of traps, which the guest blocks.
pub(super) const SET_ASIDE: i32 = 0x5359_5354;
/// The same of a signal of traps that has waited as its stand-in. It must not wait again: a mask
/// that was set only for a call (`sigsuspend`) does not hold any more.
const BROUGHT_BACK: i32 = 0x5359_5355;

/// Whether the guest's handler of traps is that of a stage inside: it never blocks the signal, and
/// has the same stand-in for a guest of its own that does.
fn is_of_a_stage(action: &actions::Action) -> bool {
    action.mask == bit(STAND_IN)
}

/// Queues a signal of traps as its stand-in, which waits until it is unblocked. (The stand-in is
/// blocked in the handler of traps.)
fn set_aside(information: &Information) {
    // SAFETY: `siginfo_t` has 128 bytes, which the kernel has written.
    let mut copy = unsafe { (&raw const *information).cast::<[u32; 32]>().read() };
    copy[1] = SET_ASIDE as u32;
    send_again(STAND_IN, copy.as_ptr() as u64);
}

/// Queues the signal of traps for which a stand-in has waited. It arrives when the stand-in's
/// handler returns. Until then it is blocked; the stage has no traps.
fn bring_back(information: &Information) {
    // SAFETY: as in `set_aside`.
    let mut copy = unsafe { (&raw const *information).cast::<[u32; 32]>().read() };
    copy[1] = BROUGHT_BACK as u32;
    change_mask(raw::SIG_BLOCK, bit(trap_signal()));
    send_again(trap_signal(), copy.as_ptr() as u64);
}

/// `rt_sigprocmask` in a handler, from which the frame's mask is restored.
fn change_mask(how: u32, mask: u64) {
    let arguments = [u64::from(how), &raw const mask as u64, 0, 8, 0, 0];
    // SAFETY: the kernel reads the mask on this stack.
    unsafe { system::call(raw::__NR_rt_sigprocmask, arguments) };
}

/// Applies the flags and the mask of a handler that the kernel does not know. `before` is the mask
/// that the signal has interrupted.
fn hand_over(signal: u32, action: &actions::Action, before: u64) {
    if !is_always(signal) {
        return;
    }
    if action.flags & u64::from(raw::SA_RESETHAND) != 0 {
        actions::reset(signal);
    }
    if signal != trap_signal() {
        return;
    }
    let mask = masks::kernels(action.mask);
    // The kernel has blocked the stand-in, as it blocks a handler's own signal. Stages inside ask
    // for no more, so that no call of theirs is caught while their handlers are on small stacks.
    if mask & !bit(STAND_IN) != 0 {
        change_mask(raw::SIG_BLOCK, mask);
    }
    if action.flags & u64::from(raw::SA_NODEFER) != 0 && !masks::holds_trap(mask | before) {
        change_mask(raw::SIG_UNBLOCK, bit(STAND_IN));
    }
}

/// Queues a signal for the calling thread again, unchanged; if there is no space for that, without
/// its `siginfo_t`.
fn send_again(signal: u32, information: u64) {
    let (process, thread) = (u64::from(system::process()), u64::from(system::thread()));
    let arguments = [process, thread, u64::from(signal), information, 0, 0];
    // SAFETY: the kernel reads the structure, which the caller keeps; the signal goes to this
    // thread.
    unsafe {
        if system::call(raw::__NR_rt_tgsigqueueinfo, arguments) != 0 {
            system::call(raw::__NR_tgkill, arguments);
        }
    }
}

/// Defers a signal that arrived while the stage was working in a slot, until the stack pointer is
/// about to become the guest's. No other signal arrives meanwhile.
fn defer(signal: u32, information: &Information, context: &mut Context) {
    let registers = &mut context.registers;
    let slot = slots::at(registers.rsp);
    // SAFETY: the slot is taken by the call that this thread was making, which is interrupted.
    let head = unsafe { &mut (*slot).head };
    // SAFETY: as above; only the address is taken.
    let frame = unsafe { &raw mut (*slot).frame } as u64;
    // A second signal can only be one that a process sent of those that faults raise.
    if head.deferred == 0 {
        head.deferred = u64::from(signal);
        head.mask = context.mask;
        // SAFETY: `siginfo_t` has 128 bytes, which the kernel has written.
        head.information = unsafe { (&raw const *information).cast::<[u64; 16]>().read() };
        context.mask |= !SYNCHRONOUS;
    }
    if let Some((instruction, stack)) = entry::restart_check(registers.rip, registers.rsp, frame) {
        registers.rip = instruction;
        registers.rsp = stack;
    }
}

/// Delivers the signal that was deferred in this frame's slot: queues it again, and restores the
/// mask with the guest's stack pointer in place.
pub(crate) extern "C" fn deliver(frame: &mut Frame) {
    let slot = slots::of(frame);
    // SAFETY: the slot belongs to this call; the frame is another member of it.
    let head = unsafe { &mut (*slot).head };
    let signal = head.deferred as u32;
    if signal == 0 {
        return;
    }
    let mask = head.mask;
    send_again(signal, head.information.as_ptr() as u64);
    head.deferred = 0;
    let arguments = [u64::from(raw::SIG_SETMASK), &raw const mask as u64, 0, 8, 0, 0];
    // SAFETY: the kernel reads the mask, which lives on the slot's stack. The signal arrives at the
    // end of this call.
    unsafe { entry::on_guest_stack_at_once(frame, raw::__NR_rt_sigprocmask, arguments) };
}

/// Blocks all signals, because the program is about to be replaced by an `execve`: signals that
/// arrive from now on are for the next program, which gets the mask that this returns. A deferred
/// signal waits for it too, as if it had arrived a moment later. `slot` is the caller's.
pub(crate) fn hold(slot: *mut slots::Slot) -> u64 {
    // A tracer's signal is among those that faults raise, and has to wait too.
    let mut mask = exchange_mask(!SYNCHRONOUS | bit(raw::SIGTRAP));
    // SAFETY: the slot belongs to this call.
    let head = unsafe { &mut (*slot).head };
    if head.deferred != 0 {
        send_again(head.deferred as u32, head.information.as_ptr() as u64);
        head.deferred = 0;
        mask = head.mask;
    }
    mask
}

/// Blocks all signals that processes may send; returns the previous mask.
pub(crate) fn hold_back() -> u64 {
    exchange_mask(!SYNCHRONOUS)
}

/// Sets the mask; returns the previous one.
pub(crate) fn exchange_mask(mask: u64) -> u64 {
    super::masks::notice(mask);
    let (mask, mut before) = (masks::kernels(mask), 0_u64);
    let there = &raw mut before as u64;
    let arguments = [u64::from(raw::SIG_SETMASK), &raw const mask as u64, there, 8, 0, 0];
    // SAFETY: the kernel reads one mask and writes another, both on this stack.
    unsafe { system::call(raw::__NR_rt_sigprocmask, arguments) };
    before
}
