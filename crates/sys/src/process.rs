//! Executes programs, and prepares the descriptors that they inherit.

pub use crate::life::start_time;
use crate::raw;
use linux_raw_sys::general as numbers;
use rustix::io::Errno;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

unsafe extern "C" {
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char)
    -> c_int;
    fn setsid() -> c_int;
}

/// Arguments or variables in the form that `execve` takes, prepared before any irreversible step.
#[derive(Debug)]
pub struct Strings {
    pointers: Vec<*const c_char>,
    _owned: Vec<CString>,
}

impl Strings {
    /// Copies strings; `None` if one of them has a zero byte.
    pub fn new<S: AsRef<[u8]>>(all: &[S]) -> Option<Self> {
        let owned: Vec<CString> =
            all.iter().map(|one| CString::new(one.as_ref()).ok()).collect::<Option<_>>()?;
        let mut pointers: Vec<_> = owned.iter().map(|one| one.as_ptr()).collect();
        pointers.push(std::ptr::null());
        Some(Self { pointers, _owned: owned })
    }
}

/// Makes the calling process the first of a new session: setsid(2). The session's number is not
/// returned, because gVisor says 0.
pub fn new_session() -> Result<(), Errno> {
    // SAFETY: the call takes nothing and changes no memory.
    if unsafe { setsid() } < 0 {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    Ok(())
}

/// Replaces the calling program; returns only if that failed.
///
/// See [execve(2)](https://man7.org/linux/man-pages/man2/execve.2.html).
pub fn exec(path: &CStr, arguments: &Strings, environment: &Strings) -> Errno {
    // SAFETY: both vectors end with a null pointer and own the strings that they point to.
    unsafe { execve(path.as_ptr(), arguments.pointers.as_ptr(), environment.pointers.as_ptr()) };
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Closes every descriptor but these (which are none of 0 to 2); 0 to 2 become `/dev/null`.
///
/// For a process just forked that keeps no other descriptor of its parent's: any other descriptor
/// object in it is invalid afterwards and must not be used or dropped.
pub fn keep_only<const N: usize>(descriptors: [OwnedFd; N]) -> Result<[OwnedFd; N], Errno> {
    keep_these(&descriptors.each_ref().map(AsFd::as_fd))?;
    Ok(descriptors)
}

/// As [`keep_only`], of descriptors that are owned elsewhere.
pub fn keep_these(descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let null = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty());
    if let Ok(null) = &null {
        rustix::stdio::dup2_stdin(null)?;
        rustix::stdio::dup2_stdout(null)?;
        rustix::stdio::dup2_stderr(null)?;
    }
    std::mem::forget(null);
    close_others(descriptors);
    Ok(())
}

/// Closes every descriptor from 3 on but these.
///
/// For a process that executes a program next, or ends: any other descriptor object in it is
/// invalid afterwards. It must not be used; dropping it does no harm as long as no descriptor was
/// opened that outlives it.
pub fn close_others(kept: &[BorrowedFd<'_>]) {
    // Sorted, so that the numbers in between can be closed as ranges.
    let mut numbers: Vec<u32> = kept.iter().map(|kept| kept.as_raw_fd() as u32).collect();
    numbers.sort_unstable();
    let mut first = FIRST;
    for number in numbers {
        if number > first {
            close_range(first, number - 1);
        }
        first = first.max(number + 1);
    }
    close_range(first, u32::MAX);
}

/// Copies of the descriptors from 3 on that an executed program would inherit, with their numbers;
/// the copies are close-on-exec.
pub fn inherited() -> Result<Vec<(u32, OwnedFd)>, Errno> {
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let list = rustix::fs::open("/proc/self/fd", flags, rustix::fs::Mode::empty())?;
    let mut all = Vec::new();
    for entry in rustix::fs::Dir::new(list)? {
        let entry = entry?;
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse::<u32>().ok());
        let Some(number) = number.filter(|number| *number >= FIRST) else { continue };
        let ask = |command: u32, value: usize| {
            let arguments = [number as usize, command as usize, value, 0, 0];
            // SAFETY: these commands of fcntl take integers, no pointers; a number that is not open
            // is an error, and a copy has no other owner.
            unsafe { raw::call(numbers::__NR_fcntl, arguments) }
        };
        if ask(numbers::F_GETFD, 0)? & numbers::FD_CLOEXEC as usize == 0 {
            let copy = ask(numbers::F_DUPFD_CLOEXEC, FIRST as usize)?;
            // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
            all.push((number, unsafe { OwnedFd::from_raw_fd(copy as i32) }));
        }
    }
    Ok(all)
}

/// The signal of `F_SETSIG` that an open file has; 0 if none was set.
pub fn signal_of(file: impl AsFd) -> Result<i32, Errno> {
    let number = file.as_fd().as_raw_fd() as usize;
    let arguments = [number, numbers::F_GETSIG as usize, 0, 0, 0];
    // SAFETY: this command of fcntl takes no pointer.
    unsafe { raw::call(numbers::__NR_fcntl, arguments) }.map(|signal| signal as i32)
}

/// Sets it (`F_SETSIG`).
pub fn set_signal_of(file: impl AsFd, signal: i32) -> Result<(), Errno> {
    let number = file.as_fd().as_raw_fd() as usize;
    let arguments = [number, numbers::F_SETSIG as usize, signal as usize, 0, 0];
    // SAFETY: this command of fcntl takes an integer, no pointer.
    unsafe { raw::call(numbers::__NR_fcntl, arguments) }.map(drop)
}

/// Gives these numbers to copies of descriptors, for a program that is executed next and inherits
/// them. Descriptors that had the numbers are closed.
///
/// For a process that executes a program now: any other descriptor object in it may be invalid
/// afterwards.
pub fn hand_over(descriptors: &[(u32, BorrowedFd<'_>)]) -> Result<(), Errno> {
    let is_wanted =
        |copy: &OwnedFd| descriptors.iter().any(|(number, _)| *number == copy.as_raw_fd() as u32);
    // Moved to other numbers first, since one may have another's number; copies that themselves
    // have a wanted number are kept until the others are made.
    let mut parked = Vec::new();
    let mut moved = Vec::with_capacity(descriptors.len());
    for (number, from) in descriptors {
        let copy = loop {
            let copy = rustix::io::fcntl_dupfd_cloexec(from, FIRST as i32)?;
            if !is_wanted(&copy) {
                break copy;
            }
            parked.push(copy);
        };
        moved.push((*number, copy));
    }
    drop(parked);
    for (number, from) in &moved {
        let arguments = [from.as_raw_fd() as usize, *number as usize, 0, 0, 0];
        // SAFETY: `dup2` takes integers, no pointers. The caller guarantees that the descriptor
        // with this number is not used any more; see `dup2(2)`.
        unsafe { raw::call(numbers::__NR_dup2, arguments) }?;
    }
    Ok(())
}

/// Takes ownership of the descriptors that [`hand_over`] passed to this program, from this number
/// on, and marks them close-on-exec. `EBADF` if one is missing.
///
/// Must be called once, before the program opens any file.
pub fn taken_over(first: u32, count: usize) -> Result<Vec<OwnedFd>, Errno> {
    let (set, flag) = (numbers::F_SETFD as usize, numbers::FD_CLOEXEC as usize);
    let all = first..first + count as u32;
    for number in all.clone() {
        // SAFETY: F_SETFD takes an integer, no pointer; it fails if the number is not open.
        unsafe { raw::call(numbers::__NR_fcntl, [number as usize, set, flag, 0, 0]) }?;
    }
    // SAFETY: all of them are open, as the calls above have shown, and the caller guarantees that
    // nothing else owns them.
    Ok(all.map(|number| unsafe { OwnedFd::from_raw_fd(number as i32) }).collect())
}

/// The first number after the standard streams.
pub const FIRST: u32 = 3;

fn close_range(first: u32, last: u32) {
    if first > last {
        return;
    }
    // SAFETY: `close_range` takes integers, no pointers. The caller of `close_others` guarantees
    // that none of these descriptors is used any more; see `close_range(2)`.
    let closed =
        unsafe { raw::call(numbers::__NR_close_range, [first as usize, last as usize, 0, 0, 0]) };
    if closed.is_err() {
        for fd in first..=last.min(4096) {
            // SAFETY: `close` takes an integer; the caller's guarantee is the same as for
            // `close_range` above.
            let _ = unsafe { raw::call(numbers::__NR_close, [fd as usize, 0, 0, 0, 0]) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_bytes_are_refused() {
        assert!(Strings::new(&["a\0b"]).is_none());
        assert!(Strings::new(&["a", ""]).is_some());
    }

    #[test]
    fn a_failed_exec_returns_its_reason() {
        let none = Strings::new::<&str>(&[]).unwrap();
        assert_eq!(exec(c"/does/not/exist", &none, &none), Errno::NOENT);
    }
}
