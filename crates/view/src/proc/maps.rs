//! Rewrites files of `/proc` that name a file in one column: `maps`, `smaps`, `numa_maps`,
//! `net/unix`.
//!
//! Only that column changes. A mapping of a file that has no name for the guest looks like
//! anonymous memory, at its true address. Mappings of the loader ([`abi::boot`]) are left out.

use super::lines::{Lines, Output, unescape};
use crate::CallContext;
use crate::errno::Result;
use crate::guest::{Backend, Dir, HostFd};
use crate::identity::{NO_FACTS, files};
use crate::paths::{Origin, reverse, seen_from};
use crate::stored::SITES;
use crate::text::PATH_MAX;
use abi::boot;
use core::ops::Range;
use linux_raw_sys::general::AT_SYMLINK_NOFOLLOW;

/// The column that holds the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    /// The sixth, up to the end of the line. Lines of `smaps` that do not begin a mapping stay
    /// unchanged.
    Maps,
    /// Behind `file=`, up to a blank.
    NumaMaps,
    /// The eighth, up to the end of the line.
    Sockets,
}

impl Column {
    /// Bytes that the kernel escapes in the column.
    const fn special(self) -> &'static [u8] {
        match self {
            Self::Maps => b"\n",
            Self::NumaMaps => b"\n\t= ",
            Self::Sockets => b"",
        }
    }

    /// Position of an absolute path in a line without its newline.
    fn find(self, line: &[u8]) -> Option<Range<usize>> {
        let start = match self {
            Self::Maps if !is_mapping(line) => return None,
            Self::Maps => behind_words(line, 5)?,
            Self::Sockets => behind_words(line, 7)?,
            Self::NumaMaps => {
                let word = b" file=";
                let start = line.windows(word.len()).position(|part| part == word)? + word.len();
                let end = line[start..].iter().position(|byte| *byte == b' ');
                return Some(start..end.map_or(line.len(), |at| start + at));
            }
        };
        (line.get(start) == Some(&b'/')).then_some(start..line.len())
    }
}

/// Position behind a number of words and the blanks that follow them.
fn behind_words(line: &[u8], count: usize) -> Option<usize> {
    let mut at = 0;
    for _ in 0..count {
        at += line[at..].iter().position(|byte| *byte == b' ')?;
        at += line[at..].iter().position(|byte| *byte != b' ')?;
    }
    Some(at)
}

/// `from-to `, in hexadecimal.
fn is_mapping(line: &[u8]) -> bool {
    let Some(end) = line.iter().position(|byte| *byte == b' ') else { return false };
    let mut numbers = line[..end].split(|byte| *byte == b'-');
    let hexadecimal = |part: Option<&[u8]>| {
        part.is_some_and(|part| !part.is_empty() && part.iter().all(u8::is_ascii_hexdigit))
    };
    hexadecimal(numbers.next()) && hexadecimal(numbers.next()) && numbers.next().is_none()
}

/// Returns true if a line describes memory of the loader; `None` if it does not begin a mapping.
fn is_of_loader(line: &[u8], column: Column) -> Option<bool> {
    let end = line.iter().position(|byte| *byte == b' ')?;
    let hexadecimal = |part: &[u8]| {
        part.iter().try_fold(0_u64, |sum, byte| {
            Some(sum.wrapping_mul(16) + u64::from(char::from(*byte).to_digit(16)?))
        })
    };
    match column {
        Column::Maps if is_mapping(line) => {
            let middle = line.iter().position(|byte| *byte == b'-')?;
            let (start, last) =
                (hexadecimal(&line[..middle])?, hexadecimal(&line[middle + 1..end])?);
            // If the kernel does not let the loader move the heap, the heap lies in the middle of
            // its range.
            let of_loader = boot::is_loaders(start) && boot::is_loaders(last.wrapping_sub(1));
            Some(of_loader && !line.ends_with(b"[heap]"))
        }
        Column::NumaMaps => Some(boot::is_loaders(hexadecimal(&line[..end])?)),
        _ => None,
    }
}

/// Result of translating a name.
enum Name {
    /// The name in `buffers.spare[0]`.
    Guest,
    /// The name unchanged: it is not a path.
    Same,
    /// No name.
    Hidden,
}

/// Copies `source` to `into`.
pub(super) fn rewrite<N: Backend>(
    context: &mut CallContext<'_, N>,
    source: HostFd,
    into: HostFd,
    column: Column,
) -> Result<()> {
    let mut lines = Lines::new(source);
    let mut output = Output::new(into);
    let mut hidden = false;
    while let Some(line) = lines.next(context.backend, &mut context.buffers.input)? {
        let bytes = &context.buffers.input[line.clone()];
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        // The lines that follow a mapping's first line in `smaps` describe the same mapping.
        hidden = is_of_loader(bytes, column).unwrap_or(hidden);
        if hidden {
            continue;
        }
        let found = column.find(bytes);
        let length = bytes.len();
        let inode = match &found {
            Some(name) if column == Column::Maps => {
                shown_inode(context, line.start + name.start..line.start + name.end)
            }
            _ => None,
        };
        let name = match &found {
            Some(name) => rename(context, line.start + name.start..line.start + name.end, column),
            None => Name::Same,
        };
        let buffers = &mut *context.buffers;
        let bytes = &buffers.input[line.start..line.start + length];
        let mut put = |bytes: &[u8]| output.push(context.backend, &mut buffers.output, bytes);
        match (name, found) {
            (Name::Guest, Some(name)) => {
                match inode.zip(behind_words(bytes, 4)) {
                    Some((inode, start)) => {
                        put(&bytes[..start])?;
                        put_padded(inode, name.start - start, &mut put)?;
                    }
                    None => put(&bytes[..name.start])?,
                }
                let text = buffers.spare[0].as_bytes();
                let special = column.special();
                output.push_escaped(context.backend, &mut buffers.output, text, special)?;
                output.push(context.backend, &mut buffers.output, &bytes[name.end..])?;
            }
            (Name::Hidden, Some(name)) => match column {
                Column::Maps => {
                    // Address and permissions, then the fields of anonymous memory.
                    let kept = behind_words(bytes, 2).unwrap_or(name.start);
                    put(&bytes[..kept])?;
                    put(b"00000000 00:00 0 ")?;
                }
                Column::NumaMaps => {
                    put(&bytes[..name.start - b" file=".len()])?;
                    put(&bytes[name.end..])?;
                }
                Column::Sockets => put(bytes[..name.start].trim_ascii_end())?,
            },
            _ => put(bytes)?,
        }
        output.push(context.backend, &mut context.buffers.output, b"\n")?;
    }
    output.flush(context.backend, &context.buffers.output)
}

/// The number by which the guest knows a mapped file, if that is not the kernel's: of a copy of a
/// file of the image the number of that. The name is at a range of `buffers.input`.
fn shown_inode<N: Backend>(context: &mut CallContext<'_, N>, name: Range<usize>) -> Option<u64> {
    let image = context.world.image?;
    let CallContext { backend, buffers, .. } = context;
    let host = &buffers.input[name];
    image.in_upper(host)?;
    buffers.spare[0].set(host).ok()?;
    let at = (Dir::Root, buffers.spare[0].as_c_str());
    let mut facts = NO_FACTS;
    backend.statx(at.0, at.1, AT_SYMLINK_NOFOLLOW, &mut facts).ok()?;
    files::origin(*backend, at, &facts)
}

/// Puts a number and blanks up to a width, and at least one.
fn put_padded(number: u64, width: usize, put: &mut impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    // The widest number has twenty digits.
    let mut digits = [b'0'; 20];
    let (mut left, mut start) = (number, digits.len());
    while start > 0 && (left > 0 || start == digits.len()) {
        start -= 1;
        digits[start] += (left % 10) as u8;
        left /= 10;
    }
    put(&digits[start..])?;
    let length = digits.len() - start;
    for _ in length..width.max(length + 1) {
        put(b" ")?;
    }
    Ok(())
}

/// Translates a name; the range is in `buffers.input`.
fn rename<N: Backend>(
    context: &mut CallContext<'_, N>,
    name: Range<usize>,
    column: Column,
) -> Name {
    let buffers = &mut *context.buffers;
    let mut plain = [0; PATH_MAX];
    let Some(host) = unescape(&buffers.input[name], column.special(), &mut plain) else {
        return Name::Hidden;
    };
    if host.starts_with(SITES) {
        return Name::Hidden;
    }
    // A file of the image that is mapped where it lies may have another name in the container.
    let [guest, place] = &mut buffers.spare;
    let is_images = context.world.image.is_some_and(|image| image.in_lower(host).is_some());
    let placed = is_images && place.set(host).is_ok() && context.backend.to_place(place).is_ok();
    let host = if placed { place.as_bytes() } else { host };
    match reverse(context.world, host, guest) {
        Ok(Origin::Inside(_)) => {}
        // `/memfd:x (deleted)`, `/dev/zero (deleted)`, `/SYSV00000000 (deleted)`,
        // `/[aio] (deleted)`: in no directory.
        Ok(Origin::Unnamed) => return Name::Same,
        Ok(Origin::Outside) if host == b"/dev/zero (deleted)" => return Name::Same,
        Ok(Origin::Outside) if is_kernel_object(host) || column == Column::Sockets => {
            return Name::Same;
        }
        _ => return Name::Hidden,
    }
    match seen_from(&context.task.root, guest) {
        Ok(_) => Name::Guest,
        Err(_) => Name::Hidden,
    }
}

/// Returns true for objects of file systems that are not mounted: they have one component, and are
/// always deleted.
fn is_kernel_object(host: &[u8]) -> bool {
    host.strip_suffix(b" (deleted)").is_some_and(|name| !name[1..].contains(&b'/'))
}
