//! One user with the program under test and a home directory, from which most suites start.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::command::{Finished, Input, run_with};
use crate::scratch::Scratch;
use crate::share;
use crate::users::{self, User};

/// Time limit of one command on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(90);

/// A user, a home, and the program.
#[derive(Clone, Debug)]
pub struct Person {
    /// The program, at a path where every user can run it.
    pub program: PathBuf,
    /// The user.
    pub user: User,
    /// The user's home directory.
    pub home: PathBuf,
}

/// Copies a program to a directory that other users can reach (a checkout may be below `/root`).
pub fn public_copy(scratch: &Scratch, program: &Path) -> io::Result<PathBuf> {
    let name = program.file_name().unwrap_or(OsStr::new("program"));
    let copy = scratch.path().join(name);
    fs::copy(program, &copy)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    Ok(copy)
}

/// One [`Person`] per test user, each with an empty home below `scratch`.
pub fn everybody(scratch: &Scratch, program: &Path) -> io::Result<Vec<Person>> {
    let program = public_copy(scratch, program)?;
    let users = users::all();
    if users.is_empty() {
        let hint = "the test users are missing: run `cargo xtask setup` as root once";
        return Err(io::Error::other(hint));
    }
    users
        .into_iter()
        .map(|user| {
            let home =
                scratch.dir(&format!("{}-home", user.name), Some((user.uid, user.gid)), 0o755)?;
            Ok(Person { program: program.clone(), user, home })
        })
        .collect()
}

impl Person {
    /// The same user and program in another home.
    #[must_use]
    pub fn at(&self, home: &Path) -> Self {
        Self { home: home.to_owned(), ..self.clone() }
    }

    /// The modes that can be used here; see [`usable`].
    pub fn engines(&self, missing: &mut Vec<(String, String)>) -> Vec<String> {
        usable(&self.run(&["doctor", "--format", "json"]), self.user.kind(), missing)
    }

    /// Makes an empty directory below the home.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.home.join(name);
        fs::create_dir_all(&path).expect("a directory");
        self.give(&path);
        path
    }

    /// Gives a file to the user.
    ///
    /// # Panics
    /// If that is not possible.
    pub fn give(&self, path: &Path) {
        if self.user.uid != rustix::process::getuid().as_raw() {
            std::os::unix::fs::chown(path, Some(self.user.uid), Some(self.user.gid))
                .expect("giving a file to the user");
        }
    }

    /// Writes a file of the user with these bytes; returns its path.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn file(&self, path: &Path, text: impl AsRef<[u8]>) -> String {
        std::fs::write(path, text).expect("a file for the case");
        self.give(path);
        path.display().to_string()
    }

    /// A command of the program with arguments, as the user.
    pub fn command<S: AsRef<OsStr>>(&self, words: &[S]) -> Command {
        let mut command = self.user.command(&self.program, &self.home);
        command.args(words);
        command
    }

    /// Runs the program to its end without input.
    pub fn run<S: AsRef<OsStr>>(&self, words: &[S]) -> Finished {
        run_with(&mut self.command(words), Input::Null, LIMIT)
    }

    /// Runs any other program to its end as the user.
    pub fn other<S: AsRef<OsStr>>(&self, program: &str, words: &[S]) -> Finished {
        let mut command = self.user.command(program, &self.home);
        command.args(words).env("XDG_RUNTIME_DIR", &self.home);
        run_with(&mut command, Input::Null, LIMIT)
    }

    /// Why the user cannot make TAP devices.
    pub fn no_tun(&self) -> Option<String> {
        let open = self.other("sh", &["-c", ": <>/dev/net/tun"]);
        (open.code() != 0).then(|| "users may not open /dev/net/tun".to_owned())
    }

    /// The same person, whose program gives containers with network namespaces this kind of
    /// devices: `tap` or `veth`.
    pub fn with_devices(&self, scratch: &Scratch, kind: &str) -> io::Result<Self> {
        self.with_variables(scratch, kind, &format!("CORACLE_LINK={kind}"))
    }

    /// The same person, whose program is run with variables (`NAME=VALUE ...`). Its file is told
    /// from others by a name.
    pub fn with_variables(
        &self,
        scratch: &Scratch,
        name: &str,
        variables: &str,
    ) -> io::Result<Self> {
        let path = scratch.path().join(format!("coracle-{name}"));
        let program = self.program.display();
        let text = format!("#!/bin/sh\n{variables} exec '{program}' \"$@\"\n");
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(Self { program: path, ..self.clone() })
    }

    /// The user's store.
    pub fn store(&self) -> PathBuf {
        self.home.join(".local/share/coracle")
    }
}

/// Returns true for a mode that is skipped for this kind of user: where the kernel maps no ids, a
/// range of subordinate ones is not used, which one mode shows.
fn is_repetition(mode: &str, kind: &str) -> bool {
    kind == "range" && matches!(mode, "I2" | "P1" | "P2") && !share::is_whole()
}

/// The usable modes of external engines (`runc` and the like), from `doctor --format json`.
pub fn borrowed(doctor: &Finished) -> Vec<String> {
    let report: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap_or_default();
    let ready = report["engines"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|engine| matches!(engine["state"].as_str(), Some("ready" | "degraded")));
    let modes = ready.filter_map(|engine| engine["mode"].as_str());
    modes.filter(|mode| mode.starts_with(['R', 'S'])).map(str::to_owned).collect()
}

/// The usable modes for a kind of user, from `doctor --format json`. Modes that this build has and
/// this host does not allow are added to `missing`, each with its reason; so are those that would
/// only repeat another kind of user's results.
pub fn usable(doctor: &Finished, kind: &str, missing: &mut Vec<(String, String)>) -> Vec<String> {
    let report: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap_or_default();
    let mut modes = Vec::new();
    for engine in report["engines"].as_array().into_iter().flatten() {
        let text = |key: &str| engine[key].as_str().unwrap_or_default().to_owned();
        match text("state").as_str() {
            "ready" | "degraded" if is_repetition(&text("mode"), kind) => {
                let why = "as for the other user, like I1's: share 1/1 runs them too".to_owned();
                missing.push((format!("{}::{kind}", text("mode")), why));
            }
            // For hosts that forbid what other engines need ([`crate::fence`]).
            "ready" | "degraded" if text("mode").starts_with('F') => {}
            // External engines, which have tests of their own.
            _ if text("mode").starts_with(['R', 'S']) => {}
            "ready" | "degraded" => modes.push(text("mode")),
            "absent" => {}
            state => missing
                .push((format!("{}::{kind}", text("mode")), format!("{state}: {}", text("why")))),
        }
    }
    if modes.is_empty() {
        missing.push((
            format!("engines::{kind}"),
            format!("doctor names no usable engine: {doctor:?}"),
        ));
    }
    modes
}
