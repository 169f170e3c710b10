//! From a path inside a tree to an open directory, never outside the tree.
//!
//! [`strict`] refuses every symbolic link. [`in_root`] resolves links as a process would whose root is the tree: absolute
//! targets start at the tree's top and `..` stops there. Both use only names relative to descriptors, so that a directory
//! which is swapped for a link meanwhile is seen as the link that it is.

use super::NAME_ONLY;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags, ResolveFlags};
use rustix::io::{self, Errno};
use std::sync::atomic::{AtomicBool, Ordering};

/// How many links one path may go through, as in the kernel.
pub const LINKS_MAX: usize = 40;

static NO_OPENAT2: AtomicBool = AtomicBool::new(false);

/// Makes this process behave as on a kernel without `openat2`, from now on: for tests of the other way.
pub fn avoid_openat2() {
    NO_OPENAT2.store(true, Ordering::Relaxed);
}

/// Which calls [`strict`] uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// `openat2` where the kernel has it and seccomp lets it pass, else a walk.
    #[default]
    Best,
    /// Component by component.
    Walk,
}

/// Opens `path` beneath `root` with `flags` if no component, the last included, is a symbolic link.
/// The empty path is the root itself. `..` is refused by `EXDEV` or `ELOOP`.
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
                // A rename somewhere on the system during the walk; only `..` is affected, and we have none.
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::NOSYS | Errno::PERM | Errno::TOOBIG) => {
                    NO_OPENAT2.store(true, Ordering::Relaxed);
                    break;
                }
                // ENAMETOOLONG: more than PATH_MAX, which the walk can. ENOTDIR: a link at the end looks like that with
                // O_DIRECTORY; the walk tells them apart.
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

/// `openat2` with `RESOLVE_IN_ROOT`, and more of `resolve`. Where a rename or a mount anywhere on the system meets a `..` on the way the kernel
/// says `EAGAIN`: that is no answer, so it is asked again, and `EAGAIN` comes only from a system where that never ends. `ENOSYS` before Linux 5.6.
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
                // With O_DIRECTORY a link says ENOTDIR; openat2 says ELOOP, and so do we.
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
    /// Names the directory; good for `*at` calls.
    pub dir: OwnedFd,
    /// Relative to the root; empty for the root.
    pub path: Vec<u8>,
}

/// What stands where [`in_root`] needs a directory.
pub struct Obstacle<'a> {
    /// The directory that was reached.
    pub dir: BorrowedFd<'a>,
    /// Its path.
    pub path: &'a [u8],
    /// The name in it that is not a directory.
    pub name: &'a [u8],
    /// `ENOENT`: nothing there. `ENOTDIR`: a file that is neither directory nor link.
    pub errno: Errno,
}

/// Resolves a directory path as `chroot(root)` would.
///
/// Where a component is missing or no directory, `make` is asked: it may put a directory there and answer `Ok(())`,
/// after which the component is tried once more; its error ends the walk.
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
