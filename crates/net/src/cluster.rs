//! What a network of several hosts keeps on disk: this host's address, port and key, and the
//! list of hosts that was joined.
//!
//! ```text
//! networks/<name>/place-<host>.json    this host's Place
//! networks/<name>/key-<host>           its private key, for its user only
//! networks/<name>/hosts.json           the list that was joined last
//! ```
//!
//! Hosts that share a store share the list; each has a place and a key of its own. A host whose
//! network has no list yet is alone in it, at place 0 of the list to come.

use std::net::{Ipv4Addr, SocketAddrV4};

use serde::{Deserialize, Serialize};

use crate::definition::Scope;
use crate::error::{Error, Result};
use crate::names::{self, host};
use crate::networks::Network;
use crate::peers::{Host, Key, List};
use crate::ports::Ports;
use crate::subnet::Subnet;
use crate::{ipam, slices};

pub(crate) const LIST: &str = "hosts.json";

/// Where this host's agent listens, and where its containers are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// An address of this host.
    pub address: Ipv4Addr,
    /// The agent's port.
    pub port: u16,
    /// It was chosen among these; `None` if it is the user's word, to which no other one is
    /// preferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub among: Option<Ports>,
}

/// What a host is in a network.
#[derive(Debug, Clone)]
pub struct Own {
    /// Its place.
    pub place: Place,
    /// Its key.
    pub key: Key,
}

/// A network of several hosts as this host sees it.
#[derive(Debug, Clone)]
pub struct View {
    /// This host.
    pub own: Own,
    /// The hosts: those of the list that was joined, else this one alone.
    pub list: List,
    /// This host's place among them; `None` if it is not listed.
    pub position: Option<usize>,
    /// A list was joined.
    pub joined: bool,
}

pub(crate) fn place_file() -> String {
    format!("place-{}.json", host())
}

fn key_error(network: &Network) -> impl FnOnce(std::io::Error) -> Error + use<> {
    let path = network.dir().join(&format!("key-{}", host()));
    move |source| Error::Key { path, source }
}

/// The name of this host in lists.
fn own_name() -> String {
    let name = host();
    if names::is_name(&name) { name } else { "host".to_owned() }
}

/// Fails for a network of another scope.
///
/// # Errors
/// [`Error::NotCluster`].
pub fn check_scope(network: &Network) -> Result<()> {
    match network.definition().scope {
        Scope::Cluster => Ok(()),
        _ => Err(Error::NotCluster { name: network.name().to_owned() }),
    }
}

/// Gives this host a place in a network, and a key if it has none.
pub fn settle(network: &Network, place: Place) -> Result<()> {
    let _lock = network.dir().lock().map_err(Error::store("lock a network"))?;
    let path = network.dir().join(&format!("key-{}", host()));
    if Key::read(&path).map_err(key_error(network))?.is_none() {
        let key = Key::generate().map_err(key_error(network))?;
        key.write(&path).map_err(key_error(network))?;
    }
    let written = network.dir().write_durable(&place_file(), &place);
    written.map_err(Error::store("write this host's place in a network"))
}

/// This host's place; `None` if it has none, because the network was made by another host that
/// shares the store.
pub fn place(network: &Network) -> Result<Option<Place>> {
    let place = network.dir().read(&place_file());
    place.map_err(Error::store("read this host's place in a network"))
}

/// This host's place and key; `None` if it has none.
pub fn own(network: &Network) -> Result<Option<Own>> {
    let place = place(network)?;
    let key = Key::read(&network.dir().join(&format!("key-{}", host())));
    let key = key.map_err(key_error(network))?;
    Ok(place.zip(key).map(|(place, key)| Own { place, key }))
}

/// This host's entry in a list.
///
/// # Errors
/// [`Error::NoPlace`].
pub fn entry(network: &Network) -> Result<Host> {
    check_scope(network)?;
    let own = own(network)?;
    let own = own.ok_or_else(|| Error::NoPlace { name: network.name().to_owned() })?;
    Ok(own.entry(network))
}

impl Own {
    fn entry(&self, network: &Network) -> Host {
        let (Place { address, port, .. }, definition) = (self.place, network.definition());
        Host {
            name: own_name(),
            address,
            port,
            key: self.key.public(),
            subnet: definition.subnet,
            ipv6: definition.ipv6,
            internal: definition.internal,
            auxiliary: definition.auxiliary.clone(),
            revoked: false,
        }
    }
}

/// The list that was joined last.
pub fn list(network: &Network) -> Result<Option<List>> {
    network.dir().read(LIST).map_err(Error::store("read the list of a network's hosts"))
}

/// The network as this host sees it.
///
/// # Errors
/// [`Error::NoPlace`].
pub fn view(network: &Network) -> Result<View> {
    check_scope(network)?;
    let own = own(network)?;
    let own = own.ok_or_else(|| Error::NoPlace { name: network.name().to_owned() })?;
    let joined = list(network)?;
    let alone = || List { epoch: 1, hosts: vec![own.entry(network)] };
    let (is_joined, list) = (joined.is_some(), joined.unwrap_or_else(alone));
    let position = list.position(&own.key.public());
    Ok(View { own, list, position, joined: is_joined })
}

impl View {
    /// This host's part of the network's addresses.
    ///
    /// # Errors
    /// [`Error::NotListed`].
    pub fn slice(&self, network: &Network) -> Result<Subnet> {
        let unlisted = || Error::NotListed { name: network.name().to_owned() };
        let position = self.position.ok_or_else(unlisted)?;
        slices::slice(network.definition().subnet, position).ok_or_else(unlisted)
    }
}

/// This host's part of a network's addresses, and its address; `None` in a network of one host.
///
/// # Errors
/// [`Error::NoPlace`], [`Error::NotListed`].
pub(crate) fn part(network: &Network) -> Result<Option<(Subnet, Ipv4Addr)>> {
    if network.definition().scope != Scope::Cluster {
        return Ok(None);
    }
    let view = view(network)?;
    Ok(Some((view.slice(network)?, view.own.place.address)))
}

/// Checks an address that a container wishes, as far as is known where this host's part is.
///
/// # Errors
/// [`Error::BadAddress`].
pub fn check_address(network: &Network, address: Ipv4Addr) -> Result<()> {
    ipam::check_address(network.definition(), address)?;
    match part(network) {
        Ok(Some((slice, _))) => in_slice(network, slice, address),
        _ => Ok(()),
    }
}

pub(crate) fn in_slice(network: &Network, slice: Subnet, address: Ipv4Addr) -> Result<()> {
    if slice.contains(address) {
        return Ok(());
    }
    let why = format!("this host's part of the subnet is {slice}");
    Err(Error::BadAddress { address, network: network.name().to_owned(), why })
}

/// Where the agents of other hosts reach this one.
pub(crate) fn listens(view: &View) -> SocketAddrV4 {
    listens_at(view.own.place)
}

pub(crate) fn listens_at(place: Place) -> SocketAddrV4 {
    SocketAddrV4::new(place.address, place.port)
}
