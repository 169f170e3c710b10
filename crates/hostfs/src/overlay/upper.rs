//! Brings files of the image into the upper directory: directories without their contents, links
//! and pipes as they are. (Regular files: [`mod@crate::copy_up`].)
//!
//! What is made gets its attributes under a temporary name and is then renamed into place, so it is
//! never seen half done. The directory above keeps its times, because for the guest nothing
//! happened there.

use super::locate::{Located, parent};
use super::{Call, OPAQUE, Overlay, is_directory, is_file, is_whiteout};
use crate::at::Process;
use crate::copy_up::times_of;
use crate::file_contents::{self, Origin};
use crate::kernel::{CWD, OpenFile, Target};
use crate::layout;
use crate::{io, lock};
use abi::index::Entry;
use core::ffi::CStr;
use linux_raw_sys::general::{
    AT_REMOVEDIR, AT_SYMLINK_NOFOLLOW, O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY,
    S_IFCHR, S_IFLNK, S_IFMT, stat,
};
use view::errno::Result;
use view::{Dir, Errno, Text};

/// `RENAME_NOREPLACE`.
pub(super) const NO_REPLACE: u32 = 1;
/// `RENAME_EXCHANGE`.
pub(super) const EXCHANGE: u32 = 2;

impl<P: Process> Overlay<'_, P> {
    /// Brings a directory and all above it into the upper directory. `ENOTDIR` for other files.
    pub(super) fn settle(&self, directory: &[u8]) -> Result<()> {
        // Most are there.
        if self.is_settled(directory)? {
            return Ok(());
        }
        self.alone(|| self.settle_alone(directory))
    }

    /// The same for a caller that is alone: no name is moved meanwhile.
    pub(super) fn settle_alone(&self, directory: &[u8]) -> Result<()> {
        if self.is_settled(directory)? {
            return Ok(());
        }
        let mut end = 0;
        while end < directory.len() {
            let rest = directory.get(end + 1..).unwrap_or_default();
            let length = rest.iter().position(|byte| *byte == b'/');
            end = length.map_or(directory.len(), |length| end + 1 + length);
            let here = directory.get(..end).unwrap_or_default();
            match self.locate(here)? {
                Located::Upper { .. } => {}
                Located::Lower(record) => self.merge(here, record)?,
                Located::Link => return Err(Errno::ELOOP),
            }
        }
        Ok(())
    }

    fn is_settled(&self, directory: &[u8]) -> Result<bool> {
        match self.locate(directory)? {
            Located::Upper { .. } => Ok(true),
            Located::Lower(record) => {
                let entry = self.image().index.entry(record);
                let is_directory = entry.is_some_and(|entry| entry.is_directory());
                if is_directory { Ok(false) } else { Err(Errno::ENOTDIR) }
            }
            Located::Link => Err(Errno::ELOOP),
        }
    }

    /// Makes the upper directory's part of a directory of the image. The one above is there.
    fn merge(&self, name: &[u8], record: u32) -> Result<()> {
        let changes = self.image().changes;
        let made = self.with_temporary_directory(|temporary| {
            self.like_the_image(record, temporary)?;
            let rename = || self.put_in_place(temporary, name, NO_REPLACE);
            self.keeping_times(parent(name).0, rename)
        });
        match made {
            // Another process was killed before it could set the bit.
            Ok(()) | Err(Errno::EEXIST) => {
                changes.merge(record);
                Ok(())
            }
            result => result,
        }
    }

    /// Gives a new directory mode, attributes and times of the image's.
    fn like_the_image(&self, record: u32, temporary: &CStr) -> Result<()> {
        let mut real = Text::EMPTY;
        self.image().real(record, &mut real).ok_or(Errno::ENAMETOOLONG)?;
        let flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
        let source = OpenFile::open(self.process, real.as_c_str(), flags, 0)?;
        let copy = OpenFile::open(self.process, temporary, flags, 0)?;
        let entry = self.image().index.entry(record).ok_or(Errno::ENOENT)?;
        let truth = self.image().truth(&entry).to_text();
        let origin = Origin::Record(truth.as_bytes());
        file_contents::metadata(self.process, (&source, &source.status()?), &copy, origin)
    }

    /// Makes a directory under a temporary name; it is removed if `make` does not rename it.
    pub(super) fn with_temporary_directory(
        &self,
        make: impl FnOnce(&CStr) -> Result<()>,
    ) -> Result<()> {
        self.with_temporary(
            |path| self.process.mkdirat(CWD, path, 0o700),
            |path| {
                // The umask may have taken the rights.
                let allow = || self.process.fchmodat(CWD, path, 0o700);
                let allowed = if P::APPLIES_UMASK { allow() } else { Ok(()) };
                let result = allowed.and_then(|()| make(path));
                if result.is_err() {
                    let _ = self.process.unlinkat(CWD, path, AT_REMOVEDIR);
                }
                result
            },
        )
    }

    /// Makes a file under a temporary name that is free, and hands the name on.
    pub(super) fn with_temporary<T>(
        &self,
        mut make: impl FnMut(&CStr) -> Result<()>,
        then: impl FnOnce(&CStr) -> Result<T>,
    ) -> Result<T> {
        let mut then = Some(then);
        for number in 0..io::NAMES_MAX {
            let name = layout::Temporary::Copy.name(self.process.thread_id(), number);
            let parts = [self.layers.work, b"/", name.as_bytes()];
            let done = self.process.with_path(&parts, |path| match make(path) {
                // Left by a thread of this number that was killed.
                Err(Errno::EEXIST) => Ok(None),
                Err(errno) => Err(errno),
                Ok(()) => then.take().map(|then| then(path)).transpose(),
            })?;
            if let Some(done) = done {
                return Ok(done);
            }
        }
        Err(Errno::EEXIST)
    }

    /// Renames what was made to its place in the upper directory.
    pub(super) fn put_in_place(&self, temporary: &CStr, name: &[u8], flags: u32) -> Result<()> {
        self.with_upper(name, b"", |path| {
            self.process.renameat2((CWD, temporary), (CWD, path), flags)
        })
    }

    /// Does something in a directory of the upper one that keeps its times.
    pub(super) fn keeping_times<T>(
        &self,
        directory: &[u8],
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let before = self.upper_status(directory)?;
        let result = work();
        let _ = self.with_upper(directory, b"", |path| {
            self.process.utimensat(CWD, Some(path), Some(&times_of(&before)), AT_SYMLINK_NOFOLLOW)
        });
        result
    }

    /// Runs `work` while no other process of the container moves names between the layers.
    pub(super) fn alone<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        lock::while_alone(self.process, self.layers.work, work)
    }

    /// Runs `work`, which gives a directory another name, and has those notice it who look for
    /// something beneath by the name that it had. The caller is alone.
    pub(super) fn moving<T>(&self, work: impl FnOnce() -> T) -> T {
        let changes = self.image().changes;
        changes.move_begins();
        let result = work();
        changes.move_ends();
        result
    }

    /// Brings a directory into the upper one. Another file must have been copied before, by
    /// [`Overlay::copy_up`]: `EROFS`.
    pub(super) fn own(&self, name: &[u8]) -> Result<()> {
        match self.locate(name)? {
            Located::Link => Err(Errno::ELOOP),
            Located::Upper { .. } => {
                let status = self.upper_status(name)?;
                // A link to the image's file under another name.
                let shared = !is_directory(&status) && self.of_status(&status).is_some();
                if shared { Err(Errno::EROFS) } else { Ok(()) }
            }
            Located::Lower(record) => {
                let entry = self.image().index.entry(record).ok_or(Errno::ENOENT)?;
                if entry.is_directory() { self.settle(name) } else { Err(Errno::EROFS) }
            }
        }
    }

    /// Replaces a file of the image by a copy of the container's own. It is as good if another
    /// process does so meanwhile. `note` stores the record of an inode that cannot carry it.
    pub(crate) fn copy_up(
        &self,
        name: &[u8],
        note: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let located = self.locate(name)?;
        let mut real = Text::EMPTY;
        let status = self.with_real(name, located, b"", |path| {
            real.set(path.to_bytes())?;
            self.process.fstatat(CWD, path, AT_SYMLINK_NOFOLLOW)
        })?;
        let Some((record, entry)) = self.of_status(&status) else { return Ok(()) };
        if entry.is_directory() {
            return self.own(name);
        }
        self.settle(parent(name).0)?;
        let child = if let Located::Lower(child) = located { Some(child) } else { None };
        let place = |temporary: &CStr| self.replace((name, child), status.st_ino, temporary);
        if is_file(&status) {
            return self.copy_file(real.as_c_str(), (&status, &entry), place);
        }
        debug_assert_eq!(self.image().index.by_inode(entry.inode), Some(record));
        self.copy_special(&entry, note, place)
    }

    fn copy_file(
        &self,
        real: &CStr,
        (status, entry): (&stat, &Entry),
        place: impl FnOnce(&CStr) -> Result<()>,
    ) -> Result<()> {
        let kernel = self.process;
        let flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
        let source = OpenFile::open(kernel, real, flags, 0)?;
        io::with_temporary(kernel, self.layers.work, layout::Temporary::Copy, |name, copy| {
            let placed = io::allow_owner(kernel, &copy)
                .and_then(|()| {
                    let truth = self.image().truth(entry).to_text();
                    let origin = Origin::Record(truth.as_bytes());
                    file_contents::fill(kernel, (&source, status), &copy, origin)
                })
                .and_then(|()| place(name));
            self.unless_placed(name, placed)
        })
    }

    /// Makes a link, pipe or socket of the image anew.
    fn copy_special(
        &self,
        entry: &Entry,
        mut note: impl FnMut(&[u8], &[u8]) -> Result<()>,
        place: impl FnOnce(&CStr) -> Result<()>,
    ) -> Result<()> {
        let mut target = Text::EMPTY;
        target.set(self.image().index.target(entry))?;
        let mode = u32::from(entry.mode);
        let make = |path: &CStr| match entry.kind() {
            S_IFLNK => self.process.symlinkat(target.as_c_str(), CWD, path),
            _ => self.process.mknodat(CWD, path, mode & S_IFMT | 0o600),
        };
        self.with_temporary(make, |temporary| {
            let prepare = || {
                let times = view::image::times(entry);
                let kernel = self.process;
                if entry.kind() != S_IFLNK {
                    kernel.fchmodat(CWD, temporary, mode & 0o777 | 0o600)?;
                }
                kernel.utimensat(CWD, Some(temporary), Some(&times), AT_SYMLINK_NOFOLLOW)?;
                let truth = self.image().truth(entry);
                if (truth.uid, truth.gid) != (0, 0) || truth.needs_record() {
                    let mut facts = view::identity::NO_FACTS;
                    crate::look::look(kernel, CWD, temporary, AT_SYMLINK_NOFOLLOW, &mut facts)?;
                    note(&view::identity::note_key(&facts), truth.to_text().as_bytes())?;
                }
                place(temporary)
            };
            self.unless_placed(temporary, prepare())
        })
    }

    /// Removes what was made under a temporary name and did not get its place. That another process
    /// was first is as good.
    fn unless_placed(&self, temporary: &CStr, placed: Result<()>) -> Result<()> {
        if placed.is_err() {
            let _ = self.process.unlinkat(CWD, temporary, 0);
        }
        if placed == Err(Errno::EEXIST) { Ok(()) } else { placed }
    }

    /// Renames a copy over the image's file that it was made of. `EEXIST` where that is no longer
    /// there.
    fn replace(&self, (name, child): (&[u8], Option<u32>), inode: u64, copy: &CStr) -> Result<()> {
        self.alone(|| {
            let is_there = match self.upper_status(name) {
                Ok(there) => there.st_ino == inode,
                Err(Errno::ENOENT) => {
                    child.is_some_and(|child| self.locate(name) == Ok(Located::Lower(child)))
                }
                // Something above it has been moved.
                Err(Errno::ENOTDIR) => false,
                Err(errno) => return Err(errno),
            };
            if !is_there {
                return Err(Errno::EEXIST);
            }
            if let Some(child) = child {
                self.image().cover(child);
            }
            self.keeping_times(parent(name).0, || self.put_in_place(copy, name, 0))
        })
    }

    /// Makes a new name, which is in neither layer.
    pub(super) fn make(&self, name: &[u8], end: &[u8], call: Call<'_>) -> Result<()> {
        self.settle(parent(name).0)?;
        if !self.is_hidden(name)? {
            return self.with_upper(name, end, |path| call(Dir::Root, path));
        }
        // A whiteout is in its place.
        self.with_temporary(
            |path| call(Dir::Root, path),
            |temporary| {
                let result = self.alone(|| {
                    // The whiteout may have gone, as one goes that a rename leaves for a moment.
                    if !self.is_hidden(name)? {
                        return self.put_in_place(temporary, name, NO_REPLACE);
                    }
                    self.over_whiteout(temporary, name)
                });
                if result.is_err() {
                    let _ = self.process.unlinkat(CWD, temporary, 0);
                    let _ = self.process.unlinkat(CWD, temporary, AT_REMOVEDIR);
                }
                result
            },
        )
    }

    /// Returns true if there is a whiteout.
    pub(super) fn is_hidden(&self, name: &[u8]) -> Result<bool> {
        let (above, last) = parent(name);
        if let Located::Upper { base: Some(base) } = self.locate(above)? {
            let changes = self.image().changes;
            let may_be = match self.image().index.child(base, last) {
                Some(child) => changes.is_covered(child),
                // One that a rename has left where it came from.
                None => changes.has_redirects(),
            };
            if !may_be {
                return Ok(false);
            }
        }
        match self.upper_status(name) {
            Ok(status) => Ok(is_whiteout(&status)),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Puts a file in the place of a whiteout. A directory must not show the image's.
    pub(super) fn over_whiteout(&self, from: &CStr, name: &[u8]) -> Result<()> {
        let status = self.process.fstatat(CWD, from, AT_SYMLINK_NOFOLLOW)?;
        if !is_directory(&status) {
            return self.put_in_place(from, name, 0);
        }
        self.process.setxattr(Target::Link(from), OPAQUE, b"y", 0)?;
        self.put_in_place(from, name, EXCHANGE)?;
        // If it stays, it is removed when no process lives in the container.
        let _ = self.process.unlinkat(CWD, from, 0);
        Ok(())
    }

    /// Makes a whiteout in the place of a name of the image, which nothing has taken yet.
    pub(super) fn whiteout(&self, name: &[u8]) -> Result<()> {
        self.with_upper(name, b"", |path| self.process.mknodat(CWD, path, S_IFCHR))
    }
}
