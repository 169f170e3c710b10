//! File systems for one case.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use testkit::command::{Finished, Input, run_with};
use testkit::mounts::Mounts;
use testkit::person::{LIMIT, Person};
use testkit::skip::{Skip, need_program};

use crate::crash::place::Place;

/// A mount namespace with one test file system.
pub(crate) struct Mounted {
    mounts: Mounts,
    pub(crate) dir: PathBuf,
}

impl Mounted {
    /// A file system without a disk.
    pub(crate) fn new(
        place: &Place<'_>,
        name: &str,
        kind: &str,
        options: &str,
    ) -> Result<Self, Skip> {
        Self::mount(place, name, kind, options, "none")
    }

    /// A file system in a file of this size, made by `mkfs.KIND` with these arguments.
    pub(crate) fn made(
        place: &Place<'_>,
        name: &str,
        (kind, arguments): (&str, &[&str]),
        size: u64,
    ) -> Result<Self, Skip> {
        let program = need_program(&format!("mkfs.{kind}"))?;
        let file = place.person.home.join(format!("{name}.img"));
        fs::File::create(&file).and_then(|file| file.set_len(size)).expect("an image file");
        let mut command = Command::new(program);
        command.args(arguments).arg(&file).stdin(Stdio::null());
        let made = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !made.is_ok_and(|status| status.success()) {
            return Err(Skip(format!("mkfs.{kind} does not work here")));
        }
        Self::mount(place, name, kind, "loop", &file.display().to_string())
    }

    fn mount(
        place: &Place<'_>,
        name: &str,
        kind: &str,
        options: &str,
        source: &str,
    ) -> Result<Self, Skip> {
        if !rustix::process::getuid().is_root() {
            testkit::skip!("only root can mount a file system for this");
        }
        let dir = place.person.dir(name);
        let user = &place.person.user;
        let script = format!(
            "mount -t {kind} -o {options} '{source}' '{0}' && chown {1}:{2} '{0}'",
            dir.display(),
            user.uid,
            user.gid
        );
        let mounts = Mounts::made(&script, &format!("a {kind} cannot be mounted here"))?;
        Ok(Self { mounts, dir })
    }

    /// Runs a command as root in the namespace.
    pub(crate) fn root(&self, words: &[&str]) {
        let status = self.enter().args(words).status();
        assert!(status.is_ok_and(|status| status.success()), "{words:?}");
    }

    pub(crate) fn enter(&self) -> Command {
        self.mounts.enter()
    }

    /// Runs `coracle` in it as the user, with its home on the file system.
    pub(crate) fn run(&self, person: &Person, words: &[&str]) -> Finished {
        run_with(&mut self.command(person, words), Input::Null, LIMIT)
    }

    pub(crate) fn command(&self, person: &Person, words: &[&str]) -> Command {
        let inner = person.at(&self.home()).command(words);
        let mut command = self.mounts.command(&inner);
        command.current_dir("/");
        command
    }

    /// The file system's root, seen from outside.
    pub(crate) fn outside(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.mounts.holder()));
        root.join(self.dir.strip_prefix("/").unwrap_or(&self.dir))
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.clone()
    }
}

/// Checks that a command ended by itself.
#[track_caller]
pub(crate) fn decent(done: &Finished) {
    assert!(done.status.is_some_and(|status| status.code().is_some()), "{done:?}");
    assert!(!done.err().contains("panicked"), "{done:?}");
}
