//! The cluster's network: on one host, or joined by several.

use std::path::Path;

use super::at::{At, is_own};
use super::hosts::{Host, failed};
use super::site_of;
use crate::error::Result;

/// Has the network on a host. Returns whether it was made.
pub(super) fn create(at: &At<'_>, create: &[String]) -> Result<bool> {
    if is_own(at.plan, "network", &at.plan.cluster, at.host)? {
        return Ok(false);
    }
    let done = at.run(create)?;
    if done.is_good() { Ok(true) } else { Err(failed("the cluster's network", create, &done)) }
}

/// Makes the network of each host one: collects each host's entry for the list, and gives the list
/// to all of them. A host whose network has survived the others', because an earlier `down` or `up`
/// did not come to its end there, knows another list: it takes this one with a higher epoch, which
/// all must have.
pub(super) fn join(at: &At<'_>) -> Result<()> {
    let (cluster, sites) = (&at.plan.cluster, at.sites);
    let run = |host: &dyn Host, words: &[&str]| {
        let words = super::at::words(words);
        let done = host.run(&words)?;
        let what = || format!("the network on {}", host.name());
        if done.is_good() { Ok(done) } else { Err(failed(what(), &words, &done)) }
    };
    let entry = |host: &dyn Host| Ok(run(host, &["network", "invite", cluster])?.out);
    let entries: Result<Vec<Vec<u8>>> = at.hosts.each(entry).into_iter().collect();
    let entries = entries?.concat();
    let epoch = |host: &dyn Host| {
        let done = run(host, &["network", "inspect", "--format", "{{.Cluster.Epoch}}", cluster])?;
        Ok(done.text().parse().unwrap_or(1))
    };
    let epochs: Result<Vec<u64>> = at.hosts.each(epoch).into_iter().collect();
    let epoch = epochs?.into_iter().max().unwrap_or(1);
    let give = |epoch: u64| -> Result<()> {
        let text = [format!("epoch = {epoch}\n").as_bytes(), &entries].concat();
        let join = |host: &dyn Host| {
            let path = site_of(sites, host).members();
            host.put(Path::new(&path), 0o600, &text)?;
            run(host, &["network", "join", cluster, "--member", &path]).map(drop)
        };
        at.hosts.each(join).into_iter().collect()
    };
    give(epoch).or_else(|_| give(epoch + 1))
}
