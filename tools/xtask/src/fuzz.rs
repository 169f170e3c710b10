//! `cargo xtask fuzz`: runs new random sequences of system calls in a real chroot and in every
//! engine; `fuzz index` reads new damaged indexes of images.
//!
//! The suite `sequences` does the work and shortens a sequence that shows a fault. A sequence whose
//! fault has been mended belongs into the suite's `corpus`. Indexes are the test `index` of `abi`.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::shell::{Outcome, cargo, check, suites};

/// Seconds for every engine, user and mode, unless the caller names a number.
const SECONDS: u64 = 60;

/// Words: seconds, then parts of case names; or `index` and seconds. `+SEED,SEED` instead of the
/// seconds runs the sequences of these seeds and shortens those that differ.
pub(crate) fn run(words: &[String]) -> Outcome {
    if let [first, rest @ ..] = words
        && first == "index"
    {
        let seconds = rest.first().and_then(|word| word.parse().ok()).unwrap_or(SECONDS);
        let test = ["test", "--locked", "-p", "abi", "--test", "index", "--", "--nocapture"];
        return check(cargo(&test).env("CORACLE_FUZZ", timed(seconds)?));
    }
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
    play(names, &timed(seconds)?)
}

/// So many seconds of what was not tried before.
fn timed(seconds: u64) -> Outcome<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
    Ok(format!("{seconds}:{}", now.as_secs() << 16))
}

fn play(names: &[String], what: &str) -> Outcome {
    let names: Vec<String> = names.iter().map(|name| format!("sequences::{name}")).collect();
    let mut command = suites(if names.is_empty() { &["sequences"] } else { &[] });
    check(command.args(names).env("CORACLE_FUZZ", what))
}
