//! Addresses of this host: which one other hosts may reach it at.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};

use crate::error::{Error, Result};

/// An address of nobody (RFC 5737): the way to it is the way to everybody.
const ANYBODY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Whether an address is one of this host's.
///
/// # Errors
/// Where the kernel does not say.
pub fn is_own(address: Ipv4Addr) -> io::Result<bool> {
    if address.is_unspecified() {
        return Ok(false);
    }
    match UdpSocket::bind((address, 0)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(false),
        Err(error) => Err(error),
    }
}

/// The address that a user names, if it is one of this host's.
///
/// # Errors
/// [`Error::ForeignAddress`].
pub fn check(address: Ipv4Addr) -> Result<Ipv4Addr> {
    if is_own(address).unwrap_or(false) {
        return Ok(address);
    }
    Err(Error::ForeignAddress { address, own: own() })
}

/// The address of the interface with the default route; without one the only address that is not
/// loopback.
///
/// # Errors
/// [`Error::NoAddress`] if there is none, or more than one.
pub fn default() -> Result<Ipv4Addr> {
    let routed = || -> io::Result<std::net::SocketAddr> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        // No packet is sent.
        socket.connect((ANYBODY, 9))?;
        socket.local_addr()
    };
    if let Ok(std::net::SocketAddr::V4(address)) = routed()
        && !address.ip().is_loopback()
    {
        return Ok(*address.ip());
    }
    match own()[..] {
        [one] => Ok(one),
        ref several => Err(Error::NoAddress { own: several.to_vec() }),
    }
}

/// All addresses of this host but those of loopback.
pub fn own() -> Vec<Ipv4Addr> {
    of_kernel(&std::fs::read_to_string("/proc/self/net/fib_trie").unwrap_or_default())
}

/// Reads them from the kernel's table of routes: an address stands before a line with `LOCAL`.
fn of_kernel(text: &str) -> Vec<Ipv4Addr> {
    let (mut found, mut last) = (Vec::new(), None);
    for line in text.lines() {
        if let Some((_, address)) = line.split_once("|-- ") {
            last = address.trim().parse::<Ipv4Addr>().ok();
        } else if let (true, Some(address)) = (line.trim_end().ends_with("host LOCAL"), last)
            && line.trim_start().starts_with("/32 ")
            && !address.is_loopback()
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_kernel() {
        let text = "Main:
  +-- 0.0.0.0/0 3 0 4
     |-- 0.0.0.0
        /0 universe UNICAST
     |-- 172.17.0.0
        /16 link UNICAST
Local:
  +-- 0.0.0.0/0 3 0 4
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.0
           /8 host LOCAL
        |-- 127.0.0.1
           /32 host LOCAL
     |-- 172.17.0.5
        /32 host LOCAL
     |-- 172.17.255.255
        /32 link BROADCAST
     |-- 172.17.0.5
        /32 host LOCAL
     |-- 10.1.0.7
        /32 host LOCAL
";
        let expected = [Ipv4Addr::new(172, 17, 0, 5), Ipv4Addr::new(10, 1, 0, 7)];
        assert_eq!(of_kernel(text), expected);
        assert!(of_kernel("").is_empty());
    }

    #[test]
    fn own_addresses() {
        assert_eq!(check(Ipv4Addr::LOCALHOST).unwrap(), Ipv4Addr::LOCALHOST);
        for foreign in [Ipv4Addr::UNSPECIFIED, ANYBODY] {
            let error = check(foreign).unwrap_err();
            assert!(error.to_string().contains("is none of this host's"), "{error}");
        }
        if let Ok(address) = default() {
            assert!(is_own(address).unwrap() && !address.is_loopback(), "{address}");
        }
    }
}
