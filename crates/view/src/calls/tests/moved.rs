//! Directories that are moved by others while a call is decided that begins there.

use super::*;
use crate::calls::again;
use crate::image::Image;
use crate::verdict::After;
use abi::index::{Entry, File, Index, build};
use abi::layout::Dirent;
use abi::shared::Shared;
use core::sync::atomic::AtomicU64;
use linux_raw_sys::general::{AT_SYMLINK_NOFOLLOW, O_DIRECTORY, O_RDONLY, S_IFDIR, S_IFREG};
use std::boxed::Box;

/// The guest's descriptor of `/d`.
const HELD: i32 = 5;
/// Where a listing is written to.
const OUT: u64 = 0x9_0000;

/// A container of which one directory, `/d`, is merged with the image's, which has `d/f`.
fn merged() -> Bench<'static> {
    let mut fake = fake();
    fake.file("/c/d/f", "text").give(HELD, "/c/d");
    let number = |fake: &Fake, path| fake.at(path) as u64 + 1;
    let entry = |parent: u32, inode: u64, mode: u32| Entry {
        parent,
        inode,
        mode: mode as u16,
        links: 1,
        ..Entry::default()
    };
    let file = |entry, name| File { entry, owner: (0, 0), name, target: b"" };
    let files = [
        file(entry(0, number(&fake, "/c"), S_IFDIR | 0o755), b"".as_slice()),
        file(entry(0, 7001, S_IFDIR | 0o755), b"d"),
        file(entry(1, 7002, S_IFREG | 0o644), b"f"),
    ];
    let bytes: &'static [u8] = Box::leak(build(&files, 4096).unwrap().into_boxed_slice());
    let size = Shared::size_with_index(files.len()) / 8;
    let words: Vec<AtomicU64> = (0..size).map(|_| AtomicU64::new(0)).collect();
    let shared = Shared::create_with_index(Box::leak(words.into_boxed_slice()), files.len());
    let changes = shared.unwrap().changes();
    changes.merge(0);
    changes.merge(1);
    changes.cover(1, false);
    changes.redirect();
    fake.bases.insert(fake.at("/c/d"), 1);
    fake.changes = Some(changes);
    let mut bench = Bench::new(fake, TABLE);
    let index = Index::open(bytes).unwrap();
    let (lower, upper) = (b"/image".as_slice(), b"/c".as_slice());
    bench.world.image =
        Some(Image { index, changes, lower, upper, device: (8, 1), owner: (1000, 1000) });
    bench
}

/// Gives the directory its other name.
fn rename(fake: &mut Fake) {
    let root = fake.at("/c");
    let names = fake.tree.names_mut(root);
    let (from, to) = if names.contains_key(b"d".as_slice()) { (b"d", b"e") } else { (b"e", b"d") };
    let id = names.remove(from.as_slice()).unwrap();
    names.insert(to.to_vec(), id);
    fake.give(HELD, if to == b"e" { "/c/e" } else { "/c/d" });
}

fn begin(fake: &mut Fake) {
    fake.changes.unwrap().move_begins();
}

/// A process that moves it, from the beginning to the end.
fn moved(fake: &mut Fake) {
    begin(fake);
    rename(fake);
    fake.changes.unwrap().move_ends();
}

/// One that is killed, or waits for a processor, before it can say that it has moved it.
fn moved_and_killed(fake: &mut Fake) {
    begin(fake);
    rename(fake);
}

/// What others do.
type Others = fn(&mut Fake);

/// What they do while the name of the directory is asked for, and whether they have begun before.
const OTHERS: [(bool, Others); 3] = [(false, moved), (false, moved_and_killed), (true, rename)];

#[test]
fn a_file_is_found_in_a_directory_that_others_move() {
    for (has_begun, others) in OTHERS {
        for times in 0..3 {
            let mut bench = merged();
            if has_begun {
                begin(&mut bench.fake);
            }
            bench.fake.others_at_name = std::vec![moved; times];
            bench.fake.others_at_name.push(others);
            bench.fake.map(OUT, &[0; 300]);
            let call = [N(HELD as u64), T("f"), N(OUT), N(AT_SYMLINK_NOFOLLOW.into())];
            assert_eq!(enter(&mut bench, Op::Newfstatat, &call), DONE, "{has_begun} {times}");
        }
    }
}

#[test]
fn what_is_missing_stays_missing() {
    let mut bench = merged();
    let call = [N(HELD as u64), T("none"), N(OUT), N(0)];
    assert_eq!(enter(&mut bench, Op::Newfstatat, &call), error(Errno::ENOENT));
    assert!(!bench.fake.calls().contains(&"await_move"));
    // One who was killed is waited for once.
    begin(&mut bench.fake);
    assert_eq!(enter(&mut bench, Op::Newfstatat, &call), error(Errno::ENOENT));
    assert_eq!(enter(&mut bench, Op::Newfstatat, &call), error(Errno::ENOENT));
    let waits = bench.fake.calls().into_iter().filter(|call| *call == "await_move").count();
    assert_eq!(waits, 1);
}

#[test]
fn a_call_by_a_name_is_decided_again_after_a_move() {
    let missing = Errno::ENOENT.result();
    for (has_begun, others) in OTHERS {
        let mut bench = merged();
        bench.fake.remembers = true;
        if has_begun {
            begin(&mut bench.fake);
        }
        let flags = N((O_RDONLY | O_DIRECTORY).into());
        let verdict = enter(&mut bench, Op::Openat, &[N(HELD as u64), T("../d"), flags, N(0)]);
        let Verdict::Instead(_, after) = verdict else { panic!("{verdict:?}") };
        if !has_begun {
            assert!(!bench.context(|context| again(context, after, missing)));
        }
        others(&mut bench.fake);
        assert!(!bench.context(|context| again(context, after, 3)));
        assert!(bench.context(|context| again(context, after, missing)), "{after:?}");
    }
    let mut bench = merged();
    // A backend that does not remember directories does not ask again.
    let flags = N((O_RDONLY | O_DIRECTORY).into());
    let verdict = enter(&mut bench, Op::Openat, &[N(HELD as u64), T("../d"), flags, N(0)]);
    assert!(matches!(verdict, Verdict::Instead(_, After::Nothing)), "{verdict:?}");
}

#[test]
fn a_directory_that_others_move_is_listed_with_the_images_names() {
    for (has_begun, others) in OTHERS {
        let mut bench = merged();
        if has_begun {
            begin(&mut bench.fake);
        }
        bench.fake.map(OUT, &[0; 300]);
        bench.fake.others_at_name = std::vec![others];
        let arguments = [N(HELD as u64), N(OUT), N(300)];
        let verdict = enter(&mut bench, Op::Getdents64, &arguments);
        assert!(matches!(verdict, Verdict::Done(1..)), "{has_begun}: {verdict:?}");
        assert_eq!(bench.fake.peek(OUT + Dirent::WIDE.name as u64, 2), b"f\0");
    }
}
