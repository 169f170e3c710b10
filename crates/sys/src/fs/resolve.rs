//! Opens directories by path inside a tree, and never leads outside of it.
//!
//! [`strict`] refuses every symbolic link. [`in_root`] resolves links as a process would whose root
//! is the tree: absolute targets start at the tree's top and `..` stops there. Both use only names
//! relative to descriptors, so a directory that is replaced by a link meanwhile is recognised as a
//! link.

use super::NAME_ONLY;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags, ResolveFlags};
use rustix::io::{self, Errno};
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of links in one path, the same as in the kernel.
pub const LINKS_MAX: usize = 40;

static NO_OPENAT2: AtomicBool = AtomicBool::new(false);

/// Makes this process behave from now on as on a kernel without `openat2`, for tests of the
/// fallback.
pub fn avoid_openat2() {
    NO_OPENAT2.store(true, Ordering::Relaxed);
}

/// The calls that [`strict`] uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// `openat2` if the kernel has it and seccomp allows it, else a walk.
    #[default]
    Best,
    /// Component by component.
    Walk,
}

/// Opens `path` beneath `root` with `flags` if no component, the last included, is a symbolic link.
/// The empty path is the root itself. `..` is refused with `EXDEV` or `ELOOP`.
pub fn strict(root: impl AsFd, path: &[u8], flags: OFlags, method: Method) -> io::Result<OwnedFd> {
    let root = root.as_fd();
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if path.is_empty() {
        return fs::openat(root, ".", flags, Mode::empty());
    }
    if method == Method::Best && !NO_OPENAT2.load(Ordering::Relaxed) {
        let beneath =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..8 {
            match fs::openat2(root, path, flags, Mode::empty(), beneath) {
                // A rename somewhere on the system during the walk; it only affects paths with
                // `..`, which this one does not have.
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::NOSYS | Errno::PERM | Errno::TOOBIG) => {
                    NO_OPENAT2.store(true, Ordering::Relaxed);
                    break;
                }
                // ENAMETOOLONG: longer than PATH_MAX, which the walk handles. ENOTDIR: may be a
                // link at the end, which O_DIRECTORY reports so; the walk tells them apart.
                Err(Errno::NAMETOOLONG | Errno::NOTDIR) => break,
                Ok(fd) if flags.contains(OFlags::PATH) && is_link_fd(&fd) => {
                    return Err(Errno::LOOP);
                }
                other => return other,
            }
        }
    }
    walk(root, path, flags)
}

/// `openat2` with `RESOLVE_IN_ROOT`, and more flags in `resolve`. If a rename or a mount anywhere
/// on the system happens while the path has a `..`, the kernel returns `EAGAIN`; then the call is
/// repeated, and `EAGAIN` is returned only if that never ends. `ENOSYS` before Linux 5.6.
pub fn open_in_root(
    root: impl AsFd,
    path: impl rustix::path::Arg + Copy,
    flags: OFlags,
    resolve: ResolveFlags,
) -> io::Result<OwnedFd> {
    const TRIES: u32 = 64;
    let resolve = resolve | ResolveFlags::IN_ROOT;
    let mut result = Err(Errno::AGAIN);
    for _ in 0..TRIES {
        result = fs::openat2(root.as_fd(), path, flags, Mode::empty(), resolve);
        if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    result
}

fn walk(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let mut parts =
        path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    let Some(mut part) = parts.next() else {
        return fs::openat(root, ".", flags, Mode::empty());
    };
    let mut current: Option<OwnedFd> = None;
    loop {
        if part == b".." {
            return Err(Errno::XDEV);
        }
        let here = current.as_ref().map_or(root, AsFd::as_fd);
        let Some(next) = parts.next() else {
            return match fs::openat(here, part, flags, Mode::empty()) {
                // With O_DIRECTORY a link gives ENOTDIR; openat2 gives ELOOP, and so does this
                // walk.
                Err(Errno::NOTDIR) if is_link(here, part) => Err(Errno::LOOP),
                Ok(fd) if flags.contains(OFlags::PATH) && is_link_fd(&fd) => Err(Errno::LOOP),
                other => other,
            };
        };
        let opened = fs::openat(here, part, NAME_ONLY | OFlags::DIRECTORY, Mode::empty());
        current = Some(match opened {
            Err(Errno::NOTDIR) if is_link(here, part) => return Err(Errno::LOOP),
            other => other?,
        });
        part = next;
    }
}

fn is_link(dir: BorrowedFd<'_>, name: &[u8]) -> bool {
    super::stat(dir, name)
        .is_ok_and(|stat| fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::Symlink)
}

fn is_link_fd(fd: &OwnedFd) -> bool {
    fs::fstat(fd)
        .is_ok_and(|stat| fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::Symlink)
}

/// A directory inside a tree: a descriptor (`O_PATH`) and its path in the tree without any link.
#[derive(Debug)]
pub struct Place {
    /// Refers to the directory; usable for `*at` calls.
    pub dir: OwnedFd,
    /// Relative to the root; empty for the root.
    pub path: Vec<u8>,
}

/// The obstacle if [`in_root`] needs a directory and there is none.
pub struct Obstacle<'a> {
    /// The directory that was reached.
    pub dir: BorrowedFd<'a>,
    /// Its path.
    pub path: &'a [u8],
    /// The name in it that is not a directory.
    pub name: &'a [u8],
    /// `ENOENT`: missing. `ENOTDIR`: a file that is neither directory nor link.
    pub errno: Errno,
}

/// Resolves a directory path as `chroot(root)` would.
///
/// If a component is missing or not a directory, `make` is called: it may create a directory there
/// and return `Ok(())`, after which the component is tried once more; its error ends the walk.
pub fn in_root<E: From<Errno>>(
    root: impl AsFd,
    path: &[u8],
    mut make: impl FnMut(&Obstacle<'_>) -> Result<(), E>,
) -> Result<Place, E> {
    let root = root.as_fd();
    let mut pending: Vec<Vec<u8>> = components(path);
    let mut place = Place { dir: open_root(root)?, path: Vec::new() };
    let mut links = 0;
    let mut fresh = false;
    while let Some(part) = pending.pop() {
        if part == b".." {
            let parent = parent_of(&place.path).to_vec();
            let dir = strict(root, &parent, NAME_ONLY | OFlags::DIRECTORY, Method::Best)?;
            place = Place { dir, path: parent };
            continue;
        }
        match fs::openat(&place.dir, &part[..], NAME_ONLY | OFlags::DIRECTORY, Mode::empty()) {
            Ok(dir) => {
                fresh = false;
                place = Place { dir, path: join(&place.path, &part) };
                continue;
            }
            Err(Errno::NOTDIR) => {}
            Err(Errno::NOENT) if !fresh => {
                make(&obstacle(&place, &part, Errno::NOENT))?;
                fresh = true;
                pending.push(part);
                continue;
            }
            Err(errno) => return Err(errno.into()),
        }
        match fs::readlinkat(&place.dir, &part[..], Vec::new()) {
            Ok(target) => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                let target = target.into_bytes();
                if target.first() == Some(&b'/') {
                    place = Place { dir: open_root(root)?, path: Vec::new() };
                }
                pending.extend(components(&target));
            }
            Err(Errno::INVAL) if !fresh => {
                make(&obstacle(&place, &part, Errno::NOTDIR))?;
                fresh = true;
                pending.push(part);
            }
            Err(Errno::INVAL) => return Err(Errno::NOTDIR.into()),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(place)
}

fn obstacle<'a>(place: &'a Place, name: &'a [u8], errno: Errno) -> Obstacle<'a> {
    Obstacle { dir: place.dir.as_fd(), path: &place.path, name, errno }
}

fn open_root(root: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    fs::openat(root, ".", NAME_ONLY | OFlags::DIRECTORY, Mode::empty())
}

/// The components of a path, last first, without empty ones and `.`.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .rev()
        .map(<[u8]>::to_vec)
        .collect()
}

/// `directory/name`, or `name` in the root.
#[must_use]
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(directory.len() + name.len() + 1);
    path.extend_from_slice(directory);
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// The path without its last component; empty for a name in the root and for the root.
#[must_use]
pub fn parent_of(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(b"", |slash| &path[..slash])
}

/// Splits `a/b/c` into `a/b` and `c`.
#[must_use]
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}
