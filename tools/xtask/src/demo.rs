//! `cargo xtask demo`: shows what Coracle does, right after cloning.
//!
//! It compiles the release binary and meanwhile prepares a registry and an image ([`prepare`]).
//! Then an unprivileged user pulls the image and runs it ([`road`]), in every mode that this host
//! allows and beside other tools ([`compare`]). That user is a test user if root calls, else the
//! caller; all files lie in a temporary directory. What is missing is replaced by something smaller
//! and named. `--all` shows every mode to every test user ([`all`]).

mod all;
mod build;
mod compare;
mod prepare;
mod road;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use testkit::command::{Finished, Input, run_with};
use testkit::scratch::Scratch;
use testkit::users::{Setting, User};

use crate::shell::Outcome;
use prepare::{Kind, Prepared};

/// The longest that one command may take.
const LIMIT: Duration = Duration::from_mins(2);

/// What all parts work with.
struct Demo {
    /// A copy of the release binary that every user can execute.
    coracle: PathBuf,
    /// The image's name with its registry.
    image: String,
    kind: Kind,
    /// `HOST:PORT` of the registry.
    registry: String,
    scratch: Scratch,
    user: User,
    home: PathBuf,
}

/// Words: `--all` or none.
pub(crate) fn run(words: &[String]) -> Outcome {
    match words {
        [] => quick(),
        [word] if word == "--all" => all::run(),
        _ => Err("there is only the option --all".to_owned()),
    }
}

fn quick() -> Outcome {
    let began = Instant::now();
    println!("[1/4] Compiling coracle; meanwhile a registry and an image are prepared.");
    let (binary, prepared) = thread::scope(|scope| {
        let prepared = scope.spawn(prepare::prepare);
        let binary = build::release();
        let prepared = prepared.join().map_err(|_| "the preparation panicked".to_owned());
        (binary, prepared)
    });
    let (binary, prepared) = (binary?, prepared??);
    let compiled = Instant::now();
    println!("      Done after {:.0} s.", began.elapsed().as_secs_f64());
    for note in &prepared.notes {
        println!("      {note}");
    }
    let user = prepare::user()?;
    let demo = Demo::new(&binary, &prepared, user)?;
    println!("\n[2/4] {} is in the registry {}.", prepared.about, demo.registry);
    println!("      User {} (uid {}) pulls it and runs it.\n", demo.user.name, demo.user.uid);
    let mut failed = road::show(&demo);
    println!(
        "\n[3/4] `true` in every mode: in a new container, and in the same container again.\n"
    );
    failed += compare::show(&demo, prepared.tree.as_deref())?;
    println!("\n[4/4] With user namespaces forbidden, as on many clusters.\n");
    failed += road::without_namespaces(&demo);
    println!(
        "\nShown in {:.0} s after the compilation. The program is one static file; copy it anywhere:\n  {}\n\
         All modes and users, with more steps: cargo xtask demo --all",
        compiled.elapsed().as_secs_f64(),
        binary.display()
    );
    if failed == 0 { Ok(()) } else { Err(format!("{failed} commands failed")) }
}

impl Demo {
    fn new(binary: &Path, prepared: &Prepared, user: User) -> Outcome<Self> {
        let scratch = Scratch::new("demo").map_err(|error| error.to_string())?;
        let coracle = scratch.path().join("coracle");
        fs::copy(binary, &coracle).map_err(|error| format!("copying the binary: {error}"))?;
        fs::set_permissions(&coracle, fs::Permissions::from_mode(0o755))
            .map_err(|error| error.to_string())?;
        let home = home(&scratch, &user)?;
        let registry = prepared.registry.host();
        let image = format!("{registry}/{}", prepared.kind.name());
        Ok(Self { coracle, image, kind: prepared.kind, registry, scratch, user, home })
    }

    /// Runs `coracle` as the user; gives what it printed and the seconds that it took.
    fn coracle(&self, words: &[&str], setting: &Setting) -> (Finished, f64) {
        let mut command = self.user.command_in(&self.coracle, &self.home, setting);
        command
            .env("CORACLE_REGISTRY", &self.registry)
            .env("CORACLE_INSECURE_REGISTRIES", &self.registry)
            .args(words);
        let began = Instant::now();
        let done = run_with(&mut command, Input::Null, LIMIT);
        (done, began.elapsed().as_secs_f64())
    }
}

/// An empty home directory for a user.
fn home(scratch: &Scratch, user: &User) -> Outcome<PathBuf> {
    scratch.dir(&user.name, Some((user.uid, user.gid)), 0o755).map_err(|error| error.to_string())
}

/// Seconds, as short text.
fn time(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1000.0) } else { format!("{seconds:.1} s") }
}
