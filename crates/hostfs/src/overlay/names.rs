//! Removes and adds names.
//!
//! What hides a name of the image is set before the name loses its meaning ([`Changes::cover`]),
//! and a whiteout takes its place in one step. A process that is killed in between leaves the name
//! as it was. The bit alone says nothing but that the disk must be asked.
//!
//! [`Changes::cover`]: abi::shared::changes::Changes::cover

use super::locate::{Located, parent, split_end};
use super::{Call, Overlay, is_directory};
use crate::at::{self, Process};
use crate::kernel::CWD;
use core::ffi::CStr;
use linux_raw_sys::general::{AT_REMOVEDIR, AT_SYMLINK_NOFOLLOW, S_IFCHR};
use view::errno::Result;
use view::{Dir, Errno};

/// A name in the upper directory's part of a directory.
#[derive(Clone, Copy)]
pub(super) struct Name {
    /// Where the file is; `None` if there is none.
    pub(super) located: Option<Located>,
    /// The image's record of that name in the merged directory, whatever has become of it.
    pub(super) child: Option<u32>,
}

impl<P: Process> Overlay<'_, P> {
    /// Looks a name up.
    pub(super) fn name(&self, name: &[u8]) -> Result<Name> {
        let located = match self.locate(name) {
            Err(Errno::ENOENT) => None,
            Ok(Located::Upper { base: None }) => match self.upper_status(name) {
                Err(Errno::ENOENT) => None,
                status => status.map(|_| Some(Located::Upper { base: None }))?,
            },
            located => Some(located?),
        };
        let (above, last) = parent(name);
        let child = match self.locate(above)? {
            Located::Upper { base: Some(base) } | Located::Lower(base) => {
                self.image().index.child(base, last)
            }
            _ => None,
        };
        Ok(Name { located, child })
    }

    pub(super) fn cover(&self, child: Option<u32>) {
        if let Some(child) = child {
            self.image().cover(child);
        }
    }

    /// `unlink` or, with `AT_REMOVEDIR`, `rmdir`.
    fn remove(&self, name: &[u8], flags: u32) -> Result<()> {
        let is_rmdir = flags & AT_REMOVEDIR != 0;
        // What fails changes nothing.
        self.may_remove(self.locate(name)?, is_rmdir)?;
        self.alone(|| {
            let Name { located, child } = self.name(name)?;
            let located = located.ok_or(Errno::ENOENT)?;
            self.may_remove(located, is_rmdir)?;
            self.settle_alone(parent(name).0)?;
            match (located, child) {
                (Located::Lower(record), _) => {
                    self.image().cover(record);
                    self.whiteout(name)
                }
                (Located::Upper { base }, child) if is_rmdir => {
                    self.remove_directory(name, base, child)
                }
                (Located::Upper { .. }, None) => {
                    self.with_upper(name, b"", |path| self.process.unlinkat(CWD, path, flags))
                }
                (Located::Upper { .. }, Some(_)) => {
                    if is_directory(&self.upper_status(name)?) {
                        return Err(Errno::EISDIR);
                    }
                    self.cover(child);
                    self.with_whiteout(|whiteout| self.put_in_place(whiteout, name, 0))
                }
                (Located::Link, _) => Err(Errno::ELOOP),
            }
        })
    }

    /// What the kernel checks before it removes a file of the image.
    fn may_remove(&self, located: Located, is_rmdir: bool) -> Result<()> {
        match located {
            Located::Link => Err(Errno::ELOOP),
            Located::Upper { .. } => Ok(()),
            Located::Lower(record) => {
                let entry = self.image().index.entry(record).ok_or(Errno::ENOENT)?;
                match (entry.is_directory(), is_rmdir) {
                    (true, false) => Err(Errno::EISDIR),
                    (false, true) => Err(Errno::ENOTDIR),
                    (true, true) if self.has_names(record) => Err(Errno::ENOTEMPTY),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Makes a whiteout under a temporary name. It is removed if `place` has not moved it.
    pub(super) fn with_whiteout(&self, place: impl FnOnce(&CStr) -> Result<()>) -> Result<()> {
        self.with_temporary(
            |path| self.process.mknodat(CWD, path, S_IFCHR),
            |path| {
                let result = place(path);
                if result.is_err() {
                    let _ = self.process.unlinkat(CWD, path, 0);
                }
                result
            },
        )
    }
}

/// `unlinkat`.
pub(crate) fn unlink<P: Process>(
    overlay: Overlay<'_, P>,
    dir: Dir,
    path: &CStr,
    flags: u32,
    call: Call<'_>,
) -> Result<()> {
    overlay.named(dir, path, &mut |named| match named {
        None => call(dir, path),
        Some(named) => match split_end(named) {
            (b"", _) => Err(Errno::EBUSY),
            (name, b"") => overlay.remove(name, flags),
            // The errors of a bad end are the kernel's.
            (name, end) => {
                let located = overlay.locate(name)?;
                let is_slash = end.iter().all(|byte| *byte == b'/');
                if is_slash && flags & AT_REMOVEDIR != 0 {
                    return overlay.remove(name, flags);
                }
                overlay.with_real(name, located, end, |path| call(Dir::Root, path))
            }
        },
    })
}

/// `linkat`.
pub(crate) fn link<P: Process>(
    overlay: Overlay<'_, P>,
    from: (Dir, &CStr),
    to: (Dir, &CStr),
    call: impl Fn((Dir, &CStr), (Dir, &CStr)) -> Result<()>,
) -> Result<()> {
    overlay.reading(from.0, from.1, &mut |dir, path| {
        let made = overlay.making(to.0, to.1, &mut |new_dir, new_path| {
            if overlay.is_images((dir, path))? {
                overlay.note_shared()?;
            }
            call((dir, path), (new_dir, new_path))
        });
        if made == Err(Errno::EEXIST) {
            // That the first file is missing is said before.
            overlay.must_be_there((dir, path))?;
        }
        made
    })
}

impl<P: Process> Overlay<'_, P> {
    /// Returns true if a file, which may be open, is the image's.
    fn is_images(&self, (dir, path): (Dir, &CStr)) -> Result<bool> {
        if path.is_empty() {
            return Ok(self.of_status(&self.status(dir)?).is_some());
        }
        Ok(self.image().in_lower(path.to_bytes()).is_some())
    }

    /// Fails if there is no such file.
    fn must_be_there(&self, (dir, path): (Dir, &CStr)) -> Result<()> {
        at::at(self.process, dir, path, |at| {
            self.process.fstatat(at.dir, at.path, at.flags(AT_SYMLINK_NOFOLLOW)).map(drop)
        })
    }
}
