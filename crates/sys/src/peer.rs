//! Reads and writes the memory of another process.
//!
//! See [process_vm_readv(2)](https://man7.org/linux/man-pages/man2/process_vm_readv.2.html). The
//! other process may change the memory meanwhile.

use crate::raw;
use linux_raw_sys::general as numbers;
use rustix::io::Errno;

/// `struct iovec`.
#[repr(C)]
struct Piece {
    base: usize,
    length: usize,
}

fn transfer(
    number: u32,
    pid: u32,
    local: usize,
    remote: u64,
    length: usize,
) -> Result<usize, Errno> {
    let local = Piece { base: local, length };
    let remote = Piece { base: remote as usize, length };
    // SAFETY: both `iovec`s live until the call returns; the local one describes memory that the
    // caller of `transfer` borrows.
    unsafe {
        raw::call6(
            number,
            [pid as usize, &raw const local as usize, 1, &raw const remote as usize, 1, 0],
        )
    }
}

/// Reads as much as is mapped, up to the length of the buffer.
pub fn read(pid: u32, address: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    transfer(
        numbers::__NR_process_vm_readv,
        pid,
        buffer.as_mut_ptr() as usize,
        address,
        buffer.len(),
    )
}

/// Writes bytes; returns the number written.
pub fn write(pid: u32, address: u64, bytes: &[u8]) -> Result<usize, Errno> {
    transfer(numbers::__NR_process_vm_writev, pid, bytes.as_ptr() as usize, address, bytes.len())
}
