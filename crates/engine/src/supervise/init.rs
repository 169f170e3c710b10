//! The small init of `--init`: process 1 of a private pid namespace.
//!
//! An ordinary program as process 1 has two surprises: signals it does not handle are dropped,
//! and orphans are its to reap. This one forwards every signal that can be forwarded to the
//! main process, reaps whatever dies, and ends with the main process's code; the kernel then
//! kills what is left in the namespace.
//!
//! It runs after `fork` in the process that will never `exec`, and allocates nothing.

use std::io::Read;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, WaitOptions, wait};
use sys::event::{
    MaskGuard, Received, SignalFd, SignalSet, group_of, raise_default, send_signal,
    send_signal_to_group,
};

use super::{Outcome, Signal, processes};
use sys::process::Strings;

/// The word by which this program knows that it is an init, with the number of the main process
/// after it.
pub const WORD: &str = "_init";

/// Executes this program anew as the init of a container that is a boundary: a program that may
/// trace could read the host's variables and command line in the memory of a forked process.
/// Returns only where that fails, with the exit code.
///
/// The caller has set the init's rights and closed its descriptors; `/proc` is the container's.
pub(crate) fn anew(main: Pid) -> i32 {
    let words = ["coracle-init".to_owned(), WORD.to_owned(), processes::number(main).to_string()];
    let strings = (Strings::new(&words), Strings::new::<&str>(&[]));
    // What is sent meanwhile waits for the one that is executed.
    let held = MaskGuard::block(watched());
    if let (Some(words), Some(none), Ok(_)) = (strings.0, strings.1, &held) {
        sys::process::exec(c"/proc/self/exe", &words, &none);
    }
    125
}

/// Waits until the init has been executed: then the other end of the pipe is closed, which that
/// one's process holds.
pub(crate) fn wait_for(other: OwnedFd) {
    let _ = std::fs::File::from(other).read(&mut [0]);
}

/// The init that was executed anew; its exit code.
pub fn be_init(main: Option<&str>) -> u8 {
    let _ = rustix::thread::set_name(c"coracle-init");
    let main = main.and_then(|number| number.parse().ok()).and_then(processes::pid);
    main.map_or(125, |main| run_init(main) as u8)
}

/// Waits for `main`, forwarding and reaping meanwhile; the code to exit with (128 + n where a
/// signal killed it).
///
/// Call it with `main` already forked, in the process that is its parent. 125 is returned where
/// the kernel refuses a signal descriptor.
pub fn run_init(main: Pid) -> i32 {
    let set = watched();
    let Ok(_mask) = MaskGuard::block(set) else { return 125 };
    let Ok(signals) = SignalFd::new(set) else { return 125 };
    loop {
        if let Some(code) = reap(main) {
            return code;
        }
        let mut fds = [rustix::event::PollFd::new(&signals, rustix::event::PollFlags::IN)];
        let _ = rustix::event::poll(&mut fds, None);
        while let Ok(Some(received)) = signals.next() {
            if received.number != Signal::CHLD.number() {
                pass_on(main, received);
            }
        }
    }
}

/// Passes a signal on to a program: one that a process sent, to its main process; one that the terminal sent, to all whom it was meant for and
/// has not reached.
///
/// The kernel gives a terminal's signal to the group in its foreground, ours. A program that a runtime started has a session of its own, and a
/// shell in there waits for its child and ends with it, so the child must have the signal too.
pub(super) fn pass_on(main: Pid, received: Received) {
    let number = received.number;
    let group = group_of(Some(main));
    let is_shared = group == group_of(None);
    if received.from_kernel() && is_shared {
        return;
    }
    // One that came while the program was being started tells its sender no more (`MaskGuard::suspended`).
    let is_own = received.pid == rustix::process::getpid().as_raw_nonzero().get();
    let is_typed = !is_shared && (received.from_kernel() || is_own);
    let is_leader = group == main.as_raw_nonzero().get();
    // An init of ours passes it on itself.
    if !is_typed || !is_leader || processes::is_ours(processes::number(main)) {
        let _ = send_signal(main, number);
    } else if number == Signal::TSTP.number() {
        // In a session without a terminal the kernel stops nobody for this signal: nobody there could continue him.
        let _ = send_signal_to_group(main, Signal::STOP.number());
        let _ = raise_default(number);
        let _ = send_signal_to_group(main, Signal::CONT.number());
    } else {
        let _ = send_signal_to_group(main, number);
    }
}

/// The signals that it passes on, and that of children which end.
pub(crate) fn watched() -> SignalSet {
    let mut numbers = [0_i32; 64];
    let mut count = 0;
    for signal in Signal::forwardable().chain([Signal::CHLD]) {
        numbers[count] = signal.number();
        count += 1;
    }
    SignalSet::of(&numbers[..count])
}

fn reap(main: Pid) -> Option<i32> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == main => {
                return Some(Outcome::of(status).map_or(125, |outcome| outcome.code));
            }
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return None,
            // ECHILD: somebody else took it; there is nothing left to wait for.
            Err(_) => return Some(125),
        }
    }
}
