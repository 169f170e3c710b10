//! The two layers of a container's tree ([`hostfs::overlay`]), opened by a process of the engine:
//! where they are, the image's index, and what the container has changed.

use super::common::Common;
use abi::index::{Index, ROOT};
use hostfs::overlay::Layers;
use linux_raw_sys::general::S_ISVTX;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::{Errno, Result};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use sys::fs::{DirStack, Kind, read_dir, xattr};
use sys::shared::ReadOnly;
use view::identity::record::{ORIGIN, OWNER, Truth};
use view::image::Image;

/// Attributes of directories in overlay's form.
const OPAQUE: &[u8] = b"user.overlay.opaque";
const REDIRECT: &[u8] = b"user.overlay.redirect";

/// Where the layers lie. All paths are absolute and canonical.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerPaths {
    /// The image's index.
    pub index: PathBuf,
    /// The image's tree.
    pub lower: PathBuf,
    /// What the container has changed.
    pub upper: PathBuf,
    /// The log of directories of the image with another name.
    pub moved: PathBuf,
    /// A directory on the same file system, where files are made.
    pub work: PathBuf,
    /// Device (major, minor) of all of them.
    pub device: (u32, u32),
    /// Owner (user and group id) of the image's tree.
    pub owner: (u32, u32),
}

impl LayerPaths {
    /// Finds the device. `EXDEV` if the layers are on several file systems.
    pub fn new(index: &Path, lower: &Path, upper: &Path, place: &Path) -> Result<Self> {
        let tree = rustix::fs::stat(lower)?;
        if rustix::fs::stat(upper)?.st_dev != tree.st_dev {
            return Err(Errno::XDEV);
        }
        Ok(Self {
            index: index.into(),
            lower: lower.into(),
            upper: upper.into(),
            moved: place.join(hostfs::layout::MOVED),
            work: place.join(hostfs::layout::RUN),
            device: (rustix::fs::major(tree.st_dev), rustix::fs::minor(tree.st_dev)),
            owner: (tree.st_uid, tree.st_gid),
        })
    }
}

/// The layers, with the index and the table of changes mapped.
#[derive(Debug)]
pub struct Mapped {
    paths: LayerPaths,
    index: ReadOnly,
    common: Common,
}

impl Mapped {
    /// Opens the layers. The file that the container's processes share is made anew where there is
    /// none, or if `fresh` says that no process lives there; then the upper directory is read. The
    /// caller holds the container's lock.
    pub fn open(paths: &LayerPaths, notes: &Path, fresh: bool) -> std::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let index = ReadOnly::map(rustix::fs::open(&paths.index, flags, Mode::empty())?)?;
        let records = Index::open(index.bytes()).ok_or(Errno::INVAL)?.len();
        let shared = paths.work.join(super::common::NAME);
        let known = if fresh { None } else { Common::open(&shared) };
        let is_new = known.is_none();
        let common = match known {
            Some(common) => common,
            None => Common::create_with_index(&shared, records, notes, fresh)?,
        };
        common.shared().set_tree_device(paths.device);
        common.shared().set_tree_owner(paths.owner);
        let mapped = Self { paths: paths.clone(), index, common };
        if is_new && let Some(layers) = mapped.layers() {
            find_changes(&layers.image, &paths.moved, fresh)?;
        }
        Ok(mapped)
    }

    /// The layers, as `hostfs` sees them.
    pub fn layers(&self) -> Option<Layers<'_>> {
        Some(Layers {
            image: self.image()?,
            work: self.paths.work.as_os_str().as_bytes(),
            moved: self.paths.moved.as_os_str().as_bytes(),
        })
    }

    /// The image, as the view sees it.
    pub fn image(&self) -> Option<Image<'_>> {
        Some(Image {
            index: Index::open(self.index.bytes())?,
            changes: self.common.shared().changes(),
            lower: self.paths.lower.as_os_str().as_bytes(),
            upper: self.paths.upper.as_os_str().as_bytes(),
            device: self.paths.device,
            owner: self.paths.owner,
        })
    }

    /// Has processes of the container forget what they know of directories.
    pub fn changed(&self) {
        self.common.shared().plain().changed();
    }

    /// Where they lie.
    pub fn paths(&self) -> &LayerPaths {
        &self.paths
    }
}

/// Reads from the upper directory what the container has changed. Takes time in proportion to the
/// directories that the container has in common with its image, and their names there. `fresh`: no
/// process lives there.
fn find_changes(image: &Image<'_>, moved: &Path, fresh: bool) -> Result<()> {
    let upper = Path::new(OsStr::from_bytes(image.upper));
    let open = |path: &Path| rustix::fs::openat(CWD, path, sys::fs::DIRECTORY, Mode::empty());
    image.changes.merge(ROOT);
    directory(image, open(upper)?, ROOT, fresh)?;
    for name in moved_names(moved)? {
        let Ok(top) = open(&upper.join(OsStr::from_bytes(&name))) else { continue };
        if let Some(base) = redirect(image, &top)? {
            image.changes.redirect();
            image.changes.merge(base);
            directory(image, top, base, fresh)?;
        }
    }
    Ok(())
}

/// The names that directories of the image have got at some time.
fn moved_names(log: &Path) -> Result<Vec<Vec<u8>>> {
    let log = match std::fs::read(log) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        log => log.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?,
    };
    let name = |line: &[u8]| Some(line.splitn(2, |byte| *byte == b' ').nth(1)?.to_vec());
    let mut names: Vec<Vec<u8>> = log.split(|byte| *byte == 0).filter_map(name).collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// The directory of the image that one of the upper directory is redirected to.
fn redirect(image: &Image<'_>, top: &OwnedFd) -> Result<Option<u32>> {
    let Some(path) = xattr::get(top, REDIRECT)? else { return Ok(None) };
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let mut names = names;
    Ok(names.try_fold(ROOT, |here, name| image.index.child(here, name)))
}

/// Reads a directory that is merged with one of the image, and those beneath it.
fn directory(image: &Image<'_>, top: OwnedFd, base: u32, fresh: bool) -> Result<()> {
    let Image { changes, .. } = image;
    let mut stack = DirStack::new(top).map_err(|_| Errno::IO)?;
    let mut pending = vec![names(image, stack.fd(), base, fresh)?];
    while let Some(directories) = pending.last_mut() {
        let Some((name, record)) = directories.pop() else {
            pending.pop();
            stack.leave().map_err(|_| Errno::IO)?;
            continue;
        };
        stack.enter(&name).map_err(|_| Errno::IO)?;
        if is_other(stack.fd(), image, record)? {
            stack.leave().map_err(|_| Errno::IO)?;
            continue;
        }
        if let Some(entry) = image.index.entry(record) {
            mark(stack.fd(), entry.inode)?;
        }
        changes.merge(record);
        pending.push(names(image, stack.fd(), record, fresh)?);
    }
    Ok(())
}

/// Returns true if a directory has taken the place of one of the image.
fn is_other(fd: impl AsFd, image: &Image<'_>, record: u32) -> Result<bool> {
    let fd = fd.as_fd();
    let has = |name| xattr::get(fd, name).map(|value| value.is_some());
    let other = has(OPAQUE)? || has(REDIRECT)?;
    if other {
        image.cover(record);
    }
    Ok(other)
}

/// Has a directory that the kernel has made above one of the image show the number of that, as
/// those that the view makes do.
fn mark(fd: impl AsFd, inode: u64) -> Result<()> {
    let fd = fd.as_fd();
    if xattr::get(fd, ORIGIN.to_bytes())?.is_some() {
        return Ok(());
    }
    let mode = rustix::fs::fstat(fd)?.st_mode;
    if xattr::get(fd, OWNER.to_bytes())?.is_none() {
        let truth = Truth { mode, ..Truth::default() };
        xattr::set(fd, OWNER.to_bytes(), truth.to_text().as_bytes())?;
    }
    xattr::set(fd, ORIGIN.to_bytes(), inode.to_string().as_bytes())?;
    sys::fs::chmod_fd(fd, mode & 0o777 | S_ISVTX)
}

/// Marks the image's names that a directory of the upper one has. Returns those that are
/// directories in both.
fn names(image: &Image<'_>, fd: impl AsFd, base: u32, fresh: bool) -> Result<Vec<(Vec<u8>, u32)>> {
    let fd = fd.as_fd();
    let mut directories = Vec::new();
    for entry in read_dir(fd)? {
        let Some(record) = image.index.child(base, &entry.name) else {
            if fresh && entry.kind == Kind::CharacterDevice {
                remove_whiteout(fd, &entry.name)?;
            }
            continue;
        };
        let in_both = entry.kind == Kind::Directory
            && image.index.entry(record).is_some_and(|entry| entry.is_directory());
        if in_both {
            directories.push((entry.name, record));
        } else {
            image.cover(record);
        }
    }
    Ok(directories)
}

/// Removes a whiteout of a name that the image does not have. A process was killed that moved the
/// directory which had that name.
fn remove_whiteout(fd: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    let status = rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if sys::fs::whiteout::is(&status) {
        rustix::fs::unlinkat(fd, name, AtFlags::empty())?;
    }
    Ok(())
}
