//! Clusters through batch systems: a real Slurm, real PBS commands over it (Debian's
//! `slurm-wlm-torque`), and recorded answers of LSF.
//!
//! The program is also the driver: `batch drive VERB STORE ...`. Jobs run a script in place of
//! `coracle cluster up`. Root runs the suite again as an unprivileged user.

mod drive;
mod lsf;
mod pbs;
mod slurm;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use testkit::command::{Finished, Input, run_with, until};
use testkit::harness::Suite;
use testkit::scratch::Scratch;
use testkit::skip::{Outcome, Skip};
use testkit::slurm::Cluster;
use testkit::users::User;

/// Names the directory of the suite for the unprivileged process.
const PLACE: &str = "CORACLE_BATCH_PLACE";
/// Time limit of a command.
const LIMIT: Duration = Duration::from_secs(90);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["drive", verb, words @ ..] => drive::drive(verb, words),
        _ => match std::env::var_os(PLACE) {
            Some(place) => suite(Path::new(&place)),
            None => as_user(&words),
        },
    }
}

/// Runs the suite as a user who is not root.
fn as_user(words: &[String]) -> ExitCode {
    let Some(user) = testkit::users::all().into_iter().next() else {
        testkit::skip::note("batch", testkit::users::MISSING);
        return ExitCode::SUCCESS;
    };
    let scratch = Scratch::new("batch").expect("a directory");
    let own = std::env::current_exe().expect("this program");
    let program = testkit::person::public_copy(&scratch, &own).expect("a copy");
    let home = scratch.dir("home", Some((user.uid, user.gid)), 0o755).expect("a home");
    let mut command = user.command(&program, &home);
    command.args(words).env(PLACE, &home);
    if let Some(patience) = std::env::var_os("CORACLE_TEST_PATIENCE") {
        command.env("CORACLE_TEST_PATIENCE", patience);
    }
    let status = command.current_dir("/").status().expect("the suite");
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn suite(place: &Path) -> ExitCode {
    let kit = Kit {
        place: place.to_owned(),
        user: testkit::users::all().into_iter().next().expect("this user"),
        program: std::env::current_exe().expect("this program"),
        slurm: Mutex::new(None),
    };
    let mut suite = Suite::new("batch");
    // Most of them wait.
    suite.threads(4);
    slurm::cases(&mut suite, &kit);
    pbs::cases(&mut suite, &kit);
    lsf::cases(&mut suite, &kit);
    suite.main()
}

/// What a case does.
pub(crate) type Body = fn(&Kit) -> Outcome;

/// What all cases use.
pub(crate) struct Kit {
    place: PathBuf,
    user: User,
    program: PathBuf,
    slurm: Mutex<Option<Result<Cluster<'static>, Skip>>>,
}

/// A case's own directory, with a store, files and programs.
pub(crate) struct Case<'k> {
    kit: &'k Kit,
    place: PathBuf,
}

impl Kit {
    /// An empty directory for a case that needs no Slurm.
    pub(crate) fn case(&self, name: &str) -> Case<'_> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let place = self.place.join(format!("{name}-{number}"));
        fs::create_dir_all(place.join("bin")).expect("a directory");
        fs::create_dir_all(place.join("store")).expect("a directory");
        Case { kit: self, place }
    }

    /// The same with the suite's Slurm, which the first case starts.
    pub(crate) fn with_slurm(&self, name: &str) -> Result<Case<'_>, Skip> {
        let mut slurm = self.slurm.lock().unwrap_or_else(PoisonError::into_inner);
        match slurm.get_or_insert_with(|| Cluster::start(&self.user)) {
            Ok(_) => Ok(self.case(name)),
            Err(skip) => Err(skip.clone()),
        }
    }
}

impl Case<'_> {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    pub(crate) fn store(&self) -> String {
        self.path("store").display().to_string()
    }

    /// A file of the case; returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).expect("a file");
        self.path(name).display().to_string()
    }

    /// A cluster file of two nodes with a backend.
    pub(crate) fn spec(&self, name: &str, backend: &str) -> String {
        let text =
            format!("name = {name:?}\nimage = \"x:1\"\nnodes = 2\nbackend = {{ {backend} }}\n");
        self.file(&format!("{name}.toml"), &text)
    }

    /// A program of the case, which is found before others of its name.
    pub(crate) fn program(&self, name: &str, script: &str) -> String {
        let path = self.file(&format!("bin/{name}"), &format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
        path
    }

    /// A command of the user, with the batch system in its environment.
    pub(crate) fn command(&self, program: &str) -> Command {
        let slurm = self.kit.slurm.lock().unwrap_or_else(PoisonError::into_inner);
        let mut command = match &*slurm {
            Some(Ok(cluster)) => cluster.command(&self.kit.user, program, &self.place),
            _ => self.kit.user.command(program, &self.place),
        };
        let path = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
        command.env("PATH", format!("{}:{path}", self.path("bin").display()));
        command.current_dir(&self.place);
        command
    }

    /// The driver.
    pub(crate) fn driver(&self, verb: &str, words: &[&str]) -> Command {
        let mut command = self.command(&self.kit.program.display().to_string());
        command.args(["drive", verb, &self.store()]).args(words);
        // Variables of a user who sees queues in a way of his own.
        command.env("SQUEUE_STATES", "COMPLETED").env("SLURM_TIME_FORMAT", "relative");
        command
    }

    /// Runs the driver to its end.
    pub(crate) fn drive(&self, verb: &str, words: &[&str]) -> Finished {
        run_with(&mut self.driver(verb, words), Input::Null, LIMIT)
    }

    /// Runs another program to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Finished {
        run_with(self.command(words[0]).args(&words[1..]), Input::Null, LIMIT)
    }

    /// The state of a cluster's job, as the driver prints it.
    pub(crate) fn rows(&self, cluster: &str) -> String {
        self.drive("rows", &[cluster]).ok().out()
    }

    /// Waits until the state of a cluster's job has a part; returns it.
    #[track_caller]
    pub(crate) fn until_rows(&self, cluster: &str, part: &str) -> String {
        let mut last = String::new();
        let met = until(LIMIT, || {
            last = self.rows(cluster);
            last.contains(part).then(|| last.clone())
        });
        met.unwrap_or_else(|| panic!("never {part:?}: {last}"))
    }

    /// What is kept of a cluster's job.
    pub(crate) fn kept(&self, cluster: &str) -> PathBuf {
        self.path("store").join("clusters").join(cluster).join("job")
    }
}
