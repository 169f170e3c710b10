//! Tells if an address of this process is mapped.

use crate::raw;
use linux_raw_sys::general as numbers;
use rustix::io::Errno;

/// Returns true if a page (an address that is a multiple of 4096) is mapped in the calling process.
/// Uses a system call, since `/proc/self/maps` need not show everything to a guest.
///
/// See [mincore(2)](https://man7.org/linux/man-pages/man2/mincore.2.html).
pub fn is_mapped(page: u64) -> bool {
    let mut there = [0_u8; 1];
    let arguments = [page as usize, 1, there.as_mut_ptr() as usize, 0, 0];
    // SAFETY: the kernel writes one byte for one page to `there`; it does not access the page
    // itself.
    let asked = unsafe { raw::call(numbers::__NR_mincore, arguments) };
    asked != Err(Errno::NOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_and_unmapped_pages_differ() {
        let here = [0_u8; 1];
        assert!(is_mapped(here.as_ptr() as u64 & !4095));
        assert!(!is_mapped(0x1000));
    }
}
