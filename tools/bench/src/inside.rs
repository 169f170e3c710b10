//! What `bench` runs as the measured user, most of it inside an environment: loops that measure
//! commands and single calls, so that neither the change of user nor the start of a container
//! counts.
//!
//! A loop's words are `COUNT COMMAND... --- COMMAND... ---`. The commands take turns, COUNT times
//! and once more, for the first round is not measured: it brings files into memory and fills the
//! programs' caches. A line of output is `WHICH NUMBER`; errors come at the end.

mod calls;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use calls::Calls;
use xtask::shell::Outcome;

/// `time-loop`: nanoseconds. A command `call-loop CALL COUNT PATH...`, without a program, is done
/// by the loop itself, so that no start of a program counts.
pub(crate) fn time_loop(words: &[String]) -> Outcome {
    each(words, |work| {
        let began = Instant::now();
        work.run()?;
        Ok(began.elapsed().as_nanos())
    })
}

/// `fault-loop`: page faults of a program that needed no disk, counted by the kernel when it ended
/// (`proc_pid_stat`(5)).
pub(crate) fn fault_loop(words: &[String]) -> Outcome {
    each(words, |work| {
        let before = faults_of_children()?;
        work.run()?;
        Ok(u128::from(faults_of_children()? - before))
    })
}

/// `call-loop CALL COUNT PATH...`: the call and nothing else.
pub(crate) fn call_loop(words: &[String]) -> Outcome {
    Calls::new(words)?.run()
}

/// The lines of a loop's output.
pub(super) fn numbers(output: &str) -> Vec<(usize, f64)> {
    let parse = |line: &str| {
        let (which, number) = line.split_once(' ')?;
        Some((which.parse().ok()?, number.parse().ok()?))
    };
    output.lines().filter_map(parse).collect()
}

/// A command of a loop.
enum Work<'a> {
    Program(&'a [String]),
    Calls(Calls),
}

impl<'a> Work<'a> {
    fn new(words: &'a [String]) -> Outcome<Self> {
        match words.split_first() {
            Some((first, rest)) if first == "call-loop" => Calls::new(rest).map(Self::Calls),
            _ => Ok(Self::Program(words)),
        }
    }

    fn run(&self) -> Outcome {
        let words = match self {
            Self::Program(words) => words,
            Self::Calls(calls) => return calls.run(),
        };
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
        match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("{}: {status}", words.join(" "))),
            Err(error) => Err(format!("{}: {error}", words[0])),
        }
    }
}

/// Measures each command in turn. One that fails is left out from then on.
fn each(words: &[String], mut measure: impl FnMut(&Work<'_>) -> Outcome<u128>) -> Outcome {
    let (count, rest) = words.split_first().ok_or("a count is needed")?;
    let count: usize = count.parse().map_err(|_| "the count is not a number")?;
    let commands = rest.split(|word| word == "---").filter(|words| !words.is_empty());
    let mut all: Vec<Outcome<Work<'_>>> = commands.map(Work::new).collect();
    for round in 0..=count {
        for (which, slot) in all.iter_mut().enumerate() {
            let Ok(work) = slot else { continue };
            match measure(work) {
                Ok(number) if round > 0 => println!("{which} {number}"),
                Ok(_) => {}
                Err(error) => *slot = Err(error),
            }
        }
    }
    let failed: Vec<String> = all.into_iter().filter_map(Result::err).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// Faults of all children that have ended and were waited for: the eleventh field, and the ninth
/// after the name, which may hold anything but ends with the last `)`.
fn faults_of_children() -> Outcome<u64> {
    let text = fs::read_to_string("/proc/self/stat").map_err(|error| error.to_string())?;
    let fields = text.rsplit(')').next().unwrap_or_default();
    let field = fields.split_whitespace().nth(8).and_then(|field| field.parse().ok());
    field.ok_or_else(|| format!("no number of faults in {text:?}"))
}
