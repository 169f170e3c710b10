//! Tests that damage in an unpacked layer is found.

use crate::common::Place;
use rootfs::Limits;
use rootfs::verify::layer as verify;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use testkit::layer::{Entry, Layer};

fn sample() -> Vec<u8> {
    Layer::new()
        .entry(&Entry::new(b'5', "d").mode(0o555))
        .file("d/f", 0o644, vec![b'x'; 300_000])
        .file("zeros", 0o644, vec![0; 3 << 20])
        .hardlink("hard", "d/f")
        .symlink("l", "d")
        .file("l/through", 0o600, "t")
        .file("implicit/file", 0o000, "secret")
        .entry(&Entry::new(b'0', "theirs").owner(4, 4).data("x"))
        .entry(&Entry::new(b'3', "null").device(1, 3))
        .whiteout("gone")
        .file("twice", 0o644, "first")
        .file("twice", 0o600, "second")
        .finish()
}

#[test]
fn damage_in_a_layer_is_named() {
    let place = Place::new();
    let tar = sample();
    let check = |layer: &rootfs::Layer| {
        let (digest, wrong) = verify(&tar[..], layer, &Limits::default()).unwrap();
        assert_eq!(digest, oci::Digest::of(&tar));
        wrong.into_iter().map(|one| String::from_utf8(one.path).unwrap()).collect::<Vec<_>>()
    };
    let (layer, _) = place.apply(&tar);
    assert_eq!(check(&layer), [] as [&str; 0]);
    let tree = layer.tree();
    let file = std::fs::OpenOptions::new().write(true).open(tree.join("zeros")).unwrap();
    let before = std::fs::metadata(tree.join("zeros")).unwrap().modified().unwrap();
    file.write_all_at(&[1], 2_000_000).unwrap();
    file.set_modified(before).unwrap();
    assert_eq!(check(&layer), ["zeros"]);
    std::fs::set_permissions(tree.join("twice"), std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::remove_file(tree.join("theirs")).unwrap();
    std::fs::write(tree.join("implicit/more"), "x").unwrap();
    std::fs::write(layer.directory.join("owners"), "coracle-owners 1\n").unwrap();
    assert_eq!(check(&layer), ["implicit/more", "null", "theirs", "twice", "zeros"]);
}

fn locked() -> Layer {
    Layer::new()
        .entry(&Entry::new(b'5', "./").mode(0o000))
        .entry(&Entry::new(b'5', "locked").mode(0o000))
        .file("locked/inside", 0o000, "x")
        .entry(&Entry::new(b'5', "locked/deeper").mode(0o111))
        .file("locked/deeper/file", 0o400, "y")
        .hardlink("locked/deeper/again", "locked/inside")
        .entry(&Entry::new(b'5', "readable").mode(0o555))
        .file("readable/file", 0o444, "z")
}

/// Modes on disk below a tree with unreadable directories, in the order of [`locked`]; opens them
/// for a moment.
fn modes(tree: &std::path::Path) -> Vec<u32> {
    let mut modes = Vec::new();
    let mut opened = Vec::new();
    for path in ["", "locked", "locked/inside", "locked/deeper", "locked/deeper/file"] {
        let path = tree.join(path);
        let meta = std::fs::symlink_metadata(&path).unwrap();
        modes.push(meta.mode() & 0o7777);
        if meta.is_dir() {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
            opened.push((path, meta.permissions()));
        }
    }
    for (path, permissions) in opened.into_iter().rev() {
        std::fs::set_permissions(path, permissions).unwrap();
    }
    modes
}

const LOCKED: [u32; 5] = [0, 0, 0, 0o111, 0o400];

#[test]
fn unreadable_directories_verify_and_keep_their_modes() {
    let place = Place::new();
    let tar = locked().finish();
    let (layer, _) = place.apply(&tar);
    assert_eq!(modes(&layer.tree()), LOCKED);
    let (_, wrong) = verify(&tar[..], &layer, &Limits::default()).unwrap();
    assert_eq!(wrong, []);
    assert_eq!(modes(&layer.tree()), LOCKED);
}

#[test]
fn unreadable_directories_are_flattened_by_many_at_once() {
    use rootfs::flatten::{Method, flatten};
    let place = Place::new();
    let tar = locked().finish();
    let (layer, _) = place.apply(&tar);
    let (upper, _) = place
        .apply(&Layer::new().whiteout("locked/inside").file("readable/more", 0o644, "w").finish());
    let layers = [upper, layer.clone()];
    let methods = [Method::Copy, Method::HardLink, Method::Reflink, Method::Copy];
    let targets: Vec<_> = methods.iter().map(|method| (*method, place.fresh())).collect();
    std::thread::scope(|scope| {
        for (method, base) in &targets {
            let (layers, layer, tar) = (&layers, &layer, &tar);
            scope.spawn(move || {
                for round in 0..20 {
                    let target = base.join(round.to_string());
                    std::fs::create_dir(&target).unwrap();
                    let staging = std::fs::File::open(&target).unwrap();
                    let meta = flatten(layers, &staging, *method).unwrap();
                    let flat = rootfs::Layer::new(target, meta);
                    let record = flat.owners().unwrap();
                    let deeper = record.get(b"locked/deeper").unwrap().mode;
                    assert_eq!((record.get(b"locked").unwrap().mode, deeper), (0, 0o111));
                    let (_, wrong) = verify(&tar[..], layer, &Limits::default()).unwrap();
                    assert_eq!(wrong, []);
                    if round == 0 {
                        // Once more, from the flat tree: its unreadable directories can be read as
                        // well.
                        let again = base.join("again");
                        std::fs::create_dir(&again).unwrap();
                        let staging = std::fs::File::open(&again).unwrap();
                        flatten(&[flat], &staging, *method).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(modes(&layer.tree()), LOCKED);
}

/// A killed reader leaves directories open; the table has the true modes, and the next reader
/// restores them.
#[test]
fn the_next_reader_restores_modes_after_a_killed_one() {
    let place = Place::new();
    let tar = locked().finish();
    let (layer, _) = place.apply(&tar);
    std::fs::set_permissions(layer.tree(), std::fs::Permissions::from_mode(0o500)).unwrap();
    let (_, wrong) = verify(&tar[..], &layer, &Limits::default()).unwrap();
    assert_eq!(wrong, []);
    assert_eq!(modes(&layer.tree()), LOCKED);
}

#[test]
fn names_are_followed_as_when_unpacked() {
    let place = Place::new();
    let tar = Layer::new()
        .symlink("lib", "usr/lib")
        .file("lib/x", 0o644, "x")
        .hardlink("lib/y", "lib/x")
        .symlink("etc2", "/etc")
        .file("etc2/deep/f", 0o600, "f")
        .dir("d")
        .dir("d/e")
        .file("d/e/first", 0o644, "x")
        .symlink("d/e", "/far/../away")
        .file("d/e/written", 0o644, "x")
        .symlink("d", "../../else")
        .file("d/written", 0o644, "x")
        .dir("d")
        .file("d/inside", 0o644, "x")
        .symlink("f", "/etc/passwd")
        .file("f", 0o644, "file")
        .hardlink("lower", "no/such/file")
        .finish();
    let (layer, _) = place.apply(&tar);
    let (_, wrong) = verify(&tar[..], &layer, &Limits::default()).unwrap();
    assert_eq!(wrong, []);
    std::fs::write(layer.tree().join("away/written"), "y").unwrap();
    std::fs::remove_file(layer.tree().join("usr/lib/x")).unwrap();
    let (_, wrong) = verify(&tar[..], &layer, &Limits::default()).unwrap();
    let wrong: Vec<_> = wrong.iter().map(|one| String::from_utf8_lossy(&one.path)).collect();
    assert_eq!(wrong, ["away/written", "usr/lib/x"]);
}
