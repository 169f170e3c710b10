//! Networks of several hosts: inviting, joining a list of hosts, and what `inspect` shows of them.

use std::net::Ipv4Addr;
use std::path::Path;

use net::cluster::{self, Place};
use net::peers::{self, List, PublicKey, Wrong, local};
use net::remote::{self, Known};
use net::{Network, Networks, Ports, Request, Scope, agent, joining, settling, slices};
use serde_json::{Value, json};

use super::{actor, routes};
use crate::container::networks::may_live;
use crate::error::{Error, Result};
use crate::journal::{self, Kind};
use crate::request::{host_list, networks};
use crate::session::Session;
use crate::time;

/// This host's place in a new network; `None` for one of a single host.
pub(super) fn place(
    session: &Session,
    scope: &Scope,
    (address, ports): Wish<'_>,
) -> Result<Option<Place>> {
    if *scope == Scope::Cluster {
        return chosen(session, (address, ports)).map(Some);
    }
    for (flag, given) in [("--address", address.is_some()), ("--port", ports.is_some())] {
        if given {
            return Err(Error::invalid(format!("{flag} is for networks of several hosts"))
                .with_hint("give --scope cluster too, or leave it out"));
        }
    }
    Ok(None)
}

/// The address and the ports that were given.
type Wish<'w> = (Option<&'w str>, Option<Ports>);

fn chosen(session: &Session, (address, ports): Wish<'_>) -> Result<Place> {
    let address = match address {
        Some(text) => own_address(networks::address("--address", text)?)?,
        None => local::default()?,
    };
    let ports = ports.unwrap_or(Ports::USUAL);
    if ports.first == 0 {
        return Err(Error::invalid("--port 0 is no port").with_hint("choose one from 1 to 65535"));
    }
    Ok(settling::choose(session.store()?, address, ports)?)
}

/// The address at which other hosts reach this one.
fn own_address(address: Ipv4Addr) -> Result<Ipv4Addr> {
    if address.is_loopback() {
        let text = format!("address {address} is loopback, where no other host reaches this one");
        return Err(Error::invalid(text)
            .with_hint("give the address at which the others reach it, or leave it out"));
    }
    Ok(local::check(address)?)
}

/// This host's entry for the list of a network's hosts, in TOML. A port that was chosen and is
/// another program's now is given up for another one.
///
/// # Errors
/// Where there is no such network, or it has another scope; where no port is free.
pub fn invite(session: &Session, name: &str) -> Result<String> {
    let network = super::find(session, name)?;
    settling::renew(session.store()?, &network)?;
    Ok(cluster::entry(&network)?.entry())
}

/// A network that was joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: String,
}

/// Joins the list of a network's hosts that stands in a file, and makes the network if there is
/// none. A list in which this host is missing is joined, too, with a warning.
///
/// # Errors
/// A file that is no list, or none that may take the place of the one before; a network of one
/// host; an address that is not this host's.
pub fn join(
    session: &Session,
    name: &str,
    file: &Path,
    (address, ports): Wish<'_>,
) -> Result<Joined> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Error::failed(format!("cannot read the list {}", file.display()))
            .cause(error)
            .with_hint("'coracle network invite NETWORK' prints the entry of a host")
    })?;
    let read = host_list::parse(file, &text)?;
    let store = session.store()?;
    let network = match Networks::of(store).find(name) {
        Ok(network) => network,
        Err(net::Error::NotFound { .. }) => made(session, name, &read.list, (address, ports))?,
        Err(error) => return Err(error.into()),
    };
    cluster::check_scope(&network)?;
    if cluster::own(&network)?.is_none() {
        cluster::settle(&network, chosen(session, (address, ports))?)?;
    }
    let own = cluster::entry(&network)?;
    if let Some(at) = read.list.position(&own.key) {
        let listed = &read.list.hosts[at];
        own_address(listed.address).map_err(|error| read.at(at, &error))?;
        let other = |text: &str| text.parse() != Ok(listed.address);
        if address.is_some_and(other) || ports.is_some_and(|ports| !ports.contains(listed.port)) {
            let text = format!("this host has {} there, and not what was given", listed.place());
            let hint = "leave --address and --port out, or correct the list";
            return Err(read.at(at, &Error::invalid(text).with_hint(hint)));
        }
    } else if address.is_some() || ports.is_some() {
        let at = own.address.to_string();
        // The port that it has is its own, whether it listens there now or not.
        let port = Ports { first: own.port, last: own.port };
        let ports = ports.filter(|ports| !ports.contains(own.port)).unwrap_or(port);
        let asked = chosen(session, (address.or(Some(&at)), Some(ports)))?;
        if (asked.address, asked.port) != (own.address, own.port) {
            cluster::settle(&network, asked)?;
        }
    }
    let joined = joining::join(&network, &read.list, &|id| may_live(store, id));
    let joined = joined.map_err(|error| match error {
        net::Error::List { at, why, hint } => read.wrong(&Wrong { at, why, hint }),
        other => Error::from(other),
    })?;
    if joined.revoked {
        let name = network.name();
        session.warn(&format!(
            "the list says that this host has left network {name}: containers that run here do not \
             reach other hosts any more, and none starts in it"
        ));
    } else if !joined.listed {
        let name = network.name();
        session.warn(&format!(
            "this host is not in the list, so no container here can use network {name}; add its \
             entry ('coracle network invite {name}' prints it), and join the list on all hosts"
        ));
    }
    journal::tell(session, Kind::Network, "update", actor(network.definition()));
    Ok(Joined { name: network.name().to_owned(), id: network.id().to_owned() })
}

fn auxiliary(host: &peers::Host) -> Vec<(String, Option<Ipv4Addr>)> {
    host.auxiliary.iter().map(|(name, address)| (name.clone(), Some(*address))).collect()
}

/// Makes a network that another host has invited to.
fn made(session: &Session, name: &str, list: &List, wish: Wish<'_>) -> Result<Network> {
    let place = chosen(session, wish)?;
    let request = Request {
        name: name.to_owned(),
        created: time::now().to_string(),
        scope: Scope::Cluster,
        subnet: list.hosts.first().map(|host| host.subnet),
        ipv6: list.hosts.first().is_some_and(|host| host.ipv6.is_some()),
        prefix: list.hosts.first().and_then(|host| host.ipv6),
        internal: list.hosts.first().is_some_and(|host| host.internal),
        auxiliary: list.hosts.first().map(auxiliary).unwrap_or_default(),
        ..Request::default()
    };
    let (routes, routes6) = routes();
    let network = Networks::of(session.store()?).create(request, (&routes, &routes6))?;
    cluster::settle(&network, place)?;
    journal::tell(session, Kind::Network, "create", actor(network.definition()));
    Ok(network)
}

/// Hosts and links, for `inspect`.
pub(super) fn describe(session: &Session, network: &Network) -> Result<Value> {
    let Some(_) = cluster::own(network)? else {
        return Ok(json!({"Hosts": []}));
    };
    let view = cluster::view(network)?;
    let store = session.store()?;
    let serves = agent::is_running(store).unwrap_or(false);
    let known = remote::known(network)?.filter(|known| serves && known.agent != 0);
    let subnet = network.definition().subnet;
    let own = view.own.key.public();
    let hosts = view.list.hosts.iter().enumerate().map(|(at, host)| {
        let mut shown = json!({
            "Name": host.name,
            "Address": host.address.to_string(),
            "Port": host.port,
            "Key": host.key.short(),
            "Slice": slices::slice(subnet, at).map(|slice| slice.to_string()),
        });
        let state = if host.key == own {
            own_state(known.as_ref())
        } else if view.position.is_none() {
            json!({"State": "down", "Why": "this host is not in the list, or has left"})
        } else {
            state(known.as_ref(), &host.key)
        };
        let state = if host.revoked { json!({"State": "revoked"}) } else { state };
        if let (Value::Object(shown), Value::Object(state)) = (&mut shown, state) {
            shown.extend(state);
        }
        shown
    });
    let hosts: Vec<Value> = hosts.collect();
    Ok(json!({
        "Address": view.own.place.address.to_string(),
        "Port": view.own.place.port,
        "Key": own.short(),
        "Slice": view.slice(network).ok().map(|slice| slice.to_string()),
        "Epoch": view.list.epoch,
        "Joined": view.joined,
        "Hosts": hosts,
    }))
}

/// Of this host.
fn own_state(known: Option<&Known>) -> Value {
    match known {
        Some(Known { error: Some(why), .. }) => json!({"State": "this host", "Why": why}),
        _ => json!({"State": "this host"}),
    }
}

/// Of another host.
fn state(known: Option<&Known>, key: &PublicKey) -> Value {
    let Some(known) = known else {
        return json!({"State": "down", "Why": "no container of this host is in the network, or its agent has ended"});
    };
    let Some(peer) = known.peers.iter().find(|peer| peer.key == *key) else {
        return json!({"State": "down", "Why": "the agent of this host has just begun"});
    };
    let containers: Vec<Value> = peer.members.iter().map(container).collect();
    let since =
        jiff::Timestamp::from_second(peer.since.cast_signed()).map(|time| time.to_string()).ok();
    if peer.up {
        json!({"State": "up", "Since": since, "Containers": containers})
    } else {
        json!({"State": "down", "Since": since, "Why": peer.why, "Containers": containers})
    }
}

fn container(other: &peers::Remote) -> Value {
    let address: Ipv4Addr = other.address;
    json!({"Id": other.id, "Name": other.name, "IPv4Address": address.to_string()})
}
