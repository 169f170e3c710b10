//! The place of this host in a network of several hosts: which port its agent has, where the user
//! names none.
//!
//! Each host chooses for itself, and its entry in the list tells the others. A port belongs to
//! nobody until an agent listens at it, so any user may have it when that agent starts: then the
//! host chooses anew as soon as its entry is asked for ([`renew`]).

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

use store::Store;

use crate::agent;
use crate::cluster::{self, Place};
use crate::definition::Scope;
use crate::error::{Error, Result};
use crate::networks::{Network, Networks};
use crate::peers;
use crate::ports::Ports;
use crate::remote;

/// A place with a port at which no program listens, and which no other network of the store has.
/// Of the usual ports it is the first one, of others any: two users who start the same at the same
/// time get different ones, and nobody can take it beforehand. A single one is taken as it is.
///
/// # Errors
/// [`Error::NoPort`].
pub fn choose(store: &Store, address: Ipv4Addr, ports: Ports) -> Result<Place> {
    if ports.first == ports.last {
        return Ok(Place { address, port: ports.first, among: None });
    }
    let mut start = [0; 2];
    if ports != Ports::USUAL {
        // Without random numbers the first one will do.
        let _ = sys::random::fill(&mut start);
    }
    let others = of_others(store)?;
    let is_free = |port: &u16| {
        !others.contains(port) && peers::listen(SocketAddrV4::new(address, *port)).is_ok()
    };
    let port = ports.from(u16::from_ne_bytes(start)).find(is_free);
    let port = port.ok_or(Error::NoPort { address, ports })?;
    Ok(Place { address, port, among: Some(ports) })
}

/// The ports of all networks of this host, at whatever address.
fn of_others(store: &Store) -> Result<BTreeSet<u16>> {
    let mut all = BTreeSet::new();
    for network in Networks::of(store).list()? {
        if network.definition().scope == Scope::Cluster {
            all.extend(cluster::place(&network)?.map(|place| place.port));
        }
    }
    Ok(all)
}

/// Gives this host another port in a network where the one that was chosen is another program's
/// now. The others learn it from a new list.
///
/// # Errors
/// As for [`choose`], and where the network cannot be read or written.
pub fn renew(store: &Store, network: &Network) -> Result<()> {
    let Some(place @ Place { among: Some(ports), .. }) = cluster::place(network)? else {
        return Ok(());
    };
    let known = remote::known(network)?.filter(|known| known.agent != 0 && known.error.is_none());
    if known.is_some() && agent::is_running(store)? {
        return Ok(());
    }
    match peers::listen(cluster::listens_at(place)) {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            cluster::settle(network, choose(store, place.address, ports)?)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use store::Options;

    use super::*;
    use crate::networks::Request;

    #[test]
    fn ports_of_others_are_stepped_round() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), Options { create: true, ..Options::default() });
        let store = store.unwrap();
        let address = Ipv4Addr::new(127, 199, (std::process::id() % 250) as u8, 7);
        let network = |name: &str| {
            let request =
                Request { name: name.into(), scope: Scope::Cluster, ..Request::default() };
            Networks::of(&store).create(request, (&[], &[])).unwrap()
        };
        let (one, two) = (network("one"), network("two"));
        // A stranger has the first, the other network the second.
        let stranger = TcpListener::bind((address, Ports::USUAL.first)).unwrap();
        for (network, expected) in [(&one, 1), (&two, 2)] {
            let place = choose(&store, address, Ports::USUAL).unwrap();
            assert_eq!(place.port, Ports::USUAL.first + expected);
            cluster::settle(network, place).unwrap();
        }
        drop(stranger);
        // One that was chosen moves when a stranger has it, and only then.
        let port = |network: &Network| cluster::place(network).unwrap().unwrap().port;
        renew(&store, &two).unwrap();
        assert_eq!(port(&two), Ports::USUAL.first + 2);
        let _stranger = TcpListener::bind((address, port(&two))).unwrap();
        renew(&store, &two).unwrap();
        assert_eq!(port(&two), Ports::USUAL.first);
        // The user's own word stays.
        let own = Ports { first: Ports::USUAL.first + 2, last: Ports::USUAL.first + 2 };
        cluster::settle(&two, choose(&store, address, own).unwrap()).unwrap();
        renew(&store, &two).unwrap();
        assert_eq!(port(&two), own.first);
        let full = Ports { first: own.first - 1, last: own.first };
        assert!(matches!(choose(&store, address, full), Err(Error::NoPort { .. })));
    }

    #[test]
    fn a_range_is_not_begun_at_its_first_port() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), Options { create: true, ..Options::default() });
        let (store, ports) = (store.unwrap(), Ports { first: 20_000, last: 31_999 });
        let choose = |_| choose(&store, Ipv4Addr::LOCALHOST, ports).unwrap().port;
        let all: BTreeSet<u16> = (0..8).map(choose).collect();
        assert!(all.len() > 4 && all.iter().all(|&port| ports.contains(port)), "{all:?}");
    }
}
