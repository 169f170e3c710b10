//! The devices of a container in networks with names: `eth0`, `eth1`, and so on, one for each
//! network.
//!
//! They are made in the container's network namespace, by root of its user namespace, before the
//! program runs. The other side of a device is a descriptor, which goes to the switch
//! ([`super::keeper`]); nothing of it stays in the container's processes.
//!
//! - A **TAP device** is made where the user may open `/dev/net/tun`.
//! - Elsewhere it is a **veth pair**. The end that is not the container's lies in a second network
//!   namespace of the same user namespace, in which no process lives: a packet socket at that end
//!   keeps it. There is no address in it and no version 6, so its kernel says nothing by itself.
//!
//! Both give and take frames behind the same header (`virtio_net_hdr`), so the switch does not know
//! which is which.
//!
//! A device of a network with IPv6 has two addresses of it, which can be used at once. There is no
//! default route of IPv6, so what is sent outside fails at once, unless another device leads there.
//!
//! Where the switch is the way out, too, everything else is routed to the gateway of the first
//! network that has one.
//!
//! The sockets at which the container's programs ask for names are made here too: the agent answers
//! at 127.0.0.11, port 53, of this namespace, and knows by the socket who asks.

use super::leave::unshare;
use crate::error::{Error, Result};
use crate::plan::{Device, Link, Network, Plan, WayOut};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::net::{Ipv6Addr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use sys::namespace::Kinds;
use sys::{link, netlink, packet, tap};

/// Makes a plan's devices, sets them up, and returns their descriptors in the order of the
/// networks, then those of a UDP socket and a TCP listener for questions for names. None where the
/// plan has no networks with names. Called in the container's network namespace.
pub(in crate::engines) fn make(plan: &Plan) -> Result<Vec<OwnedFd>> {
    let Network::Packets(packets) = &plan.network else { return Ok(Vec::new()) };
    let Some(switch) = plan.network.place().and_then(|place| place.switch.as_ref()) else {
        return Ok(Vec::new());
    };
    link::loopback_up().map_err(|errno| Error::call("set the interface lo up", errno))?;
    let links = &switch.links;
    let mut all = match packets.device {
        // What opens may still not make devices, as under a policy of the host.
        Device::Tap => taps(links).or_else(|_| pairs(links))?,
        Device::Veth => pairs(links)?,
    };
    for (number, link) in links.iter().enumerate() {
        let name = name(number);
        set_up(&name, link)
            .map_err(|errno| Error::call(format!("set the interface {name} up"), errno))?;
        if let Some(ipv6) = link.ipv6 {
            let doing = || format!("give the interface {name} the address {}", ipv6.0);
            set_up_ipv6(&name, [(link_local(link.ethernet), 64), ipv6])
                .map_err(|errno| Error::call(doing(), errno))?;
        }
    }
    if let Some(WayOut::Switch { .. }) = packets.outside
        && let Some(gateway) = links.iter().find_map(|link| link.gateway)
    {
        link::set_gateway(gateway)
            .map_err(|errno| Error::call(format!("lead the way out to {gateway}"), errno))?;
    }
    all.extend(sockets().map_err(|error| Error::Call {
        doing: format!("bind {} in the container", abi::network::NAME_SERVER),
        errno: error.into(),
    })?);
    Ok(all)
}

fn name(number: usize) -> String {
    format!("eth{number}")
}

fn taps(links: &[Link]) -> Result<Vec<OwnedFd>> {
    let make = |number| {
        let name = name(number);
        tap::make(&name).map_err(|errno| Error::call(format!("make the TAP device {name}"), errno))
    };
    (0..links.len()).map(make).collect()
}

fn pairs(links: &[Link]) -> Result<Vec<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let here = rustix::fs::open("/proc/self/ns/net", flags, Mode::empty())
        .map_err(|errno| Error::call("open the network namespace", errno))?;
    unshare(Kinds::NET)?;
    // Settings of a namespace may be read-only, as within another container.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    let made = links.iter().enumerate().map(|(number, link)| pair(number, link, &here)).collect();
    move_into_link_name_space(here.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|errno| Error::call("enter the network namespace again", errno))?;
    made
}

/// Makes one pair from the second namespace; the socket at its end there.
fn pair(number: usize, link: &Link, here: &OwnedFd) -> Result<OwnedFd> {
    let (near, far) = (format!("p{number}"), name(number));
    let failed = |doing: &str| {
        let doing = format!("{doing} {far}");
        move |errno: Errno| Error::call(doing, errno)
    };
    netlink::make_pair(&near, &far, here.as_fd()).map_err(failed("make a pair of devices for"))?;
    link::set_mtu(&near, link.mtu)
        .and_then(|()| link::up(&near))
        .and_then(|()| packet::open(link::index(&near)?))
        .map_err(failed("open the other end of"))
}

fn set_up(name: &str, one: &Link) -> std::result::Result<(), Errno> {
    link::set_ethernet(name, one.ethernet)?;
    link::set_mtu(name, one.mtu)?;
    // Without IPv6 there are not even the addresses that the kernel gives by itself, and with it
    // the kernel's would be waited for.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/addr_gen_mode"), "1");
    // The switch answers for a member at once or never, so three questions (`mcast_solicit`) are
    // over before a program's patience is.
    let _ = std::fs::write(format!("/proc/sys/net/ipv4/neigh/{name}/retrans_time_ms"), "250");
    link::set_address(name, one.address, one.prefix)?;
    link::up(name)
}

/// The address of a device for its link alone: the "modified EUI-64" of its ethernet address
/// (RFC 4291, appendix A).
fn link_local(ethernet: [u8; 6]) -> Ipv6Addr {
    let mut octets = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 0];
    octets[8..11].copy_from_slice(&ethernet[..3]);
    octets[13..].copy_from_slice(&ethernet[3..]);
    octets[8] ^= 2;
    octets.into()
}

fn set_up_ipv6(name: &str, addresses: [(Ipv6Addr, u8); 2]) -> std::result::Result<(), Errno> {
    for (file, value) in [
        // Another default may have been inherited.
        (format!("conf/{name}/disable_ipv6"), "0"),
        // The network has no router.
        (format!("conf/{name}/accept_ra"), "0"),
        (format!("neigh/{name}/retrans_time_ms"), "250"),
    ] {
        let _ = std::fs::write(Path::new("/proc/sys/net/ipv6").join(file), value);
    }
    let index = link::index(name)?;
    for (address, bits) in addresses {
        match netlink::add_address(index, address, bits) {
            // The kernel has given it nevertheless, where its settings are read-only.
            Err(Errno::EXIST) => {}
            added => added?,
        }
    }
    Ok(())
}

fn sockets() -> std::io::Result<[OwnedFd; 2]> {
    let place = (abi::network::NAME_SERVER, abi::network::DOMAIN);
    Ok([UdpSocket::bind(place)?.into(), TcpListener::bind(place)?.into()])
}
