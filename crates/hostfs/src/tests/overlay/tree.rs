//! What a container sees: the whole tree, as the view lists it.

use super::super::fake::Process;
use super::super::layered::{Layered, UPPER};
use super::super::machine::{Kind, Machine};
use super::process;
use crate::Files;
use crate::kernel::Kernel;
use crate::overlay::{base_of, real_path};
use abi::layout::stat::EMPTY_STATX;
use linux_raw_sys::general::{AT_SYMLINK_NOFOLLOW, O_NOFOLLOW, O_PATH};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::format;
use std::string::{String, ToString};
use std::sync::{Arc, Mutex};
use std::vec::Vec;
use view::guest::Purpose;
use view::{Dir, Errno, Text};

/// A file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    kind: Kind,
    mode: u32,
    group: u32,
    /// In which operation it was modified.
    pub(super) modified: i64,
    attributes: BTreeMap<String, Vec<u8>>,
}

impl Node {
    pub(super) fn is_directory(&self) -> bool {
        matches!(self.kind, Kind::Directory(_))
    }
}

pub(super) type Tree = BTreeMap<String, Node>;

/// The tree of a container. `layers`: `None` is one that has one layer.
pub(super) fn tree(machine: &Arc<Mutex<Machine>>, layers: Option<&Arc<Layered>>) -> Tree {
    let files = Files { process: process(machine, layers) };
    let mut tree = Tree::new();
    let mut pending = Vec::from([UPPER.to_string()]);
    while let Some(path) = pending.pop() {
        let node = node(&files, &path);
        if node.is_directory() {
            let names = names(&files, &path);
            let count = names.len();
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), count, "{path}: {names:?}");
            pending.extend(names.iter().map(|name| format!("{path}/{name}")));
        }
        tree.insert(path, node);
    }
    assert_eq!(files.process.end(), 0);
    tree
}

pub(super) fn c_string(path: &str) -> CString {
    CString::new(path).unwrap()
}

/// The names in a directory.
fn names(files: &Files<Process>, path: &str) -> Vec<String> {
    let (c_path, process) = (c_string(path), &files.process);
    let list = |path: &str| process.machine().list(path);
    let Some(base) = base_of(process, &c_path) else {
        let mut real = Text::EMPTY;
        assert_eq!(real_path(process, &c_path, Purpose::Use, &mut real), Ok(false));
        return list(&String::from_utf8_lossy(real.as_bytes()));
    };
    let layers = process.layers.as_ref().unwrap().layers();
    let (index, changes) = (layers.image.index, layers.image.changes);
    let mut names = Vec::new();
    for child in index.children(&index.entry(base).unwrap()) {
        let name = String::from_utf8_lossy(index.name(&index.entry(child).unwrap())).into_owned();
        let status = status(files, &format!("{path}/{name}"));
        assert!(status.is_ok() || changes.is_covered(child), "{path}/{name}");
        if status.is_ok() {
            names.push(name);
        }
    }
    // A whiteout may be at a name that the image does not have.
    let is_new = |name: &String| {
        index.child(base, name.as_bytes()).is_none()
            && status(files, &format!("{path}/{name}")).is_ok()
    };
    names.extend(list(path).into_iter().filter(is_new));
    names
}

fn status(files: &Files<Process>, path: &str) -> Result<u64, Errno> {
    let mut status = EMPTY_STATX;
    files.statx(Dir::Root, &c_string(path), AT_SYMLINK_NOFOLLOW, &mut status)?;
    Ok(status.stx_ino)
}

fn node(files: &Files<Process>, path: &str) -> Node {
    let number = status(files, path).unwrap_or_else(|errno| panic!("{path}: {errno:?}"));
    let (c_path, process) = (c_string(path), &files.process);
    let flags = O_PATH | O_NOFOLLOW;
    let file = files.open(Dir::Root, &c_path, flags, 0, 0).unwrap();
    assert_eq!(process.files.borrow()[&file.0].0, number, "{path}");
    let mut name = Text::EMPTY;
    files.path_of(Dir::Held(file), &mut name).unwrap();
    let name = String::from_utf8_lossy(name.as_bytes());
    assert!(name == path, "an open file is {name} instead of {path}");
    process.close(file);
    let machine = process.machine();
    let inode = machine.inode(number);
    let kind = match &inode.kind {
        Kind::Directory(_) => Kind::Directory(BTreeMap::new()),
        other => other.clone(),
    };
    let is_guests =
        |name: &String| !name.starts_with("user.coracle.") && !name.starts_with("user.overlay.");
    let all = inode.attributes.iter().filter(|(name, _)| is_guests(name));
    Node {
        kind,
        mode: inode.mode & 0o777,
        group: inode.group,
        modified: inode.times[1] / 1000,
        attributes: all.map(|(name, value)| (name.clone(), value.clone())).collect(),
    }
}
