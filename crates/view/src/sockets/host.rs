//! Calls on the sockets of a guest, which a backend makes for the view.

use crate::errno::{Errno, Result};
use crate::guest::HostFd;
use abi::network::Protocol;
use core::net::{SocketAddr, SocketAddrV4};

/// What a socket of a guest is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketKind {
    /// Its protocol; `None` for one that is neither TCP nor UDP.
    pub protocol: Option<Protocol>,
    /// `getsockname`: an address of the socket's family.
    pub name: SocketAddr,
}

/// An option of a socket that is on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketOption {
    /// `IPV6_V6ONLY`.
    OnlySix,
    /// `SO_REUSEADDR`.
    ReuseAddress,
    /// `SO_REUSEPORT`.
    SharePort,
    /// `IP_BIND_ADDRESS_NO_PORT`, since Linux 4.2: the port is chosen when the socket is connected.
    BindWithoutPort,
}

/// System calls on sockets, made with the rights of the user who started the container.
///
/// Errors are the kernel's. The defaults are those of a backend that cannot reach sockets: then a
/// container cannot have [`crate::World::network`].
pub trait Sockets {
    /// The socket behind a descriptor of the guest, until [`Sockets::release_socket`]. `EBADF` if
    /// there is no such descriptor.
    fn hold_socket(&mut self, descriptor: i32) -> Result<HostFd> {
        let _ = descriptor;
        Err(Errno::ENOSYS)
    }
    /// Gives it back.
    fn release_socket(&mut self, socket: HostFd) {
        let _ = socket;
    }
    /// What it is. `ENOTSOCK` if it is no socket; `EAFNOSUPPORT` if it is of another family than
    /// the internet's.
    fn socket_kind(&mut self, socket: HostFd) -> Result<SocketKind> {
        let _ = socket;
        Err(Errno::ENOSYS)
    }
    /// `bind`.
    fn bind_socket(&mut self, socket: HostFd, address: SocketAddr) -> Result<()> {
        let _ = (socket, address);
        Err(Errno::ENOSYS)
    }
    /// `getsockname`, or the other side of a connection that is being made, exists, or has ended
    /// (`SO_PEERNAME`; `ENOTCONN` if there was none).
    fn socket_name(&mut self, socket: HostFd, peer: bool) -> Result<SocketAddr> {
        let _ = (socket, peer);
        Err(Errno::ENOSYS)
    }
    /// `SO_COOKIE`: a number that the kernel never gives to another socket, and never 0.
    fn socket_cookie(&mut self, socket: HostFd) -> Result<u64> {
        let _ = socket;
        Err(Errno::ENOSYS)
    }
    /// `getsockopt`.
    fn socket_option(&mut self, socket: HostFd, option: SocketOption) -> Result<bool> {
        let _ = (socket, option);
        Err(Errno::ENOSYS)
    }
    /// `setsockopt`.
    fn set_socket_option(&mut self, socket: HostFd, option: SocketOption, on: bool) -> Result<()> {
        let _ = (socket, option, on);
        Err(Errno::ENOSYS)
    }
    /// A new socket of the same family and type, and with `reuse` also with the same `SO_REUSEADDR`
    /// and `SO_REUSEPORT`. [`Sockets::close_twin`] closes it.
    fn twin_socket(&mut self, socket: HostFd, reuse: bool) -> Result<HostFd> {
        let _ = (socket, reuse);
        Err(Errno::ENOSYS)
    }
    /// Closes such a socket.
    fn close_twin(&mut self, twin: HostFd) {
        let _ = twin;
    }
    /// Sends a request to the kernel's `sock_diag(7)`, and returns the length of the answer.
    fn ask_sockets(&mut self, request: &[u8], answer: &mut [u8]) -> Result<usize> {
        let _ = (request, answer);
        Err(Errno::ENOSYS)
    }
    /// Sends a datagram to the agent of this host, from a socket that is connected to it, and
    /// returns the length of the answer. `ETIMEDOUT` if none comes within
    /// [`abi::network::ask::WAIT_MS`]; `ECONNREFUSED` if nobody is there.
    fn ask_agent(
        &mut self,
        agent: SocketAddrV4,
        question: &[u8],
        answer: &mut [u8],
    ) -> Result<usize> {
        let _ = (agent, question, answer);
        Err(Errno::ENOSYS)
    }
    /// Returns true if a socket is one of rtnetlink(7).
    fn is_for_routes(&mut self, socket: HostFd) -> bool {
        let _ = socket;
        false
    }
    /// Sends a request to the kernel's rtnetlink(7), and returns the length of the first part of
    /// the answer.
    fn ask_routes(&mut self, request: &[u8], answer: &mut [u8]) -> Result<usize> {
        let _ = (request, answer);
        Err(Errno::ENOSYS)
    }
    /// `SO_PROTOCOL` alone.
    fn socket_protocol(&mut self, socket: HostFd) -> Result<Option<Protocol>> {
        let _ = socket;
        Err(Errno::ENOSYS)
    }
    /// The processor's clock (its time stamp counter, of which all processors of a machine have the
    /// same): 1 to 5 ticks are a nanosecond. 0 where there is none.
    fn ticks(&mut self) -> u64 {
        0
    }
}
