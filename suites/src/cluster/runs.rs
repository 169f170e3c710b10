//! `[run]`, `cluster run`, and how `up` ends.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use testkit::command::{Input, run_with, until};
use testkit::person::LIMIT;
use testkit::running::Running;
use testkit::terminal::Terminal;

use crate::cluster::Case;
use crate::cluster::world::{BOX, Lab};

pub(crate) const STATUS: Case = ("run_status", run_status);

pub(crate) const CASES: &[Case] = &[
    STATUS,
    ("run_again", run_again),
    ("run_on_a_terminal", run_on_a_terminal),
    ("run_is_asked_to_end", run_is_asked_to_end),
    ("interrupted_services", interrupted_services),
    ("interrupted_start", interrupted_start),
    ("streams_that_are_closed", streams_that_are_closed),
    ("killed_node", killed_node),
];

fn job(lab: &Lab<'_>, command: &str) {
    lab.file(&format!(
        "name = \"job\"\nimage = \"{BOX}\"\nnodes = 3\nenv = {{ A = \"1\", B = \"1\" }}\n\
         [run]\non = \"node2\"\nslots = 4\nenv = {{ B = \"2\" }}\ndirectory = \"/www\"\n\
         command = {command:?}\n"
    ));
}

fn run_status(lab: &Lab<'_>) {
    for (command, status) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
        ("exec /no/such/program", 127),
    ] {
        job(lab, command);
        lab.cluster("up", &[]).expect(status);
        lab.is_clean();
    }
    job(lab, "hostname; pwd; echo $A $B; cat /etc/coracle/hosts; echo oh >&2");
    let up = lab.cluster("up", &[]);
    let hosts = "node1 slots=4\nnode2 slots=4\nnode3 slots=4\n";
    assert_eq!(up.ok().out(), format!("node2\n/www\n1 2\n{hosts}"));
    assert!(up.err().ends_with("oh\n"), "{up:?}");
}

fn run_again(lab: &Lab<'_>) {
    job(lab, "echo $A $B; exit 6");
    let early = lab.cluster("run", &[]);
    let said = early.expect(125).err();
    assert!(said.contains("cluster job is not up"), "{said}");
    assert!(said.contains("hint: start it: coracle cluster up -d -f FILE"), "{said}");
    let up = lab.cluster("up", &["-d"]);
    assert!(up.ok().err().contains("[run] waits for"), "{up:?}");
    assert_eq!(up.out(), "");

    let run = lab.cluster("run", &[]);
    assert_eq!(run.expect(6).out(), "1 2\n");
    let words = ["--on", "node3", "-e", "B=5", "-e", "C=6", "-w", "/tmp", "--"];
    let command = ["sh", "-c", "hostname; pwd; echo $A $B $C; kill -9 $$"];
    let run = lab.cluster("run", &[&words[..], &command].concat());
    assert_eq!(run.expect(137).out(), "node3\n/tmp\n1 5 6\n");
    let run = lab.cluster("run", &["cat", "/etc/coracle/hosts"]);
    assert!(run.ok().out().starts_with("node1 slots=4\n"), "{run:?}");
    let file = lab.dir.join("lab.toml").display().to_string();
    let mut reads = lab.command(&["cluster", "run", "-f", &file, "cat"]);
    let bytes = b"\0\xff\n".repeat(100_000);
    let read = run_with(&mut reads, Input::Bytes(bytes.clone()), LIMIT);
    assert!(read.ok().stdout == bytes, "{} bytes came", read.stdout.len());
    let wrong = lab.cluster("run", &["--on", "node4", "true"]);
    assert!(wrong.expect(125).err().contains("there are node1 to node3"), "{wrong:?}");
    assert_eq!(lab.containers().len(), 3);
    lab.cluster("down", &[]).ok();

    lab.file(&format!("name = \"job\"\nimage = \"{BOX}\"\n[service.a]\ncommand = \"sleep 600\"\n"));
    let run = lab.cluster("run", &["true"]);
    assert!(run.expect(125).err().contains("cluster exec"), "{run:?}");
}

fn run_on_a_terminal(lab: &Lab<'_>) {
    let file = lab.file(&format!("name = \"tty\"\nimage = \"{BOX}\"\nnodes = 1\n"));
    lab.cluster("up", &["-d"]).ok();
    let command = ["sh", "-c", "tty; read word; echo got $word; exit 3"];
    let words = [&["cluster", "run", "-f", &file, "--"], &command[..]].concat();
    let mut terminal = Terminal::spawn(&lab.command(&words), 24, 80).expect("a terminal");
    terminal.expect("/dev/pts/");
    terminal.type_in(b"this\n").expect("a key");
    terminal.expect("got this");
    assert_eq!(terminal.end().and_then(|status| status.code()), Some(3));
    let words = [&["cluster", "exec", "-it", "tty", "node1"], &command[..]].concat();
    let mut terminal = Terminal::spawn(&lab.command(&words), 24, 80).expect("a terminal");
    terminal.type_in(b"that\n").expect("a key");
    terminal.expect("got that");
    assert_eq!(terminal.end().and_then(|status| status.code()), Some(3));
    // Ctrl-C means the program, whose status counts.
    let command = ["sh", "-c", "trap 'exit 9' INT; echo go; while :; do sleep 0.1; done"];
    let words = [&["cluster", "run", "-f", &file, "-T", "--"], &command[..]].concat();
    let mut terminal = Terminal::spawn(&lab.command(&words), 24, 80).expect("a terminal");
    terminal.expect("go");
    terminal.type_in(b"\x03").expect("a key");
    assert_eq!(terminal.end().and_then(|status| status.code()), Some(9));
    // Also where the driver sees the key and the end of the program at once.
    let mut terminal = Terminal::spawn(&lab.command(&words), 24, 80).expect("a terminal");
    terminal.expect("go");
    let driver = Pid::from_raw(terminal.id().cast_signed()).expect("a process");
    kill_process(driver, Signal::STOP).expect("the driver");
    terminal.type_in(b"\x03").expect("a key");
    let ended = until(LIMIT, || has_ended_child(terminal.id()).then_some(()));
    assert!(ended.is_some(), "{}", terminal.text());
    kill_process(driver, Signal::CONT).expect("the driver");
    assert_eq!(terminal.end().and_then(|status| status.code()), Some(9), "{}", terminal.text());
    lab.cluster("down", &[]).ok();
}

/// Whether a child of a process waits to be reaped.
fn has_ended_child(parent: u32) -> bool {
    let all = fs::read_dir("/proc").expect("processes").flatten();
    let stats = all.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let begin = format!("Z {parent} ");
    stats
        .into_iter()
        .any(|stat| stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with(&begin)))
}

/// A batch system sends SIGTERM to `up`, whose application decides.
fn run_is_asked_to_end(lab: &Lab<'_>) {
    let up = |lab: &Lab<'_>| {
        let file = lab.dir.join("lab.toml").display().to_string();
        let running = Running::start(&mut lab.command(&["cluster", "up", "-f", &file]));
        running.expect("go\n");
        running
    };
    job(lab, "trap 'echo asked; exit 5' TERM; echo go; while :; do sleep 0.1; done");
    let mut running = up(lab);
    running.signal(Signal::TERM);
    assert_eq!(running.end(LIMIT), 5, "{}", running.text());
    assert!(running.text().contains("asked\n"), "{}", running.text());
    lab.is_clean();
    job(lab, "echo go; exec sleep 600");
    let mut running = up(lab);
    running.signal(Signal::TERM);
    assert_eq!(running.end(LIMIT), 143, "{}", running.text());
}

const SERVICES: &str = "[service.web]\ncommand = \"exec httpd -f -p 80 -h /www\"\nready = { tcp = 80 }\n\
                        replicas = 2\n";

fn interrupted_services(lab: &Lab<'_>) {
    let file = lab.file(&format!("name = \"stay\"\nimage = \"{BOX}\"\n{SERVICES}"));
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut up = Running::start(&mut lab.command(&["cluster", "up", "-f", &file]));
        up.expect("cluster stay is up; ctrl-C ends it");
        up.signal(signal);
        assert_eq!(up.end(LIMIT), status, "{}", up.text());
        lab.is_clean();
    }
    // Ctrl-C on a terminal, which reaches all that is in the foreground.
    let mut up =
        Terminal::spawn(&lab.command(&["cluster", "up", "-f", &file]), 24, 80).expect("a terminal");
    up.expect("ctrl-C ends it");
    up.type_in(b"\x03").expect("a key");
    let ended = until(LIMIT, || (!lab.kept().contains(&"stay".to_owned())).then_some(()));
    assert!(ended.is_some(), "{}", up.text());
    assert_eq!(up.end().and_then(|status| status.code()), Some(130), "{}", up.text());
    lab.is_clean();
    // Another command ends it.
    let mut up = Running::start(&mut lab.command(&["cluster", "up", "-f", &file]));
    up.expect("ctrl-C ends it");
    lab.cluster("down", &[]).ok();
    assert_eq!(up.end(LIMIT), 0, "{}", up.text());
}

/// Long before the service would be ready.
fn interrupted_start(lab: &Lab<'_>) {
    let file = lab.file(&format!(
        "name = \"early\"\nimage = \"{BOX}\"\n[service.slow]\ncommand = \"sleep 600\"\n\
         ready = {{ tcp = 80, within = \"10m\" }}\n"
    ));
    for detach in [&[][..], &["-d"]] {
        let words = [&["cluster", "up", "-f", &file], detach].concat();
        let mut up = Running::start(&mut lab.command(&words));
        up.expect("ready slow");
        std::thread::sleep(Duration::from_millis(300));
        up.signal(Signal::INT);
        assert_eq!(up.end(LIMIT), 130, "{}", up.text());
        assert!(up.text().contains("error: interrupted"), "{}", up.text());
        if !detach.is_empty() {
            lab.cluster("down", &[]).ok();
        }
        lab.is_clean();
    }
}

fn streams_that_are_closed(lab: &Lab<'_>) {
    job(lab, "cat; echo done");
    let file = lab.dir.join("lab.toml").display().to_string();
    let up = run_with(&mut lab.without_input(&["cluster", "up", "-f", &file]), Input::AsIs, LIMIT);
    assert_eq!(up.ok().out(), "done\n");
    job(lab, "exec yes");
    let done = lab.script("\"$coracle\" -q cluster up -f \"$file\" | head -n 2; echo $?");
    assert_eq!(done.ok().out(), "y\ny\n0\n", "{done:?}");
    lab.is_clean();
    lab.cluster("up", &["-d"]).ok();
    for command in ["status job", "status job --format json", "explain -f \"$file\"", "logs job"] {
        let done = lab.script(&format!("\"$coracle\" cluster {command} | true; echo $?"));
        assert_eq!((done.ok().out(), done.err()), ("0\n".into(), String::new()), "{command}");
    }
    for (close, command) in
        [(">&-", "down job"), ("2>&-", "up -d -f \"$file\""), ("2>&-", "down job")]
    {
        lab.script(&format!("\"$coracle\" cluster {command} {close}")).ok();
    }
}

/// SIGKILL means all of a node's container, what runs in it by `exec` too.
fn killed_node(lab: &Lab<'_>) {
    job(lab, "echo go; trap '' TERM; sleep 600; sleep 600");
    lab.cluster("up", &["-d"]).ok();
    let file = lab.dir.join("lab.toml").display().to_string();
    let mut run = Running::start(&mut lab.command(&["cluster", "run", "-f", &file]));
    run.expect("go\n");
    lab.run(&["kill", "job-node2"]).ok();
    assert_eq!(run.end(LIMIT), 137, "{}", run.text());
    lab.cluster("down", &[]).ok();
}
