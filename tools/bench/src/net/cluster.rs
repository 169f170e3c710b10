//! Simulated hosts with one store and networks that join them, for measurements on several hosts.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use testkit::command::until;
use testkit::hosts::Hosts;

use super::place::{coracle, own, run, words};
use crate::Bench;
use xtask::shell::Outcome;

/// A network of all hosts, and the port of its agents.
pub(crate) struct Network {
    pub(crate) name: &'static str,
    subnet: &'static str,
    port: &'static str,
}

/// Members are of one kind in a network: by names or by packets.
pub(crate) const BY_NAME: Network =
    Network { name: "byname", subnet: "100.92.0.0/20", port: "7370" };
pub(crate) const BY_PACKET: Network =
    Network { name: "bypacket", subnet: "100.93.0.0/20", port: "7371" };

/// How long a network may take until its hosts are linked.
const SOON: Duration = Duration::from_secs(30);

/// Hosts, their networks and containers, all of which are removed with the value.
pub(crate) struct Cluster<'b> {
    pub(crate) bench: &'b Bench,
    pub(crate) hosts: Hosts,
    /// The hosts' network namespaces, as links in `/proc` show them.
    namespaces: Vec<PathBuf>,
    networks: Vec<&'static str>,
    containers: Vec<(usize, String)>,
}

impl<'b> Cluster<'b> {
    /// Starts hosts.
    pub(crate) fn start(bench: &'b Bench, count: usize) -> Outcome<Self> {
        let hosts = Hosts::start(count, bench.scratch.path()).map_err(|skip| skip.0)?;
        let (networks, containers, namespaces) = (Vec::new(), Vec::new(), Vec::new());
        let mut cluster = Self { bench, hosts, namespaces, networks, containers };
        let of = |host| run(&cluster.on(host, &own(&["readlink", "/proc/self/ns/net"])));
        let all = (0..count).filter_map(|host| of(host).ok());
        cluster.namespaces = all.map(|text| text.trim().into()).collect();
        Ok(cluster)
    }

    /// The words of a command on a host.
    pub(crate) fn on(&self, host: usize, command: &[String]) -> Vec<String> {
        let mut inner = Command::new(&command[0]);
        inner.args(&command[1..]);
        let there = self.hosts.command(host, &inner);
        let all = std::iter::once(there.get_program()).chain(there.get_args());
        all.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// Runs `coracle` on a host as the measured user.
    pub(crate) fn coracle(&self, host: usize, command: &[&str]) -> Outcome<String> {
        run(&self.on(host, &words(&[&coracle(self.bench), &own(command)])))
    }

    /// Makes a network of all hosts.
    pub(crate) fn network(&mut self, network: &Network) -> Outcome {
        let Network { name, subnet, port } = *network;
        self.networks.push(name);
        let mut list = String::new();
        for host in 0..self.hosts.count() {
            let address = self.hosts.address(host).to_string();
            let place = ["--address", &address, "--port", port, name];
            // The hosts have one store, where the network is made once.
            let file = self.list(&list)?;
            let join = ["network", "join", "--member", &file];
            let create = ["network", "create", "--scope=cluster", "--internal", "--subnet", subnet];
            let words = if host == 0 { &create[..] } else { &join[..] };
            self.coracle(host, &[words, &place].concat())?;
            list += &self.coracle(host, &["network", "invite", name])?;
        }
        let file = self.list(&list)?;
        for host in 0..self.hosts.count() {
            self.coracle(host, &["network", "join", name, "--member", &file])?;
        }
        Ok(())
    }

    /// Writes the list of the hosts.
    fn list(&self, text: &str) -> Outcome<String> {
        let file = self.bench.scratch.path().join("hosts.toml");
        fs::write(&file, text).map_err(|error| error.to_string())?;
        Ok(file.display().to_string())
    }

    /// Starts a container that goes on, and gives its address. `before` are words such as those
    /// that choose a processor.
    pub(crate) fn serve(
        &mut self,
        host: usize,
        before: &[String],
        (network, name): (&str, &str),
        container: &[&str],
    ) -> Outcome<String> {
        self.containers.push((host, name.to_owned()));
        let options = ["run", "-d", "--name", name, "--network", network];
        let all = words(&[before, &coracle(self.bench), &own(&options), &own(container)]);
        run(&self.on(host, &all))?;
        let format = format!("{{{{.NetworkSettings.Networks.{network}.IPAddress}}}}");
        Ok(self.coracle(host, &["inspect", "-f", &format, name])?.trim().to_owned())
    }

    /// The agents of all hosts.
    pub(crate) fn agents(&self) -> Vec<u32> {
        self.others(|name| name == "coracle-names")
    }

    /// Processes in the hosts' networks, chosen by their names. Some have process ids of their own.
    pub(crate) fn others(&self, is_one: impl Fn(&str) -> bool) -> Vec<u32> {
        let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let mut found = super::processes(|name, _| is_one(name));
        let is_theirs = |place| self.namespaces.contains(&place);
        found.retain(|pid| network(&pid.to_string()).is_some_and(is_theirs));
        found
    }

    /// Waits until a command on a host succeeds.
    pub(crate) fn wait(&self, host: usize, command: &[String]) -> Outcome {
        let all = self.on(host, command);
        let mut last = String::new();
        let done = until(SOON, || run(&all).map_err(|error| last = error).ok());
        if done.is_some() { Ok(()) } else { Err(last) }
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        for (host, name) in &self.containers {
            let _ = self.coracle(*host, &["rm", "-f", name]);
        }
        for network in &self.networks {
            for host in 0..self.hosts.count() {
                let _ = self.coracle(host, &["network", "rm", network]);
            }
        }
    }
}
