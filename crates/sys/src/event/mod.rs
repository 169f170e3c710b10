//! Kernel interfaces for an event loop without threads: signal masks, signals as a readable
//! descriptor, and a process title.
//!
//! `rustix` offers `poll`, `pidfd` and `wait`; this module has the calls that it leaves out because
//! they change state that the C library also keeps (the signal mask). Therefore they go through the
//! C library, not as raw system calls.
//!
//! This module does not decide which signals matter: see `engine::supervise`.

mod daemon;
mod footprint;
mod signals;

pub use daemon::{
    close_foreign, group_of, send_signal, send_signal_fd, send_signal_to_group, set_title,
};
pub(crate) use daemon::{overwrite_arguments, stat_field};
pub use footprint::{release_code, trim_memory};
pub use signals::{
    MaskGuard, Received, SignalFd, SignalSet, block_none, is_ignored, raise_default, set_ignored,
};
