//! Encodes and decodes DNS messages (RFC 1035, section 4): one question, addresses and aliases in
//! the answer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Type of an IPv4 address record.
pub(super) const A: u16 = 1;
/// Type of an IPv6 address record.
pub(super) const AAAA: u16 = 28;
const CNAME: u16 = 5;
const INTERNET: u16 = 1;
const NAME_MAX: usize = 253;
/// Maximum number of records that are read in one answer.
const RECORDS: usize = 256;
/// Maximum number of aliases that are followed inside one answer.
const ALIASES: usize = 16;

/// A server's answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Addresses, perhaps none.
    Addresses(Vec<IpAddr>),
    /// There is no such name.
    NoName,
    /// The answer did not fit: TCP has to be used.
    Truncated,
    /// The server failed or refused.
    Failed(u8),
}

/// Returns true if DNS can carry the name at all.
pub(super) fn is_name(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    !name.is_empty() && name.len() <= NAME_MAX && name.split('.').all(label)
}

/// Encodes a question for `name`, which must satisfy [`is_name`].
pub(super) fn question(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 29);
    out.extend(id.to_be_bytes());
    // Recursion desired; one question; one additional record (EDNS).
    out.extend([0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 1]);
    for label in name.trim_end_matches('.').split('.') {
        out.push(label.len() as u8);
        out.extend(label.as_bytes());
    }
    out.push(0);
    out.extend(kind.to_be_bytes());
    out.extend(INTERNET.to_be_bytes());
    // EDNS(0), RFC 6891: answers of up to 1232 bytes are accepted by UDP.
    out.extend([0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0]);
    out
}

/// Decodes an answer to [`question`]; `None` if it is not one (another id, another question,
/// invalid data), which a spoofed or late packet may be.
pub(super) fn answer(packet: &[u8], id: u16, name: &str, kind: u16) -> Option<Answer> {
    let header = packet.get(..12)?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    if word(0) != id || header[2] & 0x80 == 0 || word(4) != 1 {
        return None;
    }
    let mut at = 12;
    let asked = read_name(packet, &mut at)?;
    let question_kind = read_u16(packet, &mut at)?;
    at += 2;
    if !asked.eq_ignore_ascii_case(name.trim_end_matches('.')) || question_kind != kind {
        return None;
    }
    if header[2] & 0x02 != 0 {
        return Some(Answer::Truncated);
    }
    match header[3] & 0x0f {
        0 => {}
        3 => return Some(Answer::NoName),
        code => return Some(Answer::Failed(code)),
    }
    let records = usize::from(word(6)).min(RECORDS);
    let records = read_records(packet, at, records)?;
    Some(Answer::Addresses(follow(&records, asked, kind)))
}

enum Record {
    Address(String, IpAddr),
    Alias(String, String),
}

fn read_records(packet: &[u8], mut at: usize, count: usize) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    for _ in 0..count {
        let owner = read_name(packet, &mut at)?;
        let kind = read_u16(packet, &mut at)?;
        let class = read_u16(packet, &mut at)?;
        at += 4;
        let length = usize::from(read_u16(packet, &mut at)?);
        let data = packet.get(at..at + length)?;
        let mut inside = at;
        at += length;
        if class != INTERNET {
            continue;
        }
        match kind {
            A => {
                let bytes: [u8; 4] = data.try_into().ok()?;
                records.push(Record::Address(owner, IpAddr::V4(Ipv4Addr::from(bytes))));
            }
            AAAA => {
                let bytes: [u8; 16] = data.try_into().ok()?;
                records.push(Record::Address(owner, IpAddr::V6(Ipv6Addr::from(bytes))));
            }
            CNAME => records.push(Record::Alias(owner, read_name(packet, &mut inside)?)),
            _ => {}
        }
    }
    Some(records)
}

/// Collects the addresses of the asked name and of its aliases; other names in the answer are
/// ignored.
fn follow(records: &[Record], mut name: String, kind: u16) -> Vec<IpAddr> {
    for _ in 0..ALIASES {
        let here: Vec<IpAddr> = records
            .iter()
            .filter_map(|record| match record {
                Record::Address(owner, address) if owner.eq_ignore_ascii_case(&name) => {
                    Some(*address)
                }
                _ => None,
            })
            .filter(|address| address.is_ipv4() == (kind == A))
            .collect();
        if !here.is_empty() {
            return here;
        }
        let next = records.iter().find_map(|record| match record {
            Record::Alias(owner, target) if owner.eq_ignore_ascii_case(&name) => Some(target),
            _ => None,
        });
        match next {
            Some(target) => name.clone_from(target),
            None => return Vec::new(),
        }
    }
    Vec::new()
}

fn read_u16(packet: &[u8], at: &mut usize) -> Option<u16> {
    let bytes = packet.get(*at..*at + 2)?;
    *at += 2;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Reads a name with compression (section 4.1.4). Pointers must lead backwards, so the loop ends.
fn read_name(packet: &[u8], at: &mut usize) -> Option<String> {
    let mut name = String::new();
    let mut here = *at;
    let mut floor = here;
    let mut jumped = false;
    loop {
        let length = usize::from(*packet.get(here)?);
        match length {
            0 => {
                if !jumped {
                    *at = here + 1;
                }
                return Some(name);
            }
            1..=63 => {
                let label = packet.get(here + 1..here + 1 + length)?;
                if !name.is_empty() {
                    name.push('.');
                }
                name.extend(
                    label.iter().map(|&b| if b.is_ascii_graphic() { b as char } else { '?' }),
                );
                if name.len() > NAME_MAX {
                    return None;
                }
                here += 1 + length;
            }
            0xc0..=0xff => {
                let low = usize::from(*packet.get(here + 1)?);
                let target = (length & 0x3f) << 8 | low;
                if !jumped {
                    *at = here + 2;
                }
                if target >= floor {
                    return None;
                }
                (jumped, floor, here) = (true, target, target);
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reply(name: &str, kind: u16, flags: [u8; 2], records: &[Vec<u8>]) -> Vec<u8> {
        let mut packet = question(7, name, kind);
        packet.truncate(packet.len() - 11);
        packet[2..4].copy_from_slice(&flags);
        packet[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
        packet[11] = 0;
        packet.extend(records.iter().flatten());
        packet
    }

    fn record(owner: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
        let mut out = owner.to_vec();
        out.extend(kind.to_be_bytes());
        out.extend([0, 1, 0, 0, 0, 60]);
        out.extend((data.len() as u16).to_be_bytes());
        out.extend(data);
        out
    }

    #[test]
    fn reads_addresses_through_aliases() {
        let packet = reply(
            "a.example",
            A,
            [0x81, 0x80],
            &[
                record(&[0xc0, 12], CNAME, &[1, b'b', 0xc0, 14]),
                record(&[1, b'x', 0], A, &[9, 9, 9, 9]),
                record(&[1, b'B', 0xc0, 14], A, &[1, 2, 3, 4]),
            ],
        );
        let expected = Answer::Addresses(vec![IpAddr::V4(Ipv4Addr::new(1, 2, 3, 4))]);
        assert_eq!(answer(&packet, 7, "A.example.", A), Some(expected));
        assert_eq!(answer(&packet, 8, "a.example", A), None, "another id");
        assert_eq!(answer(&packet, 7, "b.example", A), None, "another question");
    }

    #[test]
    fn codes() {
        let with = |flags| answer(&reply("a", A, flags, &[]), 7, "a", A);
        assert_eq!(with([0x81, 0x83]), Some(Answer::NoName));
        assert_eq!(with([0x83, 0x80]), Some(Answer::Truncated));
        assert_eq!(with([0x81, 0x82]), Some(Answer::Failed(2)));
        assert_eq!(with([0x01, 0x80]), None, "a question is no answer");
        assert_eq!(with([0x81, 0x80]), Some(Answer::Addresses(Vec::new())));
    }

    #[test]
    fn pointers_do_not_loop() {
        let packet = reply("a", A, [0x81, 0x80], &[record(&[0xc0, 19], A, &[1, 2, 3, 4])]);
        assert_eq!(answer(&packet, 7, "a", A), None);
        let alias = record(&[0xc0, 12], CNAME, &[0xc0, 12]);
        let packet = reply("a", A, [0x81, 0x80], &[alias]);
        assert_eq!(answer(&packet, 7, "a", A), Some(Answer::Addresses(Vec::new())));
    }

    #[test]
    fn names() {
        assert!(is_name("a.b-c.d_e.") && is_name("x"));
        let long = format!("{}.x", "a".repeat(64));
        for bad in ["", ".", "a..b", "a b", &long, &"a.".repeat(200)] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(mut packet in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = answer(&packet, 7, "a", A);
            let mut whole = reply("a", A, [0x81, 0x80], &[]);
            whole[7] = 9;
            whole.append(&mut packet);
            let _ = answer(&whole, 7, "a", A);
        }
    }
}
