//! Manages slots: the memory in which a caught call is handled, because the guest's own stack may
//! be small.
//!
//! A slot has a stack, the guest's registers ([`Frame`]), a word that says if it is taken
//! ([`Head`]) and the view's buffers ([`CallBuffers`]). A call takes a slot before it writes to any
//! memory, and gives it back with its last instructions. The instructions in `entry` find a free
//! one (a locked bit in each slot's head). The search starts at a place that follows from the
//! guest's stack pointer, so that a thread usually gets the same slot again and threads rarely
//! compete for one.
//!
//! - At first there are few slots. If more than half are taken, the thread that notices makes more
//!   of them usable ([`SLOTS_MAX`] at most).
//! - A child of `fork` has none of its parent's threads and needs nothing that is in the slots:
//!   they are wiped (`MADV_WIPEONFORK`), which also avoids copying them. On kernels without that,
//!   the first call of the child marks them free.
//! - A signal handler that leaves by `siglongjmp` leaves the slot of the interrupted call taken.
//!   The thread that owns such slots finds them.

use crate::frame::Frame;
use crate::{memory_guard, system};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use linux_raw_sys::general as raw;
use linux_raw_sys::prctl::PR_GET_TID_ADDRESS;
use view::{CallBuffers, Task};

/// Size of a slot in bytes, and its alignment.
pub(crate) const SLOT_SIZE: usize = 1 << SLOT_SHIFT;
/// The same as a power of two.
pub(crate) const SLOT_SHIFT: u32 = 18;
/// Size of a slot's stack in bytes. The deepest calls take 47 KiB, and a signal's frame may be
/// added (3 KiB, or 11 with tile registers). Unused pages are never touched. The stack ends within
/// a page; the registers and the beginning of the scratch memory take the rest of it. Most calls
/// need only this page and the one before.
pub(crate) const STACK_SIZE: usize = 92 * 1024 - 1024;
/// The greatest number of slots.
pub(crate) const SLOTS_MAX: u32 = 2048;
/// The number of slots at first: a power of two.
const SLOTS_FIRST: u32 = 4;
/// The number of taken slots from which on slots of calls that will never end are searched.
const MANY: u32 = 256;
const _: () = assert!((SLOTS_MAX as u64) << SLOT_SHIFT <= abi::boot::SLOTS_ROOM);
/// A thread's first choice follows from these bits of its stack pointer (and higher ones): stacks
/// of threads are usually 8 MiB apart.
pub(crate) const SPREAD: u32 = 23;
/// The greatest distance between the stack pointers of two calls that are assumed to be on the same
/// stack.
const SAME_STACK: u64 = 1 << 20;

/// State of a slot.
#[repr(C, align(64))]
pub(crate) struct Head {
    /// Bit 0: taken.
    pub(crate) taken: AtomicU64,
    /// Number of a signal that arrived while this slot's stack was in use, and waits for the end of
    /// the call; 0 if there is none. See `signals`.
    pub(crate) deferred: u64,
    /// `fs` base of the thread that has taken the slot; 0 if the processor cannot read it.
    pub(crate) owner: u64,
    /// The process that has taken the slot, on kernels that do not wipe slots in children of
    /// `fork`.
    pub(crate) process: u32,
    /// The signal mask before a signal was deferred.
    pub(crate) mask: u64,
    /// The work that remains after the call that is being made on the guest's stack.
    pub(crate) after: view::After,
    /// A process that was found to use this memory without being its owner. See [`vfork_child`].
    vfork_child: AtomicU32,
    /// Set if the call has its result while a deferred signal is delivered. (Otherwise the call is
    /// still to be made.)
    pub(crate) answered: bool,
    /// Return address of an i386 call.
    pub(crate) narrow_return: u64,
    /// The deferred signal's `siginfo_t`.
    pub(crate) information: [u64; 16],
}

/// One slot.
#[repr(C, align(262144))]
pub(crate) struct Slot {
    /// Stack of the call; grows down.
    stack: [u8; STACK_SIZE],
    /// The guest's registers.
    pub(crate) frame: Frame,
    /// Its state.
    pub(crate) head: Head,
    /// Memory for small texts of the view that the kernel reads (`view::Guest::scratch`), in the
    /// page that is used anyway; for more, memory is mapped.
    pub(crate) scratch: [u8; SCRATCH_SIZE],
    /// The view's buffers. (Zeros are a valid value of all members: texts, numbers, and options
    /// whose zero is `None`.) They start at a page, so that small members do not lie in two pages.
    pub(crate) buffers: CallBuffers,
    gap: [u8; GAP],
    /// A copy of the thread's state, for calls that change it. It starts at a page too.
    pub(crate) task: MaybeUninit<Task>,
    rest: [u8; LEFT - SCRATCH_SIZE],
}

/// Size of what is before the scratch memory.
const FRONT: usize =
    (STACK_SIZE + size_of::<Frame>()).next_multiple_of(align_of::<Head>()) + size_of::<Head>();
/// Distance from the end of the buffers to the next page.
const GAP: usize = size_of::<CallBuffers>().next_multiple_of(4096) - size_of::<CallBuffers>();
/// Size of the rest.
const LEFT: usize = SLOT_SIZE - FRONT - size_of::<CallBuffers>() - GAP - size_of::<Task>() - 64;
/// Size of a slot's scratch memory in bytes: up to the last page at which the rest can start.
pub(crate) const SCRATCH_SIZE: usize = (FRONT + LEFT) / 4096 * 4096 - FRONT;
const _: () = assert!(core::mem::offset_of!(Slot, buffers).is_multiple_of(4096));

const _: () = assert!(size_of::<Slot>() == SLOT_SIZE);

/// The slots that exist. The instructions in `entry` read it.
#[repr(C, align(64))]
pub(crate) struct Pool {
    /// Address of the first slot; 0 before there are any.
    pub(crate) first: AtomicU64,
    /// End of the last slot.
    pub(crate) end: AtomicU64,
    /// The number of slots (a power of two) minus one.
    pub(crate) mask: AtomicU32,
    /// 1 if the instruction `rdfsbase` works.
    reads_owner: AtomicU32,
    /// The process that the taken slots belong to, on kernels that do not wipe them in a child of
    /// `fork`; else 0.
    process: AtomicU32,
}

/// The one pool.
pub(crate) static POOL: Pool = Pool {
    first: AtomicU64::new(0),
    end: AtomicU64::new(0),
    mask: AtomicU32::new(0),
    reads_owner: AtomicU32::new(0),
    process: AtomicU32::new(0),
};

/// Makes the first slots, at the start of a program. `wipes`: the kernel may be asked to wipe them
/// in children of `fork`.
pub(crate) fn prepare(reads_owner: bool, wipes: bool) -> Result<(), system::Failed> {
    let is_wiped = map(0, SLOTS_FIRST, wipes)?;
    POOL.reads_owner.store(u32::from(reads_owner), Ordering::Relaxed);
    if !is_wiped {
        POOL.process.store(system::process(), Ordering::Relaxed);
    }
    POOL.first.store(start(), Ordering::Relaxed);
    publish(SLOTS_FIRST);
    Ok(())
}

/// Address of the first slot.
#[inline]
fn start() -> u64 {
    system::base() + abi::boot::SLOTS
}

/// A word in the slot of the asking call that holds the number of a process which shares this
/// memory with its parent (`vfork`). A child of `fork` finds zero there, so a process that finds
/// its own number shares the memory. `None` if slots are not wiped in children, and outside of
/// calls.
pub(crate) fn vfork_child() -> Option<&'static AtomicU32> {
    let here = 0_u8;
    let stack = &raw const here as u64;
    if POOL.process.load(Ordering::Relaxed) != 0 || !contain(stack) {
        return None;
    }
    // SAFETY: the caller runs on the slot's stack, so the slot is mapped, for good; this word is
    // only accessed atomically.
    Some(unsafe { &(*at(stack)).head.vfork_child })
}

fn publish(count: u32) {
    POOL.end.store(start() + (u64::from(count) << SLOT_SHIFT), Ordering::Release);
    POOL.mask.store(count - 1, Ordering::Release);
}

/// Makes memory of slots usable; returns true if it is wiped in children of `fork`.
fn map(from: u32, to: u32, wipes: bool) -> Result<bool, system::Failed> {
    let start = start() + (u64::from(from) << SLOT_SHIFT);
    let length = u64::from(to - from) << SLOT_SHIFT;
    // Another thread that grows the pool at the same moment may have mapped it already.
    let _ = system::map(system::Place::Free(start), length, 3, None);
    let advise = |advice: u32| {
        // SAFETY: only the stage uses this memory, and neither kind of advice changes its contents.
        let result =
            unsafe { system::call(raw::__NR_madvise, [start, length, u64::from(advice), 0, 0, 0]) };
        result == 0
    };
    // A huge page would be filled with zeros for the sake of a few bytes.
    if length >= 2 << 20 {
        advise(raw::MADV_NOHUGEPAGE);
    }
    let is_wiped = wipes && advise(raw::MADV_WIPEONFORK);
    if !is_wiped && !advise(raw::MADV_NORMAL) {
        return Err(system::Failed);
    }
    Ok(is_wiped)
}

/// The slot that contains a frame.
pub(crate) fn of(frame: *mut Frame) -> *mut Slot {
    at(frame as u64)
}

/// The slot that contains an address.
pub(crate) fn at(address: u64) -> *mut Slot {
    (address & !(SLOT_SIZE as u64 - 1)) as *mut Slot
}

/// Returns true if an address is in a slot.
pub(crate) fn contain(address: u64) -> bool {
    (start()..POOL.end.load(Ordering::Relaxed)).contains(&address)
}

fn slot(index: u32) -> *mut Slot {
    (start() + (u64::from(index) << SLOT_SHIFT)) as *mut Slot
}

fn preferred(stack: u64) -> u32 {
    (stack >> SPREAD) as u32 & POOL.mask.load(Ordering::Acquire)
}

/// Takes a slot for a caller whose stack pointer is `stack`, as the instructions in `entry` do it.
pub(crate) fn take(stack: u64) -> *mut Slot {
    let mut tries = 0_u32;
    loop {
        let count = POOL.mask.load(Ordering::Acquire) + 1;
        let start = preferred(stack);
        for step in 0..count {
            let slot = slot((start + step) & (count - 1));
            // SAFETY: every slot below the count is mapped, and the head is accessed only by its
            // atomic word.
            let head = unsafe { &(*slot).head };
            // Not read first: reading memory that was never written costs a page fault of its own.
            if head.taken.swap(1, Ordering::Acquire) == 0 {
                return slot;
            }
        }
        tries += 1;
        if tries > 64 {
            none_free();
        }
    }
}

/// All slots have been taken for many rounds: perhaps each by a thread that waits and found its own
/// slot free, so that it did not grow the pool. Grows it.
pub(crate) extern "C" fn none_free() {
    let count = POOL.mask.load(Ordering::Acquire) + 1;
    let taken = |index: u32| {
        // SAFETY: every slot below the count is mapped; only the atomic word is read.
        unsafe { (*slot(index)).head.taken.load(Ordering::Relaxed) != 0 }
    };
    if (0..count).all(taken) {
        grow(count);
    }
    system::pause();
}

/// Prepares the slot at the beginning of a call: stores its owner, and grows the pool if few slots
/// are free.
#[inline]
pub(crate) fn begin_call(frame: &mut Frame) {
    let slot = of(frame);
    if POOL.reads_owner.load(Ordering::Relaxed) != 0 {
        // SAFETY: the head belongs to this call; the kernel has said that the instruction works.
        unsafe { (*slot).head.owner = system::thread_pointer() };
    }
    if POOL.process.load(Ordering::Relaxed) != 0 {
        reclaim_parents(frame);
    }
    let index = ((slot as u64 - start()) >> SLOT_SHIFT) as u32;
    if index != preferred(frame.stack) {
        make_room(frame);
    }
}

/// If more than half of the slots are taken: frees those that will never be given back, else makes
/// more usable.
#[cold]
fn make_room(frame: &mut Frame) {
    let count = POOL.mask.load(Ordering::Acquire) + 1;
    let taken = |index: &u32| {
        // SAFETY: every slot below the count is mapped; only the atomic word is read.
        unsafe { (*slot(*index)).head.taken.load(Ordering::Relaxed) != 0 }
    };
    let busy = (0..count).filter(taken).count() as u32;
    if busy * 2 <= count {
        return;
    }
    let freed = if busy >= MANY { reclaim_own(frame) } else { 0 };
    if freed * 4 <= busy {
        grow(count);
    }
}

/// Makes twice as many slots usable.
fn grow(count: u32) {
    let more = u64::from(count) << SLOT_SHIFT;
    if count == SLOTS_MAX || memory_guard::is_lent(start() + more, more) {
        return;
    }
    let wipes = POOL.process.load(Ordering::Relaxed) == 0;
    if map(count, count * 2, wipes).is_ok() && POOL.mask.load(Ordering::Acquire) + 1 == count {
        publish(count * 2);
    }
}

/// Frees the slots of calls of this thread that its signal handlers have left by `siglongjmp`: the
/// thread is now using the same stack above them. Returns their number.
fn reclaim_own(frame: &mut Frame) -> u32 {
    let mine = of(frame);
    // SAFETY: the head belongs to this call.
    let owner = unsafe { (*mine).head.owner };
    if owner == 0 {
        return 0;
    }
    free_if(|other| {
        // SAFETY: every slot below the count is mapped; if its owner writes a word meanwhile, that
        // owner is another thread, and the slot is not freed.
        let (theirs, stack) = unsafe { ((*other).head.owner, (*other).frame.stack) };
        other != mine && theirs == owner && stack <= frame.stack && frame.stack - stack < SAME_STACK
    })
}

/// On kernels that do not wipe slots in children of `fork`: stores which process has a slot, and at
/// the first call of a child frees the slots that its parent had taken.
#[cold]
fn reclaim_parents(frame: &mut Frame) {
    const KCMP_VM: u64 = 1;
    let before = POOL.process.load(Ordering::Relaxed);
    let now = system::process();
    // SAFETY: the head belongs to this call.
    unsafe { (*of(frame)).head.process = now };
    if before == now {
        return;
    }
    // A child of `vfork` shares its parent's memory, and so its slots.
    let arguments = [u64::from(before), u64::from(now), KCMP_VM, 0, 0, 0];
    // SAFETY: the call compares two processes and touches no memory.
    let result = unsafe { system::call(raw::__NR_kcmp, arguments) };
    let gone = result == view::Errno::ESRCH.result();
    if !(gone || (1..=3).contains(&result)) {
        return;
    }
    let first =
        POOL.process.compare_exchange(before, now, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if first {
        free_if(|other| {
            // SAFETY: every slot below the count is mapped; a word that another thread writes
            // meanwhile becomes `now`.
            unsafe { (*other).head.process != now }
        });
    }
}

fn free_if(lost: impl Fn(*mut Slot) -> bool) -> u32 {
    let count = POOL.mask.load(Ordering::Acquire) + 1;
    let mut freed = 0;
    for index in 0..count {
        let slot = slot(index);
        // SAFETY: every slot below the count is mapped, and the head is accessed only by its atomic
        // word.
        let head = unsafe { &(*slot).head };
        if head.taken.load(Ordering::Relaxed) != 0 && lost(slot) {
            head.taken.store(0, Ordering::Release);
            freed += 1;
        }
    }
    freed
}

/// The state before [`release_at_exec`].
pub(crate) struct ReleaseAtExec(Option<u64>);

/// Prepares for a call that is about to execute another program. In a child of `vfork` the memory
/// stays with the parent, with this slot in it taken. So the kernel is asked to clear its word when
/// the child leaves the memory (`set_tid_address`), and not before.
pub(crate) fn release_at_exec(slot: *mut Slot) -> ReleaseAtExec {
    if !crate::tasks::is_vfork_child() {
        return ReleaseAtExec(None);
    }
    let mut before = 0_u64;
    let asked = [u64::from(PR_GET_TID_ADDRESS), &raw mut before as u64, 0, 0, 0, 0];
    // SAFETY: the kernel writes one address on this stack; later it clears a word of the slot, for
    // which zero is valid.
    unsafe {
        // If the previous address is unknown, it could not be restored; then the slot is lost.
        if system::call(raw::__NR_prctl, asked) != 0 {
            return ReleaseAtExec(None);
        }
        set_tid_address(&raw const (*slot).head.taken as u64);
    }
    ReleaseAtExec(Some(before))
}

/// Restores the state because the program was not executed.
pub(crate) fn undo_release(departure: &ReleaseAtExec) {
    if let Some(before) = departure.0 {
        // SAFETY: this is the address that the guest had asked for.
        unsafe { set_tid_address(before) };
    }
}

unsafe fn set_tid_address(address: u64) {
    // SAFETY: the caller answers for the word that the kernel clears later.
    unsafe { system::call(raw::__NR_set_tid_address, [address, 0, 0, 0, 0, 0]) };
}
