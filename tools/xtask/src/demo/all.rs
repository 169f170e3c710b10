//! `cargo xtask demo --all`: every test user runs a Debian image in every mode.
//!
//! It first installs all that the tests need. A registry on this machine serves the image; each
//! test user (or the caller, if that is not root) pulls it and runs it in every mode that `coracle
//! doctor` calls ready. Root also forbids user namespaces for one run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::command::{Finished, Input, run_with};
use testkit::docker_registry::DockerRegistry;
use testkit::scratch::Scratch;
use testkit::users::{self, Setting, User};
use testkit::{debian, guest};

use crate::shell::{Outcome, step};
use crate::table::Table;
use crate::{release, tools};

const LIMIT: Duration = Duration::from_mins(5);

struct Demo {
    coracle: PathBuf,
    image: String,
    scratch: Scratch,
    /// Whether the image is Debian, with a shell in it.
    shell: bool,
}

/// Runs it.
pub(super) fn run() -> Outcome {
    let began = Instant::now();
    tools::set_up()?;
    step("building");
    let binary = release::build()?;
    let scratch = Scratch::new("demo").map_err(|error| error.to_string())?;
    let coracle = scratch.path().join("coracle");
    fs::copy(binary, &coracle).map_err(|error| format!("copying the binary: {error}"))?;
    fs::set_permissions(&coracle, fs::Permissions::from_mode(0o755)).map_err(|e| e.to_string())?;
    step("serving an image from a local registry");
    let registry = DockerRegistry::start().map_err(|error| error.to_string())?;
    let (image, shell) = match debian::image() {
        Ok(image) => (image, true),
        Err(reason) => {
            println!("no Debian tree ({reason}); a small made image stands in for it");
            (guest::image(), false)
        }
    };
    let built = image.build();
    registry.target().image("debian", "bookworm", &built).map_err(|error| error.to_string())?;
    let size: usize = built.layers.iter().map(|layer| layer.bytes.len()).sum();
    let image = format!("{}/debian:bookworm", registry.host());
    println!("{image}: {} MB compressed", size >> 20);
    let demo = Demo { coracle, image, scratch, shell };
    let mut table = Table::new(&["USER", "SUBORDINATE IDS", "MODE", "STEP", "RESULT", "TIME"]);
    let mut failed = 0;
    for user in users::all() {
        step(&format!("as {} (uid {})", user.name, user.uid));
        failed += demo.user(&user, &mut table)?;
    }
    println!("\n{}", table.text());
    println!("done in {:.0} seconds", began.elapsed().as_secs_f64());
    if failed == 0 { Ok(()) } else { Err(format!("{failed} steps failed")) }
}

impl Demo {
    fn user(&self, user: &User, table: &mut Table) -> Outcome<usize> {
        let home = self
            .scratch
            .dir(&user.name, Some((user.uid, user.gid)), 0o755)
            .map_err(|error| error.to_string())?;
        let mut failed = 0;
        let ids = if user.range { "a range" } else { "none" };
        let mut row = |mode: &str, what: &str, done: &Finished, time: f64, good: bool| {
            let result =
                if good { brief(&done.out()) } else { format!("FAILED: {}", brief(&done.err())) };
            if !good {
                failed += 1;
                println!("{done:?}");
            }
            table.row(&[&user.name, ids, mode, what, &result, &format!("{:.0} ms", time * 1000.0)]);
        };
        let run = |words: &[&str], setting: &Setting| {
            println!("$ coracle {}", words.join(" "));
            let began = Instant::now();
            let mut command = user.command_in(&self.coracle, &home, setting);
            let done = run_with(command.args(words), Input::Null, LIMIT);
            (done, began.elapsed().as_secs_f64())
        };
        let plain = Setting::default();
        let (done, time) = run(&["pull", "-q", "--tls-verify=false", &self.image], &plain);
        row("", "pull", &done, time, done.code() == 0);
        let engines = self.engines(user, &home);
        if engines.is_empty() {
            println!("no engine is ready for {} on this host", user.name);
        }
        for mode in &engines {
            let flag = format!("--execmode={mode}");
            let program: &[&str] = if self.shell {
                &["sh", "-c", "echo $(id -un) in $(cat /etc/debian_version)"]
            } else {
                &["/bin/guest", "say", "hello"]
            };
            let quick: &[&str] = if self.shell { &["true"] } else { &["/bin/guest", "exit", "0"] };
            let base = ["run", "--rm", &flag, &self.image];
            let (done, time) = run(&[&base, program].concat(), &plain);
            row(mode, "first run", &done, time, done.code() == 0);
            let (done, time) = run(&[&base, quick].concat(), &plain);
            row(mode, "run true", &done, time, done.code() == 0);
            // A runtime of the host's knows the kernel's ids only.
            if self.shell && (mode != "R1" || user.range) {
                let write = [
                    "sh",
                    "-c",
                    "touch /etc/mine && chown www-data /etc/mine && echo changed, as root",
                ];
                let (done, time) = run(&[&base[..], &write].concat(), &plain);
                row(mode, "act as root", &done, time, done.code() == 0);
            }
        }
        if users::no_namespaces().is_ok() {
            let setting = Setting { no_namespaces: true, ..plain };
            let (done, time) = run(&["run", "--rm", &self.image, "true"], &setting);
            let explained = done.code() == 125 && done.err().contains("hint:");
            let said = if done.code() == 0 { "runs".to_owned() } else { brief(&done.err()) };
            println!("{}", done.err().trim());
            let shown = Finished { stdout: said.into_bytes(), ..done.clone() };
            row("", "user namespaces forbidden", &shown, time, done.code() == 0 || explained);
        }
        Ok(failed)
    }

    /// The modes that `doctor` calls usable for this user.
    fn engines(&self, user: &User, home: &Path) -> Vec<String> {
        let mut command = user.command(&self.coracle, home);
        let done = run_with(command.args(["doctor", "--format", "json"]), Input::Null, LIMIT);
        let report: Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
        let list = report["engines"].as_array().cloned().unwrap_or_default();
        let usable =
            |engine: &&Value| matches!(engine["state"].as_str(), Some("ready" | "degraded"));
        list.iter().filter(usable).filter_map(|e| e["mode"].as_str().map(str::to_owned)).collect()
    }
}

fn brief(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let short: String = line.chars().take(60).collect();
    if short.is_empty() { "ok".to_owned() } else { short }
}
