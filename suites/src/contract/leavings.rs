//! Tests of what a run in the foreground leaves behind: its state, its code, its log, no process.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use testkit::command::until;
use testkit::running::Running;
use testkit::skip::Outcome;
use testkit::terminal::Terminal;

use crate::contract::removal::{seconds, sleepers};
use crate::contract::world::{Case, Container, World, json as parse};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("state_code_times_and_log", state_code_times_and_log),
    ("each_run_of_a_container_is_recorded", each_run_of_a_container_is_recorded),
    ("death_by_signal_is_recorded", death_by_signal_is_recorded),
    ("the_log_can_be_followed", the_log_can_be_followed),
    ("following_ends_where_nothing_runs", following_ends_where_nothing_runs),
    ("a_run_on_a_terminal_has_a_log", a_run_on_a_terminal_has_a_log),
    ("the_end_of_a_flood_is_logged", the_end_of_a_flood_is_logged),
    ("outputs_are_pipes", outputs_are_pipes),
    ("without_a_log_the_caller_s_file_is_kept", without_a_log_the_caller_s_file_is_kept),
    ("a_rank_keeps_the_caller_s_file", a_rank_keeps_the_caller_s_file),
    ("no_process_of_a_run_stays", no_process_of_a_run_stays),
    ("a_program_of_exec_ends_with_the_run", a_program_of_exec_ends_with_the_run),
    ("output_that_is_lost_is_an_error", output_that_is_lost_is_an_error),
    ("a_silent_program_ends_with_its_signal", a_silent_program_ends_with_its_signal),
    ("a_job_is_stopped_and_continued", a_job_is_stopped_and_continued),
];

const TEN: Duration = Duration::from_secs(10);

/// Runs the guest in a new container of that name.
fn named<'w>(w: &'w World, flags: &[&str], guest: &[&str]) -> (Container<'w>, i32) {
    let container = Container::named(w, &w.name("left"));
    let flags = [&["--name", &container.name], flags].concat();
    let code = w.coracle(&w.words_for(&["run"], &flags, guest)).code();
    (container, code)
}

fn state_code_times_and_log(w: &World) -> Outcome {
    for flags in [&[][..], &["--log-driver=json-file"]] {
        let guest = ["say", "out", ";", "complain", "err", ";", "exit", "3"];
        let (c, code) = named(w, flags, &guest);
        assert_eq!(
            (code, c.inspect("{{.State.Status}} {{.State.ExitCode}}")),
            (3, "exited 3".into())
        );
        let (begun, ended) =
            (c.inspect("{{.State.StartedAt}}"), c.inspect("{{.State.FinishedAt}}"));
        assert!(begun.starts_with("20") && begun < ended, "{begun} to {ended}");
        assert_eq!(w.coracle(&["wait", &c.name]).ok().line(), "3");
        let log = w.coracle(&["logs", &c.name]);
        assert_eq!((log.ok().out(), log.err()), ("out\n".to_owned(), "err\n".to_owned()));
        assert_eq!(w.coracle(&["logs", "-f", &c.name]).ok().out(), "out\n");
        w.coracle(&["rm", &c.name]).ok();
    }
    Ok(())
}

fn each_run_of_a_container_is_recorded(w: &World) -> Outcome {
    let (c, _) = named(w, &[], &["say", "first"]);
    let begun = c.inspect("{{.State.StartedAt}}");
    w.coracle(&["run", &c.name, "/bin/guest", "say", "second", ";", "exit", "4"]).expect(4);
    assert_eq!(c.inspect("{{.State.ExitCode}}"), "4");
    assert!(c.inspect("{{.State.StartedAt}}") > begun);
    assert_eq!(w.coracle(&["logs", &c.name]).ok().out(), "first\nsecond\n");
    Ok(())
}

fn death_by_signal_is_recorded(w: &World) -> Outcome {
    for (signal, code) in [("9", 137), ("15", 143), ("11", 139)] {
        let (c, seen) = named(w, &[], &["signal", signal]);
        assert_eq!((seen, c.inspect("{{.State.ExitCode}}")), (code, code.to_string()));
    }
    Ok(())
}

fn the_log_can_be_followed(w: &World) -> Outcome {
    let c = Container::named(w, &w.name("followed"));
    let words = w.words_for(&["run"], &["--name", &c.name], &["await", "USR1", ";", "say", "end"]);
    let mut run = Running::start(&mut w.command(&words));
    run.expect("ready");
    assert_eq!(c.inspect("{{.State.Status}}"), "running");
    let mut follow = Running::start(&mut w.command(&["logs", "-f", &c.name]));
    follow.expect("ready");
    run.signal(Signal::USR1);
    assert_eq!((run.end(TEN), follow.end(TEN)), (0, 0), "{}", follow.text());
    assert!(follow.text().ends_with("end\n"), "{}", follow.text());
    Ok(())
}

fn following_ends_where_nothing_runs(w: &World) -> Outcome {
    let c = Container::named(w, &w.name("never"));
    w.coracle(&["create", &w.mode(), "--name", &c.name, &w.image]).ok();
    let mut follow = Running::start(&mut w.command(&["logs", "-f", &c.name]));
    assert_eq!((follow.end(TEN), follow.text()), (0, String::new()));
    Ok(())
}

fn a_run_on_a_terminal_has_a_log(w: &World) -> Outcome {
    let c = Container::named(w, &w.name("screen"));
    let words =
        w.words_for(&["run"], &["-t", "--name", &c.name], &["say", "shown", ";", "exit", "5"]);
    let mut terminal = Terminal::spawn(&w.command(&words), 24, 80).expect("a terminal");
    assert_eq!(terminal.end().and_then(|status| status.code()), Some(5), "{}", terminal.text());
    assert_eq!(c.inspect("{{.State.ExitCode}}"), "5");
    assert_eq!(w.coracle(&["logs", &c.name]).ok().out(), "shown\r\n");
    Ok(())
}

/// More than a log keeps: what is left out is what rotation would have removed.
fn the_end_of_a_flood_is_logged(w: &World) -> Outcome {
    let (c, code) = named(w, &["--log-opt=max-size=1m"], &["flood", "24", ";", "say", "end"]);
    assert_eq!(code, 0);
    let log = w.coracle(&["logs", "-n", "2", &c.name]).ok().out();
    let last = format!("{:063}", (24 << 20) / 64 - 1);
    assert_eq!(log, format!("{last}\nend\n"));
    let whole = w.coracle(&["logs", &c.name]).ok().out();
    let numbers: Vec<u64> = whole.lines().filter_map(|line| line.parse().ok()).collect();
    assert!(numbers.len() > 10_000 && numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    Ok(())
}

fn outputs_are_pipes(w: &World) -> Outcome {
    let done = w.coracle(&w.words_for(&["run"], &[], &["fds"]));
    let fds = parse(&done);
    for number in ["1", "2"] {
        assert!(fds[number].as_str().is_some_and(|link| link.starts_with("pipe:")), "{fds}");
    }
    Ok(())
}

/// Runs `fds` with a file as standard output; what descriptor 1 is, with that file.
fn output_of(w: &World, c: &Container<'_>, flags: &[&str], variables: &[(&str, &str)]) -> String {
    let path = w.file(&w.dir("kept"), "out", "");
    let flags = [&["--name", &c.name], flags].concat();
    let mut command = w.command(&w.words_for(&["run"], &flags, &["fds", ";", "exit", "6"]));
    command.envs(variables.iter().copied());
    command.stdout(OpenOptions::new().append(true).open(&path).expect("the file"));
    let done = command.stdin(Stdio::null()).output().expect("running");
    assert_eq!(done.status.code(), Some(6), "{done:?}");
    let text = std::fs::read_to_string(&path).expect("the file");
    let fds: serde_json::Value = serde_json::from_str(&text).expect("descriptors");
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let link = fds["1"].as_str().unwrap_or_default().to_owned();
    assert_eq!(name(Path::new(&link)), name(&path), "{fds}");
    link
}

fn without_a_log_the_caller_s_file_is_kept(w: &World) -> Outcome {
    let c = Container::named(w, &w.name("bare"));
    output_of(w, &c, &["--log-driver=none"], &[]);
    assert_eq!(w.coracle(&["logs", &c.name]).out(), "");
    // How it ended is known to its caller alone.
    assert_eq!(c.inspect("{{.State.Status}} {{.State.ExitCode}}"), "exited 255");
    assert!(c.inspect("{{.State.StartedAt}}").starts_with("20"));
    let mut run = Running::start(&mut w.command(&["run", &c.name, "/bin/guest", "await", "TERM"]));
    run.expect("ready");
    assert_eq!(c.inspect("{{.State.Status}}"), "running");
    run.signal(Signal::TERM);
    assert_eq!(run.end(TEN), 0, "{}", run.text());
    Ok(())
}

fn a_rank_keeps_the_caller_s_file(w: &World) -> Outcome {
    let c = Container::named(w, &w.name("rank"));
    output_of(w, &c, &[], &[("PMI_RANK", "0"), ("PMI_SIZE", "1")]);
    Ok(())
}

/// As in Docker, where the first process ends the container.
fn no_process_of_a_run_stays(w: &World) -> Outcome {
    let behind = seconds();
    let (c, code) = named(w, &[], &["orphan", "/bin/guest", "sleep", &behind]);
    assert_eq!((code, sleepers(&behind)), (0, 0));
    assert_eq!(c.inspect("{{.State.Status}}"), "exited");
    w.coracle(&["rm", &c.name]).ok();
    Ok(())
}

fn a_program_of_exec_ends_with_the_run(w: &World) -> Outcome {
    let c = Container::named(w, &w.name("entered"));
    let words = w.words_for(&["run"], &["--name", &c.name], &["await", "USR1"]);
    let mut run = Running::start(&mut w.command(&words));
    run.expect("ready");
    let behind = seconds();
    c.exec(&[], &["orphan", "/bin/guest", "sleep", &behind]).ok();
    assert_eq!(sleepers(&behind), 1);
    run.signal(Signal::USR1);
    assert_eq!((run.end(TEN), sleepers(&behind)), (0, 0), "{}", run.text());
    Ok(())
}

fn output_that_is_lost_is_an_error(w: &World) -> Outcome {
    let mut command = w.command(&w.words_for(&["run"], &[], &["say", "into nothing"]));
    command.stdout(File::options().write(true).open("/dev/full").expect("/dev/full"));
    let done = command.stdin(Stdio::null()).output().expect("running");
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && text.contains("No space left"), "{done:?}");
    Ok(())
}

/// As in Docker, a Ctrl-C that ends the program is an exit code of the command.
fn a_silent_program_ends_with_its_signal(w: &World) -> Outcome {
    let words = w.words_for(&["run"], &[], &["ready", ";", "sleep", "300"]);
    let mut terminal = Terminal::spawn(&w.command(&words), 24, 80).expect("a terminal");
    terminal.expect("ready");
    terminal.type_in(b"\x03").expect("typing");
    let end = terminal.end().expect("an end");
    assert_eq!(end.code(), Some(130), "{end}: {}", terminal.text());
    Ok(())
}

/// Ctrl-Z, `fg` and Ctrl-C in a shell.
fn a_job_is_stopped_and_continued(w: &World) -> Outcome {
    let Some(bash) = ["/bin/bash", "/usr/bin/bash"].iter().find(|path| Path::new(path).exists())
    else {
        testkit::skip!("bash is not installed");
    };
    let c = Container::named(w, &w.name("job"));
    let mut shell = w.user.command(Path::new(bash), &w.home);
    shell.args(["--norc", "-i"]).env("PS1", "shell> ");
    let mut terminal = Terminal::spawn(&shell, 24, 200).expect("a terminal");
    terminal.expect("shell> ");
    let words = w.words_for(&["run"], &["--name", &c.name], &["await", "INT"]).join(" ");
    let line = format!("{} {words}\n", w.coracle.display());
    terminal.type_in(line.as_bytes()).expect("typing");
    terminal.expect("ready");
    let is_seen = || c.inspect("{{.State.Running}}") == "true";
    assert!(until(TEN, || is_seen().then_some(())).is_some());
    terminal.type_in(b"\x1a").expect("typing");
    terminal.expect("Stopped");
    terminal.type_in(b"fg; echo after $?\n").expect("typing");
    terminal.expect("fg; echo");
    std::thread::sleep(Duration::from_millis(300));
    terminal.type_in(b"\x03").expect("typing");
    terminal.expect("got SIGINT");
    terminal.expect("after 0");
    terminal.type_in(b"exit\n").expect("typing");
    terminal.end();
    assert_eq!(c.inspect("{{.State.Status}} {{.State.ExitCode}}"), "exited 0");
    Ok(())
}
