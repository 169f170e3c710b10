//! `connect`, and datagrams that are sent to an address.

use super::address::{Destination, in_family, narrow, old};
use super::binding::{adopt, allow_mapped, everywhere, find, is_gone, unbound};
use super::shown::is_only_six;
use super::{NOBODY, Network, Socket, far, use_of, with_socket};
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, HostFd};
use crate::sockets::host::SocketOption;
use abi::network::{AGENT, Place, Port, Protocol, Slot, Use, Way, ports::LOOPBACK6};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The real address for one that a guest wants to reach; `None` if that is the guest's own. The
/// socket is bound before, if it is not yet: the other side sees the sender's address. `connects`:
/// the call is `connect`. `from`: the address that a datagram is to come from, if the guest says
/// so.
pub(in crate::sockets) fn reach<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: Network<'_>,
    (descriptor, connects): (u64, bool),
    (address, from): (SocketAddr, Option<IpAddr>),
) -> Result<Option<SocketAddr>> {
    let (there, wanted) = match Destination::of(&network, address) {
        Destination::Member(slot, wanted) => (There::Here(slot), wanted),
        Destination::Far(number, wanted) => (There::Far(number), wanted),
        Destination::Nobody => return Err(Errno::EHOSTUNREACH),
        Destination::Outside if network.table.members().is_internal(network.slot) => {
            return Err(Errno::ENETUNREACH);
        }
        Destination::Outside => return Ok(None),
    };
    let port = address.port();
    let target = |protocol| Target { network, protocol, there, address: wanted, port };
    let from = from.and_then(narrow);
    if !address.is_ipv6()
        && matches!(there, There::Here(_))
        && let Some(to) = at_once(context, &target, (descriptor, connects), from)?
    {
        return Ok(Some(to.into()));
    }
    let real = with_socket(context, descriptor, |context, socket| {
        let (six, is_other) = (address.is_ipv6(), address.is_ipv6() != socket.six);
        if is_other && (six || socket.protocol == Some(Protocol::Tcp)) {
            // The kernel takes no other but for datagrams, which go to IPv4 from both.
            return Ok(None);
        }
        let Some(protocol) = socket.protocol else {
            // For instance an echo request of ICMP.
            let There::Here(slot) = there else { return Err(Errno::EHOSTUNREACH) };
            let there = network.table.real(slot, Use::Network);
            return Ok(Some(in_family(there, port, six)));
        };
        if port == 0 && protocol == Protocol::Udp && !connects {
            return Err(Errno::EINVAL);
        }
        if six && wanted != LOOPBACK6 && is_only_six(context, network, socket)? {
            return Err(Errno::ENETUNREACH);
        }
        allow_mapped(context, socket)?;
        let target = target(protocol);
        let source = Source { wished: from, ..target.source(context, socket)? };
        let (to, port) = target.reach(context, socket, source)?;
        Ok(Some(in_family(to, port, six)))
    })?;
    Ok(real.flatten())
}

/// `connect` to an address of `AF_UNSPEC`: a socket of datagrams is connected no more, and the
/// kernel takes a port back that it has chosen itself.
pub(in crate::sockets) fn perhaps_disconnects<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: Network<'_>,
    descriptor: u64,
    (at, length): (u64, u64),
) {
    let mut family = [0; 2];
    if length < 2 || context.backend.read(at, &mut family).is_err() || family != [0; 2] {
        return;
    }
    let _ = with_socket(context, descriptor, |context, socket| {
        if socket.protocol == Some(Protocol::Udp) {
            let cookie = context.backend.socket_cookie(socket.fd)?;
            network.table.ports().set_wild_port(cookie, 0);
        }
        Ok(())
    });
}

/// The commonest cases, with fewer questions to the kernel: a datagram of a socket that is bound to
/// all of the host's addresses, and a connection of one that is not bound. `None` for others.
fn at_once<'n, N: Backend>(
    context: &mut CallContext<'_, N>,
    target: &impl Fn(Protocol) -> Target<'n>,
    (descriptor, connects): (u64, bool),
    from: Option<Ipv4Addr>,
) -> Result<Option<(Ipv4Addr, u16)>> {
    let fd = context.backend.hold_socket(descriptor as u32 as i32)?;
    let to = if connects {
        let is_tcp = context.backend.socket_protocol(fd) == Ok(Some(Protocol::Tcp));
        is_tcp.then(|| target(Protocol::Tcp)).and_then(|target| target.connect(context, fd))
    } else {
        target(Protocol::Udp).send(context, fd, from)
    };
    context.backend.release_socket(fd);
    Ok(to)
}

/// On which host a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum There {
    /// On this one.
    Here(Slot),
    /// On another one, in the network with this number.
    Far(u16),
}

/// Who is to be reached.
struct Target<'n> {
    network: Network<'n>,
    protocol: Protocol,
    there: There,
    /// In the table's form.
    address: Ipv4Addr,
    port: u16,
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
        self.there == There::Here(self.network.slot)
    }

    fn is_served_by(&self, own: &Port) -> bool {
        let any = own.address.is_unspecified() && own.family.serves(self.address);
        self.is_own() && own.port == self.port && (own.address == self.address || any)
    }

    /// Finds what is to be reached.
    fn find<N: Backend>(&self, context: &mut CallContext<'_, N>, source: &Source) -> Option<Port> {
        let There::Here(slot) = self.there else { return None };
        let from = source.place_of(&self.network);
        let from = Some(from).filter(|_| self.protocol == Protocol::Udp);
        let (there, what) = ((slot, self.address), (self.protocol, self.port));
        find(context, &self.network, there, what, from)
    }

    /// [`at_once`] for a connection.
    fn connect<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        fd: HostFd,
    ) -> Option<(Ipv4Addr, u16)> {
        let source = self.unbound();
        let found = self.find(context, &source)?;
        if !self.is_told_by(&source, Some(&found)) {
            return None;
        }
        // The kernel refuses one that is bound, or of the other family.
        let real = self.network.real(source.at());
        bind_source(context, (real, false), fd, true).ok()?;
        Some((found.real, found.real_port))
    }

    /// [`at_once`] for a datagram.
    fn send<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        fd: HostFd,
        wished: Option<Ipv4Addr>,
    ) -> Option<(Ipv4Addr, u16)> {
        let cookie = context.backend.socket_cookie(fd).ok()?;
        let port = self.network.table.ports().wild_port(cookie)?;
        let source = Source { at: None, port, entry: None, wished };
        let found = self.find(context, &source)?;
        let to = (found.real, found.real_port);
        self.tell(&source, to, (Some(&found), cookie), |_| false).then_some(to)
    }

    /// The real address and port; those of nobody if nobody is there. Binds the socket if it is not
    /// bound.
    fn reach<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        socket: Socket,
        mut source: Source,
    ) -> Result<(Ipv4Addr, u16)> {
        let mut found = self.find(context, &source);
        if found.is_none()
            && let Some(own) = source.entry.filter(|own| self.is_served_by(own))
        {
            // A socket may connect to itself.
            let cookie = context.backend.socket_cookie(socket.fd)?;
            found = Some(own).filter(|own| own.cookie == cookie);
        }
        let to = match found {
            Some(found) => (found.real, found.real_port),
            None => self.elsewhere(context, &source)?,
        };
        if source.port == 0 {
            let real = self.network.real(source.at());
            let is_told = self.is_told_by(&source, found.as_ref());
            let _ = bind_source(context, (real, socket.six), socket.fd, is_told);
            if !is_told {
                source.port = context.backend.socket_name(socket.fd, false)?.port();
            }
        }
        let cookie = match source.entry {
            Some(entry) => entry.cookie,
            None => context.backend.socket_cookie(socket.fd)?,
        };
        self.tell(&source, to, (found.as_ref(), cookie), |port| {
            is_gone(context, socket, self.protocol, port)
        });
        Ok(to)
    }

    /// Where a member of another host is, or nobody.
    fn elsewhere<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        source: &Source,
    ) -> Result<(Ipv4Addr, u16)> {
        let nobody = if self.port == 0 { 0 } else { NOBODY };
        match self.there {
            There::Here(slot) => Ok((self.network.table.real(slot, Use::Network), nobody)),
            There::Far(number) => {
                let what = (self.protocol, self.address, self.port);
                let place = far::reach(context, &self.network, number, what, source.port)?;
                match (place.port(), self.protocol) {
                    (0, Protocol::Tcp) => Err(Errno::ECONNREFUSED),
                    (0, Protocol::Udp) => Ok((*place.ip(), nobody)),
                    (port, _) => Ok((*place.ip(), port)),
                }
            }
        }
    }

    /// Notes the way, if the real addresses do not tell it. Returns false if there is no room.
    fn tell(
        &self,
        source: &Source,
        to: (Ipv4Addr, u16),
        (found, cookie): (Option<&Port>, u64),
        is_dead: impl FnMut(&Port) -> bool,
    ) -> bool {
        let (network, protocol) = (self.network, self.protocol);
        let (ports, from) = (network.table.ports(), Place { at: source.at, port: source.port });
        if source.at == Some(Use::Network) && source.port != 0 && network.node().is_some() {
            ports.set_owner_of_wild(protocol, source.port, network.slot);
        }
        if self.is_told_by(source, found) {
            ports.remove_way(network.slot, protocol, from, to);
            return true;
        }
        let (shown, destination) = (self.source_shown(source), self.address);
        let is_far = matches!(self.there, There::Far(_));
        let port = if is_far || self.is_elsewhere(found) { self.port } else { 0 };
        let way = Way { protocol, from, to, source: shown, destination, port };
        ports.insert_way(network.slot, &way, cookie, is_dead)
    }

    /// Where a socket will send from that is not bound.
    fn unbound(&self) -> Source {
        let at = match self.there {
            There::Here(AGENT) => Use::Loopback,
            _ if self.is_own() => use_of(self.address),
            _ => Use::Network,
        };
        Source { at: Some(at), port: 0, entry: None, wished: None }
    }

    /// Where the socket sends from. One of datagrams that is not bound is bound now.
    fn source<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        socket: Socket,
    ) -> Result<Source> {
        let network = self.network;
        let (mut name, ports) = (socket.name, network.table.ports());
        if self.protocol == Protocol::Udp && old(name.ip()) == Some(Ipv4Addr::UNSPECIFIED) {
            match name.port() {
                0 => {
                    let family = unbound(context, socket)?;
                    everywhere(context, network, socket, family)?;
                    name = context.backend.socket_name(socket.fd, false)?;
                }
                // The kernel has bound it, for a call that then failed, or to send to other hosts.
                port if ports.owner_of_wild(self.protocol, port) != Some(network.slot) => {
                    let family = unbound(context, socket)?;
                    adopt(context, network, socket, (family, port))?;
                }
                _ => {}
            }
        }
        if name.port() == 0 {
            return Ok(self.unbound());
        }
        let real = old(name.ip()).unwrap_or(Ipv4Addr::UNSPECIFIED);
        let published = real.is_unspecified() && self.protocol == Protocol::Tcp;
        let at = if published { Some(Use::Network) } else { network.at(real) };
        let place = Place { at, port: name.port() };
        let real = at.map_or(Ipv4Addr::LOCALHOST, |at| network.real(at));
        let mut entry = ports.at(network.slot, self.protocol, (place, real), None);
        if entry.is_some() && ports.is_shared(network.slot, self.protocol, (place, real)) {
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

    /// Whether a connection leads to an address of the host, at which a member has published its
    /// port.
    fn is_elsewhere(&self, found: Option<&Port>) -> bool {
        let table = &self.network.table;
        self.protocol == Protocol::Tcp
            && found.is_some_and(|port| {
                table.owner(port.real).is_none() && self.network.node() != Some(port.real)
            })
    }

    /// Whether both sides are shown rightly by their real addresses alone ([`super::shown`]).
    fn is_told_by(&self, source: &Source, found: Option<&Port>) -> bool {
        let There::Here(slot) = self.there else { return false };
        if slot == AGENT {
            // It has one address.
            return true;
        }
        if self.is_elsewhere(found) {
            return false;
        }
        let is_auto = source.entry.is_none() && source.at == Some(Use::Network);
        if self.protocol == Protocol::Tcp && is_auto && self.network.node().is_some() {
            // All containers of the host have the address.
            return false;
        }
        let common = self.network.common(slot);
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
    (real, six): (Ipv4Addr, bool),
    fd: HostFd,
    without_port: bool,
) -> Result<()> {
    if without_port {
        // Kernels before 4.2 do not know it, and choose the port now.
        let _ = context.backend.set_socket_option(fd, SocketOption::BindWithoutPort, true);
    }
    context.backend.bind_socket(fd, in_family(real, 0, six))
}
