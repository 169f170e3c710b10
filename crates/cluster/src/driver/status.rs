//! What there is of a cluster.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::at::words;
use super::hosts::{Host, Hosts, Lost, failed};
use crate::error::{Error, Result};
use crate::plan::{LABEL, NODE_LABEL, SERVICE_LABEL};

/// A container of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// The host that it is on.
    pub host: String,
    /// Its name.
    pub name: String,
    /// The service that it belongs to, or the node that it is; empty for one that looks whether a
    /// service is ready.
    pub role: String,
    /// `running`, `exited` and so on.
    pub state: String,
    /// The state in words, with its time.
    pub status: String,
    /// Its image.
    pub image: String,
    /// Its published ports.
    pub ports: String,
}

/// The name of a container without that of its cluster: `node2`, `db-1`.
pub(super) fn short<'c>(cluster: &str, name: &'c str) -> &'c str {
    let short = name.strip_prefix(cluster).and_then(|rest| rest.strip_prefix('-'));
    short.unwrap_or(name)
}

/// The containers of a cluster, by name.
///
/// # Errors
/// If they cannot be listed.
pub(super) fn status(cluster: &str, hosts: &Hosts) -> Result<Vec<Container>> {
    by_name(hosts, |host| on(cluster, host))
}

/// The containers on the hosts that answer, by name, and the hosts that do not.
///
/// # Errors
/// If those of a host that answers cannot be listed.
pub fn status_of_reached(cluster: &str, hosts: &Hosts) -> Result<(Vec<Container>, Vec<Lost>)> {
    let list = |host: &dyn Host| unless_lost(host, on(cluster, host));
    Ok((by_name(hosts, list)?, hosts.lost()))
}

/// What came of work on a host; nothing, and no error, where the host was lost.
fn unless_lost<T: Default>(host: &dyn Host, done: Result<T>) -> Result<T> {
    match done {
        Err(_) if host.lost().is_some() => Ok(T::default()),
        done => done,
    }
}

/// What each host lists, by name.
fn by_name(
    hosts: &Hosts,
    list: impl Fn(&dyn Host) -> Result<Vec<Container>> + Sync,
) -> Result<Vec<Container>> {
    let all: Result<Vec<_>> = hosts.each(list).into_iter().collect();
    let mut found = all?.concat();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// Removes containers that an earlier driver has left in the middle of its work: those that look
/// whether a service is ready. What is on a lost host stays.
///
/// # Errors
/// If one stays.
pub(super) fn remove_passing(cluster: &str, hosts: &Hosts) -> Result<()> {
    let remove = |host: &dyn Host| unless_lost(host, remove_passing_on(cluster, host));
    hosts.each(remove).into_iter().collect()
}

fn remove_passing_on(cluster: &str, host: &dyn Host) -> Result<()> {
    let all = on(cluster, host)?.into_iter();
    let names: Vec<String> = all.filter(|one| one.role.is_empty()).map(|one| one.name).collect();
    if names.is_empty() {
        return Ok(());
    }
    let words = [vec!["rm".to_owned(), "-f".to_owned(), "-v".to_owned()], names].concat();
    let done = host.run(&words)?;
    // One that is being removed by its own command is gone as well.
    if on(cluster, host)?.iter().all(|one| !one.role.is_empty()) {
        return Ok(());
    }
    Err(failed(format!("what an earlier driver has left on {}", host.name()), &words, &done))
}

/// Those of containers whose end somebody has asked for, by name: by 'stop', or with a removal. The
/// state of such a one may be `running` for a while yet.
///
/// # Errors
/// If they cannot be asked for.
pub(super) fn stopped(containers: &[&Container], hosts: &Hosts) -> Result<BTreeSet<String>> {
    let on = |host: &dyn Host| -> Result<BTreeSet<String>> {
        let own = containers.iter().filter(|one| one.host == host.name());
        let own: Vec<String> = own.map(|one| one.name.clone()).collect();
        if own.is_empty() {
            return Ok(BTreeSet::new());
        }
        let format = "{{.Name}} {{.State.StoppedByUser}}";
        let inspect = words(&["container", "inspect", "--format", format]);
        // One that is gone by now has no line.
        let done = host.run(&[inspect, own].concat())?.text();
        let names = done.lines().filter_map(|line| line.strip_suffix(" true"));
        Ok(names.map(|name| name.trim_start_matches('/').to_owned()).collect())
    };
    let all: Result<Vec<_>> = hosts.each(on).into_iter().collect();
    Ok(all?.into_iter().flatten().collect())
}

/// The containers of a cluster on one host.
pub(super) fn on(cluster: &str, host: &dyn Host) -> Result<Vec<Container>> {
    let shown =
        ["Names", "State", "Status", "Image", "Ports"].map(|name| format!("{{{{.{name}}}}}"));
    let label = |name: &str| format!("{{{{.Label {name:?}}}}}");
    let shown = shown.into_iter().chain([label(SERVICE_LABEL), label(NODE_LABEL)]);
    let format = shown.collect::<Vec<_>>().join("\t");
    let filter = format!("label={LABEL}={cluster}");
    let words = ["ps", "-a", "--no-trunc", "--filter", &filter, "--format", &format];
    let words: Vec<String> = words.map(str::to_owned).to_vec();
    let done = host.run(&words)?;
    if !done.is_good() {
        return Err(failed(format!("the containers of {cluster}"), &words, &done));
    }
    let mut found = Vec::new();
    for line in done.text().lines() {
        let cells: Vec<&str> = line.split('\t').collect();
        let [name, state, status, image, ports, service, node] = cells[..] else {
            return Err(Error::new(format!("a line of ps that is not understood: {line:?}")));
        };
        let role = if service.is_empty() { node } else { service };
        let [name, role, state, status, image, ports] =
            [name, role, state, status, image, ports].map(str::to_owned);
        let host = host.name().to_owned();
        found.push(Container { host, name, role, state, status, image, ports });
    }
    Ok(found)
}
