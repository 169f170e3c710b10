//! The way out of networks of packets where no helper program can run: through the agent's switch.
//!
//! The programs are Python's in a Debian image; the other side is the host's own address.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::Duration;

use testkit::person::Person;
use testkit::scratch::Scratch;
use testkit::skip::{Outcome, Skip};

use crate::network::containers::{Lab, World, processes};
use crate::network::programs;

type Case = fn(&World, Place<'_>) -> Outcome;
/// Where wrappers lie, the home with the image, and a person with Coracle but without a wrapper.
type Place<'a> = (&'a Scratch, &'a Path, &'a Person);

pub(crate) const CASES: &[(&str, Case)] = &[
    ("out_by_the_switch", out_by_the_switch),
    ("published_by_the_switch", published_by_the_switch),
];

const LIMIT: Duration = Duration::from_secs(20);
const GATEWAY: &str = "100.80.0.1";
/// How much goes in each direction.
const SIZE: u64 = 104_857_600;

/// The host's address for others.
pub(crate) fn own_address() -> Result<Ipv4Addr, Skip> {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    // Nothing is sent.
    let way = socket.connect("198.51.100.1:9").and_then(|()| socket.local_addr());
    match way.map(|way| way.ip()) {
        Ok(IpAddr::V4(address)) if !address.is_loopback() => Ok(address),
        _ => Err(Skip("the host has no address but loopback".to_owned())),
    }
}

/// A network of somebody who finds no helper program.
fn lab<'w>(world: &'w World, (scratch, home, person): Place<'_>) -> Lab<'w> {
    let device = world.label.rsplit('-').next().unwrap_or_default();
    let variables = format!("CORACLE_LINK={device} PATH=/nowhere");
    let alone = person.with_variables(scratch, &format!("{device}-alone"), &variables);
    let Person { program, .. } = alone.expect("a program");
    let lab = world.python_lab(Person { program, ..world.person.at(home) });
    fs::copy(programs::guests().join("out.py"), lab.meetings.join("out.py")).expect("the script");
    lab
}

/// A server of the host's; its port.
fn serve(address: Ipv4Addr) -> u16 {
    let listener = TcpListener::bind((address, 0)).expect("a port");
    let port = listener.local_addr().expect("one").port();
    let datagrams = UdpSocket::bind((address, port)).expect("the same port");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || talk(stream));
        }
    });
    thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while let Ok((length, from)) = datagrams.recv_from(&mut bytes) {
            let _ = datagrams.send_to(&bytes[..length], from);
        }
    });
    port
}

fn talk(stream: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut writer, mut line) = (stream, String::new());
    reader.read_line(&mut line)?;
    match line.trim() {
        "echo" => io::copy(&mut reader, &mut writer).map(drop),
        "end" => {
            writer.shutdown(std::net::Shutdown::Write)?;
            let mut rest = String::new();
            reader.read_to_string(&mut rest)?;
            assert_eq!(rest, "still open\n");
            Ok(())
        }
        "reset" => Ok(rustix::net::sockopt::set_socket_linger(&writer, Some(Duration::ZERO))?),
        both => {
            let size: u64 = both.trim_start_matches("both ").parse().map_err(io::Error::other)?;
            // What comes back is what has come.
            let count = io::copy(&mut (&mut reader).take(size), &mut writer)?;
            let mut end = Vec::new();
            reader.read_to_end(&mut end)?;
            assert!(end.is_empty());
            writeln!(writer, "{count}")
        }
    }
}

/// A port that nobody has.
fn free(address: Ipv4Addr) -> u16 {
    TcpListener::bind((address, 0)).and_then(|one| one.local_addr()).expect("a port").port()
}

/// The first of two ports that nobody has, of those that the kernel gives to no client.
fn two_in_a_row(address: Ipv4Addr) -> u16 {
    let start = free(address) % 4096;
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
    let mut all = (0..4096).map(|step| 20000 + 2 * ((start + step) % 4096));
    all.find(|&port| is_free(port) && is_free(port + 1)).expect("two free ports")
}

fn out_by_the_switch(world: &World, place: Place<'_>) -> Outcome {
    let address = own_address()?;
    let lab = lab(world, place);
    let (host, port, size) = (address.to_string(), serve(address).to_string(), SIZE.to_string());
    let free = free(address).to_string();
    let script = ["/usr/bin/python3", "/meetings/out.py", "client"];
    let words = [&script[..], &[&host, GATEWAY, &port, &free, &size]].concat();
    let expected = format!(
        "refused ECONNREFUSED\ngateway ECONNREFUSED\nthe host's end: b''\nthe host's reset: \
         ECONNRESET\ndatagram 0\ndatagram 1\ndatagram 1400\ndatagram 9000\ndatagram 65000\nno \
         datagrams ECONNREFUSED\n200 connections at once True\nthere and back {SIZE} True True\n"
    );
    assert_eq!(lab.run("caller", &words).ok().out(), expected);
    // In a network of --internal nothing leads there.
    lab.person.run(&["network", "create", "within", "--internal"]).ok();
    let call = format!("import socket; socket.create_connection(('{host}', {port}), 20)");
    let within = ["run", "--rm", "--execmode=N1", "--network=within", lab.image()];
    let shut = lab.person.run(&[&within[..], &["/usr/bin/python3", "-c", &call]].concat());
    lab.person.run(&["network", "rm", "within"]).ok();
    assert!(shut.err().contains("Network is unreachable"), "{shut:?}");
    Ok(())
}

/// What a container's server says to a client of the host, and the client's address.
fn ask(to: SocketAddr) -> (String, IpAddr) {
    let mut stream = TcpStream::connect_timeout(&to, LIMIT).expect("the published port");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    (text, stream.local_addr().expect("an address").ip())
}

fn ask_by_datagram(to: SocketAddr) -> String {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.set_read_timeout(Some(LIMIT)).expect("a limit");
    socket.connect(to).expect("a way");
    socket.send(&[7; 3000]).expect("room");
    let mut bytes = [0; 100];
    let length = socket.recv(&mut bytes).expect("an answer");
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

fn published_by_the_switch(world: &World, place: Place<'_>) -> Outcome {
    let own = own_address()?;
    let lab = lab(world, place);
    let (first, datagrams) = (two_in_a_row(own), free(own));
    let range = format!("{first}-{}:80-81", first + 1);
    let one = format!("127.0.0.1:{datagrams}:54/udp");
    let options = ["-p", &range, "-p", &one];
    lab.start("web", &options, &["/usr/bin/python3", "/meetings/out.py", "serve"]);
    let agents = || processes(&lab.person, "coracle-names");
    for round in 0..2 {
        // A client of loopback would be answered there.
        let (text, _) = ask((Ipv4Addr::LOCALHOST, first).into());
        assert_eq!(text, format!("{GATEWAY} 80\n"));
        let (text, from) = ask((own, first + 1).into());
        assert_eq!(text, format!("{from} 81\n"));
        let text = ask_by_datagram((Ipv4Addr::LOCALHOST, datagrams).into());
        assert_eq!(text, format!("{GATEWAY} 3000\n"));
        if round == 0 {
            // The ports stay bound, and clients wait for the next agent.
            let [agent] = agents()[..] else { panic!("there is not one agent") };
            lab.person.other("kill", &["-KILL", &agent.to_string()]).ok();
        }
    }
    lab.person.run(&["rm", "-f", "web"]).ok();
    let left = TcpListener::bind((own, first));
    assert!(left.is_ok(), "the port is still bound: {left:?}");
    Ok(())
}
