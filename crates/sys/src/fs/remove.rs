//! Deletes a tree.
//!
//! One loop without recursion handles any depth. Directories that forbid their owner to read or
//! change them get `u+rwx` first. Links are deleted, never followed; a mount inside the tree stops
//! the work with `EXDEV`.

use super::{DirStack, Error, Kind, open_dir_force, read_dir, stat};
use rustix::fd::AsFd;
use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;

/// Deletes `name` in `dir`, whatever its kind. No error if it is missing.
pub fn remove_tree(dir: impl AsFd, name: &[u8]) -> Result<(), Error> {
    let dir = dir.as_fd();
    match fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(Error::new("delete", name, errno)),
    }
    // unlink(2) on a directory gives EISDIR on Linux, but EPERM also means that the file may not be
    // deleted.
    let found = stat(dir, name).map_err(|errno| Error::new("stat", name, errno))?;
    if Kind::from_raw_mode(found.st_mode) != Kind::Directory {
        return Err(Error::new("delete", name, Errno::PERM));
    }
    match fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        Err(errno) => return Err(Error::new("delete directory", name, errno)),
    }
    let top =
        open_dir_force(dir, name).map_err(|errno| Error::new("open directory", name, errno))?;
    let parent = fs::fstat(dir).map_err(|errno| Error::new("stat", b".", errno))?;
    let mut stack = DirStack::new(top)?;
    if stack.root_id().0 != parent.st_dev {
        return Err(Error::new("delete (a file system is mounted there)", name, Errno::XDEV));
    }
    empty(&mut stack)?;
    match fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(Error::new("delete directory", name, errno)),
    }
}

fn empty(stack: &mut DirStack) -> Result<(), Error> {
    let device = stack.root_id().0;
    let mut pending: Vec<Vec<Vec<u8>>> = vec![clear_files(stack)?];
    while let Some(directories) = pending.last_mut() {
        let Some(name) = directories.pop() else {
            pending.pop();
            if let Some(name) = stack.leave()? {
                rmdir(stack, &name)?;
            }
            continue;
        };
        match fs::unlinkat(stack.fd(), &name[..], AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => {
                return Err(Error::new("delete directory", &stack.path_of(&name), errno));
            }
        }
        let fd = open_dir_force(stack.fd(), &name)
            .map_err(|errno| Error::new("open directory", &stack.path_of(&name), errno))?;
        let found =
            fs::fstat(&fd).map_err(|errno| Error::new("stat", &stack.path_of(&name), errno))?;
        if found.st_dev != device {
            let path = stack.path_of(&name);
            return Err(Error::new("delete (a file system is mounted there)", &path, Errno::XDEV));
        }
        stack.enter_fd(&name, fd)?;
        pending.push(clear_files(stack)?);
    }
    Ok(())
}

fn rmdir(stack: &DirStack, name: &[u8]) -> Result<(), Error> {
    match fs::unlinkat(stack.fd(), name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(Error::new("delete directory", &stack.path_of(name), errno)),
    }
}

/// Deletes everything but directories in the current directory and returns the names of those.
fn clear_files(stack: &DirStack) -> Result<Vec<Vec<u8>>, Error> {
    let fd = stack.fd();
    let fail = |step, errno| Error::new(step, &stack.path(), errno);
    let mode = fs::fstat(fd).map_err(|errno| fail("stat", errno))?.st_mode & 0o7777;
    if mode & 0o700 != 0o700 {
        // If this is refused (another owner), the deletions below fail with their own errno.
        let _ = fs::fchmod(fd, Mode::from_raw_mode(mode | 0o700));
    }
    let mut directories = Vec::new();
    for entry in read_dir(fd).map_err(|errno| fail("read directory", errno))? {
        if entry.kind == Kind::Directory {
            directories.push(entry.name);
            continue;
        }
        match fs::unlinkat(fd, &entry.name[..], AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => directories.push(entry.name),
            Err(errno) => return Err(Error::new("delete", &stack.path_of(&entry.name), errno)),
        }
    }
    Ok(directories)
}
