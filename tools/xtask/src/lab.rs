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

/// Whether the packages are there, or a line that says that they are not.
pub(crate) fn can_run() -> bool {
    let is_ready = is_ready();
    if !is_ready {
        println!("SKIP lab: its packages are not installed; cargo xtask setup lab does that");
    }
    is_ready
}

/// Words: `units` for the lints and the tests that start no program, `trial` for one whole trial,
/// none for everything, or arguments of pytest.
pub(crate) fn run(words: &[String]) -> Outcome {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match &words[..] {
        ["units"] => {
            lint()?;
            test_twice(&["-m", "not real and not alone", "-n", "2", "--dist", "loadfile"])
        }
        ["trial"] => test_twice(&["-m", "trial", "-k", "allowed"]),
        // Most of them wait for programs. What measures runs beside nothing.
        [] => {
            lint()?;
            test_twice(&["-m", "not alone", "-n", "2", "--dist", "loadfile"])?;
            test_twice(&["-m", "alone"])
        }
        words => test_twice(words),
    }
}

fn program(name: &str) -> Command {
    let mut command = Command::new(environment().join("bin").join(name));
    command.current_dir(root().join("lab"));
    // The package is tested where it is.
    command.env("PYTHONPATH", root().join("lab")).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn lint() -> Outcome {
    check(program("ruff").args(["check", "--no-cache", "."]))?;
    check(program("ruff").args(["format", "--no-cache", "--check", "."]))?;
    check(program("mypy").args(["--cache-dir", "/dev/null"]))?;
    check(program("lint-imports").arg("--no-cache"))
}

fn test(words: &[&str]) -> Outcome {
    let mut tests = program("python");
    tests.args(["-m", "pytest", "-q", "-rs", "--durations=5", "-o"]);
    tests.arg(format!("cache_dir={}", environment().join("cache").display())).args(words);
    check(&mut tests)
}

/// As the suites do: those that failed are run again and reported.
fn test_twice(words: &[&str]) -> Outcome {
    test(words).or_else(|error| {
        println!("{error}; those that failed are run again");
        test(&[words, &["--last-failed"]].concat())?;
        println!("UNSTABLE lab: some cases passed only when run again; see above");
        Ok(())
    })
}
