//! Makes the container's tree: mounts its root, makes that `/`, and mounts what belongs in it.
//!
//! Three phases, because no path may ever be resolved half on the host and half in the container:
//! 1. [`open_sources`] copies every host file and directory that will be mounted into detached
//!    mount trees (host paths);
//! 2. [`enter_root`] mounts the root over the container's own directory and pivots into it;
//! 3. [`mount_all`] attaches the copies and makes the rest (container paths, resolved by
//!    [`inside`]), then [`leave_host`] unmounts the host's tree.
//!
//! The old root stays stacked over the new one until the end (a fresh `/proc` needs one that is
//! visible): absolute paths begin below it, and `.` still leads to it. So would `..` from any
//! directory of the new root, because a step up to `/` arrives on what is mounted there. Symbolic
//! links of an image may hold `..`; therefore no path with one is left to the kernel.
//!
//! Kernels before 5.2 cannot copy mount trees; there a source is kept as an `O_PATH` descriptor and
//! bound in phase 3 through the working directory (directories) or `/proc/self/fd` (files; `/proc`
//! is always first in a plan).

mod mounts;
mod overlay;
mod points;
mod sources;

pub(in crate::engines) use overlay::mount_overlay;
pub(super) use points::make_directories;
pub(in crate::engines) use points::{make_missing, make_working_directory};
pub(in crate::engines) use sources::of_process;
pub(super) use sources::open_sources;

use crate::error::{Error, Result};
use crate::plan::{Mount, Plan, Root};
use mounts::{bind, bind_from_host, kernel, make_read_only, mask, read_only_root};
use points::{inside, link, make_point};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags as Legacy, UnmountFlags};
use sources::{Opened, Sources};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Phase 2: after this `/` is the container, and the host's tree is stacked at `.`.
pub(super) fn enter_root(plan: &Plan) -> Result<()> {
    let place = match &plan.root {
        Root::Overlay { lowers, upper, work, volatile } => {
            mount_overlay(&plan.place, lowers, upper, work, *volatile)?;
            &plan.place
        }
        Root::Directory { path } => {
            // What is mounted on `/` itself no path leads to.
            let place = if path == Path::new("/") { &plan.place } else { path };
            let failed = |errno: Errno| Error::Mount {
                what: "the root tree".into(),
                target: place.clone(),
                errno: errno.into(),
            };
            let flags = Legacy::BIND | Legacy::REC;
            rustix::mount::mount(path, place, c"", flags, None).map_err(failed)?;
            place
        }
    };
    let failed = |call: &str| {
        let (root, call) = (place.clone(), call.to_owned());
        move |errno: Errno| Error::Root { root, call, errno: errno.into() }
    };
    rustix::process::chdir(place).map_err(failed("chdir"))?;
    rustix::process::pivot_root(".", ".").map_err(failed("pivot_root"))
}

/// Mounts a root and opens its top, for copying into a container that does not run.
///
/// The caller is root of a user namespace with a mount namespace of its own, which takes the mount
/// along when it ends.
pub fn mounted(root: &Root, place: &Path) -> Result<std::os::fd::OwnedFd> {
    let top = match root {
        Root::Overlay { lowers, upper, work, volatile } => {
            mount_overlay(place, lowers, upper, work, *volatile)?;
            place
        }
        Root::Directory { path } => path,
    };
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open(top, flags, Mode::empty()).map_err(|errno| Error::File {
        doing: "open".into(),
        path: top.into(),
        errno: errno.into(),
    })
}

/// Phase 3: everything that is mounted inside.
pub(super) fn mount_all(plan: &Plan, sources: &Sources) -> Result<()> {
    let make_points = matches!(plan.root, Root::Overlay { .. });
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| Error::MountPoint { target: "/".into(), errno: errno.into() })?;
    let world = World { plan, sources, root, make_points };
    for (n, (mount, source)) in plan.mounts.iter().zip(&sources.opened).enumerate() {
        world.mount(mount, source, n == 0)?;
    }
    Ok(())
}

/// What the mounts of a plan are made with.
struct World<'a> {
    plan: &'a Plan,
    sources: &'a Sources,
    /// The container's root.
    root: OwnedFd,
    /// Missing places are made, also for optional mounts.
    make_points: bool,
}

impl World<'_> {
    /// Makes one mount; `first` is that of `/proc`.
    fn mount(&self, mount: &Mount, source: &Opened, first: bool) -> Result<()> {
        let root = &self.root;
        match mount {
            Mount::Bind { source: path, target, flags, optional } => {
                let make = self.make_points || !*optional;
                let bound = self
                    .place(target, make, first)
                    .and_then(|place| bind(source, &place, *flags, make));
                match bound {
                    Err(Error::MountPoint { .. }) if *optional => Ok(()),
                    Err(Error::Mount { errno, .. }) => {
                        let what = path.display().to_string();
                        Err(Error::Mount { what, target: target.clone(), errno })
                    }
                    result => result,
                }
            }
            Mount::Tmpfs { target, flags, options } => {
                kernel("tmpfs", &self.place(target, true, first)?, *flags, options)
            }
            Mount::Shared { path, .. } => {
                let flags = crate::plan::MountFlags::default();
                bind(source, &self.place(path, true, first)?, flags, true)
            }
            Mount::Kernel { kind, target, flags, options, or_bind } => {
                let place = self.place(target, true, first)?;
                match kernel(kind, &place, *flags, options) {
                    Err(Error::Mount { errno, .. })
                        if *or_bind && errno.0 == Errno::PERM.raw_os_error() =>
                    {
                        bind_from_host(self.sources.host.as_ref(), target, &place, *flags)
                    }
                    // The host's `/dev` may have no place for it, and message queues work without.
                    Err(Error::MountPoint { .. }) if kind == "mqueue" => Ok(()),
                    result => result,
                }
            }
            Mount::Symlink { path, to } => link(root, path, to),
            // What the image does not have needs no cover.
            Mount::Mask { path } => {
                let null = self.sources.null.as_ref();
                inside(root, path, false).map_or(Ok(()), |place| mask(null, &place))
            }
            Mount::ReadOnly { path } => {
                inside(root, path, false).map_or(Ok(()), |place| make_read_only(&place))
            }
            Mount::ReadOnlyRoot => {
                self.working_directory();
                read_only_root()
            }
        }
    }

    /// Makes the program's working directory while its file system can be written to. What prevents
    /// it is the error of who enters it.
    fn working_directory(&self) {
        let process = &self.plan.process;
        if process.create_cwd && process.cwd != Path::new("/") {
            let place = inside(&self.root, &process.cwd, true);
            let _ = place.and_then(|place| make_point(&place, true));
        }
    }

    /// The place of a mount.
    fn place(&self, target: &Path, make: bool, first: bool) -> Result<PathBuf> {
        inside(&self.root, target, make).and_then(|place| own(self.plan, first, target, place))
    }
}

/// The place of a mount, where it is one that the mount may have: the `/proc` of a boundary, which
/// is the first of a plan's, stands where every program looks for it, and no link leads a mount
/// over or into it. The masks of its parts, and Coracle itself, rely on that.
fn own(plan: &Plan, first: bool, target: &Path, place: PathBuf) -> Result<PathBuf> {
    let proc = Path::new("/proc");
    let fits = if first { place == proc } else { !place.starts_with(proc) };
    if fits || !plan.isolate {
        return Ok(place);
    }
    Err(Error::Invalid {
        what: "mount".into(),
        value: target.display().to_string(),
        why: "with --isolate /proc is the kernel's, and nothing can be mounted in it or over it"
            .into(),
    })
}

/// Unmounts the host's tree, which is stacked at `.`.
pub(super) fn leave_host() -> Result<()> {
    rustix::mount::unmount(".", UnmountFlags::DETACH).map_err(|errno| Error::Root {
        root: "/".into(),
        call: "umount2".into(),
        errno: errno.into(),
    })
}
