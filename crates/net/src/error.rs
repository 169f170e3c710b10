//! Errors about networks, each with the object, the rule that it breaks, and advice.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use crate::kind::Kind;
use crate::ports::Ports;
use crate::subnet::Subnet;

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A network cannot have this name.
    #[error("{name:?} is not a usable name of a network: {why}")]
    BadName {
        /// The name.
        name: String,
        /// The rule that it breaks.
        why: String,
    },
    /// This version has no such scope.
    #[error("the scope '{scope}' of a network is not supported by this version")]
    Scope {
        /// As given.
        scope: String,
    },
    /// There is a network of this name.
    #[error("network with name {name} already exists")]
    Exists {
        /// The name.
        name: String,
    },
    /// No such network.
    #[error("network {name} not found")]
    NotFound {
        /// The name as given.
        name: String,
    },
    /// The process that answers questions for names cannot be started.
    #[error("cannot start the network agent: {source}")]
    Agent {
        /// Why.
        source: std::io::Error,
    },
    /// Several networks have ids that begin like this.
    #[error("{name:?} matches several networks: {}", candidates.join(", "))]
    Ambiguous {
        /// The name as given.
        name: String,
        /// The networks that match.
        candidates: Vec<String>,
    },
    /// Containers live in the network.
    #[error("network {name} has active endpoints ({})", members.join(", "))]
    InUse {
        /// The network.
        name: String,
        /// The names of the containers.
        members: Vec<String>,
    },
    /// A range of addresses cannot be a network's.
    #[error("'{text}' is not a usable subnet: {why}")]
    BadSubnet {
        /// As given.
        text: String,
        /// What is wrong with it.
        why: String,
        /// What to write.
        hint: String,
    },
    /// Another network has addresses of this range.
    #[error("subnet {subnet} overlaps with {other} of network {name}")]
    Overlaps {
        /// The range as given.
        subnet: Subnet,
        /// The other network's range.
        other: Subnet,
        /// The other network.
        name: String,
    },
    /// The host has a route into this range.
    #[error("subnet {subnet} overlaps with {route}, to which this host has a route")]
    Routed {
        /// The range as given.
        subnet: Subnet,
        /// The route's destination.
        route: Subnet,
    },
    /// All ranges that are given without being asked for are taken.
    #[error("there is no free subnet left in {among}")]
    NoSubnet {
        /// Where they are taken from.
        among: Subnet,
    },
    /// The address cannot be a gateway's.
    #[error("gateway {gateway} is not a usable address of subnet {subnet}")]
    BadGateway {
        /// As given.
        gateway: Ipv4Addr,
        /// The network's range.
        subnet: Subnet,
    },
    /// An auxiliary address.
    #[error("the auxiliary address {name} is not usable: {why}")]
    BadAuxiliary {
        /// Its name.
        name: String,
        /// The rule that it breaks.
        why: String,
        /// The network's range.
        subnet: Subnet,
    },
    /// The part of the subnet from which containers get addresses.
    #[error("the range {range} {why} subnet {subnet}")]
    BadRange {
        /// As given.
        range: Subnet,
        /// The network's range.
        subnet: Subnet,
        /// What is wrong with it: a verb.
        why: &'static str,
    },
    /// The address cannot be a container's.
    #[error("address {address} is not possible in network {network}: {why}")]
    BadAddress {
        /// As given.
        address: Ipv4Addr,
        /// The network.
        network: String,
        /// The rule that it breaks.
        why: String,
    },
    /// The network has no IPv6 addresses.
    #[error("network {network} has no IPv6 addresses")]
    NoIpv6 {
        /// The network.
        network: String,
    },
    /// The IPv6 address does not follow from an IPv4 address of the network, or from another one
    /// than the container wishes.
    #[error("address {address} is not possible in network {network}: {why}")]
    BadIpv6 {
        /// As given.
        address: Ipv6Addr,
        /// The network.
        network: String,
        /// The rule that it breaks.
        why: String,
        /// What to write.
        hint: String,
    },
    /// The kernel gives no random bytes.
    #[error("cannot choose a range of IPv6 addresses")]
    Random {
        /// Its error.
        #[source]
        source: std::io::Error,
    },
    /// Another container has the address.
    #[error("address {address} of network {network} is taken by {by}")]
    Taken {
        /// The address.
        address: Ipv4Addr,
        /// The network.
        network: String,
        /// The container's name.
        by: String,
    },
    /// A container that is connected in another way lives in the network.
    #[error(
        "network {network} has a member that a container of this mode cannot reach: {by}, which is connected by {kind}"
    )]
    Mixed {
        /// The network.
        network: String,
        /// The container's name.
        by: String,
        /// How it is connected.
        kind: Kind,
    },
    /// All addresses of the network are taken.
    #[error("network {network} has no free address left in {among}")]
    Full {
        /// The network.
        network: String,
        /// The range of its containers' addresses.
        among: Subnet,
    },
    /// Too many containers of this host are in networks.
    #[error("{limit} containers of this host are in networks with names, which is the limit")]
    NoSlot {
        /// The limit.
        limit: u32,
    },
    /// Another container publishes the port.
    #[error("port {port} of the host is already allocated to container {}", by.get(..12).unwrap_or(by))]
    PortTaken {
        /// The host's port.
        port: u16,
        /// The container's id.
        by: String,
    },
    /// More of something than a container may have.
    #[error("a container has at most {limit} {what}")]
    TooMany {
        /// Of what, in the plural.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// An address that is not this host's.
    #[error("address {address} is none of this host's")]
    ForeignAddress {
        /// As given.
        address: Ipv4Addr,
        /// Those that are, without loopback.
        own: Vec<Ipv4Addr>,
    },
    /// It is not known at which address other hosts reach this one.
    #[error("it is not known at which address other hosts reach this one: {}", addresses(own))]
    NoAddress {
        /// The addresses that it has.
        own: Vec<Ipv4Addr>,
    },
    /// All ports of which one was to be chosen are taken.
    #[error("no port from {} to {} is free at {address}", ports.first, ports.last)]
    NoPort {
        /// The address of this host.
        address: Ipv4Addr,
        /// The ports.
        ports: Ports,
    },
    /// A network of one host.
    #[error("network {name} has the scope host: its members are on one host")]
    NotCluster {
        /// The network.
        name: String,
    },
    /// A network has something that one of several hosts cannot have.
    #[error("{what} is not possible with --scope cluster")]
    NotInCluster {
        /// The option.
        what: &'static str,
    },
    /// This host has no address in a network: another one that shares the store has made it.
    #[error("this host has no place in network {name} yet")]
    NoPlace {
        /// The network.
        name: String,
    },
    /// This host is not in the list that was joined.
    #[error("this host is not in the list of network {name} that was joined")]
    NotListed {
        /// The network.
        name: String,
    },
    /// A list of hosts cannot take the place of the one before.
    #[error("{why}")]
    List {
        /// The place of the entry at fault; `None` for the list as a whole.
        at: Option<usize>,
        /// The rule that it breaks.
        why: String,
        /// What to do.
        hint: String,
    },
    /// Containers live that would get other addresses.
    #[error(
        "with this list the containers of this host in network {name} get other addresses, and \
         some live ({})", members.join(", ")
    )]
    Moves {
        /// The network.
        name: String,
        /// The names of the containers.
        members: Vec<String>,
    },
    /// The networks of a container have different addresses of this host.
    #[error("network {name} has another address of this host than {other}")]
    TwoPlaces {
        /// The network.
        name: String,
        /// Another one.
        other: String,
    },
    /// The agent does not listen for other hosts.
    #[error("the network agent does not serve network {name}: {why}")]
    NotServed {
        /// The network.
        name: String,
        /// Why not.
        why: String,
    },
    /// The key of a host.
    #[error("cannot use the key {}", path.display())]
    Key {
        /// Its file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The table of a host's containers cannot be made or read.
    #[error("cannot map the table of networks {}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A file of names cannot be written.
    #[error("cannot {step} {}", path.display())]
    Hosts {
        /// What failed: a verb.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
    /// The store.
    #[error("cannot {step}")]
    Store {
        /// What was done there.
        step: &'static str,
        /// Why it failed.
        #[source]
        source: store::Error,
    },
}

fn addresses(own: &[Ipv4Addr]) -> String {
    if own.is_empty() {
        return "it has none but loopback".into();
    }
    own.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Error {
    /// Puts what was done in front of an error of the store.
    pub(crate) fn store(step: &'static str) -> impl FnOnce(store::Error) -> Self {
        move |source| Self::Store { step, source }
    }

    /// Advice for the user.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::BadName { .. } => {
                "choose another one: letters, digits, '_', '.' and '-', first a letter or digit"
                    .into()
            }
            Self::Scope { .. } => {
                "there are host (containers of one machine meet) and cluster".into()
            }
            Self::ForeignAddress { own, .. } => format!("its addresses are {}", addresses(own)),
            Self::NoAddress { .. } => "give it with --address".into(),
            Self::NoPort { .. } => "give another one, or more: --port FIRST-LAST".into(),
            Self::NotCluster { name } => format!(
                "make one of several hosts: coracle network create --scope cluster NAME, and \
                 leave {name} as it is"
            ),
            Self::NotInCluster { .. } => {
                "leave it out: each host gives addresses of its own part of the subnet".into()
            }
            Self::NoPlace { name } => {
                format!("join it on this host, too: coracle network join {name} --member FILE")
            }
            Self::NotListed { name } => format!(
                "add its entry ('coracle network invite {name}' prints it) to the list, and join \
                 that on all hosts: coracle network join {name} --member FILE"
            ),
            Self::Moves { members, .. } => format!(
                "add hosts at the end of the list, and mark one that leaves with 'revoked = true'; \
                 or stop them first: coracle stop {}",
                members.join(" ")
            ),
            Self::TwoPlaces { .. } => {
                "the container can be in one of them; or join one with the other's --address".into()
            }
            Self::NotServed { name, .. } => format!(
                "another network or program may have the port; 'coracle network invite {name}' \
                 chooses another one if it was not given: join a list with that on all hosts"
            ),
            Self::Exists { name } => {
                format!("use it, remove it (coracle network rm {name}), or choose another name")
            }
            Self::NotFound { .. } => "'coracle network ls' lists all networks".into(),
            Self::Ambiguous { .. } => "give more digits of the id, or the name".into(),
            Self::InUse { members, .. } => {
                format!("stop them first: coracle stop {}", members.join(" "))
            }
            Self::BadSubnet { hint, .. } | Self::List { hint, .. } | Self::BadIpv6 { hint, .. } => {
                hint.clone()
            }
            Self::NoIpv6 { .. } => "leave --ip6 out, or make a network with --ipv6".into(),
            Self::Overlaps { .. } | Self::Routed { .. } => {
                "choose another subnet; without --subnet a free one is taken".into()
            }
            Self::NoSubnet { .. } => {
                "remove networks ('coracle network prune'), or name a range with --subnet".into()
            }
            Self::BadGateway { subnet, .. } => {
                let (first, last) = subnet.hosts();
                format!("choose one from {first} to {last}")
            }
            Self::BadAuxiliary { subnet, .. } => {
                let (_, last) = subnet.hosts();
                format!("write a name of your choice for each, and a free address, as vip={last}")
            }
            Self::BadRange { subnet, .. } => {
                format!("write a smaller range of its addresses, as {}", subnet.lower_half())
            }
            Self::BadAddress { network, .. } => format!(
                "choose another one ('coracle network inspect {network}' shows the subnet), or \
                 leave it out"
            ),
            Self::Taken { by, .. } => {
                format!("stop {by}, choose another address, or leave the address out")
            }
            Self::Mixed { by, kind, .. } => {
                let mode = match kind {
                    Kind::Names => "one without namespaces (--execmode=I1)",
                    Kind::Packets => "one with namespaces (--execmode=N1)",
                };
                format!("use a mode of the same kind, {mode}, or stop {by}")
            }
            Self::Full { .. } => {
                "stop containers that are in it, or make a network with a larger --subnet".into()
            }
            Self::NoSlot { .. } => "stop containers that are in networks".into(),
            Self::PortTaken { .. } => "publish it at another port of the host".into(),
            Self::TooMany { .. } => "leave some out".into(),
            Self::Agent { .. }
            | Self::Key { .. }
            | Self::Hosts { .. }
            | Self::Table { .. }
            | Self::Random { .. } => return None,
            Self::Store { source, .. } => return source.hint(),
        })
    }
}
