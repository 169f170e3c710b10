//! Tries whether the engine works on this host: runs Coracle itself as a guest.
//!
//! In an empty tree with nothing but that program, the guest looks at files often enough for call
//! sites to be rewritten, in several threads and in children that are forked and executed, and is
//! ended by a signal. That takes some ten milliseconds; the caller remembers the answer.

use super::Mode;
use super::become_guest::Entry;
use crate::engines::Engine as _;
use crate::engines::interpose::prepare::{Files, Prepared};
use crate::engines::interpose::world::{Bound, Compiled};
use crate::launch::program;
use crate::plan::{Groups, Process, Seccomp};
use crate::processes;
use host::Trial;
use rustix::process::{Pid, Resource};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use sys::probe::{Child, Ended};
use view::Task;
use view::identity::{Credentials, Groups as Ids};
use view::world::Kind;

/// The first argument by which a program knows that it is to be the guest: then it calls
/// [`be_guest`].
pub const WORD: &str = "_self-test";
/// Where the guest finds its own program.
const PROGRAM: &str = "/self-test";
/// What a child of it is to do.
const CHILD: &str = "child";
const WAIT: &str = "wait";
/// How many times as long as other trials this one may take: it starts a dozen programs, and may
/// meet a busy or an emulated machine, or containers around it.
const PATIENCE: u32 = 5;

/// The trials of the modes: by signals alone, with rewriting, and without a filter. `program` is
/// one that calls [`be_guest`]; `scratch` an empty directory of the caller's own, which is used up.
#[must_use]
pub fn try_modes(program: &Path, scratch: &Path, timeout: Duration) -> [Trial; 3] {
    [Mode::Signals, Mode::Rewritten, Mode::Texts].map(|mode| {
        let how = format!("a program that was run by {}", mode.name());
        match try_mode(mode, program, &scratch.join(mode.name()), timeout) {
            Ok(()) => Trial::works(how),
            Err(why) => Trial::fails(how, why),
        }
    })
}

fn try_mode(mode: Mode, program: &Path, place: &Path, timeout: Duration) -> Result<(), String> {
    let prepared = prepare(program, place).map_err(|error| error.to_string())?;
    let timeout = timeout * PATIENCE;
    let child = Child::spawn(|link| match execute(mode, &prepared) {
        Ok(never) => match never {},
        Err(error) => {
            link.send(error.to_string().as_bytes());
            99
        }
    });
    let mut given = Given::new(timeout);
    let report = child.and_then(|child| {
        child.finish_with(Instant::now() + timeout, &mut |pid| {
            given.more(worked(pid)).then(|| Instant::now() + timeout)
        })
    });
    let report = report.map_err(|error| error.to_string())?;
    match report.ended {
        Ended::Exited(0) => Ok(()),
        Ended::Exited(99) => Err(String::from_utf8_lossy(&report.output).into_owned()),
        Ended::Exited(code) => Err(meaning(code)),
        Ended::Killed(signal) => Err(format!("the program was ended by signal {signal}")),
        Ended::TimedOut => Err(format!("the program hung for {} s", timeout.as_secs_f32())),
    }
}

/// The time that a trial is given. On a busy machine it may wait for processors most of its time,
/// which says nothing about the engine: a program hangs that works for the whole time without an
/// end, or does not work at all.
struct Given {
    timeout: Duration,
    worked: Duration,
    rounds: u32,
}

impl Given {
    /// How many times the time limit a trial may take.
    const ROUNDS: u32 = 8;

    fn new(timeout: Duration) -> Self {
        Self { timeout, worked: Duration::ZERO, rounds: 1 }
    }

    /// Asked after each such time: whether there is one more. `worked` is what the program and its
    /// children have had of processors.
    fn more(&mut self, worked: Duration) -> bool {
        let is_waiting = worked > self.worked && worked < self.timeout;
        self.worked = worked;
        self.rounds += 1;
        is_waiting && self.rounds <= Self::ROUNDS
    }
}

/// The time that a process and its descendants have had of processors.
fn worked(pid: Pid) -> Duration {
    let Some(root) = processes::identity(processes::number(pid)) else { return Duration::ZERO };
    let mut all = processes::descendants(std::slice::from_ref(&root));
    all.push(root);
    let ticks = |stat: processes::Stat| stat.ticks + stat.ended_ticks;
    let ticks: u64 = all.iter().filter_map(|one| processes::stat(one.pid)).map(ticks).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

fn prepare(program: &Path, place: &Path) -> std::io::Result<Prepared> {
    std::fs::create_dir_all(place.join("run"))?;
    std::fs::create_dir_all(place.join("ROOT/proc"))?;
    let place = place.canonicalize()?;
    let root = place.join("ROOT");
    let bound = |guest: &str, host: &Path, kind: Kind| Bound {
        guest: guest.into(),
        host: host.as_os_str().as_bytes().to_vec(),
        read_only: kind == Kind::Host,
        kind,
    };
    let world = Compiled::new(
        vec![
            bound("/", &root, Kind::Tree),
            bound("/proc", Path::new("/proc"), Kind::Proc),
            bound(PROGRAM, &program.canonicalize()?, Kind::Host),
        ],
        None,
    );
    let files = Files::of(&place, root.clone());
    Ok(Prepared { world, files, cwd: root, entered: 0, layers: None, networks: None })
}

fn execute(mode: Mode, prepared: &Prepared) -> crate::error::Result<std::convert::Infallible> {
    let process = Process {
        argv: [PROGRAM, WORD].map(str::to_owned).to_vec(),
        env: Vec::new(),
        cwd: PathBuf::from("/"),
        create_cwd: false,
        uid: 0,
        gid: 0,
        groups: Groups::Keep,
        keeps_groups: true,
        capabilities: None,
        rlimits: Vec::new(),
        umask: None,
        oom_score_adj: None,
        affinity: Vec::new(),
        no_new_privileges: true,
        seccomp: Seccomp::None,
        tty: false,
    };
    let ready = program::ready(&process)?;
    let task = Task::new(Credentials::new(0, 0, Ids::NONE), 0o22);
    let _ = rustix::process::chdir(&prepared.cwd);
    let entry = Entry { mode, switches: 0, process: &process, prepared, task, fresh: true };
    Err(entry.execute(&ready, || Ok(()))?)
}

/// What the guest does: 0 if all of it went as it should, else which step did not.
#[must_use]
pub fn be_guest(words: &[&str]) -> u8 {
    match words {
        [CHILD] => u8::from(!looks_right()),
        [WAIT] => {
            // Its parent may be ended meanwhile: then nobody ends it, and it keeps what it holds.
            let _ = std::io::stdin().read(&mut [0]);
            1
        }
        _ => steps(),
    }
}

/// Whether it sees the guest's root and not the host's.
fn looks_right() -> bool {
    (0..10).all(|_| {
        Path::new(PROGRAM).exists()
            && !Path::new("/run").exists()
            && std::env::current_exe().is_ok_and(|program| program == Path::new(PROGRAM))
            && std::fs::write("/file", "x").is_ok()
            && std::fs::read("/proc/self/comm").is_ok_and(|name| name.starts_with(b"self-test"))
    })
}

fn steps() -> u8 {
    let child = |word: &str| {
        let mut command = Command::new(PROGRAM);
        command.args([WORD, word]);
        command
    };
    if !looks_right() {
        return 1;
    }
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                looks_right() && child(CHILD).status().is_ok_and(|status| status.success())
            })
        })
        .collect();
    if !threads.into_iter().all(|thread| thread.join().unwrap_or(false)) {
        return 2;
    }
    let Ok(mut waiting) = child(WAIT).stdin(Stdio::piped()).spawn() else { return 3 };
    let killed =
        waiting.kill().is_ok() && waiting.wait().is_ok_and(|status| status.signal() == Some(9));
    if !killed {
        return 4;
    }
    u8::from(!looks_right()) * 5
}

/// What the guest says by its exit code.
fn meaning(code: i32) -> String {
    let text = match code {
        1 => {
            "did not see its own tree: a tracer around it answers its calls first, or they were not caught"
        }
        2 => "did not see its own tree in threads and children",
        3 | 4 => "could not start and end a child",
        5 => "did not see its own tree any more after its children",
        _ => return format!("the program ended with code {code}"),
    };
    format!("the program {text}")
}

/// What is remembered of a trial: under which key, and what came of it.
#[derive(serde::Serialize, serde::Deserialize)]
struct Remembered {
    key: String,
    trials: host::InsideProcess,
}

/// Why Coracle's files cannot be large enough, if that is so: what a container's processes share
/// has room for this many inodes of an image.
fn too_small_files() -> Option<String> {
    const INODES: usize = 1 << 16;
    let most = rustix::process::getrlimit(Resource::Fsize).maximum?;
    let needed = abi::shared::Shared::size(INODES) as u64;
    (most < needed).then(|| {
        format!("files may have {most} bytes (ulimit -f), and what its processes share {needed}")
    })
}

/// Whether this process has limits that others of the same user need not have, and that a trial may
/// fail for.
fn is_limited() -> bool {
    let below = |resource: Resource, enough: u64| {
        rustix::process::getrlimit(resource).current.is_some_and(|limit| limit < enough)
    };
    below(Resource::As, u64::MAX)
        || below(Resource::Data, u64::MAX)
        || below(Resource::Cpu, u64::MAX)
        || below(Resource::Fsize, u64::MAX)
        || below(Resource::Nofile, 256)
        || below(Resource::Stack, 1 << 20)
}

/// The trials, as the file `memory` has them for this host, else made anew (and remembered, unless
/// a failure may be over in a moment).
///
/// `scratch` is asked for a directory where they are made, as in [`try_modes`], and for whatever
/// keeps others from removing it.
#[must_use]
pub fn known<Hold>(
    host: &host::Host,
    memory: Option<&Path>,
    program: &Path,
    scratch: impl FnOnce() -> Option<(PathBuf, Hold)>,
    timeout: Duration,
) -> host::InsideProcess {
    if let Some(why) = too_small_files() {
        let [signals, rewriting, texts] =
            [Mode::Signals, Mode::Rewritten, Mode::Texts].map(|mode| {
                Trial::fails(
                    format!("the limits of this process, for {}", mode.name()),
                    why.clone(),
                )
            });
        return host::InsideProcess { signals, rewriting, texts };
    }
    let filters = host::filters_of_caller();
    // The stage has no handler for calls that a filter traps.
    let traps = u8::from(sys::entry::has_trapped());
    let key = format!("{}:{filters}:{traps}:{}", host.cache_key(), blobs::STAGE_MARK);
    let known = memory.and_then(|path| std::fs::read(path).ok());
    let known = known.and_then(|bytes| serde_json::from_slice::<Remembered>(&bytes).ok());
    if let Some(known) = known.filter(|known| known.key == key) {
        return known.trials;
    }
    let Some((scratch, hold)) = scratch() else {
        let [signals, rewriting, texts] = [(); 3].map(|()| Trial::Untried);
        return host::InsideProcess { signals, rewriting, texts };
    };
    let [signals, rewriting, texts] = try_modes(program, &scratch, timeout);
    let _ = std::fs::remove_dir_all(scratch);
    drop(hold);
    let trials = host::InsideProcess { signals, rewriting, texts };
    // A machine that was too busy may not be so the next time, nor a caller under limits of its
    // own.
    let passing = |trial: &Trial| {
        trial.is_fails() && (is_limited() || trial.why().is_some_and(|why| why.contains("hung")))
    };
    let lasting = ![&trials.signals, &trials.rewriting, &trials.texts].into_iter().any(passing);
    if let Some(path) = memory.filter(|_| lasting)
        && let Ok(bytes) = serde_json::to_vec(&Remembered { key, trials: trials.clone() })
        && let Ok(suffix) = sys::random::suffix()
    {
        let staging = path.with_extension(format!("new-{suffix}"));
        if std::fs::write(&staging, bytes).is_ok() {
            let _ = std::fs::rename(staging, path);
        }
    }
    trials
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_on_a_busy_machine_has_more_time() {
        let time = Duration::from_secs(15);
        let after = |seconds: &[u64]| {
            let mut given = Given::new(time);
            seconds.iter().take_while(|&&s| given.more(Duration::from_secs(s))).count()
        };
        // It works a little each time, not any more, or without an end.
        assert_eq!(after(&[2, 4, 6]), 3);
        assert_eq!(after(&[2, 4, 4, 6]), 2);
        assert_eq!((after(&[0]), after(&[15])), (0, 0));
        assert_eq!(after(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), Given::ROUNDS as usize - 1);
        let own = rustix::process::getpid();
        let before = worked(own);
        while worked(own) == before {}
    }
}
