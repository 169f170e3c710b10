//! Compares the model with the kernel: the same random trees on disk, walked with `openat2` and
//! `RESOLVE_IN_ROOT`.
//!
//! The resolver is compared with the model ([`super::model`]); this test shows that the model is
//! right.

use super::model::{path, seeds};
use crate::Errno;
use crate::testing::tree::{Body, Id, ROOT, Tree, Walk};
use proptest::prelude::*;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, openat2, statat};
use std::collections::BTreeMap;
use std::format;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::string::String;
use std::vec::Vec;

/// The tree on disk, with the inode number of every inode, and the guest paths of its directories.
struct OnDisk {
    root: OwnedFd,
    inodes: BTreeMap<Id, u64>,
    dirs: Vec<(Id, String)>,
}

fn write(tree: &Tree, top: &Path) -> OnDisk {
    let root = rustix::fs::open(top, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let mut disk = OnDisk { root, inodes: BTreeMap::new(), dirs: Vec::new() };
    let mut todo = Vec::from([(ROOT, String::new())]);
    while let Some((id, path)) = todo.pop() {
        let at = top.join(path.trim_start_matches('/'));
        match &tree.nodes[id].body {
            Body::Dir(names) => {
                if id != ROOT {
                    std::fs::create_dir(&at).unwrap();
                }
                for (name, id) in names {
                    todo.push((*id, format!("{path}/{}", str::from_utf8(name).unwrap())));
                }
                disk.dirs.push((id, path));
            }
            Body::Link(target) => {
                std::os::unix::fs::symlink(str::from_utf8(target).unwrap(), &at).unwrap();
            }
            _ => std::fs::write(&at, "").unwrap(),
        }
        let stat = statat(rustix::fs::CWD, &at, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        disk.inodes.insert(id, stat.st_ino);
    }
    disk.dirs.sort();
    disk
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_model_walks_as_the_kernel(seeds in seeds(), start in 0..9_usize, paths in prop::collection::vec(path(), 1..30)) {
        let tree = super::model::setup(&seeds).model;
        let top = tempfile::tempdir().unwrap();
        let disk = write(&tree, top.path());
        let (start, prefix) = disk.dirs[start % disk.dirs.len()].clone();
        for path in &paths {
            for follow in [true, false] {
                let flags = OFlags::PATH | if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
                // The directory to start from is its own root for openat2, so it is named.
                let named = if path.starts_with('/') { path.clone() } else { format!("{prefix}/{path}") };
                // EAGAIN: a process on this machine renamed or mounted something while the kernel
                // took a `..`.
                let ask = || openat2(&disk.root, &named, flags, Mode::empty(), ResolveFlags::IN_ROOT);
                let is_answer = |result: &Result<_, _>| !matches!(result, Err(rustix::io::Errno::AGAIN));
                let kernel = std::iter::repeat_with(ask).take(1000).find(is_answer).unwrap();
                if kernel.as_ref().is_err_and(|errno| *errno == rustix::io::Errno::NOSYS) {
                    std::eprintln!("skipped: no openat2 here");
                    return Ok(());
                }
                let kernel = kernel
                    .map(|fd| rustix::fs::fstat(&fd).unwrap().st_ino)
                    .map_err(|errno| Errno(u16::try_from(errno.raw_os_error()).unwrap()));
                let how = Walk { follow, ..Walk::default() };
                let model = tree.walk(start, path.as_bytes(), how);
                let model = model.and_then(|found| found.node.ok_or(Errno::ENOENT));
                prop_assert_eq!(model.map(|id| disk.inodes[&id]), kernel, "{}", path);
            }
        }
    }
}
