//! The cluster's network: on one host, or joined by several.

use std::path::Path;

use super::at::{At, is_own};
use super::hosts::{Done, Host, Hosts, failed};
use crate::error::Result;
use crate::plan::Plan;

/// Has the network on a host. Returns whether it was made.
pub(super) fn create(at: &At<'_>, create: &[String]) -> Result<bool> {
    if is_own(at.plan, "network", &at.plan.cluster, at.host)? {
        return Ok(false);
    }
    let done = at.run(create)?;
    if done.is_good() { Ok(true) } else { Err(failed("the cluster's network", create, &done)) }
}

/// Makes the network of each host one: collects each host's entry for the list, and gives the list
/// to all of them. `list` gives the path of the list on a host.
pub(super) fn join(plan: &Plan, hosts: &Hosts, list: &dyn Fn(&str) -> String) -> Result<()> {
    let lists: Vec<(String, String)> =
        hosts.all().map(|host| (host.name().to_owned(), list(host.name()))).collect();
    let invite: Vec<String> =
        ["network", "invite", &plan.cluster].iter().map(|word| (*word).to_owned()).collect();
    let good = |what: &str, words: &[String], done: Done| {
        if done.is_good() { Ok(done) } else { Err(failed(what, words, &done)) }
    };
    let entry = |host: &dyn Host| {
        let done = host.run(&invite)?;
        Ok(good(&format!("the network on {}", host.name()), &invite, done)?.out)
    };
    let entries: Result<Vec<Vec<u8>>> = hosts.each(entry).into_iter().collect();
    let text = entries?.concat();
    let join = |host: &dyn Host| {
        let path = lists.iter().find(|(name, _)| name == host.name());
        let path = path.map(|(_, path)| path.clone()).unwrap_or_default();
        host.put(Path::new(&path), 0o600, &text)?;
        let words = ["network", "join", &plan.cluster, "--member", &path];
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let done = host.run(&words)?;
        good(&format!("the network on {}", host.name()), &words, done).map(drop)
    };
    hosts.each(join).into_iter().collect()
}
