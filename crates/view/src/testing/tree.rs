//! The fake host's files: inodes in a vector, and a path walk like the kernel's.

use super::Result;
use crate::Errno;
use std::collections::BTreeMap;
use std::vec::Vec;

/// Index of an inode; its inode number is one more.
pub type Id = usize;
/// The root directory.
pub const ROOT: Id = 0;
/// A name in a directory.
pub type Name = (Id, Vec<u8>);

/// The contents of an inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Directory: names.
    Dir(BTreeMap<Vec<u8>, Id>),
    /// Regular file: contents.
    File(Vec<u8>),
    /// Symbolic link: target.
    Link(Vec<u8>),
    /// A link of `/proc` that leads directly to an inode, whatever its name.
    Magic(Id),
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character device.
    Device,
}

/// An inode.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its contents.
    pub body: Body,
    /// Permission bits, with the special ones.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names (of a directory: 2, or 0 after it was removed).
    pub links: u32,
    /// The parent of a directory.
    pub parent: Id,
    /// Extended attributes.
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Access and modification time, seconds.
    pub times: [i64; 2],
}

/// The files.
#[derive(Debug, Clone)]
pub struct Tree {
    /// All inodes ever made.
    pub nodes: Vec<Node>,
}

/// Options of a walk.
#[derive(Debug, Clone, Copy, Default)]
pub struct Walk {
    /// Follow a link at the end.
    pub follow: bool,
    /// Refuse links (`RESOLVE_NO_SYMLINKS`).
    pub no_symlinks: bool,
    /// Stop before the last component.
    pub parent: bool,
}

/// The result of a walk.
#[derive(Debug, Clone)]
pub struct Found {
    /// The inode, if it exists (never looked up for `.` and `..` with [`Walk::parent`]).
    pub node: Option<Id>,
    /// Its directory and name, if the last component was a name.
    pub name: Option<Name>,
    /// The path ended in a slash.
    pub slash: bool,
    /// With [`Walk::parent`]: the last component, `.` or `..` or empty for the root.
    pub last: Vec<u8>,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// Only `/`, with mode 0755.
    pub fn new() -> Self {
        Self { nodes: [node(Body::Dir(BTreeMap::new()), 0o755, ROOT)].to_vec() }
    }

    /// Returns true if an inode is a directory.
    pub fn is_dir(&self, id: Id) -> bool {
        matches!(self.nodes[id].body, Body::Dir(_))
    }

    /// Names in a directory.
    pub fn names(&self, id: Id) -> Result<&BTreeMap<Vec<u8>, Id>> {
        match &self.nodes[id].body {
            Body::Dir(names) => Ok(names),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Names in a directory, mutable.
    pub fn names_mut(&mut self, id: Id) -> &mut BTreeMap<Vec<u8>, Id> {
        match &mut self.nodes[id].body {
            Body::Dir(names) => names,
            _ => panic!("not a directory"),
        }
    }

    /// Makes the directories of a host path.
    pub fn make_dirs(&mut self, path: &str) -> Id {
        let mut at = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = match self.names(at).expect("a directory").get(name.as_bytes()) {
                Some(&next) => next,
                None => self.insert(at, name.as_bytes(), Body::Dir(BTreeMap::new()), 0o755),
            };
        }
        at
    }

    /// Makes an inode with a name.
    pub fn insert(&mut self, parent: Id, name: &[u8], body: Body, mode: u32) -> Id {
        let id = self.nodes.len();
        self.nodes.push(node(body, mode, parent));
        self.names_mut(parent).insert(name.to_vec(), id);
        id
    }

    /// The inode at a path; follows no links.
    pub fn get(&self, path: &str) -> Option<Id> {
        path.split('/')
            .filter(|name| !name.is_empty())
            .try_fold(ROOT, |at, name| self.names(at).ok()?.get(name.as_bytes()).copied())
    }

    /// The name of an inode that was reached by `path`.
    pub fn name_of(&self, id: Id, path: &[u8]) -> Option<Name> {
        let last = path.rsplit(|byte| *byte == b'/').next()?.to_vec();
        let holder = (0..self.nodes.len())
            .find(|dir| self.names(*dir).is_ok_and(|names| names.get(&last) == Some(&id)))?;
        Some((holder, last))
    }

    /// The kernel's name for an open file.
    pub fn path_of(&self, id: Id, name: Option<&Name>) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut dead = false;
        let mut at = id;
        if !self.is_dir(id) {
            let Some((parent, last)) = name else { return b"pipe:[7]".to_vec() };
            dead = self.names(*parent).is_ok_and(|names| names.get(last) != Some(&id));
            parts.push(last.clone());
            at = *parent;
        } else if self.nodes[id].links == 0 {
            dead = true;
            let (parent, last) = name.cloned().unwrap_or((ROOT, b"gone".to_vec()));
            parts.push(last);
            at = parent;
        }
        while at != ROOT {
            let parent = self.nodes[at].parent;
            let last = self.names(parent).ok().and_then(|names| {
                names.iter().find(|(_, id)| **id == at).map(|(name, _)| name.clone())
            });
            parts.push(last.unwrap_or_else(|| b"gone".to_vec()));
            at = parent;
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        if dead {
            path.extend_from_slice(b" (deleted)");
        }
        path
    }

    /// `path_resolution(7)`, as `fs/namei.c` does it. `start` is the directory of a relative path.
    pub fn walk(&self, start: Id, path: &[u8], how: Walk) -> Result<Found> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if path.len() >= 4096 {
            return Err(Errno::ENAMETOOLONG);
        }
        let mut rest = path.to_vec();
        let mut at = if rest[0] == b'/' { ROOT } else { start };
        let mut name: Option<Name> = None;
        let mut links = 0;
        loop {
            let begin = rest.iter().position(|byte| *byte != b'/').unwrap_or(rest.len());
            rest.drain(..begin);
            if rest.is_empty() {
                return Ok(Found { node: Some(at), name, slash: begin > 0, last: Vec::new() });
            }
            let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            let component: Vec<u8> = rest.drain(..end).collect();
            let slash = !rest.is_empty();
            let is_last = rest.iter().all(|byte| *byte == b'/');
            let names = self.names(at)?;
            if self.nodes[at].mode & 0o100 == 0 {
                return Err(Errno::EACCES);
            }
            if is_last && how.parent {
                let name = Some((at, component.clone()));
                return Ok(Found {
                    node: names.get(&component).copied(),
                    name,
                    slash,
                    last: component,
                });
            }
            match component.as_slice() {
                b"." => name = None,
                b".." => {
                    at = self.nodes[at].parent;
                    name = None;
                }
                _ => {
                    if component.len() > 255 {
                        return Err(Errno::ENAMETOOLONG);
                    }
                    name = Some((at, component.clone()));
                    let Some(&next) = names.get(&component) else {
                        return if is_last {
                            Ok(Found { node: None, name, slash, last: component })
                        } else {
                            Err(Errno::ENOENT)
                        };
                    };
                    let follow = !is_last || slash || how.follow;
                    match &self.nodes[next].body {
                        Body::Link(_) | Body::Magic(_) if follow => {
                            links += 1;
                            if how.no_symlinks || links > 40 {
                                return Err(Errno::ELOOP);
                            }
                            match &self.nodes[next].body {
                                Body::Link(target) => {
                                    let mut spliced = target.clone();
                                    spliced.extend_from_slice(&rest);
                                    rest = spliced;
                                    if rest.first() == Some(&b'/') {
                                        at = ROOT;
                                    }
                                    name = None;
                                    continue;
                                }
                                Body::Magic(target) => at = *target,
                                _ => unreachable!("matched above"),
                            }
                        }
                        _ => at = next,
                    }
                }
            }
            if slash && !self.is_dir(at) {
                return Err(Errno::ENOTDIR);
            }
        }
    }
}

fn node(body: Body, mode: u32, parent: Id) -> Node {
    let links = if matches!(body, Body::Dir(_)) { 2 } else { 1 };
    Node {
        body,
        mode,
        uid: 1000,
        gid: 1000,
        links,
        parent,
        attributes: BTreeMap::new(),
        times: [0; 2],
    }
}
