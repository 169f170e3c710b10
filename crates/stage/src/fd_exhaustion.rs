//! Calls that need a descriptor for a moment, in a process that has none left.
//!
//! The kernel finds a file without one; the view often holds a directory or the file itself. So such a call is made once more by a child that shares
//! this memory, the working directory and all open files, but has a table of descriptors of its own ([`again`]): in that it closes some of the
//! last. Meanwhile its parent, on whose stack it runs, stands still (`vfork`). Nobody else hears of it: it ends without a signal, and no wait of
//! the guest's shows it that does not ask for everything.
//!
//! Calls that make descriptors have their `EMFILE` as they would have without us. `execve` has it too: the program has to be held open.

use crate::dispatch::{Visit, by_view};
use crate::{signals, system, tasks};
use abi::boot::TREE_DESCRIPTOR;
use abi::calls::Op;
use core::arch::asm;
use linux_raw_sys::general as raw;
use view::Errno;

/// How many descriptors the child closes: more than any call holds at once.
const CLOSED: u32 = 12;

/// What the child is to do, and what came of it.
struct Errand<'a, 'b> {
    visit: &'a mut Visit<'b>,
    op: Op,
    result: i64,
}

/// Makes a call again for which there was no descriptor; its result. `None` where that is what the guest is to be told.
#[cold]
#[inline(never)]
pub(crate) fn again(visit: &mut Visit<'_>, op: Op) -> Option<i64> {
    if !is_without_descriptors(op) || tasks::changes(op) {
        return None;
    }
    let mut errand = Errand { visit, op, result: Errno::EMFILE.result() };
    // What is sent to all of the container's processes, or of the terminal's, is for the parent alone.
    let mask = signals::hold_back();
    // SAFETY: the errand lives until this returns, and nobody uses it before the child has ended.
    let child = unsafe { branch(&raw mut errand) };
    if child > 0 {
        // SAFETY: takes a process that has ended; nothing is written.
        unsafe {
            system::call(raw::__NR_wait4, [child as u64, 0, u64::from(raw::__WALL), 0, 0, 0])
        };
    }
    signals::exchange_mask(mask);
    (child > 0).then_some(errand.result)
}

/// Whether a call gives the guest no descriptor, and takes none but by its arguments.
const fn is_without_descriptors(op: Op) -> bool {
    !matches!(
        op,
        Op::Open
            | Op::Openat
            | Op::Openat2
            | Op::Creat
            | Op::Accept
            | Op::Accept4
            | Op::Socketcall
            | Op::Sendmsg
            | Op::Sendmmsg
            | Op::Recvmsg
            | Op::Recvmmsg
            | Op::Execve
            | Op::Execveat
    )
}

/// Makes the child, which runs [`carry_out`] on this very stack, below what is in use; the parent goes on when it has ended. Its number, or an error.
///
/// # Safety
/// `errand` is valid, and nobody else's, until this returns.
unsafe fn branch(errand: *mut Errand<'_, '_>) -> i64 {
    let flags = raw::CLONE_VM | raw::CLONE_VFORK | raw::CLONE_FS;
    let result: i64;
    // SAFETY: the child leaves no function that its parent is in: it only calls one more, and ends. What it changes is memory, and registers of
    // its own.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "and rsp, -16",
            "mov rdi, r12",
            "call {carry_out}",
            "xor edi, edi",
            "mov eax, 60",
            "syscall",
            "ud2",
            "2:",
            carry_out = sym carry_out,
            inlateout("rax") u64::from(raw::__NR_clone) => result,
            in("rdi") u64::from(flags),
            in("rsi") 0_u64,
            in("rdx") 0_u64,
            in("r10") 0_u64,
            in("r8") 0_u64,
            in("r12") errand,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// What the child does.
unsafe extern "C" fn carry_out(errand: *mut Errand<'_, '_>) {
    // SAFETY: the parent stands still, and has lent it.
    let errand = unsafe { &mut *errand };
    make_room(&errand.visit.call.arguments);
    errand.result = by_view(errand.visit, errand.op);
}

/// Closes some of the last descriptors that the limit allows, but none that the call may be about.
fn make_room(arguments: &[u64; 6]) {
    const RLIMIT_NOFILE: u64 = 7;
    let mut limits = [0_u64; 2];
    let asked = [0, RLIMIT_NOFILE, 0, limits.as_mut_ptr() as u64, 0, 0];
    // SAFETY: the kernel writes the two limits.
    unsafe { system::call(raw::__NR_prlimit64, asked) };
    let mut closed = 0;
    let mut file = u32::try_from(limits[0]).unwrap_or(u32::MAX).min(1 << 20);
    while closed < CLOSED && file > 0 {
        file -= 1;
        let named = arguments.iter().any(|argument| *argument as u32 == file);
        if named || file == TREE_DESCRIPTOR as u32 {
            continue;
        }
        // SAFETY: a descriptor of this process's own table, which ends with it.
        if unsafe { system::call(raw::__NR_close, [u64::from(file), 0, 0, 0, 0, 0]) } == 0 {
            closed += 1;
        }
    }
}
