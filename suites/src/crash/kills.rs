//! Tests of `kill -9` at a random moment of a random command, repeatedly on one store.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::os::unix::process::CommandExt as _;
use testkit::person::Person;
use testkit::skip::Outcome;

use crate::crash::place::{Case, Dice, Place, pull, rounds, still_usable, whole};

pub(crate) const CASES: &[(&str, Case)] =
    &[("one_command_alone", one_command_alone), ("any_command", any_command)];

/// Starts the command and kills it after `moment`; returns true if it was still running.
fn kill_after(person: &Person, words: &[&str], moment: Duration, group: bool) -> bool {
    let mut command = person.command(words);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().expect("starting");
    let end = Instant::now() + moment;
    while Instant::now() < end {
        if !matches!(child.try_wait(), Ok(None)) {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
        let _ = if group {
            kill_process_group(pid, Signal::KILL)
        } else {
            kill_process(pid, Signal::KILL)
        };
    }
    let _ = child.wait();
    true
}

/// A pull into an empty store, killed at moments spread over its whole duration.
fn one_command_alone(place: &Place<'_>) -> Outcome {
    let measured = place.fresh("measure");
    let began = Instant::now();
    measured.run(&pull(&place.images.names[0])).ok();
    let whole_time = began.elapsed();
    let rounds = rounds(12);
    let person = place.fresh("alone");
    for round in 0..rounds {
        let moment = whole_time.mul_f64(
            (f64::from(u32::try_from(round).unwrap_or(0)) + 0.5)
                / f64::from(u32::try_from(rounds).unwrap_or(1)),
        );
        kill_after(&person, &pull(&place.images.names[0]), moment, false);
        let after = format!("a pull killed after {} ms (round {round})", moment.as_millis());
        still_usable(&person, &after);
        person.run(&["verify"]).ok();
        person.run(&pull(&place.images.names[0])).ok();
        let done = person.run(&["run", "--rm", &place.images.names[0], "/bin/guest", "exit", "7"]);
        assert_eq!(done.code(), 7, "{after}: {done:?}");
        person.run(&["rmi", "-f", &place.images.names[0]]).ok();
        person.run(&["image", "prune", "-a", "-f"]).ok();
    }
    whole(&person, place.images, "all of them");
    Ok(())
}

fn any_command(place: &Place<'_>) -> Outcome {
    let person = place.fresh("any");
    let archive = place.archive(&person).display().to_string();
    let [one, two] = &place.images.names;
    let commands: Vec<Vec<&str>> = vec![
        pull(one).to_vec(),
        pull(two).to_vec(),
        vec!["load", "-q", "-i", &archive],
        vec!["run", "--rm", "--pull=never", one, "/bin/guest", "write", "/x", "y"],
        vec!["run", "--pull=never", two, "/bin/guest", "sleep", "1"],
        vec!["run", "-d", "--pull=never", one, "/bin/guest", "sleep", "2"],
        vec!["create", "--name", "kept", "--pull=never", one],
        vec!["rm", "-f", "kept"],
        vec!["rm", "-f", "-a"],
        vec!["tag", one, "localhost/other:1"],
        vec!["rmi", "-f", "localhost/other:1"],
        vec!["rmi", "-f", one],
        vec!["image", "prune", "-a", "-f"],
        vec!["system", "prune", "-f"],
        vec!["volume", "create", "v"],
        vec!["rename", "kept", "other"],
    ];
    let mut dice = Dice::new(u64::from(place.person.user.range));
    let mut hits = 0;
    let rounds = rounds(60);
    for round in 0..rounds {
        let words = &commands[usize::try_from(dice.below(commands.len() as u64)).unwrap_or(0)];
        // Most commands take some ten milliseconds, pulls and loads some hundred.
        let window = if matches!(words[0], "pull" | "load") { 500_000 } else { 60_000 };
        let moment = Duration::from_micros(dice.below(window));
        hits += usize::from(kill_after(&person, words, moment, dice.below(2) == 0));
        let after = format!("round {round}: `{}` killed after {moment:?}", words.join(" "));
        still_usable(&person, &after);
        if round % 10 == 9 {
            let done = person.run(&["verify"]);
            assert_eq!(done.code(), 0, "{after}: {done:?}");
        }
    }
    println!("{hits} of {rounds} commands were killed while they ran");
    person.run(&["rm", "-f", "-a"]).ok();
    whole(&person, place.images, "all of them");
    // The next prune removes the leftovers of killed commands.
    person.run(&["rmi", "-f", "-a"]).ok();
    person.run(&["system", "prune", "-a", "-f"]).ok();
    for dir in ["tmp", "trash"] {
        let left = names(&person.store().join(dir));
        assert!(left.is_empty(), "{dir}/ still holds something after a prune: {left:?}");
    }
    for dir in ["oci/blobs/sha256", "layers", "containers"] {
        let left = names(&person.store().join(dir));
        assert!(left.is_empty(), "{dir}/ still holds what nothing refers to: {left:?}");
    }
    Ok(())
}

/// Every file and non-empty directory below.
fn names(dir: &std::path::Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.extend(self::names(&path));
        } else {
            names.push(path.display().to_string());
        }
    }
    names
}
