//! `connect`, and datagrams that are sent to an address.

use super::address::{Destination, in_family, narrow, old};
use super::binding::{adopt, allow_mapped, everywhere, find, serves, unbound};
use super::shown::is_only_six;
use super::{NOBODY, Network, Socket, use_of, with_socket};
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::Backend;
use crate::sockets::host::SocketOption;
use abi::network::{Place, Port, Protocol, Slot, Use, Way, ports::LOOPBACK6};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The real address for one that a guest wants to reach; `None` if that is the guest's own. The
/// socket is bound before, if it is not yet: the other side sees the sender's address. `connects`:
/// the call is `connect`. `from`: the address that a datagram is to come from, if the guest says so.
pub(in crate::sockets) fn reach<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: Network<'_>,
    (descriptor, connects): (u64, bool),
    (address, from): (SocketAddr, Option<IpAddr>),
) -> Result<Option<SocketAddr>> {
    let (slot, wanted) = match Destination::of(&network, address) {
        Destination::Member(slot, wanted) => (slot, wanted),
        Destination::Nobody => return Err(Errno::EHOSTUNREACH),
        Destination::Outside if network.table.members().is_internal(network.slot) => {
            return Err(Errno::ENETUNREACH);
        }
        Destination::Outside => return Ok(None),
    };
    let real = with_socket(context, descriptor, |context, socket| {
        let is_other = address.is_ipv6() != socket.six;
        if is_other && (address.is_ipv6() || socket.protocol == Some(Protocol::Tcp)) {
            // The kernel takes no other but for datagrams, which go to IPv4 from both.
            return Ok(None);
        }
        let six = address.is_ipv6();
        let there = network.table.real(slot, Use::Network);
        let Some(protocol) = socket.protocol else {
            // For instance an echo request of ICMP.
            return Ok(Some(in_family(there, address.port(), six)));
        };
        if address.port() == 0 && protocol == Protocol::Udp && !connects {
            return Err(Errno::EINVAL);
        }
        if address.is_ipv6() && wanted != LOOPBACK6 && is_only_six(context, network, socket)? {
            return Err(Errno::ENETUNREACH);
        }
        allow_mapped(context, socket)?;
        let target = Target { network, protocol, slot, address: wanted };
        let mut source = target.source(context, socket)?;
        source.wished = from.and_then(narrow);
        let from = (protocol == Protocol::Udp).then(|| source.place_of(&network));
        let found = find(context, &network, (slot, wanted), (protocol, address.port()), from);
        // A socket may connect to itself.
        let own = source.entry.filter(|own| own.port == address.port() && target.is_served_by(own));
        let found = match (found, own) {
            (None, Some(own)) => {
                let cookie = context.backend.socket_cookie(socket.fd)?;
                Some(own).filter(|own| own.cookie == cookie)
            }
            (found, _) => found,
        };
        let nobody = if address.port() == 0 { 0 } else { NOBODY };
        let to = found.map_or((there, nobody), |found| (found.real, found.real_port));
        let is_plain = target.is_told_by(&source, found.as_ref());
        if protocol == Protocol::Tcp && source.port == 0 {
            bind_source(context, network.real(source.at()), socket, is_plain);
        }
        let (ports, at) = (network.table.ports(), source.at);
        if is_plain {
            ports.remove_way(network.slot, protocol, Place { at, port: source.port }, to);
        } else {
            let port = context.backend.socket_name(socket.fd, false)?.port();
            let (from, source) = (Place { at, port }, target.source_shown(&source));
            let way = Way { protocol, from, to, source, destination: wanted };
            let cookie = context.backend.socket_cookie(socket.fd)?;
            ports.insert_way(network.slot, &way, cookie);
        }
        Ok(Some(in_family(to.0, to.1, six)))
    })?;
    Ok(real.flatten())
}

/// Who is to be reached.
struct Target<'n> {
    network: Network<'n>,
    protocol: Protocol,
    slot: Slot,
    /// In the table's form.
    address: Ipv4Addr,
}

/// Where a socket sends from.
struct Source {
    /// Which of the container's real addresses; `None` for all of the host's.
    at: Option<Use>,
    /// The real port, 0 if it has none yet.
    port: u16,
    /// What was noted when the program bound it.
    entry: Option<Port>,
    /// The address that one message is to come from.
    wished: Option<Ipv4Addr>,
}

impl Source {
    fn at(&self) -> Use {
        self.at.unwrap_or(Use::Loopback)
    }

    fn place_of(&self, network: &Network<'_>) -> (Ipv4Addr, u16) {
        (self.at.map_or(Ipv4Addr::LOCALHOST, |at| network.real(at)), self.port)
    }

    /// The address that the program has bound it to, if it is one.
    fn bound(&self) -> Option<Ipv4Addr> {
        self.entry.map(|entry| entry.address).filter(|address| !address.is_unspecified())
    }
}

impl Target<'_> {
    fn is_own(&self) -> bool {
        self.slot == self.network.slot
    }

    fn is_served_by(&self, own: &Port) -> bool {
        let any = own.address.is_unspecified() && serves(own.family, self.address);
        self.is_own() && (own.address == self.address || any)
    }

    /// Where the socket sends from. One of datagrams that is not bound is bound now.
    fn source<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        socket: Socket,
    ) -> Result<Source> {
        let network = self.network;
        let mut name = context.backend.socket_name(socket.fd, false)?;
        if self.protocol == Protocol::Udp && old(name.ip()) == Some(Ipv4Addr::UNSPECIFIED) {
            let (family, wild) = (unbound(context, socket)?, network.table.ports());
            match name.port() {
                0 => everywhere(context, network, socket, family)?,
                // The kernel has bound it, for a call that then failed, or to send to other hosts.
                port if wild.owner_of_wild(self.protocol, port) != Some(network.slot) => {
                    adopt(context, network, socket, (family, port))?;
                }
                _ => {}
            }
            name = context.backend.socket_name(socket.fd, false)?;
        }
        if name.port() == 0 {
            let at = if self.is_own() { use_of(self.address) } else { Use::Network };
            return Ok(Source { at: Some(at), port: 0, entry: None, wished: None });
        }
        let real = old(name.ip()).unwrap_or(Ipv4Addr::UNSPECIFIED);
        let owner = network.table.owner(real).filter(|owner| owner.0 == network.slot);
        let published = real.is_unspecified() && self.protocol == Protocol::Tcp;
        let at = if published { Some(Use::Network) } else { owner.map(|owner| owner.1) };
        let place = Place { at, port: name.port() };
        let real = at.map_or(Ipv4Addr::LOCALHOST, |at| network.real(at));
        let ports = network.table.ports();
        let mut entry = ports.at(network.slot, self.protocol, (place, real), None);
        if entry.is_some() {
            let cookie = context.backend.socket_cookie(socket.fd)?;
            entry = ports.at(network.slot, self.protocol, (place, real), Some(cookie));
        }
        let source = Source { at, port: name.port(), entry, wished: None };
        self.check(&source)?;
        Ok(source)
    }

    /// Checks that a way leads there from the address that the program has bound.
    fn check(&self, source: &Source) -> Result<()> {
        let Some(from) = source.bound() else { return Ok(()) };
        match (from == LOOPBACK6, self.address == LOOPBACK6) {
            (true, false) => Err(Errno::ENETUNREACH),
            (false, true) => Err(Errno::EAFNOSUPPORT),
            // Another host's loopback cannot be answered.
            (false, false) if from.is_loopback() && !self.is_own() => Err(Errno::EINVAL),
            _ => Ok(()),
        }
    }

    /// The address that the other side is to see.
    fn source_shown(&self, source: &Source) -> Ipv4Addr {
        if let Some(bound) = source.wished.or(source.bound()) {
            return bound;
        }
        if self.is_own() {
            return if self.address.is_loopback() { Ipv4Addr::LOCALHOST } else { self.address };
        }
        let members = self.network.table.members();
        let mut mine = members.memberships(self.network.slot);
        let mine = mine.find(|one| one.has(self.address));
        mine.map_or(Ipv4Addr::UNSPECIFIED, |one| one.address)
    }

    /// Whether both sides are shown rightly by their real addresses alone ([`super::shown`]).
    fn is_told_by(&self, source: &Source, found: Option<&Port>) -> bool {
        let common = self.network.common(self.slot);
        if !self.is_own() {
            return common == Some((self.source_shown(source), self.address));
        }
        let plain = |at| match at {
            Use::Network => common.map(|common| common.0),
            Use::Loopback => Some(Ipv4Addr::LOCALHOST),
            Use::Loopback6 => Some(LOOPBACK6),
        };
        let is_auto = source.entry.is_none() && source.at.is_some();
        let source_tells = source.bound().is_some() && source.wished.is_none()
            || is_auto && plain(source.at()) == Some(self.source_shown(source));
        let is_exact = found.is_some_and(|found| !found.address.is_unspecified());
        let is_alike = source.at == Some(use_of(self.address));
        source_tells && (is_exact || is_alike && plain(source.at()) == Some(self.address))
    }
}

/// Binds a socket to a real address. Without a port, if that will do: the kernel chooses it when it
/// connects, so that ports of connections to different places do not use each other up.
fn bind_source<N: Backend>(
    context: &mut CallContext<'_, N>,
    real: Ipv4Addr,
    socket: Socket,
    without_port: bool,
) {
    if without_port {
        // Kernels before 4.2 do not know it, and choose the port now.
        let option = SocketOption::BindWithoutPort;
        let _ = context.backend.set_socket_option(socket.fd, option, true);
    }
    let _ = context.backend.bind_socket(socket.fd, in_family(real, 0, socket.six));
}
