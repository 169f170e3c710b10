//! A command with everything that it starts, which ends when the command does, or at ctrl-C.
//!
//! Tests start daemons, containers and simulated hosts, which are in sessions of their own. This
//! process becomes the parent of those whose own parent has ended (`PR_SET_CHILD_SUBREAPER`), waits
//! for them, and kills what is left: `/proc` says who descends from whom.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// By itself.
    Exited(ExitStatus),
    /// This signal came.
    Interrupted(i32),
}

/// Runs a command; afterwards nothing that it started is left. The command has to call
/// [`unblock`].
///
/// # Errors
/// If it cannot be started.
pub fn run(command: &mut Command) -> io::Result<End> {
    nix::sys::prctl::set_child_subreaper(true)?;
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGCHLD] {
        signals.add(signal);
    }
    signals.thread_block()?;
    let child = command.spawn()?;
    let child = Pid::from_raw(child.id().cast_signed());
    let end = loop {
        match signals.wait()? {
            Signal::SIGCHLD => {
                if let Some(status) = collect(child) {
                    break End::Exited(status);
                }
            }
            signal => break End::Interrupted(signal as i32),
        }
    };
    end_all();
    Ok(end)
}

/// Lets signals through again that [`run`] has blocked: the mask is inherited. The command that it
/// runs calls this first.
///
/// # Errors
/// None that Linux has.
pub fn unblock() -> io::Result<()> {
    Ok(SigSet::all().thread_unblock()?)
}

/// Waits for all that have ended; the status of `child` if it is one of them.
fn collect(child: Pid) -> Option<ExitStatus> {
    let mut ended = None;
    loop {
        let (pid, status) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => (pid, code << 8),
            Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, signal as i32),
            Ok(WaitStatus::StillAlive) | Err(_) => return ended,
            Ok(_) => continue,
        };
        if pid == child {
            ended = Some(ExitStatus::from_raw(status));
        }
    }
}

/// Kills all descendants of this process, and waits for them.
fn end_all() {
    loop {
        for pid in descendants(std::process::id()) {
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(Errno::ECHILD) => return,
            Ok(WaitStatus::StillAlive) => thread::sleep(Duration::from_millis(10)),
            _ => {}
        }
    }
}

/// The processes that descend from one, as far as `/proc` shows.
pub fn descendants(of: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name in parentheses may have spaces and parentheses itself.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
        if let Some(parent) = parent.and_then(|text| text.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut next) = (Vec::new(), vec![of]);
    while let Some(pid) = next.pop() {
        let more = children.remove(&pid).unwrap_or_default();
        next.extend(&more);
        found.extend(more);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found() {
        let mut shell = Command::new("sh").args(["-c", "sleep 100 & wait"]).spawn().expect("sh");
        let found = crate::command::until(Duration::from_secs(20), || {
            let ours = descendants(std::process::id());
            let below = descendants(shell.id());
            let [sleep] = below[..] else { return None };
            (ours.contains(&shell.id()) && ours.contains(&sleep)).then_some(sleep)
        });
        shell.kill().expect("a signal");
        shell.wait().expect("its end");
        let _ = kill(Pid::from_raw(found.expect("a sleep").cast_signed()), Signal::SIGKILL);
    }
}
