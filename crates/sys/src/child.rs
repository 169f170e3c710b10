//! Starts programs that live no longer than the process that started them, or that get no signal
//! mask of it.
//!
//! [`apart`] prepares a [`Command`]. Its process is the first of a new session, so signals of the
//! caller's terminal do not reach it and one call reaches all that belongs to it. It blocks no
//! signal, whatever the caller does (`std` passes the mask on since 1.66), and does not ignore
//! SIGINT and SIGQUIT: a shell without job control has what it starts in the background ignore
//! them ([POSIX] 2.11), for the sake of its own terminal. The kernel sends it a signal when the
//! caller's *thread* ends (`PR_SET_PDEATHSIG`), however that ends: the thread that starts it must
//! live as long as it is wanted. [`dies_with`] does the same without a session, and [`unblocked`]
//! only clears the mask. [`unmoved`] is for work that must be finished: who asks for its end is not
//! heard.
//!
//! [POSIX]: https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html
//!
//! See [prctl(2)](https://man7.org/linux/man-pages/man2/prctl.2.html) and
//! [setsid(2)](https://man7.org/linux/man-pages/man2/setsid.2.html).

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::net::SendFlags;
use rustix::process::{Pid, Signal};

/// Puts the command's process into a session of its own. `end` is the signal that it gets when the
/// thread that spawns it ends; `None`: it outlives the caller.
///
/// # Errors
/// None here. Spawning fails with `ESRCH` if the caller has died in between.
pub fn apart(command: &mut Command, end: Option<Signal>) {
    prepare(command, Some(&DEFAULT), end);
}

/// Puts the command's process into a session of its own, which outlives the caller and ignores the
/// signals that ask for an end: SIGHUP, SIGINT, SIGQUIT, SIGTERM. What it starts inherits that. A
/// batch system sends them to all processes of a job, also to one that has just begun to clean up.
///
/// # Errors
/// As for [`apart`].
pub fn unmoved(command: &mut Command) {
    prepare(command, Some(&IGNORED), None);
}

/// What becomes of signals in a session of its own.
type Dispositions = [(Signal, bool)];

const DEFAULT: [(Signal, bool); 2] = [(Signal::INT, false), (Signal::QUIT, false)];
const IGNORED: [(Signal, bool); 4] =
    [(Signal::HUP, true), (Signal::INT, true), (Signal::QUIT, true), (Signal::TERM, true)];

/// Lets a command's process begin in the caller's session, with no signal blocked. It gets the
/// signal when the caller's *thread* ends, as for [`apart`].
///
/// # Errors
/// As for [`apart`].
pub fn dies_with(command: &mut Command, end: Signal) {
    prepare(command, None, Some(end));
}

fn prepare(command: &mut Command, session: Option<&'static Dispositions>, end: Option<Signal>) {
    let parent = rustix::process::getpid();
    let prepare = move || -> io::Result<()> {
        if let Some(dispositions) = session {
            rustix::process::setsid()?;
            // Before the mask goes: what arrives until then has its new effect.
            for &(signal, ignored) in dispositions {
                crate::event::set_ignored(signal.as_raw(), ignored)?;
            }
        }
        crate::event::block_none()?;
        if let Some(end) = end {
            rustix::process::set_parent_process_death_signal(Some(end))?;
            // A parent that died before the line above sends nothing any more.
            if rustix::process::getppid() != Some(parent) {
                return Err(io::Error::from(rustix::io::Errno::SRCH));
            }
        }
        Ok(())
    };
    // SAFETY: between `fork` and `execve` only system calls are made, by functions that allocate
    // nothing and take no lock: `io::Error::from` of an errno holds a number.
    unsafe { command.pre_exec(prepare) };
}

/// Has the command's process send a packet just before it executes its program: this letter and its
/// process id in four bytes, little-endian. So whoever reads the socket knows of the process, also
/// if the caller is killed before it does. Comes after [`apart`].
///
/// # Errors
/// If the socket cannot be duplicated. That nobody reads it is none.
pub fn announced(command: &mut Command, socket: BorrowedFd<'_>, letter: u8) -> io::Result<()> {
    let socket = rustix::io::fcntl_dupfd_cloexec(socket, 3)?;
    let announce = move || -> io::Result<()> {
        let mut packet = [letter; 5];
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        packet[1..].copy_from_slice(&pid.to_le_bytes());
        let send = || rustix::net::send(&socket, &packet, SendFlags::NOSIGNAL);
        let _ = rustix::io::retry_on_intr(send);
        Ok(())
    };
    // SAFETY: between `fork` and `execve` only system calls are made, by functions that allocate
    // nothing and take no lock.
    unsafe { command.pre_exec(announce) };
    Ok(())
}

/// Lets a command's process begin with no signal blocked, whatever the caller blocks.
pub fn unblocked(command: &mut Command) {
    // SAFETY: between `fork` and `execve` one system call is made, by a function that allocates
    // nothing and takes no lock.
    unsafe { command.pre_exec(crate::event::block_none) };
}

/// The processes of the session that this process began, itself included, from `/proc`. Zombies are
/// left out.
pub fn session(first: Pid) -> Vec<Pid> {
    let wanted = first.as_raw_nonzero().get();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|&pid| session_of(pid) == Some(wanted))
        .filter_map(|pid| Pid::from_raw(pid as i32))
        .collect()
}

/// Field 6 of `/proc/PID/stat`, for a process that has not ended.
fn session_of(pid: u32) -> Option<i32> {
    let text = crate::life::stat(pid)?;
    let after = text.iter().rposition(|&byte| byte == b')')? + 2;
    let mut fields = text.get(after..)?.split(|&byte| byte == b' ');
    if matches!(fields.next()?, b"Z" | b"X") {
        return None;
    }
    std::str::from_utf8(fields.nth(2)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    #[test]
    fn a_mask_is_not_passed_on() {
        let _mask = crate::event::MaskGuard::block(crate::event::SignalSet::of(&[15])).unwrap();
        let blocked = |command: &mut Command| {
            let out = command.arg("/proc/self/status").output().unwrap().stdout;
            String::from_utf8_lossy(&out).contains("SigBlk:\t0000000000004000")
        };
        assert!(blocked(&mut Command::new("cat")));
        let mut command = Command::new("cat");
        unblocked(&mut command);
        assert!(!blocked(&mut command));
    }

    #[test]
    fn the_session_is_its_own_and_complete() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 100 & echo; wait"]).stdout(Stdio::piped());
        apart(&mut command, Some(Signal::KILL));
        let mut child = command.spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let first = Pid::from_child(&child);
        let all = session(first);
        assert!(all.len() == 2 && all.contains(&first), "{all:?}");
        rustix::process::kill_process_group(first, Signal::KILL).unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn it_ends_with_the_thread_that_started_it() {
        let mut child = std::thread::spawn(|| {
            let mut command = Command::new("sleep");
            apart(command.arg("100"), Some(Signal::KILL));
            command.spawn().unwrap()
        })
        .join()
        .unwrap();
        let limit = Instant::now() + Duration::from_secs(20);
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < limit, "it outlives its parent");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
