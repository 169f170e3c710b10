//! Rewrites call sites, so that later calls come by a jump and not by a signal.
//!
//! A signal costs about a microsecond, a jump nothing; rewriting costs about a hundred
//! microseconds. So a site is rewritten when it has been used [`OFTEN`] times, together with those
//! other sites in its page, and in the pages around, whose calls are certain to be caught.
//! [`abi::code`] has the forms and their proofs. This module decides what may be changed, and
//! replaces the old page by the new one.
//!
//! **No page is ever writable and executable, or written to while it can be executed.** The new
//! code and its stubs are written into a memory file, which is then mapped over the page: private,
//! and not writable ([`install`]). The kernel does that at once for all threads. The old page's
//! translations are gone from all processors before the new page is there, and that makes the
//! processors drop the instructions that they have read ahead. So no thread sees half an
//! instruction, whatever its length and position, and no barrier is needed. Threads that are
//! stopped in the page find the same instruction there, or a jump with the same effect.
//!
//! - **fork**: the child has the same mappings of the same memory, which is never written to.
//!   Nothing is copied.
//! - **munmap, `MAP_FIXED`, dlclose**: the rewritten page is part of the guest's mapping, and is
//!   unmapped with it. A later mapping there has its own bytes. A site and the padding that it uses
//!   lie in one page, so they disappear together. Stubs stay: some bytes of a few pages.
//! - **mprotect, writes of debuggers**: the page is private, so a write makes a copy as it does for
//!   any code. Breakpoints that were set before are copied with the page, and a site with one is
//!   not rewritten.
//! - **Only code of files**: mapped privately, readable and executable. Not the output of a
//!   compiler in the process, which would soon be outdated.
//! - A program that reads its own code sees the jumps; one that executes a copy of it elsewhere
//!   would jump to wrong places.
//!
//! If something is refused (memory limits, a policy about executable memory), calls continue to
//! come by signals.

mod install;
pub(crate) mod mapping;

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

/// A site is rewritten after so many signals. This is half of the number at which one site alone
/// would pay, because its neighbours are used too; measured.
const OFTEN: u32 = 24;
/// Number of pages that are rewritten together.
const PAGES: u64 = 8;
/// Count of a site that cannot be rewritten.
const NEVER: u32 = 255;
/// Number of sites that are counted.
const COUNTED: usize = 128;
/// Number of bytes around a page that proofs may use.
const BEFORE: u64 = 256;
const BEHIND: u64 = 64;

/// Counts of sites; the upper 24 bits identify the site. If a site is mistaken for another one,
/// because a library was replaced, it is rewritten too early, too late or not at all; there is no
/// other effect.
static COUNTS: [AtomicU32; COUNTED] = [const { AtomicU32::new(0) }; COUNTED];

/// Considers the site of a call that came by a signal and has been answered. Called on the slot's
/// stack, as the last step.
pub(crate) fn consider(frame: &mut Frame) {
    let site = frame.site();
    // A call that leaves by an exit has the exit's address.
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
        // Whatever the result, this is not tried again.
        cell.store(tag | NEVER, Ordering::Relaxed);
    }
}

fn is_ours(address: u64) -> bool {
    abi::boot::is_loaders(address)
}

/// What the container's filter does with a number, as far as it matters here. Other filters make no
/// difference to a site that is used.
fn caught(number: u32) -> Option<(Op, Catch)> {
    let entry = abi::calls::find_on(Arch::X86_64, number)?;
    let interest = Interest {
        identity: shared::world().identity.is_some(),
        host_name: !shared::world().host_name.is_empty(),
        in_process: true,
        namespaces: shared::world().namespaces,
        ..Interest::default()
    };
    Some((entry.op, catch(Arch::X86_64, entry.op, &interest)))
}

/// Returns true if calls of this number are caught whatever their arguments. The end of a handler
/// stays unchanged: unwinders recognise it by its bytes.
fn is_always_caught(number: u32) -> bool {
    matches!(caught(number), Some((op, Catch::Stop)) if op != Op::RtSigreturn)
}

/// Returns true if a caught call may be worth a rewritten site. Calls that are caught only for rare
/// arguments are better made by the kernel directly.
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
        // Caught for reasons that only the filter knows: files shared with an image, listings that
        // are completed.
        Some((op, Catch::Pass)) => {
            use abi::calls::Class;
            matches!(op.entry().class, Class::Descriptor)
        }
        _ => false,
    }
}

/// The process in whose memory a thread is rewriting; 0 for none. The proofs for a page must still
/// hold when the new one replaces it.
static BUSY: AtomicU32 = AtomicU32::new(0);

/// Rewrites the page of a site and pages around it, if that is possible and no other thread is
/// doing so. Returns false if it may be tried again.
fn rewrite_alone(frame: &mut Frame, site: u64) -> bool {
    // A child of `vfork` counts as a thread of the process whose memory it uses. (`posix_spawn`
    // makes its calls only in such children.)
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
    // SAFETY: the slot belongs to this call, which no longer uses its scratch memory.
    let room = unsafe { &mut (*slots::of(frame)).scratch };
    let Some((text, rest)) = room.split_first_chunk_mut::<PAGE>() else { return };
    let Some(stubs) = rest.first_chunk_mut::<PAGE>() else { return };
    if install::install(&work, text, stubs).is_err() {
        report(b"coracle: no memory for the site ", site);
    }
}

/// The pages that are rewritten together: consecutive ones.
struct Work {
    mapping: mapping::Mapping,
    /// Addresses of the first and the last page.
    first: u64,
    last: u64,
    /// The site that caused this, and the number of its call.
    site: u64,
    number: u32,
}

impl Work {
    /// Adds pages before and behind, as long as they contain calls that are worth it.
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

    /// The request for one of the pages.
    fn request(&self, page: u64) -> Request<'_> {
        let size = PAGE as u64;
        let start = (page - BEFORE.min(page)).max(self.mapping.start);
        let end = (page + size + BEHIND).min(self.mapping.end);
        // SAFETY: the range lies in the mapping, which is readable, and in whose code this thread
        // is running. A guest that unmaps it now would crash without the stage, too.
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

/// Reports on a site, if that is switched on.
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
