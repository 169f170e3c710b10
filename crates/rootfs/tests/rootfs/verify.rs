//! Damage in an unpacked layer is found.

use crate::common::Place;
use rootfs::Limits;
use rootfs::verify::layer as verify;
use std::os::unix::fs::{FileExt, PermissionsExt};
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
fn a_sound_layer_is_sound_and_damage_is_named() {
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
