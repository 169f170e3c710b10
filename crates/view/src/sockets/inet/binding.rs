//! `bind`.

use super::address::{in_family, narrow};
use super::{Network, alive, diag, use_of, with_socket};
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, HostFd};
use crate::sockets::host::{SocketKind, SocketOption};
use crate::verdict::Verdict;
use abi::network::{Family, Port, Protocol, ports::LOOPBACK6};
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// The address and port that a guest asks for.
struct Wanted<'n> {
    network: Network<'n>,
    protocol: Protocol,
    family: Family,
    /// In the table's form.
    address: Ipv4Addr,
    port: u16,
}

/// `bind` to an address of the internet. The view makes the call itself, because it may take
/// several.
pub(in crate::sockets) fn bind<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: Network<'_>,
    descriptor: u64,
    address: SocketAddr,
) -> Result<Verdict> {
    with_socket(context, descriptor, |context, socket, kind| {
        // Other protocols, and an address of the wrong family, are the kernel's.
        let Some(protocol) = kind.protocol.filter(|_| kind.six == address.is_ipv6()) else {
            return Ok(Verdict::Pass);
        };
        let family = match (kind.six, kind.only_six) {
            (false, _) => Family::V4,
            (true, false) => Family::Dual,
            (true, true) => Family::V6,
        };
        let narrow = narrow(address.ip()).ok_or(Errno::EADDRNOTAVAIL)?;
        let wanted = Wanted { network, protocol, family, address: narrow, port: address.port() };
        wanted.check(kind)?;
        if wanted.port == 0 && protocol == Protocol::Udp && narrow.is_unspecified() {
            everywhere(context, network, (socket, kind))?;
        } else {
            wanted.bind(context, (socket, kind))?;
        }
        Ok(Verdict::Done(0))
    })
}

/// Binds a socket of datagrams to all addresses of the host, with a port that the kernel chooses,
/// and notes it. Such a socket may send to members and to other hosts, and gets answers from both.
pub(super) fn everywhere<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: Network<'_>,
    (socket, kind): (HostFd, &SocketKind),
) -> Result<()> {
    allow_mapped(context, socket, kind)?;
    let all = if kind.six {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    };
    context.backend.bind_socket(socket, all)?;
    let port = context.backend.socket_name(socket, false)?.port();
    network.table.ports().set_owner_of_wild(Protocol::Udp, port, network.slot);
    let wanted = Wanted {
        network,
        protocol: Protocol::Udp,
        family: if kind.six { Family::Dual } else { Family::V4 },
        address: Ipv4Addr::UNSPECIFIED,
        port,
    };
    // What is sent to the host's own loopback has this source.
    wanted.note(context, (socket, kind), (Ipv4Addr::LOCALHOST, port))
}

/// Sockets with `IPV6_V6ONLY` take no IPv4 address, and all real addresses are of that kind. The
/// table remembers what was asked for.
pub(super) fn allow_mapped<N: Backend>(
    context: &mut CallContext<'_, N>,
    socket: HostFd,
    kind: &SocketKind,
) -> Result<()> {
    if kind.six && kind.only_six {
        return context.backend.set_socket_option(socket, SocketOption::OnlySix, false);
    }
    Ok(())
}

impl Wanted<'_> {
    /// Checks that the container has the address.
    fn check(&self, kind: &SocketKind) -> Result<()> {
        let members = self.network.table.members();
        let is_own =
            || members.memberships(self.network.slot).any(|one| one.address == self.address);
        let any = self.address.is_unspecified();
        if !any && self.address != LOOPBACK6 && kind.six && kind.only_six {
            return Err(Errno::EINVAL);
        }
        let has = any || self.address == LOOPBACK6 || self.address.is_loopback() || is_own();
        if has { Ok(()) } else { Err(Errno::EADDRNOTAVAIL) }
    }

    fn bind<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        (socket, kind): (HostFd, &SocketKind),
    ) -> Result<()> {
        let use_ = use_of(self.address);
        let place = self.network.table.real(self.network.slot, use_);
        if use_ == abi::network::Use::Network
            && let Some((published, port)) =
                self.network.publishing(self.protocol == Protocol::Udp, self.port)
        {
            return self.publish(context, (socket, kind), (place, published.address, port));
        }
        let port = self.real_port(context, (socket, kind), place)?;
        allow_mapped(context, socket, kind)?;
        let chosen = match port {
            Some(port) => {
                let address = in_family(place, port.number, kind.six);
                match context.backend.bind_socket(socket, address) {
                    Ok(()) => port.number,
                    // Of the container's own sockets none has the port, or the caller may not bind
                    // it on the host: another one serves as well.
                    Err(Errno::EADDRINUSE) if !port.own => {
                        self.any(context, socket, kind, place)?
                    }
                    Err(Errno::EACCES) => self.any(context, socket, kind, place)?,
                    Err(error) => return Err(error),
                }
            }
            None => self.any(context, socket, kind, place)?,
        };
        let chosen =
            if chosen == 0 { context.backend.socket_name(socket, false)?.port() } else { chosen };
        self.note(context, (socket, kind), (place, chosen))
    }

    fn any<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        socket: HostFd,
        kind: &SocketKind,
        place: Ipv4Addr,
    ) -> Result<u16> {
        context.backend.bind_socket(socket, in_family(place, 0, kind.six))?;
        Ok(0)
    }

    /// The real port to try first; `None` if any will do. Fails if a socket of the container has
    /// the port.
    fn real_port<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        (socket, kind): (HostFd, &SocketKind),
        place: Ipv4Addr,
    ) -> Result<Option<RealPort>> {
        if self.port == 0 {
            return Ok(Some(RealPort { number: 0, own: true }));
        }
        let (mut own, mut taken) = (None, false);
        for other in self.network.table.ports().find(self.network.slot, self.protocol, self.port) {
            if !self.meets(&other) {
                taken |= other.real == place && other.real_port == self.port;
                continue;
            }
            if other.real == place && own.is_none_or(|own| own == other.real_port) {
                own = Some(other.real_port);
                continue;
            }
            if context.backend.socket_name(socket, false)?.port() != 0 {
                return Err(Errno::EINVAL);
            }
            // Whether the other one still lives, and would share its port, is for the kernel to
            // say.
            let twin = context.backend.twin_socket(socket, true)?;
            let address = in_family(other.real, other.real_port, kind.six);
            let _ = context.backend.set_socket_option(twin, SocketOption::OnlySix, false);
            let tried = context.backend.bind_socket(twin, address);
            context.backend.close_twin(twin);
            if tried == Err(Errno::EADDRINUSE) {
                return Err(Errno::EADDRINUSE);
            }
        }
        Ok(match own {
            Some(number) => Some(RealPort { number, own: true }),
            None if taken => None,
            None => Some(RealPort { number: self.port, own: false }),
        })
    }

    /// Whether a socket serves an address that is wanted.
    fn meets(&self, other: &Port) -> bool {
        match (self.address.is_unspecified(), other.address.is_unspecified()) {
            (true, true) => self.family.meets(other.family),
            (true, false) => serves(self.family, other.address),
            (false, true) => serves(other.family, self.address),
            (false, false) => self.address == other.address,
        }
    }

    /// Binds to an address of the host.
    fn publish<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        (socket, kind): (HostFd, &SocketKind),
        (place, address, port): (Ipv4Addr, Ipv4Addr, u16),
    ) -> Result<()> {
        let all = address.is_unspecified();
        let target: SocketAddr = match (all, kind.six) {
            (true, true) => (Ipv6Addr::UNSPECIFIED, port).into(),
            (_, six) => in_family(address, port, six),
        };
        if !all {
            allow_mapped(context, socket, kind)?;
        }
        context.backend.bind_socket(socket, target)?;
        let real = if all { place } else { address };
        self.note(context, (socket, kind), (real, port))
    }

    /// Notes a socket that the kernel has bound.
    fn note<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        (socket, kind): (HostFd, &SocketKind),
        (real, real_port): (Ipv4Addr, u16),
    ) -> Result<()> {
        let (slot, ports) = (self.network.slot, self.network.table.ports());
        let port = if self.port == 0 { real_port } else { self.port };
        let entry = Port {
            protocol: self.protocol,
            family: self.family,
            address: self.address,
            port,
            real,
            real_port,
            cookie: kind.cookie,
            group: kind.shares_port,
        };
        if port != real_port || ports.virtual_port(slot, self.protocol, real_port).is_some() {
            ports.set_virtual_port(slot, self.protocol, real_port, port);
        }
        let noted = ports.insert(slot, &entry, |other| {
            other.protocol == self.protocol
                && diag::find(context.backend, other).is_none()
                && is_free(context, socket, kind, other)
        });
        // The socket is bound, and nobody would find it.
        if noted { Ok(()) } else { Err(Errno::ENOBUFS) }
    }
}

/// The real port to try.
struct RealPort {
    number: u16,
    /// A socket of the container has it, or had it.
    own: bool,
}

/// Whether a socket that is bound to all addresses serves this one.
pub(super) fn serves(family: Family, address: Ipv4Addr) -> bool {
    if address == LOOPBACK6 { family != Family::V4 } else { family != Family::V6 }
}

/// Whether nothing is bound at the place of an entry.
fn is_free<N: Backend>(
    context: &mut CallContext<'_, N>,
    socket: HostFd,
    kind: &SocketKind,
    port: &Port,
) -> bool {
    let Ok(twin) = context.backend.twin_socket(socket, false) else { return false };
    let _ = context.backend.set_socket_option(twin, SocketOption::OnlySix, false);
    let address = in_family(port.real, port.real_port, kind.six);
    let bound = context.backend.bind_socket(twin, address);
    context.backend.close_twin(twin);
    bound.is_ok()
}

/// The entry by which a port of a container is reached at one of its addresses, if its socket
/// lives.
pub(super) fn find<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: Network<'_>,
    (slot, address): (abi::network::Slot, Ipv4Addr),
    (protocol, port): (Protocol, u16),
) -> Option<Port> {
    let ports = network.table.ports();
    let exact = ports.find(slot, protocol, port).filter(|one| one.address == address);
    let any = ports
        .find(slot, protocol, port)
        .filter(|one| one.address.is_unspecified() && serves(one.family, address));
    let mut all = exact.chain(any);
    all.find(|one| alive(context, network, one))
}
