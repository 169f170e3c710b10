//! Questions that other servers answer.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use crate::dns;

/// How long is waited for each server.
const WAIT: Duration = Duration::from_secs(2);
/// How often all of them are asked.
const ROUNDS: usize = 2;
const LONGEST: usize = 4096;
/// Size of the header, behind which the question begins.
const HEADER: usize = 12;

/// Asks by a datagram. The answer of the first server that has one; "server failure" if none has;
/// `None` if there is no server, or the message is no question.
pub(super) fn udp(message: &[u8], servers: &[SocketAddr]) -> Option<Vec<u8>> {
    if servers.is_empty() || message.len() < HEADER {
        return dns::failure(message);
    }
    for server in servers.iter().cycle().take(servers.len() * ROUNDS) {
        if let Ok(answer) = ask(message, *server) {
            return Some(answer);
        }
    }
    dns::failure(message)
}

/// Each question has a socket of its own, whose port the kernel chooses at random, and takes
/// answers of the server only, to this question (RFC 5452).
fn ask(message: &[u8], server: SocketAddr) -> io::Result<Vec<u8>> {
    let any = match server {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    socket.send(message)?;
    let until = Instant::now() + WAIT;
    let mut answer = [0; LONGEST];
    while let Some(left) =
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    {
        socket.set_read_timeout(Some(left))?;
        let length = socket.recv(&mut answer)?;
        if dns::is_answer(message, &answer[..length]) {
            return Ok(answer[..length].to_vec());
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// The same by a connection. Some servers take none, though RFC 7766 asks them to: those are asked
/// by a datagram, whose answer will do if it is whole.
pub(super) fn tcp(message: &[u8], servers: &[SocketAddr]) -> Option<Vec<u8>> {
    for server in servers {
        let answer = TcpStream::connect_timeout(server, WAIT).and_then(|mut stream| {
            stream.set_read_timeout(Some(WAIT))?;
            stream.set_write_timeout(Some(WAIT))?;
            write(&mut stream, message)?;
            read(&mut stream)
        });
        if let Some(answer) = answer.ok().filter(|answer| dns::is_answer(message, answer)) {
            return Some(answer);
        }
    }
    udp(message, servers).filter(|answer| !is_cut(answer)).or_else(|| dns::failure(message))
}

/// Whether an answer says that it was too long for a datagram (RFC 1035, 4.1.1).
fn is_cut(answer: &[u8]) -> bool {
    answer.get(2).is_some_and(|flags| flags & 2 != 0)
}

/// Reads a message with its length before it.
pub(super) fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message)?;
    Ok(message)
}

/// Writes one.
pub(super) fn write(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    // In one piece: some clients read the length and expect the rest at once.
    stream.write_all(&[&length.to_be_bytes(), message].concat())
}
