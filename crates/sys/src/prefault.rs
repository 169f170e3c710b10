//! Maps pages that a short process is known to touch, many with one call.
//!
//! Each first access of a page is an exception, which costs microseconds in a virtual machine; a
//! start of a container takes some hundred of them. The kernel maps the same pages with one call in
//! a small part of that time. Best effort: kernels before 5.14 have no such call, and the pages are
//! mapped by their first access.
//!
//! See [madvise(2)](https://man7.org/linux/man-pages/man2/madvise.2.html), `MADV_POPULATE_WRITE`.
//! Code is not mapped so: to ask for all of it costs more than the few parts that are used.

use rustix::mm::{Advice, madvise};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Page size of x86-64, and the least that other machines have.
const PAGE: usize = 4096;
/// How much of the stack a start uses; the kernel sets 128 KiB aside at `execve`.
const STACK: usize = 112 << 10;
/// How much of it a forked process uses beyond what is used already.
const FORKED_STACK: usize = 32 << 10;
/// How much heap a start uses.
const HEAP: usize = 240 << 10;
/// How much the C library takes at first.
const FIRST_HEAP: usize = 132 << 10;

const M_TRIM_THRESHOLD: c_int = -1;
const M_TOP_PAD: c_int = -2;

unsafe extern "C" {
    fn mallopt(parameter: c_int, value: c_int) -> c_int;
    fn sbrk(increment: isize) -> *mut c_void;
    // Linker symbols: only their addresses mean something.
    static __data_start: u8;
    static end: u8;
}

/// Where the heap and the deepest frame of the stack begin, as [`start`] found them.
static BEGINNINGS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Maps what a start is going to write: variables, heap, stack.
pub fn start() {
    let here = 0_u8;
    // SAFETY: `mallopt` only sets parameters of the allocator, `sbrk(0)` only asks.
    let heap = unsafe {
        mallopt(M_TOP_PAD, HEAP as c_int);
        mallopt(M_TRIM_THRESHOLD, 4 * HEAP as c_int);
        sbrk(0).addr()
    };
    BEGINNINGS[0].store(heap.saturating_sub(FIRST_HEAP), Ordering::Relaxed);
    BEGINNINGS[1].store((&raw const here).addr(), Ordering::Relaxed);
    // More than the heap has room for makes it grow by what was asked for above.
    drop([Vec::<u8>::with_capacity(100 << 10), Vec::with_capacity(100 << 10)]);
    populate(variables());
    populate((heap.saturating_sub(FIRST_HEAP), heap - FIRST_HEAP + HEAP));
    populate(stack(STACK));
}

/// Maps private copies of the pages that were written before, in a process that was just forked.
pub fn forked() {
    // SAFETY: `sbrk(0)` only asks.
    let top = unsafe { sbrk(0).addr() };
    let heap = BEGINNINGS[0].load(Ordering::Relaxed);
    // Where nothing was mapped so before, little was used.
    if heap != 0 {
        populate(variables());
        populate((heap, top));
        populate(stack(FORKED_STACK));
    }
}

/// From `more` bytes below this frame to the first frame.
fn stack(more: usize) -> (usize, usize) {
    let here = 0_u8;
    let here = (&raw const here).addr();
    (here.saturating_sub(more), BEGINNINGS[1].load(Ordering::Relaxed))
}

fn variables() -> (usize, usize) {
    ((&raw const __data_start).addr(), (&raw const end).addr())
}

fn populate((from, to): (usize, usize)) {
    let from = from & !(PAGE - 1);
    if to > from {
        let address = std::ptr::with_exposed_provenance_mut(from);
        // SAFETY: the kernel only maps the pages, with the content that they have.
        let _ = unsafe { madvise(address, to - from, Advice::LinuxPopulateWrite) };
    }
}
