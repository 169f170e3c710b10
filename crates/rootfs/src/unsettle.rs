//! Gives the files of an upper directory their true owners and modes, for a kernel that shows what
//! is on the disk: the opposite of [`crate::settle`].
//!
//! The caller may give files to all ids of the container. Each file keeps its record until it has
//! what the record says, so an interrupted conversion is started again, or taken back by the other
//! one. Devices stay placeholders with records.

use crate::drivers::ORIGIN;
use crate::error::Error;
use crate::owner_xattrs::MARK;
use crate::owners::{FileKind, OWNER_XATTR, Record};
use crate::union::{IdMap, Stack, is_special, open_tree, walk};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Gid, Uid};
use std::path::Path;
use sys::fs::resolve::split;

/// Converts the upper directory of a container's directory. No process may run in the container.
/// The tables beside it have the owners of links, pipes and sockets.
pub fn unsettle(container: &Path) -> Result<(), Error> {
    let upper = container.join("upper");
    let own = Stack::upper(&upper, None, &IdMap::identity())?;
    let top = open_tree(&upper)?;
    let mut directories = vec![Vec::new()];
    walk(&own, |path, merged| {
        let (parent, name) = split(path);
        match merged.kind {
            // After what is in it, which its mode may forbid to reach.
            FileKind::Directory => directories.push(path.to_vec()),
            FileKind::File => {
                let (facts, fd) = own.open(0, &own.open_dir(0, parent)?, path, name)?;
                if let Some(fd) = fd {
                    inode(&fd, path, &facts.record)?;
                }
            }
            kind if is_special(kind) => {
                let dir = own.open_dir(0, parent)?;
                let (facts, _) = own.open(0, &dir, path, name)?;
                let (user, group) = ids(&facts.record);
                rustix::fs::chownat(&dir, name, user, group, AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(|errno| Error::disk("set the owner of", path, errno))?;
            }
            _ => {}
        }
        Ok(true)
    })?;
    for path in directories.iter().rev() {
        let fd = if path.is_empty() { crate::copy::reopen(&top)? } else { own.open_dir(0, path)? };
        let stat = rustix::fs::fstat(&fd).map_err(|errno| Error::disk("stat", path, errno))?;
        inode(&fd, path, &own.facts(0, path, &stat, Some(&fd))?.record)?;
    }
    Ok(())
}

fn ids(record: &Record) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(record.uid)), Some(Gid::from_raw(record.gid)))
}

/// Gives a file or directory what its record says.
fn inode(fd: &OwnedFd, path: &[u8], record: &Record) -> Result<(), Error> {
    let fail = |step, errno| Error::disk(step, path, errno);
    let has = |name| sys::fs::xattr::get(fd, name).map(|value| value.is_some());
    let is_recorded = has(OWNER_XATTR).map_err(|errno| fail("read an attribute of", errno))?;
    if !is_recorded || matches!(record.kind, FileKind::Char | FileKind::Block) {
        return Ok(());
    }
    let (user, group) = ids(record);
    rustix::fs::fchown(fd, user, group).map_err(|errno| fail("set the owner of", errno))?;
    // Without meaning for files, and the mark of the other form.
    let sticky = if record.kind == FileKind::File { MARK } else { 0 };
    sys::fs::chmod_fd(fd, record.mode & !sticky).map_err(|errno| fail("set the mode of", errno))?;
    for name in [ORIGIN, OWNER_XATTR] {
        if has(name).map_err(|errno| fail("read an attribute of", errno))? {
            sys::fs::xattr::remove(fd, name)
                .map_err(|errno| fail("remove an attribute of", errno))?;
        }
    }
    Ok(())
}
