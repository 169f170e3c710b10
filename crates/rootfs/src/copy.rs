//! `cp`: copies files into and out of a container's tree as tar streams, confined to the tree.
//!
//! The tree is given by a descriptor of its top: a mounted root (`/proc/PID/root`, or a mount made
//! for the purpose), or a plain directory. Paths are resolved inside it, symbolic links included; a
//! process in the container that replaces directories by links meanwhile cannot lead outside.
//!
//! Without a mount, [`copy_out_of`] reads a stopped container's layers and upper as one.

use crate::apply::Applier;
use crate::drivers::Root;
use crate::error::{Error, path_buf};
use crate::frame::{Buffered, Reader};
use crate::image::ImageTrees;
use crate::limits::Limits;
use crate::owners::{FileKind, OWNER_XATTR, Owners};
use crate::pack::{Options, Packed, Packer};
use crate::union::{IdMap, Stack, walk_from};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{Read, Write};
use sys::fs::resolve::{self, join, split};

/// The files to copy out.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Path in the tree; a leading slash is allowed.
    pub path: &'a [u8],
    /// Name of the first entry in the archive.
    pub name: &'a [u8],
    /// True if a symbolic link in the last component is followed (`docker cp -L`).
    pub follow: bool,
}

/// Writes a file or directory of the tree below `root` as an archive. `owners` is the container's
/// side table.
pub fn copy_out(
    root: impl AsFd,
    owners: Owners,
    ids: &IdMap,
    source: Source<'_>,
    writer: impl Write,
) -> Result<Packed, Error> {
    let fd = reopen(root)?;
    out(&Stack::live(fd, owners, ids), source, writer)
}

/// As [`copy_out`], for a container that is not mounted.
pub fn copy_out_of(
    image: Option<&ImageTrees>,
    root: &Root,
    ids: &IdMap,
    source: Source<'_>,
    writer: impl Write,
) -> Result<Packed, Error> {
    out(&Stack::container(image, Some(root), ids)?, source, writer)
}

fn out(stack: &Stack, source: Source<'_>, writer: impl Write) -> Result<Packed, Error> {
    let (path, trees) = find(stack, source)?;
    let mut packer = Packer::new(stack, Options::default(), writer);
    packer.rebase(&path, source.name);
    let Some(tree) = trees.first().copied() else { return packer.finish() };
    if path.is_empty() {
        packer.entry(b"", &stack.root_facts(tree)?, b"", None)?;
    } else if !packer.add(tree, &path)? {
        return packer.finish();
    }
    let names = stack.list(&path, &trees)?;
    // Below the root there is no slash between the old prefix and a name.
    if path.is_empty() {
        packer.rebase(b"", &[source.name, b"/"].concat());
    }
    walk_from(path, names, stack, &mut |path, merged| packer.add(merged.tree, path))?;
    packer.finish()
}

/// Resolves a path in a merged tree: the path without symbolic links, and the trees that have it.
fn find(stack: &Stack, source: Source<'_>) -> Result<(Vec<u8>, Vec<usize>), Error> {
    let split_path = |path: &[u8]| -> VecDeque<Vec<u8>> {
        let parts = path.split(|byte| *byte == b'/');
        parts.filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec).collect()
    };
    let problem =
        |text: &str| Error::Path { path: path_buf(source.path), problem: text.to_owned() };
    let mut pending = split_path(source.path);
    let mut at: Vec<(Vec<u8>, Vec<usize>)> = vec![(Vec::new(), stack.all())];
    let mut links = 0;
    while let Some(part) = pending.pop_front() {
        if part == b".." {
            if at.len() > 1 {
                at.pop();
            }
            continue;
        }
        let Some((path, trees)) = at.last().cloned() else { break };
        let mut names = stack.list(&path, &trees)?;
        let Some(merged) = names.remove(&part) else {
            return Err(problem("no such file in the container"));
        };
        let full = join(&path, &part);
        match merged.kind {
            FileKind::Directory => at.push((full, merged.trees)),
            FileKind::Symlink if source.follow || !pending.is_empty() => {
                links += 1;
                if links > resolve::LINKS_MAX {
                    return Err(problem("too many symbolic links"));
                }
                let dir = stack.open_dir(merged.tree, &path)?;
                let target = rustix::fs::readlinkat(&dir, &part[..], Vec::new())
                    .map_err(|errno| Error::disk("read the link", &full, errno))?
                    .into_bytes();
                if target.starts_with(b"/") {
                    at.truncate(1);
                }
                for part in split_path(&target).into_iter().rev() {
                    pending.push_front(part);
                }
            }
            _ if pending.is_empty() => return Ok((full, vec![merged.tree])),
            _ => return Err(problem("a part of the path is not a directory")),
        }
    }
    at.pop().ok_or_else(|| problem("no such file in the container"))
}

/// Options of [`copy_in`].
#[derive(Debug, Clone, Default)]
pub struct Into {
    /// Owner of all files, instead of the archive's.
    pub owner: Option<(u32, u32)>,
    /// Drop setuid and setgid: for files that get another owner than they were made for.
    pub no_set_id: bool,
    /// The tree is in the form of [`crate::owner_xattrs`], and new files get it too.
    pub owner_xattrs: bool,
    /// Bounds for the archive.
    pub limits: Limits,
}

/// Result of [`copy_in`].
#[derive(Debug, Clone, Default)]
pub struct Copied {
    /// Entries in the archive.
    pub entries: u64,
    /// Owners that could not be set on the files themselves (symbolic links, or a file system
    /// without attributes): for the table beside the tree.
    pub owners: Owners,
    /// The paths in the tree of all entries, where that is in the form of
    /// [`crate::owner_xattrs`].
    pub paths: Vec<Vec<u8>>,
}

/// Unpacks an archive into directory `path` of the tree below `root`, and makes that directory if
/// it is missing.
///
/// Owners other than the caller's own are kept in [`OWNER_XATTR`]. A directory is never replaced by
/// a file nor the reverse.
pub fn copy_in(root: impl AsFd, path: &[u8], tar: impl Read, into: &Into) -> Result<Copied, Error> {
    let fd = reopen(&root)?;
    let path = crate::apply::clean(path)?;
    let mut applier = Applier::live(fd, &into.limits, &path);
    let mut reader = Reader::new(Buffered::new(tar), &into.limits);
    let mut new = Vec::new();
    while let Some(mut entry) = reader.next_entry()? {
        if into.owner_xattrs {
            new.push(join(&path, &crate::apply::clean(&entry.path)?));
        }
        if let Some((uid, gid)) = into.owner {
            (entry.uid, entry.gid) = (uid, gid);
        }
        if into.no_set_id {
            entry.mode &= !0o6000;
        }
        applier.entry(&entry, &mut reader)?;
    }
    applier.deferred_links()?;
    applier.finish_directories()?;
    let mut copied = Copied { entries: reader.entries(), ..Copied::default() };
    if into.owner_xattrs {
        new.retain(|path| !path.is_empty());
        copied.owners = crate::owner_xattrs::convert_paths(root, &new, &applier.owners)?;
        copied.paths = new;
        return Ok(copied);
    }
    for (path, record) in applier.owners.iter() {
        if !set_owner_xattr(root.as_fd(), path, record)? {
            copied.owners.insert(path, record.clone());
        }
    }
    Ok(copied)
}

/// Sets a record as attribute of the inode; `false` if that is impossible.
fn set_owner_xattr(root: impl AsFd, path: &[u8], record: &crate::Record) -> Result<bool, Error> {
    if record.kind == FileKind::Symlink
        || record.kind == FileKind::Fifo
        || !record.xattrs.is_empty()
    {
        return Ok(false);
    }
    let (parent, name) = split(path);
    let flags = sys::fs::NAME_ONLY | OFlags::DIRECTORY;
    let dir = resolve::strict(&root, parent, flags, resolve::Method::Best)
        .map_err(|errno| Error::disk("open directory", parent, errno))?;
    let is_directory = record.kind == FileKind::Directory;
    let flags = if is_directory { OFlags::DIRECTORY } else { OFlags::empty() };
    let set = sys::fs::open_read(&dir, name, flags)
        .and_then(|fd| sys::fs::xattr::set(&fd, OWNER_XATTR, record.to_xattr().as_bytes()));
    match set {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::ACCESS | Errno::PERM | Errno::NOSPC) => Ok(false),
        Err(errno) => Err(Error::disk("store the owner of", path, errno)),
    }
}

pub(crate) fn reopen(root: impl AsFd) -> Result<OwnedFd, Error> {
    rustix::fs::openat(root, ".", sys::fs::DIRECTORY, Mode::empty())
        .map_err(|errno| Error::disk("open directory", b".", errno))
}
