//! What a driver keeps on this machine: a directory of the cluster, with a lock, so that one driver
//! at a time changes it, and in it the host file of MPI and the ways to other hosts.

use std::fs::{DirBuilder, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::error::{Error, Result};

/// Within so long others write nothing into a store any more.
const LAST: Duration = Duration::from_secs(10);

/// The directory of a cluster, held by this process.
#[derive(Debug)]
pub struct Place {
    cluster: String,
    directory: PathBuf,
    _lock: File,
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
            Ok(()) => Ok(Self { cluster: cluster.to_owned(), directory, _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let fact =
                    format!("cluster {cluster} is being started or ended by another process");
                Err(Error::new(fact).with_hint("wait until that has ended"))
            }
            Err(error) => Err(failed(error.into())),
        }
    }

    /// The cluster's name.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Removes it: the cluster is gone. A store that was made for the cluster goes, too.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(self) -> Result<()> {
        let store = self.directory.ancestors().nth(2);
        let is_own = |store: &&Path| {
            let name = store.file_name().and_then(|name| name.to_str());
            name == Some(&own_store(&self.cluster)) && own_store_mark(&self.directory).exists()
        };
        let path = store.filter(is_own).unwrap_or(&self.directory);
        remove(path).map_err(|why| Error::new(format!("cannot remove {}: {why}", path.display())))
    }
}

/// Removes a directory with all that is in it, also what has no rights. The agent of the network
/// that was removed may still write its last files meanwhile.
fn remove(path: &Path) -> Result<(), String> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err("it has no name".to_owned());
    };
    let parent = File::open(parent).map_err(|error| error.to_string())?;
    let until = Instant::now() + LAST;
    loop {
        match sys::fs::remove_tree(&parent, name.as_bytes()) {
            Err(error) if Instant::now() >= until => return Err(error.to_string()),
            Err(_) => std::thread::sleep(LAST / 100),
            Ok(()) => return Ok(()),
        }
    }
}

/// The name of a store that ends with its cluster.
pub(super) fn own_store(cluster: &str) -> String {
    format!("cluster-{cluster}")
}

/// The file in a cluster's directory that says so.
pub(super) fn own_store_mark(directory: &Path) -> PathBuf {
    directory.join("own-store")
}

/// The directory of a cluster beneath `store`.
pub fn directory(store: &Path, cluster: &str) -> PathBuf {
    store.join("clusters").join(cluster)
}
