//! Tests of the log: Docker's form, every byte, rotation, following.

use std::io::Read;
use std::process::Stdio;

use crate::support::{Place, eventually};

#[test]
fn lines_are_dockers_and_bytes_are_kept() {
    let place = Place::new();
    let script = "printf 'a\\n\\377\\376\\n\\303\\244\\n'; echo err >&2; printf partial";
    place.output("run", &["--log"], &["sh", "-c", script]);
    let text = std::fs::read_to_string(place.file("log.json")).unwrap();
    assert!(text.starts_with("{\"log\":\"a\\n\",\"stream\":\"stdout\",\"time\":\"20"), "{text}");
    assert!(text.contains("\"stream\":\"stderr\""));
    assert!(text.contains("\"raw\":\"//4K\""), "{text}");
    let output = place.output("logs", &[], &[]);
    assert_eq!(output.stdout, b"a\n\xff\xfe\n\xc3\xa4\npartial");
    assert_eq!(output.stderr, b"err\n");
}

#[test]
fn long_lines_come_back_whole() {
    let place = Place::new();
    let script =
        "head -c 50000 /dev/zero | tr '\\0' 'x'; printf 'end\\n'; head -c 20001 /dev/urandom";
    let output = place.output("run", &["--log"], &["sh", "-c", script]);
    assert_eq!(output.stdout.len(), 70_005);
    assert_eq!(place.output("logs", &[], &[]).stdout, output.stdout);
}

#[test]
fn tail_counts_across_files() {
    let place = Place::new();
    place.output("run", &["--max-size", "5000"], &["seq", "1", "120"]);
    assert!(place.file("log.json.1").exists());
    let all = place.text("logs", &[], &[]);
    assert_eq!(all.lines().count(), 120);
    assert_eq!(place.text("logs", &[], &["--tail", "0"]), "");
    assert_eq!(place.text("logs", &[], &["--tail", "2"]), "119\n120\n");
    assert_eq!(place.text("logs", &[], &["--tail", "100"]).lines().count(), 100);
    assert_eq!(place.text("logs", &[], &["--tail", "5000"]), all);
}

#[test]
fn old_files_are_rotated_away_and_followers_miss_nothing() {
    let place = Place::new();
    // One line at a time, so that the follower keeps up with files of some 60 lines.
    let script =
        "i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo line $i; sleep 0.005; done; exit 2";
    place.detach(&["--max-size", "5000"], &["sh", "-c", script]);
    let mut follower = place.command("logs", &[], &["-f"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    follower.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(follower.wait().unwrap().success());
    let wanted = (1..=400).map(|number| format!("line {number}"));
    assert!(text.lines().eq(wanted), "{text}");
    assert!(place.file("log.json.2").exists() && !place.file("log.json.3").exists());
    for name in ["log.json", "log.json.1", "log.json.2"] {
        assert!(std::fs::metadata(place.file(name)).unwrap().len() <= 5000);
    }
}

#[test]
fn following_starts_before_the_first_line_and_ends_with_the_container() {
    let place = Place::new();
    place.detach(&["--log"], &["sh", "-c", "sleep 0.3; echo late"]);
    assert_eq!(place.text("logs", &[], &["-f"]), "late\n");
}

#[test]
fn a_torn_last_line_is_cut_off() {
    let place = Place::new();
    place.output("run", &["--log"], &["echo", "one"]);
    let path = place.file("log.json");
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str("{\"log\":\"half");
    std::fs::write(&path, text).unwrap();
    assert_eq!(place.text("logs", &[], &[]), "one\n");
    place.output("run", &["--log"], &["echo", "two"]);
    assert_eq!(place.text("logs", &[], &[]), "one\ntwo\n");
    eventually("always", || true);
}

#[test]
fn what_a_terminal_shows_is_logged() {
    let place = Place::new();
    place.output("run", &["-t", "--log"], &["echo", "shown"]);
    assert_eq!(place.text("logs", &[], &[]), "shown\r\n");
}
