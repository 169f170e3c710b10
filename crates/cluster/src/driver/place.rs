//! What a driver keeps on this machine: a directory of the cluster, with a lock, so that one driver
//! at a time changes it, and the host file of MPI.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::error::{Error, Result};

/// How long another driver is waited for, and how often is looked.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);

/// The directory of a cluster, held by this process.
#[derive(Debug)]
pub struct Place {
    directory: PathBuf,
    _lock: File,
}

/// The path of the host file of MPI in a cluster's directory.
pub fn host_file(directory: &Path) -> PathBuf {
    directory.join("hosts")
}

impl Place {
    /// Makes the directory of a cluster beneath `store`, and takes its lock.
    ///
    /// # Errors
    /// If another driver keeps it for longer than ten seconds, or it cannot be made. If this is not
    /// the name of a cluster.
    pub fn take(store: &Path, cluster: &str) -> Result<Self> {
        let cluster = crate::spec::name(cluster)?;
        let directory = directory(store, &cluster);
        let failed = |error: std::io::Error| {
            Error::new(format!(
                "cannot keep the cluster's files in {}: {error}",
                directory.display()
            ))
        };
        let until = Instant::now() + PATIENCE;
        loop {
            DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(failed)?;
            let path = directory.join("lock");
            let lock = match File::create(&path) {
                Ok(lock) => lock,
                // A driver that has ended the cluster removes the directory meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(error)),
            };
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if !is_at(&lock, &path).map_err(failed)? => {}
                Ok(()) => {
                    // The driver's commands hold the lock, too: one that is still at work when the
                    // driver was killed keeps others out.
                    fcntl_setfd(&lock, FdFlags::empty()).map_err(|error| failed(error.into()))?;
                    return Ok(Self { directory, _lock: lock });
                }
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                    std::thread::sleep(PAUSE);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let fact =
                        format!("cluster {cluster} is being started or ended by another process");
                    return Err(Error::new(fact).with_hint("wait until that has ended"));
                }
                Err(error) => return Err(failed(error.into())),
            }
        }
    }

    /// Writes the host file of MPI.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_host_file(&self, text: &str) -> Result<()> {
        let path = host_file(&self.directory);
        // In place: running containers have it as a volume.
        fs::write(&path, text)
            .map_err(|error| Error::new(format!("cannot write {}: {error}", path.display())))
    }

    /// Removes it: the cluster is gone.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(self) -> Result<()> {
        fs::remove_dir_all(&self.directory).map_err(|error| {
            Error::new(format!("cannot remove {}: {error}", self.directory.display()))
        })
    }
}

/// Whether an open file is the one at a path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    match path.metadata() {
        Ok(there) => Ok((own.dev(), own.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The directory of a cluster beneath `store`.
pub fn directory(store: &Path, cluster: &str) -> PathBuf {
    store.join("clusters").join(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_driver_at_a_time() {
        let store = tempfile::TempDir::new().unwrap();
        let place = Place::take(store.path(), "lab").unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| Place::take(store.path(), "lab"));
            std::thread::sleep(2 * PAUSE);
            assert!(!second.is_finished());
            place.remove().unwrap();
            // It has the lock of a directory that is there.
            let second = second.join().unwrap().unwrap();
            second.write_host_file("node1 slots=1\n").unwrap();
            assert!(host_file(&directory(store.path(), "lab")).exists());
        });
    }

    #[test]
    fn a_name_is_no_path() {
        let store = tempfile::TempDir::new().unwrap();
        for name in ["", ".", "..", "../..", "a/b", "/", "A", "-x", "x\n"] {
            assert!(Place::take(store.path(), name).is_err(), "{name:?}");
        }
        assert_eq!(fs::read_dir(store.path()).unwrap().count(), 0);
    }
}
