use super::resolve::{Method, in_root, strict};
use super::*;
use rustix::fs::CWD;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

fn open(path: &Path) -> OwnedFd {
    fs::openat(CWD, path, DIRECTORY, Mode::empty()).unwrap()
}

#[test]
fn strict_refuses_links_by_both_methods() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
    symlink("a", dir.path().join("link")).unwrap();
    symlink("/etc", dir.path().join("a/abs")).unwrap();
    let root = open(dir.path());
    for method in [Method::Best, Method::Walk] {
        assert!(strict(&root, b"a/b", DIRECTORY, method).is_ok());
        assert!(strict(&root, b"", DIRECTORY, method).is_ok());
        for bad in [&b"link/b"[..], b"link", b"a/abs", b"a/abs/ssl"] {
            assert_eq!(
                strict(&root, bad, DIRECTORY, method).unwrap_err(),
                Errno::LOOP,
                "{method:?}"
            );
        }
        assert_eq!(strict(&root, b"link", NAME_ONLY, method).unwrap_err(), Errno::LOOP);
        assert_eq!(strict(&root, b"../..", DIRECTORY, method).unwrap_err(), Errno::XDEV);
        assert_eq!(strict(&root, b"a/none", DIRECTORY, method).unwrap_err(), Errno::NOENT);
    }
}

#[test]
fn in_root_stays_inside() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("usr/lib")).unwrap();
    symlink("/usr/lib", dir.path().join("lib")).unwrap();
    symlink("../../../../usr", dir.path().join("usr/up")).unwrap();
    symlink("loop", dir.path().join("loop")).unwrap();
    symlink("/etc", dir.path().join("etc")).unwrap();
    let root = open(dir.path());
    let find = |path: &[u8]| {
        in_root(&root, path, |obstacle| Err::<(), Errno>(obstacle.errno)).map(|place| place.path)
    };
    assert_eq!(find(b"lib").unwrap(), b"usr/lib");
    assert_eq!(find(b"usr/up/lib").unwrap(), b"usr/lib");
    assert_eq!(find(b"lib/../../../usr").unwrap(), b"usr");
    assert_eq!(find(b"loop/x").unwrap_err(), Errno::LOOP);
    assert_eq!(find(b"etc").unwrap_err(), Errno::LOOP);
    assert_eq!(find(b"usr/none").unwrap_err(), Errno::NOENT);
}

#[test]
fn removes_a_deep_tree_with_hostile_modes() {
    let dir = tempfile::tempdir().unwrap();
    let root = open(dir.path());
    fs::mkdirat(&root, "deep", Mode::from_raw_mode(0o755)).unwrap();
    let mut at = fs::openat(&root, "deep", DIRECTORY, Mode::empty()).unwrap();
    for level in 0..5_000 {
        fs::mkdirat(&at, "d", Mode::from_raw_mode(0o755)).unwrap();
        let next = fs::openat(&at, "d", DIRECTORY, Mode::empty()).unwrap();
        if level % 1000 == 0 {
            fs::fchmod(&at, Mode::empty()).unwrap();
        }
        at = next;
    }
    drop(at);
    remove_tree(&root, b"deep").unwrap();
    assert!(!dir.path().join("deep").exists());
}

#[test]
fn removal_does_not_follow_links() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("keep"), "x").unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("t")).unwrap();
    symlink(outside.path(), dir.path().join("t/out")).unwrap();
    remove_tree(open(dir.path()), b"t").unwrap();
    symlink(outside.path(), dir.path().join("t")).unwrap();
    remove_tree(open(dir.path()), b"t").unwrap();
    assert!(outside.path().join("keep").exists());
    remove_tree(open(dir.path()), b"not there").unwrap();
}

#[test]
fn copies_keep_holes() {
    let dir = tempfile::tempdir().unwrap();
    let first = std::fs::File::create_new(dir.path().join("a")).unwrap();
    first.set_len(64 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&first, b"data", 32 << 20).unwrap();
    let from = std::fs::File::open(dir.path().join("a")).unwrap();
    let to = std::fs::File::create_new(dir.path().join("b")).unwrap();
    copy::contents(&from, &to).unwrap();
    let stat = fs::fstat(&to).unwrap();
    assert_eq!(stat.st_size, 64 << 20);
    assert!(stat.st_blocks < 4096, "{}", stat.st_blocks);
    assert!(
        std::fs::read(dir.path().join("a")).unwrap()
            == std::fs::read(dir.path().join("b")).unwrap()
    );
}

#[test]
fn unreadable_files_open_and_keep_their_mode() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    std::fs::write(&path, "s").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    open_read(open(dir.path()), b"secret", OFlags::empty()).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0);
}

#[test]
fn whiteouts_and_attributes() {
    let dir = tempfile::tempdir().unwrap();
    let root = open(dir.path());
    whiteout::make(&root, b"gone").unwrap();
    assert!(whiteout::is(&stat(&root, b"gone").unwrap()));
    match whiteout::set_opaque(&root) {
        Ok(()) => {
            assert!(whiteout::is_opaque(&root).unwrap());
            assert!(xattr::list(&root).unwrap().iter().any(|name| name == whiteout::OPAQUE));
            xattr::remove(&root, whiteout::OPAQUE).unwrap();
            assert!(!whiteout::is_opaque(&root).unwrap());
        }
        Err(Errno::OPNOTSUPP) => eprintln!("SKIP opaque: no user attributes in {:?}", dir.path()),
        Err(errno) => panic!("{errno}"),
    }
    assert_eq!(read_dir(&root).unwrap()[0].name, b"gone");
    let _ = dir.path().as_os_str().as_bytes();
}
