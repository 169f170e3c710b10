//! A test runner for suites whose cases are generated at run time, from the engines, users and file
//! systems of this machine.
//!
//! It reads arguments as `cargo test` does ([`Wishes`]), runs cases on a few threads and ends with
//! the standard `test result:` line, so both kinds of test binaries look alike. A case is a closure
//! that returns [`Outcome`]; a panic is a failure, `Err(Skip)` a skip that is printed and counted
//! with the ignored ones. The name of a case begins with its suite's: `posix::I1::plain::...`.
//! Of the cases that [`Wishes`] calls rare only a [`Share`] runs.
//!
//! Cases that share something that only one of them may use at a time share a [lane]; a thread
//! takes the next case whose lane is free, so that none waits for another one's lock.
//!
//! A failing case is run once more, and reported as `UNSTABLE` if it passes then.
//!
//! [`Known`] differences turn a failure into a skip that cites the reason, and a pass into a
//! failure, so that the list stays up to date.
//!
//! [lane]: Suite::case_in

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use crate::share::{Rarity, Share};
use crate::skip::Outcome;

type Body<'a> = Box<dyn Fn() -> Outcome + Send + Sync + 'a>;

/// A known difference: cases whose name contains `case` fail for `reason`. A `*` in it matches
/// anything.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// A part of the full case name.
    pub case: &'static str,
    /// The cause, and what would change it.
    pub reason: &'static str,
}

struct Case<'a> {
    name: String,
    lane: Option<String>,
    body: Body<'a>,
}

/// A suite under construction.
pub struct Suite<'a> {
    /// What the names of its cases begin with.
    name: &'a str,
    cases: Vec<Case<'a>>,
    skipped: Vec<(String, String)>,
    known: &'a [Known],
    threads: usize,
}

enum End {
    Passed,
    Skipped(String),
    Failed(String),
}

thread_local! {
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

impl<'a> Suite<'a> {
    /// An empty suite.
    pub fn new(name: &'a str) -> Self {
        Self { name, cases: Vec::new(), skipped: Vec::new(), known: &[], threads: 4 }
    }

    /// Sets the known differences.
    pub fn known(&mut self, known: &'a [Known]) -> &mut Self {
        self.known = known;
        self
    }

    /// Sets how many cases run at once, unless `--test-threads` overrides it.
    pub fn threads(&mut self, threads: usize) -> &mut Self {
        self.threads = threads;
        self
    }

    /// Adds a case.
    pub fn case(&mut self, name: String, body: impl Fn() -> Outcome + Send + Sync + 'a) {
        self.add(None, name, Box::new(body));
    }

    /// Adds a case that runs beside no other one of the same lane.
    pub fn case_in(
        &mut self,
        lane: &str,
        name: String,
        body: impl Fn() -> Outcome + Send + Sync + 'a,
    ) {
        self.add(Some(lane), name, Box::new(body));
    }

    fn add(&mut self, lane: Option<&str>, mut name: String, body: Body<'a>) {
        name.insert_str(0, &format!("{}::", self.name));
        let lane = lane.map(str::to_owned);
        self.cases.push(Case { name, lane, body });
    }

    /// Adds a whole group that cannot run here.
    pub fn skipped(&mut self, name: &str, reason: &str) {
        let whole = if name == self.name { String::new() } else { format!("::{name}") };
        self.skipped.push((format!("{}{whole}", self.name), reason.to_owned()));
    }

    /// Runs the cases that the command line selects, in a test binary of this suite alone. Filters
    /// need not begin with its name.
    pub fn main(self) -> ExitCode {
        match Wishes::read(std::env::args().skip(1), |_| Rarity::Always) {
            Ok(mut wishes) => {
                wishes.filters.iter_mut().for_each(|filter| within(self.name, filter));
                self.run(&wishes)
            }
            Err(error) => {
                eprintln!("{}: {error}", self.name);
                ExitCode::from(2)
            }
        }
    }

    /// Runs the cases that are wished for.
    pub fn run(mut self, wishes: &Wishes) -> ExitCode {
        let all = self.cases.len() + self.skipped.len();
        self.cases.retain(|case| wishes.want(&case.name));
        self.skipped.retain(|(name, _)| wishes.want_group(name));
        if wishes.list {
            for case in &self.cases {
                println!("{}: test", case.name);
            }
            return ExitCode::SUCCESS;
        }
        let total = self.cases.len() + self.skipped.len();
        println!("\nrunning {total} tests");
        let began = Instant::now();
        for (name, reason) in &self.skipped {
            println!("test {name} ... ignored, {reason}\nSKIP {name}: {reason}");
        }
        silence_panics();
        let known = self.known;
        let queue = Queue::new(self.cases);
        let ends = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..wishes.threads.unwrap_or(self.threads) {
                scope.spawn(|| {
                    while let Some(Case { name, lane, body }) = queue.next() {
                        let started = Instant::now();
                        let end = judge(known, &name, wishes.runs(&name, &body));
                        queue.ended(lane.as_deref());
                        let seconds = started.elapsed().as_secs_f64();
                        let slow = if seconds > 5.0 {
                            format!(" ({seconds:.1} s)")
                        } else {
                            String::new()
                        };
                        // One print per case, or two threads mix their lines.
                        match &end {
                            End::Passed => println!("test {name} ... ok{slow}"),
                            End::Skipped(why) => {
                                println!("test {name} ... ignored, {why}\nSKIP {name}: {why}");
                            }
                            // At once too: a log that is cut short has the reason beside it.
                            End::Failed(why) => println!("test {name} ... FAILED{slow}\n{why}"),
                        }
                        ends.lock().unwrap_or_else(PoisonError::into_inner).push((name, end));
                    }
                });
            }
        });
        let ends = ends.into_inner().unwrap_or_else(PoisonError::into_inner);
        report(&ends, self.skipped.len(), all - total, began)
    }
}

/// Cases that have not begun.
struct Queue<'a> {
    waiting: Mutex<Waiting<'a>>,
    /// A lane became free.
    freed: Condvar,
}

struct Waiting<'a> {
    cases: Vec<Case<'a>>,
    /// Lanes of cases that run.
    busy: HashSet<String>,
}

impl<'a> Queue<'a> {
    fn new(cases: Vec<Case<'a>>) -> Self {
        let waiting = Mutex::new(Waiting { cases, busy: HashSet::new() });
        Self { waiting, freed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<'a>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first case whose lane is free, which takes it; waits for one; `None` if none is left.
    fn next(&self) -> Option<Case<'a>> {
        let mut waiting = self.lock();
        loop {
            if waiting.cases.is_empty() {
                return None;
            }
            let is_free = |lane: &str| !waiting.busy.contains(lane);
            let free =
                waiting.cases.iter().position(|case| case.lane.as_deref().is_none_or(is_free));
            if let Some(at) = free {
                let case = waiting.cases.remove(at);
                waiting.busy.extend(case.lane.clone());
                return Some(case);
            }
            waiting = self.freed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn ended(&self, lane: Option<&str>) {
        if let Some(lane) = lane {
            self.lock().busy.remove(lane);
            self.freed.notify_all();
        }
    }
}

fn report(ends: &[(String, End)], skipped: usize, filtered: usize, began: Instant) -> ExitCode {
    let failures: Vec<(&str, &str)> = ends
        .iter()
        .filter_map(|(name, end)| match end {
            End::Failed(why) => Some((name.as_str(), why.as_str())),
            _ => None,
        })
        .collect();
    if !failures.is_empty() {
        println!("\nfailures:\n");
        for (name, why) in &failures {
            println!("---- {name} ----\n{why}\n");
        }
        println!("failures:");
        for (name, _) in &failures {
            println!("    {name}");
        }
    }
    let passed = ends.iter().filter(|(_, end)| matches!(end, End::Passed)).count();
    println!(
        "\ntest result: {}. {passed} passed; {} failed; {} ignored; 0 measured; {filtered} filtered out; \
         finished in {:.2}s\n",
        if failures.is_empty() { "ok" } else { "FAILED" },
        failures.len(),
        skipped + ends.len() - passed - failures.len(),
        began.elapsed().as_secs_f64(),
    );
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(body: &Body<'_>) -> End {
    MESSAGE.take();
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => End::Passed,
        Ok(Err(skip)) => End::Skipped(skip.0),
        Err(payload) => End::Failed(message(&*payload)),
    }
}

/// Runs a failing case once more: these suites race real processes on machines with other load. A
/// pass then counts, but is reported as unstable, and `cargo xtask ci` lists it at the end.
fn twice(name: &str, body: &Body<'_>) -> End {
    match one(body) {
        End::Failed(first) => match one(body) {
            End::Passed => {
                // Without the word by which readers of a long log look for what failed.
                let first = first.trim_start_matches("panicked at ");
                let why = told(first);
                println!("UNSTABLE {name}: passed when run again; at first: {why}");
                End::Passed
            }
            End::Skipped(why) => End::Skipped(why),
            End::Failed(second) => End::Failed(format!("{second}\n(and at first: {first})")),
        },
        end => end,
    }
}

/// The beginning of a message, and its end, where what was compared stands behind a command.
fn told(message: &str) -> String {
    const SOME: usize = 4;
    let lines: Vec<&str> = message.lines().collect();
    let rest = lines.len().saturating_sub(SOME).max(SOME.min(lines.len()));
    let cut = if rest > SOME { &["..."][..] } else { &[] };
    [&lines[..SOME.min(lines.len())], cut, &lines[rest..]].concat().join(" | ")
}

/// Returns true if a name contains the parts of a pattern in order; `*` is between them.
pub fn contains(name: &str, pattern: &str) -> bool {
    let mut rest = Some(name);
    for part in pattern.split('*') {
        rest = rest.and_then(|text| text.split_once(part)).map(|(_, rest)| rest);
    }
    rest.is_some()
}

fn judge(known: &[Known], name: &str, end: End) -> End {
    let Some(known) = known.iter().find(|known| contains(name, known.case)) else { return end };
    match end {
        End::Failed(_) => End::Skipped(format!("known difference: {}", known.reason)),
        End::Passed => End::Failed(format!(
            "listed as a known difference ({}), but it passes: take it off the list",
            known.reason
        )),
        skipped @ End::Skipped(_) => skipped,
    }
}

fn silence_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let text = format!("panicked at {place}:\n{}", message(info.payload()));
        // Messages of threads that a case started are printed at once, since the case does not see
        // them.
        if thread::current().name().is_some() {
            eprintln!("{text}");
        }
        MESSAGE.set(text);
    }));
}

fn message(payload: &(dyn Any + Send)) -> String {
    let kept = MESSAGE.take();
    if !kept.is_empty() {
        return kept;
    }
    if let Some(text) = payload.downcast_ref::<&str>() {
        return (*text).to_owned();
    }
    payload.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic without words".to_owned())
}

/// Makes a filter one of a suite.
fn within(suite: &str, filter: &mut String) {
    if filter.split("::").next() != Some(suite) {
        filter.insert_str(0, &format!("{suite}::"));
    }
}

/// What the command line wishes: `[FILTER]... [--exact] [--skip FILTER] [--list] [--test-threads N]
/// [--repeat N] [--share K/N]`.
///
/// A filter is a suite's name, or begins with one and `::`; what follows is a part of the case's
/// name, or with `--exact` the whole. `--repeat N` runs each case up to N times, until it fails.
#[derive(Debug)]
pub struct Wishes {
    filters: Vec<String>,
    skip: Vec<String>,
    exact: bool,
    list: bool,
    threads: Option<usize>,
    repeat: Option<u32>,
    share: Share,
    rarity: fn(&str) -> Rarity,
}

impl Wishes {
    /// Reads the command line; `rarity` says of which cases only a share runs.
    ///
    /// # Errors
    /// If there is an unknown option, or a wrong value.
    pub fn read(
        words: impl Iterator<Item = String>,
        rarity: fn(&str) -> Rarity,
    ) -> Result<Self, String> {
        let mut wishes = Self {
            filters: Vec::new(),
            skip: Vec::new(),
            exact: false,
            list: false,
            threads: None,
            repeat: None,
            share: Share::wanted()?,
            rarity,
        };
        let mut words = words;
        while let Some(word) = words.next() {
            let (flag, inline) = match word.split_once('=') {
                Some((flag, value)) if flag.starts_with("--") => (flag, Some(value.to_owned())),
                _ => (&*word, None),
            };
            let mut value = || {
                let value = inline.clone().or_else(|| words.next());
                value.ok_or_else(|| format!("{flag} needs a value"))
            };
            let count = |text: String| {
                let number = text.parse().ok().filter(|number| *number > 0);
                number.ok_or_else(|| format!("{flag} {text}: not a number from 1"))
            };
            match flag {
                "--exact" => wishes.exact = true,
                "--list" => wishes.list = true,
                "--skip" => wishes.skip.push(value()?),
                "--test-threads" => wishes.threads = Some(count(value()?)? as usize),
                "--repeat" => wishes.repeat = Some(count(value()?)?),
                "--share" => wishes.share = value()?.parse()?,
                // Every case's output is shown anyway.
                "--nocapture" | "--show-output" => {}
                _ if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
                _ => wishes.filters.push(word),
            }
        }
        Ok(wishes)
    }

    /// Whether any case of a suite is wished for.
    pub fn want_suite(&self, suite: &str) -> bool {
        let hit = |filter: &String| filter.split("::").next() == Some(suite);
        self.filters.is_empty() || self.filters.iter().any(hit)
    }

    /// The suites that filters begin with.
    pub fn suites(&self) -> impl Iterator<Item = &str> {
        self.filters.iter().filter_map(|filter| filter.split("::").next())
    }

    /// Whether a group that cannot run is among what is wished for.
    fn want_group(&self, name: &str) -> bool {
        let hit = |filter: &String| {
            name.starts_with(filter.as_str()) || filter.starts_with(&format!("{name}::"))
        };
        self.filters.is_empty() || self.filters.iter().any(hit)
    }

    fn want(&self, name: &str) -> bool {
        let (suite, case) = name.split_once("::").unwrap_or((name, ""));
        let hit = |filter: &String| match filter.split_once("::") {
            _ if self.exact => name == filter,
            None => filter == suite,
            Some((other, part)) => other == suite && case.contains(part),
        };
        (self.filters.is_empty() || self.filters.iter().any(hit))
            && !self.skip.iter().any(|filter| name.contains(filter.as_str()))
            && self.share.runs(name, (self.rarity)(name))
    }

    /// Runs a case as often as is wished.
    fn runs(&self, name: &str, body: &Body<'_>) -> End {
        let Some(repeat) = self.repeat else { return twice(name, body) };
        for number in 1..=repeat {
            match one(body) {
                End::Passed => {}
                End::Failed(why) => return End::Failed(format!("run {number} of {repeat}: {why}")),
                skipped @ End::Skipped(_) => return skipped,
            }
        }
        End::Passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::Skip;

    #[test]
    fn messages_are_told_with_their_ends() {
        assert_eq!(told("one"), "one");
        assert_eq!(told("1\n2\n3\n4\n5"), "1 | 2 | 3 | 4 | 5");
        assert_eq!(told("1\n2\n3\n4\n5\n6\n7\n8\n9"), "1 | 2 | 3 | 4 | ... | 6 | 7 | 8 | 9");
    }

    #[test]
    fn a_lane_has_one_case_at_a_time() {
        let case = |name: &str, lane: Option<&str>| Case {
            name: name.to_owned(),
            lane: lane.map(str::to_owned),
            body: Box::new(|| Ok(())),
        };
        let all = [("a", Some("x")), ("b", Some("x")), ("c", None), ("d", Some("y"))];
        let queue = Queue::new(all.into_iter().map(|(name, lane)| case(name, lane)).collect());
        let next = || queue.next().expect("a case").name;
        assert_eq!([next(), next(), next()], ["a", "c", "d"]);
        thread::scope(|scope| {
            let last = scope.spawn(next);
            queue.ended(None);
            queue.ended(Some("y"));
            thread::sleep(std::time::Duration::from_millis(50));
            assert!(!last.is_finished());
            queue.ended(Some("x"));
            assert_eq!(last.join().expect("the thread"), "b");
        });
        assert!(queue.next().is_none());
    }

    #[test]
    fn filters_like_the_standard_harness() {
        let words = ["--nocapture", "a::pty", "b", "--skip", "slow", "--test-threads=2"];
        let wishes = wishes(&words);
        assert!(wishes.want("a::N1::pty") && !wishes.want("a::N1::pty_slow"));
        assert!(!wishes.want("a::other") && !wishes.want("c::pty") && wishes.want("b::x"));
        assert!(wishes.want_suite("a") && wishes.want_suite("b") && !wishes.want_suite("c"));
        assert!(wishes.want_group("b::N1") && !wishes.want_group("c"));
        assert_eq!(wishes.threads, Some(2));
    }

    #[test]
    fn filters_of_one_suite_need_no_name() {
        for text in ["a::x", "x"] {
            let mut filter = text.to_owned();
            within("a", &mut filter);
            assert_eq!(filter, "a::x");
        }
    }

    #[test]
    fn mistakes_on_the_command_line_are_errors() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Wishes::read(words.into_iter(), |_| Rarity::Always)
        };
        for bad in [&["--exakt"][..], &["--skip"], &["--repeat", "0"], &["--share", "4/3"]] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn rare_cases_run_by_share() {
        let words = |share: &str| {
            let words = ["--share", share].map(str::to_owned);
            let rarity =
                |name: &str| if name.contains("P1") { Rarity::ByName } else { Rarity::Always };
            Wishes::read(words.into_iter(), rarity).expect("wishes")
        };
        let [first, second] = [words("1/2"), words("2/2")];
        assert!(first.want("a::N1::x") && second.want("a::N1::x"));
        assert_ne!(first.want("a::P1::x"), second.want("a::P1::x"));
    }

    #[test]
    fn a_repeated_case_ends_when_it_fails() {
        let count = std::sync::atomic::AtomicU32::new(0);
        let add = || count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        let body: Body<'_> = Box::new(|| {
            assert!(add() < 3, "the third");
            Ok(())
        });
        let end = wishes(&["--repeat", "5"]).runs("a::x", &body);
        assert!(matches!(end, End::Failed(why) if why.starts_with("run 3 of 5: ")));
        assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 3);
    }

    fn wishes(words: &[&str]) -> Wishes {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Wishes::read(words.into_iter(), |_| Rarity::Always).expect("wishes")
    }

    #[test]
    fn known_differences_cannot_rot() {
        let known = [Known { case: "x", reason: "why" }];
        assert!(matches!(judge(&known, "a::x", End::Failed("f".into())), End::Skipped(_)));
        assert!(matches!(judge(&known, "a::x", End::Passed), End::Failed(_)));
        assert!(matches!(judge(&known, "a::y", End::Passed), End::Passed));
        let skipping: Body<'_> = Box::new(|| Err(Skip("no".into())));
        assert!(matches!(one(&skipping), End::Skipped(_)));
    }
}
