//! Executes programs, ends without clean-up, forks in special ways, and passes descriptors on.

pub use crate::life::start_time;
use crate::raw;
use linux_raw_sys::general as numbers;
use rustix::io::Errno;
use rustix::process::Pid;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

unsafe extern "C" {
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char)
    -> c_int;
    fn _exit(code: c_int) -> !;
    fn fork() -> c_int;
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

/// Replaces the calling program; returns only if that failed.
///
/// See [execve(2)](https://man7.org/linux/man-pages/man2/execve.2.html).
pub fn exec(path: &CStr, arguments: &Strings, environment: &Strings) -> Errno {
    // SAFETY: both vectors end with a null pointer and own the strings that they point to.
    unsafe { execve(path.as_ptr(), arguments.pointers.as_ptr(), environment.pointers.as_ptr()) };
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Ends the process at once: no destructors, no `atexit` functions, no flushing of buffers. For
/// children made by `fork`, whose clean-up the parent does.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions; it never returns, so no state of this process is used
    // after it.
    unsafe { _exit(code) }
}

/// Duplicates the process as a child of the caller's *parent*. Returns `None` in the new process.
///
/// Only for a process with one thread that does little before it executes a program or ends: the C
/// library does not know of the new process. See
/// [clone(2)](https://man7.org/linux/man-pages/man2/clone.2.html), `CLONE_PARENT`.
pub fn fork_sibling() -> Result<Option<Pid>, Errno> {
    clone(numbers::CLONE_PARENT)
}

/// As [`crate::event::fork`], for a process that is known to have one thread: does not read
/// `/proc`.
pub fn fork_single() -> Result<crate::event::ForkResult, Errno> {
    // SAFETY: `fork` has no preconditions of its own; the C library resets its locks in the child.
    // With several threads the child could wait forever for a lock of this program that another
    // thread held, but that is not unsound.
    match unsafe { fork() } {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
        pid => Ok(Pid::from_raw(pid)
            .map_or(crate::event::ForkResult::Child, crate::event::ForkResult::Parent)),
    }
}

/// As `fork`, for processes with one thread (not checked), of a child whose end raises no signal:
/// wait(2) reports it only with `__WALL` or `__WCLONE`. Returns `None` in the child.
///
/// The C library is not informed, so its functions about threads must not be used in the child.
pub fn fork_unseen() -> Result<Option<Pid>, Errno> {
    clone(0)
}

/// As [`fork_unseen`], of a process that is not a child of the caller but an orphan from its
/// beginning: not even `__WALL` reports it. Returns `None` in the new process.
///
/// An intermediate process makes it and ends. It only borrows the caller's memory, which is copied
/// once, as by a plain fork. The orphan's parent becomes the nearest process that adopts orphans.
/// If that is the caller, as process 1 of a pid namespace, the orphan is an unseen child after all.
pub fn fork_apart() -> Result<Option<Pid>, Errno> {
    if rustix::process::getpid() == Pid::INIT {
        return fork_unseen();
    }
    let adopts = rustix::process::child_subreaper().is_ok_and(|adopts| adopts.is_some());
    if adopts {
        rustix::process::set_child_subreaper(None)?;
    }
    let forked = fork_twice();
    if adopts && !matches!(forked, Ok(None)) {
        rustix::process::set_child_subreaper(Some(Pid::INIT))?;
    }
    forked
}

fn fork_twice() -> Result<Option<Pid>, Errno> {
    let step_flags = u64::from(numbers::CLONE_VM | numbers::CLONE_VFORK);
    // The result of the second call in the intermediate process.
    let mut said = -i64::from(Errno::INTR.raw_os_error());
    let step: i64;
    // SAFETY: the intermediate process runs on this very stack, so it must not return to Rust: it
    // makes a process, writes down the result, and ends. It touches no other memory, and the caller
    // does not run meanwhile (`CLONE_VFORK`). The process that it makes has a copy of all memory
    // with a stack like the caller's, and leaves the block as after a plain fork.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov eax, {clone}",
            "xor edi, edi",
            "syscall",
            "test rax, rax",
            "jz 2f",
            "mov [{said}], rax",
            "mov eax, {exit}",
            "xor edi, edi",
            "syscall",
            "ud2",
            "2:",
            clone = const numbers::__NR_clone,
            exit = const numbers::__NR_exit,
            said = in(reg) &raw mut said,
            inlateout("rax") u64::from(numbers::__NR_clone) => step,
            inlateout("rdi") step_flags => _,
            in("rsi") 0_u64,
            in("rdx") 0_u64,
            in("r10") 0_u64,
            in("r8") 0_u64,
            out("rcx") _,
            out("r11") _,
        );
    }
    match step {
        0 => return Ok(None),
        1.. => {
            let arguments = [step as usize, 0, numbers::__WALL as usize, 0, 0];
            // SAFETY: waits for the intermediate process, which has ended; the status pointer is
            // null, so nothing is written.
            let waited = || unsafe { raw::call(numbers::__NR_wait4, arguments) };
            rustix::io::retry_on_intr(waited)?;
        }
        _ => return Err(Errno::from_raw_os_error(-step as i32)),
    }
    if said < 0 {
        return Err(Errno::from_raw_os_error(-said as i32));
    }
    Ok(Pid::from_raw(said as i32))
}

fn clone(flags: u32) -> Result<Option<Pid>, Errno> {
    // SAFETY: the stack pointer is 0, so memory is copied as by fork; the other arguments are no
    // pointers either.
    let pid = unsafe { raw::call(numbers::__NR_clone, [flags as usize, 0, 0, 0, 0]) }?;
    Ok(Pid::from_raw(pid as i32))
}

/// Runs a closure in a child and waits for it; returns its error. For processes with one thread.
///
/// `flags` are those of clone(2) without `CLONE_VM`: memory that `work` changes is lost, and its
/// descriptors are closed with the child, unless they are shared (`CLONE_FILES`).
pub(crate) fn in_clone(flags: u32, work: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    let Some(child) = clone(flags & !numbers::CLONE_VM)? else {
        exit_now(work().map_or_else(|errno| errno.raw_os_error() & 0xff, |()| 0));
    };
    let mut status = 0_i32;
    let waited = || {
        let number = child.as_raw_nonzero().get() as usize;
        let arguments = [number, &raw mut status as usize, numbers::__WALL as usize, 0, 0];
        // SAFETY: waits for the child; the kernel writes to `status`, which lives until the call
        // returns.
        unsafe { raw::call(numbers::__NR_wait4, arguments) }
    };
    rustix::io::retry_on_intr(waited)?;
    // The second byte is an exit status, the first a signal.
    match (status & 0x7f, status >> 8 & 0xff) {
        (0, 0) => Ok(()),
        (0, errno) => Err(Errno::from_raw_os_error(errno)),
        _ => Err(Errno::INTR),
    }
}

/// Closes every descriptor but these (which are none of 0 to 2); 0 to 2 become `/dev/null`.
///
/// For a process just forked that keeps no other descriptor of its parent's: any other descriptor
/// object in it is invalid afterwards and must not be used or dropped.
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

/// Soft and hard limit of a process, `u64::MAX` for none. See
/// [prlimit(2)](https://man7.org/linux/man-pages/man2/prlimit.2.html).
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

    /// Returns true if the calling process has a child that `wait` reports with all flags.
    fn has_children() -> bool {
        // SAFETY: the status and usage pointers are null, so nothing is written.
        let waited = unsafe { raw::call(numbers::__NR_wait4, [usize::MAX, 0, ALL, 0, 0]) };
        waited != Err(Errno::CHILD)
    }

    const ALL: usize = (numbers::__WALL | numbers::WNOHANG) as usize;

    #[test]
    fn fork_apart_makes_an_orphan() {
        // A test program has other threads, which fork too.
        let limit = std::time::Duration::from_secs(20);
        for adopts in [false, true] {
            let report = crate::probe::in_child(limit, |_| {
                let this = rustix::process::getpid();
                if adopts && rustix::process::set_child_subreaper(Some(this)).is_err() {
                    return 10;
                }
                let Ok((reader, writer)) = rustix::pipe::pipe() else { return 11 };
                let Ok((held, holder)) = rustix::pipe::pipe() else { return 12 };
                match fork_apart() {
                    Ok(None) => {
                        drop(holder);
                        let _ = rustix::io::read(&held, &mut [0_u8; 1][..]);
                        let own = rustix::process::getpid().as_raw_nonzero().get();
                        let _ = rustix::io::write(&writer, &own.to_ne_bytes());
                        exit_now(0)
                    }
                    Ok(Some(apart)) => {
                        if has_children() {
                            return 1;
                        }
                        drop((holder, writer));
                        let mut own = [0; 4];
                        let _ = rustix::io::read(&reader, &mut own[..]);
                        let kept = rustix::process::child_subreaper().is_ok_and(|s| s.is_some());
                        let told = i32::from_ne_bytes(own) == apart.as_raw_nonzero().get();
                        i32::from(!told) * 2 + i32::from(kept != adopts) * 4
                    }
                    Err(errno) => errno.raw_os_error(),
                }
            });
            assert_eq!(report.unwrap().ended, crate::probe::Ended::Exited(0), "{adopts}");
        }
    }

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
