//! Runs parts: those of a lane one after the other, lanes beside each other. A part waits for those
//! that it needs; the times of waiting are kept apart.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use testkit::share::Share;

use super::parts::{Lane, Part};
use super::results::Counts;
use super::{COULD_NOT, directory};
use crate::shell::{Outcome, describe};

/// What came of a part.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) name: &'static str,
    lane: Lane,
    pub(super) log: PathBuf,
    pub(super) error: Option<String>,
    /// A set-up that did not get everything, which is reported and is not a failure.
    pub(super) could_not: bool,
    pub(super) counts: Counts,
    took: Duration,
    waited: Duration,
    /// Time of processors.
    computed: Duration,
}

/// Runs these parts.
pub(super) fn run(parts: &[&'static Part], share: Share) -> Outcome<Vec<Done>> {
    // Logs of parts that do not run this time would be taken for this run's.
    for entry in fs::read_dir(directory()).into_iter().flatten().flatten() {
        if entry.path().extension().is_some_and(|end| end == "log") {
            let _ = fs::remove_file(entry.path());
        }
    }
    let board = Board { ended: Mutex::new(BTreeSet::new()), changed: Condvar::new() };
    let is_there = |need: &str| parts.iter().any(|part| part.name == need);
    let mut all: Vec<Done> = thread::scope(|scope| {
        let lanes = Lane::ALL.map(|lane| {
            let (board, mine) = (&board, parts.iter().filter(move |part| part.lane == lane));
            scope.spawn(move || {
                let mut done = Vec::new();
                for part in mine {
                    let began = Instant::now();
                    board.wait_for(part.needs.iter().copied().filter(|need| is_there(need)));
                    let one = one(part, share, began.elapsed());
                    board.end(part.name);
                    done.push(one);
                }
                done
            })
        });
        lanes.into_iter().flat_map(|lane| lane.join().unwrap_or_default()).collect()
    });
    if all.len() != parts.len() {
        return Err("a lane of the check panicked".to_owned());
    }
    all.sort_by_key(|done| done.lane);
    Ok(all)
}

/// Which parts have ended.
struct Board {
    ended: Mutex<BTreeSet<&'static str>>,
    changed: Condvar,
}

impl Board {
    fn wait_for<'n>(&self, needs: impl Iterator<Item = &'n str>) {
        let needs: Vec<&str> = needs.collect();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let is_missing = |ended: &mut BTreeSet<_>| needs.iter().any(|need| !ended.contains(need));
        drop(self.changed.wait_while(ended, is_missing));
    }

    fn end(&self, name: &'static str) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
        self.changed.notify_all();
    }
}

/// Runs one part, its output in a file.
fn one(part: &'static Part, share: Share, waited: Duration) -> Done {
    let log = directory().join(format!("{}.log", part.name));
    let began = Instant::now();
    let mut done = Done {
        name: part.name,
        lane: part.lane,
        log: log.clone(),
        error: None,
        could_not: false,
        counts: Counts::default(),
        took: Duration::ZERO,
        waited,
        computed: Duration::ZERO,
    };
    println!("-- {} begins", part.name);
    done.error = commands(part, share, &mut done).err();
    match Counts::of_log(&log) {
        Ok(counts) => done.counts = counts,
        Err(error) => done.error = Some(error),
    }
    if part.has_tests() {
        if done.counts.are_empty() {
            done.error.get_or_insert_with(|| "no test ran".to_owned());
        }
        if done.error.is_some() && done.counts.failures.is_empty() {
            done.counts.broken.push(part.name.to_owned());
        }
    }
    done.took = began.elapsed();
    println!("{}", done.line());
    done
}

fn commands(part: &Part, share: Share, done: &mut Done) -> Outcome {
    let text = |error: std::io::Error| format!("{}: {error}", done.log.display());
    let file = File::create(&done.log).map_err(text)?;
    for mut command in part.commands(share) {
        let words = describe(&command);
        let child = streams(&mut command, &file).map_err(text)?.spawn();
        let ended = child.and_then(|mut child| Ok((computed(&child)?, child.wait()?)));
        let (computed, status) = ended.map_err(|error| format!("{words}: {error}"))?;
        done.computed += computed;
        if status.code() == Some(COULD_NOT.into()) {
            done.could_not = true;
            // A checker's machine has to have everything; at home one may not be root.
            if std::env::var_os("CI").is_some() {
                return Err(format!("{words}: not all of it could be had"));
            }
        } else if !status.success() {
            return Err(format!("{words}: {status}"));
        }
    }
    Ok(())
}

/// Waits until a process has ended, but does not take its status. Returns its time of processors
/// with that of its descendants that were waited for, as `/proc/PID/stat` of proc(5) has it.
fn computed(child: &Child) -> std::io::Result<Duration> {
    let pid = child.id();
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(rustix::io::Errno::SRCH)?;
    waitid(WaitId::Pid(raw), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // Fields 14 to 17; the second one may have blanks and ends with the last parenthesis.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u64 = fields.skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(1000 * ticks / rustix::param::clock_ticks_per_second()))
}

fn streams<'c>(command: &'c mut Command, file: &File) -> std::io::Result<&'c mut Command> {
    Ok(command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file.try_clone()?))
}

impl Done {
    /// How it ended, in a line.
    fn line(&self) -> String {
        let how = match (&self.error, self.could_not) {
            (Some(_), _) => "FAILED",
            (None, true) => "could not get everything",
            (None, false) => "ok",
        };
        let waited = match self.waited.as_secs() {
            0 => String::new(),
            seconds => format!(", after {seconds} s of waiting"),
        };
        let sums = self.counts.sums();
        let (took, computed) = (self.took.as_secs(), self.computed.as_secs());
        format!("-- {}: {how} ({took} s, {computed} s of processors{waited}){sums}", self.name)
    }
}

/// Prints what each part took, and what lanes waited.
pub(super) fn print_times(all: &[Done]) {
    println!("minutes of each part, and of processors, by lanes, which ran beside each other:");
    let minutes = |time: Duration| time.as_secs_f64() / 60.0;
    for lane in Lane::ALL {
        let mine: Vec<&Done> = all.iter().filter(|done| done.lane == lane).collect();
        let sum = |of: fn(&Done) -> Duration| minutes(mine.iter().map(|done| of(done)).sum());
        let (took, computed) = (sum(|done| done.took), sum(|done| done.computed));
        let waited = sum(|done| done.waited);
        println!("  {took:5.1} {computed:5.1} {lane:?}, and {waited:.1} of waiting for others");
        for done in mine.iter().filter(|done| done.took.as_secs() >= 3) {
            println!("    {:5.1} {:5.1} {}", minutes(done.took), minutes(done.computed), done.name);
        }
    }
    let all = minutes(all.iter().map(|done| done.computed).sum());
    println!("  {all:.1} of processors in all");
}
