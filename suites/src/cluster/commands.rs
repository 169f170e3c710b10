//! `exec`, `cp`, `logs` and `attach` in a cluster that is up.

use std::collections::HashMap;
use std::fs;

use rustix::process::Signal;
use testkit::command::{Input, run_with, until};
use testkit::person::LIMIT;
use testkit::running::Running;

use crate::cluster::Case;
use crate::cluster::world::{BOX, Lab};

pub(crate) const CASES: &[Case] = &[
    ("exec", exec),
    ("copies", copies),
    ("logs", logs),
    ("much_output", much_output),
    ("attach", attach),
    ("not_up", not_up),
];

fn start(lab: &Lab<'_>, command: &str) -> String {
    let file = lab.file(&format!(
        "name = \"lab\"\nimage = \"{BOX}\"\nnodes = 2\n\
         [service.db]\nreplicas = 2\ncommand = {command:?}\n"
    ));
    lab.cluster("up", &["-d"]).ok();
    file
}

fn exec(lab: &Lab<'_>) {
    let file = start(lab, "sleep 600");
    let named = |node: &str| {
        let run = lab.run(&["cluster", "exec", "lab", node, "hostname"]);
        run.ok().line()
    };
    assert_eq!(named("db"), "db-1");
    assert_eq!(named("db-2"), "db-2");
    assert_eq!(named("lab-db-2"), "db-2");
    assert_eq!(named("node2"), "node2");
    let words = ["-u", "bob", "-w", "/www", "-e", "A=b c", "node1", "sh", "-c"];
    let run = lab.cluster("exec", &[&words[..], &["id -un; pwd; echo \"$A\"; exit 9"]].concat());
    assert_eq!(run.expect(9).out(), "bob\n/www\nb c\n");
    let mut reads = lab.command(&["cluster", "exec", "-i", "-f", &file, "db", "cat"]);
    assert_eq!(run_with(&mut reads, Input::Bytes(b"in".to_vec()), LIMIT).ok().out(), "in");
    let mut reads = lab.command(&["cluster", "exec", "lab", "db", "cat"]);
    assert_eq!(run_with(&mut reads, Input::Bytes(b"in".to_vec()), LIMIT).ok().out(), "");
    for (words, status, fact, hint) in [
        (&["nod1", "true"][..], 125, "no node or service \"nod1\"", "did you mean node1?"),
        (&["zzzzzzz", "true"], 125, "no node or service", "there are db, db-1, db-2, node1, node2"),
        (&["db"], 1, "there is no command", "cluster exec lab db sh"),
        (&["db", "/no/such"], 127, "/no/such", ""),
    ] {
        let run = lab.cluster("exec", words);
        let said = run.expect(status).err();
        assert!(said.contains(fact) && said.contains(hint), "{words:?}: {said}");
    }
    let late = lab.run(&["cluster", "exec", "lab", "-it", "db", "true"]);
    assert!(late.expect(125).err().contains("options stand before"), "{late:?}");
    // The first that runs is taken; one that was named has to run.
    lab.run(&["stop", "-t", "0", "lab-db-1"]).ok();
    assert_eq!(named("db"), "db-2");
    let gone = lab.cluster("exec", &["db-1", "true"]);
    assert!(gone.expect(125).err().contains("lab-db-1 does not run: Exited"), "{gone:?}");
    lab.cluster("down", &[]).ok();
}

fn copies(lab: &Lab<'_>) {
    start(lab, "sleep 600");
    let dir = lab.world.person.dir(&format!("{}/files", lab.dir.display()));
    let here = |name: &str| dir.join(name).display().to_string();
    let bytes: Vec<u8> =
        (0..3_000_000_u32).map(|number| (number.wrapping_mul(7919) >> 8) as u8).collect();
    lab.world.person.file(&dir.join("big"), &bytes);
    let cp = |from: &str, to: &str| lab.cluster("cp", &[from, to]);
    cp(&here("big"), "db:/tmp").ok();
    cp("db-1:/tmp/big", "node1:/tmp/moved").ok();
    cp("node1:/tmp/moved", &here("back")).ok();
    assert!(fs::read(dir.join("back")).expect("a copy") == bytes);
    // Directories: below one that is there, as a new one, and what is in one.
    cp("db:/www", "db-2:/tmp").ok();
    cp("db:/www", "db-2:/tmp/new").ok();
    cp("db:/www/.", "db-2:/tmp").ok();
    for path in ["www/index.html", "new/index.html", "index.html"] {
        let path = format!("/tmp/{path}");
        assert_eq!(lab.cluster("exec", &["db-2", "cat", &path]).ok().out(), "page\n", "{path}");
    }
    cp("db-2:/tmp/new", &here("")).ok();
    assert_eq!(fs::read_to_string(dir.join("new/index.html")).expect("a copy"), "page\n");
    let file = lab.dir.join("lab.toml").display().to_string();
    let out = lab.run(&["cluster", "cp", "lab", "db-2:/tmp/new", "-"]);
    let mut reads = lab.command(&["cluster", "cp", "-f", &file, "-", "node2:/tmp"]);
    run_with(&mut reads, Input::Bytes(out.ok().stdout.clone()), LIMIT).ok();
    let there = lab.cluster("exec", &["node2", "cat", "/tmp/new/index.html"]);
    assert_eq!(there.ok().out(), "page\n");
    for (from, to, fact) in [
        ("db:/none", &*here("x"), "no such file"),
        ("db:/none", "db-2:/tmp", "there is no /none in lab-db-1"),
        (&*here("none"), "db:/tmp", "cannot read"),
        (&*here("big"), "db:/tmp/none/", "is not a directory"),
        (&*here("big"), "db:/none/x", "lab-db-1:/none"),
        ("db:/www", "db-2:/tmp/index.html", "is a file"),
        ("db:/www", "db-3:/tmp", "no node or service \"db-3\""),
        (&*here("big"), &*here("x"), "none of the two is in a container"),
    ] {
        let copy = cp(from, to);
        assert!(copy.expect(1).err().contains(fact), "{from} {to}: {copy:?}");
    }
    let few = lab.run(&["cluster", "cp", "lab", "db:/www"]);
    assert!(few.expect(1).err().contains("a source and a target"), "{few:?}");
    lab.cluster("down", &[]).ok();
}

fn logs(lab: &Lab<'_>) {
    start(lab, "echo one; echo; echo two >&2; echo three; sleep 600");
    // Two is on standard error.
    let all = || {
        let done = lab.cluster("logs", &[]);
        let mut lines: Vec<String> = done.ok().out().lines().map(str::to_owned).collect();
        lines.sort();
        (lines.len() == 6 && done.err().matches("| two\n").count() == 2).then_some(lines)
    };
    let lines = until(LIMIT, all).expect("the whole log");
    let want = ["", "one", "three"].map(|line| format!("db-1  | {line}"));
    assert_eq!(lines[..3], want);
    assert_eq!(lines[3], "db-2  | ");
    // Names make the columns that are shown.
    let some = lab.run(&["cluster", "logs", "lab", "db-2", "node1"]);
    assert_eq!(some.ok().out(), "db-2  | one\ndb-2  | \ndb-2  | three\n");
    let some = lab.run(&["cluster", "logs", "lab", "db-2", "db-2", "-n", "1"]);
    let some = [some.ok().out(), some.err()].concat();
    assert!(some.starts_with("db-2 | ") && some.lines().count() == 1, "{some}");
    let timed = lab.run(&["cluster", "logs", "--timestamps", "lab", "db-1"]);
    let first = timed.ok().out();
    let (time, rest) = first.trim_start_matches("db-1 | ").split_once(' ').expect("a time");
    assert!(time.contains('T') && time.ends_with('Z') && rest.starts_with("one\n"), "{first}");
    let wrong = lab.cluster("logs", &["--tail", "x"]);
    assert!(wrong.expect(1).err().contains("--tail 'x' is not a number"), "{wrong:?}");
    let wrong = lab.cluster("logs", &["dc"]);
    assert!(wrong.expect(1).err().contains("no node or service \"dc\""), "{wrong:?}");
    let file = lab.dir.join("lab.toml").display().to_string();
    let wrong = lab.run(&["cluster", "logs", "-f", &file]);
    assert!(wrong.expect(1).err().contains("here -f is --follow"), "{wrong:?}");
    // A reader that goes away ends it, also when nothing is written any more.
    let done = lab.script("\"$coracle\" cluster -f \"$file\" logs -f db-1 2>/dev/null | head -n 1");
    assert_eq!(done.ok().out(), "db-1 | one\n");

    let mut follower = Running::start(&mut lab.command(&["cluster", "-f", &file, "logs", "-f"]));
    follower.expect("db-2  | three\n");
    // One that has come later.
    lab.run(&["rm", "-f", "lab-db-1"]).ok();
    lab.cluster("up", &["-d"]).ok();
    let twice = || (follower.text().matches("db-1  | one\n").count() == 2).then_some(());
    assert!(until(LIMIT, twice).is_some(), "{}", follower.text());
    follower.signal(Signal::INT);
    assert_eq!(follower.end(LIMIT), 130, "{}", follower.text());
    lab.cluster("down", &[]).ok();
}

/// How many lines each of eight containers writes, and how long they are.
const LINES: usize = 20_000;
const WIDTH: usize = 100;

fn much_output(lab: &Lab<'_>) {
    let text = "x".repeat(WIDTH);
    let writes = format!(
        "i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo $i {text}; done; echo -n the end"
    );
    let file = lab.file(&format!(
        "name = \"much\"\nimage = \"{BOX}\"\n[service.w]\nreplicas = 8\nrestart = \"no\"\n\
         command = \"{writes}\"\n"
    ));
    lab.cluster("up", &["-d"]).ok();
    let out = lab.dir.join("out");
    let mut command = lab.command(&["cluster", "logs", "--follow", "--file", &file]);
    command.stdout(fs::File::create(&out).expect("a file"));
    let mut child = command.spawn().expect("a reader");
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    let ended = until(LIMIT, || {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
        most = most.max(peak.unwrap_or(0_u64));
        child.try_wait().expect("its end")
    });
    if ended.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    let mut next: HashMap<String, usize> = HashMap::new();
    let text_of_log = fs::read_to_string(&out).expect("the log");
    for line in text_of_log.lines() {
        let (name, rest) = line.split_once(" | ").unwrap_or_else(|| panic!("{line:?}"));
        let next = next.entry(name.to_owned()).or_insert(1);
        let want = if *next > LINES { "the end".to_owned() } else { format!("{next} {text}") };
        assert_eq!(rest, want, "of {name}");
        *next += 1;
    }
    assert_eq!(next.len(), 8);
    assert!(next.values().all(|next| *next == LINES + 2), "{next:?}");
    assert!(most < 40_000, "{most} kB for {} bytes", text_of_log.len());
    lab.cluster("down", &[]).ok();
}

fn attach(lab: &Lab<'_>) {
    start(lab, "echo early; while :; do echo tick; sleep 0.1; done");
    let mut one = Running::start(&mut lab.command(&["cluster", "attach", "lab"]));
    one.expect("db-1  | tick\n");
    one.expect("db-2  | tick\n");
    assert!(!one.text().contains("early"), "{}", one.text());
    one.signal(Signal::INT);
    assert_eq!(one.end(LIMIT), 130);
    assert_eq!(lab.run(&["ps", "-q"]).ok().out().lines().count(), 4);
    // The end of the cluster is the end of what is attached to it.
    let file = lab.dir.join("lab.toml").display().to_string();
    let mut two = Running::start(&mut lab.command(&["cluster", "attach", "-f", &file]));
    two.expect("tick\n");
    lab.cluster("down", &[]).ok();
    assert_eq!(two.end(LIMIT), 0, "{}", two.text());
}

fn not_up(lab: &Lab<'_>) {
    lab.file(&format!("name = \"lab\"\nimage = \"{BOX}\"\nnodes = 1\n"));
    let here = lab.dir.join("lab.toml").display().to_string();
    for (word, words, status) in [
        ("run", &["true"][..], 125),
        ("exec", &["node1", "true"], 125),
        ("logs", &[], 1),
        ("attach", &[], 1),
        ("cp", &["node1:/x", "/tmp"], 1),
        ("cp", &[&*here, "node1:/x"], 1),
    ] {
        let done = lab.cluster(word, words);
        let said = done.expect(status).err();
        assert!(said.contains("cluster lab is not up"), "{word}: {said}");
        assert!(said.contains("hint: start it: coracle cluster up -d -f FILE"), "{word}: {said}");
    }
}
