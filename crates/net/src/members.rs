//! The containers that are in a network, and the addresses that they have there.
//!
//! A container joins each of its networks before its program starts, and leaves when the program
//! has ended. Both happen under the network's lock. Each host writes a file of its own, because the
//! members of one host cannot reach those of another.
//!
//! A container also has a *slot*: its number in the table of this host's containers, from which an
//! engine derives the container's real address. It is the same in all of its networks, unique among
//! the store's containers of this host, and free again when the container has left the last network
//! or is dead.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use abi::network::Published;
use serde::{Deserialize, Serialize};
use store::Store;

use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::names::host;
use crate::networks::{IsAlive, Network, Networks};
use crate::prefix::Prefix;
use crate::subnet::Subnet;
use crate::{cluster, ipam, rows};

/// How many containers of a host may be in networks at once.
pub const SLOTS: u32 = abi::network::SLOTS as u32 - 1;

const PREFIX: &str = "members-";
const SUFFIX: &str = ".json";

/// A container that joins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    /// The container's id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Further names in this network.
    pub aliases: Vec<String>,
    /// The address that it wishes; `None` for a free one.
    pub address: Option<Ipv4Addr>,
    /// How it is connected; `None` for one that has joined already.
    pub kind: Option<Kind>,
}

/// A container that has joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The container's id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Further names in this network.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Its address there.
    pub address: Ipv4Addr,
    /// Its slot, less than [`SLOTS`].
    pub slot: u32,
    /// How it is connected.
    #[serde(default, skip_serializing_if = "Kind::is_default")]
    pub kind: Kind,
    /// When it joined, in seconds since 1970.
    #[serde(default)]
    pub since: u64,
}

/// A container's place in a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The network's name.
    pub network: String,
    /// The network's id.
    pub network_id: String,
    /// The network's addresses.
    pub subnet: Subnet,
    /// Its IPv6 addresses; `None` if the container has none there.
    pub prefix: Option<Prefix>,
    /// The address of the way out.
    pub gateway: Ipv4Addr,
    /// There is no way out.
    pub internal: bool,
    /// The network's auxiliary addresses.
    pub auxiliary: Vec<Ipv4Addr>,
    /// The container's address.
    pub address: Ipv4Addr,
    /// The container's slot on this host, less than [`SLOTS`].
    pub slot: u32,
    /// The host's address in a network of several hosts.
    pub node: Option<Ipv4Addr>,
    /// How the container is connected.
    pub kind: Kind,
}

impl Entry {
    /// Its IPv6 address in a network with these; `None` for a member that has no device, for which
    /// there are no IPv6 addresses.
    pub fn ipv6(&self, prefix: Option<Prefix>) -> Option<Ipv6Addr> {
        prefix.filter(|_| self.kind == Kind::Packets).map(|prefix| prefix.of(self.address))
    }
}

/// The members of one host.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct File {
    /// The address that was given last to a container that wished none.
    last: Option<Ipv4Addr>,
    members: Vec<Entry>,
}

/// The slots of one host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Slots {
    taken: Vec<Slot>,
    /// The one that was taken last. The next container gets a later one: the kernel keeps a
    /// connection for a minute after its end (`TIME_WAIT`), and a new one's ports are free.
    last: Option<u32>,
    /// The numbers that networks have in the table, by their ids.
    numbers: BTreeMap<String, u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Slot {
    #[serde(rename = "slot")]
    number: u32,
    /// The container's id.
    id: String,
    /// The ids of the networks in which it is.
    networks: BTreeSet<String>,
    /// The ids of containers that share its network. They keep the slot when it has ended.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    sharers: BTreeSet<String>,
}

/// Lets a container into a network of this host. If it is in it already, it keeps its address,
/// unless it wishes another one. Entries of dead containers are dropped. One that has joined
/// already stays when this host has left a network of several hosts.
///
/// # Errors
/// [`Error::NotFound`] if the network was removed; [`Error::Scope`] if it is one of a later
/// version; [`Error::BadAddress`] and [`Error::Taken`] for an address that is wished;
/// [`Error::Mixed`] where a member of another kind lives; [`Error::Full`]; [`Error::NoSlot`]; in a
/// network of several hosts [`Error::NoPlace`] and [`Error::NotListed`].
pub fn join(network: &Network, member: &Member, is_alive: &IsAlive<'_>) -> Result<Endpoint> {
    join_on(&host(), network, member, is_alive)
}

/// The address that a container has in a network of this host, or would get by [`join`] now.
/// Changes nothing.
///
/// # Errors
/// Those of [`join`].
pub fn preview(network: &Network, member: &Member, is_alive: &IsAlive<'_>) -> Result<Ipv4Addr> {
    network.definition().scope.check()?;
    let part = cluster::part(network)?;
    let mut file = read(network, &host())?;
    address_in(network, &mut file, (member, part), is_alive).map(|found| found.0)
}

/// Takes a container out of a network of this host. It is no error if it is not in it, or if the
/// network was removed.
pub fn leave(network: &Network, id: &str) -> Result<()> {
    leave_on(&host(), network, id)
}

/// Gives a container another name in a network, on whichever host of the store it has joined.
/// Whether it is in the network.
///
/// # Errors
/// Those of reading and writing the entries.
pub fn rename(network: &Network, id: &str, name: &str) -> Result<bool> {
    let _lock = network.dir().lock().map_err(Error::store("lock a network"))?;
    let mut is_member = false;
    for host in hosts(network)? {
        let mut file = read(network, &host)?;
        let mut is_changed = false;
        for entry in file.members.iter_mut().filter(|entry| entry.id == id) {
            is_member = true;
            is_changed |= entry.name != name;
            name.clone_into(&mut entry.name);
        }
        if is_changed {
            write(network, &host, &file)?;
        }
    }
    Ok(is_member)
}

/// Instead of a network's id, for a container that is in none, but has ports of its own.
const ALONE: &str = "";

/// Gives a container of this host a slot, without a network.
///
/// # Errors
/// [`Error::NoSlot`].
pub fn take_slot(store: &Store, id: &str, is_alive: &IsAlive<'_>) -> Result<u32> {
    change_slots(store, &host(), |slots| slots.take(id, ALONE, is_alive))?
}

/// Whether a container has such a slot.
pub fn has_slot(store: &Store, id: &str) -> Result<bool> {
    let is_its = |slot: &Slot| slot.id == id && slot.networks.contains(ALONE);
    change_slots(store, &host(), |slots| slots.taken.iter().any(is_its))
}

/// The ids of all containers of this host that have a slot, or share one.
pub(crate) fn with_slots(store: &Store) -> Result<Vec<String>> {
    let ids = |slot: &Slot| [&slot.id].into_iter().chain(&slot.sharers).cloned().collect();
    change_slots(store, &host(), |slots| slots.taken.iter().flat_map::<Vec<_>, _>(ids).collect())
}

/// Takes back a slot without a network, or the share in one.
pub fn leave_slot(store: &Store, id: &str) -> Result<()> {
    change_slots(store, &host(), |slots| slots.leave(id, ALONE))
}

/// Lets a container share the slot that another one has, or shares itself: its addresses, ports and
/// loopback. No further container gets the slot until the last one that shares it has ended. `None`
/// if the other one has none.
///
/// # Errors
/// Those of reading and writing the slots.
pub fn share_slot(store: &Store, other: &str, id: &str) -> Result<Option<u32>> {
    change_slots(store, &host(), |slots| slots.share(other, id))
}

/// The slot that a container shares, and the id of the container whose it is.
///
/// # Errors
/// Those of reading the slots.
pub fn shared_slot(store: &Store, id: &str) -> Result<Option<(u32, String)>> {
    let its = |slot: &Slot| slot.sharers.contains(id).then(|| (slot.number, slot.id.clone()));
    change_slots(store, &host(), |slots| slots.taken.iter().find_map(its))
}

/// Whether a living container shares the slot of this one.
///
/// # Errors
/// Those of reading the slots.
pub fn is_shared(store: &Store, id: &str, is_alive: &IsAlive<'_>) -> Result<bool> {
    let is = |slot: &Slot| slot.id == id && slot.sharers.iter().any(|one| is_alive(one));
    change_slots(store, &host(), |slots| slots.taken.iter().any(is))
}

/// How a container of this host is connected that has a slot; `None` for one that has none.
///
/// # Errors
/// Those of reading slots and entries.
pub fn kind(store: &Store, id: &str) -> Result<Option<Kind>> {
    for network in Networks::of(store).list()? {
        if let Some(entry) = list(&network)?.into_iter().find(|entry| entry.id == id) {
            return Ok(Some(entry.kind));
        }
    }
    // Without a network only the table knows it.
    Ok(has_slot(store, id)?.then_some(Kind::Names))
}

/// The entries of this host, in the order in which they have joined. A container among them may be
/// dead.
pub fn list(network: &Network) -> Result<Vec<Entry>> {
    Ok(read(network, &host())?.members)
}

/// The entries of all hosts that share the store.
pub fn on_all_hosts(network: &Network) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for host in hosts(network)? {
        entries.extend(read(network, &host)?.members);
    }
    Ok(entries)
}

/// The hosts that have written entries.
fn hosts(network: &Network) -> Result<Vec<String>> {
    let files = network.dir().files().map_err(Error::store("list the members of a network"))?;
    let host = |file: &String| Some(file.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.to_owned());
    Ok(files.iter().filter_map(host).collect())
}

/// The file with the entries of this host.
pub(crate) fn path(network: &Network) -> std::path::PathBuf {
    network.dir().join(&format!("{PREFIX}{}{SUFFIX}", host()))
}

fn read(network: &Network, host: &str) -> Result<File> {
    let file = network.dir().read(&format!("{PREFIX}{host}{SUFFIX}"));
    Ok(file.map_err(Error::store("read the members of a network"))?.unwrap_or_default())
}

fn write(network: &Network, host: &str, file: &File) -> Result<()> {
    let written = network.dir().write(&format!("{PREFIX}{host}{SUFFIX}"), file);
    written.map_err(Error::store("write the members of a network"))
}

fn join_on(
    host: &str,
    network: &Network,
    member: &Member,
    is_alive: &IsAlive<'_>,
) -> Result<Endpoint> {
    let definition = network.definition();
    definition.scope.check()?;
    let _lock = network.dir().lock().map_err(Error::store("lock a network"))?;
    still_there(network)?;
    let mut file = read(network, host)?;
    let part = match (cluster::part(network), member.kind) {
        (Err(Error::NotListed { name }), None) => {
            let entry = file.members.iter().find(|entry| entry.id == member.id);
            let place = cluster::own(network)?.map(|own| own.place.address);
            let kept = entry.map(|entry| endpoint(network, entry, place));
            return kept.ok_or(Error::NotListed { name });
        }
        (part, _) => part?,
    };
    let (address, kind) = address_in(network, &mut file, (member, part), is_alive)?;
    let store = network.dir().store();
    // The agent looks at the entries when the slots are written, so those come first.
    write_slots(store, host, true, |slots| {
        let entry = Entry {
            id: member.id.clone(),
            name: member.name.clone(),
            aliases: member.aliases.clone(),
            address,
            slot: slots.take(&member.id, &definition.id, is_alive)?,
            kind,
            since: sys::machine::now(),
        };
        let joined = endpoint(network, &entry, part.map(|(_, node)| node));
        file.members.push(entry);
        write(network, host, &file)?;
        Ok(joined)
    })?
}

/// The place of an entry. `node`: the host's address in a network of several.
fn endpoint(network: &Network, entry: &Entry, node: Option<Ipv4Addr>) -> Endpoint {
    let definition = network.definition();
    Endpoint {
        network: definition.name.clone(),
        network_id: definition.id.clone(),
        subnet: definition.subnet,
        prefix: definition.ipv6.filter(|_| entry.kind == Kind::Packets),
        gateway: definition.gateway,
        internal: definition.internal,
        auxiliary: definition.auxiliary.iter().map(|(_, address)| *address).collect(),
        address: entry.address,
        slot: entry.slot,
        node,
        kind: entry.kind,
    }
}

/// Drops the member itself and dead ones from a network's entries; returns the member's address and
/// kind.
/// `part`: that of this host in a network of several.
fn address_in(
    network: &Network,
    file: &mut File,
    (member, part): (&Member, Option<(Subnet, Ipv4Addr)>),
    is_alive: &IsAlive<'_>,
) -> Result<(Ipv4Addr, Kind)> {
    let definition = network.definition();
    if let Some(address) = member.address {
        ipam::check_address(definition, address)?;
    }
    let before = file.members.iter().find(|entry| entry.id == member.id).cloned();
    file.members.retain(|entry| entry.id != member.id && is_alive(&entry.id));
    let kind = member.kind.or(before.as_ref().map(|entry| entry.kind)).unwrap_or_default();
    if let Some(other) = file.members.iter().find(|entry| entry.kind != kind) {
        let (network, by) = (definition.name.clone(), other.name.clone());
        return Err(Error::Mixed { network, by, kind: other.kind });
    }
    let holder = |address: Ipv4Addr| file.members.iter().find(|entry| entry.address == address);
    // In another list this host may have had another part.
    let is_own = |address: &Ipv4Addr| part.is_none_or(|(slice, _)| slice.contains(*address));
    let Some(wished) = member.address.or(before.map(|entry| entry.address).filter(is_own)) else {
        let range = part.map(|(slice, _)| slice).or(definition.range);
        let within = crate::Definition { range, ..definition.clone() };
        let free = ipam::allocate(&within, |address| holder(address).is_some(), file.last)?;
        file.last = Some(free);
        return Ok((free, kind));
    };
    if let Some((slice, _)) = part {
        cluster::in_slice(network, slice, wished)?;
    }
    match holder(wished) {
        Some(by) => {
            let (network, by) = (definition.name.clone(), by.name.clone());
            Err(Error::Taken { address: wished, network, by })
        }
        None => Ok((wished, kind)),
    }
}

/// Fails if the network was removed, or another one has its name. Hold its lock.
fn still_there(network: &Network) -> Result<()> {
    let now = network.dir().info::<crate::Definition>().map_err(Error::store("read a network"))?;
    if now.is_some_and(|now| now.id == network.id()) {
        return Ok(());
    }
    Err(Error::NotFound { name: network.name().to_owned() })
}

fn leave_on(host: &str, network: &Network, id: &str) -> Result<()> {
    let _lock = network.dir().lock().map_err(Error::store("lock a network"))?;
    if still_there(network).is_ok() {
        let mut file = read(network, host)?;
        let count = file.members.len();
        file.members.retain(|entry| entry.id != id);
        if file.members.len() < count {
            write(network, host, &file)?;
        }
    }
    change_slots(network.dir().store(), host, |slots| slots.leave(id, network.id()))
}

/// Frees the slots that containers of this host have because of a network. Hold its lock.
pub(crate) fn forget_network(network: &Network) -> Result<()> {
    change_slots(network.dir().store(), &host(), |slots| slots.forget(network.id()))
}

fn slots_name(host: &str) -> String {
    format!("slots-{host}{SUFFIX}")
}

/// The file with the slots of this host. It is replaced when they change.
pub(crate) fn slots_file(store: &Store) -> PathBuf {
    store.networks().path(&slots_name(&host()))
}

/// Changes the slots of a host under their lock. The table forgets networks that have lost their
/// numbers.
pub(crate) fn change_slots<T>(
    store: &Store,
    host: &str,
    change: impl FnOnce(&mut Slots) -> T,
) -> Result<T> {
    write_slots(store, host, false, change)
}

/// The same; with `always` the file is also written where nothing has changed, so that the agent
/// looks.
fn write_slots<T>(
    store: &Store,
    host: &str,
    always: bool,
    change: impl FnOnce(&mut Slots) -> T,
) -> Result<T> {
    let (networks, name) = (store.networks(), slots_name(host));
    let _lock = networks.lock_file(&name).map_err(Error::store("lock the slots"))?;
    let read = networks.read(&name).map_err(Error::store("read the slots"))?;
    let before: Slots = read.unwrap_or_default();
    let mut slots = before.clone();
    let answer = change(&mut slots);
    let gone = before.numbers.iter().filter(|(id, _)| !slots.numbers.contains_key(*id));
    let gone: Vec<u16> = gone.map(|(_, number)| *number).collect();
    // Another host's table is in use there.
    if !gone.is_empty() && host == self::host() {
        rows::free(store, &gone)?;
    }
    let left = slots.left(&before);
    if !left.is_empty() && host == self::host() {
        rows::leave(store, &left)?;
    }
    if always || slots != before {
        networks.write(&name, &slots).map_err(Error::store("write the slots"))?;
    }
    Ok(answer)
}

impl Slots {
    /// The slot of a container that is in one more network.
    fn take(&mut self, id: &str, network: &str, is_alive: &IsAlive<'_>) -> Result<u32> {
        self.taken.retain_mut(|slot| {
            slot.sharers.retain(|one| is_alive(one));
            let lives = slot.id == id || is_alive(&slot.id);
            if !lives {
                slot.networks.clear();
            }
            lives || !slot.sharers.is_empty()
        });
        if let Some(slot) = self.taken.iter_mut().find(|slot| slot.id == id) {
            slot.networks.insert(network.to_owned());
            return Ok(slot.number);
        }
        let taken: BTreeSet<u32> = self.taken.iter().map(|slot| slot.number).collect();
        let first = self.last.map_or(0, |last| last + 1);
        let free =
            (0..SLOTS).map(|far| (first + far) % SLOTS).find(|number| !taken.contains(number));
        let number = free.ok_or(Error::NoSlot { limit: SLOTS })?;
        self.last = Some(number);
        let networks = [network.to_owned()].into();
        self.taken.push(Slot { number, id: id.to_owned(), networks, sharers: BTreeSet::new() });
        Ok(number)
    }

    /// A container shares the slot of another one from now on, and no other.
    fn share(&mut self, other: &str, id: &str) -> Option<u32> {
        self.leave(id, ALONE);
        let is_its = |slot: &&mut Slot| slot.id == other || slot.sharers.contains(other);
        let slot = self.taken.iter_mut().find(is_its)?;
        slot.sharers.insert(id.to_owned());
        Some(slot.number)
    }

    /// A container is in one network less.
    fn leave(&mut self, id: &str, network: &str) {
        for slot in &mut self.taken {
            if slot.id == id {
                slot.networks.remove(network);
            }
            if network == ALONE {
                slot.sharers.remove(id);
            }
        }
        self.drop_free();
    }

    /// Drops the slots that belong to no container.
    fn drop_free(&mut self) {
        self.taken.retain(|slot| !slot.networks.is_empty() || !slot.sharers.is_empty());
    }

    /// The slots that are still shared, with the numbers of networks in which they were before:
    /// their addresses there may be other containers' from now on.
    fn left(&self, before: &Self) -> Vec<(u32, u16)> {
        let mut left = Vec::new();
        for slot in self.taken.iter().filter(|slot| !slot.sharers.is_empty()) {
            let same = |one: &&Slot| (one.number, &one.id) == (slot.number, &slot.id);
            let networks = before.taken.iter().find(same).map(|one| &one.networks);
            let gone = networks.into_iter().flatten().filter(|one| !slot.networks.contains(*one));
            let numbers = gone.filter_map(|one| before.numbers.get(one));
            left.extend(numbers.map(|network| (slot.number, *network)));
        }
        left
    }

    /// The number of a network in the table: the lowest free one from 1 on.
    pub(crate) fn number(&mut self, network: &str) -> u16 {
        if let Some(number) = self.numbers.get(network) {
            return *number;
        }
        let is_free = |number: &u16| self.numbers.values().all(|taken| taken != number);
        // A host has fewer networks than there are numbers: each takes addresses.
        let number = (1..u16::MAX).find(is_free).unwrap_or(1);
        self.numbers.insert(network.to_owned(), number);
        number
    }

    /// Checks that no other container publishes the same ports of the host, whether or not a
    /// program has bound them yet.
    pub(crate) fn check_published(
        &self,
        members: &abi::network::members::Members<'_>,
        own: abi::network::Slot,
        wanted: &[Published],
    ) -> Result<()> {
        let others = self.taken.iter().filter(|slot| slot.number != u32::from(own.number()));
        for other in others {
            let slot = u16::try_from(other.number).ok().and_then(abi::network::Slot::new);
            let theirs = slot.into_iter().flat_map(|slot| members.published(slot));
            for theirs in theirs {
                if let Some(port) = wanted.iter().find_map(|one| one.meets(&theirs)) {
                    return Err(Error::PortTaken { port, by: other.id.clone() });
                }
            }
        }
        Ok(())
    }

    /// A network is gone.
    fn forget(&mut self, network: &str) {
        self.numbers.remove(network);
        for slot in &mut self.taken {
            slot.networks.remove(network);
        }
        self.drop_free();
    }
}

#[cfg(test)]
#[path = "members_tests.rs"]
mod tests;
