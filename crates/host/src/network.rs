//! Tries what networks of containers need: addresses of the loopback, and in network namespaces a
//! device that a program can feed with packets.
//!
//! Such a device is a TAP (`/dev/net/tun`), or one end of a veth pair that is read through a packet
//! socket: packet(7), veth(4). Both are tried in a new user and network namespace, which is thrown
//! away.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};
use sys::probe::Link;
use sys::socket::ask_netlink;

use crate::Trial;
use crate::attempt::{Failure, Step, attempt};
use crate::namespaces::enter_user_namespace;

/// Results of the trials.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Networking {
    /// Addresses of 127.0.0.0/8 other than the first can be bound, from which networks with names
    /// are made.
    pub loopback: Trial,
    /// `/dev/net/tun` can be opened in a network namespace.
    pub tun: Trial,
    /// A veth pair and a packet socket can be made in one.
    pub veth: Trial,
}

/// Where containers' real addresses may lie.
const LOOPBACK: Ipv4Addr = Ipv4Addr::new(127, 64, 0, 1);
const TUN: &str = "/dev/net/tun";

/// Asks for a pair of devices: `RTM_NEWLINK` (rtnetlink(7)) with `IFLA_LINKINFO` of the kind
/// "veth".
const VETH: [u8; 48] = {
    let mut request = [0; 48];
    request[0] = 48;
    // `RTM_NEWLINK`; `NLM_F_REQUEST | NLM_F_ACK | NLM_F_EXCL | NLM_F_CREATE`.
    (request[4], request[6], request[7]) = (16, 5, 6);
    // Behind `struct ifinfomsg`: `IFLA_LINKINFO`, in it `IFLA_INFO_KIND`.
    (request[32], request[34]) = (16, 18);
    (request[36], request[38]) = (9, 1);
    [request[40], request[41], request[42], request[43]] = *b"veth";
    request
};
const NLMSG_ERROR: u16 = 2;

impl Networking {
    pub(crate) fn probe(namespace: &Trial, timeout: Duration) -> Self {
        let within = |how: &str, step: fn() -> Result<(), Failure>| {
            if namespace.is_fails() {
                return Trial::fails(how, "needs a network namespace");
            }
            trial(how, attempt(timeout, |link| enter(link).and_then(|()| step())))
        };
        let tun = within("open(/dev/net/tun) in a network namespace in a child", open_tun);
        let veth = within("RTM_NEWLINK (veth) and socket(AF_PACKET), likewise", make_veth);
        Self {
            loopback: trial("bind(127.64.0.1)", bind_loopback())
                .advise("administrator: ip link set lo up"),
            tun: tun.advise("administrator: modprobe tun && chmod 0666 /dev/net/tun"),
            veth: veth.advise("administrator: modprobe veth af_packet"),
        }
    }
}

fn trial(how: &str, done: Result<(), Failure>) -> Trial {
    match done {
        Ok(()) => Trial::works(how),
        Err(failure) => Trial::fails(how, failure.why()).with_errno(failure.number()),
    }
}

fn bind_loopback() -> Result<(), Failure> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .step("socket")?;
    bind(&socket, &SocketAddr::from((LOOPBACK, 0))).step("bind")
}

fn enter(link: &Link) -> Result<(), Failure> {
    enter_user_namespace(link)?;
    link.unshare(UnshareFlags::NEWNET).step("unshare(CLONE_NEWNET)")
}

fn open_tun() -> Result<(), Failure> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(TUN, flags, Mode::empty()).step("open(/dev/net/tun)").map(drop)
}

fn make_veth() -> Result<(), Failure> {
    let mut answer = [0; 256];
    let length = ask_netlink(None, &VETH, &mut answer).step("RTM_NEWLINK")?;
    let told = answer.get(..length).and_then(error_of).unwrap_or(Errno::BADMSG.raw_os_error());
    if told != 0 {
        return Err(Failure::new("RTM_NEWLINK (veth)", Errno::from_raw_os_error(told)));
    }
    let family = AddressFamily::PACKET;
    socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, None)
        .step("socket(AF_PACKET)")
        .map(drop)
}

/// The error number in an answer; 0 for success.
fn error_of(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_le_bytes(answer.get(4..6)?.try_into().ok()?);
    let code = i32::from_le_bytes(answer.get(16..20)?.try_into().ok()?);
    (kind == NLMSG_ERROR).then_some(-code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_well_formed() {
        assert_eq!(u32::from_le_bytes(VETH[..4].try_into().unwrap()), 48);
        // The outer attribute ends with the message, the inner one with the kind's NUL.
        assert_eq!((32 + VETH[32] as usize, 36 + VETH[36] as usize), (48, 45));
        assert_eq!(&VETH[40..45], b"veth\0");
    }

    #[test]
    fn answers() {
        let mut answer = [0; 20];
        answer[4] = 2;
        assert_eq!(error_of(&answer), Some(0));
        answer[16..].copy_from_slice(&(-95_i32).to_le_bytes());
        assert_eq!((error_of(&answer), error_of(&answer[..19])), (Some(95), None));
    }

    #[test]
    fn without_a_namespace_nothing_is_tried() {
        let found = Networking::probe(&Trial::fails("unshare", "no"), Duration::from_secs(3));
        assert!(found.tun.is_fails() && found.veth.is_fails());
        assert!(found.loopback.is_works(), "{found:?}");
    }
}
