//! Reads a stack of trees as one: the tree that a container sees, computed without mounting
//! anything.
//!
//! `Stack::list` merges one directory by overlay's rules: the topmost tree that has a name decides,
//! a whiteout hides it, and directories of the same name merge until one is opaque. `Stack::facts`
//! adds the facts from the ownership tables and from the attributes of a container's upper
//! directory.
//!
//! Only descriptors of the trees' tops stay open; everything else is opened beneath them by path,
//! links refused.

use crate::apply::is_plain_xattr;
use crate::drivers::Root;
use crate::error::Error;
use crate::image::ImageTrees;
use crate::layer::Layer;
use crate::owner_xattrs::{BY_PATH, HIDDEN};
use crate::owners::{FileKind, OWNER_XATTR, Owners, Record};
use crate::redirects::Redirects;
use crate::unlock::{Unlocked, is_mode_only};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use sys::fs::resolve::{self, Method, join};

/// Table, in the container's directory, with the owners of files in `upper/` that cannot have
/// attributes (symbolic links, fifos).
pub const UPPER_OWNERS: &str = "upper.owners";

/// Table beside [`UPPER_OWNERS`] with what the container's log says of these files when its readers
/// come; it goes before the other.
pub const UPPER_NOTED: &str = "upper.noted";

/// The owners of files in an upper directory that cannot have attributes.
pub fn upper_owners(upper: &Path) -> Result<Owners, Error> {
    let mut owners = Owners::read(&upper.with_file_name(UPPER_OWNERS))?;
    for (path, record) in Owners::read(&upper.with_file_name(UPPER_NOTED))?.iter() {
        owners.insert(path, record.clone());
    }
    Ok(owners)
}

/// What an upper directory has of its image under other names.
fn redirects(upper: &Path, image: Option<&ImageTrees>) -> Result<Redirects, Error> {
    let layer = image.and_then(|image| match &image.layers[..] {
        [layer] => Some((layer.tree(), layer.directory.join(BY_PATH))),
        _ => None,
    });
    Redirects::read(upper, layer.as_ref().map(|(tree, table)| (tree.as_path(), table.as_path())))
}

/// The owners of the image's links, pipes and sockets in an upper directory: they carry none.
pub fn shared_owners(upper: &Path, image: &ImageTrees) -> Result<Owners, Error> {
    let redirects = redirects(upper, Some(image))?;
    let mut owners = Owners::new();
    if !redirects.has_records() {
        return Ok(owners);
    }
    let stack = Stack::live(open_tree(upper)?, Owners::new(), &IdMap::default());
    walk(&stack, |path, merged| {
        if is_special(merged.kind) {
            let (parent, name) = resolve::split(path);
            let stat = sys::fs::stat(&stack.open_dir(0, parent)?, name)
                .map_err(|errno| Error::disk("stat", path, errno))?;
            if let Some(record) = redirects.record(&stat) {
                owners.insert(path, record.clone());
            }
        }
        Ok(true)
    })?;
    Ok(owners)
}

/// Whether files of a kind cannot carry a record.
pub(crate) const fn is_special(kind: FileKind) -> bool {
    matches!(kind, FileKind::Symlink | FileKind::Fifo | FileKind::Socket)
}

/// Opens the top of a tree by its host path.
pub(crate) fn open_tree(path: &Path) -> Result<OwnedFd, Error> {
    rustix::fs::openat(CWD, path, sys::fs::DIRECTORY, Mode::empty())
        .map_err(|errno| Error::disk("open directory", path.as_os_str().as_bytes(), errno))
}

/// Maps ids on disk to ids inside a container. Ids on disk that are in no range read as 0, as the
/// caller's own do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IdMap {
    /// (first id inside, first id on disk, count) for users.
    pub users: Vec<(u32, u32, u32)>,
    /// The same for groups.
    pub groups: Vec<(u32, u32, u32)>,
}

impl IdMap {
    /// Maps every id to itself: for trees that a real root has written.
    #[must_use]
    pub fn identity() -> Self {
        let all = vec![(0, 0, u32::MAX)];
        Self { users: all.clone(), groups: all }
    }

    /// A user and a group inside.
    pub(crate) fn of_disk(&self, user: u32, group: u32) -> (u32, u32) {
        (Self::inside(&self.users, user), Self::inside(&self.groups, group))
    }

    fn inside(map: &[(u32, u32, u32)], disk: u32) -> u32 {
        let hit = map.iter().find(|(_, first, count)| disk >= *first && disk - first < *count);
        hit.map_or(0, |(inside, first, _)| inside + (disk - first))
    }
}

/// The true attributes of one file, from the table, its attributes or the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) record: Record,
    pub(crate) size: u64,
    pub(crate) mtime: (i64, u32),
    /// Device and inode on disk, for hard links; `None` if there is only one name.
    pub(crate) inode: Option<(u64, u64)>,
}

/// How to read a tree's owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A layer: its table has the owners, ids on disk mean nothing.
    Layer,
    /// A container's own tree: files belong to their owners by the id map, and have
    /// [`OWNER_XATTR`].
    Live,
}

struct Tree {
    fd: OwnedFd,
    /// Keeps unreadable directories open while the stack lives.
    _unlocked: Option<Unlocked>,
    owners: Owners,
    role: Role,
    implicit: HashSet<Vec<u8>>,
    has_root: bool,
}

impl Tree {
    fn live(fd: OwnedFd, owners: Owners) -> Self {
        let (role, implicit) = (Role::Live, HashSet::new());
        Self { fd, _unlocked: None, owners, role, implicit, has_root: true }
    }
}

/// Trees, topmost first.
pub(crate) struct Stack {
    trees: Vec<Tree>,
    ids: IdMap,
    /// How many of the trees are a container's own.
    own: usize,
    /// What the topmost tree has of the one beneath it under other names.
    redirects: Redirects,
}

/// A name in a merged directory.
#[derive(Debug, Clone)]
pub(crate) struct Merged {
    pub(crate) kind: FileKind,
    /// The tree that has the file's attributes.
    pub(crate) tree: usize,
    /// For a directory: the trees whose content is visible, topmost first.
    pub(crate) trees: Vec<usize>,
    open: bool,
    hidden: bool,
}

impl Stack {
    /// Opens the layers of an image.
    pub(crate) fn image(image: &ImageTrees, ids: &IdMap) -> Result<Self, Error> {
        let mut stack = Self::of(Vec::new(), ids);
        for layer in &image.layers {
            stack.add_layer(layer)?;
        }
        Ok(stack)
    }

    /// Opens a stack of layers alone.
    pub(crate) fn layers(layers: &[Layer]) -> Result<Self, Error> {
        let mut stack = Self::of(Vec::new(), &IdMap::default());
        for layer in layers {
            stack.add_layer(layer)?;
        }
        Ok(stack)
    }

    /// Trees that are all a container's own.
    fn of(trees: Vec<Tree>, ids: &IdMap) -> Self {
        Self { own: trees.len(), trees, ids: ids.clone(), redirects: Redirects::default() }
    }

    fn add_layer(&mut self, layer: &Layer) -> Result<(), Error> {
        let owners = layer.owners()?;
        let unlocked = Unlocked::layer(layer, &owners);
        self.trees.push(Tree {
            fd: open_tree(&layer.tree())?,
            _unlocked: unlocked,
            owners,
            role: Role::Layer,
            implicit: layer.meta.implicit_paths().into_iter().collect(),
            has_root: layer.meta.has_root,
        });
        Ok(())
    }

    /// Opens a container's own tree: overlay's upper, or its whole tree. The image's trees are
    /// there too if the upper has files of theirs under other names.
    pub(crate) fn own(root: &Root, image: Option<&ImageTrees>, ids: &IdMap) -> Result<Self, Error> {
        let (path, table) = match root {
            Root::Overlay { upper, .. } => return Self::upper(upper, image, ids),
            Root::Directory(path) => {
                let table = path.with_file_name(crate::drivers::ROOT_OWNERS);
                // In a tree of hard links that was not used yet, the image's table counts.
                let by_path = || path.with_file_name(crate::owner_xattrs::BY_PATH);
                (path, if table.exists() { table } else { by_path() })
            }
            Root::Given { directory, table } => (directory, table.clone()),
            Root::Stacked { directory, upper, .. } => {
                let mut stack = Self::own(&Root::Directory(directory.clone()), None, ids)?;
                let table = upper_owners(upper)?;
                stack.trees.insert(0, Tree::live(open_tree(upper)?, table));
                stack.own += 1;
                return Ok(stack);
            }
        };
        Ok(Self::live(open_tree(path)?, Owners::read(&table)?, ids))
    }

    /// The same of an upper directory.
    pub(crate) fn upper(
        upper: &Path,
        image: Option<&ImageTrees>,
        ids: &IdMap,
    ) -> Result<Self, Error> {
        let mut stack = Self::live(open_tree(upper)?, upper_owners(upper)?, ids);
        stack.redirects = redirects(upper, image)?;
        if let Some(image) = image.filter(|_| stack.redirects.is_used()) {
            image.layers.iter().try_for_each(|layer| stack.add_layer(layer))?;
        }
        Ok(stack)
    }

    /// Makes a stack of a container's tree that is already open.
    pub(crate) fn live(fd: OwnedFd, owners: Owners, ids: &IdMap) -> Self {
        Self::of(vec![Tree::live(fd, owners)], ids)
    }

    /// Opens everything that a container sees.
    pub(crate) fn container(
        image: Option<&ImageTrees>,
        root: Option<&Root>,
        ids: &IdMap,
    ) -> Result<Self, Error> {
        let mut stack = match root {
            Some(root) => Self::own(root, image, ids)?,
            None => Self::of(Vec::new(), ids),
        };
        let stacked = matches!(root, None | Some(Root::Overlay { .. }));
        let is_there = stack.trees.len() > stack.own;
        if let Some(image) = image.filter(|_| stacked && !is_there) {
            for layer in &image.layers {
                stack.add_layer(layer)?;
            }
        }
        Ok(stack)
    }

    /// Indexes of all trees, for the merged content of the top directory.
    pub(crate) fn all(&self) -> Vec<usize> {
        (0..self.trees.len()).collect()
    }

    /// The same without the image's trees.
    pub(crate) fn all_own(&self) -> Vec<usize> {
        (0..self.own).collect()
    }

    /// The map of its own trees.
    pub(crate) fn ids(&self) -> &IdMap {
        &self.ids
    }

    /// The directories of the container's that are the image's under another name.
    pub(crate) fn redirected(&self) -> Vec<Vec<u8>> {
        self.redirects.paths()
    }

    /// Whether a directory of the container's is one of the image's under another name.
    pub(crate) fn is_redirected(&self, path: &[u8]) -> bool {
        self.redirects.has(path)
    }

    /// The path in one tree of a file that is seen at `path`.
    fn path_in<'p>(&self, tree: usize, path: &'p [u8]) -> Cow<'p, [u8]> {
        if tree < self.own { Cow::Borrowed(path) } else { self.redirects.in_image(path) }
    }

    /// The tree that has the root directory's attributes: the topmost whose archive has an entry
    /// for it.
    pub(crate) fn root_tree(&self) -> Option<usize> {
        let says = self.trees.iter().position(|tree| tree.has_root);
        says.or_else(|| self.trees.len().checked_sub(1))
    }

    /// The topmost tree that has a path.
    pub(crate) fn first_with(&self, path: &[u8]) -> usize {
        let (parent, name) = resolve::split(path);
        let has = |tree: &usize| {
            self.open_dir(*tree, parent).is_ok_and(|dir| sys::fs::stat(&dir, name).is_ok())
        };
        let last = self.trees.len().saturating_sub(1);
        (0..last).find(has).unwrap_or(last)
    }

    /// Returns true if a tree's table has a record of a path.
    pub(crate) fn has_record(&self, tree: usize, path: &[u8]) -> bool {
        self.trees[tree].owners.get(&self.path_in(tree, path)).is_some()
    }

    /// Opens a directory of one tree.
    pub(crate) fn open_dir(&self, tree: usize, path: &[u8]) -> Result<OwnedFd, Error> {
        let path = &self.path_in(tree, path)[..];
        let root = &self.trees[tree].fd;
        match resolve::strict(root, path, sys::fs::DIRECTORY, Method::Best) {
            Err(Errno::ACCESS) => {}
            other => return other.map_err(|errno| Error::disk("open directory", path, errno)),
        }
        let (parent, name) = resolve::split(path);
        let parent =
            resolve::strict(root, parent, sys::fs::NAME_ONLY | OFlags::DIRECTORY, Method::Best)
                .map_err(|errno| Error::disk("open directory", parent, errno))?;
        sys::fs::open_read(&parent, name, OFlags::DIRECTORY)
            .map_err(|errno| Error::disk("open directory", path, errno))
    }

    /// Lists one merged directory; `trees` are those that take part, topmost first.
    pub(crate) fn list(
        &self,
        path: &[u8],
        trees: &[usize],
    ) -> Result<BTreeMap<Vec<u8>, Merged>, Error> {
        let mut names: BTreeMap<Vec<u8>, Merged> = BTreeMap::new();
        for (position, &tree) in trees.iter().enumerate() {
            let last = position + 1 == trees.len();
            let dir = self.open_dir(tree, path)?;
            for name in self.table_whiteouts(tree, path) {
                hide(&mut names, name, tree);
            }
            let entries = sys::fs::read_dir(&dir)
                .map_err(|errno| Error::disk("read directory", path, errno))?;
            for entry in entries {
                let kind = FileKind::from_mode(entry.kind.as_raw_mode());
                if kind == FileKind::Char && is_whiteout(&dir, &entry.name, path)? {
                    hide(&mut names, entry.name, tree);
                    continue;
                }
                let is_directory = kind == FileKind::Directory;
                match names.get_mut(&entry.name) {
                    None if is_directory && tree == 0 && self.has_redirect(path, &entry.name) => {
                        let (trees, open) = (self.all(), false);
                        names.insert(entry.name, Merged { kind, tree, trees, open, hidden: false });
                    }
                    None => {
                        let open = is_directory
                            && !last
                            && !self.is_opaque(tree, &dir, path, &entry.name)?;
                        let trees = if is_directory { vec![tree] } else { Vec::new() };
                        names.insert(entry.name, Merged { kind, tree, trees, open, hidden: false });
                    }
                    Some(merged) if merged.open && is_directory => {
                        // A directory that an upper layer has only as a parent takes its attributes
                        // from below.
                        let full = join(path, &entry.name);
                        let implicit = &self.trees[merged.tree].implicit;
                        if implicit.contains(&self.path_in(merged.tree, &full)[..]) {
                            merged.tree = tree;
                        }
                        merged.trees.push(tree);
                        merged.open = !last && !self.is_opaque(tree, &dir, path, &entry.name)?;
                    }
                    Some(merged) => merged.open = false,
                }
            }
        }
        names.retain(|_, merged| !merged.hidden);
        Ok(names)
    }

    fn has_redirect(&self, path: &[u8], name: &[u8]) -> bool {
        self.redirects.is_used() && self.redirects.has(&join(path, name))
    }

    fn table_whiteouts(&self, tree: usize, path: &[u8]) -> Vec<Vec<u8>> {
        let path = &self.path_in(tree, path)[..];
        let names = self.trees[tree].owners.whiteouts().map(resolve::split);
        names.filter(|(parent, _)| *parent == path).map(|(_, name)| name.to_vec()).collect()
    }

    fn is_opaque(
        &self,
        tree: usize,
        dir: &OwnedFd,
        path: &[u8],
        name: &[u8],
    ) -> Result<bool, Error> {
        let full = join(path, name);
        if self.trees[tree].owners.is_opaque(&self.path_in(tree, &full)) {
            return Ok(true);
        }
        sys::fs::open_read(dir, name, OFlags::DIRECTORY)
            .and_then(sys::fs::whiteout::is_opaque)
            .map_err(|errno| Error::disk("stat", &full, errno))
    }

    /// The whiteouts of one tree's directory, on disk or in the table, and true if the directory is
    /// opaque.
    pub(crate) fn marks(&self, tree: usize, path: &[u8]) -> Result<(Vec<Vec<u8>>, bool), Error> {
        let dir = self.open_dir(tree, path)?;
        let mut names = self.table_whiteouts(tree, path);
        let entries =
            sys::fs::read_dir(&dir).map_err(|errno| Error::disk("read directory", path, errno))?;
        for entry in entries {
            if FileKind::from_mode(entry.kind.as_raw_mode()) == FileKind::Char
                && is_whiteout(&dir, &entry.name, path)?
            {
                names.push(entry.name);
            }
        }
        let opaque = self.trees[tree].owners.is_opaque(path)
            || sys::fs::whiteout::is_opaque(&dir)
                .map_err(|errno| Error::disk("stat", path, errno))?;
        Ok((names, opaque))
    }

    /// The true attributes of one file of one tree. `fd` is the file, open for reading, if it is a
    /// regular file or a directory.
    pub(crate) fn facts(
        &self,
        tree: usize,
        path: &[u8],
        stat: &Stat,
        fd: Option<&OwnedFd>,
    ) -> Result<Facts, Error> {
        let source = &self.trees[tree];
        let mut xattrs = BTreeMap::new();
        let mut on_inode = None;
        if let Some(fd) = fd {
            let fail = |errno| Error::disk("read an attribute of", path, errno);
            for name in sys::fs::xattr::list(fd).map_err(fail)? {
                let live = source.role == Role::Live;
                let owner = name == OWNER_XATTR && live;
                let hidden = name.strip_prefix(HIDDEN).filter(|_| live);
                if !owner && hidden.is_none() && !is_plain_xattr(&name) {
                    continue;
                }
                let Some(value) = sys::fs::xattr::get(fd, &name).map_err(fail)? else { continue };
                if owner {
                    on_inode = Record::from_xattr(&value);
                } else {
                    xattrs.insert(hidden.map_or(&name[..], |name| name).to_vec(), value);
                }
            }
        }
        // A record of a link, pipe or socket does not count if the path is of another kind now.
        let fits = |record: &&Record| {
            let by_path =
                matches!(record.kind, FileKind::Symlink | FileKind::Fifo | FileKind::Socket);
            // A file that has a record for its mode only may have got another mode since.
            source.role == Role::Layer
                || !(is_mode_only(record)
                    || by_path && record.kind != FileKind::from_mode(stat.st_mode))
        };
        let table = source.owners.get(&self.path_in(tree, path)).filter(fits).cloned();
        let shared = || self.redirects.record(stat).filter(|_| source.role == Role::Live).cloned();
        let mut record = on_inode.or_else(shared).or(table).unwrap_or_else(|| {
            let (uid, gid) = match source.role {
                Role::Layer => (0, 0),
                Role::Live => (
                    IdMap::inside(&self.ids.users, stat.st_uid),
                    IdMap::inside(&self.ids.groups, stat.st_gid),
                ),
            };
            let device = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
            let kind = FileKind::from_mode(stat.st_mode);
            Record { kind, mode: stat.st_mode & 0o7777, uid, gid, device, xattrs: BTreeMap::new() }
        });
        for (name, value) in xattrs {
            record.xattrs.entry(name).or_insert(value);
        }
        if source.role == Role::Live {
            record.update_access_list();
        }
        let is_file = record.kind == FileKind::File;
        Ok(Facts {
            size: if is_file { stat.st_size as u64 } else { 0 },
            mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
            inode: (stat.st_nlink > 1 && record.kind != FileKind::Directory)
                .then_some((stat.st_dev, stat.st_ino)),
            record,
        })
    }

    /// Reads a name in an open directory of one tree: its attributes, and an open descriptor if it
    /// is readable.
    pub(crate) fn open(
        &self,
        tree: usize,
        dir: &OwnedFd,
        path: &[u8],
        name: &[u8],
    ) -> Result<(Facts, Option<OwnedFd>), Error> {
        let fail = |step, errno| Error::disk(step, path, errno);
        let stat = sys::fs::stat(dir, name).map_err(|errno| fail("stat", errno))?;
        let flags = match FileKind::from_mode(stat.st_mode) {
            FileKind::File => Some(OFlags::empty()),
            FileKind::Directory => Some(OFlags::DIRECTORY),
            _ => None,
        };
        let fd = flags
            .map(|flags| sys::fs::open_read(dir, name, flags))
            .transpose()
            .map_err(|errno| fail("open", errno))?;
        // Attributes and content come from the same inode, even if the name is replaced meanwhile.
        let stat = match &fd {
            Some(fd) => rustix::fs::fstat(fd).map_err(|errno| fail("stat", errno))?,
            None => stat,
        };
        Ok((self.facts(tree, path, &stat, fd.as_ref())?, fd))
    }

    /// The attributes of a tree's top directory.
    pub(crate) fn root_facts(&self, tree: usize) -> Result<Facts, Error> {
        let fd = self.open_dir(tree, b"")?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| Error::disk("stat", b".", errno))?;
        self.facts(tree, b"", &stat, Some(&fd))
    }
}

fn is_whiteout(dir: &OwnedFd, name: &[u8], path: &[u8]) -> Result<bool, Error> {
    let stat =
        sys::fs::stat(dir, name).map_err(|errno| Error::disk("stat", &join(path, name), errno))?;
    Ok(sys::fs::whiteout::is(&stat))
}

fn hide(names: &mut BTreeMap<Vec<u8>, Merged>, name: Vec<u8>, tree: usize) {
    let whiteout =
        Merged { kind: FileKind::Char, tree, trees: Vec::new(), open: false, hidden: true };
    names.entry(name).and_modify(|merged| merged.open = false).or_insert(whiteout);
}

/// Walks a merged tree depth first, names in byte order, without recursion. `visit` is called with
/// the path of everything but the root, parents before children; a directory is entered if it
/// returns `true`.
pub(crate) fn walk(
    stack: &Stack,
    mut visit: impl FnMut(&[u8], &Merged) -> Result<bool, Error>,
) -> Result<(), Error> {
    if stack.trees.is_empty() {
        return Ok(());
    }
    let top = stack.list(b"", &stack.all())?;
    walk_from(Vec::new(), top, stack, &mut visit)
}

/// As [`walk`], from a directory whose content is already known.
pub(crate) fn walk_from(
    path: Vec<u8>,
    names: BTreeMap<Vec<u8>, Merged>,
    stack: &Stack,
    visit: &mut impl FnMut(&[u8], &Merged) -> Result<bool, Error>,
) -> Result<(), Error> {
    let mut pending = vec![(path, names)];
    while let Some((path, names)) = pending.last_mut() {
        let Some((name, merged)) = names.pop_first() else {
            pending.pop();
            continue;
        };
        let full = join(path, &name);
        if visit(&full, &merged)? && merged.kind == FileKind::Directory {
            let below = stack.list(&full, &merged.trees)?;
            pending.push((full, below));
        }
    }
    Ok(())
}
