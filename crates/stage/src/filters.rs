//! Installs and runs the guest's own seccomp filters.
//!
//! A guest's filter is really installed ([`rule`]), with a prefix that allows the stage's own calls
//! (`view::calls::filters` gives the reasons). So the kernel applies it to all calls that it
//! executes itself. The stage keeps a copy, because calls that it handles would escape the filter:
//! the kernel never sees calls of rewritten sites, and if one filter returns `TRAP` and another
//! `ERRNO`, the first wins. So every caught call is first run through the thread's filters here
//! ([`before`]):
//!
//! - Allowed (or logged): the call goes on.
//! - An error: that is the result. `TRACE` and `USER_NOTIF`, without a tracer or listener of the
//!   guest's own, are `ENOSYS`.
//! - Forbidden by strict mode: the thread ends ([`strict_end`]).
//! - Trapped or killed: the call is made at an instruction whose address the prefix does not
//!   exempt, with the guest's registers, and the kernel does the rest.
//!
//! Programs lie one behind the other in an arena that has room for all that the kernel accepts for
//! one thread. Each names the one that was newest when it was installed, so threads and children
//! share common filters. Nothing is ever freed.

use crate::dispatch::{CaughtCall, Ruling};
use crate::frame::Frame;
use crate::system::{self, Written};
use crate::{entry, memory, tasks};
use abi::bpf::{self, Data, Instruction};
use abi::calls::Op;
use abi::syscalls::ARCH_X86_64;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use linux_raw_sys::general as raw;
use linux_raw_sys::prctl::{PR_SET_SECCOMP, PR_SET_SYSCALL_USER_DISPATCH};
use view::calls::filters::{
    INSTRUCTION, PREFIX, Wish, installed, new_processes, prefix, strict, without_trace,
};
use view::identity::Capability;
use view::{Call, Errno, Task};

/// The greatest number of instructions in all filters of one thread (`MAX_INSNS_PER_PATH`).
const ARENA: usize = 32_768;
/// Length of the longest program.
const LONGEST: usize = bpf::LIMIT;

/// The programs. Before each is a word with its length (low half) and the number of the previous
/// one (high half). A program's number is the index of that word; number 0 is not used.
static CELLS: Written<[[u8; INSTRUCTION]; ARENA]> = Written::new([[0; INSTRUCTION]; ARENA]);
/// Index of the first free cell.
static END: AtomicU32 = AtomicU32::new(0);

const FLAG_TSYNC: u64 = 1;
const FLAG_NEW_LISTENER: u64 = 1 << 3;

fn cells() -> &'static [[u8; INSTRUCTION]; ARENA] {
    CELLS.get()
}

/// A program, and the number of the one before it.
fn program(number: u32) -> Option<(&'static [[u8; INSTRUCTION]], u32)> {
    let at = number as usize;
    let head = u64::from_le_bytes(*cells().get(at)?);
    let length = head as u32 as usize;
    Some((cells().get(at + 1..at + 1 + length)?, (head >> 32) as u32))
}

/// The cells of a program as instructions.
fn instructions(cells: &[[u8; INSTRUCTION]]) -> &[Instruction] {
    #[expect(clippy::cast_ptr_alignment, reason = "cells lie at multiples of eight")]
    let first = cells.as_ptr().cast::<Instruction>();
    // SAFETY: a cell and an instruction both have eight bytes (a 16-bit word, two bytes, a 32-bit
    // word, little-endian), cells are aligned to eight bytes, and any bytes are valid.
    unsafe { core::slice::from_raw_parts(first, cells.len()) }
}

/// Reserves cells for a program of this length; returns its number, if there is room.
fn reserve(length: usize) -> Option<u32> {
    let mut end = END.load(Ordering::Relaxed).max(1);
    loop {
        let next = end as usize + 1 + length;
        if next > ARENA {
            return None;
        }
        let known = END.load(Ordering::Relaxed);
        if known.max(1) != end {
            end = known.max(1);
            continue;
        }
        match END.compare_exchange(known, next as u32, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Some(end),
            Err(other) => end = other.max(1),
        }
    }
}

/// The cells of a program, to be written by the thread that has reserved them.
fn write(number: u32, length: usize, before: u32) -> &'static mut [[u8; INSTRUCTION]] {
    // SAFETY: only the caller uses these cells, until it gives a thread the program's number.
    let cells = unsafe { CELLS.get_mut() };
    let at = number as usize;
    cells[at] = (length as u64 | u64::from(before) << 32).to_le_bytes();
    &mut cells[at + 1..at + 1 + length]
}

/// Frees the cells that were reserved last. If another thread has reserved more meanwhile, they
/// stay lost.
fn release(number: u32, length: usize) {
    let end = number + 1 + length as u32;
    let _ = END.compare_exchange(end, number, Ordering::AcqRel, Ordering::Relaxed);
}

/// Result of the guest's own filters for a call that the stage handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It goes on.
    Allowed,
    /// The guest gets this result.
    Result(i64),
    /// The kernel has to decide, at an instruction where it runs all filters; the frame has been
    /// changed so that the call is made there.
    Kernel,
}

/// Runs the calling thread's filters.
#[inline]
pub(crate) fn before(caught: &mut CaughtCall<'_>) -> Answer {
    if END.load(Ordering::Relaxed) == 0 { Answer::Allowed } else { ask(caught) }
}

#[cold]
fn ask(caught: &mut CaughtCall<'_>) -> Answer {
    let call = caught.call;
    let data = Data {
        number: call.number,
        architecture: call.arch,
        pointer: caught.frame.return_address,
        arguments: call.arguments,
    };
    let mut answer = bpf::ALLOW;
    let mut number = tasks::filters();
    // From the newest to the oldest; each was installed after the one that it names.
    while number != 0 {
        let Some((cells, older)) = program(number) else { break };
        let instructions = instructions(cells);
        let one = bpf::run(instructions, &data).unwrap_or(bpf::KILL_PROCESS);
        // Of equal results the newer filter's counts, which is in `answer`.
        answer = bpf::severer(one, answer);
        if older >= number {
            break;
        }
        number = older;
    }
    match answer & 0xffff_0000 {
        bpf::ALLOW | bpf::LOG => Answer::Allowed,
        _ if tasks::is_strict() => strict_end(caught.frame, &call),
        bpf::ERRNO => Answer::Result(-i64::from((answer & 0xffff).min(4095))),
        bpf::TRACE if crate::leaving::has_left() && outside(caught.frame) => Answer::Kernel,
        bpf::TRACE | bpf::USER_NOTIF => Answer::Result(Errno::ENOSYS.result()),
        // The kernel has run the filters already, with another result.
        _ if caught.frame.is_by_signal() => Answer::Result(Errno::EPERM.result()),
        _ if outside(caught.frame) => Answer::Kernel,
        _ => Answer::Result(Errno::EPERM.result()),
    }
}

/// What strict mode's filter does to calls that it forbids: it brings them here. Where calls are
/// not caught by filters, those that were not seen end the thread by `SIGSYS`.
fn strict_action() -> u32 {
    if crate::shared::is_mode_f() {
        bpf::KILL_THREAD
    } else {
        bpf::TRAP | u32::from(system::mark())
    }
}

/// Ends a thread as strict mode does: by `SIGKILL`, and a process if it was the only thread.
fn strict_end(frame: &mut Frame, call: &Call) -> Answer {
    let exit =
        Call { number: raw::__NR_exit, arguments: [raw::SIGKILL.into(), 0, 0, 0, 0, 0], ..*call };
    if tasks::threads() > 1 && entry::exit(frame, &exit) {
        return Answer::Kernel;
    }
    // SAFETY: the process does not go on.
    unsafe {
        system::call(raw::__NR_kill, [system::process().into(), raw::SIGKILL.into(), 0, 0, 0, 0])
    };
    Answer::Result(Errno::EPERM.result())
}

/// The result of the container's filter for a call, in modes where the kernel does not have it.
pub(crate) fn containers(call: &Call, back: u64) -> u32 {
    let data = Data {
        number: call.number,
        architecture: call.arch,
        pointer: back,
        arguments: call.arguments,
    };
    crate::shared::filter().and_then(|filter| bpf::run(filter, &data)).unwrap_or(bpf::TRAP)
}

/// Number of return addresses that can have an instruction outside of the stage.
const OUTSIDE: usize = 64;
/// The return addresses that have one; 0 while it is being made.
static BOUND: [AtomicU64; OUTSIDE] = [const { AtomicU64::new(0) }; OUTSIDE];
/// Number of instructions that have been started.
static BEGUN: AtomicU32 = AtomicU32::new(0);

/// Makes a call where neither a filter nor a tracer takes it for one of the stage's own; the frame
/// is changed so. Returns false if none was found.
pub(crate) fn outside(frame: &mut Frame) -> bool {
    entry::make_at_site(frame) || make_outside(frame)
}

/// Makes a call at an instruction that no filter exempts: when [`crate::dispatch::caught`] returns,
/// the slot is given back, and the registers are the guest's. Each such instruction has a page
/// behind the stage's range, and belongs to one return address.
fn make_outside(frame: &mut Frame) -> bool {
    let back = frame.return_address;
    let there = |index: usize| system::base() + abi::boot::RANGE + index as u64 * abi::elf::PAGE;
    let known = BOUND.iter().position(|bound| bound.load(Ordering::Acquire) == back);
    let index = known.unwrap_or_else(|| BEGUN.fetch_add(1, Ordering::AcqRel) as usize);
    if known.is_none() {
        if index >= OUTSIDE || !make(there(index), back) {
            return false;
        }
        BOUND[index].store(back, Ordering::Release);
    }
    frame.rax = frame.number;
    frame.return_address = there(index);
    true
}

/// Makes a page of `syscall; jmp back`.
fn make(at: u64, back: u64) -> bool {
    const READ_WRITE: u32 = 3;
    const READ_EXECUTE: u64 = 5;
    let mut code = [0x0f, 0x05, 0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    code[8..].copy_from_slice(&back.to_le_bytes());
    if system::map(system::Place::Free(at), abi::elf::PAGE, READ_WRITE, None).is_err() {
        return false;
    }
    // SAFETY: the page has just been mapped for this purpose, so nothing else uses it.
    unsafe {
        (at as *mut [u8; 16]).write(code);
        system::call(raw::__NR_mprotect, [at, abi::elf::PAGE, READ_EXECUTE, 0, 0, 0]) == 0
    }
}

/// Rules for `seccomp`, `prctl(PR_SET_SECCOMP)`, and for the prctl option that would redirect the
/// stage's own calls to the guest.
pub(crate) fn rule(caught: &mut CaughtCall<'_>, op: Op) -> Ruling {
    let call = caught.call;
    if op == Op::Prctl && call.arguments[0] as u32 == PR_SET_SYSCALL_USER_DISPATCH {
        return if call.arguments[1] == 0 {
            Ruling::Kernel(call)
        } else {
            Ruling::Done(Errno::EINVAL.result())
        };
    }
    let asks = op == Op::Seccomp || call.arguments[0] as u32 == PR_SET_SECCOMP;
    match Wish::of(&call) {
        Wish::Other if asks && call.arch == ARCH_X86_64 => Ruling::Kernel(call),
        Wish::Other => Ruling::View,
        _ if call.arch != ARCH_X86_64 => Ruling::Done(Errno::ENOSYS.result()),
        wish => Ruling::Done(install(op, &call, wish).unwrap_or_else(Errno::result)),
    }
}

#[inline(never)]
fn install(op: Op, call: &Call, wish: Wish) -> Result<i64, Errno> {
    let mut room = MaybeUninit::<Task>::zeroed();
    let mut call_task = tasks::for_call(op, &mut room);
    let (address, length, flags) = match wish {
        Wish::Filter(header, flags) => {
            if flags & FLAG_NEW_LISTENER != 0 {
                return Err(Errno::EBUSY);
            }
            let (address, length) = header_of(header)?;
            let creds = &call_task.task.creds;
            if !creds.no_new_privileges && !creds.has(Capability::SYS_ADMIN) {
                return Err(Errno::EACCES);
            }
            (address, length, flags)
        }
        // SECCOMP_MODE_FILTER: the kernel does not allow both modes.
        _ if call_task.task.filters.mode == 2 => return Err(Errno::EINVAL),
        _ => (0, strict(ARCH_X86_64, strict_action()).len(), 0),
    };
    if PREFIX + length > LONGEST {
        return Err(Errno::EINVAL);
    }
    let whole = PREFIX + length;
    let number = reserve(whole).ok_or(Errno::ENOMEM)?;
    let cells = write(number, whole, call_task.filters);
    let (before, own) = cells.split_at_mut(PREFIX);
    before.copy_from_slice(&prefix(system::base()));
    let read = if address == 0 {
        own.copy_from_slice(&strict(ARCH_X86_64, strict_action()));
        Ok(())
    } else {
        memory::read(address, own.as_flattened_mut())
    };
    // A process that has left the container's namespaces may have a tracer with filters.
    let traced = crate::leaving::has_left();
    if !traced {
        without_trace(own.as_flattened_mut());
    }
    // The guest's program may be invalid: the kernel reports it.
    match read.and_then(|()| give(cells, flags)) {
        Ok(0) => {
            installed(call_task.task, call, 0);
            call_task.filters = number;
            call_task.commit();
            Ok(0)
        }
        other => {
            release(number, whole);
            other
        }
    }
}

/// Makes the filter catch every new process of this one and its descendants, in addition to what
/// the container's own filter catches.
#[cold]
pub(crate) fn see_forks() {
    let program = new_processes(system::base(), bpf::TRAP | u32::from(system::mark()));
    // If threads with filters of their own prevent that for all, it is done for this one. Then a
    // new process of another thread may begin with an outdated root.
    if give(&program, FLAG_TSYNC) != Ok(0) {
        let _ = give(&program, 0);
    }
}

/// Address and length of the program in a `struct sock_fprog`.
fn header_of(header: u64) -> Result<(u64, usize), Errno> {
    let mut bytes = [0; 16];
    memory::read(header, &mut bytes)?;
    let length = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    let mut address = [0; 8];
    address.copy_from_slice(&bytes[8..]);
    match u64::from_le_bytes(address) {
        _ if length == 0 || length > LONGEST => Err(Errno::EINVAL),
        0 => Err(Errno::EFAULT),
        address => Ok((address, length)),
    }
}

/// Installs a program in the kernel. With `SECCOMP_FILTER_FLAG_TSYNC` the result can be the number
/// of a thread that prevents it.
fn give(program: &[[u8; INSTRUCTION]], flags: u64) -> Result<i64, Errno> {
    const SET_MODE_FILTER: u64 = 1;
    let header = [program.len() as u64, program.as_ptr() as u64];
    let header = header.as_ptr() as u64;
    // SAFETY: the kernel reads `struct sock_fprog` (a 16-bit length, a pointer at 8) and the
    // program, which both live until the call has returned.
    let result = unsafe {
        if flags == 0 {
            // `prctl` exists on older kernels than `seccomp`.
            let arguments = [u64::from(PR_SET_SECCOMP), 2, header, 0, 0, 0];
            system::checked(raw::__NR_prctl, arguments)
        } else {
            system::checked(raw::__NR_seccomp, [SET_MODE_FILTER, flags, header, 0, 0, 0])
        }
    };
    result.map(|result| result as i64)
}

/// Writes the calling thread's programs for the next program, the oldest first; returns the number
/// of bytes. `None` if they do not fit.
pub(crate) fn save(into: &mut [u8]) -> Option<usize> {
    let mut end = 0;
    let mut done = 0;
    let newest = tasks::filters();
    // Each round finds the oldest of those that are newer than the last.
    while done != newest {
        let mut oldest = newest;
        while let Some((_, older)) = program(oldest)
            && older != done
            && older < oldest
        {
            oldest = older;
        }
        let (cells, _) = program(oldest)?;
        let bytes = cells.as_flattened();
        into.get_mut(end..end + 4)?.copy_from_slice(&(cells.len() as u32).to_le_bytes());
        end += 4;
        into.get_mut(end..end + bytes.len())?.copy_from_slice(bytes);
        end += bytes.len();
        done = oldest;
    }
    Some(end)
}

/// Reads what [`save`] wrote, at the start of a program; returns the newest program's number.
pub(crate) fn restore(mut bytes: &[u8]) -> u32 {
    let mut newest = 0;
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let Some((own, rest)) = rest.split_at_checked(length * INSTRUCTION) else { break };
        let Some(number) = reserve(length) else { break };
        write(number, length, newest).as_flattened_mut().copy_from_slice(own);
        newest = number;
        bytes = rest;
    }
    newest
}
