//! Questions to the kernel which socket is bound to an address and port, and its answers; see
//! `sock_diag(7)`. Pure: who asks sends [`question`] to a netlink socket of `NETLINK_SOCK_DIAG`.

use super::Protocol;
use core::net::{Ipv4Addr, SocketAddrV4};

const AF_INET: u8 = 2;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `sizeof(struct nlmsghdr)`.
const HEADER: usize = 16;
/// `sizeof(struct inet_diag_req_v2)`.
const ASKED: usize = 56;
/// `INET_DIAG_NOCOOKIE`.
const NO_COOKIE: [u8; 8] = [0xff; 8];
/// `TCP_ESTABLISHED`, which a connected socket of UDP is, too.
const ESTABLISHED: u8 = 1;
/// `TCP_FIN_WAIT2`, `TCP_TIME_WAIT`.
const FIN_WAIT2: u8 = 5;
const TIME_WAIT: u8 = 6;
/// `LOOPBACK_IFINDEX`.
const LOOPBACK: u32 = 1;
/// Offsets in `struct inet_diag_sockid`, which lies 8 bytes into the request and 4 into the answer.
mod id {
    pub(super) const SOURCE_PORT: usize = 0;
    pub(super) const DESTINATION_PORT: usize = 2;
    pub(super) const SOURCE: usize = 4;
    pub(super) const DESTINATION: usize = 20;
    pub(super) const INTERFACE: usize = 36;
    pub(super) const COOKIE: usize = 40;
}
const ASKED_ID: usize = HEADER + 8;
const TOLD_ID: usize = HEADER + 4;
/// Offset of `idiag_uid` in the answer.
const TOLD_UID: usize = HEADER + 64;
const TOLD: usize = HEADER + 72;

/// Length of a question in bytes.
pub const QUESTION: usize = HEADER + ASKED;

/// The socket at an address and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Its cookie.
    pub cookie: u64,
    /// The address that it is bound to.
    pub address: Ipv4Addr,
    /// The user who made it.
    pub uid: u32,
    /// It takes what comes from anywhere, not from one place only.
    pub open: bool,
    /// Its program has closed it, and the kernel keeps only what a connection needs at its end: the
    /// cookie is not the socket's any more.
    pub ended: bool,
}

/// Asks for the socket that gets what is sent to a place: of TCP one that listens, or with `from`
/// that of the connection from there; of UDP one that takes it from this source, which a connected
/// one does not from every.
pub fn question(
    protocol: Protocol,
    to: SocketAddrV4,
    from: Option<SocketAddrV4>,
) -> [u8; QUESTION] {
    let udp = protocol == Protocol::Udp;
    let mut request = [0; QUESTION];
    request[..4].copy_from_slice(&(QUESTION as u32).to_le_bytes());
    request[4..6].copy_from_slice(&BY_FAMILY.to_le_bytes());
    request[6..8].copy_from_slice(&REQUEST.to_le_bytes());
    request[HEADER] = AF_INET;
    request[HEADER + 1] = if udp { IPPROTO_UDP } else { IPPROTO_TCP };
    // All states.
    request[HEADER + 4..HEADER + 8].fill(0xff);
    // For UDP the kernel has source and destination the other way round ("for historical reasons").
    let (here, there) = ((id::SOURCE, id::SOURCE_PORT), (id::DESTINATION, id::DESTINATION_PORT));
    let (to_at, from_at) = if udp { (there, here) } else { (here, there) };
    let mut put = |(at, port_at): (usize, usize), place: SocketAddrV4| {
        request[ASKED_ID + port_at..][..2].copy_from_slice(&place.port().to_be_bytes());
        request[ASKED_ID + at..][..4].copy_from_slice(&place.ip().octets());
    };
    put(to_at, to);
    if let Some(from) = from {
        put(from_at, from);
    }
    // Sockets that are bound to the device of all these addresses are found as well.
    request[ASKED_ID + id::INTERFACE..][..4].copy_from_slice(&LOOPBACK.to_le_bytes());
    request[ASKED_ID + id::COOKIE..][..8].copy_from_slice(&NO_COOKIE);
    request
}

/// Reads the kernel's answer; `None` if there is no such socket.
pub fn answer(answer: &[u8]) -> Option<Found> {
    if answer.len() < TOLD || answer[4..6] != BY_FAMILY.to_le_bytes() {
        return None;
    }
    let word = |at: usize| answer[at..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let (cookie, address) = (TOLD_ID + id::COOKIE, TOLD_ID + id::SOURCE);
    // That of a socket of IPv6 is mapped, or "all".
    let four = answer[HEADER] == AF_INET;
    let address = if four { address } else { address + 12 };
    Some(Found {
        address: answer[address..].first_chunk::<4>().map(|bytes| (*bytes).into())?,
        cookie: u64::from(word(cookie)?) | u64::from(word(cookie + 4)?) << 32,
        uid: word(TOLD_UID)?,
        open: answer[HEADER + 1] != ESTABLISHED,
        ended: matches!(answer[HEADER + 1], FIN_WAIT2 | TIME_WAIT),
    })
}
