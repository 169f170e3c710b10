use super::*;
use crate::index::entry::flags;
use linux_raw_sys::general::{S_IFCHR, S_IFDIR, S_IFLNK, S_IFREG};
use proptest::prelude::*;
use std::vec::Vec;

fn entry(parent: u32, kind: u32, mode: u32, inode: u64) -> Entry {
    Entry {
        parent,
        mode: (kind | mode) as u16,
        inode,
        links: 1,
        size: 10 * inode,
        mtime: -(inode as i64),
        ctime: inode as i64 + 7,
        blocks: 8,
        ..Entry::default()
    }
}

/// `/bin -> usr/bin`, `/dev/null`, `/usr/bin/{a,b}`, which are one file.
fn files() -> Vec<File<'static>> {
    let file = |entry, name: &'static [u8]| File { entry, name, ..File::default() };
    let link = entry(0, S_IFLNK, 0o777, 3);
    let null = Entry { data: Entry::of_device(1, 3), ..entry(2, S_IFCHR, 0o666, 5) };
    let both = Entry { links: 2, flags: flags::ATTRIBUTES, ..entry(5, S_IFREG, 0o4755, 7) };
    std::vec![
        file(entry(0, S_IFDIR, 0o755, 2), b""),
        File { target: b"usr/bin", ..file(link, b"bin") },
        file(entry(0, S_IFDIR, 0o755, 4), b"dev"),
        file(entry(0, S_IFDIR, 0o755, 9), b"usr"),
        File { owner: (0, 5), ..file(null, b"null") },
        file(entry(3, S_IFDIR, 0o711, 6), b"bin"),
        File { owner: (1000, 1001), ..file(both, b"a") },
        File { owner: (1000, 1001), ..file(both, b"b") },
    ]
}

#[test]
fn what_is_built_is_found() {
    let bytes = build(&files(), 4096).unwrap();
    let index = Index::open(&bytes).unwrap();
    assert_eq!(check(&index), Ok(()));
    assert_eq!((index.len(), index.header().block_size), (8, 4096));
    let usr = index.child(ROOT, b"usr").unwrap();
    let bin = index.child(usr, b"bin").unwrap();
    assert_eq!(index.child(usr, b"dev"), None);
    let [a, b] = [&b"a"[..], b"b"].map(|name| index.child(bin, name).unwrap());
    let found = index.entry(b).unwrap();
    assert_eq!((found.mode, found.links, found.size), ((S_IFREG | 0o4755) as u16, 2, 70));
    assert_eq!((found.mtime, found.ctime, found.blocks), (-7, 14, 8));
    assert_eq!((index.owner(&found), index.name(&found)), ((1000, 1001), &b"b"[..]));
    assert!(found.has(flags::ATTRIBUTES) && !found.has(flags::ASK));
    assert_eq!(index.by_inode(7), Some(a));
    assert_eq!(index.by_inode(8), None);
    let link = index.entry(index.child(ROOT, b"bin").unwrap()).unwrap();
    assert_eq!(index.target(&link), b"usr/bin");
    assert_eq!(index.target(&found), b"");
    let dev = index.child(ROOT, b"dev").unwrap();
    let null = index.entry(index.child(dev, b"null").unwrap()).unwrap();
    assert_eq!((null.device(), index.owner(&null)), ((1, 3), (0, 5)));
    let top = index.entry(ROOT).unwrap();
    let names: Vec<_> =
        index.children(&top).map(|n| index.name(&index.entry(n).unwrap())).collect();
    assert_eq!(names, [&b"bin"[..], b"dev", b"usr"]);
    let mut room = [0; 9];
    assert_eq!(index.path(b, &mut room), Some(9));
    assert_eq!(&room, b"usr/bin/b");
    assert_eq!(index.path(b, &mut room[..8]), None);
    assert_eq!(index.path(ROOT, &mut room), Some(0));
}

#[test]
fn files_out_of_order_are_refused() {
    let mut wrong = files();
    wrong.swap(3, 4);
    assert_eq!(build(&wrong, 0).err(), Some(BuildError::Order { number: 4 }));
    let mut wrong = files();
    wrong[6].entry.parent = 1;
    assert_eq!(build(&wrong, 0).err(), Some(BuildError::Order { number: 6 }));
}

/// Whatever is in the file, no question panics or does not end.
fn ask_everything(bytes: &[u8]) {
    let Some(index) = Index::open(bytes) else { return };
    let _ = check(&index);
    let mut room = [0; 64];
    for number in 0..index.len() as u32 + 2 {
        index.path(number, &mut room);
        if let Some(entry) = index.entry(number) {
            let _ = (index.owner(&entry), index.target(&entry), index.by_inode(entry.inode));
            let _ = (index.child(number, index.name(&entry)), index.children(&entry));
        }
    }
}

#[test]
fn a_short_file_is_refused() {
    let bytes = build(&files(), 4096).unwrap();
    for length in 0..bytes.len() {
        assert!(Index::open(&bytes[..length]).is_none());
    }
    assert!(Index::open(&[&bytes[..], b"x"].concat()).is_none());
}

/// A flipped bit is refused, or it only changes what may be anything (the digest tells).
#[test]
fn damage_is_found_or_harmless() {
    let bytes = build(&files(), 4096).unwrap();
    let mut found = 0;
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        ask_everything(&bytes);
        found += usize::from(Index::open(&bytes).is_none_or(|index| check(&index).is_err()));
    }
    assert!(found > bytes.len(), "{found} of {}", bytes.len() * 8);
}

#[test]
fn circles_and_doubled_names_are_refused() {
    let bytes = build(&files(), 4096).unwrap();
    let record = |number: usize| HEADER + number * RECORD;
    let with = |at: usize, value: u32| {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        check(&Index::open(&bytes).unwrap()).unwrap_err().what
    };
    assert_eq!(with(record(3), 5), "it is in no directory");
    // A directory that contains itself.
    assert_eq!(with(record(5) + 8, 5), "its names lie nowhere");
    // A directory with the first name of the next one among its own.
    assert_eq!(with(record(2) + 12, 2), "directories have names of others");
    // The name of the next one, and one that is longer than all names.
    assert_eq!(with(record(6) + 4, u32::MAX), "its name is none");
    let second = Index::open(&bytes).unwrap().entry(7).unwrap().name;
    assert_eq!(with(record(6) + 4, second), "it is not found by its name");
}

proptest! {
    #[test]
    fn bytes_of_any_kind_are_harmless(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
        end in 0_usize..64,
    ) {
        let mut bytes = build(&files(), 4096).unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len() - end.min(bytes.len()));
        ask_everything(&bytes);
    }

    #[test]
    fn every_name_of_a_wide_directory_is_found(names in prop::collection::btree_set("[a-z]{1,6}", 0..300)) {
        let mut files = std::vec![File { entry: entry(0, S_IFDIR, 0o755, 1), ..File::default() }];
        for (name, inode) in names.iter().zip(2..) {
            files.push(File {
                entry: entry(0, S_IFREG, 0o644, inode),
                name: name.as_bytes(),
                ..File::default()
            });
        }
        let bytes = build(&files, 4096).unwrap();
        let index = Index::open(&bytes).unwrap();
        prop_assert_eq!(check(&index), Ok(()));
        for (name, number) in names.iter().zip(1..) {
            prop_assert_eq!(index.child(ROOT, name.as_bytes()), Some(number));
            prop_assert_eq!(index.by_inode(u64::from(number) + 1), Some(number));
        }
    }
}
