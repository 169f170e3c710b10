//! Signals that their process ignores.
//!
//! The kernel drops such a signal at once, but not that of a traced process (`sig_ignored` in its
//! kernel/signal.c). There it wakes a waiting call, and one that has a time limit of its socket
//! (`SO_RCVTIMEO`) cannot be begun again by the kernel: it fails with `EINTR` (signal(7)). Programs
//! that have no handler do not expect that, as of the end of a child.

use abi::calls::find;
use abi::syscalls::{ARCH_I386, ARCH_X86_64};
use rustix::io::Errno;
use sys::ptrace::{Gate, Id, Stopped};

const SIGCHLD: u32 = 17;
const SIGCONT: u32 = 18;
const SIGURG: u32 = 23;
const SIGWINCH: u32 = 28;

/// What the instructions that make a call have in common, in bytes.
const INSTRUCTION: u64 = 2;

/// Lets a call that an ignored signal has ended be made again.
pub(super) fn renew_call(stopped: &Stopped, signal: u32) {
    let Ok(mut registers) = stopped.registers() else { return };
    let interrupted = Errno::INTR.raw_os_error();
    let in_call = (registers.orig_rax as i64) >= 0;
    if !in_call || registers.rax as i64 != -i64::from(interrupted) {
        return;
    }
    let arch = if stopped.gate(&registers) == Gate::Compat { ARCH_I386 } else { ARCH_X86_64 };
    if has_limit(arch, registers.number()) && is_ignored(stopped.id(), signal) {
        registers.rax = registers.orig_rax;
        registers.rip -= INSTRUCTION;
        let _ = stopped.set_registers(&registers);
    }
}

/// Whether a call obeys the time limits of a socket, and has none of its own that would begin
/// again.
fn has_limit(arch: u32, number: u32) -> bool {
    const CALLS: &[&str] = &[
        "accept",
        "accept4",
        "connect",
        "read",
        "readv",
        "recvfrom",
        "recvmsg",
        "sendmmsg",
        "sendmsg",
        "sendto",
        "socketcall",
        "write",
        "writev",
    ];
    find(arch, number).is_some_and(|entry| CALLS.contains(&entry.name))
}

/// Whether a process ignores a signal, by its own wish or because that is what is done with it
/// otherwise.
fn is_ignored(id: Id, signal: u32) -> bool {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{id}/status")) else { return false };
    let holds = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask & 1 << (signal - 1) != 0)
    };
    let by_default = matches!(signal, SIGCHLD | SIGCONT | SIGURG | SIGWINCH);
    holds("SigIgn:") || by_default && !holds("SigCgt:")
}
