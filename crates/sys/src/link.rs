//! Sets up the loopback interface.

use crate::raw;
use linux_raw_sys::general as numbers;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::AsRawFd;

const SIOCGIFFLAGS: usize = 0x8913;
const SIOCSIFFLAGS: usize = 0x8914;
const IFF_UP: u16 = 1;

/// The part of `struct ifreq` that flags need: a name of 16 bytes and a union of 24.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// Sets `lo` up in the calling process's network namespace. See
/// [netdevice(7)](https://man7.org/linux/man-pages/man7/netdevice.7.html).
pub fn loopback_up() -> Result<(), Errno> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let mut request = Request { name: [0; 16], flags: 0, rest: [0; 22] };
    request.name[..2].copy_from_slice(b"lo");
    let ioctl = |number: usize, request: &mut Request| {
        let descriptor = socket.as_raw_fd() as usize;
        // SAFETY: both calls read and write one `ifreq`; `Request` has its layout and outlives
        // them.
        unsafe {
            raw::call(
                numbers::__NR_ioctl,
                [descriptor, number, std::ptr::from_mut(request) as usize, 0, 0],
            )
        }
        .map(drop)
    };
    ioctl(SIOCGIFFLAGS, &mut request)?;
    request.flags |= IFF_UP;
    ioctl(SIOCSIFFLAGS, &mut request)
}
