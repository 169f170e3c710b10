//! Containers in networks: a row for each slot, and a directory of virtual addresses.
//!
//! Rows and directory are written by one process at a time, the holder of the lock of all networks.
//! Readers hold no lock; each membership is one word, so that a reader sees it as it was or as it
//! is.

use super::SLOTS;
use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicU64, Ordering};

/// Words of a row.
pub(super) const ROW: usize = 64;
const ROOM: usize = 8;
/// The networks that a container may be in at the same time.
pub const MEMBERSHIPS: usize = ROOM;
/// At most so many ports of a container in networks of packets are published by sockets of the
/// switch: the kernel takes at most 253 descriptors with one message.
pub const SOCKETS: usize = 200;
/// The ranges of ports that a container may publish.
pub const PUBLISHED: usize = 24;
/// Words of the directory.
pub(super) const DIRECTORY: usize = 1 << 14;
const _: () = assert!(DIRECTORY >= 2 * SLOTS);
const _: () = assert!(PUBLISHED_AT + 2 * PUBLISHED <= ROW);

/// The first eight bytes of the container's id; 0 where the slot is free.
const CONTAINER: usize = 0;
/// Is not 0 if all networks of the container are internal.
const INTERNAL: usize = 1;
/// Counts the containers that have had the slot.
const GENERATION: usize = 2;
/// Address of the host in networks of scope `cluster`; 0 if the container is in none.
const NODE: usize = 3;
const MEMBERSHIPS_AT: usize = 8;
const PUBLISHED_AT: usize = MEMBERSHIPS_AT + ROOM;

/// Marks a place of the directory that was used: a search goes on behind it.
const LEFT: u64 = u64::MAX;
/// Number of places that a search looks at.
const NEAR: usize = 64;

/// A container's place in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(u16);

impl Slot {
    /// A slot by its number, which is less than [`SLOTS`].
    pub const fn new(number: u16) -> Option<Self> {
        if (number as usize) < SLOTS { Some(Self(number)) } else { None }
    }

    /// Its number.
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// The last one.
pub(super) const LAST: Slot = Slot(SLOTS as u16 - 1);

/// A container's address in one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// Number of the network: 1 to 65534.
    pub network: u16,
    /// Virtual address.
    pub address: Ipv4Addr,
    /// Number of leading bits that all addresses of the network have in common: 1 to 32.
    pub prefix: u8,
    /// Members of other hosts are in it, too.
    pub cluster: bool,
}

impl Membership {
    const fn word(self) -> u64 {
        let cluster = (self.cluster as u64) << 40;
        let prefix = (self.prefix as u64) << 32;
        (self.network as u64) << 48 | cluster | prefix | self.address.to_bits() as u64
    }

    const fn of(word: u64) -> Option<Self> {
        let (network, prefix) = ((word >> 48) as u16, (word >> 32) as u8);
        if network == 0 {
            return None;
        }
        let cluster = word >> 40 & 1 != 0;
        Some(Self { network, prefix, cluster, address: Ipv4Addr::from_bits(word as u32) })
    }

    /// Returns true if an address belongs to the network.
    #[inline]
    pub const fn has(&self, address: Ipv4Addr) -> bool {
        let differing = self.address.to_bits() ^ address.to_bits();
        differing.leading_zeros() >= self.prefix as u32
    }
}

/// Ports of a container that are bound at the host's own addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// Address of the host; 0.0.0.0 for all.
    pub address: Ipv4Addr,
    /// First port of the host.
    pub host: u16,
    /// First port in the container.
    pub inside: u16,
    /// Number of ports, at least 1.
    pub count: u16,
    /// UDP instead of TCP.
    pub udp: bool,
}

impl Published {
    const fn words(self) -> [u64; 2] {
        let ports = (self.host as u64) << 32 | (self.inside as u64) << 16 | self.count as u64;
        [(self.udp as u64) << 32 | self.address.to_bits() as u64, ports]
    }

    const fn of([first, ports]: [u64; 2]) -> Option<Self> {
        if ports as u16 == 0 {
            return None;
        }
        Some(Self {
            address: Ipv4Addr::from_bits(first as u32),
            host: (ports >> 32) as u16,
            inside: (ports >> 16) as u16,
            count: ports as u16,
            udp: first >> 32 != 0,
        })
    }

    /// The first port of the host that both publish at the same address.
    pub fn meets(&self, other: &Self) -> Option<u16> {
        let any = self.address.is_unspecified() || other.address.is_unspecified();
        let first = if self.host > other.host { self.host } else { other.host };
        let end = |one: &Self| u32::from(one.host) + u32::from(one.count);
        let meets = self.udp == other.udp
            && (any || self.address == other.address)
            && u32::from(first) < end(self)
            && u32::from(first) < end(other);
        meets.then_some(first)
    }

    /// The host's port for a port of the container.
    pub const fn port(&self, inside: u16) -> Option<u16> {
        let far = inside.wrapping_sub(self.inside);
        if inside >= self.inside && far < self.count { self.host.checked_add(far) } else { None }
    }
}

/// The rows and the directory.
#[derive(Debug, Clone, Copy)]
pub struct Members<'a> {
    pub(super) rows: &'a [AtomicU64],
    pub(super) directory: &'a [AtomicU64],
}

impl<'a> Members<'a> {
    fn row(&self, slot: Slot) -> &'a [AtomicU64] {
        &self.rows[usize::from(slot.0) * ROW..][..ROW]
    }

    /// The container of a slot: the first eight bytes of its id, big-endian. `None` if it is free.
    pub fn container(&self, slot: Slot) -> Option<u64> {
        let id = self.row(slot)[CONTAINER].load(Ordering::Acquire);
        (id != 0).then_some(id)
    }

    /// Gives a slot to a container.
    pub(super) fn set_container(&self, slot: Slot, container: u64) {
        self.row(slot)[CONTAINER].store(container, Ordering::Release);
    }

    /// Frees a slot. What its container has bound counts no more.
    pub fn clear(&self, slot: Slot) {
        for membership in self.memberships(slot) {
            self.leave(slot, membership.network);
        }
        for (at, word) in self.row(slot).iter().enumerate() {
            if at == GENERATION {
                word.fetch_add(1, Ordering::AcqRel);
            } else {
                word.store(0, Ordering::Release);
            }
        }
    }

    /// How often the slot was freed.
    #[inline]
    pub(super) fn generation(&self, slot: Slot) -> u64 {
        self.row(slot)[GENERATION].load(Ordering::Acquire)
    }

    /// Returns true if no way leads out of the container's networks.
    pub fn is_internal(&self, slot: Slot) -> bool {
        self.row(slot)[INTERNAL].load(Ordering::Relaxed) != 0
    }

    /// Stores that.
    pub fn set_internal(&self, slot: Slot, internal: bool) {
        self.row(slot)[INTERNAL].store(internal.into(), Ordering::Release);
    }

    /// The address of the container's host that other hosts reach, if it is in a network of scope
    /// `cluster`.
    #[inline]
    pub fn node(&self, slot: Slot) -> Option<Ipv4Addr> {
        let node = self.row(slot)[NODE].load(Ordering::Acquire);
        (node != 0).then(|| Ipv4Addr::from_bits(node as u32))
    }

    /// Stores it, before the container's first program begins.
    pub fn set_node(&self, slot: Slot, node: Option<Ipv4Addr>) {
        let node = node.map_or(0, Ipv4Addr::to_bits);
        self.row(slot)[NODE].store(node.into(), Ordering::Release);
    }

    /// The networks of a container.
    #[inline]
    pub fn memberships(&self, slot: Slot) -> impl Iterator<Item = Membership> + use<'a> {
        let words = &self.row(slot)[MEMBERSHIPS_AT..][..ROOM];
        words.iter().filter_map(|word| Membership::of(word.load(Ordering::Acquire)))
    }

    /// Puts a container into a network. Returns false if it is in too many, or the directory is
    /// full.
    ///
    /// One that is in it already is so all the time: with each command that is started in it a
    /// container joins again, and its programs look meanwhile. They would take an address of the
    /// network for one outside of it.
    pub fn join(&self, slot: Slot, membership: Membership) -> bool {
        let words = &self.row(slot)[MEMBERSHIPS_AT..][..ROOM];
        let (network, address) = (membership.network, membership.address);
        let of = |word: &AtomicU64| Membership::of(word.load(Ordering::Relaxed));
        let is_its = |word: &&AtomicU64| of(word).is_some_and(|one| one.network == network);
        let old = words.iter().find(is_its);
        let free = || words.iter().find(|word| word.load(Ordering::Relaxed) == 0);
        let Some(word) = old.or_else(free) else { return false };
        if self.find(network, address) != Some(slot) {
            let Some(place) = self.places(network, address).find(|word| {
                let there = word.load(Ordering::Relaxed);
                there == 0 || there == LEFT || is_for(there, network, address)
            }) else {
                return false;
            };
            place.store(entry(network, address, slot), Ordering::Release);
        }
        let before = of(word);
        word.store(membership.word(), Ordering::Release);
        if let Some(before) = before.filter(|before| before.address != address) {
            self.forget(slot, before);
        }
        true
    }

    /// Takes it out of a network.
    pub fn leave(&self, slot: Slot, network: u16) {
        for word in &self.row(slot)[MEMBERSHIPS_AT..][..ROOM] {
            let Some(one) = Membership::of(word.load(Ordering::Relaxed)) else { continue };
            if one.network == network {
                word.store(0, Ordering::Release);
                self.forget(slot, one);
            }
        }
    }

    /// Takes an address out of the directory, unless another container has it by now.
    fn forget(&self, slot: Slot, membership: Membership) {
        let Membership { network, address, .. } = membership;
        let mine = entry(network, address, slot);
        for place in self.places(network, address) {
            let _ = place.compare_exchange(mine, LEFT, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// The container that has an address in a network.
    #[inline]
    pub fn find(&self, network: u16, address: Ipv4Addr) -> Option<Slot> {
        for place in self.places(network, address) {
            match place.load(Ordering::Acquire) {
                0 => return None,
                there if is_for(there, network, address) => return Slot::new(there as u16 & 0xfff),
                _ => {}
            }
        }
        None
    }

    fn places(&self, network: u16, address: Ipv4Addr) -> impl Iterator<Item = &'a AtomicU64> {
        let key = u64::from(network) << 32 | u64::from(address.to_bits());
        let start = crate::shared::hash(&key.to_le_bytes(), 0) as usize % DIRECTORY;
        let directory = self.directory;
        (0..NEAR).map(move |far| &directory[(start + far) % DIRECTORY])
    }

    /// The published ports of a container.
    pub fn published(&self, slot: Slot) -> impl Iterator<Item = Published> + use<'a> {
        let words = &self.row(slot)[PUBLISHED_AT..][..2 * PUBLISHED];
        words.as_chunks::<2>().0.iter().filter_map(|[first, ports]| {
            let ports = ports.load(Ordering::Acquire);
            Published::of([first.load(Ordering::Relaxed), ports])
        })
    }

    /// Publishes ports, before the container's first program begins. Returns false if there are too
    /// many ranges already.
    pub fn publish(&self, slot: Slot, published: Published) -> bool {
        let words = &self.row(slot)[PUBLISHED_AT..][..2 * PUBLISHED];
        let mut places = words.as_chunks::<2>().0.iter();
        let Some([first, ports]) = places.find(|[_, ports]| ports.load(Ordering::Relaxed) == 0)
        else {
            return false;
        };
        let [address, range] = published.words();
        first.store(address, Ordering::Relaxed);
        ports.store(range, Ordering::Release);
        true
    }
}

/// A word of the directory: network, address, and the slot in the last twelve bits.
const fn entry(network: u16, address: Ipv4Addr, slot: Slot) -> u64 {
    (network as u64) << 48 | (address.to_bits() as u64) << 12 | slot.0 as u64
}

const fn is_for(word: u64, network: u16, address: Ipv4Addr) -> bool {
    word != LEFT && word & !0xfff == entry(network, address, Slot(0))
}
