//! Memory of a stopped tracee.
//!
//! Uses `process_vm_readv(2)` if it is allowed. It is refused if an outer filter forbids it, on
//! kernels before 4.10 under Yama for processes that are not descendants, and before 3.2; then
//! memory is accessed word by word through ptrace. The part below the mapped part of a stack is
//! written through `/proc/PID/mem`, which makes the stack grow as an access of the program itself
//! would.

use super::{Id, request};
use crate::peer;
use linux_raw_sys::ptrace as requests;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

const WORD: usize = size_of::<usize>();

/// The memory of one tracee, which must be stopped for every access.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    id: Id,
}

/// Returns true if an error refuses the method; false if it concerns the address.
fn refused(errno: Errno) -> bool {
    matches!(errno, Errno::PERM | Errno::NOSYS | Errno::ACCESS)
}

impl Memory {
    pub(super) fn of(id: Id) -> Self {
        Self { id }
    }

    /// Reads as far as the memory is mapped; `EFAULT` if that is nothing.
    pub fn read_some(self, at: u64, into: &mut [u8]) -> Result<usize, Errno> {
        if into.is_empty() {
            return Ok(0);
        }
        match peer::read(self.id, at, into) {
            Err(errno) if refused(errno) => self.peek(at, into),
            result => result,
        }
    }

    /// Reads the whole buffer, or fails with `EFAULT`.
    pub fn read(self, at: u64, into: &mut [u8]) -> Result<(), Errno> {
        if self.read_some(at, into)? == into.len() { Ok(()) } else { Err(Errno::FAULT) }
    }

    /// Writes all bytes, or fails with `EFAULT`; memory that the program cannot write is refused.
    pub fn write(self, at: u64, from: &[u8]) -> Result<(), Errno> {
        if from.is_empty() {
            return Ok(());
        }
        match peer::write(self.id, at, from) {
            Ok(length) if length == from.len() => Ok(()),
            Ok(_) => Err(Errno::FAULT),
            Err(errno) if refused(errno) => self.poke(at, from),
            Err(errno) => Err(errno),
        }
    }

    /// Writes to the unused part of a stack, which may have to grow.
    pub fn write_stack(self, at: u64, from: &[u8]) -> Result<(), Errno> {
        match self.write(at, from) {
            Err(Errno::FAULT) => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                let name = format!("/proc/{}/mem", self.id);
                let file = rustix::fs::open(name, flags, Mode::empty())?;
                match rustix::io::pwrite(&file, from, at) {
                    Ok(length) if length == from.len() => Ok(()),
                    _ => Err(Errno::FAULT),
                }
            }
            result => result,
        }
    }

    fn peek(self, at: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < into.len() {
            let address = at as usize + done;
            let skip = address % WORD;
            let mut word = 0_usize;
            // SAFETY: the raw system call (unlike the library's function) writes the word to
            // `data`, which points to `word`.
            let result = unsafe {
                request(requests::PTRACE_PEEKDATA, self.id, address - skip, &raw mut word as usize)
            };
            match result {
                Ok(_) => {}
                Err(_) if done > 0 => break,
                Err(Errno::SRCH) => return Err(Errno::SRCH),
                Err(_) => return Err(Errno::FAULT),
            }
            let bytes = &word.to_ne_bytes()[skip..];
            let length = bytes.len().min(into.len() - done);
            into[done..done + length].copy_from_slice(&bytes[..length]);
            done += length;
        }
        Ok(done)
    }

    fn poke(self, at: u64, from: &[u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < from.len() {
            let address = at as usize + done;
            let skip = address % WORD;
            let length = (WORD - skip).min(from.len() - done);
            let mut bytes = [0; WORD];
            if length < WORD {
                self.peek((address - skip) as u64, &mut bytes)?;
            }
            bytes[skip..skip + length].copy_from_slice(&from[done..done + length]);
            let word = usize::from_ne_bytes(bytes);
            // SAFETY: PTRACE_POKEDATA takes the word itself as data, no pointer; it changes the
            // tracee only.
            let result =
                unsafe { request(requests::PTRACE_POKEDATA, self.id, address - skip, word) };
            match result {
                Ok(_) => {}
                Err(Errno::SRCH) => return Err(Errno::SRCH),
                Err(_) => return Err(Errno::FAULT),
            }
            done += length;
        }
        Ok(())
    }
}
