//! Addresses of `AF_UNIX` sockets, and the ids that travel through them; see unix(7).
//!
//! A guest's address is a path of the guest; the kernel must get one of the host's, in 108 bytes. Where that is too short the directory is
//! reached by a short alias ([`crate::Host::alias`]), and a socket whose name has no room behind that, by a descriptor of its own
//! ([`crate::Host::lend`]). What the kernel tells of addresses (`getsockname`, `accept`, `recvmsg`...) is turned
//! back, whole: where the guest's buffer could be too small for the host's name, the kernel writes into a larger one first.
//!
//! Abstract and empty names pass as they are: the container shares the host's network. So does every other family, but for the kernel's audit
//! (netlink), which emulated root finds missing, as in any container, rather than forbidden.
//!
//! - [`request`]: the arguments, of `socketcall` too. [`address`]: names there and back. [`messages`]: `sendmsg` and its family.
//!   [`peers`]: ids of others.

mod address;
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

/// Decides a call of [`abi::calls::Class::Socket`], `socketcall` too.
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
        Op::Connect => address::send(context, &request, 1),
        Op::Sendto => address::send(context, &request, 4),
        Op::Accept | Op::Accept4 | Op::Getsockname | Op::Getpeername => {
            address::receive(context, &request, 1)
        }
        Op::Recvfrom => address::receive(context, &request, 4),
        Op::Sendmsg => messages::send(context, &request),
        Op::Sendmmsg => messages::send_many(context, &request),
        Op::Recvmsg => messages::receive(context, &request),
        Op::Recvmmsg | Op::RecvmmsgTime64 => messages::receive_many(context, &request),
        Op::Getsockopt => peers::option(context, &request),
        _ => Ok(Verdict::Pass),
    }
}

/// Finishes a call for `Address`, `AddressFrom`, `Message`, `Messages`, `Sent`, `Peer` and `Bound`; returns what the guest gets.
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
    let Some(request) = op.and_then(|op| Request::read(context.backend, call, op)) else {
        return result;
    };
    let done = match after {
        After::Address { address, length, room } => {
            address::received(context, (address, length), (address, length), room)
        }
        After::AddressFrom { scratch, address, length, room } => {
            let from = (scratch, scratch + address::LENGTH_BEHIND);
            address::received(context, from, (address, length), room)
        }
        After::Message { header, room } => messages::received(context, &request, header, room),
        After::Messages { scratch, count } => {
            messages::received_many(context, &request, scratch, count, result)
        }
        After::Sent { scratch, count } => {
            messages::sent_many(context, &request, scratch, count, result)
        }
        After::Peer => peers::told(context, &request),
        After::Bound => address::bound(context, &request),
        _ => Ok(()),
    };
    // The kernel has done its part, and would say the same where the guest's memory is not there.
    done.map_or_else(Errno::result, |()| result)
}
