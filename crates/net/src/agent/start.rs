//! How the agent is started: by the container that is the first to need one.

use std::io::Read as _;
use std::process::{Command, Stdio};

use store::Store;

use super::process::is_running;
use crate::error::{Error, Result};

/// The first word of the agent's command line; the second is the path of the store.
pub const WORD: &str = "_network-agent";

/// Starts the agent of this host unless there is one: this program again, with [`WORD`]. It
/// outlives the caller. Returns when it answers questions.
///
/// # Errors
/// [`Error::Agent`] where it cannot be started, or does not begin.
pub fn ensure(store: &Store) -> Result<()> {
    for _ in 0..TRIES {
        if is_running(store)? || begin(store)? {
            return Ok(());
        }
    }
    Err(failed(std::io::Error::other("it did not begin")))
}

/// How often an agent is started. One ends at once where another one has begun in the same moment,
/// or somebody else looks whether there is one ([`is_running`]).
const TRIES: u32 = 5;

/// Starts one; false if it has ended before it has answered a question.
fn begin(store: &Store) -> Result<bool> {
    let (mut ours, theirs) = std::io::pipe().map_err(failed)?;
    // The first process ends as soon as it has forked, and the second has left the caller's session
    // by then.
    let mut command = Command::new("/proc/self/exe");
    command.arg(WORD).arg(store.path()).current_dir("/").env_clear();
    command.stdin(Stdio::null()).stdout(theirs).stderr(Stdio::null());
    let status = command.status().map_err(failed)?;
    drop(command);
    let mut word = [0; 1];
    Ok(status.success() && ours.read(&mut word).map_err(failed)? == 1)
}

fn failed(source: std::io::Error) -> Error {
    Error::Agent { source }
}
