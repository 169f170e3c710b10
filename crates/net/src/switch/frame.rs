//! What a frame says about where it goes: pure functions on bytes.
//!
//! A frame lies behind a `virtio_net_hdr` of [`HEADER`] bytes, in which the kernel says what it has
//! left to the device: a checksum, or the cutting of a large piece of TCP. Devices of members take
//! that as it is, so nothing here reads it.
//!
//! Frames go by their IP destination and not by their ethernet address, which follows from it
//! ([`ethernet`]). So nothing is learned, and nothing can be forgotten or be learned wrongly. An
//! IPv6 address stands for an IPv4 one ([`crate::prefix`]), so both lead to the same member; what
//! only IPv6 has is in the module `neighbour`.

use std::net::Ipv4Addr;

use super::neighbour;
pub use super::route::{Ranges, Route};
use crate::prefix::Prefix;
use crate::subnet::Subnet;

/// Size of `struct virtio_net_hdr`.
pub const HEADER: usize = 10;
/// The longest frame with its header: the kernel cuts packets of more than 64 kB itself.
pub const LONGEST: usize = HEADER + ETHERNET + (64 << 10);

/// Size of an ethernet header: both addresses, and the kind.
pub(super) const ETHERNET: usize = 14;
/// Size of a message of ARP for ethernet and IPv4 (RFC 826).
const ARP: usize = 28;
/// The shortest header of IPv4 (RFC 791).
const IP: usize = 20;

/// The kind of frames of IPv4.
pub(super) const KIND_IP: u16 = 0x0800;
const KIND_ARP: u16 = 0x0806;
const KIND_IPV6: u16 = 0x86dd;
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

/// The ethernet address of the member with an IPv4 address: Docker's.
pub const fn ethernet(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [0x02, 0x42, a, b, c, d]
}

/// Where a frame with its header goes in a network with these addresses. `sender`: the member that
/// sends it, which must have written its own address into it.
pub fn route(frame: &[u8], network: &Ranges, sender: Ipv4Addr) -> Route {
    let Ranges { subnet, prefix } = *network;
    let Some((kind, body)) = kind(frame) else { return Route::Nowhere };
    let addresses = match (kind, prefix) {
        (KIND_IP, _) => destination(body),
        (KIND_ARP, _) => return question(body, subnet, sender),
        (KIND_IPV6, Some(prefix)) => return neighbour::route(body, (subnet, prefix), sender),
        _ => None,
    };
    match addresses {
        Some((from, _)) if from != sender => Route::Nowhere,
        Some((_, to)) if to.is_multicast() || to.is_broadcast() || to == subnet.last() => {
            Route::All
        }
        Some((_, to)) if !subnet.contains(to) => Route::Outside,
        Some((_, to)) if to != sender => Route::Member(to),
        _ => Route::Nowhere,
    }
}

/// The IPv4 address of the member that a frame with its header says it is from; `None` if it is no
/// packet of IP. `prefix`: the network's IPv6 addresses.
pub fn sender(frame: &[u8], prefix: Option<Prefix>) -> Option<Ipv4Addr> {
    let (kind, body) = kind(frame)?;
    match (kind, prefix) {
        (KIND_IP, _) => destination(body).map(|(from, _)| from),
        (KIND_IPV6, Some(prefix)) => neighbour::sender(body, prefix),
        _ => None,
    }
}

/// Whether a frame with its header holds a packet of IPv4.
pub fn is_ipv4(frame: &[u8]) -> bool {
    kind(frame).is_some_and(|(kind, _)| kind == KIND_IP)
}

/// Whether a frame with its header asks for an ethernet address by IPv4's way, ARP.
pub fn is_arp(frame: &[u8]) -> bool {
    kind(frame).is_some_and(|(kind, _)| kind == KIND_ARP)
}

/// The IPv4 address that the sender of a frame with its header writes as its own: into a packet, or
/// into a message of ARP.
pub fn speaker(frame: &[u8]) -> Option<Ipv4Addr> {
    match kind(frame)? {
        (KIND_IP, body) => destination(body).map(|(from, _)| from),
        (KIND_ARP, body) => arp(body).map(|message| message.sender),
        _ => None,
    }
}

/// The address that a frame with its header announces: a message of ARP that asks its sender's own
/// address, or answers so (RFC 5227, section 3; RFC 5944, section 4.6).
pub fn announced(frame: &[u8]) -> Option<Ipv4Addr> {
    let message = kind(frame).filter(|(kind, _)| *kind == KIND_ARP).and_then(|(_, body)| arp(body));
    message.filter(|message| message.sender == message.target).map(|message| message.sender)
}

/// A frame in parts whose ethernet destination is that of a member, whatever it was.
pub fn readdressed<'f>(frame: &'f [u8], to: &'f [u8; 6]) -> [&'f [u8]; 3] {
    let (before, after) = frame.split_at(HEADER.min(frame.len()));
    [before, to, after.get(to.len()..).unwrap_or_default()]
}

/// The answer to a question of `sender` for the ethernet address of a member; `None` if the frame
/// is none.
pub fn answer(frame: &[u8], asked: Ipv4Addr, sender: Ipv4Addr) -> Option<Vec<u8>> {
    let (kind, body) = kind(frame)?;
    let own = ethernet(asked);
    // The kernel's header says nothing.
    let before = |to: &[u8]| [&[0; HEADER], to, &own, &kind.to_be_bytes()].concat();
    match kind {
        KIND_ARP => {
            let (hardware, address) = (body.get(8..14)?, body.get(14..18)?);
            let form = body.get(..6)?;
            let parts = [form, &REPLY.to_be_bytes(), &own, &asked.octets(), hardware, address];
            Some([before(hardware), parts.concat()].concat())
        }
        KIND_IPV6 => {
            Some([&before(&ethernet(sender))[..], &neighbour::answer(body, own)?].concat())
        }
        _ => None,
    }
}

/// What an ethernet frame holds, and of which kind it is.
fn kind(frame: &[u8]) -> Option<(u16, &[u8])> {
    let body = frame.get(HEADER + ETHERNET..)?;
    let kind = frame.get(HEADER + 12..HEADER + ETHERNET)?;
    Some((u16::from_be_bytes(kind.try_into().ok()?), body))
}

/// Source and destination of a packet.
fn destination(packet: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let header = packet.get(..IP)?;
    if header[0] >> 4 != 4 {
        return None;
    }
    Some((address(header, 12)?, address(header, 16)?))
}

fn address(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(four.into())
}

/// A message of ARP.
struct Arp {
    is_request: bool,
    sender: Ipv4Addr,
    target: Ipv4Addr,
}

/// Reads one for ethernet and IPv4.
fn arp(message: &[u8]) -> Option<Arp> {
    // The kinds of addresses, and their lengths.
    const FORM: [u8; 6] = [0, 1, 8, 0, 6, 4];
    let message = message.get(..ARP).filter(|message| message[..6] == FORM)?;
    let is_request = message[6..8] == REQUEST.to_be_bytes();
    Some(Arp { is_request, sender: address(message, 14)?, target: address(message, 24)? })
}

/// A question for the address of a member other than the one that asks. A member that asks for its
/// own wants to know whether anybody else has it.
fn question(message: &[u8], subnet: Subnet, own: Ipv4Addr) -> Route {
    match arp(message) {
        Some(Arp { is_request: true, sender, target })
            if (sender == own || sender.is_unspecified())
                && subnet.contains(target)
                && target != own =>
        {
            Route::Question(target)
        }
        _ => Route::Nowhere,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    const DB: Ipv4Addr = Ipv4Addr::new(100, 80, 0, 2);
    const WEB: Ipv4Addr = Ipv4Addr::new(100, 80, 0, 3);

    fn subnet() -> Subnet {
        Subnet::around(DB, 24).unwrap()
    }

    fn lab() -> Ranges {
        Ranges { subnet: subnet(), prefix: None }
    }

    pub(crate) fn framed(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; HEADER + 12];
        frame.extend_from_slice(&kind.to_be_bytes());
        frame.extend_from_slice(body);
        frame
    }

    /// A packet without contents but these bytes.
    pub(crate) fn packet(from: Ipv4Addr, to: Ipv4Addr, rest: &[u8]) -> Vec<u8> {
        let mut header = vec![0; IP];
        header[0] = 0x45;
        header[12..16].copy_from_slice(&from.octets());
        header[16..20].copy_from_slice(&to.octets());
        header.extend_from_slice(rest);
        framed(KIND_IP, &header)
    }

    /// A question of one member for another's address.
    pub(crate) fn asks(from: Ipv4Addr, asked: Ipv4Addr) -> Vec<u8> {
        let mut body = vec![0, 1, 8, 0, 6, 4, 0, 1];
        body.extend_from_slice(&ethernet(from));
        body.extend_from_slice(&from.octets());
        body.extend_from_slice(&[0; 6]);
        body.extend_from_slice(&asked.octets());
        framed(KIND_ARP, &body)
    }

    #[test]
    fn packets_go_by_their_destination() {
        let to = |to| route(&packet(DB, to, &[]), &lab(), DB);
        assert_eq!(to(WEB), Route::Member(WEB));
        assert_eq!(to(DB), Route::Nowhere);
        assert_eq!(to(Ipv4Addr::new(100, 80, 1, 3)), Route::Outside);
        assert_eq!(to(Ipv4Addr::new(100, 80, 0, 255)), Route::All);
        assert_eq!(to(Ipv4Addr::BROADCAST), Route::All);
        assert_eq!(to(Ipv4Addr::new(224, 0, 0, 251)), Route::All);
        assert_eq!(route(&packet(WEB, DB, &[]), &lab(), DB), Route::Nowhere, "a false sender");
        assert_eq!(route(&framed(0x86dd, &[0x60; 40]), &lab(), DB), Route::Nowhere);
        let mut six = packet(DB, WEB, &[]);
        six[HEADER + ETHERNET] = 0x65;
        assert_eq!(route(&six, &lab(), DB), Route::Nowhere);
    }

    #[test]
    fn questions_for_members_are_answered() {
        let frame = asks(DB, WEB);
        assert_eq!(route(&frame, &lab(), DB), Route::Question(WEB));
        assert_eq!(route(&asks(DB, DB), &lab(), DB), Route::Nowhere);
        assert_eq!(route(&asks(WEB, DB), &lab(), DB), Route::Nowhere, "a false sender");
        assert_eq!(route(&asks(DB, Ipv4Addr::LOCALHOST), &lab(), DB), Route::Nowhere);
        // Whether an address is free is asked from none.
        let mut probe = frame.clone();
        probe[HEADER + ETHERNET + 14..][..4].fill(0);
        assert_eq!(route(&probe, &lab(), DB), Route::Question(WEB));
        let answer = answer(&frame, WEB, DB).unwrap();
        assert_eq!(answer[HEADER..HEADER + 6], ethernet(DB));
        assert_eq!(answer[HEADER + 6..HEADER + 12], ethernet(WEB));
        let body = &answer[HEADER + ETHERNET..];
        assert_eq!(body[..8], [0, 1, 8, 0, 6, 4, 0, 2]);
        assert_eq!(body[8..14], ethernet(WEB));
        assert_eq!(body[14..18], WEB.octets());
        assert_eq!(body[18..24], ethernet(DB));
        assert_eq!(body[24..], DB.octets());
        assert_eq!(route(&answer, &lab(), WEB), Route::Nowhere, "an answer is not a question");
    }

    #[test]
    fn announcements_are_questions_and_answers_about_oneself() {
        let question = asks(WEB, WEB);
        let mut answer = question.clone();
        answer[HEADER + ETHERNET + 7] = REPLY as u8;
        for frame in [&question, &answer] {
            assert_eq!((announced(frame), speaker(frame)), (Some(WEB), Some(WEB)));
            assert_eq!(announced(&frame[..frame.len() - 1]), None);
        }
        assert_eq!((announced(&asks(DB, WEB)), speaker(&asks(DB, WEB))), (None, Some(DB)));
        assert_eq!(announced(&packet(DB, DB, &[])), None);
        assert_eq!(speaker(&packet(DB, WEB, &[])), Some(DB));
        let frame = packet(DB, WEB, &[7]);
        let own = ethernet(WEB);
        let whole = readdressed(&frame, &own).concat();
        assert_eq!(whole[HEADER..HEADER + 6], own);
        assert_eq!((whole.len(), &whole[HEADER + 6..]), (frame.len(), &frame[HEADER + 6..]));
    }

    #[test]
    fn what_is_cut_off_goes_nowhere() {
        for whole in [packet(DB, WEB, &[]), asks(DB, WEB)] {
            assert_ne!(route(&whole, &lab(), DB), Route::Nowhere);
            for length in 0..whole.len() {
                assert_eq!(route(&whole[..length], &lab(), DB), Route::Nowhere, "{length}");
            }
        }
    }

    proptest! {
        /// Whatever a member sends, nothing panics, and what goes to a member stays in the network.
        #[test]
        fn any_bytes(
            start in prop::sample::select(vec![0_u16, KIND_IP, KIND_ARP]),
            bytes in prop::collection::vec(any::<u8>(), 0..80),
            cut in 0_usize..120,
        ) {
            let mut frame = framed(start, &bytes);
            frame.truncate(cut);
            match route(&frame, &lab(), DB) {
                Route::Member(to) => prop_assert!(subnet().contains(to) && to != DB),
                Route::Question(asked) => prop_assert!(answer(&frame, asked, DB).is_some()),
                Route::All | Route::Outside | Route::Nowhere => {}
            }
            let _ = (answer(&frame, WEB, DB), sender(&frame, None), route(&bytes, &lab(), DB));
            let _ = (announced(&frame), speaker(&frame), readdressed(&bytes, &ethernet(DB)));
        }

        /// The same with headers of which any byte is another.
        #[test]
        fn damaged_headers(at in 0_usize..64, byte in any::<u8>(), ask in any::<bool>()) {
            let mut frame = if ask { asks(DB, WEB) } else { packet(DB, WEB, &[0; 20]) };
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
            if let Route::Question(asked) = route(&frame, &lab(), DB) {
                prop_assert!(answer(&frame, asked, DB).is_some());
            }
        }
    }
}
