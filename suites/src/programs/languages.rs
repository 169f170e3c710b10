//! Tests of languages with runtimes of their own: Go, Java, Node. Their threads, compiled code and
//! signals do not use the C library.
//!
//! The runtimes are this machine's, bound into the container; without one, the case is skipped.
//! Each program is in `guests`, and prints the same output natively.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use testkit::command::Finished;
use testkit::runtimes;
use testkit::skip::{Outcome, Skip};

use crate::programs::stage::{Case, IMAGE, World};

pub(crate) const CASES: &[(&str, Case)] = &[("go", go), ("java", java), ("node", node)];

/// Directory of the programs that run inside.
pub(crate) fn guests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/programs/guests")
}

/// A program's source or a script.
pub(crate) fn guest(name: &str) -> Vec<u8> {
    fs::read(guests().join(name)).expect("the program's source")
}

/// Copies a program into the container and runs it, with these paths of the host bound (`-v`).
fn run(w: &World, bound: &[String], program: Vec<u8>, name: &str, script: &str) -> Finished {
    let options: Vec<&str> = bound.iter().flat_map(|volume| ["-v", volume]).collect();
    let c = w.container_with(IMAGE, &options);
    c.feed(&format!("cat > /usr/bin/{name}; chmod 755 /usr/bin/{name}"), program).ok();
    c.sh(script)
}

fn go(w: &World) -> Outcome {
    static PROGRAM: OnceLock<Result<Vec<u8>, Skip>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| runtimes::go_program(&guest("main.go"))).clone()?;
    let done = run(w, &[], program, "main", "main");
    let expected = "\
        /usr/bin/main\nroot /root\nlocked to threads map[-rw------- 5:200]\nexec map[again in /srv/go:40]\nas another map[7:8]\n\
        fork/exec /nowhere: no such file or directory\nhttp map[200 true:50]\nhello <nil>\nuser defined signal 1\n\
        runtime error: invalid memory address or nil pointer dereference\nbusy map[fine:4]\ntrue\n";
    assert_eq!(done.ok().out(), expected, "{done:?}");
    Ok(())
}

fn java(w: &World) -> Outcome {
    let script = "cd /; cp /usr/bin/Main Main.java; /opt/java/bin/java Main.java || echo code $?";
    let done = run(w, &runtimes::java()?, guest("Main.java"), "Main", script);
    let expected = "\
        root /\nfiles {5=400}\nprograms {0 /srv/java 0=20}\ntrue\nhttp {200 true=50}\n49950000000\nnothing\ndeep\ncode 3\n";
    assert_eq!(done.ok().out(), expected, "{done:?}");
    Ok(())
}

fn node(w: &World) -> Outcome {
    let script = "node /usr/bin/main.js || echo code $?";
    let done = run(w, &runtimes::node()?, guest("main.js"), "main.js", script);
    let expected = "\
        /srv/node 0 /usr/local/bin/node\nfiles {\"5\":300}\nworkers {\"5999995\":4}\nprograms {\"/srv/node3\":30}\nas another {\"7\":5}\n\
        ENOENT 42\nrename watched rename moved\nhttp {\"200 true\":50}\nhello\nSIGUSR2\ncode 3\n";
    assert_eq!(done.ok().out(), expected, "{done:?}");
    Ok(())
}
