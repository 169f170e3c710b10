//! Where the image's files are in the container: the paths that the view uses, and the log of
//! directories that have got another name.
//!
//! A directory of the image that is renamed says itself which one it is (`user.overlay.redirect`).
//! The log says where to look for it: by it a start finds all such directories without reading the
//! whole upper directory, and a process finds the new name of a directory that it has open. Lines
//! are only added, before they become true, and each once: a directory may be moved for ever
//! between a few names. One that is not true, or no longer, is passed over.

use super::locate::Located;
use super::{Overlay, find};
use crate::at::Process;
use crate::io;
use crate::kernel::{OpenFile, Target};
use crate::layout::Decimal;
use abi::index::Entry;
use core::cell::Cell;
use core::ffi::CStr;
use linux_raw_sys::general::{O_APPEND, O_CLOEXEC, O_NOFOLLOW, O_RDONLY};
use view::errno::Result;
use view::identity::record::ORIGIN;
use view::image::Image;
use view::{Errno, Text};

impl<P: Process> Overlay<'_, P> {
    /// Writes down that files of the image are also the container's: engines that write to files
    /// without asking have to copy them before.
    pub(super) fn note_shared(&self) -> Result<()> {
        self.open_log().map(drop)
    }

    /// Writes down that a directory of the image has, or is about to get, this name. The caller is
    /// alone.
    pub(super) fn note_redirect(&self, record: u32, name: &[u8]) -> Result<()> {
        self.image().changes.redirect();
        let mut line = Text::EMPTY;
        line.set(Decimal::new(record.into()).as_bytes())?;
        line.push(b" ")?;
        line.push(name)?;
        let found = self
            .each_line(|other| if other == line.as_bytes() { Err(Errno::EEXIST) } else { Ok(()) });
        match found {
            Err(Errno::EEXIST) => return Ok(()),
            result => result?,
        }
        let file = self.open_log()?;
        let size = file.status()?.st_size as u64;
        let mut last = [0];
        if size > 0 && io::pread(self.process, file.fd(), &mut last, size - 1)? == 1 && last != [0]
        {
            // The end of a line for which there was no room.
            io::write_all(self.process, file.fd(), &[0])?;
        }
        // A name has no NUL.
        io::write_all(self.process, file.fd(), line.with_nul())
    }

    fn open_log(&self) -> Result<OpenFile<'_, P>> {
        let open = |path: &CStr| io::open_or_create(self.process, path, O_APPEND | O_NOFOLLOW);
        self.process.with_path(&[self.layers.moved], open)
    }

    /// Writes down where directories of the image will be that move with another one.
    pub(super) fn note_renamed(&self, from: &[u8], to: &[u8]) -> Result<()> {
        // Logs of older builds have lines many times.
        let noted = Cell::new(None);
        self.each_redirect(
            |record| noted.get() != Some(record),
            |record, name| {
                let rest = name.strip_prefix(from);
                let Some(rest) = rest.filter(|rest| matches!(rest, [] | [b'/', ..])) else {
                    return Ok(());
                };
                let mut name = Text::EMPTY;
                name.set(to)?;
                name.push(rest)?;
                noted.set(Some(record));
                self.note_redirect(record, name.as_bytes())
            },
        )
    }

    /// Calls `each` for the lines of the log that are true: directories of the image with another
    /// name, and that name. Only for those that are `wanted`.
    fn each_redirect(
        &self,
        wanted: impl Fn(u32) -> bool,
        mut each: impl FnMut(u32, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if !self.image().changes.has_redirects() {
            return Ok(());
        }
        self.each_line(|line| match line_of(line) {
            Some((record, name)) if wanted(record) && self.is_redirected(record, name)? => {
                each(record, name)
            }
            _ => Ok(()),
        })
    }

    /// Calls `each` for the lines of the log.
    fn each_line(&self, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC;
        let open = |path: &CStr| OpenFile::open(self.process, path, flags, 0);
        let file = match self.process.with_path(&[self.layers.moved], open) {
            Err(Errno::ENOENT) => return Ok(()),
            result => result?,
        };
        // Lines that `each` adds are not read.
        let size = file.status()?.st_size as u64;
        self.process.with_buffer(|buffer| {
            let mut offset = 0;
            while offset < size {
                let got = io::pread(self.process, file.fd(), buffer, offset)?;
                let room = usize::try_from(size - offset).unwrap_or(usize::MAX);
                let read = buffer.get(..got.min(room)).unwrap_or_default();
                let Some(end) = read.iter().rposition(|byte| *byte == 0) else { break };
                for line in read.get(..end).unwrap_or_default().split(|byte| *byte == 0) {
                    each(line)?;
                }
                offset += end as u64 + 1;
            }
            Ok(())
        })
    }

    fn is_redirected(&self, record: u32, name: &[u8]) -> Result<bool> {
        let answer = self.redirect(name).and_then(|redirect| {
            // The name may lead through a link by now.
            Ok(redirect == Some(record)
                && self.locate(name)? == Located::Upper { base: Some(record) })
        });
        match answer {
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(false),
            answer => answer,
        }
    }

    /// Reads the image's directory that a directory of the upper one is redirected to.
    pub(super) fn redirect(&self, name: &[u8]) -> Result<Option<u32>> {
        if !self.image().changes.has_redirects() {
            return Ok(None);
        }
        let mut text = Text::EMPTY;
        let read = self.with_upper(name, b"", |path| {
            text.fill(|bytes| self.process.getxattr(Target::Link(path), super::REDIRECT, bytes))
        });
        match read {
            Err(Errno::ENODATA | Errno::EOPNOTSUPP) => return Ok(None),
            result => result?,
        }
        let path = text.as_bytes().strip_prefix(b"/");
        Ok(path.and_then(|path| find(self.image(), path)))
    }

    /// Puts the path that the view uses for a file of the image into `into`. Returns true if it has
    /// lost its name in the container; a copy does not take the name away.
    pub(super) fn place_of(&self, record: u32, into: &mut Text) -> Result<bool> {
        let entry = self.image().index.entry(record).ok_or(Errno::ENOENT)?;
        if entry.is_directory() {
            return self.place_of_directory(record, into);
        }
        let is_gone = self.place_of_directory(entry.parent, into)?;
        into.push_component(self.image().index.name(&entry))?;
        Ok(is_gone || self.has_lost_name(record, &entry, into.as_bytes())?)
    }

    fn has_lost_name(&self, record: u32, entry: &Entry, place: &[u8]) -> Result<bool> {
        if !self.image().changes.is_covered(record) {
            return Ok(false);
        }
        let named = self.image().in_upper(place).ok_or(Errno::ENOENT)?;
        self.is_same(named, entry).map(|is_same| !is_same)
    }

    /// Returns true if a name in the upper directory is the image's file, or a copy of it.
    fn is_same(&self, name: &[u8], entry: &Entry) -> Result<bool> {
        let status = match self.upper_status(name) {
            // It is about to be covered.
            Err(Errno::ENOENT) => return Ok(true),
            status => status?,
        };
        if status.st_ino == entry.inode {
            return Ok(true);
        }
        let mut text = [0; 20];
        let read = self.with_upper(name, b"", |path| {
            self.process.getxattr(Target::Link(path), ORIGIN, &mut text)
        });
        let number = read.ok().and_then(|length| text.get(..length));
        let number = number.and_then(|text| core::str::from_utf8(text).ok()?.parse().ok());
        Ok(number == Some(entry.inode))
    }

    /// Puts the place of a directory of the image into `into`. Returns true if it has none any
    /// more: then it is what it was last.
    fn place_of_directory(&self, record: u32, into: &mut Text) -> Result<bool> {
        let image = self.image();
        image.place(record, into).ok_or(Errno::ENAMETOOLONG)?;
        if image.is_reached(record) {
            return Ok(false);
        }
        // The nearest directory above it that has another name.
        let nearest = Cell::new(u32::MAX);
        self.each_redirect(
            |other| self.steps(record, other).is_some_and(|steps| steps <= nearest.get()),
            |other, name| {
                nearest.set(self.steps(record, other).unwrap_or(u32::MAX));
                into.set(image.upper)?;
                into.push_component(name)?;
                self.add_names(other, record, into)
            },
        )?;
        let named = image.in_upper(into.as_bytes()).ok_or(Errno::ENOENT)?;
        match self.locate(named) {
            Ok(Located::Upper { base }) => Ok(base != Some(record)),
            Ok(located) => Ok(located != Located::Lower(record)),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(true),
            Err(errno) => Err(errno),
        }
    }

    /// How many directories a record lies beneath another one, if it does.
    fn steps(&self, record: u32, above: u32) -> Option<u32> {
        let (mut here, mut steps) = (record, 0);
        // A directory's number is less than those of its names.
        while here > above {
            here = self.image().index.entry(here)?.parent;
            steps += 1;
        }
        (here == above).then_some(steps)
    }

    /// Adds the names from one record to another beneath it.
    fn add_names(&self, from: u32, to: u32, into: &mut Text) -> Result<()> {
        let index = &self.image().index;
        let (mut path, mut above) = (Text::EMPTY, Text::EMPTY);
        for (record, text) in [(from, &mut above), (to, &mut path)] {
            text.fill(|bytes| index.path(record, bytes).ok_or(Errno::ENAMETOOLONG))?;
        }
        let rest = path.as_bytes().strip_prefix(above.as_bytes()).ok_or(Errno::EIO)?;
        into.push(rest)
    }
}

/// A line of the log: a directory of the image, and the name that it has got.
fn line_of(line: &[u8]) -> Option<(u32, &[u8])> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    let (number, name) = line.split_at_checked(space)?;
    let number = core::str::from_utf8(number).ok()?.parse().ok()?;
    Some((number, name.strip_prefix(b" ")?))
}

/// The path of a record, as the attribute of a redirected directory has it.
pub(super) fn redirect_text(image: &Image<'_>, record: u32, into: &mut Text) -> Result<()> {
    into.fill(|bytes| {
        let (slash, rest) = bytes.split_first_mut().ok_or(Errno::ENAMETOOLONG)?;
        *slash = b'/';
        Ok(1 + image.index.path(record, rest).ok_or(Errno::ENAMETOOLONG)?)
    })?;
    if find(image, into.as_bytes().strip_prefix(b"/").unwrap_or_default()) == Some(record) {
        Ok(())
    } else {
        Err(Errno::EIO)
    }
}
