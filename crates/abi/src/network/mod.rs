//! The layout of the file in which the containers of one host keep their networks: addresses, and
//! the ports that programs have bound.
//!
//! A container without a network namespace has a *virtual* IPv4 address in each of its networks,
//! which programs see, and three *real* ones, which the kernel sees. The real ones lie in
//! 127.0.0.0/8, where every user may bind every address, so that each container has all ports for
//! itself and its own loopback. Programs' addresses are translated by this table
//! (`view::sockets::inet`).
//!
//! | part | contents | writers |
//! |---|---|---|
//! | header | the first real address | who makes the file |
//! | [`members`] | which container has which slot, and its addresses and published ports | holders of the lock of all networks |
//! | directory | slots by network and virtual address | likewise |
//! | [`ports`] | sockets: virtual port → real address, real port, cookie | all processes |
//!
//! The real addresses follow from a container's slot. So a peer's address tells whose socket it is
//! without a look into the table, and also after its container has ended.
//!
//! In networks of scope `cluster` the address that the kernel sees of a container's networks is
//! that of its host ([`members::Members::node`]), which other hosts reach, and the port tells whose
//! socket it is. What another host knows is asked of the agent ([`ask`]) and kept for a moment
//! ([`Table::recall`]).
//!
//! Everything consists of words that are read and written atomically, as in [`crate::shared`],
//! because a process may end at any instruction. The file is sparse and never leaves its machine.

pub mod ask;
pub mod diag;
pub mod members;
pub mod ports;
#[cfg(test)]
mod tests;

use core::net::{Ipv4Addr, SocketAddrV4};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
pub use members::{Membership, Published, Slot};
pub use ports::{Family, Place, Port, Protocol, Way};

/// First word of the file. The last digits count versions of the layout.
const MAGIC: u64 = u64::from_le_bytes(*b"CorNet04");
const WORD: usize = 8;
const PAGE_WORDS: usize = 4096 / WORD;

/// Number of slots: one for each container, and [`AGENT`].
pub const SLOTS: usize = 4096;
/// The slot of the process that answers questions for names.
pub const AGENT: Slot = members::LAST;
/// The address at which containers ask it, as Docker's, at port [`DOMAIN`].
pub const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 11);
/// The port for questions (RFC 1035, 4.2).
pub const DOMAIN: u16 = 53;
/// Real addresses of each container.
const REAL: u32 = 4;
/// Number of real addresses of a table: a block of this size, aligned to it.
pub const BLOCK: u32 = SLOTS as u32 * REAL;

mod header {
    pub(super) const MAGIC: usize = 0;
    /// The first real address of the table.
    pub(super) const BASE: usize = 1;
    /// Counts the sockets that were noted.
    pub(super) const CLOCK: usize = 5;
    /// Addresses of the host's own that answer questions for names; 0 where there is none.
    pub(super) const RESOLVERS: usize = 2;
    /// Address and port of the agent's socket for questions; 0 where there is none.
    pub(super) const AGENT: usize = 6;
    /// The secret in questions, and the one in answers.
    pub(super) const ASKING: usize = 7;
    pub(super) const TELLING: usize = 8;
    /// Addresses of hosts, other ones included, on which members of networks of scope `cluster`
    /// live; 0 where there is none.
    pub(super) const NODES: usize = 64;
}

/// How many hosts the table knows.
pub const NODES: usize = 256;
/// Words of the answers that are kept: key, address and port, when it was given.
const KEPT: usize = 4;
const KEPT_ANSWERS: usize = 1 << 12;

/// How many resolvers resolv.conf(5) may name (`MAXNS`).
pub const RESOLVERS: usize = 3;

const MEMBERS: Range<usize> = after(PAGE_WORDS, SLOTS * members::ROW);
const DIRECTORY: Range<usize> = after(MEMBERS.end, members::DIRECTORY);
const PORTS: Range<usize> = after(DIRECTORY.end, ports::WORDS);
const ALIASES: Range<usize> = after(PORTS.end, ports::ALIASES);
const WILDS: Range<usize> = after(ALIASES.end, ports::WILDS);

const ANSWERS: Range<usize> = after(WILDS.end, KEPT_ANSWERS * KEPT);

/// Size of the file in bytes: a multiple of a page.
pub const SIZE: usize = ANSWERS.end * WORD;

const fn after(start: usize, words: usize) -> Range<usize> {
    start..start + words.next_multiple_of(PAGE_WORDS)
}

/// A socket of a container, as its peers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// The container.
    pub slot: Slot,
    /// Its virtual address; 0.0.0.0 if it has bound the socket to all, so that the network tells.
    pub address: Ipv4Addr,
    /// The virtual port.
    pub port: u16,
    /// The kernel's number of the socket.
    pub cookie: u64,
    /// It was noted when the socket connected to this very place.
    pub exact: bool,
}

impl Sender {
    /// Whether it is the socket that the kernel finds for who is at the other end. One of TCP that
    /// its program has closed already, before the other side has asked, is believed to have been
    /// it, if it had gone exactly there; so is one of UDP that is connected to somebody else, from
    /// whom alone it takes anything.
    pub fn is(&self, protocol: Protocol, found: Option<diag::Found>) -> bool {
        match found {
            Some(found) if found.cookie == self.cookie => true,
            Some(found) => protocol == Protocol::Tcp && self.exact && found.ended,
            None => protocol == Protocol::Udp || self.exact,
        }
    }
}

/// Short form of a key.
const fn tag(key: u64) -> u16 {
    (key ^ key >> 16 ^ key >> 32 ^ key >> 48) as u16
}

/// What a real address is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// The container's addresses in its networks.
    Network,
    /// Its 127.0.0.0/8.
    Loopback,
    /// Its `::1`.
    Loopback6,
}

/// The mapped file.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Table<'a> {
    /// Fills in a new file of [`SIZE`] bytes of zeros. `base` is its first real address: one of
    /// 127.0.0.0/8, a multiple of [`BLOCK`], and not the first block, in which the host's own
    /// loopback addresses lie. `None` if it is another, or the file is too small. No other process
    /// may see the file before this returns.
    pub fn create(words: &'a [AtomicU64], base: Ipv4Addr) -> Option<Self> {
        let first = u32::from(base);
        if words.len() * WORD < SIZE
            || first >> 24 != 127
            || !first.is_multiple_of(BLOCK)
            || first.trailing_zeros() >= 24
        {
            return None;
        }
        let table = Self { words };
        table.words[header::BASE].store(first.into(), Ordering::Relaxed);
        table.words[header::MAGIC].store(MAGIC, Ordering::Release);
        Some(table)
    }

    /// Checks that a file is complete; `None` if it is not, or belongs to another version.
    pub fn open(words: &'a [AtomicU64]) -> Option<Self> {
        let is_valid =
            words.len() * WORD >= SIZE && words[header::MAGIC].load(Ordering::Acquire) == MAGIC;
        is_valid.then_some(Self { words })
    }

    /// The first real address.
    pub fn base(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.words[header::BASE].load(Ordering::Relaxed) as u32)
    }

    /// Stores the loopback addresses of the host at which programs ask for names, on port 53. They
    /// are the only ones of the host's that containers reach. More than [`RESOLVERS`] are left out.
    pub fn set_resolvers(&self, addresses: &[Ipv4Addr]) {
        for at in 0..RESOLVERS {
            let address = addresses.get(at).map_or(0, |address| address.to_bits());
            self.words[header::RESOLVERS + at].store(address.into(), Ordering::Relaxed);
        }
    }

    /// Returns true if an address is one of those.
    pub fn is_resolver(&self, address: Ipv4Addr) -> bool {
        let words = &self.words[header::RESOLVERS..][..RESOLVERS];
        let wanted = u64::from(address.to_bits());
        wanted != 0 && words.iter().any(|word| word.load(Ordering::Relaxed) == wanted)
    }

    /// Stores where the agent answers questions.
    pub fn set_agent(&self, agent: ask::Agent) {
        let place = u64::from(agent.place.ip().to_bits()) << 16 | u64::from(agent.place.port());
        self.words[header::AGENT].store(0, Ordering::Release);
        self.words[header::ASKING].store(agent.asking, Ordering::Release);
        self.words[header::TELLING].store(agent.telling, Ordering::Release);
        self.words[header::AGENT].store(place, Ordering::Release);
    }

    /// Where the agent answers questions. `None` if there was none yet.
    pub fn agent(&self) -> Option<ask::Agent> {
        let place = self.words[header::AGENT].load(Ordering::Acquire);
        let (asking, telling) = (&self.words[header::ASKING], &self.words[header::TELLING]);
        let (asking, telling) = (asking.load(Ordering::Acquire), telling.load(Ordering::Acquire));
        let address = Ipv4Addr::from_bits((place >> 16) as u32);
        let place = SocketAddrV4::new(address, place as u16);
        (place.port() != 0).then_some(ask::Agent { place, asking, telling })
    }

    /// Stores the addresses of the hosts of all networks of scope `cluster`. More than [`NODES`]
    /// are left out; returns false then.
    pub fn set_nodes(&self, nodes: &[Ipv4Addr]) -> bool {
        for at in 0..NODES {
            let node = nodes.get(at).map_or(0, |node| node.to_bits());
            self.words[header::NODES + at].store(node.into(), Ordering::Release);
        }
        nodes.len() <= NODES
    }

    /// Returns true if an address is one of those.
    pub fn is_node(&self, address: Ipv4Addr) -> bool {
        let words = self.words[header::NODES..][..NODES].iter();
        let known = words.map(|word| word.load(Ordering::Acquire)).take_while(|word| *word != 0);
        known.into_iter().any(|word| word == u64::from(address.to_bits()))
    }

    fn kept(&self, key: u64) -> &'a [AtomicU64] {
        let at = crate::shared::hash(&key.to_le_bytes(), 4) as usize % KEPT_ANSWERS;
        &self.words[ANSWERS][at * KEPT..][..KEPT]
    }

    /// An answer of the agent's that was kept under a key, and when that was (ticks of the
    /// processor).
    pub fn recall(&self, key: u64) -> Option<(SocketAddrV4, u64)> {
        let [there, place, time, _] = self.kept(key) else { return None };
        if there.load(Ordering::Acquire) != key {
            return None;
        }
        let (place, time) = (place.load(Ordering::Acquire), time.load(Ordering::Acquire));
        // Another process may have begun to write. The tag tells of two that write at once.
        let is_its = place as u16 == tag(key) && there.load(Ordering::Acquire) == key;
        let address = Ipv4Addr::from_bits((place >> 32) as u32);
        is_its.then(|| (SocketAddrV4::new(address, (place >> 16) as u16), time))
    }

    /// Keeps an answer. The key is not 0. Another one may take its place at any time.
    pub fn keep(&self, key: u64, place: SocketAddrV4, time: u64) {
        let [there, value, at, _] = self.kept(key) else { return };
        let word = u64::from(place.ip().to_bits()) << 32 | u64::from(place.port()) << 16;
        there.store(0, Ordering::Release);
        value.store(word | u64::from(tag(key)), Ordering::Release);
        at.store(time, Ordering::Release);
        there.store(key, Ordering::Release);
    }

    /// The real address of a container. That of its networks is its host's, if one of them has the
    /// scope `cluster`.
    #[inline]
    pub fn real(&self, slot: Slot, use_: Use) -> Ipv4Addr {
        let node = if use_ == Use::Network { self.members().node(slot) } else { None };
        node.unwrap_or_else(|| self.private(slot, use_))
    }

    /// The one of 127.0.0.0/8.
    fn private(&self, slot: Slot, use_: Use) -> Ipv4Addr {
        let which = match use_ {
            Use::Network => 0,
            Use::Loopback => 1,
            Use::Loopback6 => 2,
        };
        Ipv4Addr::from(u32::from(self.base()) + u32::from(slot.number()) * REAL + which)
    }

    /// The container that has a real address of 127.0.0.0/8, and what it uses it for.
    #[inline]
    pub fn owner(&self, real: Ipv4Addr) -> Option<(Slot, Use)> {
        let offset = u32::from(real).wrapping_sub(self.base().into());
        let use_ = match offset % REAL {
            0 => Use::Network,
            1 => Use::Loopback,
            2 => Use::Loopback6,
            _ => return None,
        };
        Some((Slot::new(u16::try_from(offset / REAL).ok()?)?, use_))
    }

    /// The containers.
    pub fn members(&self) -> members::Members<'a> {
        members::Members { rows: &self.words[MEMBERS], directory: &self.words[DIRECTORY] }
    }

    /// The container with a socket at this port of its host's address, if that is known.
    pub fn owner_at_node(&self, protocol: Protocol, port: u16) -> Option<Slot> {
        let slot = self.ports().owner_of_wild(protocol, port)?;
        self.members().node(slot).map(|_| slot)
    }

    /// The socket at a port of this host's address that has connected, or sent, to a real place:
    /// the container, the virtual address and port, and the socket's cookie. Whether it lives, the
    /// kernel must be asked.
    pub fn sender(&self, protocol: Protocol, port: u16, to: SocketAddrV4) -> Option<Sender> {
        let (slot, ports) = (self.owner_at_node(protocol, port)?, self.ports());
        let node = self.real(slot, Use::Network);
        // One of datagrams may be bound to all of the host's addresses.
        for (at, real) in [(Some(Use::Network), node), (None, Ipv4Addr::LOCALHOST)] {
            let place = Place { at, port };
            let entry = ports.at(slot, protocol, (place, real), None);
            let virtual_port = entry.map_or(port, |entry| entry.port);
            if let Some(way) = ports.way(slot, protocol, place, (*to.ip(), to.port())) {
                let (address, cookie) = (way.source, way.cookie);
                return Some(Sender { slot, address, port: virtual_port, cookie, exact: true });
            }
            if let Some(entry) = entry {
                let Port { address, port, cookie, .. } = entry;
                return Some(Sender { slot, address, port, cookie, exact: false });
            }
        }
        None
    }

    /// Gives a slot to a container. Nothing that an earlier one left in it counts any more.
    pub fn take(&self, slot: Slot, container: u64) {
        let members = self.members();
        members.clear(slot);
        if ports::is_first(members.generation(slot)) {
            self.ports().clear(slot);
        }
        members.set_container(slot, container);
    }

    /// The sockets.
    pub fn ports(&self) -> ports::Ports<'a> {
        ports::Ports {
            words: &self.words[PORTS],
            aliases: &self.words[ALIASES],
            clock: &self.words[header::CLOCK],
            wild: &self.words[WILDS],
            members: self.members(),
        }
    }
}
