//! Child processes that try something and are thrown away.
//!
//! A feature of the kernel is tested by using it: making a namespace, installing a filter,
//! mounting. All of that changes the process permanently, so a child does it and only reports the
//! result. [`Child::spawn`] forks, the closure runs, its result is the exit status, the bytes that
//! it sends through its [`Link`] come back over a pipe, and a child that hangs is killed.
//!
//! The [`Link`] is also the permission: the calls that must never be made in the caller itself
//! (`unshare`, installing filters) are methods of it, and only a child has one.
//!
//! The caller may have threads. The child has only the one that forked, so the closure must not
//! take locks that another thread may hold: no printing, no logging. It may allocate memory: the C
//! library resets its allocator's locks at `fork`.
//!
//! # Safety
//! `fork` is the C library's, not the raw system call, because of those locks.

pub mod filter;
pub mod trace;

use std::ffi::c_int;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};
use rustix::thread::UnshareFlags;

unsafe extern "C" {
    fn fork() -> c_int;
    fn _exit(code: c_int) -> !;
}

/// Limit in bytes of what a child sends; more is cut off.
const OUTPUT_LIMIT: usize = 64 << 10;

/// The exit status of a child whose closure panicked.
pub const PANICKED: i32 = 101;

/// The way in which a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It returned, with this status.
    Exited(i32),
    /// This signal ended it.
    Killed(i32),
    /// It took too long and was killed.
    TimedOut,
}

/// The end of a child, and the bytes that it sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The way in which it ended.
    pub ended: Ended,
    /// The bytes that it sent.
    pub output: Vec<u8>,
}

/// The child's side: proof of being in a child, and the means to send bytes.
#[derive(Debug)]
pub struct Link {
    output: OwnedFd,
    go: OwnedFd,
}

impl Link {
    /// Sends bytes to the parent. If the parent does not listen any more they are lost.
    pub fn send(&self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Ok(written @ 1..) = rustix::io::write(&self.output, rest) {
            rest = &rest[written..];
        }
    }

    /// Waits until [`Child::go`] is called. Returns false if the parent has abandoned the child.
    pub fn wait_go(&self) -> bool {
        let mut byte = [0];
        loop {
            match rustix::io::read(&self.go, &mut byte) {
                Err(Errno::INTR) => {}
                other => return other == Ok(1),
            }
        }
    }

    /// Moves this child into new namespaces. See unshare(2).
    ///
    /// # Errors
    /// Those of unshare(2), and `EINVAL` for `CLONE_FILES`, which is not a namespace.
    pub fn unshare(&self, namespaces: UnshareFlags) -> Result<(), Errno> {
        if namespaces.contains(UnshareFlags::FILES) {
            return Err(Errno::INVAL);
        }
        // SAFETY: only an unshared descriptor table makes this unsafe, and that was excluded above.
        unsafe { rustix::thread::unshare_unsafe(namespaces) }
    }
}

/// A running child.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    output: OwnedFd,
    go: Option<OwnedFd>,
    reaped: bool,
}

impl Child {
    /// Forks; the closure runs in the child, and its result is the exit status (0 to 255).
    ///
    /// The child dies with the calling thread.
    ///
    /// # Errors
    /// `EMFILE` for the pipes, `EAGAIN` and `ENOMEM` for the process.
    pub fn spawn(body: impl FnOnce(&Link) -> i32) -> io::Result<Child> {
        let (output, child_output) = pipe_with(PipeFlags::CLOEXEC)?;
        let (child_go, go) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: the C library's fork leaves its own state (allocator, threads) consistent in the
        // child. The child runs `body` only and never returns into frames of the caller: see
        // `_exit` below.
        match unsafe { fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop((output, go));
                // The parent may have died already; then its pipes are closed, and every wait ends.
                let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
                let link = Link { output: child_output, go: child_go };
                let run = std::panic::AssertUnwindSafe(|| body(&link));
                // The panic hook would print, and take a lock that no living thread may ever
                // release.
                std::panic::set_hook(Box::new(|_| {}));
                let code = std::panic::catch_unwind(run).unwrap_or(PANICKED);
                // SAFETY: `_exit` has no preconditions. No destructor of the caller's frames runs
                // here.
                unsafe { _exit(code) }
            }
            number => {
                let pid = Pid::from_raw(number).ok_or(io::ErrorKind::Other)?;
                Ok(Child { pid, output, go: Some(go), reaped: false })
            }
        }
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets a child continue that waits in [`Link::wait_go`].
    pub fn go(&mut self) {
        if let Some(go) = self.go.take() {
            // `finish` handles a child that has ended already.
            let _ = rustix::io::write(&go, b"g");
        }
    }

    /// Waits until the child has sent bytes; empty if it ended, or sent nothing before the
    /// deadline.
    pub fn receive(&self, deadline: Instant) -> Vec<u8> {
        let mut buffer = vec![0; 4096];
        if wait_readable(&self.output, deadline)
            && let Ok(length) = rustix::io::read(&self.output, &mut buffer)
        {
            buffer.truncate(length);
            return buffer;
        }
        Vec::new()
    }

    /// Waits for the end; kills the child at the deadline.
    ///
    /// # Errors
    /// `ECHILD` if it was reaped already, as happens if `SIGCHLD` is ignored.
    pub fn finish(self, deadline: Instant) -> io::Result<Report> {
        self.finish_with(deadline, &mut |_| None)
    }

    /// The same, with more time where `more` gives a later deadline. It is asked at each.
    ///
    /// # Errors
    /// As [`Child::finish`].
    pub fn finish_with(
        mut self,
        mut deadline: Instant,
        more: &mut dyn FnMut(Pid) -> Option<Instant>,
    ) -> io::Result<Report> {
        // Ends the wait of a child that still waits for its go.
        self.go = None;
        let mut output = Vec::new();
        let mut timed_out = false;
        loop {
            if !wait_readable(&self.output, deadline) {
                if let Some(later) = more(self.pid) {
                    deadline = later;
                    continue;
                }
                timed_out = true;
                break;
            }
            let part = self.receive(deadline);
            if part.is_empty() || output.len() + part.len() > OUTPUT_LIMIT {
                break;
            }
            output.extend(part);
        }
        if timed_out {
            let _ = kill_process(self.pid, Signal::KILL);
        }
        let mut never = |_| None;
        let (status, late) = self.reap(deadline, if timed_out { &mut never } else { more })?;
        let ended = match (status.exit_status(), status.terminating_signal()) {
            _ if timed_out || late => Ended::TimedOut,
            (Some(code), _) => Ended::Exited(code),
            (None, signal) => Ended::Killed(signal.unwrap_or(0)),
        };
        Ok(Report { ended, output })
    }

    /// Reaps the child. The pipe closes a moment before the process ends, unless an `exec` closed
    /// it. Also returns true if the deadline passed.
    fn reap(
        &mut self,
        mut deadline: Instant,
        more: &mut dyn FnMut(Pid) -> Option<Instant>,
    ) -> io::Result<(WaitStatus, bool)> {
        let mut late = false;
        loop {
            match waitpid(Some(self.pid), WaitOptions::NOHANG) {
                Ok(Some((_, status))) => {
                    self.reaped = true;
                    return Ok((status, late));
                }
                Ok(None) => {
                    if Instant::now() >= deadline && !late {
                        if let Some(later) = more(self.pid) {
                            deadline = later;
                        } else {
                            late = true;
                            let _ = kill_process(self.pid, Signal::KILL);
                        }
                    }
                    std::thread::sleep(Duration::from_micros(100));
                }
                Err(Errno::INTR) => {}
                Err(errno) => {
                    self.reaped = true;
                    return Err(errno.into());
                }
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = kill_process(self.pid, Signal::KILL);
            let _ = waitpid(Some(self.pid), WaitOptions::empty());
        }
    }
}

/// Runs a closure in a child and reports its end.
///
/// # Errors
/// Those of [`Child::spawn`] and [`Child::finish`].
pub fn in_child(timeout: Duration, body: impl FnOnce(&Link) -> i32) -> io::Result<Report> {
    Child::spawn(body)?.finish(Instant::now() + timeout)
}

fn wait_readable(descriptor: &OwnedFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            Ok(0) | Err(_) => return false,
            Ok(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_child_reports() {
        let report = in_child(LONG, |link| {
            link.send(b"hello");
            7
        })
        .unwrap();
        assert_eq!(report, Report { ended: Ended::Exited(7), output: b"hello".to_vec() });
    }

    #[test]
    fn a_panic_stays_in_the_child() {
        let report = in_child(LONG, |_| panic!("in the child")).unwrap();
        assert_eq!(report.ended, Ended::Exited(PANICKED));
    }

    #[test]
    fn a_child_that_hangs_is_killed() {
        let report = in_child(Duration::from_millis(50), |_| {
            std::thread::sleep(Duration::from_mins(10));
            0
        })
        .unwrap();
        assert_eq!(report.ended, Ended::TimedOut);
    }

    #[test]
    fn a_program_that_hangs_is_killed_though_its_pipe_is_closed() {
        use std::os::unix::process::CommandExt as _;
        let report = in_child(Duration::from_millis(500), |_| {
            let _never = std::process::Command::new("sleep").arg("600").exec();
            0
        })
        .unwrap();
        assert_eq!(report.ended, Ended::TimedOut);
    }

    #[test]
    fn a_child_may_get_more_time() {
        use std::os::unix::process::CommandExt as _;
        let short = || Instant::now() + Duration::from_millis(20);
        let asleep: fn(&Link) -> i32 = |_| {
            std::thread::sleep(Duration::from_millis(200));
            3
        };
        let program: fn(&Link) -> i32 = |_| {
            let _never = std::process::Command::new("sh").args(["-c", "sleep 0.2; exit 3"]).exec();
            0
        };
        for body in [asleep, program] {
            let mut asked = 0;
            let child = Child::spawn(body).unwrap();
            let report = child.finish_with(short(), &mut |_| {
                asked += 1;
                Some(short())
            });
            assert!(report.unwrap().ended == Ended::Exited(3) && asked > 0);
        }
    }

    #[test]
    fn a_signal_is_reported() {
        let report = in_child(LONG, |_| {
            let _ = kill_process(rustix::process::getpid(), Signal::TERM);
            std::thread::sleep(LONG);
            0
        })
        .unwrap();
        assert_eq!(report.ended, Ended::Killed(Signal::TERM.as_raw()));
    }

    #[test]
    fn a_child_waits_for_go() {
        let deadline = Instant::now() + LONG;
        let mut child = Child::spawn(|link| {
            link.send(b"ready");
            i32::from(!link.wait_go())
        })
        .unwrap();
        assert_eq!(child.receive(deadline), b"ready");
        child.go();
        assert_eq!(child.finish(deadline).unwrap().ended, Ended::Exited(0));

        let given_up = Child::spawn(|link| i32::from(!link.wait_go())).unwrap();
        assert_eq!(given_up.finish(deadline).unwrap().ended, Ended::Exited(1));
    }

    #[test]
    fn the_caller_is_not_changed() {
        let before = std::fs::read_link("/proc/self/ns/uts").unwrap();
        let _ = in_child(LONG, |link| {
            let flags = UnshareFlags::NEWUSER | UnshareFlags::NEWUTS;
            i32::from(link.unshare(flags).is_err())
        });
        assert_eq!(std::fs::read_link("/proc/self/ns/uts").unwrap(), before);
    }
}
