//! Balancers: containers before those of a service, which have its name in the network and its
//! published ports. What they balance has only names with a number there. A pair in a network of
//! packets has an address, which the service's name leads to and which one of the two has
//! ([`crate::vrrp`]).

use std::time::Duration;

use super::{
    Act, PROGRAM, Phase, ReadyBy, SERVICE_LABEL, Site, Step, beginning, fitting, in_passing,
    known_to_all, pair, service_site,
};
use crate::balance::{self, Front};
use crate::spec::{Image, Service, Spec, balancers, units};

/// A balancer takes connections within so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Priorities are this less the balancer's number; see [`crate::vrrp`].
const PRIORITIES: u32 = 101;

/// The balancers of a service, as data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balanced {
    /// What they are told.
    pub front: Front,
    /// The balancers.
    pub balancers: Vec<Balancer>,
    /// How long a container that is to go has for the requests that it is at.
    pub drain: Duration,
    /// Whether the hosts are lost that its containers are on by their numbers, in turn.
    lost: Vec<bool>,
}

impl Balanced {
    /// Whether a container of the service is on a host that is lost. `name` is without the
    /// cluster's.
    pub fn is_on_lost_host(&self, name: &str) -> bool {
        let number = name.rsplit_once('-').and_then(|(_, number)| number.parse::<usize>().ok());
        let turn = number.and_then(|number| number.checked_sub(1)?.checked_rem(self.lost.len()));
        turn.is_some_and(|turn| self.lost[turn])
    }
}

/// A balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balancer {
    /// The host that it is on, as in [`Step`].
    pub host: Option<String>,
    /// Its container.
    pub container: String,
    /// Its configuration file on that host.
    pub file: String,
}

impl Balancer {
    /// Its file, with its host.
    pub(super) fn told(&self) -> String {
        let host = self.host.as_ref().map(|host| format!("{host}:")).unwrap_or_default();
        format!("{host}{}", self.file)
    }
}

/// What stands before a service; `None` if nothing does.
pub(crate) fn of(spec: &Spec, sites: &[Site], service: &Service) -> Option<Balanced> {
    let balance = service.balance.as_ref()?;
    let balancer = |number: u32| {
        let site = service_site(spec, sites, service, number);
        Balancer {
            host: site.host.clone(),
            container: format!("{}-{}-{number}", spec.name, balancers(&service.name)),
            file: format!("{}/haproxy.cfg", directory(site, service)),
        }
    };
    let count = if balance.pair { 2 } else { 1 };
    Some(Balanced {
        front: Front::of(service)?,
        balancers: (1..=count).map(balancer).collect(),
        drain: balance.drain,
        lost: fitting(spec, sites, service).into_iter().map(|site| site.is_lost).collect(),
    })
}

fn directory(site: &Site, service: &Service) -> String {
    format!("{}/balance/{}", site.kept, service.name)
}

/// In words: where clients find the balancers of a service of which there are two. Each has the
/// published ports of its own host.
pub(crate) fn clients(spec: &Spec, sites: &[Site], service: &Service) -> Option<String> {
    let balancers = of(spec, sites, service)?.balancers;
    if balancers.len() < 2 {
        return None;
    }
    // `[ADDRESS:]PORT` of the host.
    let published = service.publish.iter().filter_map(|text| {
        let (before, _) = text.rsplit_once(':')?;
        let (address, port) = match before.rsplit_once(':') {
            Some((address, port)) => (Some(address), port),
            None => (None, before),
        };
        let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
        Some((address, port))
    });
    let published: Vec<(Option<&str>, u16)> = published.collect();
    let places = (1..).zip(&balancers).flat_map(|(number, _)| {
        let site = service_site(spec, sites, service, number);
        let host = site.address.map(|at| at.to_string()).or_else(|| site.host.clone());
        let host = host.unwrap_or_else(|| "localhost".to_owned());
        let place =
            |(address, port): &(Option<&str>, u16)| format!("{}:{port}", address.unwrap_or(&host));
        published.iter().map(place).collect::<Vec<_>>()
    });
    let places: Vec<String> = places.collect();
    let (name, places) = (&service.name, places.join(", "));
    let tries = "a client that gets no answer tries the other balancer";
    let leads = "the name leads to the balancer that has its address";
    Some(match (spec.has_moving_address(service), places.is_empty()) {
        (false, true) => format!("{name}: {tries}: the name {name} in the network"),
        (false, false) => format!("{name}: {tries}: {places}, or the name {name} in the network"),
        (true, true) => format!("{name}: {leads}"),
        (true, false) => format!("{name}: {leads}; outside of the network {tries}: {places}"),
    })
}

/// The phases that put balancers before a service.
pub(super) fn phases(spec: &Spec, sites: &[Site], service: &Service) -> Vec<Phase> {
    let Some(balanced) = of(spec, sites, service) else { return Vec::new() };
    let name = balancers(&service.name);
    let numbered = || (1..).zip(&balanced.balancers);
    let start = numbered().map(|(number, one)| start(spec, sites, service, (number, one)));
    let ready = |(number, one): (u32, &Balancer), host: &str| {
        let site = service_site(spec, sites, service, number);
        let port = balanced.front.ports.first().copied().unwrap_or_default();
        let words = ["cluster", "probe", "--within"].map(str::to_owned).into_iter();
        let place = ["tcp".to_owned(), format!("{host}:{port}")];
        let words = words.chain([units::spell(PATIENCE)]).chain(place);
        let by = ReadyBy::Trying(in_passing(spec, site, service.image.as_ref(), words));
        let act = Act::Ready { container: one.container.clone(), by, within: PATIENCE };
        Step { host: site.host.clone(), act }
    };
    let address = numbered()
        .filter(|_| spec.has_moving_address(service))
        .map(|one| ready(one, &service.name));
    let ready = numbered().map(|one| ready(one, &one.1.container)).chain(address);
    let containers: Vec<String> =
        balanced.balancers.iter().map(|one| one.container.clone()).collect();
    let phase = |name: String, steps: Vec<Step>| Phase { name, steps };
    let (start, ready) = (start.collect(), ready.collect());
    let known = known_to_all(spec, sites, service.image.as_ref(), &containers);
    vec![
        phase(
            format!("balance {}", service.name),
            vec![Step { host: None, act: Act::Balance(Box::new(balanced)) }],
        ),
        phase(format!("start {name}"), start),
        phase(format!("ready {name}"), ready),
        phase(format!("known {name}"), known),
    ]
}

fn start(
    spec: &Spec,
    sites: &[Site],
    service: &Service,
    (number, balancer): (u32, &Balancer),
) -> Step {
    let site = service_site(spec, sites, service, number);
    let name = balancers(&service.name);
    let own = format!("{name}-{number}");
    let moves = spec.has_moving_address(service);
    // The service's name leads to both, or to the address that one of them has.
    let aliases = [&own, &*service.name];
    let aliases = if moves { &aliases[..1] } else { &aliases[..] };
    let mut words = beginning(spec, &balancer.container, (&own, aliases), (SERVICE_LABEL, &name));
    words.extend(pair("--restart", "always"));
    // The file is the user's own, and the image may name another one.
    words.extend(pair("--user", "0"));
    let target = balance::FILE.rsplit_once('/').map_or(balance::FILE, |(parent, _)| parent);
    words.extend(pair("-v", &format!("{}:{target}:ro", directory(site, service))));
    words.extend(pair("-v", &format!("{}:{PROGRAM}:ro", site.program)));
    words.extend(service.publish.iter().flat_map(|text| pair("-p", text)));
    if moves {
        // Its program takes an address, and speaks a protocol of its own.
        words.extend(["NET_ADMIN", "NET_RAW"].into_iter().flat_map(|name| pair("--cap-add", name)));
    }
    words.extend(pair("--entrypoint", if moves { PROGRAM } else { "haproxy" }));
    words.push(image(service));
    if moves {
        let priority = (PRIORITIES - number).to_string();
        words.extend(["cluster", "vrrp", "--priority", &priority, &service.name, "haproxy"]);
    }
    words.extend(["-W", "-db", "-f", balance::FILE]);
    let container = balancer.container.clone();
    Step { host: site.host.clone(), act: Act::Start { container, words } }
}

fn image(service: &Service) -> String {
    service.balance.as_ref().map(|balance| balance.image.clone()).unwrap_or_default()
}

/// The images of a file's balancers.
pub(super) fn images(spec: &Spec) -> impl Iterator<Item = Image> + '_ {
    let balanced = spec.services.iter().filter(|service| service.balance.is_some());
    balanced.map(|service| Image::Named(image(service)))
}
