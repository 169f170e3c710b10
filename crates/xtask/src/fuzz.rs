//! `cargo xtask fuzz`: sequences of system calls that nobody has seen yet, in a real chroot and in every engine.
//!
//! The suite `sequences` does it; a fault that it finds is made short there. What was one for good belongs into its `corpus`.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::shell::{Outcome, cargo, check};

/// How long for every engine, user and mode, where nothing is said.
const SECONDS: u64 = 60;

/// Words: seconds, then parts of case names. Instead of the seconds, seeds: `+SEED,SEED` plays these alone, and makes short what differs.
pub(crate) fn run(words: &[String]) -> Outcome {
    if let Some((first, names)) = words.split_first()
        && let Some(seeds) = first.strip_prefix('+')
    {
        return play(names, seeds);
    }
    let (seconds, names) = match words.split_first() {
        Some((first, names)) if first.parse::<u64>().is_ok() => {
            (first.parse().unwrap_or(SECONDS), names)
        }
        _ => (SECONDS, words),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
    let first = now.as_secs() << 16;
    play(names, &format!("{seconds}:{first}"))
}

fn play(names: &[String], what: &str) -> Outcome {
    let mut command = cargo(&["test", "--locked", "-p", "cli", "--test", "sequences", "--"]);
    check(command.args(names).env("CORACLE_FUZZ", what))
}
