//! Where a frame goes: what [`super::frame`] finds out.

use std::net::Ipv4Addr;

use crate::prefix::Prefix;
use crate::subnet::Subnet;

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// To the member with this address.
    Member(Ipv4Addr),
    /// To all members.
    All,
    /// To nobody: it asks for the ethernet address of this member.
    Question(Ipv4Addr),
    /// Out of the network.
    Outside,
    /// Nowhere: it is none of IP, damaged, or from an address that is not the sender's.
    Nowhere,
}

/// The addresses of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranges {
    /// Those of IPv4.
    pub subnet: Subnet,
    /// Those of IPv6, if it has some.
    pub prefix: Option<Prefix>,
}
