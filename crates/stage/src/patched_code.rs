//! Catches calls without a filter (modes F): every `syscall` of a file is replaced when its code is
//! mapped.
//!
//! Code is mapped for execution by the stage's own loader, and by `mmap`, which is caught because
//! the call sites of its callers have been patched. Patched code is mapped instead of the file's
//! own. It is made once for a file and kept ([`file`]). Where a form of [`abi::code::form`] fits,
//! the site jumps to a stub. The `syscall` itself is replaced by [`TRAP`], whose signal (`SIGILL`)
//! is treated as `SIGSYS` is in other modes. [`abi::code::census`] proves which bytes are call
//! sites. A file in which that is undecided is refused.
//!
//! The filter is run here ([`pass`]), with the same program that the kernel would have. Calls that
//! it allows are made by the stub, or for the guest.
//!
//! Stubs lie at a fixed distance from their code, so the kept code can be mapped anywhere. If
//! something else is in the place of the stubs, another version is mapped that has only traps.
//!
//! Memory that is written and then made executable is patched in place ([`in_place`]). There is no
//! file that lists its functions, so bytes that are not certainly call sites stay unchanged. Memory
//! that is writable and executable at once is not seen at all.

mod file;

use crate::dispatch::{CaughtCall, Ruling};
use crate::signals::context::Registers;
use crate::system::{self, Failed, Place};
use crate::{entry, filters, memory, memory_guard};
use abi::bpf::{ALLOW, ERRNO, LOG};
use abi::calls::Op;
use abi::code::census::{Verdict, of_memory};
use abi::code::form::{SYSCALL, TRAP};
use abi::code::page::next_call;
use abi::elf::PAGE;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use linux_raw_sys::general as raw;
use view::Errno;

/// A mapped piece of a file's code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text {
    /// Its first address.
    pub(crate) at: u64,
    /// Its length.
    pub(crate) length: u64,
    /// Its offset in the file.
    pub(crate) offset: u64,
}

/// The position of stubs relative to the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Stubs are before the code.
    Before,
    /// Stubs are behind the code: for programs at low addresses.
    Behind,
    /// There are no stubs: every call raises a signal.
    Traps,
}

/// Distance of stubs from their code: less than a jump reaches, and more than the length of most
/// programs' code.
const FAR: u64 = 0x6000_0000;

impl Kind {
    /// Address of the stubs for code at `text`.
    fn stubs(self, text: u64) -> u64 {
        match self {
            Self::Before => text.wrapping_sub(FAR),
            Self::Behind | Self::Traps => text.wrapping_add(FAR),
        }
    }

    fn letter(self) -> u8 {
        match self {
            Self::Before => b'b',
            Self::Behind => b'f',
            Self::Traps => b't',
        }
    }
}

/// Replaces a file's own code, which has just been mapped and is not executed yet, by patched code.
pub(crate) fn cover(text: &Text, file: u64) -> Result<(), Failed> {
    let kind = if crate::shared::switches().has(abi::shared::Switches::ONLY_TRAPS) {
        Kind::Traps
    } else if text.at < 2 * FAR {
        Kind::Behind
    } else {
        Kind::Before
    };
    let result = match put(text, file, kind) {
        Err(Refusal::Occupied) => put(text, file, Kind::Traps),
        other => other,
    };
    match result {
        // What cannot be caught there is the kernel's.
        Err(Refusal::Unproven(_) | Refusal::Occupied) if crate::shared::world().namespaces => {
            Ok(())
        }
        // There is no space, or writing or executing files is not allowed: then this process gets
        // private patched pages.
        Err(Refusal::Broken(_)) => match file::patch(text, file) {
            Err(_) if crate::shared::world().namespaces => Ok(()),
            patched => patched.map_err(|refusal| refusal.tell(file)),
        },
        other => other.map_err(|refusal| refusal.tell(file)),
    }
}

/// The reason why code cannot be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// There is another mapping in the place of its stubs.
    Occupied,
    /// The bytes at this offset in the file may or may not be a call.
    Unproven(u64),
    /// Patched code cannot be made or mapped.
    Broken(Errno),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Broken(errno)
    }
}

impl From<Failed> for Refusal {
    fn from(_: Failed) -> Self {
        Self::Broken(Errno::ENOMEM)
    }
}

impl Refusal {
    /// Tells the user, on standard error: a call that is not caught would be worse than a program
    /// that does not run.
    fn tell(self, file: u64) -> Failed {
        let mut line = Line { bytes: [0; 512], end: 0 };
        line.push(b"coracle: ");
        let mut name = [0; 256];
        let length = file::name_of(file, &mut name);
        line.push(&name[..length]);
        match self {
            Self::Unproven(at) => {
                line.push(b": the code at ");
                line.number(at);
                line.push(b" may be a system call or not: use another engine than F, such as --execmode=I1 or P1\n");
            }
            Self::Occupied => line.push(b": no room for its system calls\n"),
            Self::Broken(errno) => {
                line.push(b": its system calls cannot be changed: error ");
                line.number(errno.0.into());
                line.push(b"\n");
            }
        }
        line.write();
        Failed
    }
}

struct Line {
    bytes: [u8; 512],
    end: usize,
}

impl Line {
    fn push(&mut self, bytes: &[u8]) {
        let length = bytes.len().min(self.bytes.len() - self.end);
        self.bytes[self.end..self.end + length].copy_from_slice(&bytes[..length]);
        self.end += length;
    }

    fn number(&mut self, number: u64) {
        self.push(b"0x");
        let zeros = (number.leading_zeros() as usize / 4).min(15);
        self.push(&system::hexadecimal(number)[zeros..]);
    }

    fn write(&self) {
        system::tell(&self.bytes[..self.end]);
    }
}

/// Maps the kept code, which is made if it does not exist yet.
fn put(text: &Text, file: u64, kind: Kind) -> Result<(), Refusal> {
    let kept = file::find(text, file, kind)?;
    let result = map(text, &kept, kind);
    system::close(kept.file);
    result
}

/// The protection of code.
const RIGHTS: u32 = raw::PROT_READ | raw::PROT_EXEC;

fn map(text: &Text, kept: &file::Kept, kind: Kind) -> Result<(), Refusal> {
    if let Some(at) = kept.unproven {
        return Err(Refusal::Unproven(at));
    }
    if kept.text == 0 {
        return Ok(());
    }
    let stubs = kind.stubs(text.at);
    if kept.stubs != 0 {
        let from = Some((kept.file, PAGE + kept.text));
        let mapped = system::map(Place::Free(stubs), kept.stubs, RIGHTS, from);
        // The stubs may be mapped already, for a library that was unmapped.
        if mapped.is_err() && !kept.is_mapped(stubs) {
            return Err(Refusal::Occupied);
        }
    }
    system::map(Place::Over(text.at), kept.text.min(text.length), RIGHTS, Some((kept.file, PAGE)))?;
    remember([text.at, text.at + text.length, kept.stubs]);
    Ok(())
}

/// Code with stubs: first address, end, size of the stubs. Entries of unmapped code stay; if there
/// are too many, the oldest are overwritten.
static TEXTS: [[AtomicU64; 3]; 64] = [const { [const { AtomicU64::new(0) }; 3] }; 64];
static NEXT: AtomicU64 = AtomicU64::new(0);

fn remember(text: [u64; 3]) {
    if text[2] != 0 {
        let place = NEXT.fetch_add(1, Relaxed) as usize % TEXTS.len();
        for (word, value) in TEXTS[place].iter().zip(text) {
            word.store(value, Relaxed);
        }
    }
}

/// `mremap`: if code is moved, it gets stubs at the same distance.
fn moved(call: &view::Call) -> i64 {
    let old = call.arguments[0];
    // SAFETY: the guest's own call.
    let result = unsafe { system::call(call.number, call.arguments) };
    let new = result as u64;
    let known = TEXTS.iter().map(|text| text.each_ref().map(|word| word.load(Relaxed)));
    let found = known.into_iter().find(|[start, end, _]| (*start..*end).contains(&old));
    if let Some([start, end, stubs]) = found
        && !system::is_error(result)
        && new != old
    {
        let far = new.wrapping_sub(old);
        let kind = if start < 2 * FAR { Kind::Behind } else { Kind::Before };
        let from = kind.stubs(start);
        let to = from.wrapping_add(far);
        if system::map(Place::Free(to), stubs, raw::PROT_READ | raw::PROT_WRITE, None).is_ok() {
            // SAFETY: the stubs of code stay mapped when it is unmapped or moved; the target has
            // just been mapped for this purpose.
            unsafe {
                core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, stubs as usize);
            }
            let _ = system::protect(to, stubs, RIGHTS);
            remember([start.wrapping_add(far), end.wrapping_add(far), stubs]);
        }
    }
    result
}

/// Arguments of `personality`: the one that only reads, and the flag that makes readable memory
/// executable without a call that could be caught.
const ASK: u32 = u32::MAX;
const READ_IMPLIES_EXEC: u64 = 0x0040_0000;

/// Runs the container's filter for a call, and decides calls that map or execute code; `None` if
/// the stage's other rules have to decide.
pub(crate) fn pass(caught: &mut CaughtCall<'_>, op: Op) -> Option<Ruling> {
    let call = caught.call;
    let answer = filters::containers(&call, caught.frame.return_address);
    if answer & 0xffff_0000 == ERRNO {
        return Some(Ruling::Done(-i64::from(answer & 0xffff)));
    }
    let passes = matches!(answer & 0xffff_0000, ALLOW | LOG);
    let executes = call.arguments[2] as u32 & raw::PROT_EXEC != 0;
    match op {
        Op::Mmap | Op::Mprotect | Op::PkeyMprotect if executes => {
            let ruling = if passes { Ruling::Kernel(call) } else { memory_guard::rule(caught, op) };
            let Ruling::Kernel(call) = ruling else { return Some(ruling) };
            Some(Ruling::Done(if op == Op::Mmap { mapped(&call) } else { protected(&call) }))
        }
        _ if !passes => None,
        Op::Personality if call.arguments[0] as u32 != ASK => {
            let mut call = call;
            call.arguments[0] &= !READ_IMPLIES_EXEC;
            Some(Ruling::Kernel(call))
        }
        Op::Mremap => Some(Ruling::Done(moved(&call))),
        Op::Clone | Op::Clone3 | Op::Fork | Op::Vfork => Some(Ruling::Exit(call)),
        // The call does not return, so the slot must be given back before.
        Op::Exit | Op::ExitGroup if entry::exit(caught.frame, &call) => Some(Ruling::Prepared),
        _ => Some(Ruling::Kernel(call)),
    }
}

/// `mmap` of memory that is to be executed.
fn mapped(call: &view::Call) -> i64 {
    let [_, length, rights, flags, file, offset] = call.arguments;
    // SAFETY: the guest's own call.
    let result = unsafe { system::call(call.number, call.arguments) };
    let flags = flags as u32;
    let is_text = flags & raw::MAP_ANONYMOUS == 0
        && flags & raw::MAP_TYPE == raw::MAP_PRIVATE
        && rights as u32 & raw::PROT_WRITE == 0;
    if system::is_error(result) || !is_text {
        return result;
    }
    let text = Text { at: result as u64, length: length.next_multiple_of(PAGE), offset };
    if cover(&text, file & 0xffff_ffff).is_err() {
        system::unmap(text.at, text.length);
        return Errno::EACCES.result();
    }
    result
}

/// `mprotect` that makes memory executable.
fn protected(call: &view::Call) -> i64 {
    let [at, length, rights, ..] = call.arguments;
    if rights as u32 & raw::PROT_WRITE == 0 && at.is_multiple_of(PAGE) {
        in_place(at, length);
    }
    // SAFETY: the guest's own call.
    unsafe { system::call(call.number, call.arguments) }
}

/// Puts traps into memory that is about to be executed: into all of its pages, because the kernel
/// will make all of them executable.
fn in_place(start: u64, length: u64) {
    let Some(end) = start.checked_add(length).and_then(|end| end.checked_next_multiple_of(PAGE))
    else {
        return;
    };
    let is_readable = |page: u64| memory::read(page, &mut [0]).is_ok();
    let (mut piece, mut page) = (start, start);
    while page < end {
        if !is_readable(page) {
            // The page is not readable yet. If it is not mapped, or must not be executed, the
            // guest's own call will fail there too.
            if system::protect(page, PAGE, RIGHTS).is_err() {
                break;
            }
            // The page is behind the end of a file.
            if !is_readable(page) {
                look_through(piece, page);
                piece = page + PAGE;
            }
        }
        page += PAGE;
    }
    look_through(piece, page);
}

/// Puts traps into readable memory.
fn look_through(start: u64, end: u64) {
    // SAFETY: the memory has just been read successfully. A guest that unmaps it while it asks for
    // it to be executed harms only itself.
    let code = unsafe { core::slice::from_raw_parts(start as *const u8, (end - start) as usize) };
    let mut from = 0;
    while let Some(found) = next_call(&code[from..]) {
        let at = from + found;
        from = at + SYSCALL.len();
        if of_memory(code, at) != Verdict::Call || file::is_end_of_handler(code, at) {
            continue;
        }
        let place = start + at as u64;
        if memory::write(place, &TRAP).is_err() {
            let page = place & !(PAGE - 1);
            let length = (place + 2 - page).next_multiple_of(PAGE);
            let _ = system::protect(page, length, raw::PROT_READ | raw::PROT_WRITE);
            let _ = memory::write(place, &TRAP);
        }
    }
}

/// Before a handler of the guest sees where a thread was interrupted: moves an instruction pointer
/// at a stub's call to the guest's own call site.
pub(crate) fn hide_stub(registers: &mut Registers) {
    const AT: [u8; 3] = [0x0f, 0x05, 0xe9];
    let here = registers.rip;
    let mut word = [0; 8];
    let entry = entry::stage_entry as *const () as u64;
    if memory::read(here & !(PAGE - 1), &mut word).is_err() || u64::from_le_bytes(word) != entry {
        return;
    }
    let mut code = [0; 9];
    if memory::read(here - 2, &mut code).is_err() {
        return;
    }
    let target = |end: usize, distance: [u8; 4]| {
        (here - 2 + end as u64).wrapping_add_signed(i32::from_le_bytes(distance).into())
    };
    if code[..3] == AT {
        registers.rip = target(7, [code[3], code[4], code[5], code[6]]);
    } else if code[2..5] == AT {
        registers.rip = target(9, [code[5], code[6], code[7], code[8]]) - 2;
    }
}
