//! The structures that the kernel passes to a signal handler (`siginfo_t`, `ucontext_t`), as far as
//! the stage uses them.

/// `siginfo_t` of a `SIGSYS`.
#[repr(C)]
pub(crate) struct Information {
    pub(crate) signal: i32,
    /// `si_errno`: the data of the filter's result.
    pub(crate) data: i32,
    pub(crate) code: i32,
    _padding: u32,
    /// `si_call_addr`: the address behind the instruction.
    pub(crate) address: u64,
    /// `si_syscall`.
    pub(crate) number: u32,
    /// `si_arch`: `AUDIT_ARCH_*`.
    pub(crate) architecture: u32,
}

/// The general registers in `struct sigcontext`.
#[repr(C)]
pub(crate) struct Registers {
    pub(crate) r8: u64,
    pub(crate) r9: u64,
    pub(crate) r10: u64,
    pub(crate) r11: u64,
    pub(crate) r12: u64,
    pub(crate) r13: u64,
    pub(crate) r14: u64,
    pub(crate) r15: u64,
    pub(crate) rdi: u64,
    pub(crate) rsi: u64,
    pub(crate) rbp: u64,
    pub(crate) rbx: u64,
    pub(crate) rdx: u64,
    pub(crate) rax: u64,
    pub(crate) rcx: u64,
    pub(crate) rsp: u64,
    pub(crate) rip: u64,
    pub(crate) flags: u64,
    /// cs, gs, fs, ss.
    pub(crate) segments: u64,
    pub(crate) error: u64,
    pub(crate) trap: u64,
    pub(crate) old_mask: u64,
    pub(crate) cr2: u64,
    /// Address of the floating-point state.
    pub(crate) floating: u64,
    pub(crate) reserved: [u64; 8],
}

/// `ucontext_t`.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) flags: u64,
    pub(crate) link: u64,
    /// `uc_stack`: the alternate stack (address; flags; size).
    pub(crate) alternate: [u64; 3],
    pub(crate) registers: Registers,
    /// `uc_sigmask`: the mask that is restored when the handler returns.
    pub(crate) mask: u64,
}
