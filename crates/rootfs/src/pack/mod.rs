//! Writes trees as tar streams, with true owners, modes, devices and attributes, reproducible to
//! the byte.
//!
//! The same tree always gives the same bytes: names in byte order, no access or change times, no
//! owners' names, numbers in one fixed form (ustar, with a PAX header only for values that do not
//! fit). Hard links point to the first of their names in that order. Holes are written as zeros
//! unless asked otherwise, since their places depend on the file system.
//!
//! Sockets cannot be in an archive; [`Packed::skipped`] names them.

mod writer;

use crate::diff::{ChangeKind, compare};
use crate::drivers::Root;
use crate::error::Error;
use crate::frame::{Entry, EntryKind};
use crate::image::ImageTrees;
use crate::owners::FileKind;
use crate::points;
use crate::union::{Facts, IdMap, Stack, walk};
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::io::Write;
use sys::fs::resolve;
pub use writer::Writer;

/// Counts of a written archive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Packed {
    /// Entries.
    pub entries: u64,
    /// Bytes of the archive.
    pub bytes: u64,
    /// Sockets, which an archive cannot hold.
    pub skipped: Vec<Vec<u8>>,
}

/// Options of writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Write holes as holes (PAX, GNU format 1.0) if that saves at least a megabyte in a file.
    pub sparse: bool,
}

/// Writes the whole tree of a container (or of an image: `root` is `None`; or of a plain directory:
/// `image` is `None`) as one flat archive.
pub fn export(
    image: Option<&ImageTrees>,
    root: Option<&Root>,
    ids: &IdMap,
    options: Options,
    writer: impl Write,
) -> Result<Packed, Error> {
    let stack = Stack::container(image, root, ids)?;
    let mut packer = Packer::new(&stack, options, writer);
    if let Some(tree) = stack.root_tree() {
        packer.entry(b"./", &stack.root_facts(tree)?, b"", None)?;
    }
    packer.container(image, ids)?;
    packer.finish()
}

/// Writes a container in udocker's format: the tree below [`crate::cloned::TREE`], and the files
/// `beside` that describe it.
pub fn cloned(
    image: Option<&ImageTrees>,
    root: Option<&Root>,
    ids: &IdMap,
    beside: &[(&str, Vec<u8>)],
    writer: impl Write,
) -> Result<Packed, Error> {
    let stack = Stack::container(image, root, ids)?;
    let mut packer = Packer::new(&stack, Options::default(), writer);
    for (name, text) in beside {
        let entry = Entry { size: text.len() as u64, ..Entry::file(name.as_bytes()) };
        packer.writer.header(&entry, None)?;
        packer.writer.bytes(text)?;
        packer.writer.end(entry.size)?;
    }
    packer.rebase(b"", crate::cloned::TREE);
    if let Some(tree) = stack.root_tree() {
        packer.entry(b"", &stack.root_facts(tree)?, b"", None)?;
    }
    packer.container(image, ids)?;
    packer.finish()
}

/// Writes a container's changes as an OCI layer with whiteouts.
pub fn layer(
    image: &ImageTrees,
    root: &Root,
    ids: &IdMap,
    options: Options,
    writer: impl Write,
) -> Result<Packed, Error> {
    let own = Stack::own(root, Some(image), ids)?;
    let changes = compare(&Stack::image(image, ids)?, &own, root)?;
    let mut packer = Packer::new(&own, options, writer);
    for change in &changes {
        if change.kind == ChangeKind::Deleted {
            packer.whiteout(&change.path)?;
        } else {
            packer.add(own.first_with(&change.path), &change.path)?;
        }
    }
    packer.finish()
}

/// Writes the files below a host directory unchanged; see [`crate::import::directory`].
pub(crate) fn plain(stack: &Stack, options: Options, writer: impl Write) -> Result<Packed, Error> {
    let mut packer = Packer::new(stack, options, writer);
    packer.entry(b"./", &stack.root_facts(0)?, b"", None)?;
    walk(stack, |path, merged| packer.add(merged.tree, path))?;
    packer.finish()
}

/// Writes files of a stack into an archive.
pub(crate) struct Packer<'a, W> {
    stack: &'a Stack,
    options: Options,
    writer: Writer<W>,
    /// First name of each inode that has several.
    links: HashMap<(u64, u64), Vec<u8>>,
    /// The last opened directory: files come directory by directory.
    last: Option<(usize, Vec<u8>, OwnedFd)>,
    packed: Packed,
    /// Number of bytes to cut off the front of every path, and the prefix that replaces them.
    rebase: (usize, Vec<u8>),
}

impl<'a, W: Write> Packer<'a, W> {
    pub(crate) fn new(stack: &'a Stack, options: Options, writer: W) -> Self {
        Self {
            stack,
            options,
            writer: Writer::new(writer),
            links: HashMap::new(),
            last: None,
            packed: Packed::default(),
            rebase: (0, Vec::new()),
        }
    }

    /// Adds the whole tree, without the places of every container's mounts that the image lacks.
    fn container(&mut self, image: Option<&ImageTrees>, ids: &IdMap) -> Result<(), Error> {
        let stack = self.stack;
        let mut layers = None;
        walk(stack, |path, merged| {
            if let Some(image) = image
                && points::is_point(stack, path, merged)?
            {
                let layers = match &mut layers {
                    Some(layers) => layers,
                    none => none.insert(Stack::image(image, ids)?),
                };
                if !points::has(layers, path)? {
                    return Ok(false);
                }
            }
            self.add(merged.tree, path)
        })
    }

    /// Adds one file of one tree; returns true if it is a directory.
    pub(crate) fn add(&mut self, tree: usize, path: &[u8]) -> Result<bool, Error> {
        let (parent, name) = resolve::split(path);
        let fresh = !matches!(&self.last, Some((at, open, _)) if *at == tree && open == parent);
        if fresh {
            self.last = Some((tree, parent.to_vec(), self.stack.open_dir(tree, parent)?));
        }
        let Some((_, _, dir)) = &self.last else { return Ok(false) };
        let (facts, fd) = self.stack.open(tree, dir, path, name)?;
        let mut link = Vec::new();
        if facts.record.kind == FileKind::Symlink {
            link = rustix::fs::readlinkat(dir, name, Vec::new())
                .map_err(|errno| Error::disk("read the link", path, errno))?
                .into_bytes();
        }
        self.entry(path, &facts, &link, fd.as_ref())?;
        Ok(facts.record.kind == FileKind::Directory)
    }

    pub(crate) fn entry(
        &mut self,
        path: &[u8],
        facts: &Facts,
        link: &[u8],
        fd: Option<&OwnedFd>,
    ) -> Result<(), Error> {
        let record = &facts.record;
        if record.kind == FileKind::Socket {
            self.packed.skipped.push(path.to_vec());
            return Ok(());
        }
        let (strip, prefix) = &self.rebase;
        let mut name = [&prefix[..], &path[*strip..]].concat();
        if record.kind == FileKind::Directory && !name.ends_with(b"/") {
            name.push(b'/');
        }
        let mut entry = Entry {
            kind: EntryKind::File(record.kind),
            mode: record.mode,
            uid: record.uid,
            gid: record.gid,
            size: facts.size,
            mtime: facts.mtime,
            device: record.device,
            xattrs: record.xattrs.clone(),
            ..Entry::link(&name, link)
        };
        self.packed.entries += 1;
        if let Some(inode) = facts.inode {
            if let Some(first) = self.links.get(&inode) {
                entry.link.clone_from(first);
                entry.kind = EntryKind::Link;
                entry.size = 0;
                entry.xattrs.clear();
                return self.writer.header(&entry, None);
            }
            self.links.insert(inode, name);
        }
        match (record.kind, fd) {
            (FileKind::File, Some(fd)) => self.writer.file(&entry, fd, self.options.sparse),
            _ => self.writer.header(&entry, None),
        }
    }

    /// Adds the whiteout of a path of the layers beneath.
    fn whiteout(&mut self, path: &[u8]) -> Result<(), Error> {
        let (parent, name) = resolve::split(path);
        let hidden = [b".wh.", name].concat();
        self.packed.entries += 1;
        self.writer.header(&Entry::file(&resolve::join(parent, &hidden)), None)
    }

    /// Writes everything below `from` under the name `to`.
    pub(crate) fn rebase(&mut self, from: &[u8], to: &[u8]) {
        self.rebase = (from.len(), to.to_vec());
    }

    pub(crate) fn finish(mut self) -> Result<Packed, Error> {
        self.packed.bytes = self.writer.finish()?;
        Ok(self.packed)
    }
}
