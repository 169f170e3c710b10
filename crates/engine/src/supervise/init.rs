//! The small init of `--init`: process 1 of a private pid namespace.
//!
//! An ordinary program as process 1 has two surprises: signals it does not handle are dropped,
//! and orphans are its to reap. This one forwards every signal that can be forwarded to the
//! main process, reaps whatever dies, and ends with the main process's code; the kernel then
//! kills what is left in the namespace.
//!
//! It runs after `fork` in the process that will never `exec`, and allocates nothing.

use rustix::process::{Pid, WaitOptions, wait};
use sys::event::{MaskGuard, SignalFd, SignalSet, group_of, send_signal};

use super::{Outcome, Signal};

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
            // What the terminal sent has reached the main process too, if it shares our group.
            let shared = received.from_kernel() && group_of(Some(main)) == group_of(None);
            if received.number != Signal::CHLD.number() && !shared {
                let _ = send_signal(main, received.number);
            }
        }
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
