//! Addresses that the kernel returns.

use super::address::in_family;
use super::{Network, with_socket};
use crate::CallContext;
use crate::guest::Backend;
use abi::network::{Protocol, Slot, Use, ports::LOOPBACK6};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Whose address it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sockets) enum Role {
    /// That of the socket itself.
    Own,
    /// That of the other side of a connection (`getpeername`).
    Other,
    /// That of who has connected or sent.
    Sender,
}

/// An address as the guest is to see it; `None` if that is what the kernel returned.
pub(in crate::sockets) fn shown<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: Network<'_>,
    (descriptor, role): (u64, Role),
    real: SocketAddr,
) -> Option<SocketAddr> {
    let address = match real.ip() {
        IpAddr::V4(address) => address,
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv4Addr::UNSPECIFIED,
        IpAddr::V6(address) => address.to_ipv4_mapped()?,
    };
    let seen = Seen { network, descriptor, address, port: real.port() };
    let (address, port) = match role {
        Role::Own => seen.own(context)?,
        Role::Other | Role::Sender => seen.peer(context, role)?,
    };
    Some(match (real.is_ipv6(), address) {
        (true, LOOPBACK6) => (Ipv6Addr::LOCALHOST, port).into(),
        (true, Ipv4Addr::UNSPECIFIED) => (Ipv6Addr::UNSPECIFIED, port).into(),
        (false, LOOPBACK6) => (Ipv4Addr::LOCALHOST, port).into(),
        (six, address) => in_family(address, port, six),
    })
}

/// A real address and port.
struct Seen<'n> {
    network: Network<'n>,
    descriptor: u64,
    address: Ipv4Addr,
    port: u16,
}

impl Seen<'_> {
    /// Whose it is, and what for.
    fn owner(&self) -> Option<(Slot, Use)> {
        let (table, own) = (self.network.table, self.network.slot);
        if self.address == Ipv4Addr::LOCALHOST {
            let slot = table.ports().owner_of_wild(Protocol::Udp, self.port)?;
            return Some((slot, if slot == own { Use::Loopback } else { Use::Network }));
        }
        table.owner(self.address)
    }

    fn protocol<N: Backend>(&self, context: &mut CallContext<'_, N>) -> Option<Protocol> {
        with_socket(context, self.descriptor, |_, _, kind| Ok(kind.protocol)).ok()?
    }

    /// The guest's port, and the protocol if it had to be found out.
    fn port<N: Backend>(&self, context: &mut CallContext<'_, N>, slot: Slot) -> u16 {
        let ports = self.network.table.ports();
        let by = |protocol| ports.virtual_port(slot, protocol, self.port);
        // Most ports stay as they are, and then nothing has to be asked.
        if by(Protocol::Tcp).or_else(|| by(Protocol::Udp)).is_none() {
            return self.port;
        }
        self.protocol(context).and_then(by).unwrap_or(self.port)
    }

    /// The address of a container in a network of this one.
    fn address_of(&self, slot: Slot) -> Option<Ipv4Addr> {
        let members = self.network.table.members();
        if slot == self.network.slot {
            return members.memberships(slot).next().map(|one| one.address);
        }
        members.memberships(self.network.slot).find_map(|mine| {
            let theirs = members.memberships(slot).find(|one| one.network == mine.network);
            theirs.map(|one| one.address)
        })
    }

    fn peer<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        role: Role,
    ) -> Option<(Ipv4Addr, u16)> {
        let (slot, mut use_) = self.owner()?;
        let port = self.port(context, slot);
        if slot == self.network.slot && use_ == Use::Network {
            use_ = self.as_reached(context, role, port);
        }
        let address = match use_ {
            Use::Loopback => Ipv4Addr::LOCALHOST,
            Use::Loopback6 => LOOPBACK6,
            Use::Network => self.address_of(slot)?,
        };
        Some((address, port))
    }

    /// A socket of the container's own that serves all its addresses is found at the real one of
    /// its networks. By which one this socket has reached it, its own address tells; datagrams do
    /// not tell, and go through the loopback as a rule.
    fn as_reached<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        role: Role,
        port: u16,
    ) -> Use {
        let (network, real_port) = (self.network, self.port);
        let serves_all = |protocol| {
            network
                .table
                .ports()
                .find(network.slot, protocol, port)
                .any(|one| one.real_port == real_port && one.address.is_unspecified())
        };
        let known = with_socket(context, self.descriptor, |context, socket, kind| {
            Ok(match kind.protocol {
                Some(Protocol::Udp) if serves_all(Protocol::Udp) => Use::Loopback,
                Some(Protocol::Tcp) if role == Role::Other => {
                    let own = context.backend.socket_name(socket, false)?.ip();
                    let own = match own {
                        IpAddr::V4(address) => Some(address),
                        IpAddr::V6(address) => address.to_ipv4_mapped(),
                    };
                    own.and_then(|own| network.table.owner(own)).map_or(Use::Network, |own| own.1)
                }
                _ => Use::Network,
            })
        });
        known.unwrap_or(Use::Network)
    }

    fn own<N: Backend>(&self, context: &mut CallContext<'_, N>) -> Option<(Ipv4Addr, u16)> {
        let (table, slot) = (self.network.table, self.network.slot);
        let owner = self.owner();
        let protocol = self.protocol(context)?;
        let alias = table.ports().virtual_port(slot, protocol, self.port);
        let port = alias.unwrap_or(self.port);
        let Some((_, use_)) = owner.filter(|owner| owner.0 == slot) else {
            // All addresses of the host, or one at which a port is published.
            alias?;
            return if self.address.is_unspecified() {
                Some((self.address, port))
            } else {
                Some((self.address_of(slot)?, port))
            };
        };
        let entry = table.ports().find(slot, protocol, port).find(|one| {
            one.real_port == self.port
                && (one.real == self.address || self.address == Ipv4Addr::LOCALHOST)
        });
        let bound = entry.map(|entry| entry.address).filter(|address| !address.is_unspecified());
        if let Some(address) = bound {
            return Some((address, port));
        }
        let peer = with_socket(context, self.descriptor, |context, socket, _| {
            context.backend.socket_name(socket, true)
        });
        let Ok(peer) = peer else {
            // Bound to all addresses, or not bound by the program but to be connected.
            let unbound = if entry.is_some() { Ipv4Addr::UNSPECIFIED } else { self.local(use_)? };
            return Some((unbound, port));
        };
        let peer = match peer.ip() {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(address) => address.to_ipv4_mapped(),
        };
        // With a socket for all addresses, the one by which the other side came.
        let theirs = peer
            .and_then(|peer| table.owner(peer))
            .map(|(whose, theirs)| if whose == slot { theirs } else { Use::Network });
        let use_ = match (use_, theirs) {
            (Use::Network, Some(theirs)) if entry.is_some() => theirs,
            (own, _) => own,
        };
        Some((self.local(use_)?, port))
    }

    fn local(&self, use_: Use) -> Option<Ipv4Addr> {
        match use_ {
            Use::Network => self.address_of(self.network.slot),
            Use::Loopback => Some(Ipv4Addr::LOCALHOST),
            Use::Loopback6 => Some(LOOPBACK6),
        }
    }
}
