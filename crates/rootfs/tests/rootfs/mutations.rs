//! Archives with flipped, cut and moved bytes: must give an error or a tree, but no panic, no hang,
//! and nothing outside.

use crate::common::Place;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rootfs::Limits;
use testkit::layer::{Entry, Layer};

fn sample() -> Vec<u8> {
    let long = "long/".repeat(30) + "name";
    Layer::new()
        .entry(&Entry::new(b'5', "./").mode(0o755))
        .entry(&Entry::new(b'g', "global").data("20 comment=deadbeef\n"))
        .dir("usr/lib")
        .symlink("lib", "usr/lib")
        .file("lib/a", 0o4755, vec![b'a'; 700])
        .hardlink("b", "lib/a")
        .whiteout("gone")
        .opaque("usr")
        .entry(&Entry::new(b'0', &long).data("x").xattr("user.x", "y").pax("mtime", "1.5"))
        .entry(&Entry::new(b'2', "l").link(&long).gnu_names())
        .entry(
            &Entry::new(b'0', "s")
                .data("x".repeat(1024))
                .pax("GNU.sparse.size", "4096")
                .pax("GNU.sparse.map", "0,512,2048,512"),
        )
        .entry(&Entry::new(b'3', "null").device(1, 3))
        .entry(&Entry::new(b'6', "fifo"))
        .finish()
}

/// Corrects the checksum of a changed header, so that the change is read.
fn repair(bytes: &mut [u8], at: usize) {
    let start = at / 512 * 512;
    let Some(block) = bytes.get_mut(start..start + 512) else { return };
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

#[test]
fn mutated_archives_neither_panic_nor_escape() {
    let good = sample();
    let place = Place::new();
    place.apply(&good);
    let change = (any::<prop::sample::Index>(), any::<u8>(), any::<bool>());
    let strategy = (prop::collection::vec(change, 1..5), any::<prop::sample::Index>(), 0..8);
    let limits = Limits { total_bytes: 64 << 20, file_bytes: 64 << 20, ..Limits::default() };
    let mut runner = TestRunner::new(Config { cases: 300, ..Config::default() });
    runner
        .run(&strategy, |(changes, cut, kind)| {
            let mut bytes = good.clone();
            for (at, value, fix) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
                if fix {
                    repair(&mut bytes, at);
                }
            }
            match kind {
                0 => bytes.truncate(cut.index(bytes.len())),
                1 => {
                    let block = cut.index(bytes.len()) / 512 * 512;
                    bytes.rotate_left(block);
                }
                _ => {}
            }
            if let Ok((layer, applied)) = place.try_apply(&bytes, &limits) {
                let text = std::fs::read(layer.directory.join("owners")).unwrap();
                prop_assert_eq!(rootfs::Owners::parse(&text).unwrap(), applied.owners);
                let image = rootfs::image::topmost_first(vec![layer.clone()]);
                let ids = rootfs::union::IdMap::default();
                let options = rootfs::pack::Options::default();
                rootfs::pack::export(Some(&image), None, &ids, options, std::io::sink()).unwrap();
            }
            Ok(())
        })
        .unwrap();
    let outside: Vec<_> = crate::common::names(place.path())
        .into_iter()
        .filter(|name| !name.starts_with('n'))
        .collect();
    assert!(outside.is_empty(), "{outside:?}");
}
