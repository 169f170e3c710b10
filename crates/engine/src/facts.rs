//! The few facts about caller and host that a plan depends on.
//!
//! Plain data, so that plans can be computed in tests for any host. [`Facts::of`] takes them from
//! [`host::Host`] and looks for helper programs and control groups only where the container asks
//! for something that needs them, so that an ordinary run pays nothing. It stands in
//! [`crate::choose`], since the engine that is asked for says which programs it needs.

use crate::error::Errno;
use crate::spec::{ContainerConfig, NetworkMode, UserNamespace};
use host::{Context, Host, Trial};
use rustix::process::Resource;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// The variable with the names of [`Facts::switches`].
pub const SWITCHES: &str = "CORACLE_STAGE";

/// The variable that says what devices of network namespaces are: `tap` or `veth`.
pub const LINK: &str = "CORACLE_LINK";

/// What makes the network that another container is to share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharedNetwork {
    /// A network namespace.
    Namespace,
    /// A place in the table of networks: its addresses are translated.
    Names,
}

/// The caller, and what the host offers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Facts {
    /// Effective user id of the caller.
    pub uid: u32,
    /// Effective group id of the caller.
    pub gid: u32,
    /// Supplementary groups of the caller.
    pub groups: Vec<u32>,
    /// Why user namespaces cannot be used, if that is known. `None` means "try".
    pub no_user_namespace: Option<String>,
    /// Why overlays cannot be mounted on the store's file system, if that was tried.
    pub no_overlay: Option<String>,
    /// Subordinate user ids as (first, count).
    pub subuids: Vec<(u32, u32)>,
    /// Subordinate group ids as (first, count).
    pub subgids: Vec<(u32, u32)>,
    /// Path of `newuidmap`.
    pub newuidmap: Option<PathBuf>,
    /// Path of `newgidmap`.
    pub newgidmap: Option<PathBuf>,
    /// Path of `pasta`.
    pub pasta: Option<PathBuf>,
    /// Path of `slirp4netns`.
    pub slirp4netns: Option<PathBuf>,
    /// This host has no default route, which pasta takes its addresses from.
    pub no_default_route: bool,
    /// What leads to other members, where the container is in networks with names.
    pub ways: Option<Ways>,
    /// Why the caller cannot make TAP devices, where that was asked. Helpers of networks need them.
    pub no_tun: Option<String>,
    /// What [`LINK`] says.
    pub link: String,
    /// All of the container's networks with names were made with `--internal`. Who knows the
    /// networks sets it.
    pub internal_networks: bool,
    /// What the container has whose network this one shares; `None` for the host's, and where it
    /// does not run. Who knows the containers sets it.
    pub shared_network: Option<SharedNetwork>,
    /// This host's address at the interface with the default route, where a container asks for it
    /// (`--add-host NAME:host-gateway`). Who knows this host's addresses sets it.
    pub host_address: Option<Ipv4Addr>,
    /// The host's name.
    pub host_name: String,
    /// The host name of the container whose name is shared (`--network container:NAME`, `--join`).
    /// Who knows the containers sets it.
    pub shared_name: Option<String>,
    /// The first port that the caller may listen on.
    pub first_port: u16,
    /// The size of the host's `/dev/shm`, where the container asks for one.
    pub shm_size: Option<u64>,
    /// A cgroup v2 directory in which the caller may make children with controllers.
    pub cgroup: Option<Delegated>,
    /// Path of `systemd-run` where a user manager answers.
    pub systemd_run: Option<PathBuf>,
    /// Hard limits of the caller by `RLIMIT_*` numbers, where the container asks for limits;
    /// `u64::MAX` for none.
    pub hard_limits: Vec<u64>,
    /// `/proc/self/oom_score_adj` of the caller, where the container asks for another.
    pub oom_score_adj: Option<i32>,
    /// Major and minor number of the kernel.
    pub kernel: (u32, u32),
    /// No system call filter can be installed.
    pub no_seccomp: Option<String>,
    /// Why children cannot be traced, if that is known.
    pub no_ptrace: Option<String>,
    /// Why a filter cannot stop a traced child, if that is known.
    pub no_seccomp_stops: Option<String>,
    /// A trial has shown that a program runs with the engine inside its process.
    pub inside_works: bool,
    /// Why that does not work, if it was tried.
    pub no_inside: Option<String>,
    /// Why call sites cannot be rewritten, if that was tried.
    pub no_rewriting: Option<String>,
    /// A trial has shown that a program runs with its text changed, and no filter.
    pub texts_work: bool,
    /// Why that does not work, if it was tried.
    pub no_texts: Option<String>,
    /// Programs that engines need ([`crate::engines::Helper`]), by their keys: found where the mode
    /// asked for needs one.
    pub helpers: BTreeMap<String, FoundHelper>,
    /// Features that the backend inside processes does not use, by names
    /// ([`abi::shared::Switches`]).
    pub switches: String,
}

/// What leads to the other members of networks with names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ways {
    /// The interface at which a container sees its addresses.
    pub interface: String,
    /// This host has adapters for remote memory that work: InfiniBand and the like.
    pub has_rdma: bool,
}

/// A program of the host that an engine needs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FoundHelper {
    /// Its path.
    pub path: PathBuf,
    /// It works with privileges that its administrator gave it.
    pub privileged: bool,
}

/// A control group that the caller owns.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Delegated {
    /// The directory.
    pub path: PathBuf,
    /// Controllers that its children can have.
    pub controllers: Vec<String>,
}

impl Facts {
    /// The facts that matter to this container, without helpers of engines.
    pub(crate) fn of_host(host: &Host, context: &Context, config: &ContainerConfig) -> Self {
        let caller = &host.caller;
        let pairs = |ranges: &[host::IdRange]| {
            ranges.iter().map(|range| (range.start, range.count)).collect::<Vec<_>>()
        };
        let failed = |trial: &Trial| match trial {
            Trial::Fails { why, .. } => Some(why.clone()),
            Trial::Untried | Trial::Works { .. } => None,
        };
        let mut facts = Self {
            uid: caller.uid,
            gid: caller.gid,
            groups: caller.groups.clone(),
            no_user_namespace: failed(&host.namespaces.user),
            no_overlay: failed(&host.overlay.kernel).filter(|_| {
                // There the choice does not depend on it: it was not tried for a run.
                !host.store.as_ref().is_some_and(|disk| disk.kind.is_network())
            }),
            no_seccomp: failed(&host.seccomp.filter),
            no_ptrace: surrounded().or_else(|| failed(&host.ptrace.child)),
            no_seccomp_stops: failed(&host.ptrace.seccomp_stops),
            kernel: (host.kernel.major, host.kernel.minor),
            inside_works: matches!(host.inside_process.signals, Trial::Works { .. }),
            no_inside: failed(&host.inside_process.signals),
            no_rewriting: failed(&host.inside_process.rewriting),
            texts_work: matches!(host.inside_process.texts, Trial::Works { .. }),
            no_texts: failed(&host.inside_process.texts),
            switches: context.env.get(SWITCHES).cloned().unwrap_or_default(),
            host_name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            ..Self::default()
        };
        if caller.uid == 0 {
            facts.subuids = own_map("/proc/self/uid_map");
            facts.subgids = own_map("/proc/self/gid_map");
        } else if matches!(config.namespaces.user, UserNamespace::Auto | UserNamespace::KeepId)
            && maps_ranges(host)
        {
            facts.subuids = pairs(&host.subordinate.uids);
            facts.subgids = pairs(&host.subordinate.gids);
            facts.newuidmap = host.programs.find("newuidmap");
            facts.newgidmap = host.programs.find("newgidmap");
        }
        let private = match config.network.mode {
            NetworkMode::Private => true,
            NetworkMode::Default => config.security.isolate,
            NetworkMode::Host
            | NetworkMode::None
            | NetworkMode::Container(_)
            | NetworkMode::Named(_) => false,
        };
        let named = matches!(config.network.mode, NetworkMode::Named(_));
        if private || named {
            facts.no_tun = sys::tap::check().err().map(|errno| Errno::from(errno).to_string());
            facts.link = context.env.get(LINK).cloned().unwrap_or_default();
            facts.pasta = host.programs.find("pasta");
            facts.slirp4netns = host.programs.find("slirp4netns");
            facts.no_default_route = !has_default_route();
        }
        if !config.network.networks.is_empty() {
            facts.ways = Some(Ways::of_host());
        }
        let publishes = !config.network.published().is_empty();
        if caller.uid != 0 && (private || publishes) {
            facts.first_port = first_port();
        }
        let limits = &config.limits;
        if limits.shm_size.is_some() {
            let found = rustix::fs::statvfs("/dev/shm").ok();
            facts.shm_size = found.map(|found| found.f_frsize.saturating_mul(found.f_blocks));
        }
        if !limits.ulimits.is_empty() {
            facts.hard_limits = hard_limits();
        }
        if limits.oom_score_adj.is_some() {
            let text = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
            facts.oom_score_adj = text.trim().parse().ok();
        }
        if limits.need_group() {
            let cgroup = host.cgroup_now(context);
            let (path, controllers) = (cgroup.delegated, cgroup.controllers);
            facts.cgroup = path.map(|path| Delegated { path, controllers });
            if !matches!(cgroup.systemd_user, Trial::Fails { .. }) {
                facts.systemd_run = host.programs.find("systemd-run");
            }
        }
        facts
    }

    /// The program with this key, if it was found.
    #[must_use]
    pub fn helper(&self, key: &str) -> Option<&FoundHelper> {
        self.helpers.get(key)
    }

    /// Why no helper program can connect a network namespace with the outside, if that is so.
    #[must_use]
    pub fn no_helper_out(&self) -> Option<String> {
        if let Some(why) = &self.no_tun {
            return Some(format!("{} cannot be opened: {why}", sys::tap::DEVICE));
        }
        match (&self.pasta, &self.slirp4netns) {
            (_, Some(_)) => None,
            (None, None) => Some("neither pasta nor slirp4netns is in PATH".into()),
            (Some(_), None) => self.no_default_route.then(|| {
                "this host has no default route, without which pasta has nothing to copy".into()
            }),
        }
    }

    /// Whether a range of ids can be mapped.
    pub fn has_range(&self) -> bool {
        self.uid == 0
            || (!self.subuids.is_empty()
                && !self.subgids.is_empty()
                && self.newuidmap.is_some()
                && self.newgidmap.is_some())
    }

    /// Whether a namespace of the kernel's has one id, and what it lacks can be emulated in it.
    #[must_use]
    pub fn has_one_id(&self, asked: UserNamespace) -> bool {
        matches!(asked, UserNamespace::Auto | UserNamespace::Single | UserNamespace::KeepId)
            && cfg!(target_arch = "x86_64")
            && self.uid != 0
            && !self.has_range()
    }
}

/// Resources with limits, in the order of their numbers; see getrlimit(2).
pub(crate) const RESOURCES: [Resource; 16] = [
    Resource::Cpu,
    Resource::Fsize,
    Resource::Data,
    Resource::Stack,
    Resource::Core,
    Resource::Rss,
    Resource::Nproc,
    Resource::Nofile,
    Resource::Memlock,
    Resource::As,
    Resource::Locks,
    Resource::Sigpending,
    Resource::Msgqueue,
    Resource::Nice,
    Resource::Rtprio,
    Resource::Rttime,
];

/// The hard limits of this process, in the order of their numbers; `u64::MAX` for none.
fn hard_limits() -> Vec<u64> {
    let hard = |&resource: &Resource| rustix::process::getrlimit(resource).maximum;
    RESOURCES.iter().map(|resource| hard(resource).unwrap_or(u64::MAX)).collect()
}

/// Whether `newuidmap` can map ranges for a caller who is not root: there are some, the program is
/// installed, set-user-id programs have their effect, and the ids exist in this user namespace (in
/// a sandbox that maps one id neither is so). It refuses a caller whose group is not his primary
/// one (`newgrp`).
pub fn maps_ranges(host: &Host) -> bool {
    let is_installed = |name| host.programs.find(name).is_some();
    let caller = &host.caller;
    host.subordinate.any()
        && caller.primary.is_none_or(|primary| primary == caller.gid)
        && is_installed("newuidmap")
        && is_installed("newgidmap")
        && ranges_can_be_mapped(&host.subordinate.uids)
}

fn ranges_can_be_mapped(ranges: &[host::IdRange]) -> bool {
    let known = own_map("/proc/self/uid_map");
    let exists = |range: &host::IdRange| {
        known.iter().any(|&(first, count)| {
            first <= range.start && range.start - first + range.count <= count
        })
    };
    !rustix::thread::no_new_privs().unwrap_or(false) && ranges.iter().all(exists)
}

/// Why programs cannot be traced where this process is itself in a container without namespaces: it
/// has a tracer already; or a backend inside it makes calls of its own and raises signals, which a
/// tracer would take for the guest's. Both have a loader in this process.
fn surrounded() -> Option<String> {
    (is_served() && !sys::namespace::can_leave_engine()).then(|| {
        "this is a container without namespaces itself, whose programs an engine serves already, and cannot be traced for another".into()
    })
}

/// Whether an engine serves this process, from inside.
pub(crate) fn is_served() -> bool {
    use abi::boot::{BASES, start};
    (0..BASES).any(|place| sys::mapped::is_mapped(start(place)))
}

/// Whether the kernel has a route to everywhere, for either family; true where it does not tell.
impl Ways {
    fn of_host() -> Self {
        let label = view::sockets::interfaces::shown_at(&mut Routes);
        let name = label.split(|byte| *byte == 0).next().unwrap_or_default();
        Self {
            interface: String::from_utf8_lossy(name).into_owned(),
            has_rdma: !host::Infiniband::read().ports.is_empty(),
        }
    }
}

/// Asks the kernel as the view does.
struct Routes;

impl view::guest::Sockets for Routes {
    fn ask_routes(&mut self, request: &[u8], answer: &mut [u8]) -> view::errno::Result<usize> {
        let told = sys::socket::ask_netlink(None, request, answer);
        told.map_err(|error| view::Errno(error.raw_os_error() as u16))
    }
}

fn has_default_route() -> bool {
    let text = |path| std::fs::read_to_string(path).ok();
    // Destination and mask are columns 1 and 7 of the one, destination and its length columns 0 and
    // 1 of the other, whose last is the device. The loopback's route there refuses everything.
    let old = text("/proc/self/net/route").map(|text| {
        text.lines().skip(1).any(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields.get(1) == Some(&"00000000") && fields.get(7) == Some(&"00000000")
        })
    });
    let new = text("/proc/self/net/ipv6_route").map(|text| {
        text.lines().any(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields.get(1) == Some(&"00")
                && fields.first().is_some_and(|to| to.bytes().all(|byte| byte == b'0'))
                && fields.last() != Some(&"lo")
        })
    });
    match (old, new) {
        (None, None) => true,
        (old, new) => old.unwrap_or(false) || new.unwrap_or(false),
    }
}

/// The first port that is not kept for root.
fn first_port() -> u16 {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// The ids that exist in this user namespace: root maps each of them as it is.
fn own_map(path: &str) -> Vec<(u32, u32)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let inside = fields.next()?.parse().ok()?;
            let count = fields.nth(1)?.parse().ok()?;
            Some((inside, count))
        })
        .collect()
}
