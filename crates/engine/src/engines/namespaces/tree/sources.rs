//! Opens what will be mounted, while the host's paths still lead to it.

use super::mounts::attributes;
use crate::error::{Error, Result};
use crate::plan::{Mount, Plan};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use sys::namespace::{Held, Kinds};

/// A source that was opened while the host was still visible.
#[derive(Debug)]
pub(super) enum Opened {
    /// A detached mount tree with its attributes set.
    Tree(OwnedFd),
    /// A plain descriptor, on kernels without mount trees.
    Path(OwnedFd),
    /// The host has no such file and the mount is optional, or the operation has no source.
    Nothing,
}

/// What was opened in phase 1.
#[derive(Debug)]
pub(in crate::engines::namespaces) struct Sources {
    /// One entry for each mount of the plan.
    pub(super) opened: Vec<Opened>,
    /// The host's root, where a mount may have to fall back to a file system of the host.
    pub(super) host: Option<OwnedFd>,
    /// The host's `/dev/null`, which hides files: what has that name in the container may be the
    /// image's.
    pub(super) null: Option<OwnedFd>,
}

/// Phase 1.
pub(in crate::engines::namespaces) fn open_sources(plan: &Plan) -> Result<Sources> {
    let opened = plan.mounts.iter().map(open_source).collect::<Result<_>>()?;
    let wanted =
        plan.mounts.iter().any(|mount| matches!(mount, Mount::Kernel { or_bind: true, .. }));
    let host = if wanted {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open("/", flags, Mode::empty()).ok()
    } else {
        None
    };
    let hides = plan.mounts.iter().any(|mount| matches!(mount, Mount::Mask { .. }));
    let null = hides.then(|| {
        let failed = |errno: Errno| Error::File {
            doing: "open".into(),
            path: "/dev/null".into(),
            errno: errno.into(),
        };
        rustix::fs::open("/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(failed)
    });
    Ok(Sources { opened, host, null: null.transpose()? })
}

/// Copies what a process has at a path. Only in its mount namespace can that be copied, so this
/// process enters it for the moment. It is in the user namespace that owns it.
pub(in crate::engines) fn of_process(pid: u32, path: &Path) -> Result<OwnedFd> {
    let copied = || -> Result<OwnedFd, Errno> {
        let open = |path: &str, flags: OFlags| {
            rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
        };
        // By `/proc/self`: it is the host's, and this process may have another number inside.
        let own = open("/proc/self/ns/mnt", OFlags::RDONLY)?;
        let (root, cwd) = (open("/", OFlags::PATH)?, open(".", OFlags::PATH)?);
        let theirs = Held::of(pid, Kinds::MOUNT)?;
        let top = sys::life::root(pid)?;
        theirs.enter()?;
        let tree = sys::mount::copy_tree_at(top.as_fd(), path.strip_prefix("/").unwrap_or(path));
        rustix::thread::move_into_link_name_space(own.as_fd(), None)?;
        rustix::process::fchdir(&root)?;
        rustix::process::chroot(".")?;
        rustix::process::fchdir(&cwd)?;
        tree
    };
    copied().map_err(|errno| Error::MountSource {
        path: Path::new("/proc")
            .join(pid.to_string())
            .join("root")
            .join(path.strip_prefix("/").unwrap_or(path)),
        target: path.into(),
        errno: errno.into(),
    })
}

fn open_source(mount: &Mount) -> Result<Opened> {
    if let Mount::Shared { of, path } = mount {
        return of_process(*of, path).map(Opened::Tree);
    }
    let Mount::Bind { source, target, flags, optional } = mount else {
        return Ok(Opened::Nothing);
    };
    let failed = |errno: Errno| Error::MountSource {
        path: source.clone(),
        target: target.clone(),
        errno: errno.into(),
    };
    match sys::mount::copy_tree(source) {
        Ok(tree) => {
            let wanted = attributes(*flags);
            let set = || {
                if !wanted.is_empty() {
                    sys::mount::set_attributes(tree.as_fd(), wanted, true)?;
                }
                if flags.private {
                    sys::mount::make_private(tree.as_fd())?;
                }
                Ok(())
            };
            match set() {
                // Kernels before 5.12: done after attaching.
                Ok(()) | Err(Errno::NOSYS) => Ok(Opened::Tree(tree)),
                Err(errno) => Err(failed(errno)),
            }
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) if *optional => Ok(Opened::Nothing),
        Err(Errno::NOSYS) => {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            match rustix::fs::open(source, flags, Mode::empty()) {
                Ok(path) => Ok(Opened::Path(path)),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) if *optional => {
                    Ok(Opened::Nothing)
                }
                Err(errno) => Err(failed(errno)),
            }
        }
        Err(errno) => Err(failed(errno)),
    }
}
