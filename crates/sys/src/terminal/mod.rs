//! Terminals: pseudo-terminal pairs, window sizes, and raw mode that is always undone.
//!
//! [`Pty`] is the pair that a container's program gets; [`RawMode`] is the state of the caller's
//! own terminal meanwhile. The saved settings are also kept in a static, because a panic with
//! `panic = "abort"` runs no destructors: [`RawMode::enter`] installs a panic hook that restores
//! them first. Only death by SIGKILL leaves the terminal raw.
//!
//! This module has no policy: `engine::supervise` decides which signals restore the terminal, and
//! which terminal is resized.

mod pty;
mod raw_mode;

pub use pty::{Pty, acquire_controlling};
pub use raw_mode::{RawMode, restore};

use std::os::fd::AsFd;

use rustix::termios::Winsize;

/// A terminal's size in character cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// The window size of a terminal, `None` when `fd` is not one.
pub fn size(fd: impl AsFd) -> Option<Size> {
    let size = rustix::termios::tcgetwinsize(fd).ok()?;
    Some(Size { rows: size.ws_row, columns: size.ws_col })
}

/// Sets the window size; the kernel sends SIGWINCH to the foreground group when it changed.
pub fn resize(fd: impl AsFd, size: Size) -> rustix::io::Result<()> {
    rustix::termios::tcsetwinsize(
        fd,
        Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 },
    )
}
