//! The process that answers containers' questions for names, and what it asks of the store.

use std::io::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use net::agent::{self, Containers};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, waitpid};
use store::Store;
use sys::fork::{ForkResult, fork};

use super::{networks, record};
use crate::error::Result;

pub use net::agent::WORD;

/// What `ps` shows.
const NAME: &str = "coracle-names";
/// Its keeper.
const KEEPER: &str = "coracle-keeper";
/// Between the agent's death and the next one.
const PAUSE: Duration = Duration::from_millis(20);
/// One that dies in this time, so many times, is given up.
const EARLY: Duration = Duration::from_secs(1);
const TRIES: u32 = 5;

/// Is the agent: the process that [`agent::ensure`] has executed. Its exit status.
///
/// The agent has a keeper, because containers may live for days without another start, which would
/// begin it anew: its parent, which waits until it has ended, and does nothing else.
pub fn be_agent(store: Option<&Path>) -> u8 {
    let Some(path) = store else { return 1 };
    match fork() {
        Ok(ForkResult::Parent(_)) => return 0,
        Ok(ForkResult::Child) => {}
        Err(_) => return 1,
    }
    let _ = rustix::process::setsid();
    sys::event::set_title(KEEPER, &format!("{KEEPER} {}", path.display()));
    sys::event::close_foreign();
    let mut early = 0;
    loop {
        let begun = Instant::now();
        let agent = match fork() {
            Ok(ForkResult::Parent(agent)) => agent,
            Ok(ForkResult::Child) => {
                sys::event::set_title(NAME, &format!("{NAME} {}", path.display()));
                return u8::from(serve(path).is_err());
            }
            Err(_) => return 1,
        };
        leave_stdout();
        if !was_killed(agent) {
            return 0;
        }
        early = if begun.elapsed() < EARLY { early + 1 } else { 0 };
        if early == TRIES {
            return 1;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Waits for the agent's end. Returns true if it was killed, or crashed, and was not asked to end.
fn was_killed(agent: Pid) -> bool {
    let status = loop {
        match waitpid(Some(agent), WaitOptions::empty()) {
            Ok(Some((_, status))) => break status,
            Err(Errno::INTR) | Ok(None) => {}
            Err(_) => return false,
        }
    };
    let asked = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT].map(Signal::as_raw);
    status.terminating_signal().is_some_and(|signal| !asked.contains(&signal))
}

/// Whoever has started the agent may wait for the end of its output.
fn leave_stdout() {
    if let Ok(null) = std::fs::File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

fn serve(path: &Path) -> Result<()> {
    let store = Store::open(path, store::Options::default())?;
    agent::run(&store, Box::new(OfStore(store.clone())), || {
        let _ = std::io::stdout().write_all(b"+").and_then(|()| std::io::stdout().flush());
        leave_stdout();
    })?;
    Ok(())
}

/// The containers of a store.
struct OfStore(Store);

impl Containers for OfStore {
    fn is_alive(&self, id: &str) -> bool {
        networks::may_live(&self.0, id)
    }

    fn has_started(&self, id: &str) -> bool {
        networks::has_started(&self.0, id)
    }

    fn tell(&self, network: &net::Network) {
        // It is tried again with the next change.
        let _ = networks::tell(&self.0, std::slice::from_ref(network));
    }

    /// Those of `--dns`, else the host's.
    fn servers(&self, id: &str) -> Vec<IpAddr> {
        let found = self.0.containers().find(id).ok();
        let record = found.and_then(|found| record::read(&found).ok());
        let own = record.map(|record| record.config.dns.servers).unwrap_or_default();
        let own: Vec<IpAddr> = own.iter().filter_map(|server| server.parse().ok()).collect();
        if own.is_empty() { networks::servers_of_host() } else { own }
    }
}
