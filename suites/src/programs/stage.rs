//! The environment of a case: one engine, and a store with the Debian image.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use testkit::command::{Finished, Input, run_with};
use testkit::fence::fenced;
use testkit::person::{public_copy, usable};
use testkit::scratch::Scratch;
use testkit::skip::Outcome;
use testkit::users::{self, User};

/// One case.
pub(crate) type Case = fn(&World) -> Outcome;

/// Time limit of an ordinary script on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_mins(4);

/// The name of the image.
pub(crate) const IMAGE: &str = "localhost/debian:programs";

/// Everything that lives as long as the suite.
pub(crate) struct Stage {
    /// One per engine.
    pub(crate) worlds: Vec<World>,
    /// Modes that could not be set up, with the reasons.
    pub(crate) missing: Vec<(String, String)>,
    _scratch: Scratch,
}

/// One engine.
#[derive(Clone)]
pub(crate) struct World {
    coracle: PathBuf,
    user: User,
    home: PathBuf,
    /// `P1`, `P2`...
    pub(crate) engine: String,
    /// The tree that `mmdebstrap` made as real root.
    pub(crate) tree: PathBuf,
}

static COUNT: AtomicU32 = AtomicU32::new(0);

impl Stage {
    /// Imports the tree as a user without subordinate ids and finds the ready engines.
    pub(crate) fn set() -> Result<Self, String> {
        let tree = testkit::trees::programs().map_err(|skip| skip.0)?;
        let scratch = Scratch::new("programs").map_err(|error| error.to_string())?;
        let coracle =
            public_copy(&scratch, crate::program::coracle()).map_err(|error| error.to_string())?;
        let user = users::all().into_iter().next();
        let user = user.ok_or(users::MISSING)?;
        let home = scratch
            .dir("home", Some((user.uid, user.gid)), 0o755)
            .map_err(|error| error.to_string())?;
        let world = World { coracle, user, home, engine: String::new(), tree };
        let done = world.import(&world.tree, IMAGE);
        if done.code() != 0 {
            return Err(format!("no image: {done:?}"));
        }
        let mut missing = Vec::new();
        let doctor = world.coracle(&["doctor", "--format", "json"]);
        let engines = usable(&doctor, world.user.kind(), &mut missing);
        // An engine that does not emulate root is not counted as a skip.
        missing.retain(|(name, _)| emulates(name));
        let mut worlds: Vec<World> = engines
            .into_iter()
            .filter(|engine| emulates(engine))
            .map(|engine| World { engine, ..world.clone() })
            .collect();
        match fenced(&scratch, &world.coracle) {
            None => missing.push(("F2".to_owned(), "no C compiler".to_owned())),
            Some(coracle) => worlds.push(World { coracle, engine: "F2".to_owned(), ..world }),
        }
        if worlds.is_empty() && missing.is_empty() {
            return Err("no engine that emulates root is ready".to_owned());
        }
        Ok(Self { worlds, missing, _scratch: scratch })
    }
}

/// Returns true if an engine gives a user without subordinate ids every id.
fn emulates(engine: &str) -> bool {
    engine.starts_with(['I', 'P', 'N'])
}

impl World {
    /// A command as the user.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.user.command(&self.coracle, &self.home);
        command.args(words);
        command
    }

    /// Any other command as the user, which runs beside the containers or starts them.
    pub(crate) fn other(&self, program: impl AsRef<OsStr>) -> Command {
        self.user.command(program, &self.home)
    }

    /// The user.
    pub(crate) fn user(&self) -> &User {
        &self.user
    }

    /// That user's home, with the store in it.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// The program under test, at a path where everybody can run it.
    pub(crate) fn program(&self) -> &Path {
        &self.coracle
    }

    /// A new directory of the user.
    pub(crate) fn directory(&self, scratch: &Scratch, name: &str) -> PathBuf {
        let owner = Some((self.user.uid, self.user.gid));
        scratch.dir(name, owner, 0o755).expect("a directory")
    }

    /// A copy of a directory that belongs to the user.
    pub(crate) fn copy(&self, from: &Path, scratch: &Scratch, name: &str) -> PathBuf {
        let place = scratch.path().join(name);
        let ids = format!("{}:{}", self.user.uid, self.user.gid);
        let mut copy = Command::new("sh");
        copy.args(["-euc", "cp -a \"$1\" \"$2\"; chown -R \"$3\" \"$2\"", "sh"]);
        run_with(copy.arg(from).arg(&place).arg(ids), Input::Null, LIMIT).ok();
        place
    }

    /// Runs `coracle` to its end without input.
    pub(crate) fn coracle(&self, words: &[&str]) -> Finished {
        run_with(&mut self.command(words), Input::Null, LIMIT)
    }

    /// Makes an image from a tree.
    pub(crate) fn import(&self, tar: &Path, name: &str) -> Finished {
        let file = fs::File::open(tar).expect("the tree");
        let mut import = self.command(&["import", "-q", "-", name]);
        run_with(import.stdin(file), Input::AsIs, LIMIT)
    }

    /// A running container of the image; use [`Container::sh`] to run scripts in it.
    #[track_caller]
    pub(crate) fn container(&self) -> Container<'_> {
        self.container_of(IMAGE)
    }

    /// A running container of another image.
    #[track_caller]
    pub(crate) fn container_of(&self, image: &str) -> Container<'_> {
        self.container_with(image, &[])
    }

    /// A running container with more options.
    #[track_caller]
    pub(crate) fn container_with(&self, image: &str, options: &[&str]) -> Container<'_> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("c-{}-{number}", self.engine.to_lowercase());
        let mode = format!("--execmode={}", self.engine);
        let create = ["create", "--name", &name, &mode, "-e", "LC_ALL=C.UTF-8"];
        let script = "trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done";
        let done = self.coracle(&[&create[..], options, &[image, "sh", "-c", script]].concat());
        done.ok();
        let container = Container { world: self, name };
        self.coracle(&["start", &container.name]).ok();
        container
    }
}

/// A running container that is removed when the case ends in any way.
pub(crate) struct Container<'w> {
    world: &'w World,
    name: String,
}

impl Container<'_> {
    /// Runs a shell script as emulated root; it stops at the first failure.
    pub(crate) fn sh(&self, script: &str) -> Finished {
        self.sh_in(script, LIMIT)
    }

    /// Runs a script with another time limit.
    pub(crate) fn sh_in(&self, script: &str, limit: Duration) -> Finished {
        let words = ["exec", &self.name, "sh", "-euc", script];
        run_with(&mut self.world.command(&words), Input::Null, limit)
    }

    /// Runs a script with input.
    pub(crate) fn feed(&self, script: &str, input: Vec<u8>) -> Finished {
        let words = ["exec", "-i", &self.name, "sh", "-euc", script];
        run_with(&mut self.world.command(&words), Input::Bytes(input), LIMIT)
    }

    /// Stops it and starts it again.
    #[track_caller]
    pub(crate) fn restart(&self) {
        self.world.coracle(&["restart", "-t", "5", &self.name]).ok();
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        self.world.coracle(&["rm", "-f", &self.name]);
    }
}
