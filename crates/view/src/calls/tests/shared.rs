//! Tests of files of the image: every way to write to one makes a copy first, and the image does
//! not change.

use super::*;
use crate::verdict::After;
use linux_raw_sys::general::{AT_SYMLINK_FOLLOW, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY};

/// `/etc/passwd` is shared: it has another name in the image.
fn shared(mut bench: Bench<'static>) -> Bench<'static> {
    let id = bench.fake.at("/c/etc/passwd");
    bench.fake.tree.nodes[id].links = 2;
    bench.fake.image.insert(id as u64 + 1, 1);
    bench
}

fn contents(bench: &Bench<'_>, path: &str) -> (crate::testing::tree::Body, u32, [i64; 2], usize) {
    let node = &bench.fake.tree.nodes[bench.fake.at(path)];
    (node.body.clone(), node.mode, node.times, node.attributes.len())
}

#[test]
fn every_kind_of_write_copies_first() {
    let new_times: Vec<u8> = [7_u64, 0, 8, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let ways: [(Op, &[Arg<'_>]); 14] = [
        (Op::Openat, &[N(HERE), T("/etc/passwd"), N(O_WRONLY.into()), N(0)]),
        (Op::Openat, &[N(HERE), T("/etc/link"), N(O_RDWR.into()), N(0)]),
        (Op::Openat, &[N(HERE), T("/etc/passwd"), N((O_RDONLY | O_TRUNC).into()), N(0)]),
        (Op::Openat, &[N(HERE), T("../etc/passwd"), N(O_WRONLY.into()), N(0)]),
        (Op::Creat, &[T("/etc/passwd"), N(0o600)]),
        (Op::Truncate, &[T("/etc/passwd"), N(1)]),
        (Op::Chmod, &[T("/etc/passwd"), N(0o600)]),
        (Op::Fchmodat, &[N(HERE), T("/etc/link"), N(0o600)]),
        (Op::Utimensat, &[N(HERE), T("/etc/passwd"), B(&new_times), N(0)]),
        (Op::Utimensat, &[N(HERE), T("/etc/passwd"), N(0), N(0)]),
        (Op::Utimes, &[T("/etc/link"), N(0)]),
        (Op::Utime, &[T("/etc/passwd"), N(0)]),
        (Op::Link, &[T("/etc/passwd"), T("/tmp/second")]),
        (Op::Linkat, &[N(HERE), T("/etc/link"), N(HERE), T("/tmp/x"), N(AT_SYMLINK_FOLLOW.into())]),
    ];
    for (op, arguments) in ways {
        for make in [plain, root] {
            let mut bench = shared(make());
            let image = bench.fake.at("/c/etc/passwd");
            let before = bench.fake.tree.nodes[image].clone();
            let verdict = enter(&mut bench, op, arguments);
            assert!(
                matches!(verdict, DONE | Verdict::Instead(_, After::Nothing)),
                "{}: {verdict:?}",
                op.name()
            );
            assert_eq!(bench.fake.copied, ["/c/etc/passwd"], "{}", op.name());
            let after = &bench.fake.tree.nodes[image];
            assert_eq!(
                (&after.body, after.mode, after.times, &after.attributes),
                (&before.body, before.mode, before.times, &before.attributes),
                "{}",
                op.name()
            );
            assert_ne!(bench.fake.at("/c/etc/passwd"), image);
        }
    }
}

#[test]
fn reading_and_replacing_copies_nothing() {
    for make in [plain, root] {
        let mut bench = shared(make());
        let before = contents(&bench, "/c/etc/passwd");
        let read = [N(HERE), T("/etc/passwd"), N(0), N(0)];
        assert!(matches!(enter(&mut bench, Op::Openat, &read), Verdict::Instead(..)));
        let image = bench.fake.at("/c/etc/passwd");
        assert_eq!(enter(&mut bench, Op::Rename, &[T("file"), T("/etc/passwd")]), DONE);
        assert_eq!(bench.fake.tree.nodes[image].links, 1);
        assert!(bench.fake.copied.is_empty());
        assert_eq!(bench.fake.tree.nodes[image].body, before.0);
    }
}

#[test]
fn a_rename_copies_where_the_image_is_another_mount() {
    const EXCHANGE: u64 = 2;
    let exchange = |old, new| [N(HERE), T(old), N(HERE), T(new), N(EXCHANGE)];
    for make in [plain, root] {
        for (op, arguments) in [
            (Op::Rename, &[T("/etc/passwd"), T("/tmp/moved")][..]),
            (Op::Renameat2, &exchange("/etc/passwd", "file")),
            (Op::Renameat2, &exchange("file", "/etc/passwd")),
        ] {
            let mut bench = shared(make());
            bench.fake.image_apart = true;
            let image = bench.fake.at("/c/etc/passwd");
            assert_eq!(enter(&mut bench, op, arguments), DONE);
            assert_eq!(bench.fake.copied, ["/c/etc/passwd"]);
            assert_eq!(bench.fake.tree.nodes[image].links, 1);
            // What is not the image's is not copied, and the error stays.
            assert_eq!(enter(&mut bench, Op::Rename, &[T("sub"), T("/tmp/sub")]), DONE);
            assert_eq!(bench.fake.copied.len(), 1);
        }
    }
}

#[test]
fn the_same_inode_elsewhere_is_not_the_images() {
    let mut bench = root();
    let id = bench.fake.at("/vol/data");
    bench.fake.tree.nodes[id].links = 2;
    bench.fake.image.insert(id as u64 + 1, 1);
    assert_eq!(enter(&mut bench, Op::Truncate, &[T("/vol/data"), N(0)]), DONE);
    assert!(bench.fake.copied.is_empty());
}

#[test]
fn times_by_descriptor_go_to_the_copy() {
    let times: Vec<u8> = [7_u64, 0, 8, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    for make in [plain, root] {
        let mut bench = shared(make());
        bench.fake.give(4, "/c/etc/passwd");
        let image = bench.fake.at("/c/etc/passwd");
        let call = [N(4), N(0), B(&times), N(0)];
        assert_eq!(enter(&mut bench, Op::Utimensat, &call), DONE);
        assert_eq!(bench.fake.tree.nodes[image].times, [0; 2]);
        assert_eq!(contents(&bench, "/c/etc/passwd").2, [7, 8]);
        // Again, with an existing copy.
        assert_eq!(enter(&mut bench, Op::Utimensat, &call), DONE);
        assert_eq!(bench.fake.copied.len(), 1);
        // After the copy was removed, there is nothing to change.
        assert_eq!(enter(&mut bench, Op::Unlink, &[T("/etc/passwd")]), DONE);
        assert_eq!(enter(&mut bench, Op::Utimensat, &call), DONE);
        assert_eq!(bench.fake.tree.nodes[image].times, [0; 2]);
        // The kernel changes a file of the container's own.
        bench.fake.give(5, "/c/work/file");
        let own = [N(5), N(0), B(&times), N(0)];
        assert_eq!(enter(&mut bench, Op::Utimensat, &own), Verdict::Pass);
    }
}

/// A descriptor of the image's file, used as a name after a copy has replaced it.
#[test]
fn descriptors_as_names_lead_to_the_copy() {
    let times: Vec<u8> = [7_u64, 0, 8, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let empty = u64::from(linux_raw_sys::general::AT_EMPTY_PATH);
    for make in [plain, root] {
        let mut bench = shared(make());
        bench.fake.give(4, "/c/etc/passwd");
        let image = bench.fake.at("/c/etc/passwd");
        let before = bench.fake.tree.nodes[image].clone();
        let call = [N(4), T(""), B(&times), N(empty)];
        assert!(matches!(enter(&mut bench, Op::Utimensat, &call), DONE | Verdict::Pass));
        let owner = [N(4), T(""), N(u64::MAX), N(u64::MAX), N(empty)];
        enter(&mut bench, Op::Fchownat, &owner);
        let link = [N(4), T(""), N(HERE), T("/tmp/again"), N(empty)];
        assert_eq!(enter(&mut bench, Op::Linkat, &link), DONE);
        assert_eq!(bench.fake.copied, ["/c/etc/passwd"]);
        assert_eq!(bench.fake.at("/c/tmp/again"), bench.fake.at("/c/etc/passwd"));
        // Without a name left, there is nothing to change, and nothing changes.
        enter(&mut bench, Op::Unlink, &[T("/etc/passwd")]);
        enter(&mut bench, Op::Utimensat, &call);
        let after = &bench.fake.tree.nodes[image];
        assert_eq!((after.mode, after.times), (before.mode, before.times));
        assert_eq!(after.attributes, before.attributes);
    }
}

#[test]
fn flags_are_changed_in_own_files_only() {
    const SET_FLAGS: Arg<'static> = N(0x4008_6602);
    let immutable = 0x10_u32.to_le_bytes();
    let other = 0x40_u32.to_le_bytes();
    for make in [plain, root] {
        let mut bench = shared(make());
        bench.fake.file("/c/tmp/own", "");
        for (descriptor, path) in [(3, "/c/etc/passwd"), (4, "/c/tmp/own"), (5, "/c/tmp")] {
            bench.fake.give(descriptor, path);
        }
        let mut set = |file, flags| enter(&mut bench, Op::Ioctl, &[N(file), SET_FLAGS, B(flags)]);
        assert_eq!(set(3, &other), error(Errno::EOPNOTSUPP));
        assert_eq!(set(3, &immutable), error(Errno::EPERM));
        assert_eq!([set(4, &immutable), set(4, &other), set(5, &other)], [Verdict::Pass; 3]);
        assert_eq!(set(77, &other), error(Errno::EBADF));
    }
    let mut bench = user(7);
    bench.fake.give(3, "/c/tmp");
    let set = enter(&mut bench, Op::Ioctl, &[N(3), SET_FLAGS, B(&other)]);
    assert_eq!(set, error(Errno::EPERM));
}
