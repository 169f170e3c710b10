//! Holds the state of threads ([`view::Task`]): one for the process, and more if threads differ.
//!
//! Nearly always all threads of a process have the same state, and one task in memory serves them
//! all: calls use it directly, without copying or writing, and a child of `fork` has its parent's.
//! Calls that may change it ([`changes`]) work on a copy, which is compared with the original when
//! they are done.
//!
//! A change of one thread's own state (ids, filters; root and umask after `unshare(CLONE_FS)`)
//! becomes the process's if there is one thread. Otherwise the thread gets an entry in a table
//! ([`Own`]), and so does a child that shares this memory (`vfork`). While there are entries, every
//! call asks the kernel for its thread's number. A thread is identified by its number and its `fs`
//! base together, because numbers are used again. The one thread of a child of `fork` is identified
//! by its `fs` base alone.
//!
//! For C libraries and Go, ids belong to the process: they make every thread execute the call in a
//! signal handler ([`SETXID_SIGNALS`]), before the thread that was asked for it executes it. So a
//! change that a thread makes in such a handler immediately becomes the process's, and an entry
//! that equals the process's state is freed. Entries are also freed when as many threads have equal
//! ids as there are threads.
//!
//! A new thread of a thread with an entry begins with the process's state, because it is not known
//! which thread makes which.
//!
//! Changes are made one at a time. No handler of the guest interrupts one, because signals are
//! deferred while the stage is working.

use crate::kernel::processes;
use crate::system::{self, Written};
use crate::{shared_fs, slots};
use abi::calls::{Class, Op};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use linux_raw_sys::general as raw;
use view::{Errno, Task};

/// A thread whose state differs from its process's.
struct Own {
    /// Its number; 0 if the entry is free.
    thread: u32,
    /// It is a child of `vfork`: a process of its own that uses this memory too.
    vfork_child: bool,
    /// It has its own root and umask, too.
    fs: bool,
    /// Its `fs` base.
    base: u64,
    /// Its newest filter.
    filters: u32,
    task: Task,
}

/// The greatest number of threads that can differ; beyond that, changes of one thread become the
/// process's.
const OWN_MAX: usize = 64;

/// Signals by which C libraries (glibc 33, musl 34) and Go (33) make all threads execute a call.
pub(crate) const SETXID_SIGNALS: core::ops::RangeInclusive<u32> = 33..=34;
/// Threads that have received one of these, and have not yet made such a call; 0 for a free place.
static SETXID_PENDING: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

/// Zeros are a valid value. The order of the members in memory matters: those that every program
/// needs lie together.
#[repr(C)]
struct Process {
    /// The guest's newest own filter, as `filters` numbers them; 0 if there is none.
    filters: u32,
    /// The process that owns this memory.
    id: u32,
    task: Task,
    own: [Own; OWN_MAX],
}

static PROCESS: Written<MaybeUninit<Process>> = Written::new(MaybeUninit::uninit());
/// Number of entries in use.
static OWN: AtomicU32 = AtomicU32::new(0);
/// Set while a thread changes something.
static BUSY: AtomicBool = AtomicBool::new(false);

/// The state of this process.
fn process() -> &'static mut Process {
    // SAFETY: zeros are a valid value. Threads read it at any time. Writes are rare and made under
    // `BUSY`. A reader that meets a change sees ids from before or after it, as a call a moment
    // earlier or later would.
    unsafe { PROCESS.get_mut().assume_init_mut() }
}

/// The task that a call uses: that of the thread that makes it.
pub(crate) struct CallTask<'a> {
    /// The task for the view.
    pub(crate) task: &'a mut Task,
    /// The newest filter of the thread.
    pub(crate) filters: u32,
    copied: bool,
    ids: bool,
}

/// Returns true if a call may change its thread's task.
pub(crate) const fn changes(op: Op) -> bool {
    matches!(
        op,
        Op::Umask
            | Op::Chdir
            | Op::Fchdir
            | Op::Chroot
            | Op::Prctl
            | Op::Seccomp
            | Op::Execve
            | Op::Execveat
            | Op::Setuid
            | Op::Setuid32
            | Op::Setgid
            | Op::Setgid32
            | Op::Setreuid
            | Op::Setreuid32
            | Op::Setregid
            | Op::Setregid32
            | Op::Setresuid
            | Op::Setresuid32
            | Op::Setresgid
            | Op::Setresgid32
            | Op::Setfsuid
            | Op::Setfsuid32
            | Op::Setfsgid
            | Op::Setfsgid32
            | Op::Setgroups
            | Op::Setgroups32
            | Op::Capset
    )
}

/// The task of a program that has not begun yet, to be filled in.
pub(crate) fn first() -> &'static mut Task {
    &mut process().task
}

/// Begins a program with one thread; `filters` is its newest filter.
pub(crate) fn start(filters: u32) {
    let process = process();
    process.filters = filters;
    process.id = system::process();
}

/// The calling thread's task for a call. `room` holds the copy, if one is made; before, it contains
/// zeros or the copy of an earlier call.
pub(crate) fn for_call(op: Op, room: &mut MaybeUninit<Task>) -> CallTask<'_> {
    let process = process();
    sync_fs();
    let (task, filters) = match own_entry() {
        Some(own) => (&mut own.task, own.filters),
        None => (&mut process.task, process.filters),
    };
    if changes(op) {
        let ids = op.entry().class == Class::Identity && op != Op::Umask;
        // SAFETY: zeros are a valid task, and so is an earlier one.
        let copy = unsafe { room.assume_init_mut() };
        copy.clone_from(task);
        CallTask { task: copy, filters, copied: true, ids }
    } else {
        CallTask { task, filters, copied: false, ids: false }
    }
}

/// Takes over changes of processes that share root and umask with this one.
#[inline]
pub(crate) fn sync_fs() {
    #[cold]
    #[inline(never)]
    fn really() {
        // A child of `vfork` does not share the state of the process that owns the memory.
        if !is_vfork_child() && shared_fs::is_outdated() {
            locked(|| shared_fs::update(&mut process().task));
        }
    }
    if shared_fs::is_mapped() {
        really();
    }
}

/// Prepares for a process that shares root and umask with this one, but not its memory.
pub(crate) fn share_fs() {
    if !is_vfork_child() {
        shared_fs::share(&process().task);
    }
}

impl CallTask<'_> {
    /// Makes the call's changes those of the thread. (Without this the call has no effect: an
    /// `execve` that failed.)
    pub(crate) fn commit(self) {
        if self.copied {
            let for_all = self.ids && has_setxid_pending();
            locked(|| store(self.task, self.filters, for_all));
        }
    }
}

/// Makes what a call has changed of root, umask and directory those of the thread, where a child
/// has made the call in its place. `room` holds the copy.
pub(crate) fn commit_place(room: &mut MaybeUninit<Task>) {
    // SAFETY: it was filled for the call.
    let copy = unsafe { room.assume_init_ref() };
    if copy.fs_changed {
        locked(|| store_fs(copy, is_vfork_child()));
    }
}

/// Notes that the calling thread has received a signal of [`SETXID_SIGNALS`].
pub(crate) fn note_setxid() {
    let thread = system::thread();
    let _ = SETXID_PENDING
        .iter()
        .find(|cell| cell.compare_exchange(0, thread, Ordering::AcqRel, Ordering::Relaxed).is_ok());
}

/// Returns true if it has received one since it last made such a call.
fn has_setxid_pending() -> bool {
    if SETXID_PENDING.iter().all(|cell| cell.load(Ordering::Relaxed) == 0) {
        return false;
    }
    let thread = system::thread();
    SETXID_PENDING
        .iter()
        .filter(|cell| {
            cell.compare_exchange(thread, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
        .count()
        > 0
}

/// The calling thread's newest filter.
#[inline]
pub(crate) fn filters() -> u32 {
    own_entry().map_or_else(|| process().filters, |own| own.filters)
}

/// Returns true if the calling thread is in seccomp's strict mode.
pub(crate) fn is_strict() -> bool {
    own_entry().map_or(&process().task, |own| &own.task).filters.mode == 1
}

/// Calls `look` with the task of a thread of this process; false if there is no such thread.
pub(crate) fn look(thread: u32, look: &mut dyn FnMut(&Task)) -> bool {
    if !lives(thread, false) {
        return false;
    }
    let process = process();
    look(
        process.own.iter().find(|own| own.thread == thread).map_or(&process.task, |own| &own.task),
    );
    true
}

/// The calling thread no longer shares root and umask with others.
pub(crate) fn unshare_fs() {
    locked(|| {
        let vfork_child = is_vfork_child();
        if (vfork_child || threads() > 1)
            && let Some(own) = enter(vfork_child)
        {
            own.fs = true;
        } else {
            shared_fs::unshare();
        }
    });
}

/// Returns true if the caller is a process that uses another process's memory: a child of `vfork`
/// before its `execve`.
pub(crate) fn is_vfork_child() -> bool {
    const KCMP_VM: u64 = 1;
    let process = process();
    let here = system::process();
    if process.id == here {
        return false;
    }
    // `posix_spawn` makes 128 calls that need this.
    let known = slots::vfork_child();
    if known.is_some_and(|known| known.load(Ordering::Relaxed) == here) {
        return true;
    }
    if OWN.load(Ordering::Acquire) != 0
        && process.own.iter().any(|own| own.vfork_child && own.thread == here)
    {
        return true;
    }
    // SAFETY: the call has no arguments and touches no memory.
    let parent = unsafe { system::call(raw::__NR_getppid, [0; 6]) } as u32;
    let same = |other: u32| {
        let arguments = [u64::from(here), u64::from(other), KCMP_VM, 0, 0, 0];
        // SAFETY: the call compares two processes and touches no memory.
        unsafe { system::call(raw::__NR_kcmp, arguments) == 0 }
    };
    if same(process.id) || same(parent) {
        if let Some(known) = known {
            known.store(here, Ordering::Relaxed);
        }
        return true;
    }
    // This is a child of `fork`: its only thread is a copy of its parent's. (It may have had
    // children of `vfork` before this is noticed.)
    if OWN.load(Ordering::Acquire) != 0 {
        let base = base();
        let is_mine = |own: &&Own| own.thread != 0 && !own.vfork_child && own.base == base;
        if let Some(own) = process.own.iter().find(is_mine) {
            process.task.clone_from(&own.task);
            process.filters = own.filters;
        }
        let is_strange = |own: &&mut Own| own.thread != 0 && !(own.vfork_child && same(own.thread));
        process.own.iter_mut().filter(is_strange).for_each(free);
    }
    BUSY.store(false, Ordering::Release);
    process.id = here;
    false
}

/// The process that owns this memory: the caller, or the parent of a `vfork`.
pub(crate) fn owner() -> u32 {
    is_vfork_child();
    process().id
}

/// Prepares for executing another program: frees the entry of a child of `vfork`, because the call
/// does not return if it succeeds. The result is passed to [`exec_failed`] if it fails.
pub(crate) fn before_exec() -> Option<usize> {
    if OWN.load(Ordering::Acquire) == 0 || !is_vfork_child() {
        return None;
    }
    let here = system::process();
    let index = process().own.iter().position(|own| own.vfork_child && own.thread == here)?;
    locked(|| free(&mut process().own[index]));
    Some(index)
}

/// Restores the entry after a failed `execve`.
pub(crate) fn exec_failed(freed: Option<usize>) {
    let Some(own) = freed.and_then(|index| process().own.get_mut(index)) else { return };
    locked(|| {
        if own.thread == 0 {
            own.thread = system::process();
            OWN.fetch_add(1, Ordering::AcqRel);
        }
    });
}

/// The calling thread's entry.
#[inline]
fn own_entry() -> Option<&'static mut Own> {
    if OWN.load(Ordering::Acquire) == 0 { None } else { find() }
}

#[cold]
fn find() -> Option<&'static mut Own> {
    // A child of `fork` has no entries.
    is_vfork_child();
    let (thread, base) = (system::thread(), base());
    process().own.iter_mut().find(|own| own.thread == thread && own.base == base)
}

/// The calling thread's entry, which is made if there is none; `None` if there is no room.
fn enter(vfork_child: bool) -> Option<&'static mut Own> {
    if let Some(own) = own_entry() {
        return Some(own);
    }
    let process = process();
    let lost = |own: &Own| own.thread != 0 && !lives(own.thread, own.vfork_child);
    if process.own.iter().all(|own| own.thread != 0) || vfork_child {
        process.own.iter_mut().filter(|own| lost(own)).for_each(free);
    }
    let own = process.own.iter_mut().find(|own| own.thread == 0)?;
    own.task.clone_from(&process.task);
    own.filters = process.filters;
    (own.vfork_child, own.fs, own.base) = (vfork_child, vfork_child, base());
    own.thread = system::thread();
    OWN.fetch_add(1, Ordering::AcqRel);
    Some(own)
}

fn free(own: &mut Own) {
    own.thread = 0;
    OWN.fetch_sub(1, Ordering::AcqRel);
}

/// Stores the result of a call of this thread; `for_all` if all threads of the process are made to
/// execute it.
fn store(new: &Task, filters: u32, for_all: bool) {
    let process = process();
    let vfork_child = is_vfork_child();
    let old = own_entry().map_or(&process.task, |own| &own.task);
    let ids = old.creds != new.creds;
    let filtered = (old.filters.mode, old.filters.count) != (new.filters.mode, new.filters.count);
    if old.dumpable != new.dumpable && !vfork_child {
        process.task.dumpable = new.dumpable;
        process.own.iter_mut().for_each(|own| own.task.dumpable = new.dumpable);
        processes::tell(&process.task);
    }
    if new.fs_changed {
        store_fs(new, vfork_child);
    }
    if filtered && new.filters.synchronised && !vfork_child {
        let tasks = process.own.iter_mut().map(|own| (&mut own.task, &mut own.filters));
        for (task, head) in tasks.chain([(&mut process.task, &mut process.filters)]) {
            put_filters(task, new);
            task.creds.no_new_privileges = new.creds.no_new_privileges;
            *head = filters;
        }
    }
    if for_all && !vfork_child {
        process.task.creds.clone_from(&new.creds);
    }
    if !ids && !filtered {
        return;
    }
    if !filtered && !vfork_child && process.task.creds == new.creds {
        let mine = own_entry().filter(|own| !own.fs && own.filters == process.filters);
        match mine {
            Some(own) => return free(own),
            None if for_all && self::own_entry().is_none() => return,
            None => {}
        }
    }
    let threads = if vfork_child { 0 } else { threads() };
    let own = if threads == 1 { own_entry() } else { enter(vfork_child) };
    let is_process = own.is_none();
    let (task, head) = match own {
        Some(own) => (&mut own.task, &mut own.filters),
        None => (&mut process.task, &mut process.filters),
    };
    if ids {
        task.creds.clone_from(&new.creds);
        if is_process {
            processes::tell(task);
        }
    }
    if filtered {
        put_filters(task, new);
        *head = filters;
    }
    if threads > 1 {
        converge(new, filters, threads);
    }
}

fn put_filters(task: &mut Task, new: &Task) {
    task.filters = view::task::Filters { synchronised: false, ..new.filters };
}

fn store_fs(new: &Task, vfork_child: bool) {
    let put = |task: &mut Task| {
        task.root = new.root;
        task.umask = new.umask;
        task.entered = new.entered;
    };
    if let Some(own) = if vfork_child { enter(true) } else { own_entry().filter(|own| own.fs) } {
        return put(&mut own.task);
    }
    let process = process();
    put(&mut process.task);
    if shared_fs::is_mapped() {
        shared_fs::publish(&process.task);
    }
    process.own.iter_mut().filter(|own| !own.fs).for_each(|own| put(&mut own.task));
}

/// If all threads have the same state by now, makes it the process's.
fn converge(new: &Task, filters: u32, threads: u64) {
    let process = process();
    let same = |own: &&mut Own| {
        own.thread != 0 && !own.vfork_child && own.filters == filters && own.task.creds == new.creds
    };
    let count = process.own.iter_mut().filter(same).count() as u64;
    if count < threads && count < OWN_MAX as u64 {
        return;
    }
    process.task.creds.clone_from(&new.creds);
    processes::tell(&process.task);
    put_filters(&mut process.task, new);
    process.filters = filters;
    process.own.iter_mut().filter(same).filter(|own| !own.fs).for_each(free);
}

/// Number of threads of the calling process.
pub(crate) fn threads() -> u64 {
    let mut facts = [0_u64; 18];
    let start = i64::from(raw::AT_FDCWD) as u64;
    let path = c"/proc/self/task".as_ptr() as u64;
    // SAFETY: the kernel reads the path and writes a `struct stat` of 144 bytes, for which `facts`
    // has room.
    let result = unsafe {
        system::call(raw::__NR_newfstatat, [start, path, facts.as_mut_ptr() as u64, 0, 0, 0])
    };
    // Links: two, and one for each thread.
    if result == 0 { facts[2].saturating_sub(2).max(1) } else { 1 }
}

/// Returns true if the calling process has a thread with this number, or for a child of `vfork` if
/// that process lives.
fn lives(thread: u32, vfork_child: bool) -> bool {
    let process = if vfork_child { thread } else { system::process() };
    let arguments = [u64::from(process), u64::from(thread), 0, 0, 0, 0];
    // SAFETY: signal 0 is never delivered; the call only checks that the thread exists.
    unsafe { system::call(raw::__NR_tgkill, arguments) != Errno::ESRCH.result() }
}

/// The `fs` base of the calling thread.
fn base() -> u64 {
    const ARCH_GET_FS: u64 = 0x1003;
    let mut base = 0_u64;
    // SAFETY: the kernel writes one word, and `base` is one.
    unsafe {
        system::call(raw::__NR_arch_prctl, [ARCH_GET_FS, &raw mut base as u64, 0, 0, 0, 0]);
    }
    base
}

fn locked<T>(change: impl FnOnce() -> T) -> T {
    // A child of `fork` that was made in the middle of another thread's turn finds that out.
    system::take_turn(&BUSY, || {
        is_vfork_child();
    });
    let result = change();
    BUSY.store(false, Ordering::Release);
    result
}
