//! Makes, lists and finds networks.
//!
//! A network is made under the lock of all networks, because its subnet must not overlap with that
//! of another one.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use store::{NetworkDir, Store};

use crate::definition::{self, Definition, Scope};
use crate::error::{Error, Result};
use crate::ipam;
use crate::prefix::Prefix;
use crate::slices;
use crate::subnet::Subnet;

/// Whether the container with this id lives or is being started, on any host that shares the store.
pub type IsAlive<'call> = dyn Fn(&str) -> bool + 'call;

/// A network to be made.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Its name; see [`definition::check_name`].
    pub name: String,
    /// The time, RFC 3339.
    pub created: String,
    /// Who meets in it.
    pub scope: Scope,
    /// Its addresses; `None` for a free range.
    pub subnet: Option<Subnet>,
    /// It has IPv6 addresses, too.
    pub ipv6: bool,
    /// These; `None` for a range of local addresses that nobody else has.
    pub prefix: Option<Prefix>,
    /// The address of the way out; `None` for the first one.
    pub gateway: Option<Ipv4Addr>,
    /// The part of the subnet from which containers get addresses; `None` for all of it.
    pub range: Option<Subnet>,
    /// Addresses that no container gets, with names; see [`ipam::auxiliary`].
    pub auxiliary: Vec<(String, Option<Ipv4Addr>)>,
    /// Members reach each other and nothing else.
    pub internal: bool,
    /// Recorded and shown.
    pub attachable: bool,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Options.
    pub options: BTreeMap<String, String>,
}

/// The networks of a store.
#[derive(Debug, Clone, Copy)]
pub struct Networks<'store>(&'store Store);

/// A network of a store.
#[derive(Debug, Clone)]
pub struct Network {
    dir: NetworkDir,
    definition: Definition,
}

/// The size of a network of several hosts that names no subnet.
const WIDE: u8 = 16;

/// The size of a network that names no subnet.
fn default_prefix(scope: &Scope) -> u8 {
    if *scope == Scope::Cluster { WIDE } else { ipam::FIRST.prefix() }
}

/// The most containers of one host in a network that is made with this subnet, or without one: no
/// host has more.
pub fn room(scope: &Scope, subnet: Option<Subnet>) -> u32 {
    let prefix = subnet.map_or_else(|| default_prefix(scope), Subnet::prefix);
    let size = |bits: u8| 1_u32.checked_shl(32 - u32::from(bits)).unwrap_or(u32::MAX);
    if *scope == Scope::Cluster {
        return size(prefix + slices::bits(prefix));
    }
    // The first address, the last one, and that of the gateway are of no container.
    size(prefix).saturating_sub(3)
}

/// Refuses what a network of several hosts cannot have.
fn check_cluster(request: &Request) -> Result<()> {
    if request.scope != Scope::Cluster {
        return Ok(());
    }
    for (given, what) in
        [(request.range.is_some(), "--ip-range"), (request.gateway.is_some(), "--gateway")]
    {
        if given {
            return Err(Error::NotInCluster { what });
        }
    }
    match request.subnet {
        Some(subnet) if subnet.prefix() > slices::SMALLEST => Err(Error::BadSubnet {
            text: subnet.to_string(),
            why: format!("a network of several hosts has at most {} bits", slices::SMALLEST),
            hint: "write a larger one, as 100.80.0.0/16".into(),
        }),
        _ => Ok(()),
    }
}

/// The IPv6 addresses of a new network beside others: what is wished, if that is possible.
fn prefix(others: &[Network], wished: Option<Prefix>, routes: &[Prefix]) -> Result<Prefix> {
    let random = || -> Result<Prefix> {
        let mut random = [0; 5];
        let filled = sys::random::fill(&mut random);
        filled.map_err(|source| Error::Random { source })?;
        Ok(Prefix::local(random))
    };
    let prefix = wished.map_or_else(random, Ok)?;
    let mut taken = others.iter().filter_map(|other| Some((other.name(), other.definition.ipv6?)));
    ipam::check_prefix(prefix, &mut taken, routes).map(|()| prefix)
}

impl<'store> Networks<'store> {
    /// Those of `store`.
    pub fn of(store: &'store Store) -> Self {
        Self(store)
    }

    /// Makes a network, which is on the disk when this returns. `routes` and `routes6`: the
    /// destinations of the host's routes, see [`ipam::routes`] and [`prefix::routes`].
    ///
    /// [`prefix::routes`]: crate::prefix::routes
    ///
    /// # Errors
    /// [`Error::BadName`], [`Error::Scope`], [`Error::Exists`], those of [`ipam::check`],
    /// [`ipam::check_prefix`], [`ipam::choose`], [`ipam::gateway`], [`ipam::check_range`] and
    /// [`ipam::auxiliary`], and a store that cannot be written to.
    pub fn create(
        self,
        request: Request,
        (routes, routes6): (&[Subnet], &[Prefix]),
    ) -> Result<Network> {
        check_cluster(&request)?;
        definition::check_name(&request.name)?;
        let id = store::random_id().map_err(Error::store("make an id"))?;
        self.make(request, id, (routes, routes6))
    }

    /// The network [`definition::BRIDGE`], made now if there is none. `created` is the time, RFC
    /// 3339; the routes are as in [`Networks::create`].
    ///
    /// # Errors
    /// Those of [`Networks::create`].
    pub fn bridge(self, created: String, routes: (&[Subnet], &[Prefix])) -> Result<Network> {
        if let Some(network) = self.get(definition::BRIDGE)? {
            return Ok(network);
        }
        let name = definition::BRIDGE.to_owned();
        let request = Request { name, created, ..Request::default() };
        match self.make(request, definition::BRIDGE_ID.to_owned(), routes) {
            Err(Error::Exists { name }) => self.find(&name),
            made => made,
        }
    }

    fn make(
        self,
        request: Request,
        id: String,
        (routes, routes6): (&[Subnet], &[Prefix]),
    ) -> Result<Network> {
        let Request { name, created, scope, subnet, range, .. } = request;
        scope.check()?;
        // What others add is not removed while this is held, and it comes before all other locks.
        let _lease = self.0.lease().map_err(Error::store("use the store"))?;
        let _all = self.0.networks().lock().map_err(Error::store("lock the networks"))?;
        let others = self.list()?;
        if others.iter().any(|other| other.name() == name) {
            return Err(Error::Exists { name });
        }
        let ipv6 =
            if request.ipv6 { Some(prefix(&others, request.prefix, routes6)?) } else { None };
        let taken =
            others.into_iter().map(|other| (other.definition.name, other.definition.subnet));
        let taken: Vec<(String, Subnet)> = taken.collect();
        let subnet = if let Some(subnet) = subnet {
            ipam::check(subnet, &taken, routes).map(|()| subnet)?
        } else {
            let taken: Vec<Subnet> = taken.iter().map(|(_, other)| *other).collect();
            ipam::choose(default_prefix(&scope), &taken, routes)?
        };
        let gateway = ipam::gateway(subnet, request.gateway)?;
        if let Some(range) = range {
            ipam::check_range(range, subnet, gateway)?;
        }
        let auxiliary = ipam::auxiliary(subnet, gateway, &request.auxiliary)?;
        let Request { internal, attachable, labels, options, .. } = request;
        let definition = Definition {
            name,
            id,
            created,
            scope,
            subnet,
            ipv6,
            gateway,
            range,
            auxiliary,
            internal,
            attachable,
            labels,
            options,
        };
        let made = self.0.networks().create(&definition.name, &definition);
        match made.map_err(Error::store("make a network"))? {
            Some(dir) => Ok(Network { dir, definition }),
            None => Err(Error::Exists { name: definition.name }),
        }
    }

    /// All networks, by name.
    pub fn list(self) -> Result<Vec<Network>> {
        let list = self.0.networks().list().map_err(Error::store("list the networks"))?;
        list.into_iter().filter_map(|dir| Network::read(dir).transpose()).collect()
    }

    /// The network with this name.
    pub fn get(self, name: &str) -> Result<Option<Network>> {
        let dir = self.0.networks().get(name).map_err(Error::store("find a network"))?;
        dir.map_or(Ok(None), Network::read)
    }

    /// The network with this name, with this id, or with an id that begins like this.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Ambiguous`].
    pub fn find(self, name: &str) -> Result<Network> {
        if let Some(network) = self.get(name)? {
            return Ok(network);
        }
        let mut found = self.list()?;
        found.retain(|network| !name.is_empty() && network.definition.id.starts_with(name));
        match found.len() {
            0 => Err(Error::NotFound { name: name.to_owned() }),
            1 => Ok(found.remove(0)),
            _ => {
                let candidates = found.into_iter().map(|one| one.definition.name).collect();
                Err(Error::Ambiguous { name: name.to_owned(), candidates })
            }
        }
    }
}

impl Network {
    fn read(dir: NetworkDir) -> Result<Option<Self>> {
        let read: Option<Definition> = dir.info().map_err(Error::store("read a network"))?;
        Ok(read.map(|definition| Self { dir, definition }))
    }

    /// What it is.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// 64 hexadecimal digits.
    pub fn id(&self) -> &str {
        &self.definition.id
    }

    pub(crate) fn dir(&self) -> &NetworkDir {
        &self.dir
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use store::Options;

    use super::*;

    fn store(path: &Path) -> Store {
        Store::open(path, Options { create: true, ..Options::default() }).unwrap()
    }

    fn request(name: &str, subnet: Option<&str>) -> Request {
        let subnet = subnet.map(|text| text.parse().unwrap());
        Request { name: name.into(), subnet, ..Request::default() }
    }

    #[test]
    fn each_gets_other_addresses() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        let networks = Networks::of(&store);
        let make = |name, subnet| {
            let made = networks.create(request(name, subnet), (&[], &[]))?;
            Ok::<_, Error>((made.definition().subnet.to_string(), made.definition().gateway))
        };
        let gateway = |c, last| Ipv4Addr::new(100, 80, c, last);
        assert_eq!(make("b", None).unwrap(), ("100.80.0.0/24".into(), gateway(0, 1)));
        assert_eq!(
            make("named", Some("100.80.1.0/25")).unwrap(),
            ("100.80.1.0/25".into(), gateway(1, 1))
        );
        assert_eq!(make("a", None).unwrap(), ("100.80.2.0/24".into(), gateway(2, 1)));
        assert!(matches!(make("a", None), Err(Error::Exists { name }) if name == "a"));
        assert!(matches!(make("host", None), Err(Error::BadName { .. })));
        let overlapping = make("c", Some("100.80.0.0/16")).unwrap_err();
        assert!(matches!(overlapping, Error::Overlaps { .. }), "{overlapping}");
        let names: Vec<String> =
            networks.list().unwrap().iter().map(|one| one.name().to_owned()).collect();
        assert_eq!(names, ["a", "b", "named"]);
    }

    #[test]
    fn found_by_name_and_by_id() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        let networks = Networks::of(&store);
        let made = networks.create(request("lab", None), (&[], &[])).unwrap();
        let id = made.id().to_owned();
        assert_eq!(id.len(), 64);
        // A name that is the beginning of an id.
        let other = networks.create(request(&id[..4], None), (&[], &[])).unwrap();
        let find = |name: &str| networks.find(name).map(|found| found.id().to_owned());
        assert_eq!(find("lab").unwrap(), id);
        assert_eq!((find(&id).unwrap(), find(&id[..9]).unwrap()), (id.clone(), id.clone()));
        assert_eq!(find(&id[..4]).unwrap(), other.id());
        for none in ["", "nothing", "../lab"] {
            assert!(matches!(find(none), Err(Error::NotFound { .. })), "{none}");
        }
        // Of 17 ids two begin with the same digit.
        let mut seen = std::collections::HashSet::new();
        let first = (0..17).find_map(|number| {
            let made = networks.create(request(&format!("n{number}"), None), (&[], &[])).unwrap();
            let digit = made.id()[..1].to_owned();
            (!seen.insert(digit.clone())).then_some(digit)
        });
        let first = first.unwrap();
        let ambiguous = find(&first).unwrap_err();
        assert!(
            matches!(&ambiguous, Error::Ambiguous { candidates, .. } if candidates.len() > 1),
            "{ambiguous}"
        );
    }

    #[test]
    fn ipv6_is_wished() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        let networks = Networks::of(&store);
        let make = |name: &str, prefix: Option<&str>, routes: &[Prefix]| {
            let prefix = prefix.map(|text| text.parse().unwrap());
            let request = Request { ipv6: true, prefix, ..request(name, None) };
            let made = networks.create(request, (&[], routes))?;
            Ok::<_, Error>(made.definition().ipv6.unwrap())
        };
        assert_eq!(
            networks.create(request("old", None), (&[], &[])).unwrap().definition().ipv6,
            None
        );
        let [a, b] = ["a", "b"].map(|name| make(name, None, &[]).unwrap());
        assert!(a != b && a.to_string().starts_with("fd") && a.bits() == 64, "{a} {b}");
        assert_eq!(make("c", Some("fd00:80::/80"), &[]).unwrap().to_string(), "fd00:80::/80");
        let read = networks.find("c").unwrap();
        assert_eq!(read.definition().ipv6.unwrap().to_string(), "fd00:80::/80");
        let routed: Prefix = "fd00:81::/48".parse().unwrap();
        for (prefix, part) in [
            ("fd00:80::/64", "overlaps with fd00:80::/80 of network c"),
            ("fd00:81::/64", "overlaps with fd00:81::/48, to which"),
            ("fd00:82::/48", "fewer than 64"),
            ("fe80::/64", "link-local"),
        ] {
            let error = make("d", Some(prefix), &[routed]).unwrap_err();
            assert!(error.to_string().contains(part), "{prefix}: {error}");
            assert!(error.hint().unwrap().contains("--ipv6") || part.starts_with(['f', 'l']));
        }
    }

    /// Makers of networks on several threads never get the same addresses.
    #[test]
    fn many_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        std::thread::scope(|scope| {
            for number in 0..8 {
                let store = &store;
                scope.spawn(move || {
                    for turn in 0..4 {
                        let name = format!("n{number}-{turn}");
                        Networks::of(store).create(request(&name, None), (&[], &[])).unwrap();
                        let same = Networks::of(store).create(request("same", None), (&[], &[]));
                        assert!(matches!(same, Ok(_) | Err(Error::Exists { .. })));
                    }
                });
            }
        });
        let mut subnets: Vec<Subnet> = Networks::of(&store)
            .list()
            .unwrap()
            .iter()
            .map(|one| one.definition().subnet)
            .collect();
        subnets.sort_unstable();
        subnets.dedup();
        assert_eq!(subnets.len(), 33);
    }
}
