//! Forks the tracer, which then traces the process that forked it: the first guest.
//!
//! The guest is the process that the user started, so its pid, its signals, its job and its exit
//! status are the usual ones. It makes the tracer as an orphan, so that no `wait` shows it, in a
//! session of its own, without any descriptor of the guest. The tracer seizes it:
//!
//! | guest to be | tracer |
//! |---|---|
//! | forks | leaves the session, closes everything, gets ready |
//! | lets itself be traced by that process (`PR_SET_PTRACER`, for Yama), says so | |
//! | | seizes; where every call stops, interrupts it once |
//! | reads the end of the report, or an error | closes the report; waits for events |
//! | installs the filter, executes the program | answers |
//!
//! When the tracer dies, whatever the reason, the kernel kills all its guests (`PTRACE_O_EXITKILL`,
//! Linux 3.8). When the last guest has ended, so does the tracer.

use super::backend::TracerHost;
use super::tracer::Tracer;
use crate::error::{Error, Result};
use crate::launch::report;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use std::io::Read;
use std::os::fd::OwnedFd;
use sys::ptrace::{self, Event, Go, Id, Stop, Whom};
use view::Task;

fn call(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::Call { doing: doing.into(), errno: errno.into() }
}

/// A guest that is to be traced.
pub(super) struct Guest {
    /// What the view is to know of its first thread.
    pub(super) task: Task,
    /// Filters stop its calls.
    pub(super) filtered: bool,
}

/// Makes the calling process a guest of a new tracer. `make` runs in the tracer's process, as does
/// `end` when the last guest has ended.
///
/// The caller must have one thread.
pub(super) fn attach<'a, H: TracerHost>(
    guest: Guest,
    make: impl FnOnce() -> Result<Tracer<'a, H>>,
    end: impl FnOnce(),
) -> Result<()> {
    let (gate, opener) = report::raw_pipe()?;
    let (sender, mut receiver) = report::pipe()?;
    let this = std::process::id();
    let forked = sys::fork::fork_apart().map_err(call("fork the tracer"))?;
    let Some(tracer) = forked else {
        drop((opener, receiver));
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            be_tracer(this, guest, Ends { gate, sender }, make);
            end();
        }));
        sys::fork::exit_now(i32::from(ended.is_err()));
    };
    drop((gate, sender));
    // No Yama: nothing to allow.
    let _ = rustix::process::set_ptracer(rustix::process::PTracer::ProcessID(tracer));
    rustix::io::write(&opener, &[1]).map_err(call("start the tracer"))?;
    receiver.outcome().map(drop)
}

/// The tracer's ends of the pipes between the two.
struct Ends {
    gate: OwnedFd,
    sender: report::StatusSender,
}

fn be_tracer<'a, H: TracerHost>(
    maker: Id,
    guest: Guest,
    ends: Ends,
    make: impl FnOnce() -> Result<Tracer<'a, H>>,
) {
    // Away from the caller's terminal and job, so that Ctrl-C does not reach the tracer.
    let _ = sys::process::new_session();
    let _ = rustix::process::chdir("/");
    let _ = rustix::thread::set_name(c"coracle-trace");
    rustix::process::umask(rustix::fs::Mode::empty());
    // The end of a worker must be reported to the tracer.
    let _ = sys::event::set_ignored(rustix::process::Signal::CHILD.as_raw(), false);
    if let Some(maximum) = rustix::process::getrlimit(Resource::Nofile).maximum {
        let most = Rlimit { current: Some(maximum), maximum: Some(maximum) };
        let _ = rustix::process::setrlimit(Resource::Nofile, most);
    }
    let Ends { gate, sender } = ends;
    let Ok([gate, told]) = sys::process::keep_only([gate, sender.into()]) else { return };
    let mut sender = report::StatusSender::from(told);
    let mut byte = [0];
    if !matches!(std::fs::File::from(gate).read(&mut byte), Ok(1)) {
        return;
    }
    match make().and_then(|tracer| seize(tracer, maker, guest)) {
        Ok(mut tracer) => {
            drop(sender);
            tracer.run();
        }
        Err(error) => {
            sender.failed(&error);
        }
    }
}

fn seize<H: TracerHost>(
    mut tracer: Tracer<'_, H>,
    maker: Id,
    guest: Guest,
) -> Result<Tracer<'_, H>> {
    let running = ptrace::seize(maker, guest.filtered).map_err(|errno| match errno {
        Errno::PERM => Error::Traced { errno: errno.into() },
        errno => call("trace the program")(errno),
    })?;
    tracer.adopt(maker, guest.task);
    if !guest.filtered {
        let failed = call("stop the program");
        running.interrupt().map_err(&failed)?;
        loop {
            match ptrace::wait(Whom::One(maker), false).map_err(&failed)? {
                Some(Event::Stopped(stopped, stop)) => {
                    let signal = if let Stop::Signal(signal) = stop { signal } else { 0 };
                    stopped.go(Go::ToSyscall, signal).map_err(&failed)?;
                    if stop == Stop::Trap {
                        break;
                    }
                }
                Some(_) => return Err(Error::Vanished("the program was killed".into())),
                None => {}
            }
        }
    }
    Ok(tracer)
}
