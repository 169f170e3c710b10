//! Prints the table of modes: `true` in a new container and once more in it, beside other tools
//! that are installed.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;
use testkit::command::{Input, run_with};
use testkit::users::{self, Setting, User};

use super::prepare::Kind;
use super::{Demo, LIMIT, home, time};
use crate::shell::{Outcome, has};
use crate::table::Table;

/// Prints the table; gives how many runs failed. `tree` is the image's, as a tar file.
pub(super) fn show(demo: &Demo, tree: Option<&Path>) -> Outcome<usize> {
    let mut table = Table::new(&["MODE", "FIRST RUN", "NEXT RUN", "WHAT IT IS"]);
    let mut failed = 0;
    let mut left_out = Vec::new();
    for mode in modes(demo) {
        let text = |key: &str| mode[key].as_str().unwrap_or_default();
        if !matches!(text("state"), "ready" | "degraded") {
            left_out.push(format!("{} ({})", text("mode"), text("why")));
            continue;
        }
        // The same as F2.
        if matches!(text("mode"), "F3" | "F4") {
            continue;
        }
        let chosen = if mode["chosen"] == true { " (chosen by itself)" } else { "" };
        let about = format!("{}{chosen}", text("about"));
        match twice(demo, text("mode")) {
            Ok([first, next]) => table.row(&[text("mode"), &time(first), &time(next), &about]),
            Err(error) => {
                failed += 1;
                table.row(&[text("mode"), "FAILED", "", &error]);
            }
        }
    }
    podman(demo, &mut table)?;
    proot(demo, tree, &mut table)?;
    println!("{}", table.text());
    if !left_out.is_empty() {
        println!("Not on this host: {}.", left_out.join("; "));
    }
    Ok(failed)
}

/// What `doctor` says of each mode.
fn modes(demo: &Demo) -> Vec<Value> {
    let (done, _) = demo.coracle(&["doctor", "--format", "json"], &Setting::default());
    let report: Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
    report["engines"].as_array().cloned().unwrap_or_default()
}

/// A run in a mode that makes a container, and one in the same container, in seconds.
fn twice(demo: &Demo, mode: &str) -> Outcome<[f64; 2]> {
    let run = |words: &[&str]| {
        let (done, seconds) = demo.coracle(words, &Setting::default());
        if done.code() == 0 {
            return Ok(seconds);
        }
        Err(done.err().lines().next().unwrap_or("no message").to_owned())
    };
    let flag = format!("--execmode={mode}");
    let name = format!("in-{mode}");
    let program: &[&str] =
        if demo.kind == Kind::Guest { &["/bin/guest", "exit", "0"] } else { &["true"] };
    let first = [&["run", &flag, "--name", &name, demo.kind.name()], program].concat();
    let next = [&["run", &name], program].concat();
    Ok([run(&first)?, run(&next)?])
}

/// Podman needs subordinate ids to unpack the image, so a user who has some runs it.
fn podman(demo: &Demo, table: &mut Table) -> Outcome {
    if !has("podman") {
        return Ok(());
    }
    let Some(user) = users::all().into_iter().find(|user| user.range) else {
        table.row(&["podman", "", "", "not tried: it needs subordinate ids, and there are none"]);
        return Ok(());
    };
    let home = home(&demo.scratch, &user)?;
    let run = |words: &[&str]| {
        let mut command = user.command("podman", &home);
        command.env("XDG_RUNTIME_DIR", &home).arg("--cgroup-manager=cgroupfs").args(words);
        timed(&mut command)
    };
    let runs = |runtime: &[&str]| {
        let make = ["run", "--network=host", "--name=demo", "--replace", &demo.image, "true"];
        let first = run(&[runtime, &make[..]].concat())?;
        Ok([first, run(&[runtime, &["start", "--attach", "demo"]].concat())?])
    };
    let row: Outcome<_> =
        run(&["pull", "-q", "--tls-verify=false", &demo.image]).and_then(|pull| {
            // Where Podman's first choice does not like the host's cgroups, runc may.
            let times =
                runs(&[]).or_else(|error| runs(&["--runtime=runc"]).map_err(|_: String| error));
            Ok((pull, times?))
        });
    match row {
        Ok((pull, [first, next])) => {
            let about = format!("with subordinate ids (its pull: {})", time(pull));
            table.row(&["podman", &time(first), &time(next), &about]);
        }
        Err(error) => table.row(&["podman", "fails", "", &error]),
    }
    // Its files belong to subordinate ids, so only it can remove them.
    let _ = run(&["system", "reset", "--force"]);
    Ok(())
}

/// `PRoot` runs a program in a tree, which `tar` unpacks before.
fn proot(demo: &Demo, tree: Option<&Path>, table: &mut Table) -> Outcome {
    let Some(tree) = tree.filter(|_| has("proot")) else { return Ok(()) };
    let dir = demo.scratch.dir("tree", Some((demo.user.uid, demo.user.gid)), 0o755);
    let dir = dir.map_err(|error| error.to_string())?;
    let mut row = || {
        let began = Instant::now();
        unpack(&demo.user, tree, &dir)?;
        let unpacked = began.elapsed().as_secs_f64();
        let run = || {
            let mut command = demo.user.command("proot", &demo.home);
            timed(
                command.args(["-0", "-b", "/proc", "-b", "/dev", "-r"]).arg(&dir).arg("/bin/true"),
            )
        };
        let about = format!("in a tree (tar unpacks it in {})", time(unpacked));
        table.row(&["proot", &time(run()?), &time(run()?), &about]);
        Ok(())
    };
    let result: Outcome = row();
    if let Err(error) = result {
        table.row(&["proot", "fails", "", &error]);
    }
    Ok(())
}

/// Unpacks a tar file that the user may not be able to open.
fn unpack(user: &User, tree: &Path, dir: &Path) -> Outcome {
    let file = File::open(tree).map_err(|error| format!("{}: {error}", tree.display()))?;
    let mut command = user.command("tar", dir);
    command.args(["-x", "--exclude=./dev/*", "-C"]).arg(dir).stdin(Stdio::from(file));
    let output = command.output().map_err(|error| format!("tar: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(format!("tar: {}", output.status)) }
}

/// Runs and gives the seconds that it took.
fn timed(command: &mut Command) -> Outcome<f64> {
    let began = Instant::now();
    let done = run_with(command, Input::Null, LIMIT);
    let seconds = began.elapsed().as_secs_f64();
    if done.code() == 0 {
        return Ok(seconds);
    }
    let text = done.err();
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    Err(line.unwrap_or("no message").chars().take(100).collect())
}
