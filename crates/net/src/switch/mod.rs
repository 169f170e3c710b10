//! Forwards ethernet frames between members of networks that have network namespaces of their own.
//!
//! Each member has a *port*: a descriptor that carries the frames of its device, a TAP device or a
//! packet socket at the other end of a veth pair. A frame that is read from one port is written to
//! that of the member with its IP destination. The switch answers questions for ethernet addresses
//! (ARP; neighbour solicitations of IPv6) itself, for addresses that members have; it leaves others
//! unanswered.
//!
//! - Frames keep the kernel's header ([`frame::HEADER`]), so pieces of TCP of up to 64 kB pass as
//!   one, and no checksum is computed between two members of a host.
//! - A frame whose source is not an address of its sender is dropped: no member speaks for another.
//! - A network's auxiliary addresses are of no member. The one that announces one by ARP, as
//!   `keepalived` and `arping -A` do, has it until another one announces it. Their ethernet address
//!   stays the same when they move, so that other members need to learn nothing.
//! - Nothing is queued here. A port that takes no frame loses it, as a full line would; TCP sends
//!   it again.
//! - A few threads wait for all ports ([`Switch::start`]). A port is read by one of them at a time,
//!   so the order of its frames stays. Each has one buffer, so memory does not grow with ports.
//! - A member that ends has its last frames forwarded ([`Switch::finish`]): its kernel sends none
//!   of them again, so without them the others would wait on its connections for ever.
//!
//! Members of other hosts are behind an [`Uplink`], everybody else behind a way out ([`outside`])
//! if the container has one there.

pub mod frame;
mod neighbour;
pub mod outside;
mod route;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use crate::locks::{lock, read, write};
use frame::{Ranges, Route};
use outside::{Gate, Outside, Way};

/// How many frames a thread takes from a port before it looks at the others.
const TURN: usize = 64;
/// How many frames at most are taken of a member that has ended: more than its device holds.
const LAST: usize = 4096;
/// A port that fails so often in a row is given up.
const FAILURES: u32 = 1000;
/// Stack of a thread in bytes.
const STACK: usize = 64 << 10;
/// At most so many threads: two directions of two connections.
const THREADS: usize = 4;

/// The longest packet of a member's device, in bytes. It is the largest that a TAP device takes
/// (64 kB less an ethernet header, down to a multiple of 16), as pasta and slirp4netns have it: a
/// datagram of 64 kB is one frame, and what a frame costs is paid for as many bytes as possible.
pub const MTU: u32 = 65520;

/// The way to members on other hosts. Calls must not block.
pub trait Uplink: Send + Sync {
    /// Whether a member of a network on another host has this address.
    fn has(&self, network: &str, address: Ipv4Addr) -> bool;
    /// Carries a frame with its header to the member with an address, or to all (`None`).
    fn carry(&self, network: &str, to: Option<Ipv4Addr>, frame: &[u8]);
    /// A member of this host has announced an auxiliary address. Nobody elsewhere has it any more
    /// when `take` is called, once, which gives it to the member.
    fn announced(&self, network: &str, address: Ipv4Addr, take: &dyn Fn());
    /// The member of this host that had an auxiliary address has gone.
    fn gone(&self, network: &str, address: Ipv4Addr);
}

/// Where a port belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The network's id.
    pub network: String,
    /// The member's address.
    pub address: Ipv4Addr,
    /// The network's addresses.
    pub ranges: Ranges,
    /// Its auxiliary addresses.
    pub auxiliary: Vec<Ipv4Addr>,
}

/// A network with its members on this host.
#[derive(Debug)]
struct Network {
    id: String,
    members: RwLock<HashMap<Ipv4Addr, Arc<Port>>>,
    /// The holders of auxiliary addresses.
    holders: RwLock<HashMap<Ipv4Addr, Arc<Port>>>,
}

impl Network {
    fn member(&self, address: Ipv4Addr) -> Option<Arc<Port>> {
        read(&self.members).get(&address).cloned()
    }

    fn holder(&self, address: Ipv4Addr) -> Option<Arc<Port>> {
        read(&self.holders).get(&address).cloned()
    }

    /// All ports but one.
    fn all(&self, but: u64) -> Vec<Arc<Port>> {
        read(&self.members).values().filter(|port| port.number != but).cloned().collect()
    }

    /// Hands a frame to the member that has an address. Returns false if none has.
    fn hand(&self, to: Ipv4Addr, frame: &[u8]) -> bool {
        if let Some(port) = self.member(to) {
            port.send(frame);
            return true;
        }
        let Some(port) = self.holder(to).filter(|_| frame::is_ipv4(frame)) else { return false };
        // Its device takes frames for its own ethernet address.
        let own = frame::ethernet(port.address);
        let parts = frame::readdressed(frame, &own).map(io::IoSlice::new);
        let _ = rustix::io::retry_on_intr(|| rustix::io::writev(&*port.device, &parts));
        true
    }
}

/// A member's line.
#[derive(Debug)]
struct Port {
    number: u64,
    network: Arc<Network>,
    address: Ipv4Addr,
    ranges: Ranges,
    auxiliary: Vec<Ipv4Addr>,
    device: Arc<OwnedFd>,
    /// Locked by who reads the device, until what was read is forwarded.
    reading: Mutex<()>,
    failures: AtomicU64,
    /// The way out, if it leads from here.
    gate: OnceLock<Arc<Gate>>,
}

impl Port {
    /// Hands a frame to the member, unless its device takes none now.
    fn send(&self, frame: &[u8]) {
        let _ = rustix::io::retry_on_intr(|| rustix::io::write(&*self.device, frame));
    }

    /// The address for which a frame of this port speaks: an auxiliary one that it has, or its own.
    fn speaks_as(&self, frame: &[u8]) -> Ipv4Addr {
        if self.auxiliary.is_empty() {
            return self.address;
        }
        let is_its = |from: &Ipv4Addr| {
            let holder = self.network.holder(*from);
            holder.is_some_and(|holder| holder.number == self.number)
        };
        frame::speaker(frame).filter(is_its).unwrap_or(self.address)
    }
}

/// What is left at a port after its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// No frame now.
    Nothing,
    /// Perhaps frames.
    More,
    /// It is of no use any more.
    NoDevice,
}

/// The switch of a host.
pub struct Switch {
    epoll: OwnedFd,
    ports: RwLock<HashMap<u64, Arc<Port>>>,
    networks: RwLock<HashMap<String, Arc<Network>>>,
    last: AtomicU64,
    uplink: OnceLock<Box<dyn Uplink>>,
    outside: Mutex<Option<Arc<Outside>>>,
}

impl std::fmt::Debug for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Switch").field("ports", &self.ports).finish_non_exhaustive()
    }
}

impl Switch {
    /// One without ports, whose threads run as long as the process.
    ///
    /// # Errors
    /// Those of epoll(7) and of making threads.
    pub fn start() -> io::Result<Arc<Self>> {
        let switch = Arc::new(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            ports: RwLock::default(),
            networks: RwLock::default(),
            last: AtomicU64::new(0),
            uplink: OnceLock::new(),
            outside: Mutex::default(),
        });
        let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        for _ in 0..processors.clamp(2, THREADS) {
            let switch = Arc::clone(&switch);
            std::thread::Builder::new().stack_size(STACK).spawn(move || switch.work())?;
        }
        Ok(switch)
    }

    /// Connects other hosts; once.
    pub fn set_uplink(&self, uplink: Box<dyn Uplink>) {
        let _ = self.uplink.set(uplink);
    }

    /// Adds a port; its number. It takes the place of another one with the same address.
    ///
    /// # Errors
    /// Those of epoll(7): the descriptor is none of a device.
    pub fn add(&self, place: Place, device: OwnedFd) -> io::Result<u64> {
        let Place { network, address, ranges, auxiliary } = place;
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let failures = AtomicU64::new(0);
        // Locked until the member is in it: an empty one is removed.
        let mut networks = write(&self.networks);
        let new = || {
            let (members, holders) = (RwLock::default(), RwLock::default());
            Arc::new(Network { id: network.clone(), members, holders })
        };
        let network = Arc::clone(networks.entry(network.clone()).or_insert_with(new));
        let (device, gate) = (Arc::new(device), OnceLock::new());
        let reading = Mutex::default();
        let port =
            Port { number, network, address, ranges, auxiliary, device, reading, failures, gate };
        let port = Arc::new(port);
        write(&self.ports).insert(number, Arc::clone(&port));
        write(&port.network.members).insert(address, Arc::clone(&port));
        drop(networks);
        let added = epoll::add(&self.epoll, &*port.device, EventData::new_u64(number), WANTED);
        if added.is_err() {
            self.remove(number);
        }
        added?;
        Ok(number)
    }

    /// Leads a member out of its network by its port, for as long as that is there.
    ///
    /// # Errors
    /// Those of making a thread, and of epoll(7): a socket that is none.
    pub fn lead_out(&self, number: u64, way: Way) -> io::Result<()> {
        let Some(port) = read(&self.ports).get(&number).cloned() else { return Ok(()) };
        let mut outside = lock(&self.outside);
        let outside = match &mut *outside {
            Some(outside) => outside,
            none => none.insert(Outside::start()?),
        };
        let _ = port.gate.set(outside.open(&port.device, port.address, way)?);
        Ok(())
    }

    /// Removes the port of a member that has ended, after what it has sent.
    pub fn finish(&self, number: u64) {
        let Some(port) = read(&self.ports).get(&number).cloned() else { return };
        let mut buffer = vec![0; frame::LONGEST];
        for _ in 0..LAST / TURN {
            if self.drain(&port, &mut buffer) != Left::More {
                break;
            }
        }
        self.remove(number);
    }

    /// Removes a port, if it is still there.
    pub fn remove(&self, number: u64) {
        let Some(port) = write(&self.ports).remove(&number) else { return };
        // The device may be open elsewhere, so the kernel does not do it.
        let _ = epoll::delete(&self.epoll, &*port.device);
        if let Some(gate) = port.gate.get() {
            gate.close();
        }
        self.release(&port);
        let mut networks = write(&self.networks);
        let mut members = write(&port.network.members);
        if members.get(&port.address).is_some_and(|there| there.number == number) {
            members.remove(&port.address);
        }
        if members.is_empty() {
            networks.remove(&port.network.id);
        }
    }

    /// Takes the auxiliary addresses from a port that has been removed.
    fn release(&self, port: &Port) {
        let mut holders = write(&port.network.holders);
        let its = holders.extract_if(|_, holder| holder.number == port.number);
        let its: Vec<Ipv4Addr> = its.map(|(address, _)| address).collect();
        drop(holders);
        let Some(uplink) = self.uplink.get() else { return };
        for address in its {
            uplink.gone(&port.network.id, address);
        }
    }

    /// The auxiliary addresses that members of this host have in a network.
    pub fn held(&self, network: &str) -> Vec<Ipv4Addr> {
        let network = read(&self.networks).get(network).cloned();
        network.map(|network| read(&network.holders).keys().copied().collect()).unwrap_or_default()
    }

    /// A member of another host has announced an auxiliary address: no one here has it any more.
    pub fn lost(&self, network: &str, address: Ipv4Addr) {
        if let Some(network) = read(&self.networks).get(network).cloned() {
            write(&network.holders).remove(&address);
        }
    }

    /// How many ports there are.
    pub fn len(&self) -> usize {
        read(&self.ports).len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hands a frame with its header that came from another host to the member with its
    /// destination, or to all members.
    pub fn deliver(&self, network: &str, ranges: &Ranges, bytes: &[u8]) {
        let found = read(&self.networks).get(network).cloned();
        let sender = frame::sender(bytes, ranges.prefix);
        let (Some(network), Some(sender)) = (found, sender) else { return };
        match frame::route(bytes, ranges, sender) {
            Route::Member(to) => {
                network.hand(to, bytes);
            }
            Route::All => {
                for port in network.all(0) {
                    port.send(bytes);
                }
            }
            Route::Question(_) | Route::Outside | Route::Nowhere => {}
        }
    }

    /// What a thread does.
    fn work(&self) {
        let mut buffer = vec![0; frame::LONGEST];
        loop {
            // One at a time, so that the other threads take the others.
            let mut events = Vec::with_capacity(1);
            let waited = epoll::wait(&self.epoll, spare_capacity(&mut events), None);
            if waited.is_err() {
                continue;
            }
            for event in events {
                let number = event.data.u64();
                let Some(port) = read(&self.ports).get(&number).cloned() else { continue };
                if self.drain(&port, &mut buffer) == Left::NoDevice {
                    self.remove(number);
                } else {
                    let data = EventData::new_u64(number);
                    let _ = epoll::modify(&self.epoll, &*port.device, data, WANTED);
                }
            }
        }
    }

    /// Forwards what a port has, up to [`TURN`] frames.
    fn drain(&self, port: &Arc<Port>, buffer: &mut [u8]) -> Left {
        let _turn = lock(&port.reading);
        for _ in 0..TURN {
            match rustix::io::read(&*port.device, &mut *buffer) {
                // A socket whose other end is closed.
                Ok(0) => return Left::NoDevice,
                Ok(length) => {
                    port.failures.store(0, Ordering::Relaxed);
                    self.forward(port, &buffer[..length]);
                }
                Err(Errno::AGAIN) => return Left::Nothing,
                Err(Errno::INTR) => {}
                // The device has gone with its namespace.
                Err(Errno::BADFD | Errno::NETDOWN | Errno::NXIO | Errno::NODEV | Errno::FAULT) => {
                    return Left::NoDevice;
                }
                // A frame that its header cannot describe.
                Err(_) => {
                    let before = port.failures.fetch_add(1, Ordering::Relaxed);
                    if before > u64::from(FAILURES) {
                        return Left::NoDevice;
                    }
                }
            }
        }
        Left::More
    }

    /// A member has announced an address: it has it now, if it is an auxiliary one. Whether it is.
    fn announce(&self, port: &Arc<Port>, address: Ipv4Addr) -> bool {
        if !port.auxiliary.contains(&address) {
            return false;
        }
        let take = || drop(write(&port.network.holders).insert(address, Arc::clone(port)));
        match self.uplink.get() {
            Some(uplink) => uplink.announced(&port.network.id, address, &take),
            None => take(),
        }
        // It may have been removed meanwhile.
        if !read(&self.ports).contains_key(&port.number) {
            self.release(port);
        }
        true
    }

    fn forward(&self, port: &Arc<Port>, bytes: &[u8]) {
        let (network, uplink) = (&port.network, self.uplink.get());
        if let Some(address) = frame::announced(bytes)
            && self.announce(port, address)
        {
            return;
        }
        let sender = port.speaks_as(bytes);
        // Only a member's own address leads out.
        let gate = port.gate.get().filter(|_| sender == port.address);
        let gate_at = |address| gate.filter(|gate| gate.gateway == address);
        match frame::route(bytes, &port.ranges, sender) {
            // The gateway has no IPv6 address: nothing of IPv6 leads out.
            Route::Member(to)
                if let Some(gate) = gate_at(to)
                    && frame::is_ipv4(bytes) =>
            {
                gate.take(bytes);
            }
            Route::Outside => {
                if let Some(gate) = gate {
                    gate.take(bytes);
                }
            }
            Route::Member(to) => {
                if let (false, Some(uplink)) = (network.hand(to, bytes), uplink) {
                    uplink.carry(&network.id, Some(to), bytes);
                }
            }
            Route::All => {
                for other in network.all(port.number) {
                    other.send(bytes);
                }
                if let Some(uplink) = uplink {
                    uplink.carry(&network.id, None, bytes);
                }
            }
            Route::Question(asked) => {
                let is_elsewhere = || uplink.is_some_and(|uplink| uplink.has(&network.id, asked));
                let is_arp = frame::is_arp(bytes);
                let is_gateway = is_arp && gate_at(asked).is_some();
                let is_here = || network.member(asked).or_else(|| network.holder(asked)).is_some();
                // There are no auxiliary addresses of IPv6.
                let may_be = is_arp || !port.auxiliary.contains(&asked);
                if (is_gateway || may_be && (is_here() || is_elsewhere()))
                    && let Some(answer) = frame::answer(bytes, asked, port.address)
                {
                    port.send(&answer);
                }
            }
            Route::Nowhere => {}
        }
    }
}

/// What a port is waited for: frames, and until it has been read by one thread.
const WANTED: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);
