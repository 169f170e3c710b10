//! The init of `--init`: process 1 of a private pid namespace, or the parent of the program.
//!
//! An ordinary program as process 1 has two surprises: signals it does not handle are dropped,
//! and it has to reap orphans. This one forwards every signal that can be forwarded to the
//! main process, reaps whatever dies, and ends with the main process's code; the kernel then
//! kills what is left in the namespace.
//!
//! [`run_init`] runs after `fork` in a process that will never `exec`, and allocates nothing.

use std::io::Read;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, WaitOptions, wait};
use sys::event::{
    MaskGuard, Received, SignalFd, SignalSet, group_of, raise_default, send_signal,
    send_signal_to_group,
};

use super::report;
use crate::error::Result;
use crate::exit::{Ended, FAILED};
use crate::processes;
use crate::signal::Signal;
use sys::fork::exit_now;
use sys::process::{Strings, exec, keep_only};

/// The word by which this program knows that it is an init, with the number of the main process
/// after it.
pub const WORD: &str = "_init";

/// Between a program and an init that executes Coracle anew: the program waits until that has
/// happened. A program that may trace could read the host's variables and command line in the
/// memory of a forked process, so this is for containers that are a boundary.
pub(crate) struct UntilRenewed {
    read: OwnedFd,
    /// Open in the init until it executes Coracle.
    write: OwnedFd,
}

impl UntilRenewed {
    /// To be called before the fork.
    pub(crate) fn new() -> Result<Self> {
        let (read, write) = report::raw_pipe()?;
        Ok(Self { read, write })
    }

    /// In the program's process.
    pub(crate) fn wait(self) {
        let Self { read, write } = self;
        drop(write);
        let _ = std::fs::File::from(read).read(&mut [0]);
    }
}

/// Stays as the init of a container, whose program is the forked child `main`, and ends with it.
///
/// With `renewed` it executes Coracle anew, after `restrain` has taken what the program does not
/// have either; `/proc` is the container's then.
pub(crate) fn stay(
    main: Pid,
    renewed: Option<UntilRenewed>,
    restrain: impl FnOnce() -> Result<()>,
) -> ! {
    // This process holds copies of descriptors whose other ends wait for them to be closed: pipes,
    // a supervisor's socket.
    let Some(UntilRenewed { read, write }) = renewed else {
        let _ = keep_only([]);
        exit_now(run_init(main).code());
    };
    drop(read);
    let _write = keep_only([write]);
    if restrain().is_ok() {
        renew(main);
    }
    exit_now(i32::from(FAILED));
}

/// Executes this program anew as the init; returns only where that fails.
fn renew(main: Pid) {
    let words = ["coracle-init".to_owned(), WORD.to_owned(), processes::number(main).to_string()];
    let strings = (Strings::new(&words), Strings::new::<&str>(&[]));
    // Signals that arrive meanwhile wait for the program that is executed.
    let held = MaskGuard::block(watched());
    if let (Some(words), Some(none), Ok(_)) = (strings.0, strings.1, &held) {
        exec(c"/proc/self/exe", &words, &none);
    }
}

/// The init that was executed anew; its exit code.
pub fn be_init(main: Option<&str>) -> u8 {
    let _ = rustix::thread::set_name(c"coracle-init");
    let main = main.and_then(|number| number.parse().ok()).and_then(processes::pid);
    main.map_or(Ended::Unknown, run_init).code() as u8
}

/// Waits for `main`, forwarding and reaping meanwhile; how it ended.
///
/// Call it with `main` already forked, in the process that is its parent. [`Ended::Unknown`] is
/// returned where the kernel refuses a signal descriptor.
pub fn run_init(main: Pid) -> Ended {
    let set = watched();
    let Ok(_mask) = MaskGuard::block(set) else { return Ended::Unknown };
    let Ok(signals) = SignalFd::new(set) else { return Ended::Unknown };
    loop {
        if let Some(ended) = reap(main) {
            return ended;
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

/// Passes a signal on to a program: a signal that a process sent, to the main process; one that the
/// terminal sent, to all processes that it has not reached.
///
/// The kernel sends a terminal's signal to the group in its foreground, which is this process's. A
/// program that a runtime started has a session of its own, and a shell in there waits for its
/// child and ends with it, so the child must have the signal too.
pub(crate) fn pass_on(main: Pid, received: Received) {
    let number = received.number;
    let group = group_of(Some(main));
    let is_shared = group == group_of(None);
    if received.from_kernel() && is_shared {
        return;
    }
    // A signal that arrived while the program was being started has lost its sender
    // (`MaskGuard::suspended`).
    let is_own = received.pid == rustix::process::getpid().as_raw_nonzero().get();
    let is_typed = !is_shared && (received.from_kernel() || is_own);
    let is_leader = group == main.as_raw_nonzero().get();
    // Coracle's init passes it on itself.
    if !is_typed || !is_leader || processes::is_ours(processes::number(main)) {
        let _ = send_signal(main, number);
    } else if number == Signal::TSTP.number() {
        // In a session without a terminal the kernel stops no process for this signal, since none
        // there could continue it.
        let _ = send_signal_to_group(main, Signal::STOP.number());
        processes::until_stopped([processes::number(main)]);
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

fn reap(main: Pid) -> Option<Ended> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == main => {
                return Some(Ended::of(status).unwrap_or(Ended::Unknown));
            }
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return None,
            // ECHILD: its status was taken elsewhere.
            Err(_) => return Some(Ended::Unknown),
        }
    }
}
