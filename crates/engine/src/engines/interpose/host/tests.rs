//! One process plays guest and tracer.

use super::*;
use abi::layout::stat::EMPTY_STATX;
use linux_raw_sys::general::{AT_EMPTY_PATH, O_PATH, O_RDONLY, RESOLVE_NO_SYMLINKS, timespec};
use rustix::fs::Mode;
use std::ffi::CString;
use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

struct Bench {
    calls: HostCalls,
    dir: tempfile::TempDir,
}

fn bench() -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let parts = Parts {
        images: ImageInodes::default(),
        inode_log: InodeLog::new(dir.path().join("notes")),
        layers: None,
        run: dir.path().to_owned(),
    };
    let mut calls = HostCalls::new(parts);
    calls.serve(std::process::id());
    Bench { calls, dir }
}

impl Bench {
    fn path(&self, name: &str) -> CString {
        CString::new(self.dir.path().join(name).as_os_str().as_bytes()).unwrap()
    }

    fn inode(&mut self, dir: Dir, path: &CStr, flags: u32) -> Result<u64> {
        let mut facts = EMPTY_STATX;
        self.calls.statx(dir, path, flags, &mut facts).map(|()| facts.stx_ino)
    }
}

#[test]
fn every_start_finds_the_same_file() {
    let mut bench = bench();
    let (file, link) = (bench.path("file"), bench.path("link"));
    std::fs::write(bench.dir.path().join("file"), "text").unwrap();
    std::os::unix::fs::symlink("file", bench.dir.path().join("link")).unwrap();
    let top = std::fs::File::open(bench.dir.path()).unwrap();
    let open = std::fs::File::open(bench.dir.path().join("file")).unwrap();
    let held = bench.calls.open(Dir::Root, &file, O_PATH, 0, 0).unwrap();
    let held_top = bench.calls.open(Dir::Root, &bench.path(""), O_PATH, 0, 0).unwrap();
    let (guest, guest_top) = (Dir::Guest(open.as_raw_fd()), Dir::Guest(top.as_raw_fd()));
    let right = bench.inode(Dir::Root, &file, 0);
    assert!(right.is_ok());
    for (dir, path, flags) in [
        (Dir::Root, &*link, 0),
        (Dir::Held(held), c"", 0),
        (Dir::Held(held_top), c"link", 0),
        (guest, c"", AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW),
        (guest_top, c"file", AT_SYMLINK_NOFOLLOW),
        (Dir::Guest(99), &*file, 0),
    ] {
        assert_eq!(bench.inode(dir, path, flags), right, "{dir:?} {path:?}");
    }
    assert_ne!(bench.inode(guest_top, c"link", AT_SYMLINK_NOFOLLOW), right);
    assert_eq!(bench.inode(Dir::Guest(-1), c"x", 0), Err(Errno::EBADF));
    assert_eq!(bench.inode(Dir::Guest(9999), c"x", 0), Err(Errno::EBADF));
    assert_eq!(bench.inode(Dir::Guest(9999), c"", AT_EMPTY_PATH), Err(Errno::EBADF));
    assert_eq!(bench.inode(guest_top, c"x", 0), Err(Errno::ENOENT));
    assert_eq!(bench.inode(guest, c"x", 0), Err(Errno::ENOTDIR));
    let mut text = Text::EMPTY;
    bench.calls.path_of(guest, &mut text).unwrap();
    assert_eq!(text.as_bytes(), file.to_bytes());
    bench.calls.path_of(Dir::Cwd, &mut text).unwrap();
    assert_eq!(text.as_bytes(), std::env::current_dir().unwrap().as_os_str().as_bytes());
}

#[test]
fn links_by_descriptor_are_meant_themselves() {
    let mut bench = bench();
    std::os::unix::fs::symlink("target", bench.dir.path().join("link")).unwrap();
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    let link = rustix::fs::open(bench.dir.path().join("link"), flags, Mode::empty()).unwrap();
    let guest = Dir::Guest(link.as_raw_fd());
    let mut text = Text::EMPTY;
    bench.calls.readlink(guest, c"", &mut text).unwrap();
    assert_eq!(text.as_bytes(), b"target");
    let held = bench.calls.open(guest, c"", O_PATH, 0, 0).unwrap();
    bench.calls.readlink(Dir::Held(held), c"", &mut text).unwrap();
    assert_eq!(text.as_bytes(), b"target");
    bench.calls.close(held);
    assert_eq!(bench.calls.readlink(Dir::Held(held), c"", &mut text), Err(Errno::EBADF));
    let by = bench.inode(guest, c"", 0);
    assert_eq!(by, bench.inode(Dir::Root, &bench.path("link"), AT_SYMLINK_NOFOLLOW));
    let second = bench.path("second");
    bench.calls.link((guest, c""), (Dir::Root, &second), AT_EMPTY_PATH).unwrap();
    assert_eq!(by, bench.inode(Dir::Root, &second, AT_SYMLINK_NOFOLLOW));
}

#[test]
fn changes_reach_files_that_are_only_named() {
    let mut bench = bench();
    let file = bench.path("file");
    std::fs::write(bench.dir.path().join("file"), "12345").unwrap();
    let held = Dir::Held(bench.calls.open(Dir::Root, &file, O_PATH, 0, 0).unwrap());
    bench.calls.chmod(held, c"", 0o640).unwrap();
    bench.calls.truncate(held, c"", 2).unwrap();
    let times = [timespec { tv_sec: 5, tv_nsec: 6 }; 2];
    bench.calls.utimens(held, c"", Some(&times), AT_EMPTY_PATH).unwrap();
    let mut facts = EMPTY_STATX;
    bench.calls.statx(held, c"", 0, &mut facts).unwrap();
    assert_eq!((facts.stx_mode & 0o7777, facts.stx_size), (0o640, 2));
    assert_eq!((facts.stx_mtime.tv_sec, facts.stx_mtime.tv_nsec), (5, 6));
    match bench.calls.setxattr(held, c"", true, c"user.a", b"value", 0) {
        Err(Errno::EOPNOTSUPP) => eprintln!("skipped: no attributes here"),
        result => {
            result.unwrap();
            let mut value = [0; 16];
            let size = bench.calls.getxattr(held, c"", false, c"user.a", &mut []);
            assert_eq!(size, Ok(5));
            assert_eq!(bench.calls.listxattr(held, c"", true, &mut value), Ok(7));
            bench.calls.removexattr(Dir::Root, &file, false, c"user.a").unwrap();
            let gone = bench.calls.getxattr(held, c"", false, c"user.a", &mut value);
            assert_eq!(gone, Err(Errno::ENODATA));
        }
    }
    bench.calls.access(held, c"", 4, 0).unwrap();
    let text = bench.calls.memory_file(c"text").unwrap();
    bench.calls.write_all(text, b"hello").unwrap();
    let mut read = [0; 8];
    assert_eq!(bench.calls.pread(text, &mut read, 1), Ok(4));
    assert_eq!(&read[..4], b"ello");
}

#[test]
fn resolving_can_be_restricted_from_every_start() {
    let mut bench = bench();
    if !bench.calls.has_openat2() {
        eprintln!("skipped: no openat2 here");
        return;
    }
    std::os::unix::fs::symlink(".", bench.dir.path().join("link")).unwrap();
    std::fs::write(bench.dir.path().join("file"), "").unwrap();
    let top = std::fs::File::open(bench.dir.path()).unwrap();
    let guest = Dir::Guest(top.as_raw_fd());
    let no_links = u64::from(RESOLVE_NO_SYMLINKS);
    let file = bench.calls.open(guest, c"file", O_RDONLY, 0, no_links).unwrap();
    bench.calls.close(file);
    let through = bench.calls.open(guest, c"link/file", O_RDONLY, 0, no_links);
    assert_eq!(through, Err(Errno::ELOOP));
    let none = bench.calls.open(Dir::Guest(9999), c"file", O_RDONLY, 0, no_links);
    assert_eq!(none, Err(Errno::EBADF));
    let (mut one, mut other) = (Text::EMPTY, Text::EMPTY);
    for text in [&mut one, &mut other] {
        let held = bench.calls.open(guest, c"", O_PATH, 0, 0).unwrap();
        bench.calls.alias(held, 100, text).unwrap();
    }
    assert_eq!(one, other);
    let shown = std::fs::canonicalize(OsStr::from_bytes(one.as_bytes())).unwrap();
    assert_eq!(shown, bench.dir.path().canonicalize().unwrap());
}

#[test]
fn files_are_lent_until_others_are() {
    let mut bench = bench();
    let top = std::fs::File::open(bench.dir.path()).unwrap();
    let mut link = Text::EMPTY;
    for count in 1..=LENT_MAX + 3 {
        let held = bench.calls.open(Dir::Guest(top.as_raw_fd()), c"", O_PATH, 0, 0).unwrap();
        bench.calls.lend(held, &mut link).unwrap();
        assert_eq!(bench.calls.lent.len(), count.min(LENT_MAX));
    }
    let shown = std::fs::canonicalize(OsStr::from_bytes(link.as_bytes())).unwrap();
    assert_eq!(shown, bench.dir.path().canonicalize().unwrap());
}

#[test]
fn paths_that_the_prefix_makes_too_long_are_reached() {
    let mut bench = bench();
    let top = std::fs::File::open(bench.dir.path()).unwrap();
    let part = format!("{}/", "d".repeat(254));
    let mut path = String::new();
    let mut at = rustix::fs::open(bench.dir.path(), OFlags::PATH, Mode::empty()).unwrap();
    for _ in 0..16 {
        rustix::fs::mkdirat(&at, &part[..254], Mode::from_raw_mode(0o700)).unwrap();
        at = rustix::fs::openat(&at, &part[..254], OFlags::PATH, Mode::empty()).unwrap();
        path.push_str(&part);
    }
    path.push_str("/////////////");
    let path = CString::new(path).unwrap();
    assert!(path.count_bytes() > 4090);
    assert!(bench.inode(Dir::Guest(top.as_raw_fd()), &path, 0).is_ok());
}

/// An image with one inode.
struct OneInode(u64);

impl Image for OneInode {
    fn has(&self, inode: u64) -> bool {
        inode == self.0
    }

    fn will_replace(&mut self, inode: u64) {
        assert_eq!(inode, self.0);
    }
}

/// Makes a copy as a process of its own would.
fn copy(run: &Path, path: &Path, image: u64) -> Result<()> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let kernel = HostKernel::default();
    hostfs::copy_up(&kernel, run.as_os_str().as_bytes(), &path, &mut OneInode(image))
}

#[test]
fn a_copy_takes_the_place_and_the_image_stays() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["image", "ROOT", "run"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    let (image, path) = (at("image/file"), at("ROOT/file"));
    std::fs::write(&image, "shared").unwrap();
    std::fs::set_permissions(&image, std::fs::Permissions::from_mode(0o1754)).unwrap();
    let attribute = sys::fs::xattr::set(
        std::fs::File::options().write(true).open(&image).unwrap(),
        b"user.coracle.owner",
        b"0:0:754:f:0:0",
    );
    std::fs::hard_link(&image, &path).unwrap();
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(123_456_789_123);
    std::fs::File::open(&image).unwrap().set_modified(long_ago).unwrap();
    std::fs::File::open(at("ROOT")).unwrap().set_modified(long_ago).unwrap();
    let inode = std::fs::metadata(&image).unwrap().ino();
    copy(&at("run"), &path, inode).unwrap();
    let (old, new) = (std::fs::metadata(&image).unwrap(), std::fs::metadata(&path).unwrap());
    assert_ne!(old.ino(), new.ino());
    assert_eq!((old.nlink(), new.nlink()), (1, 1));
    assert_eq!(new.mode(), old.mode());
    assert_eq!(new.modified().unwrap(), long_ago);
    assert_eq!(std::fs::metadata(at("ROOT")).unwrap().modified().unwrap(), long_ago);
    assert_eq!(std::fs::read(&path).unwrap(), b"shared");
    if attribute.is_ok() {
        let file = std::fs::File::open(&path).unwrap();
        let value = sys::fs::xattr::get(&file, b"user.coracle.owner").unwrap();
        assert_eq!(value.as_deref(), Some(&b"0:0:754:f:0:0"[..]));
    }
    let left: Vec<_> = std::fs::read_dir(at("run"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name != ".copy-turn")
        .collect();
    assert_eq!(left, Vec::<std::ffi::OsString>::new());
    std::os::unix::fs::symlink("file", at("ROOT/link")).unwrap();
    assert_eq!(copy(&at("run"), &at("ROOT/link"), inode), Err(Errno::ELOOP));
    assert_eq!(copy(&at("run"), &at("ROOT/none"), inode), Err(Errno::ENOENT));
}

#[test]
fn several_at_once_make_one_copy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    std::fs::hard_link(&path, dir.path().join("image")).unwrap();
    let inode = std::fs::metadata(&path).unwrap().ino();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| copy(dir.path(), &path, inode).unwrap());
        }
    });
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 1 << 20]);
    assert_eq!(std::fs::metadata(dir.path().join("image")).unwrap().nlink(), 1);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
}
