//! Becoming another program, and the descriptors that it finds.

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
}

/// Arguments or variables in the form that `execve` takes, made before anything irreversible.
#[derive(Debug)]
pub struct Strings {
    pointers: Vec<*const c_char>,
    _owned: Vec<CString>,
}

impl Strings {
    /// Copies; `None` if one of them holds a zero byte.
    pub fn new<S: AsRef<[u8]>>(all: &[S]) -> Option<Self> {
        let owned: Vec<CString> =
            all.iter().map(|one| CString::new(one.as_ref()).ok()).collect::<Option<_>>()?;
        let mut pointers: Vec<_> = owned.iter().map(|one| one.as_ptr()).collect();
        pointers.push(std::ptr::null());
        Some(Self { pointers, _owned: owned })
    }
}

/// Replaces the calling program; returns only when that failed.
///
/// See [execve(2)](https://man7.org/linux/man-pages/man2/execve.2.html).
pub fn exec(path: &CStr, arguments: &Strings, environment: &Strings) -> Errno {
    // SAFETY: both vectors end with a null pointer and own the strings they point to.
    unsafe { execve(path.as_ptr(), arguments.pointers.as_ptr(), environment.pointers.as_ptr()) };
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Closes every descriptor but these (which are none of 0 to 2); 0 to 2 become `/dev/null`.
///
/// For a process just forked that keeps nothing else of its parent's: any other descriptor object in it is dead afterwards and must not
/// be used or dropped.
pub fn keep_only<const N: usize>(descriptors: [OwnedFd; N]) -> Result<[OwnedFd; N], Errno> {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let null = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty());
    if let Ok(null) = &null {
        rustix::stdio::dup2_stdin(null)?;
        rustix::stdio::dup2_stdout(null)?;
        rustix::stdio::dup2_stderr(null)?;
    }
    std::mem::forget(null);
    close_others(&descriptors.each_ref().map(AsFd::as_fd));
    Ok(descriptors)
}

/// Closes every descriptor from 3 on but these.
///
/// For a process that executes a program next, or ends: any other descriptor object in it is dead
/// afterwards. It must not be used; that it is dropped does no harm as long as nothing was opened
/// that outlives it.
pub fn close_others(kept: &[BorrowedFd<'_>]) {
    // In order of their numbers, so that what lies between can be closed by ranges.
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

/// The descriptors from 3 on that a program which is executed would inherit, with their numbers, as copies that it would not.
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
            // SAFETY: a number that is not open is an error, and a copy is nobody else's.
            unsafe { raw::call(numbers::__NR_fcntl, arguments) }
        };
        if ask(numbers::F_GETFD, 0)? & numbers::FD_CLOEXEC as usize == 0 {
            let copy = ask(numbers::F_DUPFD_CLOEXEC, FIRST as usize)?;
            // SAFETY: it was just made.
            all.push((number, unsafe { OwnedFd::from_raw_fd(copy as i32) }));
        }
    }
    Ok(all)
}

/// Gives copies of descriptors these numbers, for a program that is executed next and inherits them. Whatever had the numbers is gone.
///
/// For a process that executes a program now: any other descriptor object in it may be dead afterwards.
pub fn hand_over(descriptors: &[(u32, BorrowedFd<'_>)]) -> Result<(), Errno> {
    let is_wanted =
        |copy: &OwnedFd| descriptors.iter().any(|(number, _)| *number == copy.as_raw_fd() as u32);
    // Moved away first, since one may have another's number; copies that have one themselves are kept until the others are made.
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
        // SAFETY: the caller promises that what has this number is used no more; see `dup2(2)`.
        unsafe { raw::call(numbers::__NR_dup2, arguments) }?;
    }
    Ok(())
}

/// Takes descriptors that [`hand_over`] gave to this program, from this number on; `execve` closes them from now on. `EBADF` if one is not there.
///
/// To be called once, before anything else in the program opens a file.
pub fn taken_over(first: u32, count: usize) -> Result<Vec<OwnedFd>, Errno> {
    let (set, flag) = (numbers::F_SETFD as usize, numbers::FD_CLOEXEC as usize);
    let all = first..first + count as u32;
    for number in all.clone() {
        // SAFETY: sets a flag of a number that is open, or is told that it is not.
        unsafe { raw::call(numbers::__NR_fcntl, [number as usize, set, flag, 0, 0]) }?;
    }
    // SAFETY: all of them are open, as was just seen, and the caller promises that nobody else has them.
    Ok(all.map(|number| unsafe { OwnedFd::from_raw_fd(number as i32) }).collect())
}

/// The first number after the standard streams.
pub const FIRST: u32 = 3;

fn close_range(first: u32, last: u32) {
    if first > last {
        return;
    }
    // SAFETY: the caller of `close_others` promises that nothing of this is used any more; see
    // `close_range(2)`.
    let closed =
        unsafe { raw::call(numbers::__NR_close_range, [first as usize, last as usize, 0, 0, 0]) };
    if closed.is_err() {
        for fd in first..=last.min(4096) {
            // SAFETY: as above.
            let _ = unsafe { raw::call(numbers::__NR_close, [fd as usize, 0, 0, 0, 0]) };
        }
    }
}

/// Soft and hard limit of a process, `u64::MAX` for none. See [prlimit(2)](https://man7.org/linux/man-pages/man2/prlimit.2.html).
pub fn limit(pid: u32, resource: u32) -> Result<(u64, u64), Errno> {
    let mut old = [0_u64; 2];
    // SAFETY: `old` has the layout of `struct rlimit64` and lives until the call returns.
    unsafe {
        raw::call(
            numbers::__NR_prlimit64,
            [pid as usize, resource as usize, 0, old.as_mut_ptr() as usize, 0],
        )
    }?;
    Ok((old[0], old[1]))
}

/// Sets both limits of a process.
pub fn set_limit(pid: u32, resource: u32, soft: u64, hard: u64) -> Result<(), Errno> {
    let new = [soft, hard];
    // SAFETY: `new` has the layout of `struct rlimit64` and lives until the call returns.
    unsafe {
        raw::call(
            numbers::__NR_prlimit64,
            [pid as usize, resource as usize, new.as_ptr() as usize, 0, 0],
        )
    }
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a child of the calling process is left that `wait` shows to who asks for all.
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
