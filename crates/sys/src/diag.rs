//! Which socket the kernel finds at an address and port: `sock_diag(7)`.

use abi::network::Protocol;
use abi::network::diag::{self, Found};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::net::SocketAddrV4;

/// Finds the socket that gets what is sent to a place; see [`diag::question`]. `None` if there is
/// none.
///
/// # Errors
/// Where the kernel does not answer such questions.
pub fn find(
    protocol: Protocol,
    to: SocketAddrV4,
    from: Option<SocketAddrV4>,
) -> Result<Option<Found>, Errno> {
    let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
    let socket = socket_with(family, SocketType::RAW, flags, Some(netlink::SOCK_DIAG))?;
    send(&socket, &diag::question(protocol, to, from), SendFlags::empty())?;
    let mut answer = [0; 512];
    let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    Ok(diag::answer(&answer[..length.min(answer.len())]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::socket_cookie;
    use std::net::{SocketAddr, TcpListener, TcpStream};

    #[test]
    fn sockets_are_found_by_their_places() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(place) = listener.local_addr().unwrap() else { panic!("IPv6") };
        let found = find(Protocol::Tcp, place, None).unwrap().unwrap();
        assert_eq!(found.cookie, socket_cookie(&listener).unwrap());
        assert_eq!(found.address, *place.ip());
        assert!(find(Protocol::Udp, place, None).unwrap().is_none());
        let client =
            TcpStream::connect_timeout(&place.into(), std::time::Duration::from_secs(9)).unwrap();
        let (server, SocketAddr::V4(from)) = listener.accept().unwrap() else { panic!("IPv6") };
        let found = find(Protocol::Tcp, place, Some(from)).unwrap().unwrap();
        assert_eq!(found.cookie, socket_cookie(&server).unwrap());
        let found = find(Protocol::Tcp, from, Some(place)).unwrap().unwrap();
        assert_eq!(found.cookie, socket_cookie(&client).unwrap());
        // Not by a close: a child that another test forks may have the descriptor too.
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
        assert!(find(Protocol::Tcp, place, None).unwrap().is_none());
    }
}
