//! The container's `/etc/passwd` and `/etc/group`, and the beginning of any other file, read
//! without entering it.
//!
//! The files of an image are hostile until proven otherwise: a symbolic link in `/etc` must not
//! lead to the host's files. For a plain tree and for a running container the kernel resolves the
//! path as if the tree were the root (`RESOLVE_IN_ROOT`, 5.6). For layers that are not mounted yet
//! each is looked into from the top, honouring whiteouts and opaque directories, and links are not
//! followed.

use crate::error::{Error, Result};
use crate::plan::{Accounts, Root};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use sys::fs::resolve::open_in_root;

/// A longer file is not a user database.
const LIMIT: u64 = 16 << 20;

/// Users of a container that is not mounted.
#[derive(Debug)]
pub struct OfRoot<'a>(pub &'a Root);

/// Users of the container that a process lives in.
#[derive(Debug)]
pub struct OfProcess(pub u32);

impl Accounts for OfRoot<'_> {
    fn passwd(&self) -> Result<String> {
        self.read("passwd")
    }
    fn group(&self) -> Result<String> {
        self.read("group")
    }
}

impl OfRoot<'_> {
    fn read(&self, name: &str) -> Result<String> {
        match self.0 {
            Root::Directory { path } => in_tree(path, name),
            Root::Overlay { lowers, upper, .. } => {
                for layer in std::iter::once(upper).chain(lowers) {
                    match in_layer(layer, name)? {
                        Look::Text(text) => return Ok(text),
                        Look::Gone => break,
                        Look::Below => {}
                    }
                }
                Ok(String::new())
            }
        }
    }
}

impl Accounts for OfProcess {
    fn passwd(&self) -> Result<String> {
        self.read("passwd")
    }
    fn group(&self) -> Result<String> {
        self.read("group")
    }
}

impl OfProcess {
    fn read(&self, name: &str) -> Result<String> {
        let path = PathBuf::from(format!("/proc/{}/root", self.0));
        let root = sys::life::root(self.0).map_err(failed(&path, name))?;
        in_root(&root, &path, name)
    }
}

fn failed(path: &Path, name: &str) -> impl Fn(Errno) -> Error {
    let path = path.join("etc").join(name);
    move |errno| Error::File { doing: "read".into(), path: path.clone(), errno: errno.into() }
}

fn text_of(file: OwnedFd, error: impl Fn(Errno) -> Error) -> Result<String> {
    let kind = rustix::fs::fstat(&file).map_err(&error)?;
    if FileType::from_raw_mode(kind.st_mode) != FileType::RegularFile {
        return Ok(String::new());
    }
    let mut bytes = Vec::new();
    std::fs::File::from(file)
        .take(LIMIT)
        .read_to_end(&mut bytes)
        .map_err(|failure| error(Errno::from_io_error(&failure).unwrap_or(Errno::IO)))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn in_tree(tree: &Path, name: &str) -> Result<String> {
    let root =
        rustix::fs::open(tree, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(failed(tree, name))?;
    in_root(&root, tree, name)
}

/// The same of a tree that is open.
fn in_root(root: &OwnedFd, tree: &Path, name: &str) -> Result<String> {
    let error = failed(tree, name);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match open_in_root(root, &*format!("etc/{name}"), flags, ResolveFlags::NO_MAGICLINKS) {
        Ok(file) => text_of(file, error),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(String::new()),
        Err(Errno::NOSYS) => match in_layer(tree, name)? {
            Look::Text(text) => Ok(text),
            Look::Below | Look::Gone => Ok(String::new()),
        },
        Err(errno) => Err(error(errno)),
    }
}

/// The first bytes of a file of a container that is not mounted; `None` where there is no regular
/// file with so many. A link may lead to another file of the same layer.
#[must_use]
pub fn header(root: &Root, path: &str) -> Option<[u8; 16]> {
    let layers: Vec<&Path> = match root {
        Root::Directory { path } => vec![path],
        Root::Overlay { lowers, upper, .. } => {
            std::iter::once(upper).chain(lowers).map(PathBuf::as_path).collect()
        }
    };
    layers.into_iter().find_map(|layer| {
        let top = rustix::fs::open(layer, sys::fs::DIRECTORY, Mode::empty()).ok()?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let strict = || {
            sys::fs::resolve::strict(&top, path.as_bytes(), flags, sys::fs::resolve::Method::Best)
        };
        let file = match open_in_root(&top, path, flags, ResolveFlags::NO_MAGICLINKS) {
            Err(Errno::NOSYS) => strict(),
            result => result,
        };
        let mut file = std::fs::File::from(file.ok()?);
        let mut header = [0; 16];
        let regular = file.metadata().ok()?.is_file();
        (regular && file.read_exact(&mut header).is_ok()).then_some(header)
    })
}

enum Look {
    Text(String),
    /// Not here, so look below.
    Below,
    /// Removed here.
    Gone,
}

fn in_layer(layer: &Path, name: &str) -> Result<Look> {
    let error = failed(layer, name);
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |from: &dyn AsFd, name: &str, flags| {
        rustix::fs::openat(from.as_fd(), name, flags | OFlags::NOFOLLOW, Mode::empty())
    };
    let top = rustix::fs::open(layer, directory, Mode::empty()).map_err(&error)?;
    let etc = match open(&top, "etc", directory) {
        Ok(etc) => etc,
        Err(Errno::NOENT) => return Ok(Look::Below),
        // A whiteout, a file or a link: whatever lies below is hidden.
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(Look::Gone),
        Err(errno) => return Err(error(errno)),
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match open(&etc, name, flags) {
        Ok(file) => text_of(file, error).map(Look::Text),
        Err(Errno::NOENT) => {
            let mut value = [0; 8];
            let opaque = rustix::fs::fgetxattr(&etc, "user.overlay.opaque", &mut value[..]);
            Ok(if matches!(opaque, Ok(1)) && value[0] == b'y' { Look::Gone } else { Look::Below })
        }
        // Opening a whiteout (device 0:0) answers ENXIO.
        Err(Errno::NXIO | Errno::LOOP | Errno::NODEV) => Ok(Look::Gone),
        Err(errno) => Err(error(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn the_topmost_layer_wins() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        write(&at("low/etc/passwd"), "low:x:1:1::/:\n");
        write(&at("top/etc/passwd"), "top:x:2:2::/:\n");
        write(&at("low/etc/group"), "low:x:1:\n");
        std::fs::create_dir_all(at("upper")).unwrap();
        let root = Root::Overlay {
            lowers: vec![at("top"), at("low")],
            upper: at("upper"),
            work: at("work"),
            volatile: true,
        };
        assert!(OfRoot(&root).passwd().unwrap().starts_with("top"));
        assert!(OfRoot(&root).group().unwrap().starts_with("low"));
    }

    #[test]
    fn links_do_not_lead_out() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("etc")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("etc/passwd")).unwrap();
        let root = Root::Directory { path: dir.path().into() };
        assert_eq!(OfRoot(&root).passwd().unwrap(), "");
    }
}
