//! Questions that sockets of programs raise and that another host has to answer: the form in which
//! programs ask the agent of their own host.
//!
//! A question is one datagram to the agent's socket, whose place and secrets stand in the table
//! ([`super::Table::agent`]); the answer is one datagram back. The table is readable for its user
//! only. So an agent answers nobody who does not know [`Agent::asking`], and nobody believes a
//! stranger who has taken the port of an agent that has ended, because he does not know
//! [`Agent::telling`], which is never sent to the agent. Both are new with each agent.
//!
//! All numbers are little-endian.

use super::{Protocol, Slot};
use core::net::{Ipv4Addr, SocketAddrV4};

/// Length of a question in bytes.
pub const QUESTION: usize = 40;
/// Length of an answer in bytes.
pub const ANSWER: usize = 24;
/// A program waits so long for an answer, in milliseconds; an agent gives up a little earlier.
pub const WAIT_MS: u32 = 1500;

/// Where the agent answers, and how both sides know each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agent {
    /// Its socket, at a loopback address.
    pub place: SocketAddrV4,
    /// Stands in each question.
    pub asking: u64,
    /// Stands in each answer.
    pub telling: u64,
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Where is this port of the member of another host that has this address in a network?
    Reach {
        /// Number of the network in this host's table.
        network: u16,
        /// Protocol of the port.
        protocol: Protocol,
        /// The member's virtual address.
        address: Ipv4Addr,
        /// The virtual port.
        port: u16,
        /// The real port from which a datagram is to be sent there: a connected socket takes it
        /// from one place only. 0 if the socket has none yet.
        from: u16,
    },
    /// Whose is the socket at this real place of another host, which is connected to, or has sent
    /// to, a socket of a container of this host?
    Who {
        /// The container that asks.
        slot: Slot,
        /// Protocol of both sockets.
        protocol: Protocol,
        /// The other host's address, and the port there.
        peer: SocketAddrV4,
        /// The real place of the asking container's socket.
        own: SocketAddrV4,
    },
}

/// What is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// To [`Question::Reach`]: the real place. To [`Question::Who`]: the virtual one.
    Found(SocketAddrV4),
    /// The member lives and has no such port. The address is that of its host.
    Refused(Ipv4Addr),
    /// There is no such member, or no socket of a member is there.
    Absent,
    /// The other host does not answer.
    Unreachable,
}

const REACH: u8 = 1;
const WHO: u8 = 2;

const fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 0,
        Protocol::Udp => 1,
    }
}

fn protocol(number: u8) -> Option<Protocol> {
    match number {
        0 => Some(Protocol::Tcp),
        1 => Some(Protocol::Udp),
        _ => None,
    }
}

fn put_place(bytes: &mut [u8], place: SocketAddrV4) {
    bytes[..4].copy_from_slice(&place.ip().octets());
    bytes[4..6].copy_from_slice(&place.port().to_le_bytes());
}

fn place(bytes: &[u8]) -> Option<SocketAddrV4> {
    let address: [u8; 4] = *bytes.first_chunk()?;
    let port = u16::from_le_bytes(*bytes.get(4..6)?.first_chunk()?);
    Some(SocketAddrV4::new(address.into(), port))
}

impl Question {
    /// Writes it. `nonce`: stands in the answer, too.
    pub fn write(&self, asking: u64, nonce: u64) -> [u8; QUESTION] {
        let mut bytes = [0; QUESTION];
        bytes[..8].copy_from_slice(&asking.to_le_bytes());
        bytes[8..16].copy_from_slice(&nonce.to_le_bytes());
        match *self {
            Self::Reach { network, protocol, address, port, from } => {
                bytes[16..18].copy_from_slice(&[REACH, number(protocol)]);
                bytes[18..20].copy_from_slice(&network.to_le_bytes());
                put_place(&mut bytes[20..26], SocketAddrV4::new(address, port));
                bytes[26..28].copy_from_slice(&from.to_le_bytes());
            }
            Self::Who { slot, protocol, peer, own } => {
                bytes[16..18].copy_from_slice(&[WHO, number(protocol)]);
                bytes[18..20].copy_from_slice(&slot.number().to_le_bytes());
                put_place(&mut bytes[20..26], peer);
                put_place(&mut bytes[26..32], own);
            }
        }
        bytes
    }

    /// Reads one, and its nonce. `None` for anything else, and for one that does not know the
    /// secret.
    pub fn read(bytes: &[u8], asking: u64) -> Option<(Self, u64)> {
        let bytes: &[u8; QUESTION] = bytes.try_into().ok()?;
        let word = |at: usize| bytes[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
        if word(0) != Some(asking) {
            return None;
        }
        let (protocol, first) = (protocol(bytes[17])?, u16::from_le_bytes([bytes[18], bytes[19]]));
        let there = place(&bytes[20..])?;
        let question = match bytes[16] {
            REACH => {
                let (address, port) = (*there.ip(), there.port());
                let from = u16::from_le_bytes([bytes[26], bytes[27]]);
                Self::Reach { network: first, protocol, address, port, from }
            }
            WHO => {
                let own = place(&bytes[26..])?;
                Self::Who { slot: Slot::new(first)?, protocol, peer: there, own }
            }
            _ => return None,
        };
        Some((question, word(8)?))
    }
}

impl Answer {
    /// Writes it.
    pub fn write(&self, telling: u64, nonce: u64) -> [u8; ANSWER] {
        let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let (what, there) = match *self {
            Self::Found(place) => (1, place),
            Self::Refused(host) => (2, SocketAddrV4::new(host, 0)),
            Self::Absent => (3, nowhere),
            Self::Unreachable => (4, nowhere),
        };
        let mut bytes = [0; ANSWER];
        bytes[..8].copy_from_slice(&telling.to_le_bytes());
        bytes[8..16].copy_from_slice(&nonce.to_le_bytes());
        bytes[16] = what;
        put_place(&mut bytes[17..23], there);
        bytes
    }

    /// Reads one; `None` if it does not know the secret, or answers another question.
    pub fn read(bytes: &[u8], telling: u64, nonce: u64) -> Option<Self> {
        let bytes: &[u8; ANSWER] = bytes.try_into().ok()?;
        let word = |at: usize| bytes[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
        if word(0) != Some(telling) || word(8) != Some(nonce) {
            return None;
        }
        let there = place(&bytes[17..])?;
        match bytes[16] {
            1 => Some(Self::Found(there)),
            2 => Some(Self::Refused(*there.ip())),
            3 => Some(Self::Absent),
            4 => Some(Self::Unreachable),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_as_they_were_written() {
        let here = SocketAddrV4::new(Ipv4Addr::new(10, 1, 2, 3), 4711);
        let there = SocketAddrV4::new(Ipv4Addr::new(100, 80, 0, 9), 53);
        let slot = Slot::new(4095).unwrap();
        for question in [
            Question::Reach {
                network: 65534,
                protocol: Protocol::Udp,
                address: *there.ip(),
                port: 65535,
                from: 40_000,
            },
            Question::Who { slot, protocol: Protocol::Tcp, peer: here, own: there },
        ] {
            let bytes = question.write(7, 8);
            assert_eq!(Question::read(&bytes, 7), Some((question, 8)));
            assert_eq!(Question::read(&bytes, 8), None, "another secret");
            assert_eq!(Question::read(&bytes[1..], 7), None);
        }
        for answer in
            [Answer::Found(here), Answer::Refused(*here.ip()), Answer::Absent, Answer::Unreachable]
        {
            let bytes = answer.write(9, 10);
            assert_eq!(Answer::read(&bytes, 9, 10), Some(answer));
            assert_eq!(Answer::read(&bytes, 9, 11), None, "another question");
            assert_eq!(Answer::read(&bytes, 7, 10), None, "another secret");
        }
    }

    #[test]
    fn other_bytes_are_no_question() {
        let mut bytes = [0; QUESTION];
        for what in 0..=255u8 {
            for protocol in [0, 1, 2, 255] {
                bytes[16..18].copy_from_slice(&[what, protocol]);
                bytes[18..20].copy_from_slice(&[255, 255]);
                let read = Question::read(&bytes, 0);
                assert_eq!(read.is_some(), what == REACH && protocol < 2, "{what} {protocol}");
            }
        }
    }
}
