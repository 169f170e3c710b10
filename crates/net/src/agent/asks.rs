//! Questions of programs about other hosts ([`abi::network::ask`]), from the datagram that asks to
//! the one that answers.
//!
//! No thread waits for an answer: a question is kept under a number until another host has answered
//! it, or its time is over. One for which there is no link yet is sent when there is; so a
//! connection to a host whose agent has just begun does not fail. Another host's slowness delays
//! its own answers only.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use abi::network::ask::{Agent, Answer, QUESTION, Question};
use abi::network::{AGENT, Slot, Table, Use};
use ring::rand::{SecureRandom as _, SystemRandom};

use super::served::{Joined, Served};
use crate::locks;
use crate::peers::{Asked, Host, Message, Peers, PublicKey};
use crate::slices;
use crate::subnet::Subnet;

/// A question without a link is given up after so long.
const UNSENT: Duration = Duration::from_secs(1);
/// And every question. Programs wait a little longer ([`abi::network::ask::WAIT_MS`]).
const UNANSWERED: Duration = Duration::from_millis(1200);
/// Questions at once; more are not answered.
const MANY: usize = 4096;

/// The questions that are open.
pub(super) struct Asks {
    socket: UdpSocket,
    agent: Agent,
    next: AtomicU64,
    open: Mutex<HashMap<u64, Open>>,
}

/// Where an answer goes.
struct Client {
    place: SocketAddr,
    nonce: u64,
    /// How many hosts were asked and have not answered, and whether one was not reached.
    left: Mutex<(usize, bool)>,
}

/// A question to one host.
struct Open {
    client: Arc<Client>,
    network: u16,
    host: Host,
    /// The addresses of its containers.
    slice: Option<Subnet>,
    asked: Asked,
    since: Instant,
    sent: bool,
}

impl Asks {
    /// Binds the socket for questions, with new secrets.
    pub(super) fn bind(table: &Table<'_>) -> io::Result<Self> {
        let socket = UdpSocket::bind((table.real(AGENT, Use::Network), 0))?;
        let SocketAddr::V4(place) = socket.local_addr()? else {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        };
        let mut secrets = [0; 16];
        let filled = SystemRandom::new().fill(&mut secrets);
        filled.map_err(|_| io::Error::other("the kernel gives no random bytes"))?;
        let [asking, telling] = [&secrets[..8], &secrets[8..]]
            .map(|half| half.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)));
        let agent = Agent { place, asking, telling };
        Ok(Self { socket, agent, next: AtomicU64::new(1), open: Mutex::default() })
    }

    /// Where it answers, and how both sides know each other.
    pub(super) fn agent(&self) -> Agent {
        self.agent
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Open>> {
        locks::lock(&self.open)
    }

    /// Takes questions for as long as the process lives.
    pub(super) fn serve(&self, served: &Served) {
        let mut bytes = [0; QUESTION + 1];
        loop {
            let Ok((length, place)) = self.socket.recv_from(&mut bytes) else { continue };
            let Some((question, nonce)) = Question::read(&bytes[..length], self.agent.asking)
            else {
                continue;
            };
            let client = Client { place, nonce, left: Mutex::new((0, false)) };
            match question {
                Question::Reach { network, protocol, address, port, from } => {
                    let asked = Asked::Reach { protocol, address, port, from };
                    self.reach(served, client, network, (address, asked));
                }
                Question::Who { slot, protocol, peer, own } => {
                    self.who(served, client, slot, (protocol, peer, own));
                }
            }
        }
    }

    fn reach(
        &self,
        served: &Served,
        client: Client,
        network: u16,
        (address, asked): (Ipv4Addr, Asked),
    ) {
        let joined = served.joined(network);
        let host = joined.as_ref().and_then(|joined| {
            let view = joined.view();
            let host = view.list.owner(address)?;
            (host.key != view.own.key.public()).then(|| host.clone())
        });
        match joined.zip(host) {
            Some((joined, host)) => self.ask(client, vec![(joined, host, asked)]),
            None => self.answer(&client, Answer::Absent),
        }
    }

    /// Asks in each network that the container is in, with a host that has the address.
    fn who(
        &self,
        served: &Served,
        client: Client,
        slot: Slot,
        (protocol, peer, own): (abi::network::Protocol, SocketAddrV4, SocketAddrV4),
    ) {
        let Some(table) = served.table() else { return };
        let mut wanted = Vec::new();
        for membership in table.members().memberships(slot).filter(|one| one.cluster) {
            let Some(joined) = served.joined(membership.network) else { continue };
            let view = joined.view();
            // A socket that is bound to all addresses has sent from this one.
            let is_node = *own.ip() == view.own.place.address;
            let address = if is_node { *own.ip() } else { view.own.place.address };
            let to = SocketAddrV4::new(address, own.port());
            let asked = Asked::Who { protocol, port: peer.port(), to };
            let theirs = view.list.hosts.iter().filter(|host| {
                host.address == *peer.ip() && !host.revoked && host.key != view.own.key.public()
            });
            wanted.extend(theirs.map(|host| (Arc::clone(&joined), host.clone(), asked)));
        }
        if wanted.is_empty() {
            self.answer(&client, Answer::Absent);
        } else {
            self.ask(client, wanted);
        }
    }

    fn ask(&self, client: Client, wanted: Vec<(Arc<Joined>, Host, Asked)>) {
        locks::lock(&client.left).0 = wanted.len();
        let client = Arc::new(client);
        for (joined, host, asked) in wanted {
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            let position = joined.view().list.position(&host.key);
            let subnet = joined.network.definition().subnet;
            let slice = position.and_then(|position| slices::slice(subnet, position));
            let open = Open {
                client: Arc::clone(&client),
                network: joined.number,
                host,
                slice,
                asked,
                since: Instant::now(),
                sent: false,
            };
            let (key, mut all) = (open.host.key, self.open());
            let hopeful = |peers: &Peers| peers.is_hopeful(&key);
            if all.len() >= MANY || !joined.peers().as_ref().is_some_and(hopeful) {
                drop(all);
                self.close(&open, Answer::Unreachable);
                continue;
            }
            all.insert(id, open);
            drop(all);
            // The answer may come before this returns.
            if joined.send(&key, &Message::Ask { id, asked })
                && let Some(open) = self.open().get_mut(&id)
            {
                open.sent = true;
            }
        }
    }

    /// Sends what has waited for a link, and once more what may have been lost with another link
    /// that this one replaces.
    pub(super) fn link_is_up(&self, joined: &Joined, key: &PublicKey) {
        let mut waiting = Vec::new();
        for (id, open) in self.open().iter_mut() {
            if open.network == joined.number && open.host.key == *key {
                open.sent = true;
                waiting.push(Message::Ask { id: *id, asked: open.asked });
            }
        }
        for message in waiting {
            joined.send(key, &message);
        }
    }

    /// What was sent may not have arrived.
    pub(super) fn link_is_down(&self, network: u16, key: &PublicKey) {
        for open in self.open().values_mut() {
            if open.network == network && open.host.key == *key {
                open.sent = false;
            }
        }
    }

    /// Another host has answered.
    pub(super) fn told(&self, key: &PublicKey, id: u64, answer: Answer) {
        let mut all = self.open();
        if all.get(&id).is_none_or(|open| open.host.key != *key) {
            return;
        }
        let Some(open) = all.remove(&id) else { return };
        drop(all);
        let answer = open.checked(answer);
        self.close(&open, answer);
    }

    /// Gives up what has waited too long.
    pub(super) fn sweep(&self) {
        let mut all = self.open();
        let is_late = |open: &Open| {
            let limit = if open.sent { UNANSWERED } else { UNSENT };
            open.since.elapsed() > limit
        };
        let late: Vec<Open> =
            all.extract_if(|_, open| is_late(open)).map(|(_, open)| open).collect();
        drop(all);
        for open in late {
            self.close(&open, Answer::Unreachable);
        }
    }

    /// One host has answered, or does not. The first that has found something is told, and the last
    /// one that has not.
    fn close(&self, open: &Open, answer: Answer) {
        let mut left = locks::lock(&open.client.left);
        left.0 = left.0.saturating_sub(1);
        left.1 |= answer == Answer::Unreachable;
        let found = matches!(answer, Answer::Found(_) | Answer::Refused(_));
        if found || left.0 == 0 {
            let answer = if left.1 && !found { Answer::Unreachable } else { answer };
            self.answer(&open.client, answer);
        }
    }

    /// A second answer to one question is not read by anybody.
    fn answer(&self, client: &Client, answer: Answer) {
        let bytes = answer.write(self.agent.telling, client.nonce);
        let _ = self.socket.send_to(&bytes, client.place);
    }
}

/// What tells one agent from another, without its secrets.
pub(super) fn agent_id(agent: &Agent) -> u64 {
    let digest = ring::digest::digest(&ring::digest::SHA256, &agent.asking.to_le_bytes());
    digest.as_ref().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl Open {
    /// Another host answers for itself alone: real places are its own, virtual ones in its slice.
    fn checked(&self, answer: Answer) -> Answer {
        match (self.asked, answer) {
            (Asked::Reach { .. }, Answer::Found(place)) if *place.ip() == self.host.address => {
                answer
            }
            (Asked::Reach { .. }, Answer::Refused(_)) => Answer::Refused(self.host.address),
            (Asked::Who { .. }, Answer::Found(place)) if self.owns(*place.ip()) => answer,
            (_, Answer::Unreachable) => answer,
            _ => Answer::Absent,
        }
    }

    fn owns(&self, address: Ipv4Addr) -> bool {
        self.slice.is_some_and(|slice| slice.contains(address))
    }
}
