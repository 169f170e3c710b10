//! Owners of files that cannot carry an attribute: symbolic links, pipes and sockets.
//!
//! They are lines of the ownership table in the container's directory, which has the form of
//! `rootfs::owners` and is read by `export`, `commit` and `cp`. Lines are only ever added here, the
//! last one for a path counts, and a lock keeps several notifiers apart. A path is a weaker name
//! than an inode: a link that is renamed afterwards belongs to root again, and a line whose path
//! has become something else is passed over by the reader.

use crate::plan::{Plan, Root};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// First line of a table.
const MAGIC: &[u8] = b"coracle-owners 1\n";

/// The name of a container's table, in its directory: beside the upper directory or beside the
/// whole tree. A tree that is somebody else's (`--rootfs`) has none.
pub(super) fn name(plan: &Plan) -> Option<&'static str> {
    match &plan.root {
        Root::Overlay { upper, .. } if upper.parent() == Some(&*plan.place) => Some("upper.owners"),
        Root::Directory { path } if path.parent() == Some(&*plan.place) => Some("owners"),
        _ => None,
    }
}

/// Adds a record. `path` is relative to the container's root.
pub(super) fn add(
    directory: &OwnedFd,
    name: &str,
    path: &[u8],
    (kind, mode): (char, u32),
    (uid, gid): (u32, u32),
) -> Result<(), Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let table = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o644))?;
    rustix::fs::flock(&table, FlockOperation::LockExclusive)?;
    let mut text = Vec::new();
    if rustix::fs::fstat(&table)?.st_size == 0 {
        text.extend(MAGIC);
    }
    text.extend(format!("{kind} {:04o} {uid} {gid} - - ", mode & 0o7777).bytes());
    for byte in path {
        match byte {
            b'\\' => text.extend(b"\\\\"),
            b'\n' => text.extend(b"\\n"),
            byte => text.push(*byte),
        }
    }
    text.push(b'\n');
    rustix::io::write(&table, &text).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_begins_with_its_first_line() {
        let dir = tempfile::tempdir().unwrap();
        let open = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(dir.path(), open, Mode::empty()).unwrap();
        add(&fd, "t", b"a/b", ('l', 0o777), (33, 44)).unwrap();
        add(&fd, "t", b"c\nd\\", ('p', 0o10644), (1, 2)).unwrap();
        assert_eq!(
            std::fs::read_to_string(dir.path().join("t")).unwrap(),
            "coracle-owners 1\nl 0777 33 44 - - a/b\np 0644 1 2 - - c\\nd\\\\\n"
        );
    }
}
