//! Accesses the guest's memory in processes where a fault may be fatal, because a thread blocks
//! `SIGSEGV` or `SIGBUS`.
//!
//! Blocking them is common (threads that must not take signals block all), but a bad pointer in
//! such a thread is rare. So results are remembered by pages: a page that could be read or written
//! before is assumed to be accessible still. For any other page the kernel is asked: first if this
//! thread blocks the signals at all, and if so to make the access instead of the stage
//! (`process_vm_readv`), which returns `EFAULT`.
//!
//! A page that was accessible and has been unmapped since is not noticed: such a pointer ends the
//! process, as the guest's own access would.

use super::{read_now, read_text_now, write_now};
use crate::{signals, system};
use abi::elf::PAGE;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use linux_raw_sys::general as raw;
use view::Errno;

/// Pages that could be read, and pages that could be written; the place follows from the page's
/// number.
static READ: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
static WRITTEN: [AtomicU64; 32] = [const { AtomicU64::new(0) }; 32];

fn is_known(pages: &[AtomicU64], page: u64) -> bool {
    pages[page as usize % pages.len()].load(Relaxed) == page
}

fn remember(pages: &[AtomicU64], page: u64) {
    pages[page as usize % pages.len()].store(page, Relaxed);
}

/// Number of bytes up to the end of the page, at most `length`.
fn piece(at: u64, length: usize) -> usize {
    length.min((PAGE - at % PAGE) as usize)
}

/// Number of bytes from here on that may be read.
pub(super) fn readable(at: u64, length: usize) -> usize {
    let mut done = 0;
    while done < length {
        let here = at + done as u64;
        if !may_read(here) {
            break;
        }
        done += piece(here, length - done);
    }
    done
}

/// As `read_text`.
pub(super) fn read_text(at: u64, into: &mut [u8]) -> Result<usize, Errno> {
    let mut done = 0;
    while done < into.len() {
        let here = at + done as u64;
        if !may_read(here) {
            return Err(Errno::EFAULT);
        }
        let length = piece(here, into.len() - done);
        let found = read_text_now(here, &mut into[done..done + length])?;
        done += found;
        if found < length {
            break;
        }
    }
    Ok(done)
}

/// As `write`.
pub(super) fn write(at: u64, from: &[u8]) -> Result<(), Errno> {
    let mut done = 0;
    while done < from.len() {
        let here = at + done as u64;
        let part = &from[done..done + piece(here, from.len() - done)];
        done += part.len();
        write_part(here, part)?;
    }
    Ok(())
}

/// Writes within a page.
fn write_part(at: u64, part: &[u8]) -> Result<(), Errno> {
    let page = at / PAGE;
    if is_known(&WRITTEN, page) {
        return write_now(at, part);
    }
    if signals::admits_faults() {
        return write_now(at, part).inspect(|()| remember(&WRITTEN, page));
    }
    let number = raw::__NR_process_vm_writev;
    match transfer(number, part.as_ptr() as u64, at, part.len()) {
        Ok(count) if count == part.len() as u64 => {
            remember(&WRITTEN, page);
            Ok(())
        }
        Ok(_) | Err(Errno::EFAULT) => Err(Errno::EFAULT),
        Err(_) => write_now(at, part),
    }
}

/// Returns true if a byte may be read, as far as is known. If the kernel does not have the call or
/// forbids it, the access is risked.
fn may_read(at: u64) -> bool {
    let page = at / PAGE;
    if is_known(&READ, page) {
        return true;
    }
    let mut byte = [0];
    if signals::admits_faults() {
        let there = read_now(at, &mut byte).is_ok();
        if there {
            remember(&READ, page);
        }
        return there;
    }
    let tried = transfer(raw::__NR_process_vm_readv, byte.as_mut_ptr() as u64, at, 1);
    if tried.is_ok() {
        remember(&READ, page);
    }
    tried != Err(Errno::EFAULT)
}

/// Copies between the stage's memory and the guest's by the kernel.
fn transfer(number: u32, ours: u64, guests: u64, length: usize) -> Result<u64, Errno> {
    let (local, remote) = ([ours, length as u64], [guests, length as u64]);
    let process = u64::from(system::process());
    let arguments = [process, local.as_ptr() as u64, 1, remote.as_ptr() as u64, 1, 0];
    // SAFETY: the kernel reads two `struct iovec` on this stack and copies between a buffer of the
    // caller, of that length, and memory that the guest has named; bad addresses are errors.
    unsafe { system::checked(number, arguments) }
}
