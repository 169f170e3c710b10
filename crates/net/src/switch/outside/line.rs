//! The line between a gate and its container: packets in frames, each behind a `virtio_net_hdr`.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use smoltcp::phy::{
    Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken,
};
use smoltcp::time::Instant;
use smoltcp::wire::{
    Icmpv4DstUnreachable, Icmpv4Packet, Icmpv4Repr, IpProtocol, Ipv4Packet, Ipv4Repr, UdpPacket,
    UdpRepr, checksum,
};

use super::super::MTU;
use super::super::frame::{ETHERNET, HEADER, KIND_IP, ethernet};

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum is that of the pseudo-header only.
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_UDP_L4`: one datagram after another in one packet.
const GSO_UDP: u8 = 5;
/// Size of the header of IPv4 that is written here.
const IP: usize = 20;
/// Size of the header of UDP (RFC 768).
const UDP: usize = 8;
const HOPS: u8 = 64;
/// How long a device may take no packet, because the container's kernel has not worked on those
/// before.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// The container's device, and what is written to it.
#[derive(Debug)]
pub(super) struct Line {
    device: Arc<OwnedFd>,
    /// The container's address.
    pub(super) member: Ipv4Addr,
    pub(super) gateway: Ipv4Addr,
    buffer: Vec<u8>,
}

/// The time of timers.
pub(super) fn now() -> Instant {
    let now = clock_gettime(ClockId::Monotonic);
    Instant::from_micros(now.tv_sec * 1_000_000 + now.tv_nsec / 1000)
}

/// Which checksums are written and checked: those of the container's kernel are right or missing,
/// and it takes ours as such.
pub(super) fn checksums() -> ChecksumCapabilities {
    let mut all = ChecksumCapabilities::ignored();
    all.ipv4 = Checksum::Tx;
    all.icmpv4 = Checksum::Tx;
    all
}

/// The size of each datagram in a frame with its header that holds several.
pub(super) fn datagrams(frame: &[u8]) -> Option<usize> {
    let (kind, size) = (*frame.get(1)?, frame.get(4..6)?);
    let size = u16::from_ne_bytes([size[0], size[1]]);
    (kind & 0x7f == GSO_UDP && size > 0).then_some(size.into())
}

impl Line {
    pub(super) fn new(device: Arc<OwnedFd>, member: Ipv4Addr, gateway: Ipv4Addr) -> Self {
        let mut buffer = vec![0; HEADER + ETHERNET + MTU as usize];
        buffer[HEADER..][..6].copy_from_slice(&ethernet(member));
        buffer[HEADER + 6..][..6].copy_from_slice(&ethernet(gateway));
        buffer[HEADER + 12..][..2].copy_from_slice(&KIND_IP.to_be_bytes());
        Self { device, member, gateway, buffer }
    }

    /// Sends a packet of so many bytes, which `fill` writes. It is lost where it is longer than the
    /// device's packets, or the device takes none for [`PATIENCE`].
    fn send<R>(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let whole = self.buffer.get_mut(..HEADER + ETHERNET + length)?;
        let (header, frame) = whole.split_at_mut(HEADER);
        let packet = &mut frame[ETHERNET..];
        let result = fill(packet);
        header.fill(0);
        if let Some(place) = checksum_of(packet) {
            header[0] = NEEDS_CHECKSUM;
            header[6..8].copy_from_slice(&((ETHERNET + IP) as u16).to_ne_bytes());
            header[8..10].copy_from_slice(&place.to_ne_bytes());
        }
        if put(&self.device, whole) == Err(Errno::AGAIN) {
            // What is lost costs a second, since only a timer of `smoltcp` notices the last packet.
            let mut device = [PollFd::new(&self.device, PollFlags::OUT)];
            let _ = rustix::event::poll(&mut device, Some(&PATIENCE));
            let _ = put(&self.device, whole);
        }
        Some(result)
    }

    /// Sends a packet of another address with this payload.
    fn packet(
        &mut self,
        from: Ipv4Addr,
        protocol: IpProtocol,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let header = Ipv4Repr {
            src_addr: from,
            dst_addr: self.member,
            next_header: protocol,
            payload_len: length,
            hop_limit: HOPS,
        };
        self.send(IP + length, |bytes| {
            header.emit(&mut Ipv4Packet::new_unchecked(&mut *bytes), &checksums());
            fill(&mut bytes[IP..]);
        });
    }

    /// Sends a datagram to a port of the container.
    pub(super) fn datagram(&mut self, (from, port): (Ipv4Addr, u16), to: u16, payload: &[u8]) {
        let member = self.member;
        let header = UdpRepr { src_port: port, dst_port: to };
        self.packet(from, IpProtocol::Udp, UDP + payload.len(), |bytes| {
            header.emit(
                &mut UdpPacket::new_unchecked(bytes),
                &from.into(),
                &member.into(),
                payload.len(),
                |place| place.copy_from_slice(payload),
                &checksums(),
            );
        });
    }

    /// Sends an answer to an echo, which is whole but for its number and checksum.
    pub(super) fn echo(&mut self, from: Ipv4Addr, number: u16, message: &[u8]) {
        self.packet(from, IpProtocol::Icmp, message.len(), |bytes| {
            bytes.copy_from_slice(message);
            let mut message = Icmpv4Packet::new_unchecked(bytes);
            message.set_echo_ident(number);
            message.fill_checksum();
        });
    }

    /// Says that a packet of the container, whose first bytes behind the header of IPv4 these are,
    /// did not arrive.
    pub(super) fn unreachable(
        &mut self,
        reason: Icmpv4DstUnreachable,
        (to, protocol): (Ipv4Addr, IpProtocol),
        data: &[u8],
    ) {
        let header = Ipv4Repr {
            src_addr: self.member,
            dst_addr: to,
            next_header: protocol,
            payload_len: data.len(),
            hop_limit: HOPS,
        };
        let message = Icmpv4Repr::DstUnreachable { reason, header, data };
        self.packet(self.gateway, IpProtocol::Icmp, message.buffer_len(), |bytes| {
            message.emit(&mut Icmpv4Packet::new_unchecked(bytes), &checksums());
        });
    }
}

fn put(device: &OwnedFd, frame: &[u8]) -> Result<(), Errno> {
    rustix::io::retry_on_intr(|| rustix::io::write(device, frame)).map(drop)
}

/// Writes the checksum of a packet as far as the kernel wants it, if the kernel does the rest;
/// where it stands, from the end of the header of IPv4.
fn checksum_of(packet: &mut [u8]) -> Option<u16> {
    let header = Ipv4Packet::new_checked(&*packet).ok()?;
    let protocol = header.next_header();
    let place = match protocol {
        IpProtocol::Tcp => 16,
        IpProtocol::Udp => 6,
        _ => return None,
    };
    let length = header.payload().len() as u32;
    let sum = checksum::pseudo_header_v4(&header.src_addr(), &header.dst_addr(), protocol, length);
    packet.get_mut(IP + place..)?.get_mut(..2)?.copy_from_slice(&sum.to_be_bytes());
    Some(place as u16)
}

/// A device of `smoltcp`: at most one packet that has come, and the line for those that go.
pub(super) struct Pipe<'a> {
    pub(super) packet: Option<&'a [u8]>,
    pub(super) line: &'a mut Line,
}

impl Device for Pipe<'_> {
    type RxToken<'a>
        = Come<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Goes<'a>
    where
        Self: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Come<'_>, Goes<'_>)> {
        Some((Come(self.packet.take()?), Goes(self.line)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Goes<'_>> {
        Some(Goes(self.line))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut all = DeviceCapabilities::default();
        all.medium = Medium::Ip;
        all.max_transmission_unit = MTU as usize;
        all.checksum = checksums();
        all
    }
}

/// A packet that has come.
pub(super) struct Come<'a>(&'a [u8]);

impl RxToken for Come<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, work: F) -> R {
        work(self.0)
    }
}

/// Room for one that goes.
pub(super) struct Goes<'a>(&'a mut Line);

impl TxToken for Goes<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, work: F) -> R {
        let mut work = Some(work);
        let sent = self.0.send(length, |bytes| work.take().map(|work| work(bytes)));
        match (sent.flatten(), work) {
            (Some(result), _) => result,
            // Not longer than the device said, so this is not reached.
            (None, Some(work)) => work(&mut vec![0; length]),
            (None, None) => unreachable!("it has been called"),
        }
    }
}
