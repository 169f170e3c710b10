//! Joining a list of hosts: it takes the place of the one that was joined before.

use crate::cluster::{self, Place};
use crate::error::{Error, Result};
use crate::members;
use crate::networks::{IsAlive, Network};
use crate::peers::{List, Wrong};

fn refused(wrong: Wrong) -> Error {
    let Wrong { at, why, hint } = wrong;
    Error::List { at, why, hint }
}

/// Checks that a list is one of this network.
fn check_network(network: &Network, list: &List) -> Result<()> {
    let (own, Some(first)) = (network.definition(), list.hosts.first()) else { return Ok(()) };
    let why = if first.subnet != own.subnet {
        format!("subnet {} differs from {} of this host's network", first.subnet, own.subnet)
    } else if first.ipv6 != own.ipv6 {
        let text = |ipv6: Option<crate::Prefix>| ipv6.map_or("none".into(), |one| one.to_string());
        let [theirs, ours] = [text(first.ipv6), text(own.ipv6)];
        format!("ipv6 {theirs} differs from {ours} of this host's network")
    } else if first.internal != own.internal {
        let [theirs, ours] = [first.internal, own.internal];
        format!("internal = {theirs} differs from this host's network, where it is {ours}")
    } else if first.auxiliary != own.auxiliary {
        "its auxiliary addresses differ from those of this host's network".to_owned()
    } else {
        return Ok(());
    };
    let hint = format!(
        "remove it here and join again (coracle network rm {}), or choose another name",
        network.name()
    );
    Err(Error::List { at: Some(0), why, hint })
}

/// What came of joining a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    /// This host is in it.
    pub listed: bool,
    /// It says that this host has left.
    pub revoked: bool,
}

/// Joins a list, which [`List::check`] has accepted: it takes the place of the one before. If this
/// host is in it, it takes its address and port from there. If it says that this host has left, the
/// containers that live here keep their addresses and lose the other hosts.
///
/// # Errors
/// [`Error::List`] where it does not follow the one before; [`Error::Moves`] if this host's
/// containers would get other addresses while some live.
pub fn join(network: &Network, list: &List, is_alive: &IsAlive<'_>) -> Result<Joined> {
    let before = cluster::view(network)?;
    let _lock = network.dir().lock().map_err(Error::store("lock a network"))?;
    if before.joined {
        list.check_after(&before.list).map_err(refused)?;
    }
    check_network(network, list)?;
    let key = before.own.key.public();
    let position = list.position(&key);
    let live = || -> Result<Vec<String>> {
        let entries = members::list(network)?.into_iter();
        Ok(entries.filter(|entry| is_alive(&entry.id)).map(|entry| entry.name).collect())
    };
    let listed = position.map(|at| &list.hosts[at]);
    let place = listed.map(|host| Place { address: host.address, port: host.port, among: None });
    let moves = position != before.position
        || place.is_some_and(|place| place.address != before.own.place.address);
    let revoked = position.is_none() && list.hosts.iter().any(|host| host.key == key);
    if moves && before.position.is_some() && !revoked {
        let live = live()?;
        if !live.is_empty() {
            let (name, members) = (network.name().to_owned(), live);
            return Err(Error::Moves { name, members });
        }
    }
    // Where the file is written the agent begins anew, and all links are down for a moment.
    let own = cluster::listens_at(before.own.place);
    if let Some(place) = place.filter(|place| cluster::listens_at(*place) != own) {
        let written = network.dir().write_durable(&cluster::place_file(), &place);
        written.map_err(Error::store("write this host's place in a network"))?;
    }
    network
        .dir()
        .write_durable(cluster::LIST, list)
        .map_err(Error::store("write the list of a network's hosts"))?;
    Ok(Joined { listed: position.is_some(), revoked })
}
