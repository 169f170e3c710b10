//! Reads damaged indexes of images. No question may panic, read outside of the file or never end,
//! and an index that passes the check must be a tree in which every name is found.
//!
//! Some thousand damages are tried by each run of the tests. `CORACLE_FUZZ=SECONDS:SEED` tries new
//! ones for so long (`cargo xtask fuzz index`). An index that shows a fault belongs to [`corpus`].

use abi::index::{Entry, File, HEADER, Index, ROOT, build, check};
use linux_raw_sys::general::{S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG};
use std::time::{Duration, Instant};

/// How many damages are tried unless the caller says for how long.
const COUNT: u64 = 20_000;

/// Random numbers that a seed repeats (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// A tree as it is built, name by name.
#[derive(Default)]
struct Tree {
    entries: Vec<(Entry, (u32, u32), String, String)>,
}

impl Tree {
    fn add(&mut self, parent: usize, kind: u32, name: &str, target: &str) -> usize {
        let inode = self.entries.len() as u64 + 2;
        let entry = Entry {
            parent: parent as u32,
            mode: (kind | 0o755) as u16,
            inode,
            links: 1,
            size: inode * 100,
            blocks: 8,
            ..Entry::default()
        };
        self.entries.push((entry, (0, inode as u32 % 3), name.to_owned(), target.to_owned()));
        self.entries.len() - 1
    }

    fn bytes(&self) -> Vec<u8> {
        let file = |(entry, owner, name, target): &(Entry, (u32, u32), String, String)| {
            let (name, target) = (name.as_bytes().to_vec(), target.as_bytes().to_vec());
            (*entry, *owner, name, target)
        };
        let all: Vec<_> = self.entries.iter().map(file).collect();
        let files: Vec<File<'_>> = all
            .iter()
            .map(|(entry, owner, name, target)| File { entry: *entry, owner: *owner, name, target })
            .collect();
        build(&files, 4096).unwrap()
    }
}

/// Whole indexes of small trees of different shapes.
fn corpus() -> Vec<Vec<u8>> {
    let root = || {
        let mut tree = Tree::default();
        tree.add(0, S_IFDIR, "", "");
        tree
    };
    let mut usual = root();
    usual.add(0, S_IFLNK, "bin", "usr/bin");
    let dev = usual.add(0, S_IFDIR, "dev", "");
    let usr = usual.add(0, S_IFDIR, "usr", "");
    let null = usual.add(dev, S_IFCHR, "null", "");
    usual.entries[null].0.data = Entry::of_device(1, 3);
    usual.add(dev, S_IFIFO, "pipe", "");
    let bin = usual.add(usr, S_IFDIR, "bin", "");
    for name in ["a", "b", "c\nd", &"n".repeat(255)] {
        let file = usual.add(bin, S_IFREG, name, "");
        // One file with several names.
        usual.entries[file].0.inode = 7;
        usual.entries[file].0.links = 4;
    }
    usual.entries[bin].0.inode = 99;
    let mut deep = root();
    let mut parent = 0;
    for _ in 0..40 {
        parent = deep.add(parent, S_IFDIR, "d", "");
    }
    let mut wide = root();
    for number in 0..120 {
        wide.add(0, S_IFREG, &format!("{number:03}"), "");
    }
    [root(), usual, deep, wide].iter().map(Tree::bytes).collect()
}

/// Values at which readers go wrong.
const ODD: [u64; 10] =
    [0, 1, 2, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, i64::MAX as u64, u64::MAX];

fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = match random.below(4) {
        // The header decides where everything else lies.
        0 => random.below(HEADER.min(bytes.len())),
        _ => random.below(bytes.len()),
    };
    match random.below(8) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.next() as u8,
        2 => bytes.truncate(at.max(1)),
        3 => bytes.extend(vec![0; random.below(300)]),
        4 | 5 => {
            let size = [2, 4, 8][random.below(3)];
            let (at, odd) = (at / size * size, ODD[random.below(ODD.len())]);
            let end = (at + size).min(bytes.len());
            bytes[at..end].copy_from_slice(&odd.to_le_bytes()[..end - at]);
        }
        // Small numbers lead to other records.
        6 => bytes[at / 4 * 4] = random.below(16) as u8,
        _ => {
            let (from, size) = (random.below(bytes.len()), random.below(130));
            let size = size.min(bytes.len() - from).min(bytes.len() - at);
            bytes.copy_within(from..from + size, at);
        }
    }
}

/// Asks everything of whatever it is; of an index that passes the check, compares the answers.
/// Returns true if it passed.
fn look(bytes: &[u8]) -> bool {
    let Some(index) = Index::open(bytes) else { return false };
    let passed = check(&index).is_ok();
    let mut room = [0; 512];
    let mut below = 0;
    for number in 0..index.len() as u32 + 2 {
        let path = index.path(number, &mut room);
        let Some(entry) = index.entry(number) else {
            assert_eq!(path, None);
            continue;
        };
        let (name, target) = (index.name(&entry), index.target(&entry));
        let found = (index.child(entry.parent, name), index.by_inode(entry.inode));
        let children = index.children(&entry);
        assert!(name.len() <= 255 && target.len() <= bytes.len());
        let _ = (index.owner(&entry), entry.device(), index.child(number, b"none such"));
        if passed {
            assert!(number == ROOT || found.0 == Some(number), "{number} is lost");
            assert!(found.1.is_some_and(|first| first <= number), "{number} has no inode");
            assert_ne!(entry.is_link(), target.is_empty(), "{number}: {target:?}");
            for child in children.clone() {
                assert_eq!(index.entry(child).unwrap().parent, number);
            }
            below += children.len();
        }
    }
    assert!(!passed || below + 1 == index.len(), "{below} of {}", index.len());
    passed
}

#[test]
fn the_corpus_is_whole() {
    for bytes in corpus() {
        assert!(look(&bytes));
    }
}

#[test]
fn damaged_indexes_are_harmless() {
    let wish = std::env::var("CORACLE_FUZZ").ok();
    let wish = wish.as_deref().and_then(|text| text.split_once(':'));
    let time = wish.and_then(|(seconds, _)| seconds.parse().ok()).map(Duration::from_secs);
    let seed = wish.and_then(|(_, seed)| seed.parse().ok()).unwrap_or(1);
    let (corpus, mut random, began) = (corpus(), Random(seed), Instant::now());
    let (mut count, mut passed) = (0_u64, 0_u64);
    while time.map_or(count < COUNT, |time| began.elapsed() < time) {
        // Printed by a failure: this number alone repeats it.
        let seed = random.next();
        let mut single = Random(seed);
        let mut bytes = corpus[single.below(corpus.len())].clone();
        for _ in 0..=single.below(6) {
            damage(&mut bytes, &mut single);
        }
        let result = std::panic::catch_unwind(|| look(&bytes));
        let Ok(whole) = result else { panic!("fault with seed {seed}, {} bytes", bytes.len()) };
        passed += u64::from(whole);
        count += 1;
    }
    println!("{count} damaged indexes, of which {passed} passed the check");
    assert!(passed > 0 && passed < count);
}
