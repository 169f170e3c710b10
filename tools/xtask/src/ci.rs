//! `cargo xtask ci`: everything that must hold for a commit.
//!
//! Three things take long: compiling, getting packages and trees of Debian, and the suites. So what
//! waits for the network runs beside what compiles, and the release binary, whose last step keeps
//! one processor busy, is compiled with low priority beside the suites. A failure ends nothing: one
//! run shows everything. The end of the output says what each part took.

use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use crate::shell::{Outcome, by_way_of, cargo, check, describe, has, read, root, step};
use crate::{lab, release, suite, tidy, tools};

/// The stage lies outside the workspace.
const STAGE: &str = "crates/stage/Cargo.toml";

/// Checks all of it.
pub(crate) fn run() -> Outcome {
    // Some dependencies are partly C; all else can be installed while cargo works.
    if !has("cc") {
        tools::set_up()?;
    }
    let mut report = Report { began: Instant::now(), failed: Vec::new(), times: Vec::new() };
    thread::scope(|scope| {
        let set_up = scope.spawn(|| {
            let began = Instant::now();
            let result = tools::set_up();
            let trees = testkit::trees::make_all();
            (result, trees, began.elapsed().as_secs_f64())
        });
        checks(&mut report);
        report.part("compilation of the tests", compile_tests);
        let (result, trees, seconds) =
            set_up.join().map_err(|_| "the set-up panicked".to_owned())?;
        for skip in trees {
            println!("not made ahead: {}", skip.0);
        }
        report.times.push(("packages and trees, beside these".to_owned(), seconds));
        result
    })?;
    let counts = thread::scope(|scope| {
        let binary = scope.spawn(compile_release);
        let counts = report.tests();
        let began = Instant::now();
        let binary = binary.join().unwrap_or_else(|_| Err("the compilation panicked".to_owned()));
        println!("waited {:.0} s for the release binary", began.elapsed().as_secs_f64());
        report.part("lab", || lab::run(&[]));
        report.part("release binary", || release::check_shape(&binary?));
        counts
    });
    step("summary");
    if let Ok(counts) = &counts {
        counts.print();
    }
    report.end()
}

/// What needs neither the tests' binaries nor installed programs.
fn checks(report: &mut Report) {
    report.part("format", || check(&mut cargo(&["fmt", "--all", "--check"])));
    report.part("format of the stage", || {
        check(&mut cargo(&["fmt", "--manifest-path", STAGE, "--check"]))
    });
    report.part("tidy", || tidy::run(&[]));
    if has("cargo-deny") {
        report.part("dependencies", || check(&mut cargo(&["deny", "check"])));
    } else {
        println!("SKIP dependencies: cargo-deny is not installed");
    }
    report.part("lints", || {
        let words = ["clippy", "--workspace", "--all-targets", "--locked", "--quiet"];
        check(cargo(&words).args(["--", "-D", "warnings"]))
    });
    report.part("lints of the stage", stage_lints);
}

/// The stage has no `main` of the usual kind and so is checked as it is built: optimised, without
/// unwinding.
fn stage_lints() -> Outcome {
    let target = crate::shell::target().join("stage").display().to_string();
    let words = ["clippy", "--release", "--locked", "--quiet", "--manifest-path", STAGE];
    check(cargo(&words).args(["--target-dir", &target, "--", "-D", "warnings"]))
}

fn compile_tests() -> Outcome {
    check(&mut cargo(&["test", "--workspace", "--no-run", "--locked", "--quiet"]))
}

/// Compiles the release binary with low priority; prints nothing beside the suites' output.
fn compile_release() -> Outcome<PathBuf> {
    let build = cargo(&release::BUILD);
    read(&mut by_way_of(&["nice", "-n", "10"], &build))
        .map_err(|error| format!("{}: {error}", describe(&build)))?;
    Ok(release::binary())
}

/// What has failed and what each part took.
struct Report {
    began: Instant,
    failed: Vec<String>,
    /// Names and seconds.
    times: Vec<(String, f64)>,
}

impl Report {
    /// Runs a part under a headline and keeps its result.
    fn part(&mut self, name: &str, run: impl FnOnce() -> Outcome) {
        step(name);
        let began = Instant::now();
        let result = run();
        self.note(name, began, result);
    }

    fn note(&mut self, name: &str, began: Instant, result: Outcome) {
        let seconds = began.elapsed().as_secs_f64();
        self.times.push((name.to_owned(), seconds));
        match result {
            Ok(()) => println!("-- {name}: ok ({seconds:.0} s)"),
            Err(error) => {
                println!("-- {name}: FAILED ({seconds:.0} s): {error}");
                self.failed.push(name.to_owned());
            }
        }
    }

    /// Runs all tests.
    fn tests(&mut self) -> Outcome<suite::Counts> {
        step("tests");
        let began = Instant::now();
        let counts = suite::run(&[]);
        let verdict = counts.as_ref().map_err(Clone::clone).and_then(suite::Counts::verdict);
        self.note("tests", began, verdict);
        counts
    }

    /// Prints what each part took; an error names what failed.
    fn end(self) -> Outcome {
        println!("minutes of each part:");
        for (name, seconds) in &self.times {
            println!("  {:6.1} {name}", seconds / 60.0);
        }
        let minutes = self.began.elapsed().as_secs_f64() / 60.0;
        println!("{} in {minutes:.1} minutes", root().display());
        if self.failed.is_empty() {
            return Ok(());
        }
        Err(format!("failed: {}", self.failed.join(", ")))
    }
}
