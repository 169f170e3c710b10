//! Tests of power failures at any moment: everything that a command has acknowledged is there
//! afterwards.
//!
//! A user's store is on a disk whose every write is recorded ([`testkit::disk`]). Commands run one
//! after the other, and after each successful one a mark is set. Then the disk is set, again and
//! again, to its state after some beginning of its writes, with all, none or some of the unflushed
//! ones. Everything that the commands before the last mark had made must be there, everything that
//! they had removed must not, and the interrupted command may have happened or not. `verify` finds
//! no damage.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use testkit::command::Finished;
use testkit::disk::{Event, RecordedDisk, Tail};
use testkit::person::Person;
use testkit::skip::Outcome;

use crate::crash::place::{Case, Dice, Place, rounds};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("short_commit_interval", short_commit_interval),
    ("long_commit_interval", long_commit_interval),
];

const SIZE: u64 = 192 << 20;

/// ext4 commits its journal every second: most of a command is on the disk soon, in any order.
fn short_commit_interval(place: &Place<'_>) -> Outcome {
    lose(place, "short", "commit=1")
}

/// ext4 commits every five minutes: only synced data are on the disk.
fn long_commit_interval(place: &Place<'_>) -> Outcome {
    lose(place, "long", "commit=300")
}

/// A command's change of the listed objects: `container NAME`, `image NAME`, `volume NAME`.
#[derive(Clone, Debug)]
enum Change {
    Comes(String),
    Goes(String),
}

/// A command and its change.
struct Step {
    words: Vec<String>,
    changes: Vec<Change>,
}

/// The state that must hold after some steps.
type Promise = BTreeSet<String>;

/// The disk with the user's home on it.
struct Lab {
    disk: RecordedDisk,
    person: Person,
    /// The ids of containers as printed, by their first names.
    ids: BTreeMap<String, String>,
}

fn lose(place: &Place<'_>, name: &str, options: &str) -> Outcome {
    let rounds = rounds(12);
    let directory = place.person.home.join(format!("disk-{name}"));
    fs::create_dir_all(&directory).expect("a directory");
    let disk = RecordedDisk::new(&directory, SIZE, options)?;
    let home = disk.mounted().join("home");
    let user = &place.person.user;
    let owner = format!("{}:{}", user.uid, user.gid);
    root(&disk, &["mkdir", &text(&home)]);
    root(&disk, &["chown", &owner, &text(&home)]);
    root(&disk, &["sync"]);
    let mut lab = Lab { disk, person: place.person.at(&home), ids: BTreeMap::new() };
    let archive = directory.join("archive.tar");
    let archive = place.person.file(&archive, &place.images.small_archive);
    let steps = steps(place, &directory, &archive);
    let mut promises = vec![Promise::new()];
    lab.disk.mark(0);
    for (number, step) in steps.iter().enumerate() {
        let words: Vec<&str> = step.words.iter().map(String::as_str).collect();
        let done = lab.disk.run(&lab.person, &words);
        done.ok();
        lab.disk.mark(u32::try_from(number + 1).unwrap_or(u32::MAX));
        lab.note_id(step, &done);
        promises.push(after(promises.last().expect("a beginning"), &step.changes));
    }
    lab.disk.end();
    let log = lab.disk.log();
    let mut dice = Dice::new(u64::from(user.range) + 40);
    let mut failures: Vec<String> = Vec::new();
    for (round, (count, tail)) in cuts(&log, rounds, &mut dice).into_iter().enumerate() {
        let reached = last_mark(&log[..count]);
        let running = steps.get(reached).map_or("nothing".to_owned(), |step| step.words.join(" "));
        let context = format!(
            "{name} cut {round}: {count} of {} lines, {tail:?}, {reached} commands done, running: \
             {running}",
            log.len()
        );
        lab.disk.cut(count, tail);
        let next = promises.get(reached + 1).unwrap_or(&promises[reached]);
        let looked = catch_unwind(AssertUnwindSafe(|| {
            lab.check(&promises[reached], next, &context);
            if round % 10 == 9 {
                lab.goes_on(&archive, &context);
            }
        }));
        if let Err(payload) = looked {
            // The long form takes time: a failure is printed at once, and it continues.
            let why = payload.downcast_ref::<String>().map_or("a panic", String::as_str);
            eprintln!("{why}");
            failures.push(why.to_owned());
        }
        lab.disk.leave();
    }
    println!("{name}: {} commands, {} lines of the log, {rounds} cuts", steps.len(), log.len());
    assert!(failures.is_empty(), "{} of {rounds} cuts:\n{}", failures.len(), failures.join("\n"));
    Ok(())
}

/// Runs a program as root in the disk's namespace.
fn root(disk: &RecordedDisk, words: &[&str]) {
    let status = disk.enter().args(words).status();
    assert!(status.is_ok_and(|status| status.success()), "{words:?}");
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn after(before: &Promise, changes: &[Change]) -> Promise {
    let mut promise = before.clone();
    for change in changes {
        match change {
            Change::Comes(thing) => promise.insert(thing.clone()),
            Change::Goes(thing) => promise.remove(thing),
        };
    }
    promise
}

fn last_mark(log: &[Event]) -> usize {
    let mark = log.iter().rev().find_map(|event| match event {
        Event::Mark(number) => Some(*number),
        _ => None,
    });
    mark.unwrap_or(0) as usize
}

/// The points of power failures, in order: every second one just after a command has reported
/// success and with nothing more on the disk; the others anywhere.
fn cuts(log: &[Event], rounds: u64, dice: &mut Dice) -> Vec<(usize, Tail)> {
    let marks: Vec<usize> = log
        .iter()
        .enumerate()
        .filter(|(_, event)| matches!(event, Event::Mark(_)))
        .map(|(index, _)| index + 1)
        .collect();
    let first = marks[0];
    let below = |dice: &mut Dice, limit: usize| {
        usize::try_from(dice.below(limit as u64)).unwrap_or_default()
    };
    let mut cuts: Vec<(usize, Tail)> = (0..rounds)
        .map(|round| {
            if round % 2 == 0 {
                // Spread over all commands, so that few rounds cover most kinds.
                let at = usize::try_from(round * marks.len() as u64 / rounds).unwrap_or_default();
                let some = below(dice, marks.len() * 2 / usize::try_from(rounds).unwrap_or(1) + 1);
                return (marks[(at + some).min(marks.len() - 1)], Tail::Lost);
            }
            let tail = match round % 3 {
                0 => Tail::Kept,
                1 => Tail::Part(dice.below(u64::MAX)),
                _ => Tail::Lost,
            };
            (first + below(dice, log.len() - first + 1), tail)
        })
        .collect();
    cuts.sort_by_key(|(count, _)| *count);
    cuts
}

/// The commands. Each kind of change comes more than once, among different others.
fn steps(place: &Place<'_>, directory: &Path, archive: &str) -> Vec<Step> {
    let [image, other] = &place.images.small;
    let tree = directory.join("tree.tar");
    fs::write(&tree, testkit::guest::layer().finish()).expect("a tree");
    place.person.give(&tree);
    let mut steps = Vec::new();
    let mut step = |words: &[&str], comes: &[String], goes: &[String]| {
        let comes = comes.iter().cloned().map(Change::Comes);
        let changes = comes.chain(goes.iter().cloned().map(Change::Goes)).collect();
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        steps.push(Step { words, changes });
    };
    let container = |name: &str| format!("container {name}");
    let volume = |name: &str| format!("volume {name}");
    let named = |name: &str| format!("image {name}");
    let none: &[String] = &[];
    let exit = ["/bin/guest", "exit", "0"];
    step(&["pull", "-q", "--tls-verify=false", image], &[named(image)], none);
    step(&["run", "--rm", image, "/bin/guest", "exit", "0"], none, none);
    for round in 0..3 {
        let name = |what: &str| format!("{what}{round}");
        let (one, two) = (name("one"), name("two"));
        step(&["create", "--name", &one, image], &[container(&one)], none);
        step(&["volume", "create", &one], &[volume(&one)], none);
        step(&[&["run", "--rm", image][..], &exit].concat(), none, none);
        let detached = name("detached");
        step(
            &[&["run", "-d", "--name", &detached, image][..], &exit].concat(),
            &[container(&detached)],
            none,
        );
        let tag = format!("localhost/crash/tag:{round}");
        step(&["tag", image, &tag], &[named(&tag)], none);
        step(&["rename", &one, &two], &[container(&two)], &[container(&one)]);
        let foreground = name("foreground");
        let words = ["run", "--name", &foreground, image, "/bin/guest", "write", "/x", "y"];
        step(&words, &[container(&foreground)], none);
        let (filled, data) = (name("filled"), format!("{}:/data", name("filled")));
        step(
            &["create", "--name", &filled, "-v", &data, image],
            &[container(&filled), volume(&filled)],
            none,
        );
        let copy = name("copy");
        step(&["clone", "--name", &copy, &foreground], &[container(&copy)], none);
        let plain = name("plain");
        step(&["create", "--execmode=I1", "--name", &plain, image], &[container(&plain)], none);
        step(&["setup", "--execmode=I1", &two], none, none);
        step(&["name", &two, &one], &[container(&one)], none);
        step(&["rmname", &two], none, &[container(&two)]);
        step(&["protect", &one], none, none);
        match round {
            0 => step(&["load", "-q", "-i", archive], &[named("localhost/crash/loaded:1")], none),
            1 => step(
                &["import", "-q", &text(&tree), "localhost/crash/imported:1"],
                &[named("localhost/crash/imported:1")],
                none,
            ),
            _ => step(&["pull", "-q", "--tls-verify=false", other], &[named(other)], none),
        }
        step(&["rm", "-f", &filled], none, &[container(&filled)]);
        step(&["volume", "rm", &filled], none, &[volume(&filled)]);
        step(&["rmi", &tag], none, &[named(&tag)]);
        step(&[&["run", "--rm", image][..], &exit].concat(), none, none);
    }
    steps
}

impl Lab {
    /// Stores the id that `create` and `run -d` print.
    fn note_id(&mut self, step: &Step, done: &Finished) {
        let line = done.line();
        let is_id = line.len() == 64 && line.bytes().all(|byte| byte.is_ascii_hexdigit());
        if let (true, Some(Change::Comes(thing))) = (is_id, step.changes.first()) {
            self.ids.insert(thing.clone(), line);
        }
    }

    fn run(&self, words: &[&str], context: &str) -> Finished {
        let done = self.disk.run(&self.person, words);
        assert!(done.code() == 0, "{context}: {done:?}");
        done
    }

    /// A file on the disk.
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        fs::read(self.disk.outside(path)).ok()
    }

    /// Lists the files of the store's containers and volumes.
    fn on_disk(&self) -> String {
        let places = ["containers", "volumes", "trash", "tmp"];
        let mut command = self.disk.enter();
        command.arg("ls").arg("-lAR");
        command.args(places.map(|name| self.person.store().join(name)));
        let done = command.output().expect("ls");
        String::from_utf8_lossy(&done.stdout).lines().take(80).collect::<Vec<_>>().join("\n")
    }

    /// All listed objects, named as in [`Change`]; with the ids of containers.
    fn listed(&self, context: &str) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let mut list = |kind: &str, words: &[&str]| {
            for line in self.run(words, context).out().lines() {
                let (id, names) = line.split_once(' ').unwrap_or(("", line));
                for name in names.split(',').filter(|name| !name.is_empty()) {
                    found.insert(format!("{kind} {name}"), id.to_owned());
                }
            }
        };
        list("container", &["ps", "-a", "--no-trunc", "--format={{.ID}} {{.Names}}"]);
        list("image", &["images", "--no-trunc", "--format={{.ID}} {{.Repository}}:{{.Tag}}"]);
        list("volume", &["volume", "ls", "--format={{.Driver}} {{.Name}}"]);
        found
    }

    fn check(&self, before: &Promise, next: &Promise, context: &str) {
        let found = self.listed(context);
        for thing in before.intersection(next) {
            assert!(
                found.contains_key(thing),
                "{context}: lost: {thing}; found: {found:?}; on the disk:\n{}",
                self.on_disk()
            );
            if let Some(id) = self.ids.get(thing) {
                assert_eq!(found.get(thing), Some(id), "{context}: {thing} has another id");
            }
        }
        for thing in found.keys().filter(|thing| !before.contains(*thing) && !next.contains(*thing))
        {
            // The id of a container without a name was not printed.
            let unnamed = thing.starts_with("container ") && !thing.ends_with(['0', '1', '2']);
            assert!(unnamed, "{context}: removed, and there again: {thing}");
        }
        self.check_contents(before, next, &found, context);
        self.run(&["verify", "-q"], context);
    }

    /// Checks the contents of the objects.
    fn check_contents(
        &self,
        before: &Promise,
        next: &Promise,
        found: &BTreeMap<String, String>,
        context: &str,
    ) {
        let store = self.person.store();
        let mut inspect = vec!["inspect", "--type=container", "--format={{.Id}}"];
        let mut ids = Vec::new();
        let mut files: Vec<(PathBuf, &str)> = Vec::new();
        for thing in before.intersection(next) {
            let Some((kind, name)) = thing.split_once(' ') else { continue };
            let kind_of_name = name.trim_end_matches(|digit: char| digit.is_ascii_digit());
            if kind == "volume" && kind_of_name == "filled" {
                let data = store.join("volumes").join(name).join("_data");
                files.extend([(data.join("one"), "1\n"), (data.join("sub/two"), "2\n")]);
            }
            if kind == "container" {
                let id = found.get(thing).map_or("", String::as_str);
                inspect.push(name);
                ids.push(id);
                let place = store.join("containers").join(id);
                match kind_of_name {
                    "copy" => files.push((place.join("upper/x"), "y")),
                    // The tree is made when a command first needs it.
                    "plain" if self.read(&place.join("ROOT/data/sub/two")).is_some() => {
                        files.push((place.join("ROOT/data/one"), "1\n"));
                    }
                    _ => {}
                }
            }
        }
        if !ids.is_empty() {
            let inspected = self.run(&inspect, context);
            assert_eq!(inspected.out().lines().collect::<Vec<_>>(), ids, "{context}");
        }
        for (file, expected) in files {
            let bytes = self.read(&file);
            let held = bytes.as_deref().map(String::from_utf8_lossy);
            assert_eq!(held.as_deref(), Some(expected), "{context}: {}", file.display());
        }
    }

    /// Commands still work with the store: the interrupted import can be repeated, and everything
    /// can be removed.
    fn goes_on(&self, archive: &str, context: &str) {
        self.run(&["load", "-q", "-i", archive], context);
        self.run(&["verify", "-q"], context);
        let found = self.listed(context);
        for thing in found.keys().filter(|thing| thing.starts_with("container one")) {
            self.run(&["unprotect", thing.trim_start_matches("container ")], context);
        }
        self.run(&["rm", "-f", "-a"], context);
        self.run(&["create", "--name", "fresh", "--rootfs", "/"], context);
        self.run(&["system", "prune", "-a", "-f", "--volumes"], context);
        let done = self.run(&["ps", "-a", "-q"], context);
        assert_eq!(done.out(), "", "{context}: a container stays");
        for directory in ["tmp/ingest", "tmp/build", "trash", "containers", "layers", "trees"] {
            let path = self.disk.outside(&self.person.store().join(directory));
            let left = fs::read_dir(path).map_or(0, Iterator::count);
            assert_eq!(left, 0, "{context}: {directory}/ still holds something");
        }
        self.run(&["verify", "-q"], context);
    }
}
