//! Tests of `-t`: sizes, keys, detaching, and job control.

use std::process::Command;

use sys::terminal::{Size, resize};

use crate::support::{Place, Terminal, code, driver, eventually, runs};

const SIZE: Size = Size { rows: 33, columns: 101 };

fn start(place: &Place, flags: &[&str], words: &[&str]) -> Terminal {
    Terminal::start(&place.command("run", flags, words), SIZE)
}

#[test]
fn the_program_has_a_terminal_of_the_callers_size_that_follows_it() {
    let place = Place::new();
    // Without a trap a shell goes on whose child ends by itself while the key is typed.
    let script = "trap 'exit 130' INT; trap 'stty size' WINCH; stty size; tty; echo ready; \
                  while :; do sleep 0.05; done";
    let mut terminal = start(&place, &["-i", "-t"], &["bash", "-c", script]);
    terminal.expect("33 101\r\n/dev/pts/");
    terminal.expect("ready");
    resize(&terminal.pty.master, Size { rows: 44, columns: 90 }).unwrap();
    terminal.expect("44 90");
    terminal.type_in("\x03");
    assert_eq!(terminal.code(), Some(130));
}

#[test]
fn the_callers_terminal_is_raw_meanwhile_and_restored_after() {
    let place = Place::new();
    let mut terminal = start(&place, &["-i", "-t"], &["sh", "-c", "echo ready; read line; exit 6"]);
    terminal.expect("ready");
    eventually("raw", || terminal.is_raw());
    terminal.type_in("x\r");
    eventually("the end", || {
        terminal.read();
        terminal.child.try_wait().unwrap().is_some()
    });
    assert!(!terminal.is_raw());
    assert_eq!(terminal.code(), Some(6));
}

#[test]
fn a_terminated_command_restores_the_terminal() {
    let place = Place::new();
    let mut terminal = start(&place, &["-i", "-t"], &["sh", "-c", "echo ready; exec sleep 1000"]);
    terminal.expect("ready");
    eventually("raw", || terminal.is_raw());
    crate::support::send(terminal.child.id(), "TERM");
    eventually("the end", || terminal.child.try_wait().unwrap().is_some());
    assert!(!terminal.is_raw());
    assert_eq!(terminal.code(), Some(143));
}

#[test]
fn end_of_file_and_interrupt_are_keys() {
    let place = Place::new();
    let mut terminal = start(&place, &["-i", "-t"], &["cat"]);
    eventually("raw", || terminal.is_raw());
    terminal.type_in("hello\r");
    terminal.expect("hello\r\nhello\r\n");
    terminal.type_in("\x04");
    assert_eq!(terminal.code(), Some(0));
}

#[test]
fn input_from_a_pipe_ends_a_terminals_input_too() {
    let place = Place::new();
    let line =
        format!("printf 'a\\n' | {} run -i -t {} cat", driver().display(), place.path().display());
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a\r\na\r\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn detach_keys_leave_it_running_and_attach_comes_back() {
    let place = Place::new();
    let script = "echo ready; while read line; do echo got $line; done";
    let mut terminal = start(&place, &["-i", "-t", "--log"], &["sh", "-c", script]);
    terminal.expect("ready");
    eventually("raw", || terminal.is_raw());
    terminal.type_in("one\r");
    terminal.expect("got one");
    terminal.type_in("\x10");
    terminal.type_in("\x11");
    terminal.expect("detached");
    assert!(!terminal.is_raw());
    assert_eq!(terminal.code(), Some(0));
    assert!(place.observe().starts_with("Running"));

    let mut terminal = Terminal::start(&place.command("attach", &[], &[]), SIZE);
    eventually("raw", || terminal.is_raw());
    terminal.type_in("two\r");
    terminal.expect("got two");
    terminal.type_in("\x04");
    assert_eq!(terminal.code(), Some(0));
    assert!(place.observe().starts_with("Exited { code: 0 }"));
    assert!(std::fs::read_to_string(place.file("log.json")).unwrap().contains("got two"));
}

#[test]
fn a_closed_terminal_ends_the_program() {
    let place = Place::new();
    let mut terminal =
        start(&place, &["-i", "-t"], &["sh", "-c", "echo pid $$ end; exec sleep 1000"]);
    terminal.expect("pid ");
    terminal.expect(" end");
    eventually("raw", || terminal.is_raw());
    let Terminal { pty, child, .. } = terminal;
    drop(pty);
    assert!(code(child).is_some());
    eventually("the container ended", || !place.observe().starts_with("Running"));
}

#[test]
fn a_hundred_megabytes_pass_through_a_terminal_unharmed() {
    let place = Place::new();
    let script = "stty -opost; head -c 100000000 /dev/zero | tr '\\0' 'x'; printf END";
    let line = format!(
        "{} run -t {} sh -c \"{script}\" | wc -c",
        driver().display(),
        place.path().display()
    );
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "100000003");
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    for shape in ["", "--log"] {
        let place = Place::new();
        let mut shell = Terminal::start(Command::new("bash").args(["--norc", "-i"]), SIZE);
        shell.expect("prompt> ");
        let script = "echo ready; while read line; do echo got $line; done";
        let run = format!("{} run -i {shape} {}", driver().display(), place.path().display());
        shell.type_in(&format!("{run} sh -c '{script}'\r"));
        shell.expect("\nready");
        shell.type_in("\x1a");
        shell.expect("Stopped");
        shell.expect("prompt> ");
        shell.type_in("fg\r");
        shell.expect("run -i");
        shell.type_in("after\r");
        shell.expect("got after");
        shell.type_in("\x03");
        shell.expect("prompt> ");
        shell.type_in("echo code $?\r");
        shell.expect("code 130");
        shell.type_in("exit\r");
        assert_eq!(shell.code(), Some(0));
    }
}

#[test]
fn a_detached_container_survives_the_end_of_its_session() {
    let place = Place::new();
    let mut shell = Terminal::start(Command::new("bash").args(["--norc", "-i"]), SIZE);
    shell.expect("prompt> ");
    let dir = place.path().display();
    shell.type_in(&format!("{} run -d --log {dir} sleep 1000\r", driver().display()));
    eventually("it runs", || {
        shell.read();
        place.observe().starts_with("Running")
    });
    let Terminal { pty, child, .. } = shell;
    drop(pty);
    code(child);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(place.observe().starts_with("Running"));
    place.text("stop", &[], &["1"]);
    assert!(place.observe().starts_with("Exited { code: 143 }"));
}

#[test]
fn an_exec_session_has_a_terminal_and_leaves_no_trace() {
    let place = Place::new();
    let command = place.command("exec", &["-i", "-t"], &["sh", "-c", "stty size; exit 9"]);
    let mut terminal = Terminal::start(&command, SIZE);
    terminal.expect("33 101");
    assert_eq!(terminal.code(), Some(9));
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    let output = place.output("exec", &[], &["no-such-program"]);
    assert_eq!(output.status.code(), Some(127));
    let _ = runs(1);
}
