//! Maps rewritten pages over the old ones.
//!
//! A memory file is made for them: stubs, then the code. The stubs are mapped where jumps from the
//! code reach them, the code over the old pages. Then the file is closed, and can no longer be
//! written to.

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
/// The name of the file in `/proc/self/maps`; `mapping` recognises it.
const NAME: &core::ffi::CStr = c"coracle-sites";
/// Reach of a jump with a distance of four bytes, with a reserve.
const REACH: u64 = 0x7ff0_0000;
/// Number of places that are tried for the stubs.
const TRIES: u64 = 16;

/// Number of places that have been used or tried for stubs.
static PLACES: AtomicU64 = AtomicU64::new(0);

/// Makes the new pages and their stubs and maps both. `text` and `stubs` are working memory.
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

/// Returns true if the limit of a file's size allows `size`: beyond it the kernel does not only
/// refuse, it sends a signal.
pub(crate) fn may_write_files(size: u64) -> bool {
    const RLIMIT_FSIZE: u64 = 1;
    let mut limits = [0_u64; 2];
    let arguments = [0, RLIMIT_FSIZE, 0, limits.as_mut_ptr() as u64, 0, 0];
    // SAFETY: the kernel writes two words, and `limits` has two.
    unsafe { system::call(raw::__NR_prlimit64, arguments) == 0 && limits[0] >= size }
}

fn create() -> Result<u64, Failed> {
    // Since 6.3 the kernel requires a flag for memory files that will be executed.
    const EXECUTABLE: u32 = 0x10;
    if shared::switches().has(Switches::NO_MEMORY_FILES) {
        return Err(Failed);
    }
    let make = |flags: u32| {
        // SAFETY: the kernel only reads the name, a static string.
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

/// Maps the file's first page where jumps from the code reach it.
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
            // SAFETY: a new mapping where nothing is mapped, because the address is only a hint.
            unsafe { system::checked(raw::__NR_mmap, arguments) }
        };
        match mapped {
            Ok(got) if got.abs_diff(work.first) < REACH => return Ok(got),
            Ok(got) => system::unmap(got, SIZE),
            Err(errno) => {
                // A policy forbids executable memory: calls continue to come by signals, here and
                // in programs that this one executes.
                if matches!(errno, Errno::EACCES | Errno::EPERM) {
                    shared::switch_on(Switches::NO_REWRITING);
                }
                return Err(Failed);
            }
        }
    }
    Err(Failed)
}

/// A place to try. Libraries lie where the kernel puts mappings by itself, so it may choose there
/// too. Near programs nothing else is mapped, except their heap, which grows behind them.
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
        // Before a program at its usual address, 0x400000.
        0x3f_f000 - far % 0x30_0000
    } else {
        0x7000_0000 - far
    }
}

/// Writes stubs and code into the file.
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
    // SAFETY: the kernel reads one page, and `bytes` has that size.
    let count = unsafe {
        system::call(raw::__NR_pwrite64, [file, bytes.as_ptr() as u64, SIZE, offset, 0, 0])
    };
    if count == SIZE as i64 { Ok(()) } else { Err(Failed) }
}

/// Maps the rest of the file over the code.
fn put(file: u64, first: u64, length: u64) -> Result<(), Failed> {
    let flags = u64::from(raw::MAP_PRIVATE | raw::MAP_FIXED | raw::MAP_POPULATE);
    let rights = u64::from(raw::PROT_READ | raw::PROT_EXEC);
    // SAFETY: at each address where an instruction began, one begins that has the same effect
    // (`abi::code`). The kernel replaces the mapping at once, or not at all if limits forbid it: it
    // checks them before it removes the old one.
    unsafe { system::checked(raw::__NR_mmap, [first, length, rights, flags, file, SIZE]) }
        .map(|_| ())
        .map_err(|_| Failed)
}
