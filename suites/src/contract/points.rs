//! Tests which descriptors are open when a name of the image or the guest is used, as listed in
//! docs/security.md.
//!
//! The processes of a start are traced by a program (`held.c`) that holds each of them at the calls
//! in question. The test, as root, reads from `/proc` at which call a process is held, its path,
//! and its open descriptors, and lets it go on.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::Stdio;

use testkit::skip::{Outcome, Skip};

use crate::contract::patched_code::compiled;
use crate::contract::world::{Case, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("where_the_program_begins", where_the_program_begins),
    ("where_mounts_are_made", where_mounts_are_made),
    ("where_an_exec_begins", where_an_exec_begins),
];

/// Numbers of calls in x86-64, with the argument that is a path.
const CHDIR: (u64, usize) = (80, 0);
const MKDIR: (u64, usize) = (258, 1);
const EXECVE: (u64, usize) = (59, 0);
const MOUNT: (u64, usize) = (165, 1);
const MOVE_MOUNT: (u64, usize) = (429, 3);

/// A process that is held at a call: the call, its path, and the open descriptors from 3 on.
#[derive(Debug)]
struct Held {
    call: u64,
    path: String,
    open: BTreeMap<u32, String>,
}

/// Runs a command and returns the processes that were held at these calls.
fn watch(w: &World, calls: &[(u64, usize)], words: &[String]) -> Result<Vec<Held>, Skip> {
    w.boundary()?;
    if !rustix::process::getuid().is_root() {
        testkit::skip!("only root may look at what other users' processes have open");
    }
    let source = w.file(&w.dir("held"), "held.c", include_str!("held.c"));
    let plain = w.command(words);
    let mut command = std::process::Command::new(compiled(&source, &["-O1"])?);
    let numbers: Vec<String> = calls.iter().map(|(number, _)| number.to_string()).collect();
    command.arg(numbers.join(",")).arg(plain.get_program()).args(plain.get_args());
    command.env_clear().envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut tracer = command.spawn().expect("the tracer");
    let mut goes_on = tracer.stdin.take().expect("a pipe");
    let told = std::io::BufReader::new(tracer.stdout.take().expect("a pipe"));
    let mut seen = Vec::new();
    for line in told.lines() {
        let pid = line.expect("a line").parse().expect("a number");
        seen.extend(held(pid, calls));
        goes_on.write_all(b"g").expect("the tracer");
    }
    let code = tracer.wait().expect("the tracer").code();
    if code == Some(77) {
        testkit::skip!("the kernel does not tell which call a process has entered");
    }
    assert_eq!(code, Some(0), "{words:?}");
    Ok(seen)
}

fn held(pid: u32, calls: &[(u64, usize)]) -> Option<Held> {
    let at = || fs::read_to_string(format!("/proc/{pid}/syscall")).ok();
    let text = at()?;
    let mut words = text.split_ascii_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    let (_, argument) = calls.iter().find(|(call, _)| *call == number)?;
    let address = u64::from_str_radix(words.nth(*argument)?.trim_start_matches("0x"), 16).ok()?;
    let mut bytes = [0; 256];
    let length =
        fs::File::open(format!("/proc/{pid}/mem")).ok()?.read_at(&mut bytes, address).ok()?;
    let path = bytes[..length].split(|byte| *byte == 0).next()?;
    let mut open = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten() {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        if number > 2 {
            open.insert(number, fs::read_link(entry.path()).ok()?.display().to_string());
        }
    }
    let path = String::from_utf8_lossy(path).into_owned();
    // The process is still there, so what was read belongs to this call.
    (at()? == text).then_some(Held { call: number, path, open })
}

/// True for pipes and sockets, through which no path leads.
fn is_blind(link: &str) -> bool {
    link.starts_with("pipe:") || link.starts_with("socket:")
}

#[track_caller]
fn only(seen: &[Held], is_point: impl Fn(&Held) -> bool, may: impl Fn(&str) -> bool) -> usize {
    let points: Vec<_> = seen.iter().filter(|held| is_point(held)).collect();
    for held in &points {
        let strange: Vec<_> = held.open.values().filter(|link| !may(link)).collect();
        assert!(strange.is_empty(), "{strange:?} at {held:?}");
    }
    points.len()
}

const ISOLATED: [&str; 2] = ["--isolate", "--network=none"];
/// A directory that is not in the image.
const MADE: &str = "/made/for-this";

#[track_caller]
fn begins(seen: &[Held], makes: bool) {
    // Where ids are emulated, our own program loads the guest's, which is open.
    let is_program = |held: &Held| {
        held.call == EXECVE.0
            && (held.path.ends_with("bin/guest") || held.path.contains("/nfsd/stage-"))
    };
    let may = |link: &str| is_blind(link) || link == "/bin/guest";
    let enters = |held: &Held| held.call == CHDIR.0 && held.path.starts_with("/made");
    let made = |held: &Held| held.call == MKDIR.0 && held.path.starts_with("/made");
    assert!(only(seen, is_program, may) > 0, "its execve was not seen: {seen:?}");
    assert!(only(seen, enters, is_blind) > 0, "its chdir was not seen: {seen:?}");
    assert!(only(seen, made, is_blind) > 0 || !makes, "its mkdir was not seen: {seen:?}");
}

fn where_the_program_begins(w: &World) -> Outcome {
    let calls = [CHDIR, MKDIR, EXECVE];
    for verb in [["run", "--rm"].as_slice(), &["run"]] {
        for more in [&[][..], &["--init"]] {
            let flags = [&ISOLATED[..], &["-w", MADE], more].concat();
            begins(&watch(w, &calls, &w.words_for(verb, &flags, &["exit", "0"]))?, true);
        }
    }
    Ok(())
}

fn where_an_exec_begins(w: &World) -> Outcome {
    w.boundary()?;
    let flags = [&ISOLATED[..], &["-w", MADE]].concat();
    let c = w.detached(&flags, &["sleep", "300"]);
    let words = ["exec", "-w", MADE, &c.name, "/bin/guest", "exit", "0"].map(str::to_owned);
    begins(&watch(w, &[CHDIR, EXECVE], &words)?, false);
    Ok(())
}

/// Their places are found name by name; no link of `/proc` is followed. Open are copies of the
/// trees to mount, whose links say `/` since they are attached nowhere, then their mount points,
/// and the host's `/dev/null`.
fn where_mounts_are_made(w: &World) -> Outcome {
    if w.engine == "R1" {
        testkit::skip!("a runtime of the host's mounts what the plan names, in its own way");
    }
    let place = w.dir("source");
    let volume = format!("{}:/data/sub", place.display());
    let flags = [&ISOLATED[..], &["-v", &volume]].concat();
    let words = w.words(&flags, &["exit", "0"]);
    let seen = watch(w, &[MOUNT, MOVE_MOUNT], &words)?;
    let is_place = |path: &str| {
        ["/proc", "/dev", "/sys", "/data", "/etc"].iter().any(|place| path.starts_with(place))
    };
    let inside = |held: &Held| is_place(&held.path);
    let may = |link: &str| is_blind(link) || link == "/" || link != "/proc" && is_place(link);
    assert!(only(&seen, inside, may) > 0, "no mount was seen: {seen:?}");
    Ok(())
}
