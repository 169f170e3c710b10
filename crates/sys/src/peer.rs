//! Reads and writes the memory of another process.
//!
//! See [process_vm_readv(2)](https://man7.org/linux/man-pages/man2/process_vm_readv.2.html). The
//! other process may change the memory meanwhile.

use crate::raw;
use linux_raw_sys::general as numbers;
use rustix::io::Errno;
use std::ffi::CString;

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

/// Reads exactly the buffer's length.
pub fn read_exact(pid: u32, address: u64, buffer: &mut [u8]) -> Result<(), Errno> {
    if read(pid, address, buffer)? == buffer.len() { Ok(()) } else { Err(Errno::FAULT) }
}

/// Reads a NUL-terminated string of at most `limit` bytes, page by page, so that a string that ends
/// before an unmapped page is found.
pub fn read_string(pid: u32, address: u64, limit: usize) -> Result<CString, Errno> {
    const PAGE: u64 = 4096;
    let mut text = Vec::new();
    let mut at = address;
    while text.len() <= limit {
        let mut buffer = [0; PAGE as usize];
        let length = (PAGE - at % PAGE) as usize;
        let length = read(pid, at, &mut buffer[..length])?;
        if length == 0 {
            return Err(Errno::FAULT);
        }
        match buffer[..length].iter().position(|&byte| byte == 0) {
            Some(end) => {
                text.extend_from_slice(&buffer[..end]);
                return CString::new(text).map_err(|_| Errno::INVAL);
            }
            None => text.extend_from_slice(&buffer[..length]),
        }
        at += length as u64;
    }
    Err(Errno::NAMETOOLONG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_to_their_end() {
        let text = c"hello";
        let address = text.as_ptr() as u64;
        assert_eq!(read_string(std::process::id(), address, 100).unwrap().as_c_str(), text);
        assert_eq!(read_string(std::process::id(), 0, 100), Err(Errno::FAULT));
    }
}
