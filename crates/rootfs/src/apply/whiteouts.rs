//! Whiteouts (OCI image specification, layer, "Whiteouts"): `.wh.NAME` hides a name of the layers beneath,
//! `.wh..wh..opq` everything that they have in its directory.
//!
//! Neither touches what the same layer brings, before or after. A name that is hidden and brought again as a directory is
//! an opaque directory; as anything else it covers the lower one anyway.

use super::Applier;
use crate::error::Error;
use crate::frame::{Entry, EntryKind};
use crate::owners::FileKind;
use rustix::io::Errno;
use sys::fs::resolve::{self, Method, Place};

/// Names that start so are whiteouts.
pub(super) const PREFIX: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

impl Applier<'_> {
    pub(super) fn whiteout(
        &mut self,
        entry: &Entry,
        place: &Place,
        name: &[u8],
    ) -> Result<(), Error> {
        // aufs made them as hard links; nothing makes them with content.
        let fine = matches!(entry.kind, EntryKind::File(FileKind::File) | EntryKind::Link);
        if !fine || (entry.kind != EntryKind::Link && entry.size > 0) {
            return Err(Error::refused(&entry.path, "a whiteout can only be an empty file"));
        }
        if name == OPAQUE {
            return self.set_opaque(&place.path);
        }
        let hidden = &name[PREFIX.len()..];
        if hidden.is_empty() || hidden == b"." || hidden == b".." || hidden.starts_with(PREFIX) {
            return Err(Error::refused(&entry.path, "this is no whiteout that means anything"));
        }
        let full = resolve::join(&place.path, hidden);
        match sys::fs::stat(&place.dir, hidden) {
            Ok(stat) if FileKind::from_mode(stat.st_mode) == FileKind::Directory => {
                self.set_opaque(&full)
            }
            Ok(_) => Ok(()),
            Err(Errno::NOENT) => match sys::fs::whiteout::make(&place.dir, hidden) {
                Ok(()) => Ok(()),
                // Kernels before 5.8, file systems without devices, containers whose seccomp filter refuses mknod.
                Err(
                    Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL,
                ) => {
                    self.meta.marks_in_table = true;
                    self.owners.add_whiteout(&full);
                    Ok(())
                }
                Err(errno) => Err(Error::disk("make the whiteout of", &full, errno)),
            },
            Err(errno) => Err(Error::disk("look at", &full, errno)),
        }
    }

    /// Hides what lower layers have in a directory of this one.
    pub(super) fn set_opaque(&mut self, path: &[u8]) -> Result<(), Error> {
        if path.is_empty() {
            self.meta.root_opaque = true;
            return Ok(());
        }
        let fd = resolve::strict(&self.root, path, sys::fs::DIRECTORY, Method::Best)
            .map_err(|errno| Error::disk("open directory", path, errno))?;
        match sys::fs::whiteout::set_opaque(&fd) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM | Errno::ACCESS) => {
                self.meta.marks_in_table = true;
                self.owners.add_opaque(path);
                Ok(())
            }
            Err(errno) => Err(Error::disk("mark as opaque", path, errno)),
        }
    }
}
