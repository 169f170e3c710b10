//! Addresses that the kernel returns.

use super::address::{in_family, old};
use super::{NOBODY, Network, Socket, binding, diag, far, with_socket};
use crate::CallContext;
use crate::errno::Result;
use crate::guest::Backend;
use abi::network::ports::{Found, LOOPBACK6};
use abi::network::{Family, Place, Port, Protocol, Slot, Use};
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

/// Whose address it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sockets) enum Role {
    /// That of the socket itself.
    Own,
    /// That of the other side of a connection (`getpeername`).
    Other,
    /// That of who has connected or sent.
    Sender,
    /// That of the peer that has connected; this is the descriptor of the connection.
    Accepted(u64),
}

/// An address as the guest is to see it; `None` if that is what the kernel returned.
pub(in crate::sockets) fn shown<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: Network<'_>,
    (descriptor, role): (u64, Role),
    real: SocketAddr,
) -> Option<SocketAddr> {
    let seen = Seen { network, descriptor, role, end: End::of(&network, real)? };
    let (address, port, family) = match role {
        Role::Own => seen.own(context)?,
        _ if seen.end.far => seen.far(context)?,
        _ if seen.end.is_node => seen.beside(context)?,
        Role::Other | Role::Sender | Role::Accepted(_) => seen.other(context)?,
    };
    Some(match (real.is_ipv6(), address) {
        (true, LOOPBACK6) => (Ipv6Addr::LOCALHOST, port).into(),
        (true, Ipv4Addr::UNSPECIFIED) if family != Some(Family::V4) => {
            (Ipv6Addr::UNSPECIFIED, port).into()
        }
        (false, LOOPBACK6) => (Ipv4Addr::LOCALHOST, port).into(),
        (six, address) => in_family(address, port, six),
    })
}

/// The address to which a datagram was sent that has arrived at a real one; `None` if that is
/// another host's affair. `sender`: its real address, if it is known.
pub(super) fn destination<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: Network<'_>,
    descriptor: u64,
    (real, sender): (Ipv4Addr, Option<SocketAddr>),
) -> Option<Ipv4Addr> {
    let (mine, protocol) = (network.slot, Protocol::Udp);
    let asked = with_socket(context, descriptor, |context, socket| {
        Ok((socket.name.port(), context.backend.socket_cookie(socket.fd)?))
    });
    let (port, cookie) = asked.ok()??;
    let own = End::of(&network, (real, port).into())?;
    let from = sender.and_then(|sender| End::of(&network, sender));
    let from = from.and_then(|from| Some((from.slot(protocol)?, from)));
    let Some((slot, from)) = from else {
        return network.common(mine).map(|(mine, _)| mine);
    };
    if let Some(way) = way(&network, protocol, (slot, from), own) {
        return Some(way.destination);
    }
    let at = (own.place(), own.address);
    let entry = network.table.ports().at(mine, protocol, at, Some(cookie));
    match entry.map(|entry| entry.address).filter(|address| !address.is_unspecified()) {
        Some(address) => Some(address),
        None if slot != mine => network.common(slot).map(|(mine, _)| mine),
        None => Some(Ipv4Addr::LOCALHOST),
    }
}

/// Who has refused a datagram: an address without a port.
pub(super) fn offender(network: &Network<'_>, real: SocketAddr) -> Option<SocketAddr> {
    let address = old(real.ip())?;
    let beside = || (network.node() == Some(address)).then_some((network.slot, Use::Network));
    let (slot, at) = network.table.owner(address).or_else(beside)?;
    let address = match at {
        Use::Network => {
            let (mine, theirs) = network.common(slot)?;
            if slot == network.slot { mine } else { theirs }
        }
        Use::Loopback | Use::Loopback6 => Ipv4Addr::LOCALHOST,
    };
    Some(in_family(address, real.port(), real.is_ipv6()))
}

/// Whether a socket serves IPv6 only, as its guest has it: all real addresses are of IPv4, so the
/// kernel's option is off once the socket is bound ([`super::binding::allow_mapped`]).
pub(super) fn is_only_six<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: Network<'_>,
    socket: Socket,
) -> Result<bool> {
    let only_six = binding::is_only_six(context, socket)?;
    if only_six || !socket.six {
        return Ok(only_six);
    }
    let Some((end, protocol)) = End::of(&network, socket.name).zip(socket.protocol) else {
        return Ok(false);
    };
    let cookie = context.backend.socket_cookie(socket.fd)?;
    let port = noted(&network, end, protocol, cookie);
    Ok(port.is_some_and(|port| port.family == Family::V6))
}

/// What was noted of a socket of the container whose own end this is.
fn noted(network: &Network<'_>, end: End, protocol: Protocol, cookie: u64) -> Option<Port> {
    let at = |at, real| {
        let place = Place { at, port: end.port };
        network.table.ports().at(network.slot, protocol, (place, real), Some(cookie))
    };
    // One that is bound to all of the host's addresses is noted at one of them: with a published
    // port, and for datagrams.
    let published = || at(Some(Use::Network), network.real(Use::Network));
    let wild = || at(None, Ipv4Addr::LOCALHOST);
    let all = || if end.owner.is_none() { published().or_else(wild) } else { None };
    at(end.at(), end.address).or_else(all)
}

/// One end of a connection, as the kernel has it.
#[derive(Debug, Clone, Copy)]
struct End {
    address: Ipv4Addr,
    port: u16,
    /// The container, and which of its real addresses it is.
    owner: Option<(Slot, Use)>,
    /// The container with a socket of datagrams that is bound to this port of all the host's
    /// addresses, or of its address in networks of scope `cluster`. Another protocol's may be
    /// anybody's.
    wild: Option<Slot>,
    /// The container with a socket of TCP at this port of the latter.
    at_node: Option<Slot>,
    /// It is the latter.
    is_node: bool,
    /// It is another host's, in such a network.
    far: bool,
}

impl End {
    /// `None` for an address that no socket of a container has.
    fn of(network: &Network<'_>, real: SocketAddr) -> Option<Self> {
        let (address, port) = (old(real.ip())?, real.port());
        let (table, node) = (network.table, network.node());
        let is_node = node == Some(address);
        let wild = (address == Ipv4Addr::LOCALHOST || is_node)
            .then(|| table.ports().owner_of_wild(Protocol::Udp, port));
        let at_node = is_node.then(|| table.owner_at_node(Protocol::Tcp, port));
        let far = node.is_some() && !is_node && table.is_node(address);
        let (owner, wild, at_node) = (table.owner(address), wild.flatten(), at_node.flatten());
        Some(Self { address, port, owner, wild, at_node, is_node, far })
    }

    /// The container whose socket this is.
    fn slot(&self, protocol: Protocol) -> Option<Slot> {
        let wild = match protocol {
            Protocol::Udp => self.wild,
            Protocol::Tcp => self.at_node,
        };
        self.owner.map(|owner| owner.0).or(wild)
    }

    fn at(&self) -> Option<Use> {
        let at_node = self.is_node.then_some(Use::Network);
        self.owner.map(|owner| owner.1).or(at_node)
    }

    fn v4(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.address, self.port)
    }

    fn place(&self) -> Place {
        Place { at: self.at(), port: self.port }
    }
}

/// What is known of an address that the kernel has returned.
struct Seen<'n> {
    network: Network<'n>,
    descriptor: u64,
    role: Role,
    end: End,
}

/// The socket that was asked.
struct Asked {
    protocol: Option<Protocol>,
    cookie: u64,
    /// The other end of its connection, or its own, whichever was not asked for.
    opposite: Option<SocketAddr>,
}

/// What a guest sees: address, port, and the family of a socket that serves all addresses.
type Sight = (Ipv4Addr, u16, Option<Family>);

impl Seen<'_> {
    fn ask<N: Backend>(&self, context: &mut CallContext<'_, N>) -> Option<Asked> {
        with_socket(context, self.descriptor, |context, socket| {
            let opposite = match self.role {
                Role::Own => context.backend.socket_name(socket.fd, true).ok(),
                Role::Other | Role::Sender | Role::Accepted(_) => Some(socket.name),
            };
            let cookie = context.backend.socket_cookie(socket.fd)?;
            Ok(Asked { protocol: socket.protocol, cookie, opposite })
        })
        .ok()?
    }

    /// The address of an end in this container of which nothing else is known.
    fn plain(&self, slot: Slot, at: Option<Use>) -> Option<Ipv4Addr> {
        match at {
            Some(Use::Network) => self.network.common(slot).map(|(mine, _)| mine),
            Some(Use::Loopback) | None => Some(Ipv4Addr::LOCALHOST),
            Some(Use::Loopback6) => Some(LOOPBACK6),
        }
    }

    fn own<N: Backend>(&self, context: &mut CallContext<'_, N>) -> Option<Sight> {
        let (network, end, mine) = (&self.network, self.end, self.network.slot);
        let asked = self.ask(context)?;
        let protocol = asked.protocol?;
        let entry = noted(network, end, protocol, asked.cookie);
        let peer = asked.opposite.and_then(|peer| End::of(network, peer));
        let to_member = || peer.is_some_and(|peer| peer.far || peer.slot(protocol).is_some());
        if entry.is_none() && end.slot(protocol).is_none() && !(end.is_node && to_member()) {
            // A socket that the kernel has chosen the address for.
            return None;
        }
        let port = entry.map_or(end.port, |entry| entry.port);
        if let Some(entry) = entry.filter(|entry| !entry.address.is_unspecified()) {
            return Some((entry.address, port, None));
        }
        if asked.opposite.is_none() {
            // Bound to all addresses, or not by the program but to be connected.
            return Some((Ipv4Addr::UNSPECIFIED, port, entry.map(|entry| entry.family)));
        }
        if let Some(far) = peer.filter(|peer| peer.far)
            && let Some(way) = way(network, protocol, (mine, end), far)
        {
            return Some((way.source, port, None));
        }
        let whose = peer.and_then(|peer| Some((peer, peer.slot(protocol)?)));
        let address = match whose {
            Some((peer, slot)) => {
                if let Some(way) = way(network, protocol, (mine, end), peer) {
                    way.source
                } else if let Some(way) = way(network, protocol, (slot, peer), end) {
                    way.destination
                } else if slot != mine {
                    network.towards(slot)?
                } else {
                    // With a socket for all addresses, that by which the other side came.
                    self.plain(mine, if entry.is_some() { peer.at() } else { end.at() })?
                }
            }
            None => network.common(mine)?.0,
        };
        Some((address, port, None))
    }

    /// Who is at a place of another host.
    fn far<N: Backend>(&self, context: &mut CallContext<'_, N>) -> Option<Sight> {
        let (asked, mut own) = self.ask_other(context)?;
        if own.address.is_unspecified() {
            own.address = self.network.node()?;
        }
        let (network, end, protocol) = (&self.network, self.end, asked.protocol?);
        if let Some(way) = self.own_way(&asked, own) {
            return Some((way.destination, way.port, None));
        }
        let ends = (end.v4(), own.v4(), asked.cookie);
        let found = far::who(context, network, protocol, ends)?;
        Some((*found.ip(), found.port(), None))
    }

    /// Who is at a place of this host's address, which its containers share with strangers.
    fn beside<N: Backend>(&self, context: &mut CallContext<'_, N>) -> Option<Sight> {
        let (asked, own) = self.ask_other(context)?;
        let (network, end, protocol) = (&self.network, self.end, asked.protocol?);
        if own.owner.is_some() {
            // The container speaks to itself.
            return self.other(context);
        }
        if end.port == NOBODY {
            // Where nobody is, of whom a message about an error tells.
            return Some((network.common(network.slot)?.0, NOBODY, None));
        }
        let (own, ports) = (self.receiving(own, protocol), network.table.ports());
        if let Some(way) = self.own_way(&asked, own) {
            let place = Place { at: Some(Use::Network), port: end.port };
            let there = end.slot(protocol);
            let entry = there.and_then(|slot| ports.at(slot, protocol, (place, end.address), None));
            return Some((way.destination, entry.map_or(end.port, |entry| entry.port), None));
        }
        let sender = network.table.sender(protocol, end.port, own.v4())?;
        let (there, here) = ((end.address, end.port), (own.address, own.port));
        let there = diag::exact(context.backend, protocol, there, Some(here));
        // One that has accepted has a number of its own, and that of its listener was noted.
        let listens = |there: diag::Found| {
            let bound = diag::exact(context.backend, protocol, (end.address, end.port), None);
            there.uid == network.uid && bound.is_some_and(|bound| bound.cookie == sender.cookie)
        };
        if !sender.is(protocol, there) && !there.is_some_and(listens) {
            return None;
        }
        let is_all = sender.address.is_unspecified();
        let address = if is_all {
            let (mine, theirs) = network.common(sender.slot)?;
            if sender.slot == network.slot { mine } else { theirs }
        } else {
            sender.address
        };
        Some((address, sender.port, None))
    }

    /// The way that this socket has connected.
    fn own_way(&self, asked: &Asked, own: End) -> Option<Found> {
        let is_other = self.role == Role::Other;
        let found = way(&self.network, asked.protocol?, (self.network.slot, own), self.end);
        found.filter(|way| is_other && way.cookie == asked.cookie)
    }

    /// The socket that another end is in contact with, and its place.
    fn ask_other<N: Backend>(&self, context: &mut CallContext<'_, N>) -> Option<(Asked, End)> {
        let descriptor = match self.role {
            Role::Accepted(descriptor) => descriptor,
            _ => self.descriptor,
        };
        let asked = Self { descriptor, ..*self }.ask(context)?;
        let own = End::of(&self.network, asked.opposite?)?;
        Some((asked, own))
    }

    /// The end at which a socket is reached that is bound to all of the host's addresses.
    fn receiving(&self, own: End, protocol: Protocol) -> End {
        let (network, ports) = (&self.network, self.network.table.ports());
        if !own.address.is_unspecified() {
            return own;
        }
        let is_wild = protocol == Protocol::Udp
            && ports.owner_of_wild(protocol, own.port) == Some(network.slot);
        let address = if is_wild { Ipv4Addr::LOCALHOST } else { network.real(Use::Network) };
        End { address, ..own }
    }

    /// A member whose port is published at an address of the host, to which this socket has
    /// connected.
    fn published<N: Backend>(&self, context: &mut CallContext<'_, N>) -> Option<Sight> {
        if self.role != Role::Other {
            return None;
        }
        let asked = self.ask(context)?;
        let own = End::of(&self.network, asked.opposite?)?;
        let way = self.own_way(&asked, own)?;
        (way.port != 0).then_some((way.destination, way.port, None))
    }

    fn other<N: Backend>(&self, context: &mut CallContext<'_, N>) -> Option<Sight> {
        let (network, end, mine) = (&self.network, self.end, self.network.slot);
        let ports = network.table.ports();
        let noted = |protocol| {
            let slot = end.slot(protocol)?;
            ports.at(slot, protocol, (end.place(), end.address), None)
        };
        if let Some((slot, _)) = end.owner {
            let is_noted = noted(Protocol::Tcp).or_else(|| noted(Protocol::Udp)).is_some();
            if !is_noted && slot != mine && network.is_single() {
                // As most connections are.
                return Some((network.common(slot)?.1, end.port, None));
            }
        } else if end.wild.is_none() && end.at_node.is_none() {
            return self.published(context);
        }
        let asked = self.ask(context)?;
        let protocol = asked.protocol?;
        let slot = end.slot(protocol)?;
        let own = asked.opposite.and_then(|own| End::of(network, own));
        let entry = noted(protocol);
        let port = entry.map_or(end.port, |entry| entry.port);
        if let Some(own) = own {
            let to = || way(network, protocol, (mine, own), end).map(|way| way.destination);
            let from = || way(network, protocol, (slot, end), self.receiving(own, protocol));
            let from = || from().map(|way| way.source);
            let found = if self.role == Role::Other { to().or_else(from) } else { from() };
            if let Some(address) = found {
                return Some((address, port, None));
            }
        }
        if let Some(entry) = entry.filter(|entry| !entry.address.is_unspecified()) {
            return Some((entry.address, port, None));
        }
        if slot != mine {
            return Some((network.common(slot)?.1, port, None));
        }
        // A socket that serves all addresses is found at that of the networks. By which one it was
        // reached, the own one tells; datagrams do not tell, and go through the loopback as a rule.
        let at = match (entry.is_some(), protocol, self.role) {
            (true, Protocol::Udp, _) => None,
            (true, Protocol::Tcp, Role::Other) => own.and_then(|own| own.at()),
            _ => end.at(),
        };
        Some((self.plain(slot, at)?, port, None))
    }
}

/// How a connection is shown that one end, of a container, has made to the other.
fn way(
    network: &Network<'_>,
    protocol: Protocol,
    (slot, from): (Slot, End),
    to: End,
) -> Option<Found> {
    let find = |place| network.table.ports().way(slot, protocol, place, (to.address, to.port));
    // A socket of datagrams may be bound to all of the host's addresses.
    let wild = || from.is_node.then(|| find(Place { at: None, port: from.port })).flatten();
    find(from.place()).or_else(wild)
}
