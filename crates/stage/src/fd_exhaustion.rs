//! Repeats calls for which the view needed a descriptor, in a process that has none left.
//!
//! The kernel resolves a path without a descriptor; the view often holds a directory or the file
//! itself. So such a call is made once more by a child that shares this memory, the working
//! directory and all open files, but has its own descriptor table ([`again`]): there it closes some
//! of the highest descriptors. Meanwhile its parent, on whose stack it runs, is suspended
//! (`vfork`). No other process notices the child: it ends without a signal, and a wait of the guest
//! shows it only if it asks for all children (`__WALL`).
//!
//! Calls that make descriptors fail with `EMFILE`, as they would without the stage. So does
//! `execve`, because the program has to be held open.

use crate::dispatch::{CaughtCall, by_view};
use crate::{cwd, signals, system, tasks};
use abi::boot::{TREE_DESCRIPTOR, UPPER_DESCRIPTOR};
use abi::calls::Op;
use core::arch::asm;
use linux_raw_sys::general as raw;
use view::Errno;

/// Number of descriptors that the child closes: more than any call holds at once.
const CLOSED: u32 = 12;

/// The call that the child repeats, and its result.
struct Retry<'a, 'b> {
    caught: &'a mut CaughtCall<'b>,
    op: Op,
    result: i64,
}

/// Repeats a call that failed for lack of a descriptor; returns its result. `None` if the guest has
/// to get that error.
#[cold]
#[inline(never)]
pub(crate) fn again(caught: &mut CaughtCall<'_>, op: Op) -> Option<i64> {
    let moves = matches!(op, Op::Chdir | Op::Fchdir);
    if !is_without_descriptors(op) || tasks::changes(op) && !moves {
        return None;
    }
    if moves {
        cwd::before_change();
    }
    caught.is_repeated = true;
    let mut retry = Retry { caught, op, result: Errno::EMFILE.result() };
    // Signals to all processes of the container, or of the terminal, are for the parent alone.
    let mask = signals::hold_back();
    // SAFETY: the value lives until this returns, and the parent does not use it before the child
    // has ended.
    let child = unsafe { branch(&raw mut retry) };
    if child > 0 {
        // SAFETY: waits for a child that has ended; the kernel writes nothing.
        unsafe {
            system::call(raw::__NR_wait4, [child as u64, 0, u64::from(raw::__WALL), 0, 0, 0])
        };
    }
    signals::exchange_mask(mask);
    retry.caught.is_repeated = false;
    if moves && child > 0 && retry.result >= 0 {
        tasks::commit_place(retry.caught.task);
        cwd::after_change();
    }
    (child > 0).then_some(retry.result)
}

/// Returns true if a call gives the guest no descriptor, and uses only those among its arguments.
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

/// Makes the child, which runs [`carry_out`] on the same stack, below the part that is in use. The
/// parent continues when it has ended. Returns its number, or an error.
///
/// # Safety
///
/// `retry` is valid, and not used otherwise, until this returns.
unsafe fn branch(retry: *mut Retry<'_, '_>) -> i64 {
    let flags = raw::CLONE_VM | raw::CLONE_VFORK | raw::CLONE_FS;
    let result: i64;
    // SAFETY: the child does not return from any function of its parent: it only calls one more,
    // and ends. It changes only memory below the stack pointer, what `retry` points to, and its
    // own registers.
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
            in("r12") retry,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// The work of the child.
unsafe extern "C" fn carry_out(retry: *mut Retry<'_, '_>) {
    // SAFETY: the parent is suspended and passed a valid pointer that it does not use meanwhile.
    let retry = unsafe { &mut *retry };
    make_room(&retry.caught.call.arguments);
    retry.result = by_view(retry.caught, retry.op);
}

/// Closes some of the highest descriptors that the limit allows, except those among the call's
/// arguments.
fn make_room(arguments: &[u64; 6]) {
    const RLIMIT_NOFILE: u64 = 7;
    let mut limits = [0_u64; 2];
    let asked = [0, RLIMIT_NOFILE, 0, limits.as_mut_ptr() as u64, 0, 0];
    // SAFETY: the kernel writes two words, and `limits` has two.
    unsafe { system::call(raw::__NR_prlimit64, asked) };
    let mut closed = 0;
    let mut file = u32::try_from(limits[0]).unwrap_or(u32::MAX).min(1 << 20);
    while closed < CLOSED && file > 0 {
        file -= 1;
        let named = arguments.iter().any(|argument| *argument as u32 == file);
        if named || [TREE_DESCRIPTOR, UPPER_DESCRIPTOR].contains(&(file as i32)) {
            continue;
        }
        // SAFETY: closes a descriptor in this child's own table, which ends with it.
        if unsafe { system::call(raw::__NR_close, [u64::from(file), 0, 0, 0, 0, 0]) } == 0 {
            closed += 1;
        }
    }
}
