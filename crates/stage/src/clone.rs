//! New threads and processes: what has to be seen of the calls that make them.
//!
//! A new thread or process needs nothing of the stage: slots are taken by whoever calls ([`crate::slots`]), the filter is inherited, and so are the
//! handlers. Two things are different:
//!
//! - Namespaces are refused, as the view does it; what hides them behind a pointer (`clone3`) is always looked at. It leaves by an exit,
//!   because child and parent both come back.
//! - `CLONE_CLEAR_SIGHAND` would take away the handler that makes us be called. It is `EINVAL`, as before Linux 5.5: C libraries know that.

use crate::dispatch::{Road, Visit};
use crate::memory;
use crate::{tasks, tracing};
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
        Op::Clone | Op::Fork | Op::Vfork => {
            shares(call.arguments[0]);
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

/// A process that shares its working directory with this one, but not its memory, would go elsewhere unseen; root and umask it shares by a page. One that shares its descriptors would be
/// left with what is open at an `execve`.
fn shares(flags: u64) {
    if flags & u64::from(raw::CLONE_FS | raw::CLONE_VM) == u64::from(raw::CLONE_FS) {
        crate::cwd::give_up();
        tasks::share_fs();
    }
    if flags & u64::from(raw::CLONE_FILES | raw::CLONE_THREAD) == u64::from(raw::CLONE_FILES) {
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
        if flags & CLEAR_HANDLERS != 0 {
            return Road::Done(Errno::EINVAL.result());
        }
        shares(flags);
    }
    Road::Exit(visit.call)
}
