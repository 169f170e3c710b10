//! Tests of container changes: diff, layers made of it, export, `cp`, import.

use crate::common::{Place, marks_on_disk, names};
use rootfs::copy::{self, Into, Source};
use rootfs::diff::{Change, diff};
use rootfs::pack::{self, Options};
use rootfs::union::IdMap;
use rootfs::{Driver, ImageTrees, Owners, Root};
use std::fs::File;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use testkit::layer::{Entry, Layer};

fn base(place: &Place) -> ImageTrees {
    let tar = Layer::new()
        .entry(&Entry::new(b'5', "./").mode(0o755))
        .dir("etc")
        .file("etc/keep", 0o644, "keep")
        .file("etc/change", 0o644, "before")
        .file("etc/gone", 0o644, "gone")
        .dir("tree")
        .dir("tree/sub")
        .file("tree/sub/x", 0o644, "x")
        .entry(&Entry::new(b'0', "theirs").owner(33, 44).mode(0o640).data("t"))
        .symlink("link", "etc/keep")
        .entry(&Entry::new(b'3', "dev/null").device(1, 3).mode(0o666))
        .finish();
    ImageTrees { layers: vec![place.apply(&tar).0], owner_layer: None }
}

fn lines(changes: &[Change]) -> Vec<String> {
    let line = |change: &Change| {
        format!("{} /{}", change.kind.letter(), String::from_utf8_lossy(&change.path))
    };
    changes.iter().map(line).collect()
}

/// Makes the same changes as a container would, in an upper directory or in a copy.
fn change(root: &Root) -> PathBuf {
    let (path, copied) = match root {
        Root::Overlay { upper, .. } => (upper.clone(), false),
        Root::Directory(path) => (path.clone(), true),
        Root::Given { .. } | Root::Stacked { .. } => panic!("{root:?}"),
    };
    let at = |name: &str| path.join(name);
    std::fs::create_dir_all(at("etc")).unwrap();
    std::fs::write(at("etc/change"), "after it").unwrap();
    std::fs::write(at("new"), "new").unwrap();
    std::fs::create_dir(at("newdir")).unwrap();
    symlink("elsewhere", at("newdir/l")).unwrap();
    if copied {
        std::fs::remove_file(at("etc/gone")).unwrap();
        std::fs::remove_file(at("tree/sub/x")).unwrap();
        std::fs::remove_file(at("link")).unwrap();
    } else {
        let dir = |name: &str| File::open(at(name)).unwrap();
        sys::fs::whiteout::make(dir("etc"), b"gone").unwrap();
        sys::fs::whiteout::make(dir("."), b"link").unwrap();
        std::fs::create_dir_all(at("tree/sub")).unwrap();
        sys::fs::whiteout::set_opaque(dir("tree/sub")).unwrap();
        // A whiteout may also hide a name that was never in the image.
        sys::fs::whiteout::make(dir("etc"), b"never").unwrap();
    }
    path
}

const CHANGED: [&str; 9] = [
    "C /etc",
    "C /etc/change",
    "D /etc/gone",
    "D /link",
    "A /new",
    "A /newdir",
    "A /newdir/l",
    "C /tree/sub",
    "D /tree/sub/x",
];

#[test]
fn changes_of_both_kinds_of_roots() {
    let place = Place::new();
    if !marks_on_disk(&place) {
        return;
    }
    let image = base(&place);
    let ids = IdMap::default();
    for driver in [Driver::Overlay, Driver::Copy] {
        let root = rootfs::prepare(&place.fresh(), &image, driver).unwrap();
        assert!(diff(&image, &root, &ids).unwrap().is_empty());
        change(&root);
        assert_eq!(lines(&diff(&image, &root, &ids).unwrap()), CHANGED, "{driver:?}");

        let mut bytes = Vec::new();
        let packed = pack::layer(&image, &root, &ids, Options::default(), &mut bytes).unwrap();
        assert_eq!(packed.entries as usize, CHANGED.len());
        let (layer, applied) = place.apply(&bytes);
        assert!(applied.meta.implicit.is_empty() || applied.meta.implicit == ["tree"]);
        let both = ImageTrees { layers: vec![layer, image.layers[0].clone()], owner_layer: None };
        let mut merged = Vec::new();
        pack::export(Some(&both), None, &ids, Options::default(), &mut merged).unwrap();
        let mut exported = Vec::new();
        pack::export(Some(&image), Some(&root), &ids, Options::default(), &mut exported).unwrap();
        let (merged, exported) = (place.apply(&merged), place.apply(&exported));
        assert_eq!(merged.1.owners, exported.1.owners);
        for (layer, _) in [&merged, &exported] {
            assert_eq!(names(&layer.tree()), ["dev", "etc", "new", "newdir", "theirs", "tree"]);
            assert_eq!(names(&layer.tree().join("etc")), ["change", "keep"]);
            assert_eq!(names(&layer.tree().join("tree/sub")), [] as [&str; 0]);
        }
        let theirs = exported.1.owners.get(b"theirs").unwrap();
        assert_eq!((theirs.uid, theirs.gid, theirs.mode), (33, 44, 0o640));
        assert_eq!(exported.1.owners.get(b"dev/null").unwrap().device, (1, 3));
    }
}

/// The changes of an overlay's upper look the same in a tree of hard links into which it was
/// merged, and before that in an overlay of both.
#[test]
fn an_upper_merged_into_a_tree_of_links() {
    let place = Place::new();
    let image = base(&place);
    if !marks_on_disk(&place) {
        eprintln!("SKIP merging: whiteouts cannot be on this disk");
        return;
    }
    let ids = IdMap::default();
    let container = place.fresh();
    let overlay = rootfs::prepare(&container, &image, Driver::Overlay).unwrap();
    change(&overlay);
    let Root::Overlay { upper, .. } = &overlay else { panic!("{overlay:?}") };
    std::fs::write(upper.join("closed"), "c").unwrap();
    std::fs::set_permissions(upper.join("closed"), PermissionsExt::from_mode(0o4111)).unwrap();
    let record = rootfs::Record::from_xattr(b"7:8:777:l:0:0").unwrap();
    let mut table = Owners::new();
    table.insert(b"newdir/l", record);
    table.save(File::open(&container).unwrap(), rootfs::union::UPPER_OWNERS).unwrap();
    let look = |root: &Root, image: &ImageTrees| {
        let mut bytes = Vec::new();
        pack::export(Some(image), Some(root), &ids, Options::default(), &mut bytes).unwrap();
        (lines(&diff(image, root, &ids).unwrap()), bytes)
    };
    let before = look(&overlay, &image);
    let with_xattrs = place.fresh();
    let meta = rootfs::flatten::flatten_with_owner_xattrs(
        &image.layers,
        File::open(&with_xattrs).unwrap(),
    );
    let with_xattrs = ImageTrees::flat(rootfs::Layer::new(with_xattrs, meta.unwrap()));
    let tree = rootfs::prepare(&container, &with_xattrs, Driver::HardLink).unwrap();
    let stacked = rootfs::drivers::prepare_stacked(&container).unwrap();
    assert!(look(&stacked, &with_xattrs) == before);
    rootfs::merge::merge_upper(&container, &ids).unwrap();
    assert!(look(&tree, &with_xattrs) == before);
    let closed = container.join("ROOT/closed").metadata().unwrap();
    assert_eq!(closed.permissions().mode() & 0o7777, 0o1711, "open to its owner, and marked");
    // A second merge has nothing left to do.
    rootfs::merge::merge_upper(&container, &ids).unwrap();
    assert!(look(&tree, &with_xattrs) == before);
    // The list has the image's inodes, and none of the container's own.
    let list = std::fs::read(container.join("inodes")).unwrap();
    let inodes: Vec<u64> =
        list.chunks(12).map(|pair| u64::from_le_bytes(pair[..8].try_into().unwrap())).collect();
    let inode = |name: &str| {
        std::os::unix::fs::MetadataExt::ino(&container.join("ROOT").join(name).metadata().unwrap())
    };
    assert!(inodes.contains(&inode("etc/keep")) && inodes.contains(&inode("theirs")));
    assert!(!inodes.contains(&inode("etc/change")) && !inodes.contains(&inode("new")));
    // When the image shares none of the inodes any more, only the inodes differ.
    rootfs::linked::copy_shared_files(File::open(&container).unwrap()).unwrap();
    assert!(look(&tree, &with_xattrs) == before);
    assert!(!inodes.contains(&inode("etc/keep")) && !inodes.contains(&inode("theirs")));
    assert!(!container.join("inodes").exists());
}

#[test]
fn owners_of_a_live_tree_come_from_attributes_table_and_id_map() {
    let place = Place::new();
    let image = base(&place);
    let container = place.fresh();
    let root = rootfs::prepare(&container, &image, Driver::Overlay).unwrap();
    let Root::Overlay { upper, .. } = &root else { panic!() };
    std::fs::write(upper.join("f"), "x").unwrap();
    symlink("x", upper.join("l")).unwrap();
    let file = File::open(upper.join("f")).unwrap();
    if sys::fs::xattr::set(&file, rootfs::owners::OWNER_XATTR, b"5:6:4711:f:0:0").is_err() {
        eprintln!("SKIP live owners: no user attributes here");
        return;
    }
    let record = rootfs::Record::from_xattr(b"7:8:777:l:0:0").unwrap();
    let mut table = Owners::new();
    table.insert(b"l", record);
    table.save(File::open(&container).unwrap(), rootfs::union::UPPER_OWNERS).unwrap();
    let mut bytes = Vec::new();
    pack::layer(&image, &root, &IdMap::default(), Options::default(), &mut bytes).unwrap();
    let (_, applied) = place.apply(&bytes);
    assert_eq!(applied.owners.get(b"f").unwrap().uid, 5);
    assert_eq!(applied.owners.get(b"f").map(|record| record.mode), Some(0o4711));
    assert_eq!(applied.owners.get(b"l").unwrap().gid, 8);

    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    std::fs::write(upper.join("plain"), "x").unwrap();
    let ids = IdMap { users: vec![(50, uid, 1)], groups: vec![(60, gid, 1)] };
    let mut bytes = Vec::new();
    pack::layer(&image, &root, &ids, Options::default(), &mut bytes).unwrap();
    let (_, applied) = place.apply(&bytes);
    let plain = applied.owners.get(b"plain").unwrap();
    assert_eq!((plain.uid, plain.gid), (50, 60));
}

fn unpack(place: &Place, bytes: &[u8]) -> PathBuf {
    place.apply(bytes).0.tree()
}

#[test]
fn copying_out_follows_links_inside_the_tree_only() {
    let place = Place::new();
    let tar = Layer::new()
        .dir("usr/lib")
        .file("usr/lib/a", 0o644, "a")
        .symlink("lib", "/usr/lib")
        .symlink("out", "../../../../../../etc/passwd")
        .symlink("loop", "loop")
        .finish();
    let image = ImageTrees { layers: vec![place.apply(&tar).0], owner_layer: None };
    let root = rootfs::prepare(&place.fresh(), &image, Driver::Overlay).unwrap();
    let out = |path: &str, follow| {
        let mut bytes = Vec::new();
        let source = Source { path: path.as_bytes(), name: b"name", follow };
        copy::copy_out_of(Some(&image), &root, &IdMap::default(), source, &mut bytes)
            .map(|_| unpack(&place, &bytes))
    };
    assert_eq!(std::fs::read(out("/lib/a", false).unwrap().join("name")).unwrap(), b"a");
    assert!(out("lib", false).unwrap().join("name").is_symlink());
    assert_eq!(names(&out("lib", true).unwrap().join("name")), ["a"]);
    assert_eq!(names(&out("/", false).unwrap().join("name")), ["lib", "loop", "out", "usr"]);
    assert_eq!(names(&out("usr/../usr/lib/..", false).unwrap().join("name")), ["lib"]);
    for missing in ["nothing", "loop/x", "usr/lib/a/b"] {
        let error = out(missing, true).unwrap_err();
        assert!(matches!(error, rootfs::Error::Path { .. }), "{error}");
    }
    assert!(out("out", true).is_err());
    assert!(out("loop", true).is_err());
    let top = File::open(image.layers[0].tree()).unwrap();
    let mut bytes = Vec::new();
    let source = Source { path: b"lib/a", name: b"n", follow: false };
    copy::copy_out(&top, Owners::new(), &IdMap::default(), source, &mut bytes).unwrap();
    assert_eq!(names(&unpack(&place, &bytes)), ["n"]);
}

#[test]
fn copying_in_stays_inside_and_replaces_no_directory() {
    let place = Place::new();
    let tree = place.fresh();
    let bait = place.path().join("bait");
    std::fs::create_dir(&bait).unwrap();
    std::fs::create_dir_all(tree.join("run/dir")).unwrap();
    std::fs::create_dir(tree.join("var")).unwrap();
    symlink("/run", tree.join("var/run")).unwrap();
    symlink(&bait, tree.join("out")).unwrap();
    let top = || File::open(&tree).unwrap();
    let tar = Layer::new()
        .file("f", 0o4755, "content")
        .file(".wh.plain", 0o644, "just a name")
        .dir("d")
        .file("d/x", 0o600, "x")
        .hardlink("d/y", "d/x")
        .finish();
    let owner = Into { owner: Some((10, 20)), no_set_id: true, ..Into::default() };
    let copied = copy::copy_in(top(), b"/var/run", &tar[..], &owner).unwrap();
    assert_eq!(names(&tree.join("run")), [".wh.plain", "d", "dir", "f"]);
    assert_eq!(copied.entries, 5);
    assert_eq!(std::fs::metadata(tree.join("run/f")).unwrap().permissions().mode() & 0o7777, 0o755);
    if copied.owners.is_empty() {
        let file = File::open(tree.join("run/d/x")).unwrap();
        let text = sys::fs::xattr::get(&file, rootfs::owners::OWNER_XATTR).unwrap().unwrap();
        assert_eq!(text, b"10:20:600:f:0:0");
    }
    for (path, entry) in [
        ("var/run", Entry::new(b'0', "dir")),
        ("var/run", Entry::new(b'5', "f")),
        ("var", Entry::new(b'0', "../../escape")),
        ("../../up", Entry::new(b'0', "f")),
        ("run", Entry::new(b'1', "l").link("../../bait/x")),
    ] {
        let tar = Layer::new().entry(&entry).finish();
        let result = copy::copy_in(top(), path.as_bytes(), &tar[..], &Into::default());
        assert!(result.is_err(), "{path} {entry:?}");
    }
    // An absolute link leads to the container's own path.
    let tar = Layer::new().file("inside", 0o644, "x").finish();
    copy::copy_in(top(), b"out", &tar[..], &Into::default()).unwrap();
    assert!(names(&bait).is_empty());
    assert!(tree.join(bait.strip_prefix("/").unwrap()).join("inside").exists());
}

#[test]
fn a_directory_becomes_a_layer() {
    let place = Place::new();
    let tree = place.fresh();
    std::fs::create_dir(tree.join("bin")).unwrap();
    std::fs::write(tree.join("bin/sh"), "#!").unwrap();
    std::fs::hard_link(tree.join("bin/sh"), tree.join("bin/bash")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap();
    let mut bytes = Vec::new();
    let packed = rootfs::import::directory(&tree, false, &mut bytes).unwrap();
    assert_eq!(packed.skipped, [b"socket"]);
    assert_eq!(packed.bytes as usize, bytes.len());
    let (layer, applied) = place.apply(&bytes);
    assert!(applied.owners.is_empty() && applied.meta.has_root);
    assert_eq!(names(&layer.tree().join("bin")), ["bash", "sh"]);
    let usage = rootfs::usage::tree_usage(Path::new(&layer.tree())).unwrap();
    // `bin` and one file of two names.
    assert_eq!(usage.inodes, 2);
    let mut bytes = Vec::new();
    rootfs::import::directory(&tree, true, &mut bytes).unwrap();
    let (_, applied) = place.apply(&bytes);
    let user = rustix::process::getuid().as_raw();
    assert_eq!(applied.owners.get(b"bin/sh").map_or(0, |record| record.uid), user);
}

/// Places of mounts that engines have made are neither changes nor in archives; what the image has,
/// or what was put there, is.
#[test]
fn places_of_mounts_are_left_out() {
    let place = Place::new();
    let tar = Layer::new()
        .entry(&Entry::new(b'5', "./").mode(0o755))
        .dir("sys")
        .file("etc-file", 0o644, "x")
        .finish();
    let image = ImageTrees { layers: vec![place.apply(&tar).0], owner_layer: None };
    for driver in [Driver::Overlay, Driver::Copy] {
        let dir = place.path().join(format!("c-{}", driver.name()));
        std::fs::create_dir(&dir).unwrap();
        let root = rootfs::prepare(&dir, &image, driver).unwrap();
        let (Root::Overlay { upper: top, .. } | Root::Directory(top)) = &root else { panic!() };
        let mode = |name: &str, mode: u32| {
            std::fs::set_permissions(top.join(name), PermissionsExt::from_mode(mode)).unwrap();
        };
        for name in ["proc", "dev", "etc", "sys"] {
            let _ = std::fs::create_dir(top.join(name));
            mode(name, 0o755);
        }
        for name in ["etc/hosts", "etc/hostname"] {
            std::fs::write(top.join(name), "").unwrap();
            mode(name, 0o644);
        }
        let seen = || {
            let mut tar = Vec::new();
            let ids = IdMap::default();
            pack::export(Some(&image), Some(&root), &ids, Options::default(), &mut tar).unwrap();
            let mut archive = tar::Archive::new(&tar[..]);
            let paths = archive
                .entries()
                .unwrap()
                .map(|entry| String::from_utf8(entry.unwrap().path_bytes().into_owned()).unwrap());
            (lines(&diff(&image, &root, &ids).unwrap()), paths.collect::<Vec<_>>())
        };
        let (changes, archive) = seen();
        assert!(changes.is_empty(), "{changes:?}");
        assert_eq!(archive, ["./", "etc-file", "sys/"]);
        std::fs::write(top.join("etc/hostname"), "mine").unwrap();
        std::fs::write(top.join("dev/null"), "mine").unwrap();
        mode("proc", 0o700);
        let (changes, archive) = seen();
        let wanted = ["A /dev", "A /dev/null", "A /etc", "A /etc/hostname", "A /proc"];
        assert_eq!(changes, wanted);
        let wanted =
            ["./", "dev/", "dev/null", "etc/", "etc/hostname", "etc-file", "proc/", "sys/"];
        assert_eq!(archive, wanted);
    }
}
