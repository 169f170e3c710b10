//! Layers with directories that lock out their owner (mode 000, 111, ...): opened for as long as somebody reads them.
//!
//! The ownership table has the true mode of each such directory ([`locks_out`]), so that readers never take the mode on
//! disk for the truth, and an interrupted reader loses nothing. Readers of a layer, threads or processes, share a lock
//! (`flock`) on the layer's directory; who comes opens the directories, parents first, and who goes as the last (it gets
//! the lock for itself alone) puts the true modes back, children first. Layers without such directories take no lock.
//!
//! Lock order: this lock is taken after all of the store's, and nothing else is taken while it is awaited.

use crate::layer::{Layer, TREE};
use crate::owners::{FileKind, Owners, Record};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use sys::fs::resolve::{self, Method};

/// Whether a file or directory of this mode cannot be read by its own owner: then the table must know its mode.
pub(crate) fn locks_out(kind: FileKind, mode: u32) -> bool {
    match kind {
        FileKind::Directory => mode & 0o500 != 0o500,
        FileKind::File => mode & 0o400 == 0,
        _ => false,
    }
}

/// Whether a record is there for its mode only.
pub(crate) fn is_mode_only(record: &Record) -> bool {
    locks_out(record.kind, record.mode)
        && (record.uid, record.gid) == (0, 0)
        && record.xattrs.is_empty()
}

/// Keeps a layer's directories open to their owner.
#[derive(Debug)]
pub(crate) struct Unlocked {
    /// The layer's own directory, which is locked.
    directory: OwnedFd,
    /// The locked directories with their true modes, sorted: parents first.
    modes: Vec<(Vec<u8>, u32)>,
}

impl Unlocked {
    /// Opens what is locked; `None` where nothing is. What cannot be changed here stays as it is, and reading it fails
    /// with the kernel's own word.
    pub(crate) fn layer(layer: &Layer, owners: &Owners) -> Option<Self> {
        let locked = owners.iter().filter(|(_, record)| {
            record.kind == FileKind::Directory && locks_out(record.kind, record.mode)
        });
        let modes: Vec<_> = locked.map(|(path, record)| (path.to_vec(), record.mode)).collect();
        if modes.is_empty() {
            return None;
        }
        let directory =
            rustix::fs::openat(CWD, &layer.directory, sys::fs::DIRECTORY, Mode::empty()).ok()?;
        // Where there are no locks (some network file systems) one process at a time has to do.
        while flock(&directory, FlockOperation::LockShared) == Err(Errno::INTR) {}
        let unlocked = Self { directory, modes };
        for (path, mode) in &unlocked.modes {
            unlocked.set(path, mode | 0o500);
        }
        Some(unlocked)
    }

    fn set(&self, path: &[u8], mode: u32) {
        let full = resolve::join(TREE.as_bytes(), path);
        let full = full.strip_suffix(b"/").unwrap_or(&full);
        let flags = sys::fs::NAME_ONLY | OFlags::DIRECTORY;
        let Ok(fd) = resolve::strict(&self.directory, full, flags, Method::Best) else { return };
        let other = rustix::fs::fstat(&fd).is_ok_and(|stat| stat.st_mode & 0o777 != mode & 0o777);
        if other && sys::fs::chmod_fd(fd.as_fd(), mode).is_err() {
            let _ = sys::fs::chmod_fd(fd.as_fd(), mode & 0o777);
        }
    }
}

impl Drop for Unlocked {
    fn drop(&mut self) {
        // From shared to alone: the shared lock is given up first, so that of several that go at once one gets it.
        let alone = flock(&self.directory, FlockOperation::NonBlockingLockExclusive);
        if alone == Err(Errno::WOULDBLOCK) {
            return;
        }
        for (path, mode) in self.modes.iter().rev() {
            self.set(path, *mode);
        }
    }
}
