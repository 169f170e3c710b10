//! Finds the mapping at an address, by a query to the kernel (`PROCMAP_QUERY`, Linux 6.11), or from
//! `/proc/self/maps` (`proc_pid_maps(5)`).

use crate::system;
use abi::code::stub::PAGE;
use linux_raw_sys::general as raw;

/// A mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mapping {
    /// Its first address.
    pub(crate) start: u64,
    /// Its end.
    pub(crate) end: u64,
    /// Its offset in the file.
    pub(crate) offset: u64,
    inode: u64,
    /// Protection, with the bits of the kernel's answer.
    rights: u64,
    /// Set if it belongs to a memory file.
    is_memory: bool,
    /// Set if that file was made by the stage.
    is_ours: bool,
}

const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const EXECUTABLE: u64 = 4;
const SHARED: u64 = 8;

const MAPS: &[u8] = b"/proc/self/maps\0";

/// How the kernel shows memory files, and those of the stage.
const MEMORY: &[u8] = b"/memfd:";
const OURS: &[u8] = view::stored::SITES;

impl Mapping {
    /// Returns true if it is code of a program or a library: from a file, private, readable and
    /// executable and not writable; or such pages that have been rewritten before.
    pub(crate) fn is_program(&self) -> bool {
        let is_text = self.rights == READABLE | EXECUTABLE && self.inode != 0;
        is_text && (!self.is_memory || self.is_ours)
    }

    /// Removes the stubs at the beginning of the stage's files. If they lie right before the code,
    /// both are one mapping.
    fn without_stubs(mut self) -> Self {
        if self.is_ours && self.offset == 0 {
            self.start += PAGE as u64;
            self.offset = PAGE as u64;
        }
        self
    }

    fn name(&mut self, name: &[u8]) {
        self.is_memory = name.starts_with(MEMORY);
        self.is_ours = name.starts_with(OURS);
    }
}

/// The mapping that contains an address.
pub(crate) fn find(address: u64) -> Option<Mapping> {
    let file = system::open(MAPS).ok()?;
    let found = ask(file, address).or_else(|| first(file, |mapping| address < mapping.end));
    system::close(file);
    found
        .map(Mapping::without_stubs)
        .filter(|mapping| (mapping.start..mapping.end).contains(&address))
}

/// Passes start and end of every mapping of the process. Returns false if they cannot be read.
pub(crate) fn each(mut visit: impl FnMut(u64, u64)) -> bool {
    let Ok(file) = system::open(MAPS) else { return false };
    first(file, |mapping| {
        visit(mapping.start, mapping.end);
        false
    });
    system::close(file);
    true
}

/// `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    rights: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    major: u32,
    minor: u32,
    name_size: u32,
    build_size: u32,
    name: u64,
    build: u64,
}

fn ask(file: u64, address: u64) -> Option<Mapping> {
    const PROCMAP_QUERY: u64 = 0xc068_6611;
    const ENAMETOOLONG: u16 = linux_raw_sys::errno::ENAMETOOLONG as u16;
    const { assert!(size_of::<Query>() == 0x68) };
    // Memory files have short names; other names need not be known.
    let mut name = [0_u8; 64];
    let mut query = Query { size: size_of::<Query>() as u64, address, ..Query::default() };
    query.name = name.as_mut_ptr() as u64;
    query.name_size = name.len() as u32;
    let arguments = [file, PROCMAP_QUERY, &raw mut query as u64, 0, 0, 0];
    // SAFETY: the kernel writes the structure and up to `name_size` bytes of the name, for which
    // `name` has room.
    let mut result = unsafe { system::checked(raw::__NR_ioctl, arguments) };
    if result.is_err_and(|errno| errno.0 == ENAMETOOLONG) {
        (query.name, query.name_size) = (0, 0);
        // SAFETY: the same call without a buffer for the name.
        result = unsafe { system::checked(raw::__NR_ioctl, arguments) };
    }
    result.ok()?;
    let Query { start, end, offset, inode, rights, .. } = query;
    let mut found = Mapping { start, end, offset, inode, rights, ..Mapping::default() };
    found.name(&name);
    Some(found)
}

/// Reads lines up to the first mapping that is wanted.
fn first(file: u64, mut is_wanted: impl FnMut(&Mapping) -> bool) -> Option<Mapping> {
    let mut buffer = [0_u8; 1024];
    let mut kept = 0;
    loop {
        let room = &mut buffer[kept..];
        let arguments = [file, room.as_mut_ptr() as u64, room.len() as u64, 0, 0, 0];
        // SAFETY: the kernel writes at most `room.len()` bytes into `room`.
        let count = unsafe { system::checked(raw::__NR_read, arguments) }.ok()? as usize;
        if count == 0 {
            return None;
        }
        let filled = kept + count;
        let mut start = 0;
        while let Some(length) = buffer[start..filled].iter().position(|byte| *byte == b'\n') {
            if let Some(found) = line(&buffer[start..start + length])
                && is_wanted(&found)
            {
                return Some(found);
            }
            start += length + 1;
        }
        if start == 0 && filled == buffer.len() {
            // A line with a long name: its beginning contains all that is needed.
            if let Some(found) = line(&buffer)
                && is_wanted(&found)
            {
                return Some(found);
            }
            start = filled;
        }
        buffer.copy_within(start..filled, 0);
        kept = filled - start;
    }
}

/// Parses a line: `start-end rights offset major:minor inode  name`.
fn line(text: &[u8]) -> Option<Mapping> {
    let mut words = text.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let range = words.next()?;
    let dash = range.iter().position(|byte| *byte == b'-')?;
    let rights = words.next()?;
    let mut found = Mapping {
        start: number(&range[..dash], 16)?,
        end: number(&range[dash + 1..], 16)?,
        offset: number(words.next()?, 16)?,
        ..Mapping::default()
    };
    for (byte, bit) in [(b'r', READABLE), (b'w', WRITABLE), (b'x', EXECUTABLE), (b's', SHARED)] {
        if rights.contains(&byte) {
            found.rights |= bit;
        }
    }
    words.next()?;
    found.inode = number(words.next()?, 10)?;
    found.name(words.next().unwrap_or_default());
    Some(found)
}

fn number(digits: &[u8], base: u32) -> Option<u64> {
    let digit = |byte: &u8| char::from(*byte).to_digit(base).map(u64::from);
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, byte| Some(sum * u64::from(base) + digit(byte)?))
}
