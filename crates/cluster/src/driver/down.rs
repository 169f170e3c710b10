//! The end of a cluster.

use super::at::words;
use super::hosts::{Host, Hosts, failed};
use super::status;
use crate::error::Result;
use crate::plan::LABEL;

/// Stops and removes the containers of a cluster and its network; volumes and images stay. Returns
/// how many containers there were. All is well where nothing is left.
///
/// # Errors
/// If something stays.
pub(super) fn down(cluster: &str, hosts: &Hosts) -> Result<usize> {
    let end = |host: &dyn Host| {
        if hosts.is_local() { down_here(cluster, host) } else { down_there(cluster, host) }
    };
    hosts.each(end).into_iter().sum()
}

/// Another host ends its part by itself, as it does if the driver is lost.
fn down_there(cluster: &str, host: &dyn Host) -> Result<usize> {
    let count = status::on(cluster, host)?.len();
    let down = words(&["cluster", "down", cluster]);
    let done = host.run(&down)?;
    let what = || format!("cluster {cluster} on {} is not gone", host.name());
    if done.is_good() { Ok(count) } else { Err(failed(what(), &down, &done)) }
}

fn down_here(cluster: &str, host: &dyn Host) -> Result<usize> {
    let names: Vec<String> =
        status::on(cluster, host)?.into_iter().map(|container| container.name).collect();
    if !names.is_empty() {
        // Those that have ended meanwhile are no matter.
        host.run(&with(&["stop"], &names))?;
        let remove = with(&["rm", "-f", "-v"], &names);
        let done = host.run(&remove)?;
        if !status::on(cluster, host)?.is_empty() {
            return Err(failed(format!("cluster {cluster} is not gone"), &remove, &done));
        }
    }
    let filter = format!("label={LABEL}={cluster}");
    let list = words(&["network", "ls", "-q", "--no-trunc", "--filter", &filter]);
    let done = host.run(&list)?;
    if !done.is_good() {
        return Err(failed("the cluster's network", &list, &done));
    }
    let networks: Vec<String> = done.text().lines().map(str::to_owned).collect();
    if !networks.is_empty() {
        let remove = with(&["network", "rm"], &networks);
        let done = host.run(&remove)?;
        if !done.is_good() {
            return Err(failed("the cluster's network", &remove, &done));
        }
    }
    Ok(names.len())
}

fn with(first: &[&str], more: &[String]) -> Vec<String> {
    [words(first), more.to_vec()].concat()
}
