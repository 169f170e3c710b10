//! What agents of two hosts say to each other: pure functions between messages and bytes.
//!
//! A message is a header of six bytes (length of what follows, version, kind) and at most 64 KiB
//! and a few fields. Numbers are little-endian; a text has its length before it, in one byte. A
//! message of an unknown kind is passed over, so that a later version may have more of them.

use std::net::{Ipv4Addr, SocketAddrV4};

use abi::network::Protocol;
use abi::network::ask::Answer;
use serde::{Deserialize, Serialize};

use crate::kind::Kind;
use crate::names;

/// The version of this protocol, in each message and in the greeting.
pub const VERSION: u8 = 1;
/// The longest frame of a network of packets.
pub const FRAME: usize = crate::switch::frame::LONGEST;
/// Length of a message without its header: a frame and its fields.
const LONGEST: usize = FRAME + 64;
const HEADER: usize = 6;
/// A message with members is not longer, unless one alone is.
const PART: usize = 32 << 10;
/// Members of a host; more are not taken.
pub const MEMBERS: usize = abi::network::SLOTS;
/// Further names of a member; more are not sent.
const ALIASES: usize = 64;

/// A container of another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Further names.
    pub aliases: Vec<String>,
    /// Its virtual address.
    pub address: Ipv4Addr,
    /// How it is connected.
    #[serde(default)]
    pub kind: Kind,
}

impl Remote {
    /// Whether what another host says of a container can stand in files.
    pub fn is_valid(&self) -> bool {
        let digits = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
        digits(&self.id)
            && names::is_name(&self.name)
            && self.aliases.iter().all(|name| names::is_name(name))
    }
}

/// A question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Where is this port of your member?
    Reach {
        /// Its protocol.
        protocol: Protocol,
        /// The member's virtual address.
        address: Ipv4Addr,
        /// The virtual port.
        port: u16,
        /// The real port from which a datagram is to come; 0 for none.
        from: u16,
    },
    /// Whose is the socket at this port of yours that is connected to, or has sent to, a place of
    /// mine?
    Who {
        /// Protocol of both sockets.
        protocol: Protocol,
        /// The port.
        port: u16,
        /// The place.
        to: SocketAddrV4,
    },
}

/// What a host says of an auxiliary address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// A member of it has announced it: nobody else has it any more.
    New,
    /// A member of it has announced it some time ago. A host that knows another holder keeps to
    /// that.
    Old,
    /// The member that had it has gone.
    Gone,
}

/// What is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The first message of both sides.
    Hello {
        /// [`VERSION`].
        version: u8,
        /// The network's name.
        network: String,
        /// The epoch of the list of members.
        epoch: u64,
    },
    /// The last one: why the link is closed.
    Bye(String),
    /// I am there.
    Ping,
    /// My living members. They come in parts: the first one is part 0.
    Members {
        /// The number of the part.
        part: u16,
        /// It is the last one.
        last: bool,
        /// Its members.
        members: Vec<Remote>,
    },
    /// A question.
    Ask {
        /// Stands in the answer, too.
        id: u64,
        /// What is asked.
        asked: Asked,
    },
    /// An answer.
    Told {
        /// That of the question.
        id: u64,
        /// What is answered.
        answer: Answer,
    },
    /// Of an auxiliary address.
    Auxiliary {
        /// The address.
        address: Ipv4Addr,
        /// What is said of it.
        claim: Claim,
    },
    /// A frame of a network of packets.
    Frame {
        /// To which member.
        to: Ipv4Addr,
        /// The frame: at most [`FRAME`] bytes.
        frame: Vec<u8>,
    },
}

mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const BYE: u8 = 2;
    pub(super) const PING: u8 = 3;
    pub(super) const MEMBERS: u8 = 4;
    pub(super) const ASK: u8 = 5;
    pub(super) const TOLD: u8 = 6;
    pub(super) const FRAME: u8 = 7;
    pub(super) const AUXILIARY: u8 = 8;
}

/// Bytes that are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// It is longer than a message may be.
    #[error("it sends a message that is too long")]
    Long,
    /// It is of another version.
    #[error("it sends a message of another version")]
    Version,
    /// Its fields cannot be read.
    #[error("it sends a message that cannot be read")]
    Form,
}

/// Reads the first message of some bytes: the message, `None` if it is of an unknown kind, and its
/// length. Nothing if it is not complete.
///
/// # Errors
/// Where it is none.
pub fn read(bytes: &[u8]) -> Result<Option<(Option<Message>, usize)>, Bad> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
    let [a, b, c, d, version, kind] = *header;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length > LONGEST {
        return Err(Bad::Long);
    }
    if version != VERSION && kind != kind::HELLO {
        return Err(Bad::Version);
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    let message = Reader(body).message(kind)?;
    Ok(Some((message, HEADER + length)))
}

impl Message {
    /// Its bytes. Texts are cut after 255 bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let kind = match self {
            Self::Hello { .. } => kind::HELLO,
            Self::Bye(_) => kind::BYE,
            Self::Ping => kind::PING,
            Self::Members { .. } => kind::MEMBERS,
            Self::Ask { .. } => kind::ASK,
            Self::Told { .. } => kind::TOLD,
            Self::Auxiliary { .. } => kind::AUXILIARY,
            Self::Frame { to, frame } => return frame_bytes(*to, frame),
        };
        let mut out = start(kind, 64);
        match self {
            Self::Hello { version, network, epoch } => {
                out.push(*version);
                put_text(&mut out, network);
                out.extend(epoch.to_le_bytes());
            }
            Self::Bye(why) => put_text(&mut out, why),
            Self::Ping | Self::Frame { .. } => {}
            Self::Members { part, last, members } => {
                out.extend(part.to_le_bytes());
                out.push((*last).into());
                out.extend((members.len() as u16).to_le_bytes());
                for member in members {
                    put_member(&mut out, member);
                }
            }
            Self::Ask { id, asked } => {
                out.extend(id.to_le_bytes());
                put_asked(&mut out, asked);
            }
            Self::Told { id, answer } => {
                out.extend(id.to_le_bytes());
                put_answer(&mut out, *answer);
            }
            Self::Auxiliary { address, claim } => {
                out.extend(address.octets());
                out.push(match claim {
                    Claim::New => 1,
                    Claim::Old => 2,
                    Claim::Gone => 3,
                });
            }
        }
        finish(out)
    }
}

/// The bytes of a message with a frame, without a copy between.
pub fn frame_bytes(to: Ipv4Addr, frame: &[u8]) -> Vec<u8> {
    let mut out = start(kind::FRAME, frame.len() + 4);
    out.extend(to.octets());
    out.extend(frame);
    finish(out)
}

/// The messages that tell all members: at least one.
pub fn members(all: &[Remote]) -> Vec<Message> {
    let size = |member: &Remote| 600 + 256 * member.aliases.len().min(ALIASES);
    let mut parts: Vec<Vec<Remote>> = vec![Vec::new()];
    let mut room = PART;
    for member in all.iter().take(MEMBERS) {
        if size(member) > room && parts.last().is_some_and(|part| !part.is_empty()) {
            parts.push(Vec::new());
            room = PART;
        }
        room = room.saturating_sub(size(member));
        if let Some(part) = parts.last_mut() {
            part.push(member.clone());
        }
    }
    let count = parts.len();
    let parts = parts.into_iter().enumerate();
    parts
        .map(|(part, members)| Message::Members {
            part: part as u16,
            last: part + 1 == count,
            members,
        })
        .collect()
}

fn start(kind: u8, room: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + room);
    out.extend([0, 0, 0, 0, VERSION, kind]);
    out
}

fn finish(mut out: Vec<u8>) -> Vec<u8> {
    let length = (out.len() - HEADER) as u32;
    out[..4].copy_from_slice(&length.to_le_bytes());
    out
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(255)];
    out.push(text.len() as u8);
    out.extend(text.as_bytes());
}

fn put_place(out: &mut Vec<u8>, place: SocketAddrV4) {
    out.extend(place.ip().octets());
    out.extend(place.port().to_le_bytes());
}

fn put_member(out: &mut Vec<u8>, member: &Remote) {
    let Remote { id, name, aliases, address, kind } = member;
    out.extend(address.octets());
    out.push(u8::from(*kind == Kind::Packets));
    put_text(out, id);
    put_text(out, name);
    let aliases = &aliases[..aliases.len().min(ALIASES)];
    out.push(aliases.len() as u8);
    for alias in aliases {
        put_text(out, alias);
    }
}

const fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 0,
        Protocol::Udp => 1,
    }
}

fn put_asked(out: &mut Vec<u8>, asked: &Asked) {
    match *asked {
        Asked::Reach { protocol, address, port, from } => {
            out.extend([1, number(protocol)]);
            put_place(out, SocketAddrV4::new(address, port));
            out.extend(from.to_le_bytes());
        }
        Asked::Who { protocol, port, to } => {
            out.extend([2, number(protocol)]);
            out.extend(port.to_le_bytes());
            put_place(out, to);
        }
    }
}

fn put_answer(out: &mut Vec<u8>, answer: Answer) {
    match answer {
        Answer::Found(place) => {
            out.push(1);
            put_place(out, place);
        }
        Answer::Refused(address) => {
            out.push(2);
            out.extend(address.octets());
        }
        Answer::Absent => out.push(3),
        Answer::Unreachable => out.push(4),
    }
}

/// What is left of a message.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn message(mut self, kind: u8) -> Result<Option<Message>, Bad> {
        let message = match kind {
            kind::HELLO => {
                // Of another version only this is known.
                let version = self.byte()?;
                let (network, epoch) = if version == VERSION {
                    (self.text()?, self.word()?)
                } else {
                    (String::new(), 0)
                };
                self.0 = &[];
                Message::Hello { version, network, epoch }
            }
            kind::BYE => Message::Bye(self.text()?),
            kind::PING => Message::Ping,
            kind::MEMBERS => {
                let (part, last, count) = (self.short()?, self.byte()? != 0, self.short()?);
                let members = (0..count).map(|_| self.member()).collect::<Result<_, _>>()?;
                Message::Members { part, last, members }
            }
            kind::ASK => Message::Ask { id: self.word()?, asked: self.asked()? },
            kind::TOLD => Message::Told { id: self.word()?, answer: self.answer()? },
            kind::AUXILIARY => {
                Message::Auxiliary { address: self.address()?, claim: self.claim()? }
            }
            kind::FRAME => {
                let to = self.address()?;
                let frame = std::mem::take(&mut self.0).to_vec();
                if frame.len() > FRAME {
                    return Err(Bad::Long);
                }
                Message::Frame { to, frame }
            }
            _ => return Ok(None),
        };
        if self.0.is_empty() { Ok(Some(message)) } else { Err(Bad::Form) }
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        let (chunk, rest) = self.0.split_first_chunk::<N>().ok_or(Bad::Form)?;
        self.0 = rest;
        Ok(*chunk)
    }

    fn byte(&mut self) -> Result<u8, Bad> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    fn short(&mut self) -> Result<u16, Bad> {
        self.chunk().map(u16::from_le_bytes)
    }

    fn word(&mut self) -> Result<u64, Bad> {
        self.chunk().map(u64::from_le_bytes)
    }

    fn address(&mut self) -> Result<Ipv4Addr, Bad> {
        self.chunk::<4>().map(Ipv4Addr::from)
    }

    fn claim(&mut self) -> Result<Claim, Bad> {
        match self.byte()? {
            1 => Ok(Claim::New),
            2 => Ok(Claim::Old),
            3 => Ok(Claim::Gone),
            _ => Err(Bad::Form),
        }
    }

    fn place(&mut self) -> Result<SocketAddrV4, Bad> {
        Ok(SocketAddrV4::new(self.address()?, self.short()?))
    }

    fn text(&mut self) -> Result<String, Bad> {
        let length = usize::from(self.byte()?);
        let (text, rest) = self.0.split_at_checked(length).ok_or(Bad::Form)?;
        self.0 = rest;
        Ok(std::str::from_utf8(text).map_err(|_| Bad::Form)?.to_owned())
    }

    fn member(&mut self) -> Result<Remote, Bad> {
        let address = self.address()?;
        let kind = match self.byte()? {
            0 => Kind::Names,
            1 => Kind::Packets,
            _ => return Err(Bad::Form),
        };
        let (id, name, count) = (self.text()?, self.text()?, self.byte()?);
        let aliases = (0..count).map(|_| self.text()).collect::<Result<_, _>>()?;
        Ok(Remote { id, name, aliases, address, kind })
    }

    fn protocol(&mut self) -> Result<Protocol, Bad> {
        match self.byte()? {
            0 => Ok(Protocol::Tcp),
            1 => Ok(Protocol::Udp),
            _ => Err(Bad::Form),
        }
    }

    fn asked(&mut self) -> Result<Asked, Bad> {
        let (what, protocol) = (self.byte()?, self.protocol()?);
        match what {
            1 => {
                let place = self.place()?;
                let (address, port) = (*place.ip(), place.port());
                Ok(Asked::Reach { protocol, address, port, from: self.short()? })
            }
            2 => Ok(Asked::Who { protocol, port: self.short()?, to: self.place()? }),
            _ => Err(Bad::Form),
        }
    }

    fn answer(&mut self) -> Result<Answer, Bad> {
        match self.byte()? {
            1 => Ok(Answer::Found(self.place()?)),
            2 => Ok(Answer::Refused(self.address()?)),
            3 => Ok(Answer::Absent),
            4 => Ok(Answer::Unreachable),
            _ => Err(Bad::Form),
        }
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
