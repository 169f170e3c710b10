//! All links of one host in a network.
//!
//! There is one link for each pair of hosts. The side with the smaller key dials; the other one
//! dials too if no link is there for a while, so that one way is enough, and once when it begins,
//! because the usual one may be in a pause between two tries. A thread for each host that is listed
//! keeps dialling ([`FIRST`] to [`LAST`] between two tries); a connection that comes in has a
//! thread of its own, which ends with it. If there are two links of a pair, the usual one stays.
//!
//! Locks: `peers` is taken before a link's queue, and no handler is called while it is held.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};

use super::key::{Key, PublicKey};
use super::link::{Channel, GREETING, Link};
use super::list::{Host, List};
use super::message::{Message, VERSION};
use super::tls::{self, Tls};
use crate::locks;

/// Between two tries to reach a host.
const FIRST: Duration = Duration::from_millis(50);
const LAST: Duration = Duration::from_secs(1);
/// The side with the larger key dials if there was no link for so long.
const PATIENCE: Duration = Duration::from_millis(1500);
/// A link that was heard in this time is not given up for another one.
const FRESH: Duration = Duration::from_secs(2);
/// A link may be expected for so long after it could have been made.
const HOPE: Duration = Duration::from_secs(5);
/// Connections at once that have not proven who they are.
const UNKNOWN: usize = 16;
/// How many of them may come from addresses of no host of the list.
const STRANGERS: usize = 4;
/// Stack of a thread in bytes.
const STACK: usize = 128 << 10;
/// See listen(2).
const BACKLOG: i32 = 64;

/// What is told of links. The methods are called by the links' threads, and return soon.
pub trait Handler: Send + Sync {
    /// The link to a host is up.
    fn up(&self, key: &PublicKey);
    /// It is down.
    fn down(&self, key: &PublicKey);
    /// The host has said something: members, a question, an answer, or about an auxiliary address.
    fn message(&self, key: &PublicKey, message: Message);
    /// A frame for one of this host's members has come.
    fn frame(&self, key: &PublicKey, to: Ipv4Addr, frame: &[u8]) {
        let _ = (key, to, frame);
    }
}

/// A host as its link shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Its key.
    pub key: PublicKey,
    /// The link is up.
    pub up: bool,
    /// Since when that is so, in seconds since 1970.
    pub since: u64,
    /// Why it is down.
    pub why: String,
}

/// The links of this host in one network. They end when this is dropped.
pub struct Peers(Arc<Mesh>);

struct Mesh {
    network: String,
    own: PublicKey,
    /// Where this host listens.
    place: SocketAddrV4,
    tls: Tls,
    keys: tls::Keys,
    list: RwLock<Arc<List>>,
    peers: Mutex<HashMap<PublicKey, Peer>>,
    changed: Condvar,
    handler: Arc<dyn Handler>,
    unknown: AtomicUsize,
    turns: AtomicU64,
    stops: AtomicBool,
    wake: OwnedFd,
}

struct Peer {
    host: Host,
    link: Option<Arc<Link>>,
    /// Since when it is as it is.
    since: u64,
    changed: Instant,
    why: String,
    /// Which thread dials.
    turn: u64,
}

impl Peers {
    /// Listens for the other hosts of a list, and dials them.
    ///
    /// # Errors
    /// Those of the socket: the address is not this host's, or the port is taken.
    pub fn start(
        network: &str,
        key: &Key,
        place: SocketAddrV4,
        list: List,
        handler: Arc<dyn Handler>,
    ) -> io::Result<Self> {
        let listener = listen(place)?;
        let keys = tls::Keys::default();
        let tls = Tls::new(key, Arc::clone(&keys)).map_err(io::Error::other)?;
        let mesh = Arc::new(Mesh {
            network: network.to_owned(),
            own: key.public(),
            place,
            tls,
            keys,
            list: RwLock::new(Arc::new(List { epoch: list.epoch, hosts: Vec::new() })),
            peers: Mutex::default(),
            changed: Condvar::new(),
            handler,
            unknown: AtomicUsize::new(0),
            turns: AtomicU64::new(0),
            stops: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let peers = Self(mesh);
        let mesh = Arc::clone(&peers.0);
        thread(move || mesh.accept(&listener))?;
        peers.set_list(list);
        Ok(peers)
    }

    /// Takes another list: links to hosts that are not in it any more are closed at once.
    pub fn set_list(&self, list: List) {
        self.0.set_list(list);
    }

    /// Sends a message to a host. Returns false if there is no link.
    pub fn send(&self, key: &PublicKey, message: &Message) -> bool {
        self.0.link(key).is_some_and(|link| link.send(message.bytes()))
    }

    /// Sends a message to all hosts to which there is a link.
    pub fn send_to_all(&self, message: &Message) {
        let bytes = message.bytes();
        for link in self.0.peers().values().filter_map(|peer| peer.link.as_ref()) {
            link.send(bytes.clone());
        }
    }

    /// Sends a frame to the host whose slice has an address. Returns false if it was dropped,
    /// because there is no link, or its queue is full.
    pub fn send_frame(&self, to: Ipv4Addr, frame: &[u8]) -> bool {
        let list = self.0.list();
        list.owner(to).is_some_and(|host| self.send_frame_to(&host.key, to, frame))
    }

    /// The same to a host whose member has this auxiliary address.
    pub fn send_frame_to(&self, key: &PublicKey, to: Ipv4Addr, frame: &[u8]) -> bool {
        let link = self.0.link(key).filter(|_| frame.len() <= super::message::FRAME);
        link.is_some_and(|link| link.send_frame(to, frame))
    }

    /// Whether there is a link, or one may be expected in a moment: it is being made.
    pub fn is_hopeful(&self, key: &PublicKey) -> bool {
        let peers = self.0.peers();
        peers.get(key).is_some_and(|peer| peer.link.is_some() || peer.changed.elapsed() < HOPE)
    }

    /// All other hosts.
    pub fn states(&self) -> Vec<State> {
        let peers = self.0.peers();
        let state = |(key, peer): (&PublicKey, &Peer)| State {
            key: *key,
            up: peer.link.is_some(),
            since: peer.since,
            why: peer.why.clone(),
        };
        peers.iter().map(state).collect()
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.0.stops.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.0.wake, &1_u64.to_ne_bytes());
        for peer in self.0.peers().values() {
            if let Some(link) = &peer.link {
                link.close("its agent has ended, because no container of it needs the network");
            }
        }
        self.0.changed.notify_all();
    }
}

impl Mesh {
    fn peers(&self) -> MutexGuard<'_, HashMap<PublicKey, Peer>> {
        locks::lock(&self.peers)
    }

    fn list(&self) -> Arc<List> {
        Arc::clone(&locks::read(&self.list))
    }

    fn link(&self, key: &PublicKey) -> Option<Arc<Link>> {
        self.peers().get(key)?.link.clone()
    }

    fn stops(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }

    fn set_list(self: &Arc<Self>, list: List) {
        let is_in = list.position(&self.own).is_some();
        let wanted: HashMap<PublicKey, Host> = list
            .hosts
            .iter()
            .filter(|host| is_in && !host.revoked && host.key != self.own)
            .map(|host| (host.key, host.clone()))
            .collect();
        let mut peers = self.peers();
        *locks::write(&self.keys) = wanted.keys().copied().collect::<HashSet<_>>();
        *locks::write(&self.list) = Arc::new(list);
        let mut downs = Vec::new();
        peers.retain(|key, peer| {
            let stays = wanted.get(key).is_some_and(|host| host.place() == peer.host.place());
            if let (false, Some(link)) = (stays, &peer.link) {
                link.close("it is not in the list of this host any more");
                downs.push(*key);
            }
            stays
        });
        for (key, host) in wanted {
            if peers.contains_key(&key) {
                continue;
            }
            let turn = self.turns.fetch_add(1, Ordering::Relaxed);
            let peer = Peer {
                host: host.clone(),
                link: None,
                since: sys::machine::now(),
                changed: Instant::now(),
                why: "it was not reached yet".into(),
                turn,
            };
            peers.insert(key, peer);
            let mesh = Arc::clone(self);
            let _ = thread(move || mesh.keep(&host, turn));
        }
        drop(peers);
        self.changed.notify_all();
        for key in downs {
            self.handler.down(&key);
        }
    }

    /// Takes connections until the end.
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        while !self.stops() {
            let mut all =
                [PollFd::new(listener, PollFlags::IN), PollFd::new(&self.wake, PollFlags::IN)];
            let _ = poll(&mut all, None);
            let Ok((socket, from)) = listener.accept() else {
                // None is there any more, or there are too many descriptors.
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            let is_listed = self.list().hosts.iter().any(|host| host.address == from.ip());
            let limit = if is_listed { UNKNOWN } else { STRANGERS };
            let more = |count| (count < limit).then_some(count + 1);
            let (get, set) = (Ordering::Acquire, Ordering::AcqRel);
            if self.unknown.fetch_update(set, get, more).is_err() {
                continue;
            }
            let place = Unknown(Arc::clone(self));
            let mesh = Arc::clone(self);
            let _ = thread(move || mesh.accepted(socket, place));
        }
    }

    fn accepted(self: &Arc<Self>, socket: TcpStream, place: Unknown) {
        let Ok(tls) = self.tls.accepted() else { return };
        let Ok(channel) = Channel::new(socket, tls) else { return };
        // Who is not in the list is told nothing.
        let _ = self.run(channel, None, Some(place));
    }

    /// Dials a host whenever there is no link to it, as long as it is listed.
    fn keep(self: &Arc<Self>, host: &Host, turn: u64) {
        let is_usual = self.own < host.key;
        let later = if is_usual { Duration::ZERO } else { PATIENCE };
        let mut patience = later.min(FIRST);
        let mut pause = FIRST;
        loop {
            let mut peers = self.peers();
            loop {
                let is_its = |peer: &&Peer| peer.turn == turn;
                let Some(peer) = peers.get(&host.key).filter(is_its) else { return };
                if self.stops() {
                    return;
                }
                let since = peer.changed.elapsed();
                let wait = if peer.link.is_some() {
                    patience = later;
                    LAST * 60
                } else if since < patience {
                    patience.saturating_sub(since)
                } else {
                    patience = later;
                    break;
                };
                let waited = self.changed.wait_timeout(peers, wait);
                peers = waited.unwrap_or_else(PoisonError::into_inner).0;
                pause = FIRST;
            }
            drop(peers);
            let failed = self.dial(host).err();
            if let Some(why) = failed {
                self.note(host, turn, why);
            } else {
                pause = FIRST;
            }
            let peers = self.peers();
            // A link that comes in meanwhile ends the pause.
            let is_alone = |peers: &mut HashMap<PublicKey, Peer>| {
                !self.stops()
                    && peers
                        .get(&host.key)
                        .is_some_and(|peer| peer.turn == turn && peer.link.is_none())
            };
            drop(self.changed.wait_timeout_while(peers, pause, is_alone));
            pause = (pause * 2).min(LAST);
        }
    }

    /// Notes why a host is not reached.
    fn note(&self, host: &Host, turn: u64, why: String) {
        if let Some(peer) = self.peers().get_mut(&host.key).filter(|peer| peer.turn == turn)
            && peer.link.is_none()
        {
            peer.why = why;
        }
    }

    /// Makes a link and talks until it ends.
    fn dial(self: &Arc<Self>, host: &Host) -> Result<(), String> {
        let socket = dialled(*self.place.ip(), host.place());
        let socket = socket.map_err(|error| tls::explain(&error))?;
        let tls = self.tls.dialled(host.key, host.address).map_err(|error| error.to_string())?;
        let channel = Channel::new(socket, tls).map_err(|error| error.to_string())?;
        self.run(channel, Some(host.key), None)
    }

    /// Greets and talks. Fails with the reason if there was no link.
    fn run(
        self: &Arc<Self>,
        mut channel: Channel,
        dialled: Option<PublicKey>,
        unknown: Option<Unknown>,
    ) -> Result<(), String> {
        let epoch = self.list().epoch;
        let hello = Message::Hello { version: VERSION, network: self.network.clone(), epoch };
        let greeted = channel.greet(&hello);
        let (key, told) = greeted.map_err(|error| channel.ended(&error))?;
        let refused = match told {
            Message::Hello { version, .. } if version != VERSION => {
                Some(format!("it speaks version {version} of the protocol, and this one {VERSION}"))
            }
            Message::Hello { network, .. } if network != self.network => {
                Some("the network has another name there".to_owned())
            }
            Message::Hello { epoch: other, .. } if other != epoch => {
                Some(format!("its list has epoch {other}, and that of this host {epoch}"))
            }
            Message::Hello { .. } => None,
            Message::Bye(why) => Some(format!("it says: {why}")),
            _ => Some("it does not greet".to_owned()),
        };
        if let Some(why) = refused {
            channel.part(&why);
            if dialled.is_none() {
                self.note_of(&key, &why);
            }
            return Err(why);
        }
        let usual = dialled.is_some() == (self.own < key);
        let link = Link::new(key, usual).map_err(|error| error.to_string())?;
        let link = Arc::new(link);
        if let Err(why) = self.adopt(&link) {
            channel.part(why);
            return Err(why.to_owned());
        }
        drop(unknown);
        self.handler.up(&key);
        let why = link.talk(&mut channel, |message| match message {
            Message::Frame { to, frame } => self.handler.frame(&key, to, &frame),
            message => self.handler.message(&key, message),
        });
        self.end(&link, why);
        Ok(())
    }

    fn note_of(&self, key: &PublicKey, why: &str) {
        if let Some(peer) = self.peers().get_mut(key).filter(|peer| peer.link.is_none()) {
            why.clone_into(&mut peer.why);
        }
    }

    /// Makes a link the one to its host.
    fn adopt(&self, link: &Arc<Link>) -> Result<(), &'static str> {
        let mut peers = self.peers();
        if self.stops() {
            return Err("its agent ends");
        }
        let peer = peers.get_mut(&link.key).ok_or("it is not in the list of this host")?;
        if let Some(old) = &peer.link {
            if !link.usual && old.heard().elapsed() < FRESH {
                return Err("there is a link already");
            }
            old.close("there is another link");
        }
        peer.link = Some(Arc::clone(link));
        peer.since = sys::machine::now();
        peer.changed = Instant::now();
        peer.why.clear();
        drop(peers);
        self.changed.notify_all();
        Ok(())
    }

    /// A link has ended.
    fn end(&self, link: &Arc<Link>, why: String) {
        let mut peers = self.peers();
        let Some(peer) = peers.get_mut(&link.key) else { return };
        if !peer.link.as_ref().is_some_and(|own| Arc::ptr_eq(own, link)) {
            return;
        }
        peer.link = None;
        peer.since = sys::machine::now();
        peer.changed = Instant::now();
        peer.why = why;
        drop(peers);
        self.changed.notify_all();
        self.handler.down(&link.key);
    }
}

/// One of [`UNKNOWN`].
struct Unknown(Arc<Mesh>);

impl Drop for Unknown {
    fn drop(&mut self) {
        self.0.unknown.fetch_sub(1, Ordering::AcqRel);
    }
}

fn thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().stack_size(STACK).spawn(work).map(drop)
}

fn stream_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?)
}

/// Listens as an agent does.
pub(crate) fn listen(place: SocketAddrV4) -> io::Result<TcpListener> {
    let socket = stream_socket()?;
    // Connections of an agent before may still be in TIME_WAIT.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &place)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Connects from the address by which the other side knows this host.
fn dialled(from: Ipv4Addr, to: SocketAddrV4) -> io::Result<TcpStream> {
    let socket = stream_socket()?;
    let _ = sys::socket::set_bind_without_port(&socket, true);
    bind(&socket, &SocketAddrV4::new(from, 0))?;
    match connect(&socket, &to) {
        Ok(()) => {}
        Err(rustix::io::Errno::INPROGRESS) => {
            let mut one = [PollFd::new(&socket, PollFlags::OUT)];
            let timeout = Timespec::try_from(GREETING).map_err(|_| io::ErrorKind::InvalidInput)?;
            if poll(&mut one, Some(&timeout))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            sockopt::socket_error(&socket)??;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(socket.into())
}
