//! Tests of hostile layers: paths that lead out of the tree, and excessive sizes.

use crate::common::{Place, names};
use rootfs::{Error, FileKind, Limits};
use std::os::unix::fs::MetadataExt;
use testkit::layer::{Entry, Layer};

/// Calls `check` with a directory outside the tree, then checks that the layer did not touch it.
fn with_bait(check: impl Fn(&Place, &str)) {
    let place = Place::new();
    let bait = place.path().join("bait");
    std::fs::create_dir(&bait).unwrap();
    std::fs::write(bait.join("file"), "untouched").unwrap();
    let before = std::fs::metadata(bait.join("file")).unwrap();
    check(&place, bait.to_str().unwrap());
    let after = std::fs::metadata(bait.join("file")).unwrap();
    assert_eq!(std::fs::read(bait.join("file")).unwrap(), b"untouched");
    assert_eq!(names(&bait), ["file"]);
    assert_eq!(
        (before.mode(), before.nlink(), before.ctime(), before.ctime_nsec()),
        (after.mode(), after.nlink(), after.ctime(), after.ctime_nsec())
    );
}

#[test]
fn names_with_dots_do_not_leave_the_tree() {
    with_bait(|place, _| {
        for name in
            ["../bait/file", "a/../../bait/file", "/../bait/file", "../../../../etc/x", ".."]
        {
            let error = place.refuse(&Layer::new().file(name, 0o644, "x").finish());
            assert!(matches!(error, Error::Refused { .. }), "{name}: {error}");
            assert!(error.hint().is_some());
        }
        let (layer, _) = place.apply(&Layer::new().file("a/../b/./c", 0o644, "x").finish());
        assert_eq!(names(&layer.tree()), ["b"]);
    });
}

#[test]
fn absolute_names_are_relative_to_the_tree() {
    with_bait(|place, bait| {
        let (layer, _) =
            place.apply(&Layer::new().file(&format!("{bait}/file"), 0o644, "x").finish());
        assert!(layer.tree().join(&bait[1..]).join("file").exists());
    });
}

#[test]
fn links_as_parents_stay_inside() {
    with_bait(|place, bait| {
        for target in [bait, "../../bait", "/../../../bait", "x/../../../bait"] {
            let tar = Layer::new().symlink("out", target).file("out/file", 0o600, "x").finish();
            match place.try_apply(&tar, &Limits::default()) {
                Ok((layer, _)) => assert!(layer.tree().join("out").is_symlink()),
                Err(error) => assert!(matches!(error, Error::Refused { .. }), "{error}"),
            }
            let tar = Layer::new().symlink("out", target).entry(&Entry::new(b'5', "out")).finish();
            let (layer, _) = place.apply(&tar);
            assert!(!layer.tree().join("out").is_symlink());
            let tar = Layer::new().symlink("out", target).whiteout("out/file").finish();
            let _ = place.try_apply(&tar, &Limits::default());
            let tar = Layer::new().symlink("out", target).opaque("out").finish();
            let _ = place.try_apply(&tar, &Limits::default());
        }
    });
}

#[test]
fn files_replace_links_and_do_not_write_through_them() {
    with_bait(|place, bait| {
        let target = format!("{bait}/file");
        let tar = Layer::new().symlink("f", &target).file("f", 0o777, "x").finish();
        let (layer, _) = place.apply(&tar);
        assert_eq!(std::fs::read(layer.tree().join("f")).unwrap(), b"x");
        for kind in [b'3', b'6'] {
            let tar = Layer::new().symlink("f", &target).entry(&Entry::new(kind, "f")).finish();
            place.apply(&tar);
        }
    });
}

#[test]
fn hard_links_do_not_leave_the_tree() {
    with_bait(|place, bait| {
        for target in ["../bait/file", "../../bait/file"] {
            let error = place.refuse(&Layer::new().hardlink("l", target).finish());
            assert!(matches!(error, Error::Refused { .. }), "{error}");
        }
        // Absolute: names the same path in the tree, which is missing there.
        let (layer, applied) =
            place.apply(&Layer::new().hardlink("l", &format!("{bait}/file")).finish());
        assert_eq!(applied.meta.links.len(), 1);
        assert!(!layer.tree().join("l").exists());
        // Through a link out of the tree.
        let tar = Layer::new().symlink("out", bait).hardlink("l", "out/file").finish();
        let (_, applied) = place.apply(&tar);
        assert_eq!(applied.meta.links.len(), 1);
        // To a symbolic link itself, not to its target.
        let tar = Layer::new()
            .symlink("s", &format!("{bait}/file"))
            .hardlink("l", "s")
            .file("l", 0o644, "mine")
            .finish();
        place.apply(&tar);
    });
}

#[test]
fn loops_of_links_end() {
    let place = Place::new();
    let tar = Layer::new().symlink("a", "b").symlink("b", "a").file("a/x", 0o644, "").finish();
    assert!(matches!(place.refuse(&tar), Error::Refused { .. }));
    let tar = Layer::new().symlink("a", "a/a").hardlink("x", "a/x").finish();
    assert!(matches!(place.refuse(&tar), Error::Refused { .. }));
}

#[test]
fn devices_are_recorded_and_never_created() {
    let place = Place::new();
    let tar = Layer::new()
        .entry(&Entry::new(b'3', "null").device(1, 3).mode(0o666))
        .entry(&Entry::new(b'4', "disk").device(8, 1).mode(0o660).owner(0, 6))
        .entry(&Entry::new(b'3', "fake").device(0, 0))
        .finish();
    let (layer, applied) = place.apply(&tar);
    for name in ["null", "disk", "fake"] {
        let meta = std::fs::symlink_metadata(layer.tree().join(name)).unwrap();
        assert!(meta.is_file() && meta.len() == 0);
    }
    let disk = applied.owners.get(b"disk").unwrap();
    assert_eq!((disk.kind, disk.device, disk.gid), (FileKind::Block, (8, 1), 6));
    assert_eq!(applied.owners.get(b"fake").unwrap().kind, FileKind::Char);
    assert_eq!(layer.owners().unwrap(), applied.owners);
}

#[test]
fn reserved_attributes_do_not_reach_the_disk() {
    let place = Place::new();
    let steering = [
        "user.overlay.opaque",
        "user.overlay.redirect",
        "user.overlay.metacopy",
        "user.coracle.owner",
        "trusted.overlay.opaque",
        "security.capability",
    ];
    let mut file = Entry::new(b'0', "d/f").data("x").xattr("user.fine", "1");
    let mut directory = Entry::new(b'5', "d").mode(0o755);
    for name in steering {
        file = file.xattr(name, "y");
        directory = directory.xattr(name, "y");
    }
    let (layer, applied) = place.apply(&Layer::new().entry(&directory).entry(&file).finish());
    for path in ["d", "d/f"] {
        let open = std::fs::File::open(layer.tree().join(path)).unwrap();
        for name in sys::fs::xattr::list(&open).unwrap() {
            let name = String::from_utf8(name).unwrap();
            assert!(!steering.contains(&name.as_str()), "{name} on disk");
        }
        let record = applied.owners.get(path.as_bytes()).unwrap();
        assert!(record.xattrs.len() >= steering.len());
    }
}

#[test]
fn whiteouts_of_other_kinds_are_refused() {
    let place = Place::new();
    for entry in [
        Entry::new(b'5', ".wh.dir"),
        Entry::new(b'2', ".wh.link").link("x"),
        Entry::new(b'3', ".wh.device"),
        Entry::new(b'0', ".wh.full").data("x"),
        Entry::new(b'0', ".wh."),
        Entry::new(b'0', ".wh.."),
        Entry::new(b'0', ".wh..."),
        Entry::new(b'0', ".wh..wh.plnk"),
        Entry::new(b'0', ".wh.dir/file"),
    ] {
        let error = place.refuse(&Layer::new().entry(&entry).finish());
        assert!(matches!(error, Error::Refused { .. }), "{error}");
    }
    let tar = Layer::new().symlink("s", ".wh.x").file("s/file", 0o644, "").finish();
    assert!(matches!(place.refuse(&tar), Error::Refused { .. }));
}

#[test]
fn the_root_can_only_be_a_directory() {
    let place = Place::new();
    for entry in [
        Entry::new(b'0', "."),
        Entry::new(b'2', "./").link("/etc"),
        Entry::new(b'1', "/").link("x"),
    ] {
        assert!(matches!(
            place.refuse(&Layer::new().entry(&entry).finish()),
            Error::Refused { .. }
        ));
    }
    let (_, applied) =
        place.apply(&Layer::new().entry(&Entry::new(b'5', "./").mode(0o700).owner(3, 4)).finish());
    assert!(applied.meta.has_root);
    assert_eq!(applied.owners.get(b"").unwrap().gid, 4);
}

#[test]
fn oversized_files_are_refused() {
    let place = Place::new();
    let huge = Entry::new(b'0', "huge")
        .data(b"1\n0\n0\n".iter().copied().chain(std::iter::repeat_n(0, 506)).collect::<Vec<_>>())
        .pax("GNU.sparse.major", "1")
        .pax("GNU.sparse.minor", "0")
        .pax("GNU.sparse.name", "huge")
        .pax("GNU.sparse.realsize", (10_u64 << 40).to_string());
    let tar = Layer::new().entry(&huge).finish();
    let error = place.refuse(&tar);
    assert!(matches!(error, Error::Limit { what: "file size", .. }), "{error}");
    assert!(error.to_string().contains("huge"));
    let wide = Limits { file_bytes: 16 << 40, total_bytes: 16 << 40, ..Limits::default() };
    match place.try_apply(&tar, &wide) {
        Ok((layer, _)) => {
            let meta = std::fs::metadata(layer.tree().join("huge")).unwrap();
            assert_eq!((meta.len(), meta.blocks()), (10 << 40, 0));
        }
        // The largest file of the file system.
        Err(error) => assert!(error.to_string().contains("huge"), "{error}"),
    }
    let sizes: Vec<Entry> =
        (0..3).map(|n| Entry::new(b'0', format!("f{n}")).data(vec![b'x'; 1000])).collect();
    let mut tar = Layer::new();
    for entry in &sizes {
        tar.push(entry);
    }
    let limits = Limits { total_bytes: 2500, ..Limits::default() };
    let error = place.refuse_with(&tar.clone().finish(), &limits);
    assert!(matches!(error, Error::Limit { what: "total size", .. }), "{error}");
    let limits = Limits { entries: 2, ..Limits::default() };
    let error = place.refuse_with(&tar.finish(), &limits);
    assert!(matches!(error, Error::Limit { what: "number of entries", .. }), "{error}");
}

#[test]
fn oversized_names_are_refused() {
    let place = Place::new();
    let long = "d/".repeat(50_000);
    for entry in [Entry::new(b'0', &long), Entry::new(b'0', &long).gnu_names()] {
        let error = place.refuse(&Layer::new().entry(&entry).finish());
        assert!(
            matches!(error, Error::Limit { what: "path length", found: 100_000, .. }),
            "{error}"
        );
        assert!(error.to_string().len() < 1000);
    }
    let entry = Entry::new(b'2', "l").link("t/".repeat(50_000));
    let error = place.refuse(&Layer::new().entry(&entry).finish());
    assert!(matches!(error, Error::Limit { what: "link target length", .. }), "{error}");
    let part = "x".repeat(300);
    let error = place.refuse(&Layer::new().file(&part, 0o644, "").finish());
    assert!(error.to_string().contains("xxx"), "{error}");
    let entry = Entry::new(b'0', "f").xattr("user.big", vec![b'v'; 70_000]);
    let error = place.refuse(&Layer::new().entry(&entry).finish());
    assert!(matches!(error, Error::Limit { what: "extended attribute size", .. }), "{error}");
    let entry = Entry::new(b'0', "f").pax("comment", vec![b'c'; 5 << 20]);
    let error = place.refuse(&Layer::new().entry(&entry).finish());
    assert!(matches!(error, Error::Limit { what: "extension header size", .. }), "{error}");
}

#[test]
fn a_path_of_4000_bytes_works() {
    let place = Place::new();
    let path = "d/".repeat(1990) + "end";
    for entry in [Entry::new(b'0', &path), Entry::new(b'0', &path).gnu_names()] {
        let (layer, _) = place.apply(&Layer::new().entry(&entry.data("deep")).finish());
        let usage = rootfs::usage::tree_usage(&layer.tree()).unwrap();
        assert_eq!(usage.inodes, 1991);
    }
}

#[test]
fn damaged_archives_are_errors() {
    let place = Place::new();
    let good = Layer::new().dir("d").file("d/f", 0o644, vec![b'x'; 3000]).finish();
    for cut in [100, 512 + 100, 1024, 1024 + 10, 1024 + 2999] {
        let error = place.refuse(&good[..cut]);
        assert!(matches!(error, Error::Archive { .. }), "{cut}: {error}");
    }
    // Without its end marks, but complete.
    place.apply(&good[..good.len() - 1024]);
    place.apply(b"");
    let mut flipped = good.clone();
    flipped[520] ^= 1;
    assert!(matches!(place.refuse(&flipped), Error::Archive { offset: 512, .. }));
    let garbage = [&good[..], b"garbage"].concat();
    assert!(place.refuse(&garbage).to_string().contains("data follow"));
    let two = [&good[..], &good[..]].concat();
    assert!(place.refuse(&two).to_string().contains("data follow"));
    let entry = Entry::new(b'0', "f").data("x").claimed_size(u64::MAX / 2);
    let error = place.refuse(&Layer::new().entry(&entry).finish());
    assert!(matches!(error, Error::Limit { .. } | Error::Archive { .. }), "{error}");
    for kind in [b'M', b'N', b'Z', b'A'] {
        let error = place.refuse(&Layer::new().entry(&Entry::new(kind, "f")).finish());
        assert!(matches!(error, Error::Archive { .. }), "{error}");
    }
    assert!(place.refuse(&vec![b'x'; 10_240]).to_string().contains("tar"));
    let error =
        place.refuse(&Layer::new().entry(&Entry::new(b'0', "f").owner(1 << 33, 0)).finish());
    assert!(error.to_string().contains("out of range"), "{error}");
}

#[test]
fn a_bomb_stops_while_it_is_unpacked() {
    let place = Place::new();
    let tar = Layer::new().file("zeros", 0o644, vec![0; 32 << 20]).finish();
    let blob = testkit::image::compress(&tar, testkit::image::Pack::Gzip);
    let limits = Limits { ratio: 100, ratio_after: 8 << 20, ..Limits::default() };
    let staging = std::fs::File::open(place.fresh()).unwrap();
    let plain = rootfs::decode::open(&blob[..], &limits).unwrap();
    let error = rootfs::apply(plain, &staging, &limits, &|_| {}).unwrap_err();
    assert!(matches!(error, Error::Read { .. }), "{error}");
    assert!(error.to_string().contains("bomb"), "{error}");
    // Under the default limits it is an ordinary file, and its zeros take no disk space.
    let plain = rootfs::decode::open(&blob[..], &Limits::default()).unwrap();
    let directory = place.fresh();
    let staging = std::fs::File::open(&directory).unwrap();
    rootfs::apply(plain, &staging, &Limits::default(), &|_| {}).unwrap();
    let meta = std::fs::metadata(directory.join("tree/zeros")).unwrap();
    assert_eq!(meta.len(), 32 << 20);
    assert!(meta.blocks() < 1024, "{}", meta.blocks());
}

/// Runs all tests above again, for a process with another setup.
pub(crate) fn all() {
    names_with_dots_do_not_leave_the_tree();
    absolute_names_are_relative_to_the_tree();
    links_as_parents_stay_inside();
    files_replace_links_and_do_not_write_through_them();
    hard_links_do_not_leave_the_tree();
    loops_of_links_end();
    devices_are_recorded_and_never_created();
    reserved_attributes_do_not_reach_the_disk();
    whiteouts_of_other_kinds_are_refused();
    the_root_can_only_be_a_directory();
    oversized_files_are_refused();
    oversized_names_are_refused();
    a_path_of_4000_bytes_works();
    damaged_archives_are_errors();
    a_bomb_stops_while_it_is_unpacked();
}
