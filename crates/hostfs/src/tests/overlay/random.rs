//! Operations at random.

use super::super::layered::{Layered, UPPER};
use super::super::machine::Kind;
use super::Container;
use super::operations::Operation::{self, *};
use super::operations::Outcome;
use super::tree::tree;
use proptest::collection::vec as many;
use proptest::prelude::*;
use std::format;
use std::string::{String, ToString};
use std::sync::Arc;
use std::vec;
use std::vec::Vec;
use view::Errno;

/// Names that the image has, and some that it lacks.
fn path() -> impl Strategy<Value = String> {
    let name = || prop::sample::select(Vec::from(["a", "b", "c", "d", "x", "y", "f", "l", "n"]));
    let special = [
        "e",
        "g",
        "p",
        "a/b",
        "a/b/c",
        "a/b/c/x",
        "d/l",
        "a/l",
        "x (deleted)",
        "x (deleted)/y",
        "y (deleted)",
        "d/f",
    ];
    prop_oneof![
        3 => name().prop_map(String::from),
        4 => many(name(), 2..=3).prop_map(|names| names.join("/")),
        2 => prop::sample::select(Vec::from(["a/b", "a/b/x", "a/b/c", "d", "e", "a"])).prop_map(String::from),
        3 => prop::sample::select(Vec::from(special)).prop_map(String::from),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let p = path;
    let flags = prop::sample::select(Vec::from([0, 0, 0, 1, 2]));
    prop_oneof![
        1 => p().prop_map(Read),
        1 => p().prop_map(ReadLink),
        1 => p().prop_map(Look),
        1 => p().prop_map(Attribute),
        4 => p().prop_map(MakeDirectory),
        2 => p().prop_map(MakeFile),
        1 => p().prop_map(MakePipe),
        1 => (p(), p()).prop_map(|(name, target)| MakeLink(name, target)),
        2 => (p(), p()).prop_map(|(from, to)| Link(from, to)),
        6 => p().prop_map(Unlink),
        5 => p().prop_map(RemoveDirectory),
        12 => (p(), p(), flags).prop_map(|(from, to, flags)| Rename(from, to, flags)),
        2 => p().prop_map(Create),
        1 => p().prop_map(Bind),
        1 => (p(), prop::sample::select(Vec::from([0o700, 0o755, 0o711]))).prop_map(|(name, mode)| SetMode(name, mode)),
        1 => (p(), 2..4_u32).prop_map(|(name, group)| SetGroup(name, group)),
        1 => (p(), 500..700_i64).prop_map(|(name, time)| SetTimes(name, time)),
        1 => (p(), "[a-c]").prop_map(|(name, value)| SetAttribute(name, value)),
        1 => (p(), 0..5_u64).prop_map(|(name, size)| Truncate(name, size)),
        2 => p().prop_map(Append),
        1 => p().prop_map(CopyUp),
        2 => p().prop_map(Hold),
        2 => Just(Name),
        6 => relative(),
        1 => Just(Restart),
    ]
}

/// From a directory that is open.
fn relative() -> impl Strategy<Value = Operation> {
    let name = || prop::sample::select(Vec::from(["@b", "@c", "@x", "@y", "@n", "@l"]));
    let name = move || name().prop_map(String::from);
    prop_oneof![
        name().prop_map(Read),
        name().prop_map(Look),
        name().prop_map(MakeFile),
        name().prop_map(MakeDirectory),
        name().prop_map(Unlink),
        name().prop_map(RemoveDirectory),
        (name(), path()).prop_map(|(from, to)| Rename(from, to, 0)),
        (path(), name()).prop_map(|(from, to)| Rename(from, to, 0)),
        (path(), name()).prop_map(|(from, to)| Link(from, to)),
    ]
}

/// Returns true if a path leads through a link: the view follows links, and these calls do not.
fn meets_link(plain: &Container, operation: &Operation) -> bool {
    let machine = plain.machine();
    let is_link = |path: &str| {
        let inode = machine.find(1, path, false);
        inode.is_ok_and(|inode| matches!(machine.inode(inode).kind, Kind::Link(_)))
    };
    let mut absolute = operation.paths().into_iter().filter(|name| !name.starts_with('@'));
    absolute.any(|name| {
        let path = format!("{UPPER}/{name}");
        let above = path.match_indices('/').skip(2).map(|(at, _)| &path[..at]);
        above.into_iter().any(is_link) || operation.follows() && is_link(&path)
    })
}

/// Does the same in two layers and in one, and compares.
pub(super) fn compare(operations: &[Operation], has_rename_whiteout: bool) {
    let (mut layered, mut plain) = (Container::layered(), Container::plain());
    for (step, operation) in operations.iter().enumerate() {
        let needs_directory = operation.is_relative() || *operation == Name;
        if meets_link(&plain, operation) || needs_directory && plain.held.is_none() {
            continue;
        }
        let context = || format!("{step}: {operation:?} of {operations:#?}");
        for container in [&mut layered, &mut plain] {
            container.machine().clock = (step as i64 + 1) * 1000;
            container.files.process.has_rename_whiteout = has_rename_whiteout;
        }
        let new = layered.run(operation);
        // Directories of the image cannot be moved without whiteouts.
        let is_refused = new == Err(Errno::EXDEV) && !has_rename_whiteout;
        let old = if is_refused { new.clone() } else { plain.run(operation) };
        assert_eq!(comparable(operation, new), comparable(operation, old), "{}", context());
        layered.check();
        let process = &layered.files.process;
        let right = tree(&plain.files.process.machine, None);
        let layers = process.layers.as_ref();
        same(&tree(&process.machine, layers), &right, &context);
        let fresh = Arc::new(Layered::new(&process.machine()));
        same(&tree(&process.machine, Some(&fresh)), &right, &|| "fresh ".to_string() + &context());
    }
}

/// Of two paths that both lead nowhere, it is not said which one is complained of.
fn comparable(operation: &Operation, outcome: Outcome) -> Outcome {
    let is_nowhere = matches!(outcome, Err(Errno::ENOTDIR | Errno::ENOENT));
    if is_nowhere && operation.paths().len() > 1 { Err(Errno::ENOENT) } else { outcome }
}

fn same(new: &super::tree::Tree, right: &super::tree::Tree, context: &dyn Fn() -> String) {
    for path in new.keys().chain(right.keys()) {
        assert_eq!(new.get(path), right.get(path), "{path} after {}", context());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn two_layers_are_as_one_directory(operations in many(operation(), 1..30)) {
        compare(&operations, true);
    }

    #[test]
    fn without_whiteouts_by_rename_too(operations in many(operation(), 1..30)) {
        compare(&operations, false);
    }
}
