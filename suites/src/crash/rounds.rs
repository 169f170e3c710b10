//! Tests of concurrent runs of one container, with a program that executes itself from its second
//! thread.
//!
//! While a process does that, `/proc` shows it as a zombie for a moment, without mappings and open
//! files. It lives all the same: no other run may consider the container empty, recreate it, or
//! fail to enter it.
//!
//! `CORACLE_CRASH_ROUNDS` is the number of runs in each mode.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use testkit::command::{Finished, until};
use testkit::image::Image;
use testkit::layer::Layer;
use testkit::person::Person;
use testkit::skip;
use testkit::skip::{Outcome, Skip};

use crate::crash::place::{Case, Dice, Place, rounds};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("N1", |place| in_mode(place, "N1")),
    ("I1", |place| in_mode(place, "I1")),
    ("I2", |place| in_mode(place, "I2")),
    ("P1", |place| in_mode(place, "P1")),
    ("F2", |place| in_mode(place, "F2")),
];

/// Concurrent runs of one container.
const LANES: u64 = 4;
/// One of this many runs uses a supervisor.
const SUPERVISED: u64 = 10;
const IMAGE: &str = "localhost/crash/rounds:1";
const PROGRAM: &str = "/bin/rounds";

/// One user, one mode.
struct Rounds<'a> {
    person: &'a Person,
    mode: &'a str,
}

fn in_mode(place: &Place<'_>, mode: &str) -> Outcome {
    if place.person.user.range && mode != "N1" {
        skip!("no mode but N1 uses the range of ids");
    }
    let person = place.fresh(&format!("rounds-{mode}"));
    if !is_ready(&person, mode) {
        skip!("`coracle doctor` does not call {mode} ready");
    }
    load(&person)?;
    let these = Rounds { person: &person, mode };
    these.at_once();
    these.supervised();
    these.beside("headless");
    // A process that a run leaves behind has no record; with namespaces it is not found.
    if mode != "N1" {
        these.beside("stay");
    }
    Ok(())
}

/// Returns true if a mode works for this user here.
pub(crate) fn is_ready(person: &Person, mode: &str) -> bool {
    let doctor = person.run(&["doctor", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap_or_default();
    let mut engines = report["engines"].as_array().into_iter().flatten();
    engines.any(|engine| {
        engine["mode"] == mode && matches!(engine["state"].as_str(), Some("ready" | "degraded"))
    })
}

/// The image with the compiled program.
fn load(person: &Person) -> Outcome {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/crash/guests/rounds.c");
    let program = person.home.join("rounds");
    let words = ["-O1", "-static", "-pthread", "-w", "-o"];
    let done = Command::new("gcc").args(words).arg(&program).arg(source).status();
    if !done.is_ok_and(|status| status.success()) {
        return Err(Skip("no compiler for the program".to_owned()));
    }
    let bytes = std::fs::read(&program).expect("a program");
    let mut layer = Layer::new();
    for directory in ["bin", "dev", "proc", "sys", "tmp", "mem"] {
        layer = layer.dir(directory);
    }
    let layer = layer.file("bin/rounds", 0o755, bytes).finish();
    let built = Image::new().packed(layer.clone(), testkit::image::Pack::Gzip).build();
    let archive = person.home.join("rounds.tar");
    person.file(&archive, built.docker_archive(&[layer], &[IMAGE]));
    person.run(&["load", "-q", "-i", &archive.display().to_string()]).ok();
    Ok(())
}

impl Rounds<'_> {
    fn create(&self, name: &str, flags: &[&str]) {
        let (name, mode) = (format!("--name={name}"), format!("--execmode={}", self.mode));
        let words = ["create", &name, &mode, "--tmpfs=/mem"];
        let words: Vec<&str> =
            words.iter().chain(flags).chain(&[IMAGE, PROGRAM]).copied().collect();
        self.person.run(&words).ok();
    }

    /// A status that differs from round to round, and from the status of failures.
    fn code(round: u64) -> i32 {
        i32::try_from(round % 90).unwrap_or(0)
    }

    #[track_caller]
    fn expect(&self, done: &Finished, round: u64) {
        let quiet = done.stdout.is_empty() && done.stderr.is_empty();
        let as_asked = done.code() == Self::code(round) && quiet;
        assert!(as_asked, "{}, round {round}: {done:?}", self.mode);
    }

    /// Runs rounds in several threads; `words` are the arguments before status and number of
    /// `execve`s.
    fn run(&self, rounds: u64, words: &[&str]) {
        let next = AtomicU64::new(0);
        let next = &next;
        let lane = |lane| {
            let mut dice = Dice::new(lane);
            loop {
                let round = next.fetch_add(1, Ordering::Relaxed);
                if round >= rounds {
                    break;
                }
                let [code, times] = [Self::code(round).to_string(), dice.below(7).to_string()];
                let words: Vec<&str> = words.iter().copied().chain([&*code, &*times]).collect();
                self.expect(&self.person.run(&words), round);
            }
        };
        thread::scope(|scope| {
            let lanes: Vec<_> =
                (0..LANES).map(|number| scope.spawn(move || lane(number))).collect();
            for ended in lanes.into_iter().map(thread::ScopedJoinHandle::join) {
                // With its own message.
                ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
        });
    }

    /// Runs of one container, without a supervisor.
    fn at_once(&self) {
        self.create("once", &[]);
        self.run(rounds(60), &["run", "once", PROGRAM, "end"]);
    }

    /// Runs in containers of their own, whose end a supervisor or another command waits for.
    fn supervised(&self) {
        self.create("alone", &[]);
        for round in 0..(rounds(60) / SUPERVISED).max(1) {
            let [code, times] = [Self::code(round).to_string(), (round % 7).to_string()];
            let words = |flag| ["run", flag, "alone", PROGRAM, "end", &*code, &*times];
            self.expect(&self.person.run(&words("-t")), round);
            self.person.run(&words("-d")).ok();
            let told = self.person.run(&["wait", "alone"]);
            assert_eq!(told.ok().line(), code, "{}, round {round}: {told:?}", self.mode);
        }
    }

    /// Runs beside a process that lives on without its first thread, or executes programs all the
    /// time: they find the data that it has put into memory.
    fn beside(&self, word: &str) {
        // No process stays beside such a run, and ends what it has left.
        let alone: &[&str] = if word == "stay" { &["--log-driver=none"] } else { &[] };
        self.create(word, alone);
        let mut command = self.person.command(&["run", word, PROGRAM, word]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let first = command.spawn().expect("a run");
        let _stays = Stays { person: self.person, container: word, first };
        let look = ["run", word, PROGRAM, "look"];
        let seen = until(Duration::from_secs(10), || {
            let words: Vec<&str> = look.into_iter().chain(["0", "0"]).collect();
            (self.person.run(&words).code() == 0).then_some(())
        });
        assert!(seen.is_some(), "{}: {word} never made its mark", self.mode);
        self.run(rounds(60) / 4, &look);
    }
}

/// A container with a process that stays until the case ends in any way.
struct Stays<'a> {
    person: &'a Person,
    container: &'a str,
    first: Child,
}

impl Drop for Stays<'_> {
    fn drop(&mut self) {
        // For the case that the process is not detected any more.
        let end = ["run", self.container, PROGRAM, "halt"];
        self.person.run(&end);
        self.person.run(&["stop", "-t", "1", self.container]);
        let _ = self.first.kill();
        let _ = self.first.wait();
    }
}
