//! The lab (`lab/`, Python): its packages, its lints and its tests.
//!
//! All packages have a version and a hash in `lab/lock.txt`, from which a virtual environment is
//! made beside the other tools of the tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::tools;

use crate::shell::{Outcome, check, root};

/// Debian's, as on the machines of users.
const PYTHON: &str = "/usr/bin/python3";

fn lock() -> PathBuf {
    root().join("lab/lock.txt")
}

fn environment() -> PathBuf {
    tools::root().join("lab")
}

/// The lock file that the packages were installed from, kept beside them.
fn kept(environment: &Path) -> PathBuf {
    environment.join("lock.txt")
}

fn is_ready() -> bool {
    let (wanted, there) = (fs::read(lock()), fs::read(kept(&environment())));
    matches!((wanted, there), (Ok(wanted), Ok(there)) if wanted == there)
}

/// Installs the packages; returns whether they are there.
pub(crate) fn set_up() -> bool {
    if is_ready() {
        return true;
    }
    let environment = environment();
    let _ = fs::remove_dir_all(&environment);
    let mut make = Command::new(PYTHON);
    make.args(["-m", "venv", "--without-pip"]).arg(&environment);
    let mut install = Command::new(PYTHON);
    install.args(["-m", "pip", "--python"]).arg(environment.join("bin/python"));
    install.args(["install", "--quiet", "--disable-pip-version-check", "--require-hashes"]);
    install.args(["--root-user-action=ignore", "-r"]).arg(lock());
    let done = check(&mut make).and_then(|()| check(&mut install));
    let done = done.and_then(|()| {
        fs::copy(lock(), kept(&environment)).map(drop).map_err(|error| error.to_string())
    });
    if let Err(error) = &done {
        println!("could not install the lab's packages: it will be skipped ({error})");
    }
    done.is_ok()
}

/// Lints and tests; `words` go to pytest. The tests take Coracle from what cargo has built.
pub(crate) fn run(words: &[String]) -> Outcome {
    if !is_ready() {
        println!("SKIP lab: its packages are not installed; cargo xtask setup does that");
        return Ok(());
    }
    let program = |name: &str| {
        let mut command = Command::new(environment().join("bin").join(name));
        command.current_dir(root().join("lab"));
        // The package is tested where it is.
        command.env("PYTHONPATH", root().join("lab")).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    check(program("ruff").args(["check", "--no-cache", "."]))?;
    check(program("ruff").args(["format", "--no-cache", "--check", "."]))?;
    check(program("mypy").args(["--cache-dir", "/dev/null"]))?;
    check(program("lint-imports").arg("--no-cache"))?;
    let tests = |more: &[&str]| {
        let mut tests = program("python");
        tests.args(["-m", "pytest", "-q", "-rs", "--durations=5", "-o"]);
        tests.arg(format!("cache_dir={}", environment().join("cache").display())).args(more);
        check(&mut tests)
    };
    let twice = |more: &[&str]| {
        tests(more).or_else(|error| {
            // As the suites do: a case that fails only now and then is told, and ends nothing.
            println!("{error}; those that failed are run again");
            tests(&[more, &["--last-failed"]].concat())?;
            println!("UNSTABLE lab: some cases passed only when run again");
            Ok(())
        })
    };
    if !words.is_empty() {
        return twice(&words.iter().map(String::as_str).collect::<Vec<_>>());
    }
    // Most of them wait for programs. What measures runs beside nothing.
    twice(&["-m", "not alone", "-n", "2", "--dist", "loadfile"])?;
    twice(&["-m", "alone"])
}
