//! Reads the system call of a stopped thread, and changes parts of it.
//!
//! Each request to ptrace costs half a microsecond, and reading all registers as much again. So a
//! call is read by `PTRACE_GET_SYSCALL_INFO` (Linux 5.3; all registers before), and changed
//! register by register.

use super::registers::{Gate, Registers};
use super::{Stopped, request};
use abi::syscalls::{ARCH_I386, ARCH_X86_64};
use linux_raw_sys::ptrace as requests;
use rustix::io::Errno;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};

/// A call, at a stop before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// `AUDIT_ARCH_*`: a 64-bit program can make 32-bit calls.
    pub architecture: u32,
    /// Number.
    pub number: u32,
    /// Arguments; those of an i386 call are zero-extended.
    pub arguments: [u64; 6],
    /// Address of the next instruction.
    pub instruction: u64,
    /// The stack pointer.
    pub stack: u64,
}

/// `struct ptrace_syscall_info` at an entry or a seccomp stop.
#[repr(C)]
#[derive(Default)]
struct Info {
    operation: u8,
    reserved: [u8; 3],
    architecture: u32,
    instruction: u64,
    stack: u64,
    number: u64,
    arguments: [u64; 6],
    data: [u64; 2],
}

/// The instruction by which 64-bit code makes 32-bit calls: `int 0x80`.
const INT_80: [u8; 2] = [0xcd, 0x80];

/// True once the kernel has refused `PTRACE_GET_SYSCALL_INFO`.
static UNKNOWN: AtomicBool = AtomicBool::new(false);

/// Offsets of the argument registers, for native calls and for i386.
const ARGUMENTS: [[usize; 6]; 2] = [
    [
        offset_of!(Registers, rdi),
        offset_of!(Registers, rsi),
        offset_of!(Registers, rdx),
        offset_of!(Registers, r10),
        offset_of!(Registers, r8),
        offset_of!(Registers, r9),
    ],
    [
        offset_of!(Registers, rbx),
        offset_of!(Registers, rcx),
        offset_of!(Registers, rdx),
        offset_of!(Registers, rsi),
        offset_of!(Registers, rdi),
        offset_of!(Registers, rbp),
    ],
];

impl Stopped {
    /// The call that the thread is about to make: at [`super::Stop::Seccomp`], and at the entry of
    /// [`super::Stop::Syscall`].
    pub fn entry(&self) -> Result<Entry, Errno> {
        if !UNKNOWN.load(Ordering::Relaxed) {
            let mut info = Info::default();
            // SAFETY: the request writes at most the given number of bytes to `info`, which lives
            // during the call.
            let read = unsafe {
                request(
                    requests::PTRACE_GET_SYSCALL_INFO,
                    self.id,
                    size_of::<Info>(),
                    &raw mut info as usize,
                )
            };
            match read {
                Ok(_)
                    if matches!(
                        u32::from(info.operation),
                        requests::PTRACE_SYSCALL_INFO_ENTRY | requests::PTRACE_SYSCALL_INFO_SECCOMP
                    ) =>
                {
                    return Ok(info.entry());
                }
                Ok(_) => {}
                Err(Errno::IO | Errno::INVAL) => UNKNOWN.store(true, Ordering::Relaxed),
                Err(errno) => return Err(errno),
            }
        }
        let registers = self.registers()?;
        let compat = self.gate(&registers) == Gate::Compat;
        Ok(Entry {
            architecture: if compat { ARCH_I386 } else { ARCH_X86_64 },
            number: registers.number(),
            arguments: registers.arguments(compat),
            instruction: registers.rip,
            stack: registers.rsp,
        })
    }

    /// The way in which the thread makes its call, at a stop before it or in it; never
    /// [`Gate::Unclear`].
    pub fn gate(&self, registers: &Registers) -> Gate {
        match registers.gate() {
            Gate::Unclear => {
                let mut code = [0; INT_80.len()];
                let at = registers.rip.wrapping_sub(INT_80.len() as u64);
                match self.memory().read(at, &mut code) {
                    Ok(()) if code == INT_80 => Gate::Compat,
                    _ => Gate::Native,
                }
            }
            gate => gate,
        }
    }

    /// Keeps the kernel from making the call, which returns `result`. For a stop before it.
    pub fn skip(&self, result: i64) -> Result<(), Errno> {
        self.poke(offset_of!(Registers, orig_rax), u64::MAX)?;
        self.set_result(result)
    }

    /// Replaces the number of the call.
    pub fn set_number(&self, number: u32) -> Result<(), Errno> {
        self.poke(offset_of!(Registers, orig_rax), u64::from(number))
    }

    /// Replaces an argument of the call, counted from 0.
    pub fn set_argument(&self, architecture: u32, index: usize, value: u64) -> Result<(), Errno> {
        let arguments = &ARGUMENTS[usize::from(architecture == ARCH_I386)];
        arguments.get(index).map_or(Err(Errno::INVAL), |offset| self.poke(*offset, value))
    }

    /// The result of the call, at a stop after it: a negative error number, or a value.
    pub fn result(&self) -> Result<i64, Errno> {
        let mut value = 0_i64;
        // SAFETY: the raw system call (unlike the library's function) writes the word to `data`,
        // which points to `value`.
        unsafe {
            request(
                requests::PTRACE_PEEKUSR,
                self.id,
                offset_of!(Registers, rax),
                &raw mut value as usize,
            )
        }?;
        Ok(value)
    }

    /// Sets the result of the call.
    pub fn set_result(&self, result: i64) -> Result<(), Errno> {
        self.poke(offset_of!(Registers, rax), result as u64)
    }

    fn poke(&self, offset: usize, value: u64) -> Result<(), Errno> {
        // SAFETY: PTRACE_POKEUSR takes the value itself as data, no pointer; it changes the tracee
        // only.
        unsafe { request(requests::PTRACE_POKEUSR, self.id, offset, value as usize) }.map(drop)
    }
}

impl Info {
    fn entry(&self) -> Entry {
        let mut arguments = self.arguments;
        if self.architecture == ARCH_I386 {
            for argument in &mut arguments {
                *argument &= 0xffff_ffff;
            }
        }
        Entry {
            architecture: self.architecture,
            number: self.number as u32,
            arguments,
            instruction: self.instruction,
            stack: self.stack,
        }
    }
}
