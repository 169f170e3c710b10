//! Languages' runtimes of this machine: tests bind them into containers, or compile for these.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::command::{Input, run_with};
use crate::debian::cache;
use crate::scratch::Scratch;
use crate::skip::Skip;

/// Go's compiler takes a minute if it has not built the standard library yet.
const LIMIT: Duration = Duration::from_mins(4);

/// Path of a program of this machine, without links.
pub fn installed(name: &str) -> Result<PathBuf, Skip> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/local/go/bin")])
        .find_map(|directory| fs::canonicalize(directory.join(name)).ok())
        .ok_or_else(|| Skip(format!("this machine has no {name}")))
}

/// What is bound to have `node` at `/usr/local/bin`: values of `-v`.
pub fn node() -> Result<Vec<String>, Skip> {
    Ok(vec![format!("{}:/usr/local/bin/node:ro", installed("node")?.display())])
}

/// What is bound to have Java at `/opt/java`: values of `-v`.
pub fn java() -> Result<Vec<String>, Skip> {
    let machine = installed("java")?;
    installed("javac")?;
    let home = machine.ancestors().nth(2).ok_or_else(|| Skip("Java is in no `bin`".to_owned()))?;
    let mut bound = vec![format!("{}:/opt/java:ro", home.display())];
    // Debian's Java has its settings there, and links to them.
    let name = home.file_name().unwrap_or_default().to_string_lossy();
    let settings = format!("/etc/{}", name.trim_end_matches("-amd64"));
    if Path::new(&settings).is_dir() {
        bound.push(format!("{settings}:{settings}:ro"));
    }
    Ok(bound)
}

/// Cache of Go's compiler on this machine.
pub fn go_cache() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| cache().join("go"))
}

/// Go's tool, set to fetch nothing and to use no other compiler.
pub fn go_command(compiler: &Path) -> Command {
    let mut command = Command::new(compiler);
    command.env("CGO_ENABLED", "0").env("GOCACHE", go_cache());
    command.env("GOTOOLCHAIN", "local").env("GOFLAGS", "").env("GOPROXY", "off");
    command
}

/// A program of Go, without the C library.
///
/// # Panics
/// If it cannot be compiled.
pub fn go_program(source: &[u8]) -> Result<Vec<u8>, Skip> {
    let compiler = installed("go")?;
    let scratch = Scratch::new("go").expect("a directory");
    let (file, program) = (scratch.path().join("main.go"), scratch.path().join("main"));
    fs::write(&file, source).expect("the source");
    let mut build = go_command(&compiler);
    build.args(["build", "-o"]).arg(&program).arg(&file);
    run_with(&mut build, Input::Null, LIMIT).ok();
    Ok(fs::read(program).expect("the program"))
}
