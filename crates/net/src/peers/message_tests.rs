use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn text() -> impl Strategy<Value = String> {
    vec(proptest::char::range('a', 'ü'), 0..40).prop_map(|chars| chars.into_iter().collect())
}

fn address() -> impl Strategy<Value = Ipv4Addr> {
    any::<u32>().prop_map(Ipv4Addr::from_bits)
}

fn place() -> impl Strategy<Value = SocketAddrV4> {
    (address(), any::<u16>()).prop_map(|(address, port)| SocketAddrV4::new(address, port))
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp)]
}

fn remote() -> impl Strategy<Value = Remote> {
    let kind = prop_oneof![Just(Kind::Names), Just(Kind::Packets)];
    (text(), text(), vec(text(), 0..4), address(), kind)
        .prop_map(|(id, name, aliases, address, kind)| Remote { id, name, aliases, address, kind })
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        place().prop_map(Answer::Found),
        address().prop_map(Answer::Refused),
        Just(Answer::Absent),
        Just(Answer::Unreachable),
    ]
}

fn asked() -> impl Strategy<Value = Asked> {
    prop_oneof![
        (protocol(), place(), any::<u16>()).prop_map(|(protocol, place, from)| Asked::Reach {
            protocol,
            address: *place.ip(),
            port: place.port(),
            from,
        }),
        (protocol(), any::<u16>(), place()).prop_map(|(protocol, port, to)| Asked::Who {
            protocol,
            port,
            to
        }),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (text(), any::<u64>()).prop_map(|(network, epoch)| Message::Hello {
            version: VERSION,
            network,
            epoch
        }),
        text().prop_map(Message::Bye),
        Just(Message::Ping),
        (address(), prop_oneof![Just(Claim::New), Just(Claim::Old), Just(Claim::Gone)])
            .prop_map(|(address, claim)| Message::Auxiliary { address, claim }),
        (any::<u16>(), any::<bool>(), vec(remote(), 0..9))
            .prop_map(|(part, last, members)| Message::Members { part, last, members }),
        (any::<u64>(), asked()).prop_map(|(id, asked)| Message::Ask { id, asked }),
        (any::<u64>(), answer()).prop_map(|(id, answer)| Message::Told { id, answer }),
        (address(), vec(any::<u8>(), 0..2000)).prop_map(|(to, frame)| Message::Frame { to, frame }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(one in message(), other in message()) {
        let bytes = [one.bytes(), other.bytes()].concat();
        let (read_one, used) = read(&bytes).unwrap().unwrap();
        prop_assert_eq!(read_one, Some(one));
        let (read_other, rest) = read(&bytes[used..]).unwrap().unwrap();
        prop_assert_eq!(read_other, Some(other));
        prop_assert_eq!(used + rest, bytes.len());
    }

    #[test]
    fn a_part_is_no_message(one in message(), cut in any::<prop::sample::Index>()) {
        let bytes = one.bytes();
        prop_assert_eq!(read(&bytes[..cut.index(bytes.len())]), Ok(None));
    }

    /// Random bytes behind every header lead to a message or to an error.
    #[test]
    fn garbage(kind in any::<u8>(), body in vec(any::<u8>(), 0..300)) {
        let mut bytes = start(kind, 0);
        bytes.extend(&body);
        let bytes = finish(bytes);
        if let Ok(Some((_, used))) = read(&bytes) {
            prop_assert_eq!(used, bytes.len());
        }
        let _ = read(&body);
    }

    /// A bit that is turned over.
    #[test]
    fn damage(one in message(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut bytes = one.bytes();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(Some((Some(message), used))) = read(&bytes) {
            prop_assert!(used <= bytes.len());
            let _ = message.bytes();
        }
    }
}

#[test]
fn limits() {
    let frame = Message::Frame { to: Ipv4Addr::LOCALHOST, frame: vec![1; FRAME] };
    assert!(matches!(read(&frame.bytes()), Ok(Some((Some(Message::Frame { .. }), _)))));
    let long = Message::Frame { to: Ipv4Addr::LOCALHOST, frame: vec![1; FRAME + 1] };
    assert_eq!(read(&long.bytes()), Err(Bad::Long));
    assert_eq!(read(&[0xff; 6]), Err(Bad::Long));
    assert_eq!(read(&[0, 0, 0, 0, 9, 3]), Err(Bad::Version));
    assert_eq!(read(&[1, 0, 0, 0, VERSION, 99, 7]), Ok(Some((None, 7))), "an unknown kind");
    // The greeting of another version tells it.
    let hello = Message::Hello { version: 9, network: String::new(), epoch: 0 };
    let mut bytes = hello.bytes();
    bytes[4] = 9;
    assert_eq!(read(&bytes), Ok(Some((Some(hello), bytes.len()))));
    let bye = Message::Bye("ü".repeat(200));
    let Ok(Some((Some(Message::Bye(why)), _))) = read(&bye.bytes()) else { panic!("no bye") };
    assert_eq!(why, "ü".repeat(127));
}

#[test]
fn many_members_come_in_parts() {
    let member = |number: u32, aliases: usize| Remote {
        kind: Kind::Names,
        id: format!("{number:064x}"),
        name: "n".repeat(200),
        aliases: vec!["a".repeat(255); aliases],
        address: Ipv4Addr::from_bits(number),
    };
    assert_eq!(members(&[]), [Message::Members { part: 0, last: true, members: Vec::new() }]);
    let all: Vec<Remote> = (0..5000).map(|number| member(number, number as usize % 70)).collect();
    let mut found = Vec::new();
    let parts = members(&all);
    for (at, message) in parts.iter().enumerate() {
        let bytes = message.bytes();
        let Ok(Some((Some(Message::Members { part, last, members }), used))) = read(&bytes) else {
            panic!("part {at} cannot be read")
        };
        assert_eq!((usize::from(part), last, used), (at, at + 1 == parts.len(), bytes.len()));
        found.extend(members);
    }
    assert_eq!(found.len(), MEMBERS);
    assert!(found.iter().zip(&all).all(|(one, other)| one.id == other.id));
    assert_eq!(found[69].aliases.len(), 64);
}

#[test]
fn what_cannot_stand_in_a_file_is_not_valid() {
    let good = Remote {
        kind: Kind::Packets,
        id: "0f".repeat(32),
        name: "db".into(),
        aliases: vec!["sql".into()],
        address: Ipv4Addr::LOCALHOST,
    };
    assert!(good.is_valid());
    assert!(!Remote { name: "a\n1.1.1.1 b".into(), ..good.clone() }.is_valid());
    assert!(!Remote { name: String::new(), ..good.clone() }.is_valid());
    assert!(!Remote { aliases: vec!["#".into()], ..good.clone() }.is_valid());
    assert!(!Remote { id: "../x".into(), ..good }.is_valid());
}
