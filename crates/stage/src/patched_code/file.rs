//! What is kept of a file's text: one file for each text and [`Kind`], beside the image's tree where the file is the image's, else in the
//! container's `run/`.
//!
//! ```text
//!   0     MAGIC, what it is of (four words), bytes of text and of stubs, where a place is that could not be proven
//!   4096  the text, stubs
//! ```
//!
//! It is written under a name of its own in `run/` and renamed: others find all of it or nothing, and who makes it twice does no harm. It is of one
//! state of one file (device, inode, size, times of change, its beginning). Files of the image's never change, and are held by the tree with which
//! their texts go; that they get another name with each container sets the time of their inodes (`ctime`), which therefore does not count there.

use super::{Kind, Refusal, Text};
use crate::kernel::{Link, calls};
use crate::rewrite::may_write_files;
use crate::shared;
use crate::system::{self, Place};
use crate::{entry, memory};
use abi::calls::filter::{Catch, Interest, catch_number};
use abi::code::census::{Census, Verdict, of_memory};
use abi::code::form::{Plan, TRAP, Text as Code};
use abi::code::page::next_call;
use abi::code::stub::{self, Stubs};
use abi::elf::PAGE;
use abi::shared::hash;
use abi::syscalls::ARCH_X86_64;
use core::ffi::CStr;
use core::ops::Range;
use linux_raw_sys::errno as raw_errno;
use linux_raw_sys::general as raw;
use view::Errno;
use view::text::PATH_MAX;

const MAGIC: u64 = u64::from_le_bytes(*b"CorText2");
/// Words of the head.
const HEAD: usize = 8;
/// In the head: everything is proven.
const PROVEN: u64 = u64::MAX;

/// What is kept, open.
pub(super) struct Kept {
    pub(super) file: u64,
    /// Bytes of text; 0 where there is nothing to be changed.
    pub(super) text: u64,
    /// Bytes of stubs.
    pub(super) stubs: u64,
    /// Where in the guest's file something is that could not be proven.
    pub(super) unproven: Option<u64>,
    key: u64,
}

impl Kept {
    /// Whether these very stubs are at an address.
    pub(super) fn is_mapped(&self, at: u64) -> bool {
        let mut words = [[0; 8]; 2];
        let read = memory::read(at, words.as_flattened_mut());
        read.is_ok() && words.map(u64::from_le_bytes) == [entry(), self.key]
    }
}

fn entry() -> u64 {
    entry::stage_entry as *const () as u64
}

/// How a file is called, as the host sees it: the length of its name.
pub(super) fn name_of(file: u64, into: &mut [u8]) -> usize {
    let mut link = Link::new();
    let named = link.push(b"/proc/self/fd/").and_then(|()| link.push_number(file as u32));
    let named = named.and_then(|()| link.push(b"\0")).and_then(|()| link.as_c_str());
    named.and_then(|link| calls::readlinkat(calls::CWD, link, into)).unwrap_or(0)
}

/// Opens what is kept of a text; makes it where it is not there.
pub(super) fn find(text: &Text, file: u64, kind: Kind) -> Result<Kept, Refusal> {
    let facts = status(file)?;
    let size = facts.st_size as u64;
    let length = text.length.min(size.next_multiple_of(PAGE).saturating_sub(text.offset));
    // Executed from memory: the container's file system executes nothing, so nothing is kept there.
    if shared::places().stage.starts_with(b"/proc/") {
        return Err(Refusal::Broken(Errno::EACCES));
    }
    let is_images = !shared::places().texts.is_empty() && is_images(&facts);
    let home = if is_images { shared::places().texts } else { shared::places().run };
    let changed = if is_images { [0; 2] } else { [facts.st_ctime, facts.st_ctime_nsec] };
    let mut beginning = [0; 1024];
    let count = calls::pread(file as i32, &mut beginning, 0)?;
    let words = [
        facts.st_dev,
        facts.st_ino,
        size,
        facts.st_mtime,
        facts.st_mtime_nsec,
        changed[0],
        changed[1],
        text.offset,
        length,
        entry(),
        kind.letter().into(),
        hash(&beginning[..count], 0),
    ];
    let build = shared::places().stage.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let seed = hash(build, 0);
    let bytes = words.map(u64::to_le_bytes);
    let key = [0, 1, 2, 3].map(|number| hash(bytes.as_flattened(), seed ^ number));
    let mut room = [0; PATH_MAX];
    let length_of_name = name(&mut room, home, (key[0], kind), 0)?;
    let path = as_path(&room[..length_of_name])?;
    if let Some(kept) = open(path, &key) {
        return Ok(kept);
    }
    // Stubs take less than text does.
    if !may_write_files(2 * length + PAGE) {
        return Err(Refusal::Broken(Errno(raw_errno::EFBIG as u16)));
    }
    let mut other = [0; PATH_MAX];
    let run = shared::places().run;
    let length_of_name = name(&mut other, run, (key[0], kind), system::thread())?;
    let staging = as_path(&other[..length_of_name])?;
    let made = make(staging, text, (file, size, length), kind, &key);
    if let Err(refusal) =
        made.and_then(|()| Ok(calls::renameat2((calls::CWD, staging), (calls::CWD, path), 0)?))
    {
        let _ = calls::unlinkat(calls::CWD, staging, 0);
        return Err(refusal);
    }
    open(path, &key).ok_or(Refusal::Broken(Errno::EIO))
}

/// Whether a file is one of those that all containers of the image share.
fn is_images(facts: &raw::stat) -> bool {
    let device = facts.st_dev;
    let device = (
        (device >> 32 & 0xffff_f000 | device >> 8 & 0xfff) as u32,
        (device >> 12 & 0xffff_ff00 | device & 0xff) as u32,
    );
    shared::tree_device() == Some(device) && shared::shared().image().links(facts.st_ino).is_some()
}

fn as_path(bytes: &[u8]) -> Result<&CStr, Refusal> {
    CStr::from_bytes_with_nul(bytes).map_err(|_| Refusal::Broken(Errno::ENAMETOOLONG))
}

/// `HOME/text-KEY`, with the number of a thread behind it while it is made, and a NUL: the length.
fn name(
    into: &mut [u8; PATH_MAX],
    home: &[u8],
    (key, kind): (u64, Kind),
    thread: u32,
) -> Result<usize, Refusal> {
    let mut end = 0;
    let mut push = |bytes: &[u8]| -> Result<(), Errno> {
        into.get_mut(end..end + bytes.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(bytes);
        end += bytes.len();
        Ok(())
    };
    push(home)?;
    push(b"/")?;
    push(view::stored::TEXT)?;
    push(&system::hexadecimal(key))?;
    push(&[kind.letter()])?;
    if thread != 0 {
        push(b".")?;
        push(&system::hexadecimal(thread.into()))?;
    }
    push(b"\0")?;
    Ok(end)
}

fn open(path: &CStr, key: &[u64; 4]) -> Option<Kept> {
    let file = calls::openat(calls::CWD, path, raw::O_RDONLY | raw::O_CLOEXEC, 0).ok()?;
    let mut words = [[0; 8]; HEAD];
    let read = calls::pread(file, words.as_flattened_mut(), 0);
    let [magic, a, b, c, d, text, stubs, unproven] = words.map(u64::from_le_bytes);
    if read != Ok(HEAD * 8) || magic != MAGIC || [a, b, c, d] != *key {
        calls::close(file);
        return None;
    }
    let unproven = (unproven != PROVEN).then_some(unproven);
    Some(Kept { file: file as u64, text, stubs, unproven, key: key[1] })
}

/// What must be seen whatever the world is; the filter says the rest.
fn wants(number: u32) -> bool {
    const MEMORY: [u32; 4] =
        [raw::__NR_mmap, raw::__NR_mprotect, raw::__NR_pkey_mprotect, raw::__NR_personality];
    let interest = Interest {
        identity: true,
        shared_image: true,
        listing: true,
        loader: None,
        in_process: true,
    };
    MEMORY.contains(&number)
        || number != raw::__NR_rt_sigreturn
            && catch_number(ARCH_X86_64, number, &interest) != Catch::Pass
}

/// `mov $15, %eax; syscall`: unwinders know the end of a handler by these bytes, so it stays.
pub(super) fn is_end_of_handler(code: &[u8], at: usize) -> bool {
    code[..at].ends_with(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0])
        || code[..at].ends_with(&[0xb8, 15, 0, 0, 0])
}

/// A mapping that goes when it is done with.
struct Mapped {
    at: u64,
    length: u64,
}

impl Mapped {
    fn new(length: u64, rights: u32, file: u64, offset: u64) -> Result<Self, Refusal> {
        let at = system::map(Place::Near(0), length, rights, Some((file, offset)))?;
        Ok(Self { at, length })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        system::unmap(self.at, self.length);
    }
}

/// Puts traps into a text where it is mapped.
pub(super) fn patch(text: &Text, file: u64) -> Result<(), Refusal> {
    let size = status(file)?.st_size as u64;
    let length = text.length.min(size.next_multiple_of(PAGE).saturating_sub(text.offset));
    if length == 0 {
        return Ok(());
    }
    let whole = Mapped::new(size, raw::PROT_READ, file, 0)?;
    system::protect(text.at, length, raw::PROT_READ | raw::PROT_WRITE)?;
    let part = length.min(size - text.offset) as usize;
    // SAFETY: the file has just been mapped; the text too, and nobody executes it yet.
    let (bytes, new) = unsafe {
        (
            core::slice::from_raw_parts(whole.at as *const u8, size as usize),
            core::slice::from_raw_parts_mut(text.at as *mut u8, part),
        )
    };
    let mut page = [0; stub::PAGE];
    let mut work = Work {
        bytes,
        start: text.offset as usize,
        new,
        kind: Kind::Traps,
        into: -1,
        behind: 0,
        stubs: Stubs::making_calls(&mut page, 0, entry()),
        pages: 0,
        count: 0,
        key: 0,
    };
    let unproven = work.run()?;
    system::protect(text.at, length, raw::PROT_READ | raw::PROT_EXEC)?;
    unproven.map_or(Ok(()), |at| Err(Refusal::Unproven(at as u64)))
}

fn status(file: u64) -> Result<raw::stat, Errno> {
    let mut facts = core::mem::MaybeUninit::<raw::stat>::zeroed();
    calls::fstat_into(file as i32, facts.as_mut_ptr() as u64)?;
    // SAFETY: numbers, which are valid as zeros and as whatever the kernel wrote.
    Ok(unsafe { facts.assume_init() })
}

/// Makes what is kept of a text.
fn make(
    path: &CStr,
    text: &Text,
    (file, size, length): (u64, u64, u64),
    kind: Kind,
    key: &[u64; 4],
) -> Result<(), Refusal> {
    let flags = raw::O_RDWR | raw::O_CREAT | raw::O_TRUNC | raw::O_CLOEXEC;
    let into = calls::openat(calls::CWD, path, flags, 0o600)?;
    let result = fill(into, text, (file, size, length), kind, key);
    calls::close(into);
    result
}

fn fill(
    into: i32,
    text: &Text,
    (file, size, length): (u64, u64, u64),
    kind: Kind,
    key: &[u64; 4],
) -> Result<(), Refusal> {
    let mut head = [MAGIC, key[0], key[1], key[2], key[3], 0, 0, PROVEN];
    if length != 0 {
        let whole = Mapped::new(size, raw::PROT_READ, file, 0)?;
        let copy = Mapped::new(length, raw::PROT_READ | raw::PROT_WRITE, file, text.offset)?;
        // SAFETY: both have just been mapped; a file that is shortened now ends the process, as it would while it is executed.
        let (bytes, new) = unsafe {
            (
                core::slice::from_raw_parts(whole.at as *const u8, size as usize),
                core::slice::from_raw_parts_mut(
                    copy.at as *mut u8,
                    length.min(size - text.offset) as usize,
                ),
            )
        };
        let place = kind.stubs(NOMINAL);
        let mut page = [0; stub::PAGE];
        let mut work = Work {
            bytes,
            start: text.offset as usize,
            new,
            kind,
            into,
            behind: PAGE + length,
            stubs: Stubs::making_calls(&mut page, place, entry()),
            pages: 0,
            count: 0,
            key: key[1],
        };
        match work.run()? {
            Some(at) => head[7] = at as u64,
            None if work.count == 0 => {}
            None => {
                work.flush()?;
                calls::pwrite_all(into, work.new, PAGE)?;
                head[5] = length;
                head[6] = if kind == Kind::Traps { 0 } else { work.pages * PAGE };
                calls::ftruncate(into, PAGE + length + head[6])?;
            }
        }
    }
    let head = head.map(u64::to_le_bytes);
    Ok(calls::pwrite_all(into, head.as_flattened(), 0)?)
}

/// Where the text is while its jumps are made: only distances count.
const NOMINAL: u64 = 1 << 40;

/// A text being changed.
struct Work<'a, 'p> {
    /// The whole file.
    bytes: &'a [u8],
    /// Where in the file the text begins.
    start: usize,
    /// The new text.
    new: &'a mut [u8],
    kind: Kind,
    into: i32,
    /// Where the stubs go in what is kept.
    behind: u64,
    stubs: Stubs<'p>,
    /// Pages of stubs that are written.
    pages: u64,
    /// Sites that were changed.
    count: usize,
    key: u64,
}

impl Work<'_, '_> {
    /// Changes all sites; where in the file something is that cannot be told.
    fn run(&mut self) -> Result<Option<usize>, Refusal> {
        let census = Census::new(self.bytes);
        let text = self.start..self.start + self.new.len();
        let mut from = self.start;
        while let Some(found) = next_call(&self.bytes[from..text.end]) {
            let at = from + found;
            from = at + 1;
            let verdict = match &census {
                Some(census) => census.verdict(at),
                None => of_memory(&self.bytes[text.clone()], at - text.start),
            };
            match verdict {
                Verdict::Other => {}
                Verdict::Unknown => return Ok(Some(at)),
                Verdict::Call if is_end_of_handler(self.bytes, at) => {}
                Verdict::Call => {
                    let code = census.as_ref().and_then(|census| census.code(at));
                    let code = code.unwrap_or(text.clone());
                    let code = code.start.max(text.start)..code.end.min(text.end);
                    self.change(at, &code)?;
                    self.count += 1;
                }
            }
        }
        Ok(None)
    }

    /// Where a place of the file is in the new text.
    fn part(&mut self, place: Range<usize>) -> &mut [u8] {
        &mut self.new[place.start - self.start..place.end - self.start]
    }

    /// Changes one site; `code` is the part of the file around it that may be.
    fn change(&mut self, at: usize, code: &Range<usize>) -> Result<(), Refusal> {
        if self.kind != Kind::Traps {
            let text = Code { bytes: &self.bytes[code.clone()], page: (0, code.len()) };
            let (bytes, new, start) = (self.bytes, &*self.new, self.start);
            let same = |range: Range<usize>| {
                let place = code.start + range.start..code.start + range.end;
                bytes[place.clone()] == new[place.start - start..place.end - start]
            };
            let plan = text.plan(at - code.start, |padding| same(padding.at..padding.step() + 5));
            if let Some(plan) = plan.filter(|plan| same(plan.site - plan.moved..plan.site + 2))
                && self.jump(&plan, code.start)?
            {
                return Ok(());
            }
        }
        self.part(at..at + 2).copy_from_slice(&TRAP);
        Ok(())
    }

    /// Has a site jump to a stub; false where that is too far.
    fn jump(&mut self, plan: &Plan, start: usize) -> Result<bool, Refusal> {
        let (site, first) = (start + plan.site, self.start);
        let address = |place: usize| NOMINAL + (place - first) as u64;
        let from = site - plan.moved;
        let moved = &self.bytes[from..site];
        let made = match self.stubs.add(plan, address(site), moved, wants) {
            None => {
                self.flush()?;
                self.stubs.add(plan, address(site), moved, wants)
            }
            made => made,
        };
        let last = plan.padding.map_or(from, |padding| start + padding.step());
        let Some(jump) = made.and_then(|stub| stub::jump(address(last), stub)) else {
            return Ok(false);
        };
        self.part(last..last + jump.len()).copy_from_slice(&jump);
        self.part(site..site + 2).copy_from_slice(&TRAP);
        if let Some(padding) = plan.padding {
            if padding.over != 0 {
                let place = start + padding.at;
                self.part(place..place + 2).copy_from_slice(&[0xeb, (padding.over - 2) as u8]);
            }
            let hop = [0xeb, (last as isize - (from + 2) as isize) as u8];
            self.part(from..from + 2).copy_from_slice(&hop);
        }
        Ok(true)
    }

    /// Writes a page of stubs and begins the next.
    fn flush(&mut self) -> Result<(), Refusal> {
        let key = self.key.to_le_bytes();
        let page = self.stubs.page();
        page[8..16].copy_from_slice(&key);
        calls::pwrite_all(self.into, page, self.behind + self.pages * PAGE)?;
        self.pages += 1;
        self.stubs.next(entry());
        Ok(())
    }
}
