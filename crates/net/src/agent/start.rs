//! How the agent is started: by the container that is the first to need one.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use abi::network::Table;
use store::Store;
use sys::shared::SharedWords;

use super::asks::agent_id;
use super::process::is_running;
use crate::error::{Error, Result};
use crate::networks::Network;
use crate::remote::{self, Known};
use crate::rows;

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

/// Between two looks whether a network is served.
const LOOK: Duration = Duration::from_millis(5);
/// An agent begins to serve a network in this time, or says why not.
const SERVED: Duration = Duration::from_secs(5);

/// Starts the agent unless there is one, and waits until it serves a network of several hosts, of
/// which a container of this host is a member.
///
/// # Errors
/// [`Error::Agent`]; [`Error::NotServed`] with the reason, as that the port is taken.
pub fn ensure_served(store: &Store, network: &Network) -> Result<()> {
    let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let until = Instant::now() + SERVED;
    loop {
        // One that was about to end when the container came may have ended.
        ensure(store)?;
        let agent = running(store)?;
        let known = remote::known(network)?.filter(|known| known.agent == agent);
        let why = match known {
            Some(Known { error: None, .. }) => return Ok(()),
            // It tries again and again; what it has said before may not be true any more.
            Some(Known { error: Some(why), written, .. }) if written >= begun => why,
            _ if Instant::now() < until => {
                std::thread::sleep(LOOK);
                continue;
            }
            _ => "it does not begin to".to_owned(),
        };
        return Err(Error::NotServed { name: network.name().to_owned(), why });
    }
}

/// What tells the agent that has begun last from others.
fn running(store: &Store) -> Result<u64> {
    let path = rows::path(store);
    let failed = |source| Error::Table { path: path.clone(), source };
    let file = std::fs::File::options().read(true).write(true).open(&path).map_err(failed)?;
    let words = SharedWords::map(&file).map_err(|errno| failed(errno.into()))?;
    let agent = Table::open(words.words()).and_then(|table| table.agent());
    Ok(agent.map_or(0, |agent| agent_id(&agent)))
}
