use super::*;
use crate::Kind;
use crate::definition::Definition;
use crate::dns::{Transport, Zone};
use crate::members::Entry;
use proptest::prelude::*;
use rustix::net::sockopt;
use std::os::fd::AsFd;

#[test]
fn greetings_are_read_as_they_were_written() {
    let endpoint = |network: &str, address: [u8; 4]| Endpoint {
        network: network.into(),
        network_id: network.repeat(8),
        subnet: Subnet::around(address.into(), 24).unwrap(),
        prefix: None,
        gateway: [10, 0, 0, 1].into(),
        internal: false,
        auxiliary: Vec::new(),
        node: None,
        address: address.into(),
        slot: 7,
        kind: crate::Kind::Packets,
    };
    let mut both = [endpoint("ab", [10, 0, 0, 2]), endpoint("cd", [10, 1, 0, 2])];
    both[1].prefix = Some("fd00::/64".parse().unwrap());
    both[1].auxiliary = vec![[10, 1, 0, 254].into(), [10, 1, 0, 253].into()];
    let text = greeting("0f", &both);
    let read = parse(&text).unwrap();
    let place = |endpoint: &Endpoint| Place {
        network: endpoint.network_id.clone(),
        address: endpoint.address,
        ranges: Ranges { subnet: endpoint.subnet, prefix: endpoint.prefix },
        auxiliary: endpoint.auxiliary.clone(),
    };
    let places: Vec<_> = both.iter().map(place).collect();
    assert_eq!(read, Greeting { id: "0f", places: places.clone(), out: None });
    let ports = [(false, 80), (true, 53)];
    let out = way_out(&both, &ports).unwrap();
    let told = Some((0, both[0].gateway, ports.to_vec()));
    assert_eq!(parse(&format!("{text}{out}")).unwrap(), Greeting { id: "0f", places, out: told });
    // The first network with a way out leads there.
    both[0].internal = true;
    assert_eq!(way_out(&both, &[]).as_deref(), Some("out 1 10.0.0.1\n"));
    both[1].internal = true;
    assert_eq!(way_out(&both, &[]), None);
    for bad in ["", "coracle-links 2\n0f\n", "coracle-links 1\n", "coracle-links 1\n\n"] {
        assert!(parse(bad).is_none(), "{bad:?}");
    }
    for bad in
        ["ab", "ab 10.0.0.2", "ab 10.0.0.2/33", "ab x/24", "ab 10.0.0.2/24 x", "ab 10.0.0.2/24 +x"]
    {
        assert!(parse(&format!("{WORD}\n0f\n{bad}\n")).is_none(), "{bad:?}");
    }
    for bad in ["out", "out 0", "out 2 10.0.0.1", "out 0 x", "out 0 10.0.0.1\nsctp 1"] {
        assert!(parse(&format!("{text}{bad}\n")).is_none(), "{bad:?}");
    }
}

/// One that knows each container by its id alone, and tells it so.
struct Echo;

impl server::Directory for Echo {
    fn zone(&self, client: &Client, _: Transport) -> Option<Zone> {
        let Client::Container(id) = client else { return None };
        let entry = Entry {
            id: "0".repeat(64),
            name: (**id).into(),
            aliases: Vec::new(),
            address: Ipv4Addr::new(10, 0, 0, 9),
            slot: 0,
            kind: Kind::Packets,
            since: 0,
        };
        Some(Zone::of(&[(&Definition::of("lab", "10.0.0.0/24"), &[entry])]))
    }

    fn servers(&self, _: &Client, _: Transport) -> Vec<std::net::SocketAddr> {
        Vec::new()
    }

    fn is_needed(&self) -> bool {
        true
    }
}

/// What the process beside a container has.
struct Container {
    connection: OwnedFd,
    device: OwnedFd,
    asked: std::net::SocketAddr,
    answer: Vec<u8>,
}

impl Container {
    fn new(path: &Path, text: &str) -> Self {
        let flags = SocketFlags::CLOEXEC;
        let pair =
            || rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (device, port) = pair().unwrap();
        rustix::fs::fcntl_setfl(&port, OFlags::NONBLOCK).unwrap();
        let wait = Some(std::time::Duration::from_secs(10));
        let connection =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .unwrap();
        for socket in [&device, &connection] {
            sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, wait).unwrap();
        }
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let asked = udp.local_addr().unwrap();
        rustix::net::connect(&connection, &SocketAddrUnix::new(path).unwrap()).unwrap();
        let descriptors = [port.as_fd(), udp.as_fd(), tcp.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = rustix::net::SendAncillaryBuffer::new(&mut space);
        assert!(
            ancillary.push(rustix::net::SendAncillaryMessage::ScmRights(&descriptors)),
            "there is room"
        );
        let pieces = [std::io::IoSlice::new(text.as_bytes())];
        let flags = SendFlags::empty();
        rustix::net::sendmsg(&connection, &pieces, &mut ancillary, flags).unwrap();
        let mut answer = vec![0; 200];
        let (length, _) =
            rustix::net::recv(&connection, &mut answer[..], RecvFlags::empty()).unwrap();
        answer.truncate(length);
        Self { connection, device, asked, answer }
    }

    fn gets(&self) -> Vec<u8> {
        let mut frame = vec![0; 200];
        let (length, _) =
            rustix::net::recv(&self.device, &mut frame[..], RecvFlags::empty()).unwrap();
        frame.truncate(length);
        frame
    }
}

#[test]
fn a_container_is_known_by_its_descriptors() {
    let directory = tempfile::tempdir().unwrap();
    let options = store::Options { create: true, ..store::Options::default() };
    let store = Store::open(directory.path(), options).unwrap();
    let path = socket(&store);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    // What another agent has left does not prevent it.
    std::fs::write(&path, "").unwrap();
    let links = Links::listen(&store, &Switch::start().unwrap()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    links.serve(&Answers::of(Arc::new(Echo))).unwrap();
    let [db, web] = [2, 3].map(|last| {
        let text = format!("{WORD}\nid{last}\nlab 10.0.0.{last}/24\n");
        Container::new(&path, &text)
    });
    assert_eq!((&db.answer[..], &web.answer[..]), (&b"+"[..], &b"+"[..]));
    let (from, to) = (Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 3));
    let frame = crate::switch::frame::tests::packet(from, to, &[7]);
    rustix::net::send(&db.device, &frame, SendFlags::empty()).unwrap();
    assert_eq!(web.gets(), frame);
    // The socket tells who asks, whatever its address is.
    for (container, id) in [(&db, "id2"), (&web, "id3")] {
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        client.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        client.send_to(&super::super::tests::question(id), container.asked).unwrap();
        let mut answer = [0; 512];
        let (length, _) = client.recv_from(&mut answer).unwrap();
        assert_eq!(super::super::tests::told(&answer[..length]), Some(9), "{id}");
    }
    // With its connection a container is gone.
    drop(web.connection);
    let mut byte = [0; 200];
    let end = rustix::net::recv(&web.device, &mut byte[..], RecvFlags::empty());
    assert_eq!(end.map(|(length, _)| length), Ok(0), "its port is closed");
    let later = Container::new(&path, "coracle-links 2\nid\n");
    assert_eq!(later.answer, b"it is of another version");
    let few = Container::new(&path, &format!("{WORD}\nid\n"));
    assert!(few.answer.starts_with(b"it sends not as many"), "{:?}", few.answer);
}

proptest! {
    #[test]
    fn any_greeting(text in "(coracle-links 1\n)?[ -~\n]{0,80}") {
        let _ = parse(&text);
    }
}
