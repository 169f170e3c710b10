//! Runs one container from a JSON file, without store and command line: for measurements and tests
//! of engines.
//!
//! `native run|spawn|explain FILE [COMMAND...]`, `native exec PID FILE COMMAND...`; FILE holds
//! `{"place": DIR, "root": ..., "config": ...}` with [`engine::plan::Root`] and
//! [`engine::spec::ContainerConfig`], and optionally `"mode"`, the engine. `native plan FILE` runs
//! the output of `explain`.

use engine::choose::{Engine, Streams};
use engine::engines::native::Native;
use engine::engines::ptrace::Mode;
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
    #[serde(default)]
    mode: String,
}

impl Setup {
    fn engine(&self) -> &'static dyn Engine {
        match self.mode.as_str() {
            "P1" => &Mode::Filtered,
            "P2" => &Mode::EveryCall,
            _ => &Native,
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if words[0].ends_with("guest") {
        return match guest(&words[1..]) {
            Ok(code) => ExitCode::from(code as u8),
            Err(error) => {
                eprintln!("guest: {error}");
                ExitCode::from(99)
            }
        };
    }
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
        return Native.become_guest(&plan, &mut || {}).map(engine::choose::Ended::code);
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
        ("exec", Some(pid)) => {
            setup.engine().become_resident(pid, &plan).map(engine::choose::Ended::code)
        }
        ("spawn", _) => {
            let child = setup.engine().spawn(&plan, Streams::default())?;
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
        _ => setup.engine().become_guest(&plan, &mut || {}).map(engine::choose::Ended::code),
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
        fake_root: true,
        keep_umask: false,
        own_ids: setup.engine().root().is_tree(),
        accounts: &engine::accounts::OfRoot(&setup.root),
        private: engine::plan::PrivateBy::Namespace,
        network: None,
        running: &|name| engine::plan::Neighbour::of(name.parse().ok()?),
    })
}

/// The tests' program inside a container: this same static program, as `/bin/guest VERB...`.
fn guest(words: &[String]) -> Result<i32, String> {
    use rustix::process::{Gid, Uid};
    let text = |error: rustix::io::Errno| error.to_string();
    let number = |at: usize| -> Result<u32, String> {
        words.get(at).and_then(|word| word.parse().ok()).ok_or_else(|| "number".to_owned())
    };
    let path = words.get(1).map(String::as_str).unwrap_or_default();
    match words.first().map(String::as_str) {
        Some("id") => {
            let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
            println!("{} {} {}", uid.as_raw(), gid.as_raw(), std::process::id());
        }
        Some("read") => print!("{}", std::fs::read_to_string(path).map_err(|e| e.to_string())?),
        Some("write") => std::fs::write(path, "x").map_err(|error| error.to_string())?,
        Some("list") => {
            for entry in std::fs::read_dir(path).map_err(|error| error.to_string())? {
                println!("{}", entry.map_err(|e| e.to_string())?.file_name().display());
            }
        }
        Some("link") => {
            println!("{}", std::fs::read_link(path).map_err(|e| e.to_string())?.display());
        }
        Some("env") => std::env::vars().for_each(|(key, value)| println!("{key}={value}")),
        Some("exit") => return Ok(number(1)? as i32),
        Some("die") => {
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::TERM,
            );
        }
        Some("sleep") => {
            println!("{}", std::process::id());
            std::thread::sleep(std::time::Duration::from_millis(u64::from(number(1)?)));
        }
        Some("chown") => {
            let (uid, gid) = (Uid::from_raw(number(2)?), Gid::from_raw(number(3)?));
            rustix::fs::chown(path, Some(uid), Some(gid)).map_err(text)?;
        }
        Some("chmod") => {
            let mode = rustix::fs::Mode::from_raw_mode(number(2)?);
            rustix::fs::chmod(path, mode).map_err(text)?;
        }
        Some("owner") => {
            let stat = rustix::fs::stat(path).map_err(text)?;
            println!("{}:{}:{:o}", stat.st_uid, stat.st_gid, stat.st_mode & 0o7777);
        }
        // The same calls that apt makes for its downloads, with checks.
        Some("drop") => {
            let (uid, gid) = (Uid::from_raw(number(1)?), Gid::from_raw(number(1)?));
            rustix::thread::set_thread_groups(&[gid]).map_err(text)?;
            rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(text)?;
            rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(text)?;
            let back = rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT);
            let groups = rustix::process::getgroups().map_err(text)?;
            println!("{} {back:?} {}", rustix::process::getuid().as_raw(), groups.len());
        }
        other => return Err(format!("verb {other:?}")),
    }
    Ok(0)
}
