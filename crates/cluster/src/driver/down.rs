//! The end of a cluster.

use super::{Host, Hosts, failed, status};
use crate::error::Result;
use crate::plan::LABEL;

/// Stops and removes the containers of a cluster and its network; volumes and images stay. Returns
/// how many containers there were. All is well where nothing is left.
///
/// # Errors
/// If something stays.
pub(super) fn down(cluster: &str, hosts: &Hosts) -> Result<usize> {
    hosts.each(|host| down_on(cluster, host)).into_iter().sum()
}

fn down_on(cluster: &str, host: &dyn Host) -> Result<usize> {
    let names: Vec<String> =
        status::on(cluster, host)?.into_iter().map(|container| container.name).collect();
    if !names.is_empty() {
        // Those that have ended meanwhile are no matter.
        host.run(&with(&["stop"], &names))?;
        let remove = with(&["rm", "-f"], &names);
        let done = host.run(&remove)?;
        if !status::on(cluster, host)?.is_empty() {
            return Err(failed(format!("cluster {cluster} is not gone"), &remove, &done));
        }
    }
    let filter = format!("label={LABEL}={cluster}");
    let list = with(&["network", "ls", "-q", "--no-trunc", "--filter", &filter], &[]);
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

fn with(words: &[&str], more: &[String]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).chain(more.iter().cloned()).collect()
}
