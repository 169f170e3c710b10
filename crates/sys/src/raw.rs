//! System calls that neither `rustix` nor the C library wraps.

use rustix::io::Errno;
use std::ffi::c_long;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

/// Makes a system call with up to five arguments.
///
/// # Safety
/// The arguments must be what the call expects: pointers live and of the right size for the kernel to read or write.
pub(crate) unsafe fn call(number: u32, arguments: [usize; 5]) -> Result<usize, Errno> {
    let [a, b, c, d, e] = arguments;
    // SAFETY: passed on to the caller.
    unsafe { call6(number, [a, b, c, d, e, 0]) }
}

/// Makes a system call with six arguments.
///
/// # Safety
/// As [`call`].
pub(crate) unsafe fn call6(number: u32, arguments: [usize; 6]) -> Result<usize, Errno> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: passed on to the caller.
    let result = unsafe { syscall(c_long::from(number), a, b, c, d, e, f) };
    if result == -1 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    Ok(result as usize)
}
