//! The network of another container, which a container shares (`--network container:NAME`).
//!
//! In a network namespace the engine enters it. Where addresses are translated, both containers
//! have the same place in the table of networks, and so the same addresses, ports, loopback and
//! name server. Each way needs an engine of its kind, which [`of`] tells before one is chosen.

use std::net::Ipv4Addr;
use std::path::Path;

use engine::choose::Engine;
use engine::facts::SharedNetwork;
use engine::plan::{NetworkPlace, Plan, PrivateBy, Source};
use engine::spec::{ContainerConfig, NamespaceMode, NetworkMode};
use net::{Kind, hosts, members, table};
use store::{ContainerDir, Store};
use sys::namespace::Kinds;

use super::super::record::{self, Record};
use super::super::running;
use super::{find, host_name, lives, private_by};
use crate::error::Result;
use crate::session::Session;

/// The container whose network a container shares, if it does.
fn other(config: &ContainerConfig) -> Option<&str> {
    match (&config.network.mode, &config.join) {
        (NetworkMode::Container(name), _) | (NetworkMode::Default, Some(name)) => Some(name),
        _ => None,
    }
}

/// What makes the network that a container shares, or is to share; `None` for the host's, and where
/// the other container does not run.
pub(super) fn of(session: &Session, config: &ContainerConfig) -> Option<SharedNetwork> {
    let name = other(config)?;
    let store = session.store().ok()?;
    if !config.id.is_empty() && lives(store, &config.id) {
        // What the other one has by now is of no matter.
        let own = members::shared_slot(store, &config.id).ok().flatten();
        return own.map(|_| SharedNetwork::Names);
    }
    let container = record::find(session, name).ok()?;
    let pid = running::main_process(session, container.id())?;
    if running::has_own_network(pid) {
        return Some(SharedNetwork::Namespace);
    }
    is_translated(store, &container).then_some(SharedNetwork::Names)
}

/// Whether the addresses of a running container are translated.
fn is_translated(store: &Store, container: &ContainerDir) -> bool {
    let Ok(record) = record::read(container) else { return false };
    match record.config.network.mode {
        NetworkMode::Named(_) | NetworkMode::Private => {
            matches!(members::kind(store, container.id()), Ok(Some(Kind::Names)))
        }
        NetworkMode::Container(_) => {
            matches!(members::shared_slot(store, container.id()), Ok(Some(_)))
        }
        NetworkMode::Default | NetworkMode::Host | NetworkMode::None => false,
    }
}

/// The place of a container whose engine translates addresses: that of the container whose network
/// it shares. `None` where that one has the host's network, or does not run. `lives`: the container
/// has it already.
///
/// # Errors
/// Those of reading and writing the table of slots.
pub(super) fn share(
    session: &Session,
    container: &ContainerDir,
    config: &ContainerConfig,
    lives: bool,
) -> Result<Option<NetworkPlace>> {
    let (store, id) = (session.store()?, container.id());
    let named = other(config).and_then(|name| record::find(session, name).ok());
    if !lives {
        // A start of its own says that the other one does not run.
        let is_there = |one: &ContainerDir| running::main_process(session, one.id()).is_some();
        let Some(named) = named.filter(is_there).filter(|one| is_translated(store, one)) else {
            return Ok(None);
        };
        members::share_slot(store, named.id(), id)?;
    }
    let Some((slot, owner)) = members::shared_slot(store, id)? else { return Ok(None) };
    let table::Place { table, slot } = table::place(store, slot)?;
    let owner = store.containers().find(&owner).ok();
    let source = if lives { Some(container) } else { owner.as_ref() };
    let name = source.map(|one| {
        let title = || hosts::name(&record::title(one), one.id()).to_owned();
        host_name(one).unwrap_or_else(title)
    });
    Ok(Some(NetworkPlace {
        table,
        slot,
        address: owner.and_then(|one| address(session, &one)).unwrap_or(Ipv4Addr::LOCALHOST),
        name: name.unwrap_or_default(),
        // Its files are shared.
        hosts: String::new(),
        asks: false,
        switch: None,
    }))
}

/// The address of a container in its first network.
fn address(session: &Session, container: &ContainerDir) -> Option<Ipv4Addr> {
    let record: Record = record::read(container).ok()?;
    let networks = find(session, &record.config.network.networks).ok()?;
    let entries = members::list(networks.first()?).ok()?;
    entries.iter().find(|entry| entry.id == container.id()).map(|entry| entry.address)
}

/// The host name of the container whose network is shared, where no namespace brings it. `exec`:
/// the container runs, and has it.
pub fn host_name_there(
    session: &Session,
    container: &ContainerDir,
    config: &ContainerConfig,
    (engine, exec): (&dyn Engine, bool),
) -> Option<String> {
    let NetworkMode::Container(name) = &config.network.mode else { return None };
    let is_asked = config.hostname.as_deref().is_some_and(|name| !name.is_empty());
    let takes_it = !is_asked && config.namespaces.uts == NamespaceMode::Default;
    if !takes_it || !engine.caps().host_name {
        return None;
    }
    let by_namespace = private_by(engine) == PrivateBy::Namespace;
    let own_name = |pid| sys::namespace::different(pid).is_ok_and(|own| own.has(Kinds::UTS));
    let found = if exec {
        host_name(container).filter(|_| !by_namespace)
    } else {
        let other = record::find(session, name).ok()?;
        let pid = running::main_process(session, other.id())?;
        if by_namespace && own_name(pid) {
            return None;
        }
        host_name(&other)
    };
    let of_host = rustix::system::uname();
    found.filter(|name| name.as_bytes() != of_host.nodename().to_bytes())
}

/// Shows a container that shares another one's network that one's names, too: its `/etc/hosts`,
/// `/etc/resolv.conf` and, with its host name, `/etc/hostname` as they are now.
pub fn share_files(session: &Session, config: &ContainerConfig, plan: &mut Plan) {
    let Some(Ok(other)) = other(config).map(|name| record::find(session, name)) else { return };
    let has_name = matches!(plan.namespaces.uts, Source::Of(_));
    for file in &mut plan.files {
        let shared = ["hosts", "resolv.conf", "hostname"]
            .into_iter()
            .filter(|name| has_name || *name != "hostname")
            .filter(|name| file.base.as_deref() == Some(&Path::new("/etc").join(name)))
            .map(|name| other.path().join("etc").join(name))
            .find(|path| path.exists());
        if shared.is_some() {
            file.base = shared;
        }
    }
}
