//! Networks of several hosts, as the agent of one host serves them.
//!
//! For each such network with a living member on this host the agent listens, keeps links to the
//! other hosts ([`Peers`]), tells them the members of this one, and writes down theirs
//! ([`Known`]) for names and `/etc/hosts`. Nobody tells it anything: ten times a second it
//! looks whether the files have changed in which joins and lists stand.
//!
//! A name is told to others when its container has started, not before. Members of a host that was
//! lost are kept for [`FORGET`], because a link that breaks is most often back at once.
//!
//! Locks, in this order: `joined`, `peers` of a network, `snapshot`, `others`, `holders`.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use store::Store;

use super::answers;
use super::asks::{self, Asks};
use super::served::{Joined, Served};
use super::uplink;
use crate::cluster;
use crate::definition::Scope;
use crate::error::Result;
use crate::locks::{self, lock};
use crate::members;
use crate::networks::{Network, Networks};
use crate::peers::message::Claim;
use crate::peers::{Handler, List, Message, Peers, PublicKey, Remote, message};
use crate::remote::{self, Known, Peer};
use crate::stamp::{Stamp, stamp};

/// How often files are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How often it is looked who lives, although no file has changed.
const CHECK: Duration = Duration::from_secs(5);
/// A network is served for so long after its last member.
const LINGER: Duration = Duration::from_secs(5);
/// The members of a host that is down are forgotten after so long.
const FORGET: Duration = Duration::from_secs(30);

/// What the links of a network tell.
struct Side {
    served: Arc<Served>,
    asks: Arc<Asks>,
    joined: Arc<Joined>,
}

impl Handler for Side {
    fn up(&self, key: &PublicKey) {
        lock(&self.joined.others).entry(*key).or_default().down = None;
        let peers = self.joined.peers();
        // Whoever changes it holds this while he sends it.
        let snapshot = lock(&self.joined.snapshot);
        for message in message::members(&snapshot) {
            if let Some(peers) = &*peers {
                peers.send(key, &message);
            }
        }
        drop((snapshot, peers));
        for address in self.served.switch.held(self.joined.network.id()) {
            self.joined.send(key, &Message::Auxiliary { address, claim: Claim::Old });
        }
        self.asks.link_is_up(&self.joined, key);
    }

    fn down(&self, key: &PublicKey) {
        lock(&self.joined.others).entry(*key).or_default().down = Some(Instant::now());
        lock(&self.joined.holders).elsewhere.retain(|_, holder| holder != key);
        self.asks.link_is_down(self.joined.number, key);
    }

    fn message(&self, key: &PublicKey, message: Message) {
        match message {
            Message::Members { part, last, members } => {
                self.joined.take(key, (part, last), members);
            }
            Message::Ask { id, asked } => {
                let answer = answers::answer(&self.served, &self.joined, key, asked);
                self.joined.send(key, &Message::Told { id, answer });
            }
            Message::Told { id, answer } => self.asks.told(key, id, answer),
            Message::Auxiliary { address, claim } => {
                uplink::claimed(&self.served.switch, &self.joined, key, (address, claim));
            }
            _ => {}
        }
    }

    fn frame(&self, key: &PublicKey, _to: Ipv4Addr, frame: &[u8]) {
        uplink::deliver(&self.served.switch, &self.joined, key, frame);
    }
}

/// The agent's part for networks of several hosts.
pub(super) struct Clusters {
    served: Arc<Served>,
    asks: Arc<Asks>,
    /// What tells this agent from one before.
    id: u64,
}

impl Clusters {
    /// With the socket for questions.
    pub(super) fn new(served: Served) -> std::io::Result<Self> {
        let table = served.table().ok_or(std::io::ErrorKind::InvalidData)?;
        let asks = Asks::bind(&table)?;
        let id = asks::agent_id(&asks.agent());
        let served = Arc::new(served);
        served.switch.set_uplink(Box::new(uplink::ToOthers(Arc::clone(&served))));
        Ok(Self { served, asks: Arc::new(asks), id })
    }

    /// Serves the networks for as long as the process lives, in threads of its own. Those that have
    /// members now are served when this returns.
    pub(super) fn serve(self) -> std::io::Result<Arc<Self>> {
        let clusters = Arc::new(self);
        let (asks, served) = (Arc::clone(&clusters.asks), Arc::clone(&clusters.served));
        super::server::thread(move || asks.serve(&served))?;
        let mut watch = Watch::new(&clusters.served.store);
        watch.look(&clusters);
        // Nobody asks before, because about a network that is not served yet the answer is no.
        if let Some(table) = clusters.served.table() {
            table.set_agent(clusters.asks.agent());
        }
        let watched = Arc::clone(&clusters);
        super::server::thread(move || {
            loop {
                std::thread::sleep(TICK);
                watch.look(&watched);
                watched.asks.sweep();
            }
        })?;
        Ok(clusters)
    }

    /// Forgets what is known of others: the agent ends.
    pub(super) fn end(&self) {
        for joined in self.served.all() {
            let _ = remote::set_known(&joined.network, &Known::default());
        }
    }
}

/// What the thread that looks at files has seen.
struct Watch {
    slots: PathBuf,
    seen: Stamp,
    checked: Option<Instant>,
    all: HashMap<String, Seen>,
    nodes: Vec<Ipv4Addr>,
}

/// A network that it has seen.
struct Seen {
    network: Network,
    joined: Option<Arc<Joined>>,
    number: u16,
    /// When somebody was last in it.
    used: Instant,
    /// Of the files with members, list and place.
    stamps: [Stamp; 3],
    checked: Option<Instant>,
    /// A member of it has not started yet.
    starting: bool,
    written: Option<Known>,
}

impl Watch {
    fn new(store: &Store) -> Self {
        Self {
            slots: members::slots_file(store),
            seen: None,
            checked: None,
            all: HashMap::new(),
            nodes: Vec::new(),
        }
    }

    fn look(&mut self, clusters: &Clusters) {
        let seen = stamp(&self.slots);
        let is_due = |checked: &Option<Instant>| checked.is_none_or(|at| at.elapsed() > CHECK);
        if seen != self.seen || is_due(&self.checked) {
            (self.seen, self.checked) = (seen, Some(Instant::now()));
            let _ = self.find(clusters);
        }
        for seen in self.all.values_mut() {
            if seen.joined.is_none() {
                seen.begin(clusters);
            }
            seen.look(clusters, is_due(&seen.checked));
        }
        let mut nodes: Vec<_> = self.all.values().flat_map(Seen::nodes).collect();
        nodes.sort_unstable();
        nodes.dedup();
        if nodes != self.nodes
            && let Some(table) = clusters.served.table()
        {
            table.set_nodes(&nodes);
            self.nodes = nodes;
        }
    }

    /// Finds the networks that are to be served.
    fn find(&mut self, clusters: &Clusters) -> Result<()> {
        let networks = Networks::of(&clusters.served.store).list()?;
        let several = networks.into_iter();
        let several = several.filter(|network| network.definition().scope == Scope::Cluster);
        let mut there = Vec::new();
        for network in several {
            let id = network.id().to_owned();
            let entries = members::list(&network)?;
            if entries.iter().any(|entry| clusters.served.alive.is_alive(&entry.id)) {
                let number = remote::number(&clusters.served.store, &network)?;
                let make = || Seen::new(network, number);
                self.all.entry(id.clone()).or_insert_with(make).used = Instant::now();
            }
            there.push(id);
        }
        self.all.retain(|id, seen| {
            let stays = there.contains(id) && seen.used.elapsed() < LINGER;
            if !stays {
                let _ = remote::set_known(&seen.network, &Known::default());
                clusters.served.put(seen.number, None);
            }
            stays
        });
        Ok(())
    }
}

impl Seen {
    fn new(network: Network, number: u16) -> Self {
        Self {
            network,
            joined: None,
            number,
            used: Instant::now(),
            stamps: [None; 3],
            checked: None,
            starting: true,
            written: None,
        }
    }

    fn nodes(&self) -> Vec<Ipv4Addr> {
        let Some(joined) = &self.joined else { return Vec::new() };
        let view = joined.view();
        let hosts = view.list.hosts.iter().filter(|host| !host.revoked);
        hosts.map(|host| host.address).chain([view.own.place.address]).collect()
    }

    fn stamps(&self) -> [Stamp; 3] {
        remote::files(&self.network).map(|path| stamp(&path))
    }

    /// Begins to serve it; on failure the reason is written down.
    fn begin(&mut self, clusters: &Clusters) {
        let stamps = self.stamps();
        let begun = self.begun(clusters);
        self.stamps = stamps;
        if let Err(why) = begun {
            self.write(clusters, Known { error: Some(why), ..Known::default() });
        }
    }

    fn begun(&mut self, clusters: &Clusters) -> std::result::Result<(), String> {
        let view = cluster::view(&self.network).map_err(|error| error.to_string())?;
        view.slice(&self.network).map_err(|error| error.to_string())?;
        let (place, key, list) = (cluster::listens(&view), view.own.key.clone(), view.list.clone());
        let joined = Arc::new(Joined {
            network: self.network.clone(),
            number: self.number,
            view: RwLock::new(Arc::new(view)),
            peers: RwLock::new(None),
            snapshot: Mutex::default(),
            others: Mutex::default(),
            holders: Mutex::default(),
        });
        let (served, asks) = (Arc::clone(&clusters.served), Arc::clone(&clusters.asks));
        let side = Side { served, asks, joined: Arc::clone(&joined) };
        // A link that is up at once waits for this.
        let mut peers = locks::write(&joined.peers);
        let started = Peers::start(self.network.name(), &key, place, list, Arc::new(side));
        *peers = Some(started.map_err(|error| format!("cannot listen at {place}: {error}"))?);
        drop(peers);
        clusters.served.put(self.number, Some(Arc::clone(&joined)));
        self.joined = Some(joined);
        // Nobody was told yet.
        self.starting = true;
        Ok(())
    }

    fn look(&mut self, clusters: &Clusters, is_due: bool) {
        let Some(joined) = self.joined.clone() else { return };
        let stamps = self.stamps();
        let [members, hosts, place] = stamps;
        let [old_members, old_hosts, old_place] = std::mem::replace(&mut self.stamps, stamps);
        if place != old_place {
            // Another address or port: anew.
            clusters.served.put(self.number, None);
            self.joined = None;
            return;
        }
        if hosts != old_hosts
            && let Ok(view) = cluster::view(&self.network)
        {
            let list: List = view.list.clone();
            lock(&joined.others).retain(|key, _| list.position(key).is_some());
            *locks::write(&joined.view) = Arc::new(view);
            if let Some(peers) = &*joined.peers() {
                peers.set_list(list);
            }
            let view = joined.view();
            let is_there = |key: &PublicKey| view.list.position(key).is_some();
            lock(&joined.holders).elsewhere.retain(|_, key| is_there(key));
        }
        if members != old_members || self.starting || is_due {
            self.checked = Some(Instant::now());
            self.tell(clusters, &joined);
        }
        self.write(clusters, known(&joined));
    }

    /// Tells the other hosts who lives here, if that has changed.
    fn tell(&mut self, clusters: &Clusters, joined: &Joined) {
        let Ok(entries) = members::list(&self.network) else { return };
        let (mut living, mut starting) = (Vec::new(), false);
        for entry in entries {
            if clusters.served.containers.has_started(&entry.id) {
                let members::Entry { id, name, aliases, address, kind, .. } = entry;
                living.push(Remote { id, name, aliases, address, kind });
            } else {
                starting |= clusters.served.containers.is_alive(&entry.id);
            }
        }
        self.starting = starting;
        let peers = joined.peers();
        let mut snapshot = lock(&joined.snapshot);
        if *snapshot == living {
            return;
        }
        *snapshot = living;
        if let Some(peers) = &*peers {
            for message in message::members(&snapshot) {
                peers.send_to_all(&message);
            }
        }
        drop((snapshot, peers));
        // One that began while other hosts' names came has read the names before, and had no file
        // when those that were there were told.
        clusters.served.containers.tell(&self.network);
    }

    /// Writes down what is known, if it has changed, and has the members here know the names.
    fn write(&mut self, clusters: &Clusters, known: Known) {
        let known = Known { agent: clusters.id, ..known };
        let is_same = self.written.as_ref().is_some_and(|before| *before == known);
        if is_same && known.error.is_none() {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let stamped = Known { written: now.as_millis() as u64, ..known.clone() };
        if remote::set_known(&self.network, &stamped).is_err() {
            return;
        }
        let names = |known: &Known| {
            known.peers.iter().flat_map(|peer| peer.members.clone()).collect::<Vec<_>>()
        };
        if self.written.as_ref().map(names).unwrap_or_default() != names(&known) {
            clusters.served.containers.tell(&self.network);
        }
        self.written = Some(known);
    }
}

fn known(joined: &Joined) -> Known {
    let states = joined.peers().as_ref().map(Peers::states).unwrap_or_default();
    let mut others = lock(&joined.others);
    others.retain(|_, its| its.down.is_none_or(|since| since.elapsed() < FORGET));
    let view = joined.view();
    let mut peers: Vec<Peer> = states
        .into_iter()
        .map(|state| Peer {
            key: state.key,
            up: state.up,
            since: state.since,
            why: state.why,
            members: others.get(&state.key).map(|its| its.members.clone()).unwrap_or_default(),
        })
        .collect();
    peers.sort_by_key(|peer| view.list.position(&peer.key));
    Known { epoch: view.list.epoch, peers, ..Known::default() }
}

#[cfg(test)]
#[path = "clusters_tests.rs"]
mod tests;
