//! Keeps a descriptor of the container's tree, from which the kernel finds a file faster than by
//! the tree's whole host path.
//!
//! Every component before the tree (`/home/…/containers/…/ROOT`) costs the kernel as much as one
//! behind it: with them a `stat` takes half as long again. So a process that names many files holds
//! the root of the tree open (`O_PATH`, close-on-exec) under a number that programs do not use,
//! [`TREE_DESCRIPTOR`]; of a tree with two layers both ([`UPPER_DESCRIPTOR`]). It is one of the
//! guest's descriptors and visible in `/proc/self/fd`, but a `stat` of its number does not show it
//! ([`hides`]).
//!
//! The guest may close it at any time. Calls that replace it, or close whole ranges, are caught
//! (`close_range`, `dup2`, `dup3`: [`taken`]). A plain `close` is not; it is noticed by `EBADF`, by
//! `ENOTDIR`, or when a file that the guest opens gets the number. Once lost, the descriptor is not
//! opened again. If a directory could get the number in another way (`dup`, a message) before any
//! of that is noticed, the process would have to have as many open files as the number says.

use crate::kernel::calls;
use crate::{shared, tasks};
use abi::boot::{TREE_DESCRIPTOR, UPPER_DESCRIPTOR};
use abi::calls::Op;
use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, Ordering};
use linux_raw_sys::general::{O_CLOEXEC, O_DIRECTORY, O_PATH};
use view::{Dir, Errno, HostFd};

/// Number of named files from which on a descriptor pays.
const MANY: i32 = 24;
const HELD: i32 = i32::MAX;
const LOST: i32 = -1;

/// A directory that is held open.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// The container's tree; the image's, where the container's has two layers.
    Tree,
    /// The upper directory of a tree with two layers.
    Upper,
}

const ALL: [Held; 2] = [Held::Tree, Held::Upper];

/// Numbers of files that have been named; later other states.
static STATES: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];

impl Held {
    const fn number(self) -> i32 {
        match self {
            Self::Tree => TREE_DESCRIPTOR,
            Self::Upper => UPPER_DESCRIPTOR,
        }
    }

    fn state(self) -> &'static AtomicI32 {
        &STATES[self as usize]
    }

    /// The directory; `None` if there is none.
    fn directory(self) -> Option<&'static [u8]> {
        let places = shared::places();
        let is_layered = !places.lower.is_empty();
        match (self, is_layered) {
            (Self::Tree, true) => Some(places.lower),
            (Self::Tree, false) | (Self::Upper, true) => Some(places.tree),
            (Self::Upper, false) => None,
        }
    }

    /// The descriptor, and the part of a host path behind the directory.
    fn split(self, path: &CStr) -> Option<(i32, &CStr)> {
        let directory = self.directory()?;
        let rest = path.to_bytes_with_nul().strip_prefix(directory)?.strip_prefix(b"/")?;
        // With another slash before it, the path would start at the host's root.
        if rest.len() < 2 || rest[0] == b'/' {
            return None;
        }
        let descriptor = self.descriptor()?;
        // SAFETY: `rest` is the end of a C string, so it ends with its only NUL.
        Some((descriptor, unsafe { CStr::from_bytes_with_nul_unchecked(rest) }))
    }

    /// The descriptor, if there is one; opens it when many files have been named.
    pub(crate) fn descriptor(self) -> Option<i32> {
        match self.state().load(Ordering::Relaxed) {
            HELD => Some(self.number()),
            LOST => None,
            count if count < MANY => {
                self.state().store(count + 1, Ordering::Relaxed);
                None
            }
            _ => self.open(),
        }
    }

    #[cold]
    fn open(self) -> Option<i32> {
        const F_DUPFD_CLOEXEC: u32 = 1030;
        self.state().store(LOST, Ordering::Relaxed);
        // A child of `vfork` has its own descriptors, but its parent's memory.
        if tasks::is_vfork_child() {
            self.state().store(0, Ordering::Relaxed);
            return None;
        }
        let mut path = view::Text::EMPTY;
        path.set(self.directory()?).ok()?;
        let opened =
            calls::openat(calls::CWD, path.as_c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC, 0).ok()?;
        let number = calls::fcntl(opened, F_DUPFD_CLOEXEC, self.number() as u64);
        calls::close(opened);
        let number = i32::try_from(number.ok()?).ok()?;
        if number != self.number() {
            calls::close(number);
            return None;
        }
        self.state().store(HELD, Ordering::Relaxed);
        Some(number)
    }

    fn lose(self) {
        // A child of `vfork` that has closed its own does not affect its parent's.
        if !tasks::is_vfork_child() {
            self.state().store(LOST, Ordering::Relaxed);
        }
    }

    /// Returns true if the number still belongs to the stage's descriptor, and not to a file of the
    /// guest.
    #[cold]
    fn is_there(self) -> bool {
        const F_GETFL: u32 = 3;
        self.state().load(Ordering::Relaxed) == HELD
            && calls::fcntl(self.number(), F_GETFL, 0).is_ok_and(|flags| flags as u32 & O_PATH != 0)
    }
}

/// Returns true if a start is the descriptor of the upper directory.
pub(crate) fn is_upper(dir: Dir) -> bool {
    matches!(dir, Dir::Held(HostFd(UPPER_DESCRIPTOR)) | Dir::Guest(UPPER_DESCRIPTOR))
        && Held::Upper.state().load(Ordering::Relaxed) == HELD
}

/// Returns true if a call from one of the descriptors failed because the guest closed it, or
/// because its number belongs to another file now, which is not a directory.
pub(crate) fn is_lost(errno: Errno) -> bool {
    if !matches!(errno, Errno::EBADF | Errno::ENOTDIR) {
        return false;
    }
    let mut any = false;
    for held in ALL {
        let holds = held.state().load(Ordering::Relaxed) == HELD;
        if holds && calls::newfstatat(held.number(), c".", 0).is_err() {
            held.lose();
            any = true;
        }
    }
    any
}

/// The descriptor of the directory that a host path leads into, and the part behind that.
pub(crate) fn split(path: &CStr) -> Option<(i32, &CStr)> {
    Held::Tree.split(path).or_else(|| Held::Upper.split(path))
}

/// The guest has got a file under this number: the descriptor of that number is lost.
pub(crate) fn replaced(number: i64) {
    for held in ALL {
        if number == i64::from(held.number()) {
            held.lose();
        }
    }
}

/// Returns true if the guest asks for the status of such a descriptor: programs look through all
/// numbers for inherited files, and must not find it.
#[inline]
pub(crate) fn hides(descriptor: u64) -> bool {
    ALL.iter().any(|held| descriptor as i32 == held.number() && held.is_there())
}

/// The guest makes a call that may replace or close the descriptors.
pub(crate) fn taken(op: Op, arguments: &[u64; 6]) {
    const CLOEXEC: u32 = 4;
    let [first, second, flags, ..] = arguments.map(|argument| argument as u32);
    for held in ALL {
        let number = held.number() as u32;
        match op {
            Op::Dup2 | Op::Dup3 if second == number => held.state().store(LOST, Ordering::Relaxed),
            Op::CloseRange if (first..=second).contains(&number) && flags & CLOEXEC == 0 => {
                held.lose();
            }
            _ => {}
        }
    }
}
