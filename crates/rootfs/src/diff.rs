//! Lists a container's changes: its upper directory, or its own copy of the tree, compared with the
//! image's layers.
//!
//! A file counts as changed if kind, mode, owner, size, modification time, link target, device or
//! attributes differ, as Docker counts; a directory if its attributes differ or something in it was
//! added or deleted. Files that overlay copied up without a difference are not listed, nor are the
//! places of every container's mounts ([`crate::points`]).

use crate::drivers::Root;
use crate::error::Error;
use crate::image::ImageTrees;
use crate::owners::FileKind;
use crate::points::is_point;
use crate::union::{IdMap, Merged, Stack};
use std::collections::BTreeMap;
use sys::fs::resolve::{join, split};

/// Kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// Only in the container.
    Added,
    /// Other content or attributes.
    Changed,
    /// Only in the image.
    Deleted,
}

impl ChangeKind {
    /// Docker's letter for it: A, C, D.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::Added => 'A',
            Self::Changed => 'C',
            Self::Deleted => 'D',
        }
    }
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// Relative to the root, without leading slash.
    pub path: Vec<u8>,
    /// Kind of the difference.
    pub kind: ChangeKind,
}

/// Lists the differences of `root` from `image`, sorted by path.
pub fn diff(image: &ImageTrees, root: &Root, ids: &IdMap) -> Result<Vec<Change>, Error> {
    compare(&Stack::image(image, ids)?, &Stack::own(root, Some(image), ids)?, root)
}

/// As [`diff`], for trees that are already open.
pub(crate) fn compare(image: &Stack, own: &Stack, root: &Root) -> Result<Vec<Change>, Error> {
    let complete = !matches!(root, Root::Overlay { .. });
    let mut work = Work { image, own, changes: BTreeMap::new() };
    let mut pending =
        vec![Pair { path: Vec::new(), own: own.all_own(), below: image.all(), complete }];
    while let Some(pair) = pending.pop() {
        work.directory(&pair, &mut pending)?;
    }
    Ok(work.changes.into_iter().map(|(path, kind)| Change { path, kind }).collect())
}

/// A directory of the container and the image's directory at that path.
struct Pair {
    path: Vec<u8>,
    /// The container's own trees that have it.
    own: Vec<usize>,
    /// The layers that have this directory; none for a new one.
    below: Vec<usize>,
    /// True if a name that the container lacks here counts as deleted; false if the image's entry
    /// is visible then.
    complete: bool,
}

struct Work<'a> {
    image: &'a Stack,
    own: &'a Stack,
    changes: BTreeMap<Vec<u8>, ChangeKind>,
}

impl Work<'_> {
    fn directory(&mut self, pair: &Pair, pending: &mut Vec<Pair>) -> Result<(), Error> {
        let path = &pair.path;
        let mut below = if pair.below.is_empty() {
            BTreeMap::new()
        } else {
            self.image.list(path, &pair.below)?
        };
        let (whiteouts, opaque) =
            if pair.complete { (Vec::new(), false) } else { self.own.marks(0, path)? };
        for name in whiteouts {
            if below.remove(&name).is_some() {
                self.note(path, &name, ChangeKind::Deleted);
            }
        }
        for (name, mine) in self.own.list(path, &pair.own)? {
            let theirs = below.remove(&name);
            if theirs.is_none() && is_point(self.own, &join(path, &name), &mine)? {
                continue;
            }
            self.name(pair, &name, &mine, theirs.as_ref(), pending)?;
        }
        if pair.complete || opaque {
            for name in below.into_keys() {
                self.note(path, &name, ChangeKind::Deleted);
            }
        }
        Ok(())
    }

    fn name(
        &mut self,
        pair: &Pair,
        name: &[u8],
        mine: &Merged,
        theirs: Option<&Merged>,
        pending: &mut Vec<Pair>,
    ) -> Result<(), Error> {
        let full = join(&pair.path, name);
        match theirs {
            None => self.note(&pair.path, name, ChangeKind::Added),
            Some(theirs) => {
                if self.differs(&full, mine, theirs)? {
                    self.changes.insert(full.clone(), ChangeKind::Changed);
                }
            }
        }
        if mine.kind == FileKind::Directory {
            let below = theirs.map_or_else(Vec::new, |theirs| theirs.trees.clone());
            // What a renamed directory of the image lacks, nothing beneath can show.
            let complete = pair.complete || self.own.is_redirected(&full);
            pending.push(Pair { path: full, own: mine.trees.clone(), below, complete });
        }
        Ok(())
    }

    /// Adds an addition or deletion, which also changes the directory it is in.
    fn note(&mut self, parent: &[u8], name: &[u8], kind: ChangeKind) {
        self.changes.insert(join(parent, name), kind);
        if !parent.is_empty() {
            self.changes.entry(parent.to_vec()).or_insert(ChangeKind::Changed);
        }
    }

    fn differs(&self, full: &[u8], mine: &Merged, theirs: &Merged) -> Result<bool, Error> {
        let (parent, name) = split(full);
        let my_dir = self.own.open_dir(mine.tree, parent)?;
        let their_dir = self.image.open_dir(theirs.tree, parent)?;
        let (mine, _) = self.own.open(mine.tree, &my_dir, full, name)?;
        let (before, _) = self.image.open(theirs.tree, &their_dir, full, name)?;
        if mine.record != before.record {
            return Ok(true);
        }
        Ok(match mine.record.kind {
            FileKind::Symlink => {
                let read = |dir| {
                    rustix::fs::readlinkat(dir, name, Vec::new())
                        .map_err(|errno| Error::disk("read the link", full, errno))
                };
                read(&my_dir)? != read(&their_dir)?
            }
            FileKind::File => mine.size != before.size || mine.mtime != before.mtime,
            _ => false,
        })
    }
}
