//! Tests of servers and clients by the libraries of languages: Python, Node, Go without the C
//! library, Java. Each has its own way to look names up.
//!
//! The runtimes but Python's are this machine's, bound into the containers; without one the case is
//! skipped. A client knows from the servers' answers that they saw its address.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use testkit::command::{Input, run_with};
use testkit::debian::cache;
use testkit::scratch::Scratch;
use testkit::skip::{Outcome, Skip};

use crate::In;
use crate::stage::{Case, LIMIT, Lab, World, guest};

pub(crate) const CASES: &[(&str, In, Case)] = &[
    ("java", In::First, java),
    ("go", In::All, go),
    ("python", In::All, python),
    ("node", In::First, node),
];

/// Path of a program of this machine, without links.
fn installed(name: &str) -> Result<PathBuf, Skip> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/local/go/bin")])
        .find_map(|directory| fs::canonicalize(directory.join(name)).ok())
        .ok_or_else(|| Skip(format!("this machine has no {name}")))
}

/// The output of a client, after its server has said `ready`. Both are the same program, with these
/// paths of the host bound into their containers.
fn pair(lab: &Lab<'_>, (name, file): (&str, &str), bound: &[(&Path, &str)], run: &str) -> String {
    let program = match name {
        "go" => GO.get().expect("it was compiled").clone(),
        _ => guest(file),
    };
    let volumes: Vec<String> =
        bound.iter().map(|(host, place)| format!("{}:{place}:ro", host.display())).collect();
    let options: Vec<&str> = volumes.iter().flat_map(|volume| ["-v", volume]).collect();
    // The program comes after the container has begun.
    let wait = |role: &str| format!("wait_for test -e /ready; exec {run} {role} {}", lab.network);
    lab.serve_with(name, &options, &wait("serve"));
    let client = format!("client-{name}");
    lab.serve_with(&client, &options, "sleep 1000");
    for container in [name, &client] {
        lab.write(container, &format!("/{file}"), program.clone());
        lab.exec(container, "touch /ready").ok();
    }
    lab.expect(name, "ready");
    lab.exec(&client, &format!("{run} call {}", lab.network)).ok().out()
}

fn python(w: &World) -> Outcome {
    let lab = w.lab();
    let out = pair(&lab, ("python", "service.py"), &[], "python3 /service.py");
    let expected = "True 40\n328350\nrefused\nConnectionRefusedError\ngaierror\n";
    assert_eq!(out, expected);
    Ok(())
}

fn node(w: &World) -> Outcome {
    let machine = installed("node")?;
    let lab = w.lab();
    let bound = [(machine.as_path(), "/usr/local/bin/node")];
    let out = pair(&lab, ("node", "service.js"), &bound, "node /service.js");
    assert_eq!(out, "50\n1 ENODATA\nENOTFOUND\nECONNREFUSED\n");
    Ok(())
}

/// The Go program; its compiler takes a minute if it has not built the standard library yet.
static GO: OnceLock<Vec<u8>> = OnceLock::new();

fn compiled(compiler: &Path) -> Vec<u8> {
    let scratch = Scratch::new("go").expect("a directory");
    let (source, program) = (scratch.path().join("main.go"), scratch.path().join("main"));
    fs::write(&source, guest("service.go")).expect("the source");
    let mut build = Command::new(compiler);
    build.env("CGO_ENABLED", "0").env("GOCACHE", cache().join("go"));
    build.env("GOTOOLCHAIN", "local").env("GOFLAGS", "").env("GOPROXY", "off");
    build.args(["build", "-o"]).arg(&program).arg(&source);
    run_with(&mut build, Input::Null, 2 * LIMIT).ok();
    fs::read(program).expect("the program")
}

fn go(w: &World) -> Outcome {
    let compiler = installed("go")?;
    GO.get_or_init(|| compiled(&compiler));
    let lab = w.lab();
    let out = pair(&lab, ("go", "service"), &[], "/service");
    assert_eq!(out, "1 <nil>\n50\n1 <nil>\n1 <nil>\ntrue\ntrue\nudp <nil>\n");
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
    let lab = w.lab();
    let out = pair(&lab, ("java", "Service.java"), &bound, "/opt/java/bin/java /Service.java");
    assert_eq!(out, "50\ntrue 81\nrefused\nunknown\n");
    Ok(())
}
