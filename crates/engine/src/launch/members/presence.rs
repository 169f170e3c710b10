//! The lock that each tracer of a container holds while it has guests.

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Shows that a container has traced processes: each tracer holds it for as long as it has guests.
/// A program that ends can leave others behind, of which the records of the container do not know.
#[derive(Debug)]
pub(crate) struct Presence(
    #[expect(dead_code, reason = "holds the lock until it is dropped")] OwnedFd,
);

impl Presence {
    /// In the container whose directory is `place`; `None` on a file system without locks.
    pub(crate) fn new(place: &Path) -> Option<Self> {
        let file = open_presence(place, OFlags::CREATE)?;
        rustix::fs::flock(&file, FlockOperation::LockShared).ok()?;
        Some(Self(file))
    }

    /// Whether no tracer holds it.
    pub(crate) fn is_none(place: &Path) -> bool {
        let Some(file) = open_presence(place, OFlags::empty()) else { return true };
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK)
    }
}

fn open_presence(place: &Path, more: OFlags) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | more;
    rustix::fs::open(place.join("run/.presence"), flags, Mode::from_raw_mode(0o600)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracer_that_is_there_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("run")).unwrap();
        assert!(Presence::is_none(dir.path()));
        let (one, other) = (Presence::new(dir.path()), Presence::new(dir.path()));
        assert!(one.is_some() && other.is_some());
        drop(one);
        assert!(!Presence::is_none(dir.path()));
        drop(other);
        assert!(Presence::is_none(dir.path()));
    }
}
