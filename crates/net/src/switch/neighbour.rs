//! What is different about packets of IPv6: pure functions on bytes, from the header of the packet
//! on.
//!
//! A question for an ethernet address is a neighbour solicitation of ICMP (RFC 4861). It is
//! answered here, for addresses that members have, as one of ARP is. All other messages by which
//! hosts of a link arrange themselves are dropped: those of routers, because there is none and no
//! member may say that it is one; reports of who listens to which group, because a packet to a
//! group goes to all; and advertisements, because what they say follows from the address.
//!
//! A member has two addresses, one in the network's prefix and a link-local one
//! ([`crate::prefix`]). Packets to addresses that stand for no member of the network go nowhere:
//! the switch carries no IPv6 out of the network.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::route::Route;
use crate::prefix::{self, Prefix};
use crate::subnet::Subnet;

/// Size of a header (RFC 8200).
const HEADER: usize = 40;
/// Size of a message about a neighbour without options, and of the option with its address.
const MESSAGE: usize = 24;
const OPTION: usize = 8;

/// Kinds of what follows a header.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const ICMP: u8 = 58;
const DESTINATION: u8 = 60;
/// More headers than this before a message are too many.
const EXTENSIONS: usize = 4;

/// Kinds of messages: the question for an ethernet address, and its answer.
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Who listens to which group (RFC 2710, RFC 3810), and what routers and neighbours say.
const LISTENERS: std::ops::RangeInclusive<u8> = 130..=132;
const NEIGHBOURS: std::ops::RangeInclusive<u8> = 133..=137;
const LISTENERS_2: u8 = 143;
/// The option with the ethernet address of the one who answers.
const TARGET_ADDRESS: u8 = 2;
/// What messages about neighbours have, and packets from elsewhere cannot.
const HOP_LIMIT: u8 = 255;
/// Flags of an answer: it was asked for; it replaces what was known.
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// All hosts of a link.
const ALL_HOSTS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Where a packet goes in a network with these addresses. `sender`: the member that sends it.
pub(super) fn route(packet: &[u8], network: (Subnet, Prefix), sender: Ipv4Addr) -> Route {
    let (subnet, prefix) = network;
    let (Some((from, to)), Some((kind, message))) = (addresses(packet), contents(packet)) else {
        return Route::Nowhere;
    };
    let is_sender = member(from, prefix) == Some(sender);
    let reaches = |member: &Ipv4Addr| subnet.contains(*member) && *member != sender;
    match message.first() {
        Some(&SOLICITATION) if kind == ICMP && (is_sender || from.is_unspecified()) => {
            let asked = target(packet).and_then(|asked| self::member(asked, prefix));
            return asked.filter(reaches).map_or(Route::Nowhere, Route::Question);
        }
        Some(message) if kind == ICMP && is_of_link(*message) => return Route::Nowhere,
        _ => {}
    }
    match member(to, prefix) {
        _ if !is_sender => Route::Nowhere,
        _ if to.is_multicast() => Route::All,
        Some(to) if reaches(&to) => Route::Member(to),
        _ => Route::Nowhere,
    }
}

/// Whether a message is one by which hosts of a link arrange themselves.
fn is_of_link(message: u8) -> bool {
    LISTENERS.contains(&message) || NEIGHBOURS.contains(&message) || message == LISTENERS_2
}

/// The member that a packet says it is from.
pub(super) fn sender(packet: &[u8], prefix: Prefix) -> Option<Ipv4Addr> {
    member(addresses(packet)?.0, prefix)
}

/// The packet that answers a question, with the ethernet address that it asks for; `None` if the
/// packet is none.
pub(super) fn answer(packet: &[u8], ethernet: [u8; 6]) -> Option<[u8; HEADER + MESSAGE + OPTION]> {
    let (from, _) = addresses(packet)?;
    let asked = target(packet)?;
    // One who asks whether an address is free has none yet.
    let (to, solicited) = if from.is_unspecified() { (ALL_HOSTS, 0) } else { (from, SOLICITED) };
    let mut answer = [0; HEADER + MESSAGE + OPTION];
    answer[0] = 6 << 4;
    answer[5] = (MESSAGE + OPTION) as u8;
    answer[6] = ICMP;
    answer[7] = HOP_LIMIT;
    answer[8..24].copy_from_slice(&asked.octets());
    answer[24..40].copy_from_slice(&to.octets());
    answer[40] = ADVERTISEMENT;
    answer[44] = solicited | OVERRIDE;
    answer[48..64].copy_from_slice(&asked.octets());
    // The option's length is counted in units of 8 bytes.
    answer[64..66].copy_from_slice(&[TARGET_ADDRESS, 1]);
    answer[66..72].copy_from_slice(&ethernet);
    let sum = checksum(&answer);
    answer[42..44].copy_from_slice(&sum.to_be_bytes());
    Some(answer)
}

/// The checksum of a message of ICMP behind one header, in which its own place is zero: over both
/// addresses, the length and the kind, too (RFC 8200, 8.1). All have an even number of bytes.
fn checksum(packet: &[u8; HEADER + MESSAGE + OPTION]) -> u16 {
    let (pairs, _) = packet[8..].as_chunks::<2>();
    let words = pairs.iter().map(|pair| u32::from(u16::from_be_bytes(*pair)));
    let sum = words.sum::<u32>() + (MESSAGE + OPTION) as u32 + u32::from(ICMP);
    // Carries are added, and adding them may carry again.
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// The member that an address stands for.
fn member(address: Ipv6Addr, prefix: Prefix) -> Option<Ipv4Addr> {
    prefix.member(address).or_else(|| prefix::of_link_local(address))
}

/// Source and destination.
fn addresses(packet: &[u8]) -> Option<(Ipv6Addr, Ipv6Addr)> {
    let header = packet.get(..HEADER)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    Some((address(header, 8)?, address(header, 24)?))
}

fn address(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
    let octets: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
    Some(octets.into())
}

/// What a packet holds behind its headers, and of which kind that is. A part of a larger packet is
/// a kind of its own: kernels take no message about neighbours in parts (RFC 6980).
fn contents(packet: &[u8]) -> Option<(u8, &[u8])> {
    let (mut kind, mut rest) = (*packet.get(6)?, packet.get(HEADER..)?);
    for _ in 0..=EXTENSIONS {
        if ![HOP_BY_HOP, ROUTING, DESTINATION].contains(&kind) {
            return Some((kind, rest));
        }
        let [next, length, ..] = rest else { return None };
        kind = *next;
        rest = rest.get((usize::from(*length) + 1) * 8..)?;
    }
    None
}

/// The address for which a question asks, right behind the packet's header.
fn target(packet: &[u8]) -> Option<Ipv6Addr> {
    let message = packet.get(HEADER..HEADER + MESSAGE)?;
    let is_question =
        packet[6] == ICMP && packet[7] == HOP_LIMIT && message[..2] == [SOLICITATION, 0];
    if is_question { address(message, 8) } else { None }
}

#[cfg(test)]
#[path = "neighbour_tests.rs"]
pub(crate) mod tests;
