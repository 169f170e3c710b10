//! The state of threads ([`view::Task`]): one for the process, more where threads differ.
//!
//! Nearly always all threads of a process are the same to the view, and one task in memory serves them all: it is lent as it is, nothing is
//! copied, nothing written, and a child of `fork` has its parent's. Calls that may change it ([`changes`]) work on a copy, which is compared with
//! the original when they are done.
//!
//! What is a thread's own (ids, filters; root and umask after `unshare(CLONE_FS)`) becomes the process's where there is one thread. Otherwise the
//! thread gets an entry in a table ([`Own`]), and so does a child that shares this memory (`vfork`). While there are entries, every call asks
//! the kernel for its thread's number. A thread is known by its number and its `fs` base together, because numbers are used again; the one
//! thread of a child of `fork` is known by its `fs` base alone.
//!
//! To C libraries and Go ids are the process's: they have every thread make the call, within a signal's handler ([`SUMMONS`]), before the one that was
//! asked for it makes it. So what a thread changes there is the process's at once, and an entry that says the same as the process goes. It also
//! goes when as many threads have equal ids as there are threads.
//!
//! A thread made by one with an entry begins with the process's state: who makes whom is not seen.
//!
//! Changes are made one at a time; no handler of the guest's interrupts one, because signals wait while the stage is at work.

use crate::kernel::processes;
use crate::system::{self, Written};
use crate::{shared_fs, slots};
use abi::calls::{Class, Op};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use linux_raw_sys::general as raw;
use view::{Errno, Task};

/// One thread that is not as its process is.
struct Own {
    /// Its number; 0 where the entry is free.
    thread: u32,
    /// It is a process of its own, whose memory this is as well.
    borrower: bool,
    /// Root and umask are its own too.
    fs: bool,
    /// Its `fs` base.
    base: u64,
    /// Its newest filter.
    filters: u32,
    task: Task,
}

/// How many threads can differ; beyond that, what one changes is the process's.
const OWN_MAX: usize = 64;

/// Signals by which C libraries (glibc 33, musl 34) and Go (33) have all threads make a call.
pub(crate) const SUMMONS: core::ops::RangeInclusive<u32> = 33..=34;
/// Threads that have got one of these, and not yet made such a call; 0 where free.
static SUMMONED: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

/// All of it is valid as zeros. In this order in memory: what every program needs lies together.
#[repr(C)]
struct Process {
    /// The newest filter of the guest's own, as `filters` numbers them; 0 without one.
    filters: u32,
    /// The process whose memory this is.
    id: u32,
    task: Task,
    own: [Own; OWN_MAX],
}

static PROCESS: Written<MaybeUninit<Process>> = Written::new(MaybeUninit::uninit());
/// How many entries are taken.
static OWN: AtomicU32 = AtomicU32::new(0);
/// Somebody is changing something.
static BUSY: AtomicBool = AtomicBool::new(false);

/// The table.
fn process() -> &'static mut Process {
    // SAFETY: zeros are a valid value. Threads read it at any time; what is written is written under `BUSY`, by calls that are rare, and a
    // reader that meets a change sees ids of before or after, as one that came a moment earlier or later.
    unsafe { PROCESS.get_mut().assume_init_mut() }
}

/// What a call is given: the task of the thread that makes it.
pub(crate) struct Lent<'a> {
    /// For the view.
    pub(crate) task: &'a mut Task,
    /// The thread's newest filter of its own.
    pub(crate) filters: u32,
    copied: bool,
    ids: bool,
}

/// Whether a call may change its thread's task.
pub(crate) const fn changes(op: Op) -> bool {
    matches!(
        op,
        Op::Umask
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

/// Begins a program: the only thread's task, and its newest filter.
pub(crate) fn start(filters: u32) {
    let process = process();
    process.filters = filters;
    process.id = system::process();
}

/// Lends the calling thread's task for a call. `fd_exhaustion` holds the copy, if there is one; before, it holds zeros or what an earlier call left there.
pub(crate) fn lend(op: Op, room: &mut MaybeUninit<Task>) -> Lent<'_> {
    let process = process();
    catch_up();
    let (task, filters) = match mine() {
        Some(own) => (&mut own.task, own.filters),
        None => (&mut process.task, process.filters),
    };
    if changes(op) {
        let ids = op.entry().class == Class::Identity && op != Op::Umask;
        // SAFETY: zeros are a valid task, and so is one of before.
        let copy = unsafe { room.assume_init_mut() };
        copy.clone_from(task);
        Lent { task: copy, filters, copied: true, ids }
    } else {
        Lent { task, filters, copied: false, ids: false }
    }
}

/// Takes over what processes have changed that share root and umask with this one.
#[inline]
pub(crate) fn catch_up() {
    #[cold]
    #[inline(never)]
    fn really() {
        // What is a borrower's is not the process's whose memory it is.
        if !is_borrower() && shared_fs::is_behind() {
            locked(|| shared_fs::catch_up(&mut process().task));
        }
    }
    if shared_fs::is_there() {
        really();
    }
}

/// A process is about to be made that shares root and umask with this one, and not its memory.
pub(crate) fn share_fs() {
    if !is_borrower() {
        shared_fs::found(&process().task);
    }
}

impl Lent<'_> {
    /// Makes what the call has changed the thread's. (Without this it is as if the call had not been: an `execve` that failed.)
    pub(crate) fn give_back(self) {
        if self.copied {
            let everybodys = self.ids && is_summoned();
            locked(|| store(self.task, self.filters, everybodys));
        }
    }
}

/// The calling thread has got a signal of [`SUMMONS`].
pub(crate) fn summon() {
    let thread = system::thread();
    let _ = SUMMONED
        .iter()
        .find(|cell| cell.compare_exchange(0, thread, Ordering::AcqRel, Ordering::Relaxed).is_ok());
}

/// Whether it has got one since it last made such a call.
fn is_summoned() -> bool {
    if SUMMONED.iter().all(|cell| cell.load(Ordering::Relaxed) == 0) {
        return false;
    }
    let thread = system::thread();
    SUMMONED
        .iter()
        .filter(|cell| {
            cell.compare_exchange(thread, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
        .count()
        > 0
}

/// The calling thread's newest filter of its own.
#[inline]
pub(crate) fn filters() -> u32 {
    mine().map_or_else(|| process().filters, |own| own.filters)
}

/// Shows the task of a thread of this process; false if it is none.
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

/// The calling thread shares root and umask with no other any more.
pub(crate) fn unshare_fs() {
    locked(|| {
        let borrower = is_borrower();
        if (borrower || threads() > 1)
            && let Some(own) = enter(borrower)
        {
            own.fs = true;
        } else {
            shared_fs::leave();
        }
    });
}

/// Whether the caller is a process whose memory is another's as well: a child of `vfork` before its `execve`.
pub(crate) fn is_borrower() -> bool {
    const KCMP_VM: u64 = 1;
    let process = process();
    let here = system::process();
    if process.id == here {
        return false;
    }
    // `posix_spawn` makes 128 calls that want to know.
    let known = slots::borrower();
    if known.is_some_and(|known| known.load(Ordering::Relaxed) == here) {
        return true;
    }
    if OWN.load(Ordering::Acquire) != 0
        && process.own.iter().any(|own| own.borrower && own.thread == here)
    {
        return true;
    }
    // SAFETY: takes nothing.
    let parent = unsafe { system::call(raw::__NR_getppid, [0; 6]) } as u32;
    let same = |other: u32| {
        let arguments = [u64::from(here), u64::from(other), KCMP_VM, 0, 0, 0];
        // SAFETY: compares, and changes nothing.
        unsafe { system::call(raw::__NR_kcmp, arguments) == 0 }
    };
    if same(process.id) || same(parent) {
        if let Some(known) = known {
            known.store(here, Ordering::Relaxed);
        }
        return true;
    }
    // A child of `fork`: its only thread is its parent's copy. (It may have had children of `vfork` before this is noticed.)
    if OWN.load(Ordering::Acquire) != 0 {
        let base = base();
        let is_mine = |own: &&Own| own.thread != 0 && !own.borrower && own.base == base;
        if let Some(own) = process.own.iter().find(is_mine) {
            process.task.clone_from(&own.task);
            process.filters = own.filters;
        }
        let is_strange = |own: &&mut Own| own.thread != 0 && !(own.borrower && same(own.thread));
        process.own.iter_mut().filter(is_strange).for_each(free);
    }
    BUSY.store(false, Ordering::Release);
    process.id = here;
    false
}

/// The process whose memory this is: the caller, or whoever lends it the memory.
pub(crate) fn owner() -> u32 {
    is_borrower();
    process().id
}

/// The caller is about to execute another program, and will not come back if that succeeds: a borrower's entry is given up. What to give to
/// [`returned`] if it fails.
pub(crate) fn departs() -> Option<usize> {
    if OWN.load(Ordering::Acquire) == 0 || !is_borrower() {
        return None;
    }
    let here = system::process();
    let index = process().own.iter().position(|own| own.borrower && own.thread == here)?;
    locked(|| free(&mut process().own[index]));
    Some(index)
}

/// It failed.
pub(crate) fn returned(departed: Option<usize>) {
    let Some(own) = departed.and_then(|index| process().own.get_mut(index)) else { return };
    locked(|| {
        if own.thread == 0 {
            own.thread = system::process();
            OWN.fetch_add(1, Ordering::AcqRel);
        }
    });
}

/// The calling thread's entry.
#[inline]
fn mine() -> Option<&'static mut Own> {
    if OWN.load(Ordering::Acquire) == 0 { None } else { find() }
}

#[cold]
fn find() -> Option<&'static mut Own> {
    // A child of `fork` has none.
    is_borrower();
    let (thread, base) = (system::thread(), base());
    process().own.iter_mut().find(|own| own.thread == thread && own.base == base)
}

/// The calling thread's entry, made if there is none; `None` where there is no room.
fn enter(borrower: bool) -> Option<&'static mut Own> {
    if let Some(own) = mine() {
        return Some(own);
    }
    let process = process();
    let lost = |own: &Own| own.thread != 0 && !lives(own.thread, own.borrower);
    if process.own.iter().all(|own| own.thread != 0) || borrower {
        process.own.iter_mut().filter(|own| lost(own)).for_each(free);
    }
    let own = process.own.iter_mut().find(|own| own.thread == 0)?;
    own.task.clone_from(&process.task);
    own.filters = process.filters;
    (own.borrower, own.fs, own.base) = (borrower, borrower, base());
    own.thread = system::thread();
    OWN.fetch_add(1, Ordering::AcqRel);
    Some(own)
}

fn free(own: &mut Own) {
    own.thread = 0;
    OWN.fetch_sub(1, Ordering::AcqRel);
}

/// What a call of this thread has left; `everybodys` if all threads of the process are made to make it.
fn store(new: &Task, filters: u32, everybodys: bool) {
    let process = process();
    let borrower = is_borrower();
    let old = mine().map_or(&process.task, |own| &own.task);
    let ids = old.creds != new.creds;
    let filtered = (old.filters.mode, old.filters.count) != (new.filters.mode, new.filters.count);
    if old.dumpable != new.dumpable && !borrower {
        process.task.dumpable = new.dumpable;
        process.own.iter_mut().for_each(|own| own.task.dumpable = new.dumpable);
    }
    if new.fs_changed {
        store_fs(new, borrower);
    }
    if filtered && new.filters.synchronised && !borrower {
        let tasks = process.own.iter_mut().map(|own| (&mut own.task, &mut own.filters));
        for (task, head) in tasks.chain([(&mut process.task, &mut process.filters)]) {
            put_filters(task, new);
            task.creds.no_new_privileges = new.creds.no_new_privileges;
            *head = filters;
        }
    }
    if everybodys && !borrower {
        process.task.creds.clone_from(&new.creds);
    }
    if !ids && !filtered {
        return;
    }
    if !filtered && !borrower && process.task.creds == new.creds {
        let mine = mine().filter(|own| !own.fs && own.filters == process.filters);
        match mine {
            Some(own) => return free(own),
            None if everybodys && self::mine().is_none() => return,
            None => {}
        }
    }
    let threads = if borrower { 0 } else { threads() };
    let own = if threads == 1 { mine() } else { enter(borrower) };
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

fn store_fs(new: &Task, borrower: bool) {
    let put = |task: &mut Task| {
        task.root = new.root;
        task.umask = new.umask;
    };
    if let Some(own) = if borrower { enter(true) } else { mine().filter(|own| own.fs) } {
        return put(&mut own.task);
    }
    let process = process();
    put(&mut process.task);
    if shared_fs::is_there() {
        shared_fs::tell(&process.task);
    }
    process.own.iter_mut().filter(|own| !own.fs).for_each(|own| put(&mut own.task));
}

/// Where all threads have come to be the same, that is the process's.
fn converge(new: &Task, filters: u32, threads: u64) {
    let process = process();
    let same = |own: &&mut Own| {
        own.thread != 0 && !own.borrower && own.filters == filters && own.task.creds == new.creds
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

/// How many threads the calling process has.
fn threads() -> u64 {
    let mut facts = [0_u64; 18];
    let start = i64::from(raw::AT_FDCWD) as u64;
    let path = c"/proc/self/task".as_ptr() as u64;
    // SAFETY: the kernel reads the path and writes a `struct stat` of 144 bytes.
    let result = unsafe {
        system::call(raw::__NR_newfstatat, [start, path, facts.as_mut_ptr() as u64, 0, 0, 0])
    };
    // Links: two, and one for each thread.
    if result == 0 { facts[2].saturating_sub(2).max(1) } else { 1 }
}

/// Whether there is a thread with this number in the calling process, or for a borrower a process.
fn lives(thread: u32, borrower: bool) -> bool {
    let process = if borrower { thread } else { system::process() };
    let arguments = [u64::from(process), u64::from(thread), 0, 0, 0, 0];
    // SAFETY: signal 0 is none.
    unsafe { system::call(raw::__NR_tgkill, arguments) != Errno::ESRCH.result() }
}

/// The `fs` base of the calling thread.
fn base() -> u64 {
    const ARCH_GET_FS: u64 = 0x1003;
    let mut base = 0_u64;
    // SAFETY: the kernel writes one word.
    unsafe {
        system::call(raw::__NR_arch_prctl, [ARCH_GET_FS, &raw mut base as u64, 0, 0, 0, 0]);
    }
    base
}

fn locked<T>(change: impl FnOnce() -> T) -> T {
    /// Who is killed within leaves it locked, if memory is shared between processes.
    const PATIENCE: u32 = 10_000;
    let mut tries = 0;
    while BUSY.swap(true, Ordering::Acquire) && tries < PATIENCE {
        system::pause();
        tries += 1;
    }
    let result = change();
    BUSY.store(false, Ordering::Release);
    result
}
