//! The part of `inspect` about networks: ports, and the addresses of a running container.
//!
//! A network has no daemon that hands out addresses, so they are read where the kernel shows them:
//! in `/proc/PID/net` of the container's main process. A container in the host's network has none
//! of its own, as in Docker. In networks with names it has what their members' files say.

use std::net::{Ipv4Addr, Ipv6Addr};

use engine::spec::{Membership, NetworkMode};
use net::{Networks, members, route};
use serde_json::{Map, Value, json};

use super::super::record::Record;
use super::super::running;
use crate::session::Session;

/// `NetworkSettings` of a container whose main process is `main`, if it runs here.
pub(super) fn settings(session: &Session, record: &Record, main: Option<u32>) -> Value {
    let mode = super::network_mode(&record.config);
    let is_private = mode == NetworkMode::Private;
    let own = main.filter(|pid| is_private && running::has_own_network(*pid));
    let addresses = own.map(Addresses::read).unwrap_or_default();
    let mut network = addresses.fields();
    let published = main.map_or(&[][..], |_| record.config.network.published());
    let ports = super::port_bindings(published);
    let mut all = Map::new();
    for (key, value) in [
        ("Bridge", json!("")),
        ("SandboxID", json!("")),
        ("SandboxKey", json!(own.map_or_else(String::new, |pid| format!("/proc/{pid}/ns/net")))),
        ("Ports", ports),
    ] {
        all.insert(key.to_owned(), value);
    }
    all.extend(network.clone());
    for (key, value) in [
        ("IPAMConfig", Value::Null),
        ("Links", Value::Null),
        ("Aliases", Value::Null),
        ("DriverOpts", Value::Null),
        ("NetworkID", json!("")),
    ] {
        network.insert(key.to_owned(), value);
    }
    let networks: Map<String, Value> = match mode {
        // What another container is connected to is that container's, as in Docker.
        NetworkMode::Container(_) => Map::new(),
        NetworkMode::Named(_) => {
            let named = record.config.network.networks.iter();
            let lives = main.is_some();
            named.map(|one| (one.name.clone(), of_named(session, record, one, lives))).collect()
        }
        mode => [(String::from(mode), Value::Object(network))].into_iter().collect(),
    };
    all.insert("Networks".to_owned(), networks.into());
    all.into()
}

/// A container's place in a network with a name. One that does not run has no address, as in
/// Docker, and a network that was removed no id.
fn of_named(session: &Session, record: &Record, wanted: &Membership, lives: bool) -> Value {
    let store = session.store().ok();
    let network = store.and_then(|store| Networks::of(store).get(&wanted.name).ok().flatten());
    let members = network.as_ref().filter(|_| lives).and_then(|one| members::list(one).ok());
    let mut members = members.unwrap_or_default().into_iter();
    let entry = members.find(|entry| entry.id == record.config.id);
    let mut fields = Addresses::default().fields();
    if let (Some(network), Some(entry)) = (&network, entry) {
        let definition = network.definition();
        fields.insert("Gateway".to_owned(), definition.gateway.to_string().into());
        fields.insert("IPAddress".to_owned(), entry.address.to_string().into());
        fields.insert("IPPrefixLen".to_owned(), definition.subnet.prefix().into());
        // There is no gateway for it: the switch leads out IPv4 only.
        if let (Some(prefix), Some(ipv6)) = (definition.ipv6, entry.ipv6(definition.ipv6)) {
            fields.insert("GlobalIPv6Address".to_owned(), ipv6.to_string().into());
            fields.insert("GlobalIPv6PrefixLen".to_owned(), prefix.bits().into());
        }
    }
    let wish = match (wanted.address, wanted.ipv6) {
        (None, _) => Value::Null,
        (Some(address), None) => json!({"IPv4Address": address}),
        (Some(address), Some(ipv6)) => json!({"IPv4Address": address, "IPv6Address": ipv6}),
    };
    for (key, value) in [
        ("IPAMConfig", wish),
        ("Links", Value::Null),
        ("Aliases", json!(wanted.aliases)),
        ("DriverOpts", Value::Null),
        ("NetworkID", json!(network.as_ref().map_or("", |network| network.id()))),
    ] {
        fields.insert(key.to_owned(), value);
    }
    fields.into()
}

/// The addresses of a network namespace.
#[derive(Debug, Default, PartialEq, Eq)]
struct Addresses {
    v4: Option<(Ipv4Addr, u32)>,
    gateway: Option<Ipv4Addr>,
    v6: Option<(Ipv6Addr, u32)>,
}

impl Addresses {
    fn read(pid: u32) -> Self {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/net/{file}"));
        let text = |file| read(file).unwrap_or_default();
        Self::parse(&text("fib_trie"), &text("route"), &text("if_inet6"))
    }

    fn parse(fib_trie: &str, route: &str, if_inet6: &str) -> Self {
        let address = local_addresses(fib_trie).into_iter().next();
        let v4 = address.map(|address| {
            let routes = route::read(route).filter(|route| route.has(address));
            let longest = routes.map(|route| route.mask.count_ones()).max();
            (address, longest.unwrap_or(32))
        });
        let gateway =
            route::read(route).find(|route| route.mask == 0 && !route.gateway.is_unspecified());
        Self {
            v4,
            gateway: gateway.map(|route| route.gateway),
            v6: if_inet6.lines().find_map(global),
        }
    }

    fn fields(&self) -> Map<String, Value> {
        let text = |address: Option<String>| Value::from(address.unwrap_or_default());
        let length = |length: Option<u32>| Value::from(length.unwrap_or(0));
        [
            ("EndpointID", json!("")),
            ("Gateway", text(self.gateway.map(|address| address.to_string()))),
            ("GlobalIPv6Address", text(self.v6.map(|(address, _)| address.to_string()))),
            ("GlobalIPv6PrefixLen", length(self.v6.map(|(_, length)| length))),
            ("IPAddress", text(self.v4.map(|(address, _)| address.to_string()))),
            ("IPPrefixLen", length(self.v4.map(|(_, length)| length))),
            ("IPv6Gateway", json!("")),
            ("MacAddress", json!("")),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
    }
}

/// The host's own addresses in `/proc/net/fib_trie` (`|-- ADDRESS`, then `/32 host LOCAL`), without
/// those of the loopback device.
fn local_addresses(fib_trie: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut last = None;
    for line in fib_trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL"
            && let Some(address) = last.filter(|address| !address.is_loopback())
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

/// The address of a line of `/proc/net/if_inet6` whose scope is global.
fn global(line: &str) -> Option<(Ipv6Addr, u32)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [address, _, length, "00", ..] = words[..] else { return None };
    let address = u128::from_str_radix(address, 16).ok()?;
    Some((Ipv6Addr::from(address), u32::from_str_radix(length, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIE: &str = "Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.0.2.0/24 2 0 2
        |-- 10.0.2.0
           /24 link UNICAST
Local:
  +-- 0.0.0.0/0 3 0 5
     +-- 10.0.2.0/24 2 0 2
        |-- 10.0.2.100
           /32 host LOCAL
        |-- 10.0.2.255
           /32 link BROADCAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.1
           /32 host LOCAL
";
    const ROUTE: &str =
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
tap0\t00000000\t0202000A\t0003\t0\t0\t0\t00000000\t0\t0\t0
tap0\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
";
    const INET6: &str = "00000000000000000000000000000001 01 80 10 80       lo
fd000000000000000000000000000100 02 40 00 00     tap0
";

    #[test]
    fn what_the_kernel_shows() {
        let read = Addresses::parse(TRIE, ROUTE, INET6);
        assert_eq!(read.v4, Some((Ipv4Addr::new(10, 0, 2, 100), 24)));
        assert_eq!(read.gateway, Some(Ipv4Addr::new(10, 0, 2, 2)));
        assert_eq!(
            read.v6.map(|(address, length)| (address.to_string(), length)),
            Some(("fd00::100".to_owned(), 64))
        );
        assert_eq!(Addresses::parse("", "", ""), Addresses::default());
        assert_eq!(Addresses::default().fields()["IPAddress"], json!(""));
    }
}
