//! The index of a tree, compared with another walk over the tree.

use crate::common::Place;
use abi::index::{Entry, Index, ROOT, check, flags};
use rootfs::index::{INDEX, build, summary, write};
use rootfs::{ImageTrees, Owners, Record};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use testkit::layer::{self as tar, Layer};

/// Makes a tree in the form for engines without mounts and returns its entry's directory.
fn settled(place: &Place, archives: &[Vec<u8>]) -> PathBuf {
    let layers = archives.iter().map(|bytes| place.apply(bytes).0).collect();
    let image: ImageTrees = rootfs::image::topmost_first(layers);
    let entry = place.fresh();
    let staging = File::open(&entry).unwrap();
    rootfs::flatten::flatten_with_owner_xattrs(&image.layers, &staging).unwrap();
    entry
}

fn index_of(entry: &Path) -> Vec<u8> {
    build(File::open(entry).unwrap()).unwrap()
}

/// Looks a path up, one name after another.
fn find(index: &Index<'_>, path: &str) -> Entry {
    let parts = path.split('/').filter(|part| !part.is_empty());
    let number = parts.fold(ROOT, |at, part| index.child(at, part.as_bytes()).expect(path));
    index.entry(number).unwrap()
}

/// What is beside the disk's own facts: another reading than that of the index's maker, by path.
fn record(path: &Path, relative: &Path, meta: &Metadata, loose: &Owners) -> Option<Record> {
    let kind = meta.file_type();
    if (kind.is_file() || kind.is_dir()) && meta.mode() & 0o1000 != 0 {
        let file = File::open(path).unwrap();
        let text = sys::fs::xattr::get(&file, rootfs::owners::OWNER_XATTR).unwrap();
        if let Some(text) = text {
            return Some(Record::from_xattr(&text).unwrap());
        }
    }
    loose.get(relative.as_os_str().as_bytes()).cloned()
}

fn has_attributes(path: &Path, meta: &Metadata, record: Option<&Record>) -> bool {
    let mut names = Vec::new();
    if meta.is_file() || meta.is_dir() {
        names = sys::fs::xattr::list(File::open(path).unwrap()).unwrap();
    }
    let own = b"user.coracle.";
    names.iter().any(|name| !name.starts_with(own) || name.starts_with(b"user.coracle.x."))
        || record.is_some_and(|record| !record.xattrs.is_empty())
}

/// Compares every record with the tree; returns the number of names.
fn compare(entry: &Path, bytes: &[u8]) -> usize {
    let index = Index::open(bytes).unwrap();
    assert_eq!(check(&index), Ok(()));
    let loose = Owners::read(&entry.join("loose")).unwrap();
    let tree = entry.join("tree");
    let mut names: HashMap<u64, u32> = HashMap::new();
    let mut all = vec![(PathBuf::new(), ROOT)];
    let mut at = 0;
    while let Some((relative, number)) = all.get(at).cloned() {
        at += 1;
        let path = if at == 1 { tree.clone() } else { tree.join(&relative) };
        let meta = path.symlink_metadata().unwrap();
        *names.entry(meta.ino()).or_default() += 1;
        if !meta.is_dir() {
            continue;
        }
        let mut below: Vec<_> =
            std::fs::read_dir(&path).unwrap().map(|name| name.unwrap().file_name()).collect();
        below.sort();
        let record = index.entry(number).unwrap();
        assert_eq!(index.children(&record).len(), below.len(), "{}", path.display());
        for (name, expected) in below.into_iter().zip(index.children(&record)) {
            assert_eq!(index.child(number, name.as_bytes()), Some(expected), "{}", name.display());
            all.push((relative.join(&name), expected));
        }
    }
    assert_eq!(index.len(), all.len());
    for (relative, number) in &all {
        let path = tree.join(relative);
        let path = if *number == ROOT { tree.clone() } else { path };
        let meta = path.symlink_metadata().unwrap();
        let found = index.entry(*number).unwrap();
        let record = record(&path, relative, &meta, &loose);
        let (kind, mode, owner) = match &record {
            Some(record) => (record.kind, record.mode, (record.uid, record.gid)),
            None => (rootfs::FileKind::from_mode(meta.mode()), meta.mode() & 0o7777, (0, 0)),
        };
        let device = matches!(kind, rootfs::FileKind::Char | rootfs::FileKind::Block);
        let shown = path.display();
        assert_eq!(rootfs::FileKind::from_mode(found.mode.into()), kind, "{shown}");
        assert_eq!(u32::from(found.mode) & 0o7777, mode, "{shown}");
        assert_eq!(index.owner(&found), owner, "{shown}");
        assert_eq!(found.size, if device { 0 } else { meta.size() }, "{shown}");
        assert_eq!(found.inode, meta.ino(), "{shown}");
        assert_eq!(u64::from(found.blocks), meta.blocks(), "{shown}");
        let links = if meta.is_dir() { meta.nlink() } else { names[&meta.ino()].into() };
        assert_eq!(u64::from(found.links), links, "{shown}");
        let time = |seconds: i64, rest: i64| seconds.checked_mul(1_000_000_000)?.checked_add(rest);
        let (mtime, ctime) =
            (time(meta.mtime(), meta.mtime_nsec()), time(meta.ctime(), meta.ctime_nsec()));
        assert_eq!(found.has(flags::ASK), mtime.is_none() || ctime.is_none(), "{shown}");
        assert_eq!((found.mtime, found.ctime), (mtime.unwrap_or(0), ctime.unwrap()), "{shown}");
        let attributes = has_attributes(&path, &meta, record.as_ref());
        assert_eq!(found.has(flags::ATTRIBUTES), attributes, "{shown}");
        if meta.is_symlink() {
            let target = std::fs::read_link(&path).unwrap();
            assert_eq!(index.target(&found), target.as_os_str().as_bytes(), "{shown}");
        }
        if device {
            assert_eq!(found.device(), record.unwrap().device, "{shown}");
        }
        let mut room = vec![0; 1 << 16];
        let length = index.path(*number, &mut room).unwrap();
        assert_eq!(&room[..length], relative.as_os_str().as_bytes());
    }
    all.len()
}

/// A layer with a file of every kind.
fn everything() -> Vec<u8> {
    let long = "n".repeat(255);
    let file = |path: &str, mode| tar::Entry::new(b'0', path).mode(mode).data("data");
    let special = |kind, path: &str| tar::Entry::new(kind, path).mode(0o640);
    let capability = b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let wide = (0..300).map(|number| file(&format!("wide/{number}"), 0o644));
    let deep = (1..=90).map(|depth| {
        tar::Entry::new(b'5', ["d"].repeat(depth).join("/")).mode(0o755).owner(0, depth as u64)
    });
    let mut layer = Layer::new().dir("bin").dir("empty").dir("wide").dir("dev").dir("home/me");
    for entry in wide.chain(deep) {
        layer.push(&entry);
    }
    layer
        .entry(&tar::Entry::new(b'5', "tmp").mode(0o1777))
        .entry(&tar::Entry::new(b'5', "mail").mode(0o3775).owner(0, 8))
        .entry(&tar::Entry::new(b'5', "closed").mode(0o000).owner(7, 0))
        .entry(&file("closed/inside", 0o000))
        .entry(&file("bin/su", 0o4755))
        .entry(&file("bin/wall", 0o2755).owner(0, 5))
        .entry(&file("bin/sticky", 0o1644))
        .entry(&file("home/me/mine", 0o600).owner(1000, 1001))
        .entry(&file("unreadable", 0o000))
        .entry(&file("with", 0o644).xattr("user.mine", "1"))
        .entry(&file("bin/ping", 0o755).xattr("security.capability", capability))
        .entry(&file("line\nfeed", 0o644))
        .entry(&file(&long, 0o644))
        .entry(&file("old", 0o644).mtime(0))
        .entry(&tar::Entry::new(b'1', "bin/link-of-su").link("bin/su"))
        .entry(&tar::Entry::new(b'1', "z").link("bin/su"))
        .entry(&tar::Entry::new(b'2', "lib").link("usr/lib"))
        .entry(&tar::Entry::new(b'2', "home/me/l").link("../..").owner(1000, 1001))
        .entry(&special(b'3', "dev/null").device(1, 3))
        .entry(&special(b'4', "dev/sda").device(8, 0).owner(0, 6))
        .entry(&special(b'6', "pipe").owner(3, 4))
        .entry(&special(b'6', "plain-pipe"))
        .finish()
}

#[test]
fn every_record_says_what_another_walk_sees() {
    let place = Place::new();
    let above = Layer::new().file("bin/new", 0o755, "x").whiteout("wide/7").finish();
    let entry = settled(&place, &[everything(), above]);
    let bytes = index_of(&entry);
    assert!(compare(&entry, &bytes) > 400);
    let index = Index::open(&bytes).unwrap();
    let su = find(&index, "bin/su");
    assert_eq!((su.mode & 0o7777, su.links), (0o4755, 3));
    assert_eq!(find(&index, "dev/null").device(), (1, 3));
    assert_eq!(find(&index, "dev/null").size, 0);
    assert_eq!(index.owner(&find(&index, "home/me/l")), (1000, 1001));
    assert_eq!(index.owner(&find(&index, "pipe")), (3, 4));
    assert_eq!(find(&index, "tmp").mode & 0o7777, 0o1777);
    assert_eq!(find(&index, "closed").mode & 0o7777, 0);
    assert!(find(&index, "bin/ping").has(flags::ATTRIBUTES));
    assert!(find(&index, "with").has(flags::ATTRIBUTES));
    assert!(!find(&index, "bin/su").has(flags::ATTRIBUTES));
    assert!(index.child(ROOT, b"line\nfeed").is_some());
    assert!(index.child(find(&index, "bin").parent, &[b'n'; 255]).is_some());
    let counted = summary(&bytes).unwrap();
    assert_eq!(counted.names, index.len() as u64);
    assert_eq!((counted.links, counted.others, counted.to_ask), (2, 4, 0));
    assert_eq!(counted.with_attributes, 2);
    assert_eq!(counted.names, counted.directories + counted.files + 6);
    // The same tree gives the same bytes.
    assert_eq!(bytes, index_of(&entry));
}

#[test]
fn an_empty_image_has_an_index_of_its_root() {
    let place = Place::new();
    let entry = settled(&place, &[Layer::new().finish()]);
    let bytes = index_of(&entry);
    assert_eq!(compare(&entry, &bytes), 1);
}

#[test]
fn times_that_do_not_fit_are_asked_for() {
    let place = Place::new();
    let entry = settled(&place, &[everything()]);
    let set = |name: &str, seconds, nanoseconds| {
        let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        let times = Timestamps { last_access: time, last_modification: time };
        let path = entry.join("tree").join(name);
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        let meta = path.symlink_metadata().unwrap();
        (meta.mtime(), meta.mtime_nsec()) == (seconds, nanoseconds)
    };
    set("old", -1, 999_999_999);
    let shows_1902 = set("bin/sticky", -2_147_483_648, 1);
    // 2262-04-11 and a day more.
    let shows_2262 = set("with", 9_223_372_036 + 86_400, 0);
    if !shows_1902 || !shows_2262 {
        eprintln!("SKIP times: the file system here does not hold years before 1970 or after 2262");
    }
    let bytes = index_of(&entry);
    compare(&entry, &bytes);
    let index = Index::open(&bytes).unwrap();
    assert_eq!(find(&index, "old").mtime, -1);
    assert_eq!(find(&index, "with").has(flags::ASK), shows_2262);
    assert_eq!(summary(&bytes).unwrap().to_ask, u64::from(shows_2262));
}

#[test]
fn what_is_written_beside_a_new_tree_is_for_its_owner_alone() {
    let place = Place::new();
    let entry = settled(&place, &[everything()]);
    write(File::open(&entry).unwrap()).unwrap();
    let meta = entry.join(INDEX).symlink_metadata().unwrap();
    assert_eq!(meta.permissions().mode() & 0o7777, 0o400);
    assert_eq!(std::fs::read(entry.join(INDEX)).unwrap(), index_of(&entry));
    assert!(write(File::open(&entry).unwrap()).is_err(), "there is one");
    // Nothing is left of one that cannot be made.
    let broken = place.fresh();
    assert!(write(File::open(&broken).unwrap()).is_err());
    assert!(!broken.join(INDEX).exists());
}

#[test]
fn a_tree_deeper_than_any_path_has_an_index() {
    let place = Place::new();
    let entry = settled(&place, &[Layer::new().finish()]);
    let name = OsStr::from_bytes(&[b'x'; 200]);
    let mut dir = rustix::fs::open(entry.join("tree"), sys::fs::DIRECTORY, 0.into()).unwrap();
    for _ in 0..60 {
        rustix::fs::mkdirat(&dir, name, 0o755.into()).unwrap();
        dir = rustix::fs::openat(&dir, name, sys::fs::DIRECTORY, 0.into()).unwrap();
    }
    let bytes = index_of(&entry);
    let index = Index::open(&bytes).unwrap();
    assert_eq!(check(&index), Ok(()));
    assert_eq!(index.len(), 61);
    let last = index.entry(60).unwrap();
    assert_eq!(
        (last.parent, last.count, last.inode),
        (59, 0, rustix::fs::fstat(&dir).unwrap().st_ino)
    );
}
