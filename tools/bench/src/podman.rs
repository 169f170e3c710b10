//! Podman as a user without privileges starts it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use testkit::users::User;

use super::Bench;
use xtask::shell::{Outcome, read};

/// Podman with a home of its own.
pub(crate) struct Podman {
    user: User,
    home: PathBuf,
    runtime: PathBuf,
    /// Its words, which begin with `env`.
    pub(crate) words: Vec<String>,
}

impl Podman {
    /// It uses the kernel's overlay, which it does not everywhere of its own accord, and runc,
    /// because crun refuses some hosts' control groups.
    ///
    /// Its home has a short path: with one of 60 characters each run waits 20 s for the end of a
    /// container that has ended.
    pub(crate) fn new(bench: &Bench, user: &User) -> Outcome<Self> {
        let owner = Some((user.uid, user.gid));
        let dir = |name| bench.scratch.dir(name, owner, 0o700).map_err(|error| error.to_string());
        let (home, runtime) = (dir("p")?, dir("p/r")?);
        let words = [
            "env",
            &format!("HOME={}", home.display()),
            &format!("XDG_RUNTIME_DIR={}", runtime.display()),
            "podman",
            "--cgroup-manager=cgroupfs",
            "--storage-driver=overlay",
            "--runtime=runc",
        ];
        let words = words.map(str::to_owned).into();
        Ok(Self { user: user.clone(), home, runtime, words })
    }

    /// What a command prints.
    pub(crate) fn run(&self, command: &[&str]) -> Outcome<String> {
        read(self.user.command("env", &self.home).args(&self.words[1..]).args(command))
    }
}

impl Drop for Podman {
    /// Ends what it has left: containers, and a process that keeps its namespaces.
    fn drop(&mut self) {
        let _ = self.run(&["rm", "-f", "-a", "-t", "0"]);
        if let Ok(pid) = fs::read_to_string(self.runtime.join("libpod/tmp/pause.pid")) {
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
    }
}
