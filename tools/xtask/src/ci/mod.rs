//! `cargo xtask ci`: everything that must hold for a commit.
//!
//! The check consists of [`parts`], each a command with a log file. [`lanes`] run them beside each
//! other: what waits for a mirror, what compiles, suites that compute and suites that wait. A
//! failure ends nothing: one run shows everything. [`machine`] says first what this machine cannot
//! run, [`changes`] what a change does not need, and [`gates`] which skips and which unstable cases
//! are permitted. Everything runs below one process ([`testkit::family`]), so that nothing is left
//! at ctrl-C; another check in the same clone waits.

mod changes;
mod gates;
mod lanes;
mod machine;
mod parts;
mod record;
mod results;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

use rustix::fs::{FlockOperation, flock};
use testkit::family::{self, End};
use testkit::share::{self, Share};

use crate::shell::{Outcome, read, root, step, target};
use changes::Change;
use gates::Gates;
use lanes::Done;
use machine::Machine;
use parts::Part;
use results::Counts;

/// The task of the process below which everything runs.
pub(crate) const BELOW: &str = "ci-below";

/// The exit status of a set-up that could not get everything.
pub(crate) const COULD_NOT: u8 = 75;

/// So many runs have each rare case once.
const SHARES: u64 = 3;

/// What the command line asks for.
#[derive(Debug, Default)]
struct Words {
    /// All parts and all cases.
    complete: bool,
    /// Only these parts, and what they need.
    parts: Vec<String>,
    list: bool,
    /// Add the run to the file of runs.
    record: bool,
}

impl Words {
    fn read(words: &[String]) -> Outcome<Self> {
        let mut read = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--all" => read.complete = true,
                "--list" => read.list = true,
                "--record" => read.record = true,
                "--part" => read.parts.push(words.next().ok_or("--part needs a name")?.clone()),
                other => return Err(format!("unknown option {other}\n\n{USAGE}")),
            }
        }
        let known = |name: &String| parts::ALL.iter().any(|part| part.name == name);
        if let Some(name) = read.parts.iter().find(|name| !known(name)) {
            let names: Vec<&str> = parts::ALL.iter().map(|part| part.name).collect();
            return Err(format!("no part is called {name}: there are {}", names.join(", ")));
        }
        Ok(read)
    }

    /// The parts to run.
    fn choose(&self, change: Change) -> Vec<&'static Part> {
        if !self.parts.is_empty() {
            let names: Vec<&str> = self.parts.iter().map(String::as_str).collect();
            return parts::with_needs(&names);
        }
        let wanted = |part: &&Part| self.complete || part.is_usual(change);
        parts::ALL.iter().filter(wanted).collect()
    }
}

const USAGE: &str = "usage: cargo xtask ci [--all] [--part NAME]... [--list] [--record]";

/// Checks it, below a process that ends all that is left.
pub(crate) fn run(words: &[String]) -> ExitCode {
    let failed = |error: String| {
        eprintln!("xtask ci: {error}");
        ExitCode::FAILURE
    };
    match Words::read(words) {
        Err(error) => return failed(error),
        Ok(words) if words.list => {
            parts::print();
            return ExitCode::SUCCESS;
        }
        Ok(_) => {}
    }
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return failed(error.to_string()),
    };
    match family::run(Command::new(own).arg(BELOW).args(words)) {
        Err(error) => failed(error.to_string()),
        Ok(End::Interrupted(signal)) => {
            println!("\ninterrupted; nothing is left running");
            ExitCode::from(u8::try_from(128 + signal).unwrap_or(1))
        }
        Ok(End::Exited(status)) if status.success() => ExitCode::SUCCESS,
        Ok(End::Exited(_)) => ExitCode::FAILURE,
    }
}

/// What whole checks took, and which cases were unstable in them.
const RUNS: &str = "tools/xtask/runs.tsv";

/// Where logs, the lock and the record of the last run are.
fn directory() -> PathBuf {
    target().join("ci-logs")
}

/// Checks it.
pub(crate) fn below(words: &[String]) -> Outcome {
    family::unblock().map_err(|error| error.to_string())?;
    let began = Instant::now();
    let words = Words::read(words)?;
    let _lock = lock()?;
    let commit = read(Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root()))
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned());
    let share = choose_share(&words, &commit)?;
    let change = if words.complete { Change::All } else { changes::since_base()? };
    let mut machine = Machine::look();
    let chosen = words.choose(change);
    if chosen.iter().any(|part| part.has_tests()) {
        machine::open_loopback()?;
        machine::is_open()?;
    }
    let (chosen, impossible): (Vec<&Part>, Vec<&Part>) =
        chosen.into_iter().partition(|part| machine.has_room_for(part.megabytes));
    println!("commit {commit}; changed: {change}; rare cases: share {share}");
    println!("again: {}={share} cargo xtask ci{}", share::VARIABLE, again(&words));
    machine.print(&impossible.iter().map(|part| part.name).collect::<Vec<_>>());
    println!("logs: {}", directory().display());
    let done = lanes::run(&chosen, share)?;
    machine.lacks_packages(&done);
    let verdict = judge(&done, &machine, share)?;
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    lanes::print_times(&done);
    println!("{} in {minutes:.1} minutes", root().display());
    if words.parts.is_empty() {
        let run = record::Run { commit, share, change, minutes, verdict: &verdict };
        record::keep(&run, words.record)?;
    }
    verdict.counts.print_sums(verdict.errors.is_empty());
    if verdict.errors.is_empty() {
        return Ok(());
    }
    Err(format!("{} reasons:\n  {}", verdict.errors.len(), verdict.errors.join("\n  ")))
}

fn again(words: &Words) -> String {
    let parts = words.parts.iter().map(|name| format!(" --part {name}"));
    let all = if words.complete { " --all" } else { "" };
    format!("{all}{}", parts.collect::<String>())
}

/// Only one check works in a clone at a time: they would compile into the same directory.
fn lock() -> Outcome<File> {
    let text = |error: std::io::Error| format!("{}: {error}", directory().display());
    fs::create_dir_all(directory()).map_err(text)?;
    let path = directory().join("lock");
    let mut file = File::options().create(true).append(true).read(true).open(&path);
    let lock = file.as_mut().map_err(|error| format!("{}: {error}", path.display()))?;
    if flock(&*lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        let other = fs::read_to_string(&path).unwrap_or_default();
        println!("process {} checks this clone already; waiting for its end", other.trim());
        flock(&*lock, FlockOperation::LockExclusive).map_err(|error| error.to_string())?;
    }
    lock.set_len(0).map_err(text)?;
    writeln!(lock, "{}", std::process::id()).map_err(text)?;
    file.map_err(text)
}

/// The share of rare cases: all, or what the variable says, else what the commit chooses.
fn choose_share(words: &Words, commit: &str) -> Outcome<Share> {
    if words.complete {
        return Ok(Share::WHOLE);
    }
    if std::env::var_os(share::VARIABLE).is_some() {
        return Share::wanted();
    }
    let number = commit.get(..8).and_then(|begin| u64::from_str_radix(begin, 16).ok());
    Ok(Share::chosen(number.unwrap_or_default(), SHARES))
}

/// What came of all parts.
struct Verdict {
    counts: Counts,
    /// Why the check fails.
    errors: Vec<String>,
}

fn judge(done: &[Done], machine: &Machine, share: Share) -> Outcome<Verdict> {
    let gates = Gates::read()?;
    let mut verdict = Verdict { counts: Counts::default(), errors: Vec::new() };
    step("verdict");
    for part in done {
        if let Some(error) = &part.error {
            verdict.errors.push(format!("{}: {error}; see {}", part.name, part.log.display()));
        }
        for failure in &part.counts.failures {
            println!("FAILED {failure}\n  again: {}", parts::repeat(part.name, failure));
            part.counts.said_by(failure).for_each(|line| println!("    {line}"));
        }
        verdict.counts.add(&part.counts);
    }
    let mut conditions = machine.conditions();
    conditions.extend((!share.is_whole()).then_some("share"));
    let found = gates.judge(&verdict.counts, &conditions);
    verdict.counts.print_details();
    if Gates::fail() {
        verdict.errors.extend(found);
    } else {
        for finding in found {
            println!("not permitted: {finding}");
        }
    }
    Ok(verdict)
}
