//! Compares with GNU tar: it packs random trees in each of its formats and this crate unpacks; then
//! the reverse.

use crate::common::Place;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rootfs::union::IdMap;
use rootfs::{ImageTrees, Layer, Root, pack};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use testkit::share::Share;

/// One file of a random tree.
#[derive(Debug, Clone)]
enum Node {
    Directory(u32),
    File { mode: u32, data: Vec<u8>, hole: u64 },
    Symlink(Vec<u8>),
    Link(prop::sample::Index),
    Fifo,
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("no slash or NUL", |byte| *byte != 0 && *byte != b'/');
    prop_oneof![
        3 => "[a-z]{1,3}".prop_map(String::into_bytes),
        1 => prop::collection::vec(byte, 1..9),
        1 => "[a-z]{90,250}".prop_map(String::into_bytes),
    ]
    .prop_filter("special", |name| name != b"." && name != b".." && !name.starts_with(b".wh."))
}

fn node() -> impl Strategy<Value = Node> {
    let data = prop::collection::vec(any::<u8>(), 0..2000);
    prop_oneof![
        2 => (0_u32..0o2000).prop_map(Node::Directory),
        3 => (0_u32..0o10000, data, prop_oneof![Just(0), 0_u64..4_000_000])
            .prop_map(|(mode, data, hole)| Node::File { mode, data, hole }),
        1 => prop::collection::vec(1_u8.., 1..150).prop_map(Node::Symlink),
        1 => any::<prop::sample::Index>().prop_map(Node::Link),
        1 => Just(Node::Fifo),
    ]
}

type Plan = Vec<(prop::sample::Index, Vec<u8>, Node, i64)>;

fn plan() -> impl Strategy<Value = Plan> {
    let time = prop_oneof![Just(0_i64), 0..2_000_000_000_999_999_999_i64];
    prop::collection::vec((any::<prop::sample::Index>(), name(), node(), time), 1..25)
}

fn set_time(path: &Path, nanoseconds: i64) {
    let time = rustix::fs::Timespec {
        tv_sec: nanoseconds.div_euclid(1_000_000_000),
        tv_nsec: nanoseconds.rem_euclid(1_000_000_000),
    };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
}

/// Makes the tree; existing names are skipped.
fn make(root: &Path, plan: &Plan) {
    let mut directories = vec![(root.to_path_buf(), 0o755, 0)];
    let mut files = Vec::new();
    for (parent, name, node, time) in plan {
        let path = parent.get(&directories).0.join(OsStr::from_bytes(name));
        if path.symlink_metadata().is_ok() || path.as_os_str().len() > 3000 {
            continue;
        }
        match node {
            Node::Directory(mode) => {
                std::fs::create_dir(&path).unwrap();
                directories.push((path, *mode, *time));
                continue;
            }
            Node::File { mode, data, hole } => {
                let file = File::create_new(&path).unwrap();
                file.write_all_at(data, *hole).unwrap();
                file.set_len(hole * 2 + data.len() as u64).unwrap();
                // GNU tar must be able to read it, also as an unprivileged user.
                file.set_permissions(std::fs::Permissions::from_mode(mode | 0o400)).unwrap();
                files.push(path.clone());
            }
            Node::Symlink(target) => symlink(OsStr::from_bytes(target), &path).unwrap(),
            Node::Link(_) if files.is_empty() => continue,
            Node::Link(index) => {
                std::fs::hard_link(index.get(&files), &path).unwrap();
                continue;
            }
            Node::Fifo => {
                let kind = rustix::fs::FileType::Fifo;
                let mode = rustix::fs::Mode::from_raw_mode(0o640);
                rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
            }
        }
        set_time(&path, *time);
    }
    for (path, mode, time) in directories.iter().rev() {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode | 0o500)).unwrap();
        set_time(path, *time);
    }
}

/// All attributes of a file except its owner: kind and mode, size, time, links, content.
type Facts = (u32, u64, i64, i64, u64, Vec<u8>);

fn facts(root: &Path) -> BTreeMap<Vec<u8>, Facts> {
    let mut all = BTreeMap::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(path) = pending.pop() {
        let meta = path.symlink_metadata().unwrap();
        let mut content = Vec::new();
        if meta.is_dir() {
            for entry in std::fs::read_dir(&path).unwrap() {
                pending.push(entry.unwrap().path());
            }
        } else if meta.is_symlink() {
            content = std::fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec();
        } else if meta.is_file() {
            content = oci::Digest::of(&std::fs::read(&path).unwrap()).to_string().into_bytes();
        }
        let size = if meta.is_dir() { 0 } else { meta.len() };
        let links = if meta.is_dir() { 0 } else { meta.nlink() };
        let relative = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
        let facts = (meta.mode(), size, meta.mtime(), meta.mtime_nsec(), links, content);
        all.insert(relative, facts);
    }
    all
}

fn tar(arguments: &[&str], directory: &Path, archive: &Path) {
    let output = Command::new("tar")
        .args(arguments)
        .arg("-f")
        .arg(archive)
        .arg("-C")
        .arg(directory)
        .args(if arguments[0] == "-c" { &["."][..] } else { &[][..] })
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Times without nanoseconds, for formats that have none.
fn whole_seconds(mut all: BTreeMap<Vec<u8>, Facts>) -> BTreeMap<Vec<u8>, Facts> {
    for facts in all.values_mut() {
        facts.3 = 0;
    }
    all
}

fn without_setgid(mut all: BTreeMap<Vec<u8>, Facts>) -> BTreeMap<Vec<u8>, Facts> {
    for facts in all.values_mut() {
        facts.0 &= !0o2000;
    }
    all
}

#[test]
fn random_trees_survive_gnu_tar_both_ways() {
    if Command::new("tar").arg("--version").output().is_err() {
        eprintln!("SKIP GNU tar: not installed");
        return;
    }
    let mut runner = TestRunner::new(Config { cases: 24, ..Config::default() });
    let formats: [&[&str]; 6] = [
        &["-c", "--format=gnu"],
        &["-c", "--format=gnu", "-S"],
        &["-c", "--format=pax"],
        &["-c", "--format=pax", "-S", "--sparse-version=0.0"],
        &["-c", "--format=pax", "-S", "--sparse-version=0.1"],
        &["-c", "--format=pax", "-S", "--sparse-version=1.0"],
    ];
    runner
        .run(&(plan(), 0_usize..6), |(plan, format)| {
            let place = Place::new();
            let source = place.fresh();
            make(&source, &plan);
            let expected = facts(&source);
            let archive = place.path().join("archive.tar");
            tar(formats[format], &source, &archive);
            let (layer, applied) = place.apply(&std::fs::read(&archive).unwrap());
            let found = facts(&layer.tree());
            if format < 2 {
                prop_assert_eq!(whole_seconds(found), whole_seconds(expected.clone()));
            } else {
                prop_assert_eq!(found, expected.clone());
            }
            prop_assert_eq!(applied.meta.implicit.len(), 0);
            back(&place, &layer)?;
            Ok(())
        })
        .unwrap();
}

/// Packs a layer, unpacks it with GNU tar and with this crate, and compares; packing again gives
/// the same bytes.
fn back(place: &Place, layer: &Layer) -> Result<(), TestCaseError> {
    let expected = facts(&layer.tree());
    let image = ImageTrees { layers: vec![layer.clone()], owner_layer: None };
    let mut bytes = Vec::new();
    let options = pack::Options::default();
    pack::export(Some(&image), None, &IdMap::default(), options, &mut bytes).unwrap();
    let archive = place.path().join("back.tar");
    std::fs::write(&archive, &bytes).unwrap();
    let target = place.fresh();
    tar(&["-x", "-p", "--delay-directory-restore"], &target, &archive);
    // Unprivileged GNU tar drops setgid if the archive's group is not the user's.
    let (found, wanted) = (without_setgid(facts(&target)), without_setgid(expected.clone()));
    prop_assert_eq!(found, wanted);
    let (again, applied) = place.apply(&bytes);
    prop_assert_eq!(facts(&again.tree()), expected.clone());
    prop_assert_eq!(&applied.owners, &layer.owners().unwrap());
    let image = ImageTrees { layers: vec![again], owner_layer: None };
    let mut second = Vec::new();
    pack::export(Some(&image), None, &IdMap::default(), options, &mut second).unwrap();
    prop_assert!(bytes == second);
    let sparse = pack::Options { sparse: true };
    let mut third = Vec::new();
    pack::export(Some(&image), None, &IdMap::default(), sparse, &mut third).unwrap();
    let (holes, _) = place.apply(&third);
    prop_assert_eq!(facts(&holes.tree()), expected.clone());
    std::fs::write(&archive, &third).unwrap();
    let target = place.fresh();
    tar(&["-x", "-p", "--delay-directory-restore"], &target, &archive);
    prop_assert_eq!(without_setgid(facts(&target)), without_setgid(expected));
    Ok(())
}

#[test]
fn a_debian_tree_is_as_gnu_tar_unpacks_it() {
    let is_root = rustix::process::geteuid().is_root();
    // It takes 10,000 files and half a minute for each user.
    let user = if is_root { "root" } else { "another" };
    if !Share::wanted().unwrap().takes(&format!("rootfs::debian_tree::{user}")) {
        eprintln!("SKIP Debian tree: share 1/1 runs it for each user");
        return;
    }
    let archive = match testkit::debian::tar() {
        Ok(archive) => archive,
        Err(skip) => {
            eprintln!("SKIP Debian tree: {skip:?}");
            return;
        }
    };
    let place = Place::new();
    let directory = place.fresh();
    let staging = File::open(&directory).unwrap();
    let limits = rootfs::Limits::default();
    let applied = rootfs::apply(File::open(&archive).unwrap(), &staging, &limits, &|_| {}).unwrap();
    let target = place.fresh();
    tar(&["-x", "-p", "--delay-directory-restore", "--exclude=./dev/*"], &target, &archive);
    let mut found = facts(&directory.join("tree"));
    found.retain(|path, _| !path.starts_with(b"dev/"));
    let mut wanted = facts(&target);
    if !is_root {
        (found, wanted) = (without_setgid(found), without_setgid(wanted));
    }
    for (path, facts) in &wanted {
        assert_eq!(found.get(path), Some(facts), "{}", String::from_utf8_lossy(path));
    }
    assert_eq!(found.len(), wanted.len());
    assert_eq!(applied.owners.get(b"etc/shadow").map(|record| record.gid), Some(42));

    // Exports the layer and a plain directory; both give the same bytes.
    let layer = Layer::new(directory, applied.meta);
    let image = ImageTrees { layers: vec![layer], owner_layer: None };
    let mut bytes = Vec::new();
    let options = pack::Options::default();
    pack::export(Some(&image), None, &IdMap::default(), options, &mut bytes).unwrap();
    let (again, second) = place.apply(&bytes);
    assert_eq!(second.owners, applied.owners);
    let mut twice = Vec::new();
    let flat = ImageTrees { layers: vec![again.clone()], owner_layer: None };
    pack::export(Some(&flat), None, &IdMap::default(), options, &mut twice).unwrap();
    assert!(bytes == twice);

    // A copied root has no differences.
    let container = place.fresh();
    let root = rootfs::prepare(&container, &flat, rootfs::Driver::Copy).unwrap();
    assert!(matches!(root, Root::Directory(_)));
    let changes = rootfs::diff::diff(&flat, &root, &IdMap::default()).unwrap();
    assert!(changes.is_empty(), "{changes:?}");
    let mut third = Vec::new();
    pack::export(None, Some(&root), &IdMap::default(), options, &mut third).unwrap();
    assert!(bytes == third);

    // A root of hard links has none either, by itself and beneath an overlay.
    let with_xattrs = place.fresh();
    let meta =
        rootfs::flatten::flatten_with_owner_xattrs(&flat.layers, File::open(&with_xattrs).unwrap())
            .unwrap();
    let with_xattrs = ImageTrees::flat(Layer::new(with_xattrs, meta));
    let container = place.fresh();
    let root = rootfs::prepare(&container, &with_xattrs, rootfs::Driver::HardLink).unwrap();
    let stacked = rootfs::drivers::prepare_stacked(&container).unwrap();
    for root in [&root, &stacked] {
        for image in [&flat, &with_xattrs] {
            let changes = rootfs::diff::diff(image, root, &IdMap::default()).unwrap();
            assert!(changes.is_empty(), "{changes:?}");
        }
        let mut fourth = Vec::new();
        pack::export(None, Some(root), &IdMap::default(), options, &mut fourth).unwrap();
        assert!(bytes == fourth);
    }
}
