//! [`view::guest::Sockets`] in a tracer: calls on copies of a guest's sockets.

use super::backend::{Backend, errno};
use abi::network::Protocol;
use abi::network::ask::WAIT_MS;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno as Raw;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, SocketType, bind, connect,
    getsockname, ipproto, netlink, recv, send, socket_with, sockopt,
};
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;
use sys::socket::{ask_netlink, peer_name};
use view::errno::Result;
use view::guest::{SocketKind, SocketOption, Sockets};
use view::sockets::inet::{LONGEST, SHORTEST, given};
use view::{Errno, HostFd};

impl<H> Backend<'_, H> {
    /// Makes a call with a socket that is held.
    fn with_socket<T>(
        &self,
        socket: HostFd,
        call: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<T>,
    ) -> Result<T> {
        let held = self.sockets.get(usize::try_from(socket.0).map_err(|_| Errno::EBADF)?);
        let held: &OwnedFd = held.and_then(Option::as_ref).ok_or(Errno::EBADF)?;
        call(held.as_fd()).map_err(errno)
    }

    /// Keeps a socket; its number is no descriptor.
    fn keep_socket(&mut self, socket: OwnedFd) -> HostFd {
        let free = self.sockets.iter().position(Option::is_none);
        let at = free.unwrap_or(self.sockets.len());
        if at == self.sockets.len() {
            self.sockets.push(None);
        }
        self.sockets[at] = Some(socket);
        HostFd(at as i32)
    }
}

fn address(any: SocketAddrAny) -> rustix::io::Result<SocketAddr> {
    SocketAddr::try_from(any).map_err(|_| Raw::AFNOSUPPORT)
}

fn protocol(socket: BorrowedFd<'_>) -> rustix::io::Result<Option<Protocol>> {
    Ok(match sockopt::socket_protocol(socket)? {
        Some(ipproto::TCP) => Some(Protocol::Tcp),
        Some(ipproto::UDP) => Some(Protocol::Udp),
        _ => None,
    })
}

impl<H> Sockets for Backend<'_, H> {
    fn hold_socket(&mut self, descriptor: i32) -> Result<HostFd> {
        let copy = self.descriptor(descriptor).ok_or(Errno::EBADF)?;
        Ok(self.keep_socket(copy))
    }

    fn release_socket(&mut self, socket: HostFd) {
        let held = usize::try_from(socket.0).ok().and_then(|at| self.sockets.get_mut(at));
        if let Some(held) = held {
            *held = None;
        }
    }

    fn socket_kind(&mut self, socket: HostFd) -> Result<SocketKind> {
        self.with_socket(socket, |socket| {
            let name = address(getsockname(socket)?)?;
            Ok(SocketKind { protocol: protocol(socket)?, name })
        })
    }

    fn socket_cookie(&mut self, socket: HostFd) -> Result<u64> {
        self.with_socket(socket, |socket| sockopt::socket_cookie(socket))
    }

    fn socket_option(&mut self, socket: HostFd, option: SocketOption) -> Result<bool> {
        self.with_socket(socket, |socket| match option {
            SocketOption::OnlySix => sockopt::ipv6_v6only(socket),
            SocketOption::ReuseAddress => sockopt::socket_reuseaddr(socket),
            SocketOption::SharePort => sockopt::socket_reuseport(socket),
            SocketOption::BindWithoutPort => Err(Raw::OPNOTSUPP),
        })
    }

    fn bind_socket(&mut self, socket: HostFd, address: SocketAddr) -> Result<()> {
        self.with_socket(socket, |socket| bind(socket, &address))
    }

    fn socket_name(&mut self, socket: HostFd, peer: bool) -> Result<SocketAddr> {
        self.with_socket(socket, |socket| {
            if !peer {
                return address(getsockname(socket)?);
            }
            let mut bytes = [0; LONGEST];
            // The kernel wants no more room than the address needs.
            let length = match peer_name(socket, &mut bytes) {
                Err(Raw::INVAL) => peer_name(socket, &mut bytes[..SHORTEST])?,
                told => told?,
            };
            given(&bytes[..length]).ok_or(Raw::AFNOSUPPORT)
        })
    }

    fn set_socket_option(&mut self, socket: HostFd, option: SocketOption, on: bool) -> Result<()> {
        self.with_socket(socket, |socket| match option {
            SocketOption::OnlySix => sockopt::set_ipv6_v6only(socket, on),
            SocketOption::ReuseAddress => sockopt::set_socket_reuseaddr(socket, on),
            SocketOption::SharePort => sockopt::set_socket_reuseport(socket, on),
            SocketOption::BindWithoutPort => sys::socket::set_bind_without_port(socket, on),
        })
    }

    fn twin_socket(&mut self, socket: HostFd, reuse: bool) -> Result<HostFd> {
        let twin = self.with_socket(socket, |socket| {
            let (domain, kind) = (sockopt::socket_domain(socket)?, sockopt::socket_type(socket)?);
            let protocol = sockopt::socket_protocol(socket)?;
            let twin = socket_with(domain, kind, SocketFlags::CLOEXEC, protocol)?;
            if reuse {
                sockopt::set_socket_reuseaddr(&twin, sockopt::socket_reuseaddr(socket)?)?;
                sockopt::set_socket_reuseport(&twin, sockopt::socket_reuseport(socket)?)?;
            }
            Ok(twin)
        })?;
        Ok(self.keep_socket(twin))
    }

    fn close_twin(&mut self, twin: HostFd) {
        self.release_socket(twin);
    }

    fn ask_sockets(&mut self, request: &[u8], answer: &mut [u8]) -> Result<usize> {
        ask_netlink(Some(netlink::SOCK_DIAG), request, answer).map_err(errno)
    }

    fn ask_routes(&mut self, request: &[u8], answer: &mut [u8]) -> Result<usize> {
        ask_netlink(None, request, answer).map_err(errno)
    }

    fn is_for_routes(&mut self, socket: HostFd) -> bool {
        let is_it = self.with_socket(socket, |socket| {
            let family = sockopt::socket_domain(socket)?;
            Ok(family == rustix::net::AddressFamily::NETLINK
                && sockopt::socket_protocol(socket)?.is_none())
        });
        is_it == Ok(true)
    }

    fn ask_agent(
        &mut self,
        agent: SocketAddrV4,
        question: &[u8],
        answer: &mut [u8],
    ) -> Result<usize> {
        let mut ask = || {
            let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
            let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
            let wait = Duration::from_millis(WAIT_MS.into());
            sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(wait))?;
            connect(&socket, &agent)?;
            send(&socket, question, SendFlags::empty())?;
            match recv(&socket, &mut *answer, RecvFlags::empty()) {
                Err(Raw::AGAIN | Raw::INTR) => Err(Raw::TIMEDOUT),
                told => told.map(|(length, _)| length),
            }
        };
        ask().map_err(errno)
    }

    fn socket_protocol(&mut self, socket: HostFd) -> Result<Option<Protocol>> {
        self.with_socket(socket, protocol)
    }

    fn ticks(&mut self) -> u64 {
        sys::socket::ticks()
    }
}
