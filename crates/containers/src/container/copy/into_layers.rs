//! Unpacks an archive into a container whose image is beneath its own changes, without mounts, so
//! that it works where namespaces are forbidden and programs that run in the container see it.
//!
//! The archive is unpacked beside the containers first, as if the container's tree were empty. Then
//! what came of it is moved to its places from the top down: a directory that the container lacks
//! moves with everything in it, one that it has is entered. A failure in between leaves what has
//! been moved, as unpacking in place would.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use engine::engines::interpose::changing::ChangingTree;
use rootfs::{Root, copy};
use rustix::fs::FileType;
use rustix::io::Errno;
use store::Store;
use sys::fs::resolve::join;

use super::super::{image_index, record::Record, spool, volumes};
use crate::error::{Error, Result};

/// A directory of the store that is removed in the end. The store's lease keeps others from
/// sweeping it.
struct Staging {
    path: PathBuf,
    _lease: store::Lease,
}

impl Staging {
    fn new(store: &Store) -> Result<Self> {
        let lease = store.lease()?;
        let path = store.path().join("tmp").join(volumes::random_name()?);
        rustix::fs::mkdir(&path, rustix::fs::Mode::RWXU).map_err(|error| {
            Error::failed(format!("cannot make {}", path.display())).cause(error)
        })?;
        Ok(Self { path, _lease: lease })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = store::remove_owned(&self.path);
    }
}

/// Unpacks an archive below `directory` of a container's tree.
pub(super) fn unpack(
    store: &Store,
    (record, root, place): (&Record, &Root, &Path),
    directory: &[u8],
    archive: io::BufReader<impl io::Read>,
    into: &copy::Into,
) -> Result<()> {
    let Root::Overlay { lowers, .. } = root else {
        return Err(Error::failed("the container's tree has no layers"));
    };
    let [lower] = &lowers[..] else {
        return Err(Error::failed("the container's image is not one tree"));
    };
    let staging = Staging::new(store)?;
    let top = spool::open_directory(&staging.path)?;
    let copied = copy::copy_in(&top, directory, archive, into)?;
    let index = image_index::needed(store, record)?;
    let tree = ChangingTree::open(place, &index, lower)?;
    let texts = copied.owners.iter().map(|(path, record)| (path, record.to_xattr()));
    tree.note(&staging.path, texts)?;
    let named: BTreeSet<&[u8]> = copied.paths.iter().map(Vec::as_slice).collect();
    Move { tree: &tree, staging: &staging.path, named }.all()
}

/// A move of unpacked files to their places.
struct Move<'a> {
    tree: &'a ChangingTree,
    staging: &'a Path,
    /// The paths that the archive names; other directories are only on the way.
    named: BTreeSet<&'a [u8]>,
}

/// An unpacked directory whose place is a directory already.
struct Both {
    /// Below the top of what was unpacked.
    path: Vec<u8>,
    /// In the container.
    place: Vec<u8>,
}

impl Move<'_> {
    fn all(&self) -> Result<()> {
        let mut pending = vec![Both { path: Vec::new(), place: b"/".to_vec() }];
        let mut entered = Vec::new();
        while let Some(both) = pending.pop() {
            let below = self.names(&both)?;
            pending.extend(below);
            entered.push(both);
        }
        // Children before parents, whose time is the archive's in the end.
        for both in entered.iter().rev().filter(|both| self.named.contains(&both.path[..])) {
            let from = self.open(&both.path)?;
            self.tree
                .set_like(&from, &both.place)
                .map_err(|errno| failed("set the mode of", &both.place, errno))?;
        }
        Ok(())
    }

    /// Moves what is in a directory; returns the directories in it that have a place already.
    fn names(&self, both: &Both) -> Result<Vec<Both>> {
        let fd = self.open(&both.path)?;
        let entries = sys::fs::read_dir(&fd).map_err(|errno| failed("read", &both.path, errno))?;
        let mut entered = Vec::new();
        for entry in entries {
            let path = join(&both.path, &entry.name);
            let is_directory = entry.kind == sys::fs::Kind::Directory;
            // The root alone ends with its slash.
            let above = both.place.strip_suffix(b"/").unwrap_or(&both.place);
            let named = [above, b"/", &entry.name].concat();
            let (place, kind) = self.place(&named, is_directory && !self.is_named(&path))?;
            match (is_directory, kind) {
                (true, Some(FileType::Directory)) => entered.push(Both { path, place }),
                (true, Some(_)) => {
                    return Err(refused(&place, "a directory must not replace a file"));
                }
                (false, Some(FileType::Directory)) => {
                    return Err(refused(&place, "a file must not replace a directory"));
                }
                _ => self
                    .tree
                    .put(&self.host(&path), &place)
                    .map_err(|errno| failed("create", &place, errno))?,
            }
        }
        Ok(entered)
    }

    fn is_named(&self, path: &[u8]) -> bool {
        self.named.contains(path)
    }

    /// The place of a name, and what is there. Links to directories on the way are followed.
    fn place(&self, named: &[u8], on_the_way: bool) -> Result<(Vec<u8>, Option<FileType>)> {
        let found = if on_the_way {
            self.tree.find(named).map(|found| (found.path, found.kind))
        } else {
            self.tree.kind(named).map(|kind| (named.to_vec(), kind))
        };
        found.map_err(|errno| failed("find", named, errno))
    }

    fn host(&self, path: &[u8]) -> PathBuf {
        self.staging.join(std::ffi::OsStr::from_bytes(path))
    }

    fn open(&self, path: &[u8]) -> Result<std::os::fd::OwnedFd> {
        spool::open_directory(&self.host(path))
    }
}

fn failed(step: &'static str, path: &[u8], errno: Errno) -> Error {
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
    rootfs::Error::Disk { step, path, errno }.into()
}

fn refused(place: &[u8], why: &str) -> Error {
    let entry = place.strip_prefix(b"/").unwrap_or(place).to_vec();
    rootfs::Error::Refused { entry, why: why.to_owned() }.into()
}
