//! Handles calls that make threads and processes.
//!
//! A new thread or process needs no preparation by the stage: the caller of a call takes its slot
//! ([`crate::slots`]), and filter and handlers are inherited. Two cases need work:
//!
//! - Namespaces are refused, as in the view. `clone3` always has to be checked, because its flags
//!   are behind a pointer. The call is made at an exit, because child and parent both return from
//!   it.
//! - `CLONE_CLEAR_SIGHAND` would remove the handler that catches calls. The kernel gets the call
//!   without it ([`cleared`]), and the child removes the guest's handlers with its first
//!   instructions (`entry::exit_cleared`).

use crate::dispatch::{CaughtCall, Ruling};
use crate::{entry, memory, tasks, tracing};
use abi::calls::Op;
use linux_raw_sys::general as raw;
use view::Errno;
use view::calls::process::refused_clone;

/// Flags of `clone` that make namespaces; see clone(2). In `clone` the low byte is the exit signal,
/// so `CLONE_NEWTIME` does not exist there.
const NEW_NAMESPACES_OF_CLONE: u64 = (raw::CLONE_NEWNS
    | raw::CLONE_NEWCGROUP
    | raw::CLONE_NEWUTS
    | raw::CLONE_NEWIPC
    | raw::CLONE_NEWUSER
    | raw::CLONE_NEWPID
    | raw::CLONE_NEWNET) as u64;
/// Flags of `clone3` that make namespaces.
const NEW_NAMESPACES: u64 = NEW_NAMESPACES_OF_CLONE | raw::CLONE_NEWTIME as u64;
const CLEAR_HANDLERS: u64 = 1 << 32;
/// Size of the smallest `struct clone_args`, and of a page, which is the limit.
const ARGUMENTS: core::ops::RangeInclusive<u64> = 64..=4096;

/// Rules for `clone`, `clone3`, `vfork`, `fork` if the filter catches them, for `unshare`,
/// `ptrace`, `wait4` and `waitid`. [`Ruling::View`] for all other calls.
pub(crate) fn rule(caught: &mut CaughtCall<'_>, op: Op) -> Ruling {
    let call = caught.call;
    match op {
        Op::Clone
            if call.arguments[0] & NEW_NAMESPACES_OF_CLONE != 0
                && !crate::shared::world().namespaces =>
        {
            denied(call.arguments[0])
        }
        Op::Clone => {
            crate::leaving::before_clone(call.arguments[0] & NEW_NAMESPACES_OF_CLONE);
            shares(call.arguments[0]);
            Ruling::Exit(call)
        }
        Op::Fork | Op::Vfork => {
            tasks::sync_fs();
            Ruling::Exit(call)
        }
        Op::Clone3 => clone3(caught),
        Op::Unshare if call.arguments[0] & NEW_NAMESPACES == 0 => {
            if call.arguments[0] & u64::from(raw::CLONE_FS) != 0 {
                crate::cwd::disable();
                tasks::unshare_fs();
            }
            Ruling::Kernel(call)
        }
        Op::Ptrace => tracing::rule(caught),
        Op::Wait4 | Op::Waitid => tracing::wait(caught, op),
        _ => Ruling::View,
    }
}

/// Prepares for a child that shares state. A process that shares its working directory with this
/// one, but not its memory, could change the directory unnoticed; it shares root and umask by a
/// page. A thread that does not share the directory would use the remembered directory of the
/// others. A process that shares descriptors would keep those that are open during an `execve`.
fn shares(flags: u64) {
    // A new process begins with the current root and umask.
    tasks::sync_fs();
    let of = |bits: u32, set: u32| flags as u32 & bits == set;
    if of(raw::CLONE_FS | raw::CLONE_VM, raw::CLONE_FS) {
        crate::cwd::disable();
        tasks::share_fs();
    }
    if of(raw::CLONE_FS | raw::CLONE_THREAD, raw::CLONE_THREAD) {
        crate::cwd::disable();
    }
    if of(raw::CLONE_FILES | raw::CLONE_THREAD, raw::CLONE_FILES) {
        crate::exec::will_share_descriptors();
    }
}

const fn denied(flags: u64) -> Ruling {
    Ruling::Done(refused_clone(flags).result())
}

/// Calls that the kernel refuses anyway (a bad size, an unreadable structure) are passed to it.
fn clone3(caught: &mut CaughtCall<'_>) -> Ruling {
    let [arguments, size, ..] = caught.call.arguments;
    let mut flags = [0; 8];
    if ARGUMENTS.contains(&size) && memory::read(arguments, &mut flags).is_ok() {
        let flags = u64::from_le_bytes(flags);
        if flags & NEW_NAMESPACES != 0 && !crate::shared::world().namespaces {
            return denied(flags);
        }
        crate::leaving::before_clone(flags & NEW_NAMESPACES);
        shares(flags);
        if flags & CLEAR_HANDLERS != 0 {
            return cleared(caught).unwrap_or_else(|errno| Ruling::Done(errno.result()));
        }
    }
    Ruling::Exit(caught.call)
}

/// Indexes of words in `struct clone_args`.
mod at {
    pub(super) const FLAGS: usize = 0;
    pub(super) const STACK: usize = 5;
    pub(super) const STACK_SIZE: usize = 6;
}

/// The greatest number of words of the structure that are copied: more than Linux 6.18 knows.
const WORDS: usize = 16;
/// Size of the memory below its stack pointer that a function may use.
const RED_ZONE: u64 = 128;
/// Size of the two words that `entry::exit_cleared` takes off the stack.
const TAKEN: u64 = 16;

/// Makes `clone3` with `CLONE_CLEAR_SIGHAND` by a copy of its arguments without that flag. The copy
/// lies on the guest's stack, because the slot is given back before the call is made. Behind the
/// copy, and on the child's own stack, are the words that both take off the stack there.
///
/// A child that uses its parent's stack would overwrite them: `EINVAL`, as before Linux 5.5. (C
/// libraries give the child its own stack.)
fn cleared(caught: &mut CaughtCall<'_>) -> Result<Ruling, Errno> {
    let [arguments, size, ..] = caught.call.arguments;
    let length = size as usize;
    let mut words = [0_u64; WORDS];
    if !length.is_multiple_of(8) || length > size_of_val(&words) {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; WORDS * 8];
    memory::read(arguments, &mut bytes[..length])?;
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let flags = words[at::FLAGS];
    let [stack, room] = [words[at::STACK], words[at::STACK_SIZE]];
    let shares = |bit: u32| flags & u64::from(bit) != 0;
    if shares(raw::CLONE_SIGHAND)
        || (stack == 0) != (room == 0)
        || stack == 0 && shares(raw::CLONE_VM)
        || stack != 0 && room < 4 * TAKEN
    {
        return Err(Errno::EINVAL);
    }
    let own = caught.frame.stack;
    let copy = (own - RED_ZONE - length as u64) & !15;
    let taken = copy - TAKEN;
    words[at::FLAGS] = flags & !CLEAR_HANDLERS;
    if stack != 0 {
        words[at::STACK_SIZE] = room - TAKEN;
        write(stack + room - TAKEN, &[arguments, 0])?;
    }
    write(copy, &words[..length / 8])?;
    write(taken, &[arguments, own - copy])?;
    if !entry::exit_cleared(caught.frame) {
        return Err(Errno::EINVAL);
    }
    caught.frame.rdi = copy;
    caught.frame.stack = taken;
    Ok(Ruling::Prepared)
}

fn write(at: u64, words: &[u64]) -> Result<(), Errno> {
    words
        .iter()
        .zip((at..).step_by(8))
        .try_for_each(|(word, at)| memory::write(at, &word.to_le_bytes()))
}
