//! Processes that leave the container's namespaces, where these are the kernel's
//! ([`abi::shared::Switches::NAMESPACES`]).
//!
//! In another user namespace ids mean something else, and in another mount namespace, or below
//! another root, the stage's files have no name. The next program of such a process is executed by
//! the kernel alone: nothing is emulated for it, and nothing is caught.

use crate::dispatch::{CaughtCall, Ruling};
use crate::kernel::{calls, processes};
use crate::{filters, shared, system};
use abi::calls::Op;
use abi::shared::hash;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use linux_raw_sys::general as raw;
use view::Call;

/// This process has left.
static LEFT: AtomicBool = AtomicBool::new(false);
/// The process that has made children in other namespaces. They have a copy of its memory, and
/// another number.
static PARENT: AtomicU32 = AtomicU32::new(0);
/// Its user and its mount namespace.
static HOME: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
/// A thread of this process has restricted itself by a ruleset.
static RESTRICTED: AtomicBool = AtomicBool::new(false);

/// The namespaces whose change matters.
const LEAVING: u64 = (raw::CLONE_NEWUSER | raw::CLONE_NEWNS) as u64;

/// This process's user and mount namespace; zeros where `/proc` does not tell.
fn namespaces() -> [u64; 2] {
    [c"/proc/self/ns/user", c"/proc/self/ns/mnt"].map(|link| {
        let mut name = [0; 64];
        let length = calls::readlinkat(calls::CWD, link, &mut name);
        length.ok().and_then(|length| name.get(..length)).map_or(0, |name| hash(name, 0))
    })
}

/// Returns true if this process has left.
pub(crate) fn has_left() -> bool {
    let parent = PARENT.load(Relaxed);
    if LEFT.load(Relaxed) || parent == 0 || parent == system::process() {
        return LEFT.load(Relaxed);
    }
    // A child, in the namespaces that it was made for, or in its parent's.
    let home = [0, 1].map(|index| HOME[index].load(Relaxed));
    home.contains(&0) || namespaces() != home
}

/// A process with these flags of `clone` is about to be made.
pub(crate) fn before_clone(flags: u64) {
    if flags & LEAVING == 0 || PARENT.load(Relaxed) == system::process() {
        return;
    }
    if has_left() {
        LEFT.store(true, Relaxed);
    } else {
        for (home, number) in HOME.iter().zip(namespaces()) {
            home.store(number, Relaxed);
        }
        PARENT.store(system::process(), Relaxed);
    }
}

/// Rules for `unshare`, `setns` and `pivot_root`, and for `execve` of a process that has left.
pub(crate) fn rule(caught: &mut CaughtCall<'_>, op: Op) -> Ruling {
    let call = caught.call;
    match op {
        Op::Execve | Op::Execveat if has_left() => {
            processes::forget();
            // A tracer takes calls of the stage's for those of its own loader.
            if filters::outside(caught.frame) { Ruling::Prepared } else { Ruling::Kernel(call) }
        }
        Op::Unshare if call.arguments[0] & LEAVING == 0 => crate::clone::rule(caught, op),
        Op::Unshare | Op::Setns | Op::PivotRoot => {
            // SAFETY: the guest's own call, which reads only its own strings.
            let result = unsafe { system::call(call.number, call.arguments) };
            if !system::is_error(result) {
                crate::cwd::disable();
                LEFT.store(true, Relaxed);
                processes::forget();
            }
            Ruling::Done(result)
        }
        Op::LandlockRestrictSelf => {
            RESTRICTED.store(true, Relaxed);
            Ruling::Kernel(call)
        }
        _ => Ruling::View,
    }
}

/// Returns true if the stage, in a new program of this process, could not open its own file.
pub(crate) fn is_shut_out() -> bool {
    RESTRICTED.load(Relaxed)
        && !crate::kernel::opens(shared::places().shared, raw::O_RDWR | raw::O_CLOEXEC)
}

/// Executes a program that the stage cannot load, or for which the stage's own file cannot be
/// executed (a ruleset of the guest's may forbid that): as the guest has asked for it.
pub(crate) fn by_kernel(call: &Call, root: &[u8]) -> Option<i64> {
    if !shared::world().namespaces || root != b"/" {
        return None;
    }
    // SAFETY: the guest's own call; if it succeeds, this program is gone.
    Some(unsafe { system::call(call.number, call.arguments) })
}
