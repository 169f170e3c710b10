//! The process that answers containers' questions for names: when it is started, and what it asks
//! of the store.

use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use net::agent::{self, Hooks};
use store::Store;
use sys::fork::{ForkResult, fork};

use super::{networks, record};
use crate::error::{Error, Result};
use crate::session::Session;

/// The first word of the agent's command line; the second is the path of the store.
pub const WORD: &str = "_network-agent";
/// What `ps` shows.
const NAME: &str = "coracle-names";

/// Starts the agent of this host unless there is one. It outlives the caller. Returns when it
/// answers questions.
///
/// # Errors
/// Where it cannot be started, or does not begin.
pub fn ensure(session: &Session) -> Result<()> {
    let store = session.store()?;
    if agent::is_running(store)? {
        return Ok(());
    }
    let failed =
        |error: std::io::Error| Error::failed("cannot start the network agent").cause(error);
    let (mut ours, theirs) = std::io::pipe().map_err(failed)?;
    // The first process ends as soon as it has forked, and the second has left the caller's session
    // by then.
    let mut command = Command::new("/proc/self/exe");
    command.arg(WORD).arg(store.path()).current_dir("/").env_clear();
    command.stdin(Stdio::null()).stdout(theirs).stderr(Stdio::null());
    let status = command.status().map_err(failed)?;
    drop(command);
    let mut word = [0; 1];
    let answers = status.success() && ours.read(&mut word).map_err(failed)? == 1;
    if answers { Ok(()) } else { Err(Error::failed("the network agent did not begin")) }
}

/// Is the agent: the process that [`ensure`] has executed. Its exit status.
pub fn be_agent(store: Option<&Path>) -> u8 {
    let Some(path) = store else { return 1 };
    match fork() {
        Ok(ForkResult::Parent(_)) => return 0,
        Ok(ForkResult::Child) => {}
        Err(_) => return 1,
    }
    let _ = rustix::process::setsid();
    sys::event::set_title(NAME, &format!("{NAME} {}", path.display()));
    sys::event::close_foreign();
    u8::from(serve(path).is_err())
}

fn serve(path: &Path) -> Result<()> {
    let store = Store::open(path, store::Options::default())?;
    let (living, asking) = (store.clone(), store.clone());
    let hooks = Hooks {
        is_alive: Box::new(move |id| networks::may_live(&living, id)),
        servers: Box::new(move |id| servers(&asking, id)),
    };
    agent::run(&store, hooks, || {
        let _ = std::io::stdout().write_all(b"+").and_then(|()| std::io::stdout().flush());
        // Whoever has started it may wait for the end of its output.
        if let Ok(null) = std::fs::File::options().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(&null);
        }
    })?;
    Ok(())
}

/// The servers that know other names for a container: those of `--dns`, else the host's.
fn servers(store: &Store, id: &str) -> Vec<IpAddr> {
    let record = store.containers().find(id).ok().and_then(|found| record::read(&found).ok());
    let own = record.map(|record| record.config.dns.servers).unwrap_or_default();
    let own: Vec<IpAddr> = own.iter().filter_map(|server| server.parse().ok()).collect();
    if own.is_empty() { networks::servers_of_host() } else { own }
}
