//! New threads and processes: what has to be seen of the calls that make them.
//!
//! A new thread or process needs nothing of the stage: slots are taken by whoever calls ([`crate::slots`]), the filter is inherited, and so are the
//! handlers. Two things are different:
//!
//! - Namespaces are refused, as the view does it; what hides them behind a pointer (`clone3`) is always looked at. It leaves by an exit,
//!   because child and parent both come back.
//! - `CLONE_CLEAR_SIGHAND` would take away the handler that makes us be called. The kernel is asked without it ([`cleared`]), and the child takes the
//!   guest's handlers away itself, with its first instructions (`entry::exit_cleared`).

use crate::dispatch::{Road, Visit};
use crate::{entry, memory, tasks, tracing};
use abi::calls::Op;
use linux_raw_sys::general as raw;
use view::Errno;

/// What makes namespaces with `clone`; see clone(2). In `clone` the low byte is the signal at the end, so `CLONE_NEWTIME` is none.
const NEW_NAMESPACES_OF_CLONE: u64 = (raw::CLONE_NEWNS
    | raw::CLONE_NEWCGROUP
    | raw::CLONE_NEWUTS
    | raw::CLONE_NEWIPC
    | raw::CLONE_NEWUSER
    | raw::CLONE_NEWPID
    | raw::CLONE_NEWNET) as u64;
/// Likewise with `clone3`.
const NEW_NAMESPACES: u64 = NEW_NAMESPACES_OF_CLONE | raw::CLONE_NEWTIME as u64;
const CLEAR_HANDLERS: u64 = 1 << 32;
/// Smallest `struct clone_args`, and the largest that is a page.
const ARGUMENTS: core::ops::RangeInclusive<u64> = 64..=4096;

/// Rules for `clone`, `clone3`, `vfork`, `fork` where the filter catches them, for `unshare`, `ptrace`, `wait4` and `waitid`. [`Road::View`] for what is none of this
/// module's business.
pub(crate) fn rule(visit: &mut Visit<'_>, op: Op) -> Road {
    let call = visit.call;
    match op {
        Op::Clone if call.arguments[0] & NEW_NAMESPACES_OF_CLONE != 0 => denied(),
        Op::Clone => {
            shares(call.arguments[0]);
            Road::Exit(call)
        }
        Op::Fork | Op::Vfork => {
            tasks::catch_up();
            Road::Exit(call)
        }
        Op::Clone3 => clone3(visit),
        Op::Unshare if call.arguments[0] & NEW_NAMESPACES == 0 => {
            if call.arguments[0] & u64::from(raw::CLONE_FS) != 0 {
                crate::cwd::give_up();
                tasks::unshare_fs();
            }
            Road::Kernel(call)
        }
        Op::Ptrace => tracing::rule(visit),
        Op::Wait4 | Op::Waitid => tracing::wait(visit, op),
        _ => Road::View,
    }
}

/// A process that shares its working directory with this one, but not its memory, would go elsewhere unseen; root and umask it shares by a page. A
/// thread that does not share the directory would take what is remembered for its own. A process that shares descriptors would be left with what
/// is open at an `execve`.
fn shares(flags: u64) {
    // A new process begins with the root and the umask of now.
    tasks::catch_up();
    let of = |bits: u32, set: u32| flags as u32 & bits == set;
    if of(raw::CLONE_FS | raw::CLONE_VM, raw::CLONE_FS) {
        crate::cwd::give_up();
        tasks::share_fs();
    }
    if of(raw::CLONE_FS | raw::CLONE_THREAD, raw::CLONE_THREAD) {
        crate::cwd::give_up();
    }
    if of(raw::CLONE_FILES | raw::CLONE_THREAD, raw::CLONE_FILES) {
        crate::exec::has_company();
    }
}

const fn denied() -> Road {
    Road::Done(Errno::EPERM.result())
}

/// What the kernel refuses anyway (a bad size, an unreadable structure) is left to it.
fn clone3(visit: &mut Visit<'_>) -> Road {
    let [arguments, size, ..] = visit.call.arguments;
    let mut flags = [0; 8];
    if ARGUMENTS.contains(&size) && memory::read(arguments, &mut flags).is_ok() {
        let flags = u64::from_le_bytes(flags);
        if flags & NEW_NAMESPACES != 0 {
            return denied();
        }
        shares(flags);
        if flags & CLEAR_HANDLERS != 0 {
            return cleared(visit).unwrap_or_else(|errno| Road::Done(errno.result()));
        }
    }
    Road::Exit(visit.call)
}

/// Words of `struct clone_args`.
mod at {
    pub(super) const FLAGS: usize = 0;
    pub(super) const STACK: usize = 5;
    pub(super) const STACK_SIZE: usize = 6;
}

/// Most words of the structure that are taken along: as many as Linux 6.18 knows, and some more.
const WORDS: usize = 16;
/// What a function may use below its stack pointer.
const RED_ZONE: u64 = 128;
/// Two words: what `entry::exit_cleared` takes off the stack.
const TAKEN: u64 = 16;

/// `clone3` with `CLONE_CLEAR_SIGHAND`: the same with a copy of its arguments that does not have the flag. The copy lies on the guest's stack, because
/// the slot is given back before the call is made; behind the copy, and on the child's own stack, stands what both take off there.
///
/// A child on the very stack of its parent would overwrite that: `EINVAL`, as before Linux 5.5. (C libraries give it one of its own.)
fn cleared(visit: &mut Visit<'_>) -> Result<Road, Errno> {
    let [arguments, size, ..] = visit.call.arguments;
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
    let own = visit.frame.stack;
    let copy = (own - RED_ZONE - length as u64) & !15;
    let taken = copy - TAKEN;
    words[at::FLAGS] = flags & !CLEAR_HANDLERS;
    if stack != 0 {
        words[at::STACK_SIZE] = room - TAKEN;
        write(stack + room - TAKEN, &[arguments, 0])?;
    }
    write(copy, &words[..length / 8])?;
    write(taken, &[arguments, own - copy])?;
    if !entry::exit_cleared(visit.frame) {
        return Err(Errno::EINVAL);
    }
    visit.frame.rdi = copy;
    visit.frame.stack = taken;
    Ok(Road::Prepared)
}

fn write(at: u64, words: &[u64]) -> Result<(), Errno> {
    words
        .iter()
        .zip((at..).step_by(8))
        .try_for_each(|(word, at)| memory::write(at, &word.to_le_bytes()))
}
