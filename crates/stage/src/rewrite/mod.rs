//! Rewriting of call sites, so that later calls come without a signal.
//!
//! A signal costs about a microsecond, a jump nothing; rewriting costs a hundred. So a site is rewritten when it has been used
//! [`OFTEN`] times, together with those others in its page, and in the pages around, whose calls are certain to be caught. [`abi::code`] has the forms and their
//! proofs; this module decides what may be touched, and puts the new page in the place of the old one.
//!
//! **No page is ever writable and executable, nor written to while it can be executed.** The new text and its stubs are written into a memory
//! file of their own, which is then mapped, privately, without a right to write, over the page ([`install`]). The kernel does that at once
//! for all threads: translations of the old page are gone from all processors before the new one is there, which makes them forget what
//! they have read ahead. So no thread sees half an instruction, whatever its length and place, and no barrier is needed. Threads that
//! stand in the page find at their instruction what was there, or a jump that does the same.
//!
//! - **fork**: the child has the same mappings of the same memory, which nobody writes to. Nothing is copied.
//! - **munmap, `MAP_FIXED`, dlclose**: the rewritten page is part of the guest's mapping, and goes with it; what comes there afterwards has its
//!   own bytes. A site and the padding it uses lie in one page, so they go together. Stubs stay: some bytes of a few pages.
//! - **mprotect, writes of debuggers**: the page is private, so a write makes a copy as it does of any text. Breakpoints that were set before
//!   are copied with the page, and a site with one is none.
//! - **Only text of files**: mapped privately, to be read and executed. Not what a compiler has just made, which would be stale at once.
//! - A program that reads its own text sees the jumps; one that executes a copy of it elsewhere would jump astray.
//!
//! Where something is refused (memory limits, a policy about executable memory), signals go on to do the work.

mod install;
mod mapping;

pub(crate) use install::may_write_files;

use crate::frame::{Frame, NARROW};
use crate::{shared, slots, system};
use abi::calls::filter::{Catch, Interest, catch};
use abi::calls::{Arch, Op};
use abi::code::form::Text;
use abi::code::page::{Request, is_possible, promising};
use abi::code::stub::PAGE;
use abi::shared::Switches;
use core::sync::atomic::{AtomicU32, Ordering};

/// After so many signals a site is rewritten. Half of what would pay for one site alone, because its neighbours are used too; measured.
const OFTEN: u32 = 24;
/// How many pages are rewritten together.
const PAGES: u64 = 8;
/// Count of a site that cannot be rewritten.
const NEVER: u32 = 255;
/// How many sites are counted.
const COUNTED: usize = 128;
/// Bytes around a page that proofs may look at.
const BEFORE: u64 = 256;
const BEHIND: u64 = 64;

/// How often sites were used: the upper 24 bits tell them apart. A site that is counted for another one, because a library has gone and another
/// come, is rewritten too early, too late or not at all, and nothing else.
static COUNTS: [AtomicU32; COUNTED] = [const { AtomicU32::new(0) }; COUNTED];

/// A call came by a signal and has been answered: looks whether its site can be rewritten. Called on the slot's stack, last of all.
pub(crate) fn consider(frame: &mut Frame) {
    let site = frame.site();
    // A call that leaves by an exit has that one's address.
    if frame.origin & NARROW != 0 || shared::switches().has(Switches::NO_REWRITING) || is_ours(site)
    {
        return;
    }
    let tag = ((site.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32) & !0xff;
    let cell = &COUNTS[(tag >> 8) as usize % COUNTED];
    let count = cell.load(Ordering::Relaxed);
    let count = if count & !0xff == tag { count & 0xff } else { 0 };
    if count == NEVER {
        return;
    }
    if count + 1 < OFTEN {
        cell.store(tag | (count + 1), Ordering::Relaxed);
        return;
    }
    if !is_worthwhile(frame.number as u32) || rewrite_alone(frame, site) {
        // Whatever came of it, this is not tried again.
        cell.store(tag | NEVER, Ordering::Relaxed);
    }
}

fn is_ours(address: u64) -> bool {
    abi::boot::is_loaders(address)
}

/// What the container's filter catches, as far as it matters: what is caught by who else is there makes no difference to a site that is used.
fn caught(number: u32) -> Option<(Op, Catch)> {
    let entry = abi::calls::find_on(Arch::X86_64, number)?;
    let interest = Interest {
        identity: shared::world().identity.is_some(),
        in_process: true,
        ..Interest::default()
    };
    Some((entry.op, catch(Arch::X86_64, entry.op, &interest)))
}

/// Whether calls of this number are caught whatever their arguments. The end of a handler stays as it is: unwinders know it by its bytes.
fn is_always_caught(number: u32) -> bool {
    matches!(caught(number), Some((op, Catch::Stop)) if op != Op::RtSigreturn)
}

/// Whether a call that was caught may be worth a rewritten site. Those that are caught for rare arguments are better made by the kernel at once.
fn is_worthwhile(number: u32) -> bool {
    match caught(number) {
        Some((_, Catch::Stop)) => true,
        Some((op, Catch::StopIf(_))) => matches!(
            op,
            Op::RtSigprocmask
                | Op::RtSigaction
                | Op::Ppoll
                | Op::Pselect6
                | Op::EpollPwait
                | Op::EpollPwait2
                | Op::Accept
                | Op::Accept4
                | Op::Sendto
                | Op::Recvfrom
                | Op::Prlimit64
        ),
        // For reasons that only the filter knows: what is shared with an image, lists that are completed.
        Some((op, Catch::Pass)) => {
            use abi::calls::Class;
            matches!(op.entry().class, Class::Descriptor)
        }
        _ => false,
    }
}

/// The process whose memory somebody is rewriting; 0 for none. What is proven of a page must still be so when the new one is put in its place.
static BUSY: AtomicU32 = AtomicU32::new(0);

/// Rewrites the page of a site and pages around it, if that is possible and nobody else is about it. False if it may be tried again.
fn rewrite_alone(frame: &mut Frame, site: u64) -> bool {
    // A child of `vfork` is as one of the threads of the process whose memory it has. (`posix_spawn` makes its calls in such children only.)
    let here = crate::tasks::owner();
    let before = BUSY.load(Ordering::Acquire);
    // A child of `fork` does not have the thread that was rewriting in its parent.
    if before == here
        || BUSY.compare_exchange(before, here, Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        return false;
    }
    rewrite(frame, site);
    BUSY.store(0, Ordering::Release);
    true
}

fn rewrite(frame: &mut Frame, site: u64) {
    let Some(mapping) = mapping::find(site).filter(mapping::Mapping::is_program) else { return };
    let number = frame.number as u32;
    let page = site & !(PAGE as u64 - 1);
    let mut work = Work { mapping, first: page, last: page, site, number };
    if !is_possible(&work.request(page)) {
        report(b"coracle: no form for the site ", site);
        return;
    }
    work.widen();
    // SAFETY: the slot is this call's, which is done with its scratch memory.
    let room = unsafe { &mut (*slots::of(frame)).scratch };
    let Some((text, rest)) = room.split_first_chunk_mut::<PAGE>() else { return };
    let Some(stubs) = rest.first_chunk_mut::<PAGE>() else { return };
    if install::install(&work, text, stubs).is_err() {
        report(b"coracle: no memory for the site ", site);
    }
}

/// What is rewritten together: pages in a row.
struct Work {
    mapping: mapping::Mapping,
    /// Addresses of the first page and of the last.
    first: u64,
    last: u64,
    /// The site because of which this is done, and the number of its call.
    site: u64,
    number: u32,
}

impl Work {
    /// Takes in pages before and behind, as long as there are calls in them that are worth it.
    fn widen(&mut self) {
        let size = PAGE as u64;
        let pays =
            |page: u64| promising(&self.request(page).text, is_always_caught).next().is_some();
        let (mut first, mut last) = (self.first, self.last);
        while last - first < (PAGES - 1) * size
            && last + 2 * size <= self.mapping.end
            && pays(last + size)
        {
            last += size;
        }
        while last - first < (PAGES - 1) * size
            && first >= self.mapping.start + size
            && pays(first - size)
        {
            first -= size;
        }
        (self.first, self.last) = (first, last);
    }

    /// One of the pages.
    fn request(&self, page: u64) -> Request<'_> {
        let size = PAGE as u64;
        let start = (page - BEFORE.min(page)).max(self.mapping.start);
        let end = (page + size + BEHIND).min(self.mapping.end);
        // SAFETY: this is in the mapping, which is readable, and in whose text this thread is: who takes that away now makes the guest crash as
        // it would without us.
        let bytes =
            unsafe { core::slice::from_raw_parts(start as *const u8, (end - start) as usize) };
        let begin = (page - start) as usize;
        let is_here = (page..page + size).contains(&self.site);
        Request {
            text: Text { bytes, page: (begin, begin + PAGE) },
            address: start,
            site: is_here.then(|| (self.site - start) as usize),
            number: self.number,
        }
    }
}

/// Tells what happens to a site, if that is wanted.
fn report(what: &[u8], address: u64) {
    if !shared::switches().has(Switches::REPORT_SITES) {
        return;
    }
    let mut line = [0_u8; 80];
    let mut end = 0;
    let digits = system::hexadecimal(address);
    for byte in what.iter().copied().chain(digits).chain([b'\n']).take(line.len()) {
        line[end] = byte;
        end += 1;
    }
    system::tell(&line[..end]);
}
