//! The environment of a case: a user, a home, `udocker` on the path, and an image in the store.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use testkit::command::{Finished, Input, find_program, run_with};
use testkit::image::{Built, Image, Pack};
use testkit::layer::{Entry, Layer};
use testkit::person::{Person, everybody};
use testkit::scratch::Scratch;
use testkit::skip::Outcome;
use testkit::users::{Setting, no_namespaces};

pub(crate) type Case = fn(&World) -> Outcome;

/// Time limit of one command on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);

/// The name of the image.
pub(crate) const IMAGE: &str = "localhost/sci/tools:1";

static COUNT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Stage {
    pub(crate) worlds: Vec<World>,
    pub(crate) missing: Option<String>,
    _scratch: Scratch,
}

pub(crate) struct World {
    /// `plain`, `range`, `forbidden`.
    pub(crate) name: &'static str,
    pub(crate) person: Person,
    setting: Setting,
    /// A directory with the links `udocker` and `udocker.py`.
    pub(crate) bin: PathBuf,
    /// The image as a docker-archive.
    pub(crate) archive: PathBuf,
    /// Its one layer.
    pub(crate) layer: Arc<[u8]>,
}

impl Stage {
    pub(crate) fn set() -> Result<Self, String> {
        let text = |error: std::io::Error| error.to_string();
        let busybox = find_program("busybox").ok_or("busybox is not installed")?;
        let scratch = Scratch::new("udocker").map_err(text)?;
        let users = everybody(&scratch, crate::program::coracle()).map_err(text)?;
        let bin = scratch.dir("bin", None, 0o755).map_err(text)?;
        for name in ["udocker", "udocker.py"] {
            symlink(&users[0].program, bin.join(name)).map_err(text)?;
        }
        let archive = scratch.path().join("tools.tar");
        let layer = tree(&fs::read(busybox).map_err(text)?).finish();
        fs::write(&archive, image(&layer).docker_archive(std::slice::from_ref(&layer), &[IMAGE]))
            .map_err(text)?;
        let layer: Arc<[u8]> = layer.into();
        let forbidden = no_namespaces();
        let mut worlds = Vec::new();
        for person in users {
            let hidden = !person.user.range && forbidden.is_ok();
            let world = World {
                name: if hidden { "forbidden" } else { person.user.kind() },
                person,
                setting: Setting { no_namespaces: hidden, ..Setting::default() },
                bin: bin.clone(),
                archive: archive.clone(),
                layer: Arc::clone(&layer),
            };
            let loaded = world.udocker(&["load", "-i", &world.archive.display().to_string()]);
            if loaded.code() != 0 {
                return Err(format!("cannot load the image: {loaded:?}"));
            }
            worlds.push(world);
        }
        Ok(Self { worlds, missing: forbidden.err(), _scratch: scratch })
    }
}

/// A small system around busybox, with files that udocker's way of unpacking loses.
pub(crate) fn tree(busybox: &[u8]) -> Layer {
    let mut layer = Layer::new();
    for dir in ["bin", "dev", "etc", "opt", "opt/app", "opt/app/dev", "proc", "root", "sys", "var"]
    {
        layer.push(&Entry::new(b'5', dir).mode(0o755));
    }
    layer.push(&Entry::new(b'5', "tmp").mode(0o1777));
    layer = layer
        .file("bin/busybox", 0o755, busybox)
        .file("bin/bash", 0o755, "#!/bin/sh\nexec /bin/sh \"$@\"\n")
        .file("etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\n")
        .file("etc/group", 0o644, "root:x:0:\n")
        .file("opt/app/dev/x", 0o644, "kept\n")
        .file("opt/app/setuid", 0o4755, "bits\n");
    for name in [
        "awk", "cat", "cp", "cut", "date", "echo", "env", "false", "find", "grep", "head", "id",
        "kill", "ls", "mkdir", "mv", "pwd", "rm", "sed", "sh", "sleep", "sort", "stat", "tee",
        "test", "touch", "tr", "true", "wc", "xargs",
    ] {
        layer = layer.symlink(&format!("bin/{name}"), "busybox");
    }
    layer
}

/// The image of that one layer.
pub(crate) fn image(layer: &[u8]) -> Built {
    Image::new()
        .packed(layer.to_vec(), Pack::Plain)
        .env("PATH", "/bin")
        .env("OF_IMAGE", "yes")
        .cmd(&["sh", "-c", "echo from the image"])
        .build()
}

impl World {
    /// `udocker` with these arguments and variables.
    pub(crate) fn command(&self, variables: &[(&str, &str)], words: &[&str]) -> Command {
        self.other(&self.bin.join("udocker").display().to_string(), variables, words)
    }

    /// Any program that finds `udocker` on its path.
    pub(crate) fn other(
        &self,
        program: &str,
        variables: &[(&str, &str)],
        words: &[&str],
    ) -> Command {
        let mut command = self.person.user.command_in(program, &self.person.home, &self.setting);
        let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", self.bin.display());
        command.args(words).env("PATH", path).envs(variables.iter().copied());
        command
    }

    pub(crate) fn udocker(&self, words: &[&str]) -> Finished {
        run_with(&mut self.command(&[], words), Input::Null, LIMIT)
    }

    pub(crate) fn udocker_with(&self, variables: &[(&str, &str)], words: &[&str]) -> Finished {
        run_with(&mut self.command(variables, words), Input::Null, LIMIT)
    }

    /// The binary under its own name.
    pub(crate) fn coracle(&self, words: &[&str]) -> Finished {
        let program = self.person.program.display().to_string();
        run_with(&mut self.other(&program, &[], words), Input::Null, LIMIT)
    }

    /// Runs a script in the user's shell, as clients do.
    pub(crate) fn shell(&self, variables: &[(&str, &str)], script: &str) -> Finished {
        run_with(&mut self.other("sh", variables, &["-c", script]), Input::Null, LIMIT)
    }

    /// `run --rm IMAGE` with flags and a script.
    pub(crate) fn sh(&self, flags: &[&str], script: &str) -> Finished {
        let mut words = vec!["run", "--rm"];
        words.extend(flags);
        words.extend([IMAGE, "sh", "-c", script]);
        self.udocker(&words)
    }

    /// A name that no other case uses.
    pub(crate) fn unique(&self, stem: &str) -> String {
        format!("{stem}-{}-{}", self.name, COUNT.fetch_add(1, Ordering::Relaxed))
    }

    /// An empty directory of the user.
    pub(crate) fn dir(&self, stem: &str) -> PathBuf {
        self.person.dir(&self.unique(stem))
    }

    /// A file of the user.
    pub(crate) fn file(&self, path: &Path, text: impl AsRef<[u8]>) -> String {
        self.person.file(path, text)
    }

    /// A directory below one of the user's, with its parents.
    pub(crate) fn below(&self, top: &Path, path: &str) -> PathBuf {
        let mut place = top.to_owned();
        for part in path.split('/') {
            place.push(part);
            fs::create_dir_all(&place).expect("a directory");
            self.person.give(&place);
        }
        place
    }
}
