//! `bind`.

use super::address::{in_family, narrow};
use super::{Network, Socket, alive, diag, use_of, with_socket};
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, HostFd};
use crate::sockets::host::{SocketOption, Sockets};
use crate::verdict::Verdict;
use abi::network::{Family, Place, Port, Protocol, Slot, Use, ports::LOOPBACK6};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The address and port that a guest asks for.
struct Wanted<'n> {
    network: Network<'n>,
    protocol: Protocol,
    family: Family,
    /// In the table's form.
    address: Ipv4Addr,
    port: u16,
}

/// Where ports are put that the caller may not bind on the host: the last ones, which the kernel
/// does not give to connections (`ip_local_port_range`). So it still judges who may share one.
const PRIVILEGED: u16 = u16::MAX - 1023;

/// `bind` to an address of the internet. The view makes the call itself, because it may take
/// several.
pub(in crate::sockets) fn bind<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: Network<'_>,
    descriptor: u64,
    address: SocketAddr,
) -> Result<Verdict> {
    let done = with_socket(context, descriptor, |context, socket| {
        // Other protocols, and an address of the wrong family, are the kernel's.
        let Some(protocol) = socket.protocol.filter(|_| socket.six == address.is_ipv6()) else {
            return Ok(Verdict::Pass);
        };
        let only_six = is_only_six(context, socket)?;
        let (family, narrow) = served(only_six, address.ip())?;
        if protocol == Protocol::Udp && (narrow.is_multicast() || narrow.is_broadcast()) {
            // Groups are the host's.
            return Ok(Verdict::Pass);
        }
        let wanted = Wanted { network, protocol, family, address: narrow, port: address.port() };
        wanted.check()?;
        if wanted.port == 0 && protocol == Protocol::Udp && narrow.is_unspecified() {
            everywhere(context, network, socket, family)?;
        } else {
            wanted.bind(context, socket)?;
        }
        Ok(Verdict::Done(0))
    });
    Ok(done?.unwrap_or(Verdict::Pass))
}

/// Before `listen`, for which the kernel binds a socket that is not bound: to all addresses.
pub(in crate::sockets) fn listen<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: Network<'_>,
    descriptor: u64,
) -> Result<()> {
    let done = with_socket(context, descriptor, |context, socket| {
        let is_bound = socket.name.port() != 0;
        let Some(protocol) = socket.protocol.filter(|protocol| *protocol == Protocol::Tcp) else {
            return Ok(());
        };
        let (family, address) = (unbound(context, socket)?, Ipv4Addr::UNSPECIFIED);
        let wanted = Wanted { network, protocol, family, address, port: 0 };
        if is_bound { Ok(()) } else { wanted.bind(context, socket) }
    });
    // What cannot listen, the kernel refuses.
    match done {
        Err(Errno::EBADF | Errno::ENOTSOCK) => Ok(()),
        done => done.map(drop),
    }
}

/// Which addresses a socket is to serve; see ipv6(7) and `__inet6_bind` for the errors.
fn served(only_six: bool, address: IpAddr) -> Result<(Family, Ipv4Addr)> {
    let family = match address {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
            if only_six {
                return Err(Errno::EINVAL);
            }
            Family::V4
        }
        // Only the scope tells which interface's it is, and containers have no interfaces.
        IpAddr::V6(address) if address.is_unicast_link_local() => return Err(Errno::EINVAL),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) if !only_six => Family::Dual,
        IpAddr::V6(_) => Family::V6,
        IpAddr::V4(_) => Family::V4,
    };
    Ok((family, narrow(address).ok_or(Errno::EADDRNOTAVAIL)?))
}

/// Binds a socket of datagrams to all addresses of the host, with a port that the kernel chooses,
/// and notes it. Such a socket may send to members and to other hosts, and gets answers from both.
pub(super) fn everywhere<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: Network<'_>,
    socket: Socket,
    family: Family,
) -> Result<()> {
    allow_mapped(context, socket)?;
    let all = match family {
        Family::V4 => in_family(Ipv4Addr::UNSPECIFIED, 0, socket.six),
        Family::Dual | Family::V6 => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    context.backend.bind_socket(socket.fd, all)?;
    let port = context.backend.socket_name(socket.fd, false)?.port();
    adopt(context, network, socket, (family, port))
}

/// Notes a socket of datagrams that is bound to this port of all addresses of the host.
pub(super) fn adopt<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: Network<'_>,
    socket: Socket,
    (family, port): (Family, u16),
) -> Result<()> {
    network.table.ports().set_owner_of_wild(Protocol::Udp, port, network.slot);
    let address = Ipv4Addr::UNSPECIFIED;
    let wanted = Wanted { network, protocol: Protocol::Udp, family, address, port };
    let cookie = context.backend.socket_cookie(socket.fd)?;
    network.table.ports().set_wild_port(cookie, port);
    // What is sent to the host's own loopback has this source.
    wanted.note(context, socket, (Ipv4Addr::LOCALHOST, port))
}

/// `IPV6_V6ONLY`, as the kernel has it.
pub(super) fn is_only_six<N: Backend>(
    context: &mut CallContext<'_, N>,
    socket: Socket,
) -> Result<bool> {
    if socket.six {
        context.backend.socket_option(socket.fd, SocketOption::OnlySix)
    } else {
        Ok(false)
    }
}

/// Which addresses a socket serves that the program has not bound.
pub(super) fn unbound<N: Backend>(
    context: &mut CallContext<'_, N>,
    socket: Socket,
) -> Result<Family> {
    Ok(match (socket.six, is_only_six(context, socket)?) {
        (false, _) => Family::V4,
        (true, false) => Family::Dual,
        (true, true) => Family::V6,
    })
}

/// Sockets with `IPV6_V6ONLY` take no IPv4 address, and all real addresses are of that kind. The
/// table remembers what was asked for.
pub(super) fn allow_mapped<N: Backend>(
    context: &mut CallContext<'_, N>,
    socket: Socket,
) -> Result<()> {
    if is_only_six(context, socket)? {
        return context.backend.set_socket_option(socket.fd, SocketOption::OnlySix, false);
    }
    Ok(())
}

impl Wanted<'_> {
    /// Checks that the container has the address.
    fn check(&self) -> Result<()> {
        let members = self.network.table.members();
        let is_own =
            || members.memberships(self.network.slot).any(|one| one.address == self.address);
        let any = self.address.is_unspecified();
        let has = any || self.address == LOOPBACK6 || self.address.is_loopback() || is_own();
        if has { Ok(()) } else { Err(Errno::EADDRNOTAVAIL) }
    }

    fn bind<N: Backend>(&self, context: &mut CallContext<'_, N>, socket: Socket) -> Result<()> {
        let use_ = use_of(self.address);
        let place = self.network.real(use_);
        if use_ == Use::Network
            && let Some((published, port)) =
                self.network.publishing(self.protocol == Protocol::Udp, self.port)
            && (published.address.is_unspecified() || self.family != Family::V6)
        {
            // One that serves IPv6 only has no part in a port of one IPv4 address.
            return self.publish(context, socket, (place, published.address, port));
        }
        let known = self.known(context, socket, place)?;
        allow_mapped(context, socket)?;
        let mut bind = |port: u16| {
            let address = in_family(place, port, socket.six);
            context.backend.bind_socket(socket.fd, address).map(|()| port)
        };
        let tried = match known {
            Known::At(own) => bind(own.real_port),
            Known::Elsewhere => bind(0),
            Known::Nothing => match bind(self.port) {
                Err(Errno::EACCES) => bind(PRIVILEGED.checked_add(self.port).unwrap_or(0)),
                tried => tried,
            },
        };
        let port = match tried {
            Err(Errno::EADDRINUSE) if self.is_others(context, place, known) => {
                bind_any(context.backend, (socket.fd, in_family(place, 0, socket.six)))?
            }
            tried => tried?,
        };
        let port = match port {
            0 => context.backend.socket_name(socket.fd, false)?.port(),
            port => port,
        };
        self.note(context, socket, (place, port))
    }

    /// The real ports that are tried first. The second one is there where the host has not raised
    /// the limit of privileged ports.
    fn natural(&self) -> [Option<u16>; 2] {
        [Some(self.port), PRIVILEGED.checked_add(self.port)]
    }

    /// What is known of the port. Fails if a socket of the container has it.
    fn known<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        socket: Socket,
        place: Ipv4Addr,
    ) -> Result<Known> {
        if self.port == 0 {
            return Ok(Known::Nothing);
        }
        let (mut own, mut taken) = (None, false);
        for other in self.network.table.ports().find(self.network.slot, self.protocol, self.port) {
            let is_here = other.real == place;
            if !self.meets(&other) {
                let is_natural = self.natural().contains(&Some(other.real_port));
                taken |= is_here && is_natural && self.lives(context, socket, &other)?;
            } else if is_here
                && own.is_none_or(|own: Port| own.real_port == other.real_port)
                && !self.is_taken(context, socket, &other)?
            {
                // The kernel says whether it still lives, and would share its port.
                own = Some(other);
            } else if self.is_excluded_by(context, socket, &other)? {
                return Err(Errno::EADDRINUSE);
            }
        }
        Ok(match own {
            Some(own) => Known::At(own),
            None if taken => Known::Elsewhere,
            None => Known::Nothing,
        })
    }

    /// Whether a socket that serves other addresses has the place of an entry now.
    fn is_taken<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        socket: Socket,
        own: &Port,
    ) -> Result<bool> {
        let all = self.network.table.ports().find(self.network.slot, self.protocol, self.port);
        let place = (own.real, own.real_port);
        for other in all.filter(|one| (one.real, one.real_port) == place && !self.meets(one)) {
            if self.lives(context, socket, &other)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the socket of an entry, at another real address, excludes one that is to be bound.
    fn is_excluded_by<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        socket: Socket,
        other: &Port,
    ) -> Result<bool> {
        if socket.name.port() != 0 {
            return Err(Errno::EINVAL);
        }
        if !self.lives(context, socket, other)? {
            return Ok(false);
        }
        is_refused(context, socket, other, true)
    }

    /// Whether the socket of an entry lives; for one that does not listen, whether it may.
    fn lives<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        socket: Socket,
        other: &Port,
    ) -> Result<bool> {
        match diag::find(context.backend, other, None) {
            Some(found) if found.cookie == other.cookie => return Ok(true),
            Some(_) if !other.group => return Ok(false),
            None if other.protocol == Protocol::Udp => return Ok(false),
            _ => {}
        }
        // What was noted there since has the place.
        let (table, slot) = (self.network.table, self.network.slot);
        let place = Place { at: self.network.at(other.real), port: other.real_port };
        let last = table.ports().at(slot, other.protocol, (place, other.real), None);
        if last.is_some_and(|last| last.cookie != other.cookie) {
            return Ok(false);
        }
        is_refused(context, socket, other, false)
    }

    /// Whether the real port that was tried is in use by something else than sockets of the same
    /// virtual port: a process of the host with this port of all addresses, or another virtual port
    /// of the container.
    fn is_others<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        place: Ipv4Addr,
        known: Known,
    ) -> bool {
        let natural = self.natural();
        let tried = match known {
            Known::Elsewhere => return false,
            Known::At(own) if natural.contains(&Some(own.real_port)) => [Some(own.real_port), None],
            // One that the kernel has chosen, and may have given to somebody else since.
            Known::At(own) => {
                return diag::find(context.backend, &own, None)
                    .is_some_and(|found| !self.is_mine(place, found.cookie) && !own.group);
            }
            Known::Nothing => natural,
        };
        let (table, slot) = (self.network.table, self.network.slot);
        if self.network.node() == Some(place) {
            // Containers of this host, and strangers, have the same address.
            return known == Known::Nothing
                || tried.into_iter().flatten().any(|port| {
                    diag::find(context.backend, &self.entry(place, port, 0), None)
                        .is_some_and(|found| !self.is_mine(place, found.cookie))
                });
        }
        tried.into_iter().flatten().any(|port| {
            let at = Place { at: table.owner(place).map(|owner| owner.1), port };
            let alias = table.ports().virtual_port(slot, self.protocol, at);
            let entry = table.ports().at(slot, self.protocol, (at, place), None);
            let there = self.entry(place, port, 0);
            alias.is_some_and(|alias| alias != self.port)
                || entry.is_some_and(|entry| entry.port != self.port || !self.meets(&entry))
                || diag::find(context.backend, &there, None)
                    .is_some_and(|found| found.address.is_unspecified())
        })
    }

    /// Whether a socket was noted at the same virtual port.
    fn is_mine(&self, place: Ipv4Addr, cookie: u64) -> bool {
        let (ports, slot) = (self.network.table.ports(), self.network.slot);
        let mut all = ports.find(slot, self.protocol, self.port);
        all.any(|own| own.real == place && own.cookie == cookie)
    }

    /// Whether a socket serves an address that is wanted.
    fn meets(&self, other: &Port) -> bool {
        match (self.address.is_unspecified(), other.address.is_unspecified()) {
            (true, true) => self.family.meets(other.family),
            (true, false) => self.family.serves(other.address),
            (false, true) => other.family.serves(self.address),
            (false, false) => self.address == other.address,
        }
    }

    /// Binds to an address of the host.
    fn publish<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        socket: Socket,
        (place, address, port): (Ipv4Addr, Ipv4Addr, u16),
    ) -> Result<()> {
        let all = address.is_unspecified();
        let target: SocketAddr = match (all, socket.six) {
            (true, true) => (Ipv6Addr::UNSPECIFIED, port).into(),
            (_, six) => in_family(address, port, six),
        };
        if !all {
            allow_mapped(context, socket)?;
        }
        if self.protocol == Protocol::Tcp {
            // The port is the host's and outlives the container, of which another begins with none
            // of its connections in `TIME_WAIT`. Each socket at it needs this.
            context.backend.set_socket_option(socket.fd, SocketOption::ReuseAddress, true)?;
        }
        context.backend.bind_socket(socket.fd, target)?;
        let real = match self.protocol {
            Protocol::Udp if all => {
                let (ports, slot) = (self.network.table.ports(), self.network.slot);
                ports.set_owner_of_wild(Protocol::Udp, port, slot);
                ports.set_wild_port(context.backend.socket_cookie(socket.fd)?, port);
                // What it sends to members has this source, so they have to send there too.
                Ipv4Addr::LOCALHOST
            }
            _ if all => place,
            _ => address,
        };
        self.note(context, socket, (real, port))
    }

    /// Notes a socket that the kernel has bound.
    fn note<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        socket: Socket,
        (real, real_port): (Ipv4Addr, u16),
    ) -> Result<()> {
        let (table, slot) = (self.network.table, self.network.slot);
        let ports = table.ports();
        let place = Place { at: self.network.at(real), port: real_port };
        let cookie = context.backend.socket_cookie(socket.fd)?;
        if self.network.node() == Some(real) {
            ports.set_owner_of_wild(self.protocol, real_port, slot);
        }
        let group = context.backend.socket_option(socket.fd, SocketOption::SharePort)?;
        let entry = Port { group, ..self.entry(real, real_port, cookie) };
        if entry.port != real_port || ports.virtual_port(slot, self.protocol, place).is_some() {
            ports.set_virtual_port(slot, self.protocol, place, entry.port);
        }
        let protocol = self.protocol;
        let noted = ports.insert(slot, &entry, |other| is_gone(context, socket, protocol, other));
        // The socket is bound, and nobody would find it.
        if noted { Ok(()) } else { Err(Errno::ENOBUFS) }
    }

    fn entry(&self, real: Ipv4Addr, real_port: u16, cookie: u64) -> Port {
        Port {
            protocol: self.protocol,
            family: self.family,
            address: self.address,
            port: if self.port == 0 { real_port } else { self.port },
            real,
            real_port,
            cookie,
            group: false,
        }
    }
}

/// What the table says of a port that a socket is to be bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// A socket of the same place has it, or had it.
    At(Port),
    /// No socket has it; the same real port is that of another address.
    Elsewhere,
    /// No socket has it.
    Nothing,
}

fn bind_any(host: &mut impl Sockets, (socket, address): (HostFd, SocketAddr)) -> Result<u16> {
    host.bind_socket(socket, address).map(|()| 0)
}

/// Whether the kernel has the socket of an entry no more, so far as a socket of this protocol can
/// tell.
pub(super) fn is_gone<N: Backend>(
    context: &mut CallContext<'_, N>,
    socket: Socket,
    protocol: Protocol,
    port: &Port,
) -> bool {
    port.protocol == protocol
        && diag::find(context.backend, port, None).is_none()
        && is_refused(context, socket, port, false) == Ok(false)
}

/// Whether the kernel refuses to bind another socket to the place of an entry: with `shared` one
/// that shares its address or port as this one does.
fn is_refused<N: Backend>(
    context: &mut CallContext<'_, N>,
    socket: Socket,
    port: &Port,
    shared: bool,
) -> Result<bool> {
    let twin = context.backend.twin_socket(socket.fd, shared)?;
    let _ = context.backend.set_socket_option(twin, SocketOption::OnlySix, false);
    let address = in_family(port.real, port.real_port, socket.six);
    let tried = context.backend.bind_socket(twin, address);
    context.backend.close_twin(twin);
    Ok(tried == Err(Errno::EADDRINUSE))
}

/// The entry by which a port of a container is reached at one of its addresses, if its socket
/// lives. `from`: the real place of a sender of datagrams.
pub(super) fn find<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: &Network<'_>,
    (slot, address): (Slot, Ipv4Addr),
    (protocol, port): (Protocol, u16),
    from: Option<(Ipv4Addr, u16)>,
) -> Option<Port> {
    let mut all = network.table.ports().serving(slot, protocol, (address, port));
    all.find_map(|one| {
        let real = alive(context, network, (slot, &one), from)?;
        Some(Port { real, ..one })
    })
}
