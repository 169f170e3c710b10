//! Networks with names as objects of their own: making, listing, describing and removing them.
//!
//! Addresses and members are the business of the crate [`net`]; which networks a container is in is
//! a part of its record ([`crate::container::networks`]). Docker's networks `bridge`, `host` and
//! `none` are listed and described too; they cannot be made or removed.

mod several;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use engine::spec::NetworkMode;
use net::definition::{BRIDGE, BRIDGE_ID};
use net::{Definition, Network, Networks, Prefix, Request, Scope, Subnet, ipam, members, removal};
use serde_json::{Map, Value, json};

use crate::container::list;
use crate::container::networks::{is_alive, routes, used};
use crate::error::{Error, Result};
use crate::filter::{self, Filters};
use crate::journal::{self, Actor, Kind};
use crate::request::networks;
use crate::session::Session;
use crate::time;

pub use net::Ports;
pub use several::{Joined, invite, join};

/// The driver of networks with names: Docker's word for it.
pub use net::definition::DRIVER;

/// Docker's word for the scope of networks whose members are on one host.
const LOCAL: &str = "local";

/// The filters that a list of networks knows.
pub const FILTERS: &[&str] = &["name", "id", "label", "driver", "scope", "type", "dangling"];

/// The time that Docker gives for what was always there.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// A network that is there without having been made.
struct BuiltIn {
    name: &'static str,
    /// The same in every store. Its digits begin with the letters of the name.
    id: &'static str,
    driver: &'static str,
    mode: NetworkMode,
}

const BUILT_IN: [BuiltIn; 3] = [
    BuiltIn { name: BRIDGE, id: BRIDGE_ID, driver: DRIVER, mode: NetworkMode::Private },
    BuiltIn {
        name: "host",
        id: "686f737400000000000000000000000000000000000000000000000000000000",
        driver: "host",
        mode: NetworkMode::Host,
    },
    BuiltIn {
        name: "none",
        id: "6e6f6e6500000000000000000000000000000000000000000000000000000000",
        driver: "null",
        mode: NetworkMode::None,
    },
];

/// Options of Docker's driver that say what is so here anyway. They and those of other drivers are
/// recorded; others of Docker's cannot be honoured.
const KNOWN_OPTIONS: [(&str, &str); 4] = [
    ("com.docker.network.bridge.default_bridge", "false"),
    ("com.docker.network.bridge.enable_icc", "true"),
    ("com.docker.network.bridge.enable_ip_masquerade", "true"),
    ("com.docker.network.bridge.host_binding_ipv4", "0.0.0.0"),
];

/// A network to be made; texts as Docker writes them.
#[derive(Debug, Clone, Default)]
pub struct NetworkRequest {
    /// Its name.
    pub name: String,
    /// Its driver; `None` for [`DRIVER`].
    pub driver: Option<String>,
    /// Its scope; `None` for `host`.
    pub scope: Option<String>,
    /// This host's address in a network of several hosts; `None` for that of the default route.
    pub address: Option<String>,
    /// The port of its agent, or ports of which a free one is chosen; `None` for
    /// [`Ports::USUAL`].
    pub ports: Option<Ports>,
    /// Its addresses, as `ADDRESS/BITS`; at most one range of IPv4 and one of IPv6.
    pub subnets: Vec<String>,
    /// It has IPv6 addresses, too.
    pub ipv6: bool,
    /// The address of the way out.
    pub gateway: Option<String>,
    /// The part of the subnet from which containers get addresses.
    pub range: Option<String>,
    /// Addresses that no container gets: `NAME=ADDRESS`, or `NAME` for a free one.
    pub auxiliary: Vec<String>,
    /// Its members reach each other and nothing else.
    pub internal: bool,
    /// Recorded and shown.
    pub attachable: bool,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its options.
    pub options: BTreeMap<String, String>,
}

/// Makes a network; its id.
pub fn create(session: &Session, request: NetworkRequest) -> Result<String> {
    let NetworkRequest { name, driver, scope, subnets, ipv6, gateway, range, .. } = request;
    if let Some(driver) = driver.filter(|driver| driver != DRIVER) {
        return Err(Error::unsupported(format!("there is no network driver '{driver}'"))
            .with_hint(format!("{DRIVER} is the only one")));
    }
    check_options(&request.options)?;
    let scope = scope.as_deref().map_or(Ok(Scope::default()), str::parse)?;
    let place = several::place(session, &scope, (request.address.as_deref(), request.ports))?;
    let (subnet, prefix) = ranges(&subnets, ipv6)?;
    if let Some(range) = range.as_deref().filter(|range| range.contains(':')) {
        let text =
            format!("--ip-range {range} is of IPv6, whose addresses follow from those of IPv4");
        return Err(Error::unsupported(text).with_hint("write a range of the IPv4 subnet"));
    }
    for (flag, given) in [("--gateway", &gateway), ("--ip-range", &range)] {
        if let (Some(text), None) = (given, subnet) {
            return Err(Error::invalid(format!("{flag} {text} belongs to no subnet"))
                .with_hint("give --subnet too"));
        }
    }
    let gateway = gateway.map(|text| networks::address("--gateway", &text)).transpose()?;
    let range = range.map(|text| ipam::parse(&text)).transpose()?;
    let auxiliary = request.auxiliary.iter().map(|text| auxiliary(text));
    let auxiliary = auxiliary.collect::<Result<_>>()?;
    let created = time::now().to_string();
    let NetworkRequest { internal, attachable, labels, options, .. } = request;
    let request = Request {
        name,
        created,
        scope,
        subnet,
        ipv6,
        prefix,
        gateway,
        range,
        auxiliary,
        internal,
        attachable,
        labels,
        options,
    };
    let (routes, routes6) = routes();
    let network = Networks::of(session.store()?).create(request, (&routes, &routes6))?;
    if let Some(place) = place {
        net::cluster::settle(&network, place)?;
    }
    journal::tell(session, Kind::Network, "create", actor(network.definition()));
    Ok(network.id().to_owned())
}

/// An auxiliary address as it is given: `NAME=ADDRESS`, or `NAME`.
fn auxiliary(text: &str) -> Result<(String, Option<Ipv4Addr>)> {
    match text.split_once('=') {
        Some((name, address)) => {
            Ok((name.to_owned(), Some(networks::address("--aux-address", address)?)))
        }
        None => Ok((text.to_owned(), None)),
    }
}

/// The ranges of both versions of IP in `--subnet`, where `ipv6` says whether there may be one of
/// version 6.
fn ranges(subnets: &[String], ipv6: bool) -> Result<(Option<Subnet>, Option<Prefix>)> {
    let (mut subnet, mut prefix) = (None, None);
    for text in subnets {
        let is_six = text.contains(':');
        let before = if is_six {
            prefix.replace(ipam::parse_prefix(text)?).is_some()
        } else {
            subnet.replace(ipam::parse(text)?).is_some()
        };
        if before {
            let version = if is_six { "IPv6" } else { "IPv4" };
            return Err(Error::unsupported(format!("a network has one subnet of {version}"))
                .with_hint("give --subnet once for each version, or make several networks"));
        }
        if is_six && !ipv6 {
            return Err(Error::invalid(format!("--subnet {text} is of IPv6"))
                .with_hint("give --ipv6 too, or leave it out"));
        }
    }
    Ok((subnet, prefix))
}

fn check_options(options: &BTreeMap<String, String>) -> Result<()> {
    let is_dockers = |key: &str| key.starts_with("com.docker.");
    let is_known = |key: &str, value: &str| KNOWN_OPTIONS.contains(&(key, value));
    match options.iter().find(|(key, value)| is_dockers(key) && !is_known(key, value)) {
        None => Ok(()),
        Some((key, value)) => {
            Err(Error::unsupported(format!("the network option {key}={value} is not supported"))
                .with_hint("leave it out; --internal keeps a network from the outside"))
        }
    }
}

/// A network as the object of an event.
pub(crate) fn actor(definition: &Definition) -> Actor {
    Actor::named(&definition.id, &definition.name).with("type", DRIVER)
}

/// A network of a list.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// 64 hexadecimal digits.
    pub id: String,
    /// Its driver.
    pub driver: &'static str,
    /// Docker's word for who meets in it.
    pub scope: String,
    /// RFC 3339.
    pub created: String,
    /// Its members by packets have IPv6 addresses.
    pub ipv6: bool,
    /// Its members reach nothing outside.
    pub internal: bool,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    built_in: bool,
}

impl From<Definition> for Listed {
    fn from(definition: Definition) -> Self {
        let Definition { name, id, scope, created, ipv6, internal, labels, .. } = definition;
        let ipv6 = ipv6.is_some();
        let scope = match scope {
            Scope::Host => LOCAL.to_owned(),
            scope => scope.into(),
        };
        let (driver, built_in) = (DRIVER, false);
        Self { name, id, driver, scope, created, ipv6, internal, labels, built_in }
    }
}

impl From<&BuiltIn> for Listed {
    fn from(built_in: &BuiltIn) -> Self {
        Self {
            name: built_in.name.to_owned(),
            id: built_in.id.to_owned(),
            driver: built_in.driver,
            scope: LOCAL.to_owned(),
            created: NEVER.to_owned(),
            ipv6: false,
            internal: false,
            labels: BTreeMap::new(),
            built_in: true,
        }
    }
}

/// The networks that the filters match, by name, with those that are always there; see [`FILTERS`].
///
/// # Errors
/// If a filter `type` has a value that no network can have.
pub fn list(session: &Session, filters: &Filters) -> Result<Vec<Listed>> {
    if let Some(odd) = filters.of("type").find(|value| !["custom", "builtin"].contains(value)) {
        return Err(Error::invalid(format!("--filter type={odd} has an unknown value"))
            .with_hint("there are custom and builtin"));
    }
    // Read only where it is asked for: it costs a look at every container.
    let used = filters.last("dangling").map(|_| used(session)).transpose()?.unwrap_or_default();
    let mut made = Networks::of(session.store()?).list()?;
    made.retain(|network| network.name() != BRIDGE);
    let made = made.into_iter().map(|network| Listed::from(network.definition().clone()));
    let mut all: Vec<Listed> = made.chain(BUILT_IN.iter().map(Listed::from)).collect();
    all.retain(|network| {
        let dangling = !network.built_in && !used.contains(&network.name);
        filters.any("name", |wanted| network.name.contains(wanted))
            && filters.any("id", |wanted| network.id.starts_with(wanted))
            && filters.any("driver", |wanted| wanted == network.driver)
            && filters.any("scope", |wanted| wanted == network.scope)
            && filters.any("type", |wanted| (wanted == "builtin") == network.built_in)
            && filters.all("dangling", |value| filter::truth(value) == dangling)
            && filters.labels(&network.labels)
    });
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// The network that a name, an id or the beginning of an id means.
pub fn find(session: &Session, name: &str) -> Result<Network> {
    Ok(Networks::of(session.store()?).find(name)?)
}

/// The name of the one network whose id begins like this.
pub fn named_by_id(session: &Session, id: &str) -> Result<Option<String>> {
    match find(session, id) {
        Ok(network) => Ok(network.id().starts_with(id).then(|| network.name().to_owned())),
        Err(error) if matches!(error.kind(), crate::Kind::NotFound | crate::Kind::Invalid) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Removes a network; the name or id as it was given.
///
/// # Errors
/// Where there is none, it is one of those that are always there, or containers live in it.
pub fn remove(session: &Session, name: &str) -> Result<()> {
    session.cancel().check()?;
    if let Some(built_in) = built_in(name) {
        let text = format!("{} is a pre-defined network and cannot be removed", built_in.name);
        return Err(Error::denied(text).with_hint("leave it out"));
    }
    let network = find(session, name)?;
    // If another process was faster, it is gone all the same.
    if removal::remove(session.store()?, &network, &|id| is_alive(session, id))? {
        journal::tell(session, Kind::Network, "destroy", actor(network.definition()));
    }
    Ok(())
}

fn built_in(name: &str) -> Option<&'static BuiltIn> {
    BUILT_IN.iter().find(|network| network.name == name || network.id == name)
}

/// A network in the form of Docker's `inspect`.
pub fn inspect(session: &Session, name: &str) -> Result<Value> {
    if let Some(built_in) = built_in(name) {
        return describe_built_in(session, built_in);
    }
    find_made(session, name).and_then(|network| describe(session, &network))
}

/// A network that was made. A private network has no such name.
fn find_made(session: &Session, name: &str) -> Result<Network> {
    if name.parse() == Ok(NetworkMode::Private) {
        return Err(Error::not_found(format!(
            "'{name}' is built in: with --network {name} each container has a network of its own"
        ))
        .with_hint("'coracle inspect CONTAINER' shows it"));
    }
    find(session, name)
}

/// What has the name or id `name`; `None` where there is no network.
pub fn inspect_some(session: &Session, name: &str) -> Result<Option<Value>> {
    match inspect(session, name) {
        Err(error) if error.kind() == crate::Kind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn describe(session: &Session, network: &Network) -> Result<Value> {
    let definition = network.definition();
    let mut containers = Map::new();
    for entry in members::list(network)?.into_iter().filter(|one| is_alive(session, &one.id)) {
        let address = format!("{}/{}", entry.address, definition.subnet.prefix());
        // Containers without network namespaces have no devices.
        let ethernet = match entry.kind {
            net::Kind::Names => String::new(),
            net::Kind::Packets => written(net::switch::frame::ethernet(entry.address)),
        };
        let ipv6 = entry.ipv6(definition.ipv6).zip(definition.ipv6);
        let ipv6 = ipv6.map(|(address, prefix)| format!("{address}/{}", prefix.bits()));
        let addresses = (&*address, &*ipv6.unwrap_or_default());
        containers.insert(entry.id, connected(&entry.name, &ethernet, addresses));
    }
    let mut addresses = Map::new();
    addresses.insert("Subnet".into(), definition.subnet.to_string().into());
    if let Some(range) = definition.range {
        addresses.insert("IPRange".into(), range.to_string().into());
    }
    addresses.insert("Gateway".into(), definition.gateway.to_string().into());
    if !definition.auxiliary.is_empty() {
        let named =
            |(name, address): &(String, Ipv4Addr)| (name.clone(), Value::from(address.to_string()));
        let all: Map<String, Value> = definition.auxiliary.iter().map(named).collect();
        addresses.insert("AuxiliaryAddresses".into(), all.into());
    }
    let mut all = vec![addresses.into()];
    all.extend(definition.ipv6.map(|prefix| json!({"Subnet": prefix.to_string()})));
    let mut value = described(&Listed::from(definition.clone()), &all, &containers);
    value["Attachable"] = definition.attachable.into();
    value["Options"] = json!(definition.options);
    if definition.scope == Scope::Cluster {
        value["Cluster"] = several::describe(session, network)?;
    }
    Ok(value)
}

fn describe_built_in(session: &Session, built_in: &BuiltIn) -> Result<Value> {
    let running = list::map(session.store()?, false, |seen| {
        let mode = list::network_mode(&seen.glance.network, seen.glance.security.isolate);
        let name = seen.names.into_iter().next().unwrap_or_default();
        (mode == built_in.mode)
            .then(|| (seen.container.id().to_owned(), connected(&name, "", ("", ""))))
    })?;
    let running = running.into_iter().flatten().collect();
    let mut value = described(&Listed::from(built_in), &[], &running);
    // Members of its switch have addresses; others are connected by a helper program each.
    if built_in.name == BRIDGE
        && let Some(made) = Networks::of(session.store()?).get(BRIDGE)?
    {
        let mut of_switch = describe(session, &made)?;
        for key in ["Created", "IPAM"] {
            value[key] = of_switch[key].take();
        }
        if let (Value::Object(all), Value::Object(members)) =
            (&mut value["Containers"], of_switch["Containers"].take())
        {
            all.extend(members);
        }
    }
    Ok(value)
}

/// An ethernet address in letters.
fn written(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

/// A container in a network, in Docker's form.
fn connected(name: &str, ethernet: &str, (address, ipv6): (&str, &str)) -> Value {
    json!({
        "Name": name,
        "EndpointID": "",
        "MacAddress": ethernet,
        "IPv4Address": address,
        "IPv6Address": ipv6,
    })
}

fn described(network: &Listed, addresses: &[Value], containers: &Map<String, Value>) -> Value {
    json!({
        "Name": network.name,
        "Id": network.id,
        "Created": network.created,
        "Scope": network.scope,
        "Driver": network.driver,
        "EnableIPv4": true,
        "EnableIPv6": network.ipv6,
        "IPAM": {"Driver": "default", "Options": null, "Config": addresses},
        "Internal": network.internal,
        "Attachable": false,
        "Ingress": false,
        "ConfigFrom": {"Network": ""},
        "ConfigOnly": false,
        "Containers": containers,
        "Options": {},
        "Labels": network.labels,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_cannot_be_honoured_are_refused() {
        let of = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
        for (key, value) in KNOWN_OPTIONS.into_iter().chain([("mine", "x"), ("", "")]) {
            check_options(&of(key, value)).unwrap();
        }
        for (key, value) in [
            ("com.docker.network.bridge.enable_icc", "false"),
            ("com.docker.network.driver.mtu", "1400"),
            ("com.docker.network.bridge.name", "br0"),
        ] {
            let error = check_options(&of(key, value)).unwrap_err();
            assert!(error.to_string().contains(&format!("{key}={value}")), "{error}");
        }
    }

    #[test]
    fn built_in_networks() {
        for network in &BUILT_IN {
            assert_eq!((network.id.len(), built_in(network.id).unwrap().name), (64, network.name));
            assert!(net::definition::check_name(network.name).is_err(), "{}", network.name);
            let letters = network.id.as_bytes().chunks(2).map(|digits| {
                u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
            });
            let letters: Vec<u8> = letters.take_while(|letter| *letter != 0).collect();
            assert_eq!(letters, network.name.as_bytes());
        }
        assert!(built_in("lab").is_none() && built_in("").is_none());
    }
}
