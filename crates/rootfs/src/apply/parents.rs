//! Opens the parent directory of a path, with a small cache: archives list a directory's files
//! together.

use super::{Applier, Directory, whiteouts};
use crate::error::Error;
use crate::frame::Entry;
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, unlinkat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::rc::Rc;
use sys::fs::resolve::{self, Method, Obstacle, Place};

/// Limit of open directories; many layers are applied at once, and `ulimit -n` may be 1024.
const OPEN_MAX: usize = 48;

/// Open parents by their name in the archive, which may go through symbolic links of the layer.
pub(super) struct Parents {
    places: HashMap<Vec<u8>, (Rc<Place>, u64)>,
    clock: u64,
}

impl Parents {
    pub(super) fn new() -> Self {
        Self { places: HashMap::new(), clock: 0 }
    }

    /// Empties the cache. Must be called when a directory or a symbolic link was replaced, since
    /// names may lead elsewhere then.
    pub(super) fn clear(&mut self) {
        self.places.clear();
    }

    fn get(&mut self, path: &[u8]) -> Option<Rc<Place>> {
        self.clock += 1;
        let (place, used) = self.places.get_mut(path)?;
        *used = self.clock;
        Some(Rc::clone(place))
    }

    fn insert(&mut self, path: &[u8], place: Place) -> Rc<Place> {
        if self.places.len() >= OPEN_MAX {
            let oldest = self.places.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                self.places.remove(&key);
            }
        }
        let place = Rc::new(place);
        self.places.insert(path.to_vec(), (Rc::clone(&place), self.clock));
        place
    }
}

impl Applier<'_> {
    /// Opens the directory at `path` inside the tree; makes it if it is missing.
    pub(super) fn parent(&mut self, path: &[u8], entry: &Entry) -> Result<Rc<Place>, Error> {
        if let Some(place) = self.parents.get(path) {
            return Ok(place);
        }
        let flags = sys::fs::NAME_ONLY | OFlags::DIRECTORY;
        let place = match resolve::strict(&self.root, path, flags, Method::Best) {
            Ok(dir) => Place { dir, path: path.to_vec() },
            Err(_) => self.resolve(path, entry)?,
        };
        Ok(self.parents.insert(path, place))
    }

    /// Resolves a path without the cache: follows symbolic links and makes missing directories.
    fn resolve(&mut self, path: &[u8], entry: &Entry) -> Result<Place, Error> {
        let root =
            self.root.try_clone().map_err(|_| Error::disk("open directory", b".", Errno::MFILE))?;
        resolve::in_root(&root, path, |obstacle| {
            self.make_parent(obstacle, entry).map_err(Failure::Ours)
        })
        .map_err(|failure| match failure {
            Failure::Ours(error) => error,
            Failure::Errno(Errno::LOOP) => {
                Error::refused(&entry.path, "its directory is a loop of symbolic links")
            }
            Failure::Errno(errno) => Error::disk("open the directory of", &entry.path, errno),
        })
    }

    fn make_parent(&mut self, obstacle: &Obstacle<'_>, entry: &Entry) -> Result<(), Error> {
        let path = resolve::join(obstacle.path, obstacle.name);
        if obstacle.name.starts_with(whiteouts::PREFIX) {
            return Err(Error::refused(
                &entry.path,
                "a symbolic link in its path leads to the name of a whiteout",
            ));
        }
        let mut opaque = self.owners.remove_whiteout(&path);
        if obstacle.errno == Errno::NOTDIR {
            let stat = sys::fs::stat(obstacle.dir, obstacle.name)
                .map_err(|errno| Error::disk("stat", &path, errno))?;
            if !sys::fs::whiteout::is(&stat) {
                return Err(Error::refused(
                    &entry.path,
                    format!("{:?} is not a directory", String::from_utf8_lossy(&path)),
                ));
            }
            unlinkat(obstacle.dir, obstacle.name, AtFlags::empty())
                .map_err(|errno| Error::disk("delete", &path, errno))?;
            opaque = true;
        }
        mkdirat(obstacle.dir, obstacle.name, Mode::from_raw_mode(0o755))
            .map_err(|errno| Error::disk("make directory", &path, errno))?;
        if opaque {
            self.set_opaque(&path)?;
        }
        self.directories
            .insert(path, Directory { mode: 0o755, mtime: entry.mtime, implicit: true });
        Ok(())
    }
}

enum Failure {
    Ours(Error),
    Errno(Errno),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}
