//! What a driver keeps on this machine: a directory of the cluster, with a lock, so that one driver
//! at a time changes it, and the host file of MPI.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::{Error, Result};

/// The directory of doors' sockets in a cluster's directory.
pub fn doors(directory: &Path) -> PathBuf {
    directory.join("door")
}

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

    /// Makes the directory of doors' sockets, which node containers have as a volume.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn make_doors(&self) -> Result<()> {
        let path = doors(&self.directory);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|error| Error::new(format!("cannot make {}: {error}", path.display())))
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

/// The directory of a cluster beneath `store`.
pub fn directory(store: &Path, cluster: &str) -> PathBuf {
    store.join("clusters").join(cluster)
}
