//! File systems for one case. Root mounts them in a mount namespace that ends with its holder;
//! programs enter it by `nsenter`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use testkit::command::{Finished, Input, run_with};
use testkit::person::{LIMIT, Person};
use testkit::skip::{Skip, need_program};

use crate::place::Place;

/// A mount namespace with one test file system, held by a sleeping process.
pub(crate) struct Mounted {
    holder: Child,
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
        for program in ["unshare", "nsenter"] {
            need_program(program)?;
        }
        let dir = place.person.dir(name);
        let user = &place.person.user;
        let script = format!(
            "mount -t {kind} -o {options} '{source}' '{0}' && chown {1}:{2} '{0}' && echo ready && exec sleep 1000",
            dir.display(),
            user.uid,
            user.gid
        );
        let mut holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Skip(format!("unshare: {error}")))?;
        // The script reports when it is mounted and belongs to the user.
        let mut said = String::new();
        if let Some(out) = holder.stdout.take() {
            let _ = BufReader::new(out).read_line(&mut said);
        }
        if said.trim() != "ready" {
            let _ = holder.kill();
            let _ = holder.wait();
            return Err(Skip(format!("a {kind} cannot be mounted here")));
        }
        Ok(Self { holder, dir })
    }

    /// Runs a command as root in the namespace.
    pub(crate) fn root(&self, words: &[&str]) {
        let status = self.enter().args(words).status();
        assert!(status.is_ok_and(|status| status.success()), "{words:?}");
    }

    pub(crate) fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id()));
        command.stdin(Stdio::null());
        command
    }

    /// Runs `coracle` in it as the user, with its home on the file system.
    pub(crate) fn run(&self, person: &Person, words: &[&str]) -> Finished {
        run_with(&mut self.command(person, words), Input::Null, LIMIT)
    }

    pub(crate) fn command(&self, person: &Person, words: &[&str]) -> Command {
        let inner = person.at(&self.home()).command(words);
        let mut command = self.enter();
        command.arg(inner.get_program()).args(inner.get_args()).current_dir("/").env_clear();
        command.envs(inner.get_envs().filter_map(|(key, value)| Some((key, value?))));
        command
    }

    /// The file system's root, seen from outside.
    pub(crate) fn outside(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(self.dir.strip_prefix("/").unwrap_or(&self.dir))
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.clone()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Checks that a command ended by itself.
#[track_caller]
pub(crate) fn decent(done: &Finished) {
    assert!(done.status.is_some_and(|status| status.code().is_some()), "{done:?}");
    assert!(!done.err().contains("panicked"), "{done:?}");
}
