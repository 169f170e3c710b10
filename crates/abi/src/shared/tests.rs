//! Tests of the shared file in plain memory, with threads instead of processes.

use super::processes::{CREDENTIALS, Entry};
use super::*;
use std::vec;
use std::vec::Vec;

fn memory(inodes: usize) -> Vec<AtomicU64> {
    (0..Shared::size(inodes) / WORD).map(|_| AtomicU64::new(0)).collect()
}

#[test]
fn a_file_is_known_by_its_beginning() {
    let words = memory(0);
    assert!(Shared::open(&words).is_none());
    assert!(Shared::open(&[]).is_none());
    assert!(Shared::create(&words, &std::vec![0; 24 * 1024]).is_none());
    assert!(Shared::create(&words, &[]).is_some());
    assert!(Shared::open(&words).is_some());
    assert!(Shared::open(&words[..words.len() - 1]).is_none());
    let shared = Shared::open(&words).unwrap();
    assert_eq!(shared.tree_device(), None);
    shared.set_tree_device((0, 0));
    assert_eq!(Shared::open(&words).unwrap().tree_device(), Some((0, 0)));
    shared.set_tree_device((0xfff, 0xf_ffff));
    assert_eq!(shared.tree_device(), Some((0xfff, 0xf_ffff)));
}

#[test]
fn every_move_is_seen_also_of_one_who_was_killed() {
    let words = memory(0);
    let shared = Shared::create(&words, &[]).unwrap();
    let changes = shared.changes();
    let mut seen = vec![changes.moves()];
    for is_killed in [false, true, true, false] {
        let before = changes.moves();
        changes.move_begins();
        assert!(changes::is_moving(changes.moves()) && !seen.contains(&changes.moves()));
        seen.push(changes.moves());
        if !is_killed {
            changes.move_ends();
            assert!(changes.moves() > before && !changes::is_moving(changes.moves()));
            seen.push(changes.moves());
        }
    }
    let last = changes.moves();
    changes.move_ends();
    assert_eq!(changes.moves(), last);
}

#[test]
fn executions_are_counted_at_the_beginning() {
    let words = memory(0);
    let shared = Shared::create(&words, &[]).unwrap();
    let count = || {
        let bytes: Vec<u8> =
            words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        executions(bytes.first_chunk().unwrap())
    };
    assert_eq!(count(), [0, 0]);
    shared.execution_begins();
    shared.execution_begins();
    shared.execution_ends();
    assert_eq!(count(), [2, 1]);
}

#[test]
fn the_images_inodes_are_found() {
    let mut file = Vec::new();
    for (inode, links) in [(3_u64, 1_u32), (4, 2), (100, 3), (1 << 40, 4)] {
        file.extend(inode.to_le_bytes());
        file.extend(links.to_le_bytes());
    }
    let words = memory(image::count(file.len()));
    let shared = Shared::create(&words, &file).unwrap();
    let image = Shared::open(&words).unwrap().image();
    assert_eq!([3, 4, 100, 1 << 40].map(|inode| image.links(inode)), [1, 2, 3, 4].map(Some));
    assert_eq!([0, 5, u64::MAX].map(|inode| image.links(inode)), [None; 3]);
    assert_eq!(shared.image().links(100), Some(3));
    let empty = memory(0);
    assert_eq!(Shared::create(&empty, &[]).unwrap().image().links(0), None);
}

#[test]
fn replacing_an_inode_keeps_its_entry() {
    let file = [&3_u64.to_le_bytes()[..], &1_u32.to_le_bytes()].concat();
    let words = memory(image::count(file.len()));
    let shared = Shared::create(&words, &file).unwrap();
    let add = |byte: u8| shared.records().add(&vec![byte; records::FIRST_WORDS * WORD]).unwrap();
    let first = add(1);
    assert!(!shared.image().is_replaced(3), "a record is no replaced inode");
    shared.image().replace(3);
    assert!(shared.image().is_replaced(3));
    let second = add(2);
    assert_eq!((second - first) as usize, 1 + records::FIRST_WORDS);
    assert_eq!(add(1), first);
}

#[test]
fn inodes_are_found_in_lists_of_every_length() {
    for count in [511_u32, 512, 513, 1023, 1025, 1600] {
        let inodes = (0..count).map(|at| (u64::from(at) * 3 + 7, at));
        let file: Vec<u8> = inodes
            .clone()
            .flat_map(|(inode, links)| {
                inode.to_le_bytes().into_iter().chain(links.to_le_bytes()).collect::<Vec<u8>>()
            })
            .collect();
        let words = memory(count as usize);
        let image = Shared::create(&words, &file).unwrap().image();
        for (inode, links) in inodes {
            assert_eq!(image.links(inode), Some(links), "{inode} of {count}");
            assert_eq!((image.links(inode - 1), image.links(inode + 1)), (None, None));
        }
    }
}

#[test]
fn a_change_invalidates_all_directories() {
    let words = memory(0);
    let plain = Shared::create(&words, &[]).unwrap().plain();
    assert!(!plain.is(b"/a", 0));
    let generation = plain.generation();
    plain.set(b"/a", 0, generation);
    assert!(plain.is(b"/a", 0) && !plain.is(b"/a", 1) && !plain.is(b"/b", 0));
    plain.changed();
    assert!(!plain.is(b"/a", 0));
    plain.set(b"/a", 0, generation);
    assert!(!plain.is(b"/a", 0), "what was looked at before the change does not count");
    let generation = plain.generation();
    let names: Vec<Vec<u8>> = (0..2000_u32).map(|name| name.to_le_bytes().to_vec()).collect();
    for name in &names {
        plain.set(name, 1, generation);
    }
    let known = names.iter().filter(|name| plain.is(name, 1)).count();
    assert!(known > 1500, "{known} of 2000 are known");
}

#[test]
fn questions_about_one_path_are_independent() {
    // For root alone, a link in the root is remembered by its path with a NUL: that must say
    // nothing about the path for all users.
    for length in 1..64 {
        let path = vec![b'a'; length];
        let longer = [&path[..], b"\0"].concat();
        let words = memory(0);
        let plain = Shared::create(&words, &[]).unwrap().plain();
        plain.set(&longer, 0, plain.generation());
        assert!(plain.is(&longer, 0) && !plain.is(&longer, 1), "{length}");
        assert!(!plain.is(&path, 1) && !plain.is(&path, 0), "{length}");
        let seeds = || 0..4;
        let hashes = seeds().flat_map(|seed| [hash(&path, seed), hash(&longer, seed)]);
        let different = hashes.collect::<std::collections::BTreeSet<_>>();
        assert_eq!(different.len(), 8, "{length}");
    }
}

#[test]
fn records_are_stored_once_and_read_back() {
    let words = memory(0);
    let records = Shared::create(&words, &[]).unwrap().records();
    let one = records.add(b"a world of its own").unwrap();
    let two = records.add(b"").unwrap();
    let three = records.add(b"another").unwrap();
    assert!(one != two && two != three);
    assert_eq!(records.add(b"another"), Some(three));
    assert_eq!(records.add(b"a world of its own"), Some(one));
    let mut into = [0; 32];
    assert_eq!(records.read(three, &mut into), Some(7));
    assert_eq!(&into[..7], b"another");
    assert_eq!(records.read(three, &mut into[..6]), None);
    assert_eq!(records.find(three + 2), None);
    let range = records.find(one).unwrap();
    assert!(range.start.is_multiple_of(8) && range.len() == 18);
    assert_eq!(records.add(&std::vec![7; 3 << 20]), None);
    // More than fits into the first part, and a record that is too large for it.
    let bytes = |number: u8| std::vec![number; if number == 9 { 20_000 } else { 5_000 }];
    let numbers: Vec<u32> = (0..20).map(|number| records.add(&bytes(number)).unwrap()).collect();
    let mut into = std::vec![0; 20_000];
    for (number, at) in (0..20).zip(&numbers) {
        assert_eq!(records.add(&bytes(number)), Some(*at));
        let length = records.read(*at, &mut into).unwrap();
        assert_eq!(into[..length], bytes(number));
        let range = records.find(*at).unwrap();
        let first = words[range.start / WORD].load(Ordering::Relaxed).to_le_bytes();
        assert_eq!((first, range.len()), ([number; 8], length));
    }
    assert_eq!(records.read(one, &mut into), Some(18));
}

#[test]
fn texts_have_numbers() {
    let words = memory(0);
    let texts = Shared::create(&words, &[]).unwrap().texts();
    let name = |number: u32| std::format!("/usr/bin/program-{number}").into_bytes();
    let all: Vec<Vec<u32>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| (0..500).filter_map(|at| texts.add(&name(at))).collect::<Vec<_>>())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for numbers in all {
        assert_eq!(numbers.len(), 500);
        for (at, number) in (0..).zip(numbers) {
            let mut into = [0; 64];
            let length = texts.read(number, &mut into).unwrap();
            assert_eq!(into[..length], name(at));
        }
    }
    let mut into = [0; 64];
    assert_eq!(texts.read(0, &mut into), None);
    assert_eq!(texts.add(&std::vec![b'x'; 2 << 20]), None);
}

#[test]
fn the_last_record_of_a_key_is_found() {
    let words = memory(0);
    let notes = Shared::create(&words, &[]).unwrap().notes();
    let keys: [&[u8]; 5] = [b"a", b"b", b"a", b"c", b"a"];
    for key in keys {
        notes.add(notes::hash(key), |number| keys[number as usize] == key);
    }
    assert_eq!(notes.covered(), 5);
    let last = |key: &[u8]| notes.find(notes::hash(key)).collect::<Vec<_>>();
    assert_eq!(
        (last(b"a"), last(b"b"), last(b"c"), last(b"d")),
        ([4].into(), [1].into(), [3].into(), [].into())
    );
    notes.skip();
    assert_eq!(notes.covered(), 6);
    assert!(!notes.is_pending() && !notes.is_full());
    // The records distinguish keys with the same hash.
    notes.add(7, |_| false);
    notes.add(7, |_| false);
    assert_eq!(notes.find(7).collect::<Vec<_>>(), [6, 7]);
}

#[test]
fn a_full_index_reports_it_and_searches_end() {
    let words = memory(0);
    let notes = Shared::create(&words, &[]).unwrap().notes();
    for number in 0..200_000_u64 {
        notes.add(hash(&number.to_le_bytes(), 0), |_| false);
    }
    assert!(notes.is_full());
    assert_eq!(notes.covered(), 200_000);
    assert_eq!(notes.find(hash(b"nobody", 9)).count(), 0);
}

#[test]
fn processes_come_and_go() {
    let words = memory(0);
    let processes = Shared::create(&words, &[]).unwrap().processes();
    let entry = |process: u32| Entry {
        process,
        since: 5,
        device: (8, 1),
        inode: u64::from(process) * 10,
        program: 3,
        world: 1,
    };
    let nobody = |_: u32| -> bool { panic!("nobody is in the way") };
    assert!(processes.set(&entry(7), &[7; CREDENTIALS], nobody));
    assert!(processes.set(&Entry { program: 4, ..entry(7) }, &[8; CREDENTIALS], nobody));
    assert_eq!(processes.get(7), Some((Entry { program: 4, ..entry(7) }, [8; CREDENTIALS])));
    processes.set_credentials(7, &[9; CREDENTIALS]);
    assert_eq!(processes.get(7).unwrap().1, [9; CREDENTIALS]);
    assert_eq!(processes.get(8), None);
    // The same place: the next one while the other process lives, this one when it is dead.
    let same = 7 + 8192;
    assert!(processes.set(&entry(same), &[1; CREDENTIALS], |_| false));
    assert!(processes.get(7).is_some() && processes.get(same).is_some());
    assert!(processes.set(&entry(same + 8192), &[1; CREDENTIALS], |process| process == 7));
    assert!(processes.get(7).is_none());
    let mut all: Vec<u32> = processes.all().map(|entry| entry.process).collect();
    all.sort_unstable();
    assert_eq!(all, [same, same + 8192]);
    // All places are taken by living processes: there is no room.
    let full =
        (0..200).filter(|at| processes.set(&entry(20 + at * 8192), &[0; CREDENTIALS], |_| false));
    assert_eq!(full.count(), 16);
}

#[test]
fn incomplete_entries_are_never_read() {
    let words = memory(0);
    let processes = Shared::create(&words, &[]).unwrap().processes();
    let entry = Entry { process: 9, ..Entry::default() };
    assert!(processes.set(&entry, &[0; CREDENTIALS], |_| false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for count in 0..20_000 {
                processes.set_credentials(9, &[count; CREDENTIALS]);
            }
        });
        for _ in 0..20_000 {
            if let Some((_, credentials)) = processes.get(9) {
                assert_eq!(credentials, [credentials[0]; CREDENTIALS]);
            }
        }
    });
}
