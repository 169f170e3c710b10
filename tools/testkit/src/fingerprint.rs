//! Everything of the files below a directory that a program could change, to compare it before and
//! after: contents, type, mode, owner, size, time, inode, device numbers, attributes and flags.
//!
//! Left out: times of reading; and the number of links with the time of the inode's change, because
//! engines give a file of an image more names outside its tree, and read-only for all.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// What is known of each path below `root`. Files that disappear meanwhile are left out.
pub fn of(root: &Path) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    let mut stack = vec![root.to_owned()];
    while let Some(dir) = stack.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            seen.insert(path.display().to_string(), facts(&path, &meta));
            if meta.is_dir() {
                stack.push(path);
            }
        }
    }
    seen
}

fn facts(path: &Path, meta: &Metadata) -> String {
    let contents = match () {
        () if meta.is_file() => {
            fs::read(path).map(|bytes| crate::image::digest(&bytes)).unwrap_or_default()
        }
        () if meta.is_symlink() => {
            fs::read_link(path).map(|link| link.display().to_string()).unwrap_or_default()
        }
        () => String::new(),
    };
    let size = if meta.is_dir() { 0 } else { meta.size() };
    format!(
        "{:o} {}:{} inode {} device {} size {size} time {}.{:09} flags {:x} {:?} {contents}",
        meta.mode(),
        meta.uid(),
        meta.gid(),
        meta.ino(),
        meta.rdev(),
        meta.mtime(),
        meta.mtime_nsec(),
        flags(path, meta),
        attributes(path),
    )
}

/// What `lsattr` shows; 0 where there is nothing of that.
fn flags(path: &Path, meta: &Metadata) -> u32 {
    if !meta.is_file() && !meta.is_dir() {
        return 0;
    }
    let file = fs::File::open(path).ok();
    file.and_then(|file| rustix::fs::ioctl_getflags(file).ok()).map_or(0, |flags| flags.bits())
}

/// The extended attributes that the caller may see.
pub fn attributes(path: &Path) -> BTreeMap<String, String> {
    let mut names = [0; 4096];
    let length = rustix::fs::llistxattr(path, &mut names).unwrap_or(0);
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let name = String::from_utf8_lossy(name).into_owned();
            let mut value = [0; 4096];
            let length = rustix::fs::lgetxattr(path, name.as_str(), &mut value).unwrap_or(0);
            (name, String::from_utf8_lossy(&value[..length]).into_owned())
        })
        .collect()
}
