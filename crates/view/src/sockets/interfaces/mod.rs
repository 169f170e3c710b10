//! Shows a container in networks with names the interfaces of its networks: `lo` with 127.0.0.1 and
//! `::1`, and one interface with the addresses that the container has in its networks.
//!
//! Programs publish the addresses that they find (Java, MPI, databases), and the host's would lead
//! the other members to the host, or two nodes of one host to the same address. They ask in two
//! ways, and get the kernel's own answer with other addresses in it:
//!
//! - **netlink** (rtnetlink(7), `RTM_GETADDR`): `getifaddrs` of glibc and musl, Go, `ip`. The
//!   messages are rewritten in the guest's memory after they were received ([`messages`]).
//! - **ioctl** (netdevice(7)): `SIOCGIFCONF`, and the address, netmask and broadcast address of one
//!   interface ([`requests`]): Java, Open MPI, UCX.
//!
//! The addresses stand at one interface of the host's, because names and numbers of interfaces lead
//! to more than addresses: flags, speed, `/sys/class/net`. It is the one that has the address from
//! which the host reaches the world, else the first that has an address, else `lo`. Other
//! interfaces stay, and have no address.
//!
//! To answer the request itself would mean to catch `send` without an address, on which every
//! stream of TCP depends, and to keep an answer between two calls. The messages that were received
//! say everything: an address of the host either stands for those of the container, or is left
//! out. So nothing is kept, and it does not matter who asked, or whether the kernel told of a
//! change by itself. Messages are left out and not made `NLMSG_NOOP`, since musl takes what is no
//! interface for an address; only where nothing is left there is one, because musl takes an answer
//! of no bytes for an error.
//!
//! A third way is `/proc/net/if_inet6` (Java, Open MPI 5), from which lines are left out
//! ([`is_shown`]).
//!
//! What is received without an address (`recv`, `read`) is not caught, for the same reason; except
//! that musl's way to ask, 8192 bytes with `MSG_DONTWAIT`, is. Routes, neighbours and what else
//! is in `/proc/net` are the host's. Only containers with [`crate::World::network`] come here.

mod messages;
mod requests;
#[cfg(test)]
mod tests;

use super::inet::Network;
use super::request::Request;
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Sockets};
use crate::verdict::{After, Verdict};
use abi::calls::Op;
use abi::layout::Msghdr;
use abi::network::members::MEMBERSHIPS;
use core::net::Ipv4Addr;
pub(crate) use requests::{asked, told};

/// `sizeof(struct sockaddr_nl)`: so long is the name of who sends messages of netlink.
const NAME: usize = 12;
/// `LOOPBACK_IFINDEX`.
const LOOPBACK: u32 = 1;
/// `IFNAMSIZ`.
pub const LABEL: usize = 16;
/// An address of another host, to which no packet is sent.
const WORLD: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);

/// What a container sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Interfaces {
    place: Place,
    /// The container's addresses, and how many leading bits each has in common with its network.
    own: [Option<(Ipv4Addr, u8)>; MEMBERSHIPS],
}

/// The address of the host in the place of which there are those of the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// The number of its interface.
    index: u32,
    /// The interface's name, ended by NULs.
    label: [u8; LABEL],
    address: Ipv4Addr,
}

impl Place {
    /// That of a host which has no other interface.
    const LOOPBACK: Self = Self {
        index: LOOPBACK,
        label: [b'l', b'o', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        address: Ipv4Addr::LOCALHOST,
    };

    /// Asks the kernel for it. `work` gets the kernel's answers.
    fn find(host: &mut impl Sockets, work: &mut [u8]) -> Self {
        let source = messages::route_request(WORLD);
        let told = host.ask_routes(&source, work);
        let source = told.ok().and_then(|length| messages::source_of(work.get(..length)?));
        let told = host.ask_routes(&messages::ADDRESSES, work);
        let all = told.ok().and_then(|length| work.get(..length)).unwrap_or_default();
        let mut first = None;
        for place in messages::places(all) {
            if Some(place.address) == source {
                return place;
            }
            if place.index != LOOPBACK {
                first = first.or(Some(place));
            }
        }
        first.unwrap_or(Self::LOOPBACK)
    }
}

/// The name of the interface at which containers of this host see their addresses, ended by NULs.
pub fn shown_at(host: &mut impl Sockets) -> [u8; LABEL] {
    Place::find(host, &mut [0; 4096]).label
}

/// Returns true for a line of `/proc/net/if_inet6` that containers see: `::1` at `lo`. Columns are
/// the address, the number of the interface and four others.
pub(crate) fn is_shown(line: &[u8]) -> bool {
    line.starts_with(b"00000000000000000000000000000001 01 ")
}

impl Interfaces {
    fn of<N: Backend>(context: &mut CallContext<'_, N>, network: &Network<'_>) -> Self {
        let place = Place::find(context.backend, &mut context.buffers.output);
        let mut own = [None; MEMBERSHIPS];
        let memberships = network.table.members().memberships(network.slot);
        for (to, membership) in own.iter_mut().zip(memberships) {
            *to = Some((membership.address, membership.prefix));
        }
        Self { place, own }
    }

    fn own(&self) -> impl Iterator<Item = (Ipv4Addr, u8)> + '_ {
        self.own.iter().flatten().copied()
    }
}

/// The last address of a network, to which everything goes that is for all its members.
fn broadcast((address, prefix): (Ipv4Addr, u8)) -> Ipv4Addr {
    Ipv4Addr::from_bits(address.to_bits() | !mask(prefix).to_bits())
}

fn mask(prefix: u8) -> Ipv4Addr {
    let zeros = 32_u32.saturating_sub(u32::from(prefix));
    Ipv4Addr::from_bits(u32::MAX.checked_shl(zeros).unwrap_or(0))
}

/// A `recvfrom` without an address. The filter lets those of musl stop.
pub(super) fn watch<N: Backend>(context: &CallContext<'_, N>, request: &Request) -> Verdict {
    let is_asked = context.world.network.is_some()
        && request.op == Op::Recvfrom
        && request.arguments[4] == 0
        && request.arguments[2] as u32 == abi::calls::filter::ASKED_BY_MUSL.0
        && request.arguments[3] as u32 == abi::calls::filter::ASKED_BY_MUSL.1;
    if is_asked { Verdict::Watch(After::Interfaces { room: 0 }) } else { Verdict::Pass }
}

/// What `recvfrom` has received from somebody whose name is `whole` bytes long: rewrites messages
/// about addresses. Returns how much there is for the guest.
pub(super) fn received<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
    whole: usize,
    result: i64,
) -> i64 {
    if whole != NAME || context.world.network.is_none() {
        return result;
    }
    let [descriptor, at, room, ..] = request.arguments;
    into(context, descriptor, (at, room), result).unwrap_or_else(Errno::result)
}

/// The same for a message, whose header of the guest's is at `at`.
pub(super) fn received_message<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
    (whole, at): (usize, u64),
    result: i64,
) -> i64 {
    if whole != NAME || context.world.network.is_none() {
        return result;
    }
    into_message(context, request, at, result).unwrap_or_else(Errno::result)
}

fn into_message<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
    at: u64,
    result: i64,
) -> Result<i64> {
    let layout = Msghdr::of(request.arch());
    let (mut header, mut vector) = ([0; 64], [0; 16]);
    context.backend.read(at, &mut header[..layout.size])?;
    let vectors = layout.word_at(&header, layout.vectors);
    if layout.word_at(&header, layout.vector_count) == 0 {
        return Ok(result);
    }
    // Nobody has such messages cut into pieces.
    context.backend.read(vectors, &mut vector[..2 * layout.word])?;
    let data = (layout.word_at(&vector, 0), layout.word_at(&vector, layout.word));
    into(context, request.arguments[0], data, result)
}

/// What was received without a name.
pub(super) fn nameless<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
    result: i64,
) -> i64 {
    received(context, request, NAME, result)
}

/// Rewrites messages in the guest's memory, if they are from a socket for them.
fn into<N: Backend>(
    context: &mut CallContext<'_, N>,
    descriptor: u64,
    (at, room): (u64, u64),
    result: i64,
) -> Result<i64> {
    let Some(network) = context.world.network else { return Ok(result) };
    let length = u64::try_from(result).unwrap_or(0).min(room);
    let data = messages::Data { at, length, room };
    if !data.is_of_addresses(context.backend) || !is_for_routes(context, descriptor) {
        return Ok(result);
    }
    let interfaces = Interfaces::of(context, &network);
    let now = data.rewrite(context.backend, &mut context.buffers.input, &interfaces)?;
    // Of a message that did not fit, the guest may want to know how long it is.
    Ok(if result as u64 > room { result } else { now as i64 })
}

fn is_for_routes<N: Backend>(context: &mut CallContext<'_, N>, descriptor: u64) -> bool {
    let Ok(socket) = context.backend.hold_socket(descriptor as u32 as i32) else { return false };
    let is_it = context.backend.is_for_routes(socket);
    context.backend.release_socket(socket);
    is_it
}
