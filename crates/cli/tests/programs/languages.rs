//! Tests of languages with runtimes of their own: Go, Java, Node. Their threads, compiled code and
//! signals do not use the C library.
//!
//! The runtimes are this machine's, bound into the container; without one, the case is skipped.
//! Each program is in `guests`, and prints the same output natively.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use testkit::command::{Finished, Input, run_with};
use testkit::debian::cache;
use testkit::scratch::Scratch;
use testkit::skip::{Outcome, Skip};

use crate::stage::{Case, IMAGE, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] = &[("go", go), ("java", java), ("node", node)];

/// Path of a program of this machine, without links.
pub(crate) fn installed(name: &str) -> Result<PathBuf, Skip> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/local/go/bin")])
        .find_map(|directory| fs::canonicalize(directory.join(name)).ok())
        .ok_or_else(|| Skip(format!("this machine has no {name}")))
}

/// Directory of the programs that run inside.
pub(crate) fn guests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/guests")
}

/// A program's source or a script.
pub(crate) fn guest(name: &str) -> Vec<u8> {
    fs::read(guests().join(name)).expect("the program's source")
}

/// Copies a program into the container and runs it, with host paths bound into the container.
fn run(w: &World, bound: &[(&Path, &str)], program: Vec<u8>, name: &str, script: &str) -> Finished {
    let volumes: Vec<String> =
        bound.iter().map(|(host, place)| format!("{}:{place}:ro", host.display())).collect();
    let options: Vec<&str> = volumes.iter().flat_map(|volume| ["-v", volume]).collect();
    let c = w.container_with(IMAGE, &options);
    c.feed(&format!("cat > /usr/bin/{name}; chmod 755 /usr/bin/{name}"), program).ok();
    c.sh(script)
}

/// The Go program; its compiler takes a minute if it has not built the standard library yet.
static GO: OnceLock<Vec<u8>> = OnceLock::new();

/// Cache of Go's compiler on this machine.
pub(crate) fn go_cache() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| cache().join("go"))
}

/// Go's tool, set to fetch nothing and to use no other compiler.
pub(crate) fn go_command(compiler: &Path) -> Command {
    let mut command = Command::new(compiler);
    command.env("CGO_ENABLED", "0").env("GOCACHE", go_cache());
    command.env("GOTOOLCHAIN", "local").env("GOFLAGS", "").env("GOPROXY", "off");
    command
}

fn compiled(compiler: &Path) -> Vec<u8> {
    let scratch = Scratch::new("go").expect("a directory");
    let (source, program) = (scratch.path().join("main.go"), scratch.path().join("main"));
    fs::write(&source, guest("main.go")).expect("the source");
    let mut build = go_command(compiler);
    build.args(["build", "-o"]).arg(&program).arg(&source);
    run_with(&mut build, Input::Null, LIMIT).ok();
    fs::read(program).expect("the program")
}

fn go(w: &World) -> Outcome {
    let compiler = installed("go")?;
    let program = GO.get_or_init(|| compiled(&compiler)).clone();
    let done = run(w, &[], program, "main", "main");
    let expected = "\
        /usr/bin/main\nroot /root\nlocked to threads map[-rw------- 5:200]\nexec map[again in /srv/go:40]\nas another map[7:8]\n\
        fork/exec /nowhere: no such file or directory\nhttp map[200 true:50]\nhello <nil>\nuser defined signal 1\n\
        runtime error: invalid memory address or nil pointer dereference\nbusy map[fine:4]\ntrue\n";
    assert_eq!(done.ok().out(), expected, "{done:?}");
    Ok(())
}

fn java(w: &World) -> Outcome {
    let machine = installed("java")?;
    installed("javac")?;
    let home = machine.ancestors().nth(2).expect("it is in `bin`");
    let mut bound = vec![(home, "/opt/java")];
    // Debian's Java has its settings there, and links to them.
    let name = home.file_name().unwrap_or_default().to_string_lossy();
    let settings = format!("/etc/{}", name.trim_end_matches("-amd64"));
    if Path::new(&settings).is_dir() {
        bound.push((Path::new(&settings), &settings));
    }
    let script = "cd /; cp /usr/bin/Main Main.java; /opt/java/bin/java Main.java || echo code $?";
    let done = run(w, &bound, guest("Main.java"), "Main", script);
    let expected = "\
        root /\nfiles {5=400}\nprograms {0 /srv/java 0=20}\ntrue\nhttp {200 true=50}\n49950000000\nnothing\ndeep\ncode 3\n";
    assert_eq!(done.ok().out(), expected, "{done:?}");
    Ok(())
}

fn node(w: &World) -> Outcome {
    let machine = installed("node")?;
    let bound = [(machine.as_path(), "/usr/local/bin/node")];
    let script = "node /usr/bin/main.js || echo code $?";
    let done = run(w, &bound, guest("main.js"), "main.js", script);
    let expected = "\
        /srv/node 0 /usr/local/bin/node\nfiles {\"5\":300}\nworkers {\"5999995\":4}\nprograms {\"/srv/node3\":30}\nas another {\"7\":5}\n\
        ENOENT 42\nrename watched rename moved\nhttp {\"200 true\":50}\nhello\nSIGUSR2\ncode 3\n";
    assert_eq!(done.ok().out(), expected, "{done:?}");
    Ok(())
}
