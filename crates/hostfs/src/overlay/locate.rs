//! Finds the layer that has a file.

use super::{OPAQUE, Overlay, is_directory, is_whiteout};
use crate::at::Process;
use crate::kernel::Target;
use linux_raw_sys::general::{S_IFLNK, S_IFMT};
use view::Errno;
use view::errno::Result;
use view::image::Walked;

/// The longest name.
const NAME_MAX: usize = 255;

/// The layer that has a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Located {
    /// The image's tree: this record of the index.
    Lower(u32),
    /// The upper directory. The file may be missing there.
    Upper {
        /// Of a directory the image's one that is merged with it.
        base: Option<u32>,
    },
    /// A component before the last is a symbolic link.
    Link,
}

/// A path without its end, and the end: slashes, one `.` or `..` behind them, and slashes again.
pub(super) fn split_end(path: &[u8]) -> (&[u8], &[u8]) {
    let slashes = |end: usize| {
        let part = path.get(..end).unwrap_or_default().iter().rev();
        end - part.take_while(|byte| **byte == b'/').count()
    };
    let last = slashes(path.len());
    let dots = match path.get(..last).unwrap_or_default() {
        [.., b'/', b'.', b'.'] | b".." => 2,
        [.., b'/', b'.'] | b"." => 1,
        _ => 0,
    };
    path.split_at_checked(slashes(last - dots)).unwrap_or((path, b""))
}

/// The directory of a name, and the name.
pub(super) fn parent(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => {
            let (parent, name) = path.split_at_checked(slash).unwrap_or((b"", path));
            (parent, name.strip_prefix(b"/").unwrap_or(name))
        }
        None => (b"", path),
    }
}

impl<P: Process> Overlay<'_, P> {
    /// Finds the layer that has a file, by its path from the root of the tree. Errors: `ENOENT`,
    /// `ENOTDIR`, those of the kernel.
    pub(crate) fn locate(&self, path: &[u8]) -> Result<Located> {
        let image = self.image();
        let (mut base, mut at) = (Some(abi::index::ROOT), 0);
        loop {
            let rest = path.get(at..).unwrap_or_default();
            let asked = base.map(|base| image.walk(base, rest));
            let (directory, start) = match asked {
                Some(Walked::To(record)) if self.is_merged(record) => {
                    return Ok(Located::Upper { base: Some(record) });
                }
                Some(Walked::To(record)) => return Ok(Located::Lower(record)),
                Some(Walked::Missing) => return Err(self.missing(path)),
                Some(Walked::NoDirectory) => return Err(Errno::ENOTDIR),
                Some(Walked::Link(..)) => return Ok(Located::Link),
                Some(Walked::Ask(directory, offset)) => (Some(directory), at + offset),
                // A directory of the image may be beneath one of the container's own.
                None => (None, at),
            };
            let end = path.get(start..).unwrap_or_default().iter().position(|byte| *byte == b'/');
            let end = end.map_or(path.len(), |length| start + length);
            match self.ask(path, directory, (start, end))? {
                Next::Found(located) => return Ok(located),
                Next::Into(next) => (base, at) = (next, end + 1),
            }
        }
    }

    /// The error for a path that is not in the image's index.
    #[cold]
    fn missing(&self, path: &[u8]) -> Errno {
        let names = path.split(|byte| *byte == b'/');
        let Some(long) = names.map(<[u8]>::len).find(|length| *length > NAME_MAX) else {
            return Errno::ENOENT;
        };
        // The kernel's answer, if all before the long name is there.
        let start = path.split(|byte| *byte == b'/').take_while(|name| name.len() < long);
        let above: usize = start.map(|name| name.len() + 1).sum();
        let above = path.get(..above.saturating_sub(1)).unwrap_or_default();
        match self.image().walk(abi::index::ROOT, above) {
            Walked::Missing => Errno::ENOENT,
            _ => Errno::ENAMETOOLONG,
        }
    }

    fn is_merged(&self, record: u32) -> bool {
        let image = self.image();
        image.changes.is_merged(record)
            && image.index.entry(record).is_some_and(|entry| entry.is_directory())
    }

    /// Asks the upper directory for a name in a merged directory.
    fn ask(
        &self,
        path: &[u8],
        directory: Option<u32>,
        (start, end): (usize, usize),
    ) -> Result<Next> {
        let image = self.image();
        let name = path.get(start..end).unwrap_or_default();
        let child = directory.and_then(|directory| image.index.child(directory, name));
        let last = end >= path.len();
        if child.is_none() && !image.changes.has_redirects() {
            // Only the upper directory can have it, and nothing of the image is beneath.
            return Ok(Next::Found(Located::Upper { base: None }));
        }
        let here = path.get(..end).unwrap_or_default();
        match self.upper_status(here) {
            Err(Errno::ENOENT) => match child {
                // It is about to be covered.
                Some(record) if last => Ok(Next::Found(Located::Lower(record))),
                Some(record) => match image.index.entry(record) {
                    Some(entry) if entry.is_directory() => Ok(Next::Into(Some(record))),
                    Some(entry) if entry.is_link() => Ok(Next::Found(Located::Link)),
                    _ => Err(Errno::ENOTDIR),
                },
                None => Err(Errno::ENOENT),
            },
            // All above it were directories: a whiteout has taken the place of one meanwhile.
            Err(Errno::ENOTDIR) => Err(Errno::ENOENT),
            Err(errno) => Err(errno),
            Ok(status) if is_whiteout(&status) => Err(Errno::ENOENT),
            Ok(status) if is_directory(&status) => Ok(match self.base(here, child)? {
                base if last => Next::Found(Located::Upper { base }),
                None if !image.changes.has_redirects() => {
                    Next::Found(Located::Upper { base: None })
                }
                base => Next::Into(base),
            }),
            Ok(_) if last => Ok(Next::Found(Located::Upper { base: None })),
            Ok(status) if status.st_mode & S_IFMT == S_IFLNK => Ok(Next::Found(Located::Link)),
            Ok(_) => Err(Errno::ENOTDIR),
        }
    }

    /// The directory of the image that is merged with one of the upper directory. `child`: the
    /// record of its name. That it is covered says only that the disk must be asked.
    fn base(&self, name: &[u8], child: Option<u32>) -> Result<Option<u32>> {
        let is_directory = |child: &u32| {
            self.image().index.entry(*child).is_some_and(|entry| entry.is_directory())
        };
        let child = child.filter(is_directory);
        if child.is_none() && !self.image().changes.has_redirects() {
            return Ok(None);
        }
        let opaque = self.with_upper(name, b"", |path| {
            self.process.getxattr(Target::Link(path), OPAQUE, &mut [0; 8])
        });
        match opaque {
            Ok(_) => Ok(None),
            Err(Errno::ENODATA | Errno::EOPNOTSUPP) => Ok(self.redirect(name)?.or(child)),
            Err(errno) => Err(errno),
        }
    }
}

/// Where the search goes on.
enum Next {
    Found(Located),
    /// In this directory of the image, which is merged with the one that was reached, or in one of
    /// the container's own.
    Into(Option<u32>),
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn ends_of_paths() {
        for (path, name, end) in [
            ("a/b", "a/b", ""),
            ("a/b/", "a/b", "/"),
            ("a/b//", "a/b", "//"),
            ("a/b/.", "a/b", "/."),
            ("a/b/..", "a/b", "/.."),
            ("a/b/..//", "a/b", "/..//"),
            ("../", "", "../"),
            ("a..", "a..", ""),
            ("", "", ""),
        ] {
            assert_eq!(split_end(path.as_bytes()), (name.as_bytes(), end.as_bytes()));
        }
        assert_eq!(parent(b"a/b/c"), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(parent(b"a"), (&b""[..], &b"a"[..]));
    }
}
