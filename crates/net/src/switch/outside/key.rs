//! By what packets of a container are told apart.

use std::net::SocketAddrV4;

/// How the container speaks with the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Protocol {
    Tcp,
    Udp,
    Echo,
}

/// By what packets of one connection or flow are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) protocol: Protocol,
    /// The container's port; of echoes the number that their sender has chosen.
    pub(super) port: u16,
    /// The other side, as the container knows it; of echoes with port 0.
    pub(super) other: SocketAddrV4,
}
