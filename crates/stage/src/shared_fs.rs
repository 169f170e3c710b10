//! Keeps root and umask the same in processes that share them (`CLONE_FS`) without sharing memory.
//!
//! The state that threads share is in their memory ([`crate::tasks`]). A process that is made with
//! `CLONE_FS` alone has its own memory. So the two get a shared page ([`Page`]), which is mapped
//! before the process is made and inherited by it. A process that changes root or umask writes them
//! there, and all check its counter before a call. A child of an ordinary `fork` inherits the
//! mapping too, but shares nothing: it asks the kernel once (`kcmp`), and does not use the page
//! again. It begins with its parent's state, so that has to be up to date: once there is a page, an
//! additional filter catches every `fork` (`filters::see_forks`), except in modes without filters,
//! where such a child may begin with a root and a umask that its parent had before.
//!
//! An `execve` removes the mapping: a process that has executed another program has the root and
//! the umask of that moment, and no longer shares them. (The kernel still shares its working
//! directory.)

use crate::system;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use linux_raw_sys::general as raw;
use view::{Task, Text};

/// The shared page.
#[repr(C)]
struct Page {
    /// Set while a process writes or reads.
    busy: AtomicBool,
    /// Counts changes.
    changes: AtomicU32,
    umask: u32,
    entered: u16,
    root: Text,
}

/// Address of the page; 0 if there is none.
static PAGE: AtomicU64 = AtomicU64::new(0);
/// The process that is known to share it.
static MEMBER: AtomicU32 = AtomicU32::new(0);
/// Number of the changes that this process has taken over.
static SEEN: AtomicU32 = AtomicU32::new(0);

/// Set if new processes of this process and its descendants are caught.
static FORKS_SEEN: AtomicBool = AtomicBool::new(false);

/// Returns true if there is a page: then [`is_outdated`] has to be checked before a call.
#[inline]
pub(crate) fn is_mapped() -> bool {
    PAGE.load(Ordering::Relaxed) != 0
}

fn page() -> Option<*mut Page> {
    match PAGE.load(Ordering::Relaxed) {
        0 => None,
        at => Some(at as *mut Page),
    }
}

/// Prepares for a process that shares root and umask, which are those of `task`, with this one.
#[cold]
pub(crate) fn share(task: &Task) {
    let here = system::process();
    if is_mapped() && is_member(here) {
        return;
    }
    let flags = u64::from(raw::MAP_SHARED | raw::MAP_ANONYMOUS);
    let length = size_of::<Page>() as u64;
    // SAFETY: makes a new mapping at an address that the kernel chooses.
    let at = unsafe { system::call(raw::__NR_mmap, [0, length, 3, flags, u64::MAX, 0]) };
    // Without memory, each process keeps its own state.
    if !system::is_error(at) {
        PAGE.store(at as u64, Ordering::Relaxed);
        MEMBER.store(here, Ordering::Relaxed);
        publish(task);
        // Without a filter nothing is caught by signals of one.
        if !crate::shared::is_mode_f() && !FORKS_SEEN.swap(true, Ordering::Relaxed) {
            crate::filters::see_forks();
        }
    }
}

/// From now on the process does not share root and umask.
#[cold]
pub(crate) fn unshare() {
    PAGE.store(0, Ordering::Relaxed);
}

/// Returns true if the calling process shares the page, and has not only inherited it; the kernel
/// is asked once.
fn is_member(here: u32) -> bool {
    const KCMP_FS: u64 = 3;
    let known = MEMBER.load(Ordering::Relaxed);
    if known == here {
        return true;
    }
    // SAFETY: the call has no arguments and touches no memory.
    let parent = unsafe { system::call(raw::__NR_getppid, [0; 6]) } as u32;
    let same = |other: u32| {
        let arguments = [u64::from(here), u64::from(other), KCMP_FS, 0, 0, 0];
        // SAFETY: the call compares two processes and touches no memory.
        unsafe { system::call(raw::__NR_kcmp, arguments) == 0 }
    };
    if same(known) || same(parent) {
        MEMBER.store(here, Ordering::Relaxed);
        return true;
    }
    unshare();
    false
}

/// Calls `run` while no other process changes the page.
fn with_page<T>(page: *mut Page, run: impl FnOnce(&mut Page) -> T) -> T {
    // SAFETY: the page is never unmapped, and this member is only accessed atomically.
    let busy = unsafe { &(*page).busy };
    system::take_turn(busy, || {});
    // SAFETY: other processes wait for `busy`. A process that was killed may have left a partly
    // written text, which is checked where it is used.
    let result = run(unsafe { &mut *page });
    busy.store(false, Ordering::Release);
    result
}

/// Makes root and umask of `task` those of all processes that share the page.
#[cold]
pub(crate) fn publish(task: &Task) {
    let Some(page) = page().filter(|_| is_member(system::process())) else { return };
    let changes = with_page(page, |page| {
        page.umask = task.umask;
        page.entered = task.entered;
        page.root.clone_from(&task.root);
        page.changes.fetch_add(1, Ordering::Relaxed) + 1
    });
    SEEN.store(changes, Ordering::Relaxed);
}

/// Returns true if another process has changed root or umask since this one has looked last.
#[cold]
pub(crate) fn is_outdated() -> bool {
    // SAFETY: the page is never unmapped, and this member is only accessed atomically.
    page().is_some_and(|page| unsafe {
        (*page).changes.load(Ordering::Relaxed) != SEEN.load(Ordering::Relaxed)
    }) && is_member(system::process())
}

/// Takes over the changes of other processes.
#[cold]
pub(crate) fn update(task: &mut Task) {
    let Some(page) = page() else { return };
    let changes = with_page(page, |page| {
        task.umask = page.umask;
        task.entered = page.entered;
        task.root.clone_from(&page.root);
        page.changes.load(Ordering::Relaxed)
    });
    SEEN.store(changes, Ordering::Relaxed);
}
