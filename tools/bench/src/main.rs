//! `cargo xtask bench [NAME]...`: measures Coracle beside other tools in the same run.
//!
//! Everything runs as an unprivileged user, with the release binary. Start-up is measured pinned to
//! one CPU, because in a virtual machine a wake-up across CPUs costs more than what is measured.
//! Peers take turns with Coracle, so a slow second hits both; medians are compared. Without names
//! all is measured. The results replace their sections of `docs/benchmarks.md`; other sections and
//! the notes are kept. `cargo xtask bench net PART...` and `bench cluster PART...` measure parts of
//! these sections, and show them only.

mod cluster;
mod engines;
mod fresh;
mod index;
mod inside;
mod lists;
mod mpi;
mod names;
mod net;
mod places;
mod podman;
mod pull;
mod report;
mod spread;
mod start;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use testkit::docker_registry::DockerRegistry;
use testkit::scratch::Scratch;
use testkit::users::{self, User};

use xtask::shell::{self, Outcome, step};
use xtask::{release, tools};

/// One line of the results.
pub(crate) struct Line {
    /// What was measured.
    pub(crate) what: String,
    /// The peer, in words.
    pub(crate) against: String,
    /// Coracle's result, as text with a unit.
    pub(crate) ours: String,
    /// The peer's.
    pub(crate) theirs: String,
    /// The ratio or value that is compared with the aim.
    pub(crate) value: f64,
    /// The aim: `value` is to be at most this.
    pub(crate) aim: f64,
    /// The unit of value and aim; empty for a ratio.
    pub(crate) unit: &'static str,
}

/// What every measurement needs.
pub(crate) struct Bench {
    pub(crate) coracle: PathBuf,
    pub(crate) own: PathBuf,
    pub(crate) user: User,
    pub(crate) home: PathBuf,
    pub(crate) scratch: Scratch,
    pub(crate) registry: DockerRegistry,
    pub(crate) rounds: usize,
    /// What is measured of a section; all of it if there are none.
    pub(crate) parts: Vec<String>,
}

type Measure = fn(&Bench) -> Outcome<Vec<Line>>;

/// The user that measures: peers map one id to start, and need a range of ids to unpack.
#[derive(Clone, Copy)]
enum Who {
    OneId,
    Range,
}

const ALL: &[(&str, Who, Measure)] = &[
    ("start", Who::OneId, start::measure),
    ("pull", Who::Range, pull::measure),
    ("lists", Who::OneId, lists::measure),
    ("index", Who::OneId, index::measure),
    ("fresh", Who::Range, fresh::measure),
    ("engines", Who::OneId, engines::measure),
    ("mpi", Who::OneId, mpi::measure),
    ("net", Who::OneId, net::measure),
    ("cluster", Who::OneId, cluster::measure),
    ("spread", Who::Range, spread::measure),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (first, rest) = words.split_first().map_or(("", &[][..]), |(f, r)| (f.as_str(), r));
    let result = match first {
        // What a measurement starts as another user, and in containers.
        "time-loop" => inside::time_loop(rest),
        "call-loop" => inside::call_loop(rest),
        "fault-loop" => inside::fault_loop(rest),
        "net-serve" => net::work::serve(rest),
        "net-work" => net::work::work(rest),
        "net-lookup" => net::work::lookup(),
        _ => run(&words),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures the named sections, or all.
fn run(words: &[String]) -> Outcome {
    let (names, parts) = chosen(words)?;
    tools::set_up()?;
    let mut bench = Bench::set(parts)?;
    let mut sections = Vec::new();
    for (name, who, measure) in ALL {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            step(name);
            bench.become_user(*who)?;
            let (lines, trouble) = match measure(&bench) {
                Ok(lines) => (lines, None),
                Err(error) => (Vec::new(), Some(error)),
            };
            println!("{}", report::table(&lines).text());
            sections.push(report::Section { name, lines, trouble });
        }
    }
    if bench.parts.is_empty() {
        report::write(&bench, &sections)?;
    }
    let trouble: Vec<String> = sections
        .iter()
        .filter_map(|section| Some(format!("{}: {}", section.name, section.trouble.as_ref()?)))
        .collect();
    if trouble.is_empty() { Ok(()) } else { Err(trouble.join("; ")) }
}

/// The parts of a section; none if it has no parts.
fn parts(section: &str) -> Vec<&'static str> {
    match section {
        "net" => net::parts().collect(),
        "cluster" => cluster::parts().collect(),
        _ => Vec::new(),
    }
}

/// Sections, and parts of one section.
fn chosen(words: &[String]) -> Outcome<(&[String], Vec<String>)> {
    if let Some((first, rest)) = words.split_first()
        && !rest.is_empty()
        && rest.iter().all(|part| parts(first).contains(&part.as_str()))
    {
        return Ok((&words[..1], rest.to_vec()));
    }
    match words.iter().find(|word| !names().any(|known| known == *word)) {
        Some(word) => {
            let [sections, net, cluster] =
                [names().collect(), parts("net"), parts("cluster")].map(|names| names.join(", "));
            Err(format!(
                "no measurement is called {word}: there are {sections}; net {net}; cluster {cluster}"
            ))
        }
        None => Ok((words, Vec::new())),
    }
}

/// What the parts of a section have found. A table with holes is shown, and not kept.
fn each<'p>(parts: impl Iterator<Item = (&'p str, Outcome<Vec<Line>>)>) -> Outcome<Vec<Line>> {
    let (mut lines, mut failures) = (Vec::new(), Vec::new());
    for (name, part) in parts {
        match part {
            Ok(more) => lines.extend(more),
            Err(error) => {
                println!("{name} failed: {error}");
                failures.push(format!("{name}: {error}"));
            }
        }
    }
    if failures.is_empty() {
        return Ok(lines);
    }
    println!("{}", report::table(&lines).text());
    Err(failures.join("; "))
}

/// The names of all sections.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _, _)| *name)
}

impl Bench {
    fn set(parts: Vec<String>) -> Outcome<Self> {
        let binary = release::build()?;
        let scratch = Scratch::new("bench").map_err(|error| error.to_string())?;
        let public = |from: &Path, name: &str| {
            let to = scratch.path().join(name);
            fs::copy(from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
            fs::set_permissions(&to, fs::Permissions::from_mode(0o755))
                .map_err(|e| e.to_string())?;
            Ok::<_, String>(to)
        };
        let coracle = public(&binary, "coracle")?;
        let me = std::env::current_exe().map_err(|error| error.to_string())?;
        let own = public(&me, "bench")?;
        let user = users::all().pop().ok_or("no user to measure as")?;
        let home = PathBuf::new();
        let registry = DockerRegistry::start().map_err(|error| error.to_string())?;
        let rounds = std::env::var("CORACLE_BENCH_ROUNDS").ok().and_then(|n| n.parse().ok());
        let rounds = rounds.unwrap_or(3);
        Ok(Self { coracle, own, user, home, scratch, registry, rounds, parts })
    }

    /// Changes to another user, with an empty home. Called by an ordinary user it keeps that user.
    fn become_user(&mut self, who: Who) -> Outcome {
        let mut users = users::all();
        self.user = match who {
            Who::OneId => users.drain(..).next(),
            Who::Range => users.pop(),
        }
        .ok_or("no user to measure as")?;
        let owner = Some((self.user.uid, self.user.gid));
        let name = format!("home-{}", self.user.name);
        self.home = self.scratch.dir(&name, owner, 0o755).map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Whether a part of a section is to be measured.
    fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
    }

    /// Runs `coracle` as the user and insists on success.
    pub(crate) fn coracle(&self, words: &[&str]) -> Outcome<String> {
        self.as_user(&self.home, |command| command.arg(&self.coracle).args(words))
    }

    /// Runs any command as the user; `build` adds program and arguments to `env`.
    pub(crate) fn as_user(
        &self,
        home: &Path,
        build: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Outcome<String> {
        let mut command = self.user.command("env", home);
        build(&mut command);
        shell::read(&mut command)
    }

    /// The median seconds of each command: `count` times in turn, pinned to one CPU, and with
    /// real-time priority if root calls.
    pub(crate) fn medians(&self, count: usize, commands: &[Vec<String>]) -> Outcome<Vec<f64>> {
        let before_others = |policy: &str, priority: &str| {
            // Children inherit it. Only root may set it; without it the commands compete.
            let us = std::process::id().to_string();
            let _ = Command::new("chrt").args([policy, "-p", priority, &us]).status();
        };
        if tools::is_root() {
            before_others("-f", "10");
        }
        let text = self.as_user(&self.home, |command| {
            command.args(["taskset", "-c", "0"]).arg(&self.own).arg("time-loop");
            command.arg(count.to_string());
            for words in commands {
                command.args(words).arg("---");
            }
            command
        });
        if tools::is_root() {
            before_others("-o", "0");
        }
        let text = text?;
        let mut times = vec![Vec::new(); commands.len()];
        for (which, nanoseconds) in inside::numbers(&text) {
            times[which].push(nanoseconds / 1e9);
        }
        Ok(times.into_iter().map(median).collect())
    }
}

/// The middle value.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Seconds as milliseconds with a sensible number of digits.
pub(crate) fn milliseconds(seconds: f64) -> String {
    if seconds >= 1.0 { format!("{seconds:.1} s") } else { format!("{:.2} ms", seconds * 1000.0) }
}
