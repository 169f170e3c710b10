//! Control messages of datagrams: `IP_PKTINFO` (ip(7)) and `IPV6_PKTINFO` (ipv6(7)), from which
//! address one is to come and at which it has arrived, and `IP_RECVERR` and `IPV6_RECVERR`, who has
//! refused it.

use super::address::{given, old, spell};
use super::shown::{destination, offender};
use super::{LONGEST, Network, with_socket};
use crate::CallContext;
use crate::guest::Backend;
use abi::network::ports::LOOPBACK6;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `IPPROTO_IP`, `IP_PKTINFO`.
const INFO: (u32, u32) = (0, 8);
/// `IPPROTO_IPV6`, `IPV6_PKTINFO`.
const INFO6: (u32, u32) = (41, 50);
/// Offsets in `struct in_pktinfo` of the local address and of that in the datagram.
const LOCAL: usize = 4;
const ADDRESS: usize = 8;
/// `IPPROTO_IP`, `IP_RECVERR`, and `IPPROTO_IPV6`, `IPV6_RECVERR`.
const ERRORS: [(u32, u32); 2] = [(0, 11), (41, 25)];
/// `sizeof(struct sock_extended_err)`, behind which there is the address of who has sent the error.
const ERROR: usize = 16;
/// The size of the longest.
pub(in crate::sockets) const LONGEST_INFO: usize = ERROR + LONGEST;

/// Replaces the address in a part of a control buffer that a datagram is to come from: the kernel
/// knows only the real one of the socket. Returns the guest's.
pub(in crate::sockets) fn taken_source<N: Backend>(
    context: &mut CallContext<'_, N>,
    descriptor: u64,
    (kind, at): ((u32, u32), usize),
) -> Option<IpAddr> {
    if !matches!(kind, INFO | INFO6) {
        return None;
    }
    let name = with_socket(context, descriptor, |_, socket| Ok(socket.name));
    let real = old(name.ok()??.ip())?;
    let bytes = &mut context.buffers.input;
    let address = if kind == INFO {
        let bytes = bytes.get_mut(at + LOCAL..)?.first_chunk_mut::<4>()?;
        IpAddr::from(core::mem::replace(bytes, real.octets()))
    } else {
        let bytes = bytes.get_mut(at..)?.first_chunk_mut::<16>()?;
        let all = real.is_unspecified();
        let real = if all { Ipv6Addr::UNSPECIFIED } else { real.to_ipv6_mapped() };
        IpAddr::from(core::mem::replace(bytes, real.octets()))
    };
    Some(address)
}

/// Translates the address in a received part of a control buffer. Returns false if it stays.
pub(in crate::sockets) fn translate<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: Network<'_>,
    descriptor: u64,
    (kind, sender): ((u32, u32), Option<SocketAddr>),
    part: &mut [u8],
) -> bool {
    if !ERRORS.contains(&kind) {
        return put_destination(context, network, descriptor, (kind, sender), part);
    }
    let Some(part) = part.get_mut(ERROR..) else { return false };
    let Some(shown) = given(part).and_then(|real| offender(&network, real)) else { return false };
    let mut spelled = [0; LONGEST];
    let length = spell(shown, &mut spelled);
    part[..length].copy_from_slice(&spelled[..length]);
    true
}

/// Puts the address at which a datagram has arrived, as the guest sees it.
fn put_destination<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: Network<'_>,
    descriptor: u64,
    (kind, sender): ((u32, u32), Option<SocketAddr>),
    part: &mut [u8],
) -> bool {
    let real = match kind {
        INFO => part.get(ADDRESS..).and_then(|part| part.first_chunk::<4>()).map(|it| (*it).into()),
        INFO6 => part.first_chunk::<16>().map(|it| (*it).into()),
        _ => None,
    };
    let Some(real) = real.and_then(old).filter(|real| !real.is_multicast()) else { return false };
    let shown = destination(context, network, descriptor, (real, sender));
    let Some(shown) = shown else { return false };
    if kind == INFO {
        let shown = if shown == LOOPBACK6 { Ipv4Addr::LOCALHOST } else { shown };
        part[ADDRESS..][..4].copy_from_slice(&shown.octets());
        part[LOCAL..][..4].copy_from_slice(&shown.octets());
    } else {
        let six = if shown == LOOPBACK6 { Ipv6Addr::LOCALHOST } else { shown.to_ipv6_mapped() };
        part[..16].copy_from_slice(&six.octets());
    }
    true
}
