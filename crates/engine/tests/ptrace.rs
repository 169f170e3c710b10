//! Tests of the ptrace engine, as an unprivileged user, with and without a filter.
//!
//! The guests are small C programs (`tests/ptrace/*.c`, compiled here, static) that check their
//! results themselves. Each must pass on the host, so that a failure in a container is the engine's
//! fault. If tracing is forbidden or there is no compiler the tests print that and pass.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use testkit::command::copy_program;

const MODES: [&str; 2] = ["P1", "P2"];
/// Number of containers so far.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Seconds after which a guest is killed.
const PATIENCE: &str = "100";

/// A container with one program.
struct Container {
    uid: Option<u32>,
    directory: PathBuf,
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Container {
    /// Makes a container with a guest compiled from `tests/ptrace/NAME.c`.
    fn new(name: &str) -> Option<Self> {
        let uid = rustix::process::geteuid().is_root().then_some(1000);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name_of_this = format!("coracle-ptrace-{}-{count}", std::process::id());
        let directory = std::env::temp_dir().join(name_of_this);
        for part in ["ROOT/bin", "ROOT/etc", "ROOT/tmp"] {
            std::fs::create_dir_all(directory.join(part)).unwrap();
        }
        std::fs::write(directory.join("ROOT/etc/passwd"), "root:x:0:0::/:/bin/sh\n").unwrap();
        let mut built = std::env::current_exe().ok()?;
        built.pop();
        built.pop();
        copy_program(&built.join("examples/native"), &directory.join("native"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/ptrace/{name}.c"));
        let compiled = Command::new("gcc")
            .args(["-O1", "-Wall", "-static", "-pthread", "-o"])
            .arg(directory.join("ROOT/bin/guest"))
            .arg(source)
            .status();
        if !compiled.is_ok_and(|status| status.success()) {
            eprintln!("SKIP {name}: no C compiler that makes static programs");
            return None;
        }
        let container = Self { uid, directory };
        if let Some(uid) = uid {
            let owner = format!("{uid}:{uid}");
            let status =
                Command::new("chown").args(["-R", &owner]).arg(&container.directory).status();
            assert!(status.unwrap().success());
        }
        Some(container)
    }

    /// A command as the container's user, with a time limit.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", PATIENCE]);
        if let Some(uid) = self.uid {
            let uid = uid.to_string();
            command.args(["setpriv", "--reuid", &uid, "--regid", &uid, "--clear-groups"]);
        }
        command.args(words).current_dir("/");
        command
    }

    fn guest(&self, mode: &str, verb: &str, words: &[&str]) -> Command {
        let setup = serde_json::json!({
            "place": self.directory,
            "root": {"directory": {"path": self.directory.join("ROOT")}},
            "mode": mode,
            "config": {"id": "0123456789abcdef".repeat(4)},
        });
        let file = self.directory.join(format!("{mode}.json"));
        std::fs::write(&file, setup.to_string()).unwrap();
        let program = self.directory.join("native").display().to_string();
        let file = file.display().to_string();
        let mut all = vec![program.as_str(), verb, &file];
        all.extend(words);
        self.command(&all)
    }
}

fn transcript(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// Checks that a guest that succeeds on the host succeeds in both modes.
fn as_on_the_host(name: &str) {
    let Some(container) = Container::new(name) else { return };
    let program = container.directory.join("ROOT/bin/guest").display().to_string();
    let native = container.command(&[&program]).output().unwrap();
    assert!(native.status.success(), "on the host: {}", transcript(&native));
    for mode in MODES {
        let output = container.guest(mode, "run", &["/bin/guest", mode]).output().unwrap();
        if transcript(&output).contains("may not be traced") {
            eprintln!("SKIP {name} in {mode}: {}", transcript(&output));
            continue;
        }
        assert!(output.status.success(), "{mode}: {:?}\n{}", output.status, transcript(&output));
    }
}

#[test]
fn signals_and_stops() {
    as_on_the_host("signals");
}

#[test]
fn processes_and_threads() {
    as_on_the_host("processes");
}

/// 32-bit calls of 64-bit code, threads that stop sharing, processors after many calls.
#[test]
fn rarely_used_calls() {
    as_on_the_host("corners");
}

/// If every call stops, it does so before the guest's own filters, so those do not see the view's
/// calls: not tested in P2.
#[test]
fn filters_and_tracers_inside() {
    as_on_the_host("inside");
}

/// No arguments of a guest's calls end its tracer. Not run on the host, where they could do harm.
#[test]
fn invalid_arguments_do_no_harm() {
    let Some(container) = Container::new("nonsense") else { return };
    for mode in MODES {
        let output = container.guest(mode, "run", &["/bin/guest"]).output().unwrap();
        if transcript(&output).contains("may not be traced") {
            eprintln!("SKIP nonsense in {mode}: {}", transcript(&output));
            continue;
        }
        assert!(output.status.success(), "{mode}: {:?}\n{}", output.status, transcript(&output));
    }
}

/// Exit codes and deaths by a signal are the program's own, and so is the process.
#[test]
fn the_guest_is_the_process_that_was_started() {
    let Some(container) = Container::new("ends") else { return };
    for mode in MODES {
        for (words, code, signal) in [
            (["exit", "3"], Some(3), None),
            (["signal", "9"], None, Some(9)),
            (["signal", "15"], None, Some(15)),
        ] {
            let mut all = vec!["/bin/guest"];
            all.extend(words);
            // `timeout` is its parent, and passes on only signals that it gets itself.
            let mut command = container.guest(mode, "run", &all);
            let status = without_timeout(&mut command).status().unwrap();
            assert_eq!((status.code(), status.signal()), (code, signal), "{mode} {words:?}");
        }
        let missing = container.guest(mode, "run", &["/nope"]).output().unwrap();
        assert_eq!(missing.status.code(), Some(127), "{}", transcript(&missing));
        let child = without_timeout(&mut container.guest(mode, "run", &["/bin/guest", "pid", ""]))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id();
        let output = child.wait_with_output().unwrap();
        assert_eq!(transcript(&output).trim(), pid.to_string(), "{mode}");
    }
}

/// The same command without `timeout -s KILL SECONDS` before it.
fn without_timeout(command: &mut Command) -> Command {
    let words: Vec<_> = command.get_args().skip(3).collect();
    let mut plain = Command::new(words[0]);
    plain.args(&words[1..]).current_dir("/").stdin(Stdio::null());
    plain
}

/// A tracer that is killed ends its guests, whatever they do.
#[test]
fn guests_die_with_their_tracer() {
    let Some(container) = Container::new("ends") else { return };
    for mode in MODES {
        let mut command = container.guest(mode, "run", &["/bin/guest", "family", "5"]);
        let mut child = without_timeout(&mut command).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).unwrap();
        let tracer = rustix::process::Pid::from_raw(tracer.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(tracer, rustix::process::Signal::KILL).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9), "{mode}");
        // The pipe ends with the last of the guest's processes.
        let rest = std::io::Read::read_to_string(&mut lines, &mut line);
        assert!(rest.is_ok(), "{mode}");
    }
}
