//! Makes pairs of network devices, and gives devices IPv6 addresses. See
//! [rtnetlink(7)](https://man7.org/linux/man-pages/man7/rtnetlink.7.html) and
//! [veth(4)](https://man7.org/linux/man-pages/man4/veth.4.html).

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const AF_INET6: u8 = 10;
/// The kernel does not ask for a second whether another device has the address.
const IFA_F_NODAD: u8 = 2;
/// Size of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Size of `struct ifinfomsg`, of which nothing is set here.
const INFO: [u8; 16] = [0; 16];

/// Makes a pair of devices: what one sends, the other receives. `near` is in the calling process's
/// network namespace, `far` in that of the file `there` (one of `/proc/PID/ns/net`).
///
/// # Errors
/// EPERM without `CAP_NET_ADMIN` in both; EOPNOTSUPP where the kernel has no such devices; EEXIST.
pub fn make_pair(near: &str, far: &str, there: BorrowedFd<'_>) -> Result<(), Errno> {
    ask(&message(near, far, there.as_raw_fd()))
}

/// Gives the device with this number an IPv6 address and the route to its range, which has so many
/// bits. It can be used at once: nobody else may have it, so nobody is asked.
///
/// # Errors
/// EPERM without `CAP_NET_ADMIN`; EOPNOTSUPP where the kernel has no IPv6; EACCES where the device
/// has none; EEXIST.
pub fn add_address(device: u32, address: Ipv6Addr, bits: u8) -> Result<(), Errno> {
    ask(&new_address(device, address, bits))
}

/// Sends a message to the kernel, and hears what came of it.
fn ask(message: &[u8]) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC;
    // The protocol of routes and devices is number 0.
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    let kernel = SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(&socket, message, SendFlags::empty(), &kernel)?;
    let mut answer = [0; 1024];
    let receive = || rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty());
    let (length, _) = rustix::io::retry_on_intr(receive)?;
    outcome(answer.get(..length).unwrap_or_default())
}

fn message(near: &str, far: &str, there: i32) -> Vec<u8> {
    let name = |name: &str| attribute(IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
    let peer = [&INFO[..], &name(far), &attribute(IFLA_NET_NS_FD, &there.to_ne_bytes())].concat();
    let kind = attribute(IFLA_INFO_KIND, b"veth\0");
    let data = attribute(IFLA_INFO_DATA, &attribute(VETH_INFO_PEER, &peer));
    let body = [&INFO[..], &name(near), &attribute(IFLA_LINKINFO, &[kind, data].concat())].concat();
    whole(RTM_NEWLINK, &body)
}

fn new_address(device: u32, address: Ipv6Addr, bits: u8) -> Vec<u8> {
    // `struct ifaddrmsg`; the kernel finds the scope by the address.
    let head = [&[AF_INET6, bits, IFA_F_NODAD, 0][..], &device.to_ne_bytes()].concat();
    let [own, other] = [IFA_LOCAL, IFA_ADDRESS].map(|kind| attribute(kind, &address.octets()));
    whole(RTM_NEWADDR, &[head, own, other].concat())
}

/// A message that makes something.
fn whole(kind: u16, body: &[u8]) -> Vec<u8> {
    let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    let mut all = Vec::with_capacity(HEADER + body.len());
    all.extend_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
    all.extend_from_slice(&kind.to_ne_bytes());
    all.extend_from_slice(&flags.to_ne_bytes());
    // Number and sender: the only message of this socket.
    all.extend_from_slice(&[0; 8]);
    all.extend_from_slice(body);
    all
}

/// `struct rtattr` and its value, up to the next multiple of 4.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(value.len() + 8);
    all.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
    all.extend_from_slice(&kind.to_ne_bytes());
    all.extend_from_slice(value);
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

/// The result that an answer gives: a message of type error, whose number is 0 if all went well.
fn outcome(answer: &[u8]) -> Result<(), Errno> {
    let kind = answer.get(4..6).and_then(|kind| Some(u16::from_ne_bytes(kind.try_into().ok()?)));
    let number = answer.get(HEADER..HEADER + 4).and_then(|number| number.try_into().ok());
    match (kind, number.map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(number)) => Err(Errno::from_raw_os_error(-number)),
        _ => Err(Errno::PROTO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_their_length_before_and_end_at_multiples_of_four() {
        assert_eq!(attribute(3, b"ab\0"), [7, 0, 3, 0, b'a', b'b', 0, 0]);
        let message = message("eth0", "p0", 5);
        assert_eq!(message.len(), message[0] as usize);
        assert!(message.len().is_multiple_of(4));
        let address = new_address(3, Ipv6Addr::LOCALHOST, 64);
        assert_eq!(address[..4], 64_u32.to_ne_bytes());
        assert_eq!(address[4..6], 20_u16.to_ne_bytes());
        assert_eq!(address[16..20], [10, 64, 2, 0]);
        assert_eq!(address[20..24], 3_u32.to_ne_bytes());
        assert_eq!((address[43], address[63], address.len()), (1, 1, 64));
        // Where everything is allowed, there is no such device.
        let refused = add_address(u32::MAX, Ipv6Addr::LOCALHOST, 64);
        assert!(refused.is_err(), "{refused:?}");
    }

    #[test]
    fn answers_are_told_apart() {
        let answer = |kind: u16, number: i32| {
            let mut bytes = vec![0; 36];
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes[16..20].copy_from_slice(&number.to_ne_bytes());
            bytes
        };
        assert_eq!(outcome(&answer(2, 0)), Ok(()));
        assert_eq!(outcome(&answer(2, -17)), Err(Errno::EXIST));
        assert_eq!(outcome(&answer(3, 0)), Err(Errno::PROTO));
        assert_eq!(outcome(&[]), Err(Errno::PROTO));
    }
}
