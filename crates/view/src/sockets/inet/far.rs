//! Members that live on other hosts, in networks of scope `cluster`: where they are, and who is at
//! a place of another host.
//!
//! Only the other host knows, so the agent of this host is asked ([`abi::network::ask`]). For
//! `connect` of TCP it is asked each time: the other host looks whether the socket lives, so a
//! guest is not led to a stranger, and a `connect` right after a `bind` does not come too early.
//! Answers about datagrams, and about who is at the other end, are used again for [`FRESH`].

use super::Network;
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::Backend;
use abi::network::Protocol;
use abi::network::ask::{ANSWER, Answer, Question};
use core::net::{Ipv4Addr, SocketAddrV4};

/// For so long an answer is used again: ticks of the processor, 50 to 250 milliseconds.
const FRESH: u64 = 1 << 28;

/// Port of an answer that is kept: nobody is there.
const NOBODY: u16 = 0;

/// Where a port of a member is; with port 0 if the member has none there. `from`: the real port
/// from which a datagram is to be sent there.
pub(super) fn reach<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: &Network<'_>,
    number: u16,
    (protocol, address, port): (Protocol, Ipv4Addr, u16),
    from: u16,
) -> Result<SocketAddrV4> {
    let words = [
        u64::from(number) << 48 | u64::from(port) << 32 | u64::from(address.to_bits()),
        u64::from(network.slot.number()) << 16 | u64::from(from),
    ];
    let key = key(words, protocol, 1);
    if protocol == Protocol::Udp
        && let Some(place) = recall(context, network, key)
    {
        return Ok(place);
    }
    let question = Question::Reach { network: number, protocol, address, port, from };
    let place = match ask(context, network, &question) {
        Some(Answer::Found(place)) => place,
        Some(Answer::Refused(host)) => SocketAddrV4::new(host, NOBODY),
        Some(Answer::Absent | Answer::Unreachable) | None => return Err(Errno::EHOSTUNREACH),
    };
    if protocol == Protocol::Udp && place.port() != NOBODY {
        let now = context.backend.ticks();
        network.table.keep(key, place, now);
    }
    Ok(place)
}

/// The virtual address and port of the socket at a place of another host, which talks to a socket
/// of this container (`own`: its real place; `cookie`: its number). `None` for a stranger's.
pub(super) fn who<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: &Network<'_>,
    protocol: Protocol,
    (peer, own, cookie): (SocketAddrV4, SocketAddrV4, u64),
) -> Option<SocketAddrV4> {
    let place = u64::from(peer.ip().to_bits()) << 16 | u64::from(peer.port());
    let key = key([place, cookie], protocol, 2);
    if let Some(found) = recall(context, network, key) {
        return Some(found);
    }
    let question = Question::Who { slot: network.slot, protocol, peer, own };
    let Some(Answer::Found(found)) = ask(context, network, &question) else { return None };
    let now = context.backend.ticks();
    network.table.keep(key, found, now);
    Some(found)
}

fn key(words: [u64; 2], protocol: Protocol, kind: u64) -> u64 {
    let seed = kind << 1 | u64::from(protocol == Protocol::Udp);
    let [first, second] = words.map(u64::to_le_bytes);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first);
    bytes[8..].copy_from_slice(&second);
    abi::shared::hash(&bytes, seed).max(1)
}

fn recall<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: &Network<'_>,
    key: u64,
) -> Option<SocketAddrV4> {
    let (found, time) = network.table.recall(key)?;
    let age = context.backend.ticks().wrapping_sub(time);
    (age < FRESH).then_some(found)
}

/// `None` if no agent answers.
fn ask<N: Backend>(
    context: &mut CallContext<'_, N>,
    network: &Network<'_>,
    question: &Question,
) -> Option<Answer> {
    let agent = network.table.agent()?;
    // Other questions go through other sockets, and the secrets tell strangers apart.
    let nonce = context.backend.ticks();
    let mut answer = [0; ANSWER];
    let bytes = question.write(agent.asking, nonce);
    let length = context.backend.ask_agent(agent.place, &bytes, &mut answer).ok()?;
    Answer::read(answer.get(..length)?, agent.telling, nonce)
}
