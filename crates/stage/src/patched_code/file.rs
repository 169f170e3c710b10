//! Makes and reads the files with patched code: one for each piece of code and [`Kind`], beside the
//! image's tree if the original belongs to the image, else in the container's `run/`.
//!
//! ```text
//!   0     MAGIC, key of the original (four words), size of code and of stubs,
//!         offset of an unproven site
//!   4096  the code, stubs
//! ```
//!
//! The file is written under a temporary name of its own, in `run/` or beside it, and renamed, so
//! other processes find all of it or nothing; making it twice is harmless. It belongs to one state
//! of one file (device, inode, size, times of change, its first bytes). Files of the image never
//! change, and their patched code is removed together with their tree. Each container makes new
//! links to their inodes, which changes the inodes' `ctime`, so that is not used for them.

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
/// Number of words in the head.
const HEAD: usize = 8;
/// In the head: all sites are proven.
const PROVEN: u64 = u64::MAX;

/// An open file with patched code.
pub(super) struct Kept {
    pub(super) file: u64,
    /// Size of the code in bytes; 0 if nothing has to be patched.
    pub(super) text: u64,
    /// Size of the stubs in bytes.
    pub(super) stubs: u64,
    /// Offset in the original of bytes that could not be proven.
    pub(super) unproven: Option<u64>,
    key: u64,
}

impl Kept {
    /// Returns true if these stubs are mapped at an address.
    pub(super) fn is_mapped(&self, at: u64) -> bool {
        let mut words = [[0; 8]; 2];
        let read = memory::read(at, words.as_flattened_mut());
        read.is_ok() && words.map(u64::from_le_bytes) == [entry(), self.key]
    }
}

fn entry() -> u64 {
    entry::stage_entry as *const () as u64
}

/// Puts the host's name of an open file into `into`; returns its length.
pub(super) fn name_of(file: u64, into: &mut [u8]) -> usize {
    let mut link = Link::new();
    let named = link.push(b"/proc/self/fd/").and_then(|()| link.push_number(file as u32));
    let named = named.and_then(|()| link.push(b"\0")).and_then(|()| link.as_c_str());
    named.and_then(|link| calls::readlinkat(calls::CWD, link, into)).unwrap_or(0)
}

/// Opens the file with the patched code of a piece of code; makes it if it does not exist.
pub(super) fn find(text: &Text, file: u64, kind: Kind) -> Result<Kept, Refusal> {
    let facts = status(file)?;
    let size = facts.st_size as u64;
    let length = text.length.min(size.next_multiple_of(PAGE).saturating_sub(text.offset));
    // The stage was executed from memory, so the container's file system does not allow execution,
    // and nothing can be kept there.
    if shared::places().stage.starts_with(b"/proc/self/") {
        return Err(Refusal::Broken(Errno::EACCES));
    }
    let namespaces = shared::world().namespaces;
    let is_images = !shared::places().texts.is_empty() && (namespaces || is_images(&facts));
    let home = if is_images { shared::places().texts } else { shared::places().run };
    // An overlay shows the layer's inode, and a device of its own for each mount.
    let device = if namespaces { 0 } else { facts.st_dev };
    let changed =
        if is_images && !namespaces { [0; 2] } else { [facts.st_ctime, facts.st_ctime_nsec] };
    let mut beginning = [0; 1024];
    let count = calls::pread(file as i32, &mut beginning, 0)?;
    let words = [
        device,
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
    // Stubs take less space than the code.
    if !may_write_files(2 * length + PAGE) {
        return Err(Refusal::Broken(Errno(raw_errno::EFBIG as u16)));
    }
    let mut other = [0; PATH_MAX];
    // In namespaces they are different mounts.
    let beside = if namespaces { home } else { shared::places().run };
    // Numbers of threads are those of a container, and several make the same file.
    let length_of_name = name(&mut other, beside, (key[0], kind), system::random().max(1))?;
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

/// Returns true if a file belongs to the image, and so to all containers of it.
fn is_images(facts: &raw::stat) -> bool {
    let device = facts.st_dev;
    let device = (
        (device >> 32 & 0xffff_f000 | device >> 8 & 0xfff) as u32,
        (device >> 12 & 0xffff_ff00 | device & 0xff) as u32,
    );
    if let Some(image) = shared::world().image {
        return image.of_inode(device, facts.st_ino).is_some();
    }
    shared::tree_device() == Some(device) && shared::shared().image().links(facts.st_ino).is_some()
}

fn as_path(bytes: &[u8]) -> Result<&CStr, Refusal> {
    CStr::from_bytes_with_nul(bytes).map_err(|_| Refusal::Broken(Errno::ENAMETOOLONG))
}

/// Makes the path `HOME/text-KEY`, with a number added while the file is being made (else 0), and a
/// NUL; returns its length.
fn name(
    into: &mut [u8; PATH_MAX],
    home: &[u8],
    (key, kind): (u64, Kind),
    unfinished: u64,
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
    if unfinished != 0 {
        push(b".")?;
        push(&system::hexadecimal(unfinished))?;
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

/// Returns true for calls that must be caught whatever the world is; the filter decides about the
/// rest.
fn wants(number: u32) -> bool {
    const MEMORY: [u32; 4] =
        [raw::__NR_mmap, raw::__NR_mprotect, raw::__NR_pkey_mprotect, raw::__NR_personality];
    let interest = Interest {
        identity: true,
        shared_image: true,
        listing: true,
        host_name: true,
        networks: true,
        loader: None,
        in_process: true,
        namespaces: false,
    };
    MEMORY.contains(&number)
        || number != raw::__NR_rt_sigreturn
            && catch_number(ARCH_X86_64, number, &interest) != Catch::Pass
}

/// Returns true for `mov $15, %eax; syscall`: unwinders recognise the end of a handler by these
/// bytes, so it stays unchanged.
pub(super) fn is_end_of_handler(code: &[u8], at: usize) -> bool {
    code[..at].ends_with(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0])
        || code[..at].ends_with(&[0xb8, 15, 0, 0, 0])
}

/// A mapping that is unmapped when it is dropped.
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

/// Puts traps into code where it is mapped.
pub(super) fn patch(text: &Text, file: u64) -> Result<(), Refusal> {
    let size = status(file)?.st_size as u64;
    let length = text.length.min(size.next_multiple_of(PAGE).saturating_sub(text.offset));
    if length == 0 {
        return Ok(());
    }
    let whole = Mapped::new(size, raw::PROT_READ, file, 0)?;
    system::protect(text.at, length, raw::PROT_READ | raw::PROT_WRITE)?;
    let part = length.min(size - text.offset) as usize;
    // SAFETY: the file has just been mapped; the code too, and no thread executes it yet.
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
    // SAFETY: the structure consists of numbers, for which zeros and any bytes that the kernel
    // writes are valid.
    Ok(unsafe { facts.assume_init() })
}

/// Makes a file with patched code.
fn make(
    path: &CStr,
    text: &Text,
    (file, size, length): (u64, u64, u64),
    kind: Kind,
    key: &[u64; 4],
) -> Result<(), Refusal> {
    let flags = raw::O_RDWR | raw::O_CREAT | raw::O_EXCL | raw::O_CLOEXEC;
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
        // SAFETY: both have just been mapped. If the file is truncated now, that ends the process,
        // as it would during execution.
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

/// The assumed address of the code while its jumps are made: only distances matter.
const NOMINAL: u64 = 1 << 40;

/// Code that is being patched.
struct Work<'a, 'p> {
    /// The whole original file.
    bytes: &'a [u8],
    /// Offset of the code in the file.
    start: usize,
    /// The patched code.
    new: &'a mut [u8],
    kind: Kind,
    into: i32,
    /// Offset of the stubs in the file that is made.
    behind: u64,
    stubs: Stubs<'p>,
    /// Number of pages of stubs that have been written.
    pages: u64,
    /// Number of sites that have been patched.
    count: usize,
    key: u64,
}

impl Work<'_, '_> {
    /// Patches all sites; returns the offset of bytes that are undecided.
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

    /// The part of the patched code for a range of the file.
    fn part(&mut self, place: Range<usize>) -> &mut [u8] {
        &mut self.new[place.start - self.start..place.end - self.start]
    }

    /// Patches one site; `code` is the range of the file around it that may be changed.
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

    /// Makes a site jump to a stub; false if that is too far away.
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
