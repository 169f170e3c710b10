use super::*;
use core::net::Ipv4Addr;
use std::boxed::Box;
use std::vec::Vec;

const BASE: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 0);

fn memory() -> Box<[AtomicU64]> {
    (0..SIZE / WORD).map(|_| AtomicU64::new(0)).collect()
}

fn slot(number: u16) -> Slot {
    Slot::new(number).unwrap()
}

fn port(address: [u8; 4], port: u16, real_port: u16, cookie: u64) -> Port {
    Port {
        protocol: Protocol::Tcp,
        family: Family::V4,
        address: address.into(),
        port,
        real: BASE,
        real_port,
        cookie,
        group: false,
    }
}

#[test]
fn a_file_is_recognised_and_its_block_checked() {
    let words = memory();
    assert!(Table::open(&words).is_none());
    for bad in [[127, 0, 0, 0], [10, 77, 0, 0], [127, 77, 0, 4], [127, 77, 1, 0]] {
        assert!(Table::create(&words, bad.into()).is_none(), "{bad:?}");
    }
    Table::create(&words, BASE).unwrap();
    assert_eq!(Table::open(&words).unwrap().base(), BASE);
    assert!(Table::open(&words[1..]).is_none());
}

#[test]
fn real_addresses_lead_back() {
    let words = memory();
    let table = Table::create(&words, BASE).unwrap();
    for number in [0, 1, 63, 64, 4095] {
        for use_ in [Use::Network, Use::Loopback, Use::Loopback6] {
            let real = table.real(slot(number), use_);
            assert_eq!(table.owner(real), Some((slot(number), use_)));
            assert!(real.is_loopback());
        }
    }
    assert_eq!(table.owner(Ipv4Addr::LOCALHOST), None);
    assert_eq!(table.owner(Ipv4Addr::new(127, 77, 0, 3)), None, "not used");
    assert_eq!(table.owner(Ipv4Addr::new(127, 77, 64, 0)), None, "behind the block");
    assert_eq!(table.owner(Ipv4Addr::new(100, 80, 0, 2)), None);
    assert!(Slot::new(4096).is_none());
}

#[test]
fn members_are_found_by_their_addresses() {
    let words = memory();
    let table = Table::create(&words, BASE).unwrap();
    let members = table.members();
    let one = |network, last| Membership {
        network,
        address: Ipv4Addr::new(100, 80, network as u8, last),
        prefix: 24,
        cluster: false,
    };
    table.take(slot(0), 7);
    table.take(slot(4095), 8);
    assert!(members.join(slot(0), one(1, 2)));
    assert!(members.join(slot(0), one(2, 2)));
    assert!(members.join(slot(4095), one(1, 3)));
    assert_eq!(members.find(1, Ipv4Addr::new(100, 80, 1, 2)), Some(slot(0)));
    assert_eq!(members.find(2, Ipv4Addr::new(100, 80, 2, 2)), Some(slot(0)));
    assert_eq!(members.find(1, Ipv4Addr::new(100, 80, 1, 3)), Some(slot(4095)));
    assert_eq!(members.find(2, Ipv4Addr::new(100, 80, 1, 3)), None);
    assert_eq!(members.memberships(slot(0)).collect::<Vec<_>>(), [one(1, 2), one(2, 2)]);
    assert!(one(1, 2).has(Ipv4Addr::new(100, 80, 1, 255)));
    assert!(!one(1, 2).has(Ipv4Addr::new(100, 80, 0, 255)));

    members.leave(slot(0), 1);
    assert_eq!(members.find(1, Ipv4Addr::new(100, 80, 1, 2)), None);
    assert_eq!(members.find(1, Ipv4Addr::new(100, 80, 1, 3)), Some(slot(4095)));
    assert_eq!(members.container(slot(0)), Some(7));
    members.clear(slot(0));
    assert_eq!(members.container(slot(0)), None);
    assert_eq!(members.find(2, Ipv4Addr::new(100, 80, 2, 2)), None);
}

/// A container joins again with each command that is started in it, while its programs look.
#[test]
fn who_joins_again_has_never_left() {
    let words = memory();
    let members = Table::create(&words, BASE).unwrap().members();
    let own =
        Membership { network: 1, address: [100, 80, 0, 2].into(), prefix: 24, cluster: false };
    assert!(members.join(slot(5), own));
    let over = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200_000 {
                assert!(members.join(slot(5), own));
            }
            over.store(1, Ordering::Release);
        });
        while over.load(Ordering::Acquire) == 0 {
            assert_eq!(members.memberships(slot(5)).next(), Some(own));
            assert_eq!(members.find(1, own.address), Some(slot(5)));
        }
    });
    // With another address it has that alone.
    let other = Membership { address: [100, 80, 0, 3].into(), ..own };
    assert!(members.join(slot(5), other));
    assert_eq!(members.memberships(slot(5)).collect::<Vec<_>>(), [other]);
    assert_eq!(members.find(1, own.address), None);
    assert_eq!(members.find(1, other.address), Some(slot(5)));
}

/// Addresses that come and go for ever do not fill the directory.
#[test]
fn the_directory_keeps_room() {
    let words = memory();
    let table = Table::create(&words, BASE).unwrap();
    let members = table.members();
    for round in 0..40_u32 {
        for number in 0..1000_u16 {
            let address = Ipv4Addr::from_bits(0x6450_0000 + round * 1000 + u32::from(number));
            table.take(slot(number), 1);
            assert!(members.join(
                slot(number),
                Membership { network: 1, address, prefix: 10, cluster: false }
            ));
            assert_eq!(members.find(1, address), Some(slot(number)));
        }
    }
}

#[test]
fn a_container_is_in_so_many_networks() {
    let words = memory();
    let members = Table::create(&words, BASE).unwrap().members();
    let one = |network| Membership {
        network,
        address: [10, 0, network as u8, 1].into(),
        prefix: 24,
        cluster: true,
    };
    for network in 1..=members::MEMBERSHIPS as u16 {
        assert!(members.join(slot(5), one(network)));
    }
    assert!(!members.join(slot(5), one(99)));
    assert!(members.join(slot(5), one(3)), "again");
    members.leave(slot(5), 3);
    assert!(members.join(slot(5), one(99)));
}

#[test]
fn published_ranges() {
    let words = memory();
    let members = Table::create(&words, BASE).unwrap().members();
    let range =
        Published { address: [0, 0, 0, 0].into(), host: 8080, inside: 80, count: 3, udp: false };
    assert!(members.publish(slot(1), range));
    let udp = Published { udp: true, address: [127, 0, 0, 1].into(), ..range };
    assert!(members.publish(slot(1), udp));
    assert_eq!(members.published(slot(1)).collect::<Vec<_>>(), [range, udp]);
    assert_eq!(
        [79, 80, 82, 83].map(|inside| range.port(inside)),
        [None, Some(8080), Some(8082), None]
    );
    let at = |host, count| Published { host, count, ..range };
    assert_eq!(range.meets(&at(8082, 1)), Some(8082));
    assert_eq!(range.meets(&at(8000, 90)), Some(8080));
    assert_eq!(range.meets(&at(8083, 9)), None);
    assert_eq!(range.meets(&udp), None);
    let [one, other] = [1, 2].map(|last| Published { address: [127, 0, 0, last].into(), ..range });
    assert_eq!((one.meets(&other), one.meets(&range)), (None, Some(8080)));
    for _ in 2..members::PUBLISHED {
        assert!(members.publish(slot(1), range));
    }
    assert!(!members.publish(slot(1), range));
    assert_eq!(members.published(slot(2)).count(), 0);
}

#[test]
fn ports_are_found_by_container_protocol_and_number() {
    let words = memory();
    let ports = Table::create(&words, BASE).unwrap().ports();
    let any = port([0, 0, 0, 0], 80, 40_000, 11);
    let own = port([100, 80, 0, 2], 5432, 5432, 12);
    let local = Port { real: [127, 77, 0, 1].into(), ..port([127, 0, 0, 1], 5432, 5432, 13) };
    let udp = Port { protocol: Protocol::Udp, family: Family::V6, group: true, ..own };
    for one in [any, own, local, udp] {
        assert!(ports.insert(slot(9), &one, |_| false));
    }
    let found = |protocol, number| ports.find(slot(9), protocol, number).collect::<Vec<_>>();
    assert_eq!(found(Protocol::Tcp, 80), [any]);
    assert_eq!(found(Protocol::Tcp, 5432), [own, local]);
    assert_eq!(found(Protocol::Udp, 5432), [udp]);
    assert_eq!(found(Protocol::Tcp, 40_000), []);
    assert_eq!(ports.find(slot(8), Protocol::Tcp, 80).count(), 0);

    ports.set_seen(slot(9), &own, 77);
    assert_eq!((ports.seen(slot(9), &own), ports.seen(slot(9), &local)), (77, 0));
    // The next socket at the same place.
    let next = Port { cookie: 14, ..own };
    assert!(ports.insert(slot(9), &next, |_| false));
    assert_eq!(found(Protocol::Tcp, 5432), [next, local]);
    assert_eq!((ports.seen(slot(9), &own), ports.seen(slot(9), &next)), (0, 0));

    let there = Place { at: Some(Use::Network), port: 40_000 };
    ports.set_virtual_port(slot(9), Protocol::Tcp, there, 80);
    ports.set_owner_of_wild(Protocol::Udp, 50_000, slot(9));
    assert_eq!(ports.virtual_port(slot(9), Protocol::Tcp, there), Some(80));
    assert_eq!(ports.virtual_port(slot(9), Protocol::Udp, there), None);
    assert_eq!(ports.virtual_port(slot(8), Protocol::Tcp, there), None);
    let local = Place { at: Some(Use::Loopback), ..there };
    assert_eq!(ports.virtual_port(slot(9), Protocol::Tcp, local), None);
    assert_eq!(ports.owner_of_wild(Protocol::Udp, 50_000), Some(slot(9)));
    ports.insert(slot(10), &any, |_| false);
    ports.members.clear(slot(9));
    assert_eq!(found(Protocol::Tcp, 5432), []);
    assert_eq!(ports.virtual_port(slot(9), Protocol::Tcp, there), None);
    assert_eq!(ports.owner_of_wild(Protocol::Udp, 50_000), None);
    assert_eq!(ports.find(slot(10), Protocol::Tcp, 80).count(), 1);
}

#[test]
fn cookies_lead_to_ports() {
    let words = memory();
    let ports = Table::create(&words, BASE).unwrap().ports();
    assert_eq!(ports.wild_port(7), None);
    ports.set_wild_port(7, 40_000);
    assert_eq!((ports.wild_port(7), ports.wild_port(8)), (Some(40_000), None));
    for cookie in 1..100_000 {
        let port = cookie as u16 | 1;
        ports.set_wild_port(cookie, port);
        assert_eq!(ports.wild_port(cookie), Some(port));
    }
    ports.set_wild_port(7, 0);
    assert_eq!(ports.wild_port(7), None, "it is so no more");
}

#[test]
fn places_lead_to_sockets() {
    let words = memory();
    let ports = Table::create(&words, BASE).unwrap().ports();
    let place = Place { at: Some(Use::Network), port: 40_000 };
    let find = |cookie| ports.at(slot(9), Protocol::Tcp, (place, BASE), cookie);
    assert_eq!(find(None), None);
    let any = port([0, 0, 0, 0], 80, 40_000, 11);
    let own = port([100, 80, 0, 2], 80, 40_000, 12);
    for one in [any, own] {
        ports.set_virtual_port(slot(9), Protocol::Tcp, place, 80);
        assert!(ports.insert(slot(9), &one, |_| false));
    }
    assert_eq!(find(None), Some(own), "the last");
    assert_eq!(find(Some(11)), Some(any));
    assert_eq!(find(Some(99)), Some(own));
    assert!(ports.insert(slot(9), &any, |_| false));
    assert_eq!(find(None), Some(any));
    // The place belongs to another port by now.
    let other = port([0, 0, 0, 0], 443, 40_000, 13);
    ports.set_virtual_port(slot(9), Protocol::Tcp, place, 443);
    assert!(ports.insert(slot(9), &other, |_| false));
    assert_eq!(find(None), Some(other));
}

#[test]
fn ways_are_found_by_both_ends() {
    let words = memory();
    let ports = Table::create(&words, BASE).unwrap().ports();
    let way = Way {
        protocol: Protocol::Tcp,
        from: Place { at: Some(Use::Loopback), port: 40_000 },
        to: (BASE, 5432),
        source: Ipv4Addr::LOCALHOST,
        destination: Ipv4Addr::new(127, 0, 0, 5),
        port: 0,
    };
    let find = |from, to| ports.way(slot(9), Protocol::Tcp, from, to);
    ports.insert_way(slot(9), &way, 7, |_| false);
    let found = find(way.from, way.to).unwrap();
    assert_eq!((found.source, found.destination), (way.source, way.destination));
    assert_eq!((found.port, found.cookie), (0, 7));
    assert_eq!(find(way.from, (BASE, 5433)), None);
    assert_eq!(find(Place { at: Some(Use::Network), ..way.from }, way.to), None);
    ports.insert_way(slot(9), &Way { to: (BASE, 80), ..way }, 8, |_| false);
    assert_eq!(find(way.from, way.to), None, "the port has been used again");
    ports.remove_way(slot(9), Protocol::Tcp, way.from, (BASE, 81));
    assert!(find(way.from, (BASE, 80)).is_some());
    ports.remove_way(slot(9), Protocol::Tcp, way.from, (BASE, 80));
    assert_eq!(find(way.from, (BASE, 80)), None);
    ports.insert_way(slot(9), &way, 9, |_| false);
    ports.members.clear(slot(9));
    assert_eq!(find(way.from, way.to), None);
}

/// Of one place the newest ways are kept.
#[test]
fn the_oldest_way_gives_way() {
    let words = memory();
    let ports = Table::create(&words, BASE).unwrap().ports();
    let way = |to| Way {
        protocol: Protocol::Udp,
        from: Place { at: Some(Use::Network), port: 53 },
        to: (BASE, to),
        source: BASE,
        destination: BASE,
        port: 0,
    };
    for to in 1..=1000 {
        ports.insert_way(slot(1), &way(to), to.into(), |_| false);
        for last in to.saturating_sub(9).max(1)..=to {
            assert!(ports.way(slot(1), Protocol::Udp, way(1).from, (BASE, last)).is_some());
        }
    }
}

/// Ways are hints: they take no room that sockets need.
#[test]
fn ways_give_room() {
    let words = memory();
    let ports = Table::create(&words, BASE).unwrap().ports();
    let way = |port| Way {
        protocol: Protocol::Tcp,
        from: Place { at: Some(Use::Loopback), port },
        to: (BASE, 1),
        source: BASE,
        destination: BASE,
        port: 0,
    };
    for number in 1..=60_000 {
        assert!(ports.insert_way(slot(1), &way(number), number.into(), |_| false), "{number}");
    }
    for number in 1..=5000 {
        let one = port([0, 0, 0, 0], number, number, 100_000 + u64::from(number));
        assert!(ports.insert(slot(2), &one, |_| false), "{number}");
    }
}

/// Where there is no room, only what is dead gives way.
#[test]
fn dead_entries_give_way() {
    let words = memory();
    let ports = Table::create(&words, BASE).unwrap().ports();
    let mut cookie = 0;
    let mut put = |number: u16, dead: bool| {
        cookie += 1;
        ports.insert(slot(1), &port([0, 0, 0, 0], number, number, cookie), |_| dead)
    };
    let lost = (1..=60_000).find(|number| !put(*number, false));
    let lost = lost.expect("more sockets than entries");
    assert!(lost > 10_000, "the table was full after {lost}");
    assert_eq!(ports.find(slot(1), Protocol::Tcp, lost).count(), 0);
    assert!(put(lost, true));
    assert_eq!(ports.find(slot(1), Protocol::Tcp, lost).count(), 1);
}

/// What containers leave behind gives way to what others bind, without the kernel being asked.
#[test]
fn entries_of_those_who_left_give_way() {
    let words = memory();
    let table = Table::create(&words, BASE).unwrap();
    let ports = table.ports();
    let mut cookie = 0;
    for round in 0..20_u16 {
        table.take(slot(1), 7);
        for number in 1..=5000 {
            cookie += 1;
            let one = port([0, 0, 0, 0], number, number, cookie);
            assert!(ports.insert(slot(1), &one, |_| false), "{number} in round {round}");
        }
        let found = |number| ports.find(slot(1), Protocol::Tcp, number).count();
        assert!((1..=5000).all(|number| found(number) == 1), "in round {round}");
        assert_eq!((found(5001), ports.find(slot(2), Protocol::Tcp, 1).count()), (0, 0));
    }
}

/// A generation that comes again finds nothing of the one before it.
#[test]
fn generations_come_again() {
    let words = memory();
    let table = Table::create(&words, BASE).unwrap();
    let ports = table.ports();
    for leaves in [false, true] {
        table.take(slot(3), 7);
        let one = port([0, 0, 0, 0], 80, 80, 9);
        assert!(ports.insert(slot(3), &one, |_| false));
        for _ in 0..5000 {
            if leaves {
                table.members().clear(slot(3));
            }
            table.take(slot(3), 7);
            assert_eq!(ports.find(slot(3), Protocol::Tcp, 80).count(), 0);
        }
    }
}

/// Threads that bind and look up at once never read a mixture of two entries.
#[test]
fn readers_see_whole_entries() {
    let words = memory();
    let table = Table::create(&words, BASE).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..3_u64 {
            let ports = table.ports();
            scope.spawn(move || {
                for round in 0..20_000_u64 {
                    let number = (round % 7) as u16 + 1;
                    let cookie = (round * 3 + writer + 1) << 16 | u64::from(number);
                    let mut one = port([0, 0, 0, 0], number, number + 1000, cookie);
                    one.real = Ipv4Addr::from_bits(u32::from(number));
                    ports.insert(slot(1), &one, |_| true);
                    if round % 5000 == 0 {
                        ports.members.clear(slot(2));
                    }
                }
            });
        }
        let ports = table.ports();
        for round in 0..60_000_u64 {
            let number = (round % 7) as u16 + 1;
            for found in ports.find(slot(1), Protocol::Tcp, number) {
                assert_eq!(found.real_port, number + 1000);
                assert_eq!(found.real.to_bits(), u32::from(number));
                assert_eq!(found.cookie as u16, number);
            }
        }
    });
}

/// In networks of several hosts the kernel sees a container at its host's address.
#[test]
fn the_host_s_address_stands_for_its_containers() {
    let words = memory();
    let table = Table::create(&words, BASE).unwrap();
    let (members, ports) = (table.members(), table.ports());
    let node = Ipv4Addr::new(10, 0, 0, 1);
    table.take(slot(7), 7);
    assert_eq!(table.real(slot(7), Use::Network), Ipv4Addr::new(127, 77, 0, 28));
    members.set_node(slot(7), Some(node));
    assert_eq!(table.real(slot(7), Use::Network), node);
    assert_eq!(table.real(slot(7), Use::Loopback), Ipv4Addr::new(127, 77, 0, 29));
    assert_eq!(table.owner(Ipv4Addr::new(127, 77, 0, 28)), Some((slot(7), Use::Network)));
    let to = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 80);
    assert_eq!(table.sender(Protocol::Tcp, 4000, to), None);
    let bound = Port { real: node, ..port([0, 0, 0, 0], 22, 4000, 5) };
    ports.insert(slot(7), &bound, |_| false);
    let place = Place { at: Some(Use::Network), port: 4000 };
    ports.set_virtual_port(slot(7), Protocol::Tcp, place, 22);
    ports.set_owner_of_wild(Protocol::Tcp, 4000, slot(7));
    let sender = table.sender(Protocol::Tcp, 4000, to).unwrap();
    assert_eq!((sender.slot, sender.port, sender.cookie), (slot(7), 22, 5));
    assert!(sender.address.is_unspecified());
    let way = Way {
        protocol: Protocol::Tcp,
        from: Place { at: Some(Use::Network), port: 4001 },
        to: (*to.ip(), to.port()),
        source: Ipv4Addr::new(100, 80, 0, 7),
        destination: Ipv4Addr::new(100, 80, 0, 9),
        port: 8080,
    };
    ports.insert_way(slot(7), &way, 6, |_| false);
    ports.set_owner_of_wild(Protocol::Tcp, 4001, slot(7));
    let sender = table.sender(Protocol::Tcp, 4001, to).unwrap();
    assert_eq!((sender.address, sender.port, sender.cookie), (way.source, 4001, 6));
    let back = ports.way(slot(7), Protocol::Tcp, way.from, way.to).unwrap();
    assert_eq!((back.destination, back.port), (way.destination, 8080));
    members.clear(slot(7));
    assert_eq!(table.sender(Protocol::Tcp, 4001, to), None, "the container has left");
    assert_eq!(members.node(slot(7)), None);
}

#[test]
fn hosts_agents_and_answers_are_kept() {
    let words = memory();
    let table = Table::create(&words, BASE).unwrap();
    let nodes: Vec<Ipv4Addr> =
        (1..=300).map(|number| Ipv4Addr::from_bits(0x0a00_0000 | number)).collect();
    assert!(!table.is_node(nodes[0]) && !table.is_node(Ipv4Addr::UNSPECIFIED));
    assert!(table.set_nodes(&nodes[..3]));
    assert!(table.is_node(nodes[2]) && !table.is_node(nodes[3]));
    assert!(!table.set_nodes(&nodes), "too many");
    assert!(table.is_node(nodes[255]) && !table.is_node(nodes[256]));
    assert!(table.set_nodes(&nodes[4..5]));
    assert!(table.is_node(nodes[4]) && !table.is_node(nodes[0]));

    assert_eq!(table.agent(), None);
    let place = SocketAddrV4::new(BASE, 4711);
    let agent = ask::Agent { place, asking: u64::MAX, telling: 1 };
    table.set_agent(agent);
    assert_eq!(table.agent(), Some(agent));

    assert_eq!(table.recall(9), None);
    table.keep(9, place, 77);
    assert_eq!(table.recall(9), Some((place, 77)));
    for key in 1..20_000 {
        table.keep(key, SocketAddrV4::new(Ipv4Addr::from_bits(key as u32), key as u16), key);
    }
    let kept = (1..20_000u64).filter(|key| table.recall(*key).is_some()).count();
    assert!((2000..=4096).contains(&kept), "{kept}");
    let is_right = |key: u64| {
        table.recall(key).is_none_or(|(place, time)| {
            (place.ip().to_bits(), place.port(), time) == (key as u32, key as u16, key)
        })
    };
    assert!((1..20_000).all(is_right));
}
