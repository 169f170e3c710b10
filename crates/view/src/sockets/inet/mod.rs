//! Addresses of the internet in a container whose networks have names, and which has no network
//! namespace: the guest's *virtual* addresses and ports, and the kernel's *real* ones.
//!
//! [`abi::network`] has the table of both. The rules:
//!
//! - A container has one real address for its networks, one for 127.0.0.0/8 and one for `::1`
//!   ([`Use`]). A socket is bound to that of the address that the guest names; one for all
//!   addresses is bound to that of the networks. The port stays, if it is free and the caller may
//!   bind it, else the kernel chooses one. A published port is bound at the host's own address.
//! - Who connects to a member, or to his own loopback, is bound to a real address of his own
//!   before, so that the other side sees who he is. Who sends datagrams is bound to all addresses
//!   of the host with a port that is noted, because he may send to other hosts too.
//! - An address that belongs to none of the container's networks is another host's: it stays.
//! - A socket is reached only if the kernel finds the one that was noted ([`alive`]). In the place
//!   of one that has ended the guest is sent to [`NOBODY`].
//!
//! - In a network of scope `cluster` the real address of the networks is the host's, and the port
//!   tells whose socket it is. Members of other hosts are asked for ([`far`]).
//!
//! [`address`]: what an address means. [`binding`]: `bind`. [`reach`]: `connect` and what is sent.
//! [`shown`]: addresses that the kernel returns. [`option`]: `getsockopt`. [`info`]: control
//! messages. [`diag`]: whether a socket lives.

mod address;
mod binding;
mod diag;
mod far;
mod info;
mod option;
mod reach;
mod shown;

use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, HostFd};
use crate::sockets::host::SocketKind;
use abi::network::{AGENT, Port, Protocol, Published, Slot, Table, Use};
pub use address::{LONGEST, SHORTEST, given, specify, spell};
pub(super) use binding::{bind, listen};
use core::net::{Ipv4Addr, SocketAddr};
pub(super) use info::{LONGEST_INFO, taken_source, translate};
pub(super) use option::option;
pub(super) use reach::{perhaps_disconnects, reach};
pub(super) use shown::{Role, shown};

/// A container's place in the table.
#[derive(Debug, Clone, Copy)]
pub struct Network<'a> {
    /// The table of this host.
    pub table: Table<'a>,
    /// The container's slot.
    pub slot: Slot,
    /// The user who started the container, on the host.
    pub uid: u32,
}

impl PartialEq for Network<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.slot == other.slot && self.table.base() == other.table.base()
    }
}

impl Network<'_> {
    /// A real address of the container.
    fn real(&self, use_: Use) -> Ipv4Addr {
        self.table.real(self.slot, use_)
    }

    /// Which of the container's real addresses this is.
    fn at(&self, real: Ipv4Addr) -> Option<Use> {
        if self.node() == Some(real) {
            return Some(Use::Network);
        }
        self.table.owner(real).map(|owner| owner.1)
    }

    /// The address of this host in the container's networks of scope `cluster`.
    fn node(&self) -> Option<Ipv4Addr> {
        self.table.members().node(self.slot)
    }

    /// Returns true if the container is in one network.
    fn is_single(&self) -> bool {
        self.table.members().memberships(self.slot).nth(1).is_none()
    }

    /// The address from which this container reaches another.
    fn towards(&self, other: Slot) -> Option<Ipv4Addr> {
        let other = if other == AGENT { self.slot } else { other };
        self.common(other).map(|(mine, _)| mine)
    }

    /// The addresses of this container and of another in the first network of both.
    fn common(&self, other: Slot) -> Option<(Ipv4Addr, Ipv4Addr)> {
        let members = self.table.members();
        members.memberships(self.slot).find_map(|mine| {
            let mut theirs = members.memberships(other);
            let theirs = theirs.find(|theirs| theirs.network == mine.network)?;
            Some((mine.address, theirs.address))
        })
    }

    /// How a port of the container is published.
    fn publishing(&self, udp: bool, port: u16) -> Option<(Published, u16)> {
        self.table
            .members()
            .published(self.slot)
            .filter(|one| one.udp == udp)
            .find_map(|one| one.port(port).map(|host| (one, host)))
    }
}

/// The real port at which nobody listens: that of tcpmux (RFC 1078), which an unprivileged user
/// cannot bind.
const NOBODY: u16 = 1;

/// A socket of the guest's, while a call is decided.
#[derive(Debug, Clone, Copy)]
struct Socket {
    fd: HostFd,
    /// `None` for another one than TCP and UDP.
    protocol: Option<Protocol>,
    /// What it is bound to now, as the kernel has it.
    name: SocketAddr,
    /// Its family is `AF_INET6`.
    six: bool,
}

/// Calls with the socket behind a descriptor of the guest; `None` if that is of another family.
fn with_socket<N: Backend, T>(
    context: &mut CallContext<'_, N>,
    descriptor: u64,
    call: impl FnOnce(&mut CallContext<'_, N>, Socket) -> Result<T>,
) -> Result<Option<T>> {
    let fd = context.backend.hold_socket(descriptor as u32 as i32)?;
    let result = match context.backend.socket_kind(fd) {
        Ok(SocketKind { protocol, name }) => {
            call(context, Socket { fd, protocol, name, six: name.is_ipv6() }).map(Some)
        }
        Err(Errno::EAFNOSUPPORT) => Ok(None),
        Err(error) => Err(error),
    };
    context.backend.release_socket(fd);
    result
}

/// Returns true if a descriptor of the guest is a socket of the internet.
pub(super) fn is_its<N: Backend>(context: &mut CallContext<'_, N>, descriptor: u64) -> bool {
    matches!(with_socket(context, descriptor, |_, _| Ok(())), Ok(Some(())))
}

/// For so long a socket counts as living that was seen to live: [`Sockets::ticks`], a millisecond
/// at most.
///
/// [`Sockets::ticks`]: crate::sockets::host::Sockets::ticks
const FRESH: u64 = 1 << 20;

/// The real address at which the kernel finds the socket of an entry, for who comes from there:
/// that of the entry. A socket of datagrams that is bound to all of the host's addresses, and then
/// connected to a member of a network of scope `cluster`, is at its host's.
///
/// To ask costs a third of what a connection takes, so the answer is used again for a moment, if
/// nothing else of the container has the port. If the socket ends in that moment, the kernel
/// refuses who comes.
fn alive<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: &Network<'_>,
    (slot, port): (Slot, &Port),
    from: Option<(Ipv4Addr, u16)>,
) -> Option<Ipv4Addr> {
    let (ports, now) = (network.table.ports(), context.backend.ticks());
    let is_only = || ports.find(slot, port.protocol, port.port).nth(1).is_none();
    let seen = ports.seen(slot, port);
    if seen != 0 && now.wrapping_sub(seen) < FRESH && is_only() {
        return Some(port.real);
    }
    let mut at = port.real;
    let mut found = diag::find(context.backend, port, from);
    if let Some(node) = network.node().filter(|_| port.protocol == Protocol::Udp)
        && found.is_none()
        && [Ipv4Addr::LOCALHOST, node].contains(&at)
    {
        at = node;
        let (to, from) = ((node, port.real_port), from.map(|(_, port)| (node, port)));
        found = diag::exact(context.backend, port.protocol, to, from);
    }
    let found = found?;
    // Of sockets that share a port the kernel shows any; another user's cannot be among them.
    let is_it = if port.group { found.uid == network.uid } else { found.cookie == port.cookie };
    if is_it && found.open && at == port.real {
        ports.set_seen(slot, port, now);
    }
    is_it.then_some(at)
}

/// The uses of a container's real addresses, by the guest's.
const fn use_of(address: Ipv4Addr) -> Use {
    match address.octets() {
        [0, 0, 0, 1] => Use::Loopback6,
        [127, ..] => Use::Loopback,
        _ => Use::Network,
    }
}
