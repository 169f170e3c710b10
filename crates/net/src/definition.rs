//! What a network is: the contents of its `network.json`, and the names that it may have.
//!
//! Unknown fields are ignored, and missing ones have defaults, so that an older program reads what
//! a newer one wrote as far as it understands it. A network with a scope that this program does not
//! know is listed and can be removed, and no container joins it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::prefix::Prefix;
use crate::subnet::Subnet;

/// Names that mean something else where a network is named, in Docker, Podman or here.
pub const RESERVED: [&str; 8] =
    ["host", "none", BRIDGE, "default", "private", "pasta", "slirp4netns", "null"];

/// The network of containers that have one of their own and name none, where the switch has to make
/// it: as Docker's default network, which gives addresses and no names. A store makes it when it is
/// first needed.
pub const BRIDGE: &str = "bridge";
/// Its id, the same in every store. Its digits begin with the letters of the name.
pub const BRIDGE_ID: &str = "6272696467650000000000000000000000000000000000000000000000000000";

/// Docker's word for the driver of these networks.
pub const DRIVER: &str = "bridge";

/// A network. Its subnet has 8 to 30 bits; gateway and range are in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// Its name; see [`check_name`].
    pub name: String,
    /// 64 hexadecimal digits.
    pub id: String,
    /// Time of creation, RFC 3339.
    #[serde(default)]
    pub created: String,
    /// Who meets in it.
    #[serde(default)]
    pub scope: Scope,
    /// The addresses.
    pub subnet: Subnet,
    /// The IPv6 addresses, of which a member by packets has the one that follows from its IPv4
    /// address; `None` in a network without IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Prefix>,
    /// The address of the way out, which no container gets.
    pub gateway: Ipv4Addr,
    /// The part of the subnet from which containers get addresses that they did not ask for; all of
    /// it if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Subnet>,
    /// Docker's auxiliary addresses: no container gets one. A member by packets has one from when
    /// it announces it until another one does ([`crate::switch`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub auxiliary: Auxiliary,
    /// Members reach each other and nothing else.
    #[serde(default)]
    pub internal: bool,
    /// Docker's word for what any network here is: single containers may join. Recorded and shown.
    #[serde(default)]
    pub attachable: bool,
    /// Labels that the user gave.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Options that the user gave: recorded and shown.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

/// Addresses with their names, in the order of these.
pub type Auxiliary = Vec<(String, Ipv4Addr)>;

impl Definition {
    /// Whether an address is an auxiliary one.
    pub fn is_auxiliary(&self, address: Ipv4Addr) -> bool {
        self.auxiliary.iter().any(|(_, other)| *other == address)
    }
}

#[cfg(test)]
impl Definition {
    /// One of a host with a name and a subnet.
    pub(crate) fn of(name: &str, subnet: &str) -> Self {
        let subnet: Subnet = subnet.parse().unwrap();
        Self {
            name: name.into(),
            id: String::new(),
            created: String::new(),
            scope: Scope::Host,
            subnet,
            ipv6: None,
            gateway: subnet.hosts().0,
            range: None,
            auxiliary: Vec::new(),
            internal: false,
            attachable: false,
            labels: BTreeMap::new(),
            options: BTreeMap::new(),
        }
    }
}

/// Who meets in a network.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Scope {
    /// The containers of one host.
    #[default]
    Host,
    /// The containers of several hosts, which [`crate::peers`] connects.
    Cluster,
    /// A scope of a later version, as it stands in the record.
    Later(String),
}

impl Scope {
    /// Fails for a scope that this program cannot give to a network.
    ///
    /// # Errors
    /// [`Error::Scope`].
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Host | Self::Cluster => Ok(()),
            Self::Later(scope) => Err(Error::Scope { scope: scope.clone() }),
        }
    }
}

impl FromStr for Scope {
    type Err = Error;

    /// Reads the scope of a new network: `host`, or Docker's word for it, `local`; `cluster`.
    fn from_str(text: &str) -> Result<Self> {
        let scope = if text == "local" { Self::Host } else { Self::from(text.to_owned()) };
        scope.check().map(|()| scope)
    }
}

impl From<String> for Scope {
    fn from(text: String) -> Self {
        match text.as_str() {
            "host" => Self::Host,
            "cluster" => Self::Cluster,
            _ => Self::Later(text),
        }
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Host => "host".to_owned(),
            Scope::Cluster => "cluster".to_owned(),
            Scope::Later(scope) => scope,
        }
    }
}

/// Checks the name of a new network: Docker's rule, `[a-zA-Z0-9][a-zA-Z0-9_.-]*`, at most 200
/// characters, and none that means something else where a network is named ([`RESERVED`],
/// `container:…`), is a file beside the networks, or looks like an id.
///
/// # Errors
/// [`Error::BadName`] with the rule that is broken.
pub fn check_name(name: &str) -> Result<()> {
    let bad = |why: &str| Err(Error::BadName { name: name.to_owned(), why: why.to_owned() });
    if RESERVED.contains(&name) || name.starts_with("container:") {
        return bad("it is reserved");
    }
    let is_file = |start, end| name.starts_with(start) && name.ends_with(end);
    if is_file("slots-", ".json") || is_file("agent-", ".sock") {
        return bad("it is reserved for a file of the store");
    }
    match store::names::check(name) {
        Ok(()) => Ok(()),
        Err(store::Error::BadName { why, .. }) => bad(why),
        Err(other) => Err(Error::store("check the name of a network")(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["lab", "a", "0", "my_net-1.x", "Host", "slots", "members-a.json"] {
            check_name(good).unwrap();
        }
        let id = "0".repeat(64);
        for bad in RESERVED.into_iter().chain([
            "",
            "-a",
            ".a",
            "a/b",
            "a b",
            "container:db",
            "container:",
            "ü",
            "a\n",
            "slots-x.json",
            "agent-x.sock",
            &id,
            &"x".repeat(201),
        ]) {
            let error = check_name(bad).unwrap_err();
            assert!(matches!(&error, Error::BadName { name, .. } if name == bad), "{bad}: {error}");
        }
    }

    #[test]
    fn scopes() {
        assert_eq!("host".parse::<Scope>().unwrap(), Scope::Host);
        assert_eq!("local".parse::<Scope>().unwrap(), Scope::Host);
        assert_eq!(String::from(Scope::Host), "host");
        assert_eq!("cluster".parse::<Scope>().unwrap(), Scope::Cluster);
        for other in ["swarm", "global", "", "Host"] {
            let error = other.parse::<Scope>().unwrap_err();
            assert!(error.to_string().contains("not supported by this version"), "{error}");
        }
    }

    /// A program of another version reads it.
    #[test]
    fn the_form_on_disk() {
        let text = r#"{"name":"lab","id":"00","created":"2026-01-01T00:00:00Z","scope":"host",
            "subnet":"100.80.0.0/24","gateway":"100.80.0.1","colour":"red"}"#;
        let read: Definition = serde_json::from_str(text).unwrap();
        assert_eq!((read.range, read.internal, &read.scope), (None, false, &Scope::Host));
        assert_eq!((read.ipv6, read.auxiliary.len()), (None, 0));
        let written = serde_json::to_value(&read).unwrap();
        assert_eq!(written["scope"], "host");
        assert!(written.get("ipv6").is_none(), "{written}");
        assert!(written.get("auxiliary").is_none(), "{written}");
        assert_eq!(serde_json::from_value::<Definition>(written).unwrap(), read);
        let later = text.replace("\"host\"", "\"galaxy\"");
        let later: Definition = serde_json::from_str(&later).unwrap();
        assert!(matches!(later.scope.check(), Err(Error::Scope { scope }) if scope == "galaxy"));
        assert_eq!(serde_json::to_value(&later).unwrap()["scope"], "galaxy");
    }
}
