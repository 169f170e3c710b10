//! What an engine is to the rest: its data, and the ways to start a program with it.

use crate::error::Result;
use crate::exit::Ended;
use crate::facts::Facts;
use crate::launch::streams::{Child, Streams};
use crate::plan::Plan;

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
    /// Private pid, ipc, uts and cgroup namespaces, host names.
    pub namespaces: bool,
    /// A network of its own.
    pub network: bool,
    /// Capability sets and system call filters of the user's choice.
    pub security: bool,
    /// A read-only root, read-only binds.
    pub read_only: bool,
    /// `exec` into the same namespaces.
    pub enter: bool,
    /// Limits on memory, processors and processes.
    pub limits: bool,
    /// Ids are the engine's own affair: any user and any group, whatever the kernel would map. Its root is one directory, since nothing
    /// is mounted.
    pub own_ids: bool,
    /// Its programs write to that directory by themselves, so no file in it may be the image's; and they are the caller.
    pub bare: bool,
    /// It keeps what it makes of an image's files beside the image's tree.
    pub keeps_texts: bool,
}

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
    /// Its mode name.
    fn name(&self) -> &'static str;
    /// One line for people.
    fn about(&self) -> &'static str;
    /// What it can do.
    fn caps(&self) -> Caps;
    /// Whether it works here.
    fn probe(&self, facts: &Facts) -> Fit;
    /// Whether it runs only where its mode is asked for.
    fn is_asked_for(&self, facts: &Facts) -> bool {
        let _ = facts;
        false
    }
    /// Whether it works inside the guest's processes.
    fn is_inside(&self) -> bool {
        false
    }
    /// Starts the plan's program as a child. Returns when the program was executed, or with the step that failed.
    ///
    /// The caller must have one thread.
    fn spawn(&self, plan: &Plan, streams: Streams<'_>) -> Result<Child>;
    /// Starts the plan's program among the processes of a running container, as a child. Without namespaces there is nothing to enter:
    /// it is another program in the same world.
    fn enter(&self, pid: u32, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
        let _ = pid;
        self.spawn(plan, streams)
    }
    /// Turns the calling process into the plan's program. Where the program needs a parent (a pid namespace of its own), the calling
    /// process stays as that parent, passes signals on, and this returns how the program ended.
    ///
    /// On an error the calling process may be anywhere (other namespaces, another root): it can print the error and exit, nothing else.
    fn become_guest(&self, plan: &Plan) -> Result<Ended>;
    /// As [`Engine::become_guest`], among the processes of a running container.
    fn become_resident(&self, pid: u32, plan: &Plan) -> Result<Ended> {
        let _ = pid;
        self.become_guest(plan)
    }
}
