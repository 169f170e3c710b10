//! Which agent of a node looks after a cluster: the one whose mark stands in the cluster's file.
//!
//! An agent that begins writes its mark over that of an earlier one. An agent whose driver is lost
//! cleans up only while its own mark stands there, and holds the file's lock meanwhile, so that an
//! agent that comes just then waits and finds a clean node. The file is in a directory that only
//! the user can enter.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// An agent waits so long for the lock: a little longer than a clean-up may take.
const LIMIT: Duration = Duration::from_secs(130);

/// A mark in a cluster's file.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    path: PathBuf,
    mark: String,
    /// Time that another agent has to take over.
    pub(super) grace: Duration,
}

/// The file with its lock.
pub(super) struct Held {
    file: File,
    path: PathBuf,
}

/// Returns true for a name that is a file's name and nothing else.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=64).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.')
}

impl Holder {
    /// Takes the cluster over.
    pub(super) fn take(runtime: &Path, cluster: &str, grace: Duration) -> io::Result<Self> {
        if !is_name(cluster) {
            let why = format!("{cluster:?} is not a usable name of a cluster");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let path = runtime.join(format!("cluster-{cluster}.holder"));
        let mark = sys::random::suffix()?;
        let mut held = Held::open(&path, Instant::now() + LIMIT)?;
        held.file.set_len(0)?;
        held.file.rewind()?;
        held.file.write_all(mark.as_bytes())?;
        Ok(Self { path, mark, grace })
    }

    /// As bytes: the grace in milliseconds, the mark of 16 digits, the path.
    pub(super) fn pack(&self) -> Vec<u8> {
        let grace = u64::try_from(self.grace.as_millis()).unwrap_or(u64::MAX);
        let path = self.path.as_os_str().as_bytes();
        [&grace.to_le_bytes()[..], self.mark.as_bytes(), path].concat()
    }

    /// From such bytes.
    pub(super) fn unpack(bytes: &[u8]) -> Option<Self> {
        let (grace, rest) = bytes.split_first_chunk()?;
        let (mark, path) = rest.split_at_checked(16)?;
        Some(Self {
            grace: Duration::from_millis(u64::from_le_bytes(*grace)),
            mark: str::from_utf8(mark).ok()?.to_owned(),
            path: OsStr::from_bytes(path).into(),
        })
    }

    /// Returns true while no other agent has taken over.
    pub(super) fn is_mine(&self) -> bool {
        std::fs::read_to_string(&self.path).is_ok_and(|mark| mark == self.mark)
    }

    /// Locks the file; `None` if another agent has taken over, or the directory is gone.
    pub(super) fn lock(&self) -> Option<Held> {
        let mut held = Held::open(&self.path, Instant::now() + LIMIT).ok()?;
        let mut mark = String::new();
        held.file.read_to_string(&mut mark).ok()?;
        (mark == self.mark).then_some(held)
    }
}

impl Held {
    fn open(path: &Path, limit: Instant) -> io::Result<Self> {
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
                .open(path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) if Instant::now() < limit => {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            // A file that was removed before it was locked is nobody's place any more.
            let here = std::fs::metadata(path).is_ok_and(|now| {
                file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (now.dev(), now.ino()))
            });
            if here {
                return Ok(Self { file, path: path.to_owned() });
            }
        }
    }

    /// Removes the file before the lock goes.
    pub(super) fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_holds() {
        let dir = tempfile::tempdir().unwrap();
        let first = Holder::take(dir.path(), "c1", Duration::ZERO).unwrap();
        assert!(first.is_mine());
        let second = Holder::take(dir.path(), "c1", Duration::ZERO).unwrap();
        assert!(second.is_mine() && !first.is_mine() && first.lock().is_none());
        let other = Holder::take(dir.path(), "c2", Duration::ZERO).unwrap();
        second.lock().unwrap().remove();
        assert!(!second.is_mine() && other.is_mine());
        let third = Holder::take(dir.path(), "c1", Duration::ZERO).unwrap();
        assert!(third.is_mine() && !second.is_mine());
        for bad in ["", "..", "a/b", ".x", "a b"] {
            assert!(Holder::take(dir.path(), bad, Duration::ZERO).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn who_comes_during_the_cleaning_waits() {
        let dir = tempfile::tempdir().unwrap();
        let first = Holder::take(dir.path(), "c", Duration::ZERO).unwrap();
        let held = first.lock().unwrap();
        let path = dir.path().to_owned();
        let second = std::thread::spawn(move || Holder::take(&path, "c", Duration::ZERO).unwrap());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!second.is_finished());
        held.remove();
        assert!(second.join().unwrap().is_mine());
    }
}
