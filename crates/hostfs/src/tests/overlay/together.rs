//! Two processes at once. What they see, and what is left, must be as if one had been first.

use super::super::fake::Process;
use super::super::layered::Layered;
use super::super::machine::Machine;
use super::super::turns::Turns;
use super::operations::{Operation, Operation::*, Outcome};
use super::tree::{Tree, tree};
use super::{Container, temporary};
use std::format;
use std::string::{String, ToString};
use std::sync::{Arc, Mutex};
use std::vec::Vec;

fn s(text: &str) -> String {
    text.to_string()
}

fn rename(from: &str, to: &str) -> Operation {
    Rename(s(from), s(to), 0)
}

/// What happened before, and what two processes do. (Not here: a directory is moved while another
/// process makes a call from it. The call is made by the name that it had a moment before.)
fn pairs() -> Vec<(Vec<Operation>, [Operation; 2])> {
    let nothing = Vec::new;
    let no_x = || Vec::from([Unlink(s("a/x"))]);
    let empty_d = || ["d/x", "d/y", "d/f", "d/l"].map(|name| Unlink(s(name))).into();
    let no_e = || Vec::from([RemoveDirectory(s("e"))]);
    Vec::from([
        (nothing(), [MakeFile(s("a/b/n")), MakeFile(s("a/b/y"))]),
        (nothing(), [MakeFile(s("a/b/n")), MakeFile(s("a/b/n"))]),
        (nothing(), [MakeFile(s("e/n")), RemoveDirectory(s("e"))]),
        (nothing(), [MakeFile(s("e/n")), rename("e", "n")]),
        (nothing(), [MakeFile(s("a/b/c/n")), rename("a", "n")]),
        (nothing(), [MakeFile(s("a/b/c/n")), rename("a/b", "n")]),
        (nothing(), [Unlink(s("a/x")), Unlink(s("a/x"))]),
        (nothing(), [Unlink(s("a/x")), rename("a/x", "n")]),
        (nothing(), [Unlink(s("a/x")), rename("d/x", "a/x")]),
        (nothing(), [CopyUp(s("a/x")), CopyUp(s("a/x"))]),
        (nothing(), [CopyUp(s("a/x")), Unlink(s("a/x"))]),
        (nothing(), [CopyUp(s("a/x")), rename("a/x", "n")]),
        (nothing(), [CopyUp(s("a/b/x")), rename("a", "n")]),
        (nothing(), [CopyUp(s("a/x")), rename("d/x", "a/x")]),
        (Vec::from([rename("a/x", "n")]), [CopyUp(s("n")), Unlink(s("n"))]),
        (Vec::from([rename("d", "y"), rename("a/x", "n")]), [CopyUp(s("n")), Unlink(s("n"))]),
        (nothing(), [Append(s("a/x")), Append(s("a/x"))]),
        (nothing(), [Append(s("a/x")), Append(s("d/x"))]),
        (nothing(), [SetAttribute(s("a/b"), s("a")), SetMode(s("a/b"), 0o711)]),
        (no_x(), [MakeFile(s("a/x")), MakeFile(s("a/x"))]),
        (no_x(), [MakeFile(s("a/x")), MakeDirectory(s("a/x"))]),
        (no_x(), [MakeFile(s("a/x")), rename("d/x", "a/x")]),
        (no_e(), [MakeDirectory(s("e")), rename("a/b", "e")]),
        (nothing(), [rename("a/x", "n"), rename("a/x", "y")]),
        (nothing(), [rename("a/x", "n"), rename("d/x", "n")]),
        (nothing(), [rename("a", "n"), rename("a", "y")]),
        (nothing(), [rename("a/b", "n"), rename("a", "y")]),
        (nothing(), [rename("a", "d/n"), rename("d", "a/n")]),
        (Vec::from([rename("a", "n")]), [rename("n", "a"), MakeFile(s("a/n"))]),
        (Vec::from([rename("a", "n")]), [rename("n", "a"), MakeFile(s("n"))]),
        (Vec::from([rename("a", "n")]), [rename("n", "a"), MakeDirectory(s("n"))]),
        (Vec::from([rename("a", "n")]), [rename("n", "a"), rename("d", "n")]),
        (Vec::from([rename("a", "n")]), [rename("n", "a"), RemoveDirectory(s("a"))]),
        (Vec::from([rename("a", "n")]), [rename("n", "a"), Create(s("n"))]),
        (nothing(), [rename("a/b", "e"), RemoveDirectory(s("e"))]),
        (nothing(), [rename("a/b", "e"), MakeFile(s("e/n"))]),
        (nothing(), [Rename(s("a"), s("d"), 2), Rename(s("a"), s("d"), 2)]),
        (nothing(), [Rename(s("a"), s("d"), 2), MakeFile(s("a/n"))]),
        (nothing(), [Rename(s("a"), s("d"), 2), Unlink(s("d/x"))]),
        (nothing(), [Link(s("a/x"), s("n")), Unlink(s("a/x"))]),
        (nothing(), [Link(s("a/x"), s("n")), MakeFile(s("n"))]),
        (nothing(), [RemoveDirectory(s("e")), RemoveDirectory(s("e"))]),
        (nothing(), [RemoveDirectory(s("e")), rename("e", "n")]),
        (empty_d(), [RemoveDirectory(s("d")), MakeFile(s("@n"))]),
    ])
}

/// What can be seen of two operations: what they returned, and the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    outcomes: [Outcome; 2],
    tree: Tree,
}

fn start(before: &[Operation]) -> (Machine, Layered) {
    let mut container = Container::layered();
    for operation in before {
        assert_eq!(container.run(operation), Ok(Vec::new()), "{operation:?}");
    }
    let machine = container.machine().clone();
    let layered = Layered::new(&machine);
    (machine, layered)
}

fn process(machine: &Arc<Mutex<Machine>>, layers: &Arc<Layered>) -> Process {
    machine.lock().unwrap().clock = 50_000;
    super::process(machine, Some(layers))
}

/// Directories may have the times of either operation.
fn seen(outcomes: [Outcome; 2], machine: &Arc<Mutex<Machine>>, layers: &Arc<Layered>) -> Seen {
    let mut tree = tree(machine, Some(layers));
    tree.values_mut().filter(|node| node.is_directory()).for_each(|node| node.modified = 0);
    Seen { outcomes, tree }
}

/// One after the other.
fn in_order(before: &[Operation], pair: &[Operation; 2], order: [usize; 2]) -> Seen {
    let (machine, layered) = start(before);
    let (machine, layers) = (Arc::new(Mutex::new(machine)), Arc::new(layered));
    let mut outcomes = [Ok(Vec::new()), Ok(Vec::new())];
    let mut containers = pair.each_ref().map(|operation| {
        let mut container = Container::of(process(&machine, &layers));
        container.prepare(operation);
        container
    });
    for number in order {
        outcomes[number] = containers[number].run(&pair[number]);
    }
    seen(outcomes, &machine, &layers)
}

fn at_once(before: &[Operation], pair: &[Operation; 2], seed: u64) -> (Seen, Seen) {
    let (machine, layered) = start(before);
    let image = super::image(&machine);
    let (machine, layers) = (Arc::new(Mutex::new(machine)), Arc::new(layered));
    let turns = Arc::new(Turns::new(2, seed));
    let outcomes = std::thread::scope(|scope| {
        let prepared = [0, 1].map(|number| {
            let process = process(&machine, &layers).in_turn(&turns, number);
            let mut container = Container::of(process);
            container.prepare(&pair[number]);
            (number, container)
        });
        let threads = prepared.map(|(number, mut container)| {
            scope.spawn(move || {
                let outcome = container.run(&pair[number]);
                let held = usize::from(container.held.is_some());
                assert_eq!(container.files.process.end(), held);
                outcome
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    {
        let machine = machine.lock().unwrap();
        assert_eq!((temporary(&machine), machine.locks.len()), (Vec::new(), 0));
        assert_eq!(super::image(&machine), image, "the image was changed");
    }
    let fresh = Arc::new(Layered::new(&machine.lock().unwrap()));
    let now = seen(outcomes.clone(), &machine, &layers);
    (now, seen(outcomes, &machine, &fresh))
}

#[test]
fn one_of_two_is_first() {
    for (before, pair) in pairs() {
        let orders = [[0, 1], [1, 0]].map(|order| in_order(&before, &pair, order));
        for seed in 0..60 {
            let (now, fresh) = at_once(&before, &pair, seed);
            let context = format!("{pair:?} with seed {seed}");
            assert!(
                orders.contains(&now),
                "{context}: {:?} {:#?} instead of {:?}",
                now.outcomes,
                now.tree.keys(),
                orders.each_ref().map(|seen| &seen.outcomes)
            );
            assert!(now == fresh, "{context}: the next start sees something else");
        }
    }
}
