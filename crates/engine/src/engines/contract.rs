//! The interface of engines: their properties as data, and the ways to start a program.

use crate::error::Result;
use crate::exit::Ended;
use crate::facts::Facts;
use crate::launch::streams::{Child, Streams};
use crate::plan::Plan;
use std::path::Path;

/// An engine as data: what the rest of the program needs to know of it.
#[derive(Debug, Clone, Copy)]
pub struct Properties {
    /// The name of its mode (`--execmode`).
    pub name: &'static str,
    /// Other names of the mode, each with one line about it.
    pub aliases: &'static [(&'static str, &'static str)],
    /// One line about it, for `doctor`.
    pub about: &'static str,
    /// When it is taken.
    pub asked: Asked,
    /// What it makes the container's root of.
    pub root: RootKind,
    /// What decides about user and group ids.
    pub ids: IdsFrom,
    /// What handles the system calls of its programs.
    pub calls: CallsBy,
    /// Where it keeps the files that it makes of an image's.
    pub made: MadeFiles,
    /// The program of the host that it needs.
    pub helper: Option<Helper>,
    /// What it can do beyond running a program in another tree.
    pub caps: Caps,
}

/// When an engine is taken.
#[derive(Debug, Clone, Copy)]
pub enum Asked {
    /// Where no mode is asked for, and no engine before it works.
    Unasked,
    /// As [`Asked::Unasked`] where this holds; elsewhere only by its name.
    Where(fn(&Facts) -> bool),
    /// Only by its name.
    ByName,
}

/// What an engine makes a container's root of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootKind {
    /// Mounts: an overlay of layers, or a directory beneath other mounts.
    Mounts,
    /// A directory whose files may be hard links to the image's: a write replaces such a file by a
    /// copy first.
    LinkedTree,
    /// A directory that programs write to directly, so no file in it may be the image's.
    OwnTree,
}

impl RootKind {
    /// Whether it is one directory of the host, without mounts.
    #[must_use]
    pub const fn is_tree(self) -> bool {
        matches!(self, Self::LinkedTree | Self::OwnTree)
    }
}

/// What decides about the user and group ids of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdsFrom {
    /// The kernel, by the map of the container's user namespace.
    Map,
    /// The engine: any id, whatever the kernel would map.
    Engine,
    /// The caller: programs have his ids, and no others can be had.
    Caller,
}

/// What handles the system calls of an engine's programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallsBy {
    /// The kernel alone.
    Kernel,
    /// A tracer beside the programs.
    Tracer,
    /// A backend in each process.
    Process,
}

/// Where an engine keeps the files that it makes of an image's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeFiles {
    /// It makes none.
    None,
    /// Beside the image's tree, for all of the image's containers.
    BesideImage,
}

/// A program of the host that an engine needs.
#[derive(Debug, Clone, Copy)]
pub struct Helper {
    /// Under this name [`host::Programs`] knows the one that the user's settings name, and a plan
    /// the one that was found.
    pub key: &'static str,
    /// Names that are looked for in `PATH` otherwise, best first.
    pub names: &'static [&'static str],
    /// The one of them that leaves the caller's groups to a program, where only one does.
    pub keeping: Option<&'static str>,
    /// Whether it works with privileges that its administrator gave it.
    pub is_privileged: fn(&Path) -> bool,
}

/// What an engine can do beyond running a program in another tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "a table of independent abilities")]
pub struct Caps {
    /// Root's own calls succeed for a user without privilege.
    pub fake_root: bool,
    /// Host files under other names (`-v`).
    pub binds: bool,
    /// Binds that the host's later mounts do not reach (`private`).
    pub private_binds: bool,
    /// Memory file systems.
    pub tmpfs: bool,
    /// Private pid, ipc, uts and cgroup namespaces.
    pub namespaces: bool,
    /// A host name of its own.
    pub host_name: bool,
    /// A network of its own.
    pub network: bool,
    /// Networks with names.
    pub named_networks: bool,
    /// Capability sets and system call filters of the user's choice.
    pub security: bool,
    /// A read-only root, read-only binds.
    pub read_only: bool,
    /// `exec` into the same namespaces.
    pub enter: bool,
    /// Limits on memory, processors and processes.
    pub limits: bool,
}

/// Called when the program runs, in a process that stays beside it: what is held for the start
/// alone is given back there.
pub type Begun<'a> = &'a mut dyn FnMut();

/// How well an engine fits a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// Everything works.
    Ready,
    /// It works, with something less.
    Degraded(String),
    /// It does not work.
    Unusable(String),
}

/// One way of running a program in another tree.
pub trait Engine: Sync {
    /// What it is.
    fn properties(&self) -> &'static Properties;
    /// Whether it works here.
    fn probe(&self, facts: &Facts) -> Fit;
    /// The name of its mode.
    fn name(&self) -> &'static str {
        self.properties().name
    }
    /// What it makes a container's root of.
    fn root(&self) -> RootKind {
        self.properties().root
    }
    /// What it can do.
    fn caps(&self) -> Caps {
        self.properties().caps
    }
    /// Whether it is taken here only where its mode is asked for.
    fn is_only_by_name(&self, facts: &Facts) -> bool {
        match self.properties().asked {
            Asked::Unasked => false,
            Asked::Where(holds) => !holds(facts),
            Asked::ByName => true,
        }
    }
    /// Starts the plan's program as a child. Returns when the program was executed, or with the
    /// step that failed.
    ///
    /// The caller must have one thread.
    fn spawn(&self, plan: &Plan, streams: Streams<'_>) -> Result<Child>;
    /// Starts the plan's program among the processes of a running container, as a child. Without
    /// namespaces it enters none: it is another program in the same world.
    fn enter(&self, pid: u32, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
        let _ = pid;
        self.spawn(plan, streams)
    }
    /// Turns the calling process into the plan's program. Where the program needs a parent (a pid
    /// namespace of its own), the calling process stays as that parent, passes signals on, and this
    /// returns how the program ended. It calls `begun` when the program runs; a process that
    /// becomes the program does not, and what it holds goes with `execve`.
    ///
    /// On an error the calling process may be in other namespaces, with another root: it can print
    /// the error and exit, and do nothing else.
    fn become_guest(&self, plan: &Plan, begun: Begun<'_>) -> Result<Ended>;
    /// As [`Engine::become_guest`], among the processes of a running container.
    fn become_resident(&self, pid: u32, plan: &Plan) -> Result<Ended> {
        let _ = pid;
        self.become_guest(plan, &mut || {})
    }
}
