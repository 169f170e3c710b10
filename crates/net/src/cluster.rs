//! What a network of several hosts keeps on disk: this host's address, port and key, the list of
//! hosts that was joined, and what the agent knows of the others.
//!
//! ```text
//! networks/<name>/place-<host>.json    this host's Place
//! networks/<name>/key-<host>           its private key, for its user only
//! networks/<name>/hosts.json           the list that was joined last
//! networks/<name>/remote-<host>.json   what the agent of this host knows: a hint
//! ```
//!
//! Hosts that share a store share the list; each has a place and a key of its own. A host whose
//! network has no list yet is alone in it, at place 0 of the list to come.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use store::Store;

use crate::definition::Scope;
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::members::{self, Entry, host};
use crate::networks::{IsAlive, Network};
use crate::peers::{Host, Key, List, PublicKey, Remote, Wrong};
use crate::subnet::Subnet;
use crate::{hosts, ipam, slices};

const LIST: &str = "hosts.json";
/// The slot of a container of another host.
const NO_SLOT: u32 = u32::MAX;

/// Where this host's agent listens, and where its containers are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// An address of this host.
    pub address: Ipv4Addr,
    /// The agent's port.
    pub port: u16,
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

fn place_file() -> String {
    format!("place-{}.json", host())
}

fn remote_file() -> String {
    format!("remote-{}.json", host())
}

fn key_error(network: &Network) -> impl FnOnce(std::io::Error) -> Error + use<> {
    let path = network.dir().join(&format!("key-{}", host()));
    move |source| Error::Key { path, source }
}

/// The name of this host in lists.
fn own_name() -> String {
    let name = host();
    if hosts::is_name(&name) { name } else { "host".to_owned() }
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
    let written = network.dir().write(&place_file(), &place);
    written.map_err(Error::store("write this host's place in a network"))
}

/// This host's place and key; `None` if it has none, because the network was made by another host
/// that shares the store.
pub fn own(network: &Network) -> Result<Option<Own>> {
    let place = network.dir().read(&place_file());
    let place: Option<Place> =
        place.map_err(Error::store("read this host's place in a network"))?;
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
    Ok(own.entry(network.definition().subnet))
}

impl Own {
    fn entry(&self, subnet: Subnet) -> Host {
        let Place { address, port } = self.place;
        Host { name: own_name(), address, port, key: self.key.public(), subnet, revoked: false }
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
    let alone = || List { epoch: 1, hosts: vec![own.entry(network.definition().subnet)] };
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

/// What came of joining a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    /// This host is in it.
    pub listed: bool,
}

/// Joins a list, which [`List::check`] has accepted: it takes the place of the one before. If this
/// host is in it, it takes its address and port from there.
///
/// # Errors
/// [`Error::List`] where it does not follow the one before; [`Error::Moves`] if this host's
/// containers would get other addresses while some live.
pub fn join(network: &Network, list: &List, is_alive: &IsAlive<'_>) -> Result<Joined> {
    let before = view(network)?;
    let _lock = network.dir().lock().map_err(Error::store("lock a network"))?;
    if before.joined {
        list.check_after(&before.list).map_err(|wrong| Error::List { wrong: Box::new(wrong) })?;
    }
    let subnet = network.definition().subnet;
    if let Some(first) = list.hosts.first().filter(|first| first.subnet != subnet) {
        let why = format!("subnet {} differs from {subnet} of this host's network", first.subnet);
        let hint = format!(
            "remove it here and join again (coracle network rm {}), or choose another name",
            network.name()
        );
        return Err(Error::List { wrong: Box::new(Wrong { at: Some(0), why, hint }) });
    }
    let key = before.own.key.public();
    let position = list.position(&key);
    let live = || -> Result<Vec<String>> {
        let entries = members::list(network)?.into_iter();
        Ok(entries.filter(|entry| is_alive(&entry.id)).map(|entry| entry.name).collect())
    };
    let listed = position.map(|at| &list.hosts[at]);
    let place = listed.map(|host| Place { address: host.address, port: host.port });
    let moves = position != before.position
        || place.is_some_and(|place| place.address != before.own.place.address);
    if moves && before.position.is_some() {
        let live = live()?;
        if !live.is_empty() {
            let (name, members) = (network.name().to_owned(), live);
            return Err(Error::Moves { name, members });
        }
    }
    if let Some(place) = place {
        let written = network.dir().write(&place_file(), &place);
        written.map_err(Error::store("write this host's place in a network"))?;
    }
    network.dir().write(LIST, list).map_err(Error::store("write the list of a network's hosts"))?;
    Ok(Joined { listed: position.is_some() })
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
    [members::path(network), dir.join(LIST), dir.join(&place_file())]
}

/// The containers of other hosts in a network, as far as they are known.
pub fn remote(network: &Network) -> Result<Vec<Entry>> {
    if network.definition().scope != Scope::Cluster {
        return Ok(Vec::new());
    }
    let members = known(network)?.into_iter().flat_map(|known| known.peers);
    let members = members.flat_map(|peer| peer.members);
    Ok(members
        .map(|Remote { id, name, aliases, address }| Entry {
            id,
            name,
            aliases,
            address,
            kind: Kind::default(),
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

/// Where the agents of other hosts reach this one.
pub(crate) fn listens(view: &View) -> SocketAddrV4 {
    SocketAddrV4::new(view.own.place.address, view.own.place.port)
}

/// The number of a network in this host's table.
pub(crate) fn number(store: &Store, network: &Network) -> Result<u16> {
    members::change_slots(store, &host(), |slots| slots.number(network.id()))
}
