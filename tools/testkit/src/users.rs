//! The unprivileged users that run the tested programs.
//!
//! Under root there are two: `coracle-plain` without subordinate ids and `coracle-range` with a
//! range in `/etc/subuid` and `/etc/subgid`. Only `cargo xtask ci` and `demo` call [`create`],
//! which makes them: a test never changes the machine. Under an ordinary user, the suite runs as
//! that user alone.
//!
//! A program is started through `setpriv` with a clean environment, so nothing of root's leaks in.
//! [`Setting`] adds unusual conditions of real hosts: a strict umask, closed standard input,
//! forbidden user namespaces.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::IntoRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::built;
use crate::command::find_program;

/// Without subordinate ids.
pub const PLAIN: &str = "coracle-plain";
/// With subordinate ids.
pub const RANGE: &str = "coracle-range";

/// A user that runs programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary groups, which programs of the user are started with.
    pub groups: Vec<u32>,
    /// True if `/etc/subuid` and `/etc/subgid` give this user a range.
    pub range: bool,
}

/// Conditions of a run.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// Octal umask.
    pub umask: Option<u32>,
    /// Standard input is closed, not empty.
    pub closed_stdin: bool,
    /// Creating user namespaces is forbidden (root only; see [`no_namespaces`]).
    pub no_namespaces: bool,
    /// A shell fragment run before the program, such as `ulimit -n 100; exec 5<file;`.
    pub before: String,
}

impl User {
    /// A short word for test names: `range` or `plain`.
    pub fn kind(&self) -> &'static str {
        if self.range { "range" } else { "plain" }
    }

    /// A command that runs `program` as this user with `home` and nothing else from outside.
    pub fn command(&self, program: impl AsRef<OsStr>, home: &Path) -> Command {
        self.command_in(program, home, &Setting::default())
    }

    /// As [`User::command`], under given conditions.
    ///
    /// # Panics
    /// If namespaces are to be forbidden and cannot be: call [`no_namespaces`] first.
    pub fn command_in(
        &self,
        program: impl AsRef<OsStr>,
        home: &Path,
        setting: &Setting,
    ) -> Command {
        let mut words: Vec<OsString> = Vec::new();
        if setting.no_namespaces {
            words.extend_from_slice(forbidding().expect("asked before"));
        }
        if self.uid != rustix::process::getuid().as_raw() {
            // By its path: a name is looked up in the new `PATH` after a fork, which copies the
            // tables of all memory of the suite; for a path std uses `posix_spawn`.
            let setpriv = find_program("setpriv").map_or_else(|| "setpriv".into(), OsString::from);
            words.push(setpriv);
            words.push(format!("--reuid={}", self.uid).into());
            words.push(format!("--regid={}", self.gid).into());
            let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
            let none = groups.is_empty();
            let groups = format!("--groups={}", groups.join(","));
            words.push(if none { "--clear-groups".into() } else { groups.into() });
            words.push("--".into());
        }
        let umask = setting.umask.map(|mask| format!("umask {mask:03o}; ")).unwrap_or_default();
        let stdin = if setting.closed_stdin { " <&-" } else { "" };
        let script = format!("{umask}{}exec \"$@\"{stdin}", setting.before);
        if script != "exec \"$@\"" {
            words.extend(["sh".into(), "-c".into(), script.into(), "sh".into()]);
        }
        words.push(program.as_ref().to_owned());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .env_clear()
            .env("HOME", home)
            .env("USER", &self.name)
            .env("LOGNAME", &self.name)
            .env("LANG", "C.UTF-8")
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin")
            .current_dir("/");
        command
    }
}

/// Why root cannot run what [`all`] are for.
pub const MISSING: &str = "the test users are missing: run `cargo xtask setup` as root once";

/// The available users: the two test users for root, else the caller alone.
pub fn all() -> Vec<User> {
    if rustix::process::getuid().is_root() {
        [PLAIN, RANGE].into_iter().filter_map(lookup).collect()
    } else {
        let uid = rustix::process::getuid().as_raw();
        let name = entry(|fields| fields[2] == uid.to_string())
            .map_or_else(|| uid.to_string(), |fields| fields[0].clone());
        vec![User {
            range: has_range(&name, uid),
            name,
            uid,
            gid: rustix::process::getgid().as_raw(),
            groups: Vec::new(),
        }]
    }
}

/// Finds a user in `/etc/passwd`.
pub fn lookup(name: &str) -> Option<User> {
    let fields = entry(|fields| fields[0] == name)?;
    let uid = fields[2].parse().ok()?;
    let gid = fields[3].parse().ok()?;
    let groups = Vec::new();
    Some(User { name: name.to_owned(), uid, gid, groups, range: has_range(name, uid) })
}

/// Makes the two test users if they are missing. Root only.
pub fn create() -> io::Result<()> {
    for (name, range) in [(PLAIN, false), (RANGE, true)] {
        if lookup(name).is_none() {
            let shell = ["--create-home", "--shell", "/bin/sh", name];
            checked(Command::new("useradd").args(shell))?;
        }
        // Debian's useradd may assign ranges by itself, depending on login.defs.
        for (file, add, delete) in [
            ("/etc/subuid", "--add-subuids", "--del-subuids"),
            ("/etc/subgid", "--add-subgids", "--del-subgids"),
        ] {
            let text = fs::read_to_string(file).unwrap_or_default();
            let mine: Vec<(u64, u64)> = ranges(&text)
                .filter(|(owner, ..)| *owner == name)
                .map(|(_, first, count)| (first, count))
                .collect();
            if range && mine.is_empty() {
                let free = ranges(&text).map(|(_, first, count)| first + count).max();
                let first = free.unwrap_or(0).max(100_000);
                let span = format!("{first}-{}", first + 65_535);
                checked(Command::new("usermod").args([add, &span, name]))?;
            }
            for (first, count) in mine.into_iter().filter(|_| !range) {
                let span = format!("{first}-{}", first + count - 1);
                checked(Command::new("usermod").args([delete, &span, name]))?;
            }
        }
    }
    Ok(())
}

/// The program of this crate that forbids user namespaces for the program it runs (`nouserns
/// PROGRAM...`), or the reason why it is unusable: it needs root, and a host on which root may make
/// a user namespace.
pub fn no_namespaces() -> Result<&'static Path, String> {
    static TRIED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    TRIED.get_or_init(find_no_namespaces).as_deref().map_err(Clone::clone)
}

/// The words before a program that runs in the one namespace of this suite in which no other can
/// be made. One for all, as on a host: Coracle keeps what it finds out about a host for each
/// namespace.
fn forbidding() -> Result<&'static [OsString], String> {
    static WORDS: OnceLock<Result<Vec<OsString>, String>> = OnceLock::new();
    let words = WORDS.get_or_init(|| {
        let namespace = forbidden_namespace().map_err(|error| format!("no namespace: {error}"))?;
        let enter = find_program("nsenter").ok_or("nsenter is not installed")?;
        // It stays open as long as the suite runs.
        let (suite, file) = (std::process::id(), namespace.into_raw_fd());
        Ok(vec![
            enter.into(),
            format!("--user=/proc/{suite}/fd/{file}").into(),
            "--preserve-credentials".into(),
            "--".into(),
        ])
    });
    words.as_deref().map_err(Clone::clone)
}

/// A namespace in which no other can be made, which a program of this crate has made.
fn forbidden_namespace() -> io::Result<fs::File> {
    let program = no_namespaces().map_err(io::Error::other)?;
    let mut holder =
        Command::new(program).arg("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (input, output) = (holder.stdin.take(), holder.stdout.take());
    let mut pipes = input.zip(output).ok_or_else(|| io::Error::other("no pipes"))?;
    // What comes back says that the namespace is complete.
    pipes.0.write_all(b".")?;
    pipes.1.read_exact(&mut [0])?;
    let namespace = fs::File::open(format!("/proc/{}/ns/user", holder.id()));
    drop(pipes);
    holder.wait()?;
    namespace
}

fn find_no_namespaces() -> Result<PathBuf, String> {
    if !rustix::process::getuid().is_root() {
        return Err("only root can forbid user namespaces".to_owned());
    }
    let program = built::program("nouserns").map_err(|error| format!("no nouserns: {error}"))?;
    let tried = Command::new(&program).arg("true").stdin(Stdio::null()).output();
    let tried = tried.map_err(|error| format!("{}: {error}", program.display()))?;
    if tried.status.success() {
        return Ok(program);
    }
    Err(String::from_utf8_lossy(&tried.stderr).trim().to_owned())
}

fn entry(wanted: impl Fn(&[String]) -> bool) -> Option<Vec<String>> {
    let text = fs::read_to_string("/etc/passwd").ok()?;
    text.lines()
        .map(|line| line.split(':').map(str::to_owned).collect::<Vec<_>>())
        .find(|fields| fields.len() >= 7 && wanted(fields))
}

fn has_range(name: &str, uid: u32) -> bool {
    ["/etc/subuid", "/etc/subgid"].iter().all(|file| {
        let text = fs::read_to_string(file).unwrap_or_default();
        ranges(&text).any(|(owner, ..)| owner == name || owner == uid.to_string())
    })
}

fn ranges(text: &str) -> impl Iterator<Item = (&str, u64, u64)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let owner = fields.next()?;
        Some((owner, fields.next()?.parse().ok()?, fields.next()?.trim().parse().ok()?))
    })
}

fn checked(command: &mut Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{command:?}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}
