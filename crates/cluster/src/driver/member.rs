//! The containers of a cluster that somebody names, and commands in them.

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

use containers::Session;
use containers::config::nearest::nearest;

use super::doors::Doors;
use super::relay::{Ended, Signals, relay};
use super::status::{short, status};
use super::transfer::Transfer;
use super::{Attach, Container, Hosts, Ran, Setting, ranks};
use crate::error::{Error, Result};
use crate::plan::{Plan, Words};
use crate::spec::Spec;

/// What a further command in a container gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exec {
    /// Standard input.
    pub input: bool,
    /// A terminal of its own.
    pub terminal: bool,
    /// Variables, `NAME=VALUE`, or `NAME` alone for one that is taken away.
    pub env: Vec<String>,
    /// The user in the container; `None` for the container's.
    pub user: Option<String>,
    /// The directory in the container; `None` for the container's.
    pub directory: Option<String>,
}

impl Exec {
    fn words(&self) -> Words {
        let mut words = Words::from(vec!["exec".to_owned()]);
        words.extend(self.input.then_some("-i"));
        words.extend(self.terminal.then_some("-t"));
        self.env.iter().for_each(|env| words.variable(env.clone()));
        words.extend(self.user.iter().flat_map(|user| ["--user", user]));
        words.extend(self.directory.iter().flat_map(|path| ["--workdir", path]));
        words
    }
}

/// Runs a further command in a container of a cluster. Returns its exit status. Other hosts are
/// only reached if the container is not where it was started.
///
/// # Errors
/// If the container does not exist, or does not run.
pub fn exec(
    cluster: &str,
    node: &str,
    setting: &Setting,
    how: &Exec,
    command: &[String],
) -> Result<u8> {
    // Before there are other threads, which would take them.
    let signals = Signals::take()?;
    let near = super::reach_with(setting, cluster, node)?;
    let found = near.and_then(|hosts| Some((running(cluster, node, &hosts).ok()?, hosts)));
    let (container, hosts) = if let Some(found) = found {
        found
    } else {
        let hosts = super::reach(setting, cluster)?;
        (running(cluster, node, &hosts)?, hosts)
    };
    let mut words = how.words();
    words.push(container.name.clone());
    words.extend(command);
    let attach = Attach { input: how.input, terminal: how.terminal };
    attached(&hosts, &container.host, &words, (attach, &signals), None).map(|ended| ended.status)
}

/// Runs a command on a host with the streams of this process, and passes signals on. With a time it
/// gets no terminal and is ended after that.
fn attached(
    hosts: &Hosts,
    host: &str,
    words: &Words,
    (attach, signals): (Attach, &Signals),
    time: Option<Duration>,
) -> Result<Ended> {
    let host = hosts.of(Some(host))?;
    let is_direct = hosts.is_local() || attach.terminal && std::io::stdin().is_terminal();
    if is_direct && time.is_none() {
        let status = host.run_attached(words, attach)?;
        return Ok(Ended { status, is_late: false });
    }
    relay(host.begin(words, attach.input)?, attach.input, &|within| signals.wait(within), time)
}

/// Runs the application of a file in a cluster that is up, with these streams and a way from its
/// node to the others, and copies its output. `directory` is where relative paths of the file
/// start, absolute. An application with a time gets no terminal.
///
/// # Errors
/// If the container of its node does not run, or a host is not reached.
pub fn run_again(
    spec: &Spec,
    (setting, session): (&Setting, &Session),
    directory: &Path,
    attach: Attach,
) -> Result<Ran> {
    // Before there are other threads, which would take them.
    let signals = Signals::take()?;
    let (hosts, sites) = super::reach_sites(setting, &spec.name, directory)?;
    let plan = crate::plan::plan(spec, &sites);
    let time = spec.run.as_ref().and_then(|run| run.time);
    let (ended, note) = match plan.ranks() {
        Some(ranks) => {
            // An error where its nodes are not up.
            members(&plan.cluster, &hosts)?;
            let signal = |within| signals.wait(within);
            ranks::run(&plan, ranks, &hosts, (attach.input, &signal), time)?
        }
        None => (inside(&plan, &hosts, (attach, &signals), time)?, None),
    };
    let transfer = Transfer { hosts: &hosts, session, stop: &|| false };
    Ok(Ran::of((ended, note), time, || transfer.output(&plan)))
}

/// Runs the application in the container of its node.
fn inside(
    plan: &Plan,
    hosts: &Hosts,
    (attach, signals): (Attach, &Signals),
    time: Option<Duration>,
) -> Result<Ended> {
    let found = plan.run().ok_or_else(|| Error::new("there is nothing to run"))?;
    let (_, container, command) = found;
    let container = running(&plan.cluster, container, hosts)?;
    let attach = Attach { terminal: attach.terminal && time.is_none(), ..attach };
    let streams = Exec { input: attach.input, terminal: attach.terminal, ..Exec::default() };
    let mut words = streams.words();
    words.append(command.without_first(1));
    let doors = Doors::open(plan, hosts)?;
    let far = (!hosts.is_local()).then_some(&*container.host);
    attached(hosts, &container.host, &doors.told(far, &words), (attach, signals), time)
}

/// The containers of a cluster that is up.
pub(super) fn members(cluster: &str, hosts: &Hosts) -> Result<Vec<Container>> {
    let all = status(cluster, hosts)?;
    if all.is_empty() { Err(not_up(cluster)) } else { Ok(all) }
}

pub(super) fn not_up(cluster: &str) -> Error {
    Error::new(format!("cluster {cluster} is not up"))
        .with_hint("start it: coracle cluster up -d -f FILE")
}

/// Whether a container is meant: by its name, by its name without the cluster's, or by the service
/// or node that it belongs to.
fn is_meant(cluster: &str, node: &str, container: &Container) -> bool {
    container.name == node || short(cluster, &container.name) == node || container.role == node
}

/// The containers that are meant by a name.
///
/// # Errors
/// If there is none.
pub(super) fn meant(cluster: &str, node: &str, all: &[Container]) -> Result<Vec<Container>> {
    let mut found: Vec<Container> =
        all.iter().filter(|container| is_meant(cluster, node, container)).cloned().collect();
    // db-2 before db-10.
    found.sort_by_key(|container| (container.name.len(), container.name.clone()));
    if !found.is_empty() {
        return Ok(found);
    }
    let with_role = all.iter().filter(|container| !container.role.is_empty());
    let mut names: Vec<&str> = with_role
        .flat_map(|container| [&*container.role, short(cluster, &container.name)])
        .collect();
    names.sort_unstable();
    names.dedup();
    let hint = among(node, &names);
    Err(Error::new(format!("cluster {cluster} has no node or service {node:?}")).with_hint(hint))
}

/// What is said to a name that is none of these.
pub(super) fn among(name: &str, names: &[&str]) -> String {
    match nearest(name, names.iter().copied(), 3) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("there are {}", names.join(", ")),
    }
}

/// The first container that is meant by a name and runs.
///
/// # Errors
/// If there is none.
pub(super) fn running(cluster: &str, node: &str, hosts: &Hosts) -> Result<Container> {
    let found = meant(cluster, node, &members(cluster, hosts)?)?;
    if let Some(one) = found.iter().find(|container| container.state == "running") {
        return Ok(one.clone());
    }
    let fact = format!("{} does not run: {}", found[0].name, found[0].status);
    Err(Error::new(fact).with_hint("start it again: coracle cluster up -d -f FILE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str, role: &str) -> Container {
        let [name, role] = [name, role].map(str::to_owned);
        let [host, state, status, image, ports] =
            ["here", "running", "Up", "a", ""].map(str::to_owned);
        Container { host, name, role, state, status, image, ports }
    }

    #[test]
    fn who_is_meant() {
        let all = ["lab-db-1", "lab-db-10", "lab-db-2", "lab-node1"];
        let role = |name: &str| if name.starts_with("lab-db") { "db" } else { "node1" };
        let all: Vec<_> = all.map(|name| container(name, role(name))).to_vec();
        let names = |node: &str| -> Vec<String> {
            let found = meant("lab", node, &all).unwrap();
            found.into_iter().map(|container| container.name).collect()
        };
        assert_eq!(names("db"), ["lab-db-1", "lab-db-2", "lab-db-10"]);
        assert_eq!(names("db-2"), ["lab-db-2"]);
        assert_eq!(names("lab-db-10"), ["lab-db-10"]);
        assert_eq!(names("node1"), ["lab-node1"]);
        let error = meant("lab", "node11", &all).unwrap_err();
        assert_eq!(error.to_string(), "cluster lab has no node or service \"node11\"");
        assert_eq!(error.hint(), Some("did you mean node1?"));
        let error = meant("lab", "cache", &all).unwrap_err();
        assert_eq!(error.hint(), Some("there are db, db-1, db-10, db-2, node1"));
    }
}
