//! What an event loop without threads needs from the kernel: signal masks, signals as a readable
//! descriptor, and a process title.
//!
//! `rustix` offers `poll`, `pidfd` and `wait`; the calls here are those it leaves out because they
//! touch state that the C library also keeps (the signal mask).
//! They go through the C library for that reason, not as raw system calls.
//!
//! Nothing here decides which signals matter: see `engine::supervise`.

mod daemon;
mod memory;
mod signals;

pub(crate) use daemon::stat_field;
pub use daemon::{
    close_foreign, group_of, send_signal, send_signal_fd, send_signal_to_group, set_title,
};
pub use memory::{release_code, trim_heap};
pub use signals::{
    MaskGuard, Received, SignalFd, SignalSet, is_ignored, raise_default, set_ignored,
};
