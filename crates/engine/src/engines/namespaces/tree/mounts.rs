//! The mounts of a container, one function for each kind.

use super::points::make_point;
use super::sources::Opened;
use crate::error::{Error, Result};
use crate::plan::MountFlags;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags as Legacy, MountPropagationFlags};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use sys::mount::Attributes;

pub(super) fn attributes(flags: MountFlags) -> Attributes {
    let mut all = Attributes::NONE;
    for (wanted, attribute) in [
        (flags.read_only, Attributes::READ_ONLY),
        (flags.noexec, Attributes::NOEXEC),
        (flags.nosuid, Attributes::NOSUID),
        (flags.nodev, Attributes::NODEV),
    ] {
        if wanted {
            all = all.with(attribute);
        }
    }
    all
}

fn legacy(flags: MountFlags) -> Legacy {
    let mut all = Legacy::empty();
    all.set(Legacy::RDONLY, flags.read_only);
    all.set(Legacy::NOEXEC, flags.noexec);
    all.set(Legacy::NOSUID, flags.nosuid);
    all.set(Legacy::NODEV, flags.nodev);
    all
}

pub(super) fn bind(source: &Opened, target: &Path, flags: MountFlags, make: bool) -> Result<()> {
    let attach = || match source {
        Opened::Tree(tree) => sys::mount::attach(tree.as_fd(), target),
        Opened::Path(path) => bind_path(path, target),
        Opened::Nothing => Ok(()),
    };
    let failed = |errno: Errno| Error::Mount {
        what: "bind".into(),
        target: target.into(),
        errno: errno.into(),
    };
    match attach() {
        Err(Errno::NOENT) if make => {
            make_point(target, is_directory(source).map_err(failed)?)?;
            attach().map_err(failed)?;
        }
        Err(errno @ (Errno::NOENT | Errno::NOTDIR)) => {
            return Err(Error::MountPoint { target: target.into(), errno: errno.into() });
        }
        result => result.map_err(failed)?,
    }
    // On a copy they were set already, by kernels that can.
    let done = match source {
        Opened::Tree(_) => sys::mount::has_set_attributes(),
        Opened::Path(_) => false,
        Opened::Nothing => true,
    };
    if done {
        return Ok(());
    }
    if flags.private {
        let change = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change(target, change).map_err(failed)?;
    }
    let set = MountFlags { private: false, ..flags };
    if set != MountFlags::default() {
        remount(target, set).map_err(failed)?;
    }
    Ok(())
}

fn is_directory(source: &Opened) -> Result<bool, Errno> {
    match source {
        Opened::Tree(file) | Opened::Path(file) => {
            let mode = rustix::fs::fstat(file)?.st_mode;
            Ok(FileType::from_raw_mode(mode) == FileType::Directory)
        }
        Opened::Nothing => Ok(true),
    }
}

/// Binds a descriptor of a file that is still mounted in our namespace, on kernels without mount
/// trees.
fn bind_path(source: &OwnedFd, target: &Path) -> Result<(), Errno> {
    let mode = rustix::fs::fstat(source)?.st_mode;
    let flags = Legacy::BIND | Legacy::REC;
    if FileType::from_raw_mode(mode) != FileType::Directory {
        let path = format!("/proc/self/fd/{}", source.as_raw_fd());
        return rustix::mount::mount(path, target, c"", flags, None);
    }
    let here = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    rustix::process::fchdir(source)?;
    let result = rustix::mount::mount(".", target, c"", flags, None);
    rustix::process::fchdir(&here)?;
    result
}

/// Sets flags of a mount by remounting it and what is beneath, on kernels without `mount_setattr`.
///
/// Inside a user namespace a remount must repeat the flags that the mount has already: they are
/// locked.
fn remount(target: &Path, flags: MountFlags) -> Result<(), Errno> {
    let full = std::fs::canonicalize(target)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let mut points = sys::mount::points_within(&full)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    points.dedup();
    for point in points {
        let has = rustix::fs::statvfs(&point)?.f_flag;
        let mut all = legacy(flags) | Legacy::BIND;
        for (bit, flag) in [
            (rustix::fs::StatVfsMountFlags::RDONLY, Legacy::RDONLY),
            (rustix::fs::StatVfsMountFlags::NOSUID, Legacy::NOSUID),
            (rustix::fs::StatVfsMountFlags::NODEV, Legacy::NODEV),
            (rustix::fs::StatVfsMountFlags::NOEXEC, Legacy::NOEXEC),
            (rustix::fs::StatVfsMountFlags::NOATIME, Legacy::NOATIME),
            (rustix::fs::StatVfsMountFlags::RELATIME, Legacy::RELATIME),
        ] {
            all.set(flag, all.contains(flag) || has.contains(bit));
        }
        rustix::mount::mount_remount(&point, all, c"")?;
    }
    Ok(())
}

pub(super) fn kernel(
    kind: &str,
    target: &Path,
    flags: MountFlags,
    options: &[(String, String)],
) -> Result<()> {
    let failed = |errno: Errno| Error::Mount {
        what: kind.into(),
        target: target.into(),
        errno: errno.into(),
    };
    let words: Vec<String> = options
        .iter()
        .map(|(key, value)| if value.is_empty() { key.clone() } else { format!("{key}={value}") })
        .collect();
    let data = CString::new(words.join(",")).map_err(|_| failed(Errno::INVAL))?;
    let mount = || rustix::mount::mount(kind, target, kind, legacy(flags), Some(data.as_c_str()));
    match mount() {
        Err(Errno::NOENT) => {
            make_point(target, true)?;
            mount().map_err(failed)
        }
        result => result.map_err(failed),
    }
}

/// Binds the same path of the host. One that the host does not have is left out.
pub(super) fn bind_from_host(
    host: Option<&OwnedFd>,
    target: &Path,
    place: &Path,
    flags: MountFlags,
) -> Result<()> {
    let failed = |errno: Errno| Error::Mount {
        what: "the host's tree".into(),
        target: target.into(),
        errno: errno.into(),
    };
    let host = host.ok_or(Errno::PERM).map_err(failed)?;
    let path = target.strip_prefix("/").unwrap_or(target);
    let tree = match sys::mount::copy_tree_at(host.as_fd(), path) {
        Err(Errno::NOENT) => return Ok(()),
        result => result.map_err(failed)?,
    };
    if flags != MountFlags::default() {
        sys::mount::set_attributes(tree.as_fd(), attributes(flags), true).map_err(failed)?;
    }
    sys::mount::attach(tree.as_fd(), place).map_err(failed)
}

pub(super) fn mask(null: Option<&OwnedFd>, path: &Path) -> Result<()> {
    let failed = |errno: Errno| Error::Mount {
        what: "a mask".into(),
        target: path.into(),
        errno: errno.into(),
    };
    let mode = match rustix::fs::stat(path) {
        Ok(stat) => stat.st_mode,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(()),
        Err(errno) => return Err(failed(errno)),
    };
    if FileType::from_raw_mode(mode) == FileType::Directory {
        let flags = Legacy::RDONLY | Legacy::NOSUID | Legacy::NODEV | Legacy::NOEXEC;
        return rustix::mount::mount("tmpfs", path, "tmpfs", flags, Some(c"size=0"))
            .map_err(failed);
    }
    let null = null.ok_or(Errno::NOENT).map_err(failed)?;
    match sys::mount::copy_of(null.as_fd()) {
        Ok(copy) => sys::mount::attach(copy.as_fd(), path).map_err(failed),
        Err(Errno::NOSYS) => bind_path(null, path).map_err(failed),
        Err(errno) => Err(failed(errno)),
    }
}

pub(super) fn make_read_only(path: &Path) -> Result<()> {
    let failed = |errno: Errno| Error::Mount {
        what: "a read-only view".into(),
        target: path.into(),
        errno: errno.into(),
    };
    let flags = MountFlags { read_only: true, ..MountFlags::default() };
    match sys::mount::copy_tree(path) {
        Ok(tree) => match sys::mount::set_attributes(tree.as_fd(), attributes(flags), true) {
            Ok(()) => sys::mount::attach(tree.as_fd(), path),
            Err(Errno::NOSYS) => {
                sys::mount::attach(tree.as_fd(), path).and_then(|()| remount(path, flags))
            }
            Err(errno) => Err(errno),
        },
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        Err(Errno::NOSYS) => {
            rustix::mount::mount(path, path, c"", Legacy::BIND | Legacy::REC, None)
                .and_then(|()| remount(path, flags))
        }
        Err(errno) => Err(errno),
    }
    .map_err(failed)
}

pub(super) fn read_only_root() -> Result<()> {
    let failed = |errno: Errno| Error::Mount {
        what: "the root read-only".into(),
        target: "/".into(),
        errno: errno.into(),
    };
    let root =
        rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    match sys::mount::set_attributes(root.as_fd(), Attributes::READ_ONLY, false) {
        Err(Errno::NOSYS) => {
            let flags = Legacy::BIND | Legacy::RDONLY;
            rustix::mount::mount_remount("/", flags, c"")
        }
        result => result,
    }
    .map_err(failed)
}
