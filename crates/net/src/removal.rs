//! Removes networks.
//!
//! A network is removed under the lock of all networks and its own, so no container joins it
//! meanwhile. One in which a container lives, on any host that shares the store, stays.

use store::Store;

use crate::definition::{BRIDGE, Definition, Scope};
use crate::error::{Error, Result};
use crate::members;
use crate::networks::{IsAlive, Network, Networks};

/// Removes a network; whether it was still there.
///
/// # Errors
/// [`Error::InUse`] where containers live in it.
pub fn remove(store: &Store, network: &Network, is_alive: &IsAlive<'_>) -> Result<bool> {
    remove_if(store, network, is_alive, || true)
}

/// Removes the networks without a living member that `select` chooses. It is called under the lock
/// of all networks. Networks of a later version stay: their members may stand elsewhere. Those of
/// several hosts stay, too: with one goes the key by which the others know this host. [`BRIDGE`] is
/// always there.
pub fn prune(
    store: &Store,
    select: &dyn Fn(&Definition) -> bool,
    is_alive: &IsAlive<'_>,
) -> Result<Vec<Definition>> {
    let mut removed = Vec::new();
    for network in Networks::of(store).list()? {
        let definition = network.definition();
        match remove_if(store, &network, is_alive, || {
            definition.scope == Scope::Host && definition.name != BRIDGE && select(definition)
        }) {
            Ok(true) => removed.push(definition.clone()),
            Ok(false) | Err(Error::InUse { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}

fn remove_if(
    store: &Store,
    network: &Network,
    is_alive: &IsAlive<'_>,
    wanted: impl FnOnce() -> bool,
) -> Result<bool> {
    let _all = store.networks().lock().map_err(Error::store("lock the networks"))?;
    let _own = network.dir().lock().map_err(Error::store("lock a network"))?;
    // Another one may have the name by now.
    let now = Networks::of(store).get(network.name())?;
    if now.is_none_or(|now| now.id() != network.id()) || !wanted() {
        return Ok(false);
    }
    let entries = members::on_all_hosts(network)?.into_iter();
    let mut alive: Vec<String> =
        entries.filter(|entry| is_alive(&entry.id)).map(|entry| entry.name).collect();
    if !alive.is_empty() {
        alive.sort_unstable();
        return Err(Error::InUse { name: network.name().to_owned(), members: alive });
    }
    members::forget_network(network)?;
    network.dir().remove().map_err(Error::store("remove a network"))
}

#[cfg(test)]
mod tests {
    use store::Options;

    use super::*;
    use crate::{Member, Request};

    #[test]
    fn a_network_with_living_members_stays() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { create: true, ..Options::default() };
        let store = Store::open(directory.path(), options).unwrap();
        let networks = Networks::of(&store);
        let make = |name: &str| {
            networks
                .create(Request { name: name.into(), ..Request::default() }, (&[], &[]))
                .unwrap()
        };
        let [lab, other, third] = ["lab", "other", "third"].map(make);
        for name in ["web", "db"] {
            let member = Member { id: name.into(), name: name.into(), ..Member::default() };
            members::join(&lab, &member, &|_| true).unwrap();
        }
        let refused = remove(&store, &lab, &|_| true).unwrap_err();
        assert_eq!(refused.to_string(), "network lab has active endpoints (db, web)");
        assert_eq!(refused.hint().unwrap(), "stop them first: coracle stop db web");
        let pruned = prune(&store, &|one| one.name != "third", &|id| id == "db").unwrap();
        assert_eq!(pruned.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["other"]);
        assert!(!remove(&store, &other, &|_| false).unwrap(), "it is gone");
        assert!(remove(&store, &lab, &|_| false).unwrap());
        let again = make("lab");
        assert!(!remove(&store, &lab, &|_| false).unwrap(), "another one has its name");
        assert!(members::list(&again).unwrap().is_empty());
        // Its members have lost the slots that they had because of it.
        let member = Member { id: "new".into(), name: "new".into(), ..Member::default() };
        members::join(&third, &member, &|_| true).unwrap();
        let slots = members::slots_file(&store);
        let slots = std::fs::read_to_string(slots).unwrap();
        assert!(slots.contains("new") && !slots.contains("web"), "{slots}");
        let left = members::join(&lab, &member, &|_| true).unwrap_err();
        assert_eq!(left.to_string(), "network lab not found");
    }
}
