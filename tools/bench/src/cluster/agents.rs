//! A driver with many hosts at rest, and the agents there.
//!
//! The application of the cluster sleeps. It is in a container of the first host; the others have
//! their agent alone.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::command::until;

use super::lab::{Home, IMAGE, Lab};
use super::{alone, fact};
use crate::net::place::time_of;
use crate::{Bench, Line};
use xtask::shell::Outcome;

const HOSTS: u32 = 64;
/// MB.
const MEMORY: f64 = 20.0;
/// Percent of a processor, and over how long.
const TIME: f64 = 1.0;
const REST: Duration = Duration::from_secs(20);
/// The cluster is up within so long.
const SOON: Duration = Duration::from_mins(3);
const NAME: &str = "many";

pub(super) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    let lab = Lab::start(bench, HOSTS as usize, Home::Own)?;
    let text = format!(
        "image = {IMAGE:?}\nnetwork = \"host\"\nnodes = 1\n[run]\ncommand = [\"sleep\", \"4321\"]\n"
    );
    let file = lab.file(NAME, Some(HOSTS as usize), &text)?;
    let began = Instant::now();
    let driver = Driver::start(&lab, &file)?;
    let found = driver_of(&lab, &file)?;
    let up = began.elapsed();
    // What only the start needed is given back.
    std::thread::sleep(Duration::from_secs(5));
    let before = [time_of(found), agents_time(&lab)];
    std::thread::sleep(REST);
    let after = [time_of(found), agents_time(&lab)];
    let percent = |at: usize| (after[at] - before[at]) / REST.as_secs_f64() * 100.0;
    let agents = agents(&lab);
    let count = agents.len();
    let own = memory(found);
    let each = agents.iter().map(|pid| memory(*pid).1).sum::<f64>() / f64::from(HOSTS);
    let ssh = lab.cluster.others(|name| name == "ssh");
    let ssh: f64 = ssh.iter().map(|pid| memory(*pid).1).sum();
    let seconds = up.as_secs_f64();
    drop(driver);
    if count < HOSTS as usize {
        return Err(format!("there are only {count} processes of agents"));
    }
    Ok(vec![
        alone(
            &format!("resident memory of the driver of {HOSTS} hosts at rest"),
            format!("{:.1} MB, its share {:.1} MB", own.0, own.1),
            own.0,
            MEMORY,
            "MB",
        ),
        alone(
            "its time of a processor",
            format!("{:.3} s in {} s", after[0] - before[0], REST.as_secs()),
            percent(0),
            TIME,
            "%",
        ),
        fact("memory of all its `ssh`, their shares", format!("{ssh:.1} MB")),
        fact("memory of the agent of a host, its two processes' shares", format!("{each:.2} MB")),
        fact(
            "time of a processor of the agent of a host",
            format!("{:.3} %", percent(1) / f64::from(HOSTS)),
        ),
        fact(
            &format!(
                "from the start of `up` to the application, {HOSTS} hosts that get program and image"
            ),
            format!("{seconds:.1} s"),
        ),
    ])
}

/// `cluster up` in the foreground.
struct Driver(Child);

impl Driver {
    fn start(lab: &Lab<'_>, file: &str) -> Outcome<Self> {
        let all = lab.driver(&["cluster", "up", "-f", file]);
        let log = fs::File::create(log(file)).map_err(|error| error.to_string())?;
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.spawn().map(Self).map_err(|error| format!("{}: {error}", all[0]))
    }
}

/// The hosts end with everything on them.
impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the application runs; gives the driver's process.
fn driver_of(lab: &Lab<'_>, file: &str) -> Outcome<u32> {
    let sleeps = || words_of(&lab.cluster.others(|name| name == "sleep"), "\0sleep\x004321\0");
    let found = until(SOON, || sleeps().first().copied());
    let said = fs::read_to_string(log(file)).unwrap_or_default();
    found.ok_or_else(|| format!("the application does not start: {said}"))?;
    // Not the programs that have led there, which end with the same words.
    let programs = lab.cluster.others(|name| name == "coracle");
    let drivers = words_of(&programs, &format!("\0cluster\0up\0-f\0{file}\0"));
    drivers.first().copied().ok_or_else(|| format!("the driver is gone: {said}"))
}

fn log(file: &str) -> String {
    format!("{file}.log")
}

fn agents(lab: &Lab<'_>) -> Vec<u32> {
    words_of(&lab.cluster.others(|_| true), "\0cluster\0agent\0")
}

fn agents_time(lab: &Lab<'_>) -> f64 {
    agents(lab).into_iter().map(time_of).sum()
}

/// Those that were started with these words, each between NULs.
fn words_of(pids: &[u32], words: &str) -> Vec<u32> {
    let has = |pid: &&u32| {
        let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        format!("\0{}", String::from_utf8_lossy(&text)).ends_with(words)
    };
    pids.iter().filter(has).copied().collect()
}

/// MB that are resident, and the share of a process in them.
fn memory(process: u32) -> (f64, f64) {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = fs::read_to_string(Path::new(&path)).unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let kilobytes = line.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
        kilobytes.unwrap_or_default() / 1024.0
    };
    (field("Rss:"), field("Pss:"))
}
