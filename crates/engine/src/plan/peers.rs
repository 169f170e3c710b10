//! The variables by which libraries of parallel programs reach the other members of a container's
//! networks.
//!
//! UCX, below MPICH and others, takes two members of one host for processes that share everything.
//! It opens the shared memory of another process through `/proc`, which shows no other container's,
//! or forbids it; `UCX_POSIX_USE_PROC_LINK=n` has it opened by name in `/dev/shm`, which is the
//! host's for all of them.
//!
//! Where addresses are translated, most libraries need no more, because they see the container's
//! addresses alone (`view::sockets::interfaces`): Open MPI, Hydra and PRRTE choose by subnet, NCCL
//! takes the first interface that is not `lo`, Gloo asks for the host's name. But UCX prefers `lo`
//! over TCP, and meets itself there; `UCX_NET_DEVICES` names the interface of the networks. It
//! would also forbid adapters of InfiniBand and the like, so a host that has any gets it not.
//!
//! Open MPI's own lists of interfaces (`OMPI_MCA_btl_tcp_if_include`) are not set there: they
//! exclude those that an image or user forbids (`..._if_exclude`), and Open MPI refuses both at
//! once.
//!
//! In networks of packets whose way out is a helper program, all members have a device `out0` with
//! addresses that the helper gives to each, the same for many. Open MPI spreads large messages over
//! all interfaces and then waits for itself, so there the lists name the networks' devices;
//! likewise for PRRTE, UCX, libfabric, NCCL and Gloo. They are left out where the environment has a
//! list of the other kind.

use super::Network;
use crate::facts::Facts;

/// Names and values for a container in so many networks with names; the user's, the image's and the
/// job's own come before them.
pub fn variables(network: &Network, facts: &Facts, networks: usize) -> Vec<(&'static str, String)> {
    let mut all = vec![("UCX_POSIX_USE_PROC_LINK", "n".to_owned())];
    match (network, &facts.ways) {
        (Network::Names(_), Some(ways)) => {
            if !ways.has_rdma && ways.interface != "lo" {
                all.push(("UCX_NET_DEVICES", ways.interface.clone()));
            }
        }
        (Network::Packets(_), _) => {
            // A plan of `exec` has no way out of its own. The switch's needs no device.
            if !facts.internal_networks && facts.no_helper_out().is_none() {
                let devices = (0..networks).map(|number| format!("eth{number}"));
                let devices = devices.collect::<Vec<_>>().join(",");
                all.extend(DEVICES.map(|name| (name, devices.clone())));
                // "=" is for these names alone, and not for others that begin so.
                all.push(("NCCL_SOCKET_IFNAME", format!("={devices}")));
                all.extend(DEVICE.map(|name| (name, "eth0".to_owned())));
            }
        }
        // Without networks there are no others.
        _ => return Vec::new(),
    }
    all
}

/// Those that take a list of devices.
const DEVICES: [&str; 4] = [
    "OMPI_MCA_btl_tcp_if_include",
    "OMPI_MCA_oob_tcp_if_include",
    "PRTE_MCA_prte_if_include",
    "UCX_NET_DEVICES",
];
/// Those that take one device: libfabric's and Gloo's.
const DEVICE: [&str; 2] = ["FI_TCP_IFACE", "GLOO_SOCKET_IFNAME"];

/// Whether a variable that is set (`NAME=VALUE`) excludes one of those.
pub(super) fn excludes(set: &str, name: &str) -> bool {
    let family = name.strip_suffix("_if_include");
    family.is_some_and(|family| set.starts_with(&format!("{family}_if_exclude=")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Ways;
    use crate::plan::{Device, Packets};

    fn of(network: &Network, interface: Option<&str>, has_rdma: bool) -> Vec<String> {
        let ways = interface.map(|interface| Ways { interface: interface.to_owned(), has_rdma });
        let facts = Facts { ways, ..Facts::default() };
        let all = variables(network, &facts, 2);
        all.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn members_get_what_leads_to_the_others() {
        let (names, link) = (Network::Names(None), "UCX_POSIX_USE_PROC_LINK=n");
        assert_eq!(of(&names, Some("eth0"), false), [link, "UCX_NET_DEVICES=eth0"]);
        assert_eq!(of(&names, Some("eth0"), true), [link]);
        assert_eq!(of(&names, Some("lo"), false), [link]);
    }

    #[test]
    fn devices_of_packets_are_named_where_there_is_another_one() {
        let packets = Packets { device: Device::Tap, outside: None, place: None };
        let network = Network::Packets(Box::new(packets));
        let with_pasta = Facts { pasta: Some("/usr/bin/pasta".into()), ..Facts::default() };
        let all = variables(&network, &with_pasta, 2);
        let link = ("UCX_POSIX_USE_PROC_LINK", "n".to_owned());
        assert_eq!((&all[0], all.len()), (&link, 1 + DEVICES.len() + 1 + DEVICE.len()));
        assert!(all[1..=DEVICES.len()].iter().all(|(_, value)| value == "eth0,eth1"), "{all:?}");
        let rest: Vec<&str> = all[5..].iter().map(|(_, value)| &**value).collect();
        assert_eq!(rest, ["=eth0,eth1", "eth0", "eth0"]);
        let internal = Facts { internal_networks: true, ..with_pasta };
        for none in [internal, Facts::default()] {
            assert_eq!(variables(&network, &none, 2), std::slice::from_ref(&link));
        }
        assert!(excludes("OMPI_MCA_btl_tcp_if_exclude=lo", DEVICES[0]));
        assert!(!excludes("OMPI_MCA_btl_tcp_if_exclude=lo", DEVICES[1]));
        assert!(!excludes("OMPI_MCA_btl_tcp_if_include=lo", DEVICES[0]));
    }

    #[test]
    fn others_get_nothing() {
        assert_eq!(of(&Network::Names(None), None, false), [""; 0]);
        for network in [Network::Inherit, Network::Loopback] {
            assert_eq!(of(&network, Some("eth0"), false), [""; 0]);
        }
    }
}
