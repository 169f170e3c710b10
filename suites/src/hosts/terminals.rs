//! Terminals of commands in containers on other hosts.

#![expect(clippy::unnecessary_wraps, reason = "every case has the type of its table")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use testkit::command::{Input, run_with, until};
use testkit::skip::Outcome;
use testkit::terminal::Terminal;

use crate::hosts::lab::{Case, IMAGE, LIMIT, Lab};

pub(crate) const CASES: &[(&str, Case)] = &[("ssh::terminals", over_ssh)];

/// What runs on the terminal: waits for a line, another size, ctrl-C and the end of input.
pub(crate) const TALK: &str = "tty; stty size; echo ready; read word; echo got $word; \
                               trap 'stty size; echo resized; again=1' WINCH; \
                               trap 'echo interrupted; asked=1' INT; \
                               echo trapped; until test $again; do sleep 0.1; done; \
                               until test $asked; do sleep 0.1; done; cat; echo over; exit 7";

/// The terminal with a command, and behind it what `stty` says of the caller's own.
fn open(lab: &Lab, coracle: &str) -> Terminal {
    let script = format!("{coracle}; echo status $?; stty -a");
    spawn(&lab.command(0, Path::new("/bin/sh"), &["-c", &script]))
}

pub(crate) fn spawn(command: &Command) -> Terminal {
    Terminal::spawn(command, 33, 101).expect("a terminal")
}

/// Waits longer than [`Terminal::expect`]: a command on another host begins.
pub(crate) fn expect(terminal: &Terminal, text: &str) {
    terminal.expect_within(text, LIMIT);
}

/// Talks to [`TALK`].
pub(crate) fn talk(terminal: &mut Terminal) {
    expect(terminal, "/dev/pts/");
    expect(terminal, "33 101\r\nready");
    terminal.type_in(b"word\r").expect("keys");
    expect(terminal, "got word\r\ntrapped");
    terminal.resize(40, 120).expect("another size");
    expect(terminal, "40 120\r\nresized");
    terminal.type_in(b"\x03").expect("a key");
    expect(terminal, "interrupted");
    terminal.type_in(b"\x04").expect("a key");
    expect(terminal, "over");
    expect(terminal, "status 7");
    // Keys that the caller's terminal would have acted on have passed, and now it does again.
    expect(terminal, "-extproc");
    let text = terminal.text();
    let own = text.split("status 7").nth(1).unwrap_or_default();
    for mode in ["icanon", "isig", "echo", "opost", "icrnl"] {
        assert!(own.split_whitespace().any(|word| word == mode), "{mode} is not restored: {text}");
    }
    assert!(text.matches("got word").count() == 1, "{text}");
}

fn over_ssh(lab: &Lab) -> Outcome {
    let hosts = ["host2", "host3"];
    let text = format!("name = \"tty\"\nimage = {IMAGE:?}\nnodes = 2\n{}", lab.ssh(&hosts));
    let file = lab.file("tty.toml", &text);
    lab.run(0, &["cluster", "up", "-d", "-f", &file]).ok();
    let program = lab.people[0].program.display();
    let quoted = format!("sh -c {}", quote(TALK));
    talk(&mut open(lab, &format!("{program} cluster exec -it tty node2 {quoted}")));
    talk(&mut open(lab, &format!("{program} cluster run -f {file} --on node1 -- {quoted}")));
    // A signal of the keyboard that no program waits for ends one, whose status counts.
    let mut terminal =
        open(lab, &format!("{program} cluster exec -it tty node1 sh -c 'echo go; sleep 600'"));
    expect(&terminal, "go\r\n");
    terminal.type_in(b"\x03").expect("a key");
    expect(&terminal, "status 130");
    // Without a terminal there the program has none.
    let run =
        format!("{program} cluster run -f {file} --on node2 -T -- sh -c 'test -t 1; exit 8$?'");
    expect(&open(lab, &run), "status 81");
    // The window is closed: nothing of the command is left.
    let terminal = open(lab, &format!("{program} cluster exec -it tty node2 sleep 6543"));
    let runs = || {
        let mut look = lab.command(2, Path::new("/bin/sh"), &["-c", "pgrep -fx 'sleep 6543'"]);
        run_with(&mut look, Input::Null, LIMIT).code() == 0
    };
    assert!(until(LIMIT, || runs().then_some(())).is_some(), "{}", terminal.text());
    drop(terminal);
    assert!(until(Duration::from_mins(1), || (!runs()).then_some(())).is_some());
    lab.run(0, &["cluster", "down", "tty"]).ok();
    Ok(())
}

pub(crate) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
