//! Tests of random sequences of system calls: the same in a real chroot and in every engine, step
//! by step.
//!
//! The guest program makes some 120 calls per seed in a directory of its own, most of which name
//! files: with `..`, links, magic links of `/proc`, descriptors, other roots, bad pointers; in
//! children, threads and after `execve`. It writes down the result of each, and at the end the
//! content of the directory. Mode `files` leaves ids alone; mode `ids` changes and shows them, so
//! it is for engines with all ids. If the records differ, the engine is wrong, or [`known`] has the
//! reason.
//!
//! Every seed of `corpus` is played in an ordinary run. `cargo xtask fuzz` plays new ones for a
//! while, and removes steps of a differing sequence as long as it still differs: the remaining
//! steps show the fault.

mod image;
mod known;
mod native;
mod record;
mod shrink;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use testkit::command::{Finished, Input, run_with};
use testkit::harness::{Suite, Wishes};
use testkit::person::{Person, everybody};
use testkit::scratch::Scratch;

use native::Native;
use record::{Difference, Play};

const IMAGE: &str = "localhost/sequences:1";
/// Time limit of one start of the guest program. On a busy machine it may be too short for many
/// sequences; then each one gets it alone.
const LIMIT: Duration = Duration::from_mins(3);

/// The sequences of an ordinary run: lines of a mode and seeds.
const CORPUS: &str = include_str!("corpus");

/// One engine of one user.
struct World {
    person: Person,
    engine: String,
    /// Containers have trees of links to the image's files, and no index.
    linked: bool,
    /// A host directory that is bound to `/bind`. One play at a time uses it.
    bound: Mutex<PathBuf>,
}

struct Stage {
    worlds: Vec<World>,
    missing: Vec<(String, String)>,
    native: Native,
    /// A file that only the host has.
    hidden: String,
    _scratch: Scratch,
}

impl Stage {
    fn set() -> Result<Self, String> {
        if !rustix::process::getuid().is_root() {
            return Err("a real chroot for comparison needs root".to_owned());
        }
        let text = |error: std::io::Error| error.to_string();
        let scratch = Scratch::new("sequences").map_err(text)?;
        let image = image::prepare(scratch.path())?;
        let layout = scratch.path().join("layout");
        image.built.write_layout(&layout, IMAGE).map_err(text)?;
        let hidden = scratch.path().join("only-the-host");
        std::fs::write(&hidden, "secret").map_err(text)?;
        let native = Native::prepare(scratch.path(), &image.layer)?;
        let mut worlds = Vec::new();
        let mut missing = Vec::new();
        for person in everybody(&scratch, crate::program::coracle()).map_err(text)? {
            let done = person.run(&["load", "-q", "-i", &layout.display().to_string()]);
            if done.code() != 0 {
                return Err(format!("no test image: {done:?}"));
            }
            for engine in person.engines(&mut missing) {
                // What one engine shows of such a tree, the others do.
                let forms: &[bool] =
                    if engine == "I1" && !person.user.range { &[false, true] } else { &[false] };
                for linked in forms.iter().copied() {
                    let (person, engine) = (person.clone(), engine.clone());
                    let bound = Mutex::new(person.dir(&format!("bound-{engine}-{linked}")));
                    worlds.push(World { person, engine, linked, bound });
                }
            }
        }
        let hidden = hidden.display().to_string();
        Ok(Self { worlds, missing, native, hidden, _scratch: scratch })
    }
}

impl World {
    fn run(&self, stage: &Stage, play: &Play) -> Finished {
        let bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        native::fresh_bound(&bound, play, Some((self.person.user.uid, self.person.user.gid)))
            .expect("a directory to bind");
        let mode = format!("--execmode={}", self.engine);
        let bind = format!("{}:/bind", bound.display());
        let mut words = vec!["run", "--rm", &mode, "-v", &bind, "-w", "/"];
        words.extend(self.linked.then_some("--index=off"));
        words.push(IMAGE);
        let guest = play.words(&stage.hidden);
        words.extend(guest.iter().map(String::as_str));
        run_with(&mut self.person.command(&words), Input::Null, LIMIT)
    }

    /// The first difference of each seed that has one. A play that timed out is repeated, one by
    /// one.
    fn differences(&self, stage: &Stage, play: &Play) -> Vec<Difference> {
        let right = stage.native.run(play, &stage.hidden);
        let here = self.run(stage, play);
        if play.has_many() && (right.status.is_none() || here.status.is_none()) {
            return play.each().flat_map(|one| self.differences(stage, &one)).collect();
        }
        assert!(right.code() == 0, "natively: {right:?}");
        let mut found = record::compare(&right.out(), &here.out(), &|native, line| {
            known::is_known(&self.engine, self.person.user.kind(), native, line)
        });
        if play.has_many() {
            let late = found.extract_if(.., |difference| difference.is_late()).collect::<Vec<_>>();
            for Difference { seed, .. } in late {
                found.extend(self.differences(stage, &play.one(seed)));
            }
        }
        assert!(!found.is_empty() || here.code() == 0, "{here:?}");
        found
    }

    /// True if mode `ids` makes sense here.
    fn has_ids(&self) -> bool {
        // With one id the view shows them.
        !self.engine.starts_with('N') || !self.person.user.range
    }

    fn replay(&self, stage: &Stage, mode: &'static str) {
        for play in record::corpus(CORPUS, mode) {
            let mut found = self.differences(stage, &play);
            found.retain(|difference| {
                let known = known::seed(&self.engine, mode, difference.seed);
                if let Some(reason) = known {
                    println!("{} {mode}: seed {} is known: {reason}", self.engine, difference.seed);
                }
                known.is_none()
            });
            assert!(found.is_empty(), "{}", record::describe(&play, &found));
        }
    }

    /// Plays one sequence alone: returns its fault, with as few steps as show it.
    fn alone(&self, stage: &Stage, play: &Play) -> Option<String> {
        let found = self.differences(stage, play);
        let first = found.first()?;
        Some(shrink::shrink(play, first, &|play| self.differences(stage, play)))
    }

    /// Plays these seeds, each alone; returns the faults.
    fn play(&self, stage: &Stage, mode: &'static str, seeds: &[u64]) -> String {
        let alone = |seed: &u64| self.alone(stage, &Play::new(mode, [*seed]));
        let faults: String = seeds.iter().filter_map(alone).collect();
        println!("{} {} {mode}: {faults}", self.engine, self.person.user.kind());
        faults
    }

    /// Plays new seeds until the time is up; returns the faults.
    fn explore(&self, stage: &Stage, mode: &'static str, (first, time): (u64, Duration)) -> String {
        let began = Instant::now();
        let who = format!("{} {} {mode}", self.engine, self.person.user.kind());
        // Each case has its own.
        let number = who.bytes().fold(0, |sum, byte| (sum * 31 + u64::from(byte)) % 1000);
        let start = first + number * 1_000_000;
        let (mut first, mut faults) = (start, String::new());
        while began.elapsed() < time {
            let play = Play::new(mode, first..first + image::SLOTS);
            let found = self.differences(stage, &play);
            first += image::SLOTS;
            for difference in found.iter().take(2) {
                let fault = self.alone(stage, &play.one(difference.seed)).unwrap_or_else(|| {
                    let told = record::describe(&play, std::slice::from_ref(difference));
                    format!("not seen a second time: {told}\n")
                });
                println!("{who}: {fault}");
                faults += &fault;
            }
        }
        let (sequences, seconds) = (first - start, began.elapsed().as_secs());
        println!("{who}: {sequences} sequences from {start} in {seconds} s");
        faults
    }
}

/// The request of `cargo xtask fuzz`.
enum Fuzz {
    /// New seeds from this one on, for this long in each engine, for each user and mode.
    New(u64, Duration),
    /// These seeds.
    These(Vec<u64>),
}

impl Fuzz {
    /// `CORACLE_FUZZ=SECONDS:FIRST`, or seeds with commas between them.
    fn wanted() -> Option<Self> {
        let text = std::env::var("CORACLE_FUZZ").ok()?;
        Some(match text.split_once(':') {
            Some((seconds, first)) => {
                Self::New(first.parse().ok()?, Duration::from_secs(seconds.parse().ok()?))
            }
            None => {
                Self::These(text.split(',').map(|seed| seed.parse().ok()).collect::<Option<_>>()?)
            }
        })
    }
}

pub(crate) fn run(wishes: &Wishes) -> ExitCode {
    let stage = Stage::set();
    let fuzz = &Fuzz::wanted();
    // Number of exploring cases that found a fault.
    let explored = &Mutex::new(0);
    let mut suite = Suite::new("sequences");
    suite.threads(2);
    suite.case("comparison".to_owned(), || {
        record::finds_differences();
        Ok(())
    });
    match &stage {
        Err(reason) => suite.skipped("sequences", reason),
        Ok(stage) => {
            for (name, reason) in &stage.missing {
                suite.skipped(name, reason);
            }
            for world in &stage.worlds {
                let modes: &[&'static str] =
                    if world.has_ids() { &["files", "ids"] } else { &["files"] };
                for mode in modes {
                    let kind = if world.linked { "linked" } else { world.person.user.kind() };
                    let name = format!("{}::{kind}::{mode}", world.engine);
                    suite.case(name, move || {
                        let faults = match fuzz {
                            Some(Fuzz::New(first, time)) => {
                                world.explore(stage, mode, (*first, *time))
                            }
                            Some(Fuzz::These(seeds)) => world.play(stage, mode, seeds),
                            None => {
                                world.replay(stage, mode);
                                return Ok(());
                            }
                        };
                        // A failing case would be run once more, for as long.
                        let all = &mut *explored.lock().unwrap_or_else(PoisonError::into_inner);
                        *all += usize::from(!faults.is_empty());
                        Ok(())
                    });
                }
            }
        }
    }
    let end = suite.run(wishes);
    match *explored.lock().unwrap_or_else(PoisonError::into_inner) {
        0 => end,
        faulty => {
            println!("differences in {faulty} cases");
            ExitCode::FAILURE
        }
    }
}
