//! A container's tree in two layers: the image's tree, which never changes, and above it an upper
//! directory with what the container has changed.
//!
//! On disk the upper directory has overlayfs's form (Linux's `Documentation/filesystems/overlayfs`,
//! mounted with `userxattr`), so every engine and every command reads it alike:
//!
//! | in the upper directory | means |
//! |---|---|
//! | a name | hides the image's; of two directories both are seen (*merged*) |
//! | a character device 0:0 (*whiteout*) | the image's name is gone |
//! | a directory with `user.overlay.opaque` | the image's directory of that name is not seen |
//! | a directory with `user.overlay.redirect` | it is merged with that directory of the image |
//!
//! The view knows nothing of it. It names every file of the tree by a path in the upper directory,
//! whether anything is there or not, and the functions here find the layer that has the file
//! ([`locate`]). The image's index ([`view::image`]) tells most of that without a call of the
//! kernel's; what the disk says counts. What is changed is brought into the upper directory before
//! ([`upper`]): a directory alone, a file with its contents ([`mod@crate::copy_up`]). Names are
//! removed and added in [`names`], moved in [`renames`]; [`directories`] has what only directories
//! need, and [`places`] finds the names of open files.
//!
//! What moves or removes names of the image, and what brings something into the upper directory,
//! runs alone in the container (a lock). New names are made without it, because no name of the
//! image can be in their place, except over a whiteout.
//!
//! Unlike overlayfs, a regular file that only gets another name is linked and not copied: the upper
//! directory may have hard links of the image's files, which are copied before they are written to.
//! (If the layers are in two mounts, the kernel makes no such links. A rename is `EXDEV` then, and
//! the view asks for a copy before it tries again.) And directories of the image can be renamed.

mod adopt;
mod directories;
pub mod locate;
mod names;
mod places;
mod renames;
mod upper;

pub use crate::layers::Layers;
pub use adopt::adopt;
pub(crate) use names::{link, unlink};
pub(crate) use renames::rename;

use crate::at::Process;
use crate::kernel::CWD;
use core::ffi::CStr;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, S_IFCHR, S_IFDIR, S_IFMT, S_IFREG, stat,
};
use locate::{Located, split_end};
use view::errno::Result;
use view::guest::Purpose;
use view::image::Image;
use view::{Dir, Errno, Text};

/// An upper directory's attribute: nothing of the image is seen in it.
pub(crate) const OPAQUE: &CStr = c"user.overlay.opaque";
/// An upper directory's attribute: the path of the image's directory that is seen in it.
pub(crate) const REDIRECT: &CStr = c"user.overlay.redirect";

/// How the kernel's name of a file ends that has lost it.
const GONE: &[u8] = b" (deleted)";

/// What a call does with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It changes nothing.
    Reads,
    /// It changes the file.
    Changes,
    /// It makes a new name; it may be made again with another path.
    Makes,
}

/// A call on a file, by its path in the layer that has it. The functions here have no copy for each
/// call.
pub(crate) type Call<'c> = &'c mut dyn FnMut(Dir, &CStr) -> Result<()>;

/// A call on a file, by its path below the root of the tree; `None` for other paths.
type NamedCall<'c> = &'c mut dyn FnMut(Option<&[u8]>) -> Result<()>;

/// The same on two files.
type NamedPairCall<'c> = &'c mut dyn FnMut(Option<(&[u8], &[u8])>) -> Result<()>;

/// The layers over a kernel: what the functions of these modules work with.
pub(crate) struct Overlay<'p, P> {
    pub(crate) process: &'p P,
    pub(crate) layers: Layers<'p>,
}

impl<P> Clone for Overlay<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Overlay<'_, P> {}

/// Returns true for a whiteout.
pub(crate) const fn is_whiteout(status: &stat) -> bool {
    status.st_mode & S_IFMT == S_IFCHR && status.st_rdev == 0
}

impl<'p, P: Process> Overlay<'p, P> {
    /// The layers of a process's container; `None` if its tree is one directory.
    #[inline]
    pub(crate) fn of(process: &'p P) -> Option<Self> {
        process.layers().map(|layers| Self { process, layers })
    }

    pub(crate) fn image(&self) -> &Image<'p> {
        &self.layers.image
    }

    /// The path below the root of the tree that a call names, for a path that leads there, unless
    /// the kernel finds it: in the container's own directories.
    fn named(&self, dir: Dir, path: &CStr, call: NamedCall<'_>) -> Result<()> {
        // A relative path was joined to the name of its directory.
        let is_whole = path.to_bytes().first() == Some(&b'/');
        let is_own = |named: &&[u8]| is_whole && self.image().is_own(split_end(named).0);
        self.in_tree(dir, path, &mut |named| call(named.filter(|named| !is_own(named))))
    }

    /// The path below the root of the tree that a call names, for a path that leads there. Relative
    /// paths are joined to the name of their directory.
    fn in_tree(&self, dir: Dir, path: &CStr, call: NamedCall<'_>) -> Result<()> {
        let bytes = path.to_bytes();
        if bytes.is_empty() {
            return call(None);
        }
        if bytes.first() == Some(&b'/') || dir == Dir::Root {
            return call(self.image().in_upper(bytes));
        }
        if self.process.is_upper(dir) {
            return call(Some(bytes));
        }
        if !self.may_be_layered(dir)? {
            return call(None);
        }
        self.by_directory(dir, bytes, call)
    }

    /// Makes a call with the paths of two files below the root of the tree; `None` if they do not
    /// both lead there, or both lead to directories that are the container's alone.
    fn both_in_tree(
        &self,
        from: (Dir, &CStr),
        to: (Dir, &CStr),
        call: NamedPairCall<'_>,
    ) -> Result<()> {
        self.in_tree(from.0, from.1, &mut |old| {
            self.in_tree(to.0, to.1, &mut |new| match (old, new) {
                (Some(old), Some(new)) => call(Some((old, new))),
                (None, None) => call(None),
                // If the other one is in the tree, it has a name there, though the kernel finds it
                // without.
                (Some(old), None) => self.in_any(to, &mut |new| call(new.map(|new| (old, new)))),
                (None, Some(new)) => self.in_any(from, &mut |old| call(old.map(|old| (old, new)))),
            })
        })
    }

    /// The path below the root of the tree that a call names, also in a directory that is the
    /// container's alone.
    fn in_any(&self, (dir, path): (Dir, &CStr), call: NamedCall<'_>) -> Result<()> {
        match path.to_bytes() {
            [] | [b'/', ..] => call(None),
            _ if dir == Dir::Root => call(None),
            bytes => self.by_directory(dir, bytes, call),
        }
    }

    /// The path below the root of the tree that a relative path names, by the name of its
    /// directory.
    #[inline(never)]
    fn by_directory(&self, dir: Dir, path: &[u8], call: NamedCall<'_>) -> Result<()> {
        let mut text = Text::EMPTY;
        match self.directory_of(dir, path, &mut text) {
            Ok(()) => call(self.image().in_upper(text.as_bytes())),
            // It has no name, has lost it, or is too deep for one. Nothing is made in the image.
            Err(Errno::ENAMETOOLONG | Errno::EACCES | Errno::EPERM | Errno::ENOENT)
                if self.of_status(&self.status(dir)?).is_none() =>
            {
                call(None)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Joins a relative path to the view's path of its directory. `ENOENT` if that was removed.
    fn directory_of(&self, dir: Dir, path: &[u8], text: &mut Text) -> Result<()> {
        crate::at::path_of(self.process, dir, text)?;
        let is_gone = match self.record_of(text.as_bytes()) {
            Some(record) => self.place_of(record, text)?,
            None => self.is_upper_gone(dir, text.as_bytes())?,
        };
        if is_gone {
            return Err(Errno::ENOENT);
        }
        text.push_component(path)
    }

    /// Returns true if an open directory of the upper one, of which this is the kernel's name, was
    /// removed: the end of the name may be its own.
    fn is_upper_gone(&self, dir: Dir, path: &[u8]) -> Result<bool> {
        let Some(named) = self.image().in_upper(path) else { return Ok(false) };
        if !named.ends_with(GONE) {
            return Ok(false);
        }
        let here = self.status(dir)?;
        match self.upper_status(named) {
            Ok(there) => Ok((there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(true),
            Err(errno) => Err(errno),
        }
    }

    /// Status of an open file.
    fn status(&self, dir: Dir) -> Result<stat> {
        crate::at::at(self.process, dir, c"", |at| {
            self.process.fstatat(at.dir, at.path, at.flags(AT_SYMLINK_NOFOLLOW) | AT_EMPTY_PATH)
        })
    }

    /// The record of a path in the image's tree.
    fn record_of(&self, path: &[u8]) -> Option<u32> {
        find(self.image(), self.image().in_lower(path)?)
    }

    /// Returns true if a directory may be seen in both layers.
    fn may_be_layered(&self, dir: Dir) -> Result<bool> {
        let mut facts = view::identity::NO_FACTS;
        crate::at::at(self.process, dir, c"", |at| {
            let flags = at.flags(AT_EMPTY_PATH) | AT_EMPTY_PATH;
            crate::files::look(self.process, at.dir, at.path, flags, &mut facts)
        })?;
        Ok(self.image().may_be_layered(&facts))
    }

    /// Replaces the kernel's name of a file of the image by the path that the view uses. A file
    /// that the container has removed gets a name that ends in ` (deleted)`, as the kernel's do.
    pub(crate) fn replace_name(&self, text: &mut Text) -> Result<()> {
        let Some(record) = self.record_of(text.as_bytes()) else { return Ok(()) };
        if self.place_of(record, text)? { text.push(GONE) } else { Ok(()) }
    }

    /// Makes a call on a file.
    pub(crate) fn call(
        &self,
        effect: Effect,
        (dir, path): (Dir, &CStr),
        call: Call<'_>,
    ) -> Result<()> {
        match effect {
            Effect::Reads => self.reading(dir, path, call),
            Effect::Changes => self.changing(dir, path, call),
            Effect::Makes => self.making(dir, path, call),
        }
    }

    /// Makes a call that changes nothing with the path of the layer that has the file.
    pub(crate) fn reading(&self, dir: Dir, path: &CStr, call: Call<'_>) -> Result<()> {
        self.named(dir, path, &mut |named| match named {
            None => call(dir, path),
            Some(named) => {
                let (name, end) = split_end(named);
                let located = self.locate(name)?;
                let result = self.with_real(name, located, end, |path| call(Dir::Root, path));
                self.unless_removed(name, result)
            }
        })
    }

    /// Corrects what the kernel says of a path through a whiteout, which has taken the place of a
    /// directory meanwhile.
    pub(crate) fn unless_removed(&self, name: &[u8], result: Result<()>) -> Result<()> {
        match result {
            Err(Errno::ENOTDIR) => Err(self.locate(name).err().unwrap_or(Errno::ENOTDIR)),
            result => result,
        }
    }

    /// Makes a call that changes a file, which is brought into the upper directory before.
    fn changing(&self, dir: Dir, path: &CStr, call: Call<'_>) -> Result<()> {
        if path.is_empty() {
            return self.changing_itself(dir, call);
        }
        // A file in one of the container's own directories may be the image's, too.
        self.in_tree(dir, path, &mut |named| match named {
            None => call(dir, path),
            Some(named) => {
                let (name, end) = split_end(named);
                let owned = self.own(name);
                let result =
                    owned.and_then(|()| self.with_upper(name, end, |path| call(Dir::Root, path)));
                self.unless_removed(name, result)
            }
        })
    }

    /// The same for an open file.
    fn changing_itself(&self, dir: Dir, call: Call<'_>) -> Result<()> {
        let mut text = Text::EMPTY;
        let Some((record, _)) = self.of_status(&self.status(dir)?) else { return call(dir, c"") };
        let is_gone = self.place_of(record, &mut text)?;
        let named = self.image().in_upper(text.as_bytes()).ok_or(Errno::EROFS)?;
        match self.own(named) {
            // It has lost its name: the change would be seen by nobody.
            _ if is_gone => Err(Errno::EROFS),
            Err(Errno::ENOENT) => Err(Errno::EROFS),
            Err(errno) => Err(errno),
            Ok(()) => self.with_upper(named, b"", |path| call(Dir::Root, path)),
        }
    }

    /// What the index says of a file with this status.
    pub(crate) fn of_status(&self, status: &stat) -> Option<(u32, abi::index::Entry)> {
        self.image().of_inode(device(status.st_dev), status.st_ino)
    }

    /// Makes a call that makes a new name.
    pub(crate) fn making(&self, dir: Dir, path: &CStr, call: Call<'_>) -> Result<()> {
        self.named(dir, path, &mut |named| match named {
            None => call(dir, path),
            Some(named) => {
                let (name, end) = split_end(named);
                match self.locate(name) {
                    Ok(Located::Upper { base: None }) | Err(Errno::ENOENT) => {
                        let made = self.make(name, end, call);
                        self.unless_removed(name, made)
                    }
                    Ok(_) => Err(Errno::EEXIST),
                    Err(errno) => Err(errno),
                }
            }
        })
    }

    /// Puts together the path of a file in the layer that has it.
    pub(crate) fn with_real<T>(
        &self,
        name: &[u8],
        located: Located,
        end: &[u8],
        call: impl FnOnce(&CStr) -> Result<T>,
    ) -> Result<T> {
        match located {
            Located::Upper { .. } => self.with_upper(name, end, call),
            Located::Lower(record) => {
                let mut real = Text::EMPTY;
                self.image().real(record, &mut real).ok_or(Errno::ENAMETOOLONG)?;
                real.push(slash_between(name, end))?;
                real.push(end)?;
                call(real.as_c_str())
            }
            Located::Link => Err(Errno::ELOOP),
        }
    }

    /// The same in the upper directory.
    pub(crate) fn with_upper<T>(
        &self,
        name: &[u8],
        end: &[u8],
        call: impl FnOnce(&CStr) -> Result<T>,
    ) -> Result<T> {
        let slash: &[u8] = if name.is_empty() { b"" } else { b"/" };
        let between = slash_between(name, end);
        self.process.with_path(&[self.image().upper, slash, name, between, end], call)
    }

    /// Status of a name in the upper directory.
    pub(crate) fn upper_status(&self, name: &[u8]) -> Result<stat> {
        self.with_upper(name, b"", |path| self.process.fstatat(CWD, path, AT_SYMLINK_NOFOLLOW))
    }
}

/// Replaces the image's file at an absolute path by a copy of the container's own; `note` stores
/// the record of an inode that cannot carry it. `None` if the tree has no layers, or the path leads
/// elsewhere.
pub fn copy_up<P: Process>(
    process: &P,
    path: &CStr,
    note: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Option<Result<()>> {
    let overlay = Overlay::of(process)?;
    let (name, _) = split_end(overlay.image().in_upper(path.to_bytes())?);
    Some(overlay.copy_up(name, note))
}

/// [`view::Host::real_path`].
pub fn real_path<P: Process>(
    process: &P,
    path: &CStr,
    purpose: Purpose,
    into: &mut Text,
) -> Result<bool> {
    let Some(overlay) = Overlay::of(process) else {
        return into.set(path.to_bytes()).map(|()| false);
    };
    let Some(named) = overlay.image().in_upper(path.to_bytes()) else {
        return into.set(path.to_bytes()).map(|()| false);
    };
    let (name, end) = split_end(named);
    if overlay.image().is_own(name) {
        return into.set(path.to_bytes()).map(|()| false);
    }
    let mut is_hidden = false;
    let located = match overlay.locate(name) {
        Err(Errno::ENOENT) if purpose != Purpose::Use => {
            overlay.settle(locate::parent(name).0)?;
            is_hidden = overlay.is_hidden(name)?;
            if is_hidden && purpose == Purpose::Make {
                // Until the name is made, the image's is seen.
                overlay.with_upper(name, b"", |path| process.unlinkat(CWD, path, 0))?;
            }
            Located::Upper { base: None }
        }
        located => located?,
    };
    overlay.with_real(name, located, end, |path| into.set(path.to_bytes()))?;
    Ok(is_hidden)
}

/// Replaces the kernel's name of a file of the image by the path that the view uses.
pub fn to_place<P: Process>(process: &P, text: &mut Text) -> Result<()> {
    Overlay::of(process).map_or(Ok(()), |overlay| overlay.replace_name(text))
}

/// [`view::Host::await_move`].
pub fn await_move<P: Process>(process: &P) {
    if let Some(overlay) = Overlay::of(process) {
        let changes = overlay.image().changes;
        // If the lock cannot be taken, its holder cannot be waited for.
        let _ = overlay.alone(|| {
            changes.move_ends();
            Ok(())
        });
    }
}

/// [`view::Host::base_of`].
pub fn base_of<P: Process>(process: &P, path: &CStr) -> Option<u32> {
    let overlay = Overlay::of(process)?;
    let (name, _) = split_end(overlay.image().in_upper(path.to_bytes())?);
    match overlay.locate(name).ok()? {
        Located::Upper { base } => base,
        _ => None,
    }
}

/// The slash that is missing between the root's empty name and an end of dots.
const fn slash_between(name: &[u8], end: &[u8]) -> &'static [u8] {
    if name.is_empty() && matches!(end, [b'.', ..]) { b"/" } else { b"" }
}

/// The record of a path in the image, whatever the container has changed.
pub(crate) fn find(image: &Image<'_>, path: &[u8]) -> Option<u32> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    names.into_iter().try_fold(abi::index::ROOT, |here, name| image.index.child(here, name))
}

/// Major and minor number of a device.
pub const fn device(number: u64) -> (u32, u32) {
    let major = (number >> 8) & 0xfff | (number >> 32) & !0xfff;
    let minor = number & 0xff | (number >> 12) & !0xff;
    (major as u32, minor as u32)
}

/// Returns true for a directory.
pub(crate) const fn is_directory(status: &stat) -> bool {
    status.st_mode & S_IFMT == S_IFDIR
}

/// Returns true for a regular file.
pub(crate) const fn is_file(status: &stat) -> bool {
    status.st_mode & S_IFMT == S_IFREG
}
