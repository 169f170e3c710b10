//! Starts a supervisor: two forks, a new session, and an answer before the caller goes on.
//!
//! The supervisor is the caller's image continued, not a new program: the plan, the engine's state
//! and the cleanup are simply there. What that costs in memory was the question. A fork shares all
//! pages; those that count for the supervisor are the ones either side writes to, plus the code it
//! runs. Freed heap and code that was used go back to the kernel when the program runs, and again
//! whenever the supervisor has had nothing to do for a while. Executing the program anew would save
//! little more: its own start touches some 1.4 MB of code and constants.
//!
//! The second fork makes it no leader of its session, so that it never gains a terminal by
//! opening one. Whether the program started, and why not, comes back through a pipe that is
//! close-on-exec on both sides.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{WaitOptions, waitpid};
use serde::{Deserialize, Serialize};
use sys::event::{close_foreign, set_title, trim_memory};
use sys::fork::{ForkResult, exit_now, fork};

use super::ledger::Ledger;
use super::serve::Supervisor;
use super::{Error, Failure, Launch};
use crate::exit::FAILED;

/// The command name of a supervisor.
const NAME: &str = "coracle-sup";

/// A supervisor that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The program's first process.
    pub pid: u32,
    /// The supervisor.
    pub supervisor: u32,
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Started(Started),
    Failed(Failure),
}

/// Starts a container that lives on without the caller: survives the end of the session, keeps
/// no descriptor of the caller. Returns when the program runs.
///
/// # Errors
/// [`Error::Start`] with Docker's exit code where the program could not be started;
/// [`Error::Busy`] where the container runs already.
pub fn detached(mut launch: Launch<'_>) -> Result<Started, Error> {
    let ledger = Ledger::open(&mut launch)?;
    if ledger.is_further() {
        return Err(Error::Busy);
    }
    start(launch, ledger, None).map(|(started, _)| started)
}

/// The two ends of the connection between a command in the foreground and its supervisor.
pub(super) struct Connection {
    /// The command's.
    pub(super) ours: OwnedFd,
    /// The supervisor's.
    pub(super) theirs: OwnedFd,
}

/// Forks the supervisor. Gives back the command's end of `connection`; each side closes the
/// other's, since the end of the connection is how the supervisor learns of the command's.
pub(super) fn start<'a>(
    launch: Launch<'a>,
    ledger: Ledger<'a>,
    connection: Option<Connection>,
) -> Result<(Started, Option<OwnedFd>), Error> {
    let (reader, writer) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|error| Error::make("pipe", error))?;
    match fork().map_err(Error::Fork)? {
        ForkResult::Parent(child) => {
            drop(writer);
            let ours = connection.map(|both| both.ours);
            let _ = waitpid(Some(child), WaitOptions::empty());
            Ok((answer(File::from(reader))?, ours))
        }
        ForkResult::Child => {
            drop(reader);
            let first = connection.map(|both| both.theirs);
            // Nothing may unwind out of here: the caller's code would run a second time.
            let all = AssertUnwindSafe(|| second_fork(launch, ledger, first, File::from(writer)));
            let _ = catch_unwind(all);
            exit_now(i32::from(FAILED))
        }
    }
}

fn answer(mut pipe: File) -> Result<Started, Error> {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes).map_err(|error| Error::wait("hear of the supervisor", error))?;
    match serde_json::from_slice(&bytes) {
        Ok(Answer::Started(started)) => Ok(started),
        Ok(Answer::Failed(failure)) => Err(Error::Start(failure)),
        Err(_) => Err(Error::SupervisorVanished),
    }
}

fn second_fork<'a>(launch: Launch<'a>, ledger: Ledger<'a>, first: Option<OwnedFd>, pipe: File) {
    let _ = sys::process::new_session();
    match fork() {
        Ok(ForkResult::Parent(_)) => exit_now(0),
        Ok(ForkResult::Child) => {}
        Err(error) => return tell(pipe, &Answer::Failed(Failure::of(&Error::Fork(error)))),
    }
    leave_caller(&launch.options.title);
    let mut supervisor = match Supervisor::new(launch, first, ledger) {
        Ok(supervisor) => supervisor,
        Err(error) => return tell(pipe, &Answer::Failed(Failure::of(&error))),
    };
    match supervisor.begin() {
        Ok(pid) => {
            tell(pipe, &Answer::Started(Started { pid, supervisor: std::process::id() }));
            supervisor.run();
            exit_now(0)
        }
        Err(failure) => tell(pipe, &Answer::Failed(failure)),
    }
}

/// Cuts the ties to the command that started this: descriptors and name.
fn leave_caller(title: &str) {
    if let Ok(null) = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    ) {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    close_foreign();
    set_title(NAME, &format!("{NAME} {title}"));
    trim_memory();
}

fn tell(mut pipe: File, answer: &Answer) {
    if let Ok(bytes) = serde_json::to_vec(answer) {
        let _ = pipe.write_all(&bytes);
    }
}
