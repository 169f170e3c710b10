//! The process above a rank on its host: it starts the rank's run, waits for it, and keeps in the
//! cluster's directory which process that is and how it has ended.
//!
//! So the driver can tell which rank failed first, whatever the launcher says of it, and reach
//! every rank with a signal: `srun` and `mpiexec` end all for some signals, and differ in which.
//!
//! Launchers send signals to the whole group of a rank, so this process passes none on. One that it
//! gets tells it that the launcher ends the rank, whose status then says nothing. What kills this
//! process kills the run, too.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use remote::wire::messages::Ended;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use sys::arguments::Words;
use sys::event::{MaskGuard, SignalFd, SignalSet, send_signal};

use crate::error::{Error, Result};
use crate::place;

/// SIGHUP, SIGINT, SIGQUIT, SIGTERM: with these a launcher ends a rank.
const ENDING: [i32; 4] = [1, 2, 3, 15];
/// SIGUSR1, SIGUSR2, SIGCONT: they are for the program alone.
const OTHERS: [i32; 3] = [10, 12, 18];
const CHILD: i32 = 17;
/// How often is looked whether a rank has ended, where SIGCHLD tells that, which could get lost.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// The variables with the number of a rank: `PMIx`, PMI, Slurm.
const NUMBERS: [&str; 3] = ["PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];
/// The end of the name of the file that says how a rank has ended.
const END: &str = ".end";

/// The name of the file with what the command of ranks hides.
const HIDDEN: &str = "hidden";

/// Where that file is in a cluster's directory, for one launch.
pub(crate) fn hidden_of(kept: &Path, launch: &str) -> PathBuf {
    of_launch(kept, launch).join(HIDDEN)
}

fn of_launch(kept: &Path, launch: &str) -> PathBuf {
    kept.join("ranks").join(launch)
}

/// How a rank has ended that failed by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Its number.
    pub rank: u32,
    /// Its exit status, 128+n for signal n.
    pub status: u8,
    /// When, in nanoseconds of the host's clock.
    pub time: u128,
}

/// What the ranks of one launch keep on a host.
#[derive(Debug, Clone)]
pub struct Ranks {
    directory: PathBuf,
}

impl Ranks {
    /// Those of a cluster's launch, whose name no other has, with the host's store.
    ///
    /// # Errors
    /// If one of these is not a name.
    pub fn of(store: &Path, cluster: &str, launch: &str) -> Result<Self> {
        let cluster = crate::spec::name(cluster)?;
        if launch.is_empty() || !launch.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(Error::new(format!("{launch:?} is not the name of a launch")));
        }
        Ok(Self { directory: of_launch(&place::directory(store, &cluster), launch) })
    }

    /// The words of a rank: a program, and behind that a command with what it hides.
    ///
    /// # Errors
    /// If the file that the driver has left for it cannot be read, or is of another command.
    pub fn words(&self, program: Vec<OsString>, command: Vec<OsString>) -> Result<Words> {
        let first = program.len();
        let mut words = Words::new(program.into_iter().chain(command));
        let path = self.directory.join(HIDDEN);
        match fs::read(&path).and_then(|packed| words.unpack(&packed, first)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::new(format!("cannot read {}: {error}", path.display())))
            }
            _ => Ok(words),
        }
    }

    /// Runs a rank: a program, with its words. `environment` gives the variables of this process.
    /// Returns its exit status, 128+n for signal n.
    ///
    /// # Errors
    /// If it cannot be started, or what is known of it cannot be kept.
    pub fn run(&self, words: &Words, environment: impl Fn(&str) -> Option<String>) -> Result<u8> {
        let failed = |error: io::Error| Error::new(format!("a rank cannot be started: {error}"));
        let number = NUMBERS.iter().find_map(|name| environment(name)?.parse::<u32>().ok());
        let number = number.ok_or_else(|| {
            Error::new("the launcher has given this process no rank number").with_hint(
                "the driver starts it: coracle cluster up -f FILE, with launch = \"ranks\"",
            )
        })?;
        let set = SignalSet::of(&[&ENDING[..], &OTHERS, &[CHILD]].concat());
        let _blocked = MaskGuard::block(set).map_err(failed)?;
        let signals = SignalFd::new(set).map_err(failed)?;
        let shown = words.shown();
        let (program, rest) =
            shown.split_first().ok_or_else(|| Error::new("a rank has no program"))?;
        let mut command = Command::new(program);
        command.args(rest).envs(words.variables());
        sys::child::dies_with(&mut command, Signal::KILL);
        let mut child = command.spawn().map_err(failed)?;
        let start = sys::process::start_time(child.id()).unwrap_or_default();
        let path = self.directory.join(number.to_string());
        let kept = fs::create_dir_all(&self.directory)
            .and_then(|()| fs::write(&path, format!("{} {start}\n", child.id())));
        if let Err(error) = kept {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::new(format!("cannot write {}: {error}", path.display())));
        }
        // From Linux 5.3 on; before, SIGCHLD tells.
        let end = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
        let mut is_ended_by_launcher = false;
        let status = loop {
            let mut ready = vec![PollFd::new(&signals, PollFlags::IN)];
            ready.extend(end.iter().map(|end| PollFd::new(end, PollFlags::IN)));
            let _ = poll(&mut ready, end.is_none().then_some(&LOOK));
            while let Ok(Some(signal)) = signals.next() {
                is_ended_by_launcher |= ENDING.contains(&signal.number);
            }
            if let Some(status) = child.try_wait().map_err(failed)? {
                break status;
            }
        };
        let status = Ended::from(status).exit_status();
        if status != 0 && !is_ended_by_launcher {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
            let mut end = path.clone().into_os_string();
            end.push(END);
            // The launcher has the status as well.
            let _ = fs::write(end, format!("{number} {status} {now}\n"));
        }
        let _ = fs::remove_file(&path);
        Ok(status)
    }

    /// Sends a signal to the ranks that run on this host. Returns how many there are.
    pub fn signal(&self, number: i32) -> usize {
        let all = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let reached = all.filter_map(|entry| {
            let text = fs::read_to_string(entry.path()).ok()?;
            let (pid, start) = text.trim().split_once(' ')?;
            let pid = Pid::from_raw(pid.parse().ok()?)?;
            // Another process may have its number by now.
            let now = sys::process::start_time(pid.as_raw_nonzero().get().cast_unsigned())?;
            let is_same = start.parse() == Ok(now);
            is_same.then(|| send_signal(pid, number).ok()).flatten()
        });
        reached.count()
    }

    /// The ranks of this host that have failed by themselves.
    pub fn failures(&self) -> Vec<Failure> {
        let all = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let ended = all.filter(|entry| entry.file_name().to_string_lossy().ends_with(END));
        let failures =
            ended.filter_map(|entry| Failure::parse(fs::read_to_string(entry.path()).ok()?.trim()));
        failures.collect()
    }

    /// Removes what is kept.
    pub fn remove(&self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Failure {
    /// Reads a line: rank, status and time.
    pub fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let mut next = || fields.next();
        let (rank, status, time) = (next()?, next()?, next()?);
        Some(Self {
            rank: rank.parse().ok()?,
            status: status.parse().ok()?,
            time: time.parse().ok()?,
        })
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.rank, self.status, self.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str) -> Option<String> {
        (name == "PMI_RANK").then(|| "3".to_owned())
    }

    fn words(script: &str) -> Words {
        Words::new(["sh", "-c", script])
    }

    #[test]
    fn a_failure_is_kept_and_told() {
        let store = tempfile::tempdir().unwrap();
        let ranks = Ranks::of(store.path(), "lab", "a1").unwrap();
        assert_eq!(ranks.run(&words("exit 0"), variable).unwrap(), 0);
        assert_eq!(ranks.failures(), []);
        assert_eq!(ranks.run(&words("kill -9 $$"), variable).unwrap(), 137);
        let all = ranks.failures();
        assert_eq!((all.len(), all[0].rank, all[0].status), (1, 3, 137));
        assert_eq!(Failure::parse(&all[0].to_string()).as_ref(), Some(&all[0]));
        assert!(Ranks::of(store.path(), "lab", "..").is_err());
        assert!(ranks.run(&words("exit 0"), |_| None).unwrap_err().to_string().contains("no rank"));
        ranks.remove();
        assert_eq!(ranks.failures(), []);
    }

    #[test]
    fn what_a_rank_hides_comes_by_a_file() {
        let store = tempfile::tempdir().unwrap();
        let ranks = Ranks::of(store.path(), "lab", "c3").unwrap();
        let [program, command] = [&["coracle", "--store", "/s"][..], &["run", "-e", "A="]]
            .map(|words| words.iter().map(OsString::from).collect::<Vec<_>>());
        let of = || ranks.words(program.clone(), command.clone());
        assert!(!of().unwrap().has_hidden());
        let mut run = Words::new(["run", "-e", "A=b"]);
        run.hide(2, 2);
        let file = hidden_of(&place::directory(store.path(), "lab"), "c3");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, run.pack()).unwrap();
        let words = of().unwrap();
        assert_eq!(words.all()[3..], *run.all());
        assert_eq!(words.shown()[..], *[program.clone(), command.clone()].concat());
        assert_eq!((ranks.signal(0), ranks.failures()), (0, Vec::new()));
        fs::write(&file, b"_9=A=b\0").unwrap();
        assert!(of().is_err());
        ranks.remove();
        assert!(!file.exists());
    }

    #[test]
    fn a_signal_reaches_the_rank() {
        let store = tempfile::tempdir().unwrap();
        let ranks = Ranks::of(store.path(), "lab", "b2").unwrap();
        assert_eq!(ranks.signal(10), 0);
        let ready = store.path().join("ready");
        let script =
            format!("trap 'exit 5' USR1; touch {}; while :; do sleep 0.02; done", ready.display());
        std::thread::scope(|scope| {
            let rank = scope.spawn(|| ranks.run(&words(&script), variable));
            while !ready.exists() || ranks.signal(0) == 0 {
                std::thread::yield_now();
            }
            assert_eq!(ranks.signal(10), 1);
            assert_eq!(rank.join().unwrap().unwrap(), 5);
        });
        assert_eq!(ranks.signal(10), 0);
    }
}
