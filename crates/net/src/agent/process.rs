//! One agent for each host and store: when there is one, and what it knows of the containers.
//!
//! It reads who is in which network for each question, so that it has nothing to be told, and an
//! agent that was killed leaves nothing but its lock, which the kernel takes back. The ports of its
//! switch ([`super::links`]) come from processes that keep them for the next agent.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use abi::network::{AGENT, DOMAIN, Family, NAME_SERVER, Place, Port, Protocol, Slot, Table, Use};
use rustix::fs::{Mode, OFlags};
use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::Store;
use sys::ofd::{OfdLock, try_ofd_lock};
use sys::shared::SharedWords;

use super::clusters::Clusters;
use super::containers::{Alive, Containers};
use super::links::Links;
use super::served::Served;
use super::server::{Answers, Client, Directory, Server};
use crate::definition::Definition;
use crate::dns::{Transport, Zone};
use crate::error::{Error, Result};
use crate::locks::lock;
use crate::members::{self, Entry};
use crate::networks::Networks;
use crate::stamp::{Stamp, stamp};
use crate::switch::Switch;
use crate::{remote, rows, table};

/// The agent stays for so long after the last container: the next one may come at once.
const LINGER: Duration = Duration::from_secs(5);

/// Whether an agent serves this host. It holds a lock on the table for as long as it lives.
///
/// # Errors
/// [`Error::Table`] if there is no table.
pub fn is_running(store: &Store) -> Result<bool> {
    let path = rows::path(store);
    let file = open(&path).map_err(|source| Error::Table { path: path.clone(), source })?;
    Ok(try_ofd_lock(&file, OfdLock::Exclusive).is_err())
}

fn open(path: &std::path::Path) -> std::io::Result<rustix::fd::OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Serves until no container of this host has a place in the table. Returns at once if another
/// agent does. `ready` is called when questions are answered.
///
/// # Errors
/// [`Error::Table`] if there is no table, or no socket can be made.
pub fn run(store: &Store, containers: Box<dyn Containers>, ready: impl FnOnce()) -> Result<()> {
    let path = rows::path(store);
    let failed = |source| Error::Table { path: path.clone(), source };
    let lock = open(&path).map_err(failed)?;
    if try_ofd_lock(&lock, OfdLock::Exclusive).is_err() {
        return Ok(());
    }
    // Connections to the outside are descriptors, and a user's limit is often 1024.
    let limit = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit });
    let words = SharedWords::map(&lock).map_err(|errno| failed(errno.into()))?;
    let (containers, words) = (Arc::<dyn Containers>::from(containers), Arc::new(words));
    let alive = Arc::new(Alive::new(&containers));
    let switch = Switch::start().map_err(failed)?;
    let clusters = Clusters::new(Served::new(store, &containers, &alive, &words, &switch));
    let clusters = clusters.map_err(failed)?;
    let (store, since, slots) = (store.clone(), Mutex::new(Instant::now()), Mutex::default());
    let known = Known { store, containers, words, alive, since, slots };
    let server = known.bind().map_err(failed)?;
    let clusters = clusters.serve().map_err(failed)?;
    let links = Links::listen(&known.store, &switch).map_err(failed)?;
    let answers = Answers::of(Arc::new(known));
    links.serve(&answers).map_err(failed)?;
    ready();
    let ended = server.serve(&answers).map_err(failed);
    clusters.end();
    ended
}

/// What the agent knows.
struct Known {
    store: Store,
    containers: Arc<dyn Containers>,
    words: Arc<SharedWords>,
    alive: Arc<Alive>,
    /// When somebody was last there.
    since: Mutex<Instant>,
    /// The containers that have a slot, and the stamp of the file that says so.
    slots: Mutex<(Stamp, Vec<String>)>,
}

impl Known {
    fn table(&self) -> Option<Table<'_>> {
        Table::open(self.words.words())
    }

    /// Binds the server, and notes its sockets.
    fn bind(&self) -> std::io::Result<Server> {
        let table = self.table().ok_or(std::io::ErrorKind::InvalidData)?;
        let real = table.real(AGENT, Use::Loopback);
        // Clients keep sockets that are connected to the agent before.
        let mut before = table.ports().find(AGENT, Protocol::Udp, DOMAIN);
        let again = before.find_map(|port| Server::at((real, port.real_port).into()).ok());
        let server = again.map_or_else(|| Server::bind(real), Ok)?;
        let real_port = server.udp().local_addr()?.port();
        let (tcp, udp) =
            (sockopt::socket_cookie(server.tcp())?, sockopt::socket_cookie(server.udp())?);
        for (protocol, cookie) in [(Protocol::Tcp, tcp), (Protocol::Udp, udp)] {
            let port = Port {
                protocol,
                family: Family::V4,
                address: NAME_SERVER,
                port: DOMAIN,
                real,
                real_port,
                cookie,
                group: false,
            };
            let ports = table.ports();
            let place = Place { at: Some(Use::Loopback), port: real_port };
            ports.set_virtual_port(AGENT, protocol, place, DOMAIN);
            // The sockets of an agent before.
            if !ports.insert(AGENT, &port, |_| true) {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
        }
        Ok(server)
    }

    /// The container that has a real address. For a socket of datagrams that is bound to all of the
    /// host's, and at the host's own address in a network of scope `cluster`: the one that has
    /// noted its port.
    fn container(&self, client: SocketAddr, transport: Transport) -> Option<(Slot, u64)> {
        let (table, IpAddr::V4(address)) = (self.table()?, client.ip()) else { return None };
        let slot = if address == Ipv4Addr::LOCALHOST && transport == Transport::Udp {
            table.ports().owner_of_wild(Protocol::Udp, client.port())?
        } else {
            let at_node = || {
                let protocol = match transport {
                    Transport::Udp => Protocol::Udp,
                    Transport::Tcp => Protocol::Tcp,
                };
                table.owner_at_node(protocol, client.port()).filter(|_| table.is_node(address))
            };
            table.owner(address).map(|owner| owner.0).or_else(at_node)?
        };
        Some((slot, table.members().container(slot)?))
    }

    /// The networks of a container, each with its living members, and the container's id.
    fn networks(&self, client: &Client, transport: Transport) -> Option<(String, Vec<Joined>)> {
        let place = match client {
            Client::At(address) => Some(self.container(*address, transport)?),
            Client::Container(_) => None,
        };
        let is_it = |entry: &Entry| match (client, place) {
            (Client::Container(id), _) => *entry.id == **id,
            (_, Some((slot, key))) => {
                entry.slot == u32::from(slot.number()) && table::key(&entry.id) == key
            }
            (_, None) => false,
        };
        let (mut id, mut found) = (None, Vec::new());
        for network in Networks::of(&self.store).list().ok()? {
            let Ok(mut entries) = members::list(&network) else { continue };
            let Some(own) = entries.iter().find(|entry| is_it(entry)) else { continue };
            id = Some(own.id.clone());
            entries.retain(|entry| is_it(entry) || self.alive.is_alive(&entry.id));
            entries.extend(remote::remote(&network).unwrap_or_default());
            found.push((network.definition().clone(), entries));
        }
        Some((id?, found))
    }
}

/// A network and its members.
type Joined = (Definition, Vec<Entry>);

impl Directory for Known {
    fn zone(&self, client: &Client, transport: Transport) -> Option<Zone> {
        let (_, networks) = self.networks(client, transport)?;
        let named = networks.iter().map(|(network, all)| (network, all.as_slice()));
        Some(Zone::of(&named.collect::<Vec<_>>()))
    }

    fn servers(&self, client: &Client, transport: Transport) -> Vec<SocketAddr> {
        let Some((id, networks)) = self.networks(client, transport) else { return Vec::new() };
        let is_internal = self
            .table()
            .zip(networks.first().and_then(|(_, entries)| {
                let own = entries.iter().find(|entry| entry.id == id)?;
                Slot::new(u16::try_from(own.slot).ok()?)
            }))
            .is_some_and(|(table, slot)| table.members().is_internal(slot));
        if is_internal {
            // No way leads out.
            return Vec::new();
        }
        self.containers.servers(&id).into_iter().map(|server| (server, DOMAIN).into()).collect()
    }

    fn is_needed(&self) -> bool {
        let (mut since, mut slots) = (lock(&self.since), lock(&self.slots));
        let seen = stamp(&members::slots_file(&self.store));
        if seen.is_none() || seen != slots.0 {
            *slots = match members::with_slots(&self.store) {
                Ok(ids) => (seen, ids),
                Err(_) => Default::default(),
            };
        }
        if slots.1.iter().any(|id| self.alive.is_alive(id)) {
            *since = Instant::now();
        }
        since.elapsed() < LINGER
    }
}
