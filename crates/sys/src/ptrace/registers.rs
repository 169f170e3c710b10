//! General registers of a stopped thread, with the places of a system call's number, arguments and
//! result.
//!
//! On x86-64 the kernel gives a 64-bit tracer the 64-bit form also for 32-bit programs
//! (`PTRACE_GETREGS`; `PTRACE_GETREGSET` would give their own form).

use super::{Id, request};
use linux_raw_sys::ptrace as requests;
use rustix::io::Errno;

/// `struct user_regs_struct` of x86-64.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the processor's names")]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub orig_rax: u64,
    pub rip: u64,
    pub cs: u64,
    pub eflags: u64,
    pub rsp: u64,
    pub ss: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    pub ds: u64,
    pub es: u64,
    pub fs: u64,
    pub gs: u64,
}

/// Code segment of 32-bit programs.
const CODE_32: u64 = 0x23;

/// The way in which a thread made its system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// By `syscall` from 64-bit code.
    Native,
    /// As an i386 program.
    Compat,
    /// The registers do not show it: rare, and worth another request.
    Unclear,
}

pub(super) fn read(id: Id) -> Result<Registers, Errno> {
    let mut registers = Registers::default();
    // SAFETY: the request writes a `struct user_regs_struct`, which `registers` has the layout of.
    unsafe { request(requests::PTRACE_GETREGS, id, 0, &raw mut registers as usize) }?;
    Ok(registers)
}

pub(super) fn write(id: Id, registers: &Registers) -> Result<(), Errno> {
    // SAFETY: the request only reads a `struct user_regs_struct`, which `registers` has the layout
    // of.
    unsafe { request(requests::PTRACE_SETREGS, id, 0, &raw const *registers as usize) }.map(drop)
}

impl Registers {
    /// The way in which the call was made, at a stop before it.
    ///
    /// The `syscall` instruction leaves the address of the next one in `rcx`; `int 0x80`, which
    /// 64-bit code can use too, does not.
    pub fn gate(&self) -> Gate {
        if self.cs == CODE_32 {
            Gate::Compat
        } else if self.rcx == self.rip {
            Gate::Native
        } else {
            Gate::Unclear
        }
    }

    /// Number of the call.
    pub fn number(&self) -> u32 {
        self.orig_rax as u32
    }

    /// Arguments of the call; those of an i386 call are zero-extended.
    pub fn arguments(&self, compat: bool) -> [u64; 6] {
        if compat {
            [self.rbx, self.rcx, self.rdx, self.rsi, self.rdi, self.rbp]
                .map(|register| register & 0xffff_ffff)
        } else {
            [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
        }
    }
}
