//! The process title, inherited descriptors, signals of any number.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_long};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::process::Pid;

unsafe extern "C" {
    fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn getpgid(pid: c_int) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
}

const F_GETFD: c_int = 1;
const FD_CLOEXEC: c_int = 1;
/// The call's number, the same on every architecture.
const SYS_PIDFD_SEND_SIGNAL: c_long = 424;

/// A numeric field of `/proc/self/stat`, counted from 1 as in proc(5).
pub(crate) fn stat_field(number: usize) -> Option<u64> {
    let text = crate::life::stat(std::process::id())?;
    let after = text.iter().rposition(|&byte| byte == b')')? + 2;
    let field = text.get(after..)?.split(|&byte| byte == b' ').nth(number - 3)?;
    std::str::from_utf8(field).ok()?.trim().parse().ok()
}

/// Changes the command name (at most 15 bytes) and the argument line that `ps` shows.
///
/// Overwrites the arguments in the memory where the kernel put them, so `std::env::args` must not
/// be read afterwards. Best effort: without `/proc` only the name changes.
pub fn set_title(name: &str, line: &str) {
    if let Ok(text) = std::ffi::CString::new(name) {
        let _ = rustix::thread::set_name(&text);
    }
    let Some((target, space)) = arguments() else { return };
    let length = line.len().min(space - 1);
    // A last byte that is not zero tells the kernel that the text ends at its first zero (see
    // `get_mm_proctitle` in fs/proc/base.c); otherwise readers get the whole area.
    //
    // SAFETY: the area is as `arguments` says. No other code reads it, since the process has one
    // thread and calls this after `fork`. `length < space`, so the last byte never belongs to the
    // text.
    unsafe {
        std::ptr::write_bytes(target, 0, space);
        std::ptr::copy_nonoverlapping(line.as_ptr(), target, length);
        if length + 1 < space {
            target.add(space - 1).write(b' ');
        }
    }
}

/// Where the kernel has put this process's words, each with a zero behind it, and how many bytes
/// they are: mapped and writable, on the initial stack.
fn arguments() -> Option<(*mut u8, usize)> {
    let [start, end] = [stat_field(48)?, stat_field(49)?].map(usize::try_from);
    let (start, end) = (start.ok()?, end.ok()?);
    let is_there = start != 0 && end > start + 1;
    is_there.then(|| (std::ptr::with_exposed_provenance_mut(start), end - start))
}

/// Overwrites the ends of some of this process's words, by their places: all but so many bytes.
pub(crate) fn overwrite_arguments(ends: &BTreeMap<usize, usize>) {
    let Some((area, space)) = arguments() else { return };
    // SAFETY: the area is as `arguments` says. What reads it besides is `std::env::args`, which
    // copies bytes, and zeros stay where they are. The process has one thread.
    let area = unsafe { std::slice::from_raw_parts_mut(area, space) };
    for (at, word) in area.split_mut(|byte| *byte == 0).enumerate() {
        if let Some(end) = ends.get(&at).and_then(|shown| word.get_mut(*shown..)) {
            end.fill(b'*');
        }
    }
}

/// Closes every descriptor from 3 up that is not marked close-on-exec.
///
/// Rust marks the descriptors that it opens, so the others are inherited; a daemon that kept them
/// would hold a script's pipes open. Best effort: needs `/proc/self/fd`.
pub fn close_foreign() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<i32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&number| number > 2)
        .collect();
    for number in numbers {
        // SAFETY: F_GETFD on a number that may be closed by now only fails.
        let flags = unsafe { fcntl(number, F_GETFD) };
        if flags >= 0 && flags & FD_CLOEXEC == 0 {
            // SAFETY: no object of this process owns it: std and rustix (as used here) open
            // everything close-on-exec.
            unsafe { close(number) };
        }
    }
}

/// `kill(2)` for any signal number, real-time ones too (`rustix` has those only as unsafe
/// functions). Number 0 only checks that the process exists and may be signalled.
pub fn send_signal(pid: Pid, number: i32) -> io::Result<()> {
    // SAFETY: `kill` has no preconditions; a `Pid` is positive, so this is one process.
    if unsafe { kill(pid.as_raw_nonzero().get(), number) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sends a signal to all processes of a process group.
///
/// # Panics
/// For group 1: `kill(2)` takes -1 for all processes.
pub fn send_signal_to_group(group: Pid, number: i32) -> io::Result<()> {
    assert_ne!(group, Pid::INIT, "one group was meant");
    // SAFETY: `kill` has no preconditions; a `Pid` is positive, so minus that is one group.
    if unsafe { kill(-group.as_raw_nonzero().get(), number) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// `pidfd_send_signal(2)` for any signal number (Linux 5.1, else `ENOSYS`).
pub fn send_signal_fd(process: impl AsFd, number: i32) -> io::Result<()> {
    let fd = c_long::from(process.as_fd().as_raw_fd());
    let none: *const u8 = std::ptr::null();
    // SAFETY: the descriptor is live; no siginfo, no flags.
    let done = unsafe { syscall(SYS_PIDFD_SEND_SIGNAL, fd, c_long::from(number), none, 0_u64) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The process group of a process (`None`: the caller). 0 if the group leader is outside this pid
/// namespace, which `rustix` excludes; -1 if there is no such process.
pub fn group_of(pid: Option<Pid>) -> i32 {
    // SAFETY: `getpgid` has no preconditions.
    unsafe { getpgid(pid.map_or(0, |pid| pid.as_raw_nonzero().get())) }
}
