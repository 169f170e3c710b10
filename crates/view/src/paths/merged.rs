//! Lists a directory that is in both layers of the container's tree ([`crate::image`]).
//!
//! The image's names come first, from the index, those of the upper directory afterwards, as the
//! kernel lists them, without the ones that came already. A listing needs no memory besides the
//! position of the open directory, which `dup`, `fork` and threads share as they should:
//!
//! | position | meaning |
//! |---|---|
//! | 0 | the beginning |
//! | [`NAMES`] + n | n names of the image have been listed |
//! | any other | the kernel's, in the upper directory |
//!
//! File systems keep a position that is set, and have none of their own near [`NAMES`]; the engine
//! tries that before it makes such a tree. A directory that was opened before the container changed
//! it is the image's: its position counts names of the upper directory from [`UPPER_NAMES`] on.

use super::entries::{ENTRY_MAX, layout_of, put};
use super::moves;
use crate::CallContext;
use crate::calls::arguments::Arguments;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir};
use crate::identity::record::can_carry;
use crate::identity::{NO_FACTS, files};
use crate::image::Image;
use crate::text::Text;
use crate::verdict::Verdict;
use abi::layout::{Dirent, u64_at};
use linux_raw_sys::general::{AT_SYMLINK_NOFOLLOW, O_DIRECTORY, O_RDONLY, S_IFCHR, S_IFMT, statx};

/// Positions from here on count names of the image that have been listed.
pub const NAMES: u64 = 0x7000_0000;
/// Positions from here on count names of the upper directory, for an open directory of the image.
const UPPER_NAMES: u64 = 0x7800_0000;
/// All of those.
const POSITIONS: core::ops::Range<u64> = NAMES..0x8000_0000;
/// How often the path of a directory that is being moved is looked up.
const TRIES: u32 = 100;
const SEEK_SET: u32 = 0;
const SEEK_CUR: u32 = 1;

/// A listing in progress.
struct Listing<'a, 'w> {
    image: Image<'w>,
    /// The image's directory.
    base: u32,
    /// It was opened before the container changed it.
    is_images: bool,
    layout: Dirent,
    fd: i32,
    /// The guest's buffer.
    buffer: u64,
    size: usize,
    done: usize,
    /// Host path of the directory, as the view names it.
    place: &'a mut Text,
    /// The counter of moved directories before that was asked for.
    moves: Option<u64>,
}

/// Lists a merged directory. `None` if it is none.
pub(super) fn list<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    fd: i32,
) -> Result<Option<Verdict>> {
    let Some(image) = context.world.image else { return Ok(None) };
    let mut facts = NO_FACTS;
    context.backend.inode_of(Dir::Guest(fd), &mut facts)?;
    if !image.may_be_layered(&facts) {
        return Ok(None);
    }
    let record = image.of_facts(&facts).map(|(record, _)| record);
    if record.is_some_and(|record| !image.changes.is_merged(record)) {
        return Ok(None);
    }
    let CallContext { backend, buffers, .. } = context;
    let Some((base, moves)) = base_of(*backend, (fd, &image), &mut buffers.host)? else {
        return Ok(None);
    };
    let layout = layout_of(arguments);
    let (buffer, size) = (arguments.word(1), arguments.int(2) as usize);
    let is_images = record.is_some();
    let crate::CallBuffers { host, link, input, .. } = &mut **buffers;
    let mut listing =
        Listing { image, base, is_images, layout, fd, buffer, size, done: 0, place: host, moves };
    listing.run(*backend, link, input)?;
    Ok(Some(Verdict::Done(listing.done as i64)))
}

/// The image's directory that is merged with an open one. Its host path is put into `place`, and
/// how many directories had been moved before is returned, too. `None` if the kernel lists it.
fn base_of<N: Backend>(
    host: &mut N,
    (fd, image): (i32, &Image<'_>),
    place: &mut Text,
) -> Result<Option<(u32, Option<u64>)>> {
    let dir = Dir::Guest(fd);
    let mut tries = 0;
    loop {
        let before = moves::now(Some(image));
        host.path_of(dir, place)?;
        if image.in_upper(place.as_bytes()).is_none() {
            return Ok(None);
        }
        let base = host.base_of(place.as_c_str());
        tries += 1;
        // If it is moved at this moment, its path may lead nowhere, or to another directory.
        let is_sure = tries == TRIES || !moves::may_mislead(Some(image), host, before);
        match base {
            Some(base) if is_sure => return Ok(Some((base, before))),
            // Once a listing has begun here, the kernel cannot go on with it.
            None if is_sure
                && (tries == TRIES || !POSITIONS.contains(&host.seek(dir, 0, SEEK_CUR)?)) =>
            {
                return Ok(None);
            }
            _ => {}
        }
    }
}

impl Listing<'_, '_> {
    fn run(&mut self, host: &mut impl Backend, text: &mut Text, input: &mut [u8]) -> Result<()> {
        let dir = Dir::Guest(self.fd);
        let at = host.seek(dir, 0, SEEK_CUR)?;
        let entry = self.image.index.entry(self.base).ok_or(Errno::ENOENT)?;
        let names = self.image.index.children(&entry);
        let count = u64::from(names.end - names.start);
        let listed = if at == 0 { 0 } else { at.wrapping_sub(NAMES) };
        if listed < count {
            let after = self.images_names(host, names.start, (listed, count), text)?;
            host.seek(dir, NAMES + after, SEEK_SET)?;
            if self.done > 0 || after < count {
                return Ok(());
            }
        }
        let begins = at == 0 || listed <= count;
        if self.is_images {
            let skip = if begins { 0 } else { at.wrapping_sub(UPPER_NAMES) };
            return self.upper_names_of_images(host, skip, (text, input));
        }
        if begins {
            host.seek(dir, 0, SEEK_SET)?;
        }
        loop {
            let room = self.size.min(input.len());
            let got = match host.getdents(dir, &mut input[..room]) {
                Err(Errno::EINVAL) if begins => {
                    // Nothing fits: the next call is to begin here again.
                    host.seek(dir, NAMES + count, SEEK_SET)?;
                    return Err(Errno::EINVAL);
                }
                got => got?,
            };
            if got == 0 {
                return Ok(());
            }
            for (name, kind, inode, offset) in entries(&input[..got]) {
                self.upper_name(host, name, (kind, inode, offset), text)?;
            }
            if self.done > 0 {
                return Ok(());
            }
        }
    }

    /// Lists names of the image from the one with this number on. Returns how many have been
    /// listed in all.
    fn images_names(
        &mut self,
        host: &mut impl Backend,
        first: u32,
        (listed, count): (u64, u64),
        text: &mut Text,
    ) -> Result<u64> {
        for at in listed..count {
            // There are fewer names than records.
            let record = first + at as u32;
            let Some(entry) = self.image.index.entry(record) else { continue };
            let name = self.image.index.name(&entry);
            let mut facts = statx { stx_ino: entry.inode, stx_mode: entry.mode, ..NO_FACTS };
            if self.image.changes.is_covered(record) {
                if !self.look(host, name, text, &mut facts)? {
                    continue;
                }
                let at = (Dir::Root, text.as_c_str());
                if let Some(inode) = files::origin(host, at, &facts) {
                    facts.stx_ino = inode;
                }
            }
            if !self.give(host, name, &facts, NAMES + at + 1)? {
                return if self.done == 0 { Err(Errno::EINVAL) } else { Ok(at) };
            }
        }
        Ok(count)
    }

    /// One entry of the upper directory.
    fn upper_name(
        &mut self,
        host: &mut impl Backend,
        name: &[u8],
        (kind, inode, offset): (u8, u64, u64),
        text: &mut Text,
    ) -> Result<bool> {
        let mut facts = statx { stx_ino: inode, stx_mode: u16::from(kind) << 12, ..NO_FACTS };
        let index = &self.image.index;
        match name {
            b"." | b".." => {
                let own = index.entry(self.base).unwrap_or_default();
                let shown = if name == b"." { Some(own) } else { index.entry(own.parent) };
                facts.stx_ino = shown.map_or(inode, |shown| shown.inode);
            }
            name if index.child(self.base, name).is_some() => return Ok(true),
            // A whiteout of a name that the image does not have, which a rename has left.
            name if u32::from(facts.stx_mode) & S_IFMT == S_IFCHR
                && !self.look(host, name, text, &mut facts)? =>
            {
                return Ok(true);
            }
            name if can_carry(facts.stx_mode.into()) => {
                // A copy that was moved here, or a directory of the image.
                facts.stx_ino = self.origin_of(host, name, text)?.unwrap_or(inode);
            }
            _ => {}
        }
        self.give(host, name, &facts, offset)
    }

    /// The number of the image's file that a name of the upper directory was made of.
    fn origin_of(
        &mut self,
        host: &mut impl Backend,
        name: &[u8],
        text: &mut Text,
    ) -> Result<Option<u64>> {
        let mut facts = NO_FACTS;
        let found = self.look(host, name, text, &mut facts)?;
        let at = (Dir::Root, text.as_c_str());
        Ok(if found { files::origin(host, at, &facts) } else { None })
    }

    /// The status of a name; `text` gets its path. False if it is gone. The directory may be moved
    /// while it is listed.
    fn look(
        &mut self,
        host: &mut impl Backend,
        name: &[u8],
        text: &mut Text,
        facts: &mut statx,
    ) -> Result<bool> {
        let mut tries = 0;
        loop {
            text.set(self.place.as_bytes())?;
            text.push_component(name)?;
            let found = host.statx(Dir::Root, text.as_c_str(), AT_SYMLINK_NOFOLLOW, facts).is_ok();
            tries += 1;
            if tries == TRIES || !moves::may_mislead(Some(&self.image), host, self.moves) {
                return Ok(found);
            }
            self.moves = moves::now(Some(&self.image));
            host.path_of(Dir::Guest(self.fd), self.place)?;
        }
    }

    /// The upper directory's names, for an open directory of the image.
    fn upper_names_of_images(
        &mut self,
        host: &mut impl Backend,
        skip: u64,
        (text, input): (&mut Text, &mut [u8]),
    ) -> Result<()> {
        let flags = O_RDONLY | O_DIRECTORY;
        let opened = host.open(Dir::Root, self.place.as_c_str(), flags, 0, 0)?;
        let mut at = 0;
        let mut fill = || {
            loop {
                let got = host.getdents(Dir::Held(opened), input)?;
                if got == 0 {
                    return Ok(());
                }
                for (name, kind, inode, _) in entries(&input[..got]) {
                    at += 1;
                    let facts = (kind, inode, UPPER_NAMES + at);
                    if at > skip && !self.upper_name(host, name, facts, text)? {
                        at -= 1;
                        return if self.done == 0 { Err(Errno::EINVAL) } else { Ok(()) };
                    }
                }
            }
        };
        let result = fill();
        host.close(opened);
        host.seek(Dir::Guest(self.fd), UPPER_NAMES + at, SEEK_SET)?;
        result
    }

    /// Writes an entry into the guest's buffer, if there is room.
    fn give(
        &mut self,
        host: &mut impl Backend,
        name: &[u8],
        facts: &statx,
        offset: u64,
    ) -> Result<bool> {
        let size = self.layout.size(name.len());
        if self.done + size > self.size {
            return Ok(false);
        }
        let mut entry = [0; ENTRY_MAX];
        put(self.layout, &mut entry, size, name, facts, offset);
        host.write(self.buffer.wrapping_add(self.done as u64), &entry[..size])?;
        self.done += size;
        Ok(true)
    }
}

/// The entries that `getdents64` gave: name, type, inode, offset of the next.
fn entries(bytes: &[u8]) -> impl Iterator<Item = (&[u8], u8, u64, u64)> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        let head = rest.get(..Dirent::WIDE.name)?;
        let (inode, offset) = (u64_at(head, 0), u64_at(head, 8));
        let length = usize::from(u16::from_le_bytes([head[16], head[17]]));
        let kind = head[18];
        let (entry, more) = rest.split_at_checked(length.max(Dirent::WIDE.name))?;
        rest = more;
        let name = &entry[Dirent::WIDE.name..];
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        Some((&name[..end], kind, inode, offset))
    })
}
