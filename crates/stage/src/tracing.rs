//! Handles ptrace(2) between guests.
//!
//! The kernel executes the calls, because no tracer of the engine is attached here. Three problems
//! are solved:
//!
//! - A traced thread stops at every signal, including the stage's ([`system::mark`]). Such a stop
//!   is hidden from the tracer, and the thread continues in the way that the tracer chose last,
//!   with the signal ([`wait`]). Debuggers wait with `__WALL`, which the container's filter
//!   catches. Any other tracer gets an additional filter with its first request, which catches all
//!   its waits. (In modes F they come to the stage anyway.)
//! - A process that asks to be traced (`PTRACE_TRACEME`) would stop at its next call that is caught
//!   by a signal, for a tracer that waits for something else, or for a parent that traces nothing.
//!   So it is traced only when it executes a program ([`before_exec`]) or stops itself
//!   ([`before_stop`]): a debugger's child does one of the two.
//! - A traced process gets `SIGTRAP` at an `execve`, before the stage has loaded the program, and a
//!   debugger would not find the program. But all signals are blocked during an `execve`
//!   (`signals::hold`), and this one is delivered when the program is loaded.
//!
//! A tracer that follows system calls sees the stage's own calls, too, with host paths.

use crate::dispatch::{self, CaughtCall, Ruling};
use crate::shared::is_mode_f;
use crate::{entry, memory, signals, system};
use abi::boot::{LOADER_START, RANGE};
use abi::bpf::{ALLOW, Instruction, TRAP};
use abi::calls::Op;
use abi::calls::others::Right;
use abi::syscalls::ARCH_X86_64;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use linux_raw_sys::general as raw;
use linux_raw_sys::ptrace as requests;
use view::{After, Call, Errno};

/// The process that asked to be traced (this one, or a child of `vfork`); 0 if there is none.
static TRACE_LATER: AtomicU32 = AtomicU32::new(0);

/// The last requests that continued threads: number of the thread (high half), request.
static RESUMED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Set if all waiting calls of this process are caught.
static WATCHED: AtomicBool = AtomicBool::new(false);

const fn one(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
    Instruction { code, jt, jf, k }
}

const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// A filter that catches `wait4` and `waitid`, except those of this stage and of stages in the
/// places before it.
fn waits() -> [Instruction; 12] {
    let (first, last) = ((LOADER_START >> 32) as u32, (system::base() >> 32) as u32);
    [
        one(LOAD, 0, 0, 4),
        one(EQUAL, 0, 8, ARCH_X86_64),
        one(LOAD, 0, 0, 0),
        one(EQUAL, 1, 0, raw::__NR_wait4),
        one(EQUAL, 0, 5, raw::__NR_waitid),
        one(LOAD, 0, 0, 12),
        one(AT_LEAST, 0, 4, first),
        one(AT_LEAST, 3, 0, last + 1),
        one(LOAD, 0, 0, 8),
        one(AT_LEAST, 1, 0, RANGE as u32),
        one(RETURN, 0, 0, ALLOW),
        one(RETURN, 0, 0, TRAP | u32::from(system::mark())),
    ]
}

/// Makes the filter catch all waiting calls of this process from now on.
fn watch() {
    const SET_MODE_FILTER: u64 = 1;
    const ALL_THREADS: u64 = 1;
    if WATCHED.swap(true, Relaxed) || is_mode_f() {
        return;
    }
    let waits = waits();
    let header = [waits.len() as u64, waits.as_ptr() as u64];
    let header = header.as_ptr() as u64;
    // SAFETY: the kernel reads `struct sock_fprog` (a 16-bit length, a pointer at 8) and the
    // program, which live on this stack until the call has returned.
    unsafe {
        let all = [SET_MODE_FILTER, ALL_THREADS, header, 0, 0, 0];
        if system::call(raw::__NR_seccomp, all) != 0 {
            system::call(raw::__NR_seccomp, [SET_MODE_FILTER, 0, header, 0, 0, 0]);
        }
    }
}

/// Returns true if this process traces others, so that its waits have to be seen.
pub(crate) fn is_tracer() -> bool {
    WATCHED.load(Relaxed)
}

fn resumed(thread: u32) -> &'static AtomicU64 {
    &RESUMED[thread as usize % RESUMED.len()]
}

/// Decides a `ptrace`.
pub(crate) fn rule(caught: &mut CaughtCall<'_>) -> Ruling {
    let call = caught.call;
    if call.arch != ARCH_X86_64 {
        return Ruling::Done(Errno::ENOSYS.result());
    }
    let (request, thread) = (call.arguments[0] as u32, call.arguments[1] as u32);
    match request {
        requests::PTRACE_TRACEME if is_allowed() && !is_traced() => {
            let process = system::process();
            let before = TRACE_LATER.swap(process, Relaxed);
            return Ruling::Done(if before == process { Errno::EPERM.result() } else { 0 });
        }
        requests::PTRACE_ATTACH | requests::PTRACE_SEIZE
            if !dispatch::may(caught, Op::Ptrace, thread, Right::Inspect) =>
        {
            return Ruling::Done(Errno::EPERM.result());
        }
        requests::PTRACE_CONT
        | requests::PTRACE_SYSCALL
        | requests::PTRACE_SINGLESTEP
        | requests::PTRACE_SYSEMU
        | requests::PTRACE_SYSEMU_SINGLESTEP => {
            resumed(thread).store(u64::from(thread) << 32 | u64::from(request), Relaxed);
        }
        _ => {}
    }
    // Otherwise the kernel refuses: it is traced already, or nobody may trace.
    if request != requests::PTRACE_TRACEME {
        watch();
    }
    Ruling::Kernel(call)
}

/// Returns false if the host refuses to trace at all: no process has the number 0.
fn is_allowed() -> bool {
    let arguments = [u64::from(requests::PTRACE_PEEKTEXT), 0, 0, 0, 0, 0];
    // SAFETY: there is nothing to read.
    unsafe { system::call(raw::__NR_ptrace, arguments) == Errno::ESRCH.result() }
}

/// Returns true if somebody traces this process.
fn is_traced() -> bool {
    const FIELD: &[u8] = b"TracerPid:\t";
    let mut text = [0; 1024];
    let Ok(file) = system::open(b"/proc/self/status\0") else { return false };
    let length = system::read(file, &mut text, 0).unwrap_or(0);
    system::close(file);
    let at = text[..length].windows(FIELD.len()).position(|part| part == FIELD);
    at.is_some_and(|at| !matches!(text.get(at + FIELD.len()), None | Some(b'0')))
}

/// A process sends a signal: if it asked to be traced and stops itself now, it is.
pub(crate) fn before_stop(call: &Call, op: Op) -> Ruling {
    let [first, second, third, ..] = call.arguments.map(|word| word as u32);
    let (target, signal) = if op == Op::Tgkill { (first, third) } else { (first, second) };
    let is_own = target == system::process() || op == Op::Tkill && target == system::thread();
    if signal == raw::SIGSTOP && is_own {
        before_exec();
    }
    Ruling::View
}

/// A process is about to execute a program: if it asked to be traced from then on, it is.
pub(crate) fn before_exec() {
    let asked = TRACE_LATER.load(Relaxed);
    if asked != 0 && asked == system::process() {
        TRACE_LATER.store(0, Relaxed);
        // SAFETY: touches no memory; it only makes the parent the tracer of this process.
        unsafe {
            system::call(raw::__NR_ptrace, [u64::from(requests::PTRACE_TRACEME), 0, 0, 0, 0, 0])
        };
    }
}

/// Decides a `wait4` or `waitid` of a tracer: stops by the stage's own signal are skipped.
pub(crate) fn wait(caught: &mut CaughtCall<'_>, op: Op) -> Ruling {
    let call = caught.call;
    if call.arch != ARCH_X86_64 {
        return Ruling::Kernel(call);
    }
    loop {
        // SAFETY: the guest's own call.
        let result = unsafe { entry::on_guest_stack(caught.frame, &call, After::Nothing) };
        let heard =
            if op == Op::Waitid { of_waitid(&call, result) } else { of_wait4(&call, result) };
        let Some(thread) = heard.filter(|thread| is_stage_signal(*thread)) else {
            return Ruling::Done(result);
        };
        let last = resumed(thread).load(Relaxed);
        let known = (last >> 32) as u32 == thread;
        let request = if known { last as u32 } else { requests::PTRACE_CONT };
        let signal = signals::trap_signal();
        let arguments = [u64::from(request), u64::from(thread), 0, u64::from(signal), 0, 0];
        // SAFETY: touches no memory; it continues a thread that the guest traces.
        unsafe { system::call(raw::__NR_ptrace, arguments) };
    }
}

/// The thread that has stopped with the signal of traps according to a `wait4`.
fn of_wait4(call: &Call, result: i64) -> Option<u32> {
    let mut status = [0; 4];
    if result <= 0 || call.arguments[1] == 0 {
        return None;
    }
    memory::read(call.arguments[1], &mut status).ok()?;
    // Stopped (0x7f) by the signal, and not an event of ptrace(2).
    let stopped = signals::trap_signal() << 8 | 0x7f;
    (u32::from_le_bytes(status) == stopped).then_some(result as u32)
}

/// The thread that has stopped with the signal of traps according to a `waitid`.
fn of_waitid(call: &Call, result: i64) -> Option<u32> {
    if result != 0 || call.arguments[2] == 0 {
        return None;
    }
    // `siginfo_t`: signal, error number, code, padding, process, user, status.
    let mut words = [[0; 4]; 7];
    memory::read(call.arguments[2], words.as_flattened_mut()).ok()?;
    let [_, _, code, _, thread, _, status] = words.map(u32::from_le_bytes);
    (code == raw::CLD_TRAPPED && status == signals::trap_signal()).then_some(thread)
}

/// Returns true if a thread has stopped with the stage's signal.
fn is_stage_signal(thread: u32) -> bool {
    const SYS_SECCOMP: i32 = 1;
    // `siginfo_t`: signal, error number, code, padding, address.
    let mut information = [0_i32; 32];
    let there = information.as_mut_ptr() as u64;
    let arguments = [u64::from(requests::PTRACE_GETSIGINFO), u64::from(thread), 0, there, 0, 0];
    // SAFETY: the kernel writes a `siginfo_t` of 128 bytes, for which `information` has room.
    let told = unsafe { system::call(raw::__NR_ptrace, arguments) } == 0;
    if is_mode_f() {
        let address = u64::from(information[4] as u32) | u64::from(information[5] as u32) << 32;
        return told && information[2] > 0 && is_trap(thread, address);
    }
    told && information[1] == i32::from(system::mark()) && information[2] == SYS_SECCOMP
}

/// Returns true if a stopped thread has the trapping instruction at this address.
fn is_trap(thread: u32, address: u64) -> bool {
    let mut word = 0_u64;
    let there = &raw mut word as u64;
    let arguments = [u64::from(requests::PTRACE_PEEKTEXT), u64::from(thread), address, there, 0, 0];
    // SAFETY: the kernel writes one word, and `word` is one.
    let told = unsafe { system::call(raw::__NR_ptrace, arguments) } == 0;
    told && word.to_le_bytes().starts_with(&abi::code::form::TRAP)
}
