//! Packets without connections through a gate: datagrams of UDP, and echoes of ICMP where the host
//! lets its users send them (`net.ipv4.ping_group_range`).

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, ipproto, recv, send,
    sendto, socket_with,
};
use smoltcp::wire::{Icmpv4DstUnreachable, IpProtocol};

use super::key::{Key, Protocol};
use super::line::Line;

/// One is given up when nothing has come or gone for so long.
const IDLE: Duration = Duration::from_mins(3);
/// So many packets of one are taken before others have their turn.
const TURN: usize = 32;
/// A little more than the largest datagram.
const LARGEST: usize = 64 << 10;

/// Packets of one port of the container and one of another address.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) key: Key,
    pub(super) via: Via,
    pub(super) used: Instant,
}

/// How a flow's packets leave the host.
#[derive(Debug)]
pub(super) enum Via {
    /// Through a socket of its own, which is connected.
    Own(OwnedFd),
    /// Through the socket with this number, which publishes a port, to this client.
    Published(u32, SocketAddr),
}

/// A socket that is connected to the other side of a flow.
pub(super) fn socket(key: &Key) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = (key.protocol == Protocol::Echo).then_some(ipproto::ICMP);
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, protocol)?;
    connect(&socket, &key.other)?;
    Ok(socket)
}

/// Why a packet cannot be delivered, in ICMP's words.
pub(super) fn reason(errno: Errno) -> Option<Icmpv4DstUnreachable> {
    match errno {
        Errno::CONNREFUSED => Some(Icmpv4DstUnreachable::PortUnreachable),
        Errno::NETUNREACH => Some(Icmpv4DstUnreachable::NetUnreachable),
        Errno::HOSTUNREACH | Errno::TIMEDOUT => Some(Icmpv4DstUnreachable::HostUnreachable),
        Errno::ACCESS | Errno::PERM => Some(Icmpv4DstUnreachable::HostProhibited),
        _ => None,
    }
}

/// Tells the container that a datagram from its port did not arrive.
pub(super) fn lost(line: &mut Line, key: &Key, reason: Icmpv4DstUnreachable) {
    if key.protocol == Protocol::Udp {
        // Ports, length and checksum: the kernel looks for the socket by the ports.
        let mut data = [0; 8];
        data[..2].copy_from_slice(&key.port.to_be_bytes());
        data[2..4].copy_from_slice(&key.other.port().to_be_bytes());
        data[4..6].copy_from_slice(&8_u16.to_be_bytes());
        line.unreachable(reason, (*key.other.ip(), IpProtocol::Udp), &data);
    }
}

impl Flow {
    pub(super) fn is_idle(&self) -> bool {
        self.used.elapsed() > IDLE
    }

    /// Sends a packet of the container. `published`: the socket of [`Via::Published`].
    pub(super) fn send(&mut self, line: &mut Line, published: Option<&OwnedFd>, payload: &[u8]) {
        self.used = Instant::now();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let socket = match (&self.via, published) {
            (Via::Own(socket), _) => socket,
            (Via::Published(_, client), Some(socket)) => {
                let _ = sendto(socket, payload, flags, client);
                return;
            }
            (Via::Published(..), None) => return,
        };
        if let Err(errno) = send(socket, payload, flags)
            && let Some(reason) = reason(errno)
        {
            lost(line, &self.key, reason);
            // It was an answer to one before.
            if errno == Errno::CONNREFUSED {
                let _ = send(socket, payload, flags);
            }
        }
    }

    /// Hands the container what has come.
    pub(super) fn receive(&mut self, line: &mut Line) {
        let Via::Own(socket) = &self.via else { return };
        self.used = Instant::now();
        let mut payload = vec![0; LARGEST];
        for _ in 0..TURN {
            let length = match recv(socket, &mut payload[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) => length,
                Err(errno) => {
                    if let Some(reason) = reason(errno) {
                        lost(line, &self.key, reason);
                    }
                    return;
                }
            };
            deliver(line, &self.key, &payload[..length]);
        }
    }
}

/// Hands the container a packet of the other side of a flow.
pub(super) fn deliver(line: &mut Line, key: &Key, payload: &[u8]) {
    let (from, port): (Ipv4Addr, u16) = (*key.other.ip(), key.other.port());
    match key.protocol {
        Protocol::Udp => line.datagram((from, port), key.port, payload),
        // Type, code, checksum, number and count come before what was sent.
        Protocol::Echo if payload.len() >= 8 => line.echo(from, key.port, payload),
        Protocol::Echo | Protocol::Tcp => {}
    }
}

/// The IPv4 address of a client, which may be written in IPv6's form.
pub(super) fn client(from: SocketAddr) -> Option<SocketAddrV4> {
    match from {
        SocketAddr::V4(from) => Some(from),
        SocketAddr::V6(from) => {
            from.ip().to_ipv4_mapped().map(|address| SocketAddrV4::new(address, from.port()))
        }
    }
}
