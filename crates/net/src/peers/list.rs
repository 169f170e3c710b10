//! The list of a network's hosts: who they are, and what makes a list usable. No I/O.
//!
//! All hosts join the same list. A host's place in it is the number of its slice
//! ([`crate::slices`]), so places do not change: hosts are added at the end, and one that leaves
//! stays with `revoked = true`. Everything but an addition needs a higher *epoch*, by which hosts
//! tell an old list from a new one.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};

use serde::{Deserialize, Serialize};

use super::key::PublicKey;
use crate::definition::Auxiliary;
use crate::prefix::Prefix;
use crate::subnet::Subnet;
use crate::{names, slices};

/// A host of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name, for people.
    pub name: String,
    /// The address at which the others reach it and its containers.
    pub address: Ipv4Addr,
    /// The port of its agent (TCP).
    pub port: u16,
    /// Its key.
    pub key: PublicKey,
    /// The network's addresses, the same on all hosts.
    pub subnet: Subnet,
    /// The network's IPv6 addresses, the same on all hosts; `None` in one without IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Prefix>,
    /// The network has no way out; the same on all hosts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub internal: bool,
    /// The network's auxiliary addresses, the same on all hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub auxiliary: Auxiliary,
    /// It is in the network no more; nobody gets its slice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revoked: bool,
}

impl Host {
    /// Where its agent listens.
    pub fn place(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.address, self.port)
    }

    /// Its entry in a list, as it is written in a file.
    pub fn entry(&self) -> String {
        let mut text = String::from("[[member]]\n");
        let Self { name, address, port, key, subnet, ipv6, internal, auxiliary, revoked } = self;
        let _ = writeln!(text, "name = \"{name}\"\naddress = \"{address}\"\nport = {port}");
        let _ = writeln!(text, "key = \"{key}\"\nsubnet = \"{subnet}\"");
        if let Some(ipv6) = ipv6 {
            let _ = writeln!(text, "ipv6 = \"{ipv6}\"");
        }
        if !auxiliary.is_empty() {
            let one = |(name, address): &(String, Ipv4Addr)| format!("\"{name}\" = \"{address}\"");
            let all: Vec<String> = auxiliary.iter().map(one).collect();
            let _ = writeln!(text, "auxiliary = {{ {} }}", all.join(", "));
        }
        for (word, is_so) in [("internal", internal), ("revoked", revoked)] {
            if *is_so {
                let _ = writeln!(text, "{word} = true");
            }
        }
        text
    }
}

/// The hosts of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    /// Counts the lists that are no mere additions, from 1 on.
    pub epoch: u64,
    /// The hosts, each at the place of its slice.
    pub hosts: Vec<Host>,
}

/// What is wrong with a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The place of the entry at fault; `None` for the list as a whole.
    pub at: Option<usize>,
    /// The rule that it breaks.
    pub why: String,
    /// What to do.
    pub hint: String,
}

fn wrong(at: impl Into<Option<usize>>, why: String, hint: &str) -> Wrong {
    Wrong { at: at.into(), why, hint: hint.to_owned() }
}

impl List {
    /// The place of a host that is in the network.
    pub fn position(&self, key: &PublicKey) -> Option<usize> {
        self.hosts.iter().position(|host| host.key == *key && !host.revoked)
    }

    /// The host with a key, if it is in the network.
    pub fn find(&self, key: &PublicKey) -> Option<&Host> {
        self.hosts.get(self.position(key)?)
    }

    /// The host whose slice has an address, if it is in the network.
    pub fn owner(&self, address: Ipv4Addr) -> Option<&Host> {
        let subnet = self.hosts.first()?.subnet;
        let host = self.hosts.get(slices::owner(subnet, address)?)?;
        (!host.revoked).then_some(host)
    }

    /// Checks that a list is one: entries that can be true, and differ where they must.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), Wrong> {
        let Some(first) = self.hosts.first() else {
            let hint = "'coracle network invite NETWORK' prints the entry of a host";
            return Err(wrong(None, "it names no host".into(), hint));
        };
        for (at, host) in self.hosts.iter().enumerate() {
            host.check().map_err(|(why, hint)| wrong(at, why, hint))?;
            let before = &self.hosts[..at];
            if let Some(twin) = before.iter().find(|other| other.key == host.key) {
                let why = format!("{} and {} have the same key", twin.name, host.name);
                let hint = "a host is listed once; make a network of its own on a copied machine";
                return Err(wrong(at, why, hint));
            }
            let same = |other: &&Host| other.place() == host.place() && !other.revoked;
            if let Some(twin) = before.iter().find(same).filter(|_| !host.revoked) {
                let (place, name) = (host.place(), &host.name);
                let why =
                    format!("{} and {name} have the same address and port {place}", twin.name);
                let hint = "give one of them another address or port, and invite it again";
                return Err(wrong(at, why, hint));
            }
            if host.subnet != first.subnet {
                let (own, name) = (host.subnet, &first.name);
                let why = format!("subnet {own} differs from {} of {name}", first.subnet);
                let hint = "all hosts have the same subnet: make the network on one host, and join \
                            its list on the others";
                return Err(wrong(at, why, hint));
            }
            if host.ipv6 != first.ipv6 {
                let why = format!("{} and {} differ in 'ipv6'", first.name, host.name);
                let hint = "all hosts have the same IPv6 addresses, or none: make the network on \
                            one host, and join its list on the others";
                return Err(wrong(at, why, hint));
            }
            if host.internal != first.internal {
                let why = format!("{} and {} differ in 'internal'", first.name, host.name);
                let hint = "a network has a way out on all hosts or on none: write internal = true \
                            in each entry, or in none";
                return Err(wrong(at, why, hint));
            }
            if host.auxiliary != first.auxiliary {
                let why = format!("{} and {} differ in 'auxiliary'", first.name, host.name);
                let hint = "all hosts have the same auxiliary addresses: make the network on one \
                            host, and join its list on the others";
                return Err(wrong(at, why, hint));
            }
        }
        let most = slices::count(first.subnet);
        if self.hosts.len() > most {
            let why = format!("subnet {} has room for {most} hosts", first.subnet);
            return Err(wrong(most, why, "make a network with a larger --subnet"));
        }
        Ok(())
    }

    /// Checks that it may take the place of the list that was joined before.
    ///
    /// # Errors
    /// Where its epoch is lower, or is the same although more than additions were made.
    pub fn check_after(&self, before: &Self) -> Result<(), Wrong> {
        let (own, old) = (self.epoch, before.epoch);
        if own < old {
            let why = format!("epoch {own} is lower than {old}, which was joined before");
            return Err(wrong(None, why, "join the newest list"));
        }
        let kept = before.hosts.iter().zip(&self.hosts);
        let at = kept.clone().position(|(old, new)| old != new);
        let at = at.or_else(|| (self.hosts.len() < before.hosts.len()).then_some(self.hosts.len()));
        if let (true, Some(at)) = (own == old, at) {
            let name = &before.hosts[at].name;
            let why = format!("epoch {own} was joined before with another entry of {name}");
            let hint = "hosts may be added at the end; for every other change raise 'epoch', and \
                        join the list on all hosts";
            return Err(wrong((at < self.hosts.len()).then_some(at), why, hint));
        }
        Ok(())
    }
}

impl Host {
    fn check(&self) -> Result<(), (String, &'static str)> {
        let Self { name, address, subnet, .. } = self;
        if !names::is_name(name) || name.len() > 253 {
            let hint = "use letters, digits, '-', '_' and '.'";
            return Err((format!("name {name:?} is not a host name"), hint));
        }
        if address.is_unspecified() || address.is_multicast() || address.is_broadcast() {
            return Err((format!("address {address} is no host's"), "write the host's address"));
        }
        if subnet.contains(*address) {
            let why = format!("address {address} lies in the network's own subnet {subnet}");
            return Err((why, "write the address at which other hosts reach it"));
        }
        if self.port == 0 {
            return Err(("port 0 is none".into(), "write the port of the host's agent"));
        }
        if !(8..=slices::SMALLEST).contains(&subnet.prefix()) {
            let why = format!("subnet {subnet} has fewer than 8 or more than 28 bits");
            return Err((why, "make a network with a larger --subnet"));
        }
        if let Some((ipv6, why)) = self.ipv6.and_then(|ipv6| Some((ipv6, ipv6.unusable()?))) {
            let why = format!("ipv6 {ipv6} is not usable: {why}");
            return Err((why, "write what 'coracle network invite' prints"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u8) -> Host {
        Host {
            name: format!("host{number}"),
            address: Ipv4Addr::new(10, 0, 0, number),
            port: 7370,
            key: PublicKey::of([number; 32]),
            subnet: "100.80.0.0/24".parse().unwrap(),
            ipv6: None,
            internal: false,
            auxiliary: Vec::new(),
            revoked: false,
        }
    }

    fn list(numbers: &[u8]) -> List {
        List { epoch: 1, hosts: numbers.iter().copied().map(host).collect() }
    }

    #[test]
    fn entries() {
        let host = host(7);
        let text = host.entry();
        assert!(
            text.starts_with("[[member]]\nname = \"host7\"\naddress = \"10.0.0.7\"\n"),
            "{text}"
        );
        assert!(text.ends_with("subnet = \"100.80.0.0/24\"\n"), "{text}");
        let written = serde_json::to_string(&host).unwrap();
        assert!(!written.contains("revoked"), "{written}");
        assert_eq!(serde_json::from_str::<Host>(&written).unwrap(), host);
    }

    #[test]
    fn owners() {
        let mut list = list(&[1, 2, 3]);
        let owner = |list: &List, last| {
            let host = list.owner(Ipv4Addr::new(100, 80, 0, last));
            host.map(|host| host.name.clone())
        };
        assert_eq!(owner(&list, 20).as_deref(), Some("host2"));
        assert_eq!(owner(&list, 48), None);
        assert_eq!(list.position(&PublicKey::of([3; 32])), Some(2));
        list.hosts[1].revoked = true;
        assert_eq!(owner(&list, 20), None);
        assert_eq!(list.find(&PublicKey::of([2; 32])), None);
        list.check().unwrap();
    }

    #[test]
    fn mistakes() {
        let changed = |change: &dyn Fn(&mut List)| {
            let mut list = list(&[1, 2, 3]);
            change(&mut list);
            let wrong = list.check().unwrap_err();
            assert!(!wrong.hint.is_empty());
            (wrong.at, wrong.why)
        };
        for (change, at, part) in [
            (&(|list: &mut List| list.hosts.clear()) as &dyn Fn(&mut List), None, "names no host"),
            (&|list| list.hosts[2].key = list.hosts[0].key, Some(2), "host1 and host3 have the sa"),
            (&|list| list.hosts[1].address = list.hosts[0].address, Some(1), "10.0.0.1:7370"),
            (&|list| list.hosts[1].subnet = "10.9.0.0/24".parse().unwrap(), Some(1), "differs"),
            (&|list| list.hosts[1].internal = true, Some(1), "differ in 'internal'"),
            (
                &|list| {
                    list.hosts[1].auxiliary.push(("web".into(), [100, 80, 0, 254].into()));
                },
                Some(1),
                "differ in 'auxiliary'",
            ),
            (&|list| list.hosts[1].ipv6 = "fd00::/64".parse().ok(), Some(1), "differ in 'ipv6'"),
            (
                &|list| list.hosts[0].ipv6 = "fd00::/97".parse().ok(),
                Some(0),
                "ipv6 fd00::/97 is not usable: it has fewer than 64 or more than 96 bits",
            ),
            (&|list| list.hosts[1].name = "a b".into(), Some(1), "\"a b\" is not a host name"),
            (&|list| list.hosts[0].name.clear(), Some(0), "\"\" is not a host name"),
            (&|list| list.hosts[0].port = 0, Some(0), "port 0"),
            (&|list| list.hosts[0].address = [0, 0, 0, 0].into(), Some(0), "0.0.0.0 is no host's"),
            (&|list| list.hosts[0].address = [100, 80, 0, 9].into(), Some(0), "own subnet"),
            (&|list| list.hosts = (1..=17).map(host).collect(), Some(16), "room for 16 hosts"),
            (
                &|list| list.hosts[0].subnet = "10.9.0.0/29".parse().unwrap(),
                Some(0),
                "more than 28",
            ),
        ] {
            let (found, why) = changed(change);
            assert_eq!(found, at, "{why}");
            assert!(why.contains(part), "{why}");
        }
        // A place may be used again after its host has left.
        let mut list = list(&[1, 2]);
        list.hosts[0].revoked = true;
        list.hosts[1].address = list.hosts[0].address;
        list.check().unwrap();
    }

    #[test]
    fn epochs() {
        let old = list(&[1, 2]);
        list(&[1, 2]).check_after(&old).unwrap();
        list(&[1, 2, 3]).check_after(&old).unwrap();
        for numbers in [&[1][..], &[2, 1], &[1, 3], &[3, 1, 2]] {
            let wrong = list(numbers).check_after(&old).unwrap_err();
            assert!(wrong.why.contains("epoch 1 was joined before with another"), "{wrong:?}");
            let newer = List { epoch: 2, ..list(numbers) };
            newer.check_after(&old).unwrap();
            assert!(old.check_after(&newer).unwrap_err().why.contains("epoch 1 is lower than 2"));
        }
    }
}
