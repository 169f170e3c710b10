//! Something is killed at a random moment of a random command, many times: the driver, an agent, a
//! daemon of the site. A command that ends with 0 has done what it promises; whatever has happened,
//! another command goes on from there, and after `down` nothing is left on any host but volumes
//! with what is in them.
//!
//! `CORACLE_TEST_POINTS` is the number of points, `CORACLE_TEST_SEED` repeats those of a run, and
//! `CORACLE_TEST_POINT` plays one of them alone. A moment cannot be repeated exactly, so a point
//! that has failed once has failed; the suite plays it again only to tell whether it fails always.

mod site;
mod traces;
mod victims;
mod works;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use testkit::command::{Finished, Input, run_with, until};
use testkit::skip::Outcome;

use crate::hosts::lab::{Case, Lab};
use site::Site;
use traces::Traces;
use victims::Victim;
use works::Work;

pub(crate) const CASES: &[(&str, Case)] = &[("kills::points", points)];

/// Points of the short form.
const FEW: u64 = 4;
/// A site starts its daemons again after so long at the latest.
const DOWN_TIME: Duration = Duration::from_secs(20);
/// Everything that ends by itself has ended after so long: longer than an agent waits for a silent
/// driver, and ends what it has.
const CALM: Duration = Duration::from_secs(45);
/// A command that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(150);

/// Random numbers that a seed determines.
struct Dice(u64);

impl Dice {
    fn of(seed: u64, point: u64) -> Self {
        let seed = seed.wrapping_add(1).wrapping_mul(0xd134_2543_de82_ef95);
        let mixed = seed ^ point.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Never 0, of which nothing else comes.
        let mut dice = Self(mixed | 1 << 63);
        for _ in 0..8 {
            dice.below(2);
        }
        dice
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % limit
    }

    fn of_all<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// What is done after the command has ended and the site's daemons are there again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The same is wanted again, which must succeed now.
    Again,
    /// It is ended.
    Down,
    /// Nobody comes: the hosts end what they have by themselves.
    Nothing,
}

/// One point.
#[derive(Clone, Debug)]
struct Point {
    number: u64,
    work: Work,
    victim: Victim,
    /// Of the work's usual length, in thousandths.
    moment: u32,
    /// Which one, if there are several.
    which: u64,
    next: Next,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, work, victim, moment, next, .. } = self;
        write!(f, "point {number}: {work:?}, {victim:?} at {moment}/1000, then {next:?}")
    }
}

impl Point {
    fn of(seed: u64, number: u64) -> Self {
        let mut dice = Dice::of(seed, number);
        let work = dice.of_all(Work::ALL);
        let victim = dice.of_all(work.victims());
        // The beginning, where most is made, gets some more of them.
        let moment = if dice.below(4) == 0 { dice.below(200) } else { dice.below(1050) };
        let moment = u32::try_from(moment).unwrap_or(0);
        let which = dice.below(1 << 20);
        let next = match dice.below(6) {
            0..=2 => Next::Again,
            5 if work.ends_by_itself(victim) => Next::Nothing,
            _ => Next::Down,
        };
        Self { number, work, victim, moment, which, next }
    }
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// The points that have failed in this process, with their seed.
static FAILED: Mutex<Option<(u64, Vec<u64>)>> = Mutex::new(None);

fn points(lab: &Lab) -> Outcome {
    let mut failed = FAILED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let seed = failed.as_ref().map(|(seed, _)| *seed).or_else(|| number_of("CORACLE_TEST_SEED"));
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) << 20 | now());
    let count = number_of("CORACLE_TEST_POINTS");
    let numbers: Vec<u64> = match (failed.take(), number_of("CORACLE_TEST_POINT")) {
        (Some((_, numbers)), _) => numbers,
        (None, Some(one)) => vec![one],
        (None, None) => (0..count.unwrap_or(FEW)).collect(),
    };
    println!("kills: {} points, seed {seed}", numbers.len());
    let site = Site::start(lab, &numbers.iter().map(|&n| Point::of(seed, n).work).collect())?;
    let mut killed = 0;
    let mut wrong = Vec::new();
    let mut traces = Traces::of(lab);
    for number in numbers {
        let point = Point::of(seed, number);
        let began = Instant::now();
        let played = catch_unwind(AssertUnwindSafe(|| play(&site, &point, &traces)));
        let played = played.unwrap_or_else(|payload| {
            let text = payload.downcast_ref::<String>().cloned();
            Err(format!("a panic: {}", text.unwrap_or_default()))
        });
        match played {
            Ok(was_killed) => {
                killed += u64::from(was_killed);
                let what = if was_killed { "ok" } else { "ok, but it came too late" };
                println!("{point}: {what} ({:.1} s)", began.elapsed().as_secs_f64());
            }
            Err(why) => {
                println!("seed {seed}, {point}: FAILED\n{why}\n");
                wrong.push((number, format!("seed {seed}, {point}: {why}")));
                // The next points tell if that was not enough.
                let _ = catch_unwind(AssertUnwindSafe(|| site.sweep()));
                traces = Traces::of(lab);
            }
        }
    }
    println!("kills: {killed} killed, {} points failed, seed {seed}", wrong.len());
    site.ends_well(&traces);
    if !wrong.is_empty() {
        *failed = Some((seed, wrong.iter().map(|(number, _)| *number).collect()));
        drop(failed);
        let texts: Vec<String> = wrong.into_iter().map(|(_, text)| text).collect();
        panic!("{} points failed\n{}", texts.len(), texts.join("\n"));
    }
    Ok(())
}

fn now() -> u64 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    time.map_or(0, |time| u64::from(time.subsec_micros()))
}

/// Plays one point. Returns whether something was killed while the command ran.
fn play(site: &Site<'_>, point: &Point, before: &Traces) -> Result<bool, String> {
    let work = point.work;
    work.prepare(site)?;
    let length = work.length(site)?;
    let at = length * point.moment / 1000;
    let is_short = point.next == Next::Nothing;
    let (done, killed) = thread::scope(|scope| {
        let command = scope.spawn(|| {
            let mut command = work.command(site, is_short);
            run_with(&mut command, Input::Null, LONGEST)
        });
        let began = Instant::now();
        let killed = point.victim.kill_at(site, began + at, point.which, &|| command.is_finished());
        let until = Instant::now() + DOWN_TIME;
        while killed.is_some() && !command.is_finished() && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        site.mend();
        (command.join().expect("a command"), killed)
    });
    let told = |step: &str, why: &str, later: &[&Finished]| {
        let later: Vec<String> = later.iter().map(|done| format!("{done:?}")).collect();
        let killed = killed.as_deref().unwrap_or("nothing");
        format!(
            "{step}: {why}\nkilled after {} ms of {} ms: {killed}\nthe command:{done:?}\nlater:{}",
            at.as_millis(),
            length.as_millis(),
            later.concat()
        )
    };
    // Slurm holds a job whose launch has failed until somebody releases it: it is followed as long.
    let is_held = work == Work::Job && done.err().contains("requeued held");
    if done.code() == -1 && !is_held {
        return Err(told("the command", "it hangs", &[]));
    }
    // A controller that was killed has forgotten a job, and gives its number to another one.
    let is_reused = |done: &Finished| done.err().contains("Job credential revoked");
    if killed.is_none() && done.code() != 0 && !is_reused(&done) {
        return Err(told("the command", "it failed though nothing was killed", &[]));
    }
    // `salloc` ends with 0 when its command was killed.
    let is_told = work != Work::Allocation || point.victim != Victim::Driver || killed.is_none();
    if done.code() == 0 && is_told {
        work.is_kept(site, &done).map_err(|why| told("false success", &why, &[]))?;
    }
    let mut later = Vec::new();
    match point.next {
        _ if is_held => {}
        Next::Again => {
            let again = run_with(&mut work.again(site), Input::Null, LONGEST);
            let kept = match again.code() {
                0 => work.again_is_kept(site, &again),
                _ if is_reused(&again) => Ok(()),
                code => Err(format!("it has ended with {code}")),
            };
            if let Err(why) = kept {
                return Err(told("up again", &why, &[&again]));
            }
            later.push(again);
        }
        Next::Nothing => {
            let gone = until(CALM, || site.containers().is_empty().then_some(()));
            if gone.is_none() {
                let why = site.containers().join(", ");
                return Err(told("nobody came, and there are", &why, &[]));
            }
        }
        Next::Down => {}
    }
    let down = work.down(site);
    if down.code() != 0 {
        return Err(told(
            "down",
            "it failed",
            &[&later[..], &[down]].concat().iter().collect::<Vec<_>>(),
        ));
    }
    later.push(down);
    let mut left = String::new();
    let calm = until(CALM, || {
        left = before.more_in(&Traces::of(site.lab));
        left.is_empty().then_some(())
    });
    match calm {
        Some(()) => Ok(killed.is_some()),
        None => Err(told("left over", &left, &later.iter().collect::<Vec<_>>())),
    }
}
