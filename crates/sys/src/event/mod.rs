//! What an event loop without threads needs from the kernel: signal masks, signals as a readable
//! descriptor, a plain `fork`, and a process title.
//!
//! `rustix` offers `poll`, `pidfd` and `wait`; the calls here are those it leaves out because they
//! touch state that the C library also keeps (the signal mask, the thread's identity after `fork`).
//! They go through the C library for that reason, not as raw system calls.
//!
//! Nothing here decides which signals matter: see `engine::supervise`.

mod memory;
mod process;
mod signals;

pub use memory::{release_code, trim_heap};
pub use process::{
    ForkResult, close_foreign, exit_now, fork, group_of, send_signal, send_signal_fd,
    send_signal_to_group, set_title,
};
pub use signals::{
    MaskGuard, Received, SignalFd, SignalSet, is_ignored, raise_default, set_ignored,
};
