//! Settles what a caller may leave to the process that it starts, and with which Coracle cannot
//! work: dispositions of signals and blocked ones, and a mask of permissions that takes rights from
//! the owner. Limits are in [`super::file_limit`]. What a program gets of its caller says
//! `docs/host.md`.

use rustix::fs::Mode;
use rustix::process::Signal;

/// Makes this process one like others: the first step of the command.
pub fn settle() {
    // Where it is ignored, the kernel does not report how a child has ended, nor that it has.
    let _ = sys::event::set_ignored(Signal::CHILD.as_raw(), false);
    // A file that may not grow is an error with a hint, instead of the end of this process.
    let _ = sys::event::set_ignored(Signal::XFSZ.as_raw(), true);
    // As in Docker a program begins with none blocked.
    let _ = sys::event::block_none();
    let mask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    // Without the owner's bits: what is made could not be used.
    rustix::process::umask(mask - Mode::RWXU);
}

/// Gives a process that is about to execute a program the default dispositions of the signals that
/// Coracle itself ignores, as Rust's runtime does with one of them. Others that the caller ignores
/// stay so: `nohup` has its effect.
pub(crate) fn give_back_signals() {
    for signal in [Signal::PIPE, Signal::XFSZ] {
        let _ = sys::event::set_ignored(signal.as_raw(), false);
    }
}
