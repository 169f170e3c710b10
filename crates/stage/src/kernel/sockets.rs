//! [`view::guest::Sockets`]: calls on the guest's sockets, which are this process's own.

use super::linux::{fd, reads, writes};
use super::{Backend, calls};
use abi::network::Protocol;
use abi::network::ask::WAIT_MS;
use core::net::{SocketAddr, SocketAddrV4};
use linux_raw_sys::general as raw;
use linux_raw_sys::net;
use view::errno::Result;
use view::guest::{SocketKind, SocketOption, Sockets};
use view::sockets::inet::{LONGEST, SHORTEST, given, spell};
use view::{Errno, HostFd};

/// `SOCK_DGRAM`.
const DATAGRAMS: u32 = 2;
/// `SOCK_RAW`.
const RAW: u32 = 3;
const NETLINK_ROUTE: u32 = 0;
const NETLINK_SOCK_DIAG: u32 = 4;
const IPV6_V6ONLY: u32 = 26;
const IPPROTO_IP: u32 = 0;
const IPPROTO_TCP: u32 = 6;
const IPPROTO_UDP: u32 = 17;
const IPPROTO_IPV6: u32 = 41;

/// An option that is a number.
fn option(socket: HostFd, level: u32, name: u32) -> Result<u32> {
    let (mut value, mut length) = (0_u32, size_of::<u32>() as u32);
    let (at, length) = (&raw mut value as u64, &raw mut length as u64);
    writes!(__NR_getsockopt, fd(socket), level.into(), name.into(), at, length)?;
    Ok(value)
}

fn protocol(socket: HostFd) -> Result<Option<Protocol>> {
    Ok(match option(socket, net::SOL_SOCKET, net::SO_PROTOCOL)? {
        IPPROTO_TCP => Some(Protocol::Tcp),
        IPPROTO_UDP => Some(Protocol::Udp),
        _ => None,
    })
}

const fn number(option: SocketOption) -> (u32, u32) {
    match option {
        SocketOption::OnlySix => (IPPROTO_IPV6, IPV6_V6ONLY),
        SocketOption::ReuseAddress => (net::SOL_SOCKET, net::SO_REUSEADDR),
        SocketOption::SharePort => (net::SOL_SOCKET, net::SO_REUSEPORT),
        SocketOption::BindWithoutPort => (IPPROTO_IP, net::IP_BIND_ADDRESS_NO_PORT),
    }
}

fn set_option(socket: HostFd, level: u32, name: u32, value: u32) -> Result<()> {
    let (at, length) = (&raw const value as u64, size_of::<u32>() as u64);
    reads!(__NR_setsockopt, fd(socket), level.into(), name.into(), at, length).map(drop)
}

fn cookie(socket: HostFd) -> Result<u64> {
    let (mut value, mut length) = (0_u64, size_of::<u64>() as u32);
    let (at, length) = (&raw mut value as u64, &raw mut length as u64);
    let (level, name) = (u64::from(net::SOL_SOCKET), u64::from(net::SO_COOKIE));
    writes!(__NR_getsockopt, fd(socket), level, name, at, length)?;
    Ok(value)
}

fn open(family: u32, kind: u32, protocol: u32) -> Result<HostFd> {
    let kind = kind | raw::O_CLOEXEC;
    let socket = reads!(__NR_socket, family.into(), kind.into(), protocol.into())?;
    Ok(HostFd(socket as i32))
}

fn ask_by_datagram(
    socket: HostFd,
    agent: SocketAddrV4,
    question: &[u8],
    answer: &mut [u8],
) -> Result<usize> {
    let mut place = [0; LONGEST];
    let length = spell(agent.into(), &mut place);
    reads!(__NR_connect, fd(socket), place.as_ptr() as u64, length as u64)?;
    // `struct timeval` of the kernel (`__kernel_old_timeval`).
    let wait = [u64::from(WAIT_MS / 1000), u64::from(WAIT_MS % 1000) * 1000];
    let (level, name) = (u64::from(net::SOL_SOCKET), u64::from(net::SO_RCVTIMEO_OLD));
    let (at, length) = (wait.as_ptr() as u64, size_of_val(&wait) as u64);
    reads!(__NR_setsockopt, fd(socket), level, name, at, length)?;
    let (at, length) = (question.as_ptr() as u64, question.len() as u64);
    reads!(__NR_sendto, fd(socket), at, length, 0, 0, 0)?;
    let (at, length) = (answer.as_mut_ptr() as u64, answer.len() as u64);
    match writes!(__NR_recvfrom, fd(socket), at, length, 0, 0, 0) {
        Err(Errno::EAGAIN | Errno::EINTR) => Err(Errno::ETIMEDOUT),
        told => told.map(|length| length as usize),
    }
}

/// Asks a part of the kernel by netlink(7).
fn ask(protocol: u32, request: &[u8], answer: &mut [u8]) -> Result<usize> {
    let socket = open(net::AF_NETLINK, RAW, protocol)?;
    let (at, length) = (request.as_ptr() as u64, request.len() as u64);
    let sent = reads!(__NR_sendto, fd(socket), at, length, 0, 0, 0);
    let answered = sent.and_then(|_| {
        let (at, length) = (answer.as_mut_ptr() as u64, answer.len() as u64);
        writes!(__NR_recvfrom, fd(socket), at, length, 0, 0, 0)
    });
    calls::close(socket.0);
    answered.map(|length| length as usize)
}

impl Sockets for Backend<'_> {
    fn hold_socket(&mut self, descriptor: i32) -> Result<HostFd> {
        Ok(HostFd(descriptor))
    }

    fn release_socket(&mut self, _socket: HostFd) {}

    fn socket_kind(&mut self, socket: HostFd) -> Result<SocketKind> {
        let name = self.socket_name(socket, false)?;
        Ok(SocketKind { protocol: protocol(socket)?, name })
    }

    fn socket_cookie(&mut self, socket: HostFd) -> Result<u64> {
        cookie(socket)
    }

    fn socket_option(&mut self, socket: HostFd, which: SocketOption) -> Result<bool> {
        let (level, name) = number(which);
        option(socket, level, name).map(|value| value != 0)
    }

    fn bind_socket(&mut self, socket: HostFd, address: SocketAddr) -> Result<()> {
        let mut bytes = [0; LONGEST];
        let length = spell(address, &mut bytes);
        reads!(__NR_bind, fd(socket), bytes.as_ptr() as u64, length as u64).map(drop)
    }

    fn socket_name(&mut self, socket: HostFd, peer: bool) -> Result<SocketAddr> {
        let mut bytes = [0_u8; LONGEST];
        let length = if peer {
            let (level, name) = (u64::from(net::SOL_SOCKET), u64::from(net::SO_PEERNAME));
            let mut ask = |mut length: u32| {
                let (at, size) = (bytes.as_mut_ptr() as u64, &raw mut length as u64);
                writes!(__NR_getsockopt, fd(socket), level, name, at, size)?;
                Ok(length)
            };
            // The kernel wants no more room than the address needs.
            match ask(LONGEST as u32) {
                Err(Errno::EINVAL) => ask(SHORTEST as u32)?,
                told => told?,
            }
        } else {
            let mut length = LONGEST as u32;
            let (at, size) = (bytes.as_mut_ptr() as u64, &raw mut length as u64);
            writes!(__NR_getsockname, fd(socket), at, size)?;
            length
        };
        given(bytes.get(..length as usize).ok_or(Errno::EAFNOSUPPORT)?).ok_or(Errno::EAFNOSUPPORT)
    }

    fn set_socket_option(&mut self, socket: HostFd, option: SocketOption, on: bool) -> Result<()> {
        let (level, name) = number(option);
        set_option(socket, level, name, on.into())
    }

    fn twin_socket(&mut self, socket: HostFd, reuse: bool) -> Result<HostFd> {
        let get = |name| option(socket, net::SOL_SOCKET, name);
        let kinds = (get(net::SO_DOMAIN)?, get(net::SO_TYPE)?, get(net::SO_PROTOCOL)?);
        let twin = open(kinds.0, kinds.1, kinds.2)?;
        for name in [net::SO_REUSEADDR, net::SO_REUSEPORT] {
            if reuse && get(name)? != 0 {
                let _ = set_option(twin, net::SOL_SOCKET, name, 1);
            }
        }
        Ok(twin)
    }

    fn close_twin(&mut self, twin: HostFd) {
        calls::close(twin.0);
    }

    fn ask_sockets(&mut self, request: &[u8], answer: &mut [u8]) -> Result<usize> {
        ask(NETLINK_SOCK_DIAG, request, answer)
    }

    fn ask_routes(&mut self, request: &[u8], answer: &mut [u8]) -> Result<usize> {
        ask(NETLINK_ROUTE, request, answer)
    }

    fn is_for_routes(&mut self, socket: HostFd) -> bool {
        let is = |name, value| option(socket, net::SOL_SOCKET, name) == Ok(value);
        is(net::SO_DOMAIN, net::AF_NETLINK) && is(net::SO_PROTOCOL, NETLINK_ROUTE)
    }

    fn ask_agent(
        &mut self,
        agent: SocketAddrV4,
        question: &[u8],
        answer: &mut [u8],
    ) -> Result<usize> {
        let socket = open(net::AF_INET, DATAGRAMS, 0)?;
        let answered = ask_by_datagram(socket, agent, question, answer);
        calls::close(socket.0);
        answered
    }

    fn socket_protocol(&mut self, socket: HostFd) -> Result<Option<Protocol>> {
        protocol(socket)
    }

    fn ticks(&mut self) -> u64 {
        // SAFETY: every processor of this architecture has the instruction.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
}
