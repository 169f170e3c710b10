//! The guest's memory where a fault may be the end: in a process in which somebody blocks `SIGSEGV` or `SIGBUS`.
//!
//! Blocking them is common (threads that are to take no signals block all), a bad pointer in such a thread rare. So what is known is remembered by
//! pages: one that could be read or written before is believed to be so still. Of another one the kernel is asked: first whether this thread
//! blocks the signals at all, and if so to make the access in the stage's place (`process_vm_readv`), which says `EFAULT`.
//!
//! A page that was there and has gone since is not noticed: such a pointer ends the process, as the guest's own access would.

use super::{read_now, read_text_now, write_now};
use crate::{signals, system};
use abi::elf::PAGE;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use linux_raw_sys::general as raw;
use view::Errno;

/// Pages that could be read, and written; each at the place that its number gives.
static READ: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
static WRITTEN: [AtomicU64; 32] = [const { AtomicU64::new(0) }; 32];

fn is_known(pages: &[AtomicU64], page: u64) -> bool {
    pages[page as usize % pages.len()].load(Relaxed) == page
}

fn remember(pages: &[AtomicU64], page: u64) {
    pages[page as usize % pages.len()].store(page, Relaxed);
}

/// From an address to the end of its page, or of `length` bytes.
fn piece(at: u64, length: usize) -> usize {
    length.min((PAGE - at % PAGE) as usize)
}

/// How many bytes from here on may be read.
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

/// Whether a byte may be read, as far as is known. A kernel without the call, or that forbids it, leaves it to luck.
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

/// Copies between memory of ours and the guest's by the kernel.
fn transfer(number: u32, ours: u64, guests: u64, length: usize) -> Result<u64, Errno> {
    let (local, remote) = ([ours, length as u64], [guests, length as u64]);
    let process = u64::from(system::process());
    let arguments = [process, local.as_ptr() as u64, 1, remote.as_ptr() as u64, 1, 0];
    // SAFETY: the kernel reads two `struct iovec` and copies between memory of ours and memory that the guest has named.
    unsafe { system::checked(number, arguments) }
}
