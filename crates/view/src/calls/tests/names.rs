//! Tests of calls that make and remove names.

use super::*;
use linux_raw_sys::general::{AT_EMPTY_PATH, AT_REMOVEDIR, AT_SYMLINK_FOLLOW};

#[test]
fn directories() {
    for make in [plain, root] {
        let mut bench = make();
        let mut mkdir = |path| enter(&mut bench, Op::Mkdirat, &[N(HERE), T(path), N(0o777)]);
        assert_eq!(mkdir("/tmp/d"), DONE);
        assert_eq!(mkdir("/tmp/d"), error(Errno::EEXIST));
        assert_eq!(mkdir("new/"), DONE);
        assert_eq!(mkdir("/bin/made"), DONE);
        assert_eq!(mkdir("/"), error(Errno::EEXIST));
        assert_eq!(mkdir("/tmp/."), error(Errno::EEXIST));
        assert_eq!(mkdir("/tmp/.."), error(Errno::EEXIST));
        assert_eq!(mkdir("/vol"), error(Errno::EEXIST));
        assert_eq!(mkdir("/loose"), error(Errno::EEXIST));
        assert_eq!(mkdir("/none/d"), error(Errno::ENOENT));
        assert_eq!(mkdir("/etc/passwd/d"), error(Errno::ENOTDIR));
        assert_eq!(mkdir("/ro/new"), error(Errno::EROFS));
        assert_eq!(mkdir("/ro/d"), error(Errno::EEXIST));
        assert_eq!(mkdir(""), error(Errno::ENOENT));
        assert_eq!(enter(&mut bench, Op::Mkdir, &[N(8), N(0)]), error(Errno::EFAULT));
        for path in ["/c/tmp/d", "/c/work/new", "/c/usr/bin/made"] {
            assert_eq!(bench.fake.tree.nodes[bench.fake.at(path)].mode, 0o755, "{path}");
        }
    }
}

#[test]
fn a_new_directory_belongs_to_the_user() {
    let mut bench = user(7);
    let mkdir = |bench: &mut Bench<'_>, path, mode| enter(bench, Op::Mkdir, &[T(path), N(mode)]);
    assert_eq!(mkdir(&mut bench, "/etc/d", 0o777), error(Errno::EACCES));
    assert_eq!(mkdir(&mut bench, "/etc/passwd", 0o777), error(Errno::EEXIST));
    assert_eq!(mkdir(&mut bench, "/tmp/d", 0o500), DONE);
    let node = &bench.fake.tree.nodes[bench.fake.at("/c/tmp/d")];
    assert_eq!(node.attributes[&b"user.coracle.owner"[..]], b"7:7:500:d:0:0");
    assert_eq!(node.mode, 0o1700);
    assert_eq!(mkdir(&mut bench, "/tmp/d/e", 0o777), error(Errno::EACCES));
}

#[test]
fn removing() {
    for make in [plain, root] {
        let mut bench = make();
        let mut unlink = |path| enter(&mut bench, Op::Unlink, &[T(path)]);
        assert_eq!(unlink("/etc/link"), DONE);
        assert_eq!(unlink("/etc/link"), error(Errno::ENOENT));
        assert_eq!(unlink("/etc/passwd/"), error(Errno::ENOTDIR));
        assert_eq!(unlink("/etc"), error(Errno::EISDIR));
        assert_eq!(unlink("/"), error(Errno::EISDIR));
        assert_eq!(unlink("."), error(Errno::EISDIR));
        assert_eq!(unlink("/vol"), error(Errno::EISDIR));
        assert_eq!(unlink("/ro/f"), error(Errno::EROFS));
        assert_eq!(unlink("/ro/none"), error(Errno::EROFS));
        assert_eq!(unlink("file"), DONE);
        let mut rmdir = |path| enter(&mut bench, Op::Rmdir, &[T(path)]);
        assert_eq!(rmdir("/"), error(Errno::EBUSY));
        assert_eq!(rmdir("."), error(Errno::EINVAL));
        assert_eq!(rmdir(".."), error(Errno::ENOTEMPTY));
        assert_eq!(rmdir("/vol"), error(Errno::EBUSY));
        assert_eq!(rmdir("/etc"), error(Errno::ENOTEMPTY));
        assert_eq!(rmdir("/bin/"), error(Errno::ENOTDIR));
        assert_eq!(rmdir("sub/"), DONE);
        let unlinkat = [N(HERE), T("/mnt"), N(AT_REMOVEDIR.into())];
        assert_eq!(enter(&mut bench, Op::Unlinkat, &unlinkat), DONE);
        let bad = [N(HERE), T("/mnt"), N(1)];
        assert_eq!(enter(&mut bench, Op::Unlinkat, &bad), error(Errno::EINVAL));
        assert_eq!(bench.fake.tree.get("/c/mnt"), None);
        assert!(bench.fake.tree.get("/c/etc/passwd").is_some());
    }
}

#[test]
fn the_sticky_bit() {
    let mut bench = user(7);
    // On disk the directory has the mark: its mode there is 1777.
    bench.fake.mode("/c/tmp", 0o1777).file("/c/tmp/roots", "");
    assert_eq!(enter(&mut bench, Op::Unlink, &[T("/tmp/roots")]), error(Errno::EPERM));
    assert_eq!(enter(&mut bench, Op::Unlink, &[T("/tmp/none")]), error(Errno::ENOENT));
    assert_eq!(enter(&mut bench, Op::Unlink, &[T("/etc/passwd")]), error(Errno::EACCES));
    let rename = [T("/tmp/roots"), T("/tmp/mine")];
    assert_eq!(enter(&mut bench, Op::Rename, &rename), error(Errno::EPERM));
    bench.fake.mode("/c/tmp", 0o777);
    assert_eq!(enter(&mut bench, Op::Rename, &rename), DONE);
}

#[test]
fn renaming() {
    for make in [plain, root] {
        let mut bench = make();
        let mut rename = |old, new| enter(&mut bench, Op::Rename, &[T(old), T(new)]);
        assert_eq!(rename("/etc/passwd", "/tmp/moved"), DONE);
        assert_eq!(rename("/etc/link", "link"), DONE);
        assert_eq!(rename("file", "sub"), error(Errno::EISDIR));
        assert_eq!(rename("sub", "file"), error(Errno::ENOTDIR));
        assert_eq!(rename("none", "x"), error(Errno::ENOENT));
        assert_eq!(rename("file", "/vol/file"), error(Errno::EXDEV));
        assert_eq!(rename("/ro/f", "/ro/g"), error(Errno::EROFS));
        assert_eq!(rename("/vol", "/tmp/vol"), error(Errno::EBUSY));
        assert_eq!(rename("/tmp", "/vol"), error(Errno::EBUSY));
        assert_eq!(rename("/", "/tmp/x"), error(Errno::EBUSY));
        assert_eq!(rename("sub/.", "x"), error(Errno::EBUSY));
        assert_eq!(rename("file/", "x"), error(Errno::ENOTDIR));
        assert_eq!(rename("sub/", "x/"), DONE);
        let flagged = |flags| [N(HERE), T("file"), N(HERE), T("x"), N(flags)];
        assert_eq!(enter(&mut bench, Op::Renameat2, &flagged(1)), error(Errno::EEXIST));
        assert_eq!(enter(&mut bench, Op::Renameat2, &flagged(3)), error(Errno::EINVAL));
        assert_eq!(enter(&mut bench, Op::Renameat2, &flagged(8)), error(Errno::EINVAL));
        assert_eq!(enter(&mut bench, Op::Renameat2, &flagged(2)), DONE);
        assert!(bench.fake.tree.is_dir(bench.fake.at("/c/work/file")));
        assert!(bench.fake.tree.get("/c/tmp/moved").is_some());
        let bad = [N(HERE), T("/tmp/moved"), N(HERE), N(8)];
        assert_eq!(enter(&mut bench, Op::Renameat, &bad), error(Errno::EFAULT));
    }
}

#[test]
fn directories_with_mounts_below_stay() {
    const NESTED: &[Binding<'static>] =
        &[binding("/", "/c", Kind::Tree), binding("/mnt/deep/vol", "/vol", Kind::Host)];
    let mut fake = fake();
    fake.dir("/c/mnt/deep");
    let mut bench = Bench::new(fake, NESTED);
    assert_eq!(enter(&mut bench, Op::Rename, &[T("/mnt/deep"), T("/tmp/x")]), error(Errno::EBUSY));
    assert_eq!(enter(&mut bench, Op::Rmdir, &[T("/mnt/deep")]), error(Errno::ENOTEMPTY));
    assert_eq!(enter(&mut bench, Op::Mkdir, &[T("/mnt/deep/vol"), N(0)]), error(Errno::EEXIST));
}

#[test]
fn a_directory_does_not_become_its_own_child() {
    for make in [root, || user(7)] {
        let mut bench = make();
        bench.fake.dir("/c/work/sub/deep");
        let mut rename = |old, new| enter(&mut bench, Op::Rename, &[T(old), T(new)]);
        if make().task.creds.uid.files == 7 {
            assert_eq!(rename("sub", "sub/x"), error(Errno::EINVAL));
            assert_eq!(rename("/work/sub", "/work/sub/x"), error(Errno::EINVAL));
        }
        assert_eq!(rename("sub/deep", "sub"), error(Errno::ENOTEMPTY));
        assert!(rename("sub", "subx") != error(Errno::EINVAL));
    }
}

#[test]
fn permissions_are_checked_before_mount_points() {
    let mut bench = user(7);
    bench.fake.dir("/c/vol").dir("/c/ro");
    let mut rmdir = |path| enter(&mut bench, Op::Rmdir, &[T(path)]);
    assert_eq!(rmdir("/vol"), error(Errno::EACCES));
    let mut rename = |old, new| enter(&mut bench, Op::Rename, &[T(old), T(new)]);
    assert_eq!(rename("/vol", "/tmp/vol"), error(Errno::EACCES));
    assert_eq!(rename("/tmp", "/vol"), error(Errno::EACCES));
    bench.fake.mode("/c", 0o777);
    assert_eq!(enter(&mut bench, Op::Rmdir, &[T("/vol")]), error(Errno::EBUSY));
    assert_eq!(enter(&mut bench, Op::Rename, &[T("/vol"), T("/x")]), error(Errno::EBUSY));
    // The sticky bit is set, and the file that the mount point covers belongs to root.
    bench.fake.mode("/c", 0o1777);
    assert_eq!(enter(&mut bench, Op::Rmdir, &[T("/vol")]), error(Errno::EPERM));
    let replace = [N(HERE), T("/tmp"), N(HERE), T("/vol"), N(1)];
    assert_eq!(enter(&mut bench, Op::Renameat2, &replace), error(Errno::EEXIST));
}

#[test]
fn links() {
    for make in [plain, root] {
        let mut bench = make();
        let mut link = |old, new| enter(&mut bench, Op::Link, &[T(old), T(new)]);
        assert_eq!(link("file", "/tmp/second"), DONE);
        assert_eq!(link("file", "/tmp/second"), error(Errno::EEXIST));
        assert_eq!(link("/etc/link", "/tmp/link"), DONE);
        assert_eq!(link("sub", "/tmp/dir"), error(Errno::EPERM));
        assert_eq!(link("file", "/vol/file"), error(Errno::EXDEV));
        assert_eq!(link("file", "/vol/data"), error(Errno::EEXIST));
        assert_eq!(link("/ro/f", "/ro/g"), error(Errno::EROFS));
        assert_eq!(link("none", "/tmp/x"), error(Errno::ENOENT));
        assert_eq!(bench.fake.at("/c/work/file"), bench.fake.at("/c/tmp/second"));
        assert_eq!(bench.fake.at("/c/etc/link"), bench.fake.at("/c/tmp/link"));
        let follow = [N(HERE), T("/etc/link"), N(HERE), T("/tmp/f"), N(AT_SYMLINK_FOLLOW.into())];
        assert_eq!(enter(&mut bench, Op::Linkat, &follow), DONE);
        assert_eq!(bench.fake.at("/c/etc/passwd"), bench.fake.at("/c/tmp/f"));
        bench.fake.give(6, "/c/work/file");
        let empty = [N(6), T(""), N(HERE), T("/tmp/e"), N(AT_EMPTY_PATH.into())];
        assert_eq!(enter(&mut bench, Op::Linkat, &empty), DONE);
        assert_eq!(bench.fake.at("/c/work/file"), bench.fake.at("/c/tmp/e"));
        let bad = [N(HERE), T("file"), N(HERE), T("/tmp/b"), N(1)];
        assert_eq!(enter(&mut bench, Op::Linkat, &bad), error(Errno::EINVAL));
    }
}

#[test]
fn links_to_files_of_others() {
    let mut bench = user(7);
    assert_eq!(enter(&mut bench, Op::Link, &[T("/etc/passwd"), T("/tmp/p")]), error(Errno::EPERM));
    bench.fake.mode("/c/etc/passwd", 0o666);
    assert_eq!(enter(&mut bench, Op::Link, &[T("/etc/passwd"), T("/tmp/p")]), DONE);
    let refused = enter(&mut bench, Op::Link, &[T("/etc/passwd"), T("/etc/p")]);
    assert_eq!(refused, error(Errno::EACCES));
}

#[test]
fn symbolic_links_keep_their_target() {
    for make in [plain, root] {
        let mut bench = make();
        let mut symlink = |target, path| enter(&mut bench, Op::Symlink, &[T(target), T(path)]);
        assert_eq!(symlink("/etc/../x/", "/tmp/l"), DONE);
        assert_eq!(symlink("a", "/tmp/l"), error(Errno::EEXIST));
        assert_eq!(symlink("", "/tmp/m"), error(Errno::ENOENT));
        assert_eq!(symlink("a", "/tmp/m/"), error(Errno::ENOENT));
        assert_eq!(symlink("a", "/ro/m"), error(Errno::EROFS));
        let buffer = [0; 64];
        let read = [T("/tmp/l"), B(&buffer), N(64)];
        assert_eq!(enter(&mut bench, Op::Readlink, &read), Verdict::Done(10));
    }
    let mut bench = user(7);
    assert_eq!(enter(&mut bench, Op::Symlinkat, &[T("a"), N(HERE), T("/tmp/l")]), DONE);
    assert_eq!(bench.fake.notes.values().collect::<Vec<_>>(), [b"7:7:777:l:0:0"]);
}

#[test]
fn forms_of_i386() {
    let mut bench = root();
    let mut run = |op, arguments: &[Arg<'_>]| enter_as(&mut bench, Arch::I386, op, arguments).1;
    assert_eq!(run(Op::Mkdir, &[T("/tmp/a"), N(0o755)]), DONE);
    assert_eq!(run(Op::Rename, &[T("/tmp/a"), T("/tmp/b")]), DONE);
    assert_eq!(run(Op::Rmdir, &[T("/tmp/b")]), DONE);
    assert_eq!(run(Op::Link, &[T("file"), T("/tmp/c")]), DONE);
    assert_eq!(run(Op::Unlink, &[T("/tmp/c")]), DONE);
    // Upper halves of registers are ignored.
    assert_eq!(run(Op::Mkdirat, &[N(0xffff_ffff_ffff_ff9c), T("d"), N(0o755)]), DONE);
}

#[test]
fn what_names_cost() {
    let mut bench = root();
    assert_eq!(cost(&mut bench, Op::Unlink, &[T("/etc/link")]), ["open", "unlink"]);
    assert_eq!(cost(&mut bench, Op::Mkdir, &[T("/tmp/d"), N(0o755)]), ["open", "statx", "mkdir"]);
    let rename = [T("/etc/passwd"), T("/tmp/p")];
    assert_eq!(cost(&mut bench, Op::Rename, &rename), ["open", "open", "rename"]);
}
