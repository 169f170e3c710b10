use super::*;
use crate::members::Entry;
use proptest::prelude::*;

fn entry(name: &str, last: u8, aliases: &[&str]) -> Entry {
    Entry {
        id: format!("{last:064x}"),
        name: name.into(),
        aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
        address: Ipv4Addr::new(100, 80, 0, last),
        slot: 0,
        kind: crate::Kind::Names,
        since: 0,
    }
}

fn zone() -> Zone {
    let entries = [
        entry("db", 2, &["store", "all"]),
        entry("web", 3, &["all"]),
        entry("Big_One", 4, &["all", "no name"]),
    ];
    let auxiliary = [("vip".to_owned(), Ipv4Addr::new(100, 80, 0, 254))].into();
    let lab = Definition { auxiliary, ..Definition::of("lab", "100.80.0.0/24") };
    Zone::of(&[(&lab, &entries)])
}

fn question(name: &str, kind: QTYPE) -> Packet<'static> {
    let mut packet = Packet::new_query(0x1234);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new_unchecked(name).into_owned();
    packet.questions.push(Question::new(name, kind, QCLASS::CLASS(CLASS::IN), false));
    packet
}

fn bytes(answer: Answer) -> Vec<u8> {
    let Answer::Message(bytes) = answer else { panic!("{answer:?}") };
    bytes
}

fn ask(zone: &Zone, name: &str, kind: QTYPE, turn: usize) -> Answer {
    zone.answer(&question(name, kind).build_bytes_vec().unwrap(), Transport::Udp, turn)
}

/// What a name leads to, in the order of the answer.
fn addresses(zone: &Zone, name: &str, turn: usize) -> Vec<u8> {
    let reply = bytes(ask(zone, name, QTYPE::TYPE(TYPE::A), turn));
    let reply = Packet::parse(&reply).unwrap();
    assert_eq!((reply.id(), reply.rcode()), (0x1234, RCODE::NoError));
    assert!(reply.has_flags(PacketFlag::RESPONSE | PacketFlag::RECURSION_AVAILABLE));
    assert_eq!(reply.questions[0].qname.to_string(), name);
    let address = |record: &ResourceRecord<'_>| match &record.rdata {
        RData::A(A { address }) => address.to_be_bytes()[3],
        other => panic!("{other:?}"),
    };
    reply.answers.iter().map(address).collect()
}

#[test]
fn members_are_found_by_each_of_their_names() {
    let zone = zone();
    for name in ["db", "DB", "db.lab", "store", "store.lab", "000000000000"] {
        let found = addresses(&zone, name, 0);
        assert!(found == [2] || name.starts_with('0'), "{name}: {found:?}");
    }
    assert_eq!(addresses(&zone, "big_one", 0), [4]);
    for name in ["vip", "vip.lab"] {
        assert_eq!(addresses(&zone, name, 0), [254]);
    }
}

#[test]
fn a_name_of_many_leads_to_another_one_first_each_time() {
    let zone = zone();
    let turns: Vec<Vec<u8>> = (0..4).map(|turn| addresses(&zone, "all", turn)).collect();
    assert_eq!(turns, [vec![2, 3, 4], vec![3, 4, 2], vec![4, 2, 3], vec![2, 3, 4]]);
}

fn code_and_count(answer: Answer) -> (RCODE, usize) {
    let reply = bytes(answer);
    let reply = Packet::parse(&reply).unwrap();
    (reply.rcode(), reply.answers.len())
}

/// musl takes "no such name" for one type as the answer for all.
#[test]
fn other_types_of_a_name_have_no_data() {
    let zone = zone();
    for kind in [TYPE::AAAA, TYPE::MX, TYPE::Unknown(65)] {
        let answer = ask(&zone, "db", QTYPE::TYPE(kind), 0);
        assert_eq!(code_and_count(answer), (RCODE::NoError, 0), "{kind:?}");
    }
    assert_eq!(code_and_count(ask(&zone, "db", QTYPE::ANY, 0)), (RCODE::NoError, 1));
}

#[test]
fn addresses_lead_to_names() {
    let zone = zone();
    let reply = bytes(ask(&zone, "3.0.80.100.in-addr.arpa", QTYPE::TYPE(TYPE::PTR), 0));
    let reply = Packet::parse(&reply).unwrap();
    let RData::PTR(PTR(name)) = &reply.answers[0].rdata else { panic!("{reply:?}") };
    assert_eq!(name.to_string(), "web.lab");
    let nobody = ask(&zone, "99.0.80.100.in-addr.arpa", QTYPE::TYPE(TYPE::PTR), 0);
    assert_eq!(code_and_count(nobody), (RCODE::NameError, 0));
    for other in ["1.0.0.10.in-addr.arpa", "x.0.80.100.in-addr.arpa", "0.80.100.in-addr.arpa"] {
        assert_eq!(ask(&zone, other, QTYPE::TYPE(TYPE::PTR), 0), Answer::Forward, "{other}");
    }
}

/// The IPv6 addresses of a name, in the order of the answer.
fn addresses6(zone: &Zone, name: &str, turn: usize) -> Vec<String> {
    let reply = bytes(ask(zone, name, QTYPE::TYPE(TYPE::AAAA), turn));
    let reply = Packet::parse(&reply).unwrap();
    assert_eq!(reply.rcode(), RCODE::NoError);
    let address = |record: &ResourceRecord<'_>| match &record.rdata {
        RData::AAAA(AAAA { address }) => Ipv6Addr::from_bits(*address).to_string(),
        other => panic!("{other:?}"),
    };
    reply.answers.iter().map(address).collect()
}

#[test]
fn members_with_devices_have_ipv6_addresses() {
    let with = |kind: crate::Kind, prefix: Option<&str>| {
        let entries = [("db", 2), ("web", 3)]
            .map(|(name, last)| Entry { kind, ..entry(name, last, &["all"]) });
        let ipv6 = prefix.map(|text| text.parse().unwrap());
        let lab = Definition { ipv6, ..Definition::of("lab", "100.80.0.0/24") };
        Zone::of(&[(&lab, &entries)])
    };
    let arpa = |last: char| format!("{last}.0.0.0.0.5.4.6.{}0.0.d.f.ip6.arpa", "0.".repeat(20));
    let reverse = |zone: &Zone, last| ask(zone, &arpa(last), QTYPE::TYPE(TYPE::PTR), 0);
    let zone = with(crate::Kind::Packets, Some("fd00::/64"));
    let [db, web] = ["fd00::6450:2", "fd00::6450:3"];
    assert_eq!(addresses6(&zone, "db.lab", 0), [db]);
    assert_eq!(
        (addresses6(&zone, "all", 0), addresses6(&zone, "all", 1)),
        (vec![db.into(), web.into()], vec![web.into(), db.into()])
    );
    assert_eq!(addresses(&zone, "all", 0), [2, 3]);
    assert_eq!(code_and_count(ask(&zone, "db", QTYPE::ANY, 0)), (RCODE::NoError, 2));
    let reply = bytes(reverse(&zone, '3'));
    let reply = Packet::parse(&reply).unwrap();
    let RData::PTR(PTR(name)) = &reply.answers[0].rdata else { panic!("{reply:?}") };
    assert_eq!(name.to_string(), "web.lab");
    assert_eq!(code_and_count(reverse(&zone, '9')), (RCODE::NameError, 0));
    for other in [arpa('3').replace("d.f.", "e.f."), arpa('x'), arpa('3')[2..].to_owned()] {
        assert_eq!(ask(&zone, &other, QTYPE::TYPE(TYPE::PTR), 0), Answer::Forward, "{other}");
    }
    // What is without devices has none, and a network without them has none.
    let zone = with(crate::Kind::Names, Some("fd00::/64"));
    assert_eq!(addresses6(&zone, "all", 0), [""; 0]);
    assert_eq!(code_and_count(reverse(&zone, '3')), (RCODE::NameError, 0));
    let zone = with(crate::Kind::Packets, None);
    assert_eq!((addresses6(&zone, "all", 0), reverse(&zone, '3')), (vec![], Answer::Forward));
}

#[test]
fn services_are_called_by_their_ports() {
    let zone = zone();
    let reply = bytes(ask(&zone, "_5432._tcp.all", QTYPE::TYPE(TYPE::SRV), 0));
    let reply = Packet::parse(&reply).unwrap();
    let target = |record: &ResourceRecord<'_>| match &record.rdata {
        RData::SRV(data) => (data.port, data.target.to_string()),
        other => panic!("{other:?}"),
    };
    let found: Vec<_> = reply.answers.iter().map(target).collect();
    let names = ["db.lab", "web.lab", "Big_One.lab"].map(|name| (5432, name.to_owned()));
    assert_eq!(found, names);
    for other in ["_0._tcp.db", "_http._tcp.db", "_80._sctp.db", "_80._tcp.nobody"] {
        assert_eq!(ask(&zone, other, QTYPE::TYPE(TYPE::SRV), 0), Answer::Forward, "{other}");
    }
}

#[test]
fn other_names_are_another_server_s() {
    let zone = zone();
    for name in ["example.org", "lab", "db.other", "nobody", "x.db"] {
        assert_eq!(ask(&zone, name, QTYPE::TYPE(TYPE::A), 0), Answer::Forward, "{name}");
    }
    let mut packet = question("db", QTYPE::TYPE(TYPE::A));
    packet.questions[0].qclass = QCLASS::CLASS(CLASS::CH);
    let message = packet.build_bytes_vec().unwrap();
    assert_eq!(zone.answer(&message, Transport::Udp, 0), Answer::Forward);
}

#[test]
fn a_long_answer_is_cut_for_a_datagram() {
    let entries: Vec<Entry> = (1..=100).map(|last| entry("many", last, &[])).collect();
    let zone = Zone::of(&[(&Definition::of("lab", "100.80.0.0/24"), &entries)]);
    let mut packet = question("many", QTYPE::TYPE(TYPE::A));
    let short = packet.build_bytes_vec().unwrap();
    *packet.opt_mut() = Some(OPT { opt_codes: Vec::new(), udp_packet_size: 4096, version: 0 });
    let long = packet.build_bytes_vec().unwrap();
    for (message, transport, count) in
        [(&short, Transport::Udp, 0), (&short, Transport::Tcp, 100), (&long, Transport::Udp, 100)]
    {
        let reply = bytes(zone.answer(message, transport, 0));
        assert!(transport == Transport::Tcp || reply.len() <= LONG);
        let reply = Packet::parse(&reply).unwrap();
        assert_eq!(reply.answers.len(), count);
        assert_eq!(reply.has_flags(PacketFlag::TRUNCATION), count == 0);
        assert_eq!(reply.opt().is_some(), message == &long);
    }
}

#[test]
fn what_is_no_question_is_told_so() {
    let zone = zone();
    let none = |message: &[u8]| zone.answer(message, Transport::Udp, 0);
    for short in [&[][..], &[1], &[1, 2]] {
        assert_eq!(none(short), Answer::None);
    }
    let reply = bytes(none(&[0x12, 0x34, 1, 0, 0, 9]));
    assert_eq!(reply[..2], [0x12, 0x34]);
    assert_eq!(Packet::parse(&reply).unwrap().rcode(), RCODE::FormatError);
    let answer = Packet::new_reply(7).build_bytes_vec().unwrap();
    assert_eq!(none(&answer), Answer::None, "two servers would answer each other for ever");
    let empty = Packet::new_query(7).build_bytes_vec().unwrap();
    assert_eq!(code_and_count(none(&empty)), (RCODE::FormatError, 0));
    let mut update = question("db", QTYPE::TYPE(TYPE::A));
    *update.opcode_mut() = OPCODE::Update;
    let update = update.build_bytes_vec().unwrap();
    assert_eq!(code_and_count(none(&update)), (RCODE::NotImplemented, 0));
}

proptest! {
    /// Whatever comes, the answer is none, or a message that can be read and is the question's.
    #[test]
    fn any_bytes_are_answered(message in prop::collection::vec(any::<u8>(), 0..600), turn: usize) {
        if let Answer::Message(reply) = zone().answer(&message, Transport::Udp, turn) {
            prop_assert_eq!(&reply[..2], &message[..2]);
            prop_assert!(Packet::parse(&reply).is_ok());
        }
    }

    #[test]
    fn broken_questions_are_answered(
        name in "[a-z_.]{1,40}",
        at in 0..60_usize,
        value: u8,
    ) {
        let mut message = question(&name, QTYPE::TYPE(TYPE::A)).build_bytes_vec().unwrap();
        let at = at % message.len();
        message[at] = value;
        if let Answer::Message(reply) = zone().answer(&message, Transport::Udp, 0) {
            prop_assert_eq!(&reply[..2], &message[..2]);
        }
    }
}
