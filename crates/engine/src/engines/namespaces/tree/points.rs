//! Places to mount on, by paths of the container.

use crate::error::{Error, Result};
use crate::plan::{Mount, Plan, Process};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use sys::fs::resolve;

/// How many links may lead from one to the next (as in the kernel, `path_resolution(7)`).
const LINKS: usize = 40;
/// The modes of what is made.
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// The path of a mount's target without symbolic links: as the container will see it, never through
/// the host's root that is stacked over the container's. Missing directories on the way are made if
/// `make` says so; the last component may be missing.
pub(super) fn inside(root: &OwnedFd, target: &Path, make: bool) -> Result<PathBuf> {
    let failed = |errno: Errno| Error::MountPoint { target: target.into(), errno: errno.into() };
    let mut path = without_slashes(target.as_os_str().as_bytes());
    // Mostly there is no link, and one call says so.
    let name_only = OFlags::PATH | OFlags::CLOEXEC;
    if resolve::strict(root, &path, name_only, resolve::Method::Best).is_ok() {
        return Ok(absolute(&path));
    }
    let make_directory = |missing: &resolve::Obstacle<'_>| match missing.errno {
        Errno::NOENT if make => make_in(missing.dir, missing.name, true),
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
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    root.and_then(|root| make_at(&root, place, directory))
        .map_err(|errno| Error::MountPoint { target: place.into(), errno: errno.into() })
}

/// Makes the places of a plan's mounts in a tree that is not `/` yet, for a program that would make
/// them otherwise. Those in other mounts are left to it, and those of memory with another mode than
/// what is made here, because `runc` gives memory the mode of the directory that it finds.
pub(in crate::engines) fn make_missing(root: &Path, mounts: &[Mount]) -> Result<()> {
    let failed = |target: &Path| {
        let target = target.to_path_buf();
        move |errno: Errno| Error::MountPoint { target, errno: errno.into() }
    };
    let top = rustix::fs::open(root, sys::fs::DIRECTORY, Mode::empty()).map_err(failed(root))?;
    let mut covered: Vec<&Path> = Vec::new();
    for mount in mounts {
        let (target, directory) = match mount {
            Mount::Bind { source, target, .. } => (target, source.is_dir()),
            Mount::Kernel { target, .. } => (target, true),
            Mount::Tmpfs { target, options, .. }
                if options.iter().any(|(key, mode)| key == "mode" && mode == "755") =>
            {
                (target, true)
            }
            Mount::Tmpfs { target, .. } => {
                covered.push(target);
                continue;
            }
            _ => continue,
        };
        if covered.iter().any(|above| target.starts_with(above)) {
            continue;
        }
        let place = inside(&top, target, true)?;
        make_at(&top, &place, directory).map_err(failed(target))?;
        covered.push(target);
    }
    Ok(())
}

/// Makes the working directory of a plan whose root is read-only later, in a tree that is not `/`
/// yet. One in a mount is left to who enters it.
pub(in crate::engines) fn make_working_directory(root: &Path, plan: &Plan) -> Result<()> {
    let Process { cwd, create_cwd, .. } = &plan.process;
    let is_covered = |mount: &Mount| match mount {
        Mount::Bind { target, .. } | Mount::Kernel { target, .. } | Mount::Tmpfs { target, .. } => {
            cwd.starts_with(target)
        }
        _ => false,
    };
    let is_needed = *create_cwd && plan.mounts.contains(&Mount::ReadOnlyRoot);
    if !is_needed || cwd == Path::new("/") || plan.mounts.iter().any(is_covered) {
        return Ok(());
    }
    let failed = |errno: Errno| Error::WorkingDirectory { path: cwd.clone(), errno: errno.into() };
    let top = rustix::fs::open(root, sys::fs::DIRECTORY, Mode::empty()).map_err(failed)?;
    let place = inside(&top, cwd, true)?;
    make_at(&top, &place, true).map_err(failed)
}

fn make_at(root: &OwnedFd, place: &Path, directory: bool) -> Result<(), Errno> {
    let path = without_slashes(place.as_os_str().as_bytes());
    let (parent, name) = resolve::split(&path);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = resolve::strict(root, parent, flags, resolve::Method::Best)?;
    make_in(parent.as_fd(), name, directory)
}

/// Makes a directory or an empty file, unless there is something. The directory's time and the mode
/// say nothing of who made it: neither is a change of the container's.
fn make_in(parent: BorrowedFd<'_>, name: &[u8], directory: bool) -> Result<(), Errno> {
    let file = sys::fs::keep_time(parent, || {
        if directory {
            rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(DIRECTORY_MODE))?;
            rustix::fs::openat(parent, name, sys::fs::DIRECTORY, Mode::empty())
        } else {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(FILE_MODE))
        }
    });
    let mode = if directory { DIRECTORY_MODE } else { FILE_MODE };
    match file {
        // The caller's mask is not the container's.
        Ok(file) => rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)),
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
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
