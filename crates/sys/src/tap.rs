//! Makes a TAP device: an ethernet device whose frames a program reads and writes. See the kernel's
//! `Documentation/networking/tuntap.rst`.

use crate::link::Request;
use crate::raw;
use linux_raw_sys::general::__NR_ioctl;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};

/// The file that makes such devices.
pub const DEVICE: &str = "/dev/net/tun";

const TUNSETIFF: usize = 0x4004_54ca;
const TUNSETOFFLOAD: usize = 0x4004_54d0;
const IFF_TAP: u16 = 0x0002;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
const TUN_F_CSUM: usize = 1;
const TUN_F_TSO4: usize = 2;

/// Why the caller may not make one, if that is so. Nothing is made.
pub fn check() -> Result<(), Errno> {
    open().map(drop)
}

fn open() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(DEVICE, flags, Mode::empty())
}

/// Makes one with this name in the calling process's network namespace. A read returns a frame, a
/// write takes one, each behind a `virtio_net_hdr` of 10 bytes: checksums may be missing, and a
/// frame of TCP may be larger than the device's packets are. Calls do not block.
///
/// # Errors
/// Those of opening [`DEVICE`]; EPERM without `CAP_NET_ADMIN` in the namespace; EBUSY.
pub fn make(name: &str) -> Result<OwnedFd, Errno> {
    let file = open()?;
    let mut request = Request::of(name)?;
    let flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    request.value[..2].copy_from_slice(&flags.to_ne_bytes());
    request.call(&file, TUNSETIFF)?;
    let arguments = [file.as_raw_fd() as usize, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4, 0, 0];
    // SAFETY: this call takes a number, no pointer.
    unsafe { raw::call(__NR_ioctl, arguments) }?;
    Ok(file)
}
