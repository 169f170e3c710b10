//! Messages of rtnetlink(7): reads addresses of interfaces, and puts others in their place.

use super::{Interfaces, LABEL, LOOPBACK, Place, broadcast};
use crate::errno::Result;
use crate::guest::Guest;
use abi::layout::u32_at;
use core::net::{Ipv4Addr, Ipv6Addr};

/// `sizeof(struct nlmsghdr)`: length, type, flags, number of the request, port.
const HEADER: usize = 16;
/// `sizeof(struct nlmsghdr)` and `sizeof(struct ifaddrmsg)`: family, prefix, flags, scope, number
/// of the interface.
const ADDRESS: usize = HEADER + 8;
/// The same for `struct rtmsg`.
const ROUTE: usize = HEADER + 12;
/// Longer than any message about an address.
const LONGEST: usize = 1024;
/// The greatest size of one that is made here.
const MADE: usize = 128;

const NLMSG_NOOP: u16 = 1;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_LABEL: u16 = 3;
const IFA_BROADCAST: u16 = 4;
const IFA_CACHEINFO: u16 = 6;
const IFA_FLAGS: u16 = 8;
/// The address was not made for a time only.
const IFA_F_PERMANENT: u8 = 0x80;
/// `struct ifa_cacheinfo` of such a one: two times without an end, two at which it was made.
const FOREVER: [u8; 16] = [255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0];
const RTA_DST: u16 = 1;
const RTA_PREFSRC: u16 = 7;

/// Asks for all addresses of version 4.
pub(super) const ADDRESSES: [u8; ADDRESS] = {
    let mut request = [0; ADDRESS];
    request[0] = ADDRESS as u8;
    [request[4], request[5]] = RTM_GETADDR.to_le_bytes();
    [request[6], request[7]] = (NLM_F_REQUEST | NLM_F_DUMP).to_le_bytes();
    request[HEADER] = AF_INET;
    request
};

/// Asks for the way to an address.
pub(super) fn route_request(to: Ipv4Addr) -> [u8; ROUTE + 8] {
    let mut request = [0; ROUTE + 8];
    request[0] = (ROUTE + 8) as u8;
    request[4..6].copy_from_slice(&RTM_GETROUTE.to_le_bytes());
    request[6..8].copy_from_slice(&NLM_F_REQUEST.to_le_bytes());
    (request[HEADER], request[HEADER + 1]) = (AF_INET, 32);
    request[ROUTE] = 8;
    request[ROUTE + 2..ROUTE + 4].copy_from_slice(&RTA_DST.to_le_bytes());
    request[ROUTE + 4..].copy_from_slice(&to.octets());
    request
}

fn kind_of(message: &[u8]) -> u16 {
    u16::from_le_bytes([message[4], message[5]])
}

/// The whole messages in a buffer.
fn messages(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        let length = rest.get(..HEADER).map(|header| u32_at(header, 0) as usize)?;
        let message = rest.get(..length).filter(|message| message.len() >= HEADER)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// An attribute of a message, which begin at `start`.
fn attribute(message: &[u8], start: usize, wanted: u16) -> Option<&[u8]> {
    let mut rest = message.get(start..)?;
    loop {
        let [length @ .., kind, more] = *rest.first_chunk::<4>()?;
        let length = usize::from(u16::from_le_bytes(length));
        let value = rest.get(4..length)?;
        if u16::from_le_bytes([kind, more]) == wanted {
            return Some(value);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

fn ipv4(bytes: &[u8]) -> Option<Ipv4Addr> {
    bytes.first_chunk::<4>().map(|bytes| (*bytes).into())
}

/// The address from which the host sends on a way.
pub(super) fn source_of(answer: &[u8]) -> Option<Ipv4Addr> {
    let message = messages(answer).next().filter(|message| kind_of(message) == RTM_NEWROUTE)?;
    ipv4(attribute(message, ROUTE, RTA_PREFSRC)?)
}

/// The addresses of version 4 in an answer.
pub(super) fn places(answer: &[u8]) -> impl Iterator<Item = Place> {
    messages(answer).filter(|message| kind_of(message) == RTM_NEWADDR).filter_map(|message| {
        let name = attribute(message, ADDRESS, IFA_LABEL)?;
        let mut label = [0; LABEL];
        label.get_mut(..name.len())?.copy_from_slice(name);
        Some(Place { index: index_of(message)?, label, address: local(message)? })
    })
}

fn index_of(message: &[u8]) -> Option<u32> {
    message.get(..ADDRESS).map(|message| u32_at(message, HEADER + 4))
}

/// The interface's own address; `IFA_ADDRESS` is that of the other end where there is only one.
fn local(message: &[u8]) -> Option<Ipv4Addr> {
    let local = attribute(message, ADDRESS, IFA_LOCAL);
    ipv4(local.or_else(|| attribute(message, ADDRESS, IFA_ADDRESS))?)
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It stays, and the container's addresses follow if it is so.
    Stays { followed: bool },
    /// The container's addresses are in its place.
    Replaced,
    /// It is left out.
    Hidden,
}

impl Fate {
    fn of(message: &[u8], place: &Place) -> Self {
        let kind = kind_of(message);
        let (Some(index), true) = (index_of(message), matches!(kind, RTM_NEWADDR | RTM_DELADDR))
        else {
            return Self::Stays { followed: false };
        };
        let is_new = kind == RTM_NEWADDR;
        match message[HEADER] {
            AF_INET => {
                let is_place =
                    is_new && index == place.index && local(message) == Some(place.address);
                if index == LOOPBACK && local(message) == Some(Ipv4Addr::LOCALHOST) {
                    return Self::Stays { followed: is_place };
                }
                if is_place { Self::Replaced } else { Self::Hidden }
            }
            AF_INET6 => {
                let address = attribute(message, ADDRESS, IFA_ADDRESS);
                let is_own = address == Some(&Ipv6Addr::LOCALHOST.octets());
                if is_own { Self::Stays { followed: false } } else { Self::Hidden }
            }
            _ => Self::Stays { followed: false },
        }
    }
}

/// A message that is put together.
struct Made {
    bytes: [u8; MADE],
    length: usize,
}

impl Made {
    /// Says that an interface has an address, in the answer to which `like` belongs.
    fn address(like: &[u8], place: &Place, own: (Ipv4Addr, u8)) -> Self {
        let mut made = Self { bytes: [0; MADE], length: ADDRESS };
        made.bytes[..HEADER].copy_from_slice(&like[..HEADER]);
        made.bytes[HEADER..HEADER + 4].copy_from_slice(&[AF_INET, own.1, IFA_F_PERMANENT, 0]);
        made.bytes[HEADER + 4..ADDRESS].copy_from_slice(&place.index.to_le_bytes());
        made.put(IFA_ADDRESS, &own.0.octets());
        made.put(IFA_LOCAL, &own.0.octets());
        if own.1 < 31 {
            made.put(IFA_BROADCAST, &broadcast(own).octets());
        }
        let end = place.label.iter().position(|byte| *byte == 0).unwrap_or(LABEL - 1);
        made.put(IFA_LABEL, &place.label[..=end]);
        made.put(IFA_FLAGS, &u32::from(IFA_F_PERMANENT).to_le_bytes());
        made.put(IFA_CACHEINFO, &FOREVER);
        made.bytes[..4].copy_from_slice(&(made.length as u32).to_le_bytes());
        made
    }

    fn put(&mut self, kind: u16, value: &[u8]) {
        let (at, length) = (self.length, 4 + value.len());
        self.bytes[at..at + 2].copy_from_slice(&(length as u16).to_le_bytes());
        self.bytes[at + 2..at + 4].copy_from_slice(&kind.to_le_bytes());
        self.bytes[at + 4..at + length].copy_from_slice(value);
        self.length = at + length.next_multiple_of(4);
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Messages in the guest's memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Data {
    pub(super) at: u64,
    /// Bytes that were received.
    pub(super) length: u64,
    /// Bytes for which there is room.
    pub(super) room: u64,
}

/// How far messages have been rewritten, in bytes from their beginning.
struct Progress {
    data: Data,
    /// The next message to be read.
    read: u64,
    /// Where the next one is put.
    written: u64,
}

impl Data {
    /// Whether the first message is about an address: the kernel answers one question at a time.
    pub(super) fn is_of_addresses(&self, guest: &mut impl Guest) -> bool {
        let mut header = [0; HEADER];
        self.length >= HEADER as u64
            && guest.read(self.at, &mut header).is_ok()
            && matches!(kind_of(&header), RTM_NEWADDR | RTM_DELADDR)
            && u64::from(u32_at(&header, 0)) <= self.length
    }

    /// Rewrites them; returns how many bytes there are now. `work` is for what is moved.
    pub(super) fn rewrite(
        self,
        guest: &mut impl Guest,
        work: &mut [u8],
        interfaces: &Interfaces,
    ) -> Result<u64> {
        let mut progress = Progress { data: self, read: 0, written: 0 };
        // Each round reads at least a header.
        while progress.read + HEADER as u64 <= progress.data.length {
            let mut message = [0; LONGEST];
            let left = progress.data.length - progress.read;
            let there = (LONGEST as u64).min(left) as usize;
            guest.read(self.at + progress.read, &mut message[..there])?;
            let whole = u32_at(&message, 0) as usize;
            if whole < HEADER || whole as u64 > left {
                break;
            }
            let known = &message[..whole.min(LONGEST)];
            let next = (whole.next_multiple_of(4) as u64).min(left);
            match Fate::of(known, &interfaces.place) {
                Fate::Hidden => progress.read += next,
                Fate::Replaced => {
                    progress.read += next;
                    progress.insert(guest, work, (known, interfaces))?;
                }
                Fate::Stays { followed } => {
                    progress.keep(guest, work, next)?;
                    if followed {
                        progress.insert(guest, work, (known, interfaces))?;
                    }
                }
            }
        }
        let rest = progress.data.length - progress.read;
        progress.keep(guest, work, rest)?;
        progress.end(guest)
    }
}

impl Progress {
    /// Takes bytes over as they are.
    fn keep(&mut self, guest: &mut impl Guest, work: &mut [u8], length: u64) -> Result<()> {
        if self.read != self.written {
            let (from, to) = (self.data.at + self.read, self.data.at + self.written);
            copy(guest, work, (from, to), length)?;
        }
        self.read += length;
        self.written += length;
        Ok(())
    }

    /// Puts the container's addresses here, as many as there is room for.
    fn insert(
        &mut self,
        guest: &mut impl Guest,
        work: &mut [u8],
        (like, interfaces): (&[u8], &Interfaces),
    ) -> Result<()> {
        for own in interfaces.own() {
            let made = Made::address(like, &interfaces.place, own);
            let more = made.length as u64;
            let missing = (self.written + more).saturating_sub(self.read);
            if self.data.length + missing > self.data.room {
                return Ok(());
            }
            if missing != 0 {
                let from = self.data.at + self.read;
                let rest = self.data.length - self.read;
                copy(guest, work, (from, from + missing), rest)?;
                self.read += missing;
                self.data.length += missing;
            }
            guest.write(self.data.at + self.written, made.as_bytes())?;
            self.written += more;
        }
        Ok(())
    }

    /// Returns the number of bytes, which is not 0.
    fn end(&mut self, guest: &mut impl Guest) -> Result<u64> {
        if self.written == 0 && self.data.length >= ADDRESS as u64 {
            let mut nothing = [0; ADDRESS];
            // Number of the request, and port.
            guest.read(self.data.at, &mut nothing[..HEADER])?;
            nothing[..4].copy_from_slice(&(ADDRESS as u32).to_le_bytes());
            nothing[4..6].copy_from_slice(&NLMSG_NOOP.to_le_bytes());
            guest.write(self.data.at, &nothing)?;
            self.written = ADDRESS as u64;
        }
        Ok(self.written)
    }
}

/// Moves bytes in the guest's memory; both ranges may overlap.
fn copy(
    guest: &mut impl Guest,
    work: &mut [u8],
    (from, to): (u64, u64),
    length: u64,
) -> Result<()> {
    let mut done = 0;
    while done < length {
        let part = (length - done).min(work.len() as u64);
        // Towards the end what is last goes first.
        let at = if from < to { length - done - part } else { done };
        let piece = &mut work[..part as usize];
        guest.read(from + at, piece)?;
        guest.write(to + at, piece)?;
        done += part;
    }
    Ok(())
}
