//! Agents on this machine and behind a real `sshd`. The program is also the agent that travels:
//! called as `reach cluster agent` it serves, as `reach drive DIR` it is a driver to be killed, and
//! as `reach allocated DIR NODE...` one inside an allocation of Slurm.
//!
//! Root runs the suite again as an unprivileged user, in a mount namespace that has a place where
//! no program can be executed.

mod local;
mod slurm;
mod ssh;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use remote::agent::{self, Options};
use remote::channel::{Channel, Running};
use remote::launcher::{Binary, Launcher, Way};
use remote::wire::messages::{Ended, Hello, Start};
use testkit::harness::Suite;
use testkit::scratch::Scratch;

/// Names the directory of the suite for the unprivileged process.
const PLACE: &str = "CORACLE_REACH_PLACE";

/// In a place with this in its name, the program does not run.
pub(crate) const PICKY: &str = "picky";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["cluster", "agent"] => {
            let environment = std::env::vars().collect();
            let options = Options { release: "test".into(), environment, runtime: None };
            match agent::serve(&options) {
                Ok(_) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("{error}");
                    ExitCode::FAILURE
                }
            }
        }
        ["--version"] => {
            let own = std::env::current_exe().unwrap_or_default();
            if own.display().to_string().contains(PICKY) {
                return ExitCode::FAILURE;
            }
            ExitCode::SUCCESS
        }
        ["drive", place] => local::drive(Path::new(place)),
        ["allocated", place, nodes @ ..] => slurm::allocated(Path::new(place), nodes),
        _ => match std::env::var_os(PLACE) {
            Some(place) => suite(Path::new(&place)),
            None => as_user(&words),
        },
    }
}

/// Runs the suite as a user who is not root.
fn as_user(words: &[String]) -> ExitCode {
    let Some(user) = testkit::users::all().into_iter().next() else {
        testkit::skip::note("reach", testkit::users::MISSING);
        return ExitCode::SUCCESS;
    };
    let scratch = Scratch::new("reach").expect("a directory");
    let own = std::env::current_exe().expect("this program");
    let program = testkit::person::public_copy(&scratch, &own).expect("a copy");
    let home = scratch.dir("home", Some((user.uid, user.gid)), 0o700).expect("a home");
    let mut command = user.command(&program, &home);
    command.args(words).env(PLACE, &home).env("XDG_RUNTIME_DIR", home.join("run"));
    // A server of SSH may be where the caller finds it.
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    scratch.dir("home/run", Some((user.uid, user.gid)), 0o700).expect("a directory");
    if rustix::process::getuid().is_root() {
        let noexec = scratch.dir("home/noexec", None, 0o755).expect("a directory");
        let full = scratch.dir("home/full", None, 0o755).expect("a directory");
        let mut inside = Command::new("unshare");
        let script = "mount -t tmpfs -o noexec,mode=1777,size=64m tmpfs \"$1\"
            mount -t tmpfs -o mode=1777,size=1m tmpfs \"$2\"; shift 2; exec \"$@\"";
        inside.args(["--mount", "sh", "-c", script, "sh"]).args([noexec, full]);
        inside.arg(command.get_program()).args(command.get_args()).env_clear();
        inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command = inside;
    }
    let status = command.current_dir("/").status().expect("the suite");
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn suite(place: &Path) -> ExitCode {
    let kit = Kit::new(place);
    let mut suite = Suite::new("reach");
    // Most of them wait.
    suite.threads(6);
    local::cases(&mut suite, &kit);
    ssh::cases(&mut suite, &kit);
    slurm::cases(&mut suite, &kit);
    suite.main()
}

/// What all cases use.
pub(crate) struct Kit {
    place: PathBuf,
    binary: Arc<Binary>,
}

impl Kit {
    fn new(place: &Path) -> Self {
        let own = std::env::current_exe().expect("this program");
        let binary = Arc::new(Binary::of(&own).expect("its digest"));
        Self { place: place.to_owned(), binary }
    }

    /// An empty directory.
    fn dir(&self, name: &str) -> PathBuf {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = self.place.join(format!("{name}-{number}"));
        std::fs::create_dir(&path).expect("a directory");
        path
    }

    fn local(&self) -> Launcher {
        Launcher::new(Way::Local, Arc::clone(&self.binary))
    }
}

/// Opens a channel that must open.
#[track_caller]
pub(crate) fn open(launcher: &Launcher, hello: &Hello) -> Channel {
    Channel::open("node1", launcher, hello, soon()).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

/// A driver that holds nothing.
pub(crate) fn visitor() -> Hello {
    Hello::new("test", false, Duration::ZERO)
}

/// Returns true while a process lives.
pub(crate) fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}

/// Returns true if a file system is mounted at a path.
pub(crate) fn is_mounted(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.contains(&format!(" {} ", path.display()))
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn eventually(what: &str, limit: u64, mut is: impl FnMut() -> bool) {
    let met = testkit::command::until(Duration::from_secs(limit), || is().then_some(()));
    assert!(met.is_some(), "not within {limit} s: {what}");
}

/// Sends bytes through `cat` on a node, both ways at once; returns it, when it has ended.
#[track_caller]
pub(crate) fn comes_back(channel: &Channel, bytes: &[u8]) -> Running {
    let cat = channel.start(&Start::new(["cat"]).with_input()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cat.input(bytes).unwrap();
            cat.close_input().unwrap();
        });
        let mut got = Vec::new();
        let ended = cat.copy(&mut |_, part| {
            got.extend_from_slice(part);
            Ok(())
        });
        assert_eq!(ended.unwrap(), Ended::Code(0));
        assert!(got == bytes);
    });
    cat
}
