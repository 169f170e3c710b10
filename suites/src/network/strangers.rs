//! What the host has beside a network: other processes on the real ports, other networks,
//! published ports.
//!
//! Members stand on addresses of the host that every process may bind. A port that a member has
//! left may belong to somebody else at once, and a member must not be connected to that one.

use std::collections::HashSet;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use testkit::command::{Finished, until};

use crate::network::containers::{Lab, World, processes};

/// A case of a mode.
type Case = fn(&World);

/// All of them.
pub(crate) const CASES: &[(&str, Case)] = &[
    ("stranger_on_the_address", stranger_on_the_address),
    ("stranger_on_the_wildcard", stranger_on_the_wildcard),
    ("stranger_for_datagrams", stranger_for_datagrams),
    ("killed_container", killed_container),
    ("published", published),
    ("published_datagrams", published_datagrams),
    ("published_again", published_again),
    ("loopback_of_the_host", loopback_of_the_host),
    ("other_network", other_network),
    ("abstract_names", abstract_names),
    ("names_are_not_for_strangers", names_are_not_for_strangers),
];

const SOON: Duration = Duration::from_secs(10);
/// The server's address; it keeps that when it is started again.
const PLACE: [&str; 2] = ["--ip", "100.80.0.2"];
const SERVE: [&str; 4] = ["/bin/tool", "serve", "100.80.0.2", "9432"];
const CALL: [&str; 4] = ["/bin/tool", "call", "100.80.0.2", "9432"];

/// Whether the server knows a caller by the address of another member: which one is free again
/// after a container's end is not the matter here.
fn is_member(text: &str) -> bool {
    let text = text.trim().trim_matches('"');
    let number = text.strip_prefix("100.80.0.").and_then(|rest| rest.strip_suffix(SUFFIX));
    number.and_then(|number| number.parse().ok()).is_some_and(|number: u8| number > 2)
}

#[track_caller]
fn assert_member(done: &Finished) {
    let text = done.ok().out();
    assert!(is_member(&text), "the server knows {text}");
}

/// What follows a caller's address.
const SUFFIX: &str = ":ephemeral (length 16)";

/// A process and all that descend from it.
fn family(first: u32) -> Vec<u32> {
    let mut all = vec![first];
    let mut at = 0;
    while let Some(pid) = all.get(at) {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let children: Vec<u32> = tasks
            .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
            .flat_map(|text| {
                text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>()
            })
            .collect();
        all.extend(children);
        at += 1;
    }
    all
}

/// The inodes of the sockets that processes have.
fn sockets(pids: &[u32]) -> HashSet<String> {
    let files = pids.iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).ok());
    files
        .flatten()
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok())
        .filter_map(|target| {
            let text = target.to_string_lossy().into_owned();
            Some(text.strip_prefix("socket:[")?.trim_end_matches(']').to_owned())
        })
        .collect()
}

/// The address in a line of `/proc/net/tcp` or `tcp6`, in the order of bytes of this machine.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // The mapped form ends with the address of version 4.
    let word = u32::from_str_radix(host.get(host.len().checked_sub(8)?..)?, 16).ok()?;
    let [a, b, c, d] = word.to_le_bytes();
    Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), port))
}

/// The real addresses of a container's sockets: listening ones of `tcp`, all of `udp`.
fn real(lab: &Lab<'_>, name: &str, protocol: &str) -> Vec<SocketAddr> {
    listed(protocol, &sockets(&family(lab.pid(name))))
}

/// The addresses of sockets, which are given by their inodes.
fn listed(protocol: &str, own: &HashSet<String>) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for file in [protocol.to_owned(), format!("{protocol}6")] {
        let text = fs::read_to_string(format!("/proc/net/{file}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, local, _, state, ..] = words[..] else { continue };
            let is_open = protocol == "udp" || state == "0A";
            if is_open && words.get(9).is_some_and(|inode| own.contains(*inode)) {
                found.extend(address(local));
            }
        }
    }
    found
}

/// The one real address of a container's server.
#[track_caller]
fn the_real(lab: &Lab<'_>, name: &str, protocol: &str) -> SocketAddr {
    let found = real(lab, name, protocol);
    let [one] = found[..] else { panic!("not one socket of {name}: {found:?}") };
    one
}

/// Another user's connections take no room at the name server, and who binds a member's real
/// address gets no answer.
fn names_are_not_for_strangers(world: &World) {
    if rustix::process::getuid().as_raw() == world.person.user.uid {
        // This process is the stranger.
        return;
    }
    let lab = world.lab();
    lab.start("db", &[], &SERVE);
    let server = processes(&lab.person, "coracle-names");
    let servers = listed("tcp", &sockets(&server));
    assert!(!servers.is_empty(), "no name server among {server:?}");
    let idle: Vec<_> = servers
        .iter()
        .flat_map(|server| (0..100).map(|_| TcpStream::connect_timeout(server, SOON)))
        .collect();
    for kind in ["tcp", "udp"] {
        let named = lab.run("caller", &["/bin/lan", kind, "db"]).ok().out();
        assert_eq!(named, "100.80.0.2\n", "{kind} beside {} idle connections", idle.len());
    }
    // The question for the address of "db".
    let question = b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x02db\x00\x00\x01\x00\x01";
    let stranger = UdpSocket::bind((the_real(&lab, "db", "tcp").ip(), 0)).expect("its address");
    stranger.set_read_timeout(Some(Duration::from_secs(1))).expect("a limit");
    for server in &servers {
        stranger.send_to(question, server).expect("a question");
        let heard = stranger.recv_from(&mut [0; 512]);
        assert!(heard.is_err(), "a stranger was told: {heard:?}");
    }
}

/// Ends a container's processes, without a word to whatever keeps the table.
fn kill(lab: &Lab<'_>, name: &str) {
    lab.person.run(&["kill", "-s", "KILL", name]).ok();
    lab.person.run(&["wait", name]);
}

/// Checks that nobody called.
fn is_alone(stranger: &TcpListener) {
    stranger.set_nonblocking(true).expect("a listener");
    let called = stranger.accept();
    let none = called.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    assert!(none, "the stranger was called: {called:?}");
}

/// A member's server is reached, ends, and another process has its real port: first at the same
/// address, or at all addresses.
fn stranger(world: &World, at: impl Fn(SocketAddr) -> SocketAddr) {
    let lab = world.lab();
    lab.start("server", &PLACE, &SERVE);
    assert_member(&lab.run("caller", &CALL));
    let was = the_real(&lab, "server", "tcp");
    assert!(was.ip().is_loopback(), "a real address that others reach: {was}");
    kill(&lab, "server");
    let place = at(was);
    let stranger = until(SOON, || TcpListener::bind(place).ok());
    let stranger = stranger.unwrap_or_else(|| panic!("{place} is not free"));
    assert_eq!(lab.run("caller", &CALL).ok().out(), "ECONNREFUSED\n");
    is_alone(&stranger);
    // The member comes back, though its old port is taken.
    lab.person.run(&["start", "server"]).ok();
    let back = until(SOON, || (!real(&lab, "server", "tcp").is_empty()).then_some(()));
    assert!(back.is_some(), "the server is not back: {}", lab.log("server"));
    assert_member(&lab.run("caller", &CALL));
    is_alone(&stranger);
}

fn stranger_on_the_address(world: &World) {
    stranger(world, |was| was);
}

fn stranger_on_the_wildcard(world: &World) {
    stranger(world, |was| SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), was.port()));
}

/// The same for datagrams, whose sender is not told.
fn stranger_for_datagrams(world: &World) {
    let lab = world.lab();
    lab.start("server", &[], &["/bin/tool", "receive", "100.80.0.2", "53"]);
    let ask = ["/bin/tool", "ask", "100.80.0.2", "53"];
    let text = lab.run("caller", &ask).ok().out();
    let answer = text.strip_prefix("connect ok\nsend ok\n");
    assert!(answer.is_some_and(is_member), "the server knows {text}");
    let was = the_real(&lab, "server", "udp");
    kill(&lab, "server");
    let stranger = until(SOON, || UdpSocket::bind(was).ok());
    let stranger = stranger.unwrap_or_else(|| panic!("{was} is not free"));
    let text = lab.run("caller", &ask).ok().out();
    stranger.set_nonblocking(true).expect("a socket");
    let got = stranger.recv_from(&mut [0; 16]);
    assert!(got.is_err(), "the stranger was asked: {got:?}");
    assert!(text.contains("ECONNREFUSED"), "{text}");
}

/// A container that is killed, started again and removed.
fn killed_container(world: &World) {
    let lab = world.lab();
    lab.start("server", &PLACE, &SERVE);
    for turn in 0..3 {
        assert_member(&lab.run("caller", &CALL));
        kill(&lab, "server");
        assert_eq!(lab.run("caller", &CALL).ok().out(), "ECONNREFUSED\n", "in turn {turn}");
        lab.person.run(&["start", "server"]).ok();
        let back = until(SOON, || (!real(&lab, "server", "tcp").is_empty()).then_some(()));
        assert!(back.is_some(), "the server is not back: {}", lab.log("server"));
    }
    let said = |text: &str| lab.log("server").matches(text).count();
    assert_eq!(said("called by 100.80.0."), 3, "{}", lab.log("server"));
    let again = || (said("getsockname s: 100.80.0.2:9432 (") == 4).then_some(());
    assert!(until(SOON, again).is_some(), "{}", lab.log("server"));
    lab.person.run(&["rm", "-f", "server"]).ok();
    let text = lab.run("caller", &CALL).ok().out();
    // Its address is nobody's, or the caller's own.
    assert!(["ECONNREFUSED\n", "EHOSTUNREACH\n"].contains(&text.as_str()), "{text}");
}

/// A port of the host that is free now.
fn free_port() -> u16 {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    socket.local_addr().expect("an address").port()
}

/// A published port is the container's on the host, and inside the network as before.
fn published(world: &World) {
    let lab = world.lab();
    let port = free_port();
    let publish = format!("127.0.0.1:{port}:80");
    lab.start("server", &["-p", &publish], &["/bin/tool", "serve", "0.0.0.0", "80"]);
    assert!(lab.log("server").contains("getsockname s: 0.0.0.0:80"), "{}", lab.log("server"));
    let host = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&host, SOON).expect("the published port");
    stream.set_read_timeout(Some(SOON)).expect("a limit");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    assert!(text.starts_with("127.0.0.1:"), "the host is {text}");
    assert_member(&lab.run("caller", &["/bin/tool", "call", "100.80.0.2", "80"]));
    // Members know nothing of the host's place.
    let peer = lab.run("caller", &["/bin/tool", "peer", "100.80.0.2", "80"]).ok().out();
    assert!(peer.starts_with("100.80.0.2:80 "), "a member has connected to {peer}");
    // Not the port of the host: there is nothing of that number inside.
    let number = port.to_string();
    let inside = lab.run("caller", &["/bin/tool", "call", "100.80.0.2", &number]);
    assert_eq!(inside.ok().out(), "ECONNREFUSED\n");
    kill(&lab, "server");
    let gone = TcpStream::connect_timeout(&host, SOON);
    assert!(gone.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused));
}

/// A published port of UDP answers members from its own port, also sockets that were connected and
/// are not any more.
fn published_datagrams(world: &World) {
    let lab = world.lab();
    let publish = format!("{}:53/udp", free_port());
    lab.start("server", &["-p", &publish], &["/bin/tool", "receive", "0.0.0.0", "53"]);
    let said = lab.run("caller", &["/bin/tool", "resend", "100.80.0.2", "53"]).ok().out();
    let lines: Vec<&str> = said.lines().collect();
    let [sent, heard, disconnected, after, never] = lines[..] else { panic!("{said}") };
    assert_eq!((sent, disconnected), ("send ok", "disconnect ok"), "{said}");
    assert!(is_member(heard), "{said}");
    for line in [after, never] {
        let (heard, from) = line.split_once(" from ").unwrap_or((line, ""));
        assert!(is_member(heard) && from.starts_with("100.80.0.2:53 "), "{said}");
    }
}

/// A container that has published a port is started again at once: connections that it has ended
/// hold nobody up.
fn published_again(world: &World) {
    let lab = world.lab();
    let port = free_port();
    let publish = format!("{port}:80");
    lab.start("server", &["-p", &publish], &["/bin/tool", "closes", "0.0.0.0", "80"]);
    let call = || {
        let mut text = String::new();
        let host = SocketAddr::from(([127, 0, 0, 1], port));
        let mut stream = TcpStream::connect_timeout(&host, SOON).expect("the published port");
        stream.set_read_timeout(Some(SOON)).expect("a limit");
        stream.read_to_string(&mut text).expect("an answer");
        text
    };
    assert_eq!(call(), "closed");
    kill(&lab, "server");
    lab.person.run(&["start", "server"]).ok();
    let back = || (lab.log("server").matches("ready\n").count() == 2).then_some(());
    assert!(until(SOON, back).is_some(), "{}", lab.log("server"));
    assert_eq!(call(), "closed");
}

/// The host's loopback is not the container's.
fn loopback_of_the_host(world: &World) {
    let lab = world.lab();
    let host = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let all = TcpListener::bind("0.0.0.0:0").expect("a listener");
    for stranger in [&host, &all] {
        let port = stranger.local_addr().expect("an address").port().to_string();
        let hosts = "127.0.0.1,0.0.0.0,127.0.0.5,100.80.0.2,::1,::ffff:127.0.0.1";
        let text = lab.run("caller", &["/bin/tool", "call", hosts, &port]).ok().out();
        assert_eq!(text, "ECONNREFUSED\n".repeat(6));
        is_alone(stranger);
    }
}

/// A container of another network does not reach a member.
fn other_network(world: &World) {
    let lab = world.lab();
    lab.start("server", &[], &["/bin/tool", "serve", "0.0.0.0", "9432"]);
    let create = ["network", "create", "apart", "--subnet", "100.81.0.0/24"];
    lab.person.run(&create).ok();
    let mode = format!("--execmode={}", world.mode);
    let words = ["run", "--rm", &mode, "--network", "apart", "localhost/network:1"];
    let text = lab.person.run(&[&words[..], &CALL].concat()).ok().out();
    lab.person.run(&["network", "rm", "apart"]).ok();
    assert!(text.starts_with('E'), "another network's member hears {text}");
    assert!(!lab.log("server").contains("called"), "{}", lab.log("server"));
}

/// Abstract names of Unix sockets are a container's own.
fn abstract_names(world: &World) {
    let lab = world.lab();
    for name in ["service", "whole@"] {
        let own = name.trim_end_matches('@');
        let shown = own;
        let want = format!("bind ok\nbind again EADDRINUSE\nconnect ok\npeer 1 {shown}\nready\n");
        let containers = ["first", "second"].map(|container| format!("{container}-{own}"));
        for container in &containers {
            lab.start(container, &[], &["/bin/tool", "abstract", name, "0"]);
            assert_eq!(lab.log(container), want, "{container}");
        }
    }
}
