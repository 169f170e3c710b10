//! Tests of the choice of an engine when the host forbids a feature, and of its explanation by
//! `doctor`.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use testkit::skip::Outcome;

use crate::cli::{Case, coracle, printed, transcript};

pub(super) const CASES: &[(&str, Case)] = &[
    ("the_choice_follows_what_the_host_allows", the_choice_follows_what_the_host_allows),
    (
        "a_directory_that_is_yet_to_be_a_store_stays_empty",
        a_directory_that_is_yet_to_be_a_store_stays_empty,
    ),
    ("a_process_of_a_trial_ends_with_it", a_process_of_a_trial_ends_with_it),
];

fn run(fence: &Path, home: &Path, forbidden: &[&str], words: &[&str]) -> Output {
    Command::new(fence)
        .args(forbidden)
        .arg("--")
        .arg(crate::program::coracle())
        .args(words)
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir(home)
        .output()
        .unwrap()
}

/// The forbidden features; the chosen mode; modes that are refused, each with a word of the reason.
type Choice<'a> = (&'a [&'a str], Option<&'a str>, &'a [(&'a str, &'a str)]);

fn the_choice_follows_what_the_host_allows() -> Outcome {
    let place = TempDir::new().unwrap();
    let Some(fence) = testkit::fence::fence(place.path()) else {
        testkit::skip!("no gcc");
    };
    let cases: [Choice<'_>; 4] = [
        (&["namespaces"], Some("I1"), &[("N1", "unshare")]),
        (
            &["namespaces", "tracing"],
            Some("I1"),
            &[("N1", "unshare"), ("P1", "ptrace"), ("P2", "ptrace")],
        ),
        (
            &["namespaces", "filters"],
            Some("P2"),
            &[("N1", "unshare"), ("I1", "seccomp"), ("I2", "seccomp"), ("P1", "seccomp")],
        ),
        (
            &["namespaces", "filters", "tracing"],
            Some("F2"),
            &[("N1", "unshare"), ("I1", "seccomp"), ("P1", "ptrace"), ("P2", "ptrace")],
        ),
    ];
    for (forbidden, chosen, refused) in cases {
        let home = TempDir::new().unwrap();
        let done = run(&fence, home.path(), forbidden, &["doctor", "--format", "json"]);
        assert_eq!(done.status.code(), Some(i32::from(chosen.is_none())), "{}", transcript(&done));
        let report: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(report["chosen"].as_str(), chosen, "{forbidden:?}: {}", transcript(&done));
        for (mode, word) in refused {
            let engines = report["engines"].as_array().unwrap();
            let engine = engines.iter().find(|engine| engine["mode"] == *mode).unwrap();
            let why = engine["why"].as_str().unwrap_or_default();
            assert!(engine["state"] == "unusable" && why.contains(word), "{forbidden:?}: {engine}");
        }
        let networks = report["networks"].as_array().unwrap();
        let states: Vec<_> = networks.iter().map(|network| network["state"].as_str()).collect();
        // The host's, those with names, those of packets.
        assert_eq!(states, [Some("ready"), Some("ready"), Some("unusable")], "{report}");
        // For people: a line for each engine and network, with the reason on it.
        let text = transcript(&run(&fence, home.path(), forbidden, &["doctor"]));
        assert_eq!(text.matches(", chosen").count(), usize::from(chosen.is_some()), "{text}");
        assert_eq!(text.matches(": unusable: ").count(), refused_in(&report), "{text}");
    }
    Ok(())
}

fn refused_in(report: &Value) -> usize {
    let lines = |part: &str| report[part].as_array().unwrap().clone();
    let lines = lines("engines").into_iter().chain(lines("networks"));
    lines.filter(|line| line["state"] == "unusable").count()
}

/// Facts about a host are cached in stores, and nowhere else.
fn a_directory_that_is_yet_to_be_a_store_stays_empty() -> Outcome {
    let home = TempDir::new().unwrap();
    let place = home.path().join(".local/share/coracle");
    std::fs::create_dir_all(&place).unwrap();
    transcript(&coracle(home.path(), &["doctor"]));
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);
    printed(home.path(), &["create", "hello"]);
    assert!(place.join("store.json").exists());
    Ok(())
}

/// A trial ends one of the guest's processes by a signal. Where the trial itself is ended before
/// that, the process ends too: it keeps nothing that it was given, such as the lock of a cluster.
fn a_process_of_a_trial_ends_with_it() -> Outcome {
    let mut command = Command::new(crate::program::coracle());
    command.args(["_self-test", "wait"]).stdin(Stdio::piped());
    let mut waiting = command.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(waiting.try_wait().unwrap(), None, "it waits for a signal");
    drop(waiting.stdin.take());
    let ended = testkit::command::until(Duration::from_secs(30), || waiting.try_wait().unwrap());
    assert_eq!(ended.and_then(|status| status.code()), Some(1));
    Ok(())
}
