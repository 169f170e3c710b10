//! Opens directories of a layer that their own owner may not read (mode 000, 111, ...) for as long
//! as a reader needs them.
//!
//! The ownership table has the true mode of each such directory ([`locks_out`]), so that readers
//! never use the mode on disk, and an interrupted reader loses nothing. Readers of a layer, threads
//! or processes, share a lock (`flock`) on the layer's directory. Each reader opens the directories
//! when it begins, parents first; the last one (it gets the exclusive lock) restores the true
//! modes, children first. Layers without such directories take no lock.
//!
//! Lock order: this lock is taken after all of the store's, and no other lock is taken while
//! waiting for it.

use crate::layer::{Layer, TREE};
use crate::owners::{FileKind, Owners, Record};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use sys::fs::resolve::{self, Method};

/// Returns true if the owner of a file or directory with this mode cannot read it: then the table
/// must have its mode.
pub(crate) fn locks_out(kind: FileKind, mode: u32) -> bool {
    match kind {
        FileKind::Directory => mode & 0o500 != 0o500,
        FileKind::File => mode & 0o400 == 0,
        _ => false,
    }
}

/// Returns true if a record is needed for its mode only.
pub(crate) fn is_mode_only(record: &Record) -> bool {
    locks_out(record.kind, record.mode)
        && (record.uid, record.gid) == (0, 0)
        && record.xattrs.is_empty()
}

/// Keeps a layer's directories readable for their owner.
#[derive(Debug)]
pub(crate) struct Unlocked {
    /// The layer's own directory, which is locked.
    directory: OwnedFd,
    /// The unreadable directories with their true modes, sorted: parents first.
    modes: Vec<(Vec<u8>, u32)>,
}

impl Unlocked {
    /// Opens the unreadable directories; `None` if there are none. A directory whose mode cannot be
    /// changed stays as it is, and reading it fails with the kernel's error.
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
        // On file systems without locks (some network file systems) several readers at once are not
        // supported.
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
        // From shared to exclusive: `flock` gives up the shared lock first, so that of several
        // readers that end at once one gets it.
        let alone = flock(&self.directory, FlockOperation::NonBlockingLockExclusive);
        if alone == Err(Errno::WOULDBLOCK) {
            return;
        }
        for (path, mode) in self.modes.iter().rev() {
            self.set(path, *mode);
        }
    }
}
