//! What a driver keeps on this machine: a directory of the cluster, with a lock, so that one driver
//! at a time changes it, and the host file of MPI.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::{Error, Result};

/// The directory of a cluster's job in it, which outlives the containers: `batch` removes it.
pub const JOB: &str = "job";

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
    /// If another driver has it, or it cannot be made.
    pub fn take(store: &Path, cluster: &str) -> Result<Self> {
        let directory = directory(store, cluster);
        let failed = |error: std::io::Error| {
            Error::new(format!(
                "cannot keep the cluster's files in {}: {error}",
                directory.display()
            ))
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(failed)?;
        let lock = File::create(directory.join("lock")).map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { directory, _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let fact =
                    format!("cluster {cluster} is being started or ended by another process");
                Err(Error::new(fact).with_hint("wait until that has ended"))
            }
            Err(error) => Err(failed(error.into())),
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

    /// Removes it: the cluster is gone. What is kept of its job stays.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(self) -> Result<()> {
        let remove = || -> std::io::Result<()> {
            if !self.directory.join(JOB).exists() {
                return fs::remove_dir_all(&self.directory);
            }
            for entry in fs::read_dir(&self.directory)? {
                let entry = entry?;
                if entry.file_name() == JOB {
                    continue;
                }
                if entry.file_type()?.is_dir() {
                    fs::remove_dir_all(entry.path())?;
                } else {
                    fs::remove_file(entry.path())?;
                }
            }
            Ok(())
        };
        remove().map_err(|error| {
            Error::new(format!("cannot remove {}: {error}", self.directory.display()))
        })
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
    fn what_is_kept_of_a_job_outlives_the_cluster() {
        let store = tempfile::tempdir().unwrap();
        let place = Place::take(store.path(), "lab").unwrap();
        place.write_host_file("node1 slots=1\n").unwrap();
        let directory = directory(store.path(), "lab");
        fs::create_dir(directory.join(JOB)).unwrap();
        place.remove().unwrap();
        let left: Vec<_> =
            fs::read_dir(&directory).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, [JOB]);
        fs::remove_dir(directory.join(JOB)).unwrap();
        Place::take(store.path(), "lab").unwrap().remove().unwrap();
        assert!(!directory.exists());
    }
}
