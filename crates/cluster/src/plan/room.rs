//! Whether a cluster's network has an address for each container.

use std::collections::BTreeMap;

use net::{Scope, ipam, networks};

use super::{Site, service_site, site};
use crate::error::{Error, Result};
use crate::parts::Part;
use crate::spec::{Kind, Network, Replicas, Service, Spec};

/// Checks that no host is to have more containers than addresses, with as many of each service as
/// the file allows. `other` is a service whose containers are to have these numbers instead.
///
/// # Errors
/// If one has.
pub(crate) fn check<'s>(
    spec: &Spec,
    sites: &'s [Site],
    other: Option<(&Service, &[u32])>,
) -> Result<()> {
    if spec.network == Some(Network::Host) {
        return Ok(());
    }
    let is_local = matches!(spec.backends[0].kind, Kind::Local);
    let scope = if is_local { Scope::Host } else { Scope::Cluster };
    let given = spec.subnet.as_deref().and_then(|text| ipam::parse(text).ok());
    let room = networks::room(&scope, given);
    let mut counts: BTreeMap<Option<&str>, u32> = BTreeMap::new();
    let mut add = |site: &'s Site| *counts.entry(site.host.as_deref()).or_default() += 1;
    (1..=spec.nodes).for_each(|number| add(site(sites, number)));
    for service in &spec.services {
        let numbers = match other {
            Some((other, numbers)) if other.name == service.name => numbers.to_vec(),
            _ => (1..=most(spec, service)).collect(),
        };
        let balancers = service.balance.as_ref().map_or(0, |one| if one.pair { 2 } else { 1 });
        let all = numbers.into_iter().chain(1..=balancers);
        all.for_each(|number| add(service_site(spec, sites, service, number)));
    }
    let Some((host, count)) = counts.into_iter().find(|(_, count)| *count > room) else {
        return Ok(());
    };
    let host = host.map_or_else(|| "this machine".to_owned(), |name| format!("host {name}"));
    let fact = format!(
        "cluster {} may have {count} containers on {host}, and its network has {room} addresses \
         there",
        spec.name
    );
    let larger = if is_local { "100.80.0.0/16" } else { "100.64.0.0/12" };
    Err(Error::new(fact).with_hint(format!("fewer replicas, or in the file: subnet = {larger:?}")))
}

/// The most containers of a service.
fn most(spec: &Spec, service: &Service) -> u32 {
    if service.part == Some(Part::Compute) {
        let mut kinds = spec.batch.iter().flat_map(|batch| &batch.compute);
        return kinds.find(|kind| kind.name == service.name).map_or(0, |kind| kind.max);
    }
    match &service.replicas {
        Replicas::Fixed(count) => *count,
        Replicas::Scaled(rule) => rule.max,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_a_network_has_no_room_for() {
        let host = |name: &str| Site { host: Some(name.to_owned()), ..Site::default() };
        let said = |text: &str, sites: &[Site], count: u32| {
            let text =
                format!("name = \"big\"\nimage = \"a\"\n{text}[service.web]\nreplicas = 2\n");
            let spec = crate::spec::parse(Path::new("big.toml"), &text).unwrap();
            let numbers: Vec<u32> = (1..=count).collect();
            check(&spec, sites, Some((&spec.services[0], &numbers))).err().map(|e| e.to_string())
        };
        let here = [Site::default()];
        assert_eq!(said("", &here, 253), None);
        assert_eq!(
            said("nodes = 1\n", &here, 253).unwrap(),
            "cluster big may have 254 containers on this machine, and its network has 253 \
             addresses there"
        );
        assert_eq!(said("subnet = \"100.80.0.0/20\"\n", &here, 1000), None);
        assert_eq!(said("network = \"host\"\n", &here, 1000), None);
        let ssh = "backend = { kind = \"ssh\", hosts = [\"one\", \"two\"] }\n";
        let two = [host("one"), host("two")];
        assert_eq!(said(ssh, &two, 512), None);
        let fact = said(ssh, &two, 1000).unwrap();
        assert!(fact.contains("500 containers on host one") && fact.contains("256"), "{fact}");
        assert_eq!(said(&format!("{ssh}subnet = \"100.64.0.0/12\"\n"), &two, 1000), None);
    }
}
