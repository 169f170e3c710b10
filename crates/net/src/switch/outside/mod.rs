//! Leads members of networks to the outside without a device of the kernel's: connections of TCP,
//! datagrams of UDP and echoes of ICMP are carried over ordinary sockets of the host.
//!
//! It is the way out where neither pasta nor slirp4netns can run. A container has one [`Gate`],
//! which takes the packets that the container sends to addresses outside its networks, and answers
//! for the gateway's address.
//!
//! - **TCP** ends here: `smoltcp` speaks it with the container, and the host's kernel with the
//!   other side ([`stream`]). A connection is accepted when the host's is made, and refused when
//!   that is. What one side does not take stays in the other side's buffers.
//! - **UDP** and **echoes** are carried packet by packet ([`flow`]).
//! - **Published ports** are listening sockets that come with the container's devices. The service
//!   sees the client's IPv4 address, or the gateway's where the container could not answer that
//!   one: loopback, IPv6, an address of its own networks.
//!
//! Packets of the container are worked on by the thread of the switch that has read them, under the
//! lock of its gate. One more thread, for all gates, waits for the host's sockets and for timers.
//! No other lock is taken under that of a gate.
//!
//! Everything is bounded ([`gate`]): connections that are too many are refused, and a flow that is
//! too many takes the place of the one that was idle for the longest time.

mod flow;
mod gate;
mod key;
mod line;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use crate::locks::lock;
use crate::subnet::Subnet;
use gate::State;
use line::Line;

/// How late a timer of TCP may be.
const TICK: Duration = Duration::from_millis(50);
/// Between two looks for flows that are idle.
const SWEEP: Duration = Duration::from_secs(10);
/// The number of the bell among what is waited for. Others are a gate's number, times 2^32, and
/// that of a socket.
const BELL: u64 = 0;
/// Stack of the thread in bytes.
const STACK: usize = 256 << 10;

/// What a container's way out is.
#[derive(Debug)]
pub struct Way {
    /// The address by which the container sends to the outside.
    pub gateway: Ipv4Addr,
    /// The networks in which it is. Nothing in them is outside.
    pub near: Vec<Subnet>,
    /// Ports of the host that lead to it.
    pub published: Vec<Published>,
}

/// A port of the host that leads to a container.
#[derive(Debug)]
pub struct Published {
    /// A bound UDP socket or a TCP listener, which do not block.
    pub socket: OwnedFd,
    /// Which of them it is.
    pub udp: bool,
    /// The port of the container.
    pub inside: u16,
}

/// One container's way out.
#[derive(Debug)]
pub(super) struct Gate {
    number: u32,
    pub(super) gateway: Ipv4Addr,
    outside: Arc<Outside>,
    state: Mutex<State>,
    /// A timer runs.
    ticking: AtomicBool,
}

/// The thread for all ways out of a host, and what it waits for.
#[derive(Debug)]
pub(super) struct Outside {
    epoll: OwnedFd,
    bell: OwnedFd,
    /// The thread waits for sockets only, so it has to be told of a timer.
    asleep: AtomicBool,
    gates: Mutex<(HashMap<u32, Arc<Gate>>, u32)>,
}

impl Outside {
    /// One without gates, whose thread runs as long as the process.
    pub(super) fn start() -> io::Result<Arc<Self>> {
        let outside = Arc::new(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            asleep: AtomicBool::new(false),
            gates: Mutex::default(),
        });
        epoll::add(&outside.epoll, &outside.bell, EventData::new_u64(BELL), EventFlags::IN)?;
        let thread = Arc::clone(&outside);
        std::thread::Builder::new().stack_size(STACK).spawn(move || thread.work())?;
        Ok(outside)
    }

    /// Opens a gate for the container that has an address at a device.
    pub(super) fn open(
        self: &Arc<Self>,
        device: &Arc<OwnedFd>,
        address: Ipv4Addr,
        way: Way,
    ) -> io::Result<Arc<Gate>> {
        let gateway = way.gateway;
        let line = Line::new(Arc::clone(device), address, gateway);
        let mut gates = lock(&self.gates);
        gates.1 += 1;
        let number = gates.1;
        let mut state = State::new(line, way.near);
        let waiting = Waiting { epoll: &self.epoll, gate: number };
        if let Err(error) = state.publish(&waiting, way.published) {
            state.close(&waiting);
            return Err(error);
        }
        let gate = Arc::new(Gate {
            number,
            gateway,
            outside: Arc::clone(self),
            state: Mutex::new(state),
            ticking: AtomicBool::new(false),
        });
        gates.0.insert(number, Arc::clone(&gate));
        Ok(gate)
    }

    /// What the thread does.
    fn work(&self) {
        let mut events = Vec::with_capacity(64);
        let mut looked = Instant::now();
        loop {
            self.asleep.store(true, Ordering::SeqCst);
            let gates: Vec<_> = lock(&self.gates).0.values().cloned().collect();
            let ticks = gates.iter().any(|gate| gate.ticking.load(Ordering::SeqCst));
            self.asleep.store(!ticks, Ordering::SeqCst);
            let limit = if ticks { TICK } else { SWEEP };
            let limit = Some(limit).filter(|_| !gates.is_empty());
            drop(gates);
            let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
            events.clear();
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), limit.as_ref());
            self.asleep.store(false, Ordering::SeqCst);
            for event in &events {
                self.handle(event.data.u64(), event.flags);
            }
            if looked.elapsed() >= TICK {
                looked = Instant::now();
                let gates: Vec<_> = lock(&self.gates).0.values().cloned().collect();
                for gate in gates {
                    gate.with(|state, _| state.tick());
                }
            }
        }
    }

    fn handle(&self, key: u64, flags: EventFlags) {
        if key == BELL {
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
            return;
        }
        let (number, socket) = ((key >> 32) as u32, key as u32);
        let gate = lock(&self.gates).0.get(&number).cloned();
        if let Some(gate) = gate {
            gate.with(|state, waiting| state.event(waiting, socket, flags));
        }
    }
}

impl Gate {
    /// Takes a frame with its header that the container has sent outside or to the gateway.
    pub(super) fn take(&self, frame: &[u8]) {
        self.with(|state, waiting| state.take(waiting, frame));
    }

    fn with(&self, work: impl FnOnce(&mut State, &Waiting<'_>)) {
        let waiting = Waiting { epoll: &self.outside.epoll, gate: self.number };
        let mut state = lock(&self.state);
        work(&mut state, &waiting);
        let ticks = state.has_timers();
        self.ticking.store(ticks, Ordering::SeqCst);
        drop(state);
        if ticks && self.outside.asleep.swap(false, Ordering::SeqCst) {
            let _ = rustix::io::write(&self.outside.bell, &1_u64.to_ne_bytes());
        }
    }

    /// Closes it, with all connections.
    pub(super) fn close(&self) {
        lock(&self.outside.gates).0.remove(&self.number);
        self.with(State::close);
    }
}

/// Where sockets of a gate are waited for.
#[derive(Debug)]
struct Waiting<'a> {
    epoll: &'a OwnedFd,
    gate: u32,
}

impl Waiting<'_> {
    fn add(&self, socket: &OwnedFd, number: u32, flags: EventFlags) -> io::Result<()> {
        let data = EventData::new_u64(u64::from(self.gate) << 32 | u64::from(number));
        Ok(epoll::add(self.epoll, socket, data, flags)?)
    }

    /// For sockets that are open elsewhere too; of others the kernel does it.
    fn forget(&self, socket: &OwnedFd) {
        let _ = epoll::delete(self.epoll, socket);
    }
}
