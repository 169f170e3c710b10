//! Decides socket calls: translates addresses of `AF_UNIX` sockets, and the ids that are passed
//! through them; see unix(7).
//!
//! A guest's address is a path of the guest; the kernel must get one of the host, in 108 bytes. If
//! that is too short, the directory is reached by a short alias ([`crate::Host::alias`]), and a
//! socket whose name does not fit behind the alias by a descriptor of its own
//! ([`crate::Host::lend`]). Addresses that the kernel returns (`getsockname`, `accept`,
//! `recvmsg`...) are translated back without being cut: if the guest's buffer could be too small
//! for the host's name, the kernel writes into a larger one first.
//!
//! Abstract and empty names pass unchanged, because the container shares the host's network, unless
//! it has networks with names ([`abstract_names`]). Every other family passes, except the kernel's
//! audit (netlink): emulated root gets "not supported", as in any container, instead of "not
//! permitted".
//!
//! In a container whose networks have names, addresses of the internet are translated too:
//! [`inet`].
//!
//! They also see the interfaces of these networks: [`interfaces`].
//!
//! - [`request`]: decodes the arguments, also those of `socketcall`. [`address`]: translates names.
//!   [`messages`]: `sendmsg` and its family. [`peers`]: ids of other processes.

mod abstract_names;
mod address;
pub mod host;
pub mod inet;
pub mod interfaces;
mod messages;
mod peers;
mod request;
#[cfg(test)]
mod tests;

use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::Backend;
use crate::verdict::{After, Call, Verdict};
use abi::calls::Op;
pub(crate) use peers::ids_of;
use request::Request;

const AF_NETLINK: u32 = 16;
const NETLINK_AUDIT: u32 = 9;

/// Decides a call of [`abi::calls::Class::Socket`], including `socketcall`.
pub fn enter<N: Backend>(context: &mut CallContext<'_, N>, call: &Call, op: Op) -> Result<Verdict> {
    let Some(request) = Request::read(context.backend, call, op) else { return Ok(Verdict::Pass) };
    let arguments = &request.arguments;
    match request.op {
        Op::Socket
            if context.world.identity.is_some()
                && arguments[0] as u32 == AF_NETLINK
                && arguments[2] as u32 == NETLINK_AUDIT =>
        {
            Err(Errno::EPROTONOSUPPORT)
        }
        Op::Bind => address::bind(context, &request),
        Op::Listen => match context.world.network {
            Some(network) => inet::listen(context, network, arguments[0]).map(|()| Verdict::Pass),
            None => Ok(Verdict::Pass),
        },
        Op::Connect => address::send(context, &request, 1),
        Op::Sendto => address::send(context, &request, 4),
        Op::Accept | Op::Accept4 | Op::Getsockname | Op::Getpeername => {
            address::receive(context, &request, 1)
        }
        Op::Recvfrom if request.arguments[4] == 0 => Ok(interfaces::watch(context, &request)),
        Op::Recvfrom => address::receive(context, &request, 4),
        Op::Sendmsg => messages::send(context, &request),
        Op::Sendmmsg => messages::send_many(context, &request),
        Op::Recvmsg => messages::receive(context, &request),
        Op::Recvmmsg | Op::RecvmmsgTime64 => messages::receive_many(context, &request),
        Op::Getsockopt => peers::option(context, &request),
        _ => Ok(Verdict::Pass),
    }
}

/// Finishes a call for `Address`, `AddressFrom`, `Message`, `Messages`, `Sent`, `Peer`, `Bound` and
/// `Interfaces`; returns the result for the guest.
pub fn leave<N: Backend>(
    context: &mut CallContext<'_, N>,
    after: After,
    call: &Call,
    result: i64,
) -> i64 {
    if result < 0 {
        return result;
    }
    let op = abi::calls::find(call.arch, call.number).map(|entry| entry.op);
    let Some(mut request) = op.and_then(|op| Request::read(context.backend, call, op)) else {
        return result;
    };
    if matches!(request.op, Op::Accept | Op::Accept4) {
        request.accepted = u64::try_from(result).ok();
    }
    let done = match after {
        After::Address { address, length, room } => {
            let here = (address, length);
            address::received(context, &request, (here, here), room, result)
        }
        After::AddressFrom { scratch, address, length, room } => {
            let from = (scratch, scratch + address::LENGTH_BEHIND);
            address::received(context, &request, (from, (address, length)), room, result)
        }
        After::Message { header, room } => {
            messages::received(context, &request, (header, room), result)
        }
        After::Messages { scratch, count } => {
            messages::received_many(context, &request, scratch, count, result)
        }
        After::Sent { scratch, count } => {
            messages::sent_many(context, &request, scratch, count, result).map(|()| result)
        }
        After::Peer => peers::told(context, &request).map(|()| result),
        After::Bound => address::bound(context, &request).map(|()| result),
        After::Interfaces { .. } => Ok(interfaces::nameless(context, &request, result)),
        _ => Ok(result),
    };
    // The kernel has done its part, and would also return an error if it could not write to the
    // guest's memory.
    done.unwrap_or_else(Errno::result)
}
