//! Slots: the memory that a caught call works in, because the guest's own stack may be small and is none of ours.
//!
//! A slot has a stack, the guest's registers ([`Frame`]), a word that says whether it is taken ([`Head`]) and the view's buffers ([`CallBuffers`]). A call
//! takes one before it touches anything, and gives it back with its last instructions; which one is free is found by the instructions in
//! `entry` (a locked bit in each slot's head), starting at a place that follows from the guest's stack pointer, so that a thread meets its own
//! slot again and no two threads fight for one.
//!
//! - At first there are few slots; where more than half are taken, whoever notices makes more of them usable ([`SLOTS_MAX`] at most).
//! - A child of `fork` has none of its parent's threads and needs nothing of what stands in the slots: they are wiped (`MADV_WIPEONFORK`), which
//!   also spares it their copies. On kernels without that they are marked free by the first call of the child.
//! - A signal's handler that leaves by `siglongjmp` leaves the slot of the call it interrupted taken. Such slots are found by the thread
//!   that owns them.

use crate::frame::Frame;
use crate::{memory_guard, system};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use linux_raw_sys::general as raw;
use linux_raw_sys::prctl::PR_GET_TID_ADDRESS;
use view::{CallBuffers, Task};

/// Bytes of a slot, and its alignment.
pub(crate) const SLOT_SIZE: usize = 1 << SLOT_SHIFT;
/// The same as a power of two.
pub(crate) const SLOT_SHIFT: u32 = 18;
/// Bytes of a slot's stack: the deepest calls take 47 KiB, and a signal's frame may come on top (3 KiB, or 11 where there are tile registers). What is
/// not used is never touched. It ends within a page, the rest of which the registers and the beginning of the scratch memory take: most calls need
/// no more than these and the page before.
pub(crate) const STACK_SIZE: usize = 92 * 1024 - 1024;
/// How many slots there can be.
pub(crate) const SLOTS_MAX: u32 = 2048;
/// How many there are at first: a power of two.
const SLOTS_FIRST: u32 = 4;
/// From how many taken slots on those of calls are looked for that will never end.
const MANY: u32 = 256;
const _: () = assert!((SLOTS_MAX as u64) << SLOT_SHIFT <= abi::boot::SLOTS_ROOM);
/// A thread's first choice follows from these bits of its stack pointer (and higher ones): stacks of threads are usually 8 MiB apart.
pub(crate) const SPREAD: u32 = 23;
/// How far from a call's stack pointer another one's may be to be believed to be on the same stack.
const SAME_STACK: u64 = 1 << 20;

/// What a slot is about.
#[repr(C, align(64))]
pub(crate) struct Head {
    /// Bit 0: taken.
    pub(crate) taken: AtomicU64,
    /// Number of a signal that arrived while this slot's stack was in use, and waits for the end of the call; 0 without one. See `signals`.
    pub(crate) deferred: u64,
    /// `fs` base of the thread that has taken the slot; 0 where the processor does not tell.
    pub(crate) owner: u64,
    /// The process that has taken the slot, where children of `fork` do not get zeros.
    pub(crate) process: u32,
    /// The mask of signals from before one was deferred.
    pub(crate) mask: u64,
    /// What is to be done after the call that is being made on the guest's stack.
    pub(crate) after: view::After,
    /// A process that was found to use this memory without being its own. See [`borrower`].
    borrower: AtomicU32,
    /// While a deferred signal is delivered: the call has its result. (Otherwise it is still to be made.)
    pub(crate) answered: bool,
    /// Where a call of i386's returns to.
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
    /// Who has it.
    pub(crate) head: Head,
    /// Where the view's small texts for the kernel go (`view::Guest::scratch`), in the page of what is used anyway; more is mapped.
    pub(crate) scratch: [u8; SCRATCH_SIZE],
    /// The view's buffers. (All of it is valid as zeros: texts, numbers, and options whose zero is `None`.) They start with a page, so that what
    /// is short does not lie in two.
    pub(crate) buffers: CallBuffers,
    gap: [u8; GAP],
    /// A copy of the thread's state, for calls that change it. It starts with a page too.
    pub(crate) task: MaybeUninit<Task>,
    rest: [u8; LEFT - SCRATCH_SIZE],
}

/// What is before the scratch memory.
const FRONT: usize =
    (STACK_SIZE + size_of::<Frame>()).next_multiple_of(align_of::<Head>()) + size_of::<Head>();
/// From the buffers's end to a page.
const GAP: usize = size_of::<CallBuffers>().next_multiple_of(4096) - size_of::<CallBuffers>();
/// What else is left.
const LEFT: usize = SLOT_SIZE - FRONT - size_of::<CallBuffers>() - GAP - size_of::<Task>() - 64;
/// Bytes of a slot's scratch memory: up to the last page that the rest can start with.
pub(crate) const SCRATCH_SIZE: usize = (FRONT + LEFT) / 4096 * 4096 - FRONT;
const _: () = assert!(core::mem::offset_of!(Slot, buffers).is_multiple_of(4096));

const _: () = assert!(size_of::<Slot>() == SLOT_SIZE);

/// Which slots there are. The instructions in `entry` read it.
#[repr(C, align(64))]
pub(crate) struct Pool {
    /// Address of the first; 0 before there are any.
    pub(crate) first: AtomicU64,
    /// Where the last ends.
    pub(crate) end: AtomicU64,
    /// Their number (a power of two) less one.
    pub(crate) mask: AtomicU32,
    /// 1 where the instruction `rdfsbase` works.
    reads_owner: AtomicU32,
    /// The process that the taken slots belong to, where a child of `fork` does not get them wiped; else 0.
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

/// Makes the first slots, at the start of a program. `wipes`: whether children of `fork` may be promised zeros.
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

/// Where the first slot lies.
#[inline]
fn start() -> u64 {
    system::base() + abi::boot::SLOTS
}

/// Where the number of a process is kept that shares this memory with its parent (`vfork`), in the slot of the call that asks: a child of `fork`
/// finds zero there, so whoever finds its own number is one that shares it. `None` where children do not get zeros, and outside of calls.
pub(crate) fn borrower() -> Option<&'static AtomicU32> {
    let here = 0_u8;
    let stack = &raw const here as u64;
    if POOL.process.load(Ordering::Relaxed) != 0 || !contain(stack) {
        return None;
    }
    // SAFETY: this is running on the slot's stack, so it is mapped, for good; nobody writes this word but as an atomic one.
    Some(unsafe { &(*at(stack)).head.borrower })
}

fn publish(count: u32) {
    POOL.end.store(start() + (u64::from(count) << SLOT_SHIFT), Ordering::Release);
    POOL.mask.store(count - 1, Ordering::Release);
}

/// Makes memory of slots usable; whether children of `fork` get zeros in its place.
fn map(from: u32, to: u32, wipes: bool) -> Result<bool, system::Failed> {
    let start = start() + (u64::from(from) << SLOT_SHIFT);
    let length = u64::from(to - from) << SLOT_SHIFT;
    // Somebody who grows the pool at the same moment may have been here before.
    let _ = system::map(system::Place::Free(start), length, 3, None);
    let advise = |advice: u32| {
        // SAFETY: memory that only the stage uses; neither kind of advice changes what is there.
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

/// The slot in which a frame lies.
pub(crate) fn of(frame: *mut Frame) -> *mut Slot {
    at(frame as u64)
}

/// The slot in which an address lies.
pub(crate) fn at(address: u64) -> *mut Slot {
    (address & !(SLOT_SIZE as u64 - 1)) as *mut Slot
}

/// Whether an address is in a slot.
pub(crate) fn contain(address: u64) -> bool {
    (start()..POOL.end.load(Ordering::Relaxed)).contains(&address)
}

fn slot(index: u32) -> *mut Slot {
    (start() + (u64::from(index) << SLOT_SHIFT)) as *mut Slot
}

fn wish(stack: u64) -> u32 {
    (stack >> SPREAD) as u32 & POOL.mask.load(Ordering::Acquire)
}

/// Takes a slot for a caller whose stack pointer is `stack`, as the instructions in `entry` do it.
pub(crate) fn take(stack: u64) -> *mut Slot {
    let mut tries = 0_u32;
    loop {
        let count = POOL.mask.load(Ordering::Acquire) + 1;
        let start = wish(stack);
        for step in 0..count {
            let slot = slot((start + step) & (count - 1));
            // SAFETY: every slot below the count is mapped.
            let head = unsafe { &(*slot).head };
            // Not looked at first: reading memory that was never written costs a fault of its own.
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

/// All slots are taken, and were for many rounds: perhaps each by a thread that waits, and that found its own one free, so that it did not look
/// after the pool.
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

/// Looks after the pool, at the beginning of a call that has taken a slot: writes down whose it is, and makes room where it gets narrow.
#[inline]
pub(crate) fn settle(frame: &mut Frame) {
    let slot = of(frame);
    if POOL.reads_owner.load(Ordering::Relaxed) != 0 {
        // SAFETY: the head belongs to this call; the kernel has said that the instruction works.
        unsafe { (*slot).head.owner = system::thread_pointer() };
    }
    if POOL.process.load(Ordering::Relaxed) != 0 {
        reclaim_parents(frame);
    }
    let index = ((slot as u64 - start()) >> SLOT_SHIFT) as u32;
    if index != wish(frame.stack) {
        make_room(frame);
    }
}

/// Where more than half of the slots are taken: finds those that will never be given back, else makes more usable.
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

/// Gives back the slots of calls of this thread that its signal handlers have left by `siglongjmp`: the thread is at work on the same stack
/// above them. How many.
fn reclaim_own(frame: &mut Frame) -> u32 {
    let mine = of(frame);
    // SAFETY: the head belongs to this call.
    let owner = unsafe { (*mine).head.owner };
    if owner == 0 {
        return 0;
    }
    free_if(|other| {
        // SAFETY: a slot below the count is mapped; a word that its owner writes meanwhile can only be another thread's.
        let (theirs, stack) = unsafe { ((*other).head.owner, (*other).frame.stack) };
        other != mine && theirs == owner && stack <= frame.stack && frame.stack - stack < SAME_STACK
    })
}

/// Where children of `fork` do not get zeros: writes down which process has a slot, and at the first call of a child gives back what its parent
/// had taken.
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
    // SAFETY: compares, and changes nothing.
    let result = unsafe { system::call(raw::__NR_kcmp, arguments) };
    let gone = result == view::Errno::ESRCH.result();
    if !(gone || (1..=3).contains(&result)) {
        return;
    }
    let first =
        POOL.process.compare_exchange(before, now, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if first {
        free_if(|other| {
            // SAFETY: a slot below the count is mapped; a word that another thread writes meanwhile becomes `now`.
            unsafe { (*other).head.process != now }
        });
    }
}

fn free_if(lost: impl Fn(*mut Slot) -> bool) -> u32 {
    let count = POOL.mask.load(Ordering::Acquire) + 1;
    let mut freed = 0;
    for index in 0..count {
        let slot = slot(index);
        // SAFETY: every slot below the count is mapped.
        let head = unsafe { &(*slot).head };
        if head.taken.load(Ordering::Relaxed) != 0 && lost(slot) {
            head.taken.store(0, Ordering::Release);
            freed += 1;
        }
    }
    freed
}

/// What [`depart`] has changed.
pub(crate) struct Departure(Option<u64>);

/// A call is about to execute another program. In a child of `vfork` the memory stays behind, with this slot in it taken: so the kernel
/// is asked to clear its word at the moment when the child leaves the memory (`set_tid_address`), and not before.
pub(crate) fn depart(slot: *mut Slot) -> Departure {
    if !crate::tasks::is_borrower() {
        return Departure(None);
    }
    let mut before = 0_u64;
    let asked = [u64::from(PR_GET_TID_ADDRESS), &raw mut before as u64, 0, 0, 0, 0];
    // SAFETY: the kernel writes one address; the word is the slot's, and zero is what it shall be.
    unsafe {
        // Without knowing what was there it could not be put back; then the slot is lost.
        if system::call(raw::__NR_prctl, asked) != 0 {
            return Departure(None);
        }
        set_tid_address(&raw const (*slot).head.taken as u64);
    }
    Departure(Some(before))
}

/// The program was not executed.
pub(crate) fn stay(departure: &Departure) {
    if let Some(before) = departure.0 {
        // SAFETY: what the guest had asked for.
        unsafe { set_tid_address(before) };
    }
}

unsafe fn set_tid_address(address: u64) {
    // SAFETY: the caller answers for what the kernel writes there in the end.
    unsafe { system::call(raw::__NR_set_tid_address, [address, 0, 0, 0, 0, 0]) };
}
