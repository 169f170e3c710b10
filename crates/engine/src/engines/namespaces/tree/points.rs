//! Places to mount on, by paths of the container.

use crate::error::{Error, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use sys::fs::resolve;

/// How many links may lead from one to the next (as in the kernel, `path_resolution(7)`).
const LINKS: usize = 40;

/// The path of a mount's target without symbolic links: as the container will see it, never through
/// the host's root that is stacked over the container's. Missing directories on the way are made if
/// `make` says so; the last component may be missing.
pub(super) fn inside(root: &OwnedFd, target: &Path, make: bool) -> Result<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let failed = |errno: Errno| Error::MountPoint { target: target.into(), errno: errno.into() };
    let mut path = without_slashes(target.as_os_str().as_bytes());
    // Mostly there is no link, and one call says so.
    let name_only = OFlags::PATH | OFlags::CLOEXEC;
    if resolve::strict(root, &path, name_only, resolve::Method::Best).is_ok() {
        return Ok(absolute(&path));
    }
    let make_directory = |missing: &resolve::Obstacle<'_>| match missing.errno {
        Errno::NOENT if make => {
            rustix::fs::mkdirat(missing.dir, missing.name, Mode::from_raw_mode(0o755))
        }
        errno => Err(errno),
    };
    for _ in 0..LINKS {
        let (parent, name) = resolve::split(&path);
        if name.is_empty() || name == b"." || name == b".." {
            let place = resolve::in_root(root, &path, make_directory).map_err(failed)?;
            return Ok(absolute(&place.path));
        }
        let place = resolve::in_root(root, parent, make_directory).map_err(failed)?;
        match rustix::fs::readlinkat(&place.dir, name, Vec::new()) {
            Ok(link) => {
                let link = link.as_bytes();
                let from = if link.first() == Some(&b'/') { &[][..] } else { &place.path };
                path = without_slashes(&resolve::join(from, link));
            }
            Err(_) => return Ok(absolute(&resolve::join(&place.path, name))),
        }
    }
    Err(failed(Errno::LOOP))
}

/// Without slashes at either end, so that the last component is what stands after the last one.
fn without_slashes(path: &[u8]) -> Vec<u8> {
    let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(start, |last| last + 1);
    path[start..end].to_vec()
}

fn absolute(path: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    PathBuf::from(std::ffi::OsString::from_vec([b"/", path].concat()))
}

/// A link such as `/dev/fd`, unless there is something.
pub(super) fn link(root: &OwnedFd, path: &Path, to: &Path) -> Result<()> {
    let parent = inside(root, path.parent().unwrap_or(Path::new("/")), true)?;
    let place = parent.join(path.file_name().unwrap_or_default());
    match rustix::fs::symlink(to, &place) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(Error::MountPoint { target: path.into(), errno: errno.into() }),
    }
}

/// Makes a place to mount on, a directory or an empty file, where [`inside`] found none.
pub(super) fn make_point(place: &Path, directory: bool) -> Result<()> {
    let made = if directory {
        rustix::fs::mkdir(place, Mode::from_raw_mode(0o755))
    } else {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::open(place, flags, Mode::from_raw_mode(0o644)).map(drop)
    };
    match made {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(Error::MountPoint { target: place.into(), errno: errno.into() }),
    }
}

pub(in crate::engines::namespaces) fn make_directories(path: &Path) -> Result<(), Errno> {
    match rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(Errno::NOENT) => {
            if let Some(parent) = path.parent() {
                make_directories(parent)?;
            }
            match rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(errno) => Err(errno),
            }
        }
        Err(errno) => Err(errno),
    }
}
