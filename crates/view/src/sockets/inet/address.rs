//! What an address of a guest means, and how one is written.

use super::Network;
use abi::network::{AGENT, DOMAIN, NAME_SERVER, Slot, ports::LOOPBACK6};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
/// `sizeof(struct sockaddr_in)`.
pub const SHORTEST: usize = 16;
/// The least length of `struct sockaddr_in6` that the kernel takes: without `sin6_scope_id`.
const SIZE6_MIN: usize = 24;
/// `sizeof(struct sockaddr_in6)`: no address is longer.
pub const LONGEST: usize = 28;

/// Reads a `struct sockaddr_in` or `sockaddr_in6`. `None` if it is of another family, or too short
/// for the kernel.
pub fn given(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_le_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    match family {
        AF_INET if bytes.len() >= SHORTEST => {
            let address: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(SocketAddrV4::new(address.into(), port).into())
        }
        AF_INET6 if bytes.len() >= SIZE6_MIN => {
            let address: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let flow = u32::from_be_bytes(bytes.get(4..8)?.try_into().ok()?);
            let scope = bytes.get(24..28).and_then(|bytes| bytes.try_into().ok());
            let scope = scope.map_or(0, u32::from_le_bytes);
            Some(SocketAddrV6::new(address.into(), port, flow, scope).into())
        }
        _ => None,
    }
}

/// Makes an address of `AF_UNSPEC` one of IPv4, which the kernel takes it for: `bind` only if it is
/// that of all (`__inet_bind`), and `sendto` any (`udp_sendmsg`).
pub fn specify(bytes: &mut [u8], only_all: bool) {
    let is_all = bytes.get(4..8).is_some_and(|address| address == [0; 4]);
    if let Some(family @ [0, 0]) = bytes.first_chunk_mut()
        && (is_all || !only_all)
    {
        *family = AF_INET.to_le_bytes();
    }
}

/// Writes it; returns the length.
pub fn spell(address: SocketAddr, into: &mut [u8; LONGEST]) -> usize {
    *into = [0; LONGEST];
    into[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(address) => {
            into[..2].copy_from_slice(&AF_INET.to_le_bytes());
            into[4..8].copy_from_slice(&address.ip().octets());
            SHORTEST
        }
        SocketAddr::V6(address) => {
            into[..2].copy_from_slice(&AF_INET6.to_le_bytes());
            into[4..8].copy_from_slice(&address.flowinfo().to_be_bytes());
            into[8..24].copy_from_slice(&address.ip().octets());
            into[24..].copy_from_slice(&address.scope_id().to_le_bytes());
            LONGEST
        }
    }
}

/// An address of a container in the form in which the table has it: IPv4, with [`LOOPBACK6`] for
/// `::1` and 0.0.0.0 for all. `None` for any other IPv6 address.
pub(super) fn narrow(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        // As an IPv4 address this would be one of "this network", which no program can use.
        IpAddr::V4(LOOPBACK6) => None,
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Some(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => Some(LOOPBACK6),
        IpAddr::V6(address) => address.to_ipv4_mapped(),
    }
}

/// A real address, which is one of IPv4. `None` for one of IPv6.
pub(super) fn old(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Some(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(address) => address.to_ipv4_mapped(),
    }
}

/// An IPv4 address in the family of a socket.
pub(super) fn in_family(address: Ipv4Addr, port: u16, six: bool) -> SocketAddr {
    if six { (address.to_ipv6_mapped(), port).into() } else { (address, port).into() }
}

/// Where an address leads that a guest wants to reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    /// To a container, which has this address (in the table's form).
    Member(Slot, Ipv4Addr),
    /// To a container of another host, in the network with this number, if there is one.
    Far(u16, Ipv4Addr),
    /// To nobody, in a network of the container.
    Nobody,
    /// Out of the container's networks.
    Outside,
}

impl Destination {
    /// Finds it.
    pub(super) fn of(network: &Network<'_>, address: SocketAddr) -> Self {
        let Some(narrow) = narrow(address.ip()) else { return Self::Outside };
        if address.port() == DOMAIN && narrow == NAME_SERVER {
            return Self::Member(AGENT, narrow);
        }
        if address.port() == DOMAIN && network.table.is_resolver(narrow) {
            return Self::Outside;
        }
        if narrow == LOOPBACK6 || narrow.is_loopback() {
            return Self::Member(network.slot, narrow);
        }
        if narrow.is_unspecified() {
            // To all addresses means to oneself: see ip(7).
            let six = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
            let local = if six { LOOPBACK6 } else { Ipv4Addr::LOCALHOST };
            return Self::Member(network.slot, local);
        }
        let members = network.table.members();
        for membership in members.memberships(network.slot) {
            if membership.address == narrow {
                return Self::Member(network.slot, narrow);
            }
            if membership.has(narrow) {
                return match members.find(membership.network, narrow) {
                    Some(slot) => Self::Member(slot, narrow),
                    None if membership.cluster => Self::Far(membership.network, narrow),
                    None => Self::Nobody,
                };
            }
        }
        Self::Outside
    }
}
