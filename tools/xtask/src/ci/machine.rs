//! What this machine cannot run, printed before anything else.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::statvfs;
use testkit::users;

use super::lanes::Done;
use crate::shell::{root, target};
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

/// The directory above the clone that other users cannot enter. Tests run as such users, and many
/// start programs from the clone.
pub(super) fn closed() -> Option<PathBuf> {
    let root = root();
    let is_closed = |path: &&Path| {
        path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o001 == 0)
    };
    let found = root.ancestors().find(is_closed).map(Path::to_owned);
    found.filter(|_| is_root())
}

/// The mode of seccomp that this process is in.
fn filters() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    line.and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}
