use super::messages::{ADDRESSES, Data, places, route_request, source_of};
use super::*;
use crate::testing::Fake;
use std::vec;
use std::vec::Vec;

const ETH0: [u8; LABEL] = *b"eth0\0\0\0\0\0\0\0\0\0\0\0\0";

/// An attribute.
fn part(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = (4 + value.len() as u16).to_le_bytes().to_vec();
    bytes.extend(kind.to_le_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn message(kind: u16, fixed: &[u8], parts: &[Vec<u8>]) -> Vec<u8> {
    let body = [fixed, &parts.concat()].concat();
    let mut bytes = (16 + body.len() as u32).to_le_bytes().to_vec();
    bytes.extend(kind.to_le_bytes());
    // `NLM_F_MULTI`, the request's number, the port.
    bytes.extend([2, 0, 7, 0, 0, 0, 9, 0, 0, 0]);
    bytes.extend(body);
    bytes
}

fn old(index: u8, label: &str, address: [u8; 4], prefix: u8) -> Vec<u8> {
    let label = [label.as_bytes(), b"\0"].concat();
    let parts = [part(1, &address), part(2, &address), part(3, &label), part(6, &[0; 16])];
    message(20, &[2, prefix, 0x80, 0, index, 0, 0, 0], &parts)
}

fn new(index: u8, address: [u8; 16]) -> Vec<u8> {
    message(20, &[10, 64, 0x80, 0, index, 0, 0, 0], &[part(1, &address), part(6, &[0; 16])])
}

fn done() -> Vec<u8> {
    message(3, &[0; 4], &[])
}

const LO6: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const OTHER6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

fn interfaces(place: Place, own: &[[u8; 4]]) -> Interfaces {
    let mut interfaces = Interfaces { place, own: [None; MEMBERSHIPS] };
    for (to, address) in interfaces.own.iter_mut().zip(own) {
        *to = Some(((*address).into(), 24));
    }
    interfaces
}

const PLACE: Place = Place { index: 4, label: ETH0, address: Ipv4Addr::new(192, 0, 2, 2) };

/// The kind of each message, and the address and interface of one about an address.
fn said(mut bytes: &[u8]) -> Vec<(u8, u8, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(length) = bytes.first().map(|length| usize::from(*length)) {
        let address = if bytes[4] == 20 {
            bytes[28..28 + usize::from(bytes[24] - 4)].to_vec()
        } else {
            vec![]
        };
        all.push((bytes[4], if bytes[4] == 20 { bytes[20] } else { 0 }, address));
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
    }
    all
}

fn rewritten(bytes: &[u8], room: usize, work: usize, interfaces: &Interfaces) -> Vec<u8> {
    let mut fake = Fake::new();
    let mut memory = bytes.to_vec();
    memory.resize(room.max(bytes.len()), 0xee);
    fake.map(0x1000, &memory);
    let data = Data { at: 0x1000, length: bytes.len() as u64, room: room as u64 };
    let length = data.rewrite(&mut fake, &mut vec![0; work], interfaces).unwrap();
    fake.peek(0x1000, length as usize)
}

#[test]
fn addresses_of_the_host_give_way() {
    let answer = [
        old(1, "lo", [127, 0, 0, 1], 8),
        old(2, "docker0", [172, 17, 0, 1], 16),
        old(4, "eth0", [192, 0, 2, 2], 24),
        old(4, "eth0", [192, 0, 2, 3], 24),
        new(1, LO6),
        new(4, OTHER6),
        done(),
    ]
    .concat();
    let own = [[100, 80, 0, 2], [100, 80, 1, 5]];
    let all = interfaces(PLACE, &own);
    let right = [
        (20, 1, vec![127, 0, 0, 1]),
        (20, 4, own[0].to_vec()),
        (20, 4, own[1].to_vec()),
        (20, 1, LO6.to_vec()),
        (3, 0, vec![]),
    ];
    for work in [16, 17, 8192] {
        assert_eq!(said(&rewritten(&answer, 4096, work, &all)), right);
    }
    // Each of them is one that the kernel could have made.
    let shown = rewritten(&answer, 4096, 64, &all);
    let shown: Vec<Place> = places(&shown).collect();
    assert_eq!(shown[1], Place { address: own[0].into(), ..PLACE });
    assert_eq!(shown.len(), 3);
}

#[test]
fn what_follows_moves_if_there_is_room() {
    let answer = [old(4, "eth0", [192, 0, 2, 2], 24), new(1, LO6), done()].concat();
    let own: Vec<[u8; 4]> = (0..8).map(|at| [100, 80, at, 2]).collect();
    let all = interfaces(PLACE, &own);
    let shown = said(&rewritten(&answer, 4096, 16, &all));
    assert_eq!((shown.len(), shown[7].2.clone()), (10, own[7].to_vec()));
    assert_eq!(shown[9].0, 3);
    // The first is not longer than what was there.
    let shown = said(&rewritten(&answer, answer.len() + 40, 16, &all));
    assert_eq!(shown.iter().map(|one| one.0).collect::<Vec<_>>(), [20, 20, 3]);
}

#[test]
fn a_host_with_lo_alone_shows_the_addresses_there() {
    let answer = [old(1, "lo", [127, 0, 0, 1], 8), new(1, LO6)].concat();
    let shown = rewritten(&answer, 4096, 64, &interfaces(Place::LOOPBACK, &[[100, 80, 0, 2]]));
    let right = [(20, 1, vec![127, 0, 0, 1]), (20, 1, vec![100, 80, 0, 2]), (20, 1, LO6.to_vec())];
    assert_eq!(said(&shown), right);
}

#[test]
fn an_answer_is_never_empty() {
    let answer = [new(4, OTHER6), new(5, OTHER6)].concat();
    let shown = rewritten(&answer, answer.len(), 64, &interfaces(PLACE, &[]));
    assert_eq!(said(&shown), [(1, 0, vec![])]);
    // musl takes it for an address of an interface with this number.
    assert_eq!((shown.len(), &shown[16..]), (24, &[0; 8][..]));
}

#[test]
fn damaged_messages_stay() {
    let all = interfaces(PLACE, &[[100, 80, 0, 2]]);
    for length in [0, 3, 15] {
        let mut bytes = old(4, "eth0", [192, 0, 2, 2], 24);
        bytes[0] = length;
        assert_eq!(rewritten(&bytes, 4096, 64, &all), bytes);
    }
    let mut bytes = old(4, "eth0", [192, 0, 2, 2], 24);
    bytes[0] += 4;
    assert_eq!(rewritten(&bytes, 4096, 64, &all), bytes);
    // An attribute without an end.
    let mut bytes = old(7, "eth7", [192, 0, 2, 2], 24);
    bytes[24] = 0;
    assert_eq!(said(&rewritten(&bytes, 4096, 64, &all))[0].0, 1);
}

#[test]
fn the_place_is_read_from_the_kernels_answers() {
    assert_eq!((ADDRESSES.len(), route_request(WORLD).len()), (24, 36));
    let way = message(
        24,
        &[2, 32, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0],
        &[part(4, &[4, 0, 0, 0]), part(7, &[192, 0, 2, 2])],
    );
    assert_eq!(source_of(&way), Some(Ipv4Addr::new(192, 0, 2, 2)));
    let error = message(2, &[0x9b, 0xff, 0xff, 0xff], &[]);
    assert_eq!(source_of(&error), None);
    assert_eq!(source_of(&way[..way.len() - 1]), None);
    let all = [old(1, "lo", [127, 0, 0, 1], 8), old(4, "eth0", [192, 0, 2, 2], 24)].concat();
    assert_eq!(places(&all).collect::<Vec<_>>(), [Place::LOOPBACK, PLACE]);
}

#[test]
fn masks_and_broadcast_addresses() {
    let address = Ipv4Addr::new(100, 80, 3, 7);
    assert_eq!((mask(20), mask(32)), (Ipv4Addr::new(255, 255, 240, 0), Ipv4Addr::BROADCAST));
    assert_eq!(broadcast((address, 20)), Ipv4Addr::new(100, 80, 15, 255));
    assert_eq!(mask(0), Ipv4Addr::UNSPECIFIED);
}
