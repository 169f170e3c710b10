//! Which namespaces a container gets, and its network.

use super::{Device, Namespaces, Network, Outside, Packets, PrivateBy, Request, Source, WayOut};
use crate::error::{Error, Result};
use crate::facts::{Facts, SharedNetwork};
use crate::spec::{NamespaceMode, NetworkMode, Publish};
use abi::network::members::SOCKETS;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use sys::namespace::Kinds;

/// A process whose namespaces are to be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// Its number where the caller is.
    pub pid: u32,
    /// The kinds of namespace in which it differs from the caller.
    pub own: Kinds,
}

impl Neighbour {
    /// Looks at a process; `None` if it is gone or may not be looked at.
    pub fn of(pid: u32) -> Option<Self> {
        sys::namespace::different(pid).ok().map(|own| Self { pid, own })
    }

    /// Whether its root directory is this one.
    pub fn has_root(&self, dir: &Path) -> bool {
        let root = fs::metadata(format!("/proc/{}/root", self.pid));
        let is_it = |root: fs::Metadata| {
            fs::metadata(dir).is_ok_and(|dir| (dir.dev(), dir.ino()) == (root.dev(), root.ino()))
        };
        root.is_ok_and(is_it)
    }

    /// Where its namespace comes from. The caller's own is not entered: that takes privilege in the
    /// namespace above.
    fn source(self, kind: Kinds) -> Source {
        if self.own.has(kind) { Source::Of(self.pid) } else { Source::Host }
    }

    /// The process whose user namespace must be entered before any other of its namespaces.
    fn user(self) -> Option<u32> {
        self.own.has(Kinds::USER).then_some(self.pid)
    }
}

/// Namespaces and network of a container.
pub(super) fn namespaces(
    request: &Request<'_>,
    hostname: Option<&str>,
    warnings: &mut Vec<String>,
) -> Result<(Namespaces, Network)> {
    let mut chosen = Chosen { request, namespaces: Namespaces::default() };
    chosen.private_or_shared(hostname)?;
    let network = chosen.network(warnings)?;
    chosen.share_host_name(hostname)?;
    chosen.join()?;
    // The host's name is not known on a network of the container's own.
    let namespaces = &mut chosen.namespaces;
    let is_own = namespaces.net == Source::New || matches!(network, Network::Names(_));
    if is_own
        && namespaces.uts == Source::Host
        && request.config.namespaces.uts == NamespaceMode::Default
    {
        namespaces.uts = Source::New;
    }
    Ok((chosen.namespaces, network))
}

/// The choice so far.
struct Chosen<'a> {
    request: &'a Request<'a>,
    namespaces: Namespaces,
}

impl Chosen<'_> {
    /// A process of another container.
    fn neighbour(&self, name: &str) -> Result<Neighbour> {
        (self.request.running)(name).ok_or_else(|| Error::NotRunning(name.into()))
    }

    /// The namespace of a kind that is shared with another container. It can only be entered with
    /// capabilities in the user namespace that owns it, so that one is entered before.
    fn shared(&mut self, name: &str, kind: Kinds) -> Result<Source> {
        let other = self.neighbour(name)?;
        self.namespaces.user_of = other.user();
        Ok(other.source(kind))
    }

    fn of_kind(&mut self, mode: &NamespaceMode, kind: Kinds) -> Result<Source> {
        Ok(match mode {
            NamespaceMode::Default if self.request.config.security.isolate => Source::New,
            NamespaceMode::Default | NamespaceMode::Host => Source::Host,
            NamespaceMode::Private => Source::New,
            NamespaceMode::Container(name) => self.shared(name, kind)?,
        })
    }

    fn private_or_shared(&mut self, hostname: Option<&str>) -> Result<()> {
        let asked = &self.request.config.namespaces;
        self.namespaces.pid = self.of_kind(&asked.pid, Kinds::PID)?;
        self.namespaces.ipc = self.of_kind(&asked.ipc, Kinds::IPC)?;
        self.namespaces.uts = self.of_kind(&asked.uts, Kinds::UTS)?;
        self.namespaces.cgroup = self.of_kind(&asked.cgroup, Kinds::CGROUP)?;
        if hostname.is_some() && self.namespaces.uts == Source::Host {
            if asked.uts == NamespaceMode::Host {
                return Err(Error::Invalid {
                    what: "--hostname".into(),
                    value: hostname.unwrap_or_default().into(),
                    why: "it needs a host name of the container's own, not --uts=host".into(),
                });
            }
            self.namespaces.uts = Source::New;
        }
        Ok(())
    }

    fn network(&mut self, warnings: &mut Vec<String>) -> Result<Network> {
        let config = self.request.config;
        let mode = match &config.network.mode {
            NetworkMode::Default if config.security.isolate => &NetworkMode::Private,
            NetworkMode::Default => &NetworkMode::Host,
            mode => mode,
        };
        let network = match mode {
            NetworkMode::Private => match self.request.private {
                PrivateBy::Translation => translated(self.request)?,
                PrivateBy::Namespace => {
                    self.namespaces.net = Source::New;
                    Network::Helper(helper(self.request)?)
                }
            },
            NetworkMode::None => {
                self.namespaces.net = Source::New;
                Network::Loopback
            }
            NetworkMode::Container(name) => self.network_of(name)?,
            NetworkMode::Named(_) => match self.request.private {
                PrivateBy::Translation => translated(self.request)?,
                PrivateBy::Namespace => {
                    self.namespaces.net = Source::New;
                    packets(self.request, warnings)?
                }
            },
            NetworkMode::Default | NetworkMode::Host => Network::Inherit,
        };
        let publishes = matches!(network, Network::Helper(_)) || network.is_named();
        if !config.network.publish.is_empty() && !publishes {
            let mode = String::from(mode.clone());
            warnings.push(format!("published ports are discarded with --network={mode}"));
        }
        Ok(network)
    }

    /// The network of another container, made as it is there.
    fn network_of(&mut self, name: &str) -> Result<Network> {
        let request = self.request;
        if request.private == PrivateBy::Namespace {
            self.namespaces.net = self.shared(name, Kinds::NET)?;
            return Ok(Network::Inherit);
        }
        if request.facts.shared_network == Some(SharedNetwork::Names) {
            return Ok(Network::Names(request.network.cloned()));
        }
        // What runs has its network, also after the other one's end.
        if !request.overrides.exec {
            self.neighbour(name)?;
        }
        Ok(Network::Inherit)
    }

    /// A container that shares another one's network and `/etc/hosts` also has its host name.
    fn share_host_name(&mut self, hostname: Option<&str>) -> Result<()> {
        let config = self.request.config;
        if self.request.private == PrivateBy::Namespace
            && let NetworkMode::Container(name) = &config.network.mode
            && config.namespaces.uts == NamespaceMode::Default
            && hostname.is_none()
        {
            self.namespaces.uts = self.shared(name, Kinds::UTS)?;
        }
        Ok(())
    }

    /// `--join`: the namespaces of another container, where nothing else is asked for.
    fn join(&mut self) -> Result<()> {
        let config = self.request.config;
        let Some(name) = &config.join else { return Ok(()) };
        let other = self.neighbour(name)?;
        let (asked, namespaces) = (&config.namespaces, &mut self.namespaces);
        namespaces.user_of = other.user();
        for (slot, mode, kind) in [
            (&mut namespaces.pid, &asked.pid, Kinds::PID),
            (&mut namespaces.ipc, &asked.ipc, Kinds::IPC),
            (&mut namespaces.uts, &asked.uts, Kinds::UTS),
        ] {
            if *mode == NamespaceMode::Default {
                *slot = other.source(kind);
            }
        }
        if config.network.mode == NetworkMode::Default {
            if self.request.facts.shared_network == Some(SharedNetwork::Names) {
                return Err(Error::Missing {
                    what: format!("--join {name}"),
                    needs: "its network to be the host's, or in a namespace: here its addresses \
                            are translated"
                        .into(),
                    hint: Some(format!(
                        "use --network=container:{name} instead, or give another --network"
                    )),
                });
            }
            namespaces.net = other.source(Kinds::NET);
        }
        Ok(())
    }
}

/// The program that connects a private network.
fn helper(request: &Request<'_>) -> Result<Outside> {
    let facts = request.facts;
    check_ports(request)?;
    let publish = request.config.network.publish.clone();
    let (program, slirp, or_slirp) = match (&facts.pasta, &facts.slirp4netns) {
        // Without a default route pasta finds no addresses to copy.
        (Some(_), Some(slirp)) if facts.no_default_route => (slirp.clone(), true, None),
        (Some(pasta), slirp) => (pasta.clone(), false, slirp.clone()),
        (None, Some(slirp)) => (slirp.clone(), true, None),
        (None, None) => {
            return Err(Error::Missing {
                what: "a private network".into(),
                needs: "the program pasta or slirp4netns".into(),
                hint: Some("install one of them, or use --network=host or --network=none".into()),
            });
        }
    };
    Ok(Outside { program, slirp, or_slirp, publish })
}

/// Networks with names in a namespace.
fn packets(request: &Request<'_>, warnings: &mut Vec<String>) -> Result<Network> {
    let facts = request.facts;
    let is_exec = request.overrides.exec;
    let publishes = !request.config.network.publish.is_empty();
    let outside = match facts.no_helper_out() {
        _ if is_exec => None,
        _ if facts.internal_networks => {
            if publishes {
                warnings.push("published ports are discarded: the network is internal".into());
            }
            None
        }
        None => Some(WayOut::Helper(helper(request)?)),
        Some(because) => {
            check_ports(request)?;
            let publish = request.config.network.publish.clone();
            check_count(&publish)?;
            Some(WayOut::Switch { because, publish })
        }
    };
    let device = device(facts, warnings);
    let packets = Packets { device, outside, place: request.network.cloned() };
    Ok(Network::Packets(Box::new(packets)))
}

/// All sockets go to the switch with one message.
fn check_count(publish: &[Publish]) -> Result<()> {
    let count: usize = publish.iter().map(|one| one.pairs().count()).sum();
    if count <= SOCKETS {
        return Ok(());
    }
    Err(Error::Missing {
        what: format!("publishing {count} ports of a network with a name"),
        needs: format!("pasta or slirp4netns: without them there are {SOCKETS} at most"),
        hint: Some("publish fewer, or use a mode without namespaces, as --execmode=I1".into()),
    })
}

/// What the container's devices are made of.
fn device(facts: &Facts, warnings: &mut Vec<String>) -> Device {
    match (facts.link.as_str(), &facts.no_tun) {
        ("veth", _) | ("" | "tap", Some(_)) => Device::Veth,
        ("" | "tap", None) => Device::Tap,
        (other, no_tun) => {
            let variable = crate::facts::LINK;
            warnings.push(format!("{variable}={other} has no effect: there are tap and veth"));
            if no_tun.is_some() { Device::Veth } else { Device::Tap }
        }
    }
}

/// A network without a namespace.
fn translated(request: &Request<'_>) -> Result<Network> {
    check_ports(request)?;
    if !request.overrides.exec {
        check_places(&request.config.network.publish)?;
    }
    Ok(Network::Names(request.network.cloned()))
}

/// Without a namespace the program's own socket is bound at the host's port, so a port of the
/// container has one.
fn check_places(publish: &[Publish]) -> Result<()> {
    let mut seen = HashSet::new();
    let all = publish.iter().flat_map(|one| one.pairs().map(|(_, inside)| (inside, one.udp)));
    for (inside, udp) in all {
        if !seen.insert((inside, udp)) {
            let protocol = if udp { "udp" } else { "tcp" };
            return Err(Error::Missing {
                what: format!("publishing port {inside}/{protocol} of the container twice"),
                needs: "a network namespace: in this mode a port has one place on the host".into(),
                hint: Some("publish it once, or use --execmode=N1".into()),
            });
        }
    }
    Ok(())
}

/// The helper listens as the user, and so does a program without a namespace.
fn check_ports(request: &Request<'_>) -> Result<()> {
    let first = request.facts.first_port;
    let low = request.config.network.publish.iter().find(|one| one.host < first);
    low.map_or(Ok(()), |low| Err(low_port(low.host, first)))
}

fn low_port(port: u16, first: u16) -> Error {
    Error::Missing {
        what: format!("publishing the host's port {port}"),
        needs: format!("root: this host keeps the ports below {first} for it"),
        hint: Some(format!(
            "publish at another port of the host, as -p {}:PORT; the administrator can lower \
             net.ipv4.ip_unprivileged_port_start",
            if port < 1000 { 8000 + port } else { first }
        )),
    }
}
