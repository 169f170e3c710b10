//! What the agent asks about containers, of which another crate knows more.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::locks;
use crate::networks::Network;

/// For so long an answer of [`Containers::is_alive`] is used again.
const FRESH: Duration = Duration::from_secs(1);

/// What the agent asks about containers.
pub trait Containers: Send + Sync {
    /// Whether the container with this id lives, or is about to.
    fn is_alive(&self, id: &str) -> bool;
    /// Whether its program has begun, and lives.
    fn has_started(&self, id: &str) -> bool;
    /// The servers that know other names for a container, in the order in which they are asked.
    fn servers(&self, id: &str) -> Vec<IpAddr>;
    /// Writes the names of a network's members to the hosts files of those of this host.
    fn tell(&self, network: &Network);
}

/// Which containers live, and when that was asked.
pub(super) struct Alive {
    containers: Arc<dyn Containers>,
    known: Mutex<HashMap<String, (Instant, bool)>>,
}

impl Alive {
    pub(super) fn new(containers: &Arc<dyn Containers>) -> Self {
        Self { containers: Arc::clone(containers), known: Mutex::default() }
    }

    pub(super) fn is_alive(&self, id: &str) -> bool {
        let lock = || locks::lock(&self.known);
        if let Some((_, lives)) = lock().get(id).filter(|(at, _)| at.elapsed() < FRESH) {
            return *lives;
        }
        // Not under the lock: a disk may be slow.
        let lives = self.containers.is_alive(id);
        let mut known = lock();
        known.retain(|_, (at, _)| at.elapsed() < FRESH);
        known.insert(id.to_owned(), (Instant::now(), lives));
        lives
    }
}
