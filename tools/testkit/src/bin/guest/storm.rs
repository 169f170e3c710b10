//! Many processes that change the same directories of the image at once, some of them killed, and a
//! check afterwards that nothing was lost, doubled or half done.
//!
//! Each worker owns some files, and writes down what it is about to do with one and that it has
//! done so ([`journal`]): a worker that takes the place of a killed one, and the check, know from
//! that in which one or two states each file may be. Other files are everybody's: directories that
//! all rename, and files of which each may be removed once.
//!
//! The image has, below [`TREE`]: directories `a0` to `a3`, each with a file `fN` for each worker
//! and files `s0` to `s7` that nobody changes; `mv/p0` to `mv/p7`, each with `token`, `x` and
//! `in/deep/leaf`; `once/r0` to `once/r31`; and an empty [`LOGS`].

mod journal;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde_json::json;

use crate::{Answer, name_of};
use journal::{Item, Journal, State};

pub(crate) const TREE: &str = "/storm";
/// Where the workers write down what they do.
pub(crate) const LOGS: &str = "/storm/log";
/// Directories with owned files; each worker owns one file of each.
pub(crate) const SHARED: u64 = 4;
const STAYING: u64 = 8;
const MOVED: u64 = 8;
const PLACES: u64 = 16;
const ONCE: u64 = 32;

/// Random numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn new(salt: u64) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(1, |now| now.subsec_nanos());
        Self((u64::from(now) << 20 | salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % limit
    }
}

/// Runs the workers to their ends, and kills some meanwhile, which others then replace. `tag` is a
/// word that is only in their command lines.
pub(crate) fn storm(count: u64, rounds: u64, kills: u64, tag: &str) -> Answer {
    let start = |number: u64| -> Result<Child, String> {
        Command::new("/bin/guest")
            .args(["storm-worker", &number.to_string(), &rounds.to_string(), tag])
            .spawn()
            .map_err(|error| name_of(&error))
    };
    let mut workers = (0..count).map(start).collect::<Result<Vec<_>, _>>()?;
    let mut dice = Dice::new(count);
    let mut killed = 0;
    for _ in 0..kills {
        std::thread::sleep(Duration::from_micros(500 + dice.below(20_000)));
        let number = dice.below(count);
        let worker = &mut workers[number as usize];
        if matches!(worker.try_wait(), Ok(None)) {
            worker.kill().map_err(|error| name_of(&error))?;
            worker.wait().map_err(|error| name_of(&error))?;
            *worker = start(number)?;
            killed += 1;
        }
    }
    let mut failed = 0;
    for worker in &mut workers {
        failed += u64::from(!worker.wait().is_ok_and(|status| status.success()));
    }
    println!("killed {killed}, failed {failed}");
    Ok(u8::from(failed > 0))
}

/// One worker.
struct Worker {
    number: u64,
    journal: Journal,
    items: Vec<Item>,
    dice: Dice,
    /// Calls are made after a tracer has decided by which path.
    traced: bool,
}

/// Does some rounds of random work.
pub(crate) fn worker(number: u64, rounds: u64, tag: &str) -> Answer {
    let (journal, items) = Journal::open(number)?;
    let traced = tag.contains("traced");
    let mut worker = Worker { number, journal, items, dice: Dice::new(number), traced };
    worker.settle_doubts()?;
    for round in 0..rounds {
        match worker.dice.below(10) {
            0..4 => worker.change_own(round)?,
            4 | 5 => worker.list_shared()?,
            6 | 7 => worker.move_directory()?,
            8 => worker.look_into_moved()?,
            _ => worker.remove_once()?,
        }
    }
    Ok(0)
}

impl Worker {
    /// A worker of this number was killed: finds out what it has done.
    fn settle_doubts(&mut self) -> Result<(), String> {
        for at in 0..self.items.len() {
            if self.items[at].doubt.is_none() {
                continue;
            }
            match self.items[at].actual().cloned() {
                Some(state) if Some(&state) == self.items[at].doubt.as_ref() => {
                    self.journal.done(at)?;
                    self.items[at].set(state);
                }
                Some(state) => {
                    self.journal.undone(at)?;
                    self.items[at].set(state);
                }
                None => {
                    let text = format!("{:?} after a kill", self.items[at]);
                    self.journal.problem(&text)?;
                }
            }
        }
        Ok(())
    }

    /// Changes one of the worker's own files.
    fn change_own(&mut self, round: u64) -> Result<(), String> {
        let at = self.dice.below(SHARED) as usize;
        let state = self.items[at].state.clone();
        let shared = self.dice.below(SHARED);
        let fresh =
            format!("{TREE}/a{shared}/m{}-{at}-{}-{round}", self.number, std::process::id());
        let choice = self.dice.below(6);
        let (next, result) = match &state.path {
            None => {
                let next = State { path: Some(fresh.clone()), of_image: false, lines: 0 };
                self.journal.will(at, &next)?;
                (next, File::create(&fresh).map(drop))
            }
            Some(path) if choice == 0 => {
                let next = State { path: None, of_image: false, lines: 0 };
                self.journal.will(at, &next)?;
                (next, fs::remove_file(path))
            }
            Some(path) if choice < 3 => {
                let next = State { path: Some(fresh.clone()), ..state.clone() };
                self.journal.will(at, &next)?;
                (next, fs::rename(path, &fresh))
            }
            Some(path) if choice < 5 => {
                let next = State { lines: state.lines + 1, ..state.clone() };
                self.journal.will(at, &next)?;
                let file = OpenOptions::new().append(true).open(path);
                (next, file.and_then(|mut file| file.write_all(b"+\n")))
            }
            Some(path) => {
                let mode = Permissions::from_mode(0o600 + (round % 64) as u32);
                (state.clone(), fs::set_permissions(path, mode))
            }
        };
        if let Err(error) = result {
            self.journal.undone(at)?;
            return self.journal.problem(&format!("{state:?} to {next:?}: {}", name_of(&error)));
        }
        self.journal.done(at)?;
        if !next.holds() {
            self.journal.problem(&format!("after {state:?}: not {next:?}"))?;
        }
        self.items[at].set(next);
        Ok(())
    }

    /// Lists a directory that others change: what nobody or only this worker changes must be there
    /// once.
    fn list_shared(&mut self) -> Result<(), String> {
        let shared = self.dice.below(SHARED);
        let dir = format!("{TREE}/a{shared}");
        let mut names = BTreeMap::<String, u32>::new();
        let list = fs::read_dir(&dir).map_err(|error| format!("{dir}: {}", name_of(&error)))?;
        for entry in list {
            let entry = entry.map_err(|error| format!("{dir}: {}", name_of(&error)))?;
            *names.entry(entry.file_name().to_string_lossy().into_owned()).or_default() += 1;
        }
        for stay in 0..STAYING {
            let count = names.remove(&format!("s{stay}")).unwrap_or(0);
            if count != 1 {
                self.journal.problem(&format!("{dir}/s{stay} was listed {count} times"))?;
            }
        }
        let mine: BTreeSet<&Path> = self
            .items
            .iter()
            .filter_map(|item| item.state.path.as_deref())
            .map(Path::new)
            .collect();
        let first = format!("m{}-", self.number);
        let own = |name: &str| name.starts_with(&first) || name == format!("f{}", self.number);
        let mut listed = BTreeSet::new();
        let mut wrong = Vec::new();
        for (name, count) in names.iter().filter(|(name, _)| own(name)) {
            let path = Path::new(&dir).join(name);
            if *count != 1 || !mine.contains(path.as_path()) {
                wrong.push(format!("{} was listed {count} times", path.display()));
            }
            listed.insert(path);
        }
        for path in mine.iter().filter(|path| path.parent() == Some(Path::new(&dir))) {
            if !listed.contains(*path) {
                wrong.push(format!("{} was not listed", path.display()));
            }
        }
        wrong.iter().try_for_each(|text| self.journal.problem(text))
    }

    /// Renames one of the directories that everybody renames.
    fn move_directory(&mut self) -> Result<(), String> {
        let (from, to) = (self.place(), self.place());
        let flags = [RenameFlags::empty(), RenameFlags::NOREPLACE][self.dice.below(2) as usize];
        if from == to {
            return Ok(());
        }
        match rustix::fs::renameat_with(CWD, &from, CWD, &to, flags) {
            // Only some file systems move a directory of the image in one step: `EXDEV`.
            Ok(()) | Err(Errno::NOENT | Errno::EXIST | Errno::NOTEMPTY | Errno::XDEV) => {}
            Err(errno) => {
                let why = name_of(&errno.into());
                self.journal.problem(&format!("{} to {}: {why}", from.display(), to.display()))?;
            }
        }
        let mode = Permissions::from_mode(0o600 + self.dice.below(64) as u32);
        match fs::set_permissions(to.join("x"), mode) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                self.journal.problem(&format!("chmod {}/x: {}", to.display(), name_of(&error)))
            }
            _ => Ok(()),
        }
    }

    fn place(&mut self) -> PathBuf {
        Path::new(TREE).join(format!("mv/p{}", self.dice.below(PLACES)))
    }

    /// An open directory has the same names wherever it is moved. Only a tracer's decision may be
    /// overtaken by a rename before the call is made.
    fn look_into_moved(&mut self) -> Result<(), String> {
        let place = self.place();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(dir) = rustix::fs::open(&place, flags, Mode::empty()) else { return Ok(()) };
        let names = (|| -> std::io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in rustix::fs::Dir::read_from(&dir)? {
                names.push(entry?.file_name().to_string_lossy().into_owned());
            }
            names.retain(|name| name != "." && name != "..");
            names.sort();
            Ok(names)
        })();
        let moved = |error: &std::io::Error| {
            let errno = Errno::from_io_error(error);
            self.traced && matches!(errno, Some(Errno::NOENT | Errno::NOTDIR))
        };
        if names.as_ref().is_err_and(moved) {
            return Ok(());
        }
        if !names.as_ref().is_ok_and(|names| names == &["in", "token", "x"]) {
            let text = format!("open {} has {names:?}", place.display());
            self.journal.problem(&text)?;
        }
        for (name, wanted) in [("token", "p"), ("in/deep/leaf", "leaf\n")] {
            let mut text = String::new();
            let read = rustix::fs::openat(&dir, name, OFlags::RDONLY, Mode::empty())
                .map_err(std::io::Error::from)
                .and_then(|file| File::from(file).read_to_string(&mut text));
            if read.as_ref().is_err_and(moved) {
                continue;
            }
            if read.is_err() || !text.starts_with(wanted) {
                let read = read.map_err(|error| name_of(&error));
                let problem = format!("{name} of open {}: {read:?} {text:?}", place.display());
                self.journal.problem(&problem)?;
            }
        }
        Ok(())
    }

    /// Removes a file that only one worker can remove.
    fn remove_once(&mut self) -> Result<(), String> {
        let path = format!("{TREE}/once/r{}", self.dice.below(ONCE));
        self.journal.line(&format!("O {path}"))?;
        match fs::remove_file(&path) {
            Ok(()) => self.journal.line(&format!("T {path}")),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.journal.line(&format!("N {path}"))
            }
            Err(error) => self.journal.problem(&format!("{path}: {}", name_of(&error))),
        }
    }
}

/// Checks the whole tree while no worker runs; prints what is wrong.
pub(crate) fn check(count: u64) -> Answer {
    let mut wrong = Vec::new();
    let mut expected = BTreeSet::new();
    let (mut taken, mut maybe) = (BTreeMap::<String, u32>::new(), BTreeSet::new());
    for number in 0..count {
        let text = journal::text(number);
        for line in text.lines() {
            match line.split_at_checked(2) {
                Some(("P ", problem)) => wrong.push(format!("worker {number}: {problem}")),
                Some(("T ", path)) => *taken.entry(path.to_owned()).or_default() += 1,
                _ => {}
            }
        }
        maybe
            .extend(text.lines().last().and_then(|line| line.strip_prefix("O ")).map(String::from));
        // A worker that was killed later wrote more lines behind such a one.
        let lines: Vec<&str> = text.lines().collect();
        let pairs = lines.windows(2).filter(|pair| pair[0].starts_with("O "));
        let pairs = pairs.filter(|pair| !pair[1].starts_with("T ") && !pair[1].starts_with("N "));
        maybe.extend(pairs.map(|pair| pair[0][2..].to_owned()));
        for item in journal::replay(number, &text) {
            let Some(state) = item.actual() else {
                wrong.push(format!("worker {number}: {item:?}"));
                continue;
            };
            expected.extend(state.path.clone());
        }
    }
    for shared in 0..SHARED {
        expected.extend((0..STAYING).map(|stay| format!("{TREE}/a{shared}/s{stay}")));
    }
    let mut found = Vec::new();
    for shared in 0..SHARED {
        found.extend(listed(&format!("{TREE}/a{shared}"))?);
    }
    compare("owned", found, &expected, &mut wrong);
    check_moved(&mut wrong)?;
    let left = listed(&format!("{TREE}/once"))?;
    for path in (0..ONCE).map(|number| format!("{TREE}/once/r{number}")) {
        let times = taken.get(&path).copied().unwrap_or(0);
        let is_there = left.contains(&path);
        let fits =
            times == u32::from(!is_there) || !is_there && maybe.contains(&path) && times == 0;
        if !fits || is_there && fs::read(&path).ok().as_deref() != Some(b"once\n") {
            wrong.push(format!("{path} was removed {times} times, and is there: {is_there}"));
        }
    }
    println!("{}", json!(wrong));
    Ok(0)
}

/// Each directory is at one place, with all that it had.
fn check_moved(wrong: &mut Vec<String>) -> Result<(), String> {
    let mut tokens = Vec::new();
    for place in listed(&format!("{TREE}/mv"))? {
        let names = listed(&place)?.into_iter().collect::<BTreeSet<_>>();
        let all = ["in", "token", "x"].map(|name| format!("{place}/{name}"));
        if names != all.into_iter().collect() || listed(&format!("{place}/in"))?.len() != 1 {
            wrong.push(format!("{place} has {names:?}"));
        }
        let read = |name: &str| fs::read_to_string(format!("{place}/{name}")).unwrap_or_default();
        if read("x") != "x\n" || read("in/deep/leaf") != "leaf\n" {
            wrong.push(format!("in {place} are {:?} and {:?}", read("x"), read("in/deep/leaf")));
        }
        tokens.push(read("token").trim().to_owned());
    }
    let expected = (0..MOVED).map(|number| format!("p{number}")).collect();
    compare("moved", tokens, &expected, wrong);
    Ok(())
}

fn compare(
    what: &str,
    mut found: Vec<String>,
    expected: &BTreeSet<String>,
    wrong: &mut Vec<String>,
) {
    found.sort();
    let twice = found.windows(2).filter(|two| two[0] == two[1]);
    wrong.extend(twice.map(|two| format!("{what}: {} is there twice", two[0])));
    let found: BTreeSet<String> = found.into_iter().collect();
    wrong.extend(found.difference(expected).map(|name| format!("{what}: {name} is there")));
    wrong.extend(expected.difference(&found).map(|name| format!("{what}: {name} is lost")));
}

fn listed(dir: &str) -> Result<Vec<String>, String> {
    let failed = |error: std::io::Error| format!("{dir}: {}", name_of(&error));
    let entries = fs::read_dir(dir).map_err(failed)?;
    entries
        .map(|entry| Ok(entry.map_err(failed)?.path().display().to_string()))
        .collect::<Result<_, String>>()
}
