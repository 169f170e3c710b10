//! Runs one container from a JSON file, without store and command line: for measuring the native engine, and for its tests.
//!
//! `native run|spawn|explain FILE [COMMAND...]`, `native exec PID FILE COMMAND...`; FILE holds `{"place": DIR, "root": ..., "config": ...}`
//! with [`engine::plan::Root`] and [`engine::spec::ContainerConfig`]. `native plan FILE` runs what `explain` printed.

use engine::choose::{Engine, Streams};
use engine::engines::native::Native;
use engine::plan::{Overrides, Plan, Request, Root};
use engine::spec::ContainerConfig;
use serde::Deserialize;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Deserialize)]
struct Setup {
    place: PathBuf,
    root: Root,
    #[serde(default)]
    config: ContainerConfig,
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => ExitCode::from(code as u8),
        Err(error) => {
            eprintln!("native: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("hint: {hint}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}

fn run() -> engine::Result<i32> {
    let mut words = std::env::args().skip(1);
    let verb = words.next().unwrap_or_default();
    let target = if verb == "exec" { words.next().and_then(|pid| pid.parse().ok()) } else { None };
    let file = words.next().unwrap_or_default();
    let command: Vec<String> = words.collect();
    let invalid = |what: &str, why: String| engine::Error::Invalid {
        what: what.into(),
        value: file.clone(),
        why,
    };
    let text =
        std::fs::read_to_string(&file).map_err(|error| invalid("file", error.to_string()))?;
    if verb == "plan" {
        let plan: Plan =
            serde_json::from_str(&text).map_err(|error| invalid("plan", error.to_string()))?;
        return Native.become_guest(&plan).map(engine::choose::Ended::code);
    }
    let setup: Setup =
        serde_json::from_str(&text).map_err(|error| invalid("file", error.to_string()))?;
    let plan = planned(&setup, command, target.is_some())?;
    for warning in &plan.warnings {
        eprintln!("warning: {warning}");
    }
    match (verb.as_str(), target) {
        ("explain", _) => {
            let text = serde_json::to_string_pretty(&plan).unwrap_or_default();
            println!("{text}");
            Ok(0)
        }
        ("exec", Some(pid)) => Native.become_resident(pid, &plan).map(engine::choose::Ended::code),
        ("spawn", _) => {
            let child = Native.spawn(&plan, Streams::default())?;
            eprintln!("pid {}", child.pid);
            let pid = rustix::process::Pid::from_raw(child.pid as i32);
            let ended = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty());
            let status = ended.ok().flatten().map(|(_, status)| status);
            Ok(status.map_or(125, |status| {
                status
                    .exit_status()
                    .unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0))
            }))
        }
        _ => Native.become_guest(&plan).map(engine::choose::Ended::code),
    }
}

fn planned(setup: &Setup, command: Vec<String>, exec: bool) -> engine::Result<Plan> {
    let context = host::Context::default();
    let host = host::Host::quick(&context);
    let facts = engine::facts::Facts::of(&host, &context, &setup.config);
    let command = (!command.is_empty()).then_some(command);
    let overrides = Overrides { command, exec, ..Overrides::default() };
    engine::plan::plan(&Request {
        config: &setup.config,
        root: &setup.root,
        place: &setup.place,
        facts: &facts,
        overrides: &overrides,
        accounts: &engine::accounts::OfRoot(&setup.root),
        running: &|name| name.parse().ok(),
    })
}
