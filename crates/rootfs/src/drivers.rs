//! Gives each container a root of its own on top of a shared image.
//!
//! | driver | needs | cost of a new container |
//! |---|---|---|
//! | overlay | a user namespace, Linux 5.11, user xattrs, whiteouts | three directories |
//! | fuse-overlayfs | a user namespace, `/dev/fuse`, the program | the same |
//! | reflink | btrfs, XFS, bcachefs... | a clone of each file's blocks |
//! | copy | nothing | a copy of the tree |
//! | layered | an engine that puts the image's tree and an upper directory together itself, user xattrs, whiteouts | two directories |
//! | hard link | an engine that copies files before it writes to them | the directories, and a name for each file |
//!
//! [`prepare`] makes the directories or the copy; the engine mounts them. It can be repeated: an
//! existing root is kept.

use crate::error::Error;
use crate::flatten::{self, Method};
use crate::image::ImageTrees;
use crate::owner_xattrs::{BY_PATH, INODES};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A way to give a container its own root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// The kernel's overlay, mounted in the container's user namespace.
    Overlay,
    /// The `fuse-overlayfs` program.
    FuseOverlay,
    /// A copy that shares blocks.
    Reflink,
    /// A plain copy.
    Copy,
    /// The image's flattened tree ([`crate::owner_xattrs`]) and an upper directory in overlay's
    /// form, which engines that interpose on system calls put together. Other engines mount them as
    /// an overlay.
    Layered,
    /// Hard links to the image's inodes, for engines that interpose on system calls
    /// ([`crate::owner_xattrs`]). Other engines use such a tree as the lower directory of an
    /// overlay.
    HardLink,
}

impl Driver {
    /// Name of the driver in configuration and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Overlay => "overlay",
            Self::FuseOverlay => "fuse-overlayfs",
            Self::Reflink => "reflink",
            Self::Copy => "copy",
            Self::Layered => "layered",
            Self::HardLink => "hard link",
        }
    }

    /// Returns true if the layers are used as they are, beneath an upper directory.
    #[must_use]
    pub fn is_stacked(self) -> bool {
        matches!(self, Self::Overlay | Self::FuseOverlay)
    }
}

/// Facts about host and store on which [`choose`] decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each probed by itself")]
pub struct Facts {
    /// Overlay with `userxattr` can be mounted in a user namespace (tested by mounting), or the
    /// caller is privileged.
    pub overlay: bool,
    /// `fuse-overlayfs` is installed and `/dev/fuse` opens.
    pub fuse_overlay: bool,
    /// The store's file system has extended attributes in the `user.` name space.
    pub user_xattr: bool,
    /// A character device 0:0 can be made in the store.
    pub whiteout: bool,
    /// The store's file system clones blocks.
    pub reflink: bool,
    /// The store is on NFS, Lustre or the like, which overlay does not accept as its upper.
    pub network_fs: bool,
}

/// Returns the best driver that works, and for each better one the reason why it does not.
#[must_use]
pub fn choose(facts: &Facts) -> (Driver, Vec<(Driver, &'static str)>) {
    let mut passed = Vec::new();
    let overlay = [
        (facts.overlay, "overlay cannot be mounted in a user namespace here"),
        (facts.user_xattr, "the store's file system has no user extended attributes"),
        (!facts.network_fs, "a network file system cannot be overlay's upper"),
    ];
    match overlay.iter().find(|(fine, _)| !fine) {
        None => return (Driver::Overlay, passed),
        Some((_, why)) => passed.push((Driver::Overlay, *why)),
    }
    if facts.fuse_overlay {
        return (Driver::FuseOverlay, passed);
    }
    passed.push((Driver::FuseOverlay, "fuse-overlayfs or /dev/fuse is missing"));
    if facts.reflink {
        return (Driver::Reflink, passed);
    }
    passed.push((Driver::Reflink, "the store's file system cannot share blocks"));
    (Driver::Copy, passed)
}

/// A container's root, ready to be mounted or used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// Directories to mount as an overlay.
    Overlay {
        /// Lower directories, topmost first, as in `lowerdir=`.
        lowers: Vec<PathBuf>,
        /// The container's own changes.
        upper: PathBuf,
        /// Overlay's work directory, beside the upper.
        work: PathBuf,
        /// Mount with `volatile`, which avoids a sync of the whole file system at the last unmount.
        volatile: bool,
    },
    /// A directory that is used directly as the root.
    Directory(PathBuf),
    /// A directory of somebody else's, which is used directly; the container has what its inodes
    /// cannot carry.
    Given {
        /// The directory.
        directory: PathBuf,
        /// The table of owners and modes.
        table: PathBuf,
    },
    /// A container's own whole tree with further changes above it, to be mounted as an overlay:
    /// engines with mounts use it for a tree whose files they must not write to.
    Stacked {
        /// The tree.
        directory: PathBuf,
        /// The changes above it.
        upper: PathBuf,
        /// Overlay's work directory, beside the upper.
        work: PathBuf,
        /// As in [`Root::Overlay`].
        volatile: bool,
    },
}

/// Name of the flattened root in a container's directory, the same as udocker's.
pub const ROOT: &str = "ROOT";
/// Name of the ownership table of a flattened root.
pub const ROOT_OWNERS: &str = "owners";

/// Makes the root of a container below its directory, or finds it.
///
/// `image` must fit the driver: see [`crate::image::plan`].
pub fn prepare(container: &Path, image: &ImageTrees, driver: Driver) -> Result<Root, Error> {
    let directory = open(container)?;
    // Of several first runs at once, one makes the root and the others find it. On file systems
    // that cannot lock directories (NFS) the others fail.
    let made = if driver.is_stacked() || driver == Driver::Layered { "upper" } else { ROOT };
    if rustix::fs::statat(&directory, made, AtFlags::SYMLINK_NOFOLLOW).is_err() {
        let lock = rustix::fs::FlockOperation::LockExclusive;
        let _ = rustix::io::retry_on_intr(|| rustix::fs::flock(&directory, lock));
    }
    if driver == Driver::Layered {
        return prepare_layered(container, &directory, image);
    }
    if driver.is_stacked() {
        make_directory(&directory, "work")?;
        if rustix::fs::statat(&directory, "upper", AtFlags::SYMLINK_NOFOLLOW).is_err() {
            make_upper(&directory, image)?;
        }
        return Ok(Root::Overlay {
            lowers: image.lowers(),
            upper: container.join("upper"),
            work: container.join("work"),
            volatile: true,
        });
    }
    let root = container.join(ROOT);
    if rustix::fs::statat(&directory, ROOT, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Ok(Root::Directory(root));
    }
    if driver == Driver::HardLink {
        link_root(&directory, image)?;
        return Ok(Root::Directory(root));
    }
    let method = if driver == Driver::Reflink { Method::Reflink } else { Method::Copy };
    // Made under another name and renamed, so that a half-made root is never used. The new name is
    // in the same directory, since a directory that its owner may not write to can be renamed but
    // not moved.
    sys::fs::remove_tree(&directory, b"ROOT.new")?;
    flatten::flatten_as(&image.layers, &directory, "ROOT.new", "owners.new", method)?;
    // The same must hold after a power failure: the name must not reach the disk before the copies
    // do.
    rustix::fs::syncfs(&directory).map_err(|errno| Error::disk("sync", ROOT.as_bytes(), errno))?;
    rename(&directory, "owners.new", ROOT_OWNERS)?;
    rename(&directory, "ROOT.new", ROOT)?;
    Ok(Root::Directory(root))
}

/// Makes the root as hard links to a tree in the form of [`crate::owner_xattrs`], with its inode
/// list and its records of inodes without attributes.
fn link_root(container: &OwnedFd, image: &ImageTrees) -> Result<(), Error> {
    let [tree] = &image.layers[..] else {
        return Err(Error::Driver {
            driver: Driver::HardLink.name(),
            why: "the image was not flattened".into(),
        });
    };
    sys::fs::remove_tree(container, b"ROOT.new")?;
    let source = open(&tree.tree())?;
    let linked = crate::linked::link_tree(&source, container, "ROOT.new")?;
    let beside = open(&tree.directory)?;
    for (name, wanted) in [(INODES, linked.links > 0), (BY_PATH, true), (ROOT_OWNERS, false)] {
        sys::fs::remove_tree(container, name.as_bytes())?;
        if wanted {
            crate::linked::share_file(&beside, container, name)?;
        }
    }
    rename(container, "ROOT.new", ROOT)
}

/// Makes an overlay's directories above a container's whole tree.
pub fn prepare_stacked(container: &Path) -> Result<Root, Error> {
    let directory = open(container)?;
    make_directory(&directory, "work")?;
    if rustix::fs::statat(&directory, "upper", AtFlags::SYMLINK_NOFOLLOW).is_err() {
        upper_like(&directory, &open(&container.join(ROOT))?, |_| Ok(()))?;
    }
    Ok(Root::Stacked {
        directory: container.join(ROOT),
        upper: container.join("upper"),
        work: container.join("work"),
        volatile: true,
    })
}

/// Makes the upper directory above an image's tree.
fn prepare_layered(
    container: &Path,
    directory: &OwnedFd,
    image: &ImageTrees,
) -> Result<Root, Error> {
    let [tree] = &image.layers[..] else {
        return Err(Error::Driver {
            driver: Driver::Layered.name(),
            why: "the image was not flattened".into(),
        });
    };
    make_directory(directory, "work")?;
    if rustix::fs::statat(directory, "upper", AtFlags::SYMLINK_NOFOLLOW).is_err() {
        let top = open(&tree.tree())?;
        upper_like(directory, &top, |upper| merged_top(&top, upper))?;
        crate::linked::share_file(&open(&tree.directory)?, directory, BY_PATH)?;
    }
    Ok(Root::Overlay {
        lowers: vec![tree.tree()],
        upper: container.join("upper"),
        work: container.join("work"),
        volatile: true,
    })
}

/// Gives a container's directory the table of records that the inodes of its image's tree do not
/// carry.
pub fn share_records(container: &Path, image: &ImageTrees) -> Result<(), Error> {
    let [tree] = &image.layers[..] else { return Ok(()) };
    let directory = open(container)?;
    match rustix::fs::unlinkat(&directory, BY_PATH, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(Error::disk("remove", BY_PATH.as_bytes(), errno)),
    }
    crate::linked::share_file(&open(&tree.directory)?, &directory, BY_PATH)
}

/// Makes the upper directory with the attributes, mode and time of a tree's top.
fn upper_like(
    container: &OwnedFd,
    top: &OwnedFd,
    finish: impl FnOnce(&OwnedFd) -> Result<(), Errno>,
) -> Result<(), Error> {
    let fail = |errno| Error::disk("stat", ROOT.as_bytes(), errno);
    sys::fs::remove_tree(container, b"upper.new")?;
    make_directory(container, "upper.new")?;
    let stat = rustix::fs::fstat(top).map_err(fail)?;
    let upper = rustix::fs::openat(container, "upper.new", sys::fs::DIRECTORY, Mode::empty())
        .map_err(fail)?;
    crate::owner_xattrs::copy_attributes(top, &upper, b"", |name| name.starts_with(b"user."))?;
    sys::fs::chmod_fd(&upper, stat.st_mode & 0o7777).map_err(fail)?;
    finish(&upper).map_err(fail)?;
    let mtime = (stat.st_mtime, stat.st_mtime_nsec as u32);
    rustix::fs::futimens(&upper, &crate::apply::times(mtime)).map_err(fail)?;
    rename(container, "upper.new", "upper")
}

/// The attribute of a directory that is merged with one of the image: the number of that.
pub(crate) const ORIGIN: &[u8] = b"user.coracle.origin";

/// Has the top of an upper directory show the number of the image's, as each directory that is in
/// both does: see `view::identity::record`.
fn merged_top(top: &OwnedFd, upper: &OwnedFd) -> Result<(), Errno> {
    let stat = rustix::fs::fstat(top)?;
    let name = crate::owners::OWNER_XATTR;
    if sys::fs::xattr::get(upper, name)?.is_none() {
        let record = format!("0:0:{:o}:d:0:0", stat.st_mode & 0o777);
        sys::fs::xattr::set(upper, name, record.as_bytes())?;
    }
    sys::fs::xattr::set(upper, ORIGIN, stat.st_ino.to_string().as_bytes())?;
    sys::fs::chmod_fd(upper, stat.st_mode & 0o777 | crate::owner_xattrs::MARK)
}

/// Makes the upper directory. Overlay shows its attributes as those of `/`, so it gets the image's.
fn make_upper(container: &impl rustix::fd::AsFd, image: &ImageTrees) -> Result<(), Error> {
    sys::fs::remove_tree(container, b"upper.new")?;
    make_directory(container, "upper.new")?;
    let layer = image.layers.iter().find(|layer| layer.meta.has_root).or(image.layers.last());
    if let Some(layer) = layer {
        let fail = |step, errno| Error::disk(step, b"upper", errno);
        let upper = rustix::fs::openat(container, "upper.new", sys::fs::DIRECTORY, Mode::empty())
            .map_err(|errno| fail("open directory", errno))?;
        let stat = rustix::fs::stat(layer.tree()).map_err(|errno| fail("stat", errno))?;
        let mut mode = stat.st_mode & 0o7777;
        let mut shown = None;
        if layer.meta.records > 0
            && let Some(record) = layer.owners()?.get(b"").cloned()
        {
            // A reader of the layer may have widened the mode on disk for a moment.
            if crate::unlock::locks_out(record.kind, record.mode) {
                mode = record.mode;
            }
            // If this cannot be stored, the root directory belongs to root.
            let text = record.to_xattr();
            if !crate::unlock::is_mode_only(&record) {
                match sys::fs::xattr::set(&upper, crate::owners::OWNER_XATTR, text.as_bytes()) {
                    Ok(()) | Err(Errno::OPNOTSUPP) => {}
                    Err(errno) => return Err(fail("store the owner of", errno)),
                }
            }
            shown = Some(record).filter(|_| image.owner_layer.as_deref().is_some_and(is_marked));
        }
        sys::fs::chmod_fd(&upper, mode).map_err(|errno| fail("set the mode of", errno))?;
        if let Some(record) = shown {
            crate::owner_xattrs::write(&upper, b"upper", mode, &record)?;
        }
        let mtime = (stat.st_mtime, stat.st_mtime_nsec as u32);
        rustix::fs::futimens(&upper, &crate::apply::times(mtime))
            .map_err(|errno| fail("set the time of", errno))?;
    }
    rename(container, "upper.new", "upper")
}

/// Whether the top of a tree has a record that is shown.
fn is_marked(tree: &Path) -> bool {
    let Ok(top) = open(tree) else { return false };
    let has_record =
        || matches!(sys::fs::xattr::get(&top, crate::owners::OWNER_XATTR), Ok(Some(_)));
    rustix::fs::fstat(&top).is_ok_and(|stat| stat.st_mode & crate::owner_xattrs::MARK != 0)
        && has_record()
}

fn open(path: &Path) -> Result<rustix::fd::OwnedFd, Error> {
    rustix::fs::openat(CWD, path, sys::fs::DIRECTORY, Mode::empty())
        .map_err(|errno| Error::disk("open directory", path.as_os_str().as_bytes(), errno))
}

fn make_directory(directory: &impl rustix::fd::AsFd, name: &str) -> Result<(), Error> {
    match rustix::fs::mkdirat(directory, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(Error::disk("make directory", name.as_bytes(), errno)),
    }
}

fn rename(directory: &impl rustix::fd::AsFd, old: &str, new: &str) -> Result<(), Error> {
    rustix::fs::renameat(directory, old, directory, new)
        .map_err(|errno| Error::disk("rename", old.as_bytes(), errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_driver_that_works() {
        let all = Facts {
            overlay: true,
            fuse_overlay: true,
            user_xattr: true,
            whiteout: true,
            reflink: true,
            network_fs: false,
        };
        assert_eq!(choose(&all).0, Driver::Overlay);
        assert_eq!(choose(&Facts { user_xattr: false, ..all }).0, Driver::FuseOverlay);
        let none = Facts { overlay: false, fuse_overlay: false, ..all };
        let (driver, passed) = choose(&none);
        assert_eq!(driver, Driver::Reflink);
        assert_eq!(passed.len(), 2);
        assert_eq!(choose(&Facts::default()).0, Driver::Copy);
    }
}
