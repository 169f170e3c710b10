use std::collections::HashSet;
use std::sync::Mutex;

use store::Options;

use super::*;
use crate::{Networks, Prefix, Request, table};

struct World {
    _directory: tempfile::TempDir,
    store: Store,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { create: true, ..Options::default() };
        let store = Store::open(directory.path(), options).unwrap();
        Self { _directory: directory, store }
    }

    fn network(&self, name: &str, subnet: &str) -> Network {
        let subnet = Some(subnet.parse().unwrap());
        let request = Request { name: name.into(), subnet, ..Request::default() };
        Networks::of(&self.store).create(request, (&[], &[])).unwrap()
    }
}

fn member(name: &str) -> Member {
    Member { id: name.to_owned(), name: name.to_owned(), ..Member::default() }
}

fn all(_: &str) -> bool {
    true
}

/// Only members with devices have IPv6 addresses.
#[test]
fn ipv6_is_for_packets() {
    let world = World::new();
    let prefix = "fd00::/64".parse().ok();
    let request = Request { name: "six".into(), ipv6: true, prefix, ..Request::default() };
    let six = Networks::of(&world.store).create(request, (&[], &[])).unwrap();
    let lab = world.network("lab", "10.1.0.0/24");
    let kinds = [(Kind::Names, None), (Kind::Packets, prefix)];
    for (kind, expected) in kinds {
        let member = Member { kind: Some(kind), ..member("a") };
        assert_eq!(join(&six, &member, &all).unwrap().prefix, expected);
        let address = list(&six).unwrap()[0].address;
        let ipv6 = expected.map(|prefix: Prefix| prefix.of(address));
        assert_eq!(list(&six).unwrap()[0].ipv6(prefix), ipv6);
        assert_eq!(join(&lab, &member, &all).unwrap().prefix, None);
        leave(&six, "a").unwrap();
        leave(&lab, "a").unwrap();
    }
}

#[test]
fn members_get_addresses_and_slots() {
    let world = World::new();
    let (lab, other) = (world.network("lab", "10.1.0.0/24"), world.network("other", "10.2.0.0/24"));
    let a = join(&lab, &member("a"), &all).unwrap();
    assert_eq!((a.address, a.slot), (Ipv4Addr::new(10, 1, 0, 2), 0));
    assert_eq!((a.network.as_str(), a.gateway), ("lab", Ipv4Addr::new(10, 1, 0, 1)));
    assert_eq!((a.network_id.as_str(), a.subnet), (lab.id(), lab.definition().subnet));
    let b = join(&other, &member("b"), &all).unwrap();
    assert_eq!((b.address, b.slot), (Ipv4Addr::new(10, 2, 0, 2), 1), "one table for all networks");
    let both = join(&other, &Member { aliases: vec!["x".into()], ..member("a") }, &all).unwrap();
    assert_eq!((both.address, both.slot), (Ipv4Addr::new(10, 2, 0, 3), 0));
    let listed = list(&other).unwrap();
    let names: Vec<&str> = listed.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!((names, &listed[1].aliases[..]), (vec!["b", "a"], &["x".to_owned()][..]));
    assert!(listed.iter().all(|entry| entry.since > 1_000_000_000));
    // It keeps its slot until it has left both.
    leave(&lab, "a").unwrap();
    assert_eq!(join(&lab, &member("c"), &all).unwrap().slot, 2);
    leave(&other, "a").unwrap();
    leave(&other, "a").unwrap();
    assert_eq!(join(&lab, &member("d"), &all).unwrap().slot, 3, "a slot rests, as an address");
    assert_eq!(list(&other).unwrap().len(), 1);
}

#[test]
fn members_are_of_one_kind() {
    let world = World::new();
    let lab = world.network("lab", "10.1.0.0/24");
    let of = |name, kind| Member { kind, ..member(name) };
    join(&lab, &of("a", Some(Kind::Packets)), &all).unwrap();
    join(&lab, &of("b", Some(Kind::Packets)), &all).unwrap();
    let error = join(&lab, &of("c", Some(Kind::Names)), &all).unwrap_err();
    assert!(error.hint().unwrap().contains("--execmode=N1"), "{error}");
    assert!(
        matches!(error, Error::Mixed { by, kind: Kind::Packets, .. } if by == "a"),
        "the first is told"
    );
    // One that is in it already keeps its kind, also where it does not say it again.
    join(&lab, &of("a", None), &all).unwrap();
    assert!(list(&lab).unwrap().iter().all(|entry| entry.kind == Kind::Packets));
    // The dead count for nothing, and a container may come back with another engine.
    join(&lab, &of("c", Some(Kind::Names)), &|_| false).unwrap();
    join(&lab, &of("c", Some(Kind::Packets)), &all).unwrap();
}

#[test]
fn entries_of_an_older_program_are_of_translated_addresses() {
    let text = r#"{"id":"0","name":"a","address":"10.1.0.2","slot":1}"#;
    let entry: Entry = serde_json::from_str(text).unwrap();
    assert_eq!(entry.kind, Kind::Names);
    assert!(!serde_json::to_string(&entry).unwrap().contains("kind"));
}

#[test]
fn who_is_in_a_network_keeps_the_address() {
    let world = World::new();
    let lab = world.network("lab", "10.1.0.0/24");
    let first = join(&lab, &member("a"), &all).unwrap();
    join(&lab, &member("b"), &all).unwrap();
    // Also if it was not alive between its runs.
    assert_eq!(join(&lab, &member("a"), &|id| id == "b").unwrap(), first);
    let wish = Member { address: Some(Ipv4Addr::new(10, 1, 0, 77)), ..member("a") };
    assert_eq!(join(&lab, &wish, &all).unwrap().address, Ipv4Addr::new(10, 1, 0, 77));
    assert_eq!(list(&lab).unwrap().len(), 2);
}

#[test]
fn wished_addresses() {
    let world = World::new();
    let lab = world.network("lab", "10.1.0.0/24");
    let wish =
        |name: &str, last| Member { address: Some(Ipv4Addr::new(10, 1, 0, last)), ..member(name) };
    assert_eq!(join(&lab, &wish("a", 3), &all).unwrap().address, Ipv4Addr::new(10, 1, 0, 3));
    let taken = join(&lab, &wish("b", 3), &all).unwrap_err();
    assert_eq!(taken.to_string(), "address 10.1.0.3 of network lab is taken by a");
    assert!(taken.hint().unwrap().starts_with("stop a"), "{taken}");
    for bad in [0, 1, 255] {
        let error = join(&lab, &wish("b", bad), &all).unwrap_err();
        assert!(matches!(error, Error::BadAddress { .. }), "{error}");
    }
    // An address that was wished is skipped, and does not move the search.
    assert_eq!(join(&lab, &member("c"), &all).unwrap().address, Ipv4Addr::new(10, 1, 0, 2));
    assert_eq!(join(&lab, &member("d"), &all).unwrap().address, Ipv4Addr::new(10, 1, 0, 4));
    // The holder is dead.
    assert_eq!(join(&lab, &wish("b", 3), &|id| id != "a").unwrap().slot, 3);
    let names: Vec<String> = list(&lab).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["c", "d", "b"]);
}

#[test]
fn an_address_that_was_left_rests() {
    let world = World::new();
    let lab = world.network("lab", "10.1.0.0/29");
    let address = |name: &str| join(&lab, &member(name), &all).unwrap().address.octets()[3];
    assert_eq!((address("a"), address("b")), (2, 3));
    leave(&lab, "a").unwrap();
    assert_eq!((address("c"), address("d"), address("e")), (4, 5, 6));
    assert_eq!(address("f"), 2);
    let full = join(&lab, &member("g"), &all).unwrap_err();
    assert_eq!(full.to_string(), "network lab has no free address left in 10.1.0.0/29");
    // The refused one has no slot.
    leave(&lab, "d").unwrap();
    assert_eq!(join(&lab, &member("g"), &all).unwrap().slot, 6);
}

#[test]
fn a_container_without_a_network_may_have_a_slot() {
    let world = World::new();
    let lab = world.network("lab", "10.1.0.0/24");
    let store = lab.dir().store();
    assert!(!has_slot(store, "a").unwrap());
    assert_eq!(take_slot(store, "a", &all).unwrap(), 0);
    assert_eq!(take_slot(store, "a", &all).unwrap(), 0);
    assert!(has_slot(store, "a").unwrap());
    assert_eq!(join(&lab, &member("b"), &all).unwrap().slot, 1);
    assert!(!has_slot(store, "b").unwrap());
    leave_slot(store, "a").unwrap();
    assert!(!has_slot(store, "a").unwrap());
}

/// A slot that is shared is not given away before the last one has ended that shares it, and
/// addresses in networks that its container has left are not its any more.
#[test]
fn a_shared_slot_stays() {
    let world = World::new();
    let lab = world.network("lab", "10.1.0.0/24");
    let store = lab.dir().store();
    let joined = join(&lab, &member("a"), &all).unwrap();
    let row = table::Row {
        id: &"a".repeat(64),
        slot: joined.slot,
        endpoints: std::slice::from_ref(&joined),
        published: &[],
        lives: false,
        resolvers: &[],
    };
    table::enter(store, &row).unwrap();
    let memberships = || {
        let words = rows::existing(&rows::path(store)).unwrap().unwrap();
        let table = abi::network::Table::open(words.words()).unwrap();
        table.members().memberships(abi::network::Slot::new(0).unwrap()).count()
    };
    assert_eq!(kind(store, "a").unwrap(), Some(Kind::Names));
    assert_eq!(share_slot(store, "none", "x").unwrap(), None);
    assert_eq!(share_slot(store, "a", "b").unwrap(), Some(0));
    assert_eq!(share_slot(store, "b", "c").unwrap(), Some(0));
    assert_eq!(shared_slot(store, "c").unwrap(), Some((0, "a".to_owned())));
    assert!(is_shared(store, "a", &|id| id == "b").unwrap());
    assert!(!is_shared(store, "a", &|_| false).unwrap());
    assert_eq!(memberships(), 1);
    leave(&lab, "a").unwrap();
    assert_eq!((memberships(), kind(store, "a").unwrap()), (0, None));
    assert_eq!(with_slots(store).unwrap(), ["a", "b", "c"]);
    // Its container comes back to it, and others get others.
    assert_eq!(join(&lab, &member("d"), &all).unwrap().slot, 1);
    assert_eq!(join(&lab, &member("a"), &all).unwrap().slot, 0);
    table::enter(store, &row).unwrap();
    // One that was killed is seen by the next that joins.
    assert_eq!(join(&lab, &member("e"), &|id| id != "a" && id != "c").unwrap().slot, 2);
    assert_eq!((memberships(), with_slots(store).unwrap().contains(&"c".to_owned())), (0, false));
    leave_slot(store, "b").unwrap();
    assert_eq!(shared_slot(store, "b").unwrap(), None);
    assert!(!with_slots(store).unwrap().contains(&"a".to_owned()));
}

/// The agent sees that the slots were written, and finds the entry then: also of a container that
/// was killed and has kept its slot.
#[test]
fn a_join_writes_the_slots_last() {
    let world = World::new();
    let lab = world.network("lab", "10.1.0.0/24");
    for _ in 0..2 {
        let before = crate::stamp::stamp(&slots_file(&world.store));
        join(&lab, &member("a"), &all).unwrap();
        assert_ne!(crate::stamp::stamp(&slots_file(&world.store)), before);
        let written = |path: std::path::PathBuf| path.metadata().unwrap().modified().unwrap();
        assert!(written(path(&lab)) <= written(slots_file(&world.store)));
    }
}

#[test]
fn slots_are_limited() {
    let taken = (1..SLOTS).map(|number| Slot {
        number,
        id: format!("c{number}"),
        networks: ["n".to_owned()].into(),
        sharers: BTreeSet::new(),
    });
    let mut slots = Slots { taken: taken.collect(), last: Some(7), ..Slots::default() };
    assert_eq!(slots.take("c0", "n", &all).unwrap(), 0);
    let full = slots.take("more", "n", &all).unwrap_err();
    assert!(matches!(full, Error::NoSlot { limit: SLOTS }), "{full}");
    assert_eq!(slots.take("c7", "other", &all).unwrap(), 7);
    assert_eq!(slots.take("more", "n", &|id| id != "c9").unwrap(), 9);
}

#[test]
fn hosts_do_not_share_members() {
    let world = World::new();
    let lab = world.network("lab", "10.1.0.0/24");
    let here = join(&lab, &member("a"), &all).unwrap();
    let there = join_on("other-host", &lab, &member("b"), &all).unwrap();
    assert_eq!((here.address, here.slot), (there.address, there.slot));
    assert_eq!((list(&lab).unwrap().len(), on_all_hosts(&lab).unwrap().len()), (1, 2));
    leave_on("other-host", &lab, "b").unwrap();
    assert_eq!(on_all_hosts(&lab).unwrap().len(), 1);
    assert!(!host().is_empty() && !host().contains('/'), "{}", host());
}

/// A power failure may leave the files empty: all containers are dead then.
#[test]
fn files_that_were_lost_are_written_anew() {
    let world = World::new();
    let lab = world.network("lab", "10.1.0.0/24");
    join(&lab, &member("a"), &all).unwrap();
    let file = lab.dir().join(&format!("members-{}.json", host()));
    assert!(file.exists());
    std::fs::write(&file, "").unwrap();
    std::fs::write(file.with_file_name(format!("../slots-{}.json", host())), "").unwrap();
    assert_eq!(join(&lab, &member("b"), &all).unwrap().slot, 0);
    // What is there and is no JSON is damage.
    std::fs::write(&file, "{").unwrap();
    let damaged = join(&lab, &member("c"), &all).unwrap_err();
    assert!(matches!(damaged, Error::Store { .. }), "{damaged}");
}

#[test]
fn many_at_once() {
    let world = World::new();
    let networks = [world.network("a", "10.1.0.0/24"), world.network("b", "10.2.0.0/24")];
    let seen = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for number in 0..10 {
            let (networks, seen) = (&networks, &seen);
            scope.spawn(move || {
                let member = member(&format!("c{number}"));
                for network in networks {
                    let endpoint = join(network, &member, &all).unwrap();
                    seen.lock().unwrap().push((number, endpoint.address, endpoint.slot));
                    if number % 3 == 0 {
                        leave(network, &member.id).unwrap();
                        join(network, &member, &all).unwrap();
                    }
                }
            });
        }
    });
    for network in &networks {
        let entries = list(network).unwrap();
        let addresses: HashSet<_> = entries.iter().map(|entry| entry.address).collect();
        let slots: HashSet<_> = entries.iter().map(|entry| entry.slot).collect();
        assert_eq!((entries.len(), addresses.len(), slots.len()), (10, 10, 10));
    }
    let of = |network: &Network, id: &str| {
        list(network).unwrap().into_iter().find(|entry| entry.id == id).unwrap().slot
    };
    assert!((1..10).filter(|n| n % 3 != 0).all(|n| {
        let id = format!("c{n}");
        of(&networks[0], &id) == of(&networks[1], &id)
    }));
    assert_eq!(seen.lock().unwrap().len(), 20);
}

/// A program of a later version has made the network.
#[test]
fn networks_of_other_scopes_are_left_alone() {
    let world = World::new();
    let lab = world.network("lab", "10.1.0.0/24");
    let file = lab.dir().join("network.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"host\"", "\"galaxy\"")).unwrap();
    let networks = Networks::of(&world.store);
    let later = networks.find("lab").unwrap();
    let refused = join(&later, &member("a"), &all).unwrap_err();
    assert!(matches!(&refused, Error::Scope { scope } if scope == "galaxy"), "{refused}");
    assert!(crate::removal::prune(&world.store, &|_| true, &|_| false).unwrap().is_empty());
    // Its addresses count.
    let subnet = Some("10.1.0.0/16".parse().unwrap());
    let request = Request { name: "b".into(), subnet, ..Request::default() };
    assert!(matches!(networks.create(request, (&[], &[])), Err(Error::Overlaps { .. })));
    assert!(crate::removal::remove(&world.store, &later, &|_| false).unwrap());
}

/// In a network of several hosts each gives addresses of its own part of the subnet.
#[test]
fn members_of_several_hosts_get_addresses_of_their_own() {
    use crate::peers::{Host, List, PublicKey};
    use crate::{Scope, joining};
    let world = World::new();
    let made = |name: &str, subnet: &str, last: u8| {
        let subnet = Some(subnet.parse().unwrap());
        let scope = Scope::Cluster;
        let request = Request { name: name.into(), subnet, scope, ..Request::default() };
        let network = Networks::of(&world.store).create(request, (&[], &[])).unwrap();
        let address = Ipv4Addr::new(127, 0, 0, last);
        cluster::settle(&network, cluster::Place { address, port: 7370, among: None }).unwrap();
        network
    };
    let far = made("far", "10.1.0.0/24", 1);
    let own = cluster::entry(&far).unwrap();
    let other = |last: u8| Host {
        name: format!("host{last}"),
        address: Ipv4Addr::new(127, 0, 0, last),
        key: PublicKey::of([last; 32]),
        ..own.clone()
    };
    // Alone it has the first part.
    let first = join(&far, &member("a"), &all).unwrap();
    assert_eq!((first.address, first.node), (Ipv4Addr::new(10, 1, 0, 2), Some(own.address)));
    let list = |hosts: Vec<Host>| List { epoch: 1, hosts };
    let six = Host { ipv6: "fd00::/64".parse().ok(), ..own.clone() };
    let six = joining::join(&far, &list(vec![six]), &all).unwrap_err();
    assert!(six.to_string().contains("ipv6 fd00::/64 differs from none of this host's"), "{six}");
    let moving = joining::join(&far, &list(vec![other(9), own.clone()]), &all).unwrap_err();
    assert!(moving.to_string().contains("get other addresses, and some live (a)"), "{moving}");
    assert!(joining::join(&far, &list(vec![own.clone(), other(9)]), &all).unwrap().listed);
    leave(&far, "a").unwrap();
    let hosts = vec![other(9), own.clone()];
    joining::join(&far, &List { epoch: 2, hosts }, &all).unwrap();
    let second = join(&far, &member("a"), &all).unwrap();
    assert_eq!(second.address, Ipv4Addr::new(10, 1, 0, 16));
    let wished = Member { address: Some(Ipv4Addr::new(10, 1, 0, 3)), ..member("b") };
    let refused = join(&far, &wished, &all).unwrap_err();
    assert!(refused.to_string().contains("this host's part of the subnet is 10.1.0.16/28"));
    let wished = Member { address: Some(Ipv4Addr::new(10, 1, 0, 31)), ..member("b") };
    assert_eq!(join(&far, &wished, &all).unwrap().address, Ipv4Addr::new(10, 1, 0, 31));
    for name in 'c'..='p' {
        join(&far, &member(&name.to_string()), &all).unwrap();
    }
    let full = join(&far, &member("z"), &all).unwrap_err();
    assert!(matches!(full, Error::Full { among, .. } if among.prefix() == 28), "{full}");
    // It leaves the others, and its containers stay as they are.
    let gone = Host { revoked: true, ..own.clone() };
    let list = List { epoch: 3, hosts: vec![other(9), gone.clone()] };
    let left = joining::join(&far, &list, &all).unwrap();
    assert_eq!((left.listed, left.revoked), (false, true));
    let stays = join(&far, &member("a"), &all).unwrap();
    assert_eq!((stays.address, stays.node), (second.address, second.node));
    let starts = Member { kind: Some(crate::Kind::Names), ..member("a") };
    for refused in [starts, member("new")] {
        let refused = join(&far, &refused, &all).unwrap_err();
        assert!(matches!(refused, Error::NotListed { .. }), "{refused}");
    }
    // Not listed.
    let list = List { epoch: 4, hosts: vec![other(9), other(8)] };
    assert!(!joining::join(&far, &list, &|_| false).unwrap().listed);
    let refused = join(&far, &member("q"), &all).unwrap_err();
    assert!(matches!(refused, Error::NotListed { .. }), "{refused}");
    // Another address of this host, in one container.
    let near = made("near", "10.2.0.0/24", 2);
    let endpoints = [second, join(&near, &member("a"), &all).unwrap()];
    let row = table::Row {
        id: "a",
        slot: endpoints[0].slot,
        endpoints: &endpoints,
        published: &[],
        lives: false,
        resolvers: &[],
    };
    let two = table::enter(&world.store, &row).unwrap_err();
    let text = "network near has another address of this host than far";
    assert_eq!(two.to_string(), text);
    table::enter(&world.store, &table::Row { endpoints: &endpoints[..1], ..row }).unwrap();
}

/// Another network gets the number, and another host the address.
#[test]
fn a_network_that_is_gone_is_not_found_in_the_table() {
    let world = World::new();
    let lab = world.network("lab", "10.1.0.0/24");
    let find = |address| {
        let file = std::fs::File::options().read(true).write(true).open(rows::path(&world.store));
        let words = sys::shared::SharedWords::map(file.unwrap()).unwrap();
        abi::network::Table::open(words.words()).unwrap().members().find(1, address)
    };
    let endpoints = [join(&lab, &member("a"), &all).unwrap()];
    let (slot, address) = (endpoints[0].slot, endpoints[0].address);
    let (published, resolvers, lives) = (&[][..], &[][..], false);
    let row = table::Row { id: "a", slot, endpoints: &endpoints, published, lives, resolvers };
    table::enter(&world.store, &row).unwrap();
    assert!(find(address).is_some());
    // Nobody else has the address: connections to it are refused, as to a host that is up.
    leave(&lab, "a").unwrap();
    assert!(find(address).is_some());
    forget_network(&lab).unwrap();
    assert_eq!(find(address), None);
}

#[test]
fn a_container_is_renamed_where_it_has_joined() {
    let world = World::new();
    let lab = world.network("lab", "10.1.0.0/24");
    let b = join_on("there", &lab, &member("b"), &all).unwrap();
    let a = join(&lab, &member("a"), &all).unwrap();
    assert!(rename(&lab, "a", "new").unwrap() && rename(&lab, "b", "far").unwrap());
    assert!(!rename(&lab, "c", "x").unwrap());
    let mut names: Vec<_> =
        on_all_hosts(&lab).unwrap().into_iter().map(|one| (one.address, one.name)).collect();
    names.sort();
    let mut expected = [(a.address, "new".to_owned()), (b.address, "far".to_owned())];
    expected.sort();
    assert_eq!(names, expected);
}
