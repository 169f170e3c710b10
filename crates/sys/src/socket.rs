//! Options of sockets that `rustix` does not have, and questions to the kernel by netlink(7).

use crate::raw;
use linux_raw_sys::general::{__NR_getsockopt, __NR_setsockopt};
use linux_raw_sys::net::{SO_PEERNAME, SOL_SOCKET};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use std::os::fd::{AsFd, AsRawFd};

const IPPROTO_IP: usize = 0;
/// See ip(7).
const IP_BIND_ADDRESS_NO_PORT: usize = 24;

/// `IP_BIND_ADDRESS_NO_PORT`, since Linux 4.2: `bind` to port 0 leaves the choice of the port to
/// `connect`.
pub fn set_bind_without_port(socket: impl AsFd, on: bool) -> Result<(), Errno> {
    let value = u32::from(on);
    let socket = socket.as_fd().as_raw_fd() as usize;
    let arguments = [
        socket,
        IPPROTO_IP,
        IP_BIND_ADDRESS_NO_PORT,
        (&raw const value).expose_provenance(),
        size_of::<u32>(),
    ];
    // SAFETY: the kernel reads an `int` of the given size, which lives until the call returns.
    unsafe { raw::call(__NR_setsockopt, arguments) }.map(drop)
}

/// `SO_PEERNAME`: the address of the other side, also of a connection that has ended. Returns its
/// length.
///
/// # Errors
/// EINVAL if the buffer is longer than the address; ENOTCONN if there was no connection.
pub fn peer_name(socket: impl AsFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut length = u32::try_from(buffer.len()).map_err(|_| Errno::INVAL)?;
    let arguments = [
        socket.as_fd().as_raw_fd() as usize,
        SOL_SOCKET as usize,
        SO_PEERNAME as usize,
        buffer.as_mut_ptr().expose_provenance(),
        (&raw mut length).expose_provenance(),
    ];
    // SAFETY: the kernel writes at most `length` bytes to the buffer, and the length; both live
    // until the call returns.
    unsafe { raw::call(__NR_getsockopt, arguments) }?;
    Ok(length as usize)
}

/// Sends a request to a part of the kernel (`None` for `NETLINK_ROUTE`); returns the length of the
/// first part of the answer.
pub fn ask_netlink(
    protocol: Option<Protocol>,
    request: &[u8],
    answer: &mut [u8],
) -> Result<usize, Errno> {
    let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
    let socket = socket_with(family, SocketType::RAW, flags, protocol)?;
    send(&socket, request, SendFlags::empty())?;
    let (length, _) = recv(&socket, answer, RecvFlags::empty())?;
    Ok(length)
}

/// The processor's time stamp counter.
pub fn ticks() -> u64 {
    // SAFETY: every processor of this architecture has the instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}
