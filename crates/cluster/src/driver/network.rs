//! The cluster's network: on one host, or joined by several.

use std::path::Path;

use super::at::{At, is_own};
use super::hosts::{Host, failed};
use super::site_of;
use crate::error::{Error, Result};

/// Has the network on a host. Returns whether it was made.
pub(super) fn create(at: &At<'_>, create: &[String]) -> Result<bool> {
    if is_own(at.plan, "network", &at.plan.cluster, at.host)? {
        return has_addresses(at, create).map(|()| false);
    }
    let done = at.run(create)?;
    let what = || {
        if at.hosts.is_local() {
            "the cluster's network".to_owned()
        } else {
            format!("the network on {}", at.host.name())
        }
    };
    if done.is_good() { Ok(true) } else { Err(failed(what(), create, &done)) }
}

/// Fails if a network that is there lacks an address that it would have been made with.
fn has_addresses(at: &At<'_>, create: &[String]) -> Result<()> {
    let pairs = create.windows(2).filter(|pair| pair[0] == "--aux-address");
    let wanted: Vec<&String> = pairs.map(|pair| &pair[1]).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let words = ["network", "inspect", "--format", "{{json .IPAM.Config}}", &at.plan.cluster];
    let there = at.run(&super::at::words(&words))?.text();
    let lacks = |name: &&String| !there.contains(&format!("{name:?}:"));
    let Some(name) = wanted.into_iter().find(lacks) else { return Ok(()) };
    let fact = format!("the cluster's network has no address for {name}");
    let hint = format!("coracle cluster down {}, and call 'up' again", at.plan.cluster);
    Err(Error::new(fact).with_hint(hint))
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
    let entries = entries?;
    same_subnet(cluster, at.hosts.all().map(Host::name).zip(&entries))?;
    let entries = entries.concat();
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

/// Hosts that were given no subnet choose the first that is free there, which may differ.
fn same_subnet<'h>(
    cluster: &str,
    entries: impl Iterator<Item = (&'h str, &'h Vec<u8>)>,
) -> Result<()> {
    let subnet = |entry: &[u8]| {
        let text = String::from_utf8_lossy(entry).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix("subnet = "));
        line.map(|value| value.trim_matches('"').to_owned())
    };
    let chosen: Vec<(&str, String)> =
        entries.filter_map(|(host, entry)| Some((host, subnet(entry)?))).collect();
    if chosen.windows(2).all(|pair| pair[0].1 == pair[1].1) {
        return Ok(());
    }
    let list: Vec<String> = chosen.iter().map(|(host, one)| format!("{one} on {host}")).collect();
    let fact = format!("no subnet is free on all hosts by itself: {}", list.join(", "));
    let hint = format!(
        "coracle cluster down {cluster}, and give the file a subnet to which no host has a route"
    );
    Err(Error::new(fact).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_choose_different_subnets_are_named() {
        let entry = |subnet: &str| format!("[[host]]\nsubnet = \"{subnet}\"\n").into_bytes();
        let [one, other] = ["100.80.0.0/24", "100.80.1.0/24"].map(entry);
        same_subnet("lab", [("a", &one), ("b", &one)].into_iter()).unwrap();
        let error = same_subnet("lab", [("a", &one), ("b", &other)].into_iter()).unwrap_err();
        let fact =
            "no subnet is free on all hosts by itself: 100.80.0.0/24 on a, 100.80.1.0/24 on b";
        assert_eq!(error.to_string(), fact);
    }
}
