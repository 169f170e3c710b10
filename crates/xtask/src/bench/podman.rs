//! Podman as the measured user starts it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::Bench;
use crate::shell::Outcome;

/// Podman with a home of its own.
pub(crate) struct Podman<'b> {
    bench: &'b Bench,
    runtime: PathBuf,
    /// Its words, which begin with `env`.
    pub(crate) words: Vec<String>,
}

impl<'b> Podman<'b> {
    /// It uses the kernel's overlay, which it does not everywhere of its own accord, and runc,
    /// because crun refuses some hosts' control groups.
    ///
    /// Its home has a short path: with one of 60 characters each run waits 20 s for the end of a
    /// container that has ended.
    pub(crate) fn new(bench: &'b Bench) -> Outcome<Self> {
        let owner = Some((bench.user.uid, bench.user.gid));
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
        Ok(Self { bench, runtime, words })
    }

    /// What a command prints.
    pub(crate) fn run(&self, command: &[&str]) -> Outcome<String> {
        self.bench.as_user(&self.bench.home, |env| env.args(&self.words[1..]).args(command))
    }
}

impl Drop for Podman<'_> {
    /// Ends what it has left: containers, and a process that keeps its namespaces.
    fn drop(&mut self) {
        let _ = self.run(&["rm", "-f", "-a", "-t", "0"]);
        if let Ok(pid) = fs::read_to_string(self.runtime.join("libpod/tmp/pause.pid")) {
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
    }
}
