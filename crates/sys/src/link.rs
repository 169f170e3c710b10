//! Network devices of the calling process's network namespace.
//!
//! These are the calls of [netdevice(7)](https://man7.org/linux/man-pages/man7/netdevice.7.html),
//! which every kernel has, and which are shorter than their forms in netlink. What they cannot do,
//! a pair of devices in two namespaces, is in [`crate::netlink`].

use crate::raw;
use linux_raw_sys::general as numbers;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

const SIOCADDRT: usize = 0x890b;
const SIOCGIFCONF: usize = 0x8912;
const SIOCGIFFLAGS: usize = 0x8913;
const SIOCSIFFLAGS: usize = 0x8914;
const SIOCSIFADDR: usize = 0x8916;
const SIOCGIFNETMASK: usize = 0x891b;
const SIOCSIFNETMASK: usize = 0x891c;
const SIOCSIFMTU: usize = 0x8922;
const SIOCSIFHWADDR: usize = 0x8924;
const SIOCGIFINDEX: usize = 0x8933;
const IFF_UP: u16 = 1;
const IFF_RUNNING: u16 = 0x40;
const AF_INET: u16 = 2;
const RTF_UP: u16 = 1;
const RTF_GATEWAY: u16 = 2;
/// `ARPHRD_ETHER` of `if_arp.h`.
const ETHERNET: u16 = 1;

/// Longest name of a device, with the zero behind it.
pub const NAME: usize = 16;

/// `struct ifreq`: a name and a union of 24 bytes.
#[repr(C, align(8))]
pub(crate) struct Request {
    name: [u8; NAME],
    pub(crate) value: [u8; 24],
}

impl Request {
    /// One for a device, its value zero.
    pub(crate) fn of(name: &str) -> Result<Self, Errno> {
        let mut request = Self { name: [0; NAME], value: [0; 24] };
        let place = request.name.get_mut(..name.len()).filter(|place| place.len() < NAME);
        place.ok_or(Errno::NAMETOOLONG)?.copy_from_slice(name.as_bytes());
        Ok(request)
    }

    fn with(name: &str, parts: &[&[u8]]) -> Result<Self, Errno> {
        let mut request = Self::of(name)?;
        let mut at = 0;
        for part in parts {
            request.value[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        Ok(request)
    }

    /// An `ioctl` that takes one.
    pub(crate) fn call(&mut self, file: &OwnedFd, number: usize) -> Result<(), Errno> {
        let descriptor = file.as_raw_fd() as usize;
        let request = std::ptr::from_mut(self) as usize;
        // SAFETY: the calls of this crate that take an `ifreq` read and write one; `Request` has
        // its layout and outlives them.
        unsafe { raw::call(numbers::__NR_ioctl, [descriptor, number, request, 0, 0]) }.map(drop)
    }
}

/// Devices are changed through any socket of their namespace.
fn socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}

/// Sets `lo` up.
pub fn loopback_up() -> Result<(), Errno> {
    up("lo")
}

/// Sets a device up.
pub fn up(name: &str) -> Result<(), Errno> {
    let socket = socket()?;
    let mut request = Request::of(name)?;
    request.call(&socket, SIOCGIFFLAGS)?;
    let flags = u16::from_ne_bytes([request.value[0], request.value[1]]) | IFF_UP;
    request.value[..2].copy_from_slice(&flags.to_ne_bytes());
    request.call(&socket, SIOCSIFFLAGS)
}

/// Gives a device an IPv4 address and the route to its subnet, which has so many bits.
pub fn set_address(name: &str, address: Ipv4Addr, bits: u8) -> Result<(), Errno> {
    let socket = socket()?;
    let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
    for (number, value) in [(SIOCSIFADDR, address), (SIOCSIFNETMASK, Ipv4Addr::from_bits(mask))] {
        // `sockaddr_in`: family, port, address.
        let parts: [&[u8]; 3] = [&AF_INET.to_ne_bytes(), &[0; 2], &value.octets()];
        Request::with(name, &parts)?.call(&socket, number)?;
    }
    Ok(())
}

/// The devices that have IPv4 addresses, each with its first one and those that have labels of
/// their own, at most 128 in all.
pub fn addresses() -> Result<Vec<(String, Ipv4Addr)>, Errno> {
    const MOST: usize = 128;
    /// `struct ifconf`.
    #[repr(C)]
    struct Conf {
        length: i32,
        requests: *mut Request,
    }
    let socket = socket()?;
    let mut all: Vec<Request> =
        (0..MOST).map(|_| Request { name: [0; NAME], value: [0; 24] }).collect();
    let length = (MOST * size_of::<Request>()) as i32;
    let mut conf = Conf { length, requests: all.as_mut_ptr() };
    let arguments = [socket.as_raw_fd() as usize, SIOCGIFCONF, (&raw mut conf) as usize, 0, 0];
    // SAFETY: the call reads and writes one `ifconf`, which `Conf` has the layout of, and writes at
    // most `length` bytes of `ifreq` to where it points: `all` has so many, and outlives the call.
    unsafe { raw::call(numbers::__NR_ioctl, arguments) }?;
    let count = usize::try_from(conf.length).unwrap_or(0) / size_of::<Request>();
    let found = all.iter().take(count).map(|request| {
        let name = request.name.split(|&byte| byte == 0).next().unwrap_or_default();
        let [_, _, _, _, a, b, c, d, ..] = request.value;
        (String::from_utf8_lossy(name).into_owned(), Ipv4Addr::new(a, b, c, d))
    });
    Ok(found.collect())
}

/// How many leading bits an address of a device has in common with those of its subnet.
///
/// # Errors
/// EADDRNOTAVAIL if the device has not this address; ENODEV.
pub fn prefix(name: &str, address: Ipv4Addr) -> Result<u8, Errno> {
    // `devinet_ioctl` of the kernel takes the address, if there is one, for which of several it is.
    let parts: [&[u8]; 3] = [&AF_INET.to_ne_bytes(), &[0; 2], &address.octets()];
    let mut request = Request::with(name, &parts)?;
    request.call(&socket()?, SIOCGIFNETMASK)?;
    let [_, _, _, _, a, b, c, d, ..] = request.value;
    Ok(u32::from_be_bytes([a, b, c, d]).leading_ones() as u8)
}

/// Whether a device is up and can send: a bridge without ports cannot.
///
/// # Errors
/// ENODEV.
pub fn is_running(name: &str) -> Result<bool, Errno> {
    let mut request = Request::of(name)?;
    request.call(&socket()?, SIOCGIFFLAGS)?;
    let flags = u16::from_ne_bytes([request.value[0], request.value[1]]);
    Ok(flags & (IFF_UP | IFF_RUNNING) == IFF_UP | IFF_RUNNING)
}

/// `struct rtentry`; `sockaddr_in` in its addresses.
#[repr(C)]
#[derive(Default)]
struct Route {
    before: usize,
    destination: [u8; 16],
    gateway: [u8; 16],
    mask: [u8; 16],
    flags: u16,
    unused: i16,
    padding: usize,
    service: [u8; 8],
    metric: i16,
    device: usize,
    mtu: usize,
    window: usize,
    round_trip: u16,
}

/// Adds a default route by a gateway, an IPv4 address that a device reaches that is up.
///
/// # Errors
/// EPERM; ENETUNREACH where no device reaches it; EEXIST.
pub fn set_gateway(gateway: Ipv4Addr) -> Result<(), Errno> {
    let address = |value: Ipv4Addr| {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&AF_INET.to_ne_bytes());
        bytes[4..8].copy_from_slice(&value.octets());
        bytes
    };
    let route = Route {
        destination: address(Ipv4Addr::UNSPECIFIED),
        gateway: address(gateway),
        mask: address(Ipv4Addr::UNSPECIFIED),
        flags: RTF_UP | RTF_GATEWAY,
        ..Route::default()
    };
    let socket = socket()?;
    let place = (&raw const route).expose_provenance();
    let arguments = [socket.as_raw_fd() as usize, SIOCADDRT, place, 0, 0];
    // SAFETY: the kernel reads a `rtentry`, whose layout `Route` has and which outlives the call;
    // its pointer to a device's name is null.
    unsafe { raw::call(numbers::__NR_ioctl, arguments) }.map(drop)
}

/// Sets the longest packet that a device takes, in bytes without the ethernet header.
pub fn set_mtu(name: &str, mtu: u32) -> Result<(), Errno> {
    Request::with(name, &[&mtu.to_ne_bytes()])?.call(&socket()?, SIOCSIFMTU)
}

/// Sets a device's ethernet address.
pub fn set_ethernet(name: &str, address: [u8; 6]) -> Result<(), Errno> {
    Request::with(name, &[&ETHERNET.to_ne_bytes(), &address])?.call(&socket()?, SIOCSIFHWADDR)
}

/// A device's number in its namespace.
pub fn index(name: &str) -> Result<u32, Errno> {
    let mut request = Request::of(name)?;
    request.call(&socket()?, SIOCGIFINDEX)?;
    let [a, b, c, d, ..] = request.value;
    Ok(u32::from_ne_bytes([a, b, c, d]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_namespace_has_a_loopback() {
        assert_eq!(index("lo"), Ok(1));
        assert_eq!(index("no-such-device"), Err(Errno::NODEV));
        assert_eq!(index("a-name-that-is-too-long"), Err(Errno::NAMETOOLONG));
        assert_eq!(is_running("no-such-device"), Err(Errno::NODEV));
        for (name, address) in addresses().unwrap() {
            let bits = prefix(&name, address).unwrap();
            assert!((1..=32).contains(&bits) && is_running(&name).is_ok(), "{name} {bits}");
            if address == Ipv4Addr::LOCALHOST {
                assert_eq!(bits, 8);
            }
        }
    }
}
