//! What only directories need: whether they are empty, and how one that has whiteouts disappears.
//!
//! The whiteouts of a directory cannot be removed where it is: what they hide would be seen again.
//! So the directory is first moved to a temporary name, and is made opaque.

use super::locate::{Located, parent};
use super::upper::{EXCHANGE, NO_REPLACE};
use super::{OPAQUE, Overlay, REDIRECT, is_directory, is_whiteout};
use crate::at::Process;
use crate::file_contents::{self, Origin};
use crate::kernel::{CWD, OpenFile, Target};
use core::ffi::CStr;
use linux_raw_sys::general::{
    AT_REMOVEDIR, AT_SYMLINK_NOFOLLOW, O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_RDONLY,
};
use view::Errno;
use view::errno::Result;

const DIRECTORY: u32 = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

impl<P: Process> Overlay<'_, P> {
    /// Returns true if a directory of the image, which is not in the upper one, has names.
    pub(super) fn has_names(&self, record: u32) -> bool {
        let entry = self.image().index.entry(record);
        entry.is_some_and(|entry| !self.image().index.children(&entry).is_empty())
    }

    /// The number of whiteouts in a directory of the upper one that is seen as empty. If it has
    /// names, `ENOTEMPTY`.
    pub(super) fn whiteouts(&self, name: &[u8], base: Option<u32>) -> Result<usize> {
        let index = &self.image().index;
        let entry = base.and_then(|base| index.entry(base));
        let mut seen = entry.map_or(0, |entry| index.children(&entry).len());
        let mut count = 0;
        self.with_upper(name, b"", |path| {
            self.each_name(path, |directory, name| {
                match self.process.fstatat(directory.fd(), name, AT_SYMLINK_NOFOLLOW) {
                    Ok(status) if is_whiteout(&status) => count += 1,
                    // It has gone meanwhile.
                    Err(Errno::ENOENT) => return Ok(()),
                    result => return Err(result.err().unwrap_or(Errno::ENOTEMPTY)),
                }
                let child = base.and_then(|base| index.child(base, name.to_bytes()));
                seen -= usize::from(child.is_some() && seen > 0);
                Ok(())
            })
        })?;
        if seen == 0 { Ok(count) } else { Err(Errno::ENOTEMPTY) }
    }

    /// Calls `each` for the names in a directory on disk.
    fn each_name(
        &self,
        path: &CStr,
        mut each: impl FnMut(&OpenFile<'_, P>, &CStr) -> Result<()>,
    ) -> Result<()> {
        let directory = OpenFile::open(self.process, path, DIRECTORY, 0)?;
        self.process.with_buffer(|buffer| {
            loop {
                let got = self.process.getdents(directory.fd(), buffer)?;
                if got == 0 {
                    return Ok(());
                }
                let mut rest = buffer.get(..got).unwrap_or_default();
                while let Some((entry, more)) = first_entry(rest) {
                    rest = more;
                    if !matches!(entry.to_bytes(), b"." | b"..") {
                        each(&directory, entry)?;
                    }
                }
            }
        })
    }

    /// Removes a directory of the upper one, and leaves a whiteout where the image has its name.
    /// The caller is alone.
    pub(super) fn remove_directory(
        &self,
        name: &[u8],
        base: Option<u32>,
        child: Option<u32>,
    ) -> Result<()> {
        if !is_directory(&self.upper_status(name)?) {
            return Err(Errno::ENOTDIR);
        }
        let whiteouts = self.whiteouts(name, base)?;
        if let Some(child) = child {
            self.image().cover(child);
            return self.with_whiteout(|temporary| {
                self.put_in_place(temporary, name, EXCHANGE)?;
                self.dispose(temporary, || self.put_in_place(temporary, name, EXCHANGE))
            });
        }
        if whiteouts == 0 {
            return self
                .with_upper(name, b"", |path| self.process.unlinkat(CWD, path, AT_REMOVEDIR));
        }
        let take = |temporary: &CStr| {
            self.with_upper(name, b"", |path| {
                self.process.renameat2((CWD, path), (CWD, temporary), NO_REPLACE)
            })
        };
        self.with_temporary(take, |temporary| {
            self.dispose(temporary, || self.put_in_place(temporary, name, NO_REPLACE))
        })
    }

    /// Removes a directory that has been moved to a temporary name, with its whiteouts. A process
    /// that has it open may have made something there meanwhile: then it is put back, and is opaque
    /// from then on, because all names of the image had been removed.
    fn dispose(&self, temporary: &CStr, put_back: impl FnOnce() -> Result<()>) -> Result<()> {
        let opaque = self.process.setxattr(Target::Link(temporary), OPAQUE, b"y", 0);
        let removed = opaque.and_then(|()| {
            let _ = self.process.removexattr(Target::Link(temporary), REDIRECT);
            // If it stays, it is removed when no process lives in the container.
            let _ = self.clear(temporary);
            match self.process.unlinkat(CWD, temporary, AT_REMOVEDIR) {
                Err(Errno::ENOTEMPTY) if self.has_files(temporary) => Err(Errno::ENOTEMPTY),
                _ => Ok(()),
            }
        });
        if removed.is_err() {
            put_back()?;
        }
        removed
    }

    /// Has nothing of the image seen in a directory.
    fn seal(&self, path: &CStr) -> Result<()> {
        self.process.setxattr(Target::Link(path), OPAQUE, b"y", 0)?;
        match self.process.removexattr(Target::Link(path), REDIRECT) {
            Err(Errno::ENODATA) => Ok(()),
            result => result,
        }
    }

    /// Returns true if a directory has a name that is no whiteout.
    fn has_files(&self, path: &CStr) -> bool {
        let found = self.each_name(path, |directory, name| {
            let status = self.process.fstatat(directory.fd(), name, AT_SYMLINK_NOFOLLOW)?;
            if is_whiteout(&status) { Ok(()) } else { Err(Errno::ENOTEMPTY) }
        });
        found == Err(Errno::ENOTEMPTY)
    }

    /// Removes the whiteouts in a directory.
    fn clear(&self, path: &CStr) -> Result<()> {
        self.each_name(path, |directory, name| {
            let status = self.process.fstatat(directory.fd(), name, AT_SYMLINK_NOFOLLOW);
            if status.is_ok_and(|status| is_whiteout(&status)) {
                self.process.unlinkat(directory.fd(), name, 0)?;
            }
            Ok(())
        })
    }

    /// Replaces a directory of which only whiteouts are left by one that the kernel finds empty:
    /// over that another directory can be renamed. The caller is alone.
    pub(super) fn replace_by_empty(&self, name: &[u8]) -> Result<()> {
        self.with_temporary_directory(|temporary| {
            self.with_upper(name, b"", |path| {
                let source = OpenFile::open(self.process, path, DIRECTORY, 0)?;
                let copy = OpenFile::open(self.process, temporary, DIRECTORY, 0)?;
                let from = (&source, &source.status()?);
                file_contents::metadata(self.process, from, &copy, Origin::Same)
            })?;
            self.seal(temporary)?;
            let exchange = || self.put_in_place(temporary, name, EXCHANGE);
            self.keeping_times(parent(name).0, || {
                exchange()?;
                self.dispose(temporary, exchange)
            })
        })
    }

    /// Moves a directory of the upper one to a name at which there is a whiteout. The old name
    /// needs none. The caller is alone.
    pub(super) fn move_over_whiteout(&self, from: &[u8], to: &[u8]) -> Result<()> {
        if self.may_have_whiteout(from)? {
            self.rename_upper(from, to, EXCHANGE)?;
            // If it stays, it hides nothing, and a start removes it.
            return self.with_upper(from, b"", |path| {
                let _ = self.process.unlinkat(CWD, path, 0);
                Ok(())
            });
        }
        // An empty directory takes the whiteout's place before.
        self.with_temporary_directory(|temporary| {
            self.seal(temporary)?;
            self.put_in_place(temporary, to, EXCHANGE)?;
            if let Err(errno) = self.rename_upper(from, to, 0) {
                self.put_in_place(temporary, to, EXCHANGE)?;
                return Err(errno);
            }
            let _ = self.process.unlinkat(CWD, temporary, 0);
            Ok(())
        })
    }

    /// Returns true if a whiteout is known for one also at a name that the image does not have:
    /// names are asked for on disk, and the kernel does not list the directory that has them.
    fn may_have_whiteout(&self, name: &[u8]) -> Result<bool> {
        Ok(self.image().changes.has_redirects()
            && matches!(self.locate(parent(name).0)?, Located::Upper { base: Some(_) }))
    }
}

/// The first name in what `getdents64` gave, and the rest.
fn first_entry(bytes: &[u8]) -> Option<(&CStr, &[u8])> {
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let length = usize::from(u16::from_le_bytes(*bytes.get(LENGTH..)?.first_chunk()?));
    let (entry, rest) = bytes.split_at_checked(length.max(NAME + 1))?;
    Some((CStr::from_bytes_until_nul(entry.get(NAME..)?).ok()?, rest))
}
