//! What a driver keeps on this machine: a directory of the cluster, with a lock, so that one driver
//! at a time changes it, and in it the host file of MPI and the ways to other hosts.

use std::fs::{DirBuilder, DirEntry, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::error::{Error, Result};

/// How long another driver is waited for, and how often is looked.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);
/// Within so long others write nothing into a store any more.
const LAST: Duration = Duration::from_secs(10);

/// The directory of a cluster's job in it, which outlives the containers: `batch` removes it.
pub const JOB: &str = "job";

/// The directory of a cluster, held by this process.
#[derive(Debug)]
pub struct Place {
    cluster: String,
    directory: PathBuf,
    lock: File,
}

impl Place {
    /// Makes the directory of a cluster beneath `store`, and takes its lock.
    ///
    /// # Errors
    /// If another driver keeps it for longer than ten seconds, or it cannot be made. If this is not
    /// the name of a cluster.
    pub fn take(store: &Path, cluster: &str) -> Result<Self> {
        Self::take_within(store, cluster, PATIENCE)?.ok_or_else(|| {
            Error::new(format!("cluster {cluster} is being changed by another process"))
                .with_hint("wait until that has ended")
        })
    }

    /// The same; `None` if another driver keeps it for longer than `patience`.
    ///
    /// # Errors
    /// If it cannot be made. If this is not the name of a cluster.
    pub fn take_within(store: &Path, cluster: &str, patience: Duration) -> Result<Option<Self>> {
        let cluster = crate::spec::name(cluster)?;
        let directory = directory(store, &cluster);
        let failed = |error: std::io::Error| {
            Error::new(format!(
                "cannot keep the cluster's files in {}: {error}",
                directory.display()
            ))
        };
        let lock = locked(&directory.join(LOCK), patience).map_err(failed)?;
        Ok(lock.map(|lock| Self { cluster, directory, lock }))
    }

    /// Gives it back. It goes if nothing was kept in it: another driver has ended the cluster while
    /// this one has waited.
    pub fn leave(self) {
        let all = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        if all.into_iter().all(|entry| entry.file_name() == LOCK) {
            let _ = remove(&self.directory);
        }
    }

    /// Has the commands of this machine hold the lock, too: one that is still at work when the
    /// driver was killed keeps others out.
    ///
    /// # Errors
    /// That of fcntl(2).
    pub fn share(&self) -> Result<()> {
        fcntl_setfd(&self.lock, FdFlags::empty())
            .map_err(|error| Error::new(format!("the lock cannot be shared: {error}")))
    }

    /// The cluster's name.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Removes it: the cluster is gone. What is kept of its job stays; a store that was made for
    /// the cluster goes, too.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(self) -> Result<()> {
        let wrong = |path: &Path, why: &dyn std::fmt::Display| {
            Error::new(format!("cannot remove {}: {why}", path.display()))
        };
        let store = self.directory.ancestors().nth(2);
        let is_own = |store: &&Path| {
            let name = store.file_name().and_then(|name| name.to_str());
            // A driver that was killed may have made it, and not said so yet.
            name == Some(&own_store(&self.cluster))
                && (own_store_mark(&self.directory).exists() || is_empty(store))
        };
        if let Some(store) = store.filter(is_own) {
            return remove(store).map_err(|why| wrong(store, &why));
        }
        let all = std::fs::read_dir(&self.directory)
            .and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        let all = all.map_err(|error| wrong(&self.directory, &error))?;
        if all.iter().all(|entry| entry.file_name() != JOB) {
            return remove(&self.directory).map_err(|why| wrong(&self.directory, &why));
        }
        for path in all.iter().filter(|entry| entry.file_name() != JOB).map(DirEntry::path) {
            remove(&path).map_err(|why| wrong(&path, &why))?;
        }
        Ok(())
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
pub(crate) fn own_store(cluster: &str) -> String {
    format!("cluster-{cluster}")
}

/// Whether nothing is in a store.
fn is_empty(store: &Path) -> bool {
    let places = ["containers", "volumes", "layers", "trees", "oci/blobs/sha256"];
    places.iter().all(|place| {
        std::fs::read_dir(store.join(place)).map_or(true, |mut all| all.next().is_none())
    })
}

/// The file in a cluster's directory that says so.
pub(crate) fn own_store_mark(directory: &Path) -> PathBuf {
    directory.join("own-store")
}

/// The file in a directory whose lock is held by the one process that changes it.
pub(crate) const LOCK: &str = "lock";

/// Makes a file, with its directory, and takes its lock. `None` if another process holds it for
/// longer than `patience`.
///
/// # Errors
/// If the directory or the file cannot be made or locked.
pub(crate) fn locked(path: &Path, patience: Duration) -> io::Result<Option<File>> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let until = Instant::now() + patience;
    loop {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let lock = match File::create(path) {
            Ok(lock) => lock,
            // A process that has had it removes the directory meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&lock, path)? => return Ok(Some(lock)),
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(PAUSE);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether an open file is the one at a path.
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
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
    fn what_is_kept_of_a_job_outlives_the_cluster() {
        let store = tempfile::tempdir().unwrap();
        let place = Place::take(store.path(), "lab").unwrap();
        let directory = directory(store.path(), "lab");
        std::fs::write(directory.join("hosts"), "node1 slots=1\n").unwrap();
        std::fs::create_dir(directory.join(JOB)).unwrap();
        place.remove().unwrap();
        let left: Vec<_> =
            std::fs::read_dir(&directory).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, [JOB]);
        std::fs::remove_dir(directory.join(JOB)).unwrap();
        Place::take(store.path(), "lab").unwrap().remove().unwrap();
        assert!(!directory.exists());
    }

    #[test]
    fn a_store_of_the_cluster_goes_if_it_says_so_or_is_empty() {
        let top = tempfile::tempdir().unwrap();
        let store = top.path().join("cluster-lab");
        let full = store.join("containers/one");
        let remove = || Place::take(&store, "lab").unwrap().remove().unwrap();
        std::fs::create_dir_all(&full).unwrap();
        remove();
        assert!(full.exists());
        std::fs::remove_dir(&full).unwrap();
        remove();
        assert!(!store.exists());
        std::fs::create_dir_all(&full).unwrap();
        let place = Place::take(&store, "lab").unwrap();
        std::fs::write(own_store_mark(place.path()), "").unwrap();
        place.remove().unwrap();
        assert!(!store.exists());
        // One of another name is the user's.
        let store = top.path().join("mine");
        std::fs::create_dir_all(store.join("containers")).unwrap();
        Place::take(&store, "lab").unwrap().remove().unwrap();
        assert!(store.exists());
    }

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
            std::fs::write(second.path().join("hosts"), "node1 slots=1\n").unwrap();
        });
    }

    #[test]
    fn a_name_is_no_path() {
        let store = tempfile::TempDir::new().unwrap();
        for name in ["", ".", "..", "../..", "a/b", "/", "A", "-x", "x\n"] {
            assert!(Place::take(store.path(), name).is_err(), "{name:?}");
        }
        assert_eq!(std::fs::read_dir(store.path()).unwrap().count(), 0);
    }
}
