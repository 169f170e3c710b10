//! What leads from each host of a cluster to the others, found in their facts, and the variables
//! that tell libraries of parallel programs so.
//!
//! Hosts have interfaces that lead nowhere: bridges of containers and virtual machines, which have
//! the same address on many hosts. Open MPI waits for ever for a peer that it looks for there. An
//! interface is taken if its address is the one at which the host was reached, or is in a subnet in
//! which all hosts have addresses; one whose address another host has too is never taken.
//!
//! In a network with names containers see no other interface than its own, and get what they need
//! from the engine (`engine::plan::variables`). So these variables are for the hosts' own network.

use std::fmt;
use std::net::Ipv4Addr;

use host::{Interface, Port};
use serde::Serialize;

/// UCX uses so many devices for one message where nothing else is said.
const RAILS: usize = 2;

/// What is known of a host.
#[derive(Debug, Clone, Copy)]
pub struct Known<'k> {
    /// The address at which it was reached.
    pub address: Option<Ipv4Addr>,
    /// Its interfaces.
    pub interfaces: &'k [Interface],
    /// Ports of its adapters of InfiniBand and RoCE.
    pub ports: &'k [Port],
}

/// What leads from a host to the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Route {
    /// An interface.
    pub interface: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its subnet, `ADDRESS/BITS`.
    pub subnet: String,
    /// Further interfaces that lead to all of them.
    pub rails: Vec<String>,
    /// Ports of InfiniBand, and those of RoCE that belong to one of these interfaces.
    pub ports: Vec<String>,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} leads to the other hosts", self.address, self.interface)?;
        if !self.rails.is_empty() {
            write!(f, ", also {}", self.rails.join(", "))?;
        }
        if !self.ports.is_empty() {
            write!(f, "; InfiniBand {}", self.ports.join(", "))?;
        }
        Ok(())
    }
}

/// The route from each of these hosts; `None` where nothing is found.
pub fn find(hosts: &[Known<'_>]) -> Vec<Option<Route>> {
    let usable: Vec<Vec<&Interface>> = (0..hosts.len()).map(|at| usable(hosts, at)).collect();
    let reaches_all = |at: usize, one: &Interface| {
        let mut others = usable.iter().enumerate().filter(|(other, _)| *other != at);
        others.all(|(_, all)| all.iter().any(|other| one.reaches(other.address)))
    };
    // Where hosts have several subnets in common, all take the same one.
    let first = usable.first().and_then(|all| all.iter().find(|one| reaches_all(0, one)));
    let route = |(at, host): (usize, &Known<'_>)| {
        let own = &usable[at];
        let known = own.iter().find(|one| Some(one.address) == host.address);
        let same = own.iter().find(|one| first.is_some_and(|first| one.reaches(first.address)));
        let chosen = known.or(same).or_else(|| own.iter().find(|one| reaches_all(at, one)))?;
        let others = own.iter().filter(|one| one.name != chosen.name && reaches_all(at, one));
        let mut rails: Vec<String> = others.map(|one| one.name.clone()).collect();
        rails.dedup();
        let is_on = |port: &&Port| {
            let name = port.interface.as_ref();
            !port.is_ethernet
                || name.is_some_and(|name| *name == chosen.name || rails.contains(name))
        };
        let ports = host.ports.iter().filter(is_on).map(|port| port.name.clone()).collect();
        Some(Route {
            interface: chosen.name.clone(),
            address: chosen.address,
            subnet: format!("{}/{}", chosen.subnet(), chosen.prefix),
            rails,
            ports,
        })
    };
    hosts.iter().enumerate().map(route).collect()
}

/// The interfaces of a host that can lead to another one.
fn usable<'k>(hosts: &[Known<'k>], at: usize) -> Vec<&'k Interface> {
    let is_elsewhere = |address: Ipv4Addr| {
        let mut others = hosts.iter().enumerate().filter(|(other, _)| *other != at);
        others.any(|(_, host)| host.interfaces.iter().any(|one| one.address == address))
    };
    let own = hosts[at].interfaces.iter();
    own.filter(|one| one.is_running && !is_elsewhere(one.address)).collect()
}

/// The variables of a container in the network of a host with this route, of which `all` are those
/// of the cluster's hosts.
pub fn variables(own: &Route, all: &[&Route]) -> Vec<(&'static str, String)> {
    let interface = &own.interface;
    let mut subnets: Vec<&str> = all.iter().map(|route| &*route.subnet).collect();
    subnets.sort_unstable();
    subnets.dedup();
    // Open MPI passes its variables on to all nodes, whose interfaces may have other names.
    let one_name = all.iter().all(|route| route.interface == *interface);
    let include = if subnets.len() > 1 && one_name { interface.clone() } else { subnets.join(",") };
    let devices = own.ports.iter().chain([interface]).map(String::as_str).collect::<Vec<_>>();
    let mut found = vec![
        ("OMPI_MCA_btl_tcp_if_include", include.clone()),
        ("OMPI_MCA_oob_tcp_if_include", include.clone()),
        ("PRTE_MCA_prte_if_include", include),
        ("HYDRA_IFACE", interface.clone()),
        ("UCX_NET_DEVICES", devices.join(",")),
        ("FI_TCP_IFACE", interface.clone()),
        // "=" is for this name alone, and not for others that begin so.
        ("NCCL_SOCKET_IFNAME", format!("={interface}")),
        ("GLOO_SOCKET_IFNAME", interface.clone()),
    ];
    if own.ports.len() > RAILS {
        found.push(("UCX_MAX_RNDV_RAILS", own.ports.len().to_string()));
    }
    found
}

/// The variables of hosts that are not known yet, with names for what is found in them.
pub fn unknown() -> Vec<(&'static str, String)> {
    let route = Route {
        interface: "$INTERFACE".to_owned(),
        address: Ipv4Addr::UNSPECIFIED,
        subnet: "$SUBNET".to_owned(),
        rails: Vec::new(),
        ports: Vec::new(),
    };
    variables(&route, &[&route])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, address: &str) -> Interface {
        let (address, prefix) = address.split_once('/').unwrap();
        let (address, prefix) = (address.parse().unwrap(), prefix.parse().unwrap());
        Interface { name: name.to_owned(), address, prefix, is_running: true }
    }

    fn found(hosts: &[(&str, &[Interface])]) -> Vec<String> {
        let known = hosts.iter().map(|(address, interfaces)| Known {
            address: address.parse().ok(),
            interfaces,
            ports: &[],
        });
        let routes = find(&known.collect::<Vec<_>>());
        let text = |route: Option<Route>| {
            route.map_or("none".to_owned(), |route| {
                format!("{} {} {}", route.interface, route.subnet, route.rails.join(","))
            })
        };
        routes.into_iter().map(text).collect()
    }

    #[test]
    fn bridges_with_the_same_address_are_not_taken() {
        let host = |own: &str| {
            let docker = interface("docker0", "172.17.0.1/16");
            let mut down = interface("eth9", &format!("10.99.9.{own}/24"));
            down.is_running = false;
            vec![docker, down, interface("eth0", &format!("10.99.0.{own}/24"))]
        };
        let [one, two] = ["1", "2"].map(host);
        let expected = ["eth0 10.99.0.0/24 ", "eth0 10.99.0.0/24 "];
        assert_eq!(found(&[("", &one), ("", &two)]), expected);
        assert_eq!(found(&[("172.17.0.1", &one), ("10.99.0.2", &two)]), expected);
        // Bridges that have addresses of their own are not in one subnet.
        let [one, two] = ["1", "2"].map(|own| {
            let bridge = interface("cni0", &format!("10.244.{own}.1/24"));
            vec![bridge, interface("eth0", &format!("10.99.0.{own}/24"))]
        });
        assert_eq!(found(&[("", &one), ("", &two)]), expected);
    }

    #[test]
    fn one_of_several_rails_is_the_same_on_all_hosts() {
        let one = [interface("ib0", "10.1.0.1/16"), interface("ib1", "10.2.0.1/16")];
        let two = [interface("ib1", "10.2.0.2/16"), interface("ib0", "10.1.0.2/16")];
        let expected = ["ib0 10.1.0.0/16 ib1", "ib0 10.1.0.0/16 ib1"];
        assert_eq!(found(&[("", &one), ("", &two)]), expected);
        // The address at which a host was reached counts.
        let other = ["ib1 10.2.0.0/16 ib0", "ib1 10.2.0.0/16 ib0"];
        assert_eq!(found(&[("10.2.0.1", &one), ("10.2.0.2", &two)]), other);
    }

    #[test]
    fn hosts_without_a_common_subnet() {
        let one = [interface("eth0", "10.1.0.1/32"), interface("lan", "10.9.0.1/24")];
        let two = [interface("eth0", "10.1.0.2/32")];
        let expected = ["eth0 10.1.0.1/32 ", "eth0 10.1.0.2/32 "];
        assert_eq!(found(&[("10.1.0.1", &one), ("10.1.0.2", &two)]), expected);
        assert_eq!(found(&[("", &one), ("192.0.2.1", &two)]), ["none", "none"]);
    }

    #[test]
    fn ports_of_adapters() {
        let port = |name: &str, interface: Option<&str>| Port {
            name: name.to_owned(),
            is_ethernet: interface.is_some(),
            interface: interface.map(str::to_owned),
        };
        let ports = [
            port("mlx5_0:1", None),
            port("mlx5_1:1", Some("eth0")),
            port("mlx5_2:1", Some("storage")),
            port("mlx5_3:1", None),
        ];
        let [one, two] = ["10.99.0.1/24", "10.99.0.2/24"].map(|at| [interface("eth0", at)]);
        let known =
            [&one, &two].map(|interfaces| Known { address: None, interfaces, ports: &ports });
        let route = find(&known)[0].clone().unwrap();
        assert_eq!(route.ports, ["mlx5_0:1", "mlx5_1:1", "mlx5_3:1"]);
        let words = "10.99.0.1 at eth0 leads to the other hosts; InfiniBand mlx5_0:1, mlx5_1:1, \
                     mlx5_3:1";
        assert_eq!(route.to_string(), words);
        let value = |wanted: &str| {
            let all = variables(&route, &[&route]);
            all.into_iter().find(|(name, _)| *name == wanted).map(|(_, value)| value)
        };
        let devices = "mlx5_0:1,mlx5_1:1,mlx5_3:1,eth0";
        assert_eq!(value("UCX_NET_DEVICES").as_deref(), Some(devices));
        assert_eq!(value("UCX_MAX_RNDV_RAILS").as_deref(), Some("3"));
        assert_eq!(value("NCCL_SOCKET_IFNAME").as_deref(), Some("=eth0"));
    }

    #[test]
    fn lists_of_open_mpi_mean_all_hosts() {
        let route = |interface: &str, subnet: &str| Route {
            interface: interface.to_owned(),
            address: Ipv4Addr::LOCALHOST,
            subnet: subnet.to_owned(),
            rails: Vec::new(),
            ports: Vec::new(),
        };
        let include = |own: &Route, all: &[&Route]| {
            let found = variables(own, all);
            assert!(found.iter().all(|(name, _)| *name != "UCX_MAX_RNDV_RAILS"));
            found[0].1.clone()
        };
        let [a, b] = [route("eth0", "10.1.0.0/24"), route("eno1", "10.1.0.0/24")];
        assert_eq!(include(&a, &[&a, &b]), "10.1.0.0/24");
        let [c, d] = [route("eth0", "10.2.0.0/24"), route("eno1", "10.2.0.0/24")];
        assert_eq!(include(&a, &[&a, &c]), "eth0");
        assert_eq!(include(&a, &[&a, &d]), "10.1.0.0/24,10.2.0.0/24");
    }
}
