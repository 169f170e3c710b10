//! Links over real sockets on loopback addresses: who is let in, and what others can do.

use std::collections::HashSet;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use super::link::Channel;
use super::message::{FRAME, VERSION};
use super::tls::Tls;
use super::*;

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Seen {
    lines: Mutex<Vec<String>>,
}

impl Seen {
    fn add(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }

    fn count(&self, part: &str) -> usize {
        self.lines.lock().unwrap().iter().filter(|line| line.contains(part)).count()
    }
}

impl Handler for Seen {
    fn up(&self, key: &PublicKey) {
        self.add(format!("up {}", key.short()));
    }

    fn down(&self, key: &PublicKey) {
        self.add(format!("down {}", key.short()));
    }

    fn message(&self, _: &PublicKey, message: Message) {
        self.add(format!("{message:?}"));
    }

    fn frame(&self, _: &PublicKey, to: Ipv4Addr, frame: &[u8]) {
        self.add(format!("frame for {to}: {}", frame.len()));
    }
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn connected(place: SocketAddrV4) -> TcpStream {
    TcpStream::connect_timeout(&place.into(), PATIENCE).unwrap()
}

/// Addresses of loopback that no other test has.
fn place() -> SocketAddrV4 {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let last = NEXT.fetch_add(1, Ordering::Relaxed);
    let second = 100 + (std::process::id() % 100) as u8;
    SocketAddrV4::new(Ipv4Addr::new(127, second, (std::process::id() / 100) as u8, last), 7370)
}

struct Side {
    key: Key,
    place: SocketAddrV4,
    seen: Arc<Seen>,
    peers: Option<Peers>,
}

impl Side {
    fn new() -> Self {
        let seen = Arc::new(Seen::default());
        Self { key: Key::generate().unwrap(), place: place(), seen, peers: None }
    }

    fn host(&self) -> Host {
        Host {
            name: "host".into(),
            address: *self.place.ip(),
            port: self.place.port(),
            key: self.key.public(),
            subnet: "100.80.0.0/24".parse().unwrap(),
            ipv6: None,
            internal: false,
            auxiliary: [].into(),
            revoked: false,
        }
    }

    fn start(&mut self, network: &str, list: &List) {
        let handler: Arc<dyn Handler> = self.seen.clone();
        let started = Peers::start(network, &self.key, self.place, list.clone(), handler);
        self.peers = Some(started.unwrap());
    }

    fn peers(&self) -> &Peers {
        self.peers.as_ref().unwrap()
    }

    fn is_up(&self, other: &Self) -> bool {
        self.peers().states().iter().any(|state| state.key == other.key.public() && state.up)
    }

    fn why(&self, other: &Self) -> String {
        let states = self.peers().states();
        states.into_iter().find(|state| state.key == other.key.public()).unwrap().why
    }

    /// A connection to it in the name of another side.
    fn dialled_by(&self, other: &Self) -> Channel {
        let tls = Tls::new(&other.key, Arc::new(RwLock::new(HashSet::new()))).unwrap();
        let connection = tls.dialled(self.key.public(), *self.place.ip()).unwrap();
        Channel::new(connected(self.place), connection).unwrap()
    }
}

fn list(epoch: u64, sides: &[&Side]) -> List {
    List { epoch, hosts: sides.iter().map(|side| side.host()).collect() }
}

fn pair() -> (Side, Side) {
    let (mut one, mut other) = (Side::new(), Side::new());
    let list = list(1, &[&one, &other]);
    one.start("far", &list);
    other.start("far", &list);
    wait("the link", || one.is_up(&other) && other.is_up(&one));
    (one, other)
}

fn hello(network: &str, epoch: u64) -> Message {
    Message::Hello { version: VERSION, network: network.into(), epoch }
}

#[test]
fn hosts_of_a_list_are_linked_once_and_talk() {
    let (one, other) = pair();
    let told = Message::Ask {
        id: 7,
        asked: Asked::Reach {
            protocol: abi::network::Protocol::Tcp,
            address: Ipv4Addr::new(100, 80, 0, 17),
            port: 80,
            from: 0,
        },
    };
    assert!(one.peers().send(&other.key.public(), &told));
    assert!(other.peers().send(&one.key.public(), &told));
    wait("the message", || one.seen.count("Ask { id: 7") == 1 && other.seen.count("Ask") == 1);
    // The second host has the second slice.
    assert!(one.peers().send_frame(Ipv4Addr::new(100, 80, 0, 17), &vec![1; FRAME]));
    let frame = format!("frame for 100.80.0.17: {FRAME}");
    wait("the frame", || other.seen.count(&frame) == 1);
    let longer = vec![1; FRAME + 1];
    assert!(!one.peers().send_frame(Ipv4Addr::new(100, 80, 0, 17), &longer), "too long");
    assert!(!one.peers().send_frame(Ipv4Addr::new(100, 80, 0, 40), &[1]), "nobody's");
    let key = Key::generate().unwrap().public();
    assert!(!one.peers().send(&key, &told));
    assert_eq!((one.seen.count("up "), other.seen.count("up ")), (1, 1));
    assert_eq!((one.seen.count("down "), other.seen.count("down ")), (0, 0));
}

/// Frames that find no room are dropped, and messages come through.
#[test]
fn frames_are_dropped_and_messages_are_not() {
    let (one, other) = pair();
    let to = Ipv4Addr::new(100, 80, 0, 17);
    let frame = vec![7; 60_000];
    let sent = (0..2000).filter(|_| one.peers().send_frame(to, &frame)).count();
    assert!(one.peers().send(
        &other.key.public(),
        &Message::Ask {
            id: 9,
            asked: Asked::Reach {
                protocol: abi::network::Protocol::Udp,
                address: to,
                port: 1,
                from: 0
            },
        }
    ));
    wait("the message", || other.seen.count("Ask { id: 9") == 1);
    assert_eq!(other.seen.count("frame for"), sent);
    assert!(one.is_up(&other));
}

#[test]
fn a_host_that_comes_back_is_linked_again() {
    let (one, mut other) = pair();
    drop(other.peers.take());
    wait("the end", || !one.is_up(&other));
    assert!(one.why(&other).contains("its agent has ended"), "{}", one.why(&other));
    let list = list(1, &[&one, &other]);
    // The port may be free only a moment later.
    wait("the port", || {
        let handler: Arc<dyn Handler> = other.seen.clone();
        let place = other.place;
        other.peers = Peers::start("far", &other.key, place, list.clone(), handler).ok();
        other.peers.is_some()
    });
    wait("the link", || one.is_up(&other) && other.is_up(&one));
}

/// The other side, which dials as a rule, may be in a pause between two tries.
#[test]
fn a_side_that_begins_dials_once_though_it_is_not_the_usual_one() {
    let mut sides = [Side::new(), Side::new(), Side::new()];
    sides.sort_by_key(|side| side.key.public());
    let [smaller, mut own, larger] = sides;
    let [awaited, dialled] =
        [&smaller, &larger].map(|side| std::net::TcpListener::bind(side.place).unwrap());
    own.start("far", &list(1, &[&smaller, &own, &larger]));
    // Five tries, with pauses that grow, end before it is impatient.
    for _ in 0..5 {
        dialled.accept().unwrap();
    }
    awaited.set_nonblocking(true).unwrap();
    awaited.accept().unwrap();
}

/// Whoever is in no list gets no byte of a message, even if he sends one.
#[test]
fn a_stranger_is_told_nothing() {
    let (one, _other) = pair();
    let mut stranger = one.dialled_by(&Side::new());
    let error = stranger.greet(&hello("far", 1)).unwrap_err();
    let why = stranger.ended(&error);
    assert!(why.contains("does not know this host's key"), "{why}");
    assert_eq!(stranger.plain(), 0);
    // One without any key.
    let mut plain = connected(one.place);
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(answer.len() < 10 && answer.first().is_none_or(|kind| *kind == 21), "{answer:?}");
}

/// At a host's address somebody else listens.
#[test]
fn an_impostor_is_not_believed() {
    let (mut one, mut other, mut impostor) = (Side::new(), Side::new(), Side::new());
    // The side with the smaller key dials.
    if other.key.public() < one.key.public() {
        (one, other) = (other, one);
    }
    let right = list(1, &[&one, &other]);
    impostor.place = other.place;
    let wrong = list(1, &[&one, &impostor]);
    impostor.start("far", &wrong);
    one.start("far", &right);
    wait("the reason", || one.why(&other).contains("it has another key than in the list"));
    assert_eq!((one.seen.count("up"), impostor.seen.count("up")), (0, 0));
}

#[test]
fn lists_of_other_epochs_and_names_do_not_meet() {
    for (network, epoch, part) in [("far", 2, "epoch"), ("near", 1, "another name there")] {
        let (mut one, mut other) = (Side::new(), Side::new());
        let (old, new) = (list(1, &[&one, &other]), list(epoch, &[&one, &other]));
        one.start("far", &old);
        other.start(network, &new);
        wait(part, || one.why(&other).contains(part) && other.why(&one).contains(part));
        assert_eq!(one.seen.count("up") + other.seen.count("up"), 0);
        if epoch == 2 {
            one.peers().set_list(new);
            wait("the link", || one.is_up(&other) && other.is_up(&one));
        }
    }
}

#[test]
fn a_host_that_is_revoked_is_cut_off_at_once() {
    let (one, other) = pair();
    let mut newer = list(2, &[&one, &other]);
    newer.hosts[1].revoked = true;
    one.peers().set_list(newer);
    assert_eq!(one.seen.count("down"), 1, "when the call returns");
    assert!(one.peers().states().is_empty());
    wait("the end", || !other.is_up(&one) && other.seen.count("down") == 1);
    // It is not let in again.
    wait("the reason", || {
        let why = other.why(&one);
        why.contains("does not know this host's key") || why.contains("not in the list")
    });
    let before = one.seen.count("up");
    let mut channel = one.dialled_by(&other);
    assert!(channel.greet(&hello("far", 2)).is_err());
    assert_eq!((one.seen.count("up"), before), (1, 1));
}

/// Connections that send nothing, or garbage, take no other's place for long, and none of a host.
#[test]
fn silence_and_garbage_cost_their_own_connection() {
    let (mut one, mut other) = (Side::new(), Side::new());
    if other.key.public() < one.key.public() {
        (one, other) = (other, one);
    }
    let list = list(1, &[&one, &other]);
    other.start("far", &list);
    let silent: Vec<TcpStream> = (0..50).map(|_| connected(other.place)).collect();
    one.start("far", &list);
    wait("the link", || one.is_up(&other) && other.is_up(&one));
    let mut seed = 1_u64;
    for length in [1, 5, 100, 5000, 70_000] {
        let garbage = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as u8
        });
        let garbage: Vec<u8> = garbage.take(length).collect();
        let mut stream = connected(other.place);
        let _ = stream.write_all(&garbage);
    }
    for mut stream in silent {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // It is closed, without a byte.
        assert!(matches!(stream.read(&mut [0; 8]), Ok(0) | Err(_)));
    }
    assert!(one.is_up(&other) && other.is_up(&one));
    assert_eq!((one.seen.count("down"), other.seen.count("down")), (0, 0));
}

/// A host that is in the list, and then says what is no message: it loses its link and nothing
/// else.
#[test]
fn garbage_of_a_host_ends_its_link() {
    let (mut one, other, third) = (Side::new(), Side::new(), Side::new());
    let list = list(1, &[&one, &other, &third]);
    one.start("far", &list);
    for garbage in [&[0xff; 100][..], &[0; 100], &[5, 0, 0, 0, VERSION, 4, 1, 2, 3, 4, 5]] {
        let mut channel = one.dialled_by(&other);
        let (key, told) = channel.greet(&hello("far", 1)).unwrap();
        assert_eq!((key, told), (one.key.public(), hello("far", 1)));
        wait("the link", || one.is_up(&other));
        channel.raw(garbage).unwrap();
        assert!(channel.last_words().unwrap().contains("it sends a message"));
        wait("the end", || !one.is_up(&other));
    }
    // A greeting that is none.
    let mut channel = one.dialled_by(&third);
    let (_, told) = channel.greet(&Message::Ping).unwrap();
    assert_eq!(told, hello("far", 1));
    assert_eq!(channel.last_words().unwrap(), "it does not greet");
    let mut channel = one.dialled_by(&third);
    let newer = Message::Hello { version: 9, network: "far".into(), epoch: 1 };
    channel.greet(&newer).unwrap();
    assert!(channel.last_words().unwrap().contains("speaks version 9"));
}

/// A host that has greeted and says nothing more is taken for gone.
#[test]
fn silence_of_a_host_ends_its_link() {
    let (mut one, other) = (Side::new(), Side::new());
    one.start("far", &list(1, &[&one, &other]));
    let mut channel = one.dialled_by(&other);
    channel.greet(&hello("far", 1)).unwrap();
    wait("the link", || one.is_up(&other));
    assert_eq!(channel.last_words().unwrap(), "it was silent for 5 seconds");
    wait("the end", || !one.is_up(&other));
}

#[test]
fn a_port_that_is_taken_is_an_error() {
    let mut one = Side::new();
    let _other = std::net::TcpListener::bind(one.place).unwrap();
    let list = list(1, &[&one]);
    let seen: Arc<dyn Handler> = one.seen.clone();
    let error = Peers::start("far", &one.key, one.place, list.clone(), seen).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    one.place = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 7370);
    let seen: Arc<dyn Handler> = one.seen.clone();
    let error = Peers::start("far", &one.key, one.place, list, seen).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
}
