//! Hosts, as far as a plan has to know them, and which of them has what.

use std::net::Ipv4Addr;

use crate::error::{Error, Result};
use crate::spec::{Kind, Service, Spec, SshHost};

/// What a plan has to know of a host.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Site {
    /// Its name; `None` for the machine that drives.
    pub host: Option<String>,
    /// The path of this program there.
    pub program: String,
    /// The directory there that relative paths of the file start from, absolute.
    pub directory: String,
    /// The directory of the cluster there.
    pub kept: String,
    /// The address by which other hosts reach it, if it is known.
    pub address: Option<Ipv4Addr>,
    /// Variables by which programs in the host's own network find the other hosts
    /// ([`remote::routes`]).
    pub variables: Vec<(String, String)>,
    /// It reads images from the store of the machine that drives.
    pub sees_driver: bool,
    /// Processors for its containers.
    pub processors: u32,
    /// Its memory, in bytes; 0 if that is not known.
    pub memory: u64,
    /// The caller's user id there.
    pub user: String,
    /// It does not answer: only its name and its address are known.
    pub is_lost: bool,
}

impl Site {
    /// A host that does not answer.
    pub(crate) fn lost(host: String, address: Option<Ipv4Addr>) -> Self {
        Self { host: Some(host), address, is_lost: true, ..Self::default() }
    }

    /// The path of the host file of MPI.
    pub fn host_file(&self) -> String {
        format!("{}/hosts", self.kept)
    }

    /// The path of the directory of doors' sockets.
    pub fn doors(&self) -> String {
        format!("{}/door", self.kept)
    }

    /// The path of the list of a network's hosts.
    pub fn members(&self) -> String {
        format!("{}/members.toml", self.kept)
    }
}

/// Where the node or replica of this number is; they count from 1.
pub(super) fn site(sites: &[Site], number: u32) -> &Site {
    &sites[(number.max(1) as usize - 1) % sites.len()]
}

/// Where the replica of this number is: on the hosts of the service's zones, in turn.
pub(crate) fn service_site<'s>(
    spec: &Spec,
    sites: &'s [Site],
    service: &Service,
    number: u32,
) -> &'s Site {
    let fit = fitting(spec, sites, service);
    fit[(number.max(1) as usize - 1) % fit.len()]
}

/// The hosts of a service's zones; all hosts where it has none.
pub(super) fn fitting<'s>(spec: &Spec, sites: &'s [Site], service: &Service) -> Vec<&'s Site> {
    let hosts: &[SshHost] = match &spec.backends[0].kind {
        Kind::Ssh { hosts, .. } => hosts,
        _ => &[],
    };
    let is_in = |site: &&Site| {
        let host = hosts.iter().find(|host| Some(&host.host) == site.host.as_ref());
        host.and_then(|host| host.zone.as_ref()).is_some_and(|zone| service.zones.contains(zone))
    };
    let fit: Vec<&Site> = sites.iter().filter(is_in).collect();
    // The file was checked: a zone of a service has a host.
    if fit.is_empty() { sites.iter().collect() } else { fit }
}

/// Whether a host that a service may have containers on is lost.
pub(crate) fn misses_hosts(spec: &Spec, sites: &[Site], service: &Service) -> bool {
    fitting(spec, sites, service).iter().any(|site| site.is_lost)
}

/// The numbers of a service's replicas, if there are to be so many. A balancer takes any replica
/// for any other, so those behind one have the first numbers whose hosts answer: a number has
/// always the same host, and none is started twice when a lost host is back.
///
/// # Errors
/// If a service behind a balancer has no host that answers.
pub(crate) fn numbers(
    spec: &Spec,
    sites: &[Site],
    service: &Service,
    count: u32,
) -> Result<Vec<u32>> {
    if service.balance.is_none() {
        return Ok((1..=count).collect());
    }
    let fit = fitting(spec, sites, service);
    if fit.iter().all(|site| site.is_lost) {
        let why = if service.zones.is_empty() { "" } else { " of its zones" };
        return Err(Error::new(format!("{}: all hosts{why} are lost", service.name)));
    }
    let lost = fit.into_iter().map(|site| site.is_lost).cycle();
    let there = (1..).zip(lost).filter(|(_, is_lost)| !is_lost);
    Ok(there.map(|(number, _)| number).take(count as usize).collect())
}
