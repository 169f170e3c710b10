//! Tests of registries: login, pull, listing, and their settings. All commands run as an
//! unprivileged user, with a real registry, or with one in this process that injects faults.

pub(super) mod listing;
pub(super) mod login;
pub(super) mod proxy;
pub(super) mod pull;
pub(super) mod settings;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::command::{Finished, Input, run_with};
use testkit::docker_registry::DockerRegistry;
use testkit::image::{Built, Image};
use testkit::layer::Layer;
use testkit::person::{LIMIT, Person, public_copy};
use testkit::scratch::Scratch;
use testkit::skip::{Skip, need_program};
use testkit::users;

/// A user with an empty home.
pub(crate) struct Place {
    pub(crate) person: Person,
    pub(crate) scratch: Scratch,
}

/// A user with an empty home in a directory of this name.
pub(crate) fn place(test: &str) -> Result<Place, Skip> {
    let user = users::all().into_iter().next();
    let user = user.ok_or_else(|| Skip(users::MISSING.to_owned()))?;
    let scratch = Scratch::new(test).unwrap();
    let home = scratch.dir("home", Some((user.uid, user.gid)), 0o755).unwrap();
    let built = crate::program::coracle();
    let reached = user.command("test", &home).arg("-x").arg(built).status();
    let program = if reached.is_ok_and(|status| status.success()) {
        built.to_owned()
    } else {
        public_copy(&scratch, built).unwrap()
    };
    Ok(Place { person: Person { program, user, home }, scratch })
}

/// A real registry, if Debian's package is installed.
fn real(options: testkit::docker_registry::Options) -> Result<DockerRegistry, Skip> {
    need_program("docker-registry")?;
    Ok(DockerRegistry::start_with(options).unwrap())
}

impl Place {
    fn command(&self, words: &[&str]) -> Command {
        self.person.command(words)
    }

    fn run(&self, words: &[&str]) -> Finished {
        self.person.run(words)
    }

    /// Runs the program with these variables.
    fn with(&self, variables: &[(&str, &str)], words: &[&str]) -> Finished {
        let mut command = self.command(words);
        command.envs(variables.iter().copied());
        run_with(&mut command, Input::Null, LIMIT)
    }

    /// Runs the program with this input.
    fn reading(&self, input: &str, words: &[&str]) -> Finished {
        run_with(&mut self.command(words), Input::Bytes(input.into()), LIMIT)
    }

    /// Runs any other program, with these variables.
    fn other(&self, variables: &[(&str, &str)], program: &str, words: &[&str]) -> Finished {
        let mut command = self.person.user.command(program, &self.person.home);
        command.args(words).envs(variables.iter().copied());
        run_with(&mut command, Input::Null, LIMIT)
    }

    /// Writes a file in the home that belongs to the user, with the directories before it.
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.person.home.join(name);
        let mut parents: Vec<&Path> =
            path.ancestors().skip(1).take_while(|parent| *parent != self.person.home).collect();
        parents.reverse();
        for parent in parents {
            if !parent.exists() {
                fs::create_dir(parent).unwrap();
                self.person.give(parent);
            }
        }
        fs::write(&path, text).unwrap();
        self.person.give(&path);
        path
    }

    /// Content of a file of the home.
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.person.home.join(name)).unwrap_or_default()
    }

    fn auth_file(&self) -> PathBuf {
        self.person.home.join(".config/coracle/auth.json")
    }
}

/// An image that differs from others by `word`.
fn image(word: &str) -> Image {
    Image::new().layer(Layer::new().file("word", 0o644, word)).cmd(&["/none"])
}

/// An image with a layer of incompressible bytes, so that a download can break in its middle.
fn large(bytes: usize) -> Built {
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    });
    let noise: Vec<u8> = noise.take(bytes).collect();
    Image::new().layer(Layer::new().file("noise", 0o644, noise)).build()
}

fn text(path: &impl AsRef<OsStr>) -> &str {
    path.as_ref().to_str().unwrap()
}
