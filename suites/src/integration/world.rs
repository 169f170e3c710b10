//! The environment of a case: one engine, and a store with the Debian image.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use testkit::command::{Finished, Input, run_with};
use testkit::fence::fenced;
use testkit::person::{LIMIT, Person, everybody};
use testkit::scratch::Scratch;
use testkit::skip::Outcome;

/// One case.
pub(crate) type Case = fn(&World) -> Outcome;

/// The name of the image.
pub(crate) const IMAGE: &str = "localhost/debian:integration";

/// One engine of each kind.
const ENGINES: [&str; 3] = ["N1", "I1", "P1"];

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Everything that lives as long as the suite.
pub(crate) struct Stage {
    /// One per engine.
    pub(crate) worlds: Vec<World>,
    /// Modes that could not be set up, with the reasons.
    pub(crate) missing: Vec<(String, String)>,
    _scratch: Scratch,
}

/// One engine.
pub(crate) struct World {
    /// The user and the program.
    pub(crate) person: Person,
    /// `N1`, `F2`...
    pub(crate) engine: String,
    made: Mutex<bool>,
}

impl Stage {
    /// Imports the tree as a user without subordinate ids and finds the ready engines.
    pub(crate) fn set() -> Result<Self, String> {
        let text = |error: std::io::Error| error.to_string();
        let tree = testkit::trees::integration().map_err(|skip| skip.0)?;
        let scratch = Scratch::new("integration").map_err(text)?;
        let users = everybody(&scratch, crate::program::coracle()).map_err(text)?;
        let person = users.into_iter().next().ok_or(testkit::users::MISSING)?;
        let mut import = person.command(&["import", "-q", "-", IMAGE]);
        let done = run_with(import.stdin(File::open(tree).map_err(text)?), Input::AsIs, LIMIT);
        if done.code() != 0 {
            return Err(format!("no image: {done:?}"));
        }
        let mut missing = Vec::new();
        let mut worlds: Vec<World> = person
            .engines(&mut missing)
            .into_iter()
            .filter(|engine| ENGINES.contains(&engine.as_str()))
            .map(|engine| World { person: person.clone(), engine, made: Mutex::default() })
            .collect();
        missing.retain(|(name, _)| ENGINES.iter().any(|engine| name.starts_with(engine)));
        match fenced(&scratch, &person.program) {
            None => missing.push(("F2".to_owned(), "no C compiler".to_owned())),
            Some(program) => {
                let person = Person { program, ..person };
                worlds.push(World { person, engine: "F2".to_owned(), made: Mutex::default() });
            }
        }
        Ok(Self { worlds, missing, _scratch: scratch })
    }
}

impl World {
    /// Runs `coracle` to its end, with variables.
    pub(crate) fn coracle(&self, variables: &[(&str, &str)], words: &[&str]) -> Finished {
        run_with(&mut self.command(variables, words), Input::Null, LIMIT)
    }

    /// The command, not started yet.
    pub(crate) fn command(&self, variables: &[(&str, &str)], words: &[&str]) -> Command {
        let mut command = self.person.command(words);
        command.envs(variables.iter().copied());
        command
    }

    /// Runs a script in a container.
    pub(crate) fn sh(&self, variables: &[(&str, &str)], flags: &[&str], script: &str) -> Finished {
        let script = ["sh", "-euc", script];
        let shared;
        let (start, what): (&[&str], _) = if self.engine == "N1" {
            (&["run", "--rm", "--execmode=N1"], IMAGE)
        } else {
            shared = self.container();
            (&["run"], &shared[..])
        };
        self.coracle(variables, &[start, flags, &[what], &script].concat())
    }

    /// A container that cases share, since without mounts making one takes long.
    pub(crate) fn container(&self) -> String {
        let mode = format!("--execmode={}", self.engine);
        let name = format!("shared-{}", self.engine.to_lowercase());
        let mut is_there = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_there {
            self.coracle(&[], &["create", "--name", &name, &mode, IMAGE]).ok();
            *is_there = true;
        }
        name
    }

    /// A name that no other case uses.
    pub(crate) fn unique(&self, stem: &str) -> String {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        format!("{stem}-{}-{number}", self.engine.to_lowercase())
    }

    /// An empty directory of the user.
    pub(crate) fn dir(&self, stem: &str) -> PathBuf {
        self.person.dir(&self.unique(stem))
    }

    /// A file of the user.
    pub(crate) fn file(&self, path: &Path, text: impl AsRef<[u8]>) -> String {
        self.person.file(path, text)
    }
}
