//! `connect`, and datagrams that are sent to an address.

use super::address::{Destination, in_family};
use super::binding::{allow_mapped, everywhere, find};
use super::{NOBODY, Network, use_of, with_socket};
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, HostFd};
use crate::sockets::host::{SocketKind, SocketOption};
use abi::network::{Protocol, Slot, Use};
use core::net::{Ipv4Addr, SocketAddr};

/// The real address for one that a guest wants to reach; `None` if that is the guest's own. The
/// socket is bound before, if it is not yet: the other side sees the sender's address.
pub(in crate::sockets) fn reach<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: Network<'_>,
    descriptor: u64,
    address: SocketAddr,
) -> Result<Option<SocketAddr>> {
    let (slot, narrow) = match Destination::of(&network, address) {
        Destination::Member(slot, narrow) => (slot, narrow),
        Destination::Nobody => return Err(Errno::EHOSTUNREACH),
        Destination::Outside if network.table.members().is_internal(network.slot) => {
            return Err(Errno::ENETUNREACH);
        }
        Destination::Outside => return Ok(None),
    };
    with_socket(context, descriptor, |context, socket, kind| {
        if address.is_ipv6() && !kind.six {
            return Ok(None);
        }
        let six = address.is_ipv6();
        let there = network.table.real(slot, Use::Network);
        let Some(protocol) = kind.protocol else {
            // For instance an echo request of ICMP.
            return Ok(Some(in_family(there, address.port(), six)));
        };
        let found = find(context, network, (slot, narrow), (protocol, address.port()));
        allow_mapped(context, socket, kind)?;
        match protocol {
            Protocol::Tcp => bind_source(context, network, (socket, kind), (slot, narrow)),
            Protocol::Udp => {
                if context.backend.socket_name(socket, false)?.port() == 0 {
                    everywhere(context, network, (socket, kind))?;
                }
            }
        }
        let (real, port) = found.map_or((there, NOBODY), |found| (found.real, found.real_port));
        Ok(Some(in_family(real, port, six)))
    })
}

/// Binds a socket to the container's real address, without a port: the kernel chooses that when it
/// connects, so that ports of connections to different places do not use each other up. A socket
/// that is bound already stays as it is.
fn bind_source<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: Network<'_>,
    (socket, kind): (HostFd, &SocketKind),
    (slot, narrow): (Slot, Ipv4Addr),
) {
    let use_ = if slot == network.slot { use_of(narrow) } else { Use::Network };
    let mine = in_family(network.table.real(network.slot, use_), 0, kind.six);
    // Kernels before 4.2 do not know it, and choose the port now.
    let _ = context.backend.set_socket_option(socket, SocketOption::BindWithoutPort, true);
    let _ = context.backend.bind_socket(socket, mine);
}
