//! Seccomp filters in probe children, to test the kernel's mechanism.
//!
//! The filters here catch one harmless call, `getpgid`. They are independent of the filters of
//! containers, because they are also tried if those fail. See seccomp(2), `seccomp_unotify`(2).
//!
//! # Safety
//! The kernel copies the program during the call; it keeps no pointer into this process.

use std::ffi::{c_int, c_long, c_ulong};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use linux_raw_sys::general::__NR_getpgid;
use linux_raw_sys::ptrace::{
    SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_TRAP,
    SECCOMP_RET_USER_NOTIF, sock_filter, sock_fprog,
};

use super::{Child, Link};
use crate::seccomp::set_program;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn ioctl(descriptor: c_int, request: c_ulong, ...) -> c_int;
}

/// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`, since 5.19.
pub const WAIT_KILLABLE_RECV: u32 = 1 << 5;

/// Effect of the filter on `getpgid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It fails with this errno.
    Fail(u16),
    /// It raises SIGSYS.
    Trap,
    /// A listener decides.
    Notify,
}

/// Answer of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// This result, without making the call.
    Result(i64),
    /// The call is made (`SECCOMP_USER_NOTIF_FLAG_CONTINUE`, since 5.5).
    Continue,
}

impl Link {
    /// Installs a filter in this child, permanently. Returns a listener for [`Action::Notify`].
    ///
    /// # Errors
    /// `EINVAL` if the kernel lacks filters, the action or a flag; `EPERM`, `EACCES` or `ENOSYS` if
    /// an outer filter refuses.
    pub fn filter(&self, action: Action, further_flags: u32) -> io::Result<Option<OwnedFd>> {
        rustix::thread::set_no_new_privs(true)?;
        let (verdict, flags) = match action {
            Action::Fail(errno) => (SECCOMP_RET_ERRNO | u32::from(errno), 0),
            Action::Trap => (SECCOMP_RET_TRAP, 0),
            Action::Notify => (SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER),
        };
        let mut program = catch_getpgid(verdict);
        let program = sock_fprog { len: 4, filter: program.as_mut_ptr() };
        // SAFETY: `program` describes four instructions, and both outlive the call.
        let result =
            unsafe { set_program(&raw const program as usize, (flags | further_flags) as usize)? };
        match action {
            // SAFETY: with NEW_LISTENER the result is a new descriptor that nothing else owns.
            Action::Notify => Ok(Some(unsafe { OwnedFd::from_raw_fd(result as c_int) })),
            _ => Ok(None),
        }
    }

    /// Under a [`Action::Notify`] filter: lets a grandchild make the caught call, answers it once
    /// through the listener, and returns the grandchild's result.
    ///
    /// # Errors
    /// Those of the fork and of the two ioctls.
    pub fn answer_once(&self, listener: &OwnedFd, answer: Answer) -> io::Result<Result<i64, i32>> {
        let caller = Child::spawn(|link| {
            let got = call_caught().unwrap_or_else(|errno| -i64::from(errno));
            link.send(&got.to_ne_bytes());
            0
        })?;
        receive_and_answer(listener, answer)?;
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(2);
        let output = caller.finish(deadline)?.output;
        let got = i64::from_ne_bytes(output.try_into().map_err(|_| io::ErrorKind::UnexpectedEof)?);
        Ok(if got < 0 { Err(-got as i32) } else { Ok(got) })
    }
}

/// Makes the call that the filters catch.
///
/// # Errors
/// The errno that the filter returns.
pub fn call_caught() -> Result<i64, i32> {
    // SAFETY: getpgid(0) takes no pointer and changes nothing.
    match unsafe { syscall(c_long::from(__NR_getpgid), 0 as c_long) } {
        -1 => Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        value => Ok(value),
    }
}

fn receive_and_answer(listener: &OwnedFd, answer: Answer) -> io::Result<()> {
    /// `_IOWR('!', 0, struct seccomp_notif)` and `_IOWR('!', 1, struct seccomp_notif_resp)`.
    const RECEIVE: c_ulong = 0xc050_2100;
    const SEND: c_ulong = 0xc018_2101;
    // 80 bytes, of which the first eight are the id; the kernel requires zeroes.
    let mut notification = [0_u64; 10];
    // SAFETY: the buffer has the size that the request's number encodes, and lives during the call.
    if unsafe { ioctl(listener.as_raw_fd(), RECEIVE, notification.as_mut_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // id, value, and error (low half) with flags (high half).
    let mut response = match answer {
        Answer::Result(value) => [notification[0], value as u64, 0],
        Answer::Continue => [notification[0], 0, 1 << 32],
    };
    // SAFETY: the buffer has 24 bytes, as the request's number encodes, and lives during the call.
    if unsafe { ioctl(listener.as_raw_fd(), SEND, response.as_mut_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// `if nr == getpgid { verdict } else { allow }`. The architecture is not checked: the process
/// makes only native calls of its own.
fn catch_getpgid(verdict: u32) -> [sock_filter; 4] {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    [
        sock_filter { code: LOAD_WORD, jt: 0, jf: 0, k: 0 },
        sock_filter { code: JUMP_IF_EQUAL, jt: 0, jf: 1, k: __NR_getpgid },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: verdict },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: SECCOMP_RET_ALLOW },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Ended, in_child};
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_call_fails_as_filtered() {
        let report = in_child(LONG, |link| match link.filter(Action::Fail(77), 0) {
            Ok(_) => i32::from(call_caught() != Err(77)),
            Err(_) => 2,
        })
        .unwrap();
        assert_eq!(report.ended, Ended::Exited(0));
    }

    #[test]
    fn a_filter_without_the_call_of_its_own() {
        const NOT_KNOWN: u32 = 38;
        let report = in_child(LONG, |link| {
            let mut old = catch_getpgid(SECCOMP_RET_ERRNO | NOT_KNOWN);
            old[1].k = linux_raw_sys::general::__NR_seccomp;
            let program = sock_fprog { len: 4, filter: old.as_mut_ptr() };
            if rustix::thread::set_no_new_privs(true).is_err() {
                return 2;
            }
            // SAFETY: as in `Link::filter`: program and instructions outlive the call.
            if unsafe { set_program(&raw const program as usize, 0) }.is_err() {
                return 3;
            }
            let noted = link.filter(Action::Notify, 0).is_ok();
            let caught = link.filter(Action::Fail(77), 0).is_ok() && call_caught() == Err(77);
            i32::from(noted || !caught)
        })
        .unwrap();
        assert_eq!(report.ended, Ended::Exited(0));
    }

    #[test]
    fn a_trap_is_a_signal() {
        let report = in_child(LONG, |link| {
            let _ = link.filter(Action::Trap, 0);
            let _ = call_caught();
            0
        })
        .unwrap();
        assert_eq!(report.ended, Ended::Killed(31), "SIGSYS");
    }

    #[test]
    fn a_listener_answers() {
        let report = in_child(LONG, |link| {
            let Ok(Some(listener)) = link.filter(Action::Notify, 0) else { return 2 };
            if !matches!(link.answer_once(&listener, Answer::Result(4711)), Ok(Ok(4711))) {
                return 3;
            }
            i32::from(!matches!(link.answer_once(&listener, Answer::Continue), Ok(Ok(1..))))
        })
        .unwrap();
        assert_eq!(report.ended, Ended::Exited(0));
    }
}
