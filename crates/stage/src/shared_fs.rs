//! Processes that share root and umask (`CLONE_FS`) without sharing memory.
//!
//! What threads share lies in their memory ([`crate::tasks`]). A process that is made with `CLONE_FS` alone has a memory of its own, so the two have a page
//! in common ([`Page`]), mapped before it is made and inherited by it: whoever changes root or umask writes them there, and everybody looks at its
//! counter before a call. A child of an ordinary `fork` inherits the mapping too, but shares nothing: it asks the kernel (`kcmp`), once, and looks there no
//! more. It begins with what its parent knew, so that has to be the newest: from the founding of a company on, a filter of its own sees to it that every
//! `fork` is caught (`filters::see_forks`).
//!
//! An `execve` takes the mapping away: who has executed another program has the root and the umask of that moment, and shares them no more. (Their directory
//! they share further on: that is the kernel's.)

use crate::system;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use linux_raw_sys::general as raw;
use view::{Task, Text};

/// What is in common.
#[repr(C)]
struct Page {
    /// Somebody writes or reads.
    busy: AtomicBool,
    /// Counts changes.
    changes: AtomicU32,
    umask: u32,
    root: Text,
}

/// Where it is mapped; 0 where there is none.
static PAGE: AtomicU64 = AtomicU64::new(0);
/// The process that is known to share it.
static MEMBER: AtomicU32 = AtomicU32::new(0);
/// The changes that this process has taken over.
static SEEN: AtomicU32 = AtomicU32::new(0);

/// Whether this process and those it makes are caught when they make others.
static FORKS_SEEN: AtomicBool = AtomicBool::new(false);

/// Whether there is a page: then [`is_behind`] is to be asked before a call.
#[inline]
pub(crate) fn is_there() -> bool {
    PAGE.load(Ordering::Relaxed) != 0
}

fn page() -> Option<*mut Page> {
    match PAGE.load(Ordering::Relaxed) {
        0 => None,
        at => Some(at as *mut Page),
    }
}

/// A process is about to be made that shares root and umask with this one, which are those of `task`.
#[cold]
pub(crate) fn found(task: &Task) {
    let here = system::process();
    if is_there() && is_member(here) {
        return;
    }
    let flags = u64::from(raw::MAP_SHARED | raw::MAP_ANONYMOUS);
    let length = size_of::<Page>() as u64;
    // SAFETY: a new mapping, wherever there is room.
    let at = unsafe { system::call(raw::__NR_mmap, [0, length, 3, flags, u64::MAX, 0]) };
    // Without memory they go their own ways.
    if !system::is_error(at) {
        PAGE.store(at as u64, Ordering::Relaxed);
        MEMBER.store(here, Ordering::Relaxed);
        tell(task);
        if !FORKS_SEEN.swap(true, Ordering::Relaxed) {
            crate::filters::see_forks();
        }
    }
}

/// The process has root and umask for itself from now on.
#[cold]
pub(crate) fn leave() {
    PAGE.store(0, Ordering::Relaxed);
}

/// Whether the calling process shares the page, not only its memory's beginning; asked of the kernel once.
fn is_member(here: u32) -> bool {
    const KCMP_FS: u64 = 3;
    let known = MEMBER.load(Ordering::Relaxed);
    if known == here {
        return true;
    }
    // SAFETY: takes nothing.
    let parent = unsafe { system::call(raw::__NR_getppid, [0; 6]) } as u32;
    let same = |other: u32| {
        let arguments = [u64::from(here), u64::from(other), KCMP_FS, 0, 0, 0];
        // SAFETY: compares, and changes nothing.
        unsafe { system::call(raw::__NR_kcmp, arguments) == 0 }
    };
    if same(known) || same(parent) {
        MEMBER.store(here, Ordering::Relaxed);
        return true;
    }
    leave();
    false
}

/// Runs something while nobody else changes the page.
fn with_page<T>(page: *mut Page, run: impl FnOnce(&mut Page) -> T) -> T {
    /// Who is killed within leaves it locked.
    const PATIENCE: u32 = 10_000;
    // SAFETY: the mapping stays, and this member is only used atomically.
    let busy = unsafe { &(*page).busy };
    let mut tries = 0;
    while busy.swap(true, Ordering::Acquire) && tries < PATIENCE {
        system::pause();
        tries += 1;
    }
    // SAFETY: the others wait; what somebody who was killed left is text of the same length or shorter, which is checked where it is used.
    let result = run(unsafe { &mut *page });
    busy.store(false, Ordering::Release);
    result
}

/// Makes root and umask of `task` those of all.
#[cold]
pub(crate) fn tell(task: &Task) {
    let Some(page) = page().filter(|_| is_member(system::process())) else { return };
    let changes = with_page(page, |page| {
        page.umask = task.umask;
        page.root.clone_from(&task.root);
        page.changes.fetch_add(1, Ordering::Relaxed) + 1
    });
    SEEN.store(changes, Ordering::Relaxed);
}

/// Whether somebody else has changed root or umask since this process looked last.
#[cold]
pub(crate) fn is_behind() -> bool {
    // SAFETY: the mapping stays, and this member is only used atomically.
    page().is_some_and(|page| unsafe {
        (*page).changes.load(Ordering::Relaxed) != SEEN.load(Ordering::Relaxed)
    }) && is_member(system::process())
}

/// Takes over what others have changed.
#[cold]
pub(crate) fn catch_up(task: &mut Task) {
    let Some(page) = page() else { return };
    let changes = with_page(page, |page| {
        task.umask = page.umask;
        task.root.clone_from(&page.root);
        page.changes.load(Ordering::Relaxed)
    });
    SEEN.store(changes, Ordering::Relaxed);
}
