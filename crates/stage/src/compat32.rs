//! Calls of i386's (`int 0x80`) by 64-bit programs: emulators and language runtimes make them, with addresses below 4 GiB.
//!
//! The view decides them like all others. What is left for the kernel is made the same way, where every argument fits into 32 bits: then
//! nothing of ours is among them. Otherwise the view has put something of ours in their place, which lies far above; then it is made as the
//! 64-bit call of the same kind, whose arguments are the same (calls whose structures differ are the view's own work, and never left to
//! the kernel with changed arguments).

use crate::system;
use abi::calls::{Arch, Op};
use core::arch::asm;
use view::{Call, Errno};

/// Makes such a call, on the stage's stack; its result.
///
/// # Safety
/// As the call itself.
pub(crate) unsafe fn make(call: &Call) -> i64 {
    if call.arguments.iter().all(|argument| *argument >> 32 == 0) {
        // SAFETY: as the caller says.
        return unsafe { make_narrow(call) };
    }
    let op = abi::calls::find(call.arch, call.number).map(|entry| entry.op);
    match op.filter(|op| is_the_same(*op)).and_then(|op| op.entry().number(Arch::X86_64)) {
        // SAFETY: as the caller says.
        Some(number) => unsafe { system::call(number, call.arguments) },
        None => Errno::ENOSYS.result(),
    }
}

/// Whether both kinds of call take the same, but for the width of addresses.
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
    // SAFETY: the kernel changes rax, on older kernels r8 to r11 too, and what the arguments point to. rbx and rbp are put back.
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
