//! The way in and out: from a guest's call to [`crate::dispatch::caught`] and back, instruction by instruction.
//!
//! **In.** A rewritten site jumps to `stage_entry` with the number in rax and its return address in rcx; rcx and r11 are free, as `syscall`
//! would lose them. Everything else is the guest's, the flags and the memory around its stack pointer included: so the flags wait in the
//! upper half of rax (of which the kernel would look at the lower half only), and nothing is written before a slot has been found. A site that
//! is not rewritten comes by `SIGSYS`: the handler (`stage_sigsys`) takes a slot, copies the registers from the signal's context to
//! the slot's [`Frame`], lets the context go on at `stage_resume`, and returns. No call is ever worked on within a signal's context.
//!
//! **Out.** `stage_leave` loads the registers from the frame, gives the slot back and jumps. A call that must not return through here is made
//! at an *exit*, `syscall` and a jump to one return address of the guest's, which is bound to that exit for good ([`exit`]): by then the
//! slot is free, and whoever comes back, once, twice or never, finds the guest's registers.
//!
//! **Signals** may arrive at any instruction. While the stack pointer is in the slot, they are deferred (`signals`), and looked for where
//! the stack pointer is about to become the guest's: a handler that interrupts between such a look and the change ([`WINDOWS`]) lets the
//! look be taken again. From then on handlers run on the guest's stack.

use core::arch::global_asm;
use core::mem::offset_of;

use crate::frame::{BY_SIGNAL, Frame, NARROW};
use crate::kernel::Backend;
use crate::signals::context::{Context, Information};
use crate::slots::{self, Head, POOL, SLOT_SHIFT, SLOT_SIZE, Slot};
use abi::calls::filter::MARK;
use core::sync::atomic::{AtomicU64, Ordering};
use view::{After, Call, Errno};

/// What [`on_guest_stack`]'s instructions give where a signal is deferred; no call has it as a result.
const DEFERRED: i64 = i64::MIN;

/// All vector registers, to where the stack points.
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

/// And back.
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
    // The overflow flag is bit 0 of al (above it, how often all slots were tried); the others are in ah.
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
    // From a signal: the frame is filled, but for the vectors.
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
    // Flags that only popf can set (direction, alignment checks, single steps) are rare, and popf is slow.
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
    // Without the carry flag, which is the guest's by now: the bit alone, counted down.
    "lea rcx, [rcx - {by_signal} - {narrow}]",
    "jrcxz 5f",
    "pop rcx",
    "mov rsp, [rsp + {stack}]",
    ".globl stage_left",
    "stage_left:",
    "mov qword ptr [r11], 0",
    "mov r11d, 0x202",
    "jmp rcx",
    // A deferred signal.
    "6:",
    "mov rdi, rsp",
    "call {deliver}",
    "jmp stage_leave",
    // A call of i386's keeps all registers but eax (and, on older kernels, r8 to r11).
    "5:",
    "pop rcx",
    "mov [rsp + {frame_to_head} + {narrow_return}], rcx",
    "mov rcx, [rsp + {rcx}]",
    "mov rsp, [rsp + {stack}]",
    "mov qword ptr [r11], 0",
    "jmp qword ptr [r11 + {narrow_return}]",
    // The slot is somebody's: the next, and from the last the first. After many rounds others shall go on.
    "4:",
    "add r11, {slot_size}",
    "cmp r11, qword ptr [rip + {pool} + {end}]",
    "jb 9b",
    "mov r11, qword ptr [rip + {pool} + {first}]",
    "add al, 2",
    "jns 9b",
    "and al, 1",
    // On the guest's stack, as a signal would be.
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

// The handler of SIGSYS. What is not our filter's is the guest's own.
global_asm!(
    ".globl stage_sigsys",
    ".p2align 4",
    "stage_sigsys:",
    "cmp dword ptr [rsi + 8], 1",
    "jne 2f",
    // The mark differs by the place of the image (see abi::calls::filter::mark).
    "lea rax, [rip]",
    "shr rax, 32",
    "lea eax, [rax + {mark} - {first}]",
    "cmp dword ptr [rsi + 4], eax",
    "jne 2f",
    "sub rsp, 8",
    "call {redirect}",
    // What is behind is for both handlers.
    ".globl stage_redirected",
    "stage_redirected:",
    "add rsp, 8",
    "test rax, rax",
    "jnz 3f",
    "ret",
    // The end of a handler: this frame is given up for that one's.
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

// The handler of SIGILL, where sites have our trapping instruction (crate::patched_code). What is another one is the guest's own.
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

// stage_on_guest_stack(frame, number, arguments): rbp keeps the frame, rbx the slot's stack pointer.
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
    // The same without looking: for the mask of a signal that was deferred.
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

/// How many return addresses can have an exit.
const EXITS: usize = 32;
/// Bytes of one exit: `syscall`, `mov rcx, [rip + …]`, `jmp rcx`, and padding.
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

/// How many return addresses can have an exit for `clone3` with `CLONE_CLEAR_SIGHAND`.
const CLEARED: usize = 4;
/// Bytes of one.
const CLEARED_SIZE: u64 = 64;

// The stack has two words of ours: the first argument of the guest's call, and how far it has to go up besides. A child has something to do before
// it is the guest's; neither it nor its parent may have a register or a flag changed (but for rcx and r11, which `syscall` loses too).
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
    /// Where rewritten sites jump to: number in rax, return address in rcx.
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

/// Makes a call with the guest's stack pointer, so that a signal's handler that interrupts it runs on the guest's stack. Signals that were
/// deferred before are delivered first. `after` is what has to be done when it has been made.
///
/// # Safety
/// As the call itself. It does not come back where a handler interrupts it: [`surface`]. So the caller holds nothing but what `after` names.
pub(crate) unsafe fn on_guest_stack(frame: &mut Frame, call: &Call, after: After) -> i64 {
    if call.arch == abi::syscalls::ARCH_I386 {
        // SAFETY: as the caller says.
        return unsafe { crate::compat32::make(call) };
    }
    // SAFETY: the slot is this call's, and its head another member than the frame.
    unsafe { (*slots::of(frame)).head.after = after };
    loop {
        // SAFETY: nothing of ours is written to the guest's stack: the kernel puts signal frames below its red zone.
        let result = unsafe {
            stage_on_guest_stack(frame, u64::from(call.number), &raw const call.arguments)
        };
        if result != DEFERRED {
            return result;
        }
        // SAFETY: as above.
        unsafe { (*slots::of(frame)).head.answered = false };
        crate::signals::deliver(frame);
    }
}

/// A signal was deferred, and the call is answered.
extern "C" fn deliver_last(frame: &mut Frame) {
    // SAFETY: the slot is this call's, and its head another member than the frame.
    unsafe { (*slots::of(frame)).head.answered = true };
    crate::signals::deliver(frame);
}

/// The same without looking for deferred signals.
///
/// # Safety
/// As the call itself.
pub(crate) unsafe fn on_guest_stack_at_once(
    frame: &mut Frame,
    number: u32,
    arguments: [u64; 6],
) -> i64 {
    // SAFETY: as for `on_guest_stack`.
    unsafe { stage_on_guest_stack_at_once(frame, u64::from(number), &raw const arguments) }
}

/// Where a signal that interrupted at `instruction`, with the stack pointer in a slot, has to go on: behind a look for deferred signals it
/// goes back to the look.
pub(crate) fn look_again(instruction: u64, stack: u64, frame: u64) -> Option<(u64, u64)> {
    let at = |function: unsafe extern "C" fn()| function as *const () as u64;
    if (at(stage_look)..at(stage_looked)).contains(&instruction) {
        return Some((at(stage_look), stack));
    }
    // All registers are loaded from the frame again.
    (at(stage_leave)..at(stage_left)).contains(&instruction).then(|| (at(stage_leave), frame))
}

/// Makes a signal's context what it would be if there was no stage, before a handler of the guest's sees it: handlers unwind, cancel threads,
/// leave by `siglongjmp` or switch stacks, and look at the instruction that they interrupted.
///
/// A call that the signal has interrupted, or that was about to be made, is given up with its slot: the context goes on at the guest's own
/// instruction, or behind it with the result. Only a call that was made, and whose end has to be seen, goes on in the stage.
pub(crate) fn surface(context: &mut Context) {
    let at = |function: unsafe extern "C" fn()| function as *const () as u64;
    let registers = &mut context.registers;
    if registers.rip == at(stage_left) {
        // SAFETY: r11 points to the head of the slot that was about to be given back.
        unsafe { (*(registers.r11 as *const Head)).taken.store(0, Ordering::Release) };
        registers.rip = registers.rcx;
        return;
    }
    let (made, delivered) =
        (registers.rip == at(stage_called), registers.rip == at(stage_delivered));
    if !(made || delivered || registers.rip == at(stage_looked)) {
        if crate::shared::has_texts() {
            crate::patched_code::surface(registers);
        }
        return;
    }
    let frame = registers.rbp as *mut Frame;
    // SAFETY: at these instructions rbp is the frame of the call, whose slot this thread has taken.
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
    // SAFETY: the kernel has written the state there.
    unsafe { restore_vectors(registers.floating as *mut u8, &frame.vectors) };
    head.taken.store(0, Ordering::Release);
}

/// Puts xmm0 to xmm15 into a signal frame's floating-point state.
///
/// # Safety
/// `state` is null, or `struct _fpstate_64` as the kernel wrote it.
unsafe fn restore_vectors(state: *mut u8, vectors: &[u128; 16]) {
    const VECTORS: usize = 160;
    const SOFTWARE: usize = 464;
    const FEATURES: usize = 512;
    const MAGIC: u32 = 0x4650_5853;
    const SSE: u64 = 2;
    if state.is_null() {
        return;
    }
    // SAFETY: the legacy area has 512 bytes; behind it comes the header where the first word for software says so.
    unsafe {
        state.add(VECTORS).cast::<[u128; 16]>().write_unaligned(*vectors);
        if state.add(SOFTWARE).cast::<u32>().read_unaligned() == MAGIC {
            let features = state.add(FEATURES).cast::<[u8; 8]>();
            *features = (u64::from_le_bytes(*features) | SSE).to_le_bytes();
        }
    }
}

/// Return addresses of the exits; 0 where one is free.
static BOUND: [AtomicU64; EXITS] = [const { AtomicU64::new(0) }; EXITS];
/// Likewise of those with `CLONE_CLEAR_SIGHAND`.
static BOUND_CLEARED: [AtomicU64; CLEARED] = [const { AtomicU64::new(0) }; CLEARED];

/// Which of these belongs to a return address, from now on for good; `None` where all belong to others.
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

/// Lets a call leave by the exit of its return address: when [`crate::dispatch::caught`] returns, the slot is given back, the registers are the
/// guest's, and then the call is made. False where all exits belong to others.
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

/// The same for `clone3` with `CLONE_CLEAR_SIGHAND`, whose child takes away the guest's handlers ([`crate::signals::clear`]). The caller sees to the
/// argument, and to what both child and parent find on their stacks.
pub(crate) fn exit_cleared(frame: &mut Frame) -> bool {
    if frame.origin & NARROW != 0 {
        return false;
    }
    let Some(index) = bind(&BOUND_CLEARED, frame.return_address) else { return false };
    frame.rax = frame.number;
    frame.return_address = stage_cleared_exits as *const () as u64 + CLEARED_SIZE * index;
    true
}

/// Has the guest make its call again at its own instruction, where the kernel asks every filter: for what only the kernel can do (a signal of
/// the guest's own filter, an end by it). The frame is changed to that end, and the call's result is nobody's. False where the instruction is
/// not there any more, because the site was rewritten.
///
/// Our own filter would only bring the call here again, so this is for calls to which a filter of the guest's says something severer, or the
/// same and later.
pub(crate) fn outside(frame: &mut Frame) -> bool {
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

/// The part of the handler of `SIGSYS` that is no instruction by itself: the interrupted context goes on in a slot (0). Where it was the end of a
/// handler of the guest's, the stack pointer with that one's frame, which is to be restored at once.
unsafe extern "C" fn redirect(
    _: i32,
    information: *const Information,
    context: *mut Context,
) -> u64 {
    // SAFETY: the kernel's arguments to a handler with SA_SIGINFO, which live until the handler returns.
    let (information, registers) = unsafe { (&*information, &mut (*context).registers) };
    let narrow = information.architecture == abi::syscalls::ARCH_I386;
    if !narrow && information.number == linux_raw_sys::general::__NR_rt_sigreturn {
        return crate::signals::before_return(registers);
    }
    let origin = if narrow { BY_SIGNAL | NARROW } else { BY_SIGNAL };
    resume(registers, information.number, origin);
    0
}

/// The same of the handler of `SIGILL`: the interrupted instruction stands where a `syscall` was.
unsafe extern "C" fn redirect_trap(_: i32, _: *const Information, context: *mut Context) -> u64 {
    // SAFETY: the kernel's argument to a handler with SA_SIGINFO, which lives until the handler returns.
    let registers = unsafe { &mut (*context).registers };
    let number = registers.rax as u32;
    if number == linux_raw_sys::general::__NR_rt_sigreturn {
        return crate::signals::before_return(registers);
    }
    registers.rip += abi::code::form::TRAP.len() as u64;
    resume(registers, number, BY_SIGNAL);
    0
}

/// Has an interrupted context go on in a slot, with a call that is about to be made; its instruction pointer is behind the call.
fn resume(registers: &mut crate::signals::context::Registers, number: u32, origin: u64) {
    let slot = slots::take(registers.rsp);
    // SAFETY: the slot has just been taken, so nobody else looks at it.
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
    // Direction and single steps are none of ours.
    registers.flags &= !0x500;
}
