//! Tests of one container in all modes of this host: changes made in one mode are there in each
//! later one.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::world::{Case, Container, LIMIT, World};
use testkit::command::{Finished, Input, find_program, run_with};
use testkit::skip::{Outcome, Skip};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("there_and_back", there_and_back),
    ("calls_that_a_filter_traps", calls_that_a_filter_traps),
    ("a_stricter_filter", a_stricter_filter),
    ("where_overlays_are_refused", where_overlays_are_refused),
    ("in_gvisor", in_gvisor),
    ("by_crun", by_crun),
    ("a_runtime_process_that_stays_for_a_moment", a_runtime_process_that_stays_for_a_moment),
];

/// The program behind a filter of its own, whose words are those of [`testkit::fence::fence`].
pub(crate) fn behind(w: &World, fence: &Path, calls: &[&str], words: &[&str]) -> Finished {
    let inner = w.command(words);
    let mut all: Vec<OsString> = calls.iter().map(Into::into).collect();
    all.push("--".into());
    all.extend(inner.get_args().map(OsStr::to_owned));
    // After `setpriv ... --` the words are the program's.
    let program = all.iter().rposition(|word| *word == *w.coracle.as_os_str());
    let outer = inner.get_program().to_owned();
    let mut command = Command::new(outer);
    let split = program.expect("the program");
    command.args(&all[calls.len() + 1..split]).arg(fence).args(calls).arg("--").args(&all[split..]);
    command.env_clear();
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir("/");
    run_with(&mut command, Input::Null, LIMIT)
}

pub(crate) fn fence_of(w: &World) -> Result<PathBuf, Skip> {
    if w.engine != "N1" {
        testkit::skip!("it chooses modes itself");
    }
    if w.user.uid == rustix::process::getuid().as_raw() {
        testkit::skip!("the suite runs as the user itself");
    }
    let place = w.dir("fence");
    let Some(program) = testkit::fence::fence(&place) else {
        testkit::skip!("no C compiler");
    };
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a mode");
    Ok(program)
}

/// Filters that trap calls instead of refusing them, as Android's, end nothing.
fn calls_that_a_filter_traps(w: &World) -> Outcome {
    let fence = fence_of(w)?;
    let words = ["run", "--rm", &w.image, "/bin/guest", "exit", "7"];
    let all =
        ["trap-statx", "trap-rseq", "trap-set_robust_list", "trap-openat2", "trap-faccessat2"];
    for one in all {
        let done = behind(w, &fence, &[one], &["version"]);
        assert!(done.code() == 0, "{one}: {done:?}");
    }
    behind(w, &fence, &all, &["version"]).ok();
    // The program is under that filter too; it makes no such call but those of its C library.
    let done = behind(w, &fence, &["trap-openat2", "trap-faccessat2"], &words);
    done.expect(7);
    Ok(())
}

/// What was found under one filter does not count under another.
fn a_stricter_filter(w: &World) -> Outcome {
    let fence = fence_of(w)?;
    let words = ["run", "--rm", &w.image, "/bin/guest", "exit", "7"];
    for calls in [&["openat2"][..], &["namespaces"], &["openat2"], &["tracing"]] {
        let done = behind(w, &fence, calls, &words);
        assert!(done.code() == 7, "{calls:?}: {done:?}");
    }
    Ok(())
}

/// Where overlays are refused (here because the store lies on one), the mode that is chosen by
/// itself is one that works.
fn where_overlays_are_refused(w: &World) -> Outcome {
    fence_of(w)?;
    let base = w.dir("overlay");
    let script = format!(
        "cd '{}' && mkdir lower upper work home && chown {}:{} upper lower && mount -t tmpfs none work \
         && mkdir work/upper work/work && chown {}:{} work/upper \
         && mount -t overlay overlay -o lowerdir=lower,upperdir=work/upper,workdir=work/work home \
         && exec \"$@\"",
        base.display(),
        w.user.uid,
        w.user.gid,
        w.user.uid,
        w.user.gid
    );
    let there = w.at(&base.join("home"));
    let run = |words: &[&str]| {
        let inner = there.command(words);
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script, "sh"]).arg(inner.get_program());
        command.args(inner.get_args()).env_clear();
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let done = run_with(&mut command, Input::Null, LIMIT);
        for name in ["lower", "upper", "work", "home"] {
            let _ = fs::remove_dir(base.join(name));
        }
        done
    };
    run(&["run", "--rm", "hello"]).ok();
    let doctor = run(&["doctor"]);
    let line = doctor.out().lines().find(|line| line.contains("N1")).unwrap_or_default().to_owned();
    assert!(line.contains("degraded") && !line.contains("chosen"), "{doctor:?}");
    Ok(())
}

/// gVisor has namespaces, and no overlays.
fn in_gvisor(w: &World) -> Outcome {
    if w.engine != "N1" || w.user.range {
        testkit::skip!("it chooses modes itself");
    }
    let Some(runsc) = find_program("runsc") else { testkit::skip!("runsc is not installed") };
    if !rustix::process::getuid().is_root() {
        testkit::skip!("only root of a sandbox has this mode chosen");
    }
    let home = w.dir("gvisor");
    let run = |words: &[&str]| {
        let mut command = Command::new(&runsc);
        let flags = ["--rootless", "--network=none", "--ignore-cgroups", "--overlay=false", "do"];
        command.args(flags).arg(&w.coracle).args(words).env("HOME", &home);
        run_with(&mut command, Input::Null, LIMIT)
    };
    if run(&["version"]).code() != 0 {
        testkit::skip!("runsc does not run here");
    }
    run(&["run", "--rm", "hello"]).ok();
    assert!(run(&["doctor"]).out().contains("gVisor"));
    Ok(())
}

/// The other runtime accepts the same bundle.
fn by_crun(w: &World) -> Outcome {
    if w.engine != "N1" {
        testkit::skip!("it chooses modes itself");
    }
    if find_program("crun").is_none() {
        testkit::skip!("crun is not installed");
    }
    let run = |mode: &str, flags: &[&str], guest: &[&str]| {
        let mut words = vec!["run", "--rm", mode];
        words.extend(flags);
        words.extend([&w.image[..], "/bin/guest"]);
        words.extend(guest);
        let mut command = w.command(&words);
        run_with(command.env("CORACLE_RUNTIME", "crun"), Input::Null, LIMIT)
    };
    let file = format!("{}:/a/file:ro", w.file(&w.dir("crun"), "file", "of the host").display());
    for mode in ["--execmode=R1", "--execmode=R2"] {
        let done = run(mode, &["-v", &file, "-e", "A=b"], &["read", "/a/file", ";", "exit", "7"]);
        assert_eq!(done.expect(7).out(), "of the host", "{mode}");
        let done = run(mode, &["-v", &file], &["write", "/a/file", "x"]);
        assert!(done.out().contains("EROFS"), "{mode}: {done:?}");
        run(mode, &["-u", "5:6"], &["signal", "9"]).expect(137);
    }
    let flags = ["--isolate", "--network=none", "--device", "/dev/null:/dev/other"];
    let done = run("--execmode=R1", &flags, &["stat", "/dev/other", ";", "list", "/dev"]);
    assert!(done.ok().out().contains("urandom"), "{done:?}");
    let mut command =
        w.command(&["run", "--rm", "--execmode=R1", &w.image, "/bin/guest", "exit", "0"]);
    let done = run_with(command.env("CORACLE_RUNTIME", "/no/such/program"), Input::Null, LIMIT);
    assert!(done.expect(125).err().contains("/no/such/program"), "{done:?}");
    Ok(())
}

/// The processes that a program leaves behind take some time to end.
const SLOW: &str = r"
#include <unistd.h>
static pid_t first;
__attribute__((constructor)) static void begin(void) { first = getpid(); }
__attribute__((destructor)) static void end(void) { if (getpid() != first) usleep(300000); }
";

/// A program does not die with a process that its runtime leaves behind, as crun does for a moment.
fn a_runtime_process_that_stays_for_a_moment(w: &World) -> Outcome {
    if w.engine != "N1" || w.user.range {
        testkit::skip!("it chooses modes itself");
    }
    let (Some(crun), Some(gcc)) = (find_program("crun"), find_program("gcc")) else {
        testkit::skip!("crun or gcc is not installed");
    };
    let dir = w.dir("slow");
    let (source, library) = (w.file(&dir, "slow.c", SLOW), dir.join("slow.so"));
    let done =
        Command::new(gcc).args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(done.is_ok_and(|status| status.success()), "{} is not compiled", source.display());
    let (library, crun) = (library.display(), crun.display());
    let slow =
        w.file(&dir, "crun", &format!("#!/bin/sh\nLD_PRELOAD={library} exec {crun} \"$@\"\n"));
    fs::set_permissions(&slow, fs::Permissions::from_mode(0o755)).expect("rights");
    for mode in ["--execmode=R1", "--execmode=R2"] {
        let words = ["run", "--rm", mode, &w.image, "/bin/guest", "sleep", "1", ";", "exit", "7"];
        let mut command = w.command(&words);
        run_with(command.env("CORACLE_RUNTIME", &slow), Input::Null, LIMIT).expect(7);
    }
    Ok(())
}

/// Some modes share a form on disk, others do not; each one follows a mode of the other kind at
/// least once.
const WALK: [&str; 12] = ["N1", "R1", "I1", "N1", "R2", "P1", "R1", "F2", "R3", "P2", "N1", "I2"];

fn ready(w: &World) -> Vec<String> {
    let report: serde_json::Value =
        serde_json::from_slice(&w.coracle(&["doctor", "--format", "json"]).stdout)
            .unwrap_or_default();
    let all = report["engines"].as_array().into_iter().flatten();
    let ready = all.filter(|engine| engine["state"] == "ready" || engine["state"] == "degraded");
    ready.filter_map(|engine| engine["mode"].as_str()).map(str::to_owned).collect()
}

fn there_and_back(w: &World) -> Outcome {
    if w.engine != "N1" || w.user.range {
        testkit::skip!("it goes through all modes itself");
    }
    let ready = ready(w);
    let name = w.name("walk");
    let container = Container::named(w, &name);
    w.coracle(&["create", "--name", &name, &w.image]).ok();
    let walk: Vec<&str> = WALK.into_iter().filter(|mode| ready.iter().any(|r| r == mode)).collect();
    assert!(walk.len() > 6, "only {walk:?} are usable");
    for (step, mode) in walk.iter().enumerate() {
        w.coracle(&["setup", &format!("--execmode={mode}"), &container.name]).ok();
        let told = w.coracle(&["setup", &container.name]).ok().out();
        assert_eq!(told.trim(), format!("execmode: {mode}"));
        change(w, &container.name, step, mode);
        for (earlier, by) in walk.iter().enumerate().take(step + 1) {
            check(w, &container.name, (earlier, by), mode);
        }
    }
    Ok(())
}

/// Makes a file with an owner and a mode, a link and a pipe, and removes a file of the image.
fn change(w: &World, container: &str, step: usize, mode: &str) {
    let (file, link, pipe) =
        (format!("/file-{step}"), format!("/link-{step}"), format!("/pipe-{step}"));
    let mut words = vec!["run", container, "/bin/guest", "write", &file, mode, ";"];
    words.extend(["symlink", mode, &link, ";", "fifo", &pipe, ";"]);
    if mode != "R1" {
        words.extend(["chown", &file, "3", "4", ";"]);
    }
    words.extend(["chmod", &file, "4751"]);
    if step == 0 {
        words.extend([";", "remove", "/etc/alices"]);
    }
    w.coracle(&words).ok();
}

/// Checks the changes of a step in a later mode.
fn check(w: &World, container: &str, (step, by): (usize, &str), mode: &str) {
    let (file, link, pipe) =
        (format!("/file-{step}"), format!("/link-{step}"), format!("/pipe-{step}"));
    let mut words = vec!["run", container, "/bin/guest", "read", &file, ";", "link", &link, ";"];
    words.extend(["list", "/etc", ";", "stat", &pipe, ";", "stat", &file]);
    let text = w.coracle(&words).ok().out();
    let context = format!("made in {by}, seen in {mode}: {text}");
    assert!(text.starts_with(by) && text.matches(by).count() >= 2, "{context}");
    assert!(text.contains("image-file") && !text.contains("alices"), "{context}");
    assert!(text.contains("fifo"), "{context}");
    // It shows owners only if the kernel maps them.
    if mode == "R1" {
        return;
    }
    let stat: serde_json::Value =
        serde_json::from_str(text.lines().last().unwrap_or_default()).expect("stat");
    let owner = if by == "R1" { (0, 0) } else { (3, 4) };
    assert_eq!(
        (stat["uid"].as_u64(), stat["gid"].as_u64()),
        (Some(owner.0), Some(owner.1)),
        "{context}"
    );
    assert_eq!(stat["mode"], "4751", "{context}");
}
