//! What the programs do that the controller starts: they ask the driver for nodes, and wait for
//! them.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{SOCKET, nodes};
use crate::door::{self, Request};
use crate::error::{Error, Result};

/// The driver may be started again meanwhile: it is waited for so long.
const PATIENCE: Duration = Duration::from_secs(45);
const PAUSE: Duration = Duration::from_millis(100);
/// A job's nodes are waited for so long at most: the controller gives them up before. It is asked
/// less and less often, since all jobs that wait ask it.
const LONGEST: Duration = Duration::from_mins(15);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nodes are wanted (`ResumeProgram`).
    Resume,
    /// Nodes are given back (`SuspendProgram`).
    Suspend,
    /// Nodes have not registered in time (`ResumeFailProgram`).
    Failed,
    /// A job waits for its nodes (`PrologSlurmctld`).
    Ready,
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Resume, Self::Suspend, Self::Failed, Self::Ready];

    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Resume => "resume",
            Self::Suspend => "suspend",
            Self::Failed => "failed",
            Self::Ready => "ready",
        }
    }

    /// The action of a word.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.word() == word)
    }
}

/// Does what the controller wants of a program. `list` names nodes as Slurm writes several of them
/// (`compute-[1-3]`), which its own `scontrol` expands.
///
/// # Errors
/// If the list is not understood, or the driver is not there.
pub fn ask(action: Action, list: &str) -> Result<u8> {
    if action == Action::Ready {
        wait(list);
        return Ok(0);
    }
    let names = scontrol(&["show", "hostnames", list])?;
    let names: Vec<&str> = names.split_whitespace().collect();
    // Slurm gives its programs no variables but its own, so the door has one place.
    let door = Path::new(SOCKET);
    let until = Instant::now() + PATIENCE;
    while UnixStream::connect(door).is_err() && Instant::now() < until {
        std::thread::sleep(PAUSE);
    }
    let node = action.word().to_owned();
    let request = Request { node, user: None, command: names.join(" "), input: false };
    door::rsh(&request, Some(door))
}

/// Waits until nodes are there. The controller itself looks only twice a minute whether those of a
/// batch job are, and always when its prolog has ended; a job whose nodes do not come is left to
/// it.
fn wait(list: &str) {
    let (until, mut pause) = (Instant::now() + LONGEST, PAUSE);
    while Instant::now() < until {
        let all = scontrol(&["show", "nodes", list, "--oneliner"]).map(|said| nodes(&said));
        if all.is_ok_and(|all| !all.iter().any(super::Node::is_coming)) {
            return;
        }
        std::thread::sleep(pause);
        pause = (pause * 5 / 4).min(LONGEST_PAUSE);
    }
}

fn scontrol(words: &[&str]) -> Result<String> {
    let done = Command::new("scontrol").args(words).output();
    let done = done.map_err(|error| Error::new(format!("cannot start scontrol: {error}")))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(Error::new(format!("scontrol {}: {}", words.join(" "), said.trim())));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
