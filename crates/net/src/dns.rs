//! Answers to questions for names (RFC 1034, RFC 1035, RFC 2782): pure functions on messages.
//!
//! A container asks for the names of the members of its networks: a member's own name, its aliases,
//! the beginning of its id, and each of them with the network's name behind it. All members with a
//! name are told, in another order each time. Of an address in a network a member's name is told.
//! Names of auxiliary addresses are told, too. Members without devices have no IPv6 addresses, and
//! none is told of them.
//! Everything else is another server's to answer ([`Answer::Forward`]).
//!
//! A name that exists has no other data than its addresses: a question for another type gets "no
//! data" and not "no such name", which some C libraries would take for an answer to all types.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use simple_dns::rdata::{A, AAAA, OPT, PTR, RData, SRV};
use simple_dns::{
    CLASS, Name, OPCODE, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, ResourceRecord, TYPE,
};

use crate::definition::Definition;
use crate::hosts::{self, Named};
use crate::prefix::Prefix;
use crate::subnet::Subnet;

/// For how many seconds a client may keep an answer: members come and go.
const TTL: u32 = 5;
/// The longest message over UDP of a client that does not say more (RFC 1035, 4.2.1).
const SHORT: usize = 512;
/// The longest that is sent to any.
const LONG: usize = 4096;

/// What one container may be told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Zone {
    /// Names in small letters.
    names: BTreeMap<String, Vec<Ipv4Addr>>,
    /// The names of members, and the IPv6 addresses of those that have one.
    addresses: BTreeMap<Ipv4Addr, (String, Option<Ipv6Addr>)>,
    subnets: Vec<Subnet>,
    prefixes: Vec<Prefix>,
}

/// The answer to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// This one.
    Message(Vec<u8>),
    /// Another server's.
    Forward,
    /// None: it was no question.
    None,
}

/// How a message has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A datagram; a long answer is cut, and the client asks again by TCP.
    Udp,
    /// A connection.
    Tcp,
}

impl Zone {
    /// The names in the networks of a container.
    pub fn of(networks: &[Named<'_>]) -> Self {
        let mut zone = Self::default();
        for (network, entries) in networks {
            zone.subnets.push(network.subnet);
            zone.prefixes.extend(network.ipv6);
            for entry in *entries {
                let name = hosts::name(&entry.name, &entry.id);
                let names = hosts::names(entry);
                zone.put(network, (name, &names), (entry.address, entry.ipv6(network.ipv6)));
            }
            for (name, address) in &network.auxiliary {
                zone.put(network, (name, &[name]), (*address, None));
            }
        }
        zone
    }

    /// Puts in an address with the name that is told of it, and all its names.
    fn put(
        &mut self,
        network: &Definition,
        (own, names): (&str, &[&str]),
        (address, ipv6): (Ipv4Addr, Option<Ipv6Addr>),
    ) {
        for name in names {
            for name in [(*name).to_owned(), format!("{name}.{}", network.name)] {
                let all = self.names.entry(name.to_ascii_lowercase()).or_default();
                if !all.contains(&address) {
                    all.push(address);
                }
            }
        }
        self.addresses.insert(address, (format!("{own}.{}", network.name), ipv6));
    }

    /// Answers a message. `turn`: a number that is another one each time.
    pub fn answer(&self, message: &[u8], transport: Transport, turn: usize) -> Answer {
        let is_answer = |message: &[u8]| message.get(2).is_none_or(|flags| flags & 0x80 != 0);
        if is_answer(message) {
            return Answer::None;
        }
        let Ok(asked) = Packet::parse(message) else { return malformed(message) };
        let question = match (asked.opcode(), &asked.questions[..]) {
            (OPCODE::StandardQuery, [question]) => question,
            (OPCODE::StandardQuery, _) => return code_alone(&asked, RCODE::FormatError),
            _ => return code_alone(&asked, RCODE::NotImplemented),
        };
        if !matches!(question.qclass, QCLASS::CLASS(CLASS::IN) | QCLASS::ANY) {
            return Answer::Forward;
        }
        let Some(found) = self.find(question, turn) else { return Answer::Forward };
        let (code, records) = match found {
            Found::Records(records) => (RCODE::NoError, records),
            Found::NoName => (RCODE::NameError, Vec::new()),
        };
        finish(&asked, question, (code, records), transport)
    }

    fn find<'q>(&self, question: &Question<'q>, turn: usize) -> Option<Found<'q>> {
        let name = text(&question.qname)?;
        if let Some(address) = reversed(&name) {
            return self.reverse(question, address);
        }
        if let Some(addresses) = self.names.get(&name) {
            let skip = turn % addresses.len().max(1);
            let rotated = || addresses.iter().cycle().skip(skip).take(addresses.len());
            let mut records = Vec::new();
            if wants(question.qtype, TYPE::A) {
                let data = |address: &Ipv4Addr| RData::A(A { address: address.to_bits() });
                records.extend(rotated().map(|address| record(question, data(address))));
            }
            if wants(question.qtype, TYPE::AAAA) {
                let data = |ipv6: &Ipv6Addr| RData::AAAA(AAAA { address: ipv6.to_bits() });
                let ipv6 = |address: &Ipv4Addr| self.addresses.get(address)?.1.as_ref();
                let having = rotated().filter_map(ipv6);
                records.extend(having.map(|ipv6| record(question, data(ipv6))));
            }
            return Some(Found::Records(records));
        }
        let (port, target) = service(&name)?;
        let addresses = self.names.get(target)?;
        if !wants(question.qtype, TYPE::SRV) {
            return Some(Found::Records(Vec::new()));
        }
        let targets = addresses.iter().filter_map(|address| self.addresses.get(address));
        let records = targets.filter_map(|(target, _)| {
            let target = Name::new(target).ok()?.into_owned();
            let data = SRV { priority: 0, weight: 0, port, target };
            Some(record(question, RData::SRV(data)))
        });
        Some(Found::Records(records.collect()))
    }

    fn reverse<'q>(&self, question: &Question<'q>, address: IpAddr) -> Option<Found<'q>> {
        let (member, is_ours) = match address {
            IpAddr::V4(address) => {
                (Some(address), self.subnets.iter().any(|subnet| subnet.contains(address)))
            }
            IpAddr::V6(address) => {
                let prefix = self.prefixes.iter().find(|prefix| prefix.contains(address));
                (prefix.and_then(|prefix| prefix.member(address)), prefix.is_some())
            }
        };
        // A member without an address of this version has no name by it.
        let has = |known: &&(String, Option<Ipv6Addr>)| address.is_ipv4() || known.1.is_some();
        let known = member.and_then(|member| self.addresses.get(&member)).filter(has);
        let Some((name, _)) = known else {
            return is_ours.then_some(Found::NoName);
        };
        if !wants(question.qtype, TYPE::PTR) {
            return Some(Found::Records(Vec::new()));
        }
        let name = Name::new(name).ok()?.into_owned();
        Some(Found::Records(vec![record(question, RData::PTR(PTR(name)))]))
    }
}

enum Found<'q> {
    /// The name exists; it may have no data of the type.
    Records(Vec<ResourceRecord<'q>>),
    NoName,
}

fn wants(asked: QTYPE, kind: TYPE) -> bool {
    matches!(asked, QTYPE::ANY) || asked == QTYPE::TYPE(kind)
}

fn record<'q>(question: &Question<'q>, data: RData<'q>) -> ResourceRecord<'q> {
    ResourceRecord::new(question.qname.clone(), CLASS::IN, TTL, data)
}

/// A name in small letters, without the dot at its end; `None` if it is none of a host.
fn text(name: &Name<'_>) -> Option<String> {
    let labels = name.as_bytes().map(|label| std::str::from_utf8(label).ok());
    let text = labels.collect::<Option<Vec<_>>>()?.join(".");
    hosts::is_name(&text).then(|| text.to_ascii_lowercase())
}

/// The address that a name of `in-addr.arpa` or `ip6.arpa` stands for.
fn reversed(name: &str) -> Option<IpAddr> {
    if let Some(digits) = name.strip_suffix(".ip6.arpa") {
        return reversed6(digits).map(Into::into);
    }
    let digits = name.strip_suffix(".in-addr.arpa")?;
    let [d, c, b, a]: [u8; 4] =
        digits.split('.').map(str::parse).collect::<Result<Vec<u8>, _>>().ok()?.try_into().ok()?;
    Some(Ipv4Addr::new(a, b, c, d).into())
}

/// The address whose 32 hexadecimal digits these are, the last one first (RFC 3596, 2.5).
fn reversed6(digits: &str) -> Option<Ipv6Addr> {
    let (mut bits, mut count) = (0_u128, 0);
    for digit in digits.split('.').rev() {
        let [digit] = digit.as_bytes() else { return None };
        bits = bits << 4 | u128::from(char::from(*digit).to_digit(16)?);
        count += 1;
    }
    (count == 32).then(|| Ipv6Addr::from_bits(bits))
}

/// Port and host of `_PORT._PROTOCOL.HOST`, where the service is called by its number.
fn service(name: &str) -> Option<(u16, &str)> {
    let (port, rest) = name.strip_prefix('_')?.split_once('.')?;
    let target = rest.strip_prefix("_tcp.").or_else(|| rest.strip_prefix("_udp."))?;
    Some((port.parse().ok().filter(|port| *port != 0)?, target))
}

/// The answer, cut if the client takes no longer one.
fn finish(
    asked: &Packet<'_>,
    question: &Question<'_>,
    (code, records): (RCODE, Vec<ResourceRecord<'_>>),
    transport: Transport,
) -> Answer {
    let offered = asked.opt().map_or(SHORT, |opt| usize::from(opt.udp_packet_size));
    let limit = match transport {
        Transport::Udp => offered.clamp(SHORT, LONG),
        Transport::Tcp => usize::from(u16::MAX),
    };
    let mut reply = reply_to(asked, code);
    reply.set_flags(PacketFlag::AUTHORITATIVE_ANSWER);
    reply.questions.push(question.clone());
    reply.answers = records;
    let whole = built(&reply);
    if matches!(&whole, Answer::Message(bytes) if bytes.len() > limit) {
        reply.answers.clear();
        reply.set_flags(PacketFlag::TRUNCATION);
        return built(&reply);
    }
    whole
}

fn reply_to<'p>(asked: &Packet<'_>, code: RCODE) -> Packet<'p> {
    let mut reply = Packet::new_reply(asked.id());
    *reply.opcode_mut() = asked.opcode();
    *reply.rcode_mut() = code;
    if asked.has_flags(PacketFlag::RECURSION_DESIRED) {
        reply.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    reply.set_flags(PacketFlag::RECURSION_AVAILABLE);
    // RFC 6891, 6.1.1: who understands the extension says so.
    if asked.opt().is_some() {
        let (opt_codes, udp_packet_size) = (Vec::new(), LONG as u16);
        *reply.opt_mut() = Some(OPT { opt_codes, udp_packet_size, version: 0 });
    }
    reply
}

fn code_alone(asked: &Packet<'_>, code: RCODE) -> Answer {
    built(&reply_to(asked, code))
}

/// Of a message that cannot be read only the number is known.
fn malformed(message: &[u8]) -> Answer {
    let Some([high, low]) = message.first_chunk() else { return Answer::None };
    let mut reply = Packet::new_reply(u16::from_be_bytes([*high, *low]));
    *reply.rcode_mut() = RCODE::FormatError;
    built(&reply)
}

/// "Server failure", for a question to which no server has an answer; `None` for what is no
/// question.
pub fn failure(message: &[u8]) -> Option<Vec<u8>> {
    let asked = Packet::parse(message).ok()?;
    let mut reply = reply_to(&asked, RCODE::ServerFailure);
    reply.questions.clone_from(&asked.questions);
    match built(&reply) {
        Answer::Message(bytes) => Some(bytes),
        Answer::Forward | Answer::None => None,
    }
}

/// Whether a message answers a question: it has the same number and the same question, in the same
/// letters.
pub fn is_answer(question: &[u8], message: &[u8]) -> bool {
    let (Ok(asked), Ok(told)) = (Packet::parse(question), Packet::parse(message)) else {
        return false;
    };
    let same = |(one, other): (&Question<'_>, &Question<'_>)| {
        let label = |name: &Name<'_>| name.as_bytes().map(<[u8]>::to_vec).collect::<Vec<_>>();
        (one.qtype, one.qclass) == (other.qtype, other.qclass)
            && label(&one.qname) == label(&other.qname)
    };
    told.has_flags(PacketFlag::RESPONSE)
        && asked.id() == told.id()
        && asked.questions.len() == told.questions.len()
        && asked.questions.iter().zip(&told.questions).all(same)
}

fn built(reply: &Packet<'_>) -> Answer {
    reply.build_bytes_vec_compressed().map_or(Answer::None, Answer::Message)
}

#[cfg(test)]
#[path = "dns_tests.rs"]
mod tests;
