//! Merges many layers into one tree, from the base up, as if their archives were unpacked into one
//! directory.
//!
//! Uses the same code as [`crate::apply()`], so that a path through a link of a lower layer, a
//! parent without an entry, or a hard link into a lower layer mean the same here as in an archive.
//! Needed if overlay cannot be used or would show something else (see [`crate::image::plan`]), and
//! by the drivers that copy.

use crate::apply::Applier;
use crate::error::Error;
use crate::frame::{Entry, EntryKind};
use crate::layer::{Layer, LayerMeta, OWNERS, TREE};
use crate::limits::Limits;
use crate::owners::{FileKind, Owners};
use crate::union::{Facts, Stack, walk};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::io::Read;
use sys::fs::resolve;

/// How file contents get into the new tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Hard links to the layers' files, for trees that no process writes to. Falls back to copies
    /// across file systems.
    HardLink,
    /// Shared blocks, else copies.
    Reflink,
    /// Copies.
    Copy,
}

/// Merges layers (topmost first) into `staging/tree` and writes `staging/owners`.
pub fn flatten(layers: &[Layer], staging: impl AsFd, method: Method) -> Result<LayerMeta, Error> {
    flatten_as(layers, staging, TREE, OWNERS, method)
}

/// Merges layers (topmost first) into `staging/tree` in the form of [`crate::owner_xattrs`], with
/// its inode list and the records that fit on no inode.
pub fn flatten_with_owner_xattrs(layers: &[Layer], staging: impl AsFd) -> Result<LayerMeta, Error> {
    let staging = staging.as_fd();
    let mut meta = flatten(layers, staging, Method::HardLink)?;
    let fail = |errno| Error::disk("open", TREE.as_bytes(), errno);
    let tree =
        rustix::fs::openat(staging, TREE, sys::fs::DIRECTORY, Mode::empty()).map_err(fail)?;
    let mut table = read_table(staging, OWNERS)?;
    let converted = crate::owner_xattrs::convert_tree(&tree, &mut table, true)?;
    meta.records = table.len() as u64;
    table.save(staging, OWNERS)?;
    converted.save(staging)?;
    Ok(meta)
}

/// Reads a table from its directory.
pub(crate) fn read_table(directory: impl AsFd, name: &str) -> Result<Owners, Error> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let bad = |line: usize, problem: String| Error::Table { path: name.into(), line, problem };
    let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(Owners::new()),
        Err(errno) => return Err(Error::disk("open", name.as_bytes(), errno)),
    };
    let mut bytes = Vec::new();
    std::fs::File::from(file).read_to_end(&mut bytes).map_err(|error| bad(0, error.to_string()))?;
    Owners::parse(&bytes).map_err(|(line, problem)| bad(line, problem))
}

/// As [`flatten`], with other names for the tree and the table.
pub(crate) fn flatten_as(
    layers: &[Layer],
    staging: impl AsFd,
    tree: &str,
    owners: &str,
    method: Method,
) -> Result<LayerMeta, Error> {
    let staging = staging.as_fd();
    let root = crate::apply::new_tree(staging, tree)?;
    let limits = Limits::default();
    let mut applier = Applier::new(root, &limits)?;
    for layer in layers.iter().rev() {
        add(&mut applier, layer, method)?;
    }
    applier.finish_directories()?;
    let mut meta = std::mem::take(&mut applier.meta);
    meta.implicit.clear();
    meta.has_root = true;
    meta.root_opaque = false;
    meta.marks_in_table = false;
    meta.records = applier.owners.len() as u64;
    applier.owners.save(staging, owners)?;
    Ok(meta)
}

fn add(applier: &mut Applier<'_>, layer: &Layer, method: Method) -> Result<(), Error> {
    let stack = Stack::layers(std::slice::from_ref(layer))?;
    if layer.meta.root_opaque {
        applier.hide_all_in(b"")?;
    }
    // Deletions first: they affect the lower layers only.
    hide(applier, &stack, b"")?;
    walk(&stack, |path, merged| {
        let is_directory = merged.kind == FileKind::Directory;
        if is_directory {
            hide(applier, &stack, path)?;
        }
        Ok(is_directory)
    })?;
    if layer.meta.has_root {
        let facts = stack.root_facts(0)?;
        applier.root_entry(&entry(b"", &facts, b""))?;
    }
    let implicit: HashSet<Vec<u8>> = layer.meta.implicit_paths().into_iter().collect();
    let mut seen: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
    walk(&stack, |path, _| {
        if implicit.contains(path) {
            return Ok(true);
        }
        let (parent, name) = resolve::split(path);
        let dir = stack.open_dir(0, parent)?;
        let (facts, fd) = stack.open(0, &dir, path, name)?;
        let source = Source { dir: &dir, name, fd: fd.as_ref() };
        one(applier, path, &facts, &source, method, &mut seen)
    })?;
    for (link, target) in layer.meta.link_paths() {
        if !applier.try_link(&link, &target)? {
            return Err(Error::LinkTarget { entry: link, target });
        }
    }
    Ok(())
}

/// Removes from the tree what a directory of the layer hides.
fn hide(applier: &mut Applier<'_>, stack: &Stack, path: &[u8]) -> Result<(), Error> {
    let (names, opaque) = stack.marks(0, path)?;
    if opaque && !path.is_empty() {
        applier.hide_all_in(path)?;
    }
    for name in names {
        applier.hide(&resolve::join(path, &name))?;
    }
    Ok(())
}

struct Source<'a> {
    dir: &'a OwnedFd,
    name: &'a [u8],
    fd: Option<&'a OwnedFd>,
}

/// Adds one file; returns true if it is a directory to enter.
fn one(
    applier: &mut Applier<'_>,
    path: &[u8],
    facts: &Facts,
    source: &Source<'_>,
    method: Method,
    seen: &mut HashMap<(u64, u64), Vec<u8>>,
) -> Result<bool, Error> {
    let kind = facts.record.kind;
    if let Some(inode) = facts.inode {
        if let Some(first) = seen.get(&inode)
            && applier.try_link(path, first)?
        {
            return Ok(false);
        }
        seen.insert(inode, path.to_vec());
    }
    let mut link = Vec::new();
    if kind == FileKind::Symlink {
        link = rustix::fs::readlinkat(source.dir, source.name, Vec::new())
            .map_err(|errno| Error::disk("read the link", path, errno))?
            .into_bytes();
    }
    let entry = entry(path, facts, &link);
    applier.count_file(&entry);
    match (kind, source.fd) {
        (FileKind::File, Some(fd)) => {
            if method != Method::HardLink || !applier.link_from(&entry, source.dir, source.name)? {
                applier.copy_from(&entry, fd)?;
            }
        }
        _ => applier.plain_entry(&entry)?,
    }
    Ok(kind == FileKind::Directory)
}

fn entry(path: &[u8], facts: &Facts, link: &[u8]) -> Entry {
    let record = &facts.record;
    Entry {
        kind: EntryKind::File(record.kind),
        mode: record.mode,
        uid: record.uid,
        gid: record.gid,
        size: facts.size,
        mtime: facts.mtime,
        device: record.device,
        xattrs: record.xattrs.clone(),
        ..Entry::link(path, link)
    }
}
