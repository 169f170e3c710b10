//! A connection of TCP through a gate: `smoltcp` on the container's side, a socket on the host's.
//!
//! Each has an interface of its own with the other side's address, so a packet finds its connection
//! by a table and not by a search, and any address can be the other side's. Bytes go from the
//! window of one side to the buffer of the other, and are read only if there is room; so a slow
//! side holds up the other one by TCP's own means. The ends of the two directions are passed on one
//! by one, and what is neither ended nor alive is reset on the other side.
//!
//! The host's socket is waited for by edges: what it was ready for is remembered until it says that
//! it would block.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown, sockopt};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpCidr, IpEndpoint};

use super::line::{Line, Pipe, now};

/// Buffer in bytes for what goes to the container: some packets, so that both sides work at the
/// same time. Memory that was never needed is not there.
const OUTGOING: usize = 512 << 10;
/// For what comes from it. It is not allowed to send more at once, so that its packets have room in
/// the buffer of a packet socket of usual size (`net.core.rmem_max`): lost answers cost a second.
const INCOMING: usize = 256 << 10;
/// How long a container may take to answer a connection to a published port.
const PATIENCE: Duration = Duration::from_secs(30);

/// One connection.
pub(super) struct Stream {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    host: OwnedFd,
    /// The container's first packet, as long as the host's connection is being made.
    asks: Option<Vec<u8>>,
    ready: Ready,
    /// The host's side has ended its direction.
    host_ended: bool,
    /// The container's side has.
    member_ended: bool,
    /// That was passed on.
    shut: bool,
    /// When it has something to do that nobody causes.
    pub(super) due: Option<Instant>,
}

/// What the host's socket was ready for, and has not been found to be any more.
#[derive(Default)]
struct Ready {
    read: bool,
    write: bool,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("host", &self.host).finish_non_exhaustive()
    }
}

/// An interface that is the other side.
fn interface(line: &mut Line, other: Ipv4Addr) -> Interface {
    let mut config = Config::new(HardwareAddress::Ip);
    let mut seed = [0; 8];
    // Numbers that nobody outside this host sees.
    let _ = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
    config.random_seed = u64::from_ne_bytes(seed);
    let mut interface = Interface::new(config, &mut Pipe { packet: None, line }, now());
    // All addresses are at the other end of the line.
    interface.update_ip_addrs(|all| {
        let _ = all.push(IpCidr::new(other.into(), 0));
    });
    interface
}

/// Answers a packet of no connection as a host does: with a reset.
pub(super) fn refuse(line: &mut Line, other: Ipv4Addr, packet: &[u8]) {
    let mut interface = interface(line, other);
    let mut none = SocketSet::new(Vec::new());
    interface.poll(now(), &mut Pipe { packet: Some(packet), line }, &mut none);
}

impl Stream {
    fn new(line: &mut Line, host: OwnedFd, other: Ipv4Addr, asks: Option<Vec<u8>>) -> Self {
        let buffer = |size| SocketBuffer::new(vec![0; size]);
        let mut socket = Socket::new(buffer(INCOMING), buffer(OUTGOING));
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        let interface = interface(line, other);
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket);
        Self {
            interface,
            sockets,
            handle,
            host,
            asks,
            ready: Ready::default(),
            host_ended: false,
            member_ended: false,
            shut: false,
            due: None,
        }
    }

    /// One that the container has begun with this packet, and the host's socket connects.
    pub(super) fn outward(line: &mut Line, host: OwnedFd, to: SocketAddrV4, asks: &[u8]) -> Self {
        let mut stream = Self::new(line, host, *to.ip(), Some(asks.to_vec()));
        let socket = stream.sockets.get_mut::<Socket<'_>>(stream.handle);
        // It fails for port 0 only, and then nothing is answered.
        let _ = socket.listen(IpEndpoint::new((*to.ip()).into(), to.port()));
        stream
    }

    /// One of a client of the host, which the container sees at this address.
    pub(super) fn inward(line: &mut Line, host: OwnedFd, from: SocketAddrV4, port: u16) -> Self {
        let mut stream = Self::new(line, host, *from.ip(), None);
        let socket = stream.sockets.get_mut::<Socket<'_>>(stream.handle);
        socket.set_timeout(Some(PATIENCE));
        let (member, client) = (
            IpEndpoint::new(line.member.into(), port),
            IpEndpoint::new((*from.ip()).into(), from.port()),
        );
        // It fails for port 0 only: then the stream is closed.
        let _ = socket.connect(stream.interface.context(), member, client);
        stream
    }

    /// The container's first packet, if the host's connection is being made.
    pub(super) fn asks(&self) -> Option<&[u8]> {
        self.asks.as_deref()
    }

    /// What has become of the host's connection.
    pub(super) fn outcome(&self) -> Result<(), Errno> {
        sockopt::socket_error(&self.host).and_then(|outcome| outcome)
    }

    /// The host's connection is made: the container's is accepted. Whether it lives on.
    pub(super) fn accept(&mut self, line: &mut Line) -> bool {
        let asks = self.asks.take();
        self.run(line, asks.as_deref())
    }

    /// What the host's socket is ready for.
    pub(super) fn ready(&mut self, readable: bool, writable: bool) {
        self.ready.read |= readable;
        self.ready.write |= writable;
    }

    /// Carries what can be carried, with a packet of the container if one has come. Whether the
    /// connection lives on.
    pub(super) fn run(&mut self, line: &mut Line, packet: Option<&[u8]>) -> bool {
        let mut packet = packet;
        loop {
            let mut pipe = Pipe { packet: packet.take(), line };
            self.interface.poll(now(), &mut pipe, &mut self.sockets);
            let socket = self.sockets.get_mut::<Socket<'_>>(self.handle);
            if socket.state() != State::SynSent {
                socket.set_timeout(None);
            }
            match self.carry() {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => {
                    self.sockets.get_mut::<Socket<'_>>(self.handle).abort();
                    let mut pipe = Pipe { packet: None, line };
                    self.interface.poll(now(), &mut pipe, &mut self.sockets);
                    return false;
                }
            }
        }
        if self.has_ended() {
            if !(self.host_ended && self.shut) {
                // The container's side was reset, and so is the other one when it is closed.
                let at_once = Some(std::time::Duration::ZERO);
                let _ = sockopt::set_socket_linger(&self.host, at_once);
            }
            return false;
        }
        self.due = self.interface.poll_at(now(), &self.sockets);
        true
    }

    fn has_ended(&mut self) -> bool {
        let socket = self.sockets.get_mut::<Socket<'_>>(self.handle);
        let is_over = matches!(socket.state(), State::Closed | State::Listen | State::TimeWait);
        // What the container has sent before its end still goes out.
        is_over && (self.shut || !self.member_ended)
    }

    /// Moves bytes and ends in both directions; whether there were any.
    fn carry(&mut self) -> Result<bool, Errno> {
        let Self { host, .. } = self;
        let socket = self.sockets.get_mut::<Socket<'_>>(self.handle);
        let mut moved = false;
        while self.ready.write && socket.can_recv() {
            let write = |bytes: &mut [u8]| match rustix::io::write(&*host, bytes) {
                Ok(count) => (count, Ok(count)),
                Err(errno) => (0, Err(errno)),
            };
            match socket.recv(write) {
                Ok(Ok(count)) => moved |= count > 0,
                Ok(Err(Errno::AGAIN)) => self.ready.write = false,
                Ok(Err(Errno::INTR)) => {}
                Ok(Err(errno)) => return Err(errno),
                Err(_) => break,
            }
        }
        self.member_ended |= matches!(
            socket.state(),
            State::CloseWait | State::LastAck | State::Closing | State::TimeWait
        );
        if self.member_ended && !self.shut && !socket.can_recv() {
            let _ = shutdown(&*host, Shutdown::Write);
            (self.shut, moved) = (true, true);
        }
        while self.ready.read && socket.can_send() && !self.host_ended {
            let read = |room: &mut [u8]| match rustix::io::read(&*host, room) {
                Ok(count) => (count, Ok(count)),
                Err(errno) => (0, Err(errno)),
            };
            match socket.send(read) {
                Ok(Ok(0)) => {
                    socket.close();
                    (self.host_ended, moved) = (true, true);
                }
                Ok(Ok(_)) => moved = true,
                Ok(Err(Errno::AGAIN)) => self.ready.read = false,
                Ok(Err(Errno::INTR)) => {}
                Ok(Err(errno)) => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(moved)
    }
}
