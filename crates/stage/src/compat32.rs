//! Makes i386 calls (`int 0x80`) for 64-bit programs: emulators and language runtimes use them,
//! with addresses below 4 GiB.
//!
//! The view decides them like all others. A call that is left to the kernel is made in the same way
//! if every argument fits into 32 bits: then none of them points to the stage's memory. Otherwise
//! the view has replaced an argument by an address in the stage, which is far above. Then the call
//! is made as the 64-bit call of the same kind, whose arguments are the same. (Calls whose
//! structures differ are executed by the view itself, and never left to the kernel with changed
//! arguments.)

use crate::system;
use abi::calls::{Arch, Op};
use core::arch::asm;
use view::{Call, Errno};

/// Makes such a call on the stage's stack and returns its result.
///
/// # Safety
///
/// As for the call itself: its pointers and mappings must be right.
pub(crate) unsafe fn make(call: &Call) -> i64 {
    if call.arguments.iter().all(|argument| *argument >> 32 == 0) {
        // SAFETY: the caller answers for the call's pointers; all arguments fit into the registers
        // of a 32-bit call.
        return unsafe { make_narrow(call) };
    }
    let op = abi::calls::find(call.arch, call.number).map(|entry| entry.op);
    match op.filter(|op| is_the_same(*op)).and_then(|op| op.entry().number(Arch::X86_64)) {
        // SAFETY: the caller answers for the call's pointers, and the 64-bit call reads the same
        // structures through them ([`is_the_same`]).
        Some(number) => unsafe { system::call(number, call.arguments) },
        None => Errno::ENOSYS.result(),
    }
}

/// Returns true if the i386 call and the 64-bit call have the same arguments and structures, except
/// for the width of addresses.
const fn is_the_same(op: Op) -> bool {
    !matches!(
        op,
        Op::Socketcall
            | Op::Sendmsg
            | Op::Recvmsg
            | Op::Sendmmsg
            | Op::Recvmmsg
            | Op::Ppoll
            | Op::Pselect6
            | Op::IoPgetevents
            | Op::Utime
            | Op::Utimes
            | Op::Futimesat
            | Op::Utimensat
            | Op::Truncate64
            | Op::Ftruncate64
            | Op::Getdents
            | Op::Execve
            | Op::Execveat
            | Op::Ioctl
            | Op::Ptrace
            | Op::Keyctl
            | Op::Statfs
            | Op::Fstatfs
    )
}

unsafe fn make_narrow(call: &Call) -> i64 {
    let result: i64;
    let [first, second, third, fourth, fifth, sixth] = call.arguments;
    // SAFETY: the kernel changes rax, on older kernels also r8 to r11, and the memory that the
    // arguments point to, for which the caller answers. rbx and rbp are restored.
    unsafe {
        asm!(
            "push rbx",
            "push rbp",
            "mov ebx, r8d",
            "mov ebp, r9d",
            "int 0x80",
            "pop rbp",
            "pop rbx",
            inlateout("rax") u64::from(call.number) => result,
            inlateout("r8") first => _,
            in("rcx") second,
            in("rdx") third,
            in("rsi") fourth,
            in("rdi") fifth,
            inlateout("r9") sixth => _,
            lateout("r10") _,
            lateout("r11") _,
        );
    }
    result
}
