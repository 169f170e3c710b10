//! How starts and paths become calls, and what is done where newer calls are missing.

use super::fake::{Fault, Process};
use super::machine::{Kind, Machine};
use crate::at::from_root;
use crate::kernel::{CWD, Feature, Kernel};
use crate::{Files, layout};
use abi::layout::stat::EMPTY_STATX;
use core::ffi::CStr;
use linux_raw_sys::general::{
    AT_SYMLINK_NOFOLLOW, O_CREAT, O_DIRECTORY, O_NOFOLLOW, O_PATH, O_RDONLY, RESOLVE_NO_SYMLINKS,
};
use std::borrow::ToOwned;
use std::vec::Vec;
use view::errno::Result;
use view::{Dir, Errno, HostFd, Text};

/// A file, and a link to it.
fn files() -> Files<Process> {
    let mut machine = Machine::new();
    machine.directory("/tree");
    machine.file("/tree/file", b"text");
    machine.make(1, "/tree/link", Kind::Link("file".into()), 0o777).unwrap();
    Files { process: Process::new(machine) }
}

impl Files<Process> {
    fn inode(&self, dir: Dir, path: &CStr, flags: u32) -> Result<u64> {
        let mut status = EMPTY_STATX;
        self.statx(dir, path, flags, &mut status).map(|()| status.stx_ino)
    }

    /// The calls since the last time.
    fn calls(&self) -> Vec<&'static str> {
        self.process.calls.take()
    }

    fn number(&self, path: &str) -> u64 {
        self.process.machine().at(path).unwrap()
    }

    /// A descriptor of the guest's.
    fn guest(&self, path: &str) -> i32 {
        let mut machine = self.process.machine();
        let inode = machine.at(path).unwrap();
        self.process.hold(&mut machine, inode).0
    }
}

#[test]
fn every_start_is_one_call() {
    for is_own in [true, false] {
        let mut files = files();
        files.process.is_own = is_own;
        let right = files.number("/tree/file");
        let (file, directory) = (files.guest("/tree/file"), files.guest("/tree"));
        for (dir, path) in [
            (Dir::Root, c"/tree/link"),
            (Dir::Guest(directory), c"link"),
            (Dir::Guest(file), c""),
            (Dir::Held(HostFd(directory)), c"link"),
            (Dir::Held(HostFd(file)), c""),
            // An absolute path starts at the root, whatever the descriptor is.
            (Dir::Guest(-1), c"/tree/file"),
        ] {
            assert_eq!(files.inode(dir, path, 0), Ok(right), "{dir:?} {path:?}");
            assert_eq!(files.calls(), ["statx"], "{dir:?} {path:?}");
        }
        let link = files.inode(Dir::Guest(directory), c"link", AT_SYMLINK_NOFOLLOW);
        assert_eq!(link, Ok(files.number("/tree/link")));
    }
}

#[test]
fn a_descriptor_that_is_not_open_is_told_from_a_missing_file() {
    for is_own in [true, false] {
        let mut files = files();
        files.process.is_own = is_own;
        let directory = files.guest("/tree");
        for closed in [Dir::Guest(99), Dir::Guest(-1), Dir::Held(HostFd(99))] {
            for path in [c"", c"file"] {
                let opened = files.open(closed, path, O_PATH, 0, 0);
                assert_eq!(opened, Err(Errno::EBADF), "{closed:?} {path:?}");
                assert_eq!(files.inode(closed, path, 0), Err(Errno::EBADF));
                assert_eq!(files.truncate(closed, path, 0), Err(Errno::EBADF));
                let both = files.rename((Dir::Root, c"/tree/file"), (closed, c"new"), 0);
                assert_eq!(both, Err(Errno::EBADF));
            }
        }
        assert_eq!(files.inode(Dir::Guest(directory), c"none", 0), Err(Errno::ENOENT));
        assert_eq!(files.truncate(Dir::Guest(directory), c"none", 0), Err(Errno::ENOENT));
        assert_eq!(files.inode(Dir::Root, c"", 0), Err(Errno::ENOENT));
        assert_eq!(files.number("/tree/file"), files.number("/tree/file"));
    }
}

#[test]
fn a_magic_link_is_followed_whatever_the_flags_say() {
    for is_own in [true, false] {
        let mut files = files();
        files.process.is_own = is_own;
        let file = Dir::Guest(files.guest("/tree/file"));
        assert!(files.open(file, c"", O_RDONLY | O_NOFOLLOW, 0, 0).is_ok());
        files.access(file, c"", 4, AT_SYMLINK_NOFOLLOW).unwrap();
        files.chmod(file, c"", 0o640).unwrap();
        files.setxattr(file, c"", true, c"user.a", b"value", 0).unwrap();
        let mut value = [0; 8];
        assert_eq!(files.getxattr(file, c"", true, c"user.a", &mut []), Ok(5));
        assert_eq!(files.getxattr(file, c"", true, c"user.a", &mut value), Ok(5));
        assert_eq!(files.listxattr(file, c"", true, &mut value), Ok(7));
        files.removexattr(file, c"", true, c"user.a").unwrap();
        files.link((file, c""), (Dir::Root, c"/tree/second"), 0).unwrap();
        assert_eq!(files.number("/tree/second"), files.number("/tree/file"));
        let machine = files.process.machine();
        assert_eq!(machine.inode(machine.at("/tree/file").unwrap()).mode, 0o640);
    }
}

#[test]
fn a_link_that_is_open_is_read_itself() {
    for is_own in [true, false] {
        let mut files = files();
        files.process.is_own = is_own;
        let link = files.guest("/tree/link");
        let mut text = Text::EMPTY;
        for dir in [Dir::Guest(link), Dir::Held(HostFd(link))] {
            files.readlink(dir, c"", &mut text).unwrap();
            assert_eq!(text.as_bytes(), b"file");
        }
        // What is no link has an error of its own where there is no name.
        let directory = Dir::Guest(files.guest("/tree"));
        assert_eq!(files.readlink(directory, c"", &mut text), Err(Errno::ENOENT));
        assert_eq!(files.readlink(directory, c"file", &mut text), Err(Errno::EINVAL));
        files.process.files.borrow_mut().clear();
        assert_eq!(files.readlink(Dir::Held(HostFd(link)), c"", &mut text), Err(Errno::EBADF));
    }
}

#[test]
fn calls_that_are_not_there_are_replaced_and_not_tried_again() {
    let look = |errno| {
        let mut files = files();
        files.process.fault = Some(Fault::Error(0, errno));
        let inode = files.inode(Dir::Root, c"/tree/file", 0);
        (inode.is_ok(), files.process.lacks(Feature::Statx), files.calls())
    };
    assert_eq!(look(Errno::ENOSYS), (true, true, ["statx", "fstatat"].into()));
    assert_eq!(look(Errno::EPERM), (true, true, ["statx", "fstatat"].into()));
    assert_eq!(look(Errno::EACCES), (false, false, ["statx"].into()));

    let mut files = files();
    files.process.fault = Some(Fault::Always(0, Errno::ENOSYS));
    files.access(Dir::Root, c"/tree/link", 4, 0).unwrap();
    files.access(Dir::Root, c"/tree/link", 4, AT_SYMLINK_NOFOLLOW).unwrap();
    assert_eq!(files.calls(), ["faccessat2", "faccessat", "fstatat"]);
}

#[test]
fn a_refused_openat2_is_told_from_a_refused_file() {
    let resolve = u64::from(RESOLVE_NO_SYMLINKS);
    let open = |fault| {
        let mut files = files();
        files.process.fault = Some(fault);
        let opened = files.open(Dir::Root, c"/tree/file", O_PATH, 0, resolve);
        (opened.err(), files.has_openat2(), files.process.calls.borrow().len())
    };
    assert_eq!(open(Fault::Always(0, Errno::ENOSYS)), (Some(Errno::ENOSYS), false, 1));
    assert_eq!(open(Fault::Always(0, Errno::EPERM)), (Some(Errno::ENOSYS), false, 2));
    // The file's own answer. (The second call and its end are the question.)
    assert_eq!(open(Fault::Error(0, Errno::EPERM)), (Some(Errno::EPERM), true, 3));
    assert_eq!(open(Fault::Error(0, Errno::EAGAIN)), (None, true, 2));
    assert_eq!(open(Fault::Always(0, Errno::EAGAIN)), (Some(Errno::EAGAIN), true, 65));
}

#[test]
fn the_umask_does_not_take_the_owners_rights() {
    let mut files = files();
    files.process.umask = 0o777;
    files.mkdir(Dir::Root, c"/tree/new", 0o755).unwrap();
    files.mknod(Dir::Root, c"/tree/pipe", 0o600).unwrap();
    files.mknod(Dir::Root, c"/tree/none", 0).unwrap();
    let mode = |path| {
        let machine = files.process.machine();
        machine.inode(machine.at(path).unwrap()).mode
    };
    assert_eq!([mode("/tree/new"), mode("/tree/pipe"), mode("/tree/none")], [0o700, 0o600, 0]);
}

#[test]
fn the_trees_descriptor_is_used_while_it_is_there() {
    let files = files();
    let right = files.number("/tree/file");
    let tree = HostFd(files.guest("/tree"));
    files.process.tree.set(Some(tree));
    let used = || from_root(&files.process, c"/tree/file", |dir, path| Ok((dir, path.to_owned())));
    assert_eq!(used(), Ok((tree, c"file".to_owned())));
    assert_eq!(files.inode(Dir::Root, c"/tree/file", 0), Ok(right));
    assert_eq!(files.getxattr(Dir::Root, c"/tree/file", true, c"a", &mut []), Err(Errno::ENODATA));
    files.process.close(tree);
    assert_eq!(files.inode(Dir::Root, c"/tree/file", 0), Ok(right));
    assert_eq!(used(), Ok((CWD, c"/tree/file".to_owned())));
}

#[test]
fn a_memory_file_is_replaced_by_one_without_a_name() {
    let mut files = files();
    files.process.umask = 0o777;
    files.process.fault = Some(Fault::Always(0, Errno::ENOSYS));
    for _ in 0..2 {
        let file = files.memory_file(c"text", b"/tree").unwrap();
        files.write_all(file, &[b'x'; 300]).unwrap();
        let mut bytes = [0; 400];
        assert_eq!(files.pread(file, &mut bytes, 1), Ok(299));
        assert_eq!(files.process.machine().list("/tree"), ["file", "link"]);
        let link = std::format!("/proc/7/fd/{}\0", file.0);
        let link = CStr::from_bytes_with_nul(link.as_bytes()).unwrap();
        // It can be opened again.
        assert!(files.process.openat(CWD, link, O_RDONLY, 0).is_ok());
    }
    assert!(layout::is_temporary(layout::Temporary::Text.name(7, 0).as_bytes()));
}

#[test]
fn long_paths_from_another_processs_directory_are_reached() {
    let mut files = files();
    files.process.is_own = false;
    let directory = Dir::Guest(files.guest("/tree"));
    let path = std::format!("{}file\0", "./".repeat(2040));
    let path = CStr::from_bytes_with_nul(path.as_bytes()).unwrap();
    assert_eq!(files.inode(directory, path, 0), Ok(files.number("/tree/file")));
    assert_eq!(files.calls(), ["openat", "statx", "close"]);
    let opened = files.open(directory, c"new", O_CREAT, 0o600, 0);
    assert!(opened.is_ok());
    assert_eq!(files.open(directory, c"file", O_DIRECTORY, 0, 0), Err(Errno::ENOTDIR));
}
