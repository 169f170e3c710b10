//! Entering the namespaces of a running container.

use crate::error::{Error, Result};
use crate::spec::MountSpec;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use sys::namespace::{self, Kinds};

/// A pid namespace that is still to be entered, for the next child.
#[derive(Debug)]
pub(in crate::engines) struct Later {
    pid: u32,
    file: OwnedFd,
}

impl Later {
    /// That of a process.
    pub(in crate::engines) fn of(pid: u32) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open(format!("/proc/{pid}/ns/pid"), flags, Mode::empty());
        file.map(|file| Self { pid, file }).map_err(|errno| Error::Enter {
            which: "pid".into(),
            pid,
            errno: errno.into(),
        })
    }

    /// Enters it.
    pub(in crate::engines) fn enter(&self) -> Result<()> {
        rustix::thread::move_into_link_name_space(self.file.as_fd(), None).map_err(|errno| {
            Error::Enter { which: "pid".into(), pid: self.pid, errno: errno.into() }
        })
    }
}

/// Whether a process still has namespaces to enter: a zombie has none.
pub(in crate::engines) fn has_namespaces(pid: u32) -> bool {
    namespace::different(pid).is_ok()
}

/// Whether a process sees the same at a mount's place as the mount would show there. Memory file systems are never the same.
pub(super) fn has_mount(pid: u32, mount: &MountSpec) -> bool {
    let inside = Path::new("/proc").join(pid.to_string()).join("root");
    let inside = inside.join(mount.target.strip_prefix("/").unwrap_or(&mount.target));
    let same = |(outside, inside): (rustix::fs::Stat, rustix::fs::Stat)| {
        (outside.st_dev, outside.st_ino) == (inside.st_dev, inside.st_ino)
    };
    let found = rustix::fs::stat(&mount.source).and_then(|outside| {
        let read_only = rustix::fs::statvfs(&inside)?.f_flag.contains(StatVfsMountFlags::RDONLY);
        Ok(read_only == mount.read_only && same((outside, rustix::fs::stat(&inside)?)))
    });
    found.unwrap_or(false)
}

/// Enters every namespace in which a process differs from us except the pid namespace, and its control group.
pub(in crate::engines) fn enter(pid: u32) -> Result<Option<Later>> {
    let failed = |errno: Errno| Error::Enter { which: "unknown".into(), pid, errno: errno.into() };
    let kinds = namespace::different(pid).map_err(failed)?;
    super::cgroup::follow(pid);
    let later = kinds.has(Kinds::PID).then(|| Later::of(pid)).transpose()?;
    self::kinds(pid, kinds.without(Kinds::PID))?;
    Ok(later)
}

/// Enters these namespaces of a process.
pub(in crate::engines) fn kinds(pid: u32, kinds: Kinds) -> Result<()> {
    if kinds.is_empty() {
        return Ok(());
    }
    let pidfd = Pid::from_raw(pid as i32)
        .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
    namespace::enter(pid, pidfd.as_ref(), kinds).map_err(|errno| Error::Enter {
        which: kinds.names(),
        pid,
        errno: errno.into(),
    })
}
