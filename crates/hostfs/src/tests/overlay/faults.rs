//! Errors at every call, and a process that is killed before every call.

use super::super::fake::{Fault, Process};
use super::super::layered::{LOWER, Layered, MOVED, UPPER};
use super::super::machine::Machine;
use super::operations::{Operation, Operation::*, Outcome};
use super::tree::{Node, Tree, tree};
use super::{Container, inodes, temporary, tidy};
use crate::overlay::await_move;
use abi::shared::changes::is_moving;
use std::collections::BTreeSet;
use std::string::{String, ToString};
use std::sync::Arc;
use std::vec::Vec;
use view::Errno;

/// Errors that say nothing of names: the calls fail for other reasons.
const ERRORS: [Errno; 2] = [Errno::EIO, Errno::EINVAL];

fn s(text: &str) -> String {
    text.to_string()
}

fn unlink(names: &[&str]) -> Vec<Operation> {
    names.iter().map(|name| Unlink(s(name))).collect()
}

fn rename(from: &str, to: &str) -> Operation {
    Rename(s(from), s(to), 0)
}

fn exchange(from: &str, to: &str) -> Operation {
    Rename(s(from), s(to), 2)
}

/// What happened before, and what is done.
fn scenarios() -> Vec<(Vec<Operation>, Operation)> {
    let nothing = Vec::new;
    let no_e = || Vec::from([RemoveDirectory(s("e"))]);
    let empty_d = || unlink(&["d/x", "d/y", "d/f", "d/l"]);
    let then = |mut before: Vec<Operation>, more: &[Operation]| {
        before.extend_from_slice(more);
        before
    };
    let moved_d = || then(Vec::from([rename("d", "n")]), &unlink(&["n/x", "n/y", "n/f", "n/l"]));
    Vec::from([
        (nothing(), MakeFile(s("a/b/c/n"))),
        (nothing(), SetMode(s("a/b"), 0o711)),
        (nothing(), CopyUp(s("a/b/x"))),
        (nothing(), CopyUp(s("d/l"))),
        (nothing(), CopyUp(s("g"))),
        (nothing(), CopyUp(s("p"))),
        (Vec::from([rename("a/x", "n")]), CopyUp(s("n"))),
        (nothing(), Unlink(s("a/x"))),
        (Vec::from([CopyUp(s("a/x"))]), Unlink(s("a/x"))),
        (Vec::from([MakeFile(s("a/n"))]), Unlink(s("a/n"))),
        (nothing(), RemoveDirectory(s("e"))),
        (empty_d(), RemoveDirectory(s("d"))),
        (moved_d(), RemoveDirectory(s("n"))),
        (then(no_e(), &[MakeDirectory(s("e"))]), RemoveDirectory(s("e"))),
        (nothing(), rename("a/x", "n")),
        (nothing(), rename("a/x", "d/y")),
        (unlink(&["d/y"]), rename("a/x", "d/y")),
        (Vec::from([MakeFile(s("n"))]), rename("n", "a/x")),
        (nothing(), rename("a", "n")),
        (nothing(), rename("a/b", "e")),
        (no_e(), rename("a/b", "e")),
        (then(no_e(), &[MakeDirectory(s("n")), MakeFile(s("n/x"))]), rename("n", "e")),
        (empty_d(), rename("a", "d")),
        (then(empty_d(), &[MakeDirectory(s("n")), MakeFile(s("n/x"))]), rename("n", "d")),
        (then(moved_d(), &[rename("a", "y")]), rename("y", "n")),
        (Vec::from([rename("a/b", "a/n"), rename("a", "n")]), rename("n/n", "d/n")),
        (Vec::from([rename("a/b", "a/n"), rename("a", "n")]), rename("n", "y")),
        (Vec::from([rename("a", "n")]), rename("n", "a")),
        (then(no_e(), &[rename("a", "d/n")]), rename("d/n", "e")),
        (then(no_e(), &[rename("a", "n"), MakeDirectory(s("y"))]), rename("y", "e")),
        (nothing(), exchange("a/x", "d/y")),
        (nothing(), exchange("a", "d")),
        (nothing(), exchange("a/b", "f")),
        (Vec::from([MakeDirectory(s("n"))]), exchange("a", "n")),
        (nothing(), Link(s("a/x"), s("n"))),
        (unlink(&["d/y"]), Link(s("a/x"), s("d/y"))),
        (no_e(), MakeDirectory(s("e"))),
        (unlink(&["a/x"]), MakeFile(s("a/x"))),
        (unlink(&["a/x"]), MakeLink(s("a/x"), s("b"))),
        (unlink(&["a/x"]), Create(s("a/x"))),
        (nothing(), MakeFile(s("@n"))),
        (nothing(), Unlink(s("@x"))),
        (nothing(), rename("@x", "n")),
        (Vec::from([rename("a/b", "d/n")]), rename("a/x", "@n/n")),
    ])
}

/// A tree without the times of its directories.
fn timeless(mut tree: Tree) -> Tree {
    for node in tree.values_mut() {
        if node.is_directory() {
            node.modified = 0;
        }
    }
    tree
}

struct Scenario {
    machine: Machine,
    operation: Operation,
    old: Tree,
    new: Tree,
    calls: usize,
    has_rename_whiteout: bool,
}

impl Scenario {
    /// `None` where the file system cannot do it.
    fn new(before: &[Operation], operation: &Operation, has_rename_whiteout: bool) -> Option<Self> {
        let mut container = Container::layered();
        for (step, operation) in before.iter().enumerate() {
            container.machine().clock = (step as i64 + 1) * 1000;
            assert_eq!(container.run(operation), Ok(Vec::new()), "{operation:?}");
        }
        let machine = container.machine().clone();
        let (old, new) = (Tree::new(), Tree::new());
        let operation = operation.clone();
        let mut scenario = Self { machine, operation, old, new, calls: 0, has_rename_whiteout };
        let (mut container, layers) = scenario.container(None);
        let whole = |container: &Container, layers| {
            timeless(tree(&container.files.process.machine, Some(layers)))
        };
        scenario.old = whole(&container, &layers);
        let outcome = container.run(&scenario.operation);
        if outcome == Err(Errno::EXDEV) && !has_rename_whiteout {
            return None;
        }
        assert_eq!(outcome, Ok(Vec::new()), "{:?}", scenario.operation);
        scenario.new = whole(&container, &layers);
        scenario.calls = container.files.process.calls.borrow().len();
        Some(scenario)
    }

    /// A container in the old state.
    fn container(&self, fault: Option<Fault>) -> (Container, Arc<Layered>) {
        let layers = Arc::new(Layered::new(&self.machine));
        let (machine, has_rename_whiteout) = (self.machine.clone(), self.has_rename_whiteout);
        let process = Process {
            layers: Some(Arc::clone(&layers)),
            umask: 0o022,
            fault,
            has_rename_whiteout,
            ..Process::new(machine)
        };
        process.machine().clock = 50_000;
        let mut container = Container::of(process);
        container.prepare(&self.operation);
        (container, layers)
    }

    /// Returns true if a rename has more than one step that can be seen.
    fn is_in_two_steps(&self) -> bool {
        let Rename(from, _, _) = &self.operation else { return false };
        // The container's own directory, while none of the image's has been moved: it goes to a
        // whiteout in two steps.
        let is_own = self.machine.at(MOVED).is_err() && from == "n";
        !self.has_rename_whiteout || is_own
    }

    /// Both states at once, or the old one with an empty directory under the new name.
    fn is_both(&self, seen: &Tree) -> bool {
        let is_known = |path: &String| {
            let node = seen.get(path);
            let is_directory = |node: Option<&Node>| node.is_some_and(Node::is_directory);
            node == self.old.get(path)
                || node == self.new.get(path)
                || is_directory(node) && is_directory(self.new.get(path))
        };
        let all: BTreeSet<&String> = self.old.keys().chain(self.new.keys()).collect();
        seen.keys().all(|path| all.contains(path)) && all.into_iter().all(is_known)
    }

    /// Fails unless a tree is old or new.
    fn check(&self, seen: &Tree, may_be_both: bool, context: &str) {
        if *seen == self.old || *seen == self.new || may_be_both && self.is_both(seen) {
            return;
        }
        let differs = |tree: &Tree| {
            let all: BTreeSet<&String> = seen.keys().chain(tree.keys()).collect();
            let differs = |path: &&&String| seen.get(**path) != tree.get(**path);
            let list = all.iter().filter(differs).map(|path| {
                std::format!("{path}: {:?} instead of {:?}", seen.get(*path), tree.get(*path))
            });
            list.collect::<Vec<_>>().join("\n")
        };
        panic!("{context}: old:\n{}\nnew:\n{}", differs(&self.old), differs(&self.new));
    }

    /// Does it again, after which it is done.
    fn again(&self, process: Process, context: &str) {
        let mut container = Container::of(Process { thread: 7, ..process });
        container.machine().clock = 50_000;
        container.prepare(&self.operation);
        let layers = container.files.process.layers.clone();
        let outcome = container.run(&self.operation);
        let seen = timeless(tree(&container.files.process.machine, layers.as_ref()));
        assert!(seen == self.new, "{context}: again: {outcome:?}");
        assert!(self.is_copied(&container.machine()), "{context}: no copy");
    }

    fn fail(&self, call: usize, errno: Errno) {
        let (mut container, layers) = self.container(Some(Fault::Error(call, errno)));
        let result = container.run(&self.operation);
        let process = &container.files.process;
        let failed_in = process.failed_in();
        let calls = process.calls.borrow().clone();
        let context =
            std::format!("{:?}: {errno:?} in {call} of {calls:?}: {result:?}", self.operation);
        std::println!("{context}");
        let held = usize::from(container.held.is_some());
        assert_eq!(process.end(), held, "{context}: files stay open");
        assert!(process.machine().locks.is_empty(), "{context}");
        // What could not be removed after it was done is left for the next start.
        let may_be_left = result.is_ok() || failed_in == Some("unlinkat");
        let is_left = !temporary(&process.machine()).is_empty();
        assert!(!is_left || may_be_left, "{context}: temporary files stay");
        let seen = timeless(tree(&process.machine, Some(&layers)));
        let in_two_steps = !self.has_rename_whiteout;
        self.check(&seen, in_two_steps, &context);
        let fresh = Arc::new(Layered::new(&process.machine()));
        let fresh = timeless(tree(&process.machine, Some(&fresh)));
        assert!(fresh == seen, "{context}: the next start sees something else");
        assert!(result.is_err() || seen == self.new, "{context}: an error was passed over");
        assert!(result.is_err() || self.is_copied(&process.machine()), "{context}: no copy");
        if seen == self.old {
            self.again(super::process(&process.machine, Some(&layers)), &context);
        }
        container.files.process = Process::on(&container.files.process.machine);
        self.image_is_the_same(&container);
    }

    /// What the container does not see of a copy.
    fn is_copied(&self, machine: &Machine) -> bool {
        let CopyUp(name) = &self.operation else { return true };
        let upper = machine.at(&std::format!("{UPPER}/{name}"));
        upper.is_ok_and(|inode| !inodes(machine, LOWER).values().any(|image| *image == inode))
    }

    fn image_is_the_same(&self, container: &Container) {
        let (new, old) = (super::image(&container.machine()), super::image(&self.machine));
        assert_eq!(new, old, "the image was changed");
    }

    fn kill(&self, call: usize) {
        let (mut container, layers) = self.container(Some(Fault::Killed(call)));
        let moves = || layers.layers().image.changes.moves();
        let before = moves();
        let _: Outcome = container.run(&self.operation);
        let process = &container.files.process;
        let calls = process.calls.borrow().clone();
        let context = std::format!("{:?}: killed before {call} of {calls:?}", self.operation);
        std::println!("{context}");
        process.end();
        let in_two_steps = self.is_in_two_steps();
        let machine = process.machine().clone();
        // Others that live.
        let whole = |machine, layers| timeless(tree(machine, Some(layers)));
        let seen = whole(&process.machine, &layers);
        self.check(&seen, in_two_steps, &context);
        let is_moved = matches!(self.operation, Rename(..)) && seen != self.old;
        assert!(!is_moved || moves() != before, "{context}: the move is not seen");
        await_move(&super::process(&process.machine, Some(&layers)));
        assert!(!is_moving(moves()) && (!is_moved || moves() != before), "{context}: for ever");
        if seen == self.old {
            self.again(super::process(&process.machine, Some(&layers)), &context);
        }
        self.image_is_the_same(&container);
        // The next start.
        let process = Process::new(machine);
        tidy(&mut process.machine());
        let fresh = Arc::new(Layered::new(&process.machine()));
        let seen = whole(&process.machine, &fresh);
        self.check(&seen, in_two_steps, &std::format!("{context}, started again"));
        if seen == self.old {
            self.again(super::process(&process.machine, Some(&fresh)), &context);
        }
        assert_eq!(temporary(&process.machine()), Vec::<String>::new());
    }
}

fn all(test: impl Fn(&Scenario)) {
    for has_rename_whiteout in [true, false] {
        let is_equal =
            |operation: &Operation| has_rename_whiteout || matches!(operation, Rename(..));
        for (before, operation) in scenarios().into_iter().filter(|(_, act)| is_equal(act)) {
            if let Some(scenario) = Scenario::new(&before, &operation, has_rename_whiteout) {
                test(&scenario);
            }
        }
    }
}

#[test]
fn after_an_error_the_tree_is_old_or_new() {
    all(|scenario| {
        for call in 0..scenario.calls {
            // Only `rename` has an error with a meaning.
            let is_rename = matches!(scenario.operation, Rename(..));
            for errno in ERRORS.into_iter().take(1 + usize::from(is_rename)) {
                scenario.fail(call, errno);
            }
        }
    });
}

#[test]
fn after_a_kill_the_tree_is_old_or_new() {
    all(|scenario| (0..scenario.calls).for_each(|call| scenario.kill(call)));
}
