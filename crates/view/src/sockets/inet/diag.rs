//! Asks the kernel which socket is bound to an address and port ([`abi::network::diag`]).

use crate::sockets::host::Sockets;
pub(super) use abi::network::diag::Found;
use abi::network::{Port, Protocol, diag};
use core::net::{Ipv4Addr, SocketAddrV4};

/// Finds the socket that gets what is sent to the place of an entry: of TCP one that listens, of
/// UDP one that takes it from this source.
pub(super) fn find(
    host: &mut impl Sockets,
    port: &Port,
    from: Option<(Ipv4Addr, u16)>,
) -> Option<Found> {
    let from = from.filter(|_| port.protocol == Protocol::Udp);
    exact(host, port.protocol, (port.real, port.real_port), from)
}

/// Finds the socket at a place; with `from` that which takes what comes from there.
pub(super) fn exact(
    host: &mut impl Sockets,
    protocol: Protocol,
    to: (Ipv4Addr, u16),
    from: Option<(Ipv4Addr, u16)>,
) -> Option<Found> {
    let place = |(address, port)| SocketAddrV4::new(address, port);
    let (to, from) = (place(to), from.map(place));
    let mut answer = [0; 256];
    let length = host.ask_sockets(&diag::question(protocol, to, from), &mut answer).ok()?;
    diag::answer(answer.get(..length)?)
}
