//! What this machine cannot run, printed before anything else.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::statvfs;
use testkit::users;

use super::lanes::Done;
use crate::shell::{Outcome, root, target};
use crate::tools::is_root;

/// What a machine lacks: the condition of a permitted skip, and what follows from it in words.
type Lack = (&'static str, String);

/// What this machine lacks.
#[derive(Debug)]
pub(super) struct Machine {
    lacks: Vec<Lack>,
    megabytes: u64,
}

impl Machine {
    /// Looks what is there.
    pub(super) fn look() -> Self {
        let mut lacks: Vec<Lack> = Vec::new();
        let mut lack = |condition, what: &str| lacks.push((condition, what.to_owned()));
        if !is_root() {
            lack("no-root", "not root: no packages are installed, one user, no simulated hosts");
        }
        let made = Command::new("unshare")
            .args(["--user", "--map-root-user", "true"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !made.is_ok_and(|status| status.success()) {
            lack("no-userns", "no user namespaces: N1 and what needs it are not tested");
        }
        if !has_route() {
            lack("no-network", "no network: nothing is fetched, and no host is reached by routes");
        }
        if filters() > 0 {
            lack("seccomp", "a seccomp filter is on, such as Docker's: what it forbids is skipped");
        }
        let place = target();
        let place = if place.exists() { place } else { root() };
        let free = statvfs(&place).map_or(u64::MAX, |fs| (fs.f_bavail * fs.f_frsize) >> 20);
        Self { lacks, megabytes: free }
    }

    /// Whether the file system of the target directory has room.
    pub(super) fn has_room_for(&self, megabytes: u64) -> bool {
        self.megabytes >= megabytes
    }

    /// Adds what could not be installed. Where `CI` is set, a package that cannot be had is a
    /// failure, which the part itself reports.
    pub(super) fn lacks_packages(&mut self, done: &[Done]) {
        let missing = done.iter().any(|part| part.could_not);
        if missing || !is_root() {
            self.lacks.push(("no-packages", "some packages could not be had".to_owned()));
        }
        if users::all().len() < 2 {
            self.lacks.push(("no-users", "the test users are missing".to_owned()));
        }
    }

    /// Prints what is lacking, and the parts without room.
    pub(super) fn print(&self, without_room: &[&str]) {
        for (_, what) in &self.lacks {
            println!("this machine: {what}");
        }
        if !without_room.is_empty() {
            let free = self.megabytes;
            println!("this machine: {free} MB are free, too few for: {}", without_room.join(", "));
        }
    }

    /// The conditions of permitted skips that hold here.
    pub(super) fn conditions(&self) -> Vec<&'static str> {
        self.lacks.iter().map(|(condition, _)| *condition).collect()
    }
}

/// Fails where other users cannot enter a directory above the clone. Tests run as such users, and
/// many start programs from the clone.
pub(super) fn is_open() -> Outcome {
    let root = root();
    let is_closed = |path: &&Path| {
        path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o001 == 0)
    };
    match root.ancestors().find(is_closed) {
        Some(closed) if is_root() => {
            let closed = closed.display();
            Err(format!(
                "other users cannot enter {closed}, and tests run as other users\n\
                 hint: clone below a directory that they can enter, such as /srv, \
                 or chmod o+x {closed}"
            ))
        }
        _ => Ok(()),
    }
}

/// Brings the loopback interface up where it is down, as in a new network namespace: registries and
/// servers of the tests listen there.
pub(super) fn open_loopback() -> Outcome {
    let reached = || {
        TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| {
                TcpStream::connect_timeout(&listener.local_addr()?, Duration::from_secs(5))
            })
            .is_ok()
    };
    if reached() {
        return Ok(());
    }
    let _ = Command::new("ip").args(["link", "set", "lo", "up"]).stderr(Stdio::null()).status();
    if reached() {
        println!("this machine: its loopback interface was down, and is up now");
        return Ok(());
    }
    Err("127.0.0.1 is not reached, and tests need servers there\n\
         hint: as root: ip link set lo up"
        .to_owned())
}

/// Whether a way leads out of this host.
fn has_route() -> bool {
    let lines = |path| std::fs::read_to_string(path).unwrap_or_default();
    let v4 = lines("/proc/net/route").lines().skip(1).any(|line| !line.starts_with("lo"));
    v4 || lines("/proc/net/ipv6_route").lines().any(|line| !line.trim_end().ends_with(" lo"))
}

/// The mode of seccomp that this process is in.
fn filters() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    line.and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}
