//! Signal sets, the thread's mask and `signalfd(2)`.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// glibc's `sigset_t`: 1,024 bits, of which Linux uses the first 64.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SignalSet {
    words: [u64; 16],
}

unsafe extern "C" {
    fn pthread_sigmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
    fn signalfd(fd: c_int, mask: *const SignalSet, flags: c_int) -> c_int;
    fn signal(number: c_int, handler: usize) -> usize;
    fn raise(number: c_int) -> c_int;
    fn sigaction(number: c_int, action: *const Action, old: *mut Action) -> c_int;
}

/// glibc's `struct sigaction`.
#[repr(C)]
struct Action {
    handler: usize,
    mask: SignalSet,
    flags: c_int,
    restorer: usize,
}

const SIG_BLOCK: c_int = 0;
const SIG_UNBLOCK: c_int = 1;
const SIG_SETMASK: c_int = 2;
const SFD_NONBLOCK: c_int = 0o4000;
const SFD_CLOEXEC: c_int = 0o2_000_000;
const SIGCHLD: c_int = 17;
const SIG_DFL: usize = 0;
const SIG_IGN: usize = 1;

impl SignalSet {
    /// The set with no signal in it.
    pub const fn empty() -> Self {
        Self { words: [0; 16] }
    }

    /// The set of these signal numbers; numbers outside 1..=64 are left out.
    pub fn of(numbers: &[i32]) -> Self {
        let mut set = Self::empty();
        for &number in numbers {
            if (1..=64).contains(&number) {
                set.words[0] |= 1 << (number - 1);
            }
        }
        set
    }

    /// Returns true if the set has this signal.
    pub fn contains(&self, number: i32) -> bool {
        (1..=64).contains(&number) && self.words[0] & (1 << (number - 1)) != 0
    }
}

fn change_mask(how: c_int, set: &SignalSet) -> io::Result<SignalSet> {
    let mut old = SignalSet::empty();
    // SAFETY: both pointers are to live `SignalSet`s, which have the layout of `sigset_t`.
    let error = unsafe { pthread_sigmask(how, set, &raw mut old) };
    if error == 0 { Ok(old) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Blocks no signal in the calling thread: for a process that has its caller's mask, and for a
/// child before it executes a program, which would inherit it. Makes one system call and nothing
/// else.
///
/// # Errors
/// Those of `pthread_sigmask(3)`, which has none for this.
pub fn block_none() -> io::Result<()> {
    change_mask(SIG_SETMASK, &SignalSet::empty()).map(drop)
}

/// Signals that are blocked for this thread until the guard is dropped.
pub struct MaskGuard {
    before: SignalSet,
    blocked: SignalSet,
}

impl MaskGuard {
    /// Adds `set` to the calling thread's mask.
    pub fn block(set: SignalSet) -> io::Result<Self> {
        Ok(Self { before: change_mask(SIG_BLOCK, &set)?, blocked: set })
    }

    /// Runs `work` with the mask from before the guard, so that children made by it inherit that
    /// mask.
    ///
    /// A signal that arrives meanwhile neither ends this process nor is lost: it is recorded, and
    /// pending again afterwards. Children get default dispositions when they execute a program.
    pub fn suspended<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        let noted: Vec<c_int> = (1..=64)
            .filter(|&number| number != SIGCHLD && self.blocked.contains(number))
            .filter(|&number| {
                // SAFETY: the handler `note` has the required signature and only touches an atomic,
                // which is async-signal-safe.
                let before = unsafe { signal(number, note as *const () as usize) };
                if before != SIG_DFL && before != usize::MAX {
                    // SAFETY: restores the disposition that `signal` has just returned.
                    unsafe { signal(number, before) };
                }
                before == SIG_DFL
            })
            .collect();
        change_mask(SIG_SETMASK, &self.before)?;
        let out = work();
        change_mask(SIG_BLOCK, &self.blocked)?;
        let seen = NOTED.swap(0, Ordering::Relaxed);
        for number in noted {
            // SAFETY: SIG_DFL installs no handler; `raise` takes no pointer.
            unsafe {
                signal(number, SIG_DFL);
                if seen & (1 << (number - 1)) != 0 {
                    raise(number);
                }
            }
        }
        Ok(out)
    }
}

/// Signals that arrived while a mask was suspended, one bit each.
static NOTED: AtomicU64 = AtomicU64::new(0);

extern "C" fn note(number: c_int) {
    NOTED.fetch_or(1 << (number - 1), Ordering::Relaxed);
}

impl Drop for MaskGuard {
    fn drop(&mut self) {
        let _ = change_mask(SIG_SETMASK, &self.before);
    }
}

/// One signal read from a [`SignalFd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The signal's number.
    pub number: i32,
    /// `si_code`: positive if the kernel sent it (a key on the terminal), zero or less if a process
    /// sent it.
    pub code: i32,
    /// The sender's process id, if a process sent it.
    pub pid: i32,
}

impl Received {
    /// Returns true if the kernel sent it (the terminal driver, for the whole foreground group) and
    /// not a process by `kill(2)`.
    pub fn from_kernel(&self) -> bool {
        self.code > 0
    }
}

/// Blocked signals as a descriptor. Close-on-exec and non-blocking.
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Opens a descriptor for `set`. The caller must block the set (see [`MaskGuard::block`]).
    pub fn new(set: SignalSet) -> io::Result<Self> {
        // SAFETY: `set` is a live `sigset_t` that the call only reads; -1 requests a new
        // descriptor.
        let fd = unsafe { signalfd(-1, &raw const set, SFD_NONBLOCK | SFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next pending signal, `None` if there is none now.
    pub fn next(&self) -> io::Result<Option<Received>> {
        // `struct signalfd_siginfo` is 128 bytes: ssi_signo, ssi_errno, ssi_code, ssi_pid, ...
        let mut info = [0_u8; 128];
        match rustix::io::read(&self.0, &mut info) {
            Ok(128) => {
                let word = |at: usize| {
                    i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]])
                };
                Ok(Some(Received { number: word(0), code: word(8), pid: word(12) }))
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for the next signal, for so long at most. `None` if there is none then.
    ///
    /// # Errors
    /// As [`SignalFd::next`].
    pub fn next_within(&self, time: Duration) -> io::Result<Option<Received>> {
        let time = Timespec::try_from(time).ok();
        let _ = poll(&mut [PollFd::new(self, PollFlags::IN)], time.as_ref());
        self.next()
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for SignalFd {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// Sets a signal's disposition to "ignore" (`true`) or to the default (`false`).
pub fn set_ignored(number: i32, ignored: bool) -> io::Result<()> {
    // SAFETY: SIG_IGN and SIG_DFL install no handler.
    let before = unsafe { signal(number, if ignored { SIG_IGN } else { SIG_DFL }) };
    if before == usize::MAX { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns true if the process ignores a signal.
///
/// # Errors
/// EINVAL for an invalid signal number.
pub fn is_ignored(number: i32) -> io::Result<bool> {
    let mut now = Action { handler: SIG_DFL, mask: SignalSet::empty(), flags: 0, restorer: 0 };
    // SAFETY: the new action is null, so nothing is changed; `now` is live and has the layout of
    // `struct sigaction`.
    let error = unsafe { sigaction(number, std::ptr::null(), &raw mut now) };
    if error == 0 { Ok(now.handler == SIG_IGN) } else { Err(io::Error::last_os_error()) }
}

/// Sends the calling process a signal with its default effect, whatever the mask: used to stop with
/// the caller's job, or to die by the signal that killed the program.
///
/// Returns when the effect is over (a stopped process was continued) or if there was none.
pub fn raise_default(number: i32) -> io::Result<()> {
    // SAFETY: SIG_DFL installs no handler.
    let before = unsafe { signal(number, SIG_DFL) };
    // SAFETY: `raise` takes no pointer.
    if unsafe { raise(number) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let set = SignalSet::of(&[number]);
    let mask = change_mask(SIG_UNBLOCK, &set)?;
    change_mask(SIG_SETMASK, &mask)?;
    if before == SIG_IGN {
        set_ignored(number, true)?;
    }
    Ok(())
}

/// The code above depends on these layouts.
const _: () = assert!(size_of::<SignalSet>() == 128 && size_of::<*const c_void>() == 8);

#[cfg(test)]
mod tests {
    use super::*;

    const SIGUSR1: i32 = 10;
    const SIGUSR2: i32 = 12;

    #[test]
    fn is_ignored_reports_ignored_signals() {
        assert!(!is_ignored(SIGUSR2).unwrap());
        set_ignored(SIGUSR2, true).unwrap();
        assert!(is_ignored(SIGUSR2).unwrap());
        set_ignored(SIGUSR2, false).unwrap();
        assert!(!is_ignored(SIGUSR2).unwrap());
        assert!(is_ignored(0).is_err());
    }

    #[test]
    fn a_blocked_signal_is_read_from_the_descriptor() {
        let set = SignalSet::of(&[SIGUSR1]);
        let _guard = MaskGuard::block(set).unwrap();
        let signals = SignalFd::new(set).unwrap();
        assert_eq!(signals.next().unwrap(), None);
        // SAFETY: `raise` takes no pointer; the signal is blocked in this thread, so it stays
        // pending.
        assert_eq!(unsafe { raise(SIGUSR1) }, 0);
        let received = signals.next().unwrap().unwrap();
        assert_eq!(received.number, SIGUSR1);
        assert!(!received.from_kernel());
    }

    #[test]
    fn a_signal_during_suspension_is_pending_afterwards() {
        const SIGUSR2: i32 = 12;
        let set = SignalSet::of(&[SIGUSR2]);
        let guard = MaskGuard::block(set).unwrap();
        let signals = SignalFd::new(set).unwrap();
        // SAFETY: `raise` takes no pointer; the signal has a handler here.
        guard.suspended(|| unsafe { raise(SIGUSR2) }).unwrap();
        assert_eq!(signals.next().unwrap().map(|received| received.number), Some(SIGUSR2));
    }

    #[test]
    fn sets_hold_the_numbers_they_were_made_of() {
        let set = SignalSet::of(&[1, 64, 65, 0, -3]);
        assert!(set.contains(1) && set.contains(64));
        assert!(!set.contains(65) && !set.contains(0) && !set.contains(2));
    }
}
