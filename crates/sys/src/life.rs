//! Tells if a process lives, and reads facts that only a living thread shows.
//!
//! `/proc/PID` shows the first thread of a process. When that thread has ended and others have not,
//! the process lives, although `stat` says `Z`, `exe`, `root` and `ns` are missing and `maps` is
//! empty. This state lasts if the first thread called `pthread_exit`. It lasts for a moment
//! whenever another thread executes a program. All code that reads the directory of another process
//! uses this module.
//!
//! See [proc_pid_stat(5)](https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html),
//! [execve(2)](https://man7.org/linux/man-pages/man2/execve.2.html) ("Effect on process
//! attributes"), and `de_thread` in the kernel's `fs/exec.c`.

use abi::processes::Life;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often `stat` is read at most while it shows a thread that is being removed.
const LOOKS: usize = 8;

/// The line in `/proc/PID/stat`; `None` if no process has this number.
pub fn stat(pid: u32) -> Option<Vec<u8>> {
    let path = format!("/proc/{pid}/stat");
    let look = || {
        let mut text = vec![0_u8; 1024];
        let file = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        // The kernel returns the whole line at once; a second read would only return the end of
        // file.
        let length = rustix::io::read(&file, &mut text[..]).ok()?;
        text.truncate(length);
        let is_passing = Life::read(&text)?.is_passing();
        Some((text, is_passing))
    };
    let mut seen = look()?;
    for _ in 1..LOOKS {
        if !seen.1 {
            break;
        }
        seen = look()?;
    }
    Some(seen.0)
}

/// The process's state according to that line.
pub fn life(pid: u32) -> Option<Life> {
    Life::read(&stat(pid)?)
}

/// Start time of a process in clock ticks since boot: field 22 of `/proc/PID/stat`. `None` if it is
/// gone or all of its threads have ended.
pub fn start_time(pid: u32) -> Option<u64> {
    life(pid).filter(|life| !life.is_over()).map(|life| life.start)
}

/// How often all threads are tried. A thread that executes a program becomes the first thread
/// between two passes.
const PASSES: u32 = 20;

/// Reads a fact that only a living thread has: `exe`, `root`, `ns`, `maps`. Calls `ask` with the
/// directory of the process and, if nothing is found there, with that of each thread.
///
/// # Errors
/// Those of `ask` for the process's own directory.
pub fn of_any_thread<T>(
    pid: u32,
    mut ask: impl FnMut(&Path) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let mut pause = Duration::from_micros(20);
    let mut result = ask(&process);
    for _ in 0..PASSES {
        // A thread of the kernel never has any of these.
        let is_gone = || life(pid).is_none_or(|life| life.is_ending() || life.is_kernels);
        if !matches!(result, Err(Errno::NOENT | Errno::SRCH)) || is_gone() {
            break;
        }
        let mut threads = std::fs::read_dir(process.join("task")).into_iter().flatten().flatten();
        if let Some(found) = threads.find_map(|thread| ask(&thread.path()).ok()) {
            return Ok(found);
        }
        result = ask(&process);
        if result.is_err() {
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
        }
    }
    result
}

/// The root directory of a process, opened with `O_PATH`.
pub fn root(pid: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    of_any_thread(pid, |of| rustix::fs::open(of.join("root"), flags, Mode::empty()))
}

/// The target of a link in the directory of a process: `exe`, `ns/mnt`.
pub fn link(pid: u32, name: &str) -> Result<PathBuf, Errno> {
    let text = of_any_thread(pid, |of| rustix::fs::readlink(of.join(name), vec![]))?;
    Ok(OsString::from_vec(text.into_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::ForkResult;
    use crate::{process, raw};
    use linux_raw_sys::general as numbers;
    use rustix::process::{Pid, Signal, WaitOptions};
    use std::process::{Command, Stdio};

    /// Set for the process that executes itself again and again.
    const AGAIN: &str = "CORACLE_TEST_LIFE_AGAIN";

    fn program(pid: u32) -> Result<PathBuf, Errno> {
        link(pid, "exe")
    }

    #[test]
    fn threads_of_the_kernel_execute_nothing() {
        let mut asked = 0;
        let kernels = (2..1000).find(|pid| life(*pid).is_some_and(|life| life.is_kernels));
        let Some(pid) = kernels else {
            println!("SKIP threads_of_the_kernel_execute_nothing: none is seen here");
            return;
        };
        let found = of_any_thread(pid, |_| {
            asked += 1;
            Err::<(), _>(Errno::NOENT)
        });
        assert_eq!((found, asked), (Err(Errno::NOENT), 1));
    }

    #[test]
    fn only_living_processes_have_start_times() {
        assert!(start_time(std::process::id()).unwrap() > 0);
        assert_eq!(start_time(4_194_305), None);
        assert!(program(4_194_305).is_err());
    }

    #[test]
    fn a_process_lives_on_without_its_first_thread() {
        let child = match crate::fork::fork_single().unwrap() {
            ForkResult::Parent(pid) => pid,
            ForkResult::Child => {
                std::thread::spawn(|| std::thread::sleep(Duration::from_mins(2)));
                // SAFETY: ends this thread alone; no other thread uses its stack or its locals.
                let _ = unsafe { raw::call(numbers::__NR_exit, [0; 5]) };
                crate::fork::exit_now(1)
            }
        };
        let number = child.as_raw_nonzero().get() as u32;
        let state = || life(number).unwrap().state;
        while state() != b'Z' {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(start_time(number).is_some());
        assert!(rustix::fs::readlink(format!("/proc/{number}/exe"), vec![]).is_err());
        assert_eq!(program(number), program(std::process::id()));
        assert!(root(number).is_ok());
        rustix::process::kill_process(child, Signal::KILL).unwrap();
        while life(number).is_some_and(|life| life.threads > 1) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Not waited for yet, so it is still there, as a zombie.
        assert_eq!((state(), start_time(number)), (b'Z', None));
        assert!(program(number).is_err());
        rustix::process::waitpid(Some(child), WaitOptions::empty()).unwrap();
    }

    #[test]
    fn a_process_lives_while_its_second_thread_executes() {
        let own = "life::tests::a_process_lives_while_its_second_thread_executes";
        // With two test threads, tests do not run in the first thread of the process.
        let words = ["/proc/self/exe", "--exact", own, "--test-threads=2"];
        if std::env::var_os(AGAIN).is_some() {
            let environment = process::Strings::new(&[format!("{AGAIN}=1")]).unwrap();
            let words = process::Strings::new(&words).unwrap();
            panic!("{}", process::exec(c"/proc/self/exe", &words, &environment));
        }
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env(AGAIN, "1").stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let start = start_time(child.id());
        let own = program(std::process::id());
        let lives = (0..10_000).all(|_| {
            let same = start_time(child.id()) == start && program(child.id()) == own;
            same && child.try_wait().unwrap().is_none()
        });
        let _ = rustix::process::kill_process(Pid::from_child(&child), Signal::KILL);
        child.wait().unwrap();
        assert!(start.is_some() && lives);
    }
}
