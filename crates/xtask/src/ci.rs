//! `cargo xtask ci`: everything that must hold, in the order in which it fails fastest.

use std::time::Instant;

use crate::shell::{Outcome, cargo, check, has, root, step};
use crate::{release, suite, tidy, tools};

/// The loader stands outside the workspace.
const STAGE: &str = "crates/stage/Cargo.toml";

/// Clippy over the loader, which has no `main` of the usual kind and so is checked as it is built: optimised, without unwinding.
fn stage_lints() -> Outcome {
    let target = crate::shell::target().join("stage").display().to_string();
    let words = ["clippy", "--release", "--locked", "--quiet", "--manifest-path", STAGE];
    check(cargo(&words).args(["--target-dir", &target, "--", "-D", "warnings"]))
}

/// Runs all of it; goes on after a failure, so that one run shows everything.
pub(crate) fn run() -> Outcome {
    let began = Instant::now();
    tools::set_up()?;
    let mut failed: Vec<String> = Vec::new();
    let mut note = |name: &str, result: Outcome| {
        let minutes = began.elapsed().as_secs_f64() / 60.0;
        match result {
            Ok(()) => println!("-- {name}: ok ({minutes:.1} min)"),
            Err(error) => {
                println!("-- {name}: FAILED ({minutes:.1} min): {error}");
                failed.push(name.to_owned());
            }
        }
    };
    step("format");
    note("format", check(&mut cargo(&["fmt", "--all", "--check"])));
    note("format of the loader", check(&mut cargo(&["fmt", "--manifest-path", STAGE, "--check"])));
    step("tidy");
    note("tidy", tidy::run(&[]));
    if has("cargo-deny") {
        step("dependencies");
        note("dependencies", check(&mut cargo(&["deny", "check"])));
    } else {
        println!("SKIP dependencies: cargo-deny is not installed");
    }
    step("lints");
    let lints =
        ["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"];
    note("lints", check(&mut cargo(&lints)));
    note("lints of the loader", stage_lints());
    step("release binary");
    note("release binary", release::build_and_check());
    step("tests");
    let counts = suite::run(&[]);
    let verdict = counts.as_ref().map_err(Clone::clone).and_then(suite::Counts::verdict);
    note("tests", verdict);
    step("summary");
    if let Ok(counts) = &counts {
        counts.print();
    }
    println!("{} in {:.1} minutes", root().display(), began.elapsed().as_secs_f64() / 60.0);
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}
