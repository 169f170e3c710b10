//! Agents of two hosts over real sockets, each with a store and a table of its own: what they say
//! to programs about containers of the other one.

use std::collections::HashSet;
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use abi::network::ask::{ANSWER, Answer, Question};
use abi::network::{Family, Place, Port, Protocol, Slot, Table, Use, Way};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
use store::Options;
use sys::shared::SharedWords;

use super::super::containers::{Alive, Containers};
use super::*;
use crate::members::{Endpoint, Member};
use crate::{Request, joining, rows, table};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Fakes {
    started: Mutex<HashSet<String>>,
    told: AtomicUsize,
}

impl Containers for Fakes {
    fn is_alive(&self, _: &str) -> bool {
        true
    }

    fn has_started(&self, id: &str) -> bool {
        lock(&self.started).contains(id)
    }

    fn servers(&self, _: &str) -> Vec<std::net::IpAddr> {
        Vec::new()
    }

    fn tell(&self, _: &Network) {
        self.told.fetch_add(1, Ordering::Relaxed);
    }
}

struct Machine {
    _directory: tempfile::TempDir,
    store: Store,
    network: Network,
    fakes: Arc<Fakes>,
    node: Ipv4Addr,
}

/// A container.
struct Inside {
    id: String,
    slot: Slot,
    address: Ipv4Addr,
}

impl Machine {
    fn new() -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let pid = std::process::id();
        let last = NEXT.fetch_add(1, Ordering::Relaxed);
        let node = Ipv4Addr::new(127, 201 + (pid % 50) as u8, (pid / 50) as u8, last);
        let directory = tempfile::tempdir().unwrap();
        let options = Options { create: true, ..Options::default() };
        let store = Store::open(directory.path(), options).unwrap();
        let request = Request {
            name: "far".into(),
            scope: Scope::Cluster,
            subnet: Some("100.80.0.0/24".parse().unwrap()),
            ..Request::default()
        };
        let network = Networks::of(&store).create(request, (&[], &[])).unwrap();
        let place = cluster::Place { address: node, port: 7370, among: None };
        cluster::settle(&network, place).unwrap();
        Self { _directory: directory, store, network, fakes: Arc::default(), node }
    }

    fn join(&self, list: &List) {
        assert!(joining::join(&self.network, list, &|_| true).unwrap().listed);
    }

    fn enter(&self, id: char) -> Inside {
        let id = String::from_iter([id; 64]);
        let name = format!("c{}", &id[..1]);
        let member = Member { id: id.clone(), name, ..Member::default() };
        let endpoint: Endpoint = members::join(&self.network, &member, &|_| true).unwrap();
        let row = table::Row {
            id: &id,
            slot: endpoint.slot,
            endpoints: std::slice::from_ref(&endpoint),
            published: &[],
            lives: false,
            resolvers: &[],
        };
        let place = table::enter(&self.store, &row).unwrap();
        Inside { id, slot: Slot::new(place.slot).unwrap(), address: endpoint.address }
    }

    fn words(&self) -> SharedWords {
        let path = rows::path(&self.store);
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        SharedWords::map(&file).unwrap()
    }

    fn serve(&self) {
        let fakes: Arc<dyn Containers> = self.fakes.clone();
        let alive = Arc::new(Alive::new(&fakes));
        let switch = crate::switch::Switch::start().unwrap();
        let words = Arc::new(self.words());
        let served = Served::new(&self.store, &fakes, &alive, &words, &switch);
        Clusters::new(served).unwrap().serve().unwrap();
    }

    fn number(&self) -> u16 {
        remote::number(&self.store, &self.network).unwrap()
    }

    fn ask(&self, question: Question) -> Answer {
        let words = self.words();
        let agent = Table::open(words.words()).unwrap().agent().unwrap();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(&question.write(agent.asking, 7), agent.place).unwrap();
        let mut answer = [0; ANSWER];
        let (length, from) = socket.recv_from(&mut answer).unwrap();
        assert_eq!((length, from), (ANSWER, agent.place.into()));
        Answer::read(&answer, agent.telling, 7).unwrap()
    }

    fn reach(&self, address: Ipv4Addr, port: u16) -> Answer {
        let protocol = Protocol::Tcp;
        self.ask(Question::Reach { network: self.number(), protocol, address, port, from: 0 })
    }

    fn who(&self, inside: &Inside, peer: SocketAddrV4, own: SocketAddrV4) -> Answer {
        self.ask(Question::Who { slot: inside.slot, protocol: Protocol::Tcp, peer, own })
    }

    fn names(&self) -> Vec<String> {
        let members = remote::members(&self.network).unwrap();
        members.into_iter().map(|entry| entry.name).collect()
    }
}

/// Hosts in a network; the last one does not answer.
fn machines() -> [Machine; 3] {
    let all = [Machine::new(), Machine::new(), Machine::new()];
    let hosts = all.iter().map(|one| cluster::entry(&one.network).unwrap()).collect();
    let list = List { epoch: 1, hosts };
    list.check().unwrap();
    for one in &all {
        one.join(&list);
    }
    all
}

fn v4(address: SocketAddr) -> SocketAddrV4 {
    let SocketAddr::V4(address) = address else { panic!("{address} is none of IPv4") };
    address
}

/// A socket of a container that listens at a virtual port.
fn listen(machine: &Machine, inside: &Inside, port: u16) -> (TcpListener, SocketAddrV4) {
    let listener = TcpListener::bind((machine.node, 0)).unwrap();
    let place = v4(listener.local_addr().unwrap());
    let words = machine.words();
    let ports = Table::open(words.words()).unwrap().ports();
    let entry = Port {
        protocol: Protocol::Tcp,
        family: Family::V4,
        address: Ipv4Addr::UNSPECIFIED,
        port,
        real: machine.node,
        real_port: place.port(),
        cookie: sockopt::socket_cookie(&listener).unwrap(),
        group: false,
    };
    assert!(ports.insert(inside.slot, &entry, |_| false));
    (listener, place)
}

/// A connection from a host's address; as a container's, if one is given.
fn connected(
    machine: &Machine,
    to: SocketAddrV4,
    inside: Option<&Inside>,
) -> (OwnedFd, SocketAddrV4) {
    let client = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&client, &SocketAddrV4::new(machine.node, 0)).unwrap();
    let own = rustix::net::getsockname(&client).unwrap();
    let own = v4(SocketAddr::try_from(own).unwrap());
    if let Some(inside) = inside {
        let words = machine.words();
        let ports = Table::open(words.words()).unwrap().ports();
        let way = Way {
            protocol: Protocol::Tcp,
            from: Place { at: Some(Use::Network), port: own.port() },
            to: (*to.ip(), to.port()),
            source: inside.address,
            destination: Ipv4Addr::UNSPECIFIED,
            port: 80,
        };
        let cookie = sockopt::socket_cookie(&client).unwrap();
        assert!(ports.insert_way(inside.slot, &way, cookie, |_| false));
        ports.set_owner_of_wild(Protocol::Tcp, own.port(), inside.slot);
    }
    connect(&client, &to).unwrap();
    (client, own)
}

#[test]
fn ports_of_other_hosts_are_found() {
    let [one, other, _silent] = machines();
    let (here, there) = (one.enter('a'), other.enter('b'));
    assert_eq!((here.address.octets()[3], there.address.octets()[3]), (2, 16), "slices");
    one.serve();
    // The link is made while the question waits.
    other.serve();
    let (listener, place) = listen(&other, &there, 5432);
    assert_eq!(one.reach(there.address, 5432), Answer::Found(place));
    assert_eq!(one.reach(there.address, 5433), Answer::Refused(other.node));
    let nobody = Ipv4Addr::from_bits(there.address.to_bits() + 5);
    assert_eq!(one.reach(nobody, 5432), Answer::Absent);
    assert_eq!(one.reach(Ipv4Addr::new(100, 80, 0, 200), 5432), Answer::Absent, "no host's");
    assert_eq!(one.reach(here.address, 5432), Answer::Absent, "its own");
    let elsewhere = Question::Reach {
        network: 999,
        protocol: Protocol::Tcp,
        address: there.address,
        port: 5432,
        from: 0,
    };
    assert_eq!(one.ask(elsewhere), Answer::Absent);
    // A stranger has taken the port.
    drop(listener);
    let _stranger = TcpListener::bind(place).unwrap();
    assert_eq!(one.reach(there.address, 5432), Answer::Refused(other.node));
    // A host without an agent.
    assert_eq!(one.reach(Ipv4Addr::new(100, 80, 0, 40), 80), Answer::Unreachable);
    let words = one.words();
    let table = Table::open(words.words()).unwrap();
    assert!(table.is_node(one.node) && table.is_node(other.node));
}

#[test]
fn peers_of_other_hosts_are_told_and_strangers_are_not() {
    let [one, other, _silent] = machines();
    let (here, there) = (one.enter('a'), other.enter('b'));
    one.serve();
    other.serve();
    let (listener, place) = listen(&other, &there, 80);
    let (_client, from) = connected(&one, place, Some(&here));
    let told = SocketAddrV4::new(here.address, from.port());
    assert_eq!(other.who(&there, from, place), Answer::Found(told));
    // A program of the host, and one that has taken a port that a container has had.
    let (stranger, from) = connected(&one, place, None);
    assert_eq!(other.who(&there, from, place), Answer::Absent);
    drop(stranger);
    let (client, from) = connected(&one, place, Some(&here));
    let linger = Some(Duration::ZERO);
    sockopt::set_socket_linger(&client, linger).unwrap();
    drop(client);
    let stranger = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&stranger, &from).unwrap();
    connect(&stranger, &place).unwrap();
    assert_eq!(other.who(&there, from, place), Answer::Absent);
    // The other way round: whose is the socket to which it is connected? The one that listens.
    let words = other.words();
    let ports = Table::open(words.words()).unwrap().ports();
    ports.set_owner_of_wild(Protocol::Tcp, place.port(), there.slot);
    ports.set_virtual_port(
        there.slot,
        Protocol::Tcp,
        Place { at: Some(Use::Network), port: place.port() },
        80,
    );
    let (_client, from) = connected(&one, place, Some(&here));
    let _accepted: Vec<TcpStream> = (0..5).map(|_| listener.accept().unwrap().0).collect();
    let told = SocketAddrV4::new(there.address, 80);
    assert_eq!(one.who(&here, place, from), Answer::Found(told));
    // No host asks about sockets of others.
    let elsewhere = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 9), 80);
    assert_eq!(one.who(&here, elsewhere, from), Answer::Absent);
}

#[test]
fn names_are_told_when_containers_have_started() {
    let [one, other, _silent] = machines();
    let here = one.enter('a');
    let there = other.enter('b');
    one.serve();
    other.serve();
    let wait = |what: &str, done: &dyn Fn() -> bool| {
        let until = Instant::now() + PATIENCE;
        while !done() {
            assert!(Instant::now() < until, "{what}: {:?} {:?}", one.names(), other.names());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    lock(&one.fakes.started).insert(here.id.clone());
    wait("the name", &|| other.names() == ["cb", "ca"]);
    wait("the hosts files", &|| other.fakes.told.load(Ordering::Relaxed) == 1);
    assert_eq!(one.names(), ["ca"], "it has not started");
    lock(&other.fakes.started).insert(there.id.clone());
    wait("the other name", &|| one.names() == ["ca", "cb"]);
    wait("the states", &|| {
        let known = remote::known(&one.network).unwrap().unwrap();
        let [second, third] = &known.peers[..] else { panic!("{known:?}") };
        second.up && !third.up && third.why == "nobody listens there"
    });
    members::leave(&other.network, &there.id).unwrap();
    wait("the end", &|| one.names() == ["ca"]);
    // A newer list without the other host.
    let mut list = cluster::list(&one.network).unwrap().unwrap();
    list.epoch = 2;
    list.hosts[1].revoked = true;
    one.join(&list);
    wait("the end of the link", &|| {
        let known = remote::known(&other.network).unwrap().unwrap();
        known.peers.iter().all(|peer| !peer.up)
    });
    wait("the list", &|| remote::known(&one.network).unwrap().unwrap().epoch == 2);
}
