//! Tests of trees of hard links and their copies, made by several threads.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::common::Place;

/// Every path of a tree with kind, mode, time, and link target.
fn lines(tree: &Path) -> Vec<String> {
    let (mut lines, mut stack) = (Vec::new(), vec![tree.to_owned()]);
    while let Some(path) = stack.pop() {
        let found = path.symlink_metadata().unwrap();
        let below = path.strip_prefix(tree).unwrap().display();
        let target = fs::read_link(&path).unwrap_or_default();
        let (mode, time) = (found.mode(), found.mtime());
        lines.push(format!("{below} {mode:o} {time} {}", target.display()));
        if found.is_dir() {
            stack.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    lines.sort();
    lines
}

/// Makes directories at every depth where the work is divided and below, some without write
/// permission; one file has names in several of them.
fn tree(top: &Path) -> Vec<PathBuf> {
    let mut directories = vec![top.to_owned()];
    for (depth, count) in [(1, 3), (2, 3), (3, 3), (4, 2), (5, 1)] {
        for above in directories.clone() {
            if above.strip_prefix(top).unwrap().components().count() + 1 == depth {
                directories.extend((0..count).map(|number| above.join(format!("d{number}"))));
            }
        }
    }
    let first = top.join("d0/d1/d2/d1/first");
    for directory in &directories {
        fs::create_dir_all(directory).unwrap();
    }
    fs::write(&first, "of many names").unwrap();
    for (number, directory) in directories.iter().enumerate() {
        fs::write(directory.join("file"), number.to_string()).unwrap();
        symlink("file", directory.join("link")).unwrap();
        fs::hard_link(&first, directory.join("again")).unwrap();
    }
    for (number, directory) in directories.iter().enumerate().rev() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + number as u64);
        let file = File::open(directory).unwrap();
        file.set_modified(time).unwrap();
        let mode = if number % 3 == 1 { 0o555 } else { 0o751 };
        file.set_permissions(Permissions::from_mode(mode)).unwrap();
    }
    directories
}

/// Restores permissions so that the tree can be removed by its owner.
fn open_up(tree: &Path, directories: &[PathBuf], top: &Path) {
    for directory in directories {
        let copy = tree.join(directory.strip_prefix(top).unwrap());
        fs::set_permissions(copy, Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn a_tree_of_links_is_the_same_tree() {
    let place = Place::new();
    let (source, container) = (place.fresh(), place.fresh());
    let directories = tree(&source);
    let open = |path: &Path| File::open(path).unwrap();
    let linked = rootfs::linked::link_tree(open(&source), open(&container), "ROOT").unwrap();
    let made = container.join("ROOT");
    assert_eq!(lines(&made), lines(&source));
    assert_eq!((linked.links, linked.copies), (2 * directories.len() as u64 + 1, 0));
    let inode = |path: PathBuf| path.metadata().unwrap().ino();
    assert_eq!(inode(made.join("d2/file")), inode(source.join("d2/file")));
    // The container's own file is copied; its further names are links to the copy.
    let clone = place.fresh();
    let cloned = rootfs::linked::clone_tree(open(&container), open(&clone)).unwrap();
    let copy = clone.join("ROOT");
    assert_eq!(lines(&copy), lines(&source));
    assert_eq!((cloned.links, cloned.copies), (0, directories.len() as u64 + 1));
    let again: Vec<u64> = directories
        .iter()
        .map(|directory| inode(copy.join(directory.strip_prefix(&source).unwrap()).join("again")))
        .collect();
    assert!(again.iter().all(|inode| *inode == again[0]), "{again:?}");
    assert_ne!(again[0], inode(source.join("again")));
    for tree in [&source, &made, &copy] {
        open_up(tree, &directories, &source);
    }
}

#[test]
fn an_unreadable_file_is_reported_and_ends_all_threads() {
    let place = Place::new();
    let (source, container) = (place.fresh(), place.fresh());
    let directories = tree(&source);
    let closed = source.join("d1/d1/d1/d0");
    fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
    let done = rootfs::linked::link_tree(
        File::open(&source).unwrap(),
        File::open(&container).unwrap(),
        "ROOT",
    );
    if !rustix::process::geteuid().is_root() {
        assert!(done.unwrap_err().to_string().contains("d1/d1/d1/d0"));
    }
    fs::set_permissions(&closed, Permissions::from_mode(0o755)).unwrap();
    open_up(&source, &directories, &source);
}
