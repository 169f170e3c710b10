//! The networks with names in which a container is: a part of its record.
//!
//! A container is put into networks when it is made, or by [`connect`] while it does not run. Which
//! address it has in one is decided when it starts ([`join`]), and the other members are told its
//! names. It keeps them until its program has ended ([`leave`]); of one that was killed together
//! with its supervisor the next that joins removes what is left.

mod explained;
mod shared;

use std::collections::HashSet;
use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use engine::choose::Engine;
use engine::facts::Facts;
use engine::plan::{Link, NetworkPlace, PrivateBy, Switch};
use engine::spec::{ContainerConfig, Membership, NamespaceMode, NetworkMode, NetworkSpec, Publish};
use engine::supervise::state::{self, Observed};
use net::definition::BRIDGE;
use net::switch::{MTU, frame};
use net::{
    Endpoint, Kind, Member, Network, Networks, Prefix, Subnet, agent, cluster, definition, hosts,
    ipam, members, prefix, remote, table,
};
use store::{ContainerDir, Store};

use super::group;
use super::record::{self, Record};
use crate::error::{Error, Result};
use crate::request::{networks, ports};
use crate::session::Session;
use crate::time;
pub use explained::explained;
pub use shared::{host_name_there, share_files};

/// How much is read of a file with a host name, which has 64 bytes at most.
const HOST_NAME_LIMIT: u64 = 256;

/// The networks of a request as they are called in the store, checked before anything is made.
///
/// # Errors
/// Where one does not exist, is named twice by name and id, or cannot give the address.
pub fn resolve(session: &Session, named: &[Membership]) -> Result<Vec<Membership>> {
    let resolved = named.iter().map(|one| resolve_one(session, one)).collect::<Result<Vec<_>>>()?;
    networks::check_once(&resolved)?;
    Ok(resolved)
}

fn resolve_one(session: &Session, wanted: &Membership) -> Result<Membership> {
    let network = match Networks::of(session.store()?).find(&wanted.name) {
        Err(error @ net::Error::NotFound { .. }) => {
            let makes = definition::check_name(&wanted.name).is_ok();
            let error = Error::not_found(error.to_string());
            let make = format!("coracle network create {}", wanted.name);
            return Err(if makes { error.with_hint(make) } else { error });
        }
        other => other?,
    };
    let definition = network.definition();
    definition.scope.check()?;
    let address = match wanted.ipv6 {
        Some(ipv6) => Some(ipam::from_ipv6(definition, ipv6, wanted.address)?),
        None => wanted.address,
    };
    if let Some(address) = address {
        cluster::check_address(&network, address)?;
    }
    Ok(Membership { name: definition.name.clone(), address, ..wanted.clone() })
}

/// Puts networks with names, which [`resolve`] has checked, into a record.
pub fn put(network: &mut NetworkSpec, named: Vec<Membership>) {
    if let Some(first) = named.first() {
        network.mode = NetworkMode::Named(first.name.clone());
    }
    network.networks = named;
}

/// Puts a container that does not run into one more network.
///
/// # Errors
/// Where it runs, is in the network already, or has the host's network or another container's.
pub fn connect(session: &Session, container: &str, wanted: &Membership) -> Result<()> {
    let wanted = resolve_one(session, wanted)?;
    change(session, container, |record, title| {
        let config = &mut record.config;
        let shares = match (&config.network.mode, &config.join) {
            (NetworkMode::Host, _) => Some("the host"),
            (NetworkMode::Container(_), _) | (NetworkMode::Default, Some(_)) => {
                Some("another container")
            }
            _ => None,
        };
        if let Some(other) = shares {
            return Err(Error::conflict(format!(
                "container {title} shares the network of {other} and cannot be in another one"
            ))
            .with_hint("make a container without that --network or --join"));
        }
        let mut named = std::mem::take(&mut config.network.networks);
        if named.iter().any(|one| one.name == wanted.name) {
            let text = format!("container {title} is in network {} already", wanted.name);
            return Err(Error::conflict(text).with_hint(format!(
                "to change its address there: coracle network disconnect {} {title}",
                wanted.name
            )));
        }
        named.push(wanted.clone());
        put(&mut config.network, named);
        Ok(())
    })
}

/// Takes a container that does not run out of a network. If it was the last one, the container has
/// no network then. `force`: also out of a network that was removed.
///
/// # Errors
/// Where it runs, or is not in the network.
pub fn disconnect(session: &Session, name: &str, container: &str, force: bool) -> Result<()> {
    let name = match Networks::of(session.store()?).find(name) {
        Ok(network) => network.name().to_owned(),
        Err(net::Error::NotFound { .. }) if force => name.to_owned(),
        Err(error @ net::Error::NotFound { .. }) => {
            return Err(Error::not_found(error.to_string()).with_hint(
                "'coracle network ls' lists all; if it was removed, --force takes a container out",
            ));
        }
        Err(error) => return Err(error.into()),
    };
    change(session, container, |record, title| {
        let network = &mut record.config.network;
        let mut named = std::mem::take(&mut network.networks);
        let count = named.len();
        named.retain(|one| one.name != name);
        if named.len() == count {
            return Err(Error::conflict(format!("container {title} is not in network {name}"))
                .with_hint(format!("'coracle inspect {title}' shows its networks")));
        }
        if named.is_empty() {
            network.mode = NetworkMode::None;
        }
        put(network, named);
        Ok(())
    })
}

/// Changes the record of a container that does not run.
fn change(
    session: &Session,
    name: &str,
    change: impl FnOnce(&mut Record, &str) -> Result<()>,
) -> Result<()> {
    let container = record::find(session, name)?;
    let title = record::title(&container);
    let _lock = container.lock_exclusive()?;
    if is_alive(session, container.id()) {
        return Err(Error::unsupported(format!(
            "container {title} is running, and its networks cannot be changed then"
        ))
        .with_hint(format!("stop it first (coracle stop {title})")));
    }
    let mut record = record::read(&container)?;
    change(&mut record, &title)?;
    Ok(container.write(&record)?)
}

/// The names of networks in which a container is, running or not. A record that cannot be read may
/// name any, so it is an error.
pub fn used(session: &Session) -> Result<HashSet<String>> {
    let mut used = HashSet::new();
    for record in session.store()?.containers().map_nameless(ContainerDir::read::<Record>)? {
        match record {
            Ok(record) => {
                used.extend(record.config.network.networks.into_iter().map(|one| one.name));
            }
            // It was removed meanwhile.
            Err(store::Error::NoContainer { .. }) => {}
            Err(error) => {
                return Err(Error::from(error).within("it is not known which networks are in use"));
            }
        }
    }
    Ok(used)
}

/// Whether the container with this id lives, here or on another host that shares the store. One of
/// which that cannot be known does.
pub fn is_alive(session: &Session, id: &str) -> bool {
    session.store().map_or(true, |store| lives(store, id))
}

fn lives(store: &Store, id: &str) -> bool {
    match store.containers().find(id) {
        Ok(container) => match state::observe(&container.path()) {
            Ok(observed) => matches!(observed, Observed::Running(_) | Observed::Restarting { .. }),
            Err(_) => true,
        },
        Err(store::Error::NoContainer { .. }) => false,
        Err(_) => true,
    }
}

/// Whether a program of the container has begun, and it lives.
pub(crate) fn has_started(store: &Store, id: &str) -> bool {
    lives(store, id)
}

/// Whether a container lives, or somebody is about to start a program in it. The order matters: a
/// start first writes that the container lives and then releases its lock. In the other order both
/// looks would miss a start that does this between them.
pub fn may_live(store: &Store, id: &str) -> bool {
    is_starting(store, id) || lives(store, id)
}

/// What an engine makes a private network of.
pub fn private_by(engine: &dyn Engine) -> PrivateBy {
    let caps = engine.caps();
    if caps.named_networks && !caps.network { PrivateBy::Translation } else { PrivateBy::Namespace }
}

/// Whether a container has a network of its own without a name.
fn has_private(config: &ContainerConfig) -> bool {
    match config.network.mode {
        NetworkMode::Private => true,
        NetworkMode::Default => config.security.isolate,
        _ => false,
    }
}

/// A container in a namespace whose private network no helper program can connect gets it from the
/// switch, as a member of the network [`BRIDGE`], for this start.
pub fn by_switch(
    session: &Session,
    config: &mut ContainerConfig,
    (engine, facts): (&dyn Engine, &Facts),
) -> Result<()> {
    let can = engine.caps().named_networks && private_by(engine) == PrivateBy::Namespace;
    if has_private(config) && can && facts.no_helper_out().is_some() {
        bridge(session.store()?)?;
        enter_bridge(config);
        // By itself another mode would be chosen for a network with a name.
        config.exec_mode = Some(engine.name().to_owned());
    }
    Ok(())
}

/// The network of those that name none, where the switch makes it.
fn bridge(store: &Store) -> Result<Network> {
    let (routes, routes6) = routes();
    Ok(Networks::of(store).bridge(time::now().to_string(), (&routes, &routes6))?)
}

/// The destinations of the host's routes.
pub fn routes() -> (Vec<Subnet>, Vec<Prefix>) {
    // Without a network namespace of one's own it is the host's.
    let read = |file: &str| std::fs::read_to_string(Path::new("/proc/self/net").join(file));
    let text = |file| read(file).unwrap_or_default();
    (ipam::routes(&text("route")), prefix::routes(&text("ipv6_route")))
}

fn enter_bridge(config: &mut ContainerConfig) {
    let wanted = Membership { name: BRIDGE.to_owned(), ..Membership::default() };
    put(&mut config.network, vec![wanted]);
}

/// The network [`BRIDGE`], if the container is a member of it.
fn bridge_of(store: &Store, id: &str, config: &ContainerConfig) -> Result<Option<Network>> {
    if !has_private(config) {
        return Ok(None);
    }
    let Some(network) = Networks::of(store).get(BRIDGE)? else { return Ok(None) };
    let is_member = members::list(&network)?.iter().any(|entry| entry.id == id);
    Ok(Some(network).filter(|_| is_member))
}

/// Gives the configuration of a container that lives the networks that it got when it started; see
/// [`by_switch`].
pub fn as_started(session: &Session, id: &str, config: &mut ContainerConfig) -> Result<()> {
    if bridge_of(session.store()?, id, config)?.is_some() {
        enter_bridge(config);
    }
    Ok(())
}

/// Lets a container that is about to start into its networks: it gets its addresses, and the other
/// members learn its names. One that has a private network gets ports and a loopback of its own,
/// where the engine has no namespaces for it. `lives`: somebody lives in it, so it is in them
/// already. One that shares another container's network gets the place of that one.
///
/// # Errors
/// Those of [`net::members::join`] and [`net::table::enter`]; a published port that is taken; a
/// network of several hosts that is not served. Then it is in no network.
pub fn join(
    session: &Session,
    container: &ContainerDir,
    config: &ContainerConfig,
    (engine, lives): (&dyn Engine, bool),
) -> Result<Option<NetworkPlace>> {
    if private_by(engine) == PrivateBy::Translation
        && let NetworkMode::Container(_) = config.network.mode
    {
        return shared::share(session, container, config, lives);
    }
    let is_private =
        config.network.mode == NetworkMode::Private && private_by(engine) == PrivateBy::Translation;
    if config.network.networks.is_empty() && !is_private {
        return Ok(None);
    }
    let kind = match private_by(engine) {
        PrivateBy::Translation => Kind::Names,
        PrivateBy::Namespace => Kind::Packets,
    };
    let joined = joined(session, container, config, (Some(kind).filter(|_| !lives), lives));
    if joined.is_err() && !lives {
        // The first error is the one that is told.
        let _ = leave(session, container, config);
    }
    joined.map(Some)
}

fn joined(
    session: &Session,
    container: &ContainerDir,
    config: &ContainerConfig,
    (kind, lives): (Option<Kind>, bool),
) -> Result<NetworkPlace> {
    let store = session.store()?;
    let may_live = |id: &str| may_live(store, id);
    let networks = find(session, &config.network.networks)?;
    let mut endpoints = Vec::new();
    for (network, wanted) in networks.iter().zip(&config.network.networks) {
        if let Some(kind) = kind {
            check_ipv6(network, wanted, kind)?;
        }
        let member = Member { kind, ..as_member(container, config, wanted) };
        if let Some(kind) = kind
            && let Some(other) = remote::remote(network)?.into_iter().find(|one| one.kind != kind)
        {
            let (network, by) = (network.name().to_owned(), other.name);
            return Err(net::Error::Mixed { network, by, kind: other.kind }.into());
        }
        endpoints.push(members::join(network, &member, &may_live)?);
    }
    let slot = match endpoints.first() {
        Some(first) => first.slot,
        None => members::take_slot(store, container.id(), &may_live)?,
    };
    let published = ports::as_published(&config.network.publish)?;
    // Those that share its network have gone on, with what they have bound.
    let lives = lives || members::is_shared(store, container.id(), &may_live)?;
    if !lives {
        ports::check_free(&config.network.publish)?;
    }
    let resolvers = resolvers();
    let row = table::Row {
        id: container.id(),
        slot,
        endpoints: &endpoints,
        published: &published,
        lives,
        resolvers: &resolvers,
    };
    let place = table::enter(store, &row)?;
    let several = networks.iter().zip(&endpoints).filter(|(_, endpoint)| endpoint.node.is_some());
    for (network, _) in several {
        // Without it no other host is reached, and this one by none.
        agent::ensure_served(store, network)?;
    }
    tell(store, &networks)?;
    let address = endpoints.first().map_or(Ipv4Addr::LOCALHOST, |first| first.address);
    let hosts = hosts::rewrite("", &lines(container.id(), &networks)?);
    // One that was renamed while it runs keeps its host name.
    let name = Some(()).filter(|()| lives).and_then(|()| host_name(container));
    let name =
        name.unwrap_or_else(|| hosts::name(&record::title(container), container.id()).to_owned());
    // Without it members are found by `/etc/hosts`, and other names as on the host.
    let asks = !endpoints.is_empty()
        && agent::ensure(session.store()?)
            .inspect_err(|error| {
                session.warn(&format!("no answers to questions for names: {error}"));
            })
            .is_ok();
    let (table, slot) = (place.table, place.slot);
    let by_packets = endpoints.iter().any(|endpoint| endpoint.kind == Kind::Packets);
    let publish = &config.network.publish;
    let switch = by_packets.then(|| switch(store, container.id(), &endpoints, publish));
    Ok(NetworkPlace { table, slot, address, name, hosts, asks, switch })
}

/// Refuses a wish for an IPv6 address in a mode that has none, and where the network has other
/// addresses than it had when the container was made.
fn check_ipv6(network: &Network, wanted: &Membership, kind: Kind) -> Result<()> {
    let Some(ipv6) = wanted.ipv6 else { return Ok(()) };
    if kind == Kind::Names {
        return Err(Error::unsupported(format!(
            "the container cannot have the address {ipv6} in network {}: its mode gives IPv4 \
             addresses only",
            network.name()
        ))
        .with_hint("use a mode with namespaces (--execmode=N1), or give --ip and not --ip6"));
    }
    ipam::from_ipv6(network.definition(), ipv6, wanted.address)?;
    Ok(())
}

/// What the switch is told of a container, and what the container's devices are.
fn switch(store: &Store, id: &str, endpoints: &[Endpoint], publish: &[Publish]) -> Switch {
    let link = |endpoint: &Endpoint| Link {
        address: endpoint.address,
        prefix: endpoint.subnet.prefix(),
        ethernet: frame::ethernet(endpoint.address),
        mtu: MTU,
        gateway: Some(endpoint.gateway).filter(|_| !endpoint.internal),
        ipv6: endpoint.prefix.map(|prefix| (prefix.of(endpoint.address), prefix.bits())),
    };
    let ports = |one: &Publish| {
        let udp = one.udp;
        one.pairs().map(move |(_, inside)| (udp, inside))
    };
    let ports: Vec<_> = publish.iter().flat_map(ports).collect();
    Switch {
        socket: agent::socket(store),
        greeting: agent::greeting(id, endpoints),
        way_out: agent::way_out(endpoints, &ports),
        start: (agent::WORD.to_owned(), store.path().to_owned()),
        links: endpoints.iter().map(link).collect(),
    }
}

/// The host name that a container has had since its last start, if it has begun with one.
pub(super) fn host_name(container: &ContainerDir) -> Option<String> {
    // Programs in the container may have written to the file.
    let file = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(file.bits()).ok()?;
    let path = container.path().join("etc/hostname");
    let file = std::fs::File::options().read(true).custom_flags(flags).open(path).ok()?;
    let mut text = String::new();
    file.take(HOST_NAME_LIMIT).read_to_string(&mut text).ok()?;
    let name = text.trim();
    hosts::is_name(name).then(|| name.to_owned())
}

/// The facts that matter to a container.
pub fn facts(session: &Session, config: &ContainerConfig) -> Facts {
    let mut facts = Facts::of(session.host(), &session.probing(), config);
    if facts.no_overlay.is_none() {
        facts.no_overlay = group::foreign(session, config, &facts);
    }
    let named = &config.network.networks;
    facts.internal_networks = !named.is_empty()
        && find(session, named)
            .is_ok_and(|all| all.iter().all(|network| network.definition().internal));
    facts.shared_network = shared::of(session, config);
    if config.add_host.iter().any(|(_, address)| address == "host-gateway") {
        facts.host_address = net::peers::local::default().ok();
    }
    facts.shared_name = named_by(config)
        .and_then(|other| record::find(session, other).ok())
        .and_then(|other| host_name(&other));
    facts
}

/// The container whose host name a container shares, if its mode has one to share.
fn named_by(config: &ContainerConfig) -> Option<&str> {
    match (&config.namespaces.uts, &config.network.mode, &config.join) {
        (NamespaceMode::Container(other), ..)
        | (NamespaceMode::Default, NetworkMode::Container(other), _)
        | (NamespaceMode::Default, _, Some(other)) => Some(other),
        _ => None,
    }
}

fn as_member(container: &ContainerDir, config: &ContainerConfig, wanted: &Membership) -> Member {
    let mut aliases = wanted.aliases.clone();
    // As in Docker, a container is also found by the host name that it was given.
    let own = config.hostname.iter().filter(|name| hosts::is_name(name));
    aliases.extend(own.filter(|name| !wanted.aliases.contains(name)).cloned());
    Member {
        id: container.id().to_owned(),
        name: record::title(container),
        aliases,
        address: wanted.address,
        kind: None,
    }
}

/// The place that a running container has.
pub fn place(
    session: &Session,
    container: &ContainerDir,
    config: &ContainerConfig,
) -> Result<Option<NetworkPlace>> {
    let network = &config.network;
    let has_place = match network.mode {
        NetworkMode::Container(_) => return shared::share(session, container, config, true),
        NetworkMode::Private => members::has_slot(session.store()?, container.id())?,
        _ => !network.networks.is_empty(),
    };
    if has_place { joined(session, container, config, (None, true)).map(Some) } else { Ok(None) }
}

/// Takes a container in which nobody lives any more out of its networks, and its names from the
/// other members.
pub fn leave(session: &Session, container: &ContainerDir, config: &ContainerConfig) -> Result<()> {
    // One that was removed meanwhile has nobody.
    let names = config.network.networks.iter().map(std::slice::from_ref);
    let mut networks: Vec<Network> =
        names.filter_map(|one| find(session, one).ok()).flatten().collect();
    networks.extend(bridge_of(session.store()?, container.id(), config)?);
    for network in &networks {
        members::leave(network, container.id())?;
    }
    if networks.is_empty() {
        members::leave_slot(session.store()?, container.id())?;
    }
    tell(session.store()?, &networks)
}

fn find(session: &Session, named: &[Membership]) -> Result<Vec<Network>> {
    Ok(find_in(session.store()?, named)?)
}

fn find_in(store: &Store, named: &[Membership]) -> net::Result<Vec<Network>> {
    named.iter().map(|one| Networks::of(store).find(&one.name)).collect()
}

/// Tells the networks of a container its name, which has changed: in those in which it is now it is
/// found by the new one at once.
pub(super) fn renamed(session: &Session, container: &ContainerDir) -> Result<()> {
    let record = record::read(container)?;
    let title = record::title(container);
    let mut told = Vec::new();
    for wanted in &record.config.network.networks {
        // One that was removed has no members.
        let Some(network) = Networks::of(session.store()?).get(&wanted.name)? else { continue };
        if members::rename(&network, container.id(), &title)? {
            told.push(network);
        }
    }
    tell(session.store()?, &told)
}

/// Has the live members of networks know each other's names: writes their `/etc/hosts`.
pub(crate) fn tell(store: &Store, networks: &[Network]) -> Result<()> {
    let mut told = HashSet::new();
    let named = networks.iter().filter(|network| network.name() != BRIDGE);
    for entry in named.map(members::list).collect::<net::Result<Vec<_>>>()?.concat() {
        let Ok(container) = store.containers().find(&entry.id) else { continue };
        if !told.insert(entry.id.clone()) {
            continue;
        }
        // A container that has not started gets its file when it does.
        let file = container.path().join("etc/hosts");
        let Ok(record) = record::read(&container) else { continue };
        if file.exists()
            && let Ok(its) = find_in(store, &record.config.network.networks)
        {
            let written = hosts::write(&file, |others| {
                let mut lines = lines(&entry.id, &its)?;
                if let Some(name) = host_name(&container) {
                    hosts::keep_host_name(&mut lines, &entry.id, others, &name);
                }
                Ok(lines)
            });
            match written {
                // The container's root has taken it away; its programs still get answers.
                Err(net::Error::Hosts { source, .. })
                    if source.kind() == ErrorKind::PermissionDenied => {}
                told => told?,
            }
        }
    }
    Ok(())
}

/// The lines for a container of its networks.
fn lines(id: &str, networks: &[Network]) -> net::Result<Vec<String>> {
    let mut entries = networks.iter().map(remote::members).collect::<net::Result<Vec<_>>>()?;
    for (network, entries) in networks.iter().zip(&mut entries) {
        if network.name() == BRIDGE {
            entries.retain(|entry| entry.id == id);
        }
    }
    let named: Vec<hosts::Named<'_>> =
        networks.iter().zip(&entries).map(|(one, list)| (one.definition(), &**list)).collect();
    Ok(hosts::lines(id, &named))
}

/// Whether somebody is about to start a program in a container: he holds its lock until its state
/// says so.
fn is_starting(store: &Store, id: &str) -> bool {
    let Ok(container) = store.containers().find(id) else { return false };
    !matches!(container.try_lock_exclusive(), Ok(Some(_)))
}

/// The servers at which the host asks for names (resolv.conf(5)).
pub fn servers_of_host() -> Vec<IpAddr> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let servers = text.lines().filter_map(|line| line.strip_prefix("nameserver"));
    servers.filter_map(|address| address.trim().parse().ok()).collect()
}

/// Those at its loopback addresses.
fn resolvers() -> Vec<Ipv4Addr> {
    let old = |address| if let IpAddr::V4(address) = address { Some(address) } else { None };
    servers_of_host().into_iter().filter_map(old).filter(Ipv4Addr::is_loopback).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_is_the_first_network() {
        let named = |name: &str| Membership { name: name.into(), ..Membership::default() };
        let mut spec = NetworkSpec::default();
        put(&mut spec, Vec::new());
        assert_eq!(spec, NetworkSpec::default());
        put(&mut spec, vec![named("b"), named("a")]);
        assert_eq!((&spec.mode, spec.networks.len()), (&NetworkMode::Named("b".into()), 2));
    }
}
