//! Moves names.
//!
//! A directory of the image that is moved keeps the image's names: an attribute says which
//! directory it is, and the log where it is ([`super::places`]). Both say so before it is moved, by
//! its old name and by its new one. A process that is killed leaves the old state or the new one,
//! and others see no other state. The exceptions: where the file system cannot leave a whiteout in
//! the same step, both names of a file; and an empty directory in the place of a whiteout, if the
//! container's own directory is moved there while none of the image's has another name, or from
//! a directory that is the container's alone.

use super::locate::{Located, parent, split_end};
use super::names::Name;
use super::places::redirect_text;
use super::upper::{EXCHANGE, NO_REPLACE};
use super::{OPAQUE, Overlay, REDIRECT, is_directory, is_whiteout};
use crate::at::Process;
use crate::kernel::{CWD, Target};
use core::ffi::CStr;
use linux_raw_sys::general::{AT_SYMLINK_NOFOLLOW, stat};
use view::errno::Result;
use view::{Dir, Errno, Text};

/// `RENAME_WHITEOUT`.
const WHITEOUT: u32 = 4;

/// A name that takes part in a rename.
#[derive(Clone, Copy)]
struct Part<'a> {
    path: &'a [u8],
    /// The path ended in a slash: it must be a directory.
    slash: bool,
}

/// What has a name, and its status.
type There = (Located, stat);

impl<P: Process> Overlay<'_, P> {
    /// `renameat2` with `RENAME_NOREPLACE`, `RENAME_EXCHANGE`, or none.
    fn rename(&self, from: Part<'_>, to: Part<'_>, flags: u32) -> Result<()> {
        for part in [from, to] {
            if self.locate(parent(part.path).0)? == Located::Link {
                return Err(Errno::ELOOP);
            }
        }
        self.alone(|| {
            let (old, new) = (self.name(from.path)?, self.name(to.path)?);
            let source = self.status_of(from.path, old)?.ok_or(Errno::ENOENT)?;
            let target = self.status_of(to.path, new)?;
            if self.may_rename((from, &source), (to, target.as_ref()), flags)? {
                self.settle_alone(parent(from.path).0)?;
                self.settle_alone(parent(to.path).0)?;
                return self.move_name((from.path, old), (to.path, new), flags);
            }
            Ok(())
        })
    }

    fn status_of(&self, path: &[u8], name: Name) -> Result<Option<There>> {
        let Some(located) = name.located else { return Ok(None) };
        self.status_at(path, located).map(|status| Some((located, status)))
    }

    fn status_at(&self, path: &[u8], located: Located) -> Result<stat> {
        self.with_real(path, located, b"", |path| {
            self.process.fstatat(CWD, path, AT_SYMLINK_NOFOLLOW)
        })
    }

    /// The kernel's checks, in its order. False: there is nothing to do.
    fn may_rename(
        &self,
        (from, source): (Part<'_>, &There),
        (to, target): (Part<'_>, Option<&There>),
        flags: u32,
    ) -> Result<bool> {
        let exchanges = flags & EXCHANGE != 0;
        match target {
            None if exchanges => return Err(Errno::ENOENT),
            Some(_) if flags & NO_REPLACE != 0 => return Err(Errno::EEXIST),
            _ => {}
        }
        let is_target_directory = target.is_some_and(|(_, status)| is_directory(status));
        let must_be = from.slash || !exchanges && to.slash;
        if must_be && !is_directory(&source.1) || exchanges && to.slash && !is_target_directory {
            return Err(Errno::ENOTDIR);
        }
        if is_below(to.path, from.path) {
            // That there is no such directory is said before.
            let above = parent(to.path).0;
            return Err(self.status_at(above, self.locate(above)?).err().unwrap_or(Errno::EINVAL));
        }
        if is_below(from.path, to.path) {
            return Err(if exchanges { Errno::EINVAL } else { Errno::ENOTEMPTY });
        }
        let Some((located, status)) = target else { return Ok(true) };
        let is_same = (status.st_dev, status.st_ino) == (source.1.st_dev, source.1.st_ino);
        if is_same && (!is_target_directory || from.path == to.path) {
            return Ok(false);
        }
        match (is_directory(&source.1), is_target_directory) {
            _ if exchanges => Ok(true),
            (true, false) => Err(Errno::ENOTDIR),
            (false, true) => Err(Errno::EISDIR),
            (false, false) => Ok(true),
            (true, true) => match *located {
                Located::Lower(record) if self.has_names(record) => Err(Errno::ENOTEMPTY),
                Located::Upper { base } => self.whiteouts(to.path, base).map(|_| true),
                _ => Ok(true),
            },
        }
    }

    fn move_name(
        &self,
        (from, old): (&[u8], Name),
        (to, new): (&[u8], Name),
        flags: u32,
    ) -> Result<()> {
        let exchanges = flags & EXCHANGE != 0;
        self.raise(from, old.located, new.child.is_some())?;
        self.note_renamed(from, to)?;
        if exchanges {
            self.raise(to, new.located, old.child.is_some())?;
            self.note_renamed(to, from)?;
        }
        self.cover(old.child);
        self.cover(new.child);
        self.moving(|| {
            if exchanges {
                return self.rename_upper(from, to, EXCHANGE);
            }
            self.rename_over((from, old), (to, new))
        })
    }

    /// Has a file in the upper directory, so that it can be moved. `over`: the image has its new
    /// name too.
    fn raise(&self, name: &[u8], located: Option<Located>, over: bool) -> Result<()> {
        if let Some(Located::Lower(record)) = located {
            let entry = self.image().index.entry(record).ok_or(Errno::ENOENT)?;
            if !entry.is_directory() {
                self.image().cover(record);
                return self.link_up(name, record);
            }
            self.settle_alone(name)?;
        }
        if !is_directory(&self.upper_status(name)?) {
            return Ok(());
        }
        // A merged directory takes the image's with it.
        let base = match self.locate(name)? {
            Located::Upper { base } => base,
            _ => None,
        };
        match base {
            Some(base) if self.redirect(name)? != Some(base) => {
                let mut text = Text::EMPTY;
                redirect_text(self.image(), base, &mut text)?;
                // Until it is moved, its name means the same.
                self.note_redirect(base, name)?;
                self.with_upper(name, b"", |path| {
                    self.process.setxattr(Target::Link(path), REDIRECT, text.as_bytes(), 0)
                })
            }
            None if over => self.with_upper(name, b"", |path| {
                self.process.setxattr(Target::Link(path), OPAQUE, b"y", 0)
            }),
            _ => Ok(()),
        }
    }

    /// Gives a file of the image its name in the upper directory: the image's own inode.
    fn link_up(&self, name: &[u8], record: u32) -> Result<()> {
        let mut real = Text::EMPTY;
        self.image().real(record, &mut real).ok_or(Errno::ENAMETOOLONG)?;
        self.note_shared()?;
        let link = || {
            self.with_upper(name, b"", |path| {
                self.process.linkat((CWD, real.as_c_str()), (CWD, path), 0)
            })
        };
        self.keeping_times(parent(name).0, link)
    }

    pub(super) fn rename_upper(&self, from: &[u8], to: &[u8], flags: u32) -> Result<()> {
        self.with_upper(from, b"", |from| {
            self.with_upper(to, b"", |to| self.process.renameat2((CWD, from), (CWD, to), flags))
        })
    }

    /// Moves a name that is in the upper directory, and leaves a whiteout where the image has it.
    fn rename_over(&self, (from, old): (&[u8], Name), (to, new): (&[u8], Name)) -> Result<()> {
        let moves_directory = is_directory(&self.upper_status(from)?);
        if moves_directory {
            match (self.upper_status(to), new.located) {
                (Ok(status), _) if is_whiteout(&status) => {
                    if old.child.is_none() {
                        return self.move_over_whiteout(from, to);
                    }
                    // The whiteout comes to the old name.
                    return self.rename_upper(from, to, EXCHANGE);
                }
                (Ok(_), Some(Located::Upper { base })) if self.whiteouts(to, base)? > 0 => {
                    if old.child.is_some() {
                        // Whether the file system can make a whiteout is known before anything is
                        // lost: the target, which is not empty, stays in either case.
                        match self.rename_upper(from, to, WHITEOUT) {
                            Err(Errno::EINVAL) => return Err(Errno::EXDEV),
                            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {}
                            result => return result,
                        }
                    }
                    self.replace_by_empty(to)?;
                }
                (Ok(_) | Err(Errno::ENOENT), _) => {}
                (Err(errno), _) => return Err(errno),
            }
        }
        if old.child.is_none() {
            return self.rename_upper(from, to, 0);
        }
        match self.rename_upper(from, to, WHITEOUT) {
            // The file system cannot make it in one step. A directory would be seen at two names,
            // which share what the container has changed in it; so programs must copy it.
            Err(Errno::EINVAL) if moves_directory => Err(Errno::EXDEV),
            Err(Errno::EINVAL) => {
                self.rename_upper(from, to, 0)?;
                self.whiteout(from)
            }
            result => result,
        }
    }
}

/// `renameat2`.
pub(crate) fn rename<P: Process>(
    overlay: Overlay<'_, P>,
    from: (Dir, &CStr),
    to: (Dir, &CStr),
    flags: u32,
    mut call: impl FnMut((Dir, &CStr), (Dir, &CStr)) -> Result<()>,
) -> Result<()> {
    overlay.both_in_tree(from, to, &mut |named| {
        let Some((old, new)) = named else { return call(from, to) };
        // Guests make no whiteouts.
        if flags & !(NO_REPLACE | EXCHANGE) != 0 || flags == NO_REPLACE | EXCHANGE {
            return Err(Errno::EINVAL);
        }
        let whole = (old, new);
        let ((old, old_end), (new, new_end)) = (split_end(old), split_end(new));
        if overlay.image().is_own(old) && overlay.image().is_own(new) {
            // A descriptor may have the image's directory.
            return overlay.rename_upper(whole.0, whole.1, flags);
        }
        if old_end.contains(&b'.') || old.is_empty() {
            return Err(Errno::EBUSY);
        }
        if new_end.contains(&b'.') || new.is_empty() {
            let replaces = flags & NO_REPLACE == 0;
            return Err(if replaces { Errno::EBUSY } else { Errno::EEXIST });
        }
        let part = |path, end: &[u8]| Part { path, slash: !end.is_empty() };
        overlay.rename(part(old, old_end), part(new, new_end), flags)
    })
}

/// Returns true if a path lies beneath another.
fn is_below(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.first() == Some(&b'/'))
}
