//! Enters the namespaces of a running container.

use crate::error::{Error, Result};
use crate::launch::cgroup;
use crate::spec::MountSpec;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::process::DumpableBehavior;
use std::os::fd::OwnedFd;
use sys::namespace::{self, Held, Kinds};

/// A pid namespace that is still to be entered, for the next child.
#[derive(Debug)]
pub(in crate::engines) struct Later {
    pid: u32,
    held: Held,
}

impl Later {
    /// That of a process.
    pub(in crate::engines) fn of(pid: u32) -> Result<Self> {
        let held = Held::of(pid, Kinds::PID).map_err(failed(pid, "pid"))?;
        Ok(Self { pid, held })
    }

    /// Enters it.
    pub(in crate::engines) fn enter(&self) -> Result<()> {
        self.held.enter().map_err(failed(self.pid, "pid"))
    }
}

fn failed(pid: u32, which: impl Into<String>) -> impl FnOnce(Errno) -> Error {
    move |errno| Error::Enter { which: which.into(), pid, errno: errno.into() }
}

/// Whether a process still has namespaces to enter: a zombie has none.
pub(in crate::engines) fn has_namespaces(pid: u32) -> bool {
    namespace::different(pid).is_ok()
}

/// Whether a process sees the same at a mount's place as the mount would show there. Memory file
/// systems are never the same.
pub(super) fn has_mount(pid: u32, mount: &MountSpec) -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let target = mount.target.strip_prefix("/").unwrap_or(&mount.target);
    let inside = sys::life::root(pid)
        .and_then(|root| rustix::fs::openat(root, target, flags, Mode::empty()));
    let is_shown = |inside: OwnedFd| {
        let read_only = rustix::fs::fstatvfs(&inside)?.f_flag.contains(StatVfsMountFlags::RDONLY);
        let (outside, inside) = (rustix::fs::stat(&mount.source)?, rustix::fs::fstat(&inside)?);
        let same = (outside.st_dev, outside.st_ino) == (inside.st_dev, inside.st_ino);
        Ok(same && read_only == mount.read_only)
    };
    inside.and_then(is_shown).unwrap_or(false)
}

/// Enters every namespace in which a process differs from this one except the pid namespace, and
/// its control group.
pub(in crate::engines) fn enter(pid: u32) -> Result<Option<Later>> {
    let kinds = namespace::different(pid).map_err(failed(pid, "unknown"))?;
    cgroup::follow(pid);
    let later = kinds.has(Kinds::PID).then(|| Later::of(pid)).transpose()?;
    let held = Held::of(pid, kinds.without(Kinds::PID)).map_err(failed(pid, kinds.names()))?;
    // From here on this process is one of the container's. Those of them that may trace would take
    // what it has open (`pidfd_getfd(2)`) and read what it knows; `execve` makes the program an
    // ordinary process again. Not before all is open: a process that ends meanwhile is no error,
    // and the caller may have to make namespaces of its own, whose maps only a dumpable process can
    // write.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    held.enter().map_err(failed(pid, kinds.names()))?;
    Ok(later)
}

/// Enters these namespaces of a process.
pub(in crate::engines) fn kinds(pid: u32, kinds: Kinds) -> Result<()> {
    let held = Held::of(pid, kinds).map_err(failed(pid, kinds.names()))?;
    held.enter().map_err(failed(pid, kinds.names()))
}
