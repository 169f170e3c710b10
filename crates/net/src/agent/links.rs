//! Takes the devices of containers that have network namespaces, for the [`switch`](crate::switch).
//!
//! The process beside a container connects to a socket in the store's directory and sends one
//! message: which container it is, and for each of its networks the id, the address, the IPv6
//! prefix and the auxiliary addresses ([`greeting`]), with descriptors: the ports of its devices in
//! the same order, then a UDP socket and a TCP listener at 127.0.0.11, port 53, of the container's
//! own namespace; and where the switch is the container's way out too, the bound sockets of its
//! published ports ([`way_out`]). The agent answers `+`, or the reason for its refusal. The
//! container's ports and its questions for names are served as long as the connection lasts.
//!
//! So nothing has to be noticed or cleaned up: the kernel closes the connection when that process
//! ends, whatever ends it. And if the agent is killed, the process sees the end of the connection,
//! has another agent started, and sends it the same descriptors, which it has kept. Frames that
//! were on their way are lost, connections are not. What a container has sent before its end is
//! still forwarded ([`Switch::finish`]).
//!
//! The socket is one of messages (`SOCK_SEQPACKET`): a greeting arrives with all its descriptors or
//! not at all. Only the user may connect, by the socket's mode; he may do anything to his
//! containers, so what he says is taken as it is.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use abi::network::members::{MEMBERSHIPS, SOCKETS};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fs::{Mode, OFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use store::Store;

use super::server::{self, Answers, Client};
use crate::members::Endpoint;
use crate::names::host;
use crate::subnet::Subnet;
use crate::switch::frame::Ranges;
use crate::switch::outside::{Published, Way};
use crate::switch::{Place, Switch};

/// What a greeting begins with. The number is that of its form.
const WORD: &str = "coracle-links 1";
/// What an auxiliary address begins with.
const AUXILIARY: char = '+';
/// What the line of the way out begins with, and those of published ports.
const OUT_WORD: &str = "out";
const TCP_WORD: &str = "tcp";
const UDP_WORD: &str = "udp";
/// The longest greeting in bytes.
const LONGEST: usize = 8192;
/// Devices and sockets of one container.
const DESCRIPTORS: usize = MEMBERSHIPS + 2 + SOCKETS;
/// How many connections wait to be taken: all containers of a host may come at once.
const BACKLOG: i32 = 128;
/// The number of the listening socket among what is waited for. Others are a container's number,
/// times 4, and which of its descriptors it is.
const LISTENER: u64 = 0;
const CONNECTION: u64 = 0;
const UDP: u64 = 1;
const TCP: u64 = 2;

/// The path of the socket of this host's agent. It may be longer than an address of a socket, so
/// its directory is opened and named by `/proc/self/fd`.
pub fn socket(store: &Store) -> PathBuf {
    store.networks().path(&format!("agent-{}.sock", host()))
}

/// The message about a container that is in these networks.
pub fn greeting(id: &str, endpoints: &[Endpoint]) -> String {
    let line = |one: &Endpoint| {
        let prefix = one.prefix.map(|prefix| format!(" {prefix}")).unwrap_or_default();
        let (address, bits) = (one.address, one.subnet.prefix());
        let mut line = format!("{} {address}/{bits}{prefix}", one.network_id);
        for address in &one.auxiliary {
            let _ = write!(line, " {AUXILIARY}{address}");
        }
        line + "\n"
    };
    let lines: String = endpoints.iter().map(line).collect();
    format!("{WORD}\n{id}\n{lines}")
}

/// What is said after the [`greeting`] of a container that the switch leads out: by which of its
/// networks and which gateway, and to which ports of it the sockets lead that come with it, in
/// their order: whether a port is UDP's, and its number. `None` where no network has a way out.
pub fn way_out(endpoints: &[Endpoint], published: &[(bool, u16)]) -> Option<String> {
    let (number, first) = endpoints.iter().enumerate().find(|(_, one)| !one.internal)?;
    let port = |(udp, inside): &(bool, u16)| {
        format!("{} {inside}\n", if *udp { UDP_WORD } else { TCP_WORD })
    };
    let ports: String = published.iter().map(port).collect();
    Some(format!("{OUT_WORD} {number} {}\n{ports}", first.gateway))
}

/// The place by which a container is led out, the gateway there, and its published ports: whether
/// each is UDP's, and its number.
type WayOut = (usize, Ipv4Addr, Vec<(bool, u16)>);

/// What a greeting says.
#[derive(Debug, PartialEq, Eq)]
struct Greeting<'a> {
    /// The container's id.
    id: &'a str,
    places: Vec<Place>,
    out: Option<WayOut>,
}

fn parse(text: &str) -> Option<Greeting<'_>> {
    let mut lines = text.strip_prefix(WORD)?.strip_prefix('\n')?.lines().peekable();
    let id = lines.next().filter(|id| !id.is_empty())?;
    let place = |line: &str| {
        let mut words = line.split(' ');
        let (network, place) = (words.next()?, words.next()?);
        let (mut prefix, mut auxiliary) = (None, Vec::new());
        for word in words {
            match word.strip_prefix(AUXILIARY) {
                Some(address) => auxiliary.push(address.parse().ok()?),
                None if prefix.is_none() => prefix = Some(word.parse().ok()?),
                None => return None,
            }
        }
        let (address, bits) = place.split_once('/')?;
        let address: Ipv4Addr = address.parse().ok()?;
        let subnet = Subnet::around(address, bits.parse().ok()?)?;
        let ranges = Ranges { subnet, prefix };
        Some(Place { network: network.to_owned(), address, ranges, auxiliary })
    };
    let is_place = |line: &&str| !line.starts_with(OUT_WORD);
    let mut places = Vec::new();
    while let Some(line) = lines.next_if(is_place) {
        places.push(place(line)?);
    }
    let Some(line) = lines.next() else { return Some(Greeting { id, places, out: None }) };
    let (number, gateway) = line.strip_prefix(OUT_WORD)?.strip_prefix(' ')?.split_once(' ')?;
    let number = number.parse().ok().filter(|number| *number < places.len())?;
    let port = |line: &str| {
        let (word, inside) = line.split_once(' ')?;
        (word == UDP_WORD || word == TCP_WORD).then_some(())?;
        Some((word == UDP_WORD, inside.parse().ok()?))
    };
    let ports = lines.map(port).collect::<Option<_>>()?;
    Some(Greeting { id, places, out: Some((number, gateway.parse().ok()?, ports)) })
}

/// The listening socket, and what is connected.
pub(super) struct Links {
    epoll: OwnedFd,
    listener: OwnedFd,
    switch: Arc<Switch>,
    containers: HashMap<u64, Linked>,
    last: u64,
}

/// A connection.
struct Linked {
    connection: OwnedFd,
    /// What came with the greeting.
    given: Option<Given>,
}

struct Given {
    client: Client,
    answers: Answers,
    ports: Vec<u64>,
    udp: UdpSocket,
    tcp: TcpListener,
}

impl Links {
    /// Listens. Hold the agent's lock: the socket of an agent before is removed.
    pub(super) fn listen(store: &Store, switch: &Arc<Switch>) -> io::Result<Self> {
        let listener = listen(&socket(store))?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        let switch = Arc::clone(switch);
        Ok(Self { epoll, listener, switch, containers: HashMap::new(), last: 0 })
    }

    /// Serves in a thread of its own, as long as the process lives.
    pub(super) fn serve(mut self, answers: &Answers) -> io::Result<()> {
        let answers = answers.clone();
        server::thread(move || {
            let mut events = Vec::with_capacity(16);
            loop {
                events.clear();
                if epoll::wait(&self.epoll, spare_capacity(&mut events), None).is_err() {
                    continue;
                }
                for event in &events {
                    self.handle(event.data.u64(), &answers);
                }
            }
        })
    }

    fn handle(&mut self, key: u64, answers: &Answers) {
        if key == LISTENER {
            self.accept();
            return;
        }
        let (number, which) = (key / 4, key % 4);
        let Some(linked) = self.containers.get(&number) else { return };
        match (which, &linked.given) {
            (CONNECTION, None) => {
                let answer = match self.greet(number, answers) {
                    Ok(()) => "+".to_owned(),
                    Err(error) => error.to_string(),
                };
                let Some(linked) = self.containers.get(&number) else { return };
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                let _ = rustix::net::send(&linked.connection, answer.as_bytes(), flags);
                if linked.given.is_none() {
                    self.forget(number);
                }
            }
            // Nothing else is said on it, so this is its end.
            (CONNECTION, Some(_)) => self.forget(number),
            (UDP, Some(given)) => questions(given),
            (TCP, Some(given)) => {
                // One that finds no room is closed, and its client asks again.
                while let Ok((stream, _)) = given.tcp.accept() {
                    given.answers.connection(stream, given.client.clone());
                }
            }
            _ => {}
        }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(connection) = rustix::net::accept_with(&self.listener, flags) else {
            // Too many descriptors: it waits for a moment in which others have ended.
            std::thread::sleep(std::time::Duration::from_millis(10));
            return;
        };
        self.last += 1;
        let data = EventData::new_u64(self.last * 4 + CONNECTION);
        if epoll::add(&self.epoll, &connection, data, EventFlags::IN).is_ok() {
            self.containers.insert(self.last, Linked { connection, given: None });
        }
    }

    /// Takes a container's greeting and descriptors.
    fn greet(&mut self, number: u64, answers: &Answers) -> io::Result<()> {
        let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let Some(linked) = self.containers.get(&number) else { return Err(bad("it has gone")) };
        let (text, mut descriptors) = receive(&linked.connection)?;
        let greeting = parse(&text).ok_or_else(|| bad("it is of another version"))?;
        let Greeting { id, places, out } = greeting;
        let ports = out.as_ref().map_or(0, |(.., ports)| ports.len());
        if descriptors.len() != places.len() + 2 + ports {
            return Err(bad("it sends not as many descriptors as it has networks and ports"));
        }
        let sockets = descriptors.split_off(places.len() + 2);
        let (Some(tcp), Some(udp)) = (descriptors.pop(), descriptors.pop()) else {
            return Err(bad("it sends too few descriptors"));
        };
        let (udp, tcp) = (UdpSocket::from(udp), TcpListener::from(tcp));
        udp.set_nonblocking(true)?;
        tcp.set_nonblocking(true)?;
        let client = Client::Container(id.into());
        let answers = answers.apart();
        let mut given = Given { client, answers, ports: Vec::new(), udp, tcp };
        let watch = |which, socket: &dyn rustix::fd::AsFd| {
            let data = EventData::new_u64(number * 4 + which);
            epoll::add(&self.epoll, socket.as_fd(), data, EventFlags::IN)
        };
        watch(UDP, &given.udp)?;
        watch(TCP, &given.tcp)?;
        let near = places.iter().map(|place| place.ranges.subnet).collect();
        if let Err(error) = self.connect(&mut given, places, descriptors).and_then(|()| {
            let Some((number, gateway, ports)) = out else { return Ok(()) };
            let published = ports.into_iter().zip(sockets);
            let published = published
                .map(|((udp, inside), socket)| Published { socket, udp, inside })
                .collect();
            let port = given.ports.get(number).copied().unwrap_or_default();
            self.switch.lead_out(port, Way { gateway, near, published })
        }) {
            self.release(&given);
            return Err(error);
        }
        if let Some(linked) = self.containers.get_mut(&number) {
            linked.given = Some(given);
        }
        Ok(())
    }

    fn connect(
        &self,
        given: &mut Given,
        places: Vec<Place>,
        devices: Vec<OwnedFd>,
    ) -> io::Result<()> {
        for (place, device) in places.into_iter().zip(devices) {
            given.ports.push(self.switch.add(place, device)?);
        }
        Ok(())
    }

    fn forget(&mut self, number: u64) {
        let Some(linked) = self.containers.remove(&number) else { return };
        let _ = epoll::delete(&self.epoll, &linked.connection);
        if let Some(given) = &linked.given {
            self.release(given);
        }
    }

    /// Descriptors are open in the other process too, so the kernel does not do it.
    fn release(&self, given: &Given) {
        let _ = epoll::delete(&self.epoll, &given.udp);
        let _ = epoll::delete(&self.epoll, &given.tcp);
        for port in &given.ports {
            self.switch.finish(*port);
        }
    }
}

/// Answers what has been asked by datagrams.
fn questions(given: &Given) {
    /// So many at once, because others wait.
    const TURN: usize = 16;
    let mut message = [0; server::LONGEST];
    for _ in 0..TURN {
        let Ok((length, from)) = given.udp.recv_from(&mut message) else { return };
        given.answers.datagram(&given.udp, &message[..length], from, &given.client);
    }
}

fn listen(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path.parent().unwrap_or(path), flags, Mode::empty())?;
    let name = path.file_name().unwrap_or_default();
    match rustix::fs::unlinkat(&directory, name, rustix::fs::AtFlags::empty()) {
        Err(rustix::io::Errno::NOENT) => {}
        removed => removed?,
    }
    let number = std::os::fd::AsRawFd::as_raw_fd(&directory);
    let short = Path::new("/proc/self/fd").join(number.to_string()).join(name);
    rustix::net::bind(&socket, &SocketAddrUnix::new(&short)?)?;
    // Before anybody can connect.
    rustix::fs::chmod(&short, Mode::from_raw_mode(0o600))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// A message and the descriptors that came with it.
fn receive(connection: &OwnedFd) -> io::Result<(String, Vec<OwnedFd>)> {
    let mut bytes = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut pieces = [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let length = rustix::net::recvmsg(connection, &mut pieces, &mut ancillary, flags)?.bytes;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            descriptors.extend(all);
        }
    }
    bytes.truncate(length);
    let text = String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok((text, descriptors))
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;
