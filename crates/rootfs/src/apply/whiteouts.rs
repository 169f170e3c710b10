//! Whiteouts (OCI image specification, layer, "Whiteouts"): `.wh.NAME` hides a name of the layers
//! beneath, `.wh..wh..opq` the whole content that they have in its directory.
//!
//! Neither affects entries of the same layer, before or after. If a hidden name returns as a
//! directory, that directory becomes opaque; any other kind covers the lower entry anyway.

use super::Applier;
use crate::error::Error;
use crate::frame::{Entry, EntryKind};
use crate::owners::FileKind;
use rustix::io::Errno;
use sys::fs::resolve::{self, Method, Place};

/// Prefix of whiteout names.
pub(super) const PREFIX: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

impl Applier<'_> {
    pub(super) fn whiteout(
        &mut self,
        entry: &Entry,
        place: &Place,
        name: &[u8],
    ) -> Result<(), Error> {
        // aufs made whiteouts as hard links; no program makes them with content.
        let fine = matches!(entry.kind, EntryKind::File(FileKind::File) | EntryKind::Link);
        if !fine || (entry.kind != EntryKind::Link && entry.size > 0) {
            return Err(Error::refused(&entry.path, "a whiteout can only be an empty file"));
        }
        if name == OPAQUE {
            return self.set_opaque(&place.path);
        }
        let hidden = &name[PREFIX.len()..];
        if hidden.is_empty() || hidden == b"." || hidden == b".." || hidden.starts_with(PREFIX) {
            return Err(Error::refused(&entry.path, "the whiteout names no file"));
        }
        let full = resolve::join(&place.path, hidden);
        match sys::fs::stat(&place.dir, hidden) {
            Ok(stat) if FileKind::from_mode(stat.st_mode) == FileKind::Directory => {
                self.set_opaque(&full)
            }
            Ok(_) => Ok(()),
            Err(Errno::NOENT) => match sys::fs::whiteout::make(&place.dir, hidden) {
                Ok(()) => Ok(()),
                // Kernels before 5.8, file systems without devices, containers whose seccomp filter
                // refuses mknod.
                Err(
                    Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL,
                ) => {
                    self.meta.marks_in_table = true;
                    self.owners.add_whiteout(&full);
                    Ok(())
                }
                Err(errno) => Err(Error::disk("make the whiteout of", &full, errno)),
            },
            Err(errno) => Err(Error::disk("stat", &full, errno)),
        }
    }

    /// Hides the lower layers' content in a directory of this layer.
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
