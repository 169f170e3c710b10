//! The process that answers containers' questions for names and forwards their frames, and what it
//! asks of the store.

use std::io::Write as _;
use std::net::IpAddr;
use std::path::Path;

use net::agent::{self, Containers};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::Store;
use sys::fork::{ForkResult, fork};

use super::{network_guard, networks, record};
use crate::error::Result;

pub use net::agent::WORD;

/// What `ps` shows.
const NAME: &str = "coracle-names";

/// Is the agent, and what guards it: the process that [`agent::ensure`] has executed. Its exit
/// status.
pub fn be_agent(store: Option<&Path>) -> u8 {
    let Some(path) = store else { return 1 };
    match fork() {
        Ok(ForkResult::Parent(_)) => return 0,
        Ok(ForkResult::Child) => {}
        Err(_) => return 1,
    }
    let _ = sys::process::new_session();
    sys::event::close_foreign();
    network_guard::guard(path, || {
        sys::event::set_title(NAME, &format!("{NAME} {}", path.display()));
        // It has some descriptors of each container.
        let limit = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
        u8::from(serve(path).is_err())
    })
}

fn serve(path: &Path) -> Result<()> {
    let store = Store::open(path, store::Options::default())?;
    agent::run(&store, Box::new(OfStore(store.clone())), || {
        let _ = std::io::stdout().write_all(b"+").and_then(|()| std::io::stdout().flush());
        // Whoever has started it may wait for the end of its output.
        if let Ok(null) = std::fs::File::options().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(&null);
        }
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
