//! The kernel's table of IPv4 routes in the form of `/proc/net/route` ([proc_pid_net(5)]). No I/O.
//!
//! [proc_pid_net(5)]: https://man7.org/linux/man-pages/man5/proc_pid_net.5.html

use std::net::Ipv4Addr;

/// A route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route<'t> {
    /// The device that it leads to.
    pub device: &'t str,
    /// The first address of its destination.
    pub destination: Ipv4Addr,
    /// The next hop; unspecified where the destination is on the link.
    pub gateway: Ipv4Addr,
    /// The bits that addresses of the destination have in common; 0 for a default route.
    pub mask: u32,
}

impl Route<'_> {
    /// Whether an address belongs to the destination of a route that is no default route.
    pub fn has(&self, address: Ipv4Addr) -> bool {
        self.mask != 0 && address.to_bits() & self.mask == self.destination.to_bits()
    }
}

/// The routes of a text. A line that is none is passed over.
pub fn read(text: &str) -> impl Iterator<Item = Route<'_>> {
    text.lines().filter_map(line)
}

/// One line: device, destination, gateway, flags, references, uses, metric, mask. The numbers are
/// as they lie in memory, in the order of the network.
fn line(line: &str) -> Option<Route<'_>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok().map(u32::from_be);
    let address = |at| number(at).map(Ipv4Addr::from_bits);
    Some(Route {
        device: words.first()?,
        destination: address(1)?,
        gateway: address(2)?,
        mask: number(7)?,
    })
}
