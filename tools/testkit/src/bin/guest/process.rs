//! Process verbs: arguments, environment, descriptors, signals, children.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, waitpid};
use serde_json::{Map, Value, json};

use crate::{Answer, latin, name_of};

pub(crate) fn arguments(words: &[OsString]) -> Answer {
    let words: Vec<String> = words.iter().map(|word| latin(word.as_bytes())).collect();
    println!("{}", json!(words));
    Ok(0)
}

pub(crate) fn say(words: &[&[u8]]) -> Answer {
    let mut out = std::io::stdout();
    let line = [&words.join(&b' '), b"\n".as_slice()].concat();
    out.write_all(&line).and_then(|()| out.flush()).map_err(|e| name_of(&e))?;
    Ok(0)
}

pub(crate) fn complain(text: &str) -> Answer {
    eprintln!("{text}");
    Ok(0)
}

pub(crate) fn signal_self(number: u64) -> Answer {
    let signal = Signal::try_from(number as i32).map_err(|_| "no such signal".to_owned())?;
    // Rust's runtime handles SIGSEGV once, to check for a stack overflow, and then restores the
    // default.
    for _ in 0..2 {
        nix::sys::signal::raise(signal).map_err(|e| format!("{e:?}"))?;
    }
    // Process 1 of a namespace does not get a signal that it does not handle.
    std::thread::sleep(Duration::from_secs(1));
    println!("survived {signal}");
    Ok(0)
}

pub(crate) fn sleep(seconds: u64) -> Answer {
    std::thread::sleep(Duration::from_secs(seconds));
    Ok(0)
}

pub(crate) fn ready() -> Answer {
    say(&[b"ready"])
}

fn signals(names: &[&str]) -> Result<SigSet, String> {
    let mut set = SigSet::empty();
    for name in names {
        let full = format!("SIG{}", name.trim_start_matches("SIG"));
        set.add(full.parse().map_err(|_| format!("no signal {name}"))?);
    }
    Ok(set)
}

/// Blocks the signals permanently, as a program that ignores its termination.
pub(crate) fn block(names: &[&str]) -> Answer {
    signals(names)?.thread_block().map_err(|e| format!("{e:?}"))?;
    Ok(0)
}

/// Prints `ready`, waits for one of the signals and prints its name.
pub(crate) fn await_signal(names: &[&str]) -> Answer {
    let set = signals(names)?;
    set.thread_block().map_err(|e| format!("{e:?}"))?;
    ready()?;
    let got = set.wait().map_err(|e| format!("{e:?}"))?;
    println!("got {got}");
    Ok(0)
}

pub(crate) fn facts() -> Answer {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |name: &str| status_field(name).unwrap_or_default();
    let facts = json!({
        "pid": std::process::id(),
        "ppid": std::os::unix::process::parent_id(),
        "cwd": std::env::current_dir().map_or_else(
            |e| format!("error: {}", name_of(&e)),
            |dir| latin(dir.as_os_str().as_bytes()),
        ),
        "umask": field("Umask"),
        "cap_eff": field("CapEff"),
        "cap_bnd": field("CapBnd"),
        "no_new_privs": field("NoNewPrivs"),
        "seccomp": field("Seccomp"),
        "sig_ign": field("SigIgn"),
        "sig_blk": field("SigBlk"),
        "hostname": read("/proc/sys/kernel/hostname").trim(),
        "exe": fs::read_link("/proc/self/exe").map(|p| latin(p.as_os_str().as_bytes())).unwrap_or_default(),
        "comm": read("/proc/self/comm").trim(),
        "cpus": field("Cpus_allowed_list"),
        "namespaces": namespaces(),
        "pids": count_processes(),
    });
    println!("{facts}");
    Ok(0)
}

fn namespaces() -> Value {
    let names = ["user", "mnt", "pid", "ipc", "uts", "net", "cgroup"];
    let map: Map<String, Value> = names
        .iter()
        .map(|name| {
            let link = fs::read_link(format!("/proc/self/ns/{name}"));
            let text = link.map(|l| l.display().to_string()).unwrap_or_default();
            ((*name).to_owned(), json!(text))
        })
        .collect();
    Value::Object(map)
}

fn count_processes() -> usize {
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    entries
        .flatten()
        .filter(|entry| entry.file_name().as_bytes().iter().all(u8::is_ascii_digit))
        .count()
}

fn status_field(name: &str) -> Option<String> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

pub(crate) fn status(name: &str) -> Answer {
    println!("{}", status_field(name).unwrap_or_default());
    Ok(0)
}

/// The environment in its order, one JSON string per variable.
pub(crate) fn environment() -> Answer {
    let list: Vec<String> = std::env::vars_os()
        .map(|(name, value)| format!("{}={}", latin(name.as_bytes()), latin(value.as_bytes())))
        .collect();
    println!("{}", json!(list));
    Ok(0)
}

pub(crate) fn variable(name: &str) -> Answer {
    match std::env::var_os(name) {
        Some(value) => println!("{}", json!(latin(value.as_bytes()))),
        None => println!("null"),
    }
    Ok(0)
}

pub(crate) fn limits() -> Answer {
    print!("{}", fs::read_to_string("/proc/self/limits").map_err(|e| name_of(&e))?);
    Ok(0)
}

/// The open descriptors and their targets, without the one that reads the directory.
pub(crate) fn descriptors() -> Answer {
    let mut map = Map::new();
    let mut numbers: Vec<u32> = fs::read_dir("/proc/self/fd")
        .map_err(|e| name_of(&e))?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    for number in numbers {
        if let Ok(target) = fs::read_link(format!("/proc/self/fd/{number}")) {
            map.insert(number.to_string(), json!(latin(target.as_os_str().as_bytes())));
        }
    }
    println!("{}", Value::Object(map));
    Ok(0)
}

pub(crate) fn read_descriptor(number: u64) -> Answer {
    let text = fs::read_to_string(format!("/proc/self/fd/{number}")).map_err(|e| name_of(&e))?;
    print!("{text}");
    Ok(0)
}

pub(crate) fn cat() -> Answer {
    std::io::copy(&mut std::io::stdin(), &mut std::io::stdout()).map_err(|e| name_of(&e))?;
    Ok(0)
}

pub(crate) fn count() -> Answer {
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).map_err(|e| name_of(&e))?;
    println!("{}", bytes.len());
    Ok(0)
}

/// Writes numbered lines of 64 bytes: `megabytes` to the descriptor `to` (1 or 2).
pub(crate) fn flood(megabytes: u64, to: u64) -> Answer {
    let mut chunk = Vec::new();
    for line in 0..megabytes * (1 << 20) / 64 {
        writeln!(chunk, "{line:063}").map_err(|e| name_of(&e))?;
        if chunk.len() >= 1 << 16 {
            put(to, &chunk)?;
            chunk.clear();
        }
    }
    put(to, &chunk)?;
    Ok(0)
}

fn put(to: u64, bytes: &[u8]) -> Result<(), String> {
    let written = match to {
        2 => std::io::stderr().write_all(bytes),
        _ => std::io::stdout().write_all(bytes),
    };
    written.map_err(|e| name_of(&e))
}

fn command(words: &[OsString]) -> Result<Command, String> {
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

/// Runs a command to its end, prints how it ended, and ends the same way.
pub(crate) fn spawn(words: &[OsString]) -> Answer {
    match command(words)?.status() {
        Ok(status) => {
            println!("child: {status}");
            Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()) as u8)
        }
        Err(error) => Err(name_of(&error)),
    }
}

/// Starts a command without waiting for it.
pub(crate) fn orphan(words: &[OsString]) -> Answer {
    let child = command(words)?.spawn().map_err(|e| name_of(&e))?;
    println!("orphan {}", child.id());
    Ok(0)
}

/// Executes a command.
pub(crate) fn exec(words: &[OsString]) -> Answer {
    Err(name_of(&command(words)?.exec()))
}

/// Prints the result of `wait` for every kind of child (`__WALL`), as `strace` does.
pub(crate) fn kin() -> Answer {
    let every = WaitPidFlag::__WALL | WaitPidFlag::WNOHANG;
    match waitpid(None, Some(every)) {
        Ok(status) => println!("{status:?}"),
        Err(errno) => println!("{errno:?}"),
    }
    Ok(0)
}

/// Counts children of this process that have ended and were not waited for.
pub(crate) fn children() -> Answer {
    let mine = std::process::id().to_string();
    let mut zombies = 0;
    for entry in fs::read_dir("/proc").map_err(|e| name_of(&e))?.flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        let (state, parent) =
            (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        if state == "Z" && parent == mine {
            zombies += 1;
        }
    }
    println!("{zombies}");
    Ok(0)
}
