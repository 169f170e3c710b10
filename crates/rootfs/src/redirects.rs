//! What an upper directory has of the image beneath it under other names: directories that were
//! renamed, and files that got another name.
//!
//! A directory of the image that a container renamed carries the attribute
//! `user.overlay.redirect`: the absolute path, in the image, of the directory that is merged with
//! it. A log beside the upper directory says where to look for that attribute. The log also tells
//! that the upper directory may have inodes of the image, which nobody may write to; those of
//! links, pipes and sockets have the image's owners.

use crate::error::Error;
use crate::owners::{Owners, Record};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use sys::fs::resolve::{self, Method, join, split};

/// The attribute of a directory: the path in the image of the one that is merged with it.
pub(crate) const REDIRECT: &[u8] = b"user.overlay.redirect";
/// The log, in the container's directory. It has a line for each name that a directory has got: a
/// number, a space, the path in the upper directory, NUL.
pub(crate) const MOVED: &str = "moved";

/// The names, and the inodes.
#[derive(Debug, Default)]
pub(crate) struct Redirects {
    /// Paths in the upper directory, and those of the image's directories that are merged there.
    directories: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Records of the image's inodes (device and number) that carry none themselves.
    inodes: HashMap<(u64, u64), Record>,
    is_used: bool,
}

impl Redirects {
    /// Reads them for the upper directory of a container. `image`: the image's tree, and the table
    /// of records that its inodes do not carry.
    pub(crate) fn read(upper: &Path, image: Option<(&Path, &Path)>) -> Result<Self, Error> {
        let Some(names) = names(upper)? else { return Ok(Self::default()) };
        let top = open(upper)?;
        let mut directories = BTreeMap::new();
        for name in names {
            if let Some(target) = target_of(&top, &name)? {
                directories.insert(name, target);
            }
        }
        let recorded = |(tree, table)| recorded(tree, table);
        let inodes = image.map(recorded).transpose()?.unwrap_or_default();
        Ok(Self { directories, inodes, is_used: true })
    }

    /// Whether there may be any.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used
    }

    /// Whether another directory of the image is merged with this one.
    pub(crate) fn has(&self, path: &[u8]) -> bool {
        self.directories.contains_key(path)
    }

    /// The paths of all such directories.
    pub(crate) fn paths(&self) -> Vec<Vec<u8>> {
        self.directories.keys().cloned().collect()
    }

    /// The path in the image of a file that is seen at `path`.
    pub(crate) fn in_image<'a>(&self, path: &'a [u8]) -> Cow<'a, [u8]> {
        let mut above = path;
        while !self.directories.is_empty() && !above.is_empty() {
            if let Some(target) = self.directories.get(above) {
                let rest = path[above.len()..].strip_prefix(b"/").unwrap_or_default();
                let is_itself = rest.is_empty();
                return Cow::Owned(if is_itself { target.clone() } else { join(target, rest) });
            }
            above = split(above).0;
        }
        Cow::Borrowed(path)
    }

    /// Whether some of the image's inodes carry no record themselves.
    pub(crate) fn has_records(&self) -> bool {
        !self.inodes.is_empty()
    }

    /// The record of one of the image's inodes that carries none itself.
    pub(crate) fn record(&self, stat: &Stat) -> Option<&Record> {
        self.inodes.get(&(stat.st_dev, stat.st_ino))
    }
}

/// The paths at which directories of the image may be; `None` if the container has used none of
/// the image's files under another name.
pub(crate) fn names(upper: &Path) -> Result<Option<Vec<Vec<u8>>>, Error> {
    let path = upper.with_file_name(MOVED);
    let log = match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        log => log.map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Error::disk("read", MOVED.as_bytes(), errno)
        })?,
    };
    let name = |line: &[u8]| Some(line.splitn(2, |byte| *byte == b' ').nth(1)?.to_vec());
    let mut names: Vec<Vec<u8>> = log.split(|byte| *byte == 0).filter_map(name).collect();
    names.sort_unstable();
    names.dedup();
    Ok(Some(names))
}

/// The directory of the image that is merged with a path of the upper directory.
fn target_of(top: impl AsFd, path: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    match resolve::strict(&top, path, sys::fs::DIRECTORY, Method::Best) {
        Ok(directory) => target(&directory, path),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(None),
        Err(errno) => Err(Error::disk("open directory", path, errno)),
    }
}

/// The same for an open directory.
pub(crate) fn target(directory: &OwnedFd, path: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let value = sys::fs::xattr::get(directory, REDIRECT)
        .map_err(|errno| Error::disk("read an attribute of", path, errno))?;
    Ok(value.and_then(|value| Some(value.strip_prefix(b"/")?.to_vec())))
}

fn open(tree: &Path) -> Result<OwnedFd, Error> {
    rustix::fs::open(tree, sys::fs::DIRECTORY, Mode::empty())
        .map_err(|errno| Error::disk("open directory", tree.as_os_str().as_bytes(), errno))
}

/// The records of a tree that its inodes do not carry.
fn recorded(tree: &Path, table: &Path) -> Result<HashMap<(u64, u64), Record>, Error> {
    let mut inodes = HashMap::new();
    let owners = Owners::read(table)?;
    if owners.is_empty() {
        return Ok(inodes);
    }
    let top = open(tree)?;
    for (path, record) in owners.iter() {
        let (parent, name) = split(path);
        let flags = sys::fs::NAME_ONLY | OFlags::DIRECTORY;
        let found = resolve::strict(&top, parent, flags, Method::Best)
            .and_then(|parent| sys::fs::stat(&parent, name));
        if let Ok(stat) = found {
            inodes.insert((stat.st_dev, stat.st_ino), record.clone());
        }
    }
    Ok(inodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_directory_counts() {
        let directories = [("a/b", "x"), ("a/b/c/d", "y/z")];
        let directories = directories
            .map(|(path, target)| (path.as_bytes().to_vec(), target.as_bytes().to_vec()))
            .into();
        let redirects = Redirects { directories, ..Redirects::default() };
        for (path, found) in [
            ("a", "a"),
            ("a/b", "x"),
            ("a/bb", "a/bb"),
            ("a/b/c", "x/c"),
            ("a/b/c/d", "y/z"),
            ("a/b/c/d/e", "y/z/e"),
            ("", ""),
        ] {
            assert_eq!(redirects.in_image(path.as_bytes()), found.as_bytes());
        }
    }
}
