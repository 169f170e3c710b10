//! Puts rewritten pages in the place of the old ones.
//!
//! A memory file is made for them: stubs, then the text. The stubs are mapped wherever jumps from the text reach them, the text over the old
//! pages; then the file is closed, and nobody can write to it any more.

use super::mapping::Mapping;
use super::{Work, is_always_caught, report};
use crate::entry;
use crate::shared;
use crate::system::{self, Failed};
use abi::code::page::rewrite;
use abi::code::stub::{PAGE, Stubs};
use abi::shared::Switches;
use core::sync::atomic::{AtomicU64, Ordering};
use linux_raw_sys::general as raw;
use view::Errno;

const SIZE: u64 = PAGE as u64;
/// What the file is called in `/proc/self/maps`; `mapping` knows it.
const NAME: &core::ffi::CStr = c"coracle-sites";
/// How far a jump with a distance of four bytes reaches, with some distance to spare.
const REACH: u64 = 0x7ff0_0000;
/// How many places are tried for the stubs.
const TRIES: u64 = 16;

/// How many places have been used or tried for stubs.
static PLACES: AtomicU64 = AtomicU64::new(0);

/// Makes the new pages and their stubs and maps both. `text` and `stubs` are memory to work in.
pub(super) fn install(
    work: &Work,
    text: &mut [u8; PAGE],
    stubs: &mut [u8; PAGE],
) -> Result<(), Failed> {
    let length = work.last + SIZE - work.first;
    if !may_write_files(SIZE + length) {
        return Err(Failed);
    }
    let file = create()?;
    let result = map_stubs(file, work).and_then(|place| {
        let made =
            fill(work, file, place, text, stubs).and_then(|()| put(file, work.first, length));
        if made.is_err() {
            system::unmap(place, SIZE);
        }
        made
    });
    system::close(file);
    result
}

/// Whether the limit of a file's size allows ours: the kernel does not only refuse, it sends a signal.
pub(crate) fn may_write_files(size: u64) -> bool {
    const RLIMIT_FSIZE: u64 = 1;
    let mut limits = [0_u64; 2];
    let arguments = [0, RLIMIT_FSIZE, 0, limits.as_mut_ptr() as u64, 0, 0];
    // SAFETY: the kernel writes the two limits.
    unsafe { system::call(raw::__NR_prlimit64, arguments) == 0 && limits[0] >= size }
}

fn create() -> Result<u64, Failed> {
    // Since 6.3 the kernel wants to be told that a memory file may be executed.
    const EXECUTABLE: u32 = 0x10;
    if shared::switches().has(Switches::NO_MEMORY_FILES) {
        return Err(Failed);
    }
    let make = |flags: u32| {
        // SAFETY: the kernel reads the name.
        unsafe {
            system::checked(
                raw::__NR_memfd_create,
                [NAME.as_ptr() as u64, u64::from(flags), 0, 0, 0, 0],
            )
        }
    };
    match make(raw::MFD_CLOEXEC | EXECUTABLE) {
        Err(Errno::EINVAL) => make(raw::MFD_CLOEXEC).map_err(|_| Failed),
        other => other.map_err(|_| Failed),
    }
}

/// Maps the file's first page where jumps from the text reach it.
fn map_stubs(file: u64, work: &Work) -> Result<u64, Failed> {
    for attempt in 0..TRIES {
        let hint = place(&work.mapping, work.first, attempt);
        let arguments = [
            hint,
            SIZE,
            u64::from(raw::PROT_READ | raw::PROT_EXEC),
            u64::from(raw::MAP_PRIVATE),
            file,
            0,
        ];
        let mapped = if shared::switches().has(Switches::NO_EXEC_MEMORY) {
            Err(Errno::EACCES)
        } else {
            // SAFETY: a new mapping, where nothing is.
            unsafe { system::checked(raw::__NR_mmap, arguments) }
        };
        match mapped {
            Ok(got) if got.abs_diff(work.first) < REACH => return Ok(got),
            Ok(got) => system::unmap(got, SIZE),
            Err(errno) => {
                // Somebody has rules about executable memory: the signals remain, here and in what this program executes.
                if matches!(errno, Errno::EACCES | Errno::EPERM) {
                    shared::switch_on(Switches::NO_REWRITING);
                }
                return Err(Failed);
            }
        }
    }
    Err(Failed)
}

/// A place to try. Libraries lie where the kernel puts mappings by itself, so it may choose there too; near programs nothing else is put, if one
/// stays clear of what lies behind them, where their heap grows.
fn place(mapping: &Mapping, page: u64, attempt: u64) -> u64 {
    const LIBRARIES: u64 = 0x7000_0000_0000;
    const GIGABYTE: u64 = 1 << 30;
    if page >= LIBRARIES && attempt == 0 {
        return 0;
    }
    let number = PLACES.fetch_add(1, Ordering::Relaxed);
    let far = number * SIZE % (GIGABYTE / 4);
    if page >= 4 * GIGABYTE {
        (mapping.start & !(GIGABYTE - 1)) - GIGABYTE / 4 - far
    } else if attempt.is_multiple_of(2) {
        // Before a program at its usual place, 0x400000.
        0x3f_f000 - far % 0x30_0000
    } else {
        0x7000_0000 - far
    }
}

/// Writes stubs and text into the file.
fn fill(
    work: &Work,
    file: u64,
    place: u64,
    text: &mut [u8; PAGE],
    stubs: &mut [u8; PAGE],
) -> Result<(), Failed> {
    let entry = entry::stage_entry as *const () as u64;
    let mut made = Stubs::new(stubs, place, entry);
    let mut count = 0;
    for page in (work.first..=work.last).step_by(PAGE) {
        let request = work.request(page);
        count += rewrite(&request, text, &mut made, is_always_caught, |plan| {
            report(b"coracle: rewritten: ", request.address + plan.site as u64);
        });
        write(file, text, SIZE + page - work.first)?;
    }
    if count == 0 {
        return Err(Failed);
    }
    write(file, stubs, 0)
}

fn write(file: u64, bytes: &[u8; PAGE], offset: u64) -> Result<(), Failed> {
    // SAFETY: the kernel reads the page.
    let count = unsafe {
        system::call(raw::__NR_pwrite64, [file, bytes.as_ptr() as u64, SIZE, offset, 0, 0])
    };
    if count == SIZE as i64 { Ok(()) } else { Err(Failed) }
}

/// Maps the rest of the file over the text.
fn put(file: u64, first: u64, length: u64) -> Result<(), Failed> {
    let flags = u64::from(raw::MAP_PRIVATE | raw::MAP_FIXED | raw::MAP_POPULATE);
    let rights = u64::from(raw::PROT_READ | raw::PROT_EXEC);
    // SAFETY: at each address where an instruction began, one begins that does the same (`abi::code`); the kernel replaces the mapping at once,
    // or, where limits forbid it, not at all: it asks them before it takes the old one away.
    unsafe { system::checked(raw::__NR_mmap, [first, length, rights, flags, file, SIZE]) }
        .map(|_| ())
        .map_err(|_| Failed)
}
