use super::forward;
use super::server::{Answers, Client, Directory, Server};
use crate::definition::Definition;
use crate::dns::{Transport, Zone};
use crate::members::Entry;
use simple_dns::rdata::{A, RData};
use simple_dns::{CLASS, Name, Packet, QCLASS, QTYPE, Question, RCODE, TYPE};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);

struct Names {
    zone: Option<Zone>,
    servers: Vec<SocketAddr>,
    needed: AtomicBool,
}

impl Directory for Names {
    fn zone(&self, _: &Client, _: Transport) -> Option<Zone> {
        self.zone.clone()
    }

    fn servers(&self, _: &Client, _: Transport) -> Vec<SocketAddr> {
        self.servers.clone()
    }

    fn is_needed(&self) -> bool {
        self.needed.load(Ordering::Relaxed)
    }
}

/// A server that ends with the test.
struct Running {
    names: Arc<Names>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn new(zone: Option<Zone>, servers: &[SocketAddr]) -> Self {
        let server = Server::bind(Ipv4Addr::LOCALHOST).unwrap();
        let address = server.udp().local_addr().unwrap();
        assert_eq!(server.tcp().local_addr().unwrap(), address);
        let needed = AtomicBool::new(true);
        let names = Arc::new(Names { zone, servers: servers.to_vec(), needed });
        let directory: Arc<dyn Directory> = Arc::clone(&names) as Arc<dyn Directory>;
        let thread = std::thread::spawn(move || server.serve(&Answers::of(directory)).unwrap());
        Self { names, address, thread: Some(thread) }
    }

    fn by_udp(&self, message: &[u8]) -> Option<Vec<u8>> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(message, self.address).unwrap();
        let mut answer = [0; 4096];
        let (length, from) = socket.recv_from(&mut answer).ok()?;
        assert_eq!(from, self.address);
        Some(answer[..length].to_vec())
    }

    fn by_tcp(&self, messages: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut ask = |message: &&[u8]| {
            forward::write(&mut stream, message)?;
            forward::read(&mut stream)
        };
        messages.iter().map_while(|message| ask(message).ok()).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.names.needed.store(false, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A port that refuses. While its socket is held no server of another test gets it; the socket
/// takes datagrams from itself alone.
fn port_without_server() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    socket.connect(address).unwrap();
    (socket, address)
}

fn zone(name: &str, last: u8) -> Zone {
    let entry = Entry {
        id: "0".repeat(64),
        name: name.into(),
        aliases: Vec::new(),
        address: Ipv4Addr::new(10, 0, 0, last),
        slot: 0,
        kind: crate::Kind::Names,
        since: 0,
    };
    Zone::of(&[(&Definition::of("lab", "10.0.0.0/24"), &[entry])])
}

pub(super) fn question(name: &str) -> Vec<u8> {
    let mut packet = Packet::new_query(77);
    let name = Name::new_unchecked(name).into_owned();
    let (kind, class) = (QTYPE::TYPE(TYPE::A), QCLASS::CLASS(CLASS::IN));
    packet.questions.push(Question::new(name, kind, class, false));
    packet.build_bytes_vec().unwrap()
}

/// The last digit of the address in an answer.
pub(super) fn told(answer: &[u8]) -> Option<u8> {
    let packet = Packet::parse(answer).unwrap();
    assert_eq!(packet.id(), 77);
    let first = packet.answers.first()?;
    let RData::A(A { address }) = first.rdata else { return None };
    Some(address.to_be_bytes()[3])
}

#[test]
fn members_are_told_by_datagram_and_connection() {
    let server = Running::new(Some(zone("db", 2)), &[]);
    let asked = question("db");
    assert_eq!(server.by_udp(&asked).as_deref().and_then(told), Some(2));
    let answers = server.by_tcp(&[&asked, &asked, &asked]);
    assert_eq!(answers.iter().map(|answer| told(answer)).collect::<Vec<_>>(), [Some(2); 3]);
}

#[test]
fn other_names_are_asked_for_elsewhere() {
    let above = Running::new(Some(zone("far", 9)), &[]);
    // The first server is gone.
    let (_held, gone) = port_without_server();
    let server = Running::new(Some(zone("db", 2)), &[gone, above.address]);
    let asked = question("far");
    assert_eq!(server.by_udp(&asked).as_deref().and_then(told), Some(9));
    let answers = server.by_tcp(&[&asked, &question("db")]);
    assert_eq!(answers.iter().map(|answer| told(answer)).collect::<Vec<_>>(), [Some(9), Some(2)]);
}

#[test]
fn a_name_that_no_server_knows_is_a_failure() {
    let (_held, gone) = port_without_server();
    for servers in [&[][..], &[gone]] {
        let server = Running::new(Some(zone("db", 2)), servers);
        let asked = question("far");
        for answer in [server.by_udp(&asked), server.by_tcp(&[&asked]).pop()] {
            let answer = answer.unwrap();
            assert_eq!(Packet::parse(&answer).unwrap().rcode(), RCODE::ServerFailure);
        }
    }
}

/// A server above that answers datagrams alone. An answer that was cut is none for a connection.
#[test]
fn a_server_without_connections_is_asked_by_datagram() {
    let above = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let server = Running::new(Some(zone("db", 2)), &[above.local_addr().unwrap()]);
    let answering = std::thread::spawn(move || {
        for flag in [0, 2] {
            let mut message = [0; 512];
            let (length, client) = above.recv_from(&mut message).unwrap();
            let zone = zone("far", 7);
            let crate::dns::Answer::Message(mut reply) =
                zone.answer(&message[..length], Transport::Udp, 0)
            else {
                panic!("no answer")
            };
            reply[2] |= flag;
            above.send_to(&reply, client).unwrap();
        }
    });
    let answers = server.by_tcp(&[&question("far"), &question("far")]);
    assert_eq!(told(&answers[0]), Some(7));
    assert_eq!(Packet::parse(&answers[1]).unwrap().rcode(), RCODE::ServerFailure);
    answering.join().unwrap();
}

#[test]
fn strangers_and_what_is_no_question_get_no_answer() {
    let stranger = Running::new(None, &[]);
    assert!(stranger.by_tcp(&[&question("db")]).is_empty());
    let server = Running::new(Some(zone("db", 2)), &[]);
    assert!(server.by_tcp(&[&[1]]).is_empty());
    // And the server goes on.
    for rubbish in [&[][..], &[0xff; 4096], &[0; 3]] {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.send_to(rubbish, server.address).unwrap();
    }
    assert_eq!(server.by_udp(&question("db")).as_deref().and_then(told), Some(2));
}

/// Somebody who guesses at answers: other numbers, other names, and from another place.
#[test]
fn only_the_server_s_answer_to_this_question_counts() {
    let above = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let server = Running::new(Some(zone("db", 2)), &[above.local_addr().unwrap()]);
    let liar = std::thread::spawn(move || {
        let mut message = [0; 512];
        let (length, client) = above.recv_from(&mut message).unwrap();
        let asked = &message[..length];
        let answer = |name: &str, last: u8, id: u16| {
            let zone = zone(name, last);
            let crate::dns::Answer::Message(mut bytes) =
                zone.answer(&question(name), Transport::Udp, 0)
            else {
                panic!("no answer")
            };
            bytes[..2].copy_from_slice(&id.to_be_bytes());
            bytes
        };
        let elsewhere = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        elsewhere.send_to(&answer("far", 66, 77), client).unwrap();
        above.send_to(&answer("far", 67, 78), client).unwrap();
        above.send_to(&answer("fax", 68, 77), client).unwrap();
        above.send_to(asked, client).unwrap();
        above.send_to(&[0; 4], client).unwrap();
        above.send_to(&answer("far", 7, 77), client).unwrap();
    });
    assert_eq!(server.by_udp(&question("far")).as_deref().and_then(told), Some(7));
    liar.join().unwrap();
}
