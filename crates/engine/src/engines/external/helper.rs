//! Runs the program that makes a container, with descriptors for the container's first process, and
//! keeps its messages.

use super::handed::open;
use crate::error::{Error, Result};
use crate::exit::{Ended, Reason};
use crate::launch::fork;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions};
use std::io::{Read, Seek};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};
use sys::fork::ForkResult;

/// How Coracle is called in the container: by the first of the descriptors.
pub(in crate::engines) const LAUNCHER: &str = "/proc/self/fd/3";
/// How much of a helper's messages is read.
const COMPLAINT: u64 = 4000;

fn call(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::call(doing, errno)
}

/// Runs a program with descriptors from 3 on, and with its own messages going to a file.
pub(in crate::engines) fn execute(
    program: &Path,
    words: &[String],
    handed: &[(u32, BorrowedFd<'_>)],
    said: &OwnedFd,
) -> Result<Ended> {
    begin(program, words, handed, said).and_then(end)
}

/// Starts such a program.
pub(in crate::engines) fn begin(
    program: &Path,
    words: &[String],
    handed: &[(u32, BorrowedFd<'_>)],
    said: &OwnedFd,
) -> Result<Pid> {
    let zero = || call("start the runtime")(Errno::INVAL);
    let arguments = sys::process::Strings::new(words).ok_or_else(zero)?;
    let path = std::ffi::CString::new(program.as_os_str().as_bytes()).map_err(|_| zero())?;
    let environment = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"];
    let environment = sys::process::Strings::new(&environment).ok_or_else(zero)?;
    let null = open(Path::new("/dev/null"), OFlags::RDWR)?;
    match fork::child_of_one_thread()? {
        ForkResult::Parent(child) => Ok(child),
        ForkResult::Child => {
            let connected = rustix::io::fcntl_dupfd_cloexec(said, 64).and_then(|said| {
                sys::process::hand_over(handed)?;
                rustix::stdio::dup2_stdin(&null)?;
                rustix::stdio::dup2_stdout(&said)?;
                rustix::stdio::dup2_stderr(&said)
            });
            crate::launch::caller::give_back_signals();
            if connected.is_ok() {
                let errno = sys::process::exec(&path, &arguments, &environment);
                let text = format!("cannot execute it: {errno}\n");
                let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
            }
            sys::fork::exit_now(i32::from(Reason::NotFound.code()));
        }
    }
}

/// Waits for its end.
pub(in crate::engines) fn end(child: Pid) -> Result<Ended> {
    fork::wait(child).map_err(call("wait for the runtime"))
}

/// The last line that a helper has written, as the end of an error message.
pub(in crate::engines) fn complaint(said: &OwnedFd) -> String {
    let mut text = Vec::new();
    if let Ok(file) = said.try_clone() {
        let mut file = std::fs::File::from(file);
        let _ = file.rewind().and_then(|()| file.take(COMPLAINT).read_to_end(&mut text));
    }
    let text = String::from_utf8_lossy(&text);
    // Warnings come first, and the failure last.
    let last = text.trim().lines().last().unwrap_or_default();
    if last.is_empty() { String::new() } else { format!(": {last}") }
}

/// How long, and how often, the parent of a process is looked at.
const ADOPTION: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_micros(300);

/// Waits until the caller's parent has adopted a process. A runtime that goes to the background
/// (crun) ends before the process with which it made the container. Until that one ends, it is the
/// parent of the program, and a program that dies with its parent would die with it.
pub(in crate::engines) fn await_adoption(pid: u32) {
    let reaper = rustix::process::getppid();
    let deadline = Instant::now() + ADOPTION;
    while parent_of(pid).is_some_and(|parent| Some(parent) != reaper) && Instant::now() < deadline {
        std::thread::sleep(LOOK);
    }
    // While a process ends, the kernel changes the parent of each child, then sends it the signal
    // that it asked for, and holds `tasklist_lock` meanwhile (`forget_original_parent`). A wait
    // takes that lock, so after it the signal has been sent, or never will be.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let _ = rustix::process::waitid(WaitId::All, options);
}

/// The parent of a process that is there.
fn parent_of(pid: u32) -> Option<Pid> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything: state, parent.
    let end = text.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(&text[end + 1..]).ok()?;
    Pid::from_raw(rest.split_whitespace().nth(1)?.parse().ok()?)
}
