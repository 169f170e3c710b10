//! Tests of runs that the caller waits for, without terminal.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use crate::support::{Place, code, driver, eventually, runs, send};

/// With and without a supervisor between the caller and the program.
const SHAPES: [&[&str]; 2] = [&[], &["--log"]];

#[test]
fn the_exit_code_is_the_programs_own() {
    for shape in SHAPES {
        let place = Place::new();
        let exit = |script: &str| place.output("run", shape, &["sh", "-c", script]).status.code();
        assert_eq!(exit("exit 0"), Some(0));
        assert_eq!(exit("exit 7"), Some(7));
        assert_eq!(exit("kill -TERM $$"), Some(143));
        assert_eq!(exit("kill -KILL $$"), Some(137));
        assert!(place.observe().contains("Exited { code: 137 }"));
        assert_eq!(place.output("run", shape, &["no-such-program"]).status.code(), Some(127));
        assert_eq!(place.output("run", shape, &["/tmp"]).status.code(), Some(126));
        assert!(place.observe().contains("Dead"));
    }
}

#[test]
fn input_output_and_errors_go_their_ways() {
    for shape in SHAPES {
        let place = Place::new();
        let flags: Vec<&str> = [&["-i"], shape].concat();
        let mut child = place
            .command("run", &flags, &["sh", "-c", "cat; echo err >&2"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"some input\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.stdout, b"some input\n");
        assert_eq!(output.stderr, b"err\n");
        assert!(output.status.success());
    }
}

#[test]
fn without_i_the_input_is_empty_and_closed_descriptors_do_no_harm() {
    for shape in SHAPES {
        let place = Place::new();
        let line = format!(
            "exec {} run {} {} sh -c 'cat; echo done' <&-",
            driver().display(),
            shape.join(" "),
            place.path().display()
        );
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
    }
}

#[test]
fn a_reader_that_leaves_ends_the_program() {
    for shape in SHAPES {
        let place = Place::new();
        let mut child =
            place.command("run", shape, &["yes"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "y\n");
        // By SIGPIPE, or with a write error if the caller ignores that signal.
        assert!(matches!(code(child), Some(141 | 1)));
    }
}

#[test]
fn a_hundred_megabytes_pass_through_pipes_unharmed() {
    let place = Place::new();
    let script = "head -c 100000000 /dev/zero | tr '\\0' 'x'";
    let flags = ["--max-size", "1000000"];
    let mut child =
        place.command("run", &flags, &["sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut bytes = vec![0; 65536];
    let mut total = 0_usize;
    let mut out = child.stdout.take().unwrap();
    loop {
        let count = out.read(&mut bytes).unwrap();
        if count == 0 {
            break;
        }
        assert!(bytes[..count].iter().all(|&byte| byte == b'x'));
        total += count;
    }
    assert_eq!(total, 100_000_000);
    assert_eq!(code(child), Some(0));
}

#[test]
fn a_hundred_megabytes_of_input_arrive() {
    let place = Place::new();
    let line = format!(
        "head -c 100000000 /dev/zero | {} run -i --log {} wc -c",
        driver().display(),
        place.path().display()
    );
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "100000000");
}

#[test]
fn signals_are_forwarded() {
    for shape in SHAPES {
        for (signal, wanted) in [("TERM", 21), ("USR1", 22), ("HUP", 23), ("INT", 24)] {
            let place = Place::new();
            let script =
                format!("trap 'exit {wanted}' {signal}; echo ready; while :; do sleep 0.05; done");
            let mut child = place
                .command("run", shape, &["bash", "-c", &script])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            let mut out = BufReader::new(child.stdout.take().unwrap());
            out.read_line(&mut line).unwrap();
            send(child.id(), signal);
            assert_eq!(code(child), Some(wanted), "{signal} {shape:?}");
        }
    }
}

#[test]
fn what_the_program_leaves_behind_is_killed_but_not_what_was_there_before() {
    for shape in SHAPES {
        let place = Place::new();
        // `exec` makes the driver the parent of the shell's own background process.
        let line = format!(
            "sleep 1000 >/dev/null 2>&1 & echo $!; exec {} run {} {} sh -c \
             'sleep 1000 >/dev/null 2>&1 & echo $!; setsid sleep 1000 >/dev/null 2>&1 & echo $!'",
            driver().display(),
            shape.join(" "),
            place.path().display()
        );
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let pids: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(pids.len(), 3);
        assert!(runs(pids[0]), "not the container's: {shape:?}");
        send(pids[0], "KILL");
        assert!(!runs(pids[1]) && !runs(pids[2]), "left behind: {shape:?}");
    }
}

#[test]
fn a_killed_command_takes_the_program_along() {
    for shape in SHAPES {
        let place = Place::new();
        let mut child = place
            .command("run", shape, &["sh", "-c", "echo $$; exec sleep 1000"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let pid = line.trim().parse().unwrap();
        assert!(runs(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        eventually("the program is gone", || !runs(pid));
        eventually("the state says so", || !place.observe().contains("Running"));
    }
}

#[test]
fn cleanup_runs_after_the_end_however_it_comes() {
    for shape in SHAPES {
        for (script, wanted) in [("exit 5", "5"), ("kill -KILL $$", "137")] {
            let place = Place::new();
            let mark = place.file("removed");
            let flags: Vec<&str> = [&["--rm", mark.to_str().unwrap()], shape].concat();
            place.output("run", &flags, &["sh", "-c", script]);
            assert_eq!(std::fs::read_to_string(&mark).unwrap(), wanted);
        }
    }
}

#[test]
fn failures_are_restarted_until_the_limit_or_a_success() {
    for shape in SHAPES {
        let place = Place::new();
        let flags: Vec<&str> = [&["--restart", "2"], shape].concat();
        let output = place.output("run", &flags, &["sh", "-c", "echo try; exit 3"]);
        assert_eq!(output.stdout, b"try\ntry\ntry\n");
        assert_eq!(output.status.code(), Some(3));
        let output = place.output("run", &flags, &["sh", "-c", "echo once"]);
        assert_eq!(output.stdout, b"once\n");
    }
}

#[test]
fn several_runs_of_one_container_stand_side_by_side() {
    let place = Place::new();
    let first = place.detach(&["--log"], &["sleep", "1000"]);
    let output = place.output("run", &["--log"], &["sh", "-c", "echo second; exit 4"]);
    assert_eq!((output.stdout, output.status.code()), (b"second\n".to_vec(), Some(4)));
    assert!(runs(first.0));
    assert!(place.observe().contains(&format!("pid: {}", first.0)));
    assert_eq!(place.output("run", &["-d"], &["true"]).status.code(), Some(125));
    place.text("stop", &[], &["0"]);
    assert!(!runs(first.0));
}
