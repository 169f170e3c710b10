//! Reading and writing the guest's memory, where a bad pointer is an error and not a signal.
//!
//! The guest's memory is ours: it is copied by a few instructions, whose addresses the handler of `SIGSEGV` and `SIGBUS` knows. A fault there
//! goes on behind them ([`fixup`]), and the copy says how far it came. Where these signals may be blocked, memory is tried first ([`careful`]).

mod careful;

use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use view::Errno;

// stage_copy(to, from, length): how many bytes are left.
// stage_copy_text(to, from, room): bytes before the NUL, which is copied too; `fd_exhaustion` where there is none; -1 where the memory ends before.
global_asm!(
    ".globl stage_copy",
    ".p2align 4",
    "stage_copy:",
    "mov rcx, rdx",
    "cmp rcx, 64",
    "ja stage_copy_bytes",
    // A few words: the string instruction takes longer to begin.
    "2:",
    "cmp rcx, 8",
    "jb stage_copy_few",
    "mov rax, [rsi]",
    "mov [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "sub rcx, 8",
    "jmp 2b",
    ".globl stage_copy_few",
    "stage_copy_few:",
    "test rcx, rcx",
    "jz stage_copied_bytes",
    "mov al, [rsi]",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec rcx",
    "jmp stage_copy_few",
    "stage_copy_bytes:",
    "rep movsb",
    ".globl stage_copied_bytes",
    "stage_copied_bytes:",
    "mov rax, rcx",
    "ret",
    ".globl stage_copy_text",
    ".p2align 4",
    "stage_copy_text:",
    "xor eax, eax",
    "pxor xmm1, xmm1",
    "2:",
    "lea rcx, [rax + 16]",
    "cmp rcx, rdx",
    "ja 4f",
    // Sixteen bytes at once, unless they reach into another page, which may not be there.
    "lea rcx, [rsi + rax]",
    "and ecx, 0xfff",
    "cmp ecx, 0xff0",
    "ja 4f",
    "movdqu xmm0, [rsi + rax]",
    "movdqu [rdi + rax], xmm0",
    "pcmpeqb xmm0, xmm1",
    "pmovmskb ecx, xmm0",
    "test ecx, ecx",
    "jnz 3f",
    "add rax, 16",
    "jmp 2b",
    "3:",
    "bsf ecx, ecx",
    "add rax, rcx",
    "ret",
    "4:",
    "cmp rax, rdx",
    "jae 5f",
    "movzx ecx, byte ptr [rsi + rax]",
    "mov [rdi + rax], cl",
    "test ecx, ecx",
    "jz 5f",
    "inc rax",
    "jmp 2b",
    ".globl stage_copied_text",
    "stage_copied_text:",
    "mov rax, -1",
    "5:",
    "ret",
);

unsafe extern "C" {
    fn stage_copy(to: *mut u8, from: *const u8, length: usize) -> usize;
    fn stage_copy_few();
    fn stage_copied_bytes();
    fn stage_copy_text(to: *mut u8, from: *const u8, room: usize) -> isize;
    fn stage_copied_text();
}

/// Where a fault at this instruction goes on, if it is one that copies the guest's memory.
pub(crate) fn fixup(instruction: u64) -> Option<u64> {
    let at = |function: unsafe extern "C" fn()| function as *const () as u64;
    // Of a word that is not there some bytes may be.
    let copy = stage_copy as *const () as u64;
    if (copy..at(stage_copy_few)).contains(&instruction) {
        return Some(at(stage_copy_few));
    }
    if (copy..at(stage_copied_bytes)).contains(&instruction) {
        return Some(at(stage_copied_bytes));
    }
    let text = stage_copy_text as *const () as u64;
    (text..at(stage_copied_text)).contains(&instruction).then(|| at(stage_copied_text))
}

/// Addresses at which nothing of a program's can lie: the first page (whoever may map that does so to be told of null pointers), and the
/// kernel's half. No fault is needed to know, and a thread that blocks `SIGSEGV` would not survive one.
#[inline]
const fn is_nowhere(at: u64) -> bool {
    at.wrapping_sub(abi::elf::PAGE) >= (1 << 47) - abi::elf::PAGE
}

/// Reads all of `into`, or `EFAULT`.
pub(crate) fn read(at: u64, into: &mut [u8]) -> Result<(), Errno> {
    if is_nowhere(at) && !into.is_empty() || readable(at, into.len()) != into.len() {
        return Err(Errno::EFAULT);
    }
    read_now(at, into)
}

fn read_now(at: u64, into: &mut [u8]) -> Result<(), Errno> {
    // SAFETY: what is written is ours; what is read may be missing.
    let left = unsafe { stage_copy(into.as_mut_ptr(), at as *const u8, into.len()) };
    if left == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Reads as far as the memory goes; `EFAULT` if that is nothing.
pub(crate) fn read_some(at: u64, into: &mut [u8]) -> Result<usize, Errno> {
    if is_nowhere(at) && !into.is_empty() {
        return Err(Errno::EFAULT);
    }
    let wanted = readable(at, into.len());
    // SAFETY: as for `read`.
    let left = unsafe { stage_copy(into.as_mut_ptr(), at as *const u8, wanted) };
    if left == wanted && !into.is_empty() { Err(Errno::EFAULT) } else { Ok(wanted - left) }
}

/// Writes all of `from`, or `EFAULT` (some may have been written).
pub(crate) fn write(at: u64, from: &[u8]) -> Result<(), Errno> {
    if is_nowhere(at) && !from.is_empty() {
        return Err(Errno::EFAULT);
    }
    if is_careful() {
        return careful::write(at, from);
    }
    write_now(at, from)
}

fn write_now(at: u64, from: &[u8]) -> Result<(), Errno> {
    // SAFETY: the guest has named this memory for the result; what it breaks by that is its own, as it would be with the kernel.
    let left = unsafe { stage_copy(at as *mut u8, from.as_ptr(), from.len()) };
    if left == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Reads a string up to its NUL: its length. Where it does not end within `into` that is the length of `into`.
pub(crate) fn read_text(at: u64, into: &mut [u8]) -> Result<usize, Errno> {
    if is_nowhere(at) {
        return Err(Errno::EFAULT);
    }
    if is_careful() {
        return careful::read_text(at, into);
    }
    read_text_now(at, into)
}

fn read_text_now(at: u64, into: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: as for `read`.
    let length = unsafe { stage_copy_text(into.as_mut_ptr(), at as *const u8, into.len()) };
    usize::try_from(length).map_err(|_| Errno::EFAULT)
}

/// A thread of this process blocks, or may come to block, the signals that tell of a bad access.
static CAREFUL: AtomicBool = AtomicBool::new(false);

/// From now on the signals of bad accesses may be blocked when memory is touched: a fault would end the process.
pub(crate) fn be_careful() {
    if !is_careful() {
        CAREFUL.store(true, Relaxed);
    }
}

#[inline]
fn is_careful() -> bool {
    CAREFUL.load(Relaxed)
}

/// How many of these bytes may be read as far as is known: all of them, where a fault would not be the end.
#[inline]
fn readable(at: u64, length: usize) -> usize {
    if is_careful() { careful::readable(at, length) } else { length }
}
