//! Reads and writes the guest's memory; a bad pointer is an error and not a signal.
//!
//! The guest's memory is in the same address space. A few instructions copy it, and the handler of
//! `SIGSEGV` and `SIGBUS` knows their addresses: after a fault there, execution continues behind
//! them ([`fixup`]), and the copy reports how far it came. If these signals may be blocked, memory
//! is tested first ([`careful`]).

mod careful;

use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use view::Errno;

// stage_copy(to, from, length): returns the number of bytes left. stage_copy_text(to, from, room):
// returns the number of bytes before the NUL, which is copied too; `room` if there is none; -1 if
// the memory ends before.
global_asm!(
    ".globl stage_copy",
    ".p2align 4",
    "stage_copy:",
    "mov rcx, rdx",
    "cmp rcx, 64",
    "ja stage_copy_bytes",
    // For a few words: the string instruction takes longer to start.
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
    // Sixteen bytes at once, unless they reach into another page, which may not be mapped.
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

/// The instruction at which execution continues after a fault at this one, if it copies the guest's
/// memory.
pub(crate) fn fixup(instruction: u64) -> Option<u64> {
    let at = |function: unsafe extern "C" fn()| function as *const () as u64;
    // Some bytes of a word that faults may be mapped.
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

/// Returns true for addresses where a program has no memory: the first page (programs map it only
/// to detect null pointers), and the kernel's half. Then no fault is needed, which a thread that
/// blocks `SIGSEGV` would not survive.
#[inline]
const fn is_nowhere(at: u64) -> bool {
    at.wrapping_sub(abi::elf::PAGE) >= (1 << 47) - abi::elf::PAGE
}

/// Reads all of `into`, or fails with `EFAULT`.
pub(crate) fn read(at: u64, into: &mut [u8]) -> Result<(), Errno> {
    if is_nowhere(at) && !into.is_empty() || readable(at, into.len()) != into.len() {
        return Err(Errno::EFAULT);
    }
    read_now(at, into)
}

fn read_now(at: u64, into: &mut [u8]) -> Result<(), Errno> {
    // SAFETY: `into` is valid for writing; a fault while reading is handled by `fixup`.
    let left = unsafe { stage_copy(into.as_mut_ptr(), at as *const u8, into.len()) };
    if left == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Reads as many bytes as are mapped; `EFAULT` if there are none.
pub(crate) fn read_some(at: u64, into: &mut [u8]) -> Result<usize, Errno> {
    if is_nowhere(at) && !into.is_empty() {
        return Err(Errno::EFAULT);
    }
    let wanted = readable(at, into.len());
    // SAFETY: as for `read`: `into` is valid for writing, and a fault while reading is handled by
    // `fixup`.
    let left = unsafe { stage_copy(into.as_mut_ptr(), at as *const u8, wanted) };
    if left == wanted && !into.is_empty() { Err(Errno::EFAULT) } else { Ok(wanted - left) }
}

/// Writes all of `from`, or fails with `EFAULT` (part of it may have been written).
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
    // SAFETY: the guest has named this memory for the result; if it damages the guest's own data,
    // the kernel would have done the same. A fault is handled by `fixup`.
    let left = unsafe { stage_copy(at as *mut u8, from.as_ptr(), from.len()) };
    if left == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Reads a string up to its NUL and returns its length. If it does not end within `into`, returns
/// the length of `into`.
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
    // SAFETY: as for `read`: `into` is valid for writing, and a fault while reading is handled by
    // `fixup`.
    let length = unsafe { stage_copy_text(into.as_mut_ptr(), at as *const u8, into.len()) };
    usize::try_from(length).map_err(|_| Errno::EFAULT)
}

/// Set if a thread of this process blocks, or may come to block, the signals of bad accesses.
static CAREFUL: AtomicBool = AtomicBool::new(false);

/// From now on the signals of bad accesses may be blocked when memory is accessed, so a fault would
/// end the process.
pub(crate) fn be_careful() {
    if !is_careful() {
        CAREFUL.store(true, Relaxed);
    }
}

#[inline]
fn is_careful() -> bool {
    CAREFUL.load(Relaxed)
}

/// Number of these bytes that may be read, as far as is known: all of them, if a fault would not be
/// fatal.
#[inline]
fn readable(at: u64, length: usize) -> usize {
    if is_careful() { careful::readable(at, length) } else { length }
}
