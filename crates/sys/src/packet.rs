//! Packet sockets: all frames of a device. See
//! [packet(7)](https://man7.org/linux/man-pages/man7/packet.7.html).

use crate::raw;
use linux_raw_sys::general::{__NR_bind, __NR_setsockopt};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::{AsRawFd, OwnedFd};

const AF_PACKET: u16 = 17;
const ETH_P_ALL: u16 = 3;
const SOL_PACKET: usize = 263;
const PACKET_VNET_HDR: usize = 15;
const PACKET_IGNORE_OUTGOING: usize = 23;
/// Bytes that are asked for as buffers; the kernel gives at most `net.core.rmem_max` and
/// `wmem_max`.
const BUFFER: usize = 4 << 20;

/// `struct sockaddr_ll`.
#[repr(C)]
struct Address {
    family: u16,
    protocol: u16,
    index: u32,
    hardware: u16,
    kind: u8,
    length: u8,
    ethernet: [u8; 8],
}

/// Opens one for the device with this number. A read returns a frame that the device has received,
/// a write sends one, each behind a `virtio_net_hdr` of 10 bytes, as of a TAP device
/// ([`crate::tap`]). Calls do not block.
///
/// # Errors
/// EPERM without `CAP_NET_RAW` in the network namespace; ENODEV.
pub fn open(index: u32) -> Result<OwnedFd, Errno> {
    // Without a protocol at first, so that no frame of another device gets in.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    set(&socket, PACKET_VNET_HDR)?;
    match set(&socket, PACKET_IGNORE_OUTGOING) {
        // Before Linux 4.20. Frames of the namespace's own kernel get in, which has no addresses.
        Err(Errno::NOPROTOOPT) => {}
        done => done?,
    }
    let _ = set_socket_recv_buffer_size(&socket, BUFFER);
    let _ = set_socket_send_buffer_size(&socket, BUFFER);
    let address = Address {
        family: AF_PACKET,
        protocol: ETH_P_ALL.to_be(),
        index,
        hardware: 0,
        kind: 0,
        length: 0,
        ethernet: [0; 8],
    };
    let arguments = [
        socket.as_raw_fd() as usize,
        (&raw const address).expose_provenance(),
        size_of::<Address>(),
        0,
        0,
    ];
    // SAFETY: the kernel reads an address of the given size, which lives until the call returns.
    unsafe { raw::call(__NR_bind, arguments) }?;
    Ok(socket)
}

/// Sets an option of packet sockets to 1.
fn set(socket: &OwnedFd, option: usize) -> Result<(), Errno> {
    let value = 1_u32;
    let arguments = [
        socket.as_raw_fd() as usize,
        SOL_PACKET,
        option,
        (&raw const value).expose_provenance(),
        size_of::<u32>(),
    ];
    // SAFETY: the kernel reads an `int` of the given size, which lives until the call returns.
    unsafe { raw::call(__NR_setsockopt, arguments) }.map(drop)
}
