//! Random trees, bindings and paths: compares the resolver's result with the kernel's walk in the
//! same tree without bindings.
//!
//! The model is one tree as the guest sees it. The host has the same files in pieces: everything
//! below a mount point lies elsewhere, and an empty placeholder stands at the mount point. For each
//! inode of the guest the test knows the file of the host.

use super::*;
use crate::identity::{Credentials, Groups};
use crate::testing::tree::{Body, Id, ROOT, Tree, Walk};
use crate::world::Identity;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::format;

/// A guest tree, and the host's pieces of it.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) model: Tree,
    fake: Fake,
    /// The host's inode for each inode of the model.
    twin: BTreeMap<Id, Id>,
    /// The guest path and the host path of each binding.
    bindings: Vec<(String, String)>,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// One file of the model: its directory (by index among those made before), its name, and its
/// contents.
pub(super) type Seed = (usize, usize, u8, String, bool);

pub(super) fn setup(seeds: &[Seed]) -> Setup {
    let mut model = Tree::new();
    let mut fake = Fake::new();
    let top = fake.tree.make_dirs("/c");
    let mut twin = BTreeMap::from([(ROOT, top)]);
    let mut dirs = std::vec![(ROOT, String::new())];
    let mut bindings = std::vec![(String::from("/"), String::from("/c"))];
    for (index, (dir, name, kind, target, bound)) in seeds.iter().enumerate() {
        let (dir, above) = dirs[dir % dirs.len()].clone();
        let name = NAMES[name % NAMES.len()];
        if model.names(dir).unwrap().contains_key(name.as_bytes()) {
            continue;
        }
        let body = match kind % 4 {
            0 | 1 => Body::Dir(BTreeMap::new()),
            2 => Body::File(Vec::new()),
            _ => Body::Link(target.as_bytes().to_vec()),
        };
        let id = model.insert(dir, name.as_bytes(), body.clone(), 0o755);
        let path = format!("{above}/{name}");
        let place = fake.tree.insert(twin[&dir], name.as_bytes(), body.clone(), 0o755);
        let is_link = matches!(body, Body::Link(_));
        if *bound && !is_link {
            let host = format!("/x{index}");
            let real = fake.tree.insert(ROOT, &host.as_bytes()[1..], body.clone(), 0o755);
            twin.insert(id, real);
            bindings.push((path.clone(), host));
        } else {
            twin.insert(id, place);
        }
        if matches!(body, Body::Dir(_)) {
            dirs.push((id, path));
        }
    }
    bindings.sort();
    Setup { model, fake, twin, bindings }
}

pub(super) fn seeds() -> impl Strategy<Value = Vec<Seed>> {
    prop::collection::vec(
        (0..9_usize, 0..4_usize, 0..4_u8, path(), prop::bool::weighted(0.3)),
        1..16,
    )
}

pub(super) fn path() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        8 => prop::sample::select(&NAMES[..]).prop_map(String::from),
        3 => Just(String::from("..")),
        1 => Just(String::from(".")),
        1 => Just(String::new()),
    ];
    (prop::bool::ANY, prop::collection::vec(part, 1..6), 0..3_u8).prop_map(
        |(absolute, parts, end)| {
            let path = parts.join("/");
            let path = if absolute { format!("/{path}") } else { path };
            let path = path + ["", "/", "/."][usize::from(end)];
            if path.is_empty() { String::from(".") } else { path }
        },
    )
}

/// The inode that a place leads to on the host, or the error of the call that follows.
fn outcome(fake: &Fake, place: &Place, found: &str, follow: bool) -> Result<Option<Id>, Errno> {
    let start = match place.at {
        Dir::Root => ROOT,
        Dir::Cwd => fake.cwd.node,
        Dir::Held(fd) => fake.held[&fd.0].node,
        Dir::Guest(fd) => fake.guest[&fd].node,
    };
    if found.is_empty() {
        return Ok(Some(start));
    }
    let how = Walk { follow, no_symlinks: true, parent: false };
    fake.tree.walk(start, found.as_bytes(), how).map(|found| found.node)
}

/// `closed`: every so many directories have no search permission, for an emulated user who is not
/// root.
fn compare(
    setup: &Setup,
    cwd: usize,
    path: &str,
    old: bool,
    closed: Option<usize>,
) -> Result<(), TestCaseError> {
    let mut setup = setup.clone();
    for id in 1..setup.model.nodes.len() {
        if closed.is_some_and(|every| id % every == 0) && setup.model.is_dir(id) {
            setup.model.nodes[id].mode = 0o600;
            setup.fake.tree.nodes[setup.twin[&id]].mode = 0o700;
        }
    }
    let setup = &setup;
    let table: Vec<_> =
        setup.bindings.iter().map(|(guest, host)| binding(guest, host, Kind::Tree)).collect();
    let mut fake = setup.fake.clone();
    fake.openat2 = !old;
    let dirs: Vec<Id> = setup.twin.keys().copied().filter(|id| setup.model.is_dir(*id)).collect();
    let start = dirs[cwd % dirs.len()];
    fake.cwd.node = setup.twin[&start];
    let mut bench = Bench::new(fake, &table);
    if closed.is_some() {
        bench.world.identity = Some(Identity { host_uid: 1000, host_gid: 1000, uid: 0, gid: 0 });
        bench.task.creds = Credentials::new(5, 5, Groups::NONE);
    }
    for follow in [true, false] {
        let intent = if follow { Intent::FOLLOW } else { Intent::NO_FOLLOW };
        let how = Walk { follow, ..Walk::default() };
        let wanted = setup.model.walk(start, path.as_bytes(), how);
        let wanted = wanted.and_then(|found| found.node.ok_or(Errno::ENOENT));
        let wanted = wanted.map(|id| setup.twin[&id]);
        for intent in [intent, intent.held(), intent.lightly(), intent.held().lightly()] {
            bench.buffers.named[0].set(path.as_bytes()).unwrap();
            let got = bench.context(|context| resolve(context, Dir::Cwd, 0, intent));
            let got = got.and_then(|place| {
                let found = string(&bench.buffers.found[0]);
                let by_path = outcome(&bench.fake, &place, &found, follow);
                if let Some(held) = place.held {
                    prop_same(&by_path, bench.fake.held[&held.0].node);
                }
                bench.context(|context| place.close(context.backend));
                by_path?.ok_or(Errno::ENOENT)
            });
            prop_assert!(bench.fake.held.is_empty());
            prop_assert_eq!(got, wanted, "{} {:?}", path, intent);
        }
    }
    let how = Walk { follow: true, ..Walk::default() };
    let wanted = setup.model.walk(start, path.as_bytes(), how);
    check_creation(&mut bench, path, &wanted, setup)?;
    check_name(&mut bench, start, path, setup)
}

fn prop_same(by_path: &Result<Option<Id>, Errno>, held: Id) {
    assert_eq!(*by_path, Ok(Some(held)), "the path and the held file differ");
}

/// `open` with `O_CREAT`: the same file, the same new name in the same directory, or the same
/// error.
fn check_creation(
    bench: &mut Bench<'_>,
    path: &str,
    wanted: &Result<crate::testing::tree::Found, Errno>,
    setup: &Setup,
) -> Result<(), TestCaseError> {
    bench.buffers.named[0].set(path.as_bytes()).unwrap();
    let got = bench.context(|context| resolve(context, Dir::Cwd, 0, Intent::CREATE));
    let got = got.and_then(|place| {
        let found = string(&bench.buffers.found[0]);
        let start = if place.at == Dir::Cwd { bench.fake.cwd.node } else { ROOT };
        bench.context(|context| place.close(context.backend));
        if found.ends_with('/') {
            return Err(Errno::EISDIR);
        }
        if found.is_empty() {
            return Ok((place.missing, Some(start), None));
        }
        let how = Walk { follow: true, no_symlinks: true, parent: false };
        let end = bench.fake.tree.walk(start, found.as_bytes(), how)?;
        Ok((place.missing, end.node, end.name))
    });
    prop_assert!(bench.fake.held.is_empty());
    match (got, wanted) {
        // A slash at the end is refused after the directory was found.
        (Err(Errno::EISDIR), _) => {}
        (Ok((missing, node, name)), Ok(wanted)) => {
            prop_assert_eq!(node, wanted.node.map(|id| setup.twin[&id]), "{}", path);
            prop_assert_eq!(missing, node.is_none(), "{}", path);
            if missing {
                let (dir, last) = wanted.name.clone().unwrap();
                prop_assert_eq!(name, Some((setup.twin[&dir], last)), "{}", path);
            }
        }
        (Err(got), Err(wanted)) => prop_assert_eq!(got, *wanted, "{}", path),
        (got, wanted) => prop_assert!(false, "{}: {:?} for {:?}", path, got, wanted),
    }
    Ok(())
}

/// A slash behind `.` and `..` has no effect.
fn key(dir: Id, last: Vec<u8>, slash: bool) -> (Id, Vec<u8>, bool) {
    let slash = slash && last != b"." && last != b"..";
    (dir, last, slash)
}

/// Names to be made or removed: the same name in the same directory, or the same error.
fn check_name(
    bench: &mut Bench<'_>,
    start: Id,
    path: &str,
    setup: &Setup,
) -> Result<(), TestCaseError> {
    let how = Walk { parent: true, ..Walk::default() };
    let wanted = setup.model.walk(start, path.as_bytes(), how);
    for intent in [Intent::NAME, Intent::NAME.lightly()] {
        bench.buffers.named[0].set(path.as_bytes()).unwrap();
        let got = bench.context(|context| resolve(context, Dir::Cwd, 0, intent));
        let got = got.and_then(|place| {
            let found = string(&bench.buffers.found[0]);
            let start = if place.at == Dir::Cwd { bench.fake.cwd.node } else { ROOT };
            bench.context(|context| place.close(context.backend));
            if place.mount_point {
                // The guest may do nothing with it; it only matters that it is a name.
                return Ok((None, true));
            }
            let end = bench.fake.tree.walk(start, found.as_bytes(), how)?;
            Ok((end.name.map(|(dir, last)| key(dir, last, end.slash)), false))
        });
        prop_assert!(bench.fake.held.is_empty());
        match (got, &wanted) {
            (Ok((_, true)), Ok(wanted)) => {
                prop_assert!(wanted.node.is_some(), "{}", path);
            }
            (Ok((got, false)), Ok(wanted)) => {
                let wanted = wanted
                    .name
                    .clone()
                    .map(|(dir, last)| key(setup.twin[&dir], last, wanted.slash));
                prop_assert_eq!(got, wanted, "{} {:?}", path, intent);
            }
            (Err(got), Err(wanted)) => prop_assert_eq!(got, *wanted, "{} {:?}", path, intent),
            (got, wanted) => prop_assert!(false, "{}: {:?} for {:?}", path, got, wanted),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn as_the_kernel_walks(seeds in seeds(), cwd in 0..9_usize, paths in prop::collection::vec(path(), 1..8), old: bool) {
        let setup = setup(&seeds);
        for path in &paths {
            compare(&setup, cwd, path, old, None)?;
        }
    }

    #[test]
    fn as_the_kernel_refuses(seeds in seeds(), cwd in 0..9_usize, every in 1..5_usize, paths in prop::collection::vec(path(), 1..8), old: bool) {
        let setup = setup(&seeds);
        for path in &paths {
            compare(&setup, cwd, path, old, Some(every))?;
        }
    }

    /// Arbitrary bytes: no panic, no descriptor left open, and the result lies in a binding.
    #[test]
    fn any_bytes(path in prop::collection::vec(prop::sample::select(&b"/.ab\xff"[..]), 0..40), flags in 0..64_u64) {
        let mut bench = bench();
        bench.buffers.named[0].set(&path).unwrap();
        for intent in [Intent::FOLLOW, Intent::CREATE, Intent::NAME, Intent::NO_FOLLOW] {
            let intent = Intent { resolve: flags, ..intent };
            if let Ok(place) = bench.context(|context| resolve(context, Dir::Cwd, 0, intent)) {
                bench.context(|context| place.close(context.backend));
                let found = string(&bench.buffers.found[0]);
                let inside = ["/c", "/v", "/w/x", "/run/hosts", "/proc"].iter().any(|top| found.starts_with(top));
                prop_assert!(inside || found == "/");
            }
            prop_assert!(bench.fake.held.is_empty());
        }
    }
}
