//! Mount trees as descriptors.
//!
//! [`open_tree(2)`](https://man7.org/linux/man-pages/man2/open_tree.2.html) copies a tree of mounts
//! without attaching it,
//! [`mount_setattr(2)`](https://man7.org/linux/man-pages/man2/mount_setattr.2.html) changes it, and
//! [`move_mount(2)`](https://man7.org/linux/man-pages/man2/move_mount.2.html) attaches it. A copy
//! is made before the root changes and attached afterwards, so the source is a path of the host,
//! the target is one of the container, and no path mixes both.
//!
//! [`points_within`] reads what is mounted already.

use crate::raw;
use linux_raw_sys::general as numbers;
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags};
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Attributes of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes(u64);

impl Attributes {
    /// No attribute.
    pub const NONE: Self = Self(0);
    /// Read-only.
    pub const READ_ONLY: Self = Self(numbers::MOUNT_ATTR_RDONLY as u64);
    /// Setuid bits have no effect.
    pub const NOSUID: Self = Self(numbers::MOUNT_ATTR_NOSUID as u64);
    /// Device nodes do not work.
    pub const NODEV: Self = Self(numbers::MOUNT_ATTR_NODEV as u64);
    /// Programs cannot be executed.
    pub const NOEXEC: Self = Self(numbers::MOUNT_ATTR_NOEXEC as u64);

    /// The union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if no attribute is set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Copies a file or directory with every mount beneath it. Needs 5.2.
pub fn copy_tree(source: &Path) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    rustix::mount::open_tree(rustix::fs::CWD, source, flags)
}

/// As [`copy_tree`], with a path relative to a directory.
pub fn copy_tree_at(directory: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    rustix::mount::open_tree(directory, path, flags)
}

/// Copies the tree of mounts of a descriptor.
pub fn copy_of(source: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let empty = OpenTreeFlags::from_bits_retain(numbers::AT_EMPTY_PATH);
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | empty;
    rustix::mount::open_tree(source, "", flags)
}

/// Attaches a copy; symbolic links in `target` are followed.
pub fn attach(tree: BorrowedFd<'_>, target: &Path) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
    rustix::mount::move_mount(tree, "", rustix::fs::CWD, target, flags)
}

/// Adds attributes to a tree of mounts. Needs 5.12.
pub fn set_attributes(
    tree: BorrowedFd<'_>,
    attributes: Attributes,
    recursive: bool,
) -> Result<(), Errno> {
    set(tree, attributes, 0, recursive)
}

/// Makes a tree of mounts private: later mounts in the tree that it was copied from do not
/// propagate to it. Needs 5.12.
pub fn make_private(tree: BorrowedFd<'_>) -> Result<(), Errno> {
    set(tree, Attributes::NONE, u64::from(numbers::MS_PRIVATE), true)
}

fn set(
    tree: BorrowedFd<'_>,
    attributes: Attributes,
    propagation: u64,
    recursive: bool,
) -> Result<(), Errno> {
    let attr =
        numbers::mount_attr { attr_set: attributes.0, attr_clr: 0, propagation, userns_fd: 0 };
    let mut flags = numbers::AT_EMPTY_PATH;
    if recursive {
        flags |= numbers::AT_RECURSIVE;
    }
    let path = c"";
    // SAFETY: `path` is a NUL-terminated string, and `attr` is live and has the given size.
    unsafe {
        raw::call(
            numbers::__NR_mount_setattr,
            [
                tree.as_raw_fd() as usize,
                path.as_ptr() as usize,
                flags as usize,
                &raw const attr as usize,
                size_of::<numbers::mount_attr>(),
            ],
        )
    }
    .map(drop)
}

/// Opens a file through a mount of its own that is read-only and in no mount namespace. The
/// descriptor is for execution, or for opening through `/proc`. Needs 5.12, and user namespaces.
///
/// Copying a mount needs the privilege to mount, so a child does it that has its own user and mount
/// namespaces and shares the descriptor table.
pub fn read_only_apart(file: &Path) -> Result<OwnedFd, Errno> {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    // The number that the child gives to the copy.
    let mut place = rustix::fs::open("/", flags, rustix::fs::Mode::empty())?;
    let kinds = numbers::CLONE_NEWUSER | numbers::CLONE_NEWNS | numbers::CLONE_FILES;
    crate::fork::in_clone(kinds, || {
        let tree = copy_tree(file)?;
        set_attributes(tree.as_fd(), Attributes::READ_ONLY, true)?;
        rustix::io::dup3(&tree, &mut place, rustix::io::DupFlags::CLOEXEC)
    })?;
    Ok(place)
}

/// Returns true if the kernel has [`set_attributes`]: with no attributes to set it accesses no
/// file.
pub fn has_set_attributes() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        set_attributes(rustix::fs::CWD, Attributes::NONE, false) != Err(Errno::NOSYS)
    })
}

/// Creates a detached file system of the kernel's, such as tmpfs.
pub fn new_filesystem(
    kind: &str,
    options: &[(&str, &str)],
    attributes: Attributes,
) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(kind, rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        if value.is_empty() {
            rustix::mount::fsconfig_set_flag(context.as_fd(), *key)?;
        } else {
            rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value)?;
        }
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    let flags = rustix::mount::FsMountFlags::FSMOUNT_CLOEXEC;
    let attributes = rustix::mount::MountAttrFlags::from_bits_retain(attributes.0 as u32);
    rustix::mount::fsmount(context.as_fd(), flags, attributes)
}

/// The mount points at and below a directory in this mount namespace, in the order in which they
/// were mounted. `directory` must have no symbolic links.
///
/// The table is read, and no mounted file system is asked: one whose server does not answer would
/// make this process wait.
/// [proc_pid_mountinfo(5)](https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html)
pub fn points_within(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    let fields = table.split(|b| *b == b'\n').filter_map(|l| l.split(|b| *b == b' ').nth(4));
    let points = fields.map(|field| PathBuf::from(OsString::from_vec(unescaped(field))));
    Ok(points.filter(|point| point.starts_with(directory)).collect())
}

/// Mountinfo writes spaces and the like as three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < field.len() {
        let digits = field.get(at + 1..at + 4).filter(|_| field[at] == b'\\');
        let code = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        out.push(code.unwrap_or(field[at]));
        at += if code.is_some() { 4 } else { 1 };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_fields_are_decoded() {
        assert_eq!(unescaped(b"/a\\040b\\134"), b"/a b\\");
        assert_eq!(unescaped(b"/plain\\"), b"/plain\\");
        let points = points_within(Path::new("/proc")).unwrap();
        assert_eq!(points.first().map(PathBuf::as_path), Some(Path::new("/proc")));
    }
}
