//! Whose a socket is that asks the name server.
//!
//! The server's address can be reached by every user of the host, and every user can bind the real
//! address of a container. So the kernel is asked who made the socket: only this user's own
//! programs are containers' programs. Others get no answer, and take no place from them.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use abi::network::Protocol;

/// Whether this user has made the socket that has come from `client` to `server`. Nothing is known
/// of one that is closed already, and of none that the kernel does not show.
pub(super) fn is_own(protocol: Protocol, client: SocketAddr, server: SocketAddr) -> bool {
    let (SocketAddr::V4(client), SocketAddr::V4(server)) = (client, server) else { return false };
    let uid = match sys::diag::find(protocol, client, Some(server)) {
        Ok(found) => found.map(|found| found.uid),
        Err(_) => listed(protocol, client),
    };
    uid == Some(rustix::process::getuid().as_raw())
}

/// The same by the kernel's lists, which are there where such questions are forbidden.
fn listed(protocol: Protocol, client: SocketAddrV4) -> Option<u32> {
    let name = match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    };
    let texts = ["", "6"].map(|version| {
        std::fs::read_to_string(format!("/proc/self/net/{name}{version}")).unwrap_or_default()
    });
    let of = |place| texts.iter().find_map(|text| owner(text, place));
    of(client).or_else(|| of(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, client.port())))
}

/// The user of the socket at a place, in one of the kernel's lists (`proc_pid_net(5)`).
fn owner(text: &str, place: SocketAddrV4) -> Option<u32> {
    let address = u32::from_ne_bytes(place.ip().octets());
    // An address of IPv6 ends with that of IPv4, or is "all".
    let wanted = format!("{address:08X}:{:04X}", place.port());
    text.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace();
        words.nth(1).filter(|local| local.ends_with(&wanted))?;
        words.nth(5)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn own_sockets_are_known() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect_timeout(&server.local_addr().unwrap(), LONG).unwrap();
        let place = client.local_addr().unwrap();
        let SocketAddr::V4(v4) = place else { panic!("IPv6") };
        let own = rustix::process::getuid().as_raw();
        assert!(is_own(Protocol::Tcp, place, server.local_addr().unwrap()));
        assert_eq!(listed(Protocol::Tcp, v4), Some(own));
        assert_eq!(listed(Protocol::Udp, v4), None);
        let wild = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = wild.local_addr().unwrap().port();
        let place = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let server = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(is_own(Protocol::Udp, place.into(), server));
        assert_eq!(listed(Protocol::Udp, place), Some(own));
    }

    #[test]
    fn owners_are_read() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   \
                    uid  timeout inode\n   0: 0500DE7F:C350 0B00007F:0035 01 00000000:00000000 \
                    00:00000000 00000000  1001        0 4242 1\n";
        let place = |port| SocketAddrV4::new(Ipv4Addr::new(127, 222, 0, 5), port);
        assert_eq!(owner(text, place(50_000)), cfg!(target_endian = "little").then_some(1001));
        assert_eq!(owner(text, place(50_001)), None);
    }
}
