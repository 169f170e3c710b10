//! Chooses and checks addresses: of networks, of their gateways, of containers. No I/O.
//!
//! A network that names no subnet gets the first free `/24` of [`DEFAULTS`], the range that
//! providers use between themselves and their customers (RFC 6598), so it is neither routed on the
//! internet nor usual in local networks. The search begins at [`FIRST`]: the lower part of the
//! range is where VPNs take their addresses from.
//!
//! A container gets the address after the last one that was given, and the search goes on at the
//! beginning when it has come to the end. So an address that a container has left is not given to
//! another one soon, whose peers might still mean the first.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::definition::{Auxiliary, Definition};
use crate::error::{Error, Result};
use crate::names;
use crate::prefix::{self, Prefix};
use crate::route::{self, Route};
use crate::subnet::{Subnet, Wrong};

/// Where the subnets of networks that name none are taken from.
pub const DEFAULTS: Subnet = constant(100, 64, 10);

/// The subnet that is tried first.
pub const FIRST: Subnet = constant(100, 80, 24);

/// Ranges that no network can have: "this" network, loopback, link-local, multicast and reserved
/// addresses (RFC 6890). The names of members are translated to loopback addresses.
const UNUSABLE: [(Subnet, &str); 5] = [
    (constant(0, 0, 8), "the host itself"),
    (constant(127, 0, 8), "loopback"),
    (constant(169, 254, 16), "link-local addresses"),
    (constant(224, 0, 4), "multicast"),
    (constant(240, 0, 4), "reserved addresses"),
];

const fn constant(a: u8, b: u8, prefix: u8) -> Subnet {
    match Subnet::around(Ipv4Addr::new(a, b, 0, 0), prefix) {
        Some(subnet) => subnet,
        None => panic!("a prefix has at most 32 bits"),
    }
}

/// Reads a range of addresses as `ADDRESS/BITS`.
///
/// # Errors
/// [`Error::BadSubnet`] if it is none, or one of IPv6.
pub fn parse(text: &str) -> Result<Subnet> {
    text.parse().map_err(|wrong: Wrong| {
        let hint = match &wrong {
            Wrong::Form => format!("write ADDRESS/BITS, as {FIRST}"),
            Wrong::Six => format!("write a range of IPv4, as {FIRST}"),
            Wrong::Inside(subnet) => format!("write {subnet}"),
        };
        Error::BadSubnet { text: text.to_owned(), why: wrong.to_string(), hint }
    })
}

/// Reads a range of IPv6 addresses as `ADDRESS/BITS`.
///
/// # Errors
/// [`Error::BadSubnet`] if it is none.
pub fn parse_prefix(text: &str) -> Result<Prefix> {
    text.parse().map_err(|wrong: prefix::Wrong| {
        let hint = match &wrong {
            prefix::Wrong::Form => format!("write ADDRESS/BITS, as {}", prefix::EXAMPLE),
            prefix::Wrong::Inside(prefix) => format!("write {prefix}"),
        };
        Error::BadSubnet { text: text.to_owned(), why: wrong.to_string(), hint }
    })
}

/// Checks an IPv6 range that the user names. `taken`: those of other networks, with their names.
/// `routes`: the destinations of the host's routes, see [`prefix::routes`].
///
/// # Errors
/// [`Error::BadSubnet`] where it has fewer than 64 or more than 96 bits, is for something else, or
/// overlaps with another network or a route.
pub fn check_prefix(
    prefix: Prefix,
    taken: &mut dyn Iterator<Item = (&str, Prefix)>,
    routes: &[Prefix],
) -> Result<()> {
    let bad =
        |why: String, hint: String| Err(Error::BadSubnet { text: prefix.to_string(), why, hint });
    if let Some(why) = prefix.unusable() {
        return bad(why, format!("write a private one with 64 to 96 bits, as {}", prefix::EXAMPLE));
    }
    let other = "choose another one; with --ipv6 alone a random one is taken".to_owned();
    for (name, taken) in taken {
        if taken.overlaps(prefix) {
            return bad(format!("it overlaps with {taken} of network {name}"), other);
        }
    }
    if let Some(route) = routes.iter().find(|route| route.overlaps(prefix)) {
        return bad(format!("it overlaps with {route}, to which this host has a route"), other);
    }
    Ok(())
}

/// The destinations of a host's routes in a text that [`route::read`] reads, without default
/// routes: those of fewer than 8 bits, because VPNs put two halves of all addresses in the place of
/// one.
pub fn routes(text: &str) -> Vec<Subnet> {
    let destination = |Route { destination, mask, .. }: Route<'_>| {
        let is_mask = mask.leading_ones() + mask.trailing_zeros() == 32;
        let prefix = u8::try_from(mask.leading_ones()).ok();
        Subnet::around(destination, prefix.filter(|prefix| is_mask && *prefix >= 8)?)
    };
    route::read(text).filter_map(destination).collect()
}

/// The first free subnet of a size for a network that names none: it overlaps neither with one of
/// `taken` nor with a route. `prefix`: 10 to 30 bits.
///
/// # Errors
/// [`Error::NoSubnet`] where all are taken.
pub fn choose(prefix: u8, taken: &[Subnet], routes: &[Subnet]) -> Result<Subnet> {
    let count = 1_u32 << (prefix - DEFAULTS.prefix());
    let size = 1_u32 << (32 - prefix);
    let begin = (FIRST.base().to_bits() - DEFAULTS.base().to_bits()) / size;
    let at = |index: u32| {
        let base = DEFAULTS.base().to_bits() + (begin + index) % count * size;
        Subnet::around(Ipv4Addr::from_bits(base), prefix)
    };
    let is_free =
        |subnet: &Subnet| !taken.iter().chain(routes).any(|other| other.overlaps(*subnet));
    (0..count).filter_map(at).find(is_free).ok_or(Error::NoSubnet { among: DEFAULTS })
}

/// Checks a subnet that the user names. `taken`: those of other networks, with their names.
///
/// # Errors
/// [`Error::BadSubnet`] where it has fewer than 8 or more than 30 bits or is for something else;
/// [`Error::Overlaps`]; [`Error::Routed`].
pub fn check(subnet: Subnet, taken: &[(String, Subnet)], routes: &[Subnet]) -> Result<()> {
    let bad =
        |why: String, hint: String| Err(Error::BadSubnet { text: subnet.to_string(), why, hint });
    if !(8..=30).contains(&subnet.prefix()) {
        let why = "it has fewer than 8 or more than 30 bits";
        return bad(why.into(), format!("write one with 8 to 30 bits, as {FIRST}"));
    }
    if let Some((_, of)) = UNUSABLE.iter().find(|(range, _)| range.overlaps(subnet)) {
        return bad(format!("it is for {of}"), format!("choose a private one, as {FIRST}"));
    }
    if let Some((name, other)) = taken.iter().find(|(_, other)| other.overlaps(subnet)) {
        return Err(Error::Overlaps { subnet, other: *other, name: name.clone() });
    }
    if let Some(route) = routes.iter().find(|route| route.overlaps(subnet)) {
        return Err(Error::Routed { subnet, route: *route });
    }
    Ok(())
}

/// The gateway of a subnet: the address that the user names, else the first one.
///
/// # Errors
/// [`Error::BadGateway`] where it is not one of a host in the subnet.
pub fn gateway(subnet: Subnet, wished: Option<Ipv4Addr>) -> Result<Ipv4Addr> {
    let (first, last) = subnet.hosts();
    let gateway = wished.unwrap_or(first);
    if (first..=last).contains(&gateway) {
        Ok(gateway)
    } else {
        Err(Error::BadGateway { gateway, subnet })
    }
}

/// Checks the part of a subnet from which containers are to get addresses.
///
/// # Errors
/// [`Error::BadRange`] where it is not a part of the subnet, or has no address for a container.
pub fn check_range(range: Subnet, subnet: Subnet, gateway: Ipv4Addr) -> Result<()> {
    if !subnet.covers(range) {
        return Err(Error::BadRange { range, subnet, why: "is not a part of" });
    }
    let (first, last) = bounds(subnet, Some(range));
    let only_gateway = first == last && first == gateway;
    if first > last || only_gateway {
        return Err(Error::BadRange { range, subnet, why: "has no address for a container of" });
    }
    Ok(())
}

/// The first and the last address that containers may get unasked, the gateway among them.
fn bounds(subnet: Subnet, range: Option<Subnet>) -> (Ipv4Addr, Ipv4Addr) {
    let (first, last) = subnet.hosts();
    match range {
        Some(range) => (first.max(range.base()), last.min(range.last())),
        None => (first, last),
    }
}

/// The most auxiliary addresses of a network.
pub const AUXILIARY: usize = 16;

/// The auxiliary addresses of a subnet, by their names: those that are wished, and for names
/// without one the last free addresses of the subnet.
///
/// # Errors
/// [`Error::BadAuxiliary`] where a name is none of a host or is there twice, an address is not one
/// of a host in the subnet or has another use, or there are more than [`AUXILIARY`].
pub fn auxiliary(
    subnet: Subnet,
    gateway: Ipv4Addr,
    wished: &[(String, Option<Ipv4Addr>)],
) -> Result<Auxiliary> {
    let bad =
        |name: &String, why: String| Err(Error::BadAuxiliary { name: name.clone(), why, subnet });
    let (first, last) = subnet.hosts();
    let mut all = Auxiliary::new();
    // Those that are named are taken before others are chosen.
    let (named, free): (Vec<_>, Vec<_>) = wished.iter().partition(|(_, wish)| wish.is_some());
    for (name, wish) in named.into_iter().chain(free) {
        let is_taken = |address: &Ipv4Addr| {
            *address == gateway || all.iter().any(|(_, other)| other == address)
        };
        let last_free = || {
            let down = (first.to_bits()..=last.to_bits()).rev().map(Ipv4Addr::from_bits);
            down.take(AUXILIARY + 2).find(|address| !is_taken(address))
        };
        let is_short = name.split('.').all(|label| (1..=63).contains(&label.len()));
        let is_number = name.parse::<Ipv4Addr>().is_ok();
        if !names::is_name(name) || !is_short || is_number {
            return bad(name, "the name is none of a host".into());
        }
        if all.iter().any(|(other, _)| other == name) {
            return bad(name, "the name is there twice".into());
        }
        if all.len() == AUXILIARY {
            return bad(name, format!("a network has at most {AUXILIARY} of them"));
        }
        let Some(address) = wish.or_else(last_free) else {
            return bad(name, format!("all addresses of {subnet} are taken"));
        };
        if !(first..=last).contains(&address) {
            return bad(name, format!("{address} is not an address of a host in {subnet}"));
        }
        if is_taken(&address) {
            return bad(name, format!("{address} is the gateway's, or another's"));
        }
        all.push((name.clone(), address));
    }
    all.sort_unstable();
    Ok(all)
}

/// Checks an address that a container wishes: it must be in the subnet, and be neither the gateway,
/// an auxiliary address, nor the first or last one. It need not be in the network's range.
///
/// # Errors
/// [`Error::BadAddress`].
pub fn check_address(network: &Definition, address: Ipv4Addr) -> Result<()> {
    let bad = |why: String| Err(Error::BadAddress { address, network: network.name.clone(), why });
    let (first, last) = network.subnet.hosts();
    if !network.subnet.contains(address) {
        return bad(format!("it is not in the subnet {}", network.subnet));
    }
    if !(first..=last).contains(&address) {
        return bad(format!("the first and the last address of {} are none", network.subnet));
    }
    if address == network.gateway {
        return bad("it is the gateway's".into());
    }
    if let Some((name, _)) = network.auxiliary.iter().find(|(_, other)| *other == address) {
        return bad(format!("it is the auxiliary address {name}"));
    }
    Ok(())
}

/// The IPv4 address that an IPv6 address stands for which a container wishes. `wished`: the IPv4
/// address that it wishes, too.
///
/// # Errors
/// [`Error::NoIpv6`]; [`Error::BadIpv6`] where it does not follow from an address of the subnet, or
/// from another one than is wished; those of [`check_address`].
pub fn from_ipv6(
    network: &Definition,
    address: Ipv6Addr,
    wished: Option<Ipv4Addr>,
) -> Result<Ipv4Addr> {
    let name = || network.name.clone();
    let Some(prefix) = network.ipv6 else { return Err(Error::NoIpv6 { network: name() }) };
    let bad =
        |why: String, hint: String| Err(Error::BadIpv6 { address, network: name(), why, hint });
    if let Some(wished) = wished.filter(|wished| prefix.of(*wished) != address) {
        let why = format!("the IPv6 address of {wished} is {}", prefix.of(wished));
        return bad(why, "leave one of --ip and --ip6 out".into());
    }
    if let Some(member) = prefix.member(address).filter(|member| network.subnet.contains(*member)) {
        return check_address(network, member).map(|()| member);
    }
    let why = format!("it is not {prefix} with an address of {} at its end", network.subnet);
    let (_, last) = network.subnet.hosts();
    bad(why, format!("write one as {}, or only --ip {last}", prefix.of(last)))
}

/// An address for a container: the lowest free one after `last`, which was given before, or else
/// the lowest free one of all.
///
/// # Errors
/// [`Error::Full`].
pub fn allocate(
    network: &Definition,
    is_taken: impl Fn(Ipv4Addr) -> bool,
    last: Option<Ipv4Addr>,
) -> Result<Ipv4Addr> {
    let (low, high) = bounds(network.subnet, network.range);
    let is_reserved =
        |address: &Ipv4Addr| *address == network.gateway || network.is_auxiliary(*address);
    let is_free = |address: &Ipv4Addr| !is_reserved(address) && !is_taken(*address);
    let within = |from: u32, to: u32| (from..=to).map(Ipv4Addr::from_bits).find(is_free);
    let (low, high) = (low.to_bits(), high.to_bits());
    let after = last.map(Ipv4Addr::to_bits).filter(|last| (low..high).contains(last));
    let begin = after.map_or(low, |last| last + 1);
    within(begin, high).or_else(|| within(low, begin.saturating_sub(1))).ok_or_else(|| {
        Error::Full {
            network: network.name.clone(),
            among: network.range.unwrap_or(network.subnet),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn subnet(text: &str) -> Subnet {
        text.parse().unwrap()
    }

    fn network(of: &str, gateway: &str, range: Option<&str>) -> Definition {
        let (gateway, range) = (gateway.parse().unwrap(), range.map(subnet));
        Definition { gateway, range, ..Definition::of("lab", of) }
    }

    #[test]
    fn auxiliary_addresses_are_of_no_container() {
        let subnet = subnet("100.80.0.0/28");
        let at = |last| Ipv4Addr::new(100, 80, 0, last);
        let make = |wished: &[(&str, Option<u8>)]| {
            let wish = |(name, last): &(&str, Option<u8>)| ((*name).to_owned(), last.map(at));
            auxiliary(subnet, at(13), &wished.iter().map(wish).collect::<Vec<_>>())
        };
        let all = make(&[("a", None), ("web", Some(14)), ("b", None)]).unwrap();
        let expected = [("a", 12), ("b", 11), ("web", 14)];
        assert_eq!(all, expected.map(|(name, last)| (name.to_owned(), at(last))));
        let mut lab = network("100.80.0.0/28", "100.80.0.13", None);
        lab.auxiliary = all;
        let error = check_address(&lab, at(14)).unwrap_err().to_string();
        assert!(error.contains("it is the auxiliary address web"), "{error}");
        let first = allocate(&lab, |_| false, Some(at(10))).unwrap();
        assert_eq!(first, at(1), "behind 10 only reserved ones are left");
        for (wished, part) in [
            (&[("a b", None)][..], "the name is none"),
            (&[(".", None)], "the name is none"),
            (&[("10.0.0.1", None)], "the name is none"),
            (&[("a", None), ("a", Some(2))], "twice"),
            (&[("a", Some(0))], "not an address of a host"),
            (&[("a", Some(16))], "not an address of a host"),
            (&[("a", Some(13))], "gateway"),
            (&[("a", Some(2)), ("b", Some(2))], "another"),
        ] {
            let error = make(wished).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
            assert!(error.hint().is_some());
        }
        let names: Vec<String> = (0..14).map(|number| format!("n{number}")).collect();
        let many: Vec<(&str, Option<u8>)> = names.iter().map(|name| (&**name, None)).collect();
        let error = make(&many).unwrap_err().to_string();
        assert!(error.contains("are taken"), "{error}");
    }

    #[test]
    fn ipv6_addresses_lead_to_ipv4_ones() {
        let mut lab = network("100.80.0.0/24", "100.80.0.1", None);
        let from = |network: &Definition, address: &str, wished: Option<[u8; 4]>| {
            from_ipv6(network, address.parse().unwrap(), wished.map(Into::into))
        };
        assert!(matches!(from(&lab, "fd00::6450:7", None), Err(Error::NoIpv6 { .. })));
        lab.ipv6 = Some("fd00::/64".parse().unwrap());
        let seven = Ipv4Addr::new(100, 80, 0, 7);
        assert_eq!(from(&lab, "fd00::6450:7", None).unwrap(), seven);
        assert_eq!(from(&lab, "fd00::100.80.0.7", Some([100, 80, 0, 7])).unwrap(), seven);
        for (address, wished, part) in [
            ("fd00::6450:7", Some([100, 80, 0, 8]), "address of 100.80.0.8 is fd00::6450:8"),
            ("fd00::7", None, "it is not fd00::/64 with an address of 100.80.0.0/24 at its end"),
            ("fd01::6450:7", None, "it is not fd00::/64 with"),
            ("fd00::1:0:6450:7", None, "it is not fd00::/64 with"),
            ("fd00::6450:1", None, "it is the gateway's"),
        ] {
            let error = from(&lab, address, wished).unwrap_err();
            assert!(error.to_string().contains(part), "{address}: {error}");
            assert!(error.hint().is_some());
        }
    }

    const ROUTES: &str =
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0102A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t0002A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
tun0\t00005064\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0
odd\t00005064\t00000000\t0001\t0\t0\t0\t00FF00FF\t0\t0\t0
eth0\t0101A8C0
";

    #[test]
    fn routes_of_the_kernel() {
        assert_eq!(routes(ROUTES), [subnet("192.168.2.0/24"), subnet("100.80.0.0/16")]);
        assert!(routes("").is_empty());
    }

    #[test]
    fn subnets_by_default() {
        assert_eq!(choose(24, &[], &[]).unwrap(), subnet("100.80.0.0/24"));
        assert_eq!(choose(24, &[subnet("100.80.0.0/24")], &[]).unwrap(), subnet("100.80.1.0/24"));
        assert_eq!(choose(24, &[subnet("100.80.0.8/30")], &[]).unwrap(), subnet("100.80.1.0/24"));
        let taken = [subnet("100.80.1.0/24")];
        assert_eq!(
            choose(24, &taken, &[subnet("100.80.0.0/24")]).unwrap(),
            subnet("100.80.2.0/24")
        );
        assert_eq!(choose(24, &[], &routes(ROUTES)).unwrap(), subnet("100.81.0.0/24"));
        // Behind the end it goes on at the beginning.
        let upper = [subnet("100.80.0.0/12"), subnet("100.96.0.0/11")];
        assert_eq!(choose(24, &upper, &[]).unwrap(), subnet("100.64.0.0/24"));
        assert_eq!(choose(16, &taken, &[]).unwrap(), subnet("100.81.0.0/16"));
        assert!(matches!(choose(24, &[DEFAULTS], &[]), Err(Error::NoSubnet { .. })));
    }

    #[test]
    fn defaults_follow_each_other() {
        let mut taken = Vec::new();
        for _ in 0..300 {
            taken.push(choose(24, &taken, &[]).unwrap());
        }
        let bases = taken.iter().map(|one| one.base().to_bits());
        let expected = (0..300).map(|number| FIRST.base().to_bits() + number * 256);
        assert!(bases.eq(expected), "{taken:?}");
    }

    #[test]
    fn the_last_free_default_is_found() {
        for wanted in ["100.64.0.0/24", "100.79.255.0/24", "100.80.0.0/24", "100.127.255.0/24"] {
            let wanted = subnet(wanted);
            // All but the wanted one: at each step the half in which it is not.
            let (mut part, mut taken) = (DEFAULTS, Vec::new());
            while part.prefix() < wanted.prefix() {
                let half = part.lower_half();
                let upper = Subnet::around(part.last(), half.prefix()).unwrap();
                let (inner, outer) =
                    if half.covers(wanted) { (half, upper) } else { (upper, half) };
                taken.push(outer);
                part = inner;
            }
            assert_eq!(choose(24, &[], &taken).unwrap(), wanted);
            taken.push(wanted);
            assert!(choose(24, &taken, &[]).is_err());
        }
    }

    #[test]
    fn subnets_that_a_user_names() {
        let taken = [("lab".to_owned(), subnet("10.9.0.0/16"))];
        let routed = [subnet("192.168.2.0/24")];
        let check = |text: &str| parse(text).and_then(|subnet| check(subnet, &taken, &routed));
        for good in ["10.10.0.0/16", "100.80.0.0/30", "11.0.0.0/8", "192.168.3.0/24"] {
            check(good).unwrap();
        }
        let texts = |text: &str| {
            let error = check(text).unwrap_err();
            (error.to_string(), error.hint().unwrap())
        };
        for (bad, part, hint) in [
            ("10.0.0.0/7", "fewer than 8", "8 to 30 bits"),
            ("0.0.0.0/0", "fewer than 8", "100.80"),
            ("10.0.0.0/31", "more than 30", "100.80"),
            ("10.10.1.0/16", "should be 10.10.0.0/16", "write 10.10.0.0/16"),
            ("10.10", "not ADDRESS/BITS", "write ADDRESS/BITS"),
            ("fd00::/64", "only IPv4", "IPv4"),
            ("127.5.0.0/16", "loopback", "private"),
            ("224.0.0.0/8", "multicast", "private"),
            ("10.9.3.0/24", "overlaps with 10.9.0.0/16 of network lab", "without --subnet"),
            ("10.0.0.0/8", "overlaps with 10.9.0.0/16 of network lab", "without --subnet"),
            ("192.168.0.0/16", "192.168.2.0/24, to which this host has a route", "--subnet"),
        ] {
            let (text, advice) = texts(bad);
            assert!(text.contains(part) && advice.contains(hint), "{bad}: {text}; {advice}");
        }
    }

    #[test]
    fn gateways_and_ranges() {
        let of = subnet("10.1.0.0/24");
        let at = |last| Ipv4Addr::new(10, 1, 0, last);
        assert_eq!(gateway(of, None).unwrap(), at(1));
        assert_eq!(gateway(of, Some(at(254))).unwrap(), at(254));
        for bad in [at(0), at(255), Ipv4Addr::new(10, 2, 0, 1)] {
            let error = gateway(of, Some(bad)).unwrap_err();
            assert_eq!(error.hint().unwrap(), "choose one from 10.1.0.1 to 10.1.0.254");
        }
        for good in ["10.1.0.0/25", "10.1.0.8/30", "10.1.0.0/24", "10.1.0.2/32", "10.1.0.0/31"] {
            let gateway = if good == "10.1.0.0/31" { at(9) } else { at(1) };
            check_range(subnet(good), of, gateway).unwrap();
        }
        for bad in ["10.1.1.0/25", "10.0.0.0/8", "10.1.0.1/32", "10.1.0.0/32", "10.1.0.0/31"] {
            let error = check_range(subnet(bad), of, at(1)).unwrap_err();
            assert!(matches!(error, Error::BadRange { .. }), "{bad}: {error}");
        }
    }

    #[test]
    fn addresses_that_a_container_wishes() {
        let lab = network("10.1.0.0/24", "10.1.0.1", Some("10.1.0.128/25"));
        for good in ["10.1.0.2", "10.1.0.254", "10.1.0.200"] {
            check_address(&lab, good.parse().unwrap()).unwrap();
        }
        for (bad, why) in [
            ("10.1.1.2", "not in the subnet 10.1.0.0/24"),
            ("10.1.0.0", "the first and the last"),
            ("10.1.0.255", "the first and the last"),
            ("10.1.0.1", "the gateway's"),
        ] {
            let error = check_address(&lab, bad.parse().unwrap()).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn an_address_that_was_left_is_not_given_again_at_once() {
        let lab = network("10.1.0.0/29", "10.1.0.1", None);
        let mut taken = BTreeSet::new();
        let mut last = None;
        let mut given = |taken: &BTreeSet<Ipv4Addr>| {
            let address = allocate(&lab, |address| taken.contains(&address), last)?;
            last = Some(address);
            Ok::<u8, Error>(address.octets()[3])
        };
        let numbers: Vec<u8> = (0..4).map(|_| given(&taken).unwrap()).collect();
        assert_eq!(numbers, [2, 3, 4, 5], "although none of them is taken");
        taken.insert(Ipv4Addr::new(10, 1, 0, 2));
        assert_eq!((given(&taken).unwrap(), given(&taken).unwrap()), (6, 3));
        taken.extend((3..=6).map(|last| Ipv4Addr::new(10, 1, 0, last)));
        assert!(matches!(given(&taken), Err(Error::Full { .. })));
        taken.remove(&Ipv4Addr::new(10, 1, 0, 3));
        assert_eq!(given(&taken).unwrap(), 3);
    }

    proptest! {
        /// Every address that containers may have is given before the network is full, each once,
        /// wherever the search begins.
        #[test]
        fn all_addresses_are_given(
            base in any::<u32>(), prefix in 25_u8..=30, part in 0_u8..=3, at in any::<u32>(),
            gateway_at in any::<u32>(), begin in proptest::option::of(any::<u32>()),
        ) {
            let of = Subnet::around(Ipv4Addr::from_bits(base), prefix).unwrap();
            let inside = |number: u32| {
                let size = 1_u32 << (32 - prefix);
                Ipv4Addr::from_bits(of.base().to_bits() + number % size)
            };
            let range = (part > 0)
                .then(|| Subnet::around(inside(at), (prefix + part).min(32)).unwrap());
            let (first, last) = of.hosts();
            let gateway = inside(gateway_at).clamp(first, last);
            let mut lab = network("10.0.0.0/8", "10.0.0.1", None);
            (lab.subnet, lab.gateway, lab.range) = (of, gateway, range);
            let expected: BTreeSet<Ipv4Addr> = (first.to_bits()..=last.to_bits())
                .map(Ipv4Addr::from_bits)
                .filter(|one| *one != gateway && range.is_none_or(|range| range.contains(*one)))
                .collect();
            if let Some(range) = range {
                prop_assert_eq!(check_range(range, of, gateway).is_ok(), !expected.is_empty());
            }
            let mut taken = BTreeSet::new();
            let mut last = begin.map(inside);
            while let Ok(address) = allocate(&lab, |one| taken.contains(&one), last) {
                prop_assert!(check_address(&lab, address).is_ok());
                prop_assert!(taken.insert(address), "{} twice", address);
                last = Some(address);
            }
            prop_assert_eq!(taken, expected);
        }

        #[test]
        fn a_chosen_subnet_is_free(
            taken in proptest::collection::vec((any::<u32>(), 8_u8..=30), 0..20),
        ) {
            let taken: Vec<Subnet> = taken
                .into_iter()
                // All within the range that is chosen from.
                .map(|(base, prefix)| {
                    let base = DEFAULTS.base().to_bits() | base >> 10;
                    Subnet::around(Ipv4Addr::from_bits(base), prefix.max(12)).unwrap()
                })
                .collect();
            let (others, routes) = taken.split_at(taken.len() / 2);
            if let Ok(free) = choose(24, others, routes) {
                prop_assert!(taken.iter().all(|other| !other.overlaps(free)));
                let named: Vec<_> = others.iter().map(|one| (String::new(), *one)).collect();
                prop_assert!(check(free, &named, routes).is_ok());
            }
        }
    }
}
