//! Sockets that programs have bound: which real address and port a virtual port of a container is.
//!
//! Entries lie in a table of buckets by container, protocol and virtual port; a search looks at
//! [`NEAR`] entries. An entry is made right after the kernel has bound the socket. It is not
//! removed when the socket is closed, because nothing tells when the last copy of a descriptor is
//! gone. So an entry says nothing about whether its socket lives: who wants to reach it compares
//! the cookie with that of the socket that the kernel finds now.
//!
//! An entry is claimed by its cookie, which no other socket has, and counts from when its key is
//! written. A process that is killed in between leaves a place that nobody uses until the file is
//! made anew.
//!
//! An entry names the *generation* of its slot, which changes with each container that has it, so
//! those of a container count no more once it has left.
//!
//! For real ports that differ from the virtual ones there are *aliases*: the way back. And for
//! connections whose two addresses do not tell by which address of a container one was reached
//! there are *ways*. Both are hints: where there is no room, an older one is overwritten.

use super::members::Members;
use super::{Slot, Use};
use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicU64, Ordering};

/// Words of an entry: key, addresses, cookie, when it was noted, when its socket was last seen to
/// live; of ways the last two are the other end, and when it was noted. The rest fills a line of
/// the processor's cache.
const ENTRY: usize = 8;
const ENTRIES: usize = 1 << 15;
pub(super) const WORDS: usize = ENTRIES * ENTRY;
/// Number of entries that a search looks at.
pub const NEAR: usize = 16;
pub(super) const ALIASES: usize = 1 << 14;
const NEAR_ALIASES: usize = 8;
pub(super) const WILDS: usize = 1 << 13;

const KEY: usize = 0;
const ADDRESSES: usize = 1;
const COOKIE: usize = 2;
const TARGET: usize = 3;
const STAMP: usize = 3;
const SEEN: usize = 4;
/// Of a way: the virtual port that it leads to; 0 if the table has it.
const LEADS: usize = 5;

/// The key of an entry that counts is not 0.
const PRESENT: u64 = 1 << 63;
const GROUP: u64 = 1 << 62;
const FAMILY: u32 = 48;
/// An alias of a socket that is bound to all of the host's addresses: it leads to the container.
const WILD: u64 = 1 << 61;
/// The generation of the slot.
const GENERATION: u32 = 50;
const GENERATION_MASK: u64 = 0x7ff << GENERATION;

/// The protocol of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Transmission Control Protocol.
    Tcp,
    /// User Datagram Protocol.
    Udp,
}

/// Which addresses a socket serves that is bound to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4: the socket's family is `AF_INET`.
    V4,
    /// Both: `AF_INET6` without `IPV6_V6ONLY`.
    Dual,
    /// IPv6: `AF_INET6` with `IPV6_V6ONLY`.
    V6,
}

impl Family {
    const fn number(self) -> u64 {
        match self {
            Self::V4 => 0,
            Self::Dual => 1,
            Self::V6 => 2,
        }
    }

    /// Returns true if a socket that is bound to all addresses serves this one.
    pub fn serves(self, address: Ipv4Addr) -> bool {
        if address == LOOPBACK6 { self != Self::V4 } else { self != Self::V6 }
    }

    /// Returns true if two sockets that are bound to all addresses serve some address in common.
    pub const fn meets(self, other: Self) -> bool {
        !matches!((self, other), (Self::V4, Self::V6) | (Self::V6, Self::V4))
    }
}

/// The virtual address that stands for `::1`, which is the only IPv6 address of a container.
pub const LOOPBACK6: Ipv4Addr = Ipv4Addr::new(0, 0, 0, 1);

/// A socket that a program has bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// Its protocol.
    pub protocol: Protocol,
    /// Its family.
    pub family: Family,
    /// The address that the program gave; 0.0.0.0 for all, [`LOOPBACK6`] for `::1`.
    pub address: Ipv4Addr,
    /// The port that the program gave, or the kernel chose.
    pub port: u16,
    /// The address at which the kernel finds it.
    pub real: Ipv4Addr,
    /// The port at which the kernel finds it.
    pub real_port: u16,
    /// The kernel's number of the socket (`SO_COOKIE`), which it never uses again.
    pub cookie: u64,
    /// Several sockets share the port (`SO_REUSEPORT`); the cookie is that of one of them.
    pub group: bool,
}

impl Port {
    /// What is in the key beside where a search begins.
    fn rest(&self) -> u64 {
        let group = if self.group { GROUP } else { 0 };
        group | self.family.number() << FAMILY | u64::from(self.real_port) << 32
    }

    const fn addresses(&self) -> u64 {
        (self.address.to_bits() as u64) << 32 | self.real.to_bits() as u64
    }

    fn of([key, addresses, cookie]: [u64; 3]) -> Self {
        Self {
            protocol: if key >> 28 & 1 == 0 { Protocol::Tcp } else { Protocol::Udp },
            family: match key >> FAMILY & 3 {
                0 => Family::V4,
                1 => Family::Dual,
                _ => Family::V6,
            },
            address: Ipv4Addr::from_bits((addresses >> 32) as u32),
            port: key as u16,
            real: Ipv4Addr::from_bits(addresses as u32),
            real_port: (key >> 32) as u16,
            cookie,
            group: key & GROUP != 0,
        }
    }

    /// Returns true if the entry of one may take the place of the other's: the kernel finds both at
    /// the same place, so they do not live at the same time unless they share it.
    fn replaces(&self, other: &Self) -> bool {
        (self.address, self.family) == (other.address, other.family) && self.is_at(other)
    }

    /// Returns true if the kernel finds both at the same place.
    fn is_at(&self, other: &Self) -> bool {
        (self.protocol, self.real, self.real_port) == (other.protocol, other.real, other.real_port)
    }
}

/// How a connection that begins in a container is shown where its addresses do not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Its protocol.
    pub protocol: Protocol,
    /// The real place of the end that has connected.
    pub from: Place,
    /// Real address and port of the other end.
    pub to: (Ipv4Addr, u16),
    /// The virtual address from which it comes.
    pub source: Ipv4Addr,
    /// The virtual address to which it was made.
    pub destination: Ipv4Addr,
    /// The virtual port to which it was made, where this host's table does not have it; else 0.
    pub port: u16,
}

/// A way that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// [`Way::source`].
    pub source: Ipv4Addr,
    /// [`Way::destination`].
    pub destination: Ipv4Addr,
    /// [`Way::port`].
    pub port: u16,
    /// The cookie of the socket that has connected.
    pub cookie: u64,
}

/// A real address of a container, and a port of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which of its addresses; `None` for one of the host's.
    pub at: Option<Use>,
    /// The real port.
    pub port: u16,
}

/// The part of a key that a search knows: port (16), slot (12), protocol (1), generation (11), and
/// of ways and aliases the real address (3).
const START: u64 = PRESENT | GENERATION_MASK | 0xffff_ffff;
/// The real address in a key; never 0.
const USE: u32 = 29;

/// Returns true if a generation, or the one after it, cannot be told from an earlier one: each
/// container frees its slot when it takes it and when it leaves.
pub(super) const fn is_first(generation: u64) -> bool {
    let counted = GENERATION_MASK >> GENERATION;
    generation > counted && generation & counted <= 1
}

const fn is_way(key: u64) -> bool {
    key & PRESENT != 0 && key >> USE & 7 != 0
}

/// The entries and the aliases.
#[derive(Debug, Clone, Copy)]
pub struct Ports<'a> {
    pub(super) words: &'a [AtomicU64],
    pub(super) aliases: &'a [AtomicU64],
    /// Counts what is noted.
    pub(super) clock: &'a AtomicU64,
    /// Sockets of datagrams that are bound to all of the host's addresses: cookie and port.
    pub(super) wild: &'a [AtomicU64],
    pub(super) members: Members<'a>,
}

type Entry = [AtomicU64; ENTRY];

impl<'a> Ports<'a> {
    fn start_of(&self, slot: Slot, protocol: Protocol, port: u16) -> u64 {
        let udp = u64::from(protocol == Protocol::Udp);
        let generation = self.members.generation(slot) << GENERATION & GENERATION_MASK;
        PRESENT | generation | udp << 28 | u64::from(slot.number()) << 16 | u64::from(port)
    }

    fn start_at(&self, slot: Slot, protocol: Protocol, place: Place) -> u64 {
        let at = match place.at {
            None => 1,
            Some(Use::Network) => 2,
            Some(Use::Loopback) => 3,
            Some(Use::Loopback6) => 4,
        };
        self.start_of(slot, protocol, place.port) | at << USE
    }

    /// Returns true if the container whose entry it is has left.
    fn is_stale(&self, key: u64) -> bool {
        let slot = Slot::new((key >> 16) as u16 & 0xfff);
        let now = slot.map(|slot| self.members.generation(slot) << GENERATION & GENERATION_MASK);
        key & PRESENT != 0 && now != Some(key & GENERATION_MASK)
    }

    fn near(&self, start: u64) -> impl Iterator<Item = &'a Entry> + use<'a> {
        let entries = self.words.as_chunks::<ENTRY>().0;
        let first = crate::shared::hash(&start.to_le_bytes(), 1) as usize % ENTRIES;
        (0..NEAR).map(move |far| &entries[(first / 4 * 4 + far) % ENTRIES])
    }

    /// What is bound to a port of a container, on whichever of its addresses.
    #[inline]
    pub fn find(
        &self,
        slot: Slot,
        protocol: Protocol,
        port: u16,
    ) -> impl Iterator<Item = Port> + use<'a> {
        let start = self.start_of(slot, protocol, port);
        self.near(start).filter_map(move |entry| {
            let key = entry[KEY].load(Ordering::Acquire);
            if key & START != start {
                return None;
            }
            read(entry, key)
        })
    }

    /// What serves a port of a container at one of its addresses: first what is bound to that
    /// address, then what is bound to all.
    pub fn serving(
        &self,
        slot: Slot,
        protocol: Protocol,
        (address, port): (Ipv4Addr, u16),
    ) -> impl Iterator<Item = Port> + use<'a> {
        let exact = self.find(slot, protocol, port).filter(move |one| one.address == address);
        let any = self
            .find(slot, protocol, port)
            .filter(move |one| one.address.is_unspecified() && one.family.serves(address));
        exact.chain(any)
    }

    /// Notes a socket. Entries that `is_dead` says the kernel does not have any more give way if
    /// there is no room. Returns false if there is none even so.
    pub fn insert(&self, slot: Slot, port: &Port, is_dead: impl FnMut(&Port) -> bool) -> bool {
        let start = self.start_of(slot, port.protocol, port.port);
        let stamp = self.clock.fetch_add(1, Ordering::Relaxed);
        for entry in self.near(start) {
            let key = key_of(entry);
            if key & START == start
                && let Some(there) = read(entry, key)
                && port.replaces(&there)
            {
                entry[STAMP].store(stamp, Ordering::Relaxed);
                entry[SEEN].store(0, Ordering::Relaxed);
                entry[COOKIE].store(port.cookie, Ordering::Release);
                let _ = entry[KEY].compare_exchange(
                    key,
                    start | port.rest(),
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                return true;
            }
        }
        let room = self.room(start, port.cookie);
        let room = room.or_else(|| self.room_of_dead(start, port.cookie, is_dead));
        let Some(entry) = room.or_else(|| self.room_of_way(start, port.cookie)) else {
            return false;
        };
        entry[ADDRESSES].store(port.addresses(), Ordering::Relaxed);
        entry[STAMP].store(stamp, Ordering::Relaxed);
        entry[SEEN].store(0, Ordering::Relaxed);
        entry[KEY].store(start | port.rest(), Ordering::Release);
        true
    }

    /// Claims a free entry, or one of a container that has left.
    fn room(&self, start: u64, cookie: u64) -> Option<&'a Entry> {
        let free = self.near(start).find(|entry| claim(entry, cookie));
        free.or_else(|| {
            self.near(start).find(|entry| {
                let key = key_of(entry);
                self.is_stale(key) && remove(entry, key) && claim(entry, cookie)
            })
        })
    }

    /// Claims one whose socket the kernel does not have any more.
    fn room_of_dead(
        &self,
        start: u64,
        cookie: u64,
        mut is_dead: impl FnMut(&Port) -> bool,
    ) -> Option<&'a Entry> {
        self.near(start).find(|entry| {
            let key = key_of(entry);
            let port = if is_way(key) { None } else { read(entry, key) };
            port.is_some_and(|port| is_dead(&port)) && remove(entry, key) && claim(entry, cookie)
        })
    }

    /// Claims that of the oldest way.
    fn room_of_way(&self, start: u64, cookie: u64) -> Option<&'a Entry> {
        let ways = self.near(start).filter(|entry| is_way(key_of(entry)));
        let oldest = ways.min_by_key(|entry| entry[SEEN].load(Ordering::Relaxed))?;
        (remove(oldest, key_of(oldest)) && claim(oldest, cookie)).then_some(oldest)
    }

    /// What was noted at a real place of a container, each with when.
    fn noted(
        &self,
        slot: Slot,
        protocol: Protocol,
        (place, real): (Place, Ipv4Addr),
    ) -> impl Iterator<Item = (Port, u64)> + use<'a> {
        let port = self.virtual_port(slot, protocol, place).unwrap_or(place.port);
        let start = self.start_of(slot, protocol, port);
        self.near(start).filter_map(move |entry| {
            let key = entry[KEY].load(Ordering::Acquire);
            let one = Some(key).filter(|key| key & START == start).and_then(|key| read(entry, key));
            let one = one.filter(|one| one.real == real && one.real_port == place.port);
            one.map(|one| (one, entry[STAMP].load(Ordering::Relaxed)))
        })
    }

    /// What is bound at a real place of a container, if anything was noted: with the cookie the
    /// socket itself, if it is among those; else the last.
    pub fn at(
        &self,
        slot: Slot,
        protocol: Protocol,
        at: (Place, Ipv4Addr),
        cookie: Option<u64>,
    ) -> Option<Port> {
        let own = |one: &(Port, u64)| cookie == Some(one.0.cookie);
        self.noted(slot, protocol, at).max_by_key(|one| (own(one), one.1)).map(|one| one.0)
    }

    /// Returns true if more than one was noted at a real place: sockets that share it, or such as
    /// have ended.
    pub fn is_shared(&self, slot: Slot, protocol: Protocol, at: (Place, Ipv4Addr)) -> bool {
        self.noted(slot, protocol, at).nth(1).is_some()
    }

    fn entry_of(&self, slot: Slot, port: &Port) -> Option<&'a Entry> {
        let key = self.start_of(slot, port.protocol, port.port) | port.rest();
        self.near(key & START).find(|entry| {
            let is_its = |at: usize, word: u64| entry[at].load(Ordering::Acquire) == word;
            is_its(KEY, key) && is_its(COOKIE, port.cookie) && is_its(ADDRESSES, port.addresses())
        })
    }

    /// When the socket of an entry was last seen to live (ticks of the processor);
    /// 0 if it was not.
    pub fn seen(&self, slot: Slot, port: &Port) -> u64 {
        self.entry_of(slot, port).map_or(0, |entry| entry[SEEN].load(Ordering::Relaxed))
    }

    /// Stores that.
    pub fn set_seen(&self, slot: Slot, port: &Port, time: u64) {
        if let Some(entry) = self.entry_of(slot, port) {
            entry[SEEN].store(time, Ordering::Relaxed);
        }
    }

    /// Notes a way. `cookie`: that of the socket that connects. `is_dead` and what is returned are
    /// as for [`Self::insert`].
    pub fn insert_way(
        &self,
        slot: Slot,
        way: &Way,
        cookie: u64,
        is_dead: impl FnMut(&Port) -> bool,
    ) -> bool {
        let start = self.start_at(slot, way.protocol, way.from);
        for entry in self.near(start) {
            let key = key_of(entry);
            let is_old = || {
                // A socket of datagrams sends to many, another one is connected to one.
                let same = entry[TARGET].load(Ordering::Relaxed) == target(way.to);
                same || way.protocol == Protocol::Tcp
            };
            if key & START == start && is_old() {
                remove(entry, key);
            }
        }
        let room = self.room(start, cookie).or_else(|| self.room_of_way(start, cookie));
        let Some(entry) = room.or_else(|| self.room_of_dead(start, cookie, is_dead)) else {
            return false;
        };
        let addresses = u64::from(way.source.to_bits()) << 32;
        let addresses = addresses | u64::from(way.destination.to_bits());
        entry[ADDRESSES].store(addresses, Ordering::Relaxed);
        entry[TARGET].store(target(way.to), Ordering::Relaxed);
        entry[LEADS].store(way.port.into(), Ordering::Relaxed);
        entry[SEEN].store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        entry[KEY].store(start, Ordering::Release);
        true
    }

    /// Forgets the way of an earlier socket: the addresses tell.
    pub fn remove_way(&self, slot: Slot, protocol: Protocol, from: Place, to: (Ipv4Addr, u16)) {
        let start = self.start_at(slot, protocol, from);
        for entry in self.near(start) {
            let key = entry[KEY].load(Ordering::Acquire);
            if key & START == start && entry[TARGET].load(Ordering::Relaxed) == target(to) {
                remove(entry, key);
            }
        }
    }

    /// How a connection is shown that begins at a real place of a container and leads to a real
    /// address and port. `None` if its addresses tell.
    pub fn way(
        &self,
        slot: Slot,
        protocol: Protocol,
        from: Place,
        to: (Ipv4Addr, u16),
    ) -> Option<Found> {
        let start = self.start_at(slot, protocol, from);
        self.near(start).find_map(|entry| {
            let key = entry[KEY].load(Ordering::Acquire);
            if key & START != start || entry[TARGET].load(Ordering::Acquire) != target(to) {
                return None;
            }
            let addresses = entry[ADDRESSES].load(Ordering::Acquire);
            let source = Ipv4Addr::from_bits((addresses >> 32) as u32);
            let destination = Ipv4Addr::from_bits(addresses as u32);
            let port = entry[LEADS].load(Ordering::Acquire) as u16;
            let cookie = entry[COOKIE].load(Ordering::Acquire);
            let same = entry[KEY].load(Ordering::Acquire) == key;
            same.then_some(Found { source, destination, port, cookie })
        })
    }

    /// Forgets everything of all generations of a slot, before one comes again.
    pub(super) fn clear(&self, slot: Slot) {
        let mine = u64::from(slot.number());
        for entry in self.words.as_chunks::<ENTRY>().0 {
            let key = entry[KEY].load(Ordering::Acquire);
            if key & PRESENT != 0 && key >> 16 & 0xfff == mine {
                remove(entry, key);
            }
        }
        for alias in self.aliases {
            let word = alias.load(Ordering::Relaxed);
            let of = if word & WILD == 0 { word >> 32 } else { word } & 0xfff;
            if word & PRESENT != 0 && of == mine {
                let _ = alias.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// The virtual port of a container's real one, if they differ.
    pub fn virtual_port(&self, slot: Slot, protocol: Protocol, place: Place) -> Option<u16> {
        self.alias(self.start_at(slot, protocol, place))
    }

    /// Notes it.
    pub fn set_virtual_port(&self, slot: Slot, protocol: Protocol, place: Place, port: u16) {
        self.set_alias(self.start_at(slot, protocol, place), port);
    }

    /// The port of a socket of datagrams that is bound to it at all of the host's addresses.
    pub fn wild_port(&self, cookie: u64) -> Option<u16> {
        let [key, port] = self.wild_of(cookie);
        let found = (key.load(Ordering::Acquire) == cookie).then(|| port.load(Ordering::Acquire));
        // Another socket may have taken the place meanwhile.
        let found = found.filter(|port| *port != 0 && key.load(Ordering::Acquire) == cookie);
        found.map(|port| port as u16)
    }

    /// Notes it; 0 for one that is so no more. A hint: another socket may take its place.
    pub fn set_wild_port(&self, cookie: u64, port: u16) {
        let [key, place] = self.wild_of(cookie);
        key.store(0, Ordering::Release);
        place.store(port.into(), Ordering::Release);
        key.store(cookie, Ordering::Release);
    }

    fn wild_of(&self, cookie: u64) -> &'a [AtomicU64; 2] {
        let places = self.wild.as_chunks::<2>().0;
        &places[crate::shared::hash(&cookie.to_le_bytes(), 3) as usize % places.len()]
    }

    /// The container with a socket that is bound to this port of all of the host's addresses.
    pub fn owner_of_wild(&self, protocol: Protocol, real: u16) -> Option<Slot> {
        let found = self.alias(Self::wild(protocol, real))?;
        Slot::new(found & 0xfff).filter(|slot| self.short(*slot) == found)
    }

    /// Notes it.
    pub fn set_owner_of_wild(&self, protocol: Protocol, real: u16, slot: Slot) {
        self.set_alias(Self::wild(protocol, real), self.short(slot));
    }

    /// A slot with the last four bits of its generation.
    fn short(&self, slot: Slot) -> u16 {
        (self.members.generation(slot) as u16) << 12 | slot.number()
    }

    /// An alias is its key in the upper bits and a number in the lower ones.
    fn wild(protocol: Protocol, real: u16) -> u64 {
        let udp = u64::from(protocol == Protocol::Udp);
        PRESENT | WILD | udp << 28 | u64::from(real)
    }

    fn alias(&self, key: u64) -> Option<u16> {
        let key = shifted(key);
        self.near_aliases(key).find_map(|word| {
            let word = word.load(Ordering::Acquire);
            (word & !0xffff == key).then_some(word as u16)
        })
    }

    fn set_alias(&self, key: u64, number: u16) {
        let key = shifted(key);
        let is_mine = |word: &&AtomicU64| word.load(Ordering::Relaxed) & !0xffff == key;
        let is_free = |word: &&AtomicU64| word.load(Ordering::Relaxed) == 0;
        let place = self
            .near_aliases(key)
            .find(is_mine)
            .or_else(|| self.near_aliases(key).find(is_free))
            .or_else(|| self.near_aliases(key).next());
        if let Some(place) = place {
            place.store(key | u64::from(number), Ordering::Release);
        }
    }

    fn near_aliases(&self, key: u64) -> impl Iterator<Item = &'a AtomicU64> + use<'a> {
        let first = crate::shared::hash(&key.to_le_bytes(), 2) as usize % ALIASES;
        let aliases = self.aliases;
        (0..NEAR_ALIASES).map(move |far| &aliases[(first / 8 * 8 + far) % ALIASES])
    }
}

/// A key of 32 bits, moved above the number that it leads to.
const fn shifted(key: u64) -> u64 {
    key & (PRESENT | WILD | GENERATION_MASK) | (key & 0xffff_ffff) << 16
}

const fn target(to: (Ipv4Addr, u16)) -> u64 {
    (to.0.to_bits() as u64) << 16 | to.1 as u64
}

fn key_of(entry: &Entry) -> u64 {
    entry[KEY].load(Ordering::Acquire)
}

/// Claims a free entry.
fn claim(entry: &Entry, cookie: u64) -> bool {
    entry[COOKIE].compare_exchange(0, cookie, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

fn read(entry: &Entry, key: u64) -> Option<Port> {
    let port = Port::of([
        key,
        entry[ADDRESSES].load(Ordering::Acquire),
        entry[COOKIE].load(Ordering::Acquire),
    ]);
    // What was removed and made anew meanwhile is not read as a mixture.
    (key & PRESENT != 0 && entry[KEY].load(Ordering::Acquire) == key).then_some(port)
}

/// Removes an entry. Returns false if somebody else did.
fn remove(entry: &Entry, key: u64) -> bool {
    let cookie = entry[COOKIE].load(Ordering::Acquire);
    let removed = key & PRESENT != 0
        && entry[KEY].compare_exchange(key, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if removed {
        let _ = entry[COOKIE].compare_exchange(cookie, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
    removed
}
