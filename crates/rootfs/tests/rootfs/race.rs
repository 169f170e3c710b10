//! Another process replaces a directory of the tree by a link that leads out, again and again,
//! while a layer arrives.

use crate::common::{Place, names};
use rootfs::Limits;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::layer::{Entry, Layer};

#[test]
fn a_directory_swapped_for_a_link_does_not_lead_out() {
    let place = Place::new();
    let bait = place.path().join("bait");
    std::fs::create_dir(&bait).unwrap();
    let mut tar = Layer::new().dir("d").dir("d/e");
    for round in 0..4000 {
        tar.push(&Entry::new(b'0', format!("d/e/f{round}")).data("x"));
        // Other directories in between evict the open one from the cache.
        tar.push(&Entry::new(b'0', format!("o{}/f{round}", round % 97)).data("x"));
    }
    let tar = tar.finish();
    for _ in 0..2 {
        let directory = place.fresh();
        let staging = std::fs::File::open(&directory).unwrap();
        let swapped = directory.join("tree/d");
        let (aside, done) = (directory.join("aside"), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if std::fs::rename(&swapped, &aside).is_ok() {
                        let _ = symlink(&bait, &swapped);
                        std::thread::yield_now();
                        let _ = std::fs::remove_file(&swapped);
                        let _ = std::fs::rename(&aside, &swapped);
                    }
                }
            });
            // It may fail; it must not write outside.
            let _ = rootfs::apply(&tar[..], &staging, &Limits::default(), &|_| {});
            done.store(true, Ordering::Relaxed);
        });
        assert!(names(&bait).is_empty(), "{:?}", names(&bait));
    }
}
