use super::super::frame::{self, Ranges, ethernet};
use super::*;
use proptest::prelude::*;

const DB: Ipv4Addr = Ipv4Addr::new(100, 80, 0, 2);
const WEB: Ipv4Addr = Ipv4Addr::new(100, 80, 0, 3);
const KIND_IPV6: u16 = 0x86dd;
/// Where a packet begins in a frame.
const BEGIN: usize = frame::HEADER + frame::ETHERNET;

fn prefix() -> Prefix {
    "fd00::/64".parse().unwrap()
}

pub(crate) fn lab() -> Ranges {
    Ranges { subnet: Subnet::around(DB, 24).unwrap(), prefix: Some(prefix()) }
}

/// A packet of a kind with these contents.
fn holding(from: Ipv6Addr, to: Ipv6Addr, kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, 0, rest.len() as u8, kind, HOP_LIMIT];
    header.extend_from_slice(&from.octets());
    header.extend_from_slice(&to.octets());
    header.extend_from_slice(rest);
    frame::tests::framed(KIND_IPV6, &header)
}

/// A datagram from one member to another.
pub(crate) fn packet(from: Ipv4Addr, to: Ipv4Addr, rest: &[u8]) -> Vec<u8> {
    holding(prefix().of(from), prefix().of(to), 17, rest)
}

/// A question of one member for another's address.
pub(crate) fn asks(from: Ipv4Addr, asked: Ipv4Addr) -> Vec<u8> {
    question(prefix().of(from), prefix().of(asked))
}

fn question(from: Ipv6Addr, asked: Ipv6Addr) -> Vec<u8> {
    let octets = asked.octets();
    let mut body = vec![SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
    body.extend_from_slice(&octets);
    body.extend_from_slice(&[1, 1, 2, 0x42, 100, 80, 0, 2]);
    let mut group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0];
    group[13..].copy_from_slice(&octets[13..]);
    holding(from, group.into(), ICMP, &body)
}

#[test]
fn packets_go_to_the_member_that_an_address_stands_for() {
    let route = |frame: &[u8]| frame::route(frame, &lab(), DB);
    assert_eq!(route(&packet(DB, WEB, &[])), Route::Member(WEB));
    let own = prefix().of(DB);
    let to = |to: &str| route(&holding(own, to.parse().unwrap(), 6, &[0; 20]));
    assert_eq!(to("fd00::6450:3"), Route::Member(WEB));
    assert_eq!(to("fe80::42:64ff:fe50:3"), Route::Member(WEB));
    assert_eq!(to("ff02::1"), Route::All);
    for nobody in ["fd00::1:6450:3", "fd00::6451:3", "fd01::6450:3", "2001:db8::1", "::1", "::"] {
        assert_eq!(to(nobody), Route::Nowhere, "{nobody}");
    }
    assert_eq!(to("fd00::6450:2"), Route::Nowhere, "its own");
    let from = |from: &str| route(&holding(from.parse().unwrap(), prefix().of(WEB), 17, &[]));
    assert_eq!(from("fe80::42:64ff:fe50:2"), Route::Member(WEB));
    for other in ["fd00::6450:3", "fe80::42:64ff:fe50:3", "::", "fd01::6450:2"] {
        assert_eq!(from(other), Route::Nowhere, "a false sender: {other}");
    }
    // Without IPv6, and with a header of another version.
    let frame = packet(DB, WEB, &[]);
    assert_eq!(frame::route(&frame, &Ranges { prefix: None, ..lab() }, DB), Route::Nowhere);
    let mut four = frame.clone();
    four[BEGIN] = 0x45;
    assert_eq!(route(&four), Route::Nowhere);
    assert_eq!(frame::sender(&frame, Some(prefix())), Some(DB));
    assert_eq!((frame::sender(&frame, None), frame::is_ipv4(&frame)), (None, false));
}

#[test]
fn questions_are_answered() {
    let (db, web) = (prefix().of(DB), prefix().of(WEB));
    let route = |frame: &[u8]| frame::route(frame, &lab(), DB);
    let [near_db, near_web] = [DB, WEB].map(prefix::link_local);
    for (from, asked) in [(db, web), (near_db, web), (near_db, near_web)] {
        let question = question(from, asked);
        assert_eq!(route(&question), Route::Question(WEB));
        let answer = frame::answer(&question, WEB, DB).unwrap();
        assert_eq!(answer[frame::HEADER..][..6], ethernet(DB));
        assert_eq!(answer[frame::HEADER + 6..][..6], ethernet(WEB));
        let packet = &answer[BEGIN..];
        assert_eq!(addresses(packet), Some((asked, from)));
        assert_eq!((packet[6], packet[7]), (ICMP, HOP_LIMIT));
        assert_eq!(packet[40..42], [ADVERTISEMENT, 0]);
        assert_eq!(packet[44], SOLICITED | OVERRIDE);
        assert_eq!(packet[48..64], asked.octets());
        assert_eq!(packet[64..66], [2, 1]);
        assert_eq!(packet[66..], ethernet(WEB));
        // With the sum in its place the sum of all is zero.
        assert_eq!(checksum(packet.try_into().unwrap()), 0);
        assert_eq!(
            frame::route(&answer, &lab(), WEB),
            Route::Nowhere,
            "an answer is not a question"
        );
    }
    // Whether an address is free is asked from none, and all hear the answer.
    let probe = question(Ipv6Addr::UNSPECIFIED, web);
    assert_eq!(route(&probe), Route::Question(WEB));
    let answer = frame::answer(&probe, WEB, DB).unwrap();
    let packet = &answer[BEGIN..];
    assert_eq!((addresses(packet).unwrap().1, packet[44]), (ALL_HOSTS, OVERRIDE));
    let nobody = "fd00::7".parse().unwrap();
    for (from, asked) in [(web, db), (db, db), (db, nobody), (db, Ipv6Addr::LOCALHOST)] {
        assert_eq!(route(&question(from, asked)), Route::Nowhere, "{from} for {asked}");
    }
    let mut far = question(db, web);
    far[BEGIN + 7] = 64;
    assert_eq!(route(&far), Route::Nowhere, "from another link");
}

#[test]
fn nothing_else_of_a_link_passes() {
    let route = |frame: &[u8]| frame::route(frame, &lab(), DB);
    let from = prefix::link_local(DB);
    for kind in [130, 131, 132, 133, 134, 136, 137, 143] {
        let message = [kind, 0, 0, 0, 0, 0, 0, 0];
        for to in ["ff02::1", "ff02::16", "fd00::6450:3"] {
            let to = to.parse().unwrap();
            let plain = holding(from, to, ICMP, &message);
            assert_eq!(route(&plain), Route::Nowhere, "{kind} to {to}");
            for extension in [HOP_BY_HOP, ROUTING, DESTINATION] {
                let behind = [&[ICMP, 0, 0, 0, 0, 0, 0, 0][..], &message].concat();
                let behind = holding(from, to, extension, &behind);
                assert_eq!(route(&behind), Route::Nowhere, "{kind} behind {extension}");
            }
        }
    }
    let many = |count: u8| {
        let mut headers = [DESTINATION, 0, 0, 0, 0, 0, 0, 0].repeat(usize::from(count));
        headers.extend_from_slice(&[17, 0, 0, 0, 0, 0, 0, 0]);
        route(&holding(from, prefix().of(WEB), DESTINATION, &headers))
    };
    assert_eq!((many(3), many(4)), (Route::Member(WEB), Route::Nowhere));
    let echo = holding(prefix().of(DB), prefix().of(WEB), ICMP, &[128, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(route(&echo), Route::Member(WEB));
}

#[test]
fn what_is_cut_off_goes_nowhere() {
    for (whole, needed) in [(packet(DB, WEB, &[]), HEADER), (asks(DB, WEB), HEADER + MESSAGE)] {
        for length in 0..BEGIN + needed {
            // Without its message a question is a packet to a group.
            let cut = &whole[..length];
            let there = frame::route(cut, &lab(), DB);
            assert!(there == Route::Nowhere || length == BEGIN + HEADER, "{length}: {there:?}");
        }
        assert_ne!(frame::route(&whole, &lab(), DB), Route::Nowhere);
    }
}

proptest! {
    /// Whatever a member sends, nothing panics, and what is none of its own goes nowhere.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..120), cut in 0_usize..150) {
        let mut frame = frame::tests::framed(KIND_IPV6, &bytes);
        frame.truncate(cut);
        prop_assert_eq!(frame::route(&frame, &lab(), DB), Route::Nowhere);
        let _ = (frame::answer(&frame, WEB, DB), frame::sender(&frame, Some(prefix())));
    }

    /// The same with headers of which any byte is another: what goes to a member stays in the
    /// network.
    #[test]
    fn damaged_headers(at in 0_usize..100, byte in any::<u8>(), ask in any::<bool>()) {
        let mut frame = if ask { asks(DB, WEB) } else { packet(DB, WEB, &[0; 20]) };
        if let Some(place) = frame.get_mut(at) {
            *place = byte;
        }
        match frame::route(&frame, &lab(), DB) {
            Route::Member(to) => prop_assert!(lab().subnet.contains(to) && to != DB),
            Route::Question(asked) => prop_assert!(frame::answer(&frame, asked, DB).is_some()),
            Route::All | Route::Nowhere => {}
            Route::Outside => prop_assert!(false, "there is no way out"),
        }
    }
}
