//! Tests of many processes of one container that change the same directories of the image at once,
//! some killed; and of containers killed in the middle of that and started again.
//!
//! The work and the check are the guest program's (`storm`). `CORACLE_CRASH_ROUNDS` is the number
//! of rounds of each process.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use testkit::command::{Finished, Input, run_with, until};
use testkit::fingerprint;
use testkit::image::{Image, Pack};
use testkit::layer::{Entry, Layer};
use testkit::person::{LIMIT, Person};
use testkit::running::Running;
use testkit::skip;
use testkit::skip::Outcome;

use crate::crash::place::{Case, Dice, Place, rounds};
use crate::crash::rounds::is_ready;

pub(crate) const CASES: &[(&str, Case)] = &[
    ("I1", |place| in_mode(place, "I1")),
    ("F2", |place| in_mode(place, "F2")),
    ("P1", |place| in_mode(place, "P1")),
];

const PROCESSES: u32 = 64;
const IMAGE: &str = "localhost/crash/storm:1";

/// One user, one mode.
struct Storm<'a> {
    person: &'a Person,
    mode: &'a str,
    image: BTreeMap<String, String>,
}

fn in_mode(place: &Place<'_>, mode: &str) -> Outcome {
    if place.person.user.range {
        skip!("no mode but N1 uses the range of ids");
    }
    let person = place.fresh(&format!("storm-{mode}"));
    if !is_ready(&person, mode) {
        skip!("`coracle doctor` does not call {mode} ready");
    }
    load(&person);
    let flag = format!("--execmode={mode}");
    person.run(&["run", "--rm", &flag, IMAGE, "/bin/guest", "list", "/"]).ok();
    let storm = Storm { person: &person, mode, image: image_of(&person) };
    storm.of_processes(&flag);
    storm.of_containers(&flag);
    Ok(())
}

/// What containers share.
fn image_of(person: &Person) -> BTreeMap<String, String> {
    let parts = ["layers", "trees"].map(|part| fingerprint::of(&person.store().join(part)));
    let marks = ["/tree.json", "/layer.json"];
    let is_mark = |path: &str| marks.iter().any(|mark| path.ends_with(mark));
    let all = parts.into_iter().flatten();
    all.filter(|(path, _)| !is_mark(path) && !path.contains("/made/")).collect()
}

fn load(person: &Person) {
    let mut layer = Layer::new().dir("storm").dir("storm/mv").dir("storm/once");
    layer.push(&Entry::new(b'5', "storm/log").mode(0o777));
    for shared in 0..4 {
        let dir = format!("storm/a{shared}");
        layer = layer.dir(&dir);
        for number in 0..PROCESSES {
            let path = format!("{dir}/f{number}");
            layer = layer.file(&path, 0o644, format!("of the image {path}\n"));
        }
        for number in 0..8 {
            layer = layer.file(&format!("{dir}/s{number}"), 0o644, "stays\n");
        }
    }
    for number in 0..8 {
        let dir = format!("storm/mv/p{number}");
        layer = layer
            .dir(&dir)
            .file(&format!("{dir}/token"), 0o644, format!("p{number}\n"))
            .file(&format!("{dir}/x"), 0o644, "x\n")
            .dir(&format!("{dir}/in"))
            .dir(&format!("{dir}/in/deep"))
            .file(&format!("{dir}/in/deep/leaf"), 0o644, "leaf\n");
    }
    for number in 0..32 {
        layer = layer.file(&format!("storm/once/r{number}"), 0o644, "once\n");
    }
    let layers = [testkit::guest::layer().finish(), layer.finish()];
    let [guest, storm] = layers.clone();
    let built = Image::new().packed(guest, Pack::Plain).packed(storm, Pack::Plain).build();
    let archive = person.home.join("storm.tar");
    person.file(&archive, built.docker_archive(&layers, &[IMAGE]));
    person.run(&["load", "-q", "-i", &archive.display().to_string()]).ok();
}

impl Storm<'_> {
    fn run(&self, words: &[&str]) -> Finished {
        run_with(&mut self.person.command(words), Input::Null, LIMIT * 2)
    }

    /// The beginning of a tag: whether a tracer decides.
    fn kind(&self) -> &'static str {
        if self.mode == "P1" { "traced" } else { "storm" }
    }

    fn create(&self, flag: &str, name: &str) {
        let named = format!("--name={name}");
        self.person.run(&["create", flag, &named, IMAGE, "/bin/guest"]).ok();
    }

    /// Checks the container in two starts, and the image.
    #[track_caller]
    fn whole(&self, container: &str, after: &str) {
        let count = PROCESSES.to_string();
        let mut walks = Vec::new();
        for start in 1..=2 {
            let check = ["run", container, "/bin/guest", "storm-check", &count];
            let done = self.run(&check);
            assert_eq!(done.ok().out(), "[]\n", "{}, {after}, start {start}", self.mode);
            let walk = self.run(&["run", container, "/bin/guest", "walk", "/storm"]);
            walks.push(walk.ok().out());
        }
        assert!(walks[0] == walks[1], "{}, {after}: {} and {}", self.mode, walks[0], walks[1]);
        let now = image_of(self.person);
        for (path, facts) in &self.image {
            assert_eq!(now.get(path), Some(facts), "{}, {after}: {path} changed", self.mode);
        }
    }

    /// All processes in one start; some are killed and replaced.
    fn of_processes(&self, flag: &str) {
        self.create(flag, "storm");
        let count = PROCESSES.to_string();
        // A tracer takes its time.
        let [rounds, kills] = if self.mode == "P1" { [rounds(3), 8] } else { [rounds(12), 64] };
        let [rounds, kills] = [rounds, kills].map(|number| number.to_string());
        let words = ["run", "storm", "/bin/guest", "storm", &count, &rounds, &kills, self.kind()];
        let done = self.run(&words);
        assert!(done.ok().out().contains("failed 0"), "{}: {done:?}", self.mode);
        self.whole("storm", "a storm");
    }

    /// The container with all its processes is killed, several times.
    fn of_containers(&self, flag: &str) {
        self.create(flag, "killed");
        let count = PROCESSES.to_string();
        let mut dice = Dice::new(7);
        for round in 0..rounds(if self.mode == "P1" { 1 } else { 3 }) {
            let tag = format!("{}-{}-{}-{round}", self.kind(), self.mode, std::process::id());
            let words = ["run", "killed", "/bin/guest", "storm", &count, "100000", "0", &tag];
            let mut running = Running::start(&mut self.person.command(&words));
            let workers = until(Duration::from_mins(1), || (living(&tag).len() > 64).then_some(()));
            assert!(workers.is_some(), "{}: {}", self.mode, running.text());
            std::thread::sleep(Duration::from_millis(50 + dice.below(400)));
            kill_all(&tag);
            running.end(LIMIT);
            self.whole("killed", &format!("kill {round}"));
        }
    }
}

/// The processes with a word in their command lines.
fn living(tag: &str) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let theirs = numbers.filter(|number| {
        let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == tag.as_bytes())
    });
    theirs.filter_map(Pid::from_raw).collect()
}

/// Kills them all, the command that runs the container among them.
fn kill_all(tag: &str) {
    let gone = until(Duration::from_mins(1), || {
        let left = living(tag);
        for process in &left {
            let _ = kill_process(*process, Signal::KILL);
        }
        left.is_empty().then_some(())
    });
    assert!(gone.is_some(), "processes live on after SIGKILL");
}
