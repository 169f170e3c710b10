//! Tests of `-d`, and of commands on programs in the background.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::support::{Place, code, eventually, runs, send};

#[test]
fn a_start_that_fails_is_reported_at_once() {
    let place = Place::new();
    let output = place.output("run", &["-d"], &["no-such-program"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-program: not found"));
    assert_eq!(place.output("run", &["-d"], &["/tmp"]).status.code(), Some(126));
    assert!(place.observe().contains("is a directory"));
}

#[test]
fn a_detached_supervisor_holds_nothing_of_its_caller() {
    let place = Place::new();
    // `sh` waits for the end of the pipe of which descriptor 5 is a copy.
    let line = format!(
        "echo $({} run -d {} sleep 1000 5>&1)",
        crate::support::driver().display(),
        place.path().display()
    );
    let output = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let supervisor: u32 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    let stat = engine::processes::stat(supervisor).unwrap();
    assert_eq!((stat.name.as_str(), stat.terminal), ("coracle-sup", 0));
    assert_ne!(stat.session, supervisor as i32, "a session leader could gain a terminal");
    let line = std::fs::read(format!("/proc/{supervisor}/cmdline")).unwrap();
    assert!(line.starts_with(b"coracle-sup test"));
    place.text("stop", &[], &["0"]);
    eventually("the supervisor ends", || !runs(supervisor));
}

#[test]
fn stop_is_polite_first() {
    let place = Place::new();
    place.detach(
        &["--log"],
        &["bash", "-c", "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done"],
    );
    eventually("it is up", || place.text("logs", &[], &[]).contains("up"));
    place.text("stop", &[], &["60"]);
    assert!(place.observe().starts_with("Exited { code: 5 }"));
    assert!(place.text("logs", &[], &[]).ends_with("bye\n"));
    place.text("stop", &[], &["60"]);
}

#[test]
fn stop_kills_what_does_not_listen_and_all_that_belongs_to_it() {
    let place = Place::new();
    let script = "trap '' TERM; setsid sleep 1000 & echo $!; while :; do sleep 0.05; done";
    let (pid, _) = place.detach(&["--log"], &["sh", "-c", script]);
    eventually("it is up", || !place.text("logs", &[], &[]).is_empty());
    let other: u32 = place.text("logs", &[], &[]).trim().parse().unwrap();
    assert!(place.text("top", &[], &[]).contains("sleep 1000"));
    place.text("stop", &[], &["0"]);
    assert!(place.observe().starts_with("Exited { code: 137 }"));
    assert!(!runs(pid) && !runs(other));
}

#[test]
fn kill_sends_any_signal_and_wait_tells_everyone() {
    let place = Place::new();
    let script = "trap 'exit 33' RTMIN+3; while :; do sleep 0.05; done";
    place.detach(
        &["--log"],
        &["bash", "-c", &format!("{script} & trap 'exit 33' RTMIN+3; echo up; wait")],
    );
    eventually("it is up", || place.text("logs", &[], &[]).contains("up"));
    let waiters: Vec<_> = (0..3)
        .map(|_| place.command("wait", &[], &[]).stdout(Stdio::piped()).spawn().unwrap())
        .collect();
    place.text("kill", &[], &["USR2"]).clear();
    for waiter in waiters {
        let output = waiter.wait_with_output().unwrap();
        assert_eq!(output.stdout, b"140\n");
    }
    assert_eq!(place.text("wait", &[], &[]), "140\n");
    assert_eq!(place.output("kill", &[], &["TERM"]).status.code(), Some(125));
    place.detach(
        &["--log"],
        &["bash", "-c", "trap 'exit 33' RTMIN+3; echo up again; while :; do sleep 0.05; done"],
    );
    eventually("it is up", || place.text("logs", &[], &[]).contains("up again"));
    place.text("kill", &[], &["SIGRTMIN+3"]);
    assert_eq!(place.text("wait", &[], &[]), "33\n");
}

#[test]
fn a_killed_supervisor_is_noticed_and_the_rest_can_be_stopped() {
    let place = Place::new();
    // It is killed too, unless it has changed its ids, which the kernel takes for this.
    let (pid, supervisor) = place.detach(&["--log"], &["sleep", "1000"]);
    send(supervisor, "KILL");
    eventually("the program is gone", || !runs(pid));
    let words = ["setpriv", "--pdeathsig", "clear", "sleep", "1000"];
    let (pid, supervisor) = place.detach(&["--log"], &words);
    let is_program = || engine::processes::stat(pid).is_some_and(|stat| stat.name == "sleep");
    eventually("the program runs", is_program);
    send(supervisor, "KILL");
    eventually("it is gone", || !runs(supervisor));
    let seen = place.observe();
    assert!(seen.starts_with("Running") && seen.contains("supervisor: None"), "{seen}");
    let output = place.output("attach", &[], &[]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("without a supervisor"));
    place.text("stop", &[], &["10"]);
    assert!(!runs(pid));
    assert!(place.observe().starts_with("Dead"));
    assert_eq!(place.text("wait", &[], &[]), "unknown\n");
    // And the next start works.
    assert_eq!(place.output("run", &["--log"], &["true"]).status.code(), Some(0));
    assert!(place.observe().starts_with("Exited { code: 0 }"));
}

#[test]
fn a_supervisor_that_is_asked_to_end_stops_its_container() {
    let place = Place::new();
    let (pid, supervisor) = place.detach(&["--log"], &["sleep", "1000"]);
    send(supervisor, "HUP");
    send(supervisor, "TERM");
    eventually("it is gone", || !runs(supervisor));
    assert!(!runs(pid));
    assert!(place.observe().starts_with("Exited { code: 143 }"));
}

#[test]
fn a_stopped_container_is_not_restarted_and_counts_are_kept() {
    let place = Place::new();
    place.detach(&["--log", "--restart", "99"], &["sh", "-c", "echo run; sleep 0.1; exit 1"]);
    eventually("it was restarted twice", || {
        std::fs::read_to_string(place.file("state.json")).unwrap().contains("\"restart_count\":2")
    });
    place.text("stop", &[], &["1"]);
    let seen = place.observe();
    assert!(seen.starts_with("Exited"), "{seen}");
}

#[test]
fn pause_stops_and_unpause_continues() {
    let place = Place::new();
    let (pid, _) = place.detach(&["--log"], &["sh", "-c", "while :; do sleep 0.05; done"]);
    place.text("pause", &[], &[]);
    let state = || engine::processes::stat(pid).unwrap().state;
    // A parent in `vfork` waits, uninterruptible, for its stopped child.
    eventually("it is stopped", || matches!(state(), 'T' | 'D'));
    assert!(place.observe().contains("paused: true"));
    place.text("unpause", &[], &[]);
    eventually("it goes on", || matches!(state(), 'R' | 'S'));
    assert!(place.observe().contains("paused: false"));
    place.text("pause", &[], &[]);
    place.text("stop", &[], &["60"]);
    assert!(place.observe().starts_with("Exited { code: 143 }"));
}

#[test]
fn several_clients_see_the_same_and_one_that_leaves_harms_nobody() {
    let place = Place::new();
    let script = "while read line; do echo got $line; [ $line = end ] && exit 8; done";
    place.detach(&["-i"], &["sh", "-c", script]);
    let attach = || {
        let mut command = place.command("attach", &[], &[]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut clients = [attach(), attach(), attach()];
    let mut outs: Vec<_> =
        clients.iter_mut().map(|client| BufReader::new(client.stdout.take().unwrap())).collect();
    // A client gets output from its greeting on: send until every client has got a line.
    for (index, out) in outs.iter_mut().enumerate() {
        let mut line = String::new();
        clients[index].stdin.as_mut().unwrap().write_all(b"all\n").unwrap();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "got all\n");
    }
    clients[0].kill().unwrap();
    clients[0].wait().unwrap();
    clients[1].stdin.as_mut().unwrap().write_all(b"end\n").unwrap();
    let [_, second, third] = clients;
    for (client, out) in [second, third].into_iter().zip(outs.into_iter().skip(1)) {
        let last = out.lines().last().unwrap().unwrap();
        assert_eq!(last, "got end");
        assert_eq!(code(client), Some(8));
    }
}

#[test]
fn a_client_that_does_not_read_does_not_hold_up_the_container() {
    let place = Place::new();
    let script = "read line; head -c 30000000 /dev/zero; echo end > $0; sleep 1000";
    let mark = place.file("mark");
    place.detach(&["-i"], &["sh", "-c", script, mark.to_str().unwrap()]);
    let mut client = place
        .command("attach", &[], &[])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    client.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    eventually("the program went on", || mark.exists());
    client.kill().unwrap();
    client.wait().unwrap();
    place.text("stop", &[], &["0"]);
}
