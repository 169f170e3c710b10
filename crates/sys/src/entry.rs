//! The first instructions of the binary, before those of the C library.
//!
//! A filter around this process may trap calls that it does not know instead of refusing them, as
//! Android's does: `SIGSYS` would end the program without a word, and the C library makes the first
//! such calls (`rseq`, `set_robust_list`) before `main`. So the handler that answers them with
//! `ENOSYS` is set before everything else. The libraries then do as on an older kernel.
//!
//! The handler ends with `execve`, as every handler does. `build.rs` of the binary names the entry;
//! other programs that link this crate begin as usual.

core::arch::global_asm!(
    ".pushsection .text.coracle_entry, \"ax\", @progbits",
    ".globl coracle_entry",
    ".type coracle_entry, @function",
    "coracle_entry:",
    // rt_sigaction(SIGSYS, action, NULL, 8). `rdx` is an argument of the C library's entry.
    "push rdx",
    "mov eax, 13",
    "mov edi, 31",
    "lea rsi, [rip + .Lcoracle_action]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "pop rdx",
    "jmp _start",
    // `siginfo_t` is at `rsi`: only a filter's signal (SYS_SECCOMP) belongs to a call. `ucontext_t`
    // is at `rdx`, the call's result 144 bytes into it.
    ".Lcoracle_handler:",
    "cmp dword ptr [rsi + 8], 1",
    "jne 2f",
    "mov qword ptr [rdx + 144], -38",
    "mov byte ptr [rip + coracle_trapped], 1",
    "2: ret",
    ".Lcoracle_restorer:",
    "mov eax, 15",
    "syscall",
    ".popsection",
    // SA_SIGINFO, SA_NODEFER and SA_RESTORER; no signal is blocked.
    ".pushsection .data.coracle_action, \"aw\", @progbits",
    ".balign 8",
    ".Lcoracle_action:",
    ".quad .Lcoracle_handler, 0x44000004, .Lcoracle_restorer, 0",
    ".globl coracle_trapped",
    "coracle_trapped: .byte 0",
    ".popsection",
);

unsafe extern "C" {
    /// Set by the handler.
    static coracle_trapped: u8;
}

/// Whether a filter has trapped a call of this process. Programs without the handler end then.
pub fn has_trapped() -> bool {
    // SAFETY: the byte above, which a handler writes in this thread or another at any time.
    unsafe { (&raw const coracle_trapped).read_volatile() != 0 }
}
