//! Raw mode of a terminal, with restoration on every exit.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, Once, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// The terminal that is raw now, with its previous settings.
static SAVED: Mutex<Option<(OwnedFd, Termios)>> = Mutex::new(None);

/// A terminal in raw mode; dropping it restores the previous settings.
pub struct RawMode {
    raw: Termios,
}

impl RawMode {
    /// Puts the terminal `fd` into raw mode: every key as a byte, no echo, no signals from keys.
    /// One terminal at a time; entering again while raw keeps the first settings.
    pub fn enter(fd: impl AsFd) -> rustix::io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                restore();
                before(info);
            }));
        });
        let cooked = tcgetattr(&fd)?;
        let mut raw = cooked.clone();
        raw.make_raw();
        let own = rustix::io::fcntl_dupfd_cloexec(&fd, 3)?;
        let mut saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner);
        if saved.is_none() {
            *saved = Some((own, cooked));
        }
        drop(saved);
        tcsetattr(fd, OptionalActions::Drain, &raw)?;
        Ok(Self { raw })
    }

    /// Restores the previous settings, keeping the guard, for a job-control stop.
    pub fn suspend(&self) {
        apply(Clone::clone);
    }

    /// Sets raw mode again after [`suspend`](Self::suspend).
    pub fn resume(&self) {
        apply(|_| self.raw.clone());
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}

fn apply(choose: impl FnOnce(&Termios) -> Termios) {
    let saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((fd, cooked)) = saved.as_ref() {
        let _ = tcsetattr(fd, OptionalActions::Drain, &choose(cooked));
    }
}

/// Undoes [`RawMode::enter`] if it is in effect; does nothing otherwise. For panic hooks and other
/// exits that run no destructors.
pub fn restore() {
    // `try_lock`: a panic while the lock is held must not hang.
    let Ok(mut saved) = SAVED.try_lock() else { return };
    if let Some((fd, cooked)) = saved.take() {
        let _ = tcsetattr(&fd, OptionalActions::Drain, &cooked);
        drop(File::from(fd));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::Pty;
    use rustix::termios::LocalModes;

    #[test]
    fn raw_mode_is_undone_by_drop_and_by_restore() {
        let pty = Pty::open(None).unwrap();
        let echo = || tcgetattr(&pty.slave).unwrap().local_modes.contains(LocalModes::ECHO);
        let raw = RawMode::enter(&pty.slave).unwrap();
        assert!(!echo());
        raw.suspend();
        assert!(echo());
        raw.resume();
        assert!(!echo());
        drop(raw);
        assert!(echo());
        let raw = RawMode::enter(&pty.slave).unwrap();
        restore();
        assert!(echo());
        drop(raw);
        assert!(echo());
    }
}
