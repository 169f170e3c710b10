//! Keeps a descriptor of the container's tree, from which the kernel finds a file faster than by
//! the tree's whole host path.
//!
//! Every component before the tree (`/home/…/containers/…/ROOT`) costs the kernel as much as one
//! behind it: with them a `stat` takes half as long again. So a process that names many files holds
//! the root of the tree open (`O_PATH`, close-on-exec) under a number that programs do not use,
//! [`TREE_DESCRIPTOR`]. It is one of the guest's descriptors and visible in `/proc/self/fd`, but a
//! `stat` of its number does not show it ([`hides`]).
//!
//! The guest may close it at any time. Calls that replace it, or close whole ranges, are caught
//! (`close_range`, `dup2`, `dup3`: [`taken`]). A plain `close` is not; it is noticed by `EBADF`, by
//! `ENOTDIR`, or when a file that the guest opens gets the number. Once lost, the descriptor is not
//! opened again. If a directory could get the number in another way (`dup`, a message) before any
//! of that is noticed, the process would have to have as many open files as the number says.

use crate::kernel::calls;
use crate::{shared, tasks};
use abi::boot::TREE_DESCRIPTOR;
use abi::calls::Op;
use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, Ordering};
use linux_raw_sys::general::{O_CLOEXEC, O_DIRECTORY, O_PATH};
use view::Errno;

/// Number of files that have been named; later one of the other states.
static STATE: AtomicI32 = AtomicI32::new(0);
/// Number of named files from which on the descriptor pays.
const MANY: i32 = 24;
const HELD: i32 = i32::MAX;
const LOST: i32 = -1;

/// Returns true if a call from the descriptor failed because the guest closed it, or because its
/// number belongs to another file now, which is not a directory.
pub(crate) fn is_lost(errno: Errno) -> bool {
    let is_lost = matches!(errno, Errno::EBADF | Errno::ENOTDIR)
        && calls::newfstatat(TREE_DESCRIPTOR, c".", 0).is_err();
    if is_lost {
        lose();
    }
    is_lost
}

/// The descriptor, and the part of a host path behind the tree.
pub(crate) fn split(path: &CStr) -> Option<(i32, &CStr)> {
    let tree = shared::places().tree;
    let rest = path.to_bytes_with_nul().strip_prefix(tree)?.strip_prefix(b"/")?;
    // With another slash before it, the path would start at the host's root.
    if rest.len() < 2 || rest[0] == b'/' {
        return None;
    }
    let descriptor = descriptor()?;
    // SAFETY: `rest` is the end of a C string, so it ends with its only NUL.
    Some((descriptor, unsafe { CStr::from_bytes_with_nul_unchecked(rest) }))
}

/// The descriptor, if there is one; opens it when many files have been named.
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
    // A child of `vfork` has its own descriptors, but its parent's memory.
    if tasks::is_vfork_child() {
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

/// Notes that the descriptor is lost.
pub(crate) fn lose() {
    // A child of `vfork` that has closed its own does not affect its parent's.
    if !tasks::is_vfork_child() {
        STATE.store(LOST, Ordering::Relaxed);
    }
}

/// Returns true if the guest asks for the status of this descriptor: programs look through all
/// numbers for inherited files, and must not find it.
#[inline]
pub(crate) fn hides(descriptor: u64) -> bool {
    descriptor as i32 == TREE_DESCRIPTOR && is_there()
}

/// Returns true if the number still belongs to the stage's descriptor, and not to a file of the
/// guest.
#[cold]
fn is_there() -> bool {
    const F_GETFL: u32 = 3;
    STATE.load(Ordering::Relaxed) == HELD
        && calls::fcntl(TREE_DESCRIPTOR, F_GETFL, 0).is_ok_and(|flags| flags as u32 & O_PATH != 0)
}

/// The guest makes a call that may replace or close the descriptor.
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
