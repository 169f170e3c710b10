//! System call filters and their listener.
//!
//! A listener is a descriptor from which another process reads the calls that a filter holds back,
//! and through which it answers. See
//! [seccomp(2)](https://man7.org/linux/man-pages/man2/seccomp.2.html) and
//! [seccomp_unotify(2)](https://man7.org/linux/man-pages/man2/seccomp_unotify.2.html).
//!
//! The memory of a waiting process may change at any time, and the process may have ended: facts
//! about it are only valid if [`Listener::is_waiting`] is true after they were read.

use crate::raw;
use abi::bpf::Instruction;
use linux_raw_sys::general as numbers;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const SET_MODE_FILTER: usize = 1;
const FLAG_SPEC_ALLOW: usize = 1 << 2;
const FLAG_NEW_LISTENER: usize = 1 << 3;
const FLAG_WAIT_KILLABLE_RECV: usize = 1 << 5;
const RECV: usize = 0xc050_2100;
const SEND: usize = 0xc018_2101;
const ID_VALID: usize = 0x4008_2102;
const SET_FLAGS: usize = 0x4008_2104;
const SYNC_WAKE_UP: usize = 1;
/// Lets the waiting call continue as if there were no filter.
const CONTINUE: u32 = 1;

/// `struct sock_fprog`.
#[repr(C)]
struct Program {
    length: u16,
    instructions: *const Instruction,
}

fn set_filter(program: &[Instruction], flags: usize) -> Result<usize, Errno> {
    let length = u16::try_from(program.len()).map_err(|_| Errno::INVAL)?;
    let program = Program { length, instructions: program.as_ptr() };
    // SAFETY: `program` and the instructions that it points to live until the call returns.
    unsafe { set_program(&raw const program as usize, flags) }
}

/// Installs the filter of a `struct sock_fprog`. Before Linux 3.17 `prctl` did that, without flags.
///
/// # Safety
/// The structure and its instructions must live until the call returns.
pub(crate) unsafe fn set_program(program: usize, flags: usize) -> Result<usize, Errno> {
    const PR_SET_SECCOMP: usize = 22;
    const SECCOMP_MODE_FILTER: usize = 2;
    // SAFETY: the caller guarantees that the structure and its instructions live during the calls;
    // the other arguments are integers.
    unsafe {
        match raw::call(numbers::__NR_seccomp, [SET_MODE_FILTER, flags, program, 0, 0]) {
            Err(Errno::NOSYS) if flags == 0 => {
                raw::call(numbers::__NR_prctl, [PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0])
            }
            result => result,
        }
    }
}

/// Installs a filter for this thread and all its descendants, permanently.
pub fn install(program: &[Instruction]) -> Result<(), Errno> {
    // Without the flag kernels before 5.16 slow every filtered process down against Spectre v4.
    match set_filter(program, FLAG_SPEC_ALLOW) {
        Err(Errno::INVAL | Errno::NOSYS) => set_filter(program, 0).map(drop),
        result => result.map(drop),
    }
}

/// Installs a filter with a listener.
///
/// If the kernel supports it (5.19), a call whose handling has begun is only interrupted by a fatal
/// signal: otherwise programs with many signals repeat calls that were already done.
pub fn install_with_listener(program: &[Instruction]) -> Result<Listener, Errno> {
    let flags = FLAG_NEW_LISTENER | FLAG_SPEC_ALLOW;
    let descriptor = match set_filter(program, flags | FLAG_WAIT_KILLABLE_RECV) {
        Err(Errno::INVAL) => set_filter(program, flags)?,
        result => result?,
    };
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(Listener(unsafe { OwnedFd::from_raw_fd(descriptor as i32) }))
}

/// The descriptor to read the calls from that a filter holds back.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// A call that waits for an answer: `struct seccomp_notif`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Waiting {
    /// Identifies this call in answers.
    pub id: u64,
    /// The calling thread in this pid namespace; 0 if it is not visible there.
    pub thread: u32,
    flags: u32,
    /// Number of the call.
    pub number: i32,
    /// `AUDIT_ARCH_*`.
    pub architecture: u32,
    /// Instruction pointer.
    pub pointer: u64,
    /// Arguments.
    pub arguments: [u64; 6],
}

#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// Result of the waiting call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// This value.
    Value(i64),
    /// This error.
    Error(Errno),
    /// The kernel makes the call, with the arguments as they are *then*.
    Continue,
}

impl Listener {
    /// Takes over a descriptor that another process sent.
    pub fn from_fd(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Requests wake-ups on the processor of the waiting thread (6.6), which are several times
    /// faster.
    pub fn wake_up_here(&self) -> Result<(), Errno> {
        self.ioctl(SET_FLAGS, SYNC_WAKE_UP).map(drop)
    }

    /// Waits for the next call. `NOENT`: the caller has ended meanwhile, call again.
    pub fn receive(&self) -> Result<Waiting, Errno> {
        let mut waiting = Waiting::default();
        self.ioctl(RECV, &raw mut waiting as usize)?;
        Ok(waiting)
    }

    /// Answers a call. `NOENT`: the call does not wait any more.
    pub fn answer(&self, id: u64, answer: Answer) -> Result<(), Errno> {
        let (value, error, flags) = match answer {
            Answer::Value(value) => (value, 0, 0),
            Answer::Error(errno) => (0, -errno.raw_os_error(), 0),
            Answer::Continue => (0, 0, CONTINUE),
        };
        let mut response = Response { id, value, error, flags };
        self.ioctl(SEND, &raw mut response as usize).map(drop)
    }

    /// Returns true if the call still waits, so that facts read about its process belong to that
    /// process.
    pub fn is_waiting(&self, id: u64) -> bool {
        self.ioctl(ID_VALID, &raw const id as usize).is_ok()
    }

    fn ioctl(&self, number: usize, argument: usize) -> Result<usize, Errno> {
        // SAFETY: every caller passes a pointer to memory that the request reads or writes, of the
        // size that its number encodes.
        unsafe {
            raw::call(numbers::__NR_ioctl, [self.0.as_raw_fd() as usize, number, argument, 0, 0])
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

const _: () = assert!(size_of::<Waiting>() == 80 && size_of::<Response>() == 24);
