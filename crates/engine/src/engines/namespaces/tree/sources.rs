//! Opens what will be mounted, while the host's paths still lead to it.

use super::mounts::attributes;
use crate::error::{Error, Result};
use crate::plan::{Mount, Plan};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

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

fn open_source(mount: &Mount) -> Result<Opened> {
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
