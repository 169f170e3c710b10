use super::super::frame::{HEADER, tests::asks, tests::packet};
use super::super::neighbour::tests as six;
use super::super::{Place, Switch, frame};
use super::*;
use proptest::prelude::*;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    Icmpv4DstUnreachable, Icmpv4Packet, Icmpv4Repr, IpProtocol, Ipv4Packet, TcpPacket, UdpPacket,
};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

const GATEWAY: Ipv4Addr = Ipv4Addr::new(100, 80, 0, 1);
const WEB: Ipv4Addr = Ipv4Addr::new(100, 80, 0, 2);
const FAR: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const LIMIT: Duration = Duration::from_secs(10);
const FORM: usize = HEADER + 14;

/// A container whose device is one end of a pair of sockets.
struct Container {
    device: OwnedFd,
    number: u64,
}

impl Container {
    fn new(near: &str, published: Vec<Published>) -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (device, port) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .unwrap();
        let subnet = Subnet::around(WEB, 24).unwrap();
        let switch = switch();
        let network = LAST.fetch_add(1, Ordering::Relaxed).to_string();
        let place = Place { network, address: WEB, ranges: six::lab(), auxiliary: Vec::new() };
        let number = switch.add(place, port).unwrap();
        let near = vec![subnet, near.parse().unwrap()];
        switch.lead_out(number, Way { gateway: GATEWAY, near, published }).unwrap();
        Self { device, number }
    }

    fn send(&self, frame: &[u8]) {
        rustix::net::send(&self.device, frame, SendFlags::empty()).unwrap();
    }

    #[track_caller]
    fn gets(&self) -> Vec<u8> {
        let until = Instant::now() + LIMIT;
        let mut frame = vec![0; 70_000];
        loop {
            if let Ok((length, _)) =
                rustix::net::recv(&self.device, &mut frame[..], RecvFlags::empty())
            {
                frame.truncate(length);
                return frame;
            }
            assert!(Instant::now() < until, "nothing came");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        switch().remove(self.number);
    }
}

/// That of all cases, because its threads stay. Each case has a network of its own.
fn switch() -> &'static Switch {
    static SWITCH: OnceLock<Arc<Switch>> = OnceLock::new();
    SWITCH.get_or_init(|| Switch::start().unwrap())
}
static LAST: AtomicU32 = AtomicU32::new(0);

/// A packet of a protocol to an address.
fn sent(to: Ipv4Addr, protocol: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = packet(WEB, to, body);
    let length = (frame.len() - FORM) as u16;
    frame[FORM + 2..FORM + 4].copy_from_slice(&length.to_be_bytes());
    frame[FORM + 8] = 64;
    frame[FORM + 9] = protocol;
    frame
}

fn udp(to: Ipv4Addr, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let length = 8 + payload.len() as u16;
    let header = [ports.0, ports.1, length, 0].map(u16::to_be_bytes).concat();
    sent(to, 17, &[&header, payload].concat())
}

/// A segment without options. `flags`: as in its header.
fn tcp(to: Ipv4Addr, ports: (u16, u16), numbers: (u32, u32), flags: u8) -> Vec<u8> {
    let mut body = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    body.extend([numbers.0.to_be_bytes(), numbers.1.to_be_bytes()].concat());
    body.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    sent(to, 6, &body)
}

fn echo(to: Ipv4Addr) -> Vec<u8> {
    sent(to, 1, &[8, 0, 0, 0, 0x12, 0x34, 0, 1, b'a', b'b'])
}

/// The packet of a frame for the container, and who sent it.
fn read(frame: &[u8]) -> (Ipv4Addr, IpProtocol, Vec<u8>) {
    let packet = Ipv4Packet::new_checked(&frame[FORM..]).unwrap();
    assert_eq!(packet.dst_addr(), WEB);
    assert!(packet.verify_checksum());
    (packet.src_addr(), packet.next_header(), packet.payload().to_vec())
}

/// The gateway is one of IPv4: who asks for it by IPv6 or sends there hears nothing.
#[test]
fn nothing_of_ipv6_leads_out() {
    let web = Container::new("10.1.0.0/24", Vec::new());
    web.send(&six::asks(WEB, GATEWAY));
    web.send(&six::packet(WEB, GATEWAY, &[0; 20]));
    web.send(&six::packet(WEB, FAR, &[0; 20]));
    web.send(&asks(WEB, GATEWAY));
    assert_eq!(web.gets(), frame::answer(&asks(WEB, GATEWAY), GATEWAY, WEB).unwrap());
}

#[test]
fn the_gateway_answers() {
    let web = Container::new("0.0.0.0/0", Vec::new());
    web.send(&asks(WEB, GATEWAY));
    assert_eq!(web.gets()[FORM..][14..18], GATEWAY.octets());
    web.send(&echo(GATEWAY));
    let (from, protocol, body) = read(&web.gets());
    assert_eq!((from, protocol), (GATEWAY, IpProtocol::Icmp));
    let message = Icmpv4Packet::new_checked(&body[..]).unwrap();
    assert!(message.verify_checksum());
    assert_eq!((body[0], message.echo_ident(), &body[8..]), (0, 0x1234, &b"ab"[..]));
}

#[test]
fn what_is_not_outside_is_refused() {
    // Everything is near.
    let web = Container::new("0.0.0.0/0", Vec::new());
    for to in [FAR, GATEWAY, Ipv4Addr::LOCALHOST, Ipv4Addr::new(250, 0, 0, 1)] {
        web.send(&tcp(to, (4000, 80), (7, 0), 2));
        let (from, _, body) = read(&web.gets());
        let segment = TcpPacket::new_checked(&body[..]).unwrap();
        assert!(segment.rst() && segment.ack_number().0 == 8, "{segment:?}");
        assert_eq!((from, segment.src_port(), segment.dst_port()), (to, 80, 4000));
        web.send(&udp(to, (4000, 80), b"a"));
        let (from, _, body) = read(&web.gets());
        let message = Icmpv4Packet::new_checked(&body[..]).unwrap();
        let told = Icmpv4Repr::parse(&message, &ChecksumCapabilities::default()).unwrap();
        let Icmpv4Repr::DstUnreachable { reason, header, data } = told else { panic!("{told:?}") };
        assert_eq!((from, reason), (GATEWAY, Icmpv4DstUnreachable::PortUnreachable));
        assert_eq!((header.src_addr, header.dst_addr), (WEB, to));
        assert_eq!(data[..4], [4000_u16.to_be_bytes(), 80_u16.to_be_bytes()].concat());
    }
}

#[test]
fn several_datagrams_in_one_packet_are_told_apart() {
    let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    server.set_nonblocking(true).unwrap();
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    client.connect(server.local_addr().unwrap()).unwrap();
    let published = Published { socket: server.into(), udp: true, inside: 53 };
    let web = Container::new("0.0.0.0/0", vec![published]);
    client.send(b"question").unwrap();
    let (from, _, body) = read(&web.gets());
    let datagram = UdpPacket::new_checked(&body[..]).unwrap();
    assert_eq!((from, datagram.dst_port(), datagram.payload()), (GATEWAY, 53, &b"question"[..]));
    let mut frame = udp(GATEWAY, (53, datagram.src_port()), b"onetwo3");
    frame[1] = 5;
    frame[4..6].copy_from_slice(&3_u16.to_ne_bytes());
    web.send(&frame);
    for answer in [&b"one"[..], b"two", b"3"] {
        let mut bytes = [0; 10];
        let length = client.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], answer);
    }
}

/// A client of a published port, and what the container has to answer.
fn connected() -> (Container, TcpStream, (u16, u32)) {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    server.set_nonblocking(true).unwrap();
    let client = TcpStream::connect_timeout(&server.local_addr().unwrap(), LIMIT).unwrap();
    let published = Published { socket: server.into(), udp: false, inside: 80 };
    let web = Container::new("0.0.0.0/0", vec![published]);
    let (from, _, body) = read(&web.gets());
    let segment = TcpPacket::new_checked(&body[..]).unwrap();
    assert!(from == GATEWAY && segment.syn() && segment.dst_port() == 80, "{segment:?}");
    let asked = (segment.src_port(), segment.seq_number().0 as u32);
    (web, client, asked)
}

#[test]
fn a_container_that_refuses_resets_the_client() {
    let (web, mut client, (port, number)) = connected();
    web.send(&tcp(GATEWAY, (80, port), (0, number + 1), 0x14));
    client.set_read_timeout(Some(LIMIT)).unwrap();
    let error = std::io::Read::read(&mut client, &mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

proptest! {
    /// Whatever a container sends, nothing panics, and the gate goes on.
    #[test]
    fn any_packets(
        kind in prop::sample::select(vec![1_u8, 6, 17, 99]),
        bytes in prop::collection::vec(any::<u8>(), 0..60),
        damage in prop::collection::vec((0_usize..60, any::<u8>()), 0..3),
        cut in 0_usize..120,
    ) {
        let web = Container::new("0.0.0.0/0", Vec::new());
        let whole = [sent(FAR, kind, &bytes), echo(GATEWAY), udp(FAR, (1, 2), &bytes),
            tcp(FAR, (1, 2), (3, 4), bytes.first().copied().unwrap_or(2))];
        for mut frame in whole {
            for (at, byte) in &damage {
                if let Some(place) = frame.get_mut(*at) {
                    *place = *byte;
                }
            }
            frame.truncate(cut.max(1));
            web.send(&frame);
        }
        web.send(&asks(WEB, GATEWAY));
        let is_answer = |frame: &[u8]| frame[FORM - 2..FORM] == [8, 6];
        while !is_answer(&web.gets()) {}
    }

    /// The same within a connection.
    #[test]
    fn any_segments(
        segments in prop::collection::vec(
            (0_u32..3, 0_u32..3, any::<u8>(), prop::collection::vec(any::<u8>(), 0..30)), 1..6),
    ) {
        let (web, _client, (port, number)) = connected();
        for (at, seen, flags, rest) in segments {
            let mut frame = tcp(GATEWAY, (80, port), (at, number.wrapping_add(seen)), flags);
            // The end of the header may be anywhere, and options be anything.
            if let Some(first) = rest.first() {
                frame[FORM + 20 + 12] = *first;
            }
            frame.extend(&rest);
            let length = (frame.len() - FORM) as u16;
            frame[FORM + 2..FORM + 4].copy_from_slice(&length.to_be_bytes());
            web.send(&frame);
        }
        web.send(&asks(WEB, GATEWAY));
        while web.gets()[FORM - 2..FORM] != [8, 6] {}
    }
}
