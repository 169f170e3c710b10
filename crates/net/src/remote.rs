//! What is known of the other hosts of a network, and of their containers.
//!
//! The agent writes it to `networks/<name>/remote-<host>.json` when it changes. It is a hint: names
//! come from it, and whether a container is reached is asked anew each time. An agent that begins
//! or ends empties it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use store::Store;

use crate::cluster;
use crate::definition::Scope;
use crate::error::{Error, Result};
use crate::members::{self, Entry};
use crate::names::host;
use crate::networks::Network;
use crate::peers::{PublicKey, Remote};

/// The slot of a container of another host.
const NO_SLOT: u32 = u32::MAX;

fn remote_file() -> String {
    format!("remote-{}.json", host())
}

/// What the agent of this host knows of the other hosts of a network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Known {
    /// Which agent has written it.
    pub agent: u64,
    /// When that was, in milliseconds since 1970.
    pub written: u64,
    /// Why it does not listen; `None` if it does.
    pub error: Option<String>,
    /// The epoch of its list.
    pub epoch: u64,
    /// The others.
    pub peers: Vec<Peer>,
}

/// Another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its key.
    pub key: PublicKey,
    /// A link to it is up.
    pub up: bool,
    /// Since when that is so, in seconds since 1970.
    pub since: u64,
    /// Why it is down.
    pub why: String,
    /// Its living containers.
    pub members: Vec<Remote>,
}

/// What the agent has written last.
pub fn known(network: &Network) -> Result<Option<Known>> {
    network.dir().read(&remote_file()).map_err(Error::store("read what is known of other hosts"))
}

/// Writes it. Only the agent does.
pub(crate) fn set_known(network: &Network, known: &Known) -> Result<()> {
    let written = network.dir().write(&remote_file(), known);
    written.map_err(Error::store("write what is known of other hosts"))
}

/// The files that say what the agent is to do: members, list, and this host's place.
pub(crate) fn files(network: &Network) -> [PathBuf; 3] {
    let dir = network.dir();
    [members::path(network), dir.join(cluster::LIST), dir.join(&cluster::place_file())]
}

/// The containers of other hosts in a network, as far as they are known.
pub fn remote(network: &Network) -> Result<Vec<Entry>> {
    if network.definition().scope != Scope::Cluster {
        return Ok(Vec::new());
    }
    let members = known(network)?.into_iter().flat_map(|known| known.peers);
    let members = members.flat_map(|peer| peer.members);
    Ok(members
        .map(|Remote { id, name, aliases, address, kind }| Entry {
            id,
            name,
            aliases,
            address,
            kind,
            slot: NO_SLOT,
            since: 0,
        })
        .collect())
}

/// All members that a container of this host may know by name: those of this host, and those of
/// others.
pub fn members(network: &Network) -> Result<Vec<Entry>> {
    let mut all = members::list(network)?;
    all.extend(remote(network)?);
    Ok(all)
}

/// The number of a network in this host's table.
pub(crate) fn number(store: &Store, network: &Network) -> Result<u16> {
    members::change_slots(store, &host(), |slots| slots.number(network.id()))
}
