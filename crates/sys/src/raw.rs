//! System calls that neither `rustix` nor the C library wraps.

use rustix::io::Errno;
use std::ffi::c_long;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

/// Makes a system call with up to five arguments.
///
/// # Safety
/// The arguments must be what the call expects: pointers live and of the right size for the kernel
/// to read or write.
pub(crate) unsafe fn call(number: u32, arguments: [usize; 5]) -> Result<usize, Errno> {
    let mut six = [0; 6];
    six[..5].copy_from_slice(&arguments);
    // SAFETY: the caller's guarantee covers the five arguments; the sixth is 0 and not used.
    unsafe { call6(number, six) }
}

/// Makes a system call with six arguments.
///
/// # Safety
/// As [`call`].
pub(crate) unsafe fn call6(number: u32, arguments: [usize; 6]) -> Result<usize, Errno> {
    let all = arguments;
    // SAFETY: the caller guarantees that the arguments fit the call.
    let result =
        unsafe { syscall(c_long::from(number), all[0], all[1], all[2], all[3], all[4], all[5]) };
    if result == -1 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    Ok(result as usize)
}
