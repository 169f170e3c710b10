//! A descriptor of the container's tree, from which the kernel finds a file in less time than by the tree's whole host path.
//!
//! Every name before the tree (`/home/…/containers/…/ROOT`) costs the kernel as much as one behind it: with them a `stat` takes half as long again.
//! So a process that names many files holds the root of the tree open (`O_PATH`, close-on-exec) under a number that programs do not use,
//! [`TREE_DESCRIPTOR`]. It is among the guest's descriptors, and seen in `/proc/self/fd`, but not
//! by a `stat` of its number ([`hides`]).
//!
//! It may go away at any time. Calls that put something else in its place, or close whole ranges, are caught (`close_range`, `dup2`,
//! `dup3`: [`taken`]); a mere `close` is not, and is noticed by `EBADF`, by `ENOTDIR`, or when the number is given to a file that the guest
//! opens. Once gone it does not come back. That it is given to a directory in another way (`dup`, a message), before any of that was
//! noticed, takes as many open files as the number says.

use crate::kernel::calls;
use crate::{shared, tasks};
use abi::boot::TREE_DESCRIPTOR;
use abi::calls::Op;
use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, Ordering};
use linux_raw_sys::general::{O_CLOEXEC, O_DIRECTORY, O_PATH};
use view::Errno;

/// How many files have been named; then one of the others.
static STATE: AtomicI32 = AtomicI32::new(0);
/// So many, and it is worth while.
const MANY: i32 = 24;
const HELD: i32 = i32::MAX;
const LOST: i32 = -1;

/// Whether a call from the descriptor failed because it is gone, or is a file that is no directory.
pub(crate) fn is_lost(errno: Errno) -> bool {
    let is_lost = matches!(errno, Errno::EBADF | Errno::ENOTDIR)
        && calls::newfstatat(TREE_DESCRIPTOR, c".", 0).is_err();
    if is_lost {
        lose();
    }
    is_lost
}

/// The descriptor, and what of a host path follows behind the tree.
pub(crate) fn split(path: &CStr) -> Option<(i32, &CStr)> {
    let tree = shared::places().tree;
    let rest = path.to_bytes_with_nul().strip_prefix(tree)?.strip_prefix(b"/")?;
    // With another slash before it, it would be the host's.
    if rest.len() < 2 || rest[0] == b'/' {
        return None;
    }
    let descriptor = descriptor()?;
    // SAFETY: the end of a string that ends with its only NUL.
    Some((descriptor, unsafe { CStr::from_bytes_with_nul_unchecked(rest) }))
}

/// The descriptor, if there is one; makes it when many files have been named.
pub(crate) fn descriptor() -> Option<i32> {
    match STATE.load(Ordering::Relaxed) {
        HELD => Some(TREE_DESCRIPTOR),
        LOST => None,
        count if count < MANY => {
            STATE.store(count + 1, Ordering::Relaxed);
            None
        }
        _ => open(),
    }
}

#[cold]
fn open() -> Option<i32> {
    const F_DUPFD_CLOEXEC: u32 = 1030;
    STATE.store(LOST, Ordering::Relaxed);
    // Of a process whose memory is borrowed, the descriptors are another's.
    if tasks::is_borrower() {
        STATE.store(0, Ordering::Relaxed);
        return None;
    }
    let mut path = view::Text::EMPTY;
    path.set(shared::places().tree).ok()?;
    let opened =
        calls::openat(calls::CWD, path.as_c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC, 0).ok()?;
    let number = calls::fcntl(opened, F_DUPFD_CLOEXEC, TREE_DESCRIPTOR as u64);
    calls::close(opened);
    let number = i32::try_from(number.ok()?).ok()?;
    if number != TREE_DESCRIPTOR {
        calls::close(number);
        return None;
    }
    STATE.store(HELD, Ordering::Relaxed);
    Some(number)
}

/// It is gone.
pub(crate) fn lose() {
    // A borrower that has closed its own lets the other keep it.
    if !tasks::is_borrower() {
        STATE.store(LOST, Ordering::Relaxed);
    }
}

/// Whether the guest asks what our descriptor is: programs look through all numbers for what they have inherited, and nothing is there.
#[inline]
pub(crate) fn hides(descriptor: u64) -> bool {
    descriptor as i32 == TREE_DESCRIPTOR && is_there()
}

/// Whether the number still is ours, and not a file of the guest's.
#[cold]
fn is_there() -> bool {
    const F_GETFL: u32 = 3;
    STATE.load(Ordering::Relaxed) == HELD
        && calls::fcntl(TREE_DESCRIPTOR, F_GETFL, 0).is_ok_and(|flags| flags as u32 & O_PATH != 0)
}

/// The guest makes a call that may put something else under the number, or close it.
pub(crate) fn taken(op: Op, arguments: &[u64; 6]) {
    const CLOEXEC: u32 = 4;
    let [first, second, flags, ..] = arguments.map(|argument| argument as u32);
    let number = TREE_DESCRIPTOR as u32;
    match op {
        Op::Dup2 | Op::Dup3 if second == number => STATE.store(LOST, Ordering::Relaxed),
        Op::CloseRange if (first..=second).contains(&number) && flags & CLOEXEC == 0 => lose(),
        _ => {}
    }
}
