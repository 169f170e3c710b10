//! Where connections are measured: a server that runs, and how one calls it.

use std::fs;
use std::process::{Child, Command, Stdio};

use super::super::places::as_measured;
use crate::{Bench, Line, median};
use xtask::shell::Outcome;
use xtask::tools;

/// Names and counts of each work.
pub(super) const WORK: [&str; 4] = ["stream", "ping-pong", "connect", "sendto"];
/// In the order of [`WORK`]; of a stream in MiB.
pub(super) const COUNTS: [u32; 4] = [1024, 20_000, 3000, 50_000];
/// The most that a peer does: packets take hundreds of times as long.
pub(super) const OF_PEERS: [u32; 4] = [256, 2000, 300, 0];
/// The port of servers outside of containers.
pub(super) const PORT: &str = "18001";
/// Where the processors' time of a stream is, after the works.
pub(super) const TIME: usize = 4;

/// A server, and how it is called.
pub(super) struct Place {
    pub(super) name: &'static str,
    /// The words before the program of the caller.
    pub(super) caller: Vec<String>,
    pub(super) address: String,
    pub(super) port: &'static str,
    /// What is there to end: a process of the host. Others are containers.
    pub(super) server: Option<Running>,
    pub(super) is_peer: bool,
    /// Processes that take part beside both ends; `None` if they are not known.
    pub(super) others: Option<Vec<u32>>,
    pub(super) counts: [u32; 4],
    /// Numbers of each round: those of the works, and the processors' time of the first.
    pub(super) found: [Vec<f64>; 5],
}

/// A process that ends with the value.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(words: &[String]) -> Outcome<Self> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().map(Self).map_err(|error| format!("{}: {error}", words[0]))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Place {
    pub(super) fn new(name: &'static str, caller: Vec<String>, address: &str) -> Self {
        Self {
            name,
            caller,
            address: address.to_owned(),
            port: "80",
            server: None,
            is_peer: false,
            others: Some(Vec::new()),
            counts: COUNTS,
            found: Default::default(),
        }
    }

    /// A place of another program, which has less to do.
    pub(super) fn of_peer(name: &'static str, caller: Vec<String>, address: &str) -> Self {
        Self { is_peer: true, counts: OF_PEERS, ..Self::new(name, caller, address) }
    }

    /// The same with a server that these words start.
    pub(super) fn with_server(mut self, serve: &[String]) -> Outcome<Self> {
        self.server = Some(Running::start(serve)?);
        Ok(self)
    }

    /// Does a work, and gives the numbers that it says.
    pub(super) fn work(&self, kind: &str, count: u32) -> Outcome<Vec<f64>> {
        let work = ["net-work", &self.address, self.port, kind, &count.to_string()];
        let text = run(&words(&[&self.caller, &own(&work)]))
            .map_err(|error| format!("{}: {error}", self.name))?;
        Ok(text.split_whitespace().filter_map(|word| word.parse().ok()).collect())
    }

    /// Does each work once.
    pub(super) fn round(&mut self) -> Outcome {
        for (at, (kind, count)) in WORK.iter().zip(self.counts).enumerate() {
            if count == 0 {
                continue;
            }
            let before = self.time_of_others();
            let numbers = self.work(kind, count)?;
            self.found[at].extend(numbers.first());
            if let (Some(own), Some(before), Some(after)) =
                (numbers.get(1), before, self.time_of_others())
            {
                self.found[TIME].push(own + (after - before) / (f64::from(count) / 1024.0));
            }
        }
        Ok(())
    }

    /// Seconds of processors of who takes part beside both ends, and of the kernel's threads that
    /// pass on packets for all.
    fn time_of_others(&self) -> Option<f64> {
        let kernel = super::processes(|name, _| name.starts_with("ksoftirqd"));
        Some(self.others.as_ref()?.iter().chain(&kernel).copied().map(time_of).sum())
    }

    /// Forgets what was found.
    pub(super) fn begin_again(&mut self, counts: [u32; 4]) {
        self.counts = counts;
        self.found = Default::default();
    }

    pub(super) fn middle(&self, at: usize) -> f64 {
        median(self.found[at].clone())
    }
}

/// Each place in turn does each work in each round. A peer that fails is told and left out.
pub(super) fn rounds(bench: &Bench, places: &mut [Place]) -> Outcome {
    for _ in 0..bench.rounds {
        for place in &mut *places {
            let Err(error) = place.round() else { continue };
            if !place.is_peer {
                return Err(error);
            }
            println!("SKIP bench net, {}: {error}", place.name);
            place.counts = [0; 4];
        }
    }
    Ok(())
}

/// What is measured, and how its numbers are shown.
pub(super) fn title(at: usize) -> (&'static str, fn(f64) -> String) {
    let seconds: fn(f64) -> String = |value| format!("{value:.2} s");
    let micro: fn(f64) -> String = |value| format!("{:.2} µs", value / 1000.0);
    match at {
        0 => ("1 GiB by TCP", seconds),
        1 => ("1 byte there and back", micro),
        2 => ("connect, accept, close", micro),
        3 => ("sendto, not connected", micro),
        _ => ("processors' time for 1 GiB", seconds),
    }
}

/// All places beside the first one; `aim` knows the greatest ratio for a place and a work.
pub(super) fn compared(
    places: &[Place],
    against: &str,
    aim: impl Fn(&str, usize) -> f64,
) -> Vec<Line> {
    let mut lines = Vec::new();
    for at in [0, TIME, 1, 2, 3] {
        let (what, show) = title(at);
        for place in &places[1..] {
            let (ours, theirs) = (place.middle(at), places[0].middle(at));
            if ours.is_nan() || theirs.is_nan() {
                continue;
            }
            let whose = if place.is_peer { " (peer)" } else { "" };
            lines.push(Line {
                what: format!("{what}, {}{whose}", place.name),
                against: against.to_owned(),
                ours: show(ours),
                theirs: show(theirs),
                value: ours / theirs,
                aim: (aim(place.name, at) * 1000.0).round() / 1000.0,
                unit: "",
            });
        }
    }
    lines
}

/// How much longer a round trip takes than at the first place.
pub(super) fn later(place: &Place, first: &Place, aim: f64) -> Line {
    let later = (place.middle(1) - first.middle(1)) / 1000.0;
    Line {
        what: format!("{}, {}, beyond that of {}", title(1).0, place.name, first.name),
        against: String::new(),
        ours: format!("{later:.1} µs"),
        theirs: String::new(),
        value: later,
        aim,
        unit: "µs",
    }
}

/// Datagrams of 1 kB, half as many as the first place carries when it carries all it can: how many
/// are lost.
pub(super) fn lost(place: &Place, first: &Place, aim: f64) -> Outcome<Line> {
    let numbers = |place: &Place, rate| match place.work("datagrams", rate)?[..] {
        [rate, lost] => Ok((rate, lost)),
        _ => Err(format!("{}: no numbers of datagrams", place.name)),
    };
    let (most, _) = numbers(first, 0)?;
    let half = (most / 2.0) as u32;
    let (_, theirs) = numbers(first, half)?;
    let (_, ours) = numbers(place, half)?;
    Ok(Line {
        what: format!("datagrams of 1 kB lost of {half} a second, {}", place.name),
        against: first.name.to_owned(),
        ours: format!("{ours:.2} %"),
        theirs: format!("{theirs:.2} %"),
        value: ours,
        aim,
        unit: "%",
    })
}

/// Seconds of processors that all threads of a process have taken.
pub(crate) fn time_of(process: u32) -> f64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let time = threads.filter_map(|thread| {
        // In nanoseconds, unlike `stat`.
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    time.sum::<f64>() / 1e9
}

/// The words before a program on a processor of its own.
pub(super) fn on(processor: &str) -> Vec<String> {
    own(&["taskset", "-c", processor])
}

/// The same before all others, if root calls.
pub(super) fn first_on(processor: &str) -> Vec<String> {
    let mut words = on(processor);
    if tools::is_root() {
        words.extend(own(&["chrt", "-f", "10"]));
    }
    words
}

/// The words before a command of the program, as the measured user.
pub(super) fn coracle(bench: &Bench) -> Vec<String> {
    let mut words = as_measured(bench);
    words.push(bench.coracle.display().to_string());
    words
}

pub(crate) fn words(all: &[&[String]]) -> Vec<String> {
    all.concat()
}

pub(crate) fn own(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

pub(crate) fn run(all: &[String]) -> Outcome<String> {
    xtask::shell::read(Command::new(&all[0]).args(&all[1..]))
}
