//! Creates hard links. The target's parent is resolved inside the tree as parents of entries are;
//! its last component is never followed.

use super::{Applier, clean};
use crate::error::Error;
use crate::frame::{Blocks, Entry, EntryKind, Reader};
use crate::layer::encode_path;
use crate::owners::FileKind;
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use sys::fs::resolve::{self, Method, Place};

impl Applier<'_> {
    pub(super) fn link<B: Blocks>(
        &mut self,
        entry: &Entry,
        reader: &mut Reader<'_, B>,
        place: &Place,
        name: &[u8],
        full: &[u8],
    ) -> Result<(), Error> {
        let mut wanted = clean(&entry.link)?;
        if let Some(base) = &self.live {
            wanted = resolve::join(base, &wanted);
        }
        if wanted.is_empty() {
            return Err(Error::refused(&entry.path, "a hard link to the root directory"));
        }
        let Some((target, target_full)) = self.find(&wanted, entry)? else {
            if entry.has_data {
                // PAX archives may repeat the content: then the entry is treated as a regular file.
                let file = Entry { kind: EntryKind::File(FileKind::File), ..entry.clone() };
                return self.file(&file, reader, place, name, full);
            }
            if wanted == full {
                return Err(Error::refused(&entry.path, "a hard link to itself"));
            }
            self.deferred.push((full.to_vec(), wanted));
            return Ok(());
        };
        if target_full == full {
            return Ok(());
        }
        self.link_to(entry, &target, &target_full, place, name, full)
    }

    pub(super) fn link_to(
        &mut self,
        entry: &Entry,
        target: &Place,
        target_full: &[u8],
        place: &Place,
        name: &[u8],
        full: &[u8],
    ) -> Result<(), Error> {
        let (_, target_name) = resolve::split(target_full);
        let stat = sys::fs::stat(&target.dir, target_name)
            .map_err(|errno| Error::disk("stat", target_full, errno))?;
        match FileKind::from_mode(stat.st_mode) {
            FileKind::Directory => {
                return Err(Error::refused(&entry.path, "a hard link to a directory"));
            }
            FileKind::Char => {
                return Err(Error::refused(
                    &entry.path,
                    "a hard link to a name that the layer deletes",
                ));
            }
            _ => {}
        }
        if target_full.starts_with(&[full, b"/"].concat()) {
            return Err(Error::refused(&entry.path, "a hard link into the directory it replaces"));
        }
        self.make(place, name, full, "make the hard link", |dir, name| {
            rustix::fs::linkat(&target.dir, target_name, dir, name, AtFlags::empty())
        })?;
        match self.owners.get(target_full).cloned() {
            Some(record) => self.owners.insert(full, record),
            None => self.owners.remove(full),
        }
        Ok(())
    }

    /// Returns the directory of a link's target and the target's path without symbolic links;
    /// `None` if the layer does not have it (yet).
    pub(super) fn find(
        &self,
        wanted: &[u8],
        entry: &Entry,
    ) -> Result<Option<(Place, Vec<u8>)>, Error> {
        let (parent, name) = resolve::split(wanted);
        let flags = sys::fs::NAME_ONLY | OFlags::DIRECTORY;
        let place = match resolve::strict(&self.root, parent, flags, Method::Best) {
            Ok(dir) => Place { dir, path: parent.to_vec() },
            Err(_) => match self.existing(parent) {
                Ok(Some(place)) => place,
                Ok(None) => return Ok(None),
                Err(Errno::LOOP) => {
                    return Err(Error::refused(
                        &entry.path,
                        "its target is a loop of symbolic links",
                    ));
                }
                Err(errno) => return Err(Error::disk("find the target of", &entry.path, errno)),
            },
        };
        match sys::fs::stat(&place.dir, name) {
            Ok(_) => {
                let full = resolve::join(&place.path, name);
                Ok(Some((place, full)))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::disk("stat", wanted, errno)),
        }
    }

    /// Tries again the hard links whose target was missing, and lists those whose target is in no
    /// entry.
    pub(crate) fn deferred_links(&mut self) -> Result<(), Error> {
        for (full, wanted) in std::mem::take(&mut self.deferred) {
            let entry = Entry::link(&full, &wanted);
            let (parent, name) = resolve::split(&full);
            let place = self.parent(parent, &entry)?;
            if sys::fs::stat(&place.dir, name).is_ok() {
                continue;
            }
            match self.find(&wanted, &entry)? {
                Some((target, target_full)) => {
                    self.link_to(&entry, &target, &target_full, &place, name, &full)?;
                }
                None if self.live.is_some() => {
                    return Err(Error::LinkTarget { entry: full, target: wanted });
                }
                None => self.meta.links.push((encode_path(&full), encode_path(&wanted))),
            }
        }
        Ok(())
    }
}
