//! What `run --explain` says of a container's network. Nothing is changed: the container joins no
//! network, and the addresses are those that it would get now.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use engine::plan::{self, Network as Planned, Plan, WayOut};
use engine::spec::{ContainerConfig, NetworkMode, Publish};
use net::{Kind, Member, agent, hosts, members};
use serde::Serialize;
use store::ContainerDir;

use super::super::record;
use super::{as_member, check_ipv6, find, may_live};
use crate::error::Result;
use crate::session::Session;

/// A container's network.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Explained {
    /// `names`: addresses that are translated; `packets`: a namespace with a device for each
    /// network; `private`: one that is connected with the outside only; `none`: one that is not
    /// connected; `host`; `container:NAME`.
    mode: String,
    /// The networks with names in which it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    networks: Vec<Place>,
    /// Its host name; `None` for the host's.
    hostname: Option<String>,
    /// The way out of networks of packets: `pasta`, `slirp4netns`, `none`, or `switch` and why it
    /// is none of the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    way_out: Option<String>,
    /// Ports on the host.
    published: Vec<Publish>,
    /// Where programs ask for names; `None` where they ask the host's servers.
    name_server: Option<Ipv4Addr>,
    /// Variables that lead to the other members, unless they are set already.
    variables: BTreeMap<&'static str, String>,
}

/// Its place in one of them.
#[derive(Debug, Serialize)]
struct Place {
    name: String,
    subnet: String,
    address: Ipv4Addr,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv6: Option<Ipv6Addr>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    aliases: Vec<String>,
}

/// Finds it for a plan that is not carried out.
///
/// # Errors
/// Those that the start would meet: a network that is gone, an address that is taken.
pub fn explained(
    session: &Session,
    container: &ContainerDir,
    config: &ContainerConfig,
    planned: &Plan,
) -> Result<Explained> {
    let network = &config.network;
    let shares = matches!(network.mode, NetworkMode::Container(_));
    let is_named = planned.network.is_named() && !shares;
    let mode = match (&planned.network, &network.mode) {
        (_, NetworkMode::Container(name)) => format!("container:{name}"),
        (Planned::Names(_), _) => "names".to_owned(),
        (Planned::Packets(_), _) => "packets".to_owned(),
        (Planned::Helper(_), _) => "private".to_owned(),
        (Planned::Loopback, _) => "none".to_owned(),
        (Planned::Inherit, _) => match (&network.mode, &config.join) {
            (NetworkMode::Default, Some(name)) => format!("container:{name}"),
            _ => "host".to_owned(),
        },
    };
    let facts = super::facts(session, config);
    let hostname = if is_named && config.hostname.as_deref().is_none_or(str::is_empty) {
        let title = record::title(container);
        Some(hosts::name(&title, container.id()).to_owned())
    } else {
        planned.hostname.clone()
    };
    let by_packets = matches!(planned.network, Planned::Packets(_));
    let networks =
        if is_named { places(session, container, config, by_packets)? } else { Vec::new() };
    let asks = !networks.is_empty();
    Ok(Explained {
        mode,
        networks,
        hostname,
        way_out: way_out(&planned.network),
        published: network.published().to_vec(),
        name_server: asks.then_some(agent::NAME_SERVER),
        variables: plan::variables(&planned.network, &facts, network.networks.len())
            .into_iter()
            .collect(),
    })
}

fn way_out(network: &Planned) -> Option<String> {
    let Planned::Packets(packets) = network else { return None };
    Some(match &packets.outside {
        Some(WayOut::Helper(outside)) if outside.slirp => "slirp4netns".to_owned(),
        Some(WayOut::Helper(_)) => "pasta".to_owned(),
        Some(WayOut::Switch { because, .. }) => format!("switch: {because}"),
        None => "none".to_owned(),
    })
}

fn places(
    session: &Session,
    container: &ContainerDir,
    config: &ContainerConfig,
    by_packets: bool,
) -> Result<Vec<Place>> {
    let store = session.store()?;
    let may_live = |id: &str| may_live(store, id);
    let wanted = &config.network.networks;
    let networks = find(session, wanted)?;
    let place = |(network, wanted): (&net::Network, &engine::spec::Membership)| {
        let kind = if by_packets { Kind::Packets } else { Kind::Names };
        check_ipv6(network, wanted, kind)?;
        let member = Member { kind: Some(kind), ..as_member(container, config, wanted) };
        let address = members::preview(network, &member, &may_live)?;
        let definition = network.definition();
        Ok(Place {
            name: definition.name.clone(),
            subnet: definition.subnet.to_string(),
            address,
            ipv6: definition.ipv6.filter(|_| by_packets).map(|prefix| prefix.of(address)),
            aliases: wanted.aliases.clone(),
        })
    };
    networks.iter().zip(wanted).map(place).collect()
}
