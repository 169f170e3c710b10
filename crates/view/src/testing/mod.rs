//! A backend in memory, for the unit tests of this crate: a small host with a file tree,
//! descriptors, a working directory and some guest memory.
//!
//! Its own path walk follows `path_resolution(7)`, so rules can be tested down to the error number
//! without a kernel. Every call of the host is counted ([`Fake::calls`]).
//!
//! ```ignore
//! let mut fake = Fake::new();
//! fake.dir("/c/usr/bin").file("/c/usr/bin/sh", "").link("/c/bin", "usr/bin");
//! let table = [binding("/", "/c", Kind::Tree)];
//! let mut bench = Bench::new(fake, &table);
//! bench.context(|context| …);
//! ```

#![expect(clippy::missing_panics_doc, reason = "tests want panics")]

mod host;
mod memory;
pub mod tree;

use crate::buffers::CallBuffers;
use crate::guest::{HostFd, Sockets};
use crate::identity::Credentials;
use crate::task::Task;
use crate::text::Text;
use crate::world::{Binding, Kind, World};
use crate::{CallContext, Errno};
use abi::shared::changes::Changes;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::string::String;
use std::vec::Vec;
use tree::{Body, Id, Name, Tree};

/// An open file of the view or of the guest.
#[derive(Debug, Clone)]
pub struct Open {
    /// Its inode.
    pub node: Id,
    /// The name that it was opened by.
    pub name: Option<Name>,
    /// `O_*`.
    pub flags: u32,
}

/// The fake backend. All members are public, so that a test can set up any state.
#[derive(Debug, Clone)]
pub struct Fake {
    /// Files of the host.
    pub tree: Tree,
    /// The guest's working directory.
    pub cwd: Open,
    /// The guest's descriptors.
    pub guest: BTreeMap<i32, Open>,
    /// Descriptors that the view holds. After a call none may be left, except those that the call
    /// has handed over.
    pub held: BTreeMap<i32, Open>,
    /// Names of the host calls made, oldest first.
    pub log: Vec<&'static str>,
    /// Set if `openat2` exists.
    pub openat2: bool,
    /// Guest memory: pieces by address.
    pub memory: BTreeMap<u64, Vec<u8>>,
    /// The next scratch address.
    pub scratch: u64,
    /// Inodes that are shared with the image, with the number of their links inside it.
    pub image: BTreeMap<u64, u32>,
    /// The image is another mount: its files get no other names.
    pub image_apart: bool,
    /// Files that were copied up.
    pub copied: Vec<String>,
    /// What other threads do while this one pauses, last first. Without it nothing is waited for.
    pub others: Vec<fn(&mut Self)>,
    /// What other threads do after this one has asked for the name of a file, last first.
    pub others_at_name: Vec<fn(&mut Self)>,
    /// What the container has changed of an image with an index.
    pub changes: Option<Changes<'static>>,
    /// Directories that are merged with those of the image, and their records.
    pub bases: BTreeMap<Id, u32>,
    /// Positions of the guest's directories.
    pub positions: BTreeMap<i32, u64>,
    /// The log of ownership records.
    pub notes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// `getpid`, `gettid`.
    pub ids: (u32, u32),
    /// Programs of the container's processes.
    pub programs: BTreeMap<u32, String>,
    /// Inodes that processes of the container execute.
    pub executed: Vec<u64>,
    /// Other threads of the container.
    pub tasks: BTreeMap<u32, Task>,
    /// Signals sent to all processes.
    pub signalled: Vec<u32>,
    /// The host name, once it has been set.
    pub host_name: Option<Vec<u8>>,
    /// Set if the backend remembers directories and the working directory.
    pub remembers: bool,
    /// The guest's descriptor of the tree, which the guest may have closed.
    pub tree_descriptor: Option<i32>,
    /// Generation of the cache: the number of changes.
    pub generation: u64,
    /// The cache of directories, with the generation of each entry.
    pub plain: BTreeMap<(Vec<u8>, bool), u64>,
    /// The cache of paths as the guest gives them, with the generation of each entry. Relative ones
    /// include the working directory's inode.
    pub straight: BTreeMap<(Option<tree::Id>, Vec<u8>, u8), u64>,
}

/// No test's world has [`crate::World::network`].
impl Sockets for Fake {}

impl Default for Fake {
    fn default() -> Self {
        Self::new()
    }
}

impl Fake {
    /// Process 42, with an empty `/`.
    pub fn new() -> Self {
        Self {
            tree: Tree::new(),
            cwd: Open { node: tree::ROOT, name: None, flags: 0 },
            guest: BTreeMap::new(),
            held: BTreeMap::new(),
            log: Vec::new(),
            openat2: true,
            memory: BTreeMap::new(),
            scratch: 0x10_0000,
            image: BTreeMap::new(),
            image_apart: false,
            copied: Vec::new(),
            others: Vec::new(),
            others_at_name: Vec::new(),
            changes: None,
            bases: BTreeMap::new(),
            positions: BTreeMap::new(),
            notes: BTreeMap::new(),
            ids: (42, 42),
            programs: BTreeMap::new(),
            executed: Vec::new(),
            tasks: BTreeMap::new(),
            signalled: Vec::new(),
            host_name: None,
            remembers: false,
            tree_descriptor: None,
            generation: 0,
            plain: BTreeMap::new(),
            straight: BTreeMap::new(),
        }
    }

    /// Makes a directory (0755), with those above it.
    pub fn dir(&mut self, path: &str) -> &mut Self {
        self.tree.make_dirs(path);
        self
    }

    /// Makes a file (0644), with its directories.
    pub fn file(&mut self, path: &str, contents: &str) -> &mut Self {
        self.node(path, Body::File(contents.as_bytes().to_vec()), 0o644);
        self
    }

    /// Makes a symbolic link, with its directories.
    pub fn link(&mut self, path: &str, target: &str) -> &mut Self {
        self.node(path, Body::Link(target.as_bytes().to_vec()), 0o777);
        self
    }

    /// Makes a magic link to the file that is at `target` on the host now.
    pub fn magic(&mut self, path: &str, target: &str) -> &mut Self {
        let target = self.at(target);
        self.node(path, Body::Magic(target), 0o777);
        self
    }

    /// Makes any inode, with its directories.
    pub fn node(&mut self, path: &str, body: Body, mode: u32) -> Id {
        let (parent, name) = path.rsplit_once('/').expect("an absolute path");
        let parent = self.tree.make_dirs(parent);
        self.tree.insert(parent, name.as_bytes(), body, mode)
    }

    /// The inode at a host path, without following a link at the end; panics if there is none.
    pub fn at(&self, path: &str) -> Id {
        self.tree.get(path).unwrap_or_else(|| panic!("no {path}"))
    }

    /// Sets permission bits.
    pub fn mode(&mut self, path: &str, mode: u32) -> &mut Self {
        let id = self.at(path);
        self.tree.nodes[id].mode = mode;
        self
    }

    /// `chdir` of the guest, to a host path.
    pub fn chdir(&mut self, host: &str) -> &mut Self {
        self.cwd = self.opened(host);
        self
    }

    /// Gives the guest a descriptor of a host path.
    pub fn give(&mut self, fd: i32, host: &str) -> &mut Self {
        let open = self.opened(host);
        self.guest.insert(fd, open);
        self
    }

    /// An open file for a host path.
    pub fn opened(&self, host: &str) -> Open {
        let node = self.at(host);
        Open { node, name: self.tree.name_of(node, host.as_bytes()), flags: 0 }
    }

    /// Names of the host calls since the last time, without `close`; clears the list.
    pub fn calls(&mut self) -> Vec<&'static str> {
        core::mem::take(&mut self.log).into_iter().filter(|name| *name != "close").collect()
    }

    pub(super) fn hold(&mut self, open: Open) -> HostFd {
        let fd = (100..9999).find(|fd| !self.held.contains_key(fd)).expect("a free number");
        self.held.insert(fd, open);
        HostFd(fd)
    }
}

/// Makes a binding.
pub const fn binding<'a>(guest: &'a str, host: &'a str, kind: Kind) -> Binding<'a> {
    Binding { guest: guest.as_bytes(), host: host.as_bytes(), read_only: false, kind }
}

/// Makes a read-only binding.
pub const fn read_only<'a>(guest: &'a str, host: &'a str, kind: Kind) -> Binding<'a> {
    Binding { read_only: true, ..binding(guest, host, kind) }
}

/// Everything that a context needs: a fake backend, a world, a thread and buffers.
pub struct Bench<'w> {
    /// The backend.
    pub fake: Fake,
    /// The container; without identity until a test sets it.
    pub world: World<'w>,
    /// The thread: root `/`, umask 022.
    pub task: Task,
    /// Working memory.
    pub buffers: Box<CallBuffers>,
}

impl<'w> Bench<'w> {
    /// A bench with a table of bindings, which must be sorted by guest path.
    pub fn new(fake: Fake, bindings: &'w [Binding<'w>]) -> Self {
        assert!(bindings.is_sorted_by(|a, b| a.guest < b.guest), "sorted, without duplicates");
        Self {
            fake,
            world: World::new(bindings, None, &[]),
            task: task(),
            buffers: Box::new(CallBuffers::EMPTY),
        }
    }

    /// Calls `run` with a context.
    pub fn context<T>(&mut self, run: impl FnOnce(&mut CallContext<'_, Fake>) -> T) -> T {
        let mut context = CallContext {
            backend: &mut self.fake,
            world: &self.world,
            task: &mut self.task,
            buffers: &mut self.buffers,
        };
        run(&mut context)
    }
}

/// The first thread of a container.
pub fn task() -> Task {
    Task::new(Credentials::ROOT, 0o022)
}

/// Makes a `Text` from a string.
pub fn text(from: &str) -> Text {
    let mut text = Text::EMPTY;
    text.set(from.as_bytes()).expect("short enough");
    text
}

/// Makes a string from a `Text`.
pub fn string(from: &Text) -> String {
    String::from_utf8_lossy(from.as_bytes()).into_owned()
}

pub(crate) type Result<T> = core::result::Result<T, Errno>;
