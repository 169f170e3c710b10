//! Follows what the names of an archive referred to when it was unpacked, from the names alone.
//!
//! `lib/x` lands in `usr/lib` while `lib` is a link to it, and the link may be replaced later, so
//! the finished tree does not show where a name led. This module follows the rules of
//! [`crate::apply()`] entry by entry.

use crate::frame::{Entry, EntryKind};
use crate::owners::FileKind;
use std::collections::BTreeMap;
use sys::fs::resolve::{LINKS_MAX, join, parent_of, split};

enum Node {
    Directory,
    /// A symbolic link and its target.
    Link(Vec<u8>),
    Other,
}

/// The tree that the entries so far have made, without content.
#[derive(Default)]
pub(crate) struct Names {
    nodes: BTreeMap<Vec<u8>, Node>,
    /// The last directory that was looked up, and its path without links.
    last: Option<(Vec<u8>, Vec<u8>)>,
}

impl Names {
    /// Returns the path without links of the directory that a name leads to now; makes missing
    /// directories, as unpacking does. `None` if a parent is not a directory, or in a loop of
    /// links: unpacking refuses that.
    pub(crate) fn directory(&mut self, path: &[u8]) -> Option<Vec<u8>> {
        if let Some((name, place)) = &self.last
            && name == path
        {
            return Some(place.clone());
        }
        let place = self.resolve(path, true)?;
        self.last = Some((path.to_vec(), place.clone()));
        Some(place)
    }

    fn resolve(&mut self, path: &[u8], make: bool) -> Option<Vec<u8>> {
        let parts = |path: &[u8]| -> Vec<Vec<u8>> {
            let parts = path.split(|byte| *byte == b'/').rev();
            parts.filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec).collect()
        };
        let mut pending = parts(path);
        let mut place = Vec::new();
        let mut links = 0;
        while let Some(part) = pending.pop() {
            if part == b".." {
                place.truncate(parent_of(&place).len());
                continue;
            }
            let full = join(&place, &part);
            match self.nodes.get(&full) {
                Some(Node::Directory) => place = full,
                Some(Node::Link(target)) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return None;
                    }
                    if target.starts_with(b"/") {
                        place.clear();
                    }
                    pending.extend(parts(target));
                }
                Some(Node::Other) => return None,
                None if !make => return None,
                None => {
                    self.nodes.insert(full.clone(), Node::Directory);
                    place = full;
                }
            }
        }
        Some(place)
    }

    /// Adds an entry by its path without links. Returns true if it replaced another kind of entry,
    /// which is gone now with everything below it.
    pub(crate) fn add(&mut self, full: &[u8], entry: &Entry) -> bool {
        let node = match entry.kind {
            EntryKind::File(FileKind::Directory) => Node::Directory,
            EntryKind::File(FileKind::Symlink) => Node::Link(entry.link.clone()),
            EntryKind::File(_) => Node::Other,
            EntryKind::Link => match self.linked(&entry.link) {
                // A link to itself changes nothing.
                Some((target, _)) if target == full => return false,
                Some((_, node)) => node,
                None => Node::Other,
            },
        };
        let before = self.nodes.get(full);
        if matches!((before, &node), (Some(Node::Directory), Node::Directory)) {
            return false;
        }
        let replaced = before.is_some();
        if replaced {
            remove_below(&mut self.nodes, full);
        }
        if replaced || matches!(node, Node::Link(_)) {
            self.last = None;
        }
        self.nodes.insert(full.to_vec(), node);
        replaced
    }

    fn linked(&mut self, target: &[u8]) -> Option<(Vec<u8>, Node)> {
        let target = crate::apply::clean(target).ok()?;
        let (parent, name) = split(&target);
        let full = join(&self.resolve(parent, false)?, name);
        let node = match self.nodes.get(&full)? {
            Node::Link(target) => Node::Link(target.clone()),
            _ => Node::Other,
        };
        Some((full, node))
    }
}

/// Removes everything below a path from a map by path.
pub(crate) fn remove_below<V>(map: &mut BTreeMap<Vec<u8>, V>, path: &[u8]) {
    let prefix = [path, b"/"].concat();
    let below = map.range(prefix.clone()..).map(|(path, _)| path.clone());
    for path in below.take_while(|path| path.starts_with(&prefix)).collect::<Vec<_>>() {
        map.remove(&path);
    }
}
