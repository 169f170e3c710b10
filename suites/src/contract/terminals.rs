//! Tests of terminals: `-t` allocates a real one, of the caller's size, and Ctrl-C works.

use serde_json::{Value, json};
use testkit::intruder::intruder;
use testkit::skip::Outcome;
use testkit::terminal::Terminal;

use crate::contract::world::{Case, Container, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("is_a_terminal", is_a_terminal),
    ("has_a_name_and_an_owner", has_a_name_and_an_owner),
    ("raw_before_the_first_output", raw_before_the_first_output),
    ("size_follows", size_follows),
    ("ctrl_c_interrupts", ctrl_c_interrupts),
    ("exit_code", exit_code),
    ("keys_arrive", keys_arrive),
    ("detach_and_attach", detach_and_attach),
    ("own_detach_keys", own_detach_keys),
    ("no_terminal_without_t", no_terminal_without_t),
    ("t_without_terminal_outside", t_without_terminal_outside),
    ("interactive_alone_on_a_terminal", interactive_alone_on_a_terminal),
    ("the_program_cannot_type_for_the_caller", the_program_cannot_type_for_the_caller),
    ("jobs_without_a_terminal_of_their_own", jobs_without_a_terminal_of_their_own),
];

fn open(w: &World, flags: &[&str], guest: &[&str]) -> Terminal {
    Terminal::spawn(&w.command(&w.words(flags, guest)), 33, 101).expect("a terminal")
}

fn facts(terminal: &Terminal) -> Value {
    let text = terminal.text();
    let line = text.lines().rev().find(|line| line.starts_with('{')).unwrap_or_default();
    serde_json::from_str(line.trim()).unwrap_or_else(|_| panic!("no facts on the terminal: {text}"))
}

fn is_a_terminal(w: &World) -> Outcome {
    let mut terminal = open(w, &["-it"], &["tty"]);
    terminal.end();
    let facts = facts(&terminal);
    for name in ["stdin", "stdout", "stderr"] {
        assert_eq!(facts[name], json!(true), "{name}: {facts}");
    }
    assert_eq!(facts["size"], json!([33, 101]));
    assert_eq!(facts["controlling"], json!("yes"), "{facts}");
    let name = facts["name"].as_str().unwrap_or_default();
    assert!(
        name.starts_with("/dev/pts/") || name == "/dev/console",
        "the terminal's name: {facts}"
    );
    assert_eq!(facts["term"], json!("xterm"));
    Ok(())
}

/// It is in `/dev/pts` of the container, with any namespaces, and the program's user can open it by
/// name.
fn has_a_name_and_an_owner(w: &World) -> Outcome {
    let isolated = ["-it", "--isolate", "--network=none"];
    for flags in [
        isolated.as_slice(),
        &["-it", "--isolate", "--network=none", "--init", "-u", "1234"],
        &["-it", "-u", "1234"],
        &["-it", "--pid=private"],
        &["-it", "--device=/dev/zero:/dev/also-zero"],
    ] {
        let mut terminal = open(w, flags, &["tty", ";", "append", "/dev/tty", "by name"]);
        terminal.expect("by name");
        assert_eq!(terminal.end().and_then(|status| status.code()), Some(0), "{flags:?}");
        let facts = facts(&terminal);
        assert_eq!(facts["controlling"], json!("yes"), "{flags:?}: {facts}");
        assert_eq!(facts["size"], json!([33, 101]), "{flags:?}");
        let name = facts["name"].as_str().unwrap_or_default().to_owned();
        assert!(name.starts_with("/dev/pts/"), "{flags:?}: {facts}");
    }
    let words = ["append", "/dev/pts/0", "through the name", ";", "append", "/dev/console", "both"];
    let mut terminal = open(w, &isolated, &words);
    terminal.expect("through the name");
    terminal.expect("both");
    assert_eq!(terminal.end().and_then(|status| status.code()), Some(0));
    Ok(())
}

/// Who sees the program's first line may answer it with a key at once. A terminal that was not raw
/// when the line came shows it with a second `\r`. Many at once are not all served in time.
fn raw_before_the_first_output(w: &World) -> Outcome {
    let mut terminals: Vec<_> = (0..12).map(|_| open(w, &["-it"], &["ready"])).collect();
    for terminal in &mut terminals {
        assert_eq!(terminal.end().and_then(|status| status.code()), Some(0));
        assert_eq!(terminal.text(), "ready\r\n");
    }
    Ok(())
}

fn size_follows(w: &World) -> Outcome {
    told_of_its_size(open(w, &["-it"], &["winch"]));
    Ok(())
}

/// The guest's `winch` on this terminal sees two changes of the size, and ends.
fn told_of_its_size(mut terminal: Terminal) {
    terminal.expect("ready Some([33, 101])");
    terminal.resize(40, 120).expect("resizing");
    terminal.expect("size Some([40, 120])");
    terminal.resize(10, 20).expect("resizing");
    terminal.expect("size Some([10, 20])");
    assert_eq!(terminal.end().and_then(|status| status.code()), Some(0));
}

fn ctrl_c_interrupts(w: &World) -> Outcome {
    let mut terminal = open(w, &["-it"], &["await", "INT"]);
    terminal.expect("ready");
    terminal.type_in(b"\x03").expect("typing");
    terminal.expect("got SIGINT");
    assert_eq!(terminal.end().and_then(|status| status.code()), Some(0));
    let mut terminal = open(w, &["-it"], &["ready", ";", "sleep", "60"]);
    terminal.expect("ready");
    terminal.type_in(b"\x03").expect("typing");
    assert_eq!(terminal.end().and_then(|status| status.code()), Some(130), "{}", terminal.text());
    Ok(())
}

fn exit_code(w: &World) -> Outcome {
    for code in [0, 42, 127] {
        let mut terminal = open(w, &["-it"], &["exit", &code.to_string()]);
        assert_eq!(terminal.end().and_then(|status| status.code()), Some(code));
    }
    Ok(())
}

fn keys_arrive(w: &World) -> Outcome {
    let mut terminal = open(w, &["-it"], &["keys"]);
    terminal.expect("ready");
    terminal.type_in("ä\nq\n".as_bytes()).expect("typing");
    for key in ["key 195", "key 164", "key 10", "key 113"] {
        terminal.expect(key);
    }
    assert_eq!(terminal.end().and_then(|status| status.code()), Some(0));
    Ok(())
}

fn detach_and_attach(w: &World) -> Outcome {
    let name = w.name("detach");
    let container = Container::named(w, &name);
    let words = w.words_for(
        &["run"],
        &["-it", "--name", &name],
        &["ready", ";", "keys", ";", "sleep", "60"],
    );
    let mut terminal = Terminal::spawn(&w.command(&words), 24, 80).expect("a terminal");
    terminal.expect("ready");
    terminal.type_in(b"\x10\x11").expect("typing");
    let end = terminal.end();
    assert_eq!(end.and_then(|status| status.code()), Some(0), "detaching: {}", terminal.text());
    assert_eq!(container.inspect("{{.State.Running}}"), "true");
    let mut again = Terminal::spawn(&w.command(&["attach", &name]), 24, 80).expect("a terminal");
    std::thread::sleep(std::time::Duration::from_millis(500));
    again.type_in(b"z\n").expect("typing");
    again.expect("key 122");
    again.type_in(b"\x10\x11").expect("typing");
    assert_eq!(again.end().and_then(|status| status.code()), Some(0));
    assert_eq!(container.inspect("{{.State.Running}}"), "true");
    Ok(())
}

fn own_detach_keys(w: &World) -> Outcome {
    let name = w.name("keys");
    let container = Container::named(w, &name);
    let flags = ["-it", "--name", &name, "--detach-keys=ctrl-x,d"];
    let words = w.words_for(&["run"], &flags, &["keys"]);
    let mut terminal = Terminal::spawn(&w.command(&words), 24, 80).expect("a terminal");
    terminal.expect("ready");
    terminal.type_in(b"\x10a\n").expect("typing");
    terminal.expect("key 97");
    terminal.type_in(b"\x18d").expect("typing");
    assert_eq!(terminal.end().and_then(|status| status.code()), Some(0), "{}", terminal.text());
    assert_eq!(container.inspect("{{.State.Running}}"), "true");
    Ok(())
}

fn no_terminal_without_t(w: &World) -> Outcome {
    let facts = w.json(&["-i"], &["tty"]);
    assert_eq!((&facts["stdin"], &facts["stdout"]), (&json!(false), &json!(false)));
    assert_eq!(facts["size"], Value::Null);
    Ok(())
}

fn t_without_terminal_outside(w: &World) -> Outcome {
    let done = w.guest(&["-t"], &["tty"]);
    let facts = crate::contract::world::json(&done);
    assert_eq!(facts["stdout"], json!(true), "{done:?}");
    Ok(())
}

/// `-i` without `-t` passes the caller's own terminal to the program.
fn interactive_alone_on_a_terminal(w: &World) -> Outcome {
    let mut terminal = open(w, &["-i"], &["tty"]);
    terminal.end();
    assert!(!terminal.text().contains("error:"), "{}", terminal.text());
    let _ = facts(&terminal);
    Ok(())
}

const ISOLATED: [&str; 3] = ["-i", "--isolate", "--network=none"];

/// With the caller's terminal as its own a hostile program could type into the caller's shell.
fn the_program_cannot_type_for_the_caller(w: &World) -> Outcome {
    w.boundary()?;
    let place = w.dir("typing");
    intruder(&place)?;
    let volume = format!("{}:/intruder", place.display());
    let mode = w.mode();
    let check = |words: &[&str]| {
        let mut terminal = Terminal::spawn(&w.command(words), 24, 80).expect("a terminal");
        terminal.expect("console:");
        assert_eq!(terminal.end().and_then(|status| status.code()), Some(0), "{words:?}");
        let text = terminal.text();
        assert!(text.contains("plain: EPERM") && !text.contains("typed"), "{words:?}: {text}");
    };
    let lax = [
        "--security-opt=seccomp=unconfined",
        "--security-opt=no-new-privileges=false",
        "--cap-add=ALL",
    ];
    for more in [&[][..], &lax] {
        let words = [&["run", "--rm", &mode], &ISOLATED[..], more, &["-v", &volume]].concat();
        check(&[&words[..], &[&w.image, "/intruder/intruder", "type"]].concat());
    }
    let c = w.detached(&["--isolate", "--network=none", "-v", &volume], &["sleep", "300"]);
    check(&["exec", "-i", &c.name, "/intruder/intruder", "type"]);
    Ok(())
}

/// The session stays the caller's: keys reach the program, the shell can stop and continue it, and
/// the size is the terminal's.
fn jobs_without_a_terminal_of_their_own(w: &World) -> Outcome {
    w.boundary()?;
    let words = |guest: &[&str]| w.words(&ISOLATED, guest);
    let spawn = |words: &[String]| Terminal::spawn(&w.command(words), 33, 101).expect("a terminal");
    let mut terminal = spawn(&words(&["await", "INT"]));
    terminal.expect("ready");
    terminal.type_in(b"\x03").expect("typing");
    terminal.expect("got SIGINT");
    assert_eq!(terminal.end().and_then(|status| status.code()), Some(0), "{}", terminal.text());
    told_of_its_size(spawn(&words(&["winch"])));
    let mut shell = w.user.command("bash", &w.home);
    shell.args(["--norc", "--noprofile", "-i"]).env("PS1", "prompt> ");
    let mut terminal = Terminal::spawn(&shell, 33, 101).expect("a terminal");
    terminal.expect("prompt> ");
    let line = words(&["ready", ";", "keys"]);
    let quoted: Vec<_> = line.iter().map(|word| format!("'{word}'")).collect();
    let line = format!("{} {}\n", w.coracle.display(), quoted.join(" "));
    terminal.type_in(line.as_bytes()).expect("typing");
    terminal.expect("ready\r\nready");
    terminal.type_in(b"\x1a").expect("typing");
    terminal.expect("Stopped");
    terminal.type_in(b"echo shell-$((6*7))\n").expect("typing");
    terminal.expect("shell-42");
    terminal.type_in(b"fg\n").expect("typing");
    std::thread::sleep(std::time::Duration::from_millis(500));
    terminal.type_in(b"q\n").expect("typing");
    terminal.expect("key 113");
    terminal.type_in(b"exit\n").expect("typing");
    terminal.end();
    Ok(())
}
