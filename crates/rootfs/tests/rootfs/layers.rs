//! Tests of applied layers: whiteouts, links, replacements, attributes, and layers over each other.

use crate::common::{Place, is_whiteout, marks_on_disk, names};
use rootfs::flatten::{Method, flatten};
use rootfs::{FileKind, ImageTrees, Plan, image};
use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use testkit::layer::{Entry, Layer};

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn is_opaque(path: &Path) -> bool {
    sys::fs::whiteout::is_opaque(File::open(path).unwrap()).unwrap()
}

#[test]
fn attributes_are_as_in_the_archive() {
    let place = Place::new();
    let tar = Layer::new()
        .entry(&Entry::new(b'5', "closed").mode(0o000).mtime(1_000_000_000))
        .entry(
            &Entry::new(b'0', "closed/file").mode(0o000).data("x").pax("mtime", "12345.123456789"),
        )
        .entry(&Entry::new(b'0', "suid").mode(0o4755).data("x"))
        .entry(&Entry::new(b'0', "sgid").mode(0o2755).data("x"))
        .entry(&Entry::new(b'5', "tmp").mode(0o1777).pax("mtime", "-7.5"))
        .entry(&Entry::new(b'0', "wide").mode(0o666).data("x"))
        .entry(&Entry::new(b'2', "link").link("nowhere").pax("mtime", "99.000000001"))
        .entry(&Entry::new(b'6', "fifo").mode(0o622))
        .entry(&Entry::new(b'0', "theirs").owner(1234, 5678).mode(0o600))
        .entry(&Entry::new(b'2', "their-link").owner(1234, 5678).link("x"))
        .finish();
    let (layer, applied) = place.apply(&tar);
    let tree = layer.tree();
    for (name, expected) in [
        ("suid", 0o4755),
        ("sgid", 0o2755),
        ("tmp", 0o1777),
        ("wide", 0o666),
        ("fifo", 0o622),
        ("closed", 0),
    ] {
        assert_eq!(mode(&tree.join(name)), expected, "{name}");
    }
    let time = |name: &str| {
        let meta = std::fs::symlink_metadata(tree.join(name)).unwrap();
        (meta.mtime(), meta.mtime_nsec())
    };
    assert_eq!(time("closed"), (1_000_000_000, 0));
    assert_eq!(time("tmp"), (-8, 500_000_000));
    assert_eq!(time("link"), (99, 1));
    assert_eq!(applied.owners.get(b"theirs").unwrap().uid, 1234);
    assert_eq!(applied.owners.get(b"their-link").unwrap().kind, FileKind::Symlink);
    // The modes that make entries unreadable for their owner: readers change them on disk for a
    // moment.
    assert_eq!(applied.owners.get(b"closed").unwrap().mode, 0);
    assert_eq!(applied.owners.get(b"closed/file").unwrap().mode, 0);
    assert_eq!(applied.owners.len(), 4);
    assert_eq!(applied.diff_id, oci::Digest::of(&tar));
    std::fs::set_permissions(tree.join("closed"), std::fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(time("closed/file"), (12345, 123_456_789));
    assert_eq!(mode(&tree.join("closed/file")), 0);
}

#[test]
fn an_empty_tree_is_taken_and_a_full_one_is_not() {
    let place = Place::new();
    let directory = place.fresh();
    std::fs::create_dir(directory.join("tree")).unwrap();
    let tar = Layer::new().file("f", 0o644, "x").finish();
    let apply = || {
        let staging = File::open(&directory).unwrap();
        rootfs::apply(&tar[..], &staging, &rootfs::Limits::default(), &|_| {})
    };
    apply().unwrap();
    assert!(apply().is_err());
}

#[test]
fn whiteouts_in_any_order() {
    let place = Place::new();
    if !marks_on_disk(&place) {
        return;
    }
    let tar = Layer::new()
        .whiteout("gone")
        .dir("both-dir")
        .whiteout("both-dir")
        .whiteout("later-dir")
        .dir("later-dir")
        .file("both-file", 0o644, "x")
        .whiteout("both-file")
        .whiteout("later-file")
        .file("later-file", 0o644, "x")
        .whiteout("parent")
        .file("parent/child", 0o644, "x")
        .dir("o")
        .file("o/before", 0o644, "x")
        .opaque("o")
        .file("o/after", 0o644, "x")
        .opaque("new")
        .file("new/x", 0o644, "x")
        .finish();
    let (layer, applied) = place.apply(&tar);
    let tree = layer.tree();
    assert!(is_whiteout(&tree.join("gone")));
    for name in ["both-dir", "later-dir", "parent", "o", "new"] {
        assert!(is_opaque(&tree.join(name)), "{name}");
    }
    assert_eq!(names(&tree.join("o")), ["after", "before"]);
    for name in ["both-file", "later-file", "parent/child"] {
        assert_eq!(std::fs::read(tree.join(name)).unwrap(), b"x");
    }
    assert_eq!(applied.meta.implicit, ["new", "parent"]);
    let (_, applied) = place.apply(&Layer::new().file(".wh..wh..opq", 0o644, "").finish());
    assert!(applied.meta.root_opaque);
    let (layer, _) =
        place.apply(&Layer::new().file("x", 0o644, "").hardlink(".wh.y", "x").finish());
    assert!(is_whiteout(&layer.tree().join("y")));
}

#[test]
fn later_entries_replace_earlier_ones() {
    let place = Place::new();
    let tar = Layer::new()
        .entry(&Entry::new(b'5', "a").owner(5, 5))
        .entry(&Entry::new(b'0', "a/old").owner(5, 5))
        .dir("a/deep/er")
        .file("a", 0o600, "file now")
        .file("b", 0o644, "x")
        .dir("b")
        .file("b/in", 0o644, "y")
        .symlink("c", "b")
        .file("c/through", 0o644, "z")
        .dir("c")
        .file("c/own", 0o644, "z")
        .entry(&Entry::new(b'5', "b").mode(0o700))
        .file("h", 0o644, "one")
        .hardlink("h2", "h")
        .file("h", 0o644, "two")
        .finish();
    let (layer, applied) = place.apply(&tar);
    let tree = layer.tree();
    assert_eq!(std::fs::read(tree.join("a")).unwrap(), b"file now");
    assert!(applied.owners.is_empty(), "{:?}", applied.owners);
    assert_eq!(names(&tree.join("b")), ["in", "through"]);
    assert_eq!(mode(&tree.join("b")), 0o700);
    assert_eq!(names(&tree.join("c")), ["own"]);
    assert_eq!(std::fs::read(tree.join("h2")).unwrap(), b"one");
    assert_eq!(std::fs::read(tree.join("h")).unwrap(), b"two");
}

#[test]
fn parents_through_links_land_in_their_target() {
    let place = Place::new();
    let tar = Layer::new()
        .dir("usr/lib")
        .symlink("lib", "usr/lib")
        .symlink("abs", "/usr/lib")
        .symlink("dangling", "made/for/it")
        .file("lib/x", 0o644, "x")
        .file("abs/y", 0o644, "y")
        .file("dangling/z", 0o644, "z")
        .hardlink("hard", "lib/x")
        .finish();
    let (layer, applied) = place.apply(&tar);
    assert_eq!(names(&layer.tree().join("usr/lib")), ["x", "y"]);
    assert!(layer.tree().join("made/for/it/z").exists());
    assert!(layer.tree().join("lib").is_symlink());
    assert_eq!(std::fs::metadata(layer.tree().join("hard")).unwrap().nlink(), 2);
    assert_eq!(applied.meta.implicit, ["made", "made/for", "made/for/it", "usr"]);
}

#[test]
fn hard_links_share_content_and_records() {
    let place = Place::new();
    let tar = Layer::new()
        .hardlink("early", "f")
        .entry(&Entry::new(b'0', "f").owner(7, 8).data("x"))
        .hardlink("late", "./f")
        .symlink("s", "f")
        .hardlink("s2", "s")
        .hardlink("f", "f")
        .entry(&Entry::new(b'1', "with-data").link("f").data("x").pax("comment", "pax"))
        .entry(&Entry::new(b'1', "own-data").link("nowhere").data("own").pax("comment", "pax"))
        .entry(&Entry::new(b'1', "no-data").link("f").claimed_size(1))
        .file("end", 0o644, "end")
        .finish();
    let (layer, applied) = place.apply(&tar);
    let tree = layer.tree();
    let inode = |name: &str| std::fs::symlink_metadata(tree.join(name)).unwrap().ino();
    for name in ["early", "late", "with-data", "no-data"] {
        assert_eq!(inode(name), inode("f"), "{name}");
        assert_eq!(applied.owners.get(name.as_bytes()).unwrap().gid, 8, "{name}");
    }
    assert_eq!(inode("s"), inode("s2"));
    assert_eq!(std::fs::read(tree.join("own-data")).unwrap(), b"own");
    assert_eq!(std::fs::read(tree.join("end")).unwrap(), b"end");
}

/// Flattens layers, base first.
fn flat(place: &Place, layers: &[rootfs::Layer], method: Method) -> rootfs::Layer {
    let directory = place.fresh();
    let top_first = image::topmost_first(layers.to_vec()).layers;
    let meta = flatten(&top_first, File::open(&directory).unwrap(), method).unwrap();
    rootfs::Layer::new(directory, meta)
}

#[test]
fn a_layer_that_is_listed_twice_counts_where_it_is_topmost() {
    let place = Place::new();
    let layer = |tar: Layer| place.apply(&tar.finish()).0;
    let below = layer(Layer::new().file("f", 0o644, "old").file("keep", 0o644, "k"));
    let holds = layer(Layer::new().file("f", 0o644, "new"));
    let deletes = layer(Layer::new().whiteout("f"));
    let empty = layer(Layer::new());
    let tree = |layers: &[&rootfs::Layer]| {
        let layers: Vec<_> = layers.iter().copied().cloned().collect();
        let trees = image::topmost_first(layers.clone());
        let lowers = trees.lowers();
        let mut single = lowers.clone();
        single.sort();
        single.dedup();
        assert_eq!(single.len(), lowers.len(), "a directory is there twice: {lowers:?}");
        names(&flat(&place, &layers, Method::Copy).tree())
    };
    assert_eq!(tree(&[&below, &holds, &deletes, &holds]), ["f", "keep"]);
    assert_eq!(tree(&[&below, &holds, &deletes, &holds, &deletes]), ["keep"]);
    assert_eq!(tree(&[&empty, &below, &empty, &deletes, &empty]), ["keep"]);
}

#[test]
fn a_flattened_tree_equals_its_layers() {
    let place = Place::new();
    let (base, _) = place.apply(
        &Layer::new()
            .dir("usr/lib")
            .file("usr/lib/old", 0o644, "old")
            .symlink("lib", "usr/lib")
            .entry(&Entry::new(b'5', "private").mode(0o700).owner(9, 9).mtime(77))
            .file("private/key", 0o600, "key")
            .file("gone", 0o644, "x")
            .dir("replaced")
            .file("replaced/x", 0o644, "x")
            .dir("dir-to-file")
            .file("dir-to-file/x", 0o644, "x")
            .entry(&Entry::new(b'0', "target").owner(4, 4).data("target"))
            .finish(),
    );
    let (top, applied) = place.apply(
        &Layer::new()
            .file("lib/new", 0o644, "new")
            .file("private/other", 0o644, "o")
            .whiteout("gone")
            .dir("replaced")
            .opaque("replaced")
            .file("replaced/y", 0o644, "y")
            .file("dir-to-file", 0o644, "file")
            .hardlink("link", "target")
            .entry(&Entry::new(b'3', "dev/null").device(1, 3))
            .finish(),
    );
    assert_eq!(applied.meta.implicit, ["dev", "lib", "private"]);
    let layers = [base, top];
    assert!(matches!(image::plan(layers.to_vec()).unwrap(), Plan::Flatten { .. }));
    for method in [Method::HardLink, Method::Reflink, Method::Copy] {
        let flat = flat(&place, &layers, method);
        let tree = flat.tree();
        assert_eq!(names(&tree.join("usr/lib")), ["new", "old"], "{method:?}");
        assert!(tree.join("lib").is_symlink());
        assert_eq!(mode(&tree.join("private")), 0o700);
        assert_eq!(std::fs::metadata(tree.join("private")).unwrap().mtime(), 77);
        assert!(!tree.join("gone").exists());
        assert_eq!(names(&tree.join("replaced")), ["y"]);
        assert_eq!(std::fs::read(tree.join("dir-to-file")).unwrap(), b"file");
        assert_eq!(std::fs::read(tree.join("link")).unwrap(), b"target");
        let owners = flat.owners().unwrap();
        assert_eq!(owners.get(b"link").unwrap().uid, 4);
        assert_eq!(owners.get(b"private").unwrap().uid, 9);
        assert_eq!(owners.get(b"dev/null").unwrap().device, (1, 3));
        assert_eq!(owners.len(), 4);
        // The base is unchanged.
        assert_eq!(names(&layers[0].tree().join("usr/lib")), ["old"]);
    }
}

#[test]
fn most_images_need_no_flattening() {
    let place = Place::new();
    let (base, _) = place.apply(&Layer::new().dir("etc").file("etc/a", 0o644, "a").finish());
    let (plain, _) = place.apply(&Layer::new().file("etc/b", 0o644, "b").finish());
    let (opaque, _) =
        place.apply(&Layer::new().file(".wh..wh..opq", 0o644, "").file("x", 0o644, "").finish());
    let Plan::Ready(trees) = image::plan(vec![base.clone(), plain.clone()]).unwrap() else {
        panic!()
    };
    assert_eq!(trees.lowers(), [plain.tree(), base.tree()]);
    let Plan::Ready(trees) = image::plan(vec![base.clone(), opaque.clone()]).unwrap() else {
        panic!()
    };
    assert_eq!(trees.lowers(), [opaque.tree()]);
    let many: Vec<_> = (0..65).map(|_| place.apply(&Layer::new().dir("etc").finish()).0).collect();
    assert!(matches!(image::plan(many[1..].to_vec()).unwrap(), Plan::Ready(_)));
    assert!(matches!(image::plan(many).unwrap(), Plan::Flatten { .. }));
    let Plan::Ready(trees) = image::plan(vec![base.clone(); 65]).unwrap() else { panic!() };
    assert_eq!(trees.lowers(), [base.tree()]);
    let (closed, _) =
        place.apply(&Layer::new().entry(&Entry::new(b'5', "etc").mode(0o700)).finish());
    assert!(matches!(image::plan(vec![closed, plain]).unwrap(), Plan::Flatten { .. }));
    let (link, _) = place.apply(&Layer::new().hardlink("l", "etc/a").finish());
    assert!(matches!(image::plan(vec![base, link.clone()]).unwrap(), Plan::Flatten { .. }));
    let directory = place.fresh();
    let layers = std::slice::from_ref(&link);
    let error = flatten(layers, File::open(directory).unwrap(), Method::Copy).unwrap_err();
    assert!(matches!(error, rootfs::Error::LinkTarget { .. }), "{error}");
}

#[test]
fn hard_links_without_a_target_are_found_before_a_tree_is_made() {
    let place = Place::new();
    let layer = |tar: Layer| place.apply(&tar.finish()).0;
    let base = layer(Layer::new().dir("etc").file("etc/a", 0o644, "a").symlink("e", "etc"));
    let link = |target: &str| layer(Layer::new().hardlink("l", target));
    let checked = |layers: &[&rootfs::Layer]| {
        let layers: Vec<_> = layers.iter().copied().cloned().collect();
        image::links_have_targets(&layers)
    };
    for target in ["etc/a", "./etc/../etc/a", "e/a", "e"] {
        checked(&[&base, &link(target)]).unwrap();
    }
    for target in ["etc/b", "etc/a/b", "b", "b/a"] {
        let error = checked(&[&base, &link(target)]).unwrap_err();
        assert!(matches!(error, rootfs::Error::LinkTarget { .. }), "{target}: {error}");
    }
    // The layers above come too late.
    assert!(checked(&[&link("etc/a"), &base]).is_err());
}

#[test]
fn containers_of_every_driver() {
    let place = Place::new();
    let tar = Layer::new()
        .entry(&Entry::new(b'5', "./").mode(0o555).mtime(5))
        .file("etc/a", 0o600, "a")
        .entry(&Entry::new(b'0', "theirs").owner(3, 3))
        .finish();
    let (layer, _) = place.apply(&tar);
    let image = ImageTrees { layers: vec![layer], owner_layer: None };
    for driver in [rootfs::Driver::Overlay, rootfs::Driver::Reflink, rootfs::Driver::Copy] {
        let container = place.fresh();
        for _ in 0..2 {
            match rootfs::prepare(&container, &image, driver).unwrap() {
                rootfs::Root::Overlay { lowers, upper, work, .. } => {
                    assert_eq!(lowers, image.lowers());
                    assert!(upper.is_dir() && work.is_dir());
                    assert_eq!(mode(&upper), 0o555);
                }
                rootfs::Root::Directory(root) => {
                    assert_eq!(mode(&root), 0o555);
                    assert_eq!(names(&root), ["etc", "theirs"]);
                    assert_eq!(names(&container), ["ROOT", "owners"]);
                }
                other @ (rootfs::Root::Given { .. } | rootfs::Root::Stacked { .. }) => {
                    panic!("{other:?}")
                }
            }
        }
    }
}

#[test]
fn a_tree_can_be_removed_whatever_its_modes() {
    let place = Place::new();
    let tar = Layer::new()
        .dir("a/b")
        .file("a/b/f", 0o000, "x")
        .entry(&Entry::new(b'5', "a/b").mode(0))
        .entry(&Entry::new(b'5', "a").mode(0o111))
        .finish();
    let (layer, _) = place.apply(&tar);
    sys::fs::remove_tree(File::open(&layer.directory).unwrap(), b"tree").unwrap();
    assert!(!layer.tree().exists());
}

/// Runs all tests above again, for a process with another setup.
pub(crate) fn all() {
    attributes_are_as_in_the_archive();
    an_empty_tree_is_taken_and_a_full_one_is_not();
    whiteouts_in_any_order();
    later_entries_replace_earlier_ones();
    parents_through_links_land_in_their_target();
    hard_links_share_content_and_records();
    a_flattened_tree_equals_its_layers();
    most_images_need_no_flattening();
    containers_of_every_driver();
    a_tree_can_be_removed_whatever_its_modes();
}
