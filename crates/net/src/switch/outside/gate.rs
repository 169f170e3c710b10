//! What a gate knows: the connections and flows of one container, and where their packets go.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrAny, SocketFlags, SocketType, accept_with, connect,
    recvfrom, socket_with, sockopt,
};
use smoltcp::wire::{
    Icmpv4DstUnreachable, Icmpv4Message, Icmpv4Packet, IpProtocol, Ipv4Packet, TcpPacket, UdpPacket,
};

use super::super::frame::{ETHERNET, HEADER};
use super::flow::{self, Flow, Via};
use super::key::{Key, Protocol};
use super::line::{self, Line};
use super::stream::{self, Stream};
use super::{Published, Waiting};
use crate::subnet::Subnet;

/// At most so many connections of a container; more are refused.
const STREAMS: usize = 1024;
/// At most so many flows; the one that was idle longest makes room.
const FLOWS: usize = 512;
/// So many clients of a published port are taken before others have their turn.
const TURN: usize = 32;
/// Ports by which clients are told apart that the container sees at the gateway's address.
const EPHEMERAL: u16 = 32768;
/// The connection's socket, whose edges are told.
const EDGES: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

/// A gate's state.
#[derive(Debug)]
pub(super) struct State {
    line: Line,
    near: Vec<Subnet>,
    keys: HashMap<Key, u32>,
    streams: HashMap<u32, (Key, Stream)>,
    flows: HashMap<u32, Flow>,
    published: HashMap<u32, Published>,
    last: u32,
}

impl State {
    pub(super) fn new(line: Line, near: Vec<Subnet>) -> Self {
        Self {
            line,
            near,
            keys: HashMap::new(),
            streams: HashMap::new(),
            flows: HashMap::new(),
            published: HashMap::new(),
            last: 0,
        }
    }

    /// Takes sockets whose clients are led to the container.
    pub(super) fn publish(
        &mut self,
        waiting: &Waiting<'_>,
        published: Vec<Published>,
    ) -> io::Result<()> {
        for one in published {
            let number = self.number();
            waiting.add(&one.socket, number, EventFlags::IN)?;
            self.published.insert(number, one);
        }
        Ok(())
    }

    /// Gives everything up.
    pub(super) fn close(&mut self, waiting: &Waiting<'_>) {
        for (_, one) in self.published.drain() {
            waiting.forget(&one.socket);
        }
        self.keys.clear();
        self.streams.clear();
        self.flows.clear();
    }

    /// Whether a connection waits for a time.
    pub(super) fn has_timers(&self) -> bool {
        self.streams.values().any(|(_, stream)| stream.due.is_some())
    }

    fn number(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            let last = &self.last;
            let is_taken = self.streams.contains_key(last)
                || self.flows.contains_key(last)
                || self.published.contains_key(last);
            if !is_taken {
                return *last;
            }
        }
    }

    /// Takes a frame with its header that the container has sent.
    pub(super) fn take(&mut self, waiting: &Waiting<'_>, frame: &[u8]) {
        let Some(packet) = frame.get(HEADER + ETHERNET..) else { return };
        let Ok(header) = Ipv4Packet::new_checked(packet) else { return };
        // Devices take packets of 64 kB, so there are no parts but of what is larger.
        if header.more_frags() || header.frag_offset() != 0 {
            return;
        }
        let (to, body) = (header.dst_addr(), header.payload());
        match header.next_header() {
            IpProtocol::Tcp => self.segment(waiting, to, packet, body),
            IpProtocol::Udp => {
                let Ok(datagram) = UdpPacket::new_checked(body) else { return };
                let other = SocketAddrV4::new(to, datagram.dst_port());
                let key = Key { protocol: Protocol::Udp, port: datagram.src_port(), other };
                let payload = datagram.payload();
                match line::datagrams(frame) {
                    Some(size) => {
                        payload.chunks(size).for_each(|one| self.datagram(waiting, key, one));
                    }
                    None => self.datagram(waiting, key, payload),
                }
            }
            IpProtocol::Icmp => self.echo(waiting, to, body),
            _ => {}
        }
    }

    /// Whether an address is outside, and may be reached from here. The host's loopback may not.
    fn is_outside(&self, to: Ipv4Addr) -> bool {
        let [first, ..] = to.octets();
        let is_one = !to.is_loopback() && !to.is_multicast() && first != 0 && first < 240;
        is_one && !self.near.iter().any(|subnet| subnet.contains(to))
    }

    fn segment(&mut self, waiting: &Waiting<'_>, to: Ipv4Addr, packet: &[u8], body: &[u8]) {
        let Ok(segment) = TcpPacket::new_checked(body) else { return };
        let other = SocketAddrV4::new(to, segment.dst_port());
        let key = Key { protocol: Protocol::Tcp, port: segment.src_port(), other };
        let Some(&number) = self.keys.get(&key) else {
            let begins = segment.syn() && !segment.ack() && !segment.rst();
            if begins && self.is_outside(to) && other.port() != 0 && self.streams.len() < STREAMS {
                self.begin(waiting, key, packet);
            } else if !segment.rst() && !to.is_multicast() && !to.is_broadcast() {
                stream::refuse(&mut self.line, to, packet);
            }
            return;
        };
        let Some((_, stream)) = self.streams.get_mut(&number) else { return };
        let lives = match stream.asks() {
            // It asks again, or has given up.
            Some(_) => !segment.rst(),
            None => stream.run(&mut self.line, Some(packet)),
        };
        if !lives {
            self.end(number);
        }
    }

    /// Connects where the container wants to.
    fn begin(&mut self, waiting: &Waiting<'_>, key: Key, packet: &[u8]) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let connected =
            socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).and_then(|socket| {
                match connect(&socket, &key.other) {
                    Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
                    Err(errno) => Err(errno),
                }
            });
        let number = self.number();
        let waited = connected.and_then(|socket| {
            let _ = sockopt::set_tcp_nodelay(&socket, true);
            waiting
                .add(&socket, number, EDGES)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))?;
            Ok(socket)
        });
        match waited {
            Ok(socket) => {
                let stream = Stream::outward(&mut self.line, socket, key.other, packet);
                self.keys.insert(key, number);
                self.streams.insert(number, (key, stream));
            }
            Err(errno) => self.fail(&key, errno, packet),
        }
    }

    /// Tells the container that its connection cannot be made.
    fn fail(&mut self, key: &Key, errno: Errno, packet: &[u8]) {
        let to = *key.other.ip();
        let body = Ipv4Packet::new_checked(packet).ok().map(|packet| packet.header_len());
        let data = body.and_then(|at| packet.get(at.into()..)?.get(..8));
        match (flow::reason(errno), data) {
            // That is how TCP says it.
            (Some(Icmpv4DstUnreachable::PortUnreachable) | None, _) | (_, None) => {
                stream::refuse(&mut self.line, to, packet);
            }
            (Some(reason), Some(data)) => {
                self.line.unreachable(reason, (to, IpProtocol::Tcp), data);
            }
        }
    }

    fn end(&mut self, number: u32) {
        let key = match (self.streams.remove(&number), self.flows.remove(&number)) {
            (Some((key, _)), _) => key,
            (None, Some(flow)) => flow.key,
            (None, None) => return,
        };
        self.keys.remove(&key);
    }

    fn datagram(&mut self, waiting: &Waiting<'_>, key: Key, payload: &[u8]) {
        let number = match self.keys.get(&key) {
            Some(number) => *number,
            None if !self.is_outside(*key.other.ip()) || key.other.port() == 0 => {
                flow::lost(&mut self.line, &key, Icmpv4DstUnreachable::PortUnreachable);
                return;
            }
            None => match self.open(waiting, key) {
                Ok(number) => number,
                Err(errno) => {
                    if let Some(reason) = flow::reason(errno) {
                        flow::lost(&mut self.line, &key, reason);
                    }
                    return;
                }
            },
        };
        self.send(number, payload);
    }

    fn send(&mut self, number: u32, payload: &[u8]) {
        let Some(flow) = self.flows.get_mut(&number) else { return };
        let published = match &flow.via {
            Via::Published(number, _) => self.published.get(number),
            Via::Own(_) => None,
        };
        flow.send(&mut self.line, published.map(|one| &one.socket), payload);
    }

    /// Opens a flow to the outside.
    fn open(&mut self, waiting: &Waiting<'_>, key: Key) -> Result<u32, Errno> {
        let socket = flow::socket(&key)?;
        let number = self.number();
        if waiting.add(&socket, number, EventFlags::IN).is_err() {
            return Err(Errno::NOMEM);
        }
        self.put(number, key, Via::Own(socket));
        Ok(number)
    }

    fn put(&mut self, number: u32, key: Key, via: Via) {
        if self.flows.len() >= FLOWS {
            let oldest = self.flows.iter().min_by_key(|(_, flow)| flow.used);
            if let Some(oldest) = oldest.map(|(number, _)| *number) {
                self.end(oldest);
            }
        }
        self.keys.insert(key, number);
        self.flows.insert(number, Flow { key, via, used: Instant::now() });
    }

    fn echo(&mut self, waiting: &Waiting<'_>, to: Ipv4Addr, body: &[u8]) {
        let Ok(message) = Icmpv4Packet::new_checked(body) else { return };
        if message.msg_type() != Icmpv4Message::EchoRequest || message.msg_code() != 0 {
            return;
        }
        let number = message.echo_ident();
        if to == self.line.gateway {
            let mut answer = body.to_vec();
            Icmpv4Packet::new_unchecked(&mut answer).set_msg_type(Icmpv4Message::EchoReply);
            self.line.echo(to, number, &answer);
            return;
        }
        let other = SocketAddrV4::new(to, 0);
        let key = Key { protocol: Protocol::Echo, port: number, other };
        let found = match self.keys.get(&key) {
            Some(number) => Some(*number),
            None if self.is_outside(to) => self.open(waiting, key).ok(),
            None => None,
        };
        if let Some(number) = found {
            self.send(number, body);
        }
    }

    /// Does what a socket of the host is ready for.
    pub(super) fn event(&mut self, waiting: &Waiting<'_>, number: u32, flags: EventFlags) {
        let broken = EventFlags::ERR | EventFlags::HUP;
        if let Some((key, stream)) = self.streams.get_mut(&number) {
            let (key, is_asked) = (*key, stream.asks().is_some());
            if is_asked && !flags.intersects(EventFlags::OUT | broken) {
                return;
            }
            if is_asked && let Err(errno) = stream.outcome() {
                let asks = stream.asks().unwrap_or_default().to_vec();
                self.end(number);
                self.fail(&key, errno, &asks);
                return;
            }
            let readable = EventFlags::IN | EventFlags::RDHUP | broken;
            stream.ready(flags.intersects(readable), flags.intersects(EventFlags::OUT | broken));
            let lives = if is_asked {
                stream.accept(&mut self.line)
            } else {
                stream.run(&mut self.line, None)
            };
            if !lives {
                self.end(number);
            }
        } else if let Some(flow) = self.flows.get_mut(&number) {
            flow.receive(&mut self.line);
        } else {
            match self.published.get(&number).map(|one| one.udp) {
                Some(true) => self.datagrams(number),
                Some(false) => self.clients(waiting, number),
                None => {}
            }
        }
    }

    /// Does what the time has come for.
    pub(super) fn tick(&mut self) {
        let now = line::now();
        let is_due = |stream: &Stream| stream.due.is_some_and(|due| due <= now);
        let due = self.streams.iter().filter(|(_, (_, stream))| is_due(stream));
        let due: Vec<_> = due.map(|(number, _)| *number).collect();
        for number in due {
            let Some((_, stream)) = self.streams.get_mut(&number) else { continue };
            if !stream.run(&mut self.line, None) {
                self.end(number);
            }
        }
        let idle = self.flows.iter().filter(|(_, flow)| flow.is_idle());
        for number in idle.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.end(number);
        }
    }

    /// Leads clients of a published port to the container.
    fn clients(&mut self, waiting: &Waiting<'_>, listener: u32) {
        for _ in 0..TURN {
            let Some(one) = self.published.get(&listener) else { return };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let inside = one.inside;
            let host = match accept_with(&one.socket, flags) {
                Ok(host) => host,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    // It stays ready, and others have to end first.
                    std::thread::sleep(Duration::from_millis(10));
                    return;
                }
                Err(_) => return,
            };
            let from = rustix::net::getpeername(&host).ok().flatten().and_then(socket_address);
            let key = from.and_then(|from| self.seen_as(Protocol::Tcp, inside, from, |_| false));
            let (Some(key), true) = (key, self.streams.len() < STREAMS) else {
                let _ = sockopt::set_socket_linger(&host, Some(Duration::ZERO));
                continue;
            };
            let number = self.number();
            let _ = sockopt::set_tcp_nodelay(&host, true);
            if waiting.add(&host, number, EDGES).is_err() {
                continue;
            }
            let mut stream = Stream::inward(&mut self.line, host, key.other, inside);
            if stream.run(&mut self.line, None) {
                self.keys.insert(key, number);
                self.streams.insert(number, (key, stream));
            }
        }
    }

    /// Leads datagrams to a published port to the container.
    fn datagrams(&mut self, listener: u32) {
        let mut payload = vec![0; 64 << 10];
        for _ in 0..TURN {
            let Some(one) = self.published.get(&listener) else { return };
            let inside = one.inside;
            let Ok((length, _, from)) =
                recvfrom(&one.socket, &mut payload[..], RecvFlags::DONTWAIT)
            else {
                return;
            };
            let Some(from) = from.and_then(socket_address) else { continue };
            let flows = &self.flows;
            let is_its = |number: u32| {
                let via = flows.get(&number).map(|flow| &flow.via);
                matches!(via, Some(Via::Published(by, to)) if *by == listener && *to == from)
            };
            let Some(key) = self.seen_as(Protocol::Udp, inside, from, is_its) else { continue };
            if let Some(flow) = self.keys.get(&key).and_then(|it| self.flows.get_mut(it)) {
                flow.used = Instant::now();
            } else {
                let number = self.number();
                self.put(number, key, Via::Published(listener, from));
            }
            flow::deliver(&mut self.line, &key, &payload[..length]);
        }
    }

    /// As whom the container sees a client: by the client's own address if it can answer that one,
    /// else by the gateway's and a port that tells it from others. `is_its`: a flow with this
    /// number is the client's already.
    fn seen_as(
        &self,
        protocol: Protocol,
        port: u16,
        from: SocketAddr,
        is_its: impl Fn(u32) -> bool,
    ) -> Option<Key> {
        let own = flow::client(from).filter(|from| self.is_outside(*from.ip()));
        let gateway = self.line.gateway;
        let first = from.port().max(1);
        let others = (first..=u16::MAX).chain(EPHEMERAL..first);
        let others = others.map(|port| SocketAddrV4::new(gateway, port));
        let mut keys = own.into_iter().chain(others).map(|other| Key { protocol, port, other });
        keys.find(|key| self.keys.get(key).is_none_or(|number| is_its(*number)))
    }
}

fn socket_address(address: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(address).ok()
}
