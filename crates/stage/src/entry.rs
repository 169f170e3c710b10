//! Entry and exit of a caught call in assembly: from the guest's instruction to
//! [`crate::dispatch::caught`] and back.
//!
//! **Entry.** A rewritten site jumps to `stage_entry` with the number in rax and its return address
//! in rcx; rcx and r11 are free, because `syscall` overwrites them too. Everything else is the
//! guest's, including the flags and the memory around its stack pointer. So the flags are kept in
//! the upper half of rax (the kernel would use only the lower half), and nothing is written before
//! a slot has been taken. A site that is not rewritten comes by `SIGSYS`: the handler
//! (`stage_sigsys`) takes a slot, copies the registers from the signal's context to the slot's
//! [`Frame`], makes the context continue at `stage_resume`, and returns. No call is ever decided
//! inside a signal handler.
//!
//! **Exit.** `stage_leave` loads the registers from the frame, gives the slot back and jumps. A
//! call that must not return through here is made at an *exit*: `syscall` and a jump to one return
//! address of the guest, which is bound to that exit for good ([`exit`]). By then the slot is free,
//! and each return, once, twice or never, finds the guest's registers.
//!
//! **Signals** may arrive at any instruction. While the stack pointer is in the slot, they are
//! deferred (`signals`). The code checks for deferred signals right before the stack pointer
//! becomes the guest's. A handler that interrupts between such a check and the change of the stack
//! pointer makes the check run again ([`restart_check`]). From then on handlers run on the guest's
//! stack.

use core::arch::global_asm;
use core::mem::offset_of;

use crate::frame::{BY_SIGNAL, Frame, NARROW};
use crate::kernel::Backend;
use crate::signals::context::{Context, Information};
use crate::slots::{self, Head, POOL, SLOT_SHIFT, SLOT_SIZE, Slot};
use abi::calls::filter::MARK;
use core::sync::atomic::{AtomicU64, Ordering};
use view::{After, Call, Errno};

/// Result of the instructions of [`on_guest_stack`] if a signal is deferred; no call has this
/// result.
const DEFERRED: i64 = i64::MIN;

/// Saves all vector registers at the stack pointer.
macro_rules! vectors_saved {
    () => {
        concat!(
            "movaps [rsp + 0x00], xmm0\n",
            "movaps [rsp + 0x10], xmm1\n",
            "movaps [rsp + 0x20], xmm2\n",
            "movaps [rsp + 0x30], xmm3\n",
            "movaps [rsp + 0x40], xmm4\n",
            "movaps [rsp + 0x50], xmm5\n",
            "movaps [rsp + 0x60], xmm6\n",
            "movaps [rsp + 0x70], xmm7\n",
            "movaps [rsp + 0x80], xmm8\n",
            "movaps [rsp + 0x90], xmm9\n",
            "movaps [rsp + 0xa0], xmm10\n",
            "movaps [rsp + 0xb0], xmm11\n",
            "movaps [rsp + 0xc0], xmm12\n",
            "movaps [rsp + 0xd0], xmm13\n",
            "movaps [rsp + 0xe0], xmm14\n",
            "movaps [rsp + 0xf0], xmm15\n",
        )
    };
}

/// Restores them.
macro_rules! vectors_restored {
    () => {
        concat!(
            "movaps xmm0, [rsp + 0x00]\n",
            "movaps xmm1, [rsp + 0x10]\n",
            "movaps xmm2, [rsp + 0x20]\n",
            "movaps xmm3, [rsp + 0x30]\n",
            "movaps xmm4, [rsp + 0x40]\n",
            "movaps xmm5, [rsp + 0x50]\n",
            "movaps xmm6, [rsp + 0x60]\n",
            "movaps xmm7, [rsp + 0x70]\n",
            "movaps xmm8, [rsp + 0x80]\n",
            "movaps xmm9, [rsp + 0x90]\n",
            "movaps xmm10, [rsp + 0xa0]\n",
            "movaps xmm11, [rsp + 0xb0]\n",
            "movaps xmm12, [rsp + 0xc0]\n",
            "movaps xmm13, [rsp + 0xd0]\n",
            "movaps xmm14, [rsp + 0xe0]\n",
            "movaps xmm15, [rsp + 0xf0]\n",
        )
    };
}

global_asm!(
    ".globl stage_entry",
    ".p2align 6",
    "stage_entry:",
    "bswap rax",
    "lahf",
    "seto al",
    "mov r11, rsp",
    "shr r11, {spread}",
    "and r11d, dword ptr [rip + {pool} + {mask}]",
    "shl r11, {slot_shift}",
    "add r11, qword ptr [rip + {pool} + {first}]",
    "9:",
    "lock bts dword ptr [r11 + {head}], 0",
    "jc 4f",
    "mov [r11 + {frame} + {stack}], rsp",
    "lea rsp, [r11 + {frame}]",
    "mov [rsp + {return_address}], rcx",
    "mov [rsp + {rdi}], rdi",
    "mov [rsp + {rsi}], rsi",
    "mov [rsp + {rdx}], rdx",
    "mov [rsp + {r10}], r10",
    "mov [rsp + {r8}], r8",
    "mov [rsp + {r9}], r9",
    "mov [rsp + {rbx}], rbx",
    "mov [rsp + {rbp}], rbp",
    "mov [rsp + {r12}], r12",
    "mov [rsp + {r13}], r13",
    "mov [rsp + {r14}], r14",
    "mov [rsp + {r15}], r15",
    "mov qword ptr [rsp + {origin}], 0",
    // The overflow flag is bit 0 of al (the bits above count how often all slots were tried); the
    // other flags are in ah.
    "and al, 1",
    "add al, 127",
    "sahf",
    "pushfq",
    "pop qword ptr [rsp + {flags}]",
    "bswap rax",
    "mov eax, eax",
    "mov [rsp + {rax}], rax",
    "mov [rsp + {number}], rax",
    "cld",
    // A call by a signal comes here: the frame is filled, except for the vectors.
    ".globl stage_resume",
    "stage_resume:",
    vectors_saved!(),
    "mov rdi, rsp",
    "call {caught}",
    ".globl stage_leave",
    "stage_leave:",
    "cmp qword ptr [rsp + {frame_to_head} + {deferred}], 0",
    "jne 6f",
    vectors_restored!(),
    "mov rdi, [rsp + {rdi}]",
    "mov rsi, [rsp + {rsi}]",
    "mov rdx, [rsp + {rdx}]",
    "mov r10, [rsp + {r10}]",
    "mov r8, [rsp + {r8}]",
    "mov r9, [rsp + {r9}]",
    "mov rbx, [rsp + {rbx}]",
    "mov rbp, [rsp + {rbp}]",
    "mov r12, [rsp + {r12}]",
    "mov r13, [rsp + {r13}]",
    "mov r14, [rsp + {r14}]",
    "mov r15, [rsp + {r15}]",
    // Flags that only popf can set (direction, alignment checks, single steps) are rare, and popf
    // is slow.
    "test dword ptr [rsp + {flags}], 0x40500",
    "jz 2f",
    "push qword ptr [rsp + {flags}]",
    "popfq",
    "jmp 3f",
    "2:",
    "mov eax, [rsp + {flags}]",
    "mov ecx, eax",
    "shr ecx, 11",
    "mov ah, al",
    "mov al, cl",
    "and al, 1",
    "add al, 127",
    "sahf",
    "3:",
    "mov rax, [rsp + {rax}]",
    "mov rcx, [rsp + {return_address}]",
    "lea r11, [rsp + {frame_to_head}]",
    "push rcx",
    "mov rcx, [rsp + 8 + {origin}]",
    // The test must not change the carry flag, which is the guest's by now: so rcx is counted down.
    "lea rcx, [rcx - {by_signal} - {narrow}]",
    "jrcxz 5f",
    "pop rcx",
    "mov rsp, [rsp + {stack}]",
    ".globl stage_left",
    "stage_left:",
    "mov qword ptr [r11], 0",
    "mov r11d, 0x202",
    "jmp rcx",
    // Deliver a deferred signal.
    "6:",
    "mov rdi, rsp",
    "call {deliver}",
    "jmp stage_leave",
    // An i386 call keeps all registers except eax (and, on older kernels, r8 to r11).
    "5:",
    "pop rcx",
    "mov [rsp + {frame_to_head} + {narrow_return}], rcx",
    "mov rcx, [rsp + {rcx}]",
    "mov rsp, [rsp + {stack}]",
    "mov qword ptr [r11], 0",
    "jmp qword ptr [r11 + {narrow_return}]",
    // The slot is taken: try the next one, and after the last the first. After many rounds let
    // other threads run.
    "4:",
    "add r11, {slot_size}",
    "cmp r11, qword ptr [rip + {pool} + {end}]",
    "jb 9b",
    "mov r11, qword ptr [rip + {pool} + {first}]",
    "add al, 2",
    "jns 9b",
    "and al, 1",
    // On the guest's stack, as a signal handler would.
    "lea rsp, [rsp - 128]",
    "pushfq",
    "cld",
    "push rcx",
    "push rax",
    "push rdi",
    "push rsi",
    "push rdx",
    "push r8",
    "push r9",
    "push r10",
    "push rbp",
    "mov rbp, rsp",
    "and rsp, -16",
    "sub rsp, 256",
    vectors_saved!(),
    "call {none_free}",
    vectors_restored!(),
    "mov rsp, rbp",
    "pop rbp",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "pop rax",
    "pop rcx",
    "popfq",
    "lea rsp, [rsp + 128]",
    "mov r11, qword ptr [rip + {pool} + {first}]",
    "jmp 9b",
    caught = sym crate::dispatch::caught,
    deliver = sym deliver_last,
    none_free = sym slots::none_free,
    pool = sym POOL,
    first = const offset_of!(slots::Pool, first),
    end = const offset_of!(slots::Pool, end),
    mask = const offset_of!(slots::Pool, mask),
    spread = const slots::SPREAD,
    slot_shift = const SLOT_SHIFT,
    slot_size = const SLOT_SIZE,
    frame = const offset_of!(Slot, frame),
    head = const offset_of!(Slot, head),
    frame_to_head = const offset_of!(Slot, head) - offset_of!(Slot, frame),
    deferred = const offset_of!(Head, deferred),
    narrow_return = const offset_of!(Head, narrow_return),
    rdi = const offset_of!(Frame, rdi),
    rsi = const offset_of!(Frame, rsi),
    rdx = const offset_of!(Frame, rdx),
    r10 = const offset_of!(Frame, r10),
    r8 = const offset_of!(Frame, r8),
    r9 = const offset_of!(Frame, r9),
    rax = const offset_of!(Frame, rax),
    rbx = const offset_of!(Frame, rbx),
    rbp = const offset_of!(Frame, rbp),
    r12 = const offset_of!(Frame, r12),
    r13 = const offset_of!(Frame, r13),
    r14 = const offset_of!(Frame, r14),
    r15 = const offset_of!(Frame, r15),
    rcx = const offset_of!(Frame, rcx),
    flags = const offset_of!(Frame, flags),
    return_address = const offset_of!(Frame, return_address),
    stack = const offset_of!(Frame, stack),
    origin = const offset_of!(Frame, origin),
    number = const offset_of!(Frame, number),
    by_signal = const BY_SIGNAL,
    narrow = const NARROW,
);

// The handler of SIGSYS. A signal that is not from this container's filter goes to the guest's
// handler.
global_asm!(
    ".globl stage_sigsys",
    ".p2align 4",
    "stage_sigsys:",
    "cmp dword ptr [rsi + 8], 1",
    "jne 2f",
    // The mark depends on the place of the image (see abi::calls::filter::mark).
    "lea rax, [rip]",
    "shr rax, 32",
    "lea eax, [rax + {mark} - {first}]",
    "cmp dword ptr [rsi + 4], eax",
    "jne 2f",
    "sub rsp, 8",
    "call {redirect}",
    // Both handlers use the rest.
    ".globl stage_redirected",
    "stage_redirected:",
    "add rsp, 8",
    "test rax, rax",
    "jnz 3f",
    "ret",
    // The call was the end of a handler: this frame is dropped, and that handler's frame restored.
    "3:",
    "mov rsp, rax",
    "jmp stage_return",
    "2:",
    "jmp {other}",
    mark = const MARK,
    first = const abi::boot::LOADER_START >> 32,
    redirect = sym redirect,
    other = sym crate::signals::stage_signal,
);

// The handler of SIGILL, for sites with the trapping instruction (crate::patched_code). For any
// other instruction the guest's handler runs.
global_asm!(
    ".globl stage_sigill",
    ".p2align 4",
    "stage_sigill:",
    "cmp dword ptr [rsi + 8], 0",
    "jle 2f",
    "mov rax, [rdx + {rip}]",
    "cmp word ptr [rax], {trap}",
    "jne 2f",
    "sub rsp, 8",
    "call {redirect}",
    "jmp stage_redirected",
    "2:",
    "jmp {other}",
    rip = const offset_of!(Context, registers) + offset_of!(crate::signals::context::Registers, rip),
    trap = const u16::from_le_bytes(abi::code::form::TRAP),
    redirect = sym redirect_trap,
    other = sym crate::signals::stage_signal,
);

// stage_on_guest_stack(frame, number, arguments): rbp holds the frame, rbx the slot's stack
// pointer.
global_asm!(
    ".globl stage_on_guest_stack",
    ".p2align 4",
    "stage_on_guest_stack:",
    "push rbx",
    "push rbp",
    "mov rbp, rdi",
    "mov rbx, rsp",
    "mov rax, rsi",
    "mov r11, rdx",
    "mov rdi, [r11]",
    "mov rsi, [r11 + 8]",
    "mov rdx, [r11 + 16]",
    "mov r10, [r11 + 24]",
    "mov r8, [r11 + 32]",
    "mov r9, [r11 + 40]",
    ".globl stage_look",
    "stage_look:",
    "cmp qword ptr [rbp + {frame_to_head} + {deferred}], 0",
    "jne 3f",
    "mov rsp, [rbp + {stack}]",
    ".globl stage_looked",
    "stage_looked:",
    "syscall",
    ".globl stage_called",
    "stage_called:",
    "mov rsp, rbx",
    "pop rbp",
    "pop rbx",
    "ret",
    "3:",
    "movabs rax, {result}",
    "pop rbp",
    "pop rbx",
    "ret",
    // The same without the check for deferred signals: for restoring the mask of a signal that was
    // deferred.
    ".globl stage_on_guest_stack_at_once",
    "stage_on_guest_stack_at_once:",
    "push rbx",
    "push rbp",
    "mov rbp, rdi",
    "mov rbx, rsp",
    "mov rax, rsi",
    "mov r11, rdx",
    "mov rdi, [r11]",
    "mov rsi, [r11 + 8]",
    "mov rdx, [r11 + 16]",
    "mov r10, [r11 + 24]",
    "mov r8, [r11 + 32]",
    "mov r9, [r11 + 40]",
    "mov rsp, [rbp + {stack}]",
    "syscall",
    ".globl stage_delivered",
    "stage_delivered:",
    "mov rsp, rbx",
    "pop rbp",
    "pop rbx",
    "ret",
    frame_to_head = const offset_of!(Slot, head) - offset_of!(Slot, frame),
    deferred = const offset_of!(Head, deferred),
    stack = const offset_of!(Frame, stack),
    result = const DEFERRED,
);

/// Number of return addresses that can have an exit.
const EXITS: usize = 32;
/// Size of one exit in bytes: `syscall`, `mov rcx, [rip + …]`, `jmp rcx`, and padding.
const EXIT_SIZE: u64 = 16;

global_asm!(
    ".globl stage_exits",
    ".p2align 4",
    "stage_exits:",
    ".set stage_exit_number, 0",
    ".rept {exits}",
    "syscall",
    "mov rcx, qword ptr [rip + {bound} + 8 * stage_exit_number]",
    "jmp rcx",
    ".p2align 4",
    ".set stage_exit_number, stage_exit_number + 1",
    ".endr",
    exits = const EXITS,
    bound = sym BOUND,
);

/// Number of return addresses that can have an exit for `clone3` with `CLONE_CLEAR_SIGHAND`.
const CLEARED: usize = 4;
/// Size of one such exit in bytes.
const CLEARED_SIZE: u64 = 64;

// The stack holds two words of the stage: the first argument of the guest's call, and the distance
// to the guest's stack pointer. A child calls `clear` before it continues as the guest. Neither it
// nor its parent may see a changed register or flag (except rcx and r11, which `syscall` overwrites
// too).
global_asm!(
    ".globl stage_cleared_exits",
    ".p2align 6",
    "stage_cleared_exits:",
    ".set stage_cleared_number, 0",
    ".rept {exits}",
    "syscall",
    "mov rcx, rax",
    "jrcxz 2f",
    "3:",
    "pop rdi",
    "pop rcx",
    "lea rsp, [rsp + rcx]",
    "mov rcx, qword ptr [rip + {bound} + 8 * stage_cleared_number]",
    "jmp rcx",
    "2:",
    "call stage_cleared",
    "jmp 3b",
    ".p2align 6",
    ".set stage_cleared_number, stage_cleared_number + 1",
    ".endr",
    "stage_cleared:",
    "pushfq",
    "push rbp",
    "mov rbp, rsp",
    "push rax",
    "push rdx",
    "push rsi",
    "push rdi",
    "push r8",
    "push r9",
    "push r10",
    "push r11",
    "lea rsp, [rsp - 272]",
    "and rsp, -16",
    vectors_saved!(),
    "cld",
    "call {clear}",
    vectors_restored!(),
    "lea rsp, [rbp - 64]",
    "pop r11",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop rax",
    "pop rbp",
    "popfq",
    "ret",
    exits = const CLEARED,
    bound = sym BOUND_CLEARED,
    clear = sym crate::signals::clear,
);

unsafe extern "C" {
    /// The target of rewritten sites: number in rax, return address in rcx.
    pub(crate) fn stage_entry();
    /// The handler of `SIGSYS`.
    pub(crate) fn stage_sigsys();
    /// The handler of `SIGILL` in modes F.
    pub(crate) fn stage_sigill();
    fn stage_resume();
    fn stage_leave();
    fn stage_left();
    fn stage_look();
    fn stage_looked();
    fn stage_called();
    fn stage_delivered();
    fn stage_exits();
    fn stage_cleared_exits();
    fn stage_on_guest_stack(frame: *mut Frame, number: u64, arguments: *const [u64; 6]) -> i64;
    fn stage_on_guest_stack_at_once(
        frame: *mut Frame,
        number: u64,
        arguments: *const [u64; 6],
    ) -> i64;
}

/// Makes a call with the guest's stack pointer, so that a signal handler that interrupts it runs on
/// the guest's stack. Signals that were deferred before are delivered first. `after` is the work
/// that remains when the call has been made.
///
/// # Safety
///
/// As for the call itself. It does not return if a handler interrupts it: [`hide_stage`]. So the
/// caller must hold no resources except those that `after` names.
pub(crate) unsafe fn on_guest_stack(frame: &mut Frame, call: &Call, after: After) -> i64 {
    if call.arch == abi::syscalls::ARCH_I386 {
        // SAFETY: the caller answers for the call's pointers.
        return unsafe { crate::compat32::make(call) };
    }
    // SAFETY: the slot belongs to this call, and its head is another member than the frame, so the
    // references do not overlap.
    unsafe { (*slots::of(frame)).head.after = after };
    loop {
        // SAFETY: the caller answers for the call. The stage writes nothing to the guest's stack,
        // and the kernel puts signal frames below its red zone.
        let result = unsafe {
            stage_on_guest_stack(frame, u64::from(call.number), &raw const call.arguments)
        };
        if result != DEFERRED {
            return result;
        }
        // SAFETY: as above, the slot belongs to this call, and the head is another member than the
        // frame.
        unsafe { (*slots::of(frame)).head.answered = false };
        crate::signals::deliver(frame);
    }
}

/// Delivers a deferred signal after the call has its result.
extern "C" fn deliver_last(frame: &mut Frame) {
    // SAFETY: the slot belongs to this call, and its head is another member than the frame.
    unsafe { (*slots::of(frame)).head.answered = true };
    crate::signals::deliver(frame);
}

/// Makes a call with the guest's stack pointer without a check for deferred signals.
///
/// # Safety
///
/// As for the call itself.
pub(crate) unsafe fn on_guest_stack_at_once(
    frame: &mut Frame,
    number: u32,
    arguments: [u64; 6],
) -> i64 {
    // SAFETY: as for `on_guest_stack`: the caller answers for the call, and nothing is written to
    // the guest's stack.
    unsafe { stage_on_guest_stack_at_once(frame, u64::from(number), &raw const arguments) }
}

/// Instruction and stack pointer at which a context continues that a signal has interrupted at
/// `instruction`, with the stack pointer in a slot. Behind a check for deferred signals it goes
/// back to the check.
pub(crate) fn restart_check(instruction: u64, stack: u64, frame: u64) -> Option<(u64, u64)> {
    let at = |function: unsafe extern "C" fn()| function as *const () as u64;
    if (at(stage_look)..at(stage_looked)).contains(&instruction) {
        return Some((at(stage_look), stack));
    }
    // All registers are loaded from the frame again.
    (at(stage_leave)..at(stage_left)).contains(&instruction).then(|| (at(stage_leave), frame))
}

/// Makes a signal's context what it would be without the stage, before a handler of the guest sees
/// it: handlers unwind, cancel threads, leave by `siglongjmp` or switch stacks, and read the
/// instruction that they interrupted.
///
/// A call that the signal has interrupted, or that was about to be made, is given up together with
/// its slot: the context continues at the guest's own instruction, or behind it with the result.
/// Only a call that was made, and after which work remains, continues in the stage.
pub(crate) fn hide_stage(context: &mut Context) {
    let at = |function: unsafe extern "C" fn()| function as *const () as u64;
    let registers = &mut context.registers;
    if registers.rip == at(stage_left) {
        // SAFETY: at this instruction r11 points to the head of the slot that was about to be given
        // back, which is mapped for good.
        unsafe { (*(registers.r11 as *const Head)).taken.store(0, Ordering::Release) };
        registers.rip = registers.rcx;
        return;
    }
    let (made, delivered) =
        (registers.rip == at(stage_called), registers.rip == at(stage_delivered));
    if !(made || delivered || registers.rip == at(stage_looked)) {
        if crate::shared::is_mode_f() {
            crate::patched_code::hide_stub(registers);
        }
        return;
    }
    let frame = registers.rbp as *mut Frame;
    // SAFETY: at these instructions rbp is the frame of the call whose slot this thread has taken;
    // frame and head are different members of it.
    let (frame, head) = unsafe { (&mut *frame, &mut (*slots::of(frame)).head) };
    let (answered, result) =
        if delivered { (head.answered, frame.rax) } else { (made, registers.rax) };
    let given_up = !answered || made && result as i64 == Errno::EINTR.result();
    if frame.origin & NARROW != 0 || !(given_up || delivered || head.after == After::Nothing) {
        return;
    }
    if !(delivered && answered) {
        view::calls::abandon(&mut Backend::new(&mut []), head.after);
    }
    registers.rdi = frame.rdi;
    registers.rsi = frame.rsi;
    registers.rdx = frame.rdx;
    registers.r10 = frame.r10;
    registers.r8 = frame.r8;
    registers.r9 = frame.r9;
    registers.rbx = frame.rbx;
    registers.rbp = frame.rbp;
    registers.r12 = frame.r12;
    registers.r13 = frame.r13;
    registers.r14 = frame.r14;
    registers.r15 = frame.r15;
    registers.rcx = frame.return_address;
    registers.r11 = frame.flags;
    registers.flags = frame.flags;
    registers.rip = if answered { frame.return_address } else { frame.site() };
    registers.rax = if answered { result } else { frame.number };
    // SAFETY: the kernel has written the floating-point state there, in the signal frame.
    unsafe { restore_vectors(registers.floating as *mut u8, &frame.vectors) };
    head.taken.store(0, Ordering::Release);
}

/// Puts xmm0 to xmm15 into a signal frame's floating-point state.
///
/// # Safety
///
/// `state` is null, or points to a `struct _fpstate_64` that the kernel wrote.
unsafe fn restore_vectors(state: *mut u8, vectors: &[u128; 16]) {
    const VECTORS: usize = 160;
    const SOFTWARE: usize = 464;
    const FEATURES: usize = 512;
    const MAGIC: u32 = 0x4650_5853;
    const SSE: u64 = 2;
    if state.is_null() {
        return;
    }
    // SAFETY: the legacy area has 512 bytes; the header is behind it if the first software word
    // contains the magic number.
    unsafe {
        state.add(VECTORS).cast::<[u128; 16]>().write_unaligned(*vectors);
        if state.add(SOFTWARE).cast::<u32>().read_unaligned() == MAGIC {
            let features = state.add(FEATURES).cast::<[u8; 8]>();
            *features = (u64::from_le_bytes(*features) | SSE).to_le_bytes();
        }
    }
}

/// Return addresses of the exits; 0 for a free one.
static BOUND: [AtomicU64; EXITS] = [const { AtomicU64::new(0) }; EXITS];
/// Return addresses of the exits with `CLONE_CLEAR_SIGHAND`.
static BOUND_CLEARED: [AtomicU64; CLEARED] = [const { AtomicU64::new(0) }; CLEARED];

/// The exit that belongs to a return address, from now on for good; `None` if all belong to others.
fn bind(exits: &[AtomicU64], back: u64) -> Option<u64> {
    use core::sync::atomic::Ordering::{AcqRel, Acquire};
    let found = exits.iter().position(|bound| {
        let there = bound.load(Acquire);
        there == back
            || there == 0
                && bound
                    .compare_exchange(0, back, AcqRel, Acquire)
                    .map_or_else(|there| there == back, |_| true)
    });
    found.map(|index| index as u64)
}

/// Makes a call leave by the exit of its return address: when [`crate::dispatch::caught`] returns,
/// the slot is given back, the registers become the guest's, and then the call is made. Returns
/// false if all exits belong to other return addresses.
pub(crate) fn exit(frame: &mut Frame, call: &Call) -> bool {
    if call.arch != abi::syscalls::ARCH_X86_64 {
        return false;
    }
    let Some(index) = bind(&BOUND, frame.return_address) else { return false };
    [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9] = call.arguments;
    frame.rax = u64::from(call.number);
    frame.return_address = stage_exits as *const () as u64 + EXIT_SIZE * index;
    true
}

/// The same for `clone3` with `CLONE_CLEAR_SIGHAND`, where the child removes the guest's handlers
/// ([`crate::signals::clear`]). The caller sets the argument, and the words that child and parent
/// take off their stacks.
pub(crate) fn exit_cleared(frame: &mut Frame) -> bool {
    if frame.origin & NARROW != 0 {
        return false;
    }
    let Some(index) = bind(&BOUND_CLEARED, frame.return_address) else { return false };
    frame.rax = frame.number;
    frame.return_address = stage_cleared_exits as *const () as u64 + CLEARED_SIZE * index;
    true
}

/// Makes the guest repeat its call at its own instruction, where the kernel runs every filter: for
/// effects that only the kernel can have (a signal or the end of the process by the guest's own
/// filter). Changes the frame so; the result of the present call is not used. Returns false if the
/// instruction is no longer there, because the site was rewritten.
///
/// The container's own filter would only bring the call here again, so this is for calls for which
/// a filter of the guest returns a more severe action, or an equal one and is newer.
pub(crate) fn make_at_site(frame: &mut Frame) -> bool {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    const INT_0X80: [u8; 2] = [0xcd, 0x80];
    let mut there = [0; 2];
    let wanted = if frame.origin & NARROW == 0 { SYSCALL } else { INT_0X80 };
    if crate::memory::read(frame.site(), &mut there).is_err() || there != wanted {
        return false;
    }
    frame.rax = frame.number;
    frame.return_address = frame.site();
    true
}

/// The part of the `SIGSYS` handler that is not assembly. Usually it makes the interrupted context
/// continue in a slot, and returns 0. If the call was the end of a handler of the guest, it returns
/// the stack pointer with that handler's frame, which is to be restored at once.
unsafe extern "C" fn redirect(
    _: i32,
    information: *const Information,
    context: *mut Context,
) -> u64 {
    // SAFETY: the kernel's arguments to a handler with SA_SIGINFO, which live until the handler
    // returns.
    let (information, registers) = unsafe { (&*information, &mut (*context).registers) };
    let narrow = information.architecture == abi::syscalls::ARCH_I386;
    if !narrow && information.number == linux_raw_sys::general::__NR_rt_sigreturn {
        return crate::signals::before_return(registers);
    }
    let origin = if narrow { BY_SIGNAL | NARROW } else { BY_SIGNAL };
    resume(registers, information.number, origin);
    0
}

/// The same for the `SIGILL` handler: the interrupted instruction has replaced a `syscall`.
unsafe extern "C" fn redirect_trap(_: i32, _: *const Information, context: *mut Context) -> u64 {
    // SAFETY: the kernel's argument to a handler with SA_SIGINFO, which lives until the handler
    // returns.
    let registers = unsafe { &mut (*context).registers };
    let number = registers.rax as u32;
    if number == linux_raw_sys::general::__NR_rt_sigreturn {
        return crate::signals::before_return(registers);
    }
    registers.rip += abi::code::form::TRAP.len() as u64;
    resume(registers, number, BY_SIGNAL);
    0
}

/// Makes an interrupted context continue in a slot, with a call that was about to be made; its
/// instruction pointer is behind the call.
fn resume(registers: &mut crate::signals::context::Registers, number: u32, origin: u64) {
    let slot = slots::take(registers.rsp);
    // SAFETY: the slot has just been taken, so no other reference to its frame exists.
    let frame = unsafe { &mut (*slot).frame };
    frame.rdi = registers.rdi;
    frame.rsi = registers.rsi;
    frame.rdx = registers.rdx;
    frame.r10 = registers.r10;
    frame.r8 = registers.r8;
    frame.r9 = registers.r9;
    frame.rax = registers.rax;
    frame.rbx = registers.rbx;
    frame.rbp = registers.rbp;
    frame.r12 = registers.r12;
    frame.r13 = registers.r13;
    frame.r14 = registers.r14;
    frame.r15 = registers.r15;
    frame.rcx = registers.rcx;
    frame.flags = registers.flags;
    frame.return_address = registers.rip;
    frame.stack = registers.rsp;
    frame.origin = origin;
    frame.number = u64::from(number);
    registers.rsp = &raw mut *frame as u64;
    registers.rip = stage_resume as *const () as u64;
    // The stage must run without the guest's direction flag and single steps.
    registers.flags &= !0x500;
}
